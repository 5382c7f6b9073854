"""The use of a quota key over time: its drawing in steps, and the runs of its limit."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from msgspec import Struct

from apps.clusters.domain.window import Window, hour_floor
from apps.quotas.domain.usage_changes import UsageStep
from apps.quotas.selectors import QuotaPoint
from apps.web.components.plots import Plot, PlotLine, Scale
from apps.web.components.tables import Table, TableRow, declared_columns, declared_values
from apps.web.query_session import QuerySession

SAME = 1e-6
NEAR_SECONDS = 3600.0
"""A change is seen at once where it is watched, and within the hour elsewhere."""
NOT_KNOWN = "No data of this key in this window. Choose a later one."
_HOUR = timedelta(hours=1)
_TABLE_ROWS = 25


def usage_plot(steps: Sequence[UsageStep], reading: QuerySession, unit: str) -> Plot:
    """Return use and blocked work, one on the other, against the limit."""
    choice = reading.choice
    # The limit is a part of the picture even where far less is used.
    highest = max((max(s.hard, (s.used or 0.0) + (s.blocked or 0.0)) for s in steps), default=0.0)
    scale = Scale.up_to(Window(choice.window.start, choice.window.end), highest)
    title = "Used and blocked against the limit"
    return Plot(
        id="usage",
        title=title,
        caption=f"{title}, {unit}, at each change; means of hours without a watch. {choice.label}.",
        table=_step_table(steps, reading),
        areas=[
            PlotLine("used", "plot-used-area", _area(scale, steps, blocked=False)),
            PlotLine("blocked", "plot-blocked-area", _area(scale, steps, blocked=True)),
        ]
        if steps
        else (),
        curves=[
            PlotLine("limit", "plot-limit", scale.steps((s.start, s.end, s.hard) for s in steps))
        ]
        if steps
        else (),
        gaps=[scale.gap(start, end) for start, end in _unknown(steps, scale.window)],
        across=scale.across(choice.zone),
        upwards=scale.upwards(),
        empty=NOT_KNOWN,
    )


def _area(scale: Scale, steps: Sequence[UsageStep], *, blocked: bool) -> str:
    """Return boxes from zero up to what is used, or from there up to what is blocked beside it."""
    path = []
    for step in steps:
        bottom = (step.used or 0.0) if blocked else 0.0
        top = bottom + ((step.blocked if blocked else step.used) or 0.0)
        if top > bottom:
            left, right = scale.x(step.start), scale.x(step.end)
            path.append(
                f"M{left:g} {scale.y(bottom):g}V{scale.y(top):g}H{right:g}V{scale.y(bottom):g}z"
            )
    return "".join(path)


def _unknown(steps: Sequence[UsageStep], window: Window) -> list[tuple[datetime, datetime]]:
    """Return the stretches of the window without a step, or in which use is not known."""
    gaps, at = [], window.start
    for step in steps:
        # A step whose use is not known leaves the gap open, though its limit is drawn.
        if step.used is None:
            continue
        if step.start > at:
            gaps.append((at, step.start))
        at = max(at, step.end)
    return [*gaps, (at, window.end)] if at < window.end and steps else gaps


def _step_table(steps: Sequence[UsageStep], reading: QuerySession) -> Table:
    rows = [TableRow(declared_values(step)) for step in steps]
    long = len(rows) > _TABLE_ROWS
    return Table(
        id="points",
        title="Usage over time",
        columns=declared_columns(UsageStep),
        rows=rows[-_TABLE_ROWS:],
        zone=reading.choice.zone,
        empty=NOT_KNOWN,
        ordered=True,
        note=f"The last {_TABLE_ROWS} of {len(rows)} steps; the file has all." if long else "",
        every=(lambda: rows) if long else None,
    )


# ---------------------------------------------------------------- the limit


class LimitRun(Struct, frozen=True):
    """A stretch in which a key had one limit and one team."""

    start: datetime
    end: datetime
    team: str | None
    hard: float


def limit_runs(
    steps: Sequence[UsageStep], hours: Sequence[QuotaPoint], zone: ZoneInfo
) -> Iterator[tuple[LimitRun | None, LimitRun]]:
    """Yield each run with the one that led to it; None where the key was not there before."""
    teams = {one.period.astimezone(UTC): one.team for one in hours}
    runs: list[LimitRun] = []
    for step in _by_hour(steps, teams, zone):
        last = runs[-1] if runs else None
        joins = (
            last is not None
            and last.end == step.start
            and (last.team, round(last.hard, 6)) == (step.team, round(step.hard, 6))
        )
        if last is not None and joins:
            runs[-1] = LimitRun(last.start, step.end, last.team, last.hard)
        else:
            runs.append(step)
    for number, run in enumerate(runs):
        before = runs[number - 1] if number and runs[number - 1].end == run.start else None
        yield before, run


def _by_hour(
    steps: Sequence[UsageStep], teams: dict[datetime, str | None], zone: ZoneInfo
) -> Iterator[LimitRun]:
    """Yield the steps cut where an hour ends: a team may change there."""
    for step in steps:
        start = step.start
        while start < step.end:
            hour = hour_floor(start, zone)
            end = min(step.end, hour + _HOUR)
            yield LimitRun(start, end, teams.get(hour), step.hard)
            start = end
