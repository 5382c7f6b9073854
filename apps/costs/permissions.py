"""Who may open a closed month again."""

from django.core.exceptions import PermissionDenied

from apps.accounts.models import User
from apps.accounts.permissions import can_administer


def check_reopen(user: User) -> None:
    """Raise PermissionDenied for all but admins."""
    if not can_administer(user):
        raise PermissionDenied("Only an admin opens a closed month again.")
