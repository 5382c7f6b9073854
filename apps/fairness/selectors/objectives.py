"""Queue times of teams, and objectives of tiers for them: attainment, error budget and burn."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import (
    Case,
    CharField,
    Count,
    Exists,
    F,
    IntegerField,
    Max,
    Min,
    OuterRef,
    Q,
    QuerySet,
    Value,
    When,
)
from msgspec import Struct, field

from apps.accounts.permissions import Visibility
from apps.clusters.domain.tiers import GpuSharing
from apps.clusters.domain.window import Window, union
from apps.clusters.models import holds_after
from apps.clusters.selectors import team_spans, tier_rows
from apps.fairness.domain.hour_state import HourState
from apps.fairness.domain.objectives import (
    SPANS,
    TARGET,
    WorkCounts,
    burn_of,
    rise_of,
    summed_spans,
)
from apps.fairness.domain.queue_times import QueueTimes
from apps.fairness.models import QueueTimeObjective, TierFairnessHour
from apps.fairness.selectors.rows import ObjectiveRow, RisingQueueTime
from apps.pending.domain.diagnosis import PENDING_COUNTS, Counts, Outcome
from apps.pending.domain.queues.unrecorded import CLUSTER_QUEUE
from apps.pending.models import CauseInterval, Episode
from apps.pending.selectors import NAMESPACES, known_until
from apps.usage.models import TierDay
from gpuportal.database_functions import WholeSeconds
from gpuportal.queries import BatchQuery, read_once

_INSTANT = timedelta(seconds=1)
_POD = "Pod"
_MADE_WITHIN_SECONDS = 300
"""Pods created within this time of an admission belong to it; later ones count on their own."""
_SPAN_SECONDS = _MADE_WITHIN_SECONDS + 1
"""Spans are half-open and times whole seconds: this includes the last one."""
_LAG = timedelta(hours=2)
"""Without API access pending work is known by whole hours, some time after each has ended."""
_NEAR = timedelta(days=7)
"""A cluster has a tier that it had within this time before it was last known."""
_SPACE = "workload__namespace_id"


def team_queue_times(
    window: Window, tiers: Collection[int], *, now: datetime | None
) -> Mapping[tuple[int, int], QueueTimes]:
    """Return the queue times by (tier, team): that of their namespace at the end. At most ten
    queries.

    A queue time is that of a pod from its creation to its start, in whole seconds. Work that was
    pending before it had all its pods (a Workload of Kueue, a group, a controller that was refused)
    counts once, until it is admitted; the pods that are created for it then are not counted again.
    `waiting_now` counts the work that was pending at the end of the window, or now; nothing where
    `now` is None.
    """
    # Windows are half-open: their last second still belongs to them.
    teams = _teams_at(window.end - _INSTANT)
    (found,) = _queue_times((window,), tiers, (teams,))
    if now is not None:
        # Nothing is known of what will be pending at the end of a window that lasts.
        lasting = pending_at(min(window.end, now)).filter(episode__tier__in=tiers)
        keys = ("episode__tier_id", f"episode__{_SPACE}")
        for tier, space, count in lasting.values_list(*keys).annotate(Count("pk")):
            found[tier, teams[space]].waiting_now += count
    return found


def queue_times_of(
    windows: Sequence[Window], tiers: Collection[int]
) -> list[dict[tuple[int, int], QueueTimes]]:
    """Return the same for each of some windows, which follow one another, without what is pending.

    At most seven queries.
    """
    return _queue_times(windows, tiers, [_teams_at(window.end - _INSTANT) for window in windows])


def _queue_times(
    windows: Sequence[Window], tiers: Collection[int], teams: Sequence[Mapping[int, int]]
) -> list[dict[tuple[int, int], QueueTimes]]:
    found: list[dict[tuple[int, int], QueueTimes]] = [defaultdict(QueueTimes) for _ in windows]
    whole = Window(windows[0].start, windows[-1].end)
    over = Episode.objects.filter(
        tier__in=tiers, until__gte=whole.start, until__lt=whole.end
    ).order_by()
    starts = [
        When(until__gte=window.start, then=Value(place))
        for place, window in reversed(list(enumerate(windows)))
    ]
    over = over.annotate(place=Case(*starts) if len(starts) > 1 else Value(0))
    keys = ("place", "tier_id", _SPACE)
    for place, tier, space, wait, count in ended_queue_times(over, whole, keys):
        found[place][tier, teams[place][space]].ended[float(wait)] += count
    gone = over.filter(outcome=Outcome.GAVE_UP.value).exclude(counts=Counts.NOTHING.value)
    for place, tier, space, count in gone.values_list(*keys).annotate(Count("pk")):
        found[place][tier, teams[place][space]].gave_up += count
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
    over: QuerySet[Episode], window: Window, keys: Sequence[str]
) -> Iterator[tuple[Any, ...]]:
    """Yield the keys, the seconds of queue times that ended by a start, and how many there are.

    `over` are the episodes that ended within the window, `keys` columns or annotations of them.
    At most five queries.

    Admitted work is read first. Most workloads have none, and the database counts their pods; only
    the pods of workloads with admitted work are looked at one by one.
    """
    started = over.filter(kind=_POD, outcome=Outcome.STARTED.value)
    earliest = started.aggregate(earliest=Min("since"))["earliest"]
    made_within = timedelta(seconds=_MADE_WITHIN_SECONDS)
    # Work admitted before the window matters where pods that start in it were made for it.
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
    # An interval of its own that counts: pods that were there already counted for themselves.
    alone = CauseInterval.objects.filter(
        episode=OuterRef("pk"), counts=Counts.SUPPRESSED.value, counted__gt=0
    )
    settled = Episode.objects.filter(outcome=Outcome.SETTLED.value).exclude(kind=_POD)
    return settled.filter(Exists(alone)).order_by()


def _made_for_none(
    pods: QuerySet[Episode],
    spans: Mapping[int, Iterable[tuple[float, float]]],
    keys: Sequence[str],
) -> Iterator[tuple[Any, ...]]:
    """Yield pods created outside the spans of their workload, as `ended_queue_times` does."""
    merged = {workload: union(of_one) for workload, of_one in spans.items()}
    starts = {workload: [start for start, _ in of_one] for workload, of_one in merged.items()}
    rows = pods.annotate(
        begin=WholeSeconds("since"), wait=WholeSeconds("until") - WholeSeconds("since")
    )
    columns = ("workload_id", *keys, "begin", "wait")
    for workload, *own, begin, wait in rows.values_list(*columns).iterator():
        place = bisect_right(starts[workload], begin)
        # Spans of a workload are merged, so only the last that begins before can hold the pod.
        if not place or begin >= merged[workload][place - 1][1]:
            yield *own, wait, 1


def pending_at(at: datetime) -> QuerySet[CauseInterval]:
    """Return the intervals of work that is pending at a moment: one of each episode.

    Intervals without an end are left out where their cluster was last known long before: they may
    be over since.
    """
    lasts = Q(end__gt=at) | (Q(end__isnull=True) & ~Q(episode__cluster__in=list(_dark(at))))
    rows = CauseInterval.objects.filter(lasts, start__lte=at, counts__in=PENDING_COUNTS).order_by()
    # The demand of a queue is an amount of GPUs: how many pieces of work it is, is not known.
    return rows.exclude(episode__kind=CLUSTER_QUEUE)


def _dark(at: datetime) -> dict[int, datetime]:
    """Return the clusters whose pending work is not known at a moment, and until when it was known.

    One query.
    """
    return {cluster: until for cluster, until in known_until().items() if until < at - _LAG}


def _teams_at(at: datetime) -> dict[int, int]:
    """Return whose each namespace is at a moment."""
    # A page has read these in one batch with its other small tables.
    spaces = {pk: name for pk, _, name, _ in NAMESPACES.rows()}
    spans = team_spans(Window(at, at + _INSTANT), set(spaces.values()))
    return {pk: spans[name][0].team_id for pk, name in spaces.items()}


_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
# The most days that the catalog allows an objective.
_LONGEST = timedelta(days=31)
_SERVED = ("Deployment", "StatefulSet", "ReplicaSet", "DaemonSet", "InferenceService", "Notebook")
"""Kinds of work that run without an end; all others run to their end, as training does."""


def queue_time_objectives(
    at: datetime, *, visibility: Visibility, since: datetime | None = None
) -> Sequence[ObjectiveRow]:
    """Return a row for each tier with an objective at `at`, in catalog order; up to that moment.

    Over its own days, or from `since` on. `at` is not in the future. A piece of work counts once,
    by the objective of the moment at which it started. Work that is still pending, or was canceled
    before its start, counts once it is older than the objective, as missed. Everybody may see it:
    `visibility` narrows nothing.
    One query without an objective, at most twelve.
    """
    return _objectives(at, since)


def closed_hour(now: datetime) -> datetime:
    """Return the full hour up to which pages and series count, so that all show the same."""
    return now.replace(minute=0, second=0, microsecond=0)


class _Objective(NamedTuple):
    """An objective as it was set for a tier over a span."""

    pk: int
    tier_id: int
    tier: str
    p95_seconds: int
    days: int
    valid_from: datetime
    valid_to: datetime | None


class _TierCounts(Struct):
    """What is counted for the objective that a tier has at the end of the window."""

    row: _Objective
    window: Window
    parts: list[_Objective] = field(default_factory=list)
    bands: dict[timedelta, WorkCounts] = field(default_factory=lambda: defaultdict(WorkCounts))
    pending: int = 0

    def spans_of_parts(self) -> Iterator[tuple[_Objective, Window]]:
        for part in self.parts:
            start = max(part.valid_from, self.window.start)
            yield part, Window(start, min(part.valid_to or self.window.end, self.window.end))

    @property
    def since(self) -> datetime:
        """From when on there was an objective within the window."""
        # The first objective of a tier may be younger than the days that it counts.
        return min(window.start for _, window in self.spans_of_parts())

    @property
    def total(self) -> WorkCounts:
        return sum(self.bands.values(), WorkCounts())


@read_once
def _objectives(at: datetime, since: datetime | None) -> Sequence[ObjectiveRow]:
    tiers = _tiers_at(at, since)
    if not tiers:
        return ()
    start = min(one.since for one in tiers.values())
    _count_ended(tiers, Window(start, at))
    _count_pending(tiers, at)
    dark = dark_tiers(Window(start, at), list(tiers), now=at)
    estimated = _estimated_until(tiers, Window(start, at))
    return [_row(one, dark, estimated.get(pk)) for pk, one in tiers.items()]


def _tiers_at(at: datetime, since: datetime | None) -> dict[int, _TierCounts]:
    """Return what is to be counted by tier, in catalog order. One query."""
    found: dict[int, _TierCounts] = {}
    kept = [_Objective(*row) for row in OBJECTIVES.rows(at, since)]
    for row in kept:
        # One that ends at this very moment held until then.
        if row.valid_to is None or row.valid_to >= at:
            window = Window(since or at - timedelta(days=row.days), at)
            found[row.tier_id] = _TierCounts(row, window)
    for row in kept:
        own = found.get(row.tier_id)
        # Earlier objectives of the tier count for what started while they held.
        if own is not None and (row.valid_to is None or row.valid_to > own.window.start):
            own.parts.append(row)
    return found


def _objectives_since(at: datetime, since: datetime | None) -> QuerySet[QueueTimeObjective, Any]:
    rows = QueueTimeObjective.objects.filter(
        holds_after(since or at - _LONGEST), valid_from__lt=at, tier__active=True
    )
    ordered = rows.order_by("tier__position", "tier__name", "valid_from")
    names = ("pk", "tier_id", "tier__name", "p95_seconds", "days", "valid_from", "valid_to")
    return ordered.values_list(*names)


OBJECTIVES = BatchQuery(_objectives_since, is_pure=True)


def _count_ended(tiers: Mapping[int, _TierCounts], window: Window) -> None:
    # The database sorts work by objective: one query for all tiers and their changes.
    objective = Case(
        *(
            When(
                tier=pk,
                until__gte=span.start,
                until__lt=span.end,
                then=Value(part.pk),
            )
            for pk, one in tiers.items()
            for part, span in one.spans_of_parts()
        ),
        output_field=IntegerField(),
    )
    over = Episode.objects.filter(
        tier__in=list(tiers), until__gte=window.start, until__lt=window.end
    )
    over = over.annotate(objective=objective, band=_band(window.end)).order_by()
    of = {part.pk: (one, part) for one in tiers.values() for part in one.parts}
    keys = ("objective", "band")
    for pk, band, wait, count in ended_queue_times(over, window, keys):
        # Else the tier had no objective then, or its own window begins later.
        if pk is not None:
            one, part = of[pk]
            missed = count if wait > part.p95_seconds else 0
            one.bands[timedelta(seconds=band)] += WorkCounts(count, missed)
    # Otherwise it would improve the attainment to cancel work that is pending for too long.
    for pk, band, wait, count in _canceled(over, keys):
        if pk is not None and wait > of[pk][1].p95_seconds:
            of[pk][0].bands[timedelta(seconds=band)] += WorkCounts(count, count)


def _band(end: datetime) -> Case:
    """Return the shortest of SPANS that an episode ended in, in seconds; the longest for others."""
    return Case(
        *(When(until__gte=end - span, then=Value(int(span.total_seconds()))) for span in SPANS),
        default=Value(int(_LONGEST.total_seconds())),
        output_field=IntegerField(),
    )


def _canceled(
    over: QuerySet[Episode], keys: tuple[str, str]
) -> Iterable[tuple[int | None, int, int, int]]:
    gone = over.filter(outcome=Outcome.GAVE_UP.value).exclude(counts=Counts.NOTHING.value)
    waits = gone.annotate(wait=WholeSeconds("until") - WholeSeconds("since"))
    return waits.values_list(*keys, "wait").annotate(Count("pk"))


def _count_pending(tiers: Mapping[int, _TierCounts], at: datetime) -> None:
    """Count the work that is pending and older than the objective: it is missed at every moment."""
    older = Q(pk__in=())
    for pk, one in tiers.items():
        latest = at - timedelta(seconds=one.row.p95_seconds)
        older |= Q(episode__tier=pk, episode__since__lt=latest)
    rows = pending_at(at).filter(older).values_list("episode__tier_id").annotate(Count("pk"))
    for pk, count in rows:
        tiers[pk].pending = count
        # In the shortest span, which all others contain: a queue that stands burns in each.
        tiers[pk].bands[SPANS[0]] += WorkCounts(count, count)


def _estimated_until(tiers: Iterable[int], window: Window) -> dict[int, datetime]:
    """Return by tier the end of the last hour whose pending work is known from series alone."""
    rows = TierFairnessHour.objects.filter(
        ~Q(state=HourState.MISSING.value),
        tier__in=list(tiers),
        hour__gte=window.start,
        hour__lt=window.end,
        watched=False,
    ).order_by()
    return {pk: last + _HOUR for pk, last in rows.values_list("tier_id").annotate(Max("hour"))}


def _row(one: _TierCounts, dark: frozenset[int], estimated: datetime | None) -> ObjectiveRow:
    counts, spans = one.total, summed_spans(one.bands.items())
    hour, six_hours, three_days = (spans[span] for span in (_HOUR, 6 * _HOUR, 3 * _DAY))
    return ObjectiveRow(
        tier=one.row.tier,
        p95_seconds=one.row.p95_seconds,
        target_ratio=TARGET,
        days=one.row.days,
        start=one.since,
        end=one.window.end,
        total=counts.total,
        missed=counts.missed,
        missed_pending=one.pending,
        attainment_ratio=counts.attainment,
        budget_left_ratio=counts.budget_left,
        burn_rate_1h=hour.burn_rate,
        burn_rate_6h=six_hours.burn_rate,
        burn_rate_3d=three_days.burn_rate,
        burn=burn_of(spans, one.row.days * _DAY),
        estimated_until=estimated,
        complete=one.row.tier_id not in dark,
    )


def rising_queue_times(at: datetime, *, visibility: Visibility) -> list[RisingQueueTime]:
    """Return by how much queue times of the last day rose against the seven days before.

    For tiers of whole GPUs, and work that runs to its end. Everybody may see it: `visibility`
    narrows nothing. At most six queries.
    """
    whole = [
        tier.name
        for tier in tier_rows(visibility=visibility)
        if tier.sharing == GpuSharing.EXCLUSIVE.value
    ]
    window = Window(at - 8 * _DAY, at)
    over = Episode.objects.filter(
        tier__name__in=whole, until__gte=window.start, until__lt=window.end
    ).exclude(workload__kind__in=_SERVED)
    part = Case(
        When(until__gte=at - _DAY, then=Value("now")),
        default=Value("before"),
        output_field=CharField(),
    )
    over = over.annotate(tier_name=F("tier__name"), part=part).order_by()
    found: dict[tuple[str, str], Counter[float]] = defaultdict(Counter)
    for tier, when, wait, count in ended_queue_times(over, window, ("tier_name", "part")):
        found[tier, when][float(wait)] += count
    return [
        RisingQueueTime(tier, rise_of(found[tier, "now"], found[tier, "before"])) for tier in whole
    ]
