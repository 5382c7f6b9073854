"""Of which time something else is known than before, when more is learnt of a pod."""

from collections.abc import Iterable

from apps.clusters.domain.pods.history import last_seen
from apps.clusters.domain.pods.ledger import PodRecord
from apps.clusters.domain.time_spans import Span


def changed_span(known: PodRecord | None, now: PodRecord) -> Span | None:
    """Return the time in which a pod counts otherwise by `now` than by `known`; None where never.

    Of a pod that was not known that is all its life.
    """
    if known is None:
        return (now.created, _end(now))
    if known.requests != now.requests or known.priority_class != now.priority_class:
        return (min(known.created, now.created), max(_end(known), _end(now)))
    times: list[float] = []
    if known.created != now.created:
        times += (known.created, now.created)
    if known.bound != now.bound:
        times += (at if at is not None else _end(now) for at in (known.bound, now.bound))
    if _end(known) != _end(now):
        times += (_end(known), _end(now))
    return (min(times), max(times)) if times else None


def hull(spans: Iterable[Span | None]) -> Span | None:
    """Return the shortest span that holds all of some; None without any."""
    found = [span for span in spans if span is not None]
    if not found:
        return None
    return (min(start for start, _ in found), max(end for _, end in found))


def _end(pod: PodRecord) -> float:
    """Return when a pod ended, or until when it was seen."""
    return pod.ended if pod.ended is not None else last_seen(pod).at
