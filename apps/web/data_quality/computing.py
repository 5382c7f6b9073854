"""Figures that a page is waited for: which are still being computed, and how far they are."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from apps.clusters.domain.calendar import day_start
from apps.clusters.domain.window import Window
from apps.operations.selectors import Computing, DerivedFigure, computing
from apps.web.query_session import QuerySession

_EVERY: Sequence[DerivedFigure] = (
    DerivedFigure.COSTS,
    DerivedFigure.FAIRNESS,
    DerivedFigure.QUOTAS,
)
_OF_ROOM: Mapping[str, Sequence[DerivedFigure]] = {
    "overview": _EVERY,
    "tier": _EVERY,
    "team": _EVERY,
    "fairness": (DerivedFigure.FAIRNESS,),
    "tier_fairness": (DerivedFigure.FAIRNESS,),
    "statement": (DerivedFigure.FAIRNESS, DerivedFigure.COSTS),
    "what_if": (DerivedFigure.FAIRNESS,),
    "costs": (DerivedFigure.COSTS,),
    "waste": (DerivedFigure.COSTS,),
    "exports": (DerivedFigure.COSTS,),
    "recommendations": (DerivedFigure.COSTS, DerivedFigure.RECOMMENDATIONS),
    "quotas": (DerivedFigure.QUOTAS,),
    "quota": (DerivedFigure.QUOTAS,),
    "pending": (DerivedFigure.PENDING,),
}


def computing_of(reading: QuerySession, room: str) -> list[Computing]:
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


def _months(reading: QuerySession) -> Window:
    """Return this month so far and the one before, which is to be closed."""
    zone = reading.choice.zone
    today = reading.now.astimezone(zone).date()
    first = (today.replace(day=1) - timedelta(days=1)).replace(day=1)
    return Window(day_start(first, zone), reading.now)
