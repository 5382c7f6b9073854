"""Who may open a closed month again, and who works with bills."""

from django.core.exceptions import PermissionDenied

from apps.accounts.domain.identity import Role
from apps.accounts.models import User
from apps.accounts.permissions import NotAllowed, can_administer


def check_reopen(user: User) -> None:
    """Raise PermissionDenied for all but admins."""
    if not can_administer(user):
        raise PermissionDenied("Only an admin opens a closed month again.")


def can_see_bills(user: User) -> bool:
    """Bills, importing them and mapping their SKUs: finance and administrators. No query."""
    # By role: where the portal is set to be open, all see costs, but no invoices.
    return can_administer(user) or (user.is_active and user.role == Role.FINANCE)


def check_bills(user: User) -> None:
    """Raise NotAllowed for all but finance and administrators. No query."""
    if not can_see_bills(user):
        raise NotAllowed("Bills are for finance and administrators.")
