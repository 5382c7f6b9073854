"""Who may close a month, and who may open one again."""

from django.core.exceptions import PermissionDenied

from apps.accounts.domain.roles import Role
from apps.accounts.models import User
from apps.accounts.permissions import can_administer


def check_close(user: User) -> None:
    """Raise PermissionDenied for all but admins and finance."""
    if not (can_administer(user) or user.role == Role.FINANCE):
        raise PermissionDenied("Only admins and finance close a month.")


def check_reopen(user: User) -> None:
    """Raise PermissionDenied for all but admins."""
    if not can_administer(user):
        raise PermissionDenied("Only an admin opens a closed month again.")
