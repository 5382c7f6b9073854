"""Losses of a window, of days whose losses are kept and of hours for the rest of it."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import reduce
from operator import add, or_
from typing import Any, NamedTuple

from django.db.models import Count, F, Max, Q, QuerySet, Sum
from msgspec import Struct, field

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster
from apps.goodput.domain.ledger import RunAmounts
from apps.goodput.models import LossDay, StoredLossDay
from apps.goodput.selectors.loss_context import LossContext, loss_contexts
from apps.goodput.selectors.lost_work import lost_parts, pods_with_losses, unwatched_amounts
from apps.usage.domain.usage_query import Filters, Grouping, TimeStep, UsageQuery
from apps.usage.models import Day
from apps.usage.selectors import (
    condition,
    day_runs,
    filtered,
    in_days,
    rest_of,
    source_of,
    usage_rows,
)
from gpuportal.database_functions import WholeSum

_Ids = tuple[Any, ...]
_TimeKey = tuple[datetime, _Ids]
"""The start of an hour or a day, and ids of groups, none where time is not by groups."""
_PoolKey = tuple[str, datetime, _Ids]
"""A reason, the start of an hour or a day, and the ids of a pool."""
_HOUR = timedelta(hours=1)
POOL = (Grouping.CLUSTER, Grouping.TIER, Grouping.GPU_MODEL, Grouping.CAPACITY_TYPE)
"""What tells pools apart, of which each has its prices."""
_POOL_COLUMNS = tuple(one.column for one in POOL)


class Losses(Struct):
    """What was lost, by ids of groups and reason, by time, and how often and of how many pods.

    `unwatched` is what pods had allocated of which no loss could be known, by ids of groups;
    `unkept` the same by names, of days whose hours went before their losses were kept. What is by
    time is by groups, too, where the query says so. `contexts` of failures, and how many
    were `checkpointed`, are known by reason where all is read by the hour. `whole_days` has start
    and cluster of what is by pool for a day; all else by pool is for an hour.
    """

    by_group: defaultdict[_Ids, dict[str, RunAmounts]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    by_time: defaultdict[_TimeKey, RunAmounts] = field(
        default_factory=lambda: defaultdict(RunAmounts)
    )
    events: Counter[str] = field(default_factory=Counter)
    pods: Counter[str] = field(default_factory=Counter)
    unwatched: Counter[_Ids] = field(default_factory=Counter)
    unwatched_by_time: Counter[_TimeKey] = field(default_factory=Counter)
    unkept: Counter[tuple[str, ...]] = field(default_factory=Counter)
    unkept_by_time: Counter[_TimeKey] = field(default_factory=Counter)
    by_pool: Counter[_PoolKey] = field(default_factory=Counter)
    whole_days: set[tuple[datetime, int]] = field(default_factory=set)
    contexts: Mapping[str, LossContext] = field(default_factory=dict)
    checkpointed: Counter[str] | None = None

    def add(self, ids: _Ids, reason: str, part: RunAmounts) -> None:
        """Add what one reason cost a group."""
        own = self.by_group[ids]
        own[reason] = own.get(reason, RunAmounts()).plus(part)


class LossQuery(Struct, frozen=True):
    """What is asked of losses, as of the usage ledger; `filters` name teams the reader sees.

    With `groups_by_time` what is by time is by groups, too: a chart does without, and of many
    workloads has a thousandth of the rows. What is by pool is read `by_pool` alone.
    """

    window: Window
    group_by: Sequence[Grouping]
    filters: Filters
    visibility: Visibility
    interval: TimeStep = TimeStep.TOTAL
    groups_by_time: bool = False
    by_pool: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(one.column for one in self.group_by)

    @property
    def _columns_by_time(self) -> tuple[str, ...]:
        return self.columns if self.groups_by_time else ()

    def losses_by_hour(self) -> Losses:
        """Return the losses of hours that are kept by the pod. Eight queries."""
        found = Losses()
        self._add_hours(found, self.window, self.filters)
        return found

    def losses_by_day(self) -> Losses:
        """Return the losses of kept days, and by the hour what is left of the window.

        Days are kept without node and hour: where either is asked for, hours alone are read. A day
        whose hours went before its losses were kept is `unkept`. Six queries, and four for each
        span that is read by the hour.
        """
        found = Losses()
        names = self._clusters()
        is_finer = self.interval is TimeStep.HOUR or Grouping.NODE in {
            *self.group_by,
            *filtered(self.filters),
        }
        # Days keep neither hours nor nodes, and would tell of these that nothing was lost.
        of = self._spans(names, usable=not is_finer)
        self._add_days(found, of.stored)
        for span, within in of.gone.items():
            self._add_unkept(found, span, replace(self.filters, cluster=tuple(within)))
        after = self._days_where(of.stored) if of.stored else None
        for span, within in of.hours.items():
            own = replace(self.filters, cluster=tuple(within))
            self._add_hours(found, span, own, after=after)
        return found

    def _clusters(self) -> dict[int, str]:
        """Return the names of the clusters that are asked for, by id. One query."""
        clusters = Cluster.objects.order_by("pk")
        if self.filters.cluster:
            clusters = clusters.filter(name__in=self.filters.cluster)
        return dict(clusters.values_list("pk", "name"))

    def _spans(self, names: Mapping[int, str], *, usable: bool) -> "_Spans":
        """Return from what each part of the window is read; `usable`: kept days may be."""
        window = self.window
        days = Day.objects.filter(
            cluster_id__in=names, start__lt=window.end, end__gt=window.start
        ).order_by("cluster_id", "start")
        there = StoredLossDay.objects.filter(cluster_id__in=names).order_by()
        whole = set(there.values_list("cluster_id", "day")) if usable else set()
        kept: defaultdict[int, dict[date, datetime]] = defaultdict(dict)
        gone: defaultdict[Window, list[str]] = defaultdict(list)
        rest: defaultdict[Window, list[str]] = defaultdict(list)
        covered: defaultdict[int, list[tuple[datetime, datetime]]] = defaultdict(list)
        without: defaultdict[int, list[tuple[datetime, datetime]]] = defaultdict(list)
        for cluster, day, start, end, pruned in days.values_list(
            "cluster_id", "day", "start", "end", "pruned"
        ):
            if (cluster, day) in whole and window.start <= start and end <= window.end:
                kept[cluster][day] = start
                covered[cluster].append((start, end))
            elif pruned:
                span = max(start, window.start), min(end, window.end)
                covered[cluster].append(span)
                without[cluster].append(span)
        for cluster, name in names.items():
            for start, end in _joined(without[cluster]):
                gone[Window(start, end)].append(name)
            for start, end in rest_of(window, covered[cluster]):
                rest[Window(start, end)].append(name)
        return _Spans(kept, gone, rest)

    def _days_where(self, kept: Mapping[int, Mapping[date, datetime]]) -> Q:
        """Return the condition on rows of kept days."""
        by_runs: defaultdict[Any, list[int]] = defaultdict(list)
        for cluster, days in kept.items():
            by_runs[day_runs(sorted(days))].append(cluster)
        parts = [
            Q(cluster_id__in=clusters) & reduce(or_, in_days(runs))
            for runs, clusters in by_runs.items()
        ]
        # Losses are of pods: as with these, a reader sees the teams that are theirs.
        source = source_of((*self.group_by, Grouping.WORKLOAD), self.filters, self.visibility)
        return condition(source, self.filters, self.visibility) & reduce(or_, parts)

    def _add_days(self, found: Losses, kept: Mapping[int, Mapping[date, datetime]]) -> None:
        """Add what is kept by the day. Four queries."""
        if not kept:
            return
        rows = LossDay.objects.filter(self._days_where(kept)).order_by()
        sums = {f"sum_{name}": WholeSum(name) for name in (*RunAmounts._fields, "unwatched")}
        columns = self.columns
        grouped = rows.values(*columns, "reason").annotate(**sums)
        for row in grouped.values_list(*columns, "reason", *sums):
            ids, reason = row[: len(columns)], row[len(columns)]
            *amounts, unwatched = row[len(columns) + 1 :]
            if reason:
                found.add(ids, reason, RunAmounts(*amounts))
            else:
                found.unwatched[ids] += unwatched
        lost = rows.exclude(reason="")
        for reason, events, pods in lost.values_list("reason").annotate(
            Sum("events"), Count("pod_id", distinct=True)
        ):
            found.events[reason] += events
            found.pods[reason] += pods
        found.events.subtract(_counted_again(lost))
        if self.by_pool:
            self._add_days_of_pools(found, kept, lost)
        if self.interval is TimeStep.TOTAL:
            return
        # A grouping may name a column twice for the database: aliases tell the days apart.
        of_day = {"of_cluster": F("cluster_id"), "of_day": F("day")}
        by = self._columns_by_time
        by_day = rows.annotate(**of_day).values(*of_day, *by).annotate(**sums)
        for cluster, day, *values in by_day.values_list(*of_day, *by, *sums):
            *amounts, unwatched = values[len(by) :]
            key = kept[cluster][day], tuple(values[: len(by)])
            found.by_time[key] = found.by_time[key].plus(RunAmounts(*amounts))
            found.unwatched_by_time[key] += unwatched

    def _add_days_of_pools(
        self,
        found: Losses,
        kept: Mapping[int, Mapping[date, datetime]],
        lost: QuerySet[LossDay, LossDay],
    ) -> None:
        # One sum in the database: a long window has a row for each day, pool and reason.
        total = WholeSum(reduce(add, map(F, RunAmounts._fields)))
        rows = lost.values("reason", "day", *_POOL_COLUMNS).annotate(total=total)
        for reason, day, *pool, amount in rows.values_list(
            "reason", "day", *_POOL_COLUMNS, "total"
        ):
            start = kept[pool[0]][day]
            found.by_pool[reason, start, tuple(pool)] += amount
            found.whole_days.add((start, pool[0]))

    def pools_by_hour(self, days: Collection[datetime]) -> Counter[_PoolKey]:
        """Return what kept days lost by reason, hour and pool, of days that begin at these times.

        What a row of an older version does not tell by hour stays at the start of its day. Four
        queries.
        """
        found: Counter[_PoolKey] = Counter()
        names = self._clusters()
        kept = {
            cluster: {day: start for day, start in of_cluster.items() if start in days}
            for cluster, of_cluster in self._spans(names, usable=True).stored.items()
        }
        kept = {cluster: of_cluster for cluster, of_cluster in kept.items() if of_cluster}
        if not kept:
            return found
        rows = LossDay.objects.filter(self._days_where(kept)).exclude(reason="").order_by()
        total = reduce(add, map(F, RunAmounts._fields))
        columns = ("reason", "day", "by_hour", *_POOL_COLUMNS)
        read = rows.annotate(total=total).values_list("total", *columns)
        for amount, reason, day, by_hour, *pool in read.iterator():
            start, of_pool = kept[pool[0]][day], tuple(pool)
            for place, part in enumerate(by_hour or ()):
                found[reason, start + place * _HOUR, of_pool] += part
            found[reason, start, of_pool] += amount - sum(by_hour or ())
        return found

    def _add_hours(
        self, found: Losses, window: Window, filters: Filters, after: Q | None = None
    ) -> None:
        """Add what is read by the hour; `after` are the rows of the kept days, which it continues.

        A failure then counts where it happens, as it does in the days: in one of both.
        """
        events: defaultdict[str, Counter[tuple[int, float]]] = defaultdict(Counter)
        pods: defaultdict[str, set[int]] = defaultdict(set)
        checkpointed: set[tuple[str, int, float]] = set()
        asked: dict[str, Any] = {
            "columns": self.columns,
            "filters": filters,
            "visibility": self.visibility,
        }
        pool = _POOL_COLUMNS if self.by_pool else ()
        for part in lost_parts(window, **{**asked, "columns": (*self.columns, *pool)}):
            reason, of = part.span.reason, part.of[: len(self.columns)]
            found.add(of, reason, part.amounts)
            # Prices are of pools and times: groups may have several of both.
            if pool:
                place = reason, part.hour, part.of[len(self.columns) :]
                found.by_pool[place] += part.amounts.total
            key = part.hour, of if self.groups_by_time else ()
            found.by_time[key] = found.by_time[key].plus(part.amounts)
            pods[reason].add(part.pod)
            if part.checkpointed:
                checkpointed.add((reason, part.pod, part.span.failed))
            if after is None or self._is_of(window, part.span.failed):
                events[reason][part.pod, part.span.failed] += part.amounts.total
        if after is not None and pods:
            known = LossDay.objects.filter(after, pod_id__in=pods_with_losses(window).values("pk"))
            for reason, pod in known.order_by().values_list("reason", "pod_id").distinct():
                pods[reason].discard(pod)
        found.events.update({reason: len(own) for reason, own in events.items()})
        found.pods.update({reason: len(own) for reason, own in pods.items()})
        found.unwatched.update(unwatched_amounts(window, **asked))
        if self.interval is not TimeStep.TOTAL:
            asked["columns"] = ("hour", *self._columns_by_time)
            for (hour, *ids), amount in unwatched_amounts(window, **asked).items():
                found.unwatched_by_time[hour, tuple(ids)] += amount
        # Days keep no single failures: of a part of the window the counts would mislead.
        if after is None and window == self.window:
            found.contexts = loss_contexts(events, pods_with_losses(window))
            found.checkpointed = Counter(reason for reason, *_ in checkpointed)

    def _is_of(self, part: Window, failed: float) -> bool:
        """Say whether a failure, Unix seconds, counts in a part of the window beside kept days."""
        if part.start_seconds < failed <= part.end_seconds:
            return True
        # After a part that is followed by others it counts in that in which it happens; after the
        # window it is in no other.
        return part.end == self.window.end and failed > part.end_seconds

    def _add_unkept(self, found: Losses, window: Window, filters: Filters) -> None:
        query = UsageQuery(window, group_by=self.group_by, filters=filters)
        for row in usage_rows(query, visibility=self.visibility):
            found.unkept[tuple(row.groups.values())] += row.amounts.allocated
        if self.interval is TimeStep.TOTAL:
            return
        by = self.group_by if self.groups_by_time else ()
        by_period = UsageQuery(window, self.interval, by, filters)
        for row in usage_rows(by_period, visibility=self.visibility):
            if row.period:
                key = row.period, tuple(row.groups.values())
                found.unkept_by_time[key] += row.amounts.allocated


def _counted_again(lost: QuerySet[LossDay, LossDay]) -> Counter[str]:
    """Return by reason how many failures rows of days count a second time. One query.

    A pod with GPUs of two models has two rows a day with the same failures. Of what a filter leaves
    of these rows no more is taken off than the rest of them has.
    """
    twice = lost.filter(repeated__gt=0).values("pod_id")
    rows = lost.filter(pod_id__in=twice).values("reason", "day", "cluster_id", "pod_id")
    found: Counter[str] = Counter()
    sums = rows.annotate(all=Sum("events"), most=Max("events"), again=Sum("repeated"))
    for reason, every, most, again in sums.values_list("reason", "all", "most", "again"):
        found[reason] += min(again, every - most)
    return found


class _Spans(NamedTuple):
    """Parts of a window: stored days by cluster with their starts, and spans with their clusters.

    Of the spans that are `gone` neither days nor hours are there; the others are read by the hour.
    """

    stored: Mapping[int, Mapping[date, datetime]]
    gone: Mapping[Window, list[str]]
    hours: Mapping[Window, list[str]]


def _joined(
    spans: Iterable[tuple[datetime, datetime]],
) -> list[tuple[datetime, datetime]]:
    """Join spans that touch, given in order."""
    found: list[tuple[datetime, datetime]] = []
    for start, end in spans:
        if found and found[-1][1] >= start:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found
