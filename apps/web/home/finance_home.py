"""The home of finance: the last closed month, the one that runs, and what its close lacks."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta

from django.http import HttpResponseBase
from django.urls import reverse
from msgspec import Struct

from apps.clusters.domain.resources import counted
from apps.clusters.domain.window import Window, day_start, hour_floor, month_before
from apps.costs.domain.costing import money
from apps.costs.domain.files import FileFormat
from apps.costs.selectors import (
    Gaps,
    MonthCosts,
    MonthState,
    PeriodState,
    UnusedCost,
    gaps_of,
    month_costs,
    month_window,
    period_states,
    unused_costs,
)
from apps.usage.domain.usage_query import Filters, Grouping
from apps.web.components import formats
from apps.web.components.figure_row import FigureRow, KeyFigure, figure_row, no_data
from apps.web.components.formats import Format
from apps.web.components.page_query import days_query, href, with_query
from apps.web.components.tables import Column, Table, TableRow
from apps.web.costs.comparison import comparison_problem
from apps.web.costs.months import LABELS
from apps.web.home.actions import MOST
from apps.web.pages import respond
from apps.web.query_session import PageRequest, QuerySession, of_everything
from apps.web.usage.unused_workloads import Action

_OPEN_TEAMS = 8
_FORMATS = (FileFormat.XLSX, FileFormat.CSV, FileFormat.PARQUET, FileFormat.FOCUS_CSV)


class OpenMonth(Struct, frozen=True):
    """The month that is to be closed next: its costs so far.

    `before` is what teams were charged in the same days of the month before; empty with a
    `problem`, which says why the two are not compared.
    """

    period: PeriodState
    costs: MonthCosts
    before: Mapping[str, int]
    problem: str
    unused: Mapping[str, UnusedCost]
    gaps: Gaps | None

    @property
    def name(self) -> str:
        return f"{self.period.month:%B}"


def finance_home(request: PageRequest, reading: QuerySession) -> HttpResponseBase:
    """Answer with the home of finance: of all teams and whole months, whatever the address says."""
    reading = of_everything(reading)
    months = period_states(now=reading.now, visibility=reading.visibility)
    closed = next((one for one in months if one.state is MonthState.CLOSED), None)
    # Months come newest first, and are closed in order: the last one is the next to close.
    pending = [one for one in months if one.state is not MonthState.CLOSED]
    month = _open_month(pending[-1], reading) if pending else None
    last = months[0].month if months else reading.now.date()
    return respond(
        request,
        reading,
        "home",
        tables=[_spend(month, reading)] if month else [],
        kind="finance",
        figures=_figures(closed, month, reading),
        month=month,
        actions=_lacks(month, reading) if month else [],
        exports=_exports(closed.month if closed else month_before(last)),
        computing=[],
    )


def _open_month(period: PeriodState, reading: QuerySession) -> OpenMonth:
    sees, now, zone = reading.visibility, reading.now, reading.choice.zone
    window = month_window(period.month, zone)
    end = min(window.end, hour_floor(now, zone))
    costs = month_costs(period.month, visibility=sees, until=end)
    unused = unused_costs(
        costs.window, by=(Grouping.TEAM,), filters=Filters(), visibility=sees, zone=zone
    )
    before, problem = _before(period.month, end - window.start, reading)
    return OpenMonth(
        period=period,
        costs=costs,
        before=before,
        problem=problem,
        # A second currency has no column here; the page of costs has all of them.
        unused={row.groups["team"]: row for row in unused if row.currency == costs.currency},
        gaps=_gaps(period, window.start, _whole_days(end, reading)),
    )


def _gaps(period: PeriodState, start: datetime, end: datetime) -> Gaps | None:
    """Return what a month lacks up to the end of its last whole day; None on its first day."""
    if period.gaps is not None:
        return period.gaps
    # By whole days: hours of today may still be on their way.
    return gaps_of(Window(start, end)) if start < end else None


def _before(month: date, length: timedelta, reading: QuerySession) -> tuple[Mapping[str, int], str]:
    """Return what teams were charged in the same days of the month before, or why not."""
    before, zone = month_before(month), reading.choice.zone
    start = month_window(before, zone).start
    # A shorter month ends earlier: March has no counterpart for its last days.
    end = min(start + length, month_window(before, zone).end)
    if end <= start:
        return {}, ""
    words = f"the same days of {before:%B}"
    problem = comparison_problem(Window(start, end), words, reading, Filters())
    if problem:
        return {}, problem
    return month_costs(before, visibility=reading.visibility, until=end).teams, ""


def _whole_days(end: datetime, reading: QuerySession) -> datetime:
    zone = reading.choice.zone
    return day_start(end.astimezone(zone).date(), zone)


def _figures(
    closed: PeriodState | None, month: OpenMonth | None, reading: QuerySession
) -> FigureRow:
    exports = href("exports") or ""
    if month is None:
        return figure_row(no_data("Spend", "No day has a cost yet.", href=exports))
    costs = month.costs
    unused = sum(row.unused for row in month.unused.values())
    known = sum(row.known for row in month.unused.values())
    return figure_row(
        _closed(closed, reading, exports),
        KeyFigure(
            month.name,
            _text(costs.charged, costs),
            month.period.state.value,
            exact=_exact(costs.charged, costs),
            href=href("costs", days_query(costs.window, reading.choice.zone)) or "",
            note="charged to date",
        ),
        KeyFigure(
            "Unallocated or unavailable",
            _text(costs.unallocated, costs),
            exact=_exact(costs.unallocated, costs),
            href=href("costs", days_query(costs.window, reading.choice.zone)) or "",
            note=month.name,
        ),
        *_planned_outage(costs, month, reading),
        KeyFigure(
            "Unused",
            _text(unused, costs),
            formats.percent(unused / known) if known else "",
            exact=_exact(unused, costs),
            href=href("waste", days_query(costs.window, reading.choice.zone)) or "",
            note=month.name,
        ),
    )


def _planned_outage(
    costs: MonthCosts, month: OpenMonth, reading: QuerySession
) -> Iterator[KeyFigure]:
    """Yield what planned outages cost, in months that had any."""
    if costs.planned_outage:
        yield KeyFigure(
            "Planned outage",
            _text(costs.planned_outage, costs),
            exact=_exact(costs.planned_outage, costs),
            href=href("costs", days_query(costs.window, reading.choice.zone)) or "",
            note=month.name,
        )


def _closed(closed: PeriodState | None, reading: QuerySession, link: str) -> KeyFigure:
    if closed is None:
        return no_data("Last closed", "No month is closed yet.", href=link)
    costs = month_costs(closed.month, visibility=reading.visibility)
    return KeyFigure(
        f"{closed.month:%B}",
        _text(costs.charged, costs),
        "closed",
        exact=_exact(costs.charged, costs),
        href=link,
        note="charged",
    )


def _text(amount: int, costs: MonthCosts) -> str:
    return formats.money(money(amount), costs.currency)


def _exact(amount: int, costs: MonthCosts) -> str:
    return f"{money(amount):f} {costs.currency}"


def _spend(month: OpenMonth, reading: QuerySession) -> Table:
    """Return what each team is charged so far, against the same days of the month before."""
    currency = month.costs.currency
    before = f"same days of {month_before(month.period.month):%B}"
    change = Column("change_percent", "Change", Format.NUMBER, "%", before)
    return Table(
        id="spend",
        title=f"Spend by team, {month.name}",
        columns=[
            Column("team", "Team"),
            Column("cost", "Spend", Format.COUNT, currency),
            *([] if month.problem else [change]),
            Column("unused_cost", "Unused", Format.COUNT, currency),
            Column("unused_ratio", "Unused", Format.RATIO, "%", "of the cost that has metrics"),
        ],
        rows=[_team(team, month, reading) for team in month.costs.teams],
        zone=reading.choice.zone,
        empty="No team was charged yet.",
        page_length=_OPEN_TEAMS,
        note=month.problem,
    )


def _team(team: str, month: OpenMonth, reading: QuerySession) -> TableRow:
    cost, before = month.costs.teams[team], month.before.get(team)
    unused = month.unused.get(team)
    days = days_query(month.costs.window, reading.choice.zone)
    return TableRow(
        {
            "team": team,
            "cost": float(money(cost)),
            "change_percent": round(100 * (cost / before - 1), 1) if before else None,
            "unused_cost": float(money(unused.unused)) if unused else None,
            "unused_ratio": unused.ratio if unused else None,
        },
        links={
            "team": href("team", days, name=team),
            "cost": href("costs", [("team", team), *days]),
            "unused_cost": href("waste", [("team", team), *days]),
        },
    )


def _lacks(month: OpenMonth, reading: QuerySession) -> list[Action]:
    """Return what keeps the month from being closed, with where it is mended."""
    quality = href("data-quality", days_query(month.costs.window, reading.choice.zone)) or ""
    gaps = month.gaps or Gaps()
    found = [
        Action(f"{counted(count, 'hour')} missing", name, "Open", quality)
        for name, count in gaps.missing.items()
    ]
    if gaps.not_priced:
        found.append(Action(f"{counted(gaps.not_priced, 'hour')} unpriced", "", "Open", quality))
    costs = href("costs", days_query(month.costs.window, reading.choice.zone)) or ""
    found += [Action(f"{model} unpriced", kind, "Open", costs) for model, kind in gaps.unpriced]
    return found[:MOST]


def _exports(month: date) -> Sequence[tuple[str, str]]:
    """Return the files of a month, and the page that makes others."""
    path, period = reverse("web:month-file"), f"{month:%Y-%m}"
    files = [
        (
            f"{month:%B} as {LABELS[format_]}",
            with_query(path, [("period", period), ("format", format_.value)]),
        )
        for format_ in _FORMATS
        if format_.is_installed
    ]
    return [*files, ("Other exports", href("exports") or "")]
