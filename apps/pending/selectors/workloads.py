"""Pending workloads in groups, one row each, a page at a time."""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from django.db.models import Min, Q, Sum, TextField, Value
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce
from msgspec import Struct

from apps.accounts.domain.rows import row_from
from apps.accounts.permissions import Visibility
from apps.pending.domain.diagnosis import BLOCKED_BY_QUOTA, PENDING_COUNTS, Counts
from apps.pending.domain.workload_groups import (
    GroupKey,
    PendingItemSummary,
    WorkloadGrouping,
    WorkloadSummary,
    grouped,
    workloads_of,
)
from apps.pending.selectors.current import (
    COLUMNS,
    one_row_each,
    pending_at,
    pending_row,
    place_columns,
)
from apps.pending.selectors.rows import PendingFilters, PendingOrder, PendingRow
from apps.pending.selectors.scope import NamespaceContext, PendingScope

_READ = 500


class PendingWorkload(Struct, frozen=True):
    """A pending workload: `row` of the item that speaks for it, and all its `items`."""

    row: PendingRow
    items: tuple[PendingItemSummary, ...]
    gpus: float
    since: datetime


class PendingGroup(Struct, frozen=True):
    """A group: `count`, `gpus` and `since` are of all its workloads, `workloads` those shown."""

    key: GroupKey
    count: int
    gpus: float
    since: datetime
    workloads: tuple[PendingWorkload, ...]


class CauseCount(Struct, frozen=True):
    """Workloads with a pending item of a cause, and the GPU-equivalents of these items."""

    cause: str
    workloads: int
    gpus: float


class WorkloadCounts(Struct, frozen=True):
    """How many workloads are pending, since when, and by cause; `since` is None without any.

    A workload whose items have several causes counts in each of them, and once in `count`.
    """

    count: int
    since: datetime | None
    causes: tuple[CauseCount, ...]


class PendingGpus(Struct, frozen=True):
    """GPU-equivalents of pending items: each is in one of the three.

    `blocked` by a quota or a queue, with or without a pod; `unscheduled` is all else without a
    node; `starting` has one.
    """

    unscheduled: float
    blocked: float
    starting: float


class PendingWorkloads(Struct, frozen=True):
    """All pending workloads that filters leave, in groups; `page` reads a part of them.

    `causes` are of all causes, the most GPUs first; everything else is narrowed to those asked
    for. `since` is the oldest, None without any.
    """

    count: int
    gpus: PendingGpus
    since: datetime | None
    causes: tuple[CauseCount, ...]
    _ordered: tuple[tuple[int, WorkloadSummary], ...]
    _groups: tuple[tuple[GroupKey, int, float, datetime], ...]
    _rows: Callable[[Collection[int]], dict[int, PendingRow]]

    @property
    def summaries(self) -> Iterator[WorkloadSummary]:
        """The workloads in order, in short."""
        return (one for _, one in self._ordered)

    def page(self, part: slice) -> list[PendingGroup]:
        """Return the workloads at these places, in their groups. One query."""
        shown = self._ordered[part]
        rows = self._rows([one.lead.id for _, one in shown])
        found: dict[int, list[PendingWorkload]] = defaultdict(list)
        for place, one in shown:
            # It may have started between the two queries.
            if (row := rows.get(one.lead.id)) is not None:
                found[place].append(PendingWorkload(row, one.items, one.gpus, one.since))
        return [PendingGroup(*self._groups[place], tuple(own)) for place, own in found.items()]

    def every(self) -> Iterator[PendingGroup]:
        """Yield all groups, some hundred workloads at a time; a long group comes in parts."""
        for start in range(0, len(self._ordered), _READ):
            yield from self.page(slice(start, start + _READ))


def pending_workloads(
    at: datetime,
    *,
    by: WorkloadGrouping,
    filters: PendingFilters,
    visibility: Visibility,
    order: PendingOrder = PendingOrder.LONGEST,
    context: NamespaceContext | None = None,
) -> PendingWorkloads:
    """Return what is pending at `at` by workload: its pods, Workload and controller are one row.

    Only of teams that the reader sees. A workload stands where any of its items has one of the
    causes asked for, with those items alone. Four queries at most, one with a context.
    """
    scope = PendingScope(at, filters, visibility, context)
    # Read without the filter on causes: their numbers are shown of all.
    every = _items(at, filters, scope)
    items = [one for one in every if not filters.cause or one.cause in filters.cause]
    workloads = workloads_of(items)
    groups = grouped(workloads, by, most_first=order is PendingOrder.MOST)

    def rows_of(ids: Collection[int]) -> dict[int, PendingRow]:
        found = pending_at(at).filter(pk__in=ids).values_list(*COLUMNS, named=True)
        return {row.pk: pending_row(row, at, scope) for row in found}

    return PendingWorkloads(
        count=len(workloads),
        gpus=_gpus(items),
        since=min((one.since for one in workloads), default=None),
        causes=_causes(every),
        _ordered=tuple((n, one) for n, group in enumerate(groups) for one in group.workloads),
        _groups=tuple(
            (
                group.key,
                len(group.workloads),
                sum(one.gpus for one in group.workloads),
                min(one.since for one in group.workloads),
            )
            for group in groups
        ),
        _rows=rows_of,
    )


def count_workloads(
    at: datetime, *, visibility: Visibility, filters: PendingFilters
) -> WorkloadCounts:
    """Return the counts of `pending_workloads`, of teams that the reader sees. Two queries."""
    scope = PendingScope(at, filters, visibility, None)
    rows = pending_at(at).filter(scope.condition(), one_row_each(at, filters)).order_by()
    held = Sum("counted", filter=~Q(counts=Counts.NOTHING.value), default=0.0)
    sums = rows.values_list("workload_id", "cause").annotate(gpus=held, since=Min("since"))
    found = list(sums)
    causes: dict[str, list[float]] = defaultdict(list)
    for _, cause, gpus, _ in found:
        causes[cause].append(gpus)
    return WorkloadCounts(
        count=len({workload for workload, *_ in found}),
        since=min((since for *_, since in found), default=None),
        causes=_most_first(
            CauseCount(cause, len(own), math.fsum(own)) for cause, own in causes.items()
        ),
    )


def _gpus(items: Iterable[PendingItemSummary]) -> PendingGpus:
    found: dict[str, float] = defaultdict(float)
    for one in items:
        if one.counts == Counts.STARTING:
            found["starting"] += one.counted
        elif one.counts in PENDING_COUNTS:
            found["blocked" if one.cause in BLOCKED_BY_QUOTA else "unscheduled"] += one.counted
    return PendingGpus(found["unscheduled"], found["blocked"], found["starting"])


def _most_first(counts: Iterable[CauseCount]) -> tuple[CauseCount, ...]:
    return tuple(sorted(counts, key=lambda one: (-one.gpus, one.cause)))


_COLUMNS = (
    *("pk", "cluster__name", "workload__namespace_id", "workload__namespace__name"),
    *("workload__kind", "workload__name", "kind", "name", "uid", "resource", "counts", "counted"),
    *("gpu_equivalents", "queue", "since", "cause", "detail", "blocker", "at_place"),
)


def _items(at: datetime, filters: PendingFilters, scope: PendingScope) -> list[PendingItemSummary]:
    rows = pending_at(at).filter(scope.condition(causes=False), one_row_each(at, filters))
    # The rest of what was found is read of the rows of one page alone: there may be thousands.
    rows = rows.annotate(
        blocker=_text_in("blockers__0"),
        # Of the first sentence, which is that of the line where there is one: name, particulars.
        at_place=_text_in("sentences__0__1__place"),
    )
    ordered = rows.order_by("since", "pk")
    return [_item(row, scope) for row in ordered.values_list(*_COLUMNS, named=True)]


def _item(row: Any, scope: PendingScope) -> PendingItemSummary:
    at_place = str(row.at_place)  # a database may give the number in JSON as one
    return row_from(
        PendingItemSummary,
        row,
        **place_columns(row, scope),
        place=int(at_place) if at_place.isdigit() else 0,
    )


def _text_in(path: str) -> Coalesce:
    return Coalesce(KT(f"findings__{path}"), Value(""), output_field=TextField())


def _causes(items: Sequence[PendingItemSummary]) -> tuple[CauseCount, ...]:
    workloads: dict[str, set[tuple[str, str, str]]] = defaultdict(set)
    gpus: dict[str, float] = defaultdict(float)
    for one in items:
        workloads[one.cause].add((one.cluster, one.namespace, one.workload))
        gpus[one.cause] += one.counted if one.counts != Counts.NOTHING else 0.0
    return _most_first(CauseCount(cause, len(own), gpus[cause]) for cause, own in workloads.items())
