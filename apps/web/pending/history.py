"""Pending history: by day, cause and tier, from Kueue's series, and partially admitted jobs."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta

from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.domain.tiers import NO_TEAM
from apps.clusters.domain.window import day_start, days_in
from apps.pending.selectors import (
    DayQueueTimes,
    EvictionSum,
    HistoryRow,
    NamespaceContext,
    PartialGang,
    PendingFilters,
    PendingGrouping,
    QueueRow,
    QueueTimeSums,
    StartTimes,
    eviction_sums,
    pending_history,
    time_to_start,
)
from apps.usage.domain.amounts import NANO
from apps.usage.domain.usage_query import TimeStep
from apps.web.components import charts
from apps.web.components.charts import Axis, Chart
from apps.web.components.formats import Format, Value
from apps.web.components.page_query import figure_hrefs, href, with_query, workload_href
from apps.web.components.plots import Plot, PlotLine, Scale
from apps.web.components.tables import (
    Column,
    LedgerClass,
    Table,
    TableRow,
    attributes,
    declared_columns,
    declared_values,
)
from apps.web.pending.pending_table import CLASSES, class_of
from apps.web.query_session import QuerySession

NOTHING_PENDING = "No pending work is known in this window."


class ByClass(Struct):
    """Nano-GPU-hours of one day by class of cause; the fields are the keys of the classes."""

    reason_capacity: int = 0
    reason_quota: int = 0
    reason_queue: int = 0
    reason_gang: int = 0
    reason_preemption: int = 0
    reason_issue: int = 0
    reason_series: int = 0
    reason_other: int = 0

    def add(self, key: str, amount: int) -> None:
        setattr(self, key, getattr(self, key) + amount)

    def average(self, hours: float) -> "ByClass":
        """Return average nano-GPUs of so many hours."""
        return ByClass(*(round(getattr(self, one) / hours) for one in self.__struct_fields__))


class History(Struct, frozen=True):
    """`charts` of pending and blocked work, and tables."""

    charts: Sequence[Chart]
    tables: Sequence[Table]
    classes: Sequence[LedgerClass]


def history_of(
    reading: QuerySession, filters: PendingFilters, context: NamespaceContext
) -> History:
    """Return the pending work within the reading's window, of all kinds. At most 14 queries."""
    filters = replace(filters, kind=())  # sums of days do not know kinds
    rows = pending_history(
        reading.window,
        now=reading.now,
        visibility=reading.visibility,
        by=(PendingGrouping.DAY, PendingGrouping.CAUSE, PendingGrouping.TIER),
        filters=filters,
        context=context,
    )
    starts = time_to_start(
        reading.window,
        by=PendingGrouping.TIER,
        visibility=reading.visibility,
        filters=filters,
        context=context,
    )
    evicted = eviction_sums(
        reading.window,
        by=PendingGrouping.TIER,
        visibility=reading.visibility,
        filters=filters,
        context=context,
    )
    return History(
        charts=[_chart(rows, reading)],
        tables=[_by_cause(rows, reading), _by_tier(rows, starts, evicted, reading)],
        classes=[cls for cls in CLASSES if cls.key in _keys(rows)],
    )


def _keys(rows: Iterable[HistoryRow]) -> set[str]:
    return {class_of(r.groups["cause"]).key for r in rows if r.sums.waited or r.sums.suppressed}


# ---------------------------------------------------------------- queue times


_QUEUE_TIME_COLUMNS = (
    Column("day", "Day", Format.DAY),
    Column("started", "Started", Format.COUNT, "pods"),
    Column("start_p50_seconds", "p50 queue time", Format.SECONDS, "", "from creation to start"),
    Column("start_p95_seconds", "p95 queue time", Format.SECONDS, "", "from creation to start"),
)
_HOUR = 3600.0


def queue_time_plot(
    days: Sequence[DayQueueTimes], reading: QuerySession, *, of: str = "all teams"
) -> Plot:
    """Return p50 and p95 of the pods that started on each day; days without any are gaps.

    `of` names the teams that the pods are of.
    """
    title, zone = "Queue time by day", reading.choice.zone
    scale = Scale.up_to(reading.window, max((d.p95_seconds / _HOUR for d in days), default=0.0))
    spans = [(_start(d.day, reading), d) for d in days]
    # The day that runs is drawn as far as it has come.
    ends = {at: min(reading.now, _start(d.day + timedelta(days=1), reading)) for at, d in spans}
    running = _start(reading.now.astimezone(zone).date(), reading)
    p95 = scale.steps((at, ends[at], d.p95_seconds / _HOUR) for at, d in spans)
    p50 = scale.steps((at, ends[at], d.p50_seconds / _HOUR) for at, d in spans)
    lines = [PlotLine("p95", "plot-p95", p95), PlotLine("p50", "plot-p50", p50)]
    return Plot(
        id="queue-times",
        title=title,
        caption=f"{title}, hours from creation to start, {of}. {reading.choice.label}.",
        table=Table(
            id="queue-times-table",
            title=title,
            columns=_QUEUE_TIME_COLUMNS,
            rows=[
                TableRow(
                    {
                        "day": at,
                        "started": d.count,
                        "start_p50_seconds": d.p50_seconds,
                        "start_p95_seconds": d.p95_seconds,
                    }
                )
                for at, d in spans
            ],
            zone=zone,
            empty="No pod started in this window.",
            ordered=True,
        ),
        curves=lines if days else (),
        across=scale.across(zone),
        upwards=scale.upwards(unit="h"),
        notes=[scale.note(running, "so far")] if running in ends else (),
        empty="No pod started in this window.",
    )


# ---------------------------------------------------------------- by day


def _chart(rows: Sequence[HistoryRow], reading: QuerySession) -> Chart:
    """Return the chart of GPUs that were pending or blocked, on average of each day's hours."""
    axis = _days(reading)
    sums: dict[datetime, ByClass] = defaultdict(ByClass)
    for row in rows:
        amount = row.sums.waited + row.sums.suppressed
        if row.day is not None and amount:
            sums[_start(row.day, reading)].add(class_of(row.groups["cause"]).key, amount)
    hours = dict(zip(axis.periods, axis.hours(), strict=True))
    # A day that has just begun has no hour yet to divide by.
    by_day = {day: own.average(hours[day]) for day, own in sums.items() if hours.get(day)}
    there = [cls for cls in CLASSES if any(getattr(own, cls.key) for own in by_day.values())]
    title = "Pending by cause"
    table = Table(
        id="history",
        title=title,
        columns=[
            Column("day", "Day", Format.DAY),
            *(Column(f"{cls.key}_gpus", cls.label, *_GPUS, cls.meaning) for cls in there),
            *(
                Column(f"{cls.key}_gpu_hours", cls.label, Format.GPU_HOURS, "GPU-h", in_files=True)
                for cls in there
            ),
        ],
        rows=[
            TableRow(_day_values(day, by_day.get(day), sums.get(day), there))
            for day in axis.periods
        ]
        if there
        else (),
        zone=reading.choice.zone,
        empty=NOTHING_PENDING,
    )
    return charts.stacked(
        by_day, title=title, axis=axis, classes=CLASSES, table=table, empty=NOTHING_PENDING
    )


_GPUS = (Format.NUMBER, "GPUs")


def _day_values(
    day: datetime, average: ByClass | None, sums: ByClass | None, classes: Iterable[LedgerClass]
) -> dict[str, Value]:
    values: dict[str, Value] = {"day": day}
    for cls in classes:
        values[f"{cls.key}_gpus"] = getattr(average, cls.key) / NANO if average else 0.0
        values[f"{cls.key}_gpu_hours"] = getattr(sums, cls.key) if sums else 0
    return values


def _start(day: date, reading: QuerySession) -> datetime:
    return day_start(day, reading.choice.zone).astimezone(UTC)


def _days(reading: QuerySession) -> Axis:
    """Return the axis of the window's local days, whatever its interval."""
    choice = reading.choice
    starts = (_start(day, reading) for day in days_in(choice.window, choice.zone))
    return Axis(
        periods=list(dict.fromkeys(starts)),
        interval=TimeStep.DAY,
        zone=choice.zone,
        label=choice.label,
        missing={},
        unfinished=reading.now < choice.last_day_end,
        measure=charts.GPUS,
        until=min(reading.now, choice.window.end),
    )


# ---------------------------------------------------------------- by cause and tier


_EXPLAINS = {
    "waiting_gpu_hours": "pending_gpu_hours",
    "suppressed_gpu_hours": "blocked_gpu_hours",
    "starting_gpu_hours": "starting_gpu_hours",
}
_OF_TIERS = {
    "start_p50_seconds": "queue_time_p50",
    "start_p95_seconds": "queue_time_p95",
    "evicted_pods": "evicted_pods",
    "preempted_gpu_hours": "preempted_gpu_hours",
    "reclaimed_gpu_hours": "reclaimed_gpu_hours",
    "eviction_rate_ratio": "eviction_rate",
}
"""Which figure explains a column."""


def _summed(rows: Iterable[HistoryRow], group: str) -> Mapping[str, QueueTimeSums]:
    found: dict[str, QueueTimeSums] = defaultdict(QueueTimeSums)
    for row in rows:
        found[row.groups[group]].add(row.sums)
    return found


def _size(sums: QueueTimeSums) -> int:
    return sums.waited + sums.suppressed


def _by_cause(rows: Sequence[HistoryRow], reading: QuerySession) -> Table:
    found = _summed(rows, "cause")
    ordered = sorted(found, key=lambda cause: (-_size(found[cause]), cause))
    path = href("pending") or ""
    return Table(
        id="causes",
        title="By cause",
        columns=[*_CAUSE_COLUMNS, *declared_columns(QueueTimeSums)],
        rows=[
            TableRow(
                {"cause": cause, "class": _class_label(cause), **declared_values(found[cause])},
                {"cause": with_query(path, [*reading.query, ("cause", cause)])},
                explains=figure_hrefs(_EXPLAINS, reading.query, cause=cause),
            )
            for cause in ordered
        ],
        zone=reading.choice.zone,
        empty=NOTHING_PENDING,
        total=_total(found),
        note=(
            "Of all teams that the filters leave. An episode begins and ends with the cause it "
            "had last."
        ),
    )


_CAUSE_COLUMNS = (
    Column("cause", "Cause"),
    Column("class", "Class", hint="how charts group the causes"),
)


def _class_label(cause: str) -> str:
    # What starts has its GPUs: no chart of pending work shows it, so it has no class.
    return "–" if cause == "starting" else class_of(cause).label.lower()


def _total(found: Mapping[str, QueueTimeSums]) -> TableRow | None:
    # The total of one row would repeat it.
    if len(found) < 2:
        return None
    whole = QueueTimeSums()
    for sums in found.values():
        whole.add(sums)
    return TableRow({"cause": "Total", **declared_values(whole)})


_OF_TIERS_ALONE = (
    Column("started", "Started", Format.COUNT, "pods", "pods that started in the window"),
    Column("start_p50_seconds", "p50 queue time", Format.SECONDS, "", "from creation to start"),
    Column("start_p95_seconds", "p95 queue time", Format.SECONDS, "", "from creation to start"),
    Column("evicted_pods", "Evicted", Format.COUNT, "pods", "pods that lost their GPUs to others"),
    Column(
        "preempted_gpu_hours", "Preempted", Format.GPU_HOURS, "GPU-h", "held when priority took it"
    ),
    Column(
        "reclaimed_gpu_hours", "Reclaimed", Format.GPU_HOURS, "GPU-h", "held when a queue took it"
    ),
    Column(
        "eviction_rate_ratio",
        "Lost",
        Format.RATIO,
        "%",
        "held by evicted pods ÷ all that was allocated",
    ),
)


def _by_tier(
    rows: Sequence[HistoryRow],
    starts: Sequence[StartTimes],
    evicted: Sequence[EvictionSum],
    reading: QuerySession,
) -> Table:
    sums = _summed(rows, "tier")
    by_start = {one.name: one for one in starts}
    by_loss = {one.name: one for one in evicted}
    # A tier may have starts without pending work, or lose pods of which none pends again.
    names = sorted({*sums, *by_start, *by_loss})
    return Table(
        id="tiers",
        title="By tier",
        columns=[Column("tier", "Tier"), *declared_columns(QueueTimeSums), *_OF_TIERS_ALONE],
        rows=[
            TableRow(
                {
                    "tier": name,
                    **declared_values(sums.get(name) or QueueTimeSums()),
                    **_start_values(by_start.get(name)),
                    **_loss_values(by_loss.get(name)),
                },
                {"tier": href("tier", reading.query, name=name)},
                explains=figure_hrefs({**_EXPLAINS, **_OF_TIERS}, reading.query, tier=name),
            )
            for name in names
        ],
        zone=reading.choice.zone,
        empty=NOTHING_PENDING,
        note="Times to start are of pods that started in the window, from their creation.",
    )


def _start_values(one: StartTimes | None) -> dict[str, Value]:
    return {
        "started": one.count if one else 0,
        "start_p50_seconds": one.p50_seconds if one else None,
        "start_p95_seconds": one.p95_seconds if one else None,
    }


def _loss_values(one: EvictionSum | None) -> dict[str, Value]:
    return {
        "evicted_pods": one.pods if one else 0,
        "preempted_gpu_hours": one.preempted if one else 0,
        "reclaimed_gpu_hours": one.reclaimed if one else 0,
        "eviction_rate_ratio": one.rate if one else None,
    }


NOT_EXPORTED = "not exported"
_QUEUE_COLUMNS = (
    Column("queue", "ClusterQueue"),
    Column("cluster", "Cluster"),
    Column("team", "Team", hint="the one team whose LocalQueues lead to it"),
    Column("workloads", "Pending workloads", Format.DECIMAL, "mean", "of all kinds and resources"),
    Column(
        "demand",
        "Blocked at admission",
        Format.GPU_HOURS,
        "GPU-h",
        "GPUs that Kueue shows as pending and that no pending pod requests, × hours",
    ),
    Column("tier", "Tier"),
    Column("known", "GPU demand", hint="whether Kueue exports its pending resources"),
    Column("hours", "Not watched", Format.DECIMAL, "h", "hours that the series tell of"),
)


def queues_table(queues: Sequence[QueueRow], reading: QuerySession) -> Table:
    """Return a line per ClusterQueue; one whose resources are not exported has no demand."""
    return Table(
        id="queues",
        title="Pending in Kueue",
        columns=_QUEUE_COLUMNS,
        rows=[_queue_row(one, reading) for one in queues],
        zone=reading.choice.zone,
        empty="Kueue's series show nothing of this window.",
        note=" ".join(filter(None, (_numbers(queues), _QUEUE_NOTE))),
    )


_QUEUE_NOTE = (
    "From Kueue's series, for the hours without a watch. Demand without a known team counts in "
    "no team's fairness."
)


def _numbers(queues: Sequence[QueueRow]) -> str:
    """Return how many Workloads are pending of which no GPUs are known; empty without any."""
    own = [one.workloads for one in queues if one.demand is None and one.workloads is not None]
    count = round(sum(own))
    if not own:
        return ""
    noun = "workload" if count == 1 else "workloads"
    return f"On average {count} {noun} pending in Kueue, GPUs not known: not added to demand."


def _queue_row(one: QueueRow, reading: QuerySession) -> TableRow:
    values = {
        **attributes(one, "queue", "cluster", "team", "workloads", "hours"),
        # None: Kueue exports no resources, and 0 would say that nothing is blocked.
        "demand": None if one.demand is None else sum(one.demand.values()),
        "tier": ", ".join(sorted(one.demand or ())),
        "known": NOT_EXPORTED if one.demand is None else "known",
    }
    known = one.team != NO_TEAM
    return TableRow(values, {"team": href("team", reading.query, name=one.team)} if known else {})


def gangs_table(gangs: Sequence[PartialGang], reading: QuerySession) -> Table:
    """Return a line per job, the most GPU-hours lost first."""
    return Table(
        id="gangs",
        title="Partially admitted jobs",
        columns=declared_columns(PartialGang),
        rows=[_gang_row(one, reading) for one in gangs],
        zone=reading.choice.zone,
        empty="No job holds GPUs while pods that it needs are pending.",
        note=(
            "Their pods must run together: some hold GPUs and idle, the others are pending. Admit "
            "such jobs as a whole, with Kueue or a PodGroup."
        ),
    )


def _gang_row(one: PartialGang, reading: QuerySession) -> TableRow:
    return TableRow(
        declared_values(one),
        {
            "workload": workload_href(one.cluster, one.namespace, one.workload, reading.query),
            "team": href("team", reading.query, name=one.team),
            "tier": href("tier", reading.query, name=one.tier),
        },
        explains=figure_hrefs(
            _GANG_EXPLAINS,
            reading.query,
            cluster=one.cluster,
            namespace=one.namespace,
            workload=one.workload,
        ),
    )


_GANG_EXPLAINS = {
    "held_gpu_hours": "partial_gpu_hours",
    "holding_gpu_equivalents": "partial_gpus",
    "utilization_ratio": "partial_utilization",
}
