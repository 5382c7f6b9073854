"""How many requests and proposals wait for the reader of a page."""

from typing import TYPE_CHECKING

from apps.accounts.permissions import EVERYTHING, NotAllowed, can_administer
from apps.operations.selectors import undecided_proposals
from apps.quota_requests.permissions import actor_of
from apps.quota_requests.selectors import Turns, turns_of
from gpuportal.read_once import read_once

if TYPE_CHECKING:
    from apps.accounts.models import User


@read_once
def turns_for(user: "User") -> Turns:
    """Return how many need a person; proposals only for administrators. One query."""
    proposals = None
    if can_administer(user):
        proposals = undecided_proposals(visibility=EVERYTHING, decider=user.username)
    try:
        return turns_of(actor_of(user, origin=""), proposals=proposals)
    except NotAllowed:
        return Turns()
