"""Which columns and rows the tables of the pages have."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from apps.usage.domain.amounts import Amounts
from apps.usage.domain.columns import collected_amounts
from apps.usage.domain.usage_query import GROUPS, Grouping, PodRow, UsageRow
from apps.web.components import tables
from apps.web.components.formats import Format, Value
from apps.web.components.page_query import Query, href, workload_href
from apps.web.components.tables import ALLOCATED_CLASSES, Column, Table, TableRow
from apps.web.query_session import QuerySession
from apps.web.usage.glance import TierCard

PENDING_PODS = Column(
    "waiting_now_pods", "Pending now", Format.COUNT, "pods", "pods that are not bound now"
)
LISTED_PENDING_GPUS = Column(
    "waiting_now_gpu_equivalents",
    "Pending now",
    Format.NUMBER,
    "GPUs",
    "requested by pods that are not bound",
)
UNUSED = Column(
    "not_busy_gpu_hours",
    "Unused",
    Format.GPU_HOURS,
    "GPU-h",
    "not running + idle + underutilized",
)
_HELD = (
    tables.ALLOCATED,
    *tables.class_columns(ALLOCATED_CLASSES),
    tables.UTILIZATION,
    tables.COVERAGE,
)
_MAIN = (tables.ALLOCATED.key, "busy_gpu_hours", tables.UTILIZATION.key)
GROUP_LABELS = {Grouping(column.key): column.label for column in GROUPS}


def _whole(amounts: Iterable[Amounts]) -> Sequence[Column]:
    """Return the columns of the whole ledger."""
    return (
        tables.CAPACITY,
        tables.ALLOCATED,
        *tables.class_columns(tables.capacity_classes(amounts)),
        tables.ALLOCATION,
        tables.UTILIZATION,
        tables.COVERAGE,
    )


def tiers(cards: Sequence[TierCard], reading: QuerySession) -> Table:
    """Return a line per tier; no total, because tiers are never blended into one line."""
    whole = _whole(card.amounts for card in cards if card.amounts)
    return Table(
        id="tiers",
        title="Tiers",
        columns=[Column("tier", "Tier"), *whole, PENDING_PODS, LISTED_PENDING_GPUS],
        rows=[_tier_line(card, reading.query) for card in cards],
        zone=reading.choice.zone,
        empty="No tier is known yet. Load a catalog with `manage.py load_catalog`.",
    )


def _tier_line(card: TierCard, query: Query) -> TableRow:
    values = tables.ledger_values(card.amounts) if card.amounts else {}
    # Pending work of unknown size is no data; a zero would say that none is pending.
    now = card.now if card.now and card.now.is_known else None
    waiting: dict[str, Value] = {
        "waiting_now_pods": now.pods if now else None,
        "waiting_now_gpu_equivalents": now.gpu_equivalents if now else None,
    }
    return TableRow(
        {**values, **waiting, "tier": card.name},
        {"tier": card.href},
        explained=tables.Explained(query, {"tier": card.name}),
    )


def groups(
    rows: Sequence[UsageRow],
    grouped: Sequence[Grouping],
    reading: QuerySession,
    *,
    capacity: bool = False,
    total: bool = False,
    scope: Mapping[str, str] | None = None,
) -> Table:
    """Return a line per group, largest allocation first, with links to the groups' pages.

    `capacity` adds the columns of capacity. Ask for `total` only where the lines are of one tier.
    `scope` is what all lines are of, as `{"tier": "a100"}`: their figures are explained with it.
    """
    of = scope or {}
    ordered = sorted(rows, key=lambda r: (-_size(r.amounts), tuple(r.groups.values())))

    def line(row: UsageRow) -> TableRow:
        return TableRow(
            {**tables.ledger_values(row.amounts), **row.groups},
            _group_links(row, reading),
            explained=tables.Explained(reading.query, {**of, **row.groups}),
        )

    first = grouped[0]
    explained = tables.Explained(reading.query, of)
    return Table(
        id=f"{first.value}s",
        title=f"{GROUP_LABELS[first]}s",
        columns=[
            *(Column(g.value, GROUP_LABELS[g]) for g in grouped),
            *(_whole(row.amounts for row in rows) if capacity else _HELD),
        ],
        rows=tables.LaterRows(ordered, line),
        zone=reading.choice.zone,
        empty="No GPU was allocated in this window.",
        # The cluster names no row where more is known of it.
        on_phone=(
            *([g.value for g in grouped if g is not Grouping.CLUSTER] or [first.value]),
            *_MAIN,
        ),
        total=tables.total_row(first.value, ordered, explained=explained) if total else None,
    )


def _size(amounts: Amounts) -> int:
    return amounts.capacity or amounts.allocated


def _group_links(row: UsageRow, reading: QuerySession) -> dict[str, str | None]:
    links: dict[str, str | None] = {}
    for grouping, page in ((Grouping.TIER, "tier"), (Grouping.TEAM, "team")):
        name = row.groups.get(grouping)
        if name is not None:
            links[grouping.value] = href(page, reading.query, name=name)
    return links


def workloads(
    rows: Sequence[UsageRow],
    reading: QuerySession,
    *,
    sums: Sequence[UsageRow],
    scope: Mapping[str, str] | None = None,
) -> Table:
    """Return a line per workload and tier with links; `rows` are one page of `sums`.

    The total is over `sums`, which a file carries whole. Rows name cluster, namespace, workload
    (`Kind/name`) and tier. `scope` is what all lines are of: their figures are explained with it.
    """
    of = scope or {}
    keys = (Grouping.CLUSTER, Grouping.NAMESPACE, Grouping.WORKLOAD, Grouping.TIER)
    total = tables.total_row(Grouping.CLUSTER.value, sums)
    if total is not None:
        used = tables.summed(sums).not_used
        explained = tables.Explained(reading.query, of)
        values = {**total.values, UNUSED.key: used}
        if len({row.groups[Grouping.TIER] for row in sums}) > 1:
            del values[tables.UTILIZATION.key]  # tiers are never blended into one
        total = TableRow(values, explained=explained)
    return Table(
        id="workloads",
        title="Workloads",
        columns=[*(Column(g.value, GROUP_LABELS[g]) for g in keys), _HELD[0], UNUSED, *_HELD[1:]],
        rows=[_workload_line(row, reading, of) for row in rows],
        zone=reading.choice.zone,
        empty="No workload held a GPU in this window. Choose a longer one.",
        total=total,
        on_phone=(Grouping.WORKLOAD, Grouping.TIER, UNUSED.key, tables.UTILIZATION.key),
        every=lambda: (_workload_line(row, reading, of) for row in sums),
    )


def _workload_line(row: UsageRow, reading: QuerySession, scope: Mapping[str, str]) -> TableRow:
    of = row.groups
    link = workload_href(
        of[Grouping.CLUSTER], of[Grouping.NAMESPACE], of[Grouping.WORKLOAD], reading.query
    )
    tier = href("tier", reading.query, name=row.groups[Grouping.TIER])
    values = {**tables.ledger_values(row.amounts), UNUSED.key: row.amounts.not_used}
    explained = tables.Explained(reading.query, {**scope, **row.groups})
    return TableRow({**values, **row.groups}, {"workload": link, "tier": tier}, explained=explained)


NOT_STORED = "No data for these hours: too recent, not collected or no longer stored."
PODS_NOT_STORED = (
    "A dash instead of an amount: the pod's hours are too recent, not collected, or not kept."
)
NOTHING_HELD = "It held no GPU in this window. Choose one in which it ran."
WAITED = Column("wait_seconds", "Queue time", Format.SECONDS, "", "from created to bound")
LASTED = Column("lasted_seconds", "Lasted", Format.SECONDS)


def lasted(start: datetime, end: datetime | None, now: datetime) -> dict[str, Value]:
    """Return the value of `LASTED`: seconds up to the end, or to `now` of what has none yet."""
    # The clock of a cluster may be ahead of the portal's.
    return {LASTED.key: max(0.0, ((end or now) - start).total_seconds())}


def pods(
    rows: Sequence[PodRow],
    reading: QuerySession,
    *,
    next_query: str | None,
    every: Callable[[], Iterable[PodRow]],
) -> Table:
    """Return a line per pod, with what it held within the window; `every` gives all of them."""
    return Table(
        id="pods",
        title="Pods",
        columns=[*tables.declared_columns(PodRow), WAITED, *_HELD],
        rows=[_pod_line(row, reading) for row in rows],
        zone=reading.choice.zone,
        empty="No pod of this workload lived in this window. Choose a longer one.",
        next_href=next_query,
        note=PODS_NOT_STORED if any(is_unknown(row, reading) for row in rows) else "",
        every=lambda: (_pod_line(row, reading) for row in every()),
    )


def is_unknown(row: PodRow, reading: QuerySession) -> bool:
    """Say whether it held GPUs in the window and no hour of them is known."""
    return collected_amounts(row, reading.window) is None


def _pod_line(row: PodRow, reading: QuerySession) -> TableRow:
    link = href("pod", reading.query, cluster=row.cluster, uid=row.uid)
    tier = href("tier", reading.query, name=row.tier) if row.tier else None
    return TableRow(
        pod_values(row, reading),
        {"pod": link, "tier": tier},
        explained=_pod_explained(row, reading),
    )


def _pod_explained(row: PodRow, reading: QuerySession) -> tables.Explained:
    return tables.Explained(reading.query, {"cluster": row.cluster, "pod": row.uid})


def pod_values(row: PodRow, reading: QuerySession) -> dict[str, Value]:
    """Return the values of a pod by column key; a pending one counts until now.

    What it held is absent where no hour of it is known: not known is not zero.
    """
    until = row.pending_until or reading.now
    amounts = collected_amounts(row, reading.window)
    ledger = tables.ledger_values(amounts) if amounts else {}
    own = tables.declared_values(row)
    if not row.gpu_equivalents:
        # Every pod here requests GPUs: of this one the ResourceClaims are not known.
        own = {**own, "units": None, "gpu_equivalents": None}
    waited = max(0.0, (until - row.created_at).total_seconds())
    return {**ledger, **own, "wait_seconds": waited}


def pod_ledger(row: PodRow, reading: QuerySession) -> Table:
    """Return the one line of what a pod held within the window."""
    return Table(
        id="ledger",
        title="Allocation",
        columns=[*_HELD],
        rows=(
            [TableRow(tables.ledger_values(row.amounts), explained=_pod_explained(row, reading))]
            if row.amounts.allocated
            else []
        ),
        zone=reading.choice.zone,
        empty=NOT_STORED if is_unknown(row, reading) else NOTHING_HELD,
    )
