"""Buy, return, move or share GPUs: what the forecast and the replays of a tier suggest."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import pairwise
from math import ceil, floor, isclose

from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.pending.domain.day_sums import nearest_rank
from apps.planning.domain.forecast import WEEK, Forecast
from apps.planning.domain.replay import ReplayWork, TierPlan, replay

_HOUR = 3600.0
# Below this part of all demand unmet demand is ignored: work that starts in minutes has some.
_UNMET_TO_ACT = 0.01
# The part of today's unmet demand that a purchase may leave: the last tenth costs most.
_LEFT_AFTER = 0.1
_SIZES = (-0.5, -0.25, -0.1, -0.05, 0.05, 0.1, 0.25, 0.5, 1.0)


class CaseAction(StrEnum):
    BUY = "buy"
    RETURN = "return"
    MOVE = "move"
    SHARE = "share"
    KEEP = "keep"


class BookedGpus(Struct, frozen=True):
    """GPUs that a booking adds to a tier from `start` until `end`."""

    gpus: float
    start: datetime
    end: datetime


def booked_by_day(bookings: Iterable[BookedGpus], days: Sequence[datetime]) -> tuple[float, ...]:
    """Return the mean GPUs booked on each day; `days` are their starts and the end of the last.

    The days lie without gap; there is one number less than edges.
    """
    known = list(bookings)
    return tuple(
        sum(
            one.gpus * max(0.0, (min(one.end, end) - max(one.start, start)) / (end - start))
            for one in known
        )
        for start, end in pairwise(days)
    )


class SizePoint(Struct, frozen=True):
    """The last days of a tier, replayed with `gpus` of capacity; GPU-hours and seconds.

    `p95_seconds` is None where no work started.
    """

    gpus: float
    demand_gpu_hours: float
    allocated_gpu_hours: float
    unmet_gpu_hours: float
    p95_seconds: float | None


class SpotInterruptions(Struct, frozen=True):
    """Spot nodes of a tier that vanished in the last weeks, over `days` days that are known.

    `in_use` of the `nodes` held GPUs of pods until they vanished, or shortly before.
    """

    nodes: int
    in_use: int
    days: int

    @property
    def per_month(self) -> float:
        """Those that were in use, in 30 days."""
        return self.in_use * 30 / self.days


class TierOutlook(Struct, frozen=True):
    """What is known of a tier's demand: days so far, days to come, and other sizes replayed.

    `demand` and `capacity` are mean GPUs of each day so far, the oldest first, None without data;
    `capacity_now` is that of the newest day. `unused` are allocated GPUs that are not active, the
    mean of the last weeks, `utilization` a fraction; None where nothing was measured.
    `allocation_by_hour` is the mean allocation ratio of each hour of the week from Monday 0:00 on,
    empty without data. `not_replayed` says why there are no `sizes`. `first_day` is an ISO date.
    `booked` are the mean GPUs of bookings on each day of the forecast, empty where there are none:
    they come and go, so they are no part of it. `recorded_unmet_gpu_hours` were pending for want of
    capacity, quota or a queue in the days that are replayed: what their replay is held against.
    `spot_interruptions` is None where the watch recorded no spot node in these days.
    """

    tier: str
    first_day: str
    demand: tuple[float | None, ...]
    capacity: tuple[float | None, ...]
    capacity_now: float
    gpu_models: tuple[str, ...] = ()
    unused: float | None = None
    utilization: float | None = None
    forecast: Forecast | None = None
    sizes: tuple[SizePoint, ...] = ()
    replayed_days: int = 0
    recorded_unmet_gpu_hours: float | None = None
    not_replayed: str = ""
    spot_ratio: float | None = None
    spot_interruptions: SpotInterruptions | None = None
    allocation_by_hour: tuple[float | None, ...] = ()
    booked: tuple[float, ...] = ()

    @property
    def ahead(self) -> tuple[float, float, float] | None:
        """The mean of the last week that is forecast: low, middle, high."""
        if self.forecast is None:
            return None
        low, middle, high = (
            # A week, so that every weekday counts once; a short forecast may have fewer days.
            sum(line[-WEEK:]) / len(line[-WEEK:])
            for line in (self.forecast.low, self.forecast.middle, self.forecast.high)
        )
        return low, middle, high

    @property
    def with_bookings(self) -> tuple[float, ...]:
        """The forecast of each day, plus its bookings as if they were used in full."""
        if self.forecast is None or not any(self.booked):
            return ()
        days = zip(self.forecast.middle, self.booked, strict=True)
        return tuple(middle + booked for middle, booked in days)

    @property
    def booked_peak(self) -> float:
        """The most GPUs of a day in which something is booked, with its forecast; 0 without one."""
        days = zip(self.with_bookings, self.booked, strict=False)
        return max((gpus for gpus, booked in days if booked), default=0.0)

    @property
    def as_it_is(self) -> SizePoint | None:
        """The replay with the capacity of today."""
        # Stored as JSON, so the last digits are not relied on.
        return next((one for one in self.sizes if isclose(one.gpus, self.capacity_now)), None)


class PoolLimit(Struct, frozen=True):
    """How many GPUs of a tier a NodePool may have, and has; `most_gpus` None: any number.

    `consolidation` is when its nodes go, in Karpenter's words; empty where it does not say.
    """

    cluster: str
    name: str
    most_gpus: float | None
    used_gpus: float
    consolidation: str = ""


class NodeGroupLimit(Struct, frozen=True):
    """How many nodes a node group of cluster-autoscaler may have, and GPUs of a tier with them.

    `gpus_per_node` is what a node of it has now; None, with an empty `tier`: no node tells. Nodes
    are None where the status does not tell them. `room_nodes` is how many it may still add.
    """

    cluster: str
    name: str
    tier: str
    least_nodes: int | None
    most_nodes: int | None
    ready_nodes: int | None
    room_nodes: int | None
    gpus_per_node: float | None

    @property
    def room_gpus(self) -> float | None:
        if self.room_nodes is None or self.gpus_per_node is None:
            return None
        return self.room_nodes * self.gpus_per_node


def room_of_groups(groups: Sequence[NodeGroupLimit]) -> float | None:
    """Return how many GPUs node groups may still add; None where one does not tell, or none is."""
    rooms = [group.room_gpus for group in groups]
    known = [room for room in rooms if room is not None]
    return sum(known) if known and len(known) == len(rooms) else None


def room_of(pools: Sequence[PoolLimit]) -> float | None:
    """Return how many GPUs pools may still add; None where one may add any, or there is none."""
    if not pools or any(pool.most_gpus is None for pool in pools):
        return None
    # A limit that was lowered below what there is takes nothing from another pool's room.
    return sum(max(0.0, (pool.most_gpus or 0.0) - pool.used_gpus) for pool in pools)


class CapacityCase(Struct, frozen=True):
    """One action on a tier; `gpus` to buy, return, move to `to_tier`, or win by sharing.

    `before` and `after` are the replays that it rests on, of the tier that gets or gives the GPUs.
    """

    tier: str
    action: CaseAction
    gpus: int = 0
    to_tier: str = ""
    before: SizePoint | None = None
    after: SizePoint | None = None


def replay_size(
    works: Sequence[ReplayWork], plan: TierPlan, gpus: float, *, start: float, end: float
) -> SizePoint:
    """Replay the works of a tier from `start` to `end` (Unix seconds) with `gpus` of capacity."""
    pending = allocated = 0.0
    queue_times: Counter[float] = Counter()
    for work, started_at, ended_at in replay(
        works, replace(plan, capacity=gpus), start=start, end=end
    ):
        # Time before the window is in no sum, of running work neither.
        asked_at = start if work.running else max(start, work.asked_at)
        until = end if ended_at is None else min(end, ended_at)
        began = until if started_at is None else started_at
        pending += work.gpus * max(0.0, began - asked_at)
        allocated += work.gpus * max(0.0, until - began)
        # A queue's demand is a mean of half an hour, without a queue time of its parts.
        if started_at is not None and not work.running and not work.of_queue:
            queue_times[started_at - work.asked_at] += 1
    return SizePoint(
        gpus,
        demand_gpu_hours=(pending + allocated) / _HOUR,
        allocated_gpu_hours=allocated / _HOUR,
        unmet_gpu_hours=pending / _HOUR,
        p95_seconds=nearest_rank(queue_times, (0.95,))[0] if queue_times else None,
    )


def with_typical_runs(works: Sequence[ReplayWork]) -> list[ReplayWork]:
    """Return the works, where those that were canceled before their start run as the median does.

    With more GPUs they would have started, but how long they would have run is not known. Without
    any known run they hold their GPUs to the end.
    """
    runs = sorted(work.runs_seconds for work in works if work.runs_seconds is not None)
    if not runs:
        return list(works)
    # A run that happened, not the mean of the middle two.
    typical = runs[len(runs) // 2]
    return [
        replace(work, runs_seconds=typical)
        if work.runs_seconds is None and work.leaves_at is not None
        else work
        for work in works
    ]


def sizes_to_replay(capacity: float) -> list[float]:
    """Return the numbers of GPUs to replay a tier with: as it is, and up to twice as many."""
    # A tier of few GPUs is tried with one more and one less at least.
    steps = {round(capacity * part) or (1 if part > 0 else -1) for part in _SIZES}
    found = {capacity + step for step in steps}
    return sorted({capacity, *(gpus for gpus in found if gpus > 0)})


def capacity_cases(outlooks: Iterable[TierOutlook]) -> list[CapacityCase]:
    """Return one case or two of each tier, in their order; none where too little is known.

    GPUs that one tier can return are moved to one of the same GPU model that needs some, before
    any are bought. Allocated GPUs that are not active are shared before any are bought.
    """
    known = list(outlooks)
    wanted = {one.tier: case for one in known if (case := _to_buy(one))}
    spare = {one.tier: case for one in known if (case := _to_return(one))}
    moves = _moves(known, wanted, spare)
    found: list[CapacityCase] = []
    for one in known:
        own = [move for move in moves if move.tier == one.tier]
        buy, back = wanted.get(one.tier), spare.get(one.tier)
        if buy is not None and buy.gpus > 0:
            own += _share_and_buy(one, buy)
        if back is not None and back.gpus > 0:
            own.append(back)
        is_known = one.ahead is not None and one.as_it_is is not None
        is_served = any(move.to_tier == one.tier for move in moves)
        if is_known and not own and not is_served:
            own = [CapacityCase(one.tier, CaseAction.KEEP)]
        found += own
    return found


def _to_buy(tier: TierOutlook) -> CapacityCase | None:
    """Return what would meet the forecast, or all but a tenth of what the replay left unmet."""
    now, ahead = tier.as_it_is, tier.ahead
    of_forecast = 0 if ahead is None else max(0, ceil(ahead[1] - tier.capacity_now))
    after = None
    if now is not None and now.unmet_gpu_hours > _UNMET_TO_ACT * now.demand_gpu_hours:
        enough = _LEFT_AFTER * now.unmet_gpu_hours
        larger = [one for one in tier.sizes if one.gpus > tier.capacity_now]
        after = next((one for one in larger if one.unmet_gpu_hours <= enough), None)
        # Even twice as many do not suffice: the most that was replayed is what is known to help.
        after = after or (larger[-1] if larger else None)
    of_replay = 0 if after is None else round(after.gpus - tier.capacity_now)
    gpus = max(of_forecast, of_replay)
    if not gpus:
        return None
    return CapacityCase(tier.tier, CaseAction.BUY, gpus, before=now, after=after)


def _to_return(tier: TierOutlook) -> CapacityCase | None:
    """Return what neither the forecast's high end, bookings nor the replayed days needed."""
    now, ahead = tier.as_it_is, tier.ahead
    if now is None or ahead is None:
        return None
    most = now.unmet_gpu_hours + _UNMET_TO_ACT * now.demand_gpu_hours
    # GPUs that are bought for a booking stay when it is over, so bookings only keep some here.
    least = max(ahead[2], tier.booked_peak)
    smaller = [
        one
        for one in tier.sizes
        if least <= one.gpus < tier.capacity_now and one.unmet_gpu_hours <= most
    ]
    if not smaller:
        return None
    # Down: a GPU that is partly needed is not returned.
    gpus = floor(tier.capacity_now - smaller[0].gpus + 1e-9)
    return CapacityCase(tier.tier, CaseAction.RETURN, gpus, before=now, after=smaller[0])


def _moves(
    tiers: Sequence[TierOutlook],
    wanted: dict[str, CapacityCase],
    spare: dict[str, CapacityCase],
) -> list[CapacityCase]:
    """Return what goes from tier to tier, and take it off what is `wanted` and `spare`."""
    models: Mapping[str, frozenset[str]] = {t.tier: frozenset(t.gpu_models) for t in tiers}
    found = []
    for to, need in wanted.items():
        for giver, back in spare.items():
            gpus = min(wanted[to].gpus, spare[giver].gpus)
            if gpus > 0 and models[to] & models[giver]:
                found.append(
                    CapacityCase(giver, CaseAction.MOVE, gpus, to, need.before, need.after)
                )
                wanted[to] = replace(wanted[to], gpus=wanted[to].gpus - gpus)
                spare[giver] = replace(back, gpus=spare[giver].gpus - gpus)
    return found


def _share_and_buy(tier: TierOutlook, wanted: CapacityCase) -> list[CapacityCase]:
    """Return what sharing can give of what is wanted, and the rest to buy: no GPU is in both."""
    # Sharing wins whole GPUs only where as many are unused; without metrics none are.
    shared = min(wanted.gpus, floor(tier.unused or 0.0))
    bought = wanted.gpus - shared
    own = [replace(wanted, action=CaseAction.SHARE, gpus=shared)] if shared > 0 else []
    return [*own, replace(wanted, gpus=bought)] if bought > 0 else own
