"""How many requests and proposals wait for the reader of a page."""

from typing import TYPE_CHECKING, Any

from apps.accounts.permissions import EVERYTHING, NotAllowed, can_administer
from apps.operations.selectors import undecided_proposals
from apps.quota_requests.permissions import actor_of
from apps.quota_requests.selectors import Turns, turn_counts, turns_in
from gpuportal.queries import BatchQuery

if TYPE_CHECKING:
    from apps.accounts.models import User


def turns_for(user: "User") -> Turns:
    """Return how many need a person; proposals only for administrators. One query."""
    return turns_in(TURNS.rows(user))


def _counts(user: "User") -> Any:
    proposals = None
    if can_administer(user):
        proposals = undecided_proposals(visibility=EVERYTHING, decider=user.username)
    try:
        return turn_counts(actor_of(user, origin=""), proposals=proposals)
    # Some readers request nothing and decide nothing: they have no turns.
    except NotAllowed:
        return turn_counts(None)


TURNS = BatchQuery(_counts)
