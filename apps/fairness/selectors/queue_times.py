"""Queue times of teams by tier, and work that is pending or was canceled before start."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Exists, Min, OuterRef, Q, QuerySet

from apps.clusters.domain.window import Window, union
from apps.clusters.models import Namespace, WholeSeconds
from apps.clusters.selectors import team_spans
from apps.fairness.domain.queue_times import QueueTimes
from apps.pending.domain.diagnosis import PENDING_COUNTS, Counts, Outcome
from apps.pending.domain.queues.unrecorded import CLUSTER_QUEUE
from apps.pending.models import CauseInterval, Episode
from apps.pending.selectors import known_until
from apps.usage.models import TierDay

_INSTANT = timedelta(seconds=1)
_POD = "Pod"
_MADE_WITHIN_SECONDS = 300
"""So long after work was let in its pods are made; later ones wait for themselves."""
_SPAN_SECONDS = _MADE_WITHIN_SECONDS + 1
"""Times are in whole seconds: the last of them is in the span."""
_LAG = timedelta(hours=2)
"""Clusters without API access are known by the hour, some time after it has ended."""
_NEAR = timedelta(days=7)
"""A tier that a cluster had so many days before it was known last is still one of its."""
_SPACE = "workload__namespace_id"


def team_queue_times(
    window: Window, tiers: Collection[int], *, now: datetime
) -> Mapping[tuple[int, int], QueueTimes]:
    """Return the queue times by (tier, team): that of their namespace at the end. At most ten
    queries.

    A queue time is that of a pod from its creation to its start, in whole seconds. Work that was
    pending before it had all its pods (a Workload of Kueue, a group, a controller that was refused)
    counts once, until it is admitted; the pods that are created for it then are not counted again.
    `waiting_now` counts the work that was pending at the end of the window, or now.
    """
    teams = _teams_at(window.end - _INSTANT)
    found: dict[tuple[int, int], QueueTimes] = defaultdict(QueueTimes)
    over = Episode.objects.filter(
        tier__in=tiers, until__gte=window.start, until__lt=window.end
    ).order_by()
    for tier, space, wait, count in ended_queue_times(over, window, ("tier_id", _SPACE)):
        found[tier, teams[space]].ended[float(wait)] += count
    lasting = pending_at(min(window.end, now)).filter(episode__tier__in=tiers)
    keys = ("episode__tier_id", f"episode__{_SPACE}")
    for tier, space, count in lasting.values_list(*keys).annotate(Count("pk")):
        found[tier, teams[space]].waiting_now += count
    gone = over.filter(outcome=Outcome.GAVE_UP.value).exclude(counts=Counts.NOTHING.value)
    for tier, space, count in gone.values_list("tier_id", _SPACE).annotate(Count("pk")):
        found[tier, teams[space]].gave_up += count
    return found


def dark_tiers(window: Window, tiers: Collection[int], *, now: datetime) -> frozenset[int]:
    """Return the tiers of a cluster whose pending work is not known at the window's end.

    The counts of such a tier are lower bounds. At most two queries.
    """
    dark = _dark(min(window.end, now))
    if not dark:
        return frozenset()
    serves = Q(pk__in=())
    for cluster, until in dark.items():
        serves |= Q(cluster=cluster, day__gte=(until - _NEAR).date())
    days = TierDay.objects.filter(serves, cluster__active=True, tier__in=tiers).order_by()
    return frozenset(days.values_list("tier_id", flat=True).distinct())


def ended_queue_times(
    over: QuerySet[Episode], window: Window, keys: tuple[str, str]
) -> Iterator[tuple[Any, Any, int, int]]:
    """Yield two keys and the seconds of queue times that ended by a start, and their count.

    `over` are the episodes that ended within the window, `keys` columns or annotations of them.
    At most five queries.

    Work that was let in is read first: pods of nearly all workloads were made for none, and are
    counted by the database; only those of the others are looked at one by one.
    """
    started = over.filter(kind=_POD, outcome=Outcome.STARTED.value)
    earliest = started.aggregate(earliest=Min("since"))["earliest"]
    made_within = timedelta(seconds=_MADE_WITHIN_SECONDS)
    first = window.start if earliest is None else min(window.start, earliest - made_within)
    let_in = _let_in().filter(until__gte=first, since__lt=window.end)
    spans: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for workload, since, until in let_in.values_list("workload_id", "since", "until"):
        if until is not None:
            # Whole seconds, as the database compares them on the other side.
            begin, end = int(since.timestamp()), int(until.timestamp())
            spans[workload].append((begin, end + _SPAN_SECONDS))
    waits = {"wait": WholeSeconds("until") - WholeSeconds("since")}
    of_all = started
    if spans:
        within = Q(workload__in=let_in.values("workload"))
        yield from _made_for_none(started.filter(within), spans, keys)
        timed = over.filter(pk__in=let_in.values("pk")).annotate(**waits)
        yield from timed.values_list(*keys, "wait").annotate(Count("pk"))
        of_all = started.exclude(within)
    rows = of_all.annotate(**waits).values_list(*keys, "wait")
    yield from rows.annotate(Count("pk"))


def _let_in() -> QuerySet[Episode]:
    """Return the work that was admitted after it had been pending beyond its pods."""
    alone = CauseInterval.objects.filter(
        episode=OuterRef("pk"), counts=Counts.SUPPRESSED.value, counted__gt=0
    )
    settled = Episode.objects.filter(outcome=Outcome.SETTLED.value).exclude(kind=_POD)
    return settled.filter(Exists(alone)).order_by()


def _made_for_none(
    pods: QuerySet[Episode],
    spans: Mapping[int, Iterable[tuple[float, float]]],
    keys: tuple[str, str],
) -> Iterator[tuple[Any, Any, int, int]]:
    """Yield the pods, as `ended_queue_times`, not made within the spans of their workload."""
    merged = {workload: union(of_one) for workload, of_one in spans.items()}
    starts = {workload: [start for start, _ in of_one] for workload, of_one in merged.items()}
    rows = pods.annotate(
        begin=WholeSeconds("since"), wait=WholeSeconds("until") - WholeSeconds("since")
    )
    columns = ("workload_id", *keys, "begin", "wait")
    for workload, one, other, begin, wait in rows.values_list(*columns).iterator():
        place = bisect_right(starts[workload], begin)
        if not place or begin >= merged[workload][place - 1][1]:
            yield one, other, wait, 1


def pending_at(at: datetime) -> QuerySet[CauseInterval]:
    """Return the work pending at a moment: an episode has one interval then, and counts as it says.

    What seemed to wait when its cluster was watched last, long before, may be over since.
    """
    lasts = Q(end__gt=at) | (Q(end__isnull=True) & ~Q(episode__cluster__in=list(_dark(at))))
    rows = CauseInterval.objects.filter(lasts, start__lte=at, counts__in=PENDING_COUNTS).order_by()
    # How much work a queue's demand is made of is not known.
    return rows.exclude(episode__kind=CLUSTER_QUEUE)


def _dark(at: datetime) -> dict[int, datetime]:
    """Return the clusters whose pending work is not known at a moment, and until when it was known.

    One query.
    """
    return {cluster: until for cluster, until in known_until().items() if until < at - _LAG}


def _teams_at(at: datetime) -> dict[int, int]:
    """Return whose each namespace is at a moment."""
    spaces = dict(Namespace.objects.order_by("pk").values_list("pk", "name"))
    spans = team_spans(Window(at, at + _INSTANT), set(spaces.values()))
    return {pk: spans[name][0].team_id for pk, name in spaces.items()}
