"""The goodput ledger by group, and what was lost by reason."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple
from zoneinfo import ZoneInfo

from msgspec import Struct, field

from apps.accounts.domain.structs import replace
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
from apps.goodput.selectors.kept_losses import POOL, Losses, LossQuery
from apps.goodput.selectors.loss_context import LossContext
from apps.usage.domain.amounts import Amounts, hours
from apps.usage.domain.usage_query import (
    BEGINNING,
    GROUPS,
    Filters,
    Grouping,
    Periods,
    TimeStep,
    UsageQuery,
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


class GoodputRow(Struct, frozen=True):
    """What became of the GPU-hours that a group had allocated; the six parts sum to them.

    Pods that no watch saw held `unwatched` nano-GPU-hours of them: what of these was lost is
    unknown. `period` carries the report zone's offset.
    """

    period: Annotated[
        datetime | None,
        Column(
            help="Start of the period with the report zone's offset.",
            api_note="Null without an interval.",
            keep_offset=True,
        ),
    ]
    groups: Annotated[Mapping[str, str], Column(groups=GROUPS)]
    amounts: GoodputAmounts
    unwatched: int = 0

    @property
    def is_watched(self) -> bool:
        """Whether anything is known of what was lost; of nothing, nothing was."""
        return not self.amounts.allocated or is_loss_known(self.amounts, self.unwatched)

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


def _known(label: str, note: str, unit: str = "") -> Column:
    return Column(label, unit, note, api_note="Null where none could be checked.", absent="no data")


class LostReasonRow(Struct, frozen=True):
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
    checkpointed_events: Annotated[
        int | None,
        Column(
            *("From checkpoint", "", "Events of runs with a known checkpoint: lost since then."),
            api_note="Null where it is read by the day.",
            absent="no data",
        ),
    ] = None
    xid_events: Annotated[
        int | None, _known("After XID", "A GPU of the pod showed one in the 10 minutes before.")
    ] = None
    xid_lost_gpu_hours: Annotated[
        float | None, _known("Lost after XID", "What these events cost.", "GPU-h")
    ] = None
    not_ready_events: Annotated[
        int | None, _known("Node not ready", "Events while the node was not ready.")
    ] = None
    not_ready_lost_gpu_hours: Annotated[
        float | None, _known("Lost, not ready", "What events on such nodes cost.", "GPU-h")
    ] = None
    cordoned_events: Annotated[
        int | None, _known("Node cordoned", "Events while the node was cordoned.")
    ] = None
    cordoned_lost_gpu_hours: Annotated[
        float | None, _known("Lost, cordoned", "What events on such nodes cost.", "GPU-h")
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


class PoolLoss(NamedTuple):
    """What one reason cost a pool in the hour that begins at `at`, nano-GPU-hours.

    With `of_day` it is that of the whole day, and `pool_losses_by_hour` has it by the hour.
    """

    reason: str
    at: datetime
    cluster: str
    tier: str
    gpu_model: str
    capacity_type: str
    amount: int
    of_day: bool = False


class GoodputLedger(Struct, frozen=True):
    """The groups of a window in order, the reasons, most lost first, and the ledger by period.

    `periods` are of all groups together, by their start in UTC. Each is judged by itself: a watch
    that began in the window tells nothing of before. `pools` are the reasons once more, by pool
    and time; `query` is what they answer, None where the reader sees no team.
    """

    rows: Sequence[GoodputRow]
    reasons: Sequence[LostReasonRow]
    periods: Mapping[datetime, GoodputRow] = field(default_factory=dict)
    pools: Sequence[PoolLoss] = ()
    query: LossQuery | None = None

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
    query = LossQuery(window, group_by, seen, visibility, interval, by_pool=True)
    found = _losses(query)
    lost, unwatched = _named(group_by, found)
    rows = [_row(row.groups, row.amounts, lost, unwatched) for row in held]
    ledger = GoodputLedger(
        [row for row in rows if row.amounts.allocated],
        _reasons(lost, found),
        pools=_pools(found.by_pool, found.whole_days),
        query=query,
    )
    if interval is TimeStep.TOTAL:
        return ledger
    asked = UsageQuery(window, interval, filters=seen)
    periods = _by_period(asked, found, visibility, zone)
    return replace(
        ledger, periods={row.period.astimezone(UTC): row for row in periods if row.period}
    )


def goodput_by_period(
    asked: UsageQuery, *, visibility: Visibility, zone: ZoneInfo | None = None
) -> list[GoodputRow]:
    """Return the goodput ledger by period and group, in the order of `usage_rows`.

    As `goodput_ledger`, of which a period has the part: its groups, over all periods, sum to those
    there. A period that was collected and had nothing allocated has a row of zeros without groups,
    and none with them. Queries as of `goodput_ledger` at most. Raises GroupingRefused.
    """
    by, filters = asked.group_by, asked.filters
    if asked.interval is TimeStep.TOTAL:
        found = goodput_ledger(
            asked.window, group_by=by, filters=filters, visibility=visibility, zone=zone
        )
        return list(found.rows)
    seen = _seen(filters, visibility)
    if seen is None:
        return []
    asked = replace(asked, filters=seen)
    query = LossQuery(asked.window, by, seen, visibility, asked.interval, groups_by_time=True)
    rows = _by_period(asked, _losses(query), visibility, zone or report().zone)
    return [row for row in rows if row.amounts.allocated or not by]


def _losses(query: LossQuery) -> Losses:
    # A day with 25 hours is still one of the days.
    is_short = query.window.seconds <= HOURLY_DAYS * 86400 + 3600
    if is_short and pods_retained(query.window):
        return query.losses_by_hour()
    return query.losses_by_day()


def _by_period(
    asked: UsageQuery, found: Losses, visibility: Visibility, zone: ZoneInfo
) -> list[GoodputRow]:
    """Return the ledger of each period and group that has facts."""
    steps = Periods(asked.interval, zone)
    lost: defaultdict[tuple[datetime, _Names], RunAmounts] = defaultdict(RunAmounts)
    unwatched: Counter[tuple[datetime, _Names]] = Counter()
    names_of = _names(
        asked.group_by, [ids for _, ids in (*found.by_time, *found.unwatched_by_time)]
    )

    def place(at: datetime, names: _Names) -> tuple[datetime, _Names]:
        # In UTC: an hour of autumn has two local times, which equal no others.
        return steps.start_of(at).astimezone(UTC), names

    for (at, ids), part in found.by_time.items():
        key = place(at, names_of(ids))
        lost[key] = lost[key].plus(part)
    for (at, ids), amount in found.unwatched_by_time.items():
        unwatched[place(at, names_of(ids))] += amount
    for (at, names), amount in found.unkept_by_time.items():
        unwatched[place(at, names)] += amount
    rows = []
    # From what was collected: a period in which nothing was lost has a row as well.
    for row in usage_rows(asked, visibility=visibility, zone=zone):
        key = place(row.period or BEGINNING, tuple(row.groups.values()))
        own = goodput_of(row.amounts, lost.get(key, RunAmounts()))
        rows.append(GoodputRow(row.period, row.groups, own, unwatched[key]))
    return rows


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
    return GoodputRow(None, groups, own, unwatched.get(names, 0))


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
            None if found.checkpointed is None else found.checkpointed[reason],
            **_context(found.contexts.get(reason)),
        )
        for reason, amount in ordered
    ]


def pool_losses_by_hour(found: GoodputLedger, days: Collection[datetime]) -> list[PoolLoss]:
    """Return by the hour what `pools` of a ledger have of whole days that begin at these times.

    Four queries, and those for names; none without days.
    """
    if not days or found.query is None:
        return []
    return _pools(found.query.pools_by_hour(days))


def _pools(
    amounts: Mapping[tuple[str, datetime, tuple[Any, ...]], int],
    days: Collection[tuple[datetime, int]] = (),
) -> list[PoolLoss]:
    names_of = _names(POOL, [ids for _, _, ids in amounts])
    # By name, as the price book has them: prices outlive the rows of models and tiers.
    return [
        PoolLoss._make((reason, at, *names_of(ids), amount, (at, ids[0]) in days))
        for (reason, at, ids), amount in amounts.items()
        if amount
    ]


def _context(found: LossContext | None) -> dict[str, Any]:
    """Return the columns on GPUs and nodes; None where nothing could be checked, and not zero."""
    own = found or LossContext()
    known: dict[str, float | None] = {}
    if own.xid_checked:
        known |= {"xid_events": own.xid, "xid_lost_gpu_hours": hours(own.xid_lost)}
    if own.node_checked:
        known |= {
            "not_ready_events": own.not_ready,
            "not_ready_lost_gpu_hours": hours(own.not_ready_lost),
            "cordoned_events": own.cordoned,
            "cordoned_lost_gpu_hours": hours(own.cordoned_lost),
        }
    if found:
        known |= {
            "xid_checked_events": own.xid_checked,
            "node_checked_events": own.node_checked,
        }
    return known
