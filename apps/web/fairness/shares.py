"""Shares of teams over time, as small multiples on one scale."""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime

from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.fairness.selectors import ShareSeries, TierShares, share_series
from apps.usage.domain.usage_query import TimeStep
from apps.usage.selectors import Freshness
from apps.web.components.drawings import (
    BulletRow,
    EveryPanel,
    Panel,
    TimeAxis,
    bullet_bars,
    small_multiples,
)
from apps.web.components.drawings.bars import BulletBars
from apps.web.components.drawings.panels import SmallMultiples
from apps.web.components.formats import gpus_text
from apps.web.fairness.caveats import UNKNOWN
from apps.web.query_session import QuerySession, axis_of

MOST_PANELS = 24
"""Teams that are drawn over time at most."""
_OPEN_TEAMS = 8


class EverySeries(Struct, frozen=True):
    """How many series there are where a part of them is drawn; all are read for a file."""

    count: int
    read: Callable[[], Sequence[ShareSeries]]


def by_hour(reading: QuerySession) -> bool:
    """Say whether the reading's periods are hours."""
    return reading.choice.interval is TimeStep.HOUR


def team_panels(
    tier: str,
    shares: TierShares,
    reading: QuerySession,
    freshness: Freshness,
    *,
    link: Callable[[str], str | None],
    named: Collection[str] = (),
) -> SmallMultiples:
    """Return a panel for each team of a tier, or of the `named` ones that have a share there.

    Of many teams those with most demand are drawn; the file has all.
    """
    teams = sorted(
        (team for team in shares.teams if not named or team.team in named),
        key=lambda one: (-one.demand - one.entitlement, one.team),
    )

    def read(names: Collection[str] = named) -> list[ShareSeries]:
        return share_series(
            reading.window,
            by_hour=by_hour(reading),
            visibility=reading.visibility,
            tiers=[tier],
            teams=names,
        )

    # With few teams one reading serves page and file.
    if len(teams) <= MOST_PANELS:
        return share_panels(read(), reading, freshness, link=link)
    most = [team.team for team in teams[:MOST_PANELS]]
    every = EverySeries(len(teams), read)
    drawing = share_panels(read(most), reading, freshness, link=link, every=every)
    some = (
        f"Of {len(teams):,} teams the {MOST_PANELS} with most demand are drawn; the file has all."
    )
    return replace(drawing, caption=f"{some} {drawing.caption}")


def share_panels(
    series: Sequence[ShareSeries],
    reading: QuerySession,
    freshness: Freshness,
    *,
    link: Callable[[str], str | None],
    of_tiers: bool = False,
    every: EverySeries | None = None,
) -> SmallMultiples:
    """Return a panel for each series, of teams in one tier or of one team's tiers.

    Those with most demand come first. `link` leads from the name of a panel. `every` has the
    series that are not drawn too.
    """
    axis = axis_of(reading, freshness)
    periods = list(axis.periods)

    def panels_of(some: Sequence[ShareSeries]) -> list[Panel]:
        return sorted(
            (_panel(one, periods, one.tier if of_tiers else one.team, link) for one in some),
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
    drawing = small_multiples(
        *("shares", "Shares over time", panels_of(series), time_axis),
        name="Tier" if of_tiers else "Team",
        every=None if every is None else EveryPanel(every.count, lambda: panels_of(every.read())),
    )
    if not drawing.empty:
        return drawing
    return replace(drawing, empty="No hour of this window was computed yet.")


def _panel(
    one: ShareSeries, periods: Sequence[datetime], label: str, link: Callable[[str], str | None]
) -> Panel:
    points = [one.points.get(at) for at in periods]
    average = one.average
    entitled = [None if p is None else p.entitlement for p in points]
    return Panel(
        label,
        allocated=[None if p is None else p.allocated for p in points],
        # A line along zero would look like an entitlement that was taken away.
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


def entitlement_bars(
    shares: TierShares,
    *,
    link: Callable[[str], str | None],
    named: Collection[str] = (),
) -> BulletBars:
    """Return the average allocation of a tier's teams beside entitlement and demand.

    Those with most demand come first; where any are `named`, these alone.
    """
    hours = shares.hours.known
    teams = [team for team in shares.teams if hours and (not named or team.team in named)]
    teams.sort(key=lambda one: (-max(one.demand, one.allocated, one.entitlement), one.team))
    return bullet_bars(
        "bars",
        "Allocation vs. entitlement · average",
        [
            BulletRow(
                team.team,
                team.allocated / hours,
                team.entitlement / hours,
                # Demand that was met would only be drawn over the allocation.
                team.demand / hours if team.demand > team.allocated else None,
                href=link(team.team) or "",
            )
            for team in teams
        ],
        open_rows=_OPEN_TEAMS,
        empty="No team is entitled, and none held or requested any in the known hours."
        if hours
        else UNKNOWN,
    )
