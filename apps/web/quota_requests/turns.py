"""How many requests and proposals wait for the reader of a page."""

from typing import TYPE_CHECKING, Any

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import EVERYTHING, NotAllowed
from apps.operations.selectors import undecided_proposals
from apps.quota_requests.permissions import Actor, actor_of
from apps.quota_requests.selectors import Turns, turn_counts, turns_in
from gpuportal.queries import BatchQuery, BoundQuery

if TYPE_CHECKING:
    from apps.accounts.models import User


def turns_for(user: "User") -> Turns:
    """Return how many need a person; proposals only for administrators. One query."""
    return turns_in(turns_query(user).read())


def turns_query(user: "User") -> BoundQuery:
    """Return the query of `turns_for`, to be read with others."""
    try:
        # Without the account, on which the query does not depend: kept for as long as rights last.
        return _TURNS.query(replace(actor_of(user, origin=""), user=None))
    # Some readers request nothing and decide nothing: they have no turns.
    except NotAllowed:
        return _TURNS.query(None)


def _counts(actor: Actor | None) -> Any:
    proposals = None
    if actor is not None and actor.person is not None and actor.person.admin:
        proposals = undecided_proposals(visibility=EVERYTHING, decider=actor.name)
    return turn_counts(actor, proposals=proposals)


_TURNS = BatchQuery(_counts, is_pure=True)
