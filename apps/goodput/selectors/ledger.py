"""The goodput ledger by group, and what was lost by reason."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from django.db.models import Q, QuerySet

from apps.accounts.models import Team
from apps.accounts.permissions import Visibility
from apps.clusters.domain.columns import Column
from apps.clusters.domain.window import Window
from apps.clusters.models import Pod
from apps.clusters.selectors import report
from apps.goodput.domain.ledger import (
    NOTHING_LOST,
    GoodputAmounts,
    LossCause,
    PodHistory,
    PodRuns,
    RunAmounts,
    cause_of,
    goodput_of,
    is_loss_known,
    lost_in_hour,
    runs_of,
    total_of,
)
from apps.usage.domain.amounts import Amounts, hours
from apps.usage.domain.usage_query import (
    GROUPS,
    Filters,
    Grouping,
    GroupingRefused,
    Periods,
    TimeStep,
    UsageQuery,
    UsageRow,
)
from apps.usage.selectors import (
    HOURLY_DAYS,
    NameLookup,
    held_by_pods,
    pods_retained,
    running_hours,
    usage_rows,
)

_Names = tuple[str, ...]
_Lost = Mapping[_Names, Mapping[str, RunAmounts]]


def _column(label: str, note: str) -> Column:
    return Column(label, "GPU-h", note)


@dataclass(frozen=True, slots=True)
class GoodputRow:
    """What became of the GPU-hours that a group had allocated; the six parts sum to them.

    Pods that no watch saw held `unwatched` nano-GPU-hours of them: what of these was lost is
    unknown.
    """

    groups: Annotated[Mapping[str, str], Column(groups=GROUPS)]
    amounts: GoodputAmounts
    unwatched: int = 0

    @property
    def is_watched(self) -> bool:
        """Whether anything is known of what was lost."""
        return is_loss_known(self.amounts, self.unwatched)

    @property
    def allocated_gpu_hours(self) -> Annotated[float, _column("Allocated", "Held by pods.")]:
        return hours(self.amounts.allocated)

    @property
    def starting_gpu_hours(
        self,
    ) -> Annotated[
        float, _column("Starting", "Bound, and no container ran yet: image pull, load.")
    ]:
        return hours(self.amounts.starting)

    @property
    def lost_gpu_hours(
        self,
    ) -> Annotated[
        float | None,
        Column(
            *(
                "Lost",
                "GPU-h",
                "Runs that failed or were preempted, since their checkpoint.",
            ),
            api_note="Null where no watch saw the pods; else of those that one saw, and what "
            "series tell of others.",
        ),
    ]:
        return hours(self.amounts.lost) if self.is_watched else None

    @property
    def unwatched_gpu_hours(
        self,
    ) -> Annotated[
        float, _column("Not watched", "Of pods that no watch saw: what was lost is unknown.")
    ]:
        return hours(self.unwatched)

    @property
    def idle_gpu_hours(self) -> Annotated[float, _column("Idle", "Of work that was not lost.")]:
        return hours(self.amounts.idle)

    @property
    def underused_gpu_hours(
        self,
    ) -> Annotated[float, _column("Underutilized", "Of work that was not lost.")]:
        return hours(self.amounts.underused)

    @property
    def productive_gpu_hours(
        self,
    ) -> Annotated[float, _column("Productive", "Active in work that was not lost.")]:
        return hours(self.amounts.productive)

    @property
    def unmeasured_gpu_hours(
        self,
    ) -> Annotated[float, _column("No metrics", "Of work that was not lost.")]:
        return hours(self.amounts.unmeasured)

    @property
    def goodput_ratio(
        self,
    ) -> Annotated[
        float | None,
        Column(
            *("Goodput", "%", "Productive ÷ (allocated − no metrics)."),
            api_note="0..1. Null where the divisor is zero, or lost is.",
        ),
    ]:
        return self.amounts.goodput_ratio if self.is_watched else None


@dataclass(frozen=True, slots=True)
class LostReasonRow:
    """What failures of one reason cost: the sum of all is what was lost.

    A failure of before the window, or after it, counts where it cost some of the window.
    """

    cause: Annotated[LossCause, Column("Cause", help="The class of its reason.")]
    reason: Annotated[
        str, Column("Reason", help="As Kubernetes says. Restarted: the exit was not seen.")
    ]
    events: Annotated[int, Column("Events", help="Runs that were lost, in part at least.")]
    pods: Annotated[int, Column("Pods", help="Pods of which a run was lost.")]
    lost_gpu_hours: Annotated[float, Column("Lost", "GPU-h")]


@dataclass(frozen=True, slots=True)
class GoodputLedger:
    """The groups of a window in order, the reasons, most lost first, and the ledger by period.

    `unwatched_by_period` is what pods that no watch saw held of a period, nano-GPU-hours.
    """

    rows: Sequence[GoodputRow]
    reasons: Sequence[LostReasonRow]
    periods: Mapping[datetime, GoodputAmounts] = field(default_factory=dict)
    unwatched_by_period: Mapping[datetime, int] = field(default_factory=dict)

    def lost_in(self, period: datetime) -> int | None:
        """Return what was lost of the period that starts so, nano-GPU-hours; None: not known."""
        amounts = self.periods[period]
        # A period is judged by itself: a watch that began in the window tells nothing of before.
        if not is_loss_known(amounts, self.unwatched_by_period.get(period, 0)):
            return None if amounts.allocated else 0
        return amounts.lost

    @property
    def total(self) -> GoodputAmounts:
        """The sum of all groups."""
        sums = [sum(column) for column in zip(*(row.amounts for row in self.rows), strict=True)]
        return GoodputAmounts(*sums) if sums else GoodputAmounts(0, 0, 0, 0, 0, 0, 0)

    @property
    def unwatched(self) -> int:
        """What pods that no watch saw had allocated, nano-GPU-hours."""
        return sum(row.unwatched for row in self.rows)

    @property
    def is_watched(self) -> bool:
        """Whether anything is known of what was lost."""
        return is_loss_known(self.total, self.unwatched)


def goodput_ledger(
    window: Window,
    *,
    group_by: Sequence[Grouping],
    filters: Filters,
    visibility: Visibility,
    zone: ZoneInfo | None = None,
    interval: TimeStep = TimeStep.TOTAL,
) -> GoodputLedger:
    """Return the goodput ledger of a window, by group; `zone` is the report's.

    Only work of teams that the reader sees, whatever it is grouped by. Allocated and starting are
    those of `usage_rows`. With an `interval` it has all of it by period as well, by the start of
    the period in UTC. Sixteen queries at most, and six for periods.
    Raises GroupingRefused, for windows too of which the hours of pods are no longer kept.
    """
    if window.seconds > HOURLY_DAYS * 86400 + 3600 or not pods_retained(window):
        raise GroupingRefused(
            f"lost work is known where hours are kept by the pod, and at most {HOURLY_DAYS} days "
            "at a time: choose a shorter or a later window"
        )
    seen = _seen(filters, visibility)
    if seen is None:
        return GoodputLedger((), ())
    held = usage_rows(
        UsageQuery(window, group_by=group_by, filters=seen), visibility=visibility, zone=zone
    )
    lost, by_hour, reasons = _lost(window, group_by, seen, visibility)
    unwatched = _unwatched(window, group_by, seen, visibility)
    rows = [_row(row.groups, row.amounts, lost, unwatched) for row in held]
    found = GoodputLedger([row for row in rows if row.amounts.allocated], reasons)
    if interval is TimeStep.TOTAL:
        return found
    whole = usage_rows(UsageQuery(window, interval, filters=seen), visibility=visibility, zone=zone)
    steps = Periods(interval, zone or report().zone)
    return replace(
        found,
        periods=_by_period(whole, by_hour, steps),
        unwatched_by_period=_unwatched_by_period(window, seen, visibility, steps),
    )


def _by_period(
    whole: Sequence[UsageRow],
    lost: Mapping[datetime, RunAmounts],
    periods: Periods,
) -> dict[datetime, GoodputAmounts]:
    """Return the ledger of each period that has facts; `lost` is by hour."""
    sums: defaultdict[datetime, RunAmounts] = defaultdict(RunAmounts)
    for hour, part in lost.items():
        at = periods.start_of(hour).astimezone(UTC)
        sums[at] = sums[at].plus(part)
    starts = ((row.period.astimezone(UTC), row.amounts) for row in whole if row.period)
    return {at: goodput_of(amounts, sums.get(at, RunAmounts())) for at, amounts in starts}


def _seen(filters: Filters, visibility: Visibility) -> Filters | None:
    """Return the filters with the teams that the reader sees; None where that is none."""
    if visibility.everything:
        return filters
    teams = Team.objects.filter(pk__in=visibility.team_ids).order_by("name")
    names = tuple(teams.values_list("name", flat=True))
    names = tuple(name for name in names if not filters.team or name in filters.team)
    return replace(filters, team=names) if names else None


def _row(
    groups: Mapping[str, str], amounts: Amounts, lost: _Lost, unwatched: Mapping[_Names, int]
) -> GoodputRow:
    names = tuple(groups.values())
    own = goodput_of(amounts, total_of(lost.get(names, {}).values()))
    return GoodputRow(groups, own, unwatched.get(names, 0))


def _unwatched(
    window: Window, group_by: Sequence[Grouping], filters: Filters, visibility: Visibility
) -> Mapping[_Names, int]:
    """Return what pods held whose restarts and ends no watch saw, by names of groups."""
    columns = tuple(one.column for one in group_by)
    held = held_by_pods(
        _unseen(window), window, columns=columns, filters=filters, visibility=visibility
    )
    found: defaultdict[_Names, int] = defaultdict(int)
    names_of = _names(group_by, held)
    for ids, amount in held.items():
        found[names_of(ids)] += amount
    return found


def _unseen(window: Window) -> QuerySet[Pod, Pod]:
    # Of one that went in a gap of the watch the end is a guess, and its reason unknown.
    unseen = Q(observed_until__isnull=False) | Q(lost=True)
    return Pod.objects.filter(unseen, bound_at__lt=window.end)


def _unwatched_by_period(
    window: Window, filters: Filters, visibility: Visibility, periods: Periods
) -> dict[datetime, int]:
    """Return what pods that no watch saw held, by the start of the period in UTC. One query."""
    held = held_by_pods(
        _unseen(window), window, columns=("hour",), filters=filters, visibility=visibility
    )
    found: defaultdict[datetime, int] = defaultdict(int)
    for (hour,), amount in held.items():
        found[periods.start_of(hour).astimezone(UTC)] += amount
    return dict(found)


def _lost(
    window: Window, group_by: Sequence[Grouping], filters: Filters, visibility: Visibility
) -> tuple[_Lost, Mapping[datetime, RunAmounts], list[LostReasonRow]]:
    """Return what was lost by names of groups and reason, by hour, and by reason alone."""
    pods = _pods_with_losses(window)
    runs = dict(_runs(pods, window))
    columns = tuple(one.column for one in group_by)
    found: defaultdict[tuple[Any, ...], dict[str, RunAmounts]] = defaultdict(dict)
    by_hour: defaultdict[datetime, RunAmounts] = defaultdict(RunAmounts)
    events: defaultdict[str, set[tuple[int, float]]] = defaultdict(set)
    facts = running_hours(pods, window, columns=columns, filters=filters, visibility=visibility)
    for pod, hour, amounts, *of in facts:
        of_pod = runs.get(pod)
        # A pod that ended between the two queries is lost with the next reading.
        if of_pod is None or not (of_pod.lost or of_pod.waited):
            continue
        own = found[tuple(of)]
        for span, part in lost_in_hour(RunAmounts(*amounts), of_pod, hour.timestamp()).items():
            own[span.reason] = own.get(span.reason, RunAmounts()).plus(part)
            events[span.reason].add((pod, span.failed))
            by_hour[hour] = by_hour[hour].plus(part)
    # Groups that are named alike are one, as those of the usage ledger are.
    named: defaultdict[_Names, dict[str, RunAmounts]] = defaultdict(dict)
    names_of = _names(group_by, found)
    for ids, by_reason in found.items():
        own = named[names_of(ids)]
        for reason, part in by_reason.items():
            own[reason] = own.get(reason, RunAmounts()).plus(part)
    return named, by_hour, _reasons(named, events)


def _names(group_by: Sequence[Grouping], found: Mapping[tuple[Any, ...], object]) -> Any:
    lookup = NameLookup(group_by)
    tables = [lookup.of(one, {ids[place] for ids in found}) for place, one in enumerate(group_by)]
    return lambda ids: tuple(table[pk] for table, pk in zip(tables, ids, strict=True))


def _reasons(
    lost: _Lost, events: Mapping[str, Collection[tuple[int, float]]]
) -> list[LostReasonRow]:
    sums: defaultdict[str, int] = defaultdict(int)
    for by_reason in lost.values():
        for reason, part in by_reason.items():
            sums[reason] += part.total
    ordered = sorted(sums.items(), key=lambda one: (-one[1], one[0]))
    return [
        LostReasonRow(
            *(
                cause_of(reason),
                reason,
                len(events[reason]),
                len({pod for pod, _ in events[reason]}),
            ),
            hours(amount),
        )
        for reason, amount in ordered
    ]


def _pods_with_losses(window: Window) -> QuerySet[Pod, Pod]:
    """Return the pods of the window of which a run was lost, in it or after it."""
    there = Q(ended_at__isnull=True) | Q(ended_at__gte=window.start)
    # A second run: the first one ended in a restart.
    lost = Q(runs__1__isnull=False) | Q(exits__0__isnull=False)
    lost |= Q(ended_at__isnull=False) & ~Q(end_reason__in=NOTHING_LOST)
    return Pod.objects.filter(there, lost, bound_at__lt=window.end)


def _runs(pods: QuerySet[Pod, Pod], window: Window) -> Iterator[tuple[int, PodRuns]]:
    """Yield each pod's runs. One query."""
    columns = ("pk", "bound_at", "ended_at", "end_reason", "runs", "exits", "checkpoints")
    for row in pods.order_by().values_list(*columns).iterator():
        pk, bound, ended, reason, spans, exits, checkpoints = row
        # What is known of a pod that lasts goes on after the window: its runs end where they do.
        times = [at for span in spans for at in span if at is not None]
        until = ended.timestamp() if ended else max(window.end_seconds, *times, 0.0)
        history = PodHistory(
            (bound.timestamp(), until),
            ended=ended is not None,
            reason=reason,
            spans=spans,
            exits=[(at, why) for at, why in exits or ()],
            checkpoints=checkpoints or (),
        )
        yield pk, runs_of(history)
