"""Budgets of teams in their running period: the pace in words, burn-down, alerts."""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar, overload
from zoneinfo import ZoneInfo

from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.domain.window import Window
from apps.costs.selectors import MoneyBudgetRow
from apps.quotas.selectors import BudgetAlertRow, BudgetRow
from apps.web.components import tables
from apps.web.components.figure_row import FigureRow, KeyFigure, Tone, figure_row
from apps.web.components.formats import (
    NOTHING,
    Format,
    clock_text,
    day_text,
    days_text,
    money,
    percent,
)
from apps.web.components.page_query import figure_hrefs, href
from apps.web.components.plots import Plot, PlotLine, Scale
from apps.web.components.table_cells import Cell
from apps.web.components.tables import Column, LaterRows, Table, TableRow
from apps.web.query_session import QuerySession

GPU_HOURS = "gpu_hours"
MOST_PLOTS = 4
_AT_ONCE = 500
EVEN = (0.95, 1.05)
"""Burn rates between these are told as on pace."""
_UNITS = {GPU_HOURS: "GPU-hours"}


class Pace(Struct, frozen=True):
    """How a budget goes: a word or two, a sentence, and the state that colours it."""

    word: str
    text: str
    state: str


AnyBudget = BudgetRow | MoneyBudgetRow
BudgetT = TypeVar("BudgetT", BudgetRow, MoneyBudgetRow)


def pace_of(row: AnyBudget, zone: ZoneInfo) -> Pace:
    """Return in words whether a budget lasts, and if not, until when; what is missing is said."""
    pace = _pace(row, zone)
    if not row.at_least or row.burn_rate is None:
        return pace
    if pace.state == "waiting":
        return Pace(pace.word, f"{pace.text} {_missing(row, zone)}", pace.state)
    # More was used than is known: that a budget lasts is not certain, that it does not is.
    sure = pace.state != "complete"
    return Pace(
        pace.word if sure else "not certain",
        f"{pace.text} {_missing(row, zone)}",
        pace.state if sure else "partial",
    )


def _missing(row: AnyBudget, zone: ZoneInfo) -> str:
    told = _lacking(row)
    if row.data_start is not None:
        return f"{told}, from {clock_text(row.data_start, zone)} on."
    if row.known_until is None:
        return f"{told}; one cluster has none."
    if row.as_of is not None and row.known_until < row.as_of:
        return f"{told}, all clusters until {clock_text(row.known_until, zone)}."
    return f"{told}."


def _lacking(row: AnyBudget) -> str:
    # As in the column beside it, but 99.96 % is not 100 %, of which nothing would lack.
    known = min(round(100 * (row.coverage_ratio or 0.0), 1), 99.9)
    return f"Use may be higher: {known:g} % of the hours so far have data"


def _brief(row: AnyBudget, zone: ZoneInfo, text: str) -> dict[str, str]:
    """Return a forecast without what the column of known hours says beside it; files have all."""
    brief = text.removesuffix(f" {_missing(row, zone)}")
    return {} if brief == text else {"outlook": brief}


def _pace(row: AnyBudget, zone: ZoneInfo) -> Pace:
    if row.burn_rate is None:
        if row.coverage_ratio == 0:
            return Pace("not known", "No data in this period.", "waiting")
        return Pace("not begun", "No hour of this period is closed yet.", "waiting")
    if row.used >= row.allowance:
        over = f"{_amount(row, float(row.used) - float(row.allowance))} over"
        since = f"Used up on {_day(row.exhausted_at, zone)}" if row.exhausted_at else "Used up"
        return Pace("used up", f"{since}; {over}.", "failed")
    if row.burn_rate_7d is None:
        return Pace("not known", f"No data{_after(row, zone)}.", "waiting")
    at = row.at if isinstance(row, BudgetRow) else row.as_of
    if row.exhausted_at is not None and at is not None and row.exhausted_at <= at:
        day = _day(row.exhausted_at, zone)
        text = f"Probably used up since {day}, at the earlier pace. No data{_after(row, zone)}."
        return Pace("not certain", text, "partial")
    if row.exhausted_at is not None:
        return Pace(
            "over pace",
            f"Over pace: used up on {_day(row.exhausted_at, zone)}{_range(row, zone)}.",
            "partial",
        )
    if row.exhausted_at_early is not None:
        early = _day(row.exhausted_at_early, zone)
        text = f"Within budget at the pace of 7 days. At the highest daily use it ends {early}."
        return Pace(_steady(row.burn_rate), text, "complete")
    return Pace(_steady(row.burn_rate), "Within budget.", "complete")


def _after(row: AnyBudget, zone: ZoneInfo) -> str:
    return "" if row.as_of is None else f" after {clock_text(row.as_of, zone)}"


def _steady(rate: float) -> str:
    if rate < EVEN[0]:
        return "under pace"
    return "on pace" if rate <= EVEN[1] else "over pace, slowing"


def _range(row: AnyBudget, zone: ZoneInfo) -> str:
    early, late = row.exhausted_at_early, row.exhausted_at_late
    if early is None:
        return ""
    if late is None:
        return f", on {_day(early, zone)} at the earliest. It may last"
    first, last = _day(early, zone), _day(late, zone)
    return "" if first == last else f", between {first} and {last}"


def _day(at: datetime | None, zone: ZoneInfo) -> str:
    return day_text(at, zone) if at else NOTHING


def _amount(row: AnyBudget, amount: float) -> str:
    in_hours = _unit(row) == "GPU-hours"
    return f"{amount:,.0f} GPU-hours" if in_hours else money(amount, _unit(row))


def _unit(row: AnyBudget) -> str:
    return _UNITS.get(row.unit, row.unit)


def hasty_first(rows: Sequence[BudgetT]) -> list[BudgetT]:
    """Return budgets, those first that are used up or will be soonest; then the fastest."""

    def rank(row: AnyBudget) -> tuple[float, float, str, str]:
        # What lasts comes last.
        over = row.exhausted_at.timestamp() if row.exhausted_at else float("inf")
        return (over, -(row.burn_rate or 0.0), row.team, row.period)

    return sorted(rows, key=rank)


def of_teams(rows: Sequence[BudgetT], teams: Collection[str]) -> list[BudgetT]:
    """Return the budgets of these teams; of all where none is named."""
    return [row for row in rows if not teams or row.team in teams]


# ---------------------------------------------------------------- table

_PACE = Column("pace", "Pace")
_USED = (
    Column("used_gpu_hours", "Used", Format.NUMBER, "GPU-h"),
    Column("allowance_gpu_hours", "Budget", Format.NUMBER, "GPU-h"),
)
_TICKS = "used ÷ budget; grey tick: linear pace, dark tick: 100 %"
_OUTLOOK = Column("outlook", "Forecast", wraps=True)
"""The forecast tells in words what those say that are in files alone."""


class BudgetTable(Table, frozen=True):
    """A table whose bars of what is used have a tick at the linear pace."""

    def _cell(self, row: TableRow, column: Column, scale: float) -> Cell:
        cell = Table._cell(self, row, column, scale)
        used, rate = row.values.get("used_ratio"), row.values.get("burn_rate")
        if column.key != "used_ratio" or not isinstance(used, float):
            return cell
        if not isinstance(rate, int | float) or not rate:
            return cell
        return replace(cell, mark=f"{min(1.0, used / rate / scale):.3f}")


class LaterBudgets(Sequence[BudgetRow]):
    """Budgets of which the rest is read when they are shown: of a thousand a page shows few.

    `in_full` is given some of the rows `found`, and returns them whole.
    """

    def __init__(
        self,
        found: Sequence[BudgetRow],
        in_full: Callable[[Sequence[BudgetRow]], Sequence[BudgetRow]],
    ) -> None:
        self._found = found
        self._in_full = in_full
        self._whole: dict[int, BudgetRow] = {}

    @property
    def found(self) -> Sequence[BudgetRow]:
        """Return the budgets as they were found: pace and forecast without its range."""
        return self._found

    @property
    def since(self) -> datetime | None:
        """Return the start of the oldest period; None without budgets."""
        return min((row.period_start for row in self._found), default=None)

    def __len__(self) -> int:
        return len(self._found)

    @overload
    def __getitem__(self, place: int) -> BudgetRow: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[BudgetRow]: ...

    def __getitem__(self, place: int | slice) -> BudgetRow | Sequence[BudgetRow]:
        if isinstance(place, slice):
            places = range(len(self))[place]
            self._read(places)
            return [self._whole[n] for n in places]
        n = range(len(self))[place]
        # Who goes from row to row, to sort or to write a file, comes for the next ones too.
        self._read(range(n, min(n + _AT_ONCE, len(self))) if n not in self._whole else ())
        return self._whole[n]

    def _read(self, places: Iterable[int]) -> None:
        missing = [n for n in places if n not in self._whole]
        if missing:
            whole = self._in_full([self._found[n] for n in missing])
            self._whole.update(zip(missing, whole, strict=True))


def budget_table(rows: Sequence[BudgetRow], reading: QuerySession, *, narrowed: bool) -> Table:
    """Return the budgets, the most pressing first."""
    zone = reading.choice.zone
    return BudgetTable(
        id="budgets",
        title="Budgets in GPU-hours",
        columns=tables.declared_columns(
            BudgetRow,
            after={"period": [_PACE], "used_ratio": _USED, "burn_rate_7d": [_OUTLOOK]},
        ),
        rows=LaterRows(rows, lambda row: _row(row, reading)),
        zone=zone,
        empty="No budget of these teams runs now."
        if narrowed
        else "No team has a budget in GPU-hours. The catalog gives one: `budgets: [{period: month, "
        "gpu_hours: 5000}]`.",
    )


EXPLAINS = {
    "used_gpu_hours": "budget_used",
    "used_ratio": "budget_share",
    "burn_rate": "budget_burn",
    "burn_rate_1d": "budget_burn_1d",
    "burn_rate_7d": "budget_burn_7d",
    "exhausted_at": "budget_hours_left",
}
"""Which figure explains a column."""


def _row(row: BudgetRow, reading: QuerySession) -> TableRow:
    pace = pace_of(row, reading.choice.zone)
    return TableRow(
        {
            **tables.declared_values(row),
            "pace": pace.word,
            "used_gpu_hours": row.used,
            "allowance_gpu_hours": row.allowance,
            "outlook": pace.text,
        },
        {"team": href("team", reading.query, name=row.team)},
        {"pace": pace.state},
        short=_brief(row, reading.choice.zone, pace.text),
        explains=figure_hrefs(EXPLAINS, reading.query, team=row.team, period=row.period),
    )


_MONEY_EXPLAINS = {"used": "budget_used"} | {
    key: figure for key, figure in EXPLAINS.items() if key != "used_gpu_hours"
}


def money_table(found: Sequence[MoneyBudgetRow], reading: QuerySession) -> Table:
    """Return the budgets in money, the most pressing first."""
    return BudgetTable(
        id="money-budgets",
        title="Budgets in money",
        columns=[
            Column("team", "Team"),
            Column("period", "Period"),
            _PACE,
            Column(
                "used_ratio",
                "Used",
                Format.RATIO,
                "%",
                _TICKS,
            ),
            Column("used", "Used", Format.COUNT),
            Column("allowance", "Budget", Format.COUNT),
            Column("currency", "Currency"),
            Column("burn_rate", "Burn rate", Format.DECIMAL, "", "1.0 uses exactly the budget"),
            Column("burn_rate_1d", "Last day", Format.DECIMAL, "", "of the last 24 hours"),
            Column("burn_rate_7d", "Last 7 days", Format.DECIMAL, "", "of the last 7 days"),
            _OUTLOOK,
            Column("exhausted_at", "Used up", Format.TIME, "", "at the pace of the last 7 days"),
            Column("unpriced_gpu_hours", "Unpriced", Format.DECIMAL, "GPU-h", "not counted"),
            Column("coverage_ratio", "Known", Format.RATIO, "%", "priced hours ÷ hours so far"),
            Column("data_start", "Data starts", Format.TIME, in_files=True),
        ],
        rows=[_money_row(row, reading) for row in found],
        zone=reading.choice.zone,
        empty="No team that you may see has a budget in money.",
    )


def _money_row(row: MoneyBudgetRow, reading: QuerySession) -> TableRow:
    pace = pace_of(row, reading.choice.zone)
    return TableRow(
        {
            **tables.attributes(
                row, *("team", "period", "burn_rate", "burn_rate_1d", "burn_rate_7d")
            ),
            **tables.attributes(
                row, *("exhausted_at", "unpriced_gpu_hours", "coverage_ratio", "data_start")
            ),
            "currency": row.unit,
            "allowance": float(row.allowance),
            "used": float(row.used),
            "used_ratio": float(row.used / row.allowance) if row.allowance else None,
            "pace": pace.word,
            "outlook": pace.text,
        },
        {"team": href("team", reading.query, name=row.team)},
        {"pace": pace.state},
        short=_brief(row, reading.choice.zone, pace.text),
        explains=figure_hrefs(
            _MONEY_EXPLAINS, reading.query, team=row.team, period=row.period, currency=row.unit
        ),
    )


def budget_figures(rows: Sequence[AnyBudget], zone: ZoneInfo) -> FigureRow:
    """Return how many budgets run, and how many of them do not last."""
    paces = [pace_of(row, zone).word for row in rows]
    over, spent = paces.count("over pace"), paces.count("used up")
    ends = [
        (row.exhausted_at, row.team)
        for row, word in zip(rows, paces, strict=True)
        if row.exhausted_at is not None and word not in ("used up", "not certain")
    ]
    known = [word for word in paces if word in _LASTING]
    unsure = paces.count("not certain")
    return figure_row(
        KeyFigure("Budgets", str(len(rows)), basis="now"),
        KeyFigure("Over pace", str(over), tone=Tone.WARNING if over else Tone.NONE),
        KeyFigure("Used up", str(spent), tone=Tone.DANGER if spent else Tone.NONE),
        KeyFigure("Within budget", str(len(known)), note=f"{unsure} not certain" if unsure else ""),
        *([KeyFigure("Next used up", day_text(min(ends)[0], zone), min(ends)[1])] if ends else ()),
        name="Budgets",
    )


_LASTING = ("under pace", "on pace", "over pace, slowing")

# ---------------------------------------------------------------- burn-down


def burn_plots(rows: Sequence[BudgetRow], reading: QuerySession) -> list[Plot]:
    """Return the burn-down of the first few budgets."""
    return [_plot(row, f"burn-{n}", reading) for n, row in enumerate(rows[:MOST_PLOTS], start=1)]


def _plot(row: BudgetRow, plot_id: str, reading: QuerySession) -> Plot:
    zone = reading.choice.zone
    window = Window(row.period_start, row.period_end)
    scale = Scale.up_to(window, max(row.allowance, row.used))
    title = f"{row.team}: budget of the {row.period}"
    # The period ends with the midnight after its last day.
    until = (row.period_end - timedelta(microseconds=1)).astimezone(zone)
    start = row.period_start.astimezone(zone)
    span = f"{days_text(start.date(), until.date(), zone)} ({zone.key})"
    return Plot(
        id=plot_id,
        title=title,
        caption=f"{title}, {_unit(row)} used by day. {span}. {pace_of(row, zone).text}",
        table=_points(row, f"{plot_id}-points", title, zone),
        curves=_curves_of(row, scale) if row.points else (),
        areas=_areas(row, scale) if row.points else (),
        across=scale.across(zone),
        upwards=scale.upwards(),
        empty="Nothing to draw: no hour of this period is closed yet.",
    )


def _curves_of(row: BudgetRow, scale: Scale) -> list[PlotLine]:
    start, end, whole = row.period_start, row.period_end, row.allowance
    used = [(point.at, point.used) for point in row.points]
    return [
        PlotLine("used", "plot-used", scale.line(used)),
        PlotLine("linear pace", "plot-even", scale.line([(start, 0.0), (end, whole)])),
        PlotLine("budget", "plot-limit", scale.line([(start, whole), (end, whole)])),
    ]


def _areas(row: BudgetRow, scale: Scale) -> list[PlotLine]:
    """Return the range of days on which the budget is used up; none where it surely lasts."""
    early = row.exhausted_at_early
    last = row.points[-1]
    if early is None or row.used >= row.allowance:
        return []
    # At the slowest pace it may last: then the range goes on to the end of the period.
    late = row.exhausted_at_late or row.period_end
    corners = [(last.at, last.used), (early, row.allowance), (late, row.allowance)]
    return [PlotLine("when it may be used up", "plot-range", scale.area(corners))]


def _points(row: BudgetRow, table_id: str, title: str, zone: ZoneInfo) -> Table:
    whole = (row.period_end - row.period_start) / timedelta(hours=1)
    rows = [
        TableRow(
            {
                "at": point.at,
                "used_gpu_hours": point.used,
                "even_gpu_hours": row.allowance
                * ((point.at - row.period_start) / timedelta(hours=1) / whole),
                "left_gpu_hours": row.allowance - point.used,
            }
        )
        for point in row.points
    ]
    columns = (
        Column("at", "By", Format.HOUR),
        Column("used_gpu_hours", "Used", Format.NUMBER, "GPU-h"),
        Column("even_gpu_hours", "Linear pace", Format.NUMBER, "GPU-h"),
        Column("left_gpu_hours", "Left", Format.NUMBER, "GPU-h"),
    )
    return Table(table_id, title, columns, rows, zone, empty="", ordered=True)


# ---------------------------------------------------------------- alerts


def alert_table(rows: Sequence[BudgetAlertRow], reading: QuerySession) -> Table:
    """Return what was noted in the window about budgets, the newest first.

    Those in money are among `rows` for whom they concern.
    """
    teams, zone = reading.filters.team, reading.choice.zone
    own = [row for row in rows if not teams or row.team in teams]
    return Table(
        id="alerts",
        title="Budget alerts",
        columns=tables.declared_columns(
            BudgetAlertRow, after={"team": [Column("said", "What", wraps=True)]}
        ),
        rows=[_alert(row, reading) for row in own],
        zone=zone,
        empty="No budget reached a threshold in this window.",
    )


def _alert(row: BudgetAlertRow, reading: QuerySession) -> TableRow:
    part = percent(row.threshold)
    said = f"{part} of the budget was used."
    if row.kind != "used":
        day = _day(row.exhausted_at, reading.choice.zone)
        said = f"Forecast: used up on {day}, before its period ends."
    return TableRow(
        tables.declared_values(row) | {"said": said, "unit": _UNITS.get(row.unit, row.unit)},
        {"team": href("team", reading.query, name=row.team)},
    )
