"""The goodput ledger by group, and what was lost by reason."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from apps.accounts.models import Team
from apps.accounts.permissions import Visibility
from apps.clusters.domain.columns import Column
from apps.clusters.domain.window import Window
from apps.clusters.selectors import report
from apps.goodput.domain.ledger import (
    GoodputAmounts,
    LossCause,
    RunAmounts,
    cause_of,
    goodput_of,
    is_loss_known,
    total_of,
)
from apps.goodput.selectors.kept_losses import Losses, LossQuery
from apps.goodput.selectors.loss_context import LossContext
from apps.usage.domain.amounts import Amounts, hours
from apps.usage.domain.usage_query import (
    GROUPS,
    Filters,
    Grouping,
    Periods,
    TimeStep,
    UsageQuery,
    UsageRow,
)
from apps.usage.selectors import (
    HOURLY_DAYS,
    NameLookup,
    pods_retained,
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


def _known(label: str, note: str) -> Column:
    return Column(label, help=note, api_note="Null where none could be checked.", absent="no data")


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
    xid_events: Annotated[
        int | None, _known("After XID", "A GPU of the pod showed one in the 10 minutes before.")
    ] = None
    not_ready_events: Annotated[
        int | None, _known("Node not ready", "Events while the node was not ready.")
    ] = None
    cordoned_events: Annotated[
        int | None, _known("Node cordoned", "Events while the node was cordoned.")
    ] = None
    xid_checked_events: Annotated[
        int | None,
        Column(
            *("Checked for XIDs", "", "Events of pods whose GPUs and XIDs are known."),
            off_page=True,
            api_note="Null where it is not known.",
        ),
    ] = None
    node_checked_events: Annotated[
        int | None,
        Column(
            *("Checked for nodes", "", "Events while a watch saw the node."),
            off_page=True,
            api_note="Null where it is not known.",
        ),
    ] = None


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
    the period in UTC. Longer windows than 92 days, and those of which the hours of pods are not
    kept, are read by the day; what is by node or hour is known where hours are. Twenty-one queries
    at most, six for periods, and three for each span beside kept days. Raises GroupingRefused.
    """
    seen = _seen(filters, visibility)
    if seen is None:
        return GoodputLedger((), ())
    zone = zone or report().zone
    held = usage_rows(
        UsageQuery(window, group_by=group_by, filters=seen), visibility=visibility, zone=zone
    )
    query = LossQuery(window, group_by, seen, visibility, interval)
    is_short = window.seconds <= HOURLY_DAYS * 86400 + 3600
    found = query.losses_by_hour() if is_short and pods_retained(window) else query.losses_by_day()
    lost, unwatched = _named(group_by, found)
    rows = [_row(row.groups, row.amounts, lost, unwatched) for row in held]
    ledger = GoodputLedger([row for row in rows if row.amounts.allocated], _reasons(lost, found))
    if interval is TimeStep.TOTAL:
        return ledger
    whole = usage_rows(UsageQuery(window, interval, filters=seen), visibility=visibility, zone=zone)
    steps = Periods(interval, zone)
    unwatched_by_period: Counter[datetime] = Counter()
    for at, amount in found.unwatched_by_time.items():
        unwatched_by_period[steps.start_of(at).astimezone(UTC)] += amount
    return replace(
        ledger,
        periods=_by_period(whole, found.by_time, steps),
        unwatched_by_period=unwatched_by_period,
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


def _named(group_by: Sequence[Grouping], found: Losses) -> tuple[_Lost, Mapping[_Names, int]]:
    """Return what was lost by names of groups and reason, and what was not watched by names."""
    # Groups that are named alike are one, as those of the usage ledger are.
    named: defaultdict[_Names, dict[str, RunAmounts]] = defaultdict(dict)
    names_of = _names(group_by, (*found.by_group, *found.unwatched))
    for ids, by_reason in found.by_group.items():
        own = named[names_of(ids)]
        for reason, part in by_reason.items():
            own[reason] = own.get(reason, RunAmounts()).plus(part)
    unwatched = Counter(found.unkept)
    for ids, amount in found.unwatched.items():
        unwatched[names_of(ids)] += amount
    return named, unwatched


def _names(group_by: Sequence[Grouping], found: Sequence[tuple[Any, ...]]) -> Any:
    lookup = NameLookup(group_by)
    tables = [lookup.of(one, {ids[place] for ids in found}) for place, one in enumerate(group_by)]
    return lambda ids: tuple(table[pk] for table, pk in zip(tables, ids, strict=True))


def _reasons(lost: _Lost, found: Losses) -> list[LostReasonRow]:
    sums: defaultdict[str, int] = defaultdict(int)
    for by_reason in lost.values():
        for reason, part in by_reason.items():
            sums[reason] += part.total
    ordered = sorted(sums.items(), key=lambda one: (-one[1], one[0]))
    return [
        LostReasonRow(
            *(cause_of(reason), reason, found.events[reason], found.pods[reason], hours(amount)),
            **_context(found.contexts.get(reason)),
        )
        for reason, amount in ordered
    ]


def _context(found: LossContext | None) -> dict[str, Any]:
    """Return the columns on GPUs and nodes; None where nothing could be checked, and not zero."""
    own = found or LossContext()
    known: dict[str, int | None] = {}
    if own.xid_checked:
        known |= {"xid_events": own.xid}
    if own.node_checked:
        known |= {"not_ready_events": own.not_ready, "cordoned_events": own.cordoned}
    if found:
        known |= {
            "xid_checked_events": own.xid_checked,
            "node_checked_events": own.node_checked,
        }
    return known
