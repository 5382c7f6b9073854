"""The list of workloads: what each held, used and left unused, with its verdict."""

from collections import Counter
from collections.abc import Mapping, Sequence

from django.http import HttpResponseBase

from apps.accounts.domain.structs import replace
from apps.costs.domain.costing import money as in_full
from apps.costs.domain.workload_verdict import VerdictKind, unused_ratio, verdict
from apps.costs.selectors import WORKLOAD_GROUPS, WorkloadCost, WorkloadKey, workload_costs
from apps.pending.domain.workload_groups import WorkloadGrouping
from apps.pending.selectors import NamespaceContext, pending_workloads
from apps.usage import selectors as usage
from apps.usage.domain.amounts import Amounts, hours
from apps.usage.domain.usage_query import TimeStep, UsageRow
from apps.web.components import tables
from apps.web.components.drawings import ScatterPoint, scatter
from apps.web.components.drawings.scatter import Scatter
from apps.web.components.figure_row import FigureRow, KeyFigure, figure_row, no_data
from apps.web.components.formats import Format, money, percent
from apps.web.components.listings import UNUSED
from apps.web.components.page_query import explain_href, href, workload_href
from apps.web.components.tables import Column, LaterRows, Table
from apps.web.costs.money_format import MoneyRow, MoneyTable, number_of
from apps.web.pages import page, respond
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    freshness_of,
    quality_of,
    query_session,
    usage_of,
)
from apps.web.usage.comparison import known_hours

_TAKES = ("tier", "team", "namespace", "gpu_model", "capacity_type")
_DRAWN = 40
_NO_METRICS = "No metrics in this window."
_NO_HOURS = "No hour of this window is collected."
_MONEY, _TOTAL_MONEY = "unused_cost", "cost"
VERDICTS = {
    VerdictKind.NOTHING: "no allocation",
    VerdictKind.SHORT: "too short",
    VerdictKind.UNKNOWN: "no metrics",
    VerdictKind.UNUSED: "mostly unused",
    VerdictKind.PARTLY: "partly unused",
    VerdictKind.USED: "used",
}
Costs = Mapping[WorkloadKey, Sequence[WorkloadCost]]


@page
def workload_list(request: PageRequest) -> HttpResponseBase:
    reading = query_session(request, takes=_TAKES)
    held = [
        row
        for row in usage_of(reading, by=WORKLOAD_GROUPS, interval=TimeStep.TOTAL)
        if row.amounts.allocated
    ]
    costs = workload_costs(
        reading.window,
        filters=reading.filters,
        visibility=reading.visibility,
        zone=reading.choice.zone,
    )
    rows = _most_unused(held, costs)
    whole = tables.summed(rows)
    gpus = _average_gpus(rows, reading)
    table = _table(rows, costs, _pending(reading), reading)
    if gpus is None:
        table = replace(table, empty=f"{_NO_HOURS} Choose another one.")
    return respond(
        request,
        reading,
        "workloads",
        tables=[table],
        drawings=[_scatter(rows, gpus or [0.0] * len(rows), costs, reading)],
        figures=_figures(rows, whole, gpus, costs, reading),
        quality=quality_of(reading, freshness_of(reading), whole if rows else None),
    )


def key_of(row: UsageRow) -> WorkloadKey:
    return WorkloadKey(*(row.groups[name] for name in WORKLOAD_GROUPS))


def _pending(reading: QuerySession) -> dict[tuple[str, str, str], int]:
    """Return how many items of each workload are pending now."""
    found = pending_workloads(
        reading.now,
        by=WorkloadGrouping.NONE,
        filters=reading.pending_filters,
        visibility=reading.visibility,
        context=NamespaceContext.at(reading.now),
    )
    return {
        (one.lead.cluster, one.lead.namespace, one.lead.workload): len(one.items)
        for one in found.summaries
    }


def money_text(costs: Sequence[WorkloadCost], field: str) -> str:
    """Return the amounts of all currencies as text; empty where nothing has a price."""
    return " + ".join(money(in_full(getattr(one, field)), one.currency) for one in costs)


def _main_currency(costs: Costs) -> str:
    """Return the currency in which most workloads have a price; empty where none has."""
    # Amounts of several currencies cannot be ranked together, so the list ranks by one.
    counted = Counter(one.currency for own in costs.values() for one in own)
    return max(counted, key=lambda name: (counted[name], name), default="")


def _most_unused(rows: Sequence[UsageRow], costs: Costs) -> list[UsageRow]:
    """Return the rows by unused cost in the main currency, then by unused GPU-hours."""
    currency = _main_currency(costs)

    def rank(row: UsageRow) -> tuple[int, int, tuple[str, ...]]:
        own = (one.unused for one in costs.get(key_of(row), ()) if one.currency == currency)
        return -sum(own), -row.amounts.not_used, tuple(row.groups.values())

    return sorted(rows, key=rank)


# ---------------------------------------------------------------- figures


def _average_gpus(rows: Sequence[UsageRow], reading: QuerySession) -> list[float] | None:
    """Return the GPUs that each row held on average of the hours that tell of its tier.

    Hours without data are left out, as on all pages: they are unknown, not zero. None without any.
    """
    collected, _ = usage.collected_hours(
        reading.window, filters=reading.filters, visibility=reading.visibility
    )
    (gaps,) = usage.gap_hours([reading.window], visibility=reading.visibility)
    if not collected:
        return None
    return [
        hours(row.amounts.allocated) / known if (known := known_hours(row, collected, gaps)) else 0
        for row in rows
    ]


def _figures(
    rows: Sequence[UsageRow],
    whole: Amounts,
    gpus: Sequence[float] | None,
    costs: Costs,
    reading: QuerySession,
) -> FigureRow:
    # A workload has a row for each of its teams and tiers, and counts once.
    count = len({key_of(row)[:3] for row in rows})
    query = reading.query
    utilization = whole.utilization_ratio
    # Where nothing was measured, no unused time that was found is no zero.
    unknown = utilization is None and whole.allocated > 0 and not whole.not_used
    return figure_row(
        KeyFigure("Workloads", f"{count:,}", basis="in range")
        if gpus is not None
        else no_data("Workloads", _NO_HOURS),
        KeyFigure(
            "Allocated",
            f"{sum(gpus):,.1f}" if rows else "0",
            "GPUs",
            basis="average",
            href=explain_href("allocated_gpu_hours", query),
        )
        if gpus is not None
        else no_data("Allocated", _NO_HOURS),
        KeyFigure(
            "Utilization",
            percent(utilization),
            basis="average",
            href=explain_href("utilization_ratio", query),
        )
        if utilization is not None
        else no_data("Utilization", _NO_METRICS),
        KeyFigure(
            "Unused allocation",
            f"{hours(whole.not_used):,.0f}",
            "GPU-h",
            exact=f"{hours(whole.not_used)} GPU-h",
            href=explain_href("not_busy_gpu_hours", query),
            note=_share_text(unused_ratio(whole), "of the GPU-hours"),
        )
        if gpus is not None and not unknown
        else no_data("Unused allocation", _NO_METRICS if unknown else _NO_HOURS),
        _unused_money(costs),
        name="Workloads",
    )


def _share_text(ratio: float | None, of: str) -> str:
    return "" if ratio is None else f"{percent(ratio)} {of}"


def _unused_money(costs: Costs) -> KeyFigure:
    sums: dict[str, WorkloadCost] = {}
    for own in costs.values():
        for one in own:
            cost = sums.setdefault(one.currency, WorkloadCost(one.currency))
            cost.total += one.total
            cost.unused += one.unused
            cost.measured += one.measured
    if not sums:
        return no_data("Unused cost", "No hour of this window has a price.")
    # Cost without any metrics says nothing of what went unused.
    if all(one.total > 0 and not (one.measured or one.unused) for one in sums.values()):
        return no_data("Unused cost", _NO_METRICS)
    text = money_text([sums[name] for name in sorted(sums)], "unused")
    # Shares of several currencies make no common one.
    share = next(iter(sums.values())).unused_ratio if len(sums) == 1 else None
    return KeyFigure("Unused cost", text, note=_share_text(share, "of the cost"))


def _scatter(
    rows: Sequence[UsageRow], gpus: Sequence[float], costs: Costs, reading: QuerySession
) -> Scatter:
    """Return the workloads with the highest unused cost as circles; `gpus` are the rows' own."""
    points = []
    for row, held in list(zip(rows, gpus, strict=True))[:_DRAWN]:
        key = key_of(row)
        own = costs.get(key, ())
        # Only the size of a circle: the text beside it keeps the currencies apart.
        unused = sum(float(in_full(one.unused)) for one in own)
        points.append(
            ScatterPoint(
                key.workload.partition("/")[2],
                gpus=held,
                utilization=row.amounts.utilization_ratio,
                money=unused,
                text=money_text(own, "unused") or "no price",
                href=workload_href(key.cluster, key.namespace, key.workload, reading.query) or "",
            )
        )
    title = "Allocation and utilization"
    if len(rows) > _DRAWN:
        title = f"{title}, top {_DRAWN}"
    return scatter("workload-scatter", title, points, money="Unused cost")


# ---------------------------------------------------------------- the table


# What comes first is what a phone shows without scrolling sideways.
_COLUMNS = (
    Column("workload", "Workload"),
    Column(_MONEY, "Unused cost", Format.DECIMAL),
    Column(
        "unused_ratio", "Unused share", Format.RATIO, "%", "unused ÷ allocated that has metrics"
    ),
    UNUSED,
    tables.ALLOCATED,
    tables.UTILIZATION,
    Column("verdict", "Verdict"),
    Column("pending", "Pending now", Format.COUNT, "", "pods, Workloads and controllers"),
    Column("team", "Team"),
    Column("tier", "Tier"),
    Column("namespace", "Namespace"),
    Column("cluster", "Cluster"),
)


def _table(
    rows: Sequence[UsageRow],
    costs: Costs,
    pending: Mapping[tuple[str, str, str], int],
    reading: QuerySession,
) -> Table:
    """Return the table; money is in the main currency."""
    currency = _main_currency(costs)

    def line(row: UsageRow) -> MoneyRow:
        key = key_of(row)
        own = {one.currency: one for one in costs.get(key, ())}
        return _line(row, own.get(currency), pending.get(key[:3], 0), reading)

    return MoneyTable(
        id="workloads",
        title="Workloads",
        columns=[replace(c, unit=currency) if c.key == _MONEY else c for c in _COLUMNS],
        # Lines are made as they are shown: there may be thousands of workloads.
        rows=LaterRows(rows, line),
        zone=reading.choice.zone,
        empty="No workload held a GPU in this range. Choose a longer one.",
    )


def _line(
    row: UsageRow, cost: WorkloadCost | None, pending: int, reading: QuerySession
) -> MoneyRow:
    key, amounts, query = key_of(row), row.amounts, reading.query
    ledger = tables.ledger_values(amounts)
    return MoneyRow(
        {
            **ledger,
            **row.groups,
            UNUSED.key: amounts.not_used,
            "unused_ratio": unused_ratio(amounts),
            _MONEY: number_of(cost.unused) if cost else None,
            "pending": pending,
            "verdict": VERDICTS[verdict(amounts).kind],
        },
        {
            "workload": workload_href(key.cluster, key.namespace, key.workload, query),
            "team": href("team", query, name=key.team),
            "tier": href("tier", query, name=key.tier),
        },
        explained=tables.Explained(query, dict(row.groups)),
        amounts={_MONEY: cost.unused if cost else None},
        texts={_MONEY: money(in_full(cost.unused), cost.currency) if cost else "–"},
    )
