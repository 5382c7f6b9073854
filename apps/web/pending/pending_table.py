"""What the pages of pending work ask and say: causes and their classes, filters, freshness."""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.http import QueryDict
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.pending.domain.diagnosis import OF_DEMAND, Cause
from apps.pending.domain.workload_groups import WorkloadGrouping
from apps.pending.selectors import (
    CauseCount,
    PendingFilters,
    PendingOrder,
    PendingRow,
    RefreshRow,
)
from apps.web.components import page_query
from apps.web.components.formats import duration
from apps.web.components.page_query import Query, href, with_query, without
from apps.web.components.tables import (
    LedgerClass,
)
from apps.web.query_session import QuerySession

CAPACITY = LedgerClass("reason_capacity", "Capacity", "its allowed nodes have too little free")
QUOTA = LedgerClass("reason_quota", "Quota", "a ResourceQuota refuses its pods or claims", "/")
QUEUE = LedgerClass("reason_queue", "Queue", "a queue or a scheduling gate holds it")
GANG = LedgerClass("reason_gang", "Gang", "its pods start together, and not all fit", "x")
PREEMPTION = LedgerClass(
    "reason_preemption", "Preemption", "the pods it preempts have not ended yet"
)
MISCONFIGURED = LedgerClass(
    "reason_issue",
    "Configuration issue",
    "for the workload owner: selector, taint, cordon, spread, claim or volume",
    "/",
)
SERIES = LedgerClass("reason_series", "From series", "before the watch: series have no cause")
OTHER = LedgerClass("reason_other", "Other", "the cause is unknown", "x")
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
    Cause.CAPACITY: "its allowed nodes have too little free",
    Cause.QUOTA: "a ResourceQuota refuses its pods or claims",
    Cause.QUEUE: "a queue or a scheduling gate holds it",
    Cause.AFFINITY: "no node matches its selector or affinity",
    Cause.TAINT: "it does not tolerate a taint of the nodes",
    Cause.CORDON: "the nodes that could take it are cordoned",
    Cause.SPREAD: "anti-affinity, topology spread or a host port leaves no node",
    Cause.TOPOLOGY: "the kubelet could not align its devices",
    Cause.GANG: "its pods start together, and not all fit",
    Cause.CLAIM: "a ResourceClaim is missing or no device satisfies it",
    Cause.VOLUME: "a volume is missing or cannot be bound",
    Cause.PREEMPTION: "the pods it preempts have not ended yet",
    Cause.SCHEDULER: "no scheduler has tried it yet",
    Cause.ADMISSION: "a kubelet or an admission check refused it",
    Cause.STARTING: "bound to a node and starting",
    Cause.OTHER: "the cause is unknown",
    Cause.UNSCHEDULABLE: "before the watch: series show that a scheduler refused it",
    Cause.UNRECORDED: "before the watch: series have no cause",
}
NAMES = tuple(cause.value for cause in Cause)


class Badge(Struct, frozen=True):
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
    # Where more GPUs do not help, the owner of the workload has to change it.
    return OTHER if known is Cause.OTHER else MISCONFIGURED


def badge(cause: str, detail: str) -> Badge:
    """Return the badge of a cause."""
    meaning = MEANINGS.get(Cause(cause), "") if cause in NAMES else ""
    return Badge(cause, detail_text(cause, detail), meaning, class_of(cause).css)


def detail_text(cause: str, detail: str) -> str:
    """Return the detail of a cause in words: "waiting-for-quota" is "no free quota"."""
    # Of other causes it may be the name of an object, which stays as it is written.
    if cause not in _OF_OUR_NAMES:
        return detail
    return _DETAIL_TEXTS.get(detail) or detail.replace("-", " ")


_OF_OUR_NAMES = {Cause.QUEUE.value, Cause.PREEMPTION.value, Cause.SPREAD.value}
_DETAIL_TEXTS = {
    "waiting-for-quota": "no free quota",
    "exceeds-max-quota": "more than the maximum quota",
    "queued-behind-head": "behind the head of the queue",
    "preempted-requeued": "preempted, queued again",
    "host-port": "host port in use",
}


def of_asker(cause: str) -> bool:
    """Say whether the workload owner has to fix it."""
    return class_of(cause) is MISCONFIGURED and cause != Cause.STARTING


TAKES = ("tier", "team", "namespace")
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}", re.ASCII)
_MOST_KINDS = 20
_LONGEST_TEXT = 100


class PendingPageQuery(Struct, frozen=True):
    """`query` reproduces what is asked here, for links; `problem` says what makes no sense.

    `text` is a part of a name.
    """

    causes: tuple[str, ...]
    kinds: tuple[str, ...]
    order: PendingOrder
    group: WorkloadGrouping
    text: str
    query: Query
    problem: str

    @property
    def narrows(self) -> bool:
        return bool(self.causes or self.kinds or self.text)

    def filters(self, reading: QuerySession) -> PendingFilters:
        """Return the filters of a selector."""
        return replace(reading.pending_filters, cause=self.causes, kind=self.kinds, text=self.text)


def query_of(params: QueryDict) -> PendingPageQuery:
    """Return what an address asks; what is not understood narrows nothing and is told."""
    causes, problem = page_query.names_from(params, "cause", NAMES)
    written = [text.strip() for text in params.getlist("kind") if text.strip()][:_MOST_KINDS]
    kinds = tuple(dict.fromkeys(text for text in written if _KIND.fullmatch(text)))
    strange = [text for text in written if not _KIND.fullmatch(text)]
    orders, unknown = page_query.names_from(params, "order", tuple(PendingOrder))
    groups, no_group = page_query.names_from(params, "group", tuple(WorkloadGrouping))
    problems = [
        problem,
        f"“{strange[0][:80]}” is no kind of Kubernetes such as Pod or Job." if strange else "",
        unknown,
        no_group,
    ]
    order = PendingOrder(orders[0]) if orders else PendingOrder.LONGEST
    group = WorkloadGrouping(groups[0]) if groups else WorkloadGrouping.QUEUE
    # PostgreSQL refuses NUL in text.
    text = params.get("name", "").replace("\0", "").strip()[:_LONGEST_TEXT]
    return PendingPageQuery(
        causes=causes,
        kinds=kinds,
        order=order,
        group=group,
        text=text,
        query=(
            *(("cause", name) for name in causes),
            *(("kind", name) for name in kinds),
            *((("order", order.value),) if order is not PendingOrder.LONGEST else ()),
            *((("group", group.value),) if group is not WorkloadGrouping.QUEUE else ()),
            *((("name", text),) if text else ()),
        ),
        problem=" ".join(text for text in problems if text),
    )


class CauseLink(Struct, frozen=True):
    """A cause to filter by, with so many `workloads`."""

    label: str
    href: str
    chosen: bool
    workloads: int
    badge: Badge | None


class StaleCluster(Struct, frozen=True):
    """A cluster of which nothing newer than `as_of` is known; `age` empty: nothing ever was."""

    cluster: str
    as_of: datetime | None
    age: str
    error: str


_LIVE = timedelta(minutes=5)


class PendingFreshness(Struct, frozen=True):
    """Until when pending work is known: the oldest and the newest `as_of` of the clusters shown."""

    stale: Sequence[StaleCluster]
    oldest: datetime | None
    newest: datetime | None

    @property
    def is_known(self) -> bool:
        """Whether the list is complete: every cluster was refreshed recently."""
        return not self.stale and self.oldest is not None

    def is_live(self, now: datetime) -> bool:
        """Whether the watched clusters are known up to the last minutes."""
        return self.is_known and self.newest is not None and now - self.newest <= _LIVE

    @property
    def lags(self) -> bool:
        """Whether a cluster is known up to its last closed hour alone, as from series."""
        return (
            self.oldest is not None
            and self.newest is not None
            and self.newest - self.oldest > _LIVE
        )


def cause_links(
    causes: Sequence[CauseCount], path: str, reading: QuerySession, asked: PendingPageQuery
) -> list[CauseLink]:
    """Return a link per cause of pending work; of more than one, that to all of them first.

    A chosen cause has a link even without pending work, so that it can be removed.
    """
    kept = [*reading.query, *without(asked.query, "cause")]
    known = {one.cause: one.workloads for one in causes}
    names = [*known, *(name for name in asked.causes if name not in known)]
    links = [
        CauseLink(
            label=name,
            href=with_query(path, [*kept, ("cause", name)]),
            chosen=name in asked.causes,
            workloads=known.get(name, 0),
            badge=badge(name, ""),
        )
        for name in names
    ]
    # One cause is nothing to choose from, unless it was chosen and is to be taken off.
    if len(links) < 2 and not asked.causes:
        return []
    return [CauseLink("all", with_query(path, kept), not asked.causes, 0, None), *links]


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


def _stale(name: str, row: RefreshRow | None, now: datetime) -> StaleCluster:
    as_of = row.as_of if row else None
    age = duration(max(0.0, (now - as_of).total_seconds())) if as_of else ""
    return StaleCluster(name, as_of, age, row.error if row else "")


COUNTS = {
    "pending": "pending",
    "suppressed": "blocked at admission",
    "starting": "starting",
    "nothing": "counted with its workload",
}
"""What an episode counts as, in words."""


def pending_href(row: PendingRow, query: Query) -> str | None:
    """Return the address of the page of a pending item; None without a UID to find it by."""
    return href("pending-detail", query, cluster=row.cluster, uid=row.uid) if row.uid else None
