"""The list of pending workloads: its causes, query and sums, and the table that a file carries."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.http import QueryDict

from apps.pending.domain.diagnosis import OF_DEMAND, Cause
from apps.pending.selectors import PendingFilters, PendingOrder, PendingRow, PendingSum, RefreshRow
from apps.web.components import page_query
from apps.web.components.formats import Value, duration
from apps.web.components.page_query import Query, href, with_query, without, workload_href
from apps.web.components.tables import (
    LedgerClass,
    Table,
    TableRow,
    declared_columns,
    declared_values,
)
from apps.web.query_session import QuerySession

CAPACITY = LedgerClass("wait_capacity", "Capacity", "nodes that may take it have too little free")
QUOTA = LedgerClass("wait_quota", "Quota", "a ResourceQuota refuses its pods or claims", "/")
QUEUE = LedgerClass("wait_queue", "Queue", "a queue or a scheduling gate holds it")
GANG = LedgerClass("wait_gang", "Gang", "it starts only with others, and not all fit", "x")
PREEMPTION = LedgerClass(
    "wait_preemption", "Preemption", "pods that must go for it are still there"
)
MISCONFIGURED = LedgerClass(
    "wait_mend",
    "Configuration issue",
    "for the workload owner to fix: selector, taint, cordon, spread, claim, volume and the like",
    "/",
)
SERIES = LedgerClass("wait_series", "From series", "before the watch: series tell no cause")
OTHER = LedgerClass("wait_other", "Other", "the cause cannot be told", "x")
CLASSES = (CAPACITY, QUOTA, QUEUE, GANG, PREEMPTION, MISCONFIGURED, SERIES, OTHER)

_OF_DEMAND = {
    Cause.CAPACITY: CAPACITY,
    Cause.QUOTA: QUOTA,
    Cause.QUEUE: QUEUE,
    Cause.GANG: GANG,
    Cause.PREEMPTION: PREEMPTION,
    Cause.UNSCHEDULABLE: SERIES,
    Cause.UNRECORDED: SERIES,
}
MEANINGS = {
    Cause.CAPACITY: "nodes that may take it have too little free",
    Cause.QUOTA: "a ResourceQuota refuses its pods or claims",
    Cause.QUEUE: "a queue or a scheduling gate holds it",
    Cause.AFFINITY: "no node matches its selector or affinity",
    Cause.TAINT: "it does not tolerate a taint of the nodes",
    Cause.CORDON: "the nodes that could take it are cordoned",
    Cause.SPREAD: "anti-affinity, topology spread or a host port leaves no node",
    Cause.TOPOLOGY: "the kubelet could not align its devices",
    Cause.GANG: "it starts only with others, and not all fit",
    Cause.CLAIM: "a ResourceClaim is missing or no device satisfies it",
    Cause.VOLUME: "a volume is missing or cannot be bound",
    Cause.PREEMPTION: "pods that must go for it are still there",
    Cause.SCHEDULER: "no scheduler has looked at it",
    Cause.ADMISSION: "a kubelet or an admission check refused it",
    Cause.STARTING: "bound to a node and not running yet",
    Cause.OTHER: "the cause cannot be told",
    Cause.UNSCHEDULABLE: "before the watch: series show that a scheduler refused it",
    Cause.UNRECORDED: "before the watch: series tell no cause",
}
NAMES = tuple(cause.value for cause in Cause)


@dataclass(frozen=True, slots=True)
class Badge:
    """A cause in a list: its name, the detail beside it, and what it means."""

    cause: str
    detail: str
    meaning: str
    css: str


def class_of(cause: str) -> LedgerClass:
    """Return the class of a cause; of one that is not known here that of `other`."""
    try:
        known = Cause(cause)
    except ValueError:
        return OTHER
    if known in OF_DEMAND:
        return _OF_DEMAND[known]
    return OTHER if known is Cause.OTHER else MISCONFIGURED


def badge(cause: str, detail: str) -> Badge:
    """Return the badge of a cause."""
    meaning = MEANINGS.get(Cause(cause), "") if cause in NAMES else ""
    return Badge(cause, detail, meaning, class_of(cause).css)


def of_asker(cause: str) -> bool:
    """Say whether the workload owner has to fix it."""
    return class_of(cause) is MISCONFIGURED and cause != Cause.STARTING


KINDS = (
    *("Pod", "Job", "ReplicaSet", "StatefulSet", "Workload", "PodGroup", "ResourceClaim"),
    *("Deployment", "DaemonSet"),
)
"""Kinds to choose from; a custom controller's can be written into the address."""
TAKES = ("tier", "team", "namespace")
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}", re.ASCII)
_MOST_KINDS = 20


@dataclass(frozen=True, slots=True)
class PendingPageQuery:
    """`query` reproduces what is asked here, for links; `problem` says what makes no sense."""

    causes: tuple[str, ...]
    kinds: tuple[str, ...]
    order: PendingOrder
    query: Query
    problem: str

    @property
    def narrows(self) -> bool:
        return bool(self.causes or self.kinds)

    def filters(self, reading: QuerySession, *, every: bool = False) -> PendingFilters:
        """Return the filters of a selector; of `every` cause where the sums are asked."""
        own = reading.filters
        return PendingFilters(
            cluster=own.cluster,
            team=own.team,
            tier=own.tier,
            namespace=own.namespace,
            cause=() if every else self.causes,
            kind=self.kinds,
        )


def asked_of(params: QueryDict) -> PendingPageQuery:
    """Return what an address asks; what is not understood narrows nothing and is told."""
    causes, problem = page_query.names_from(params, "cause", NAMES)
    written = [text.strip() for text in params.getlist("kind") if text.strip()][:_MOST_KINDS]
    kinds = tuple(dict.fromkeys(text for text in written if _KIND.fullmatch(text)))
    strange = [text for text in written if not _KIND.fullmatch(text)]
    orders, unknown = page_query.names_from(params, "order", tuple(PendingOrder))
    problems = [
        problem,
        f"“{strange[0][:80]}” is no kind of Kubernetes such as Pod or Job." if strange else "",
        unknown,
    ]
    order = PendingOrder(orders[0]) if orders else PendingOrder.LONGEST
    return PendingPageQuery(
        causes=causes,
        kinds=kinds,
        order=order,
        query=(
            *(("cause", name) for name in causes),
            *(("kind", name) for name in kinds),
            *((("order", order.value),) if order is not PendingOrder.LONGEST else ()),
        ),
        problem=" ".join(text for text in problems if text),
    )


@dataclass(frozen=True, slots=True)
class CauseLink:
    """A cause to filter by; `gpus` are pending or blocked by it, in so many `things`."""

    label: str
    href: str
    chosen: bool
    gpus: float
    things: int
    badge: Badge | None


@dataclass(frozen=True, slots=True)
class Total:
    """Pending work in all: GPUs by what they count as, and the longest pending time in words."""

    pending: float
    suppressed: float
    starting: float
    things: int
    age: str


@dataclass(frozen=True, slots=True)
class Stale:
    """A cluster of which nothing newer than `as_of` is known; `age` empty: nothing ever was."""

    cluster: str
    as_of: datetime | None
    age: str
    error: str


@dataclass(frozen=True, slots=True)
class PendingFreshness:
    """Until when pending work is known: the oldest and the newest `as_of` of the clusters shown."""

    stale: Sequence[Stale]
    oldest: datetime | None
    newest: datetime | None

    @property
    def is_known(self) -> bool:
        """Whether the list is complete: every cluster was refreshed recently."""
        return not self.stale and self.oldest is not None


def total_of(sums: Sequence[PendingSum], now: datetime) -> Total:
    """Return the sum of sums."""
    oldest = min((one.oldest_at for one in sums), default=None)
    return Total(
        pending=sum(one.pending for one in sums),
        suppressed=sum(one.suppressed for one in sums),
        starting=sum(one.starting for one in sums),
        things=sum(one.things for one in sums),
        age=duration((now - oldest).total_seconds()) if oldest else "",
    )


def cause_links(
    sums: Sequence[PendingSum], path: str, reading: QuerySession, asked: PendingPageQuery
) -> list[CauseLink]:
    """Return a link per cause of pending work, all of them first.

    A chosen cause has a link even without pending work, so that it can be removed.
    """
    kept = [*reading.query, *without(asked.query, "cause")]
    by_name = {one.name: one for one in sums}
    every = CauseLink(
        label="all",
        href=with_query(path, kept),
        chosen=not asked.causes,
        gpus=sum(map(_gpus, sums)),
        things=sum(one.things for one in sums),
        badge=None,
    )
    chosen = [name for name in asked.causes if name not in by_name]
    return [
        every,
        *(_link(name, by_name.get(name), path, kept, asked) for name in (*by_name, *chosen)),
    ]


def _link(
    name: str,
    one: PendingSum | None,
    path: str,
    kept: list[tuple[str, str]],
    asked: PendingPageQuery,
) -> CauseLink:
    return CauseLink(
        label=name,
        href=with_query(path, [*kept, ("cause", name)]),
        chosen=name in asked.causes,
        gpus=_gpus(one) if one else 0.0,
        things=one.things if one else 0,
        badge=badge(name, ""),
    )


def _gpus(one: PendingSum) -> float:
    return one.pending + one.suppressed + one.starting


def freshness_of(rows: Sequence[RefreshRow], reading: QuerySession) -> PendingFreshness:
    """Return how fresh the clusters of the reading are.

    A cluster that was never looked at has no row and is stale: nothing is known of it.
    """
    wanted = reading.filters.cluster or reading.clusters
    by_name = {row.cluster: row for row in rows}
    known = [by_name[name] for name in wanted if name in by_name]
    times = [row.as_of for row in known if row.as_of is not None]
    return PendingFreshness(
        stale=[
            _stale(name, by_name.get(name), reading.now)
            for name in wanted
            if name not in by_name or by_name[name].stale
        ],
        oldest=min(times, default=None),
        newest=max(times, default=None),
    )


def _stale(name: str, row: RefreshRow | None, now: datetime) -> Stale:
    as_of = row.as_of if row else None
    age = duration(max(0.0, (now - as_of).total_seconds())) if as_of else ""
    return Stale(name, as_of, age, row.error if row else "")


COUNTS = {
    "pending": "waits",
    "suppressed": "blocked at admission",
    "starting": "bound, not running yet",
    "nothing": "counted with what it belongs to",
}
"""What an episode counts as, in the words of a line."""


@dataclass(frozen=True, slots=True)
class PendingTableRow(TableRow):
    """A line of the list: the values of a file, and what the page says of the thing."""

    row: PendingRow | None = None
    href: str | None = None
    team_href: str | None = None
    tier_href: str | None = None
    workload_href: str | None = None
    workload: str = ""
    age: str = ""
    badge: Badge | None = None
    counts: str = ""
    more: int = 0


def pending_href(row: PendingRow, query: Query) -> str | None:
    """Return the address of the page of a pending item; None without a UID to find it by."""
    return href("pending-detail", query, cluster=row.cluster, uid=row.uid) if row.uid else None


def pending_table_row(row: PendingRow, reading: QuerySession) -> PendingTableRow:
    """Return the row of a pending item."""
    query = reading.query
    own = row.workload == f"{row.kind}/{row.name}"
    return PendingTableRow(
        _values(row),
        row=row,
        href=pending_href(row, query),
        team_href=href("team", query, name=row.team),
        tier_href=href("tier", query, name=row.tier),
        workload="" if own else row.workload,
        workload_href=(
            None if own else workload_href(row.cluster, row.namespace, row.workload, query)
        ),
        age=duration(row.wait_seconds),
        badge=badge(row.cause, row.detail),
        counts="" if row.counts == "pending" else COUNTS.get(row.counts, ""),
        more=max(0, len(row.suggestions) - 1),
    )


def _values(row: PendingRow) -> dict[str, Value]:
    values = declared_values(row)
    # Every workload here requests GPUs: without an amount its ResourceClaims are not known.
    return values if row.gpu_equivalents else values | {"units": None, "gpu_equivalents": None}


def pending_table(
    rows: Sequence[PendingRow],
    reading: QuerySession,
    *,
    empty: str,
    next_href: str | None,
    every: Callable[[], Iterable[PendingRow]],
) -> Table:
    """Return the list, in the order that the selector gave it."""
    return Table(
        id="waiting",
        title="Pending workloads",
        columns=declared_columns(PendingRow),
        rows=[pending_table_row(row, reading) for row in rows],
        zone=reading.choice.zone,
        empty=empty,
        next_href=next_href,
        every=lambda: (TableRow(_values(row)) for row in every()),
        ordered=True,
    )
