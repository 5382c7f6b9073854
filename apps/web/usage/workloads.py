"""One workload: the verdict, its usage over time, its pods, cost and pending history."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.http import Http404, HttpResponseBase
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.domain.resources import gpus
from apps.clusters.domain.window import Window
from apps.clusters.selectors import NAMESPACE_TEAMS
from apps.costs.domain.costing import Cause
from apps.costs.domain.costing import money as in_full
from apps.costs.domain.workload_verdict import (
    HourOfWorkload,
    VerdictKind,
    WorkloadVerdict,
    use_of,
    verdict,
)
from apps.costs.selectors import (
    CostQuery,
    RecommendationFilters,
    WorkloadCost,
    cost_rows,
    recommendation_page,
    retained_workloads,
    workload_costs,
)
from apps.pending.selectors import EpisodeRow, find_open, find_pending
from apps.usage import selectors as usage
from apps.usage.domain.usage_query import Filters, Grouping, PodRow, RowPage, TimeStep, every_row
from apps.web.alerts.alert_list import retained_words
from apps.web.components import listings, tables
from apps.web.components.commands import kubectl
from apps.web.components.drawings import Segment, TimelineRow, timeline
from apps.web.components.drawings.base import TABLE_ROWS, part_of
from apps.web.components.drawings.timeline import Timeline
from apps.web.components.formats import Format, money, percent, span_text
from apps.web.components.gpu_charts import average_gpus
from apps.web.components.page_query import (
    LONGEST_DAYS,
    PER_PAGE,
    PRESETS,
    href,
    path_of,
    with_query,
)
from apps.web.components.plots import Plot, PlotLine, Scale
from apps.web.components.tables import ALLOCATED_CLASSES, Column, Table, TableRow
from apps.web.components.tabs import Tab, tab_bar
from apps.web.costs.energy_table import energy_table
from apps.web.costs.money_format import MoneyRow, MoneyTable, number_of
from apps.web.pages import page, respond
from apps.web.pending.pending_detail import OUTCOMES, PendingExplanation, why
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    axis_of,
    on_cluster,
    quality_of,
    query_session,
    usage_of,
)
from apps.web.usage.comparison import compared, freshness_compared
from apps.web.usage.glance import TierContext, holding, rows_by
from apps.web.usage.pods import phases
from apps.web.usage.verdicts import ACTION_SENTENCES, has_hours
from apps.web.usage.workload_list import money_text

_TAKES = ("tier", "gpu_model")  # its pods have no capacity type before they are bound
PER_FILE_READ = 2000
TABS = (
    Tab("overview", "Overview"),
    Tab("pods", "Pods"),
    Tab("cost", "Cost"),
    Tab("pending", "Pending history"),
)
_HOUR = timedelta(hours=1)


class WorkloadScope(Struct, frozen=True):
    """A workload of an address; `own` narrows to it, by tier and GPU model too where asked."""

    cluster: str
    namespace: str
    kind: str
    name: str
    whole: Filters
    own: Filters

    @property
    def workload(self) -> str:
        return f"{self.kind}/{self.name}"


@page
def workload(
    request: PageRequest, cluster: str, namespace: str, kind: str, name: str
) -> HttpResponseBase:
    reading = on_cluster(query_session(request, takes=_TAKES, reads=(NAMESPACE_TEAMS,)), cluster)
    whole = Filters(cluster=(cluster,), namespace=(namespace,), workload=(f"{kind}/{name}",))
    own = replace(whole, tier=reading.filters.tier, gpu_model=reading.filters.gpu_model)
    scope = WorkloadScope(cluster, namespace, kind, name, whole, own)
    pods = _pods(reading.window, own, reading, request.GET.get("pods") or None)
    # Without a pod in this range the page still tells what the workload is.
    newest = pods.rows[0] if pods.rows else _ever(whole, reading)
    tabs = tab_bar(request, TABS, name="Workload")
    # Links from before there were tabs lead to the pods, and to their file.
    asks_pods = "pods" in (request.GET.get("table"), *request.GET)
    chosen = "pods" if asks_pods else tabs.chosen
    shows: dict[str, Callable[..., dict[str, Any]]] = {
        "overview": _overview,
        "pods": _pods_tab,
        "cost": _cost,
        "pending": _pending_history,
    }
    return respond(
        request,
        reading,
        "workload",
        workload=newest,
        scope=scope,
        run_by=usage.run_by(
            request.user, reading.window, filters=own, visibility=reading.visibility
        ),
        tabs=tabs,
        tab=chosen,
        **shows[chosen](request, scope, reading, pods),
    )


# ---------------------------------------------------------------- overview


def _overview(
    request: PageRequest, scope: WorkloadScope, reading: QuerySession, pods: RowPage[PodRow]
) -> dict[str, Any]:
    freshness = freshness_compared(reading)
    axis = axis_of(reading, freshness)
    rows = usage_of(reading, by=[Grouping.TIER], narrowed=scope.own)
    hourly = _hourly(scope, reading)
    comparison = compared(reading, narrowed=scope.own)
    named = {"cluster": scope.cluster, "namespace": scope.namespace, "workload": scope.workload}
    # Figures are explained without filters that the page does not take.
    explained = [pair for pair in reading.query if pair not in reading.asides]
    known = TierContext(rows=rows, waiting=(), comparison=comparison, scope=named)
    whole = tables.summed(rows)
    counts = usage.running_pods(reading.window, filters=scope.own, visibility=reading.visibility)
    running = counts.get((scope.cluster, scope.namespace, scope.workload), 0)
    found = verdict(whole, use_of(hourly), is_running=running > 0)
    costs = workload_costs(
        reading.window,
        filters=scope.own,
        visibility=reading.visibility,
        zone=reading.choice.zone,
    )
    mine = _of_currencies([one for own in costs.values() for one in own])
    plots = _plots(hourly, reading)
    return {
        "charts": [
            average_gpus(of_tier, chart_id=f"gpus-{n}", title=f"Average GPUs: {tier}", axis=axis)
            for n, (tier, of_tier) in enumerate(rows_by(rows, Grouping.TIER).items(), start=1)
        ],
        "plots": plots,
        "tables": [plot.table for plot in plots],
        "verdict": verdict_words(found, mine, reading),
        "verdict_kind": found.kind.value,
        "why": _why_of_workload(scope.whole, reading),
        "kept": _retained_text(scope, reading, request),
        "advice": _advice(scope, reading),
        "cost_text": money_text(mine, "total"),
        "running": running,
        "commands": _commands(scope),
        "comparison": comparison,
        "holding": holding(known, explained) if rows else None,
        "nothing": _nothing(pods, reading),
        "classes": ALLOCATED_CLASSES,
        "quality": quality_of(reading, freshness, whole if rows else None),
    }


def _hourly(scope: WorkloadScope, reading: QuerySession) -> list[HourOfWorkload]:
    """Return what it held hour by hour; nothing of a range of which no hours are kept."""
    if not has_hours(reading):
        return []
    rows = usage_of(reading, by=[], interval=TimeStep.HOUR, narrowed=scope.own)
    return [HourOfWorkload(row.period.astimezone(UTC), row.amounts) for row in rows if row.period]


def _of_currencies(costs: Sequence[WorkloadCost]) -> list[WorkloadCost]:
    found: dict[str, WorkloadCost] = {}
    for one in costs:
        whole = found.setdefault(one.currency, WorkloadCost(one.currency))
        whole.total += one.total
        whole.unused += one.unused
    return [found[name] for name in sorted(found)]


def verdict_words(
    found: WorkloadVerdict, costs: Sequence[WorkloadCost], reading: QuerySession
) -> str:
    """Return the verdict as a sentence: number first, then money, when, and what to do."""
    match found.kind:
        case VerdictKind.NOTHING:
            return ""
        # No share is told: an unused part of time without metrics would be a guess.
        case VerdictKind.UNKNOWN:
            return f"No utilization: {percent(found.no_metrics)} of its GPU-hours have no metrics."
        case VerdictKind.SHORT:
            return "Too short to judge: less than 1 GPU-hour in this range."
    share = percent(found.unused or 0.0)
    cost = money_text(costs, "unused")
    start = f"{share} unused"
    span_words = PRESETS.get(reading.choice.preset) or reading.choice.short_label
    start += f", about {cost} in {span_words}" if cost else ""
    if found.kind is VerdictKind.USED:
        return f"{start}. Well used."
    idle = found.idle
    span = (
        f": {gpus(round(idle.gpus, 1))} idle {span_text(idle.start, idle.end, reading.choice.zone)}"
        if idle
        else ""
    )
    return f"{start}{span}.{ACTION_SENTENCES[found.action]}"


def _advice(scope: WorkloadScope, reading: QuerySession) -> list[tuple[str, str]]:
    """Return (change, saving) of the open recommendations for it, the largest saving first."""
    found = recommendation_page(
        filters=RecommendationFilters(
            cluster=(scope.cluster,), namespace=(scope.namespace,), workload=(scope.workload,)
        ),
        visibility=reading.visibility,
        cursor=None,
        page_size=_MOST_ADVICE,
    )
    return [
        (
            row.change,
            money(row.saving_per_month, row.currency or "") if row.saving_per_month else "",
        )
        for row in found.rows
    ]


_MOST_ADVICE = 2


def _commands(scope: WorkloadScope) -> list[str]:
    kind = scope.kind.lower()
    return [
        kubectl("describe", kind, scope.name, namespace=scope.namespace),
        kubectl("get", "pods", "--output", "wide", namespace=scope.namespace),
    ]


def _plots(hourly: Sequence[HourOfWorkload], reading: QuerySession) -> list[Plot]:
    """Return GPU utilization and peak memory by hour; none without hours."""
    if not hourly:
        return []
    ratios = [(one, one.amounts.utilization_ratio) for one in hourly]
    peaks = [
        (one, None if one.amounts.memory_peak_mib is None else one.amounts.memory_peak_mib / 1024)
        for one in hourly
    ]
    highest = max((value or 0.0 for _, value in peaks), default=0.0)
    return [
        _plot(Column("utilization", "GPU utilization", Format.RATIO), ratios, 1.0, reading),
        _plot(Column("memory", "Peak GPU memory", Format.DECIMAL, "GiB"), peaks, highest, reading),
    ]


def _plot(
    column: Column,
    values: Sequence[tuple[HourOfWorkload, float | None]],
    top: float,
    reading: QuerySession,
) -> Plot:
    title, unit = column.label, column.unit
    # Two decimals line up in a column; at an axis they are noise.
    scale_kind = Format.NUMBER if column.kind is Format.DECIMAL else column.kind
    scale = Scale.up_to(reading.window, top)
    path = scale.steps((one.start, one.start + _HOUR, value) for one, value in values)

    def rows(some: Sequence[tuple[HourOfWorkload, float | None]] = values) -> list[TableRow]:
        return [TableRow({"hour": one.start, column.key: value}) for one, value in some]

    table = Table(
        id=f"{column.key}-hours",
        title=title,
        columns=(Column("hour", "Hour", Format.HOUR), column),
        rows=rows(values[-TABLE_ROWS:]),
        zone=reading.choice.zone,
        empty="No hour of this range has metrics.",
        ordered=True,
    )
    if len(values) > TABLE_ROWS:
        table = part_of(table, len(values), rows, which="last")
    per_hour = f"{title}{f', {unit}' if unit else ''}, by hour"
    return Plot(
        id=column.key,
        title=title,
        caption=f"{per_hour}. {reading.choice.label}.",
        table=table,
        curves=[PlotLine(title, "plot-used", path)] if path else (),
        across=scale.across(reading.choice.zone),
        upwards=scale.upwards(scale_kind, unit),
        empty="No hour of this range has metrics.",
    )


# ---------------------------------------------------------------- the other tabs


def _pods_tab(
    request: PageRequest, scope: WorkloadScope, reading: QuerySession, pods: RowPage[PodRow]
) -> dict[str, Any]:
    more = (*reading.query, ("tab", "pods"), ("pods", pods.next_cursor or ""))
    table = listings.pods(
        pods.rows,
        reading,
        next_query=with_query(path_of(request), more) + "#pods" if pods.next_cursor else None,
        every=lambda: every_row(
            lambda at: _pods(reading.window, scope.own, reading, at, PER_FILE_READ)
        ),
    )
    return {"tables": [table], "drawings": [_timeline(pods.rows, reading)]}


def _timeline(rows: Sequence[PodRow], reading: QuerySession) -> Timeline:
    """Return the lives of a page of pods, with the hours in which they were idle."""
    until = min(reading.window.end, reading.now)
    idle = usage.pod_states(
        [(row.cluster, row.uid) for row in rows if row.started_at],
        window=reading.window,
        visibility=reading.visibility,
    )
    lives = []
    for row in rows:
        segments = [Segment(p.start, p.end or until, p.name) for p in phases(row)]
        for start, end, state in _runs(idle.get((row.cluster, row.uid), ())):
            # States are of whole hours, and a pod is idle only while it lives.
            first, last = max(start, row.started_at or start), min(end, row.end or until)
            if last > first:
                segments.append(Segment(first, last, state))
        link = href("pod", reading.query, cluster=row.cluster, uid=row.uid)
        lives.append(TimelineRow(row.pod, segments, link or ""))
    # A window that has just begun has no length to draw in yet.
    window = Window(reading.window.start, max(until, reading.window.start + _HOUR))
    return timeline(
        "pod-timeline", "Pods over time", lives, window=window, zone=reading.choice.zone
    )


def _runs(hours: Sequence[tuple[datetime, str]]) -> list[tuple[datetime, datetime, str]]:
    """Return hours of one state that follow each other as one stretch."""
    runs: list[tuple[datetime, datetime, str]] = []
    for hour, state in hours:
        if runs and runs[-1][1:] == (hour, state):
            runs[-1] = (runs[-1][0], hour + _HOUR, state)
        else:
            runs.append((hour, hour + _HOUR, state))
    return runs


_COST_COLUMNS = (
    Column("cause", "State"),
    Column("gpu_hours", "GPU-hours", Format.GPU_HOURS, "GPU-h"),
    Column("cost", "Cost", Format.DECIMAL),
    Column("currency", "Currency", in_files=True),
)
_CAUSES = {
    "busy": "Active",
    "unmeasured": "No metrics",
    "underused": "Underutilized",
    "idle": "Idle",
    "not_running": "Allocated, not running",
    "energy": "Energy",
}


def _cost(
    request: PageRequest, scope: WorkloadScope, reading: QuerySession, pods: RowPage[PodRow]
) -> dict[str, Any]:
    found = cost_rows(
        CostQuery(reading.window, filters=scope.own, waste=True),
        visibility=reading.visibility,
        zone=reading.choice.zone,
    )
    rows = [
        MoneyRow(
            {
                "cause": _CAUSES.get(row.cause.value, row.cause.value),
                # Energy is paid beside the GPU-hours, and has none: zero would be a statement.
                "gpu_hours": None if row.cause is Cause.ENERGY else row.gpu_hours,
                "cost": number_of(row.cost),
                "currency": row.currency or "",
            },
            amounts={"cost": row.cost},
            texts={
                "cost": "no price"
                if row.cost is None
                else money(in_full(row.cost), row.currency or "", cents=True)
            },
        )
        for row in found
        # What was held, by state: unallocated capacity is not a workload's.
        if row.cause.value in _CAUSES
    ]
    table = MoneyTable(
        id="cost",
        title="Cost by state",
        columns=_COST_COLUMNS,
        rows=rows,
        zone=reading.choice.zone,
        empty="No hour of this range has a price, or it held no GPU.",
        ordered=True,
    )
    return {"tables": [table, energy_table((), reading, scope.own)]}


_EPISODE_COLUMNS = (
    Column("item", "Item"),
    Column("since", "Since", Format.TIME),
    Column("until", "Until", Format.TIME),
    Column("wait_seconds", "Pending for", Format.SECONDS),
    Column("cause", "Cause"),
    Column("detail", "Detail"),
    Column("outcome", "Outcome"),
)


def _pending_history(
    request: PageRequest, scope: WorkloadScope, reading: QuerySession, pods: RowPage[PodRow]
) -> dict[str, Any]:
    episodes = _episodes(scope.whole, reading)
    rows = [
        TableRow(
            {
                "item": f"{one.row.kind} {one.row.name}",
                "since": one.row.since,
                "until": one.row.until,
                "wait_seconds": one.row.wait_seconds,
                "cause": one.row.cause,
                "detail": one.row.detail,
                "outcome": OUTCOMES.get(one.row.outcome, "") if one.row.until else "pending",
            },
            {
                "item": href(
                    "pending-detail", reading.query, cluster=scope.cluster, uid=one.row.uid
                )
                if one.row.uid
                else None
            },
        )
        for one in episodes
    ]
    table = Table(
        id="episodes",
        title="Pending history",
        columns=_EPISODE_COLUMNS,
        rows=rows,
        zone=reading.choice.zone,
        empty="None of its pods or Workloads was pending as far as is known.",
        note="The last 50, whatever the range." if len(rows) >= _MOST_EPISODES else "",
    )
    return {"tables": [table]}


_MOST_EPISODES = 50


def _retained_text(scope: WorkloadScope, reading: QuerySession, request: PageRequest) -> str:
    """Return until when a user keeps it although it is idle; empty without such a decision."""
    one = (scope.cluster, scope.namespace, scope.workload)
    found = retained_workloads([one], now=reading.now, reader=request.user)
    return retained_words(found.get(one), reading.choice.zone)


def _episodes(whole: Filters, reading: QuerySession) -> list[EpisodeRow]:
    (cluster,), (namespace,), (workload,) = whole.cluster, whole.namespace, whole.workload
    found = find_pending(
        namespace,
        workload.partition("/")[2],
        at=reading.now,
        visibility=reading.visibility,
        cluster=cluster,
    )
    # Names are found as people type them: another kind may have the same name.
    return [one for one in found if one.row.workload == workload]


def _why_of_workload(whole: Filters, reading: QuerySession) -> PendingExplanation | None:
    """Return the cause of its longest pending item."""
    (cluster,), (namespace,), (workload,) = whole.cluster, whole.namespace, whole.workload
    found = find_open(
        namespace,
        workload.partition("/")[2],
        at=reading.now,
        visibility=reading.visibility,
        cluster=cluster,
    )
    return why([row for row in found if row.workload == workload], reading)


def _nothing(pods: RowPage[PodRow], reading: QuerySession) -> str:
    """Return what to say where there is no chart: nothing was held, or nothing of it is known."""
    if any(listings.is_unknown(row, reading) for row in pods.rows):
        return listings.NOT_STORED
    return "This workload held no GPU in this window. Choose a longer one."


def _pods(
    window: Window, own: Filters, reading: QuerySession, cursor: str | None, size: int = PER_PAGE
) -> RowPage[PodRow]:
    return usage.pod_page(
        window, filters=own, visibility=reading.visibility, cursor=cursor, page_size=size
    )


def _ever(own: Filters, reading: QuerySession) -> PodRow:
    """Return the workload's newest pod of all that is kept.

    Raises Http404 when there is none, or none that the reader may see: the two look alike.
    """
    # Pods that live have no end: the newest may have begun after the window.
    end = max(reading.now, reading.window.end)
    kept = Window(end - timedelta(days=LONGEST_DAYS), end)
    rows = _pods(kept, own, reading, None, size=1).rows
    if not rows:
        raise Http404("There is no such workload, or you may not see it.")
    return rows[0]
