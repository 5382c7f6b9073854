"""Whose turn it is: how many requests wait for a person, for the navigation."""

from dataclasses import dataclass

from django.db.models import Count, Q

from apps.quota_requests.domain.states import RequestState
from apps.quota_requests.permissions import Actor
from apps.quota_requests.selectors.requests import of_whom, seen
from apps.quota_requests.selectors.rows import RequestList

_CAME_BACK = Q(state=RequestState.CHANGES_ASKED.value)
_ENDS_SOON = Q(state=RequestState.APPLIED.value, reverts_at__isnull=False, announced__gt=0)


@dataclass(frozen=True, slots=True)
class Turns:
    """`deciding` waits for a decision of an administrator, as `review_queue` lists it.

    `answering` came back to who wrote it, or is a raise of theirs that was announced to end.
    """

    deciding: int = 0
    answering: int = 0


def turns_of(actor: Actor) -> Turns:
    """Return what waits for a person, of requests that they may see. One query."""
    own = of_whom(seen(actor), actor, RequestList.MINE).filter(_CAME_BACK | _ENDS_SOON)
    if actor.person is None or not actor.person.admin:
        return Turns(answering=own.count())
    decided = of_whom(seen(actor), actor, RequestList.QUEUE)
    is_either = Q(pk__in=decided.values("pk")) | Q(pk__in=own.values("pk"))
    found = (
        seen(actor)
        .filter(is_either)
        .aggregate(every=Count("pk"), answering=Count("pk", filter=_CAME_BACK | _ENDS_SOON))
    )
    # What is to be decided is in other states than what came back, or ends.
    return Turns(found["every"] - found["answering"], found["answering"])
