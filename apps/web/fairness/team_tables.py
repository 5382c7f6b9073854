"""What a tier's fairness lists: its teams, their queue times, and its index day by day."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from apps.accounts.domain.structs import replace
from apps.clusters.domain.window import day_start
from apps.fairness.selectors import HourCounts, TeamFairness, TierDayIndex, TierFairness
from apps.usage.domain.amounts import nano
from apps.web.components.drawings import Drawing, RankedRow, RankPart, ranking
from apps.web.components.formats import Format, duration, shown
from apps.web.components.page_query import during, figure_href, figure_hrefs, href
from apps.web.components.tables import Column, Table, TableRow, declared_columns, declared_values
from apps.web.fairness.caveats import HOURS, NOT_COMPUTED, hour_values
from apps.web.fairness.overview import COLUMNS
from apps.web.query_session import QuerySession

_UTC = ZoneInfo("UTC")
_QUEUE_KEYS = (
    "wait_p50_seconds",
    "wait_p95_seconds",
    "waits_ended",
    "waiting_now",
    "gave_up",
)

EXPLAINS = {
    "demand_gpu_hours": "demand",
    "fair_share_gpu_hours": "fair_share",
    "denied_gpu_hours": "unmet_fair_share",
    "borrowed_gpu_hours": "borrowed",
    "lent_gpu_hours": "lent",
    "allocated_gpu_hours": "allocated",
    "entitlement_gpu_hours": "entitled",
    "entitlement_gpus": "mean_entitled",
    "idle_gpu_hours": "idle_held",
    "from_pool_gpu_hours": "from_pool",
    "overdrawn_gpu_hours": "overdrawn",
    "usage_factor": "usage_factor",
    "wait_p50_seconds": "team_queue_time_p50",
    "wait_p95_seconds": "team_queue_time_p95",
}
"""Which figure explains a column."""


# ---------------------------------------------------------------- teams


def team_table(tier: TierFairness, reading: QuerySession) -> Table:
    """Return the teams of the tier with all amounts, the largest unmet fair share first."""
    return Table(
        id="teams",
        title="Teams",
        columns=[c for c in declared_columns(TeamFairness) if c.key not in _QUEUE_KEYS],
        rows=[_team(team, reading, tier.hours) for team in _ordered(tier)],
        zone=reading.choice.zone,
        empty="No team is entitled to any of this tier, and none held or asked for it.",
        note=_usage_note(tier.usage_known) if tier.teams else "",
    )


def _ordered(tier: TierFairness) -> list[TeamFairness]:
    return sorted(tier.teams, key=lambda t: (-t.denied_gpu_hours, -t.demand_gpu_hours, t.team))


def _usage_note(known: float | None) -> str:
    """Return what to say where not all is known that usage factors are made of."""
    if known is None or known >= 1:
        return ""
    share = shown(known, Format.RATIO, _UTC)
    return f"Fair-share factors: {share} of the hours of ten weeks have data."


def _team(team: TeamFairness, reading: QuerySession, hours: HourCounts) -> TableRow:
    values = declared_values(team)
    # Sums over no hours; what is pending is told by something else.
    unknown = (
        []
        if hours.known
        else ["entitlement_gpus", *(k for k in values if k.endswith("_gpu_hours"))]
    )
    return TableRow(
        values | dict.fromkeys(unknown),
        {"team": href("statement", reading.query, name=team.team)},
        explains=figure_hrefs(EXPLAINS, reading.query, tier=team.tier, team=team.team),
    )


# ---------------------------------------------------------------- queue time


def queue_drawing(tier: TierFairness, reading: QuerySession) -> Drawing:
    """Return the teams by their p95 queue time, the longest first, with what is pending."""
    teams = sorted(
        tier.teams,
        key=lambda one: (-(one.wait_p95_seconds or 0.0), -(one.waiting_now or 0), one.team),
    )
    drawn = ranking(
        "queue",
        "p95 queue time",
        [_queue_row(team, reading) for team in teams],
        parts=[
            RankPart("wait_p95_seconds", "p95 queue time", "of-demand", "hatch", Format.SECONDS, "")
        ],
        empty="No team is entitled to any of this tier, and none held or asked for it.",
    )
    return replace(drawn, caption=_dark_note(tier), table=_queue_table(tier, reading))


def _queue_row(team: TeamFairness, reading: QuerySession) -> RankedRow:
    started = team.wait_p95_seconds is not None
    notes = [
        *([f"p50 {duration(team.wait_p50_seconds or 0.0)}"] if started else []),
        *([f"{team.waiting_now} pending"] if team.waiting_now else []),
    ]
    link = figure_href("team_queue_time_p95", reading.query, tier=team.tier, team=team.team)
    return RankedRow(
        team.team,
        (team.wait_p95_seconds or 0.0,),
        href=href("statement", reading.query, name=team.team) or "",
        # No start is the worst queue time, and a bar of length 0 must say so.
        text=duration(team.wait_p95_seconds or 0.0) if started else "none started",
        note=" · ".join(notes),
        explain_href=link if started else "",
    )


def _dark_note(tier: TierFairness) -> str:
    if not tier.dark:
        return ""
    return (
        "Incomplete data: the pending work of a cluster of this tier is not known. The counts "
        "are lower bounds."
    )


def _queue_table(tier: TierFairness, reading: QuerySession) -> Table:
    """Return the queue times; what was pending when a past window ended is not pending now."""
    label = "Pending at end" if reading.window.end < reading.now else "Pending now"
    return Table(
        id="queue",
        title="Queue time",
        columns=[
            replace(column, label=label) if column.key == "waiting_now" else column
            for column in declared_columns(TeamFairness)
            if column.key in {"team", *_QUEUE_KEYS}
        ],
        rows=[_team(team, reading, tier.hours) for team in _ordered(tier)],
        zone=reading.choice.zone,
        empty="",
    )


# ---------------------------------------------------------------- days


_DAY_EXPLAINS = {
    "jain_index": "jain_index",
    "jain_allocation_ratio": "jain_allocation_ratio",
    "allocated_gpu_hours": "allocated",
    "denied_gpu_hours": "unmet_fair_share",
    "borrowable_gpu_hours": "idle_entitlement_under_demand",
    "capacity_gpu_hours": "fairness_capacity",
}


def day_table(tier: str, days: Sequence[TierDayIndex], reading: QuerySession) -> Table:
    """Return the indices of a tier day by day, with the hours that they are of."""
    return Table(
        id="days",
        title="Index by day",
        columns=(
            Column("day", "Day", Format.DAY),
            COLUMNS["jain_index"],
            COLUMNS["jain_allocation_ratio"],
            Column("allocated_gpu_hours", "Allocated", Format.GPU_HOURS, "GPU-h"),
            COLUMNS["denied_gpu_hours"],
            COLUMNS["borrowable_gpu_hours"],
            COLUMNS["capacity_gpu_hours"],
            *HOURS,
        ),
        rows=[_day(day, tier, reading) for day in days],
        zone=reading.choice.zone,
        empty=NOT_COMPUTED,
        ordered=True,
    )


def _day(day: TierDayIndex, tier: str, reading: QuerySession) -> TableRow:
    start, end = _span(day, reading)
    window = reading.window
    # The first and last day of a window may be cut, and so must their explanation be.
    query = during(max(start, window.start), min(end, window.end), reading.query)
    return TableRow(
        {
            "day": day_start(day.day, reading.choice.zone),
            "jain_index": day.jain_index,
            "jain_allocation_ratio": day.jain_allocation_ratio,
            "allocated_gpu_hours": nano(day.allocated_gpu_hours) if day.hours.known else None,
            "denied_gpu_hours": nano(day.denied_gpu_hours) if day.hours.known else None,
            "borrowable_gpu_hours": nano(day.borrowable_gpu_hours) if day.hours.known else None,
            "capacity_gpu_hours": nano(day.capacity_gpu_hours) if day.hours.known else None,
            **hour_values(day.hours),
        },
        explains=figure_hrefs(_DAY_EXPLAINS, query, tier=tier),
    )


def _span(day: TierDayIndex, reading: QuerySession) -> tuple[datetime, datetime]:
    zone = reading.choice.zone
    return day_start(day.day, zone), day_start(day.day + timedelta(days=1), zone)
