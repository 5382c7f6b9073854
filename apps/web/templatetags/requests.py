"""What the navigation says of quota requests."""

from typing import TYPE_CHECKING

from django import template

from apps.accounts.permissions import NotAllowed, can_administer
from apps.changes.permissions import actor_of
from apps.changes.selectors import waiting_count

if TYPE_CHECKING:
    from apps.accounts.models import User

register = template.Library()


@register.simple_tag
def waiting_for(user: "User") -> int:
    """Return how many requests wait for an administrator; 0, unasked, for all others."""
    if not can_administer(user):
        return 0
    try:
        return waiting_count(actor_of(user, origin=""))
    except NotAllowed:
        return 0
