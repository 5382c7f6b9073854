"""Goodput: what became of allocated GPU-hours, and why work was lost."""

from collections.abc import Mapping
from datetime import datetime
from types import SimpleNamespace

from django.http import HttpResponseBase

from apps.accounts.domain.structs import replace
from apps.costs import selectors as costs
from apps.costs.domain.costing import money as in_money
from apps.costs.selectors import LossCostRow
from apps.goodput.domain.ledger import GoodputAmounts
from apps.goodput.selectors import GoodputLedger, GoodputRow, goodput_ledger
from apps.pending.selectors import own_queue_times
from apps.usage import selectors as usage
from apps.usage.domain.amounts import hours
from apps.usage.domain.usage_query import Grouping, GroupingRefused
from apps.usage.selectors import Freshness
from apps.web.components.charts import Chart, stacked
from apps.web.components.figure_row import FigureRow, KeyFigure, figure_row, no_data
from apps.web.components.formats import Format, duration, money, percent
from apps.web.components.page_query import href, workload_href
from apps.web.components.tables import (
    Column,
    LedgerClass,
    Table,
    TableRow,
    declared_columns,
    declared_values,
)
from apps.web.components.tabs import TAB_KEY, Tab, tab_bar
from apps.web.costs.money_format import MoneyTable, money_row
from apps.web.pages import page, respond
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    axis_of,
    freshness_of,
    quality_of,
    query_session,
)


class GoodputClass(LedgerClass, frozen=True):
    """A part of the goodput ledger, in the colour of the part `of` the ledger that it is from."""

    of: str = ""

    @property
    def token(self) -> str:
        return self._coloured.token

    @property
    def css(self) -> str:
        return self._coloured.css

    @property
    def _coloured(self) -> LedgerClass:
        return LedgerClass(self.of, self.label, self.meaning, self.pattern)


_TABS: Mapping[Tab, tuple[Grouping, ...]] = {
    Tab("teams", "Teams"): (Grouping.TEAM,),
    Tab("tiers", "Tiers"): (Grouping.TIER,),
    Tab("workloads", "Workloads"): (
        *(Grouping.CLUSTER, Grouping.NAMESPACE, Grouping.WORKLOAD, Grouping.TEAM),
    ),
    Tab("nodes", "Nodes"): (Grouping.CLUSTER, Grouping.NODE),
}
_PHONE = {
    groups: str(name)
    for groups, name in zip(_TABS.values(), ("team", "tier", "workload", "node"), strict=True)
}
_TITLES = {tab.key: tab.label for tab in _TABS}
CLASSES = (
    GoodputClass("productive", "Productive", "active in work that was not lost", of="busy"),
    GoodputClass("underused", "Underutilized", "of work that was not lost", of="underused"),
    GoodputClass("idle", "Idle", "of work that was not lost", of="idle"),
    GoodputClass("lost", "Lost", "work thrown away, and back-off", "x", of="lost"),
    GoodputClass("starting", "Starting", "bound, and no container ran yet", of="not_running"),
    GoodputClass("unmeasured", "No metrics", "of work that was not lost", "/", of="unmeasured"),
)
"""What the chart stacks; they sum to allocated."""
_NONE = "No GPU was allocated in this window."
_NOT_WATCHED = "No watch saw restarts and ends of these pods."


@page
def goodput(request: PageRequest) -> HttpResponseBase:
    """Show the goodput ledger of the window by what the open tab names."""
    reading = query_session(request, takes=("team", "tier", "namespace"))
    tabs = tab_bar(request, tuple(_TABS), name="Goodput")
    by = next(groups for tab, groups in _TABS.items() if tab.key == tabs.chosen)
    found, refused, fresh = GoodputLedger((), ()), "", freshness_of(reading)
    try:
        found = goodput_ledger(
            reading.window,
            group_by=by,
            filters=reading.filters,
            visibility=reading.visibility,
            zone=reading.choice.zone,
            interval=reading.choice.interval,
        )
    # Too long a window for nodes or workloads is told in place of the table: the tabs stay.
    except GroupingRefused as refusal:
        refused = f"Over this window: {refusal}."
    empty = "" if found.rows else refused or _why_empty(reading, fresh)
    return respond(
        request,
        reading,
        "goodput",
        charts=[_chart(found, reading, fresh)] if found.rows else [],
        tables=[
            _groups(found, by, reading, title=_TITLES[tabs.chosen], empty=empty),
            _reasons(found, reading, empty=empty or _nothing_lost(found)),
        ],
        tabs=tabs,
        classes=CLASSES,
        figures=_figures(found, _queue_time(reading)) if found.rows else None,
        quality=quality_of(reading, fresh, None),
    )


def _why_empty(reading: QuerySession, fresh: Freshness) -> str:
    """Return why nothing is shown: not collected, not known, or nothing was allocated."""
    window, filters = reading.window, reading.filters
    collected, _ = usage.collected_hours(window, filters=filters, visibility=reading.visibility)
    if collected:
        return _NONE
    if fresh.failed:
        return "No data: no hour of this window could be collected. Data quality says why."
    if fresh.first_hour and window.end <= fresh.first_hour:
        return "No data: this window is before the first hour that was collected."
    return "Not checked yet: no hour of this window is collected."


def _nothing_lost(found: GoodputLedger) -> str:
    if not found.is_watched:
        return _NOT_WATCHED
    part = " while the pods were watched" if found.unwatched else ""
    return f"No work was lost in this window{part}."


def _chart(found: GoodputLedger, reading: QuerySession, fresh: Freshness) -> Chart:
    """Return the ledger over time, with the same as a table.

    Where no watch saw the pods of a period it has no bar of what was lost, and no data of it.
    """
    axis = axis_of(reading, fresh)
    lost = {
        start: row.amounts.lost if row.is_watched else None for start, row in found.periods.items()
    }
    drawn = {
        start: SimpleNamespace(
            **{**row.amounts._asdict(), "lost": lost[start], "unwatched": row.unwatched}
        )
        for start, row in found.periods.items()
    }
    table = Table(
        id="goodput-over-time",
        title="Goodput over time",
        columns=[
            Column("period", "Period", axis.kind),
            *(Column(one.key, one.label, Format.GPU_HOURS) for one in CLASSES),
            Column("unwatched", "Not watched", Format.GPU_HOURS),
        ],
        rows=[_period_row(start, amounts) for start, amounts in sorted(drawn.items())],
        zone=axis.zone,
        empty=_NONE,
        on_phone=("period", "lost", "productive"),
    )
    chart = stacked(drawn, title=table.title, axis=axis, classes=CLASSES, table=table, empty=_NONE)
    unknown = sum(one is None for one in lost.values())
    if not unknown:
        return chart
    # Without a bar of it all else looks as if nothing was lost: the words have to say so.
    told = f"Lost: no data in {unknown:,} of {len(lost):,} periods. {_NOT_WATCHED}"
    return replace(chart, caption=f"{chart.caption} {told}")


def _period_row(start: datetime, amounts: SimpleNamespace) -> TableRow:
    values = {key: getattr(amounts, key) for key in (*(one.key for one in CLASSES), "unwatched")}
    told = {key: None if amount is None else hours(amount) for key, amount in values.items()}
    short = {"lost": "no data"} if told["lost"] is None else {}
    return TableRow({"period": start, **told}, short=short)


def _queue_time(reading: QuerySession) -> KeyFigure:
    """Return the queue time before what is allocated, of pods that started in the window."""
    label, link = "Queue time, p50", href("pending", [*reading.query, (TAB_KEY, "history")]) or ""
    found = own_queue_times(
        reading.window, visibility=reading.visibility, filters=reading.pending_filters
    )
    if found is None:
        return no_data(label, "No pod started in this window.", href=link)
    return KeyFigure(
        label,
        duration(found.p50_seconds),
        basis="from creation to start",
        note=f"p95 {duration(found.p95_seconds)}",
        href=link,
    )


def _figures(found: GoodputLedger, queue_time: KeyFigure) -> FigureRow:
    total = found.total
    # Without a watch nothing was seen to be lost, and all would look productive.
    ratio = total.goodput_ratio if found.is_watched else None

    def part(label: str, amount: int) -> KeyFigure:
        share = percent(amount / total.allocated) if total.allocated else ""
        return KeyFigure(label, f"{hours(amount):,.0f}", of="GPU-h", basis=f"{share} of allocated")

    return figure_row(
        KeyFigure(
            "Goodput",
            "–" if ratio is None else percent(ratio),
            basis="productive ÷ (allocated − no metrics)",
            note=_without_metrics(total),
        ),
        part("Productive", total.productive),
        _lost(found),
        part("Starting", total.starting),
        part("Idle, underutilized", total.idle + total.underused),
        queue_time,
    )


def _without_metrics(total: GoodputAmounts) -> str:
    """Return the share of which no metrics tell what came of it; empty where there is none."""
    return f"{percent(total.unmeasured / total.allocated)} no metrics" if total.unmeasured else ""


def _lost(found: GoodputLedger) -> KeyFigure:
    """Return what was lost, of what of the allocated GPU-hours that is known."""
    total = found.total
    if not found.is_watched:
        return no_data("Lost", _NOT_WATCHED)
    watched = total.allocated - found.unwatched
    share = f"{percent(total.lost / total.allocated)} of allocated" if total.allocated else ""
    note = "" if not found.unwatched else f"{percent(watched / total.allocated)} watched"
    return KeyFigure("Lost", f"{hours(total.lost):,.0f}", of="GPU-h", basis=share, note=note)


def _groups(
    found: GoodputLedger,
    by: tuple[Grouping, ...],
    reading: QuerySession,
    *,
    title: str,
    empty: str,
) -> Table:
    rows = sorted(found.rows, key=lambda row: (-row.amounts.lost, tuple(row.groups.values())))
    return Table(
        id="goodput",
        title=title,
        columns=list(declared_columns(GoodputRow, groups=tuple(map(str, by)))),
        rows=[
            TableRow(
                {**row.groups, **declared_values(row)},
                links=_links(row, reading),
                short={} if row.is_watched else {"lost_gpu_hours": "no data"},
            )
            for row in rows
        ],
        zone=reading.choice.zone,
        empty=empty,
        on_phone=(_PHONE[by], "lost_gpu_hours", "productive_gpu_hours", "goodput_ratio"),
    )


def _links(row: GoodputRow, reading: QuerySession) -> dict[str, str]:
    named = row.groups
    found: dict[str, str | None] = {}
    # Rows of workloads name their team too: the link is that of the narrowest name.
    if Grouping.WORKLOAD in named:
        found["workload"] = workload_href(
            named["cluster"], named["namespace"], named["workload"], reading.query
        )
    elif Grouping.TEAM in named:
        found["team"] = href("team", reading.query, name=named["team"])
    elif Grouping.TIER in named:
        found["tier"] = href("tier", reading.query, name=named["tier"])
    return {key: link for key, link in found.items() if link}


def _reasons(found: GoodputLedger, reading: QuerySession, *, empty: str) -> Table:
    rows = costs.loss_cost_rows(found)
    return MoneyTable(
        id="reasons",
        title="Causes of loss",
        columns=list(declared_columns(LossCostRow)),
        rows=[_reason(row) for row in rows],
        zone=reading.choice.zone,
        empty=empty,
        on_phone=("cause", "reason", "lost_gpu_hours"),
    )


def _reason(row: LossCostRow) -> TableRow:
    texts = {}
    # Reasons may be of several currencies: each amount names its own.
    if row.cost is not None and row.currency:
        texts = {"cost": money(in_money(row.cost), row.currency, cents=True)}
    return money_row(row, values={}, links={}, explains={}, texts=texts)
