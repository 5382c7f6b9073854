"""The pages of costs and of waste, with the chart of costs over time."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any

from django.http import HttpResponseBase
from django.urls import reverse
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.accounts.selectors import team_names
from apps.costs import selectors as costs
from apps.costs.domain.costing import WASTE, Cause
from apps.costs.domain.files import FileFormat, offered_formats
from apps.costs.selectors import PLATFORM_NAME, CostRow, cost_rows
from apps.usage.domain.usage_query import Filters, Grouping, TimeStep
from apps.usage.selectors import GroupingRefused, gap_tiers
from apps.web.components import charts, page_query
from apps.web.components.charts import Axis, Chart
from apps.web.components.figure_row import figure_row
from apps.web.components.listings import GROUP_LABELS
from apps.web.components.page_query import Query, during, figure_href, with_query, without
from apps.web.components.tables import WHOLE_CLASSES, Column, LedgerClass, Table
from apps.web.components.tabs import Tab, TabBar, tab_bar
from apps.web.costs import explorer, money_format, waste_waterfall
from apps.web.costs.comparison import compared_words
from apps.web.costs.energy_table import energy_table, factor_table
from apps.web.costs.explorer import NOTHING, WindowCosts, stack_group
from apps.web.costs.exports import background_of, export_form
from apps.web.costs.money_format import WHOLE, MoneyRow, MoneyTable, money_column, number_of
from apps.web.costs.months import LABELS, download, refused
from apps.web.costs.query import (
    CAUSES,
    ENERGY,
    PLATFORM,
    CostPageQuery,
    cost_href,
    cost_session,
    query_of,
)
from apps.web.pages import page, respond
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    axis_of,
    freshness_of,
    held_of,
    quality_of,
)

_MOST_GROUPS = 6  # as many colours as can be told apart
_OTHER = "group_other"
# Charts draw nano-units, money is in units of 1e-8.
_NANO_PER_UNIT = 10
_Sums = dict[datetime, dict[str, int]]


def charts_of(
    costs: WindowCosts, asked: CostPageQuery, reading: QuerySession, axis: Axis
) -> tuple[list[Chart], Sequence[LedgerClass]]:
    """Return a chart for each currency that something has a price in, and the classes of bars.

    11 queries at most.
    """
    group = None if asked.waste else stack_group(asked)
    rows = _rows(asked, reading, group)
    drawn = [currency for currency in costs.by_currency if _of(rows, currency)]
    classes = _classes(_of(rows, drawn[0] if drawn else costs.currency), group)
    # Groups have their colours by cost, which differs by currency: causes are alike in all charts.
    if len(drawn) > 1:
        classes, group = _causes(rows), None
    query = [*reading.query, *without(asked.query, "by")]
    links = _Links(query, group, axis, reading.window.end, waste=asked.waste)
    there = [
        _chart(_of(rows, c), c, classes, group, axis, links) for c in drawn or [costs.currency]
    ]
    keys = {key for row in rows for key in (_key_of(row, classes, group),)}
    return there, [cls for cls in classes if cls.key in keys]


def _rows(asked: CostPageQuery, reading: QuerySession, group: Grouping | None) -> list[CostRow]:
    by = () if group is None else (group,)
    query = replace(asked.question(reading, reading.choice.interval), group_by=by)
    if asked.waste:
        query = replace(query, causes=WASTE)
    return cost_rows(query, visibility=reading.visibility, zone=reading.choice.zone)


def _of(rows: Sequence[CostRow], currency: str) -> list[CostRow]:
    return [row for row in rows if row.currency == currency]


def _classes(rows: Sequence[CostRow], group: Grouping | None) -> Sequence[LedgerClass]:
    """Return the classes of bars: the causes, or the dearest groups and all others."""
    if group is None:
        return _causes(rows)
    sums: dict[str, int] = defaultdict(int)
    for row in rows:
        sums[row.groups[group]] += row.cost or 0
    names = sorted(sums, key=lambda name: (-sums[name], name))
    few = names if len(names) <= _MOST_GROUPS else names[:_MOST_GROUPS]
    label = GROUP_LABELS[group].lower()
    found = [
        LedgerClass(f"group_{place}", name or PLATFORM, f"{label} {name or PLATFORM}")
        for place, name in enumerate(few, start=1)
    ]
    if len(names) > len(few):
        found.append(LedgerClass(_OTHER, "Others", f"{len(names) - len(few)} more"))
    return found


def _causes(rows: Sequence[CostRow]) -> Sequence[LedgerClass]:
    """Return the classes of the causes; energy is one of them where it was billed."""
    billed = any(row.cause is Cause.ENERGY for row in rows)
    return (*WHOLE_CLASSES, ENERGY) if billed else WHOLE_CLASSES


def _key_of(row: CostRow, classes: Sequence[LedgerClass], group: Grouping | None) -> str:
    if group is None:
        return CAUSES[row.cause].key
    # A group of no name is paid by the platform.
    name = row.groups[group] or PLATFORM
    return next((cls.key for cls in classes if cls.label == name), _OTHER)


def _chart(
    rows: Sequence[CostRow],
    currency: str,
    classes: Sequence[LedgerClass],
    group: Grouping | None,
    axis: Axis,
    links: "_Links",
) -> Chart:
    sums: _Sums = defaultdict(lambda: dict.fromkeys((cls.key for cls in classes), 0))
    for row in rows:
        # In UTC as the axis has them: the two 02:00 of a clock change are different hours there.
        if row.period is not None:
            own = sums[row.period.astimezone(UTC)]
            own[_key_of(row, classes, group)] += row.cost or 0
    by = "cause" if group is None else GROUP_LABELS[group].lower()
    title = f"{'Waste' if links.waste else 'Costs'} by {by}"
    by_period: dict[datetime, object] = {
        period: SimpleNamespace(**{key: n * _NANO_PER_UNIT for key, n in own.items()})
        for period, own in sums.items()
    }
    return charts.stacked(
        by_period,
        title=title,
        axis=replace(axis, measure=currency),
        classes=classes,
        table=_table(sums, currency, classes, axis, title, links),
        empty=NOTHING,
    )


class _Links(Struct, frozen=True):
    """Where the amounts of a period are explained; those of other groups together are not.

    `waste` is explained by who held it, costs by who pays.
    """

    query: Query
    group: Grouping | None
    axis: Axis
    end: datetime
    waste: bool = False

    def of(self, period: datetime, classes: Sequence[LedgerClass], currency: str) -> dict[str, str]:
        # The next period starts where this one ends; the last one ends with the window.
        end = next((at for at in self.axis.periods if at > period), self.end)
        query = during(period, min(end, self.end), self.query)
        if self.waste:
            return {
                "cost": figure_href("waste_cost", query, currency=currency),
                **{
                    f"{c.key}_cost": figure_href(f"{c.key}_cost", query, currency=currency)
                    for c in classes
                },
            }
        found = {"cost": figure_href("cost", query, currency=currency)}
        for cls in classes:
            if self.group is None:
                groups, names = {}, {"cause": _CAUSE_OF[cls.key]}
            else:
                name = PLATFORM_NAME if cls.label == PLATFORM else cls.label
                groups, names = {self.group.value: name}, {}
            if cls.key != _OTHER or self.group is None:
                found[f"{cls.key}_cost"] = cost_href(
                    "cost", groups, query, currency=currency, **names
                )
        return found


_CAUSE_OF = {cls.key: cause.value for cause, cls in CAUSES.items()}


def _table(
    sums: _Sums,
    currency: str,
    classes: Sequence[LedgerClass],
    axis: Axis,
    title: str,
    links: "_Links",
) -> MoneyTable:
    periods = [period for period in axis.periods if period in sums]
    there = [cls for cls in classes if any(own[cls.key] for own in sums.values())]
    grid = [[sums[period][cls.key] for cls in there] for period in periods]
    rows = []
    for period, amounts, (whole, texts) in zip(
        periods, grid, money_format.cells(grid, currency, digits=WHOLE), strict=True
    ):
        keys = [f"{cls.key}_cost" for cls in there]
        exact = {**dict(zip(keys, amounts, strict=True)), "cost": sum(amounts)}
        rows.append(
            MoneyRow(
                {**{key: number_of(amount) for key, amount in exact.items()}, "period": period},
                amounts=exact,
                texts={**dict(zip(keys, texts, strict=True)), "cost": whole},
                explains=links.of(period, there, currency),
            )
        )
    return MoneyTable(
        id=f"over-time-{currency.lower()}",
        title=title,
        columns=[
            Column("period", axis.interval.value.capitalize(), axis.kind),
            *(money_column(f"{c.key}_cost", c.label, currency, c.meaning) for c in there),
            money_column("cost", "In all", currency),
        ],
        rows=rows,
        zone=axis.zone,
        empty=NOTHING,
    )


COST_TABS = (
    Tab("groups", "By group"),
    Tab("energy", "Energy"),
    Tab("lines", "Line items"),
    Tab("files", "Files"),
)
WASTE_TABS = (
    Tab("groups", "Unused (teams)"),
    Tab("platform", "Platform"),
    Tab("workloads", "Workloads"),
    Tab("lines", "Line items"),
    Tab("files", "Files"),
)
_WORST_OF_EACH = 5
_FILE_OF_WINDOW = (FileFormat.CSV, FileFormat.XLSX, FileFormat.PARQUET)


@page
def cost_explorer(request: PageRequest) -> HttpResponseBase:
    reading, asked = cost_session(request), query_of(request.GET)
    found = explorer.costs_of(reading, asked)
    tabs = tab_bar(request, COST_TABS, name="Cost tables")
    tables: list[Table] = []
    if tabs.chosen == "groups":
        tables = explorer.group_tables(found, asked, reading)
    elif tabs.chosen == "energy":
        tables = [
            energy_table(asked.groups, reading, _of_seen_teams(reading)),
            factor_table(reading),
        ]
    elif tabs.chosen == "lines":
        tables = [explorer.line_table(found, asked, reading)]
    return _cost_page(request, reading, asked, found, tabs, tables)


def _of_seen_teams(reading: QuerySession) -> Filters:
    """Return the filters of the page, narrowed to the teams whose costs the reader sees."""
    own, filters = reading.visibility, reading.filters
    if own.everything:
        return filters
    # Sums of GPUs are open to all and costs are not: energy stands beside costs on this page.
    seen = {name for pk, name in team_names().items() if own.sees(pk)}
    # No team is a filter that nothing passes, and no filter would let everything pass.
    kept = seen.intersection(filters.team or seen) or {""}
    return replace(filters, team=tuple(sorted(kept)))


@page
def waste(request: PageRequest) -> HttpResponseBase:
    reading, asked = cost_session(request), query_of(request.GET, waste=True)
    found = explorer.costs_of(reading, asked)
    shown: Sequence[Tab] = WASTE_TABS
    if not reading.visibility.everything:
        # Unallocated capacity belongs to the platform and is no waste of a team.
        shown = tuple(tab for tab in WASTE_TABS if tab.key != "platform")
    tabs = tab_bar(request, shown, name="Waste")
    tables: list[Table] = []
    if tabs.chosen == "groups":
        tables = waste_waterfall.unused_tables(found, asked, reading)
    elif tabs.chosen == "platform":
        tables = _platform_tables(request, reading)
    elif tabs.chosen == "workloads":
        tables = [_worst(reading)]
    elif tabs.chosen == "lines":
        tables = [explorer.line_table(found, asked, reading)]
    return _cost_page(request, reading, asked, found, tabs, tables)


def _platform_tables(request: PageRequest, reading: QuerySession) -> list[Table]:
    """Return the platform's part by tier, or by what the reader chose that capacity has."""
    asked = query_of(request.GET, waste=True, usual=(Grouping.TIER,))
    # Unallocated capacity has no team, namespace or workload to be grouped by.
    asked = asked if set(asked.by) & _OF_CAPACITY else replace(asked, by=_TIER, groups=_TIER)
    found = explorer.costs_of(reading, asked)
    return waste_waterfall.platform_tables(found, asked, reading)


_TIER = (Grouping.TIER,)
_OF_CAPACITY = {
    *(Grouping.TIER, Grouping.GPU_MODEL, Grouping.CAPACITY_TYPE, Grouping.CLUSTER),
}


def _cost_page(
    request: PageRequest,
    reading: QuerySession,
    asked: CostPageQuery,
    found: WindowCosts,
    tabs: TabBar,
    tables: Sequence[Table],
) -> HttpResponseBase:
    """Answer with the frame of costs and of waste: figures, days, waterfall and tabs."""
    freshness = freshness_of(reading)
    falls = waste_waterfall.waterfalls_of(found, asked, reading)
    drawn, classes = charts_of(found, asked, reading, axis_of(reading, freshness))
    terms = _terms(reading, asked, "waste-file" if asked.waste else "costs-file")
    unpriced = costs.unpriced(found.rows)
    at_least = bool(unpriced or any(one.hours for one in terms["not_priced"]))
    query = [*reading.query, *asked.query]
    return respond(
        request,
        reading,
        "waste" if asked.waste else "costs",
        tables=tables,
        table_ids=[table.id for table in tables],
        charts=drawn,
        drawings=falls,
        classes=classes,
        asked=asked,
        comparison=found.before,
        compared=compared_words(found.before),
        figures=[
            figure_row(*figures, name=f"Key figures in {currency}")
            for currency in found.by_currency
            if (figures := explorer.figures_of(found, currency, query, at_least=at_least))
        ],
        falls=falls,
        tabs=tabs,
        export=export_form(reading),
        unpriced=unpriced,
        hidden=reading.query,
        background=None if asked.waste else background_of(asked, reading),
        quality=quality_of(reading, freshness, held_of(reading)),
        **terms,
    )


def _worst(reading: QuerySession) -> Table:
    """Return the worst workloads, or why they cannot be told of this window."""
    try:
        worst = costs.worst_workloads(
            reading.window,
            filters=reading.filters,
            visibility=reading.visibility,
            limit=_WORST_OF_EACH,
            zone=reading.choice.zone,
        )
    except GroupingRefused as refusal:
        return waste_waterfall.worst_table({}, reading, problem=f"Over this window: {refusal}.")
    return waste_waterfall.worst_table(worst, reading)


# ---------------------------------------------------------------- files and months


@page
def costs_file(request: PageRequest) -> HttpResponseBase:
    return _window_file(request, query_of(request.GET), tuple(Cause))


@page
def waste_file(request: PageRequest) -> HttpResponseBase:
    asked = query_of(request.GET, usual=(Grouping.TEAM, Grouping.TIER), waste=True)
    return _window_file(request, asked, WASTE)


def _window_file(
    request: PageRequest, asked: CostPageQuery, causes: tuple[Cause, ...]
) -> HttpResponseBase:
    """Answer with the rows of a page's question, by the interval of its charts or as asked."""
    reading = cost_session(request)
    names, unknown = page_query.names_from(request.GET, "format", [f.value for f in FileFormat])
    lengths, no_length = page_query.names_from(request.GET, "interval", [i.value for i in TimeStep])
    problems = [*reading.problems, unknown, no_length, asked.problem]
    # A file with other rows than those asked for would mislead its later readers.
    if any(problems):
        return refused(" ".join(text for text in problems if text))
    format_ = FileFormat(names[0]) if names else FileFormat.CSV
    interval = TimeStep(lengths[0]) if lengths else TimeStep.TOTAL
    make = partial(
        costs.cost_file,
        replace(asked.question(reading, interval), causes=causes),
        format_,
        visibility=reading.visibility,
        zone=reading.choice.zone,
    )
    name = "waste" if asked.waste else "costs"
    return download(make, format_, name, bom=bool(request.GET.get("bom")))


def _terms(reading: QuerySession, asked: CostPageQuery, file: str) -> dict[str, Any]:
    """Return what every page of money says of its figures, and the links to its files."""
    kept = [*reading.query, *asked.query]
    path = reverse(f"web:{file}")
    return {
        "book": costs.price_book().version,
        "gaps": gap_tiers(
            reading.window, visibility=reading.visibility, tiers=reading.filters.tier
        ),
        "priced_until": costs.priced_until(visibility=reading.visibility),
        "not_priced": costs.not_priced(
            reading.window, filters=reading.filters, visibility=reading.visibility
        ),
        "files": [
            (LABELS[format_], with_query(path, [*kept, ("format", format_.value)]))
            for format_ in offered_formats()
            if file != "waste-file" or format_ in _FILE_OF_WINDOW
        ],
    }
