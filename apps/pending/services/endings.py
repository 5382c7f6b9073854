"""When and how something that no longer waits ended; of pods the ledger knows."""

from collections.abc import Iterable

from apps.clusters.domain.observed.objects import (
    ClaimSnapshot,
    Condition,
    ControllerSnapshot,
    ObservedObject,
    PodGroupSnapshot,
    WorkloadSnapshot,
)
from apps.pending.domain.causes import Cause, Outcome

_REFUSALS = frozenset({Cause.TOPOLOGY, Cause.ADMISSION})
_LAG_SECONDS = 60.0
"""An object is seen to change so much later than it did, at most; longer ago is another change."""


def ending(
    seen: ObservedObject | None,
    cause: Cause,
    *,
    before: float | None,
    now: float,
    newest_pod: float | None = None,
) -> tuple[float, Outcome]:
    """Return when and how an item ended that waited at the look `before` and does not now.

    `seen` is how it was seen last, None where it is forgotten. `newest_pod` is when the newest
    pod of its top controller was made. A time that cannot be of this end gives `now`.
    """
    at, outcome = _ending(seen, cause, newest_pod)
    earliest = None if before is None else before - _LAG_SECONDS
    if at is None or at > now or (earliest is not None and at < earliest):
        at = now
    return at, outcome


def _ending(
    seen: ObservedObject | None, cause: Cause, newest_pod: float | None
) -> tuple[float | None, Outcome]:
    if seen is None or seen.gone is not None:
        gone = Outcome.REFUSED if cause in _REFUSALS else Outcome.GAVE_UP
        return (None if seen is None else seen.gone), gone
    body = seen.body
    if isinstance(body, ControllerSnapshot):
        return _of_controller(body, seen.changed, cause, newest_pod)
    if isinstance(body, WorkloadSnapshot):
        reserved = _holding(body.conditions, ("QuotaReserved", "Admitted", "Finished"))
        return (None if reserved is None else reserved.since), Outcome.SETTLED
    if isinstance(body, ClaimSnapshot):
        return body.allocated or seen.changed, Outcome.SETTLED
    if isinstance(body, PodGroupSnapshot):
        return seen.changed, Outcome.SETTLED
    return seen.changed, Outcome.SETTLED


def _of_controller(
    body: ControllerSnapshot, changed: float, cause: Cause, newest_pod: float | None
) -> tuple[float | None, Outcome]:
    failed = _holding(body.conditions, ("Failed", "FailureTarget"))
    if failed is not None:
        outcome = Outcome.REFUSED if cause in _REFUSALS else Outcome.GAVE_UP
        return failed.since, outcome
    if not body.wanted or body.suspended:
        return changed, Outcome.GAVE_UP
    return (changed if newest_pod is None else newest_pod), Outcome.SETTLED


def _holding(conditions: Iterable[Condition], types: tuple[str, ...]) -> Condition | None:
    """Return the first condition of these types, in their order, that holds."""
    by_type = {one.type: one for one in conditions if one.status == "True"}
    return next((by_type[name] for name in types if name in by_type), None)
