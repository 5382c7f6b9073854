"""What the navigation says of quota requests."""

from typing import TYPE_CHECKING

from django import template

from apps.accounts.permissions import NotAllowed
from apps.quota_requests.permissions import actor_of
from apps.quota_requests.selectors import Turns, turns_of

if TYPE_CHECKING:
    from apps.accounts.models import User

register = template.Library()


@register.simple_tag
def turns_for(user: "User") -> Turns:
    """Return how many requests wait for a person to decide on, or to answer."""
    try:
        return turns_of(actor_of(user, origin=""))
    except NotAllowed:
        return Turns()
