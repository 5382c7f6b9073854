"""Shares of teams over time, as small multiples on one scale."""

from collections.abc import Callable, Sequence
from datetime import datetime

from apps.fairness.selectors import ShareSeries
from apps.usage.domain.usage_query import TimeStep
from apps.usage.selectors import Freshness
from apps.web.components.drawings import Panel, TimeAxis, small_multiples
from apps.web.components.drawings.panels import SmallMultiples
from apps.web.components.formats import gpus_text
from apps.web.query_session import QuerySession, axis_of


def by_hour(reading: QuerySession) -> bool:
    """Say whether the reading's periods are hours."""
    return reading.choice.interval is TimeStep.HOUR


def share_panels(
    series: Sequence[ShareSeries],
    reading: QuerySession,
    freshness: Freshness,
    *,
    link: Callable[[str], str | None],
    of_tiers: bool = False,
) -> SmallMultiples:
    """Return a panel for each series, of teams in one tier or of one team's tiers.

    Those with most demand come first. `link` leads from the name of a panel.
    """
    axis = axis_of(reading, freshness)
    periods = list(axis.periods)
    panels = sorted(
        (_panel(one, periods, one.tier if of_tiers else one.team, link) for one in series),
        key=lambda panel: (-_most(panel), panel.label),
    )
    estimated = max((_estimated(one, periods) for one in series), default=0)
    time_axis = TimeAxis(
        periods,
        reading.choice.zone,
        estimated=estimated,
        elapsed=axis.elapsed(),
        by_hour=by_hour(reading),
    )
    return small_multiples(
        *("shares", "Shares over time", panels, time_axis),
        name="Tier" if of_tiers else "Team",
        empty="No hour of this window was computed yet.",
    )


def _panel(
    one: ShareSeries, periods: Sequence[datetime], label: str, link: Callable[[str], str | None]
) -> Panel:
    points = [one.points.get(at) for at in periods]
    average = one.average
    entitled = [None if p is None else p.entitlement for p in points]
    return Panel(
        label,
        allocated=[None if p is None else p.allocated for p in points],
        entitlement=entitled if any(entitled) else (),
        demand=[None if p is None else p.demand for p in points],
        href=link(label) or "",
        value=gpus_text(average.allocated) if average else "",
        of=gpus_text(average.entitlement) if average and any(entitled) else "",
    )


def _most(panel: Panel) -> float:
    return sum(value or 0.0 for line in (panel.demand, panel.entitlement) for value in line)


def _estimated(one: ShareSeries, periods: Sequence[datetime]) -> int:
    """Return how many periods from the first on are estimated, or not known before those."""
    last = max((n for n, at in enumerate(periods, start=1) if at in one.estimated), default=0)
    return last if all(at in one.estimated or at not in one.points for at in periods[:last]) else 0
