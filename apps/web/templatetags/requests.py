"""What the navigation says of quota requests and proposals."""

from typing import TYPE_CHECKING

from django import template

from apps.accounts.permissions import EVERYTHING, NotAllowed, can_administer
from apps.operations.selectors import open_proposal_count
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


@register.simple_tag
def proposals_to_decide(user: "User") -> int:
    """Return how many proposals need a decision of this reader; one query for administrators."""
    if not can_administer(user):
        return 0
    return open_proposal_count(visibility=EVERYTHING, decider=user.username)
