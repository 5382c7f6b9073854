"""Figures that a page is waited for: which are still being computed, and how far they are."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from apps.clusters.domain.calendar import day_start
from apps.clusters.domain.window import Window
from apps.operations.selectors import Computing, Figure, computing
from apps.web.reading import Reading

_EVERY: Sequence[Figure] = (Figure.COSTS, Figure.FAIRNESS, Figure.QUOTAS)
_OF_ROOM: Mapping[str, Sequence[Figure]] = {
    "overview": _EVERY,
    "tier": _EVERY,
    "team": _EVERY,
    "fairness": (Figure.FAIRNESS,),
    "tier_fairness": (Figure.FAIRNESS,),
    "statement": (Figure.FAIRNESS, Figure.COSTS),
    "what_if": (Figure.FAIRNESS,),
    "costs": (Figure.COSTS,),
    "waste": (Figure.COSTS,),
    "exports": (Figure.COSTS,),
    "recommendations": (Figure.COSTS, Figure.RECOMMENDATIONS),
    "quotas": (Figure.QUOTAS,),
    "quota": (Figure.QUOTAS,),
    "pending": (Figure.PENDING,),
}


def computing_of(reading: Reading, room: str) -> list[Computing]:
    """Return the figures of a page that are not there yet; none of a page that has none."""
    figures = _OF_ROOM.get(room)
    if figures is None:
        return []
    return computing(
        _months(reading) if room == "exports" else reading.window,
        figures,
        clusters=reading.filters.cluster,
        visibility=reading.visibility,
        now=reading.now,
    )


def _months(reading: Reading) -> Window:
    """Return this month so far and the one before, which is to be closed."""
    zone = reading.choice.zone
    today = reading.now.astimezone(zone).date()
    first = (today.replace(day=1) - timedelta(days=1)).replace(day=1)
    return Window(day_start(first, zone), reading.now)
