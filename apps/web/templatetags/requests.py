"""What the navigation says of quota requests and proposals."""

from typing import TYPE_CHECKING

from django import template

from apps.quota_requests.selectors import Turns
from apps.web.quota_requests import turns

if TYPE_CHECKING:
    from apps.accounts.models import User

register = template.Library()


@register.simple_tag
def turns_for(user: "User") -> Turns:
    """Return how many requests and proposals wait for a person to decide on, or to answer."""
    return turns.turns_for(user)
