"""GPUs of a pool that are away at some hours of each week: replayed beside the weeks as they were.

Away are those that nothing held in the same hour of the weeks as they were. Where these are too
few, others go as soon as what holds them ends: nothing is moved or preempted.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from math import ceil, floor

import numpy as np
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.fairness.domain.shares import Array
from apps.planning.domain.cluster_replay.backtest import (
    TierTimes,
    TimesRow,
    replayed_times,
    tier_times,
    times_row,
)
from apps.planning.domain.cluster_replay.engine import replay_cluster
from apps.planning.domain.cluster_replay.inputs import (
    SLACK,
    ClusterReplay,
    MissingUnits,
    ReplayCluster,
)
from apps.planning.domain.policy_effects import RecordedWeeks

_HOUR = 3600.0


class ScaleEffects(Struct, frozen=True):
    """A tier without and with fewer GPUs; `freed_gpu_hours` are away and held by no work."""

    before: TimesRow
    after: TimesRow
    freed_gpu_hours: float


class ScaleReplay:
    """Recorded weeks replayed as they were, once, and with fewer GPUs of one tier's pool."""

    def __init__(self, weeks: RecordedWeeks) -> None:
        self._weeks = weeks
        self._hours = ceil((weeks.end - weeks.start) / _HOUR)

    @cached_property
    def _before(self) -> ClusterReplay:
        return self._replayed(self._weeks.cluster)

    def effects(
        self, tier: str, nodes: Collection[str], gpus: Sequence[float]
    ) -> ScaleEffects | None:
        """Return what comes of it when so many GPUs of these nodes are away, hour by hour.

        None where none of the nodes offers the tier all through. `gpus` has one for each hour.
        """
        pool = {
            place: (sum(own), max(one.weight for one in node.devices if one.tier == tier))
            for place, node in enumerate(self._weeks.cluster.nodes)
            if node.name in nodes
            # Which of their hours lack what already is not told apart from what goes.
            and not node.closed
            and not any(one.tier == tier for one in node.missing)
            and (own := [one.units for one in node.devices if one.tier == tier])
        }
        if not pool:
            return None
        away = self._away(pool, self._held(self._before, tier), gpus)
        found = self._replayed(self._without(tier, away))
        held = self._held(found, tier)
        freed = sum(
            weight * float(np.minimum(away[place], np.maximum(0.0, units - held[place])).sum())
            for place, (units, weight) in pool.items()
        )
        return ScaleEffects(self._row(self._before, tier), self._row(found, tier), freed)

    def _replayed(self, cluster: ReplayCluster) -> ClusterReplay:
        weeks = self._weeks
        return replay_cluster(weeks.works, cluster, weeks.policy, start=weeks.start, end=weeks.end)

    def _row(self, found: ClusterReplay, tier: str) -> TimesRow:
        weeks = self._weeks
        times = replayed_times(found.played, weeks.happened, end=weeks.end)
        own = (one for one in times if one.tier == tier)
        sums = tier_times(own, start=weeks.start, end=weeks.end)
        return times_row(sums.get(tier, TierTimes()))

    def _held(self, found: ClusterReplay, tier: str) -> Array:
        """Return the units of the tier that were held in some part of each hour, by node."""
        held = np.zeros((len(self._weeks.cluster.nodes), self._hours))
        for one in found.played:
            for run in one.runs if one.work.tier == tier else ():
                until = self._weeks.end if run.end is None else run.end
                first = floor((run.start - self._weeks.start) / _HOUR)
                last = ceil((until - self._weeks.start) / _HOUR)
                for part in run.parts:
                    held[part.node, first:last] += part.units
        return held

    def _away(
        self, pool: Mapping[int, tuple[float, float]], held: Array, gpus: Sequence[float]
    ) -> Mapping[int, Array]:
        """Return the units that are away of each node of the pool, by hour."""
        away = {place: np.zeros(self._hours) for place in pool}
        for hour, most in enumerate(gpus):
            left = float(most)
            free = {n: max(0.0, floor(pool[n][0] - held[n, hour] + SLACK)) for n in pool}
            # The emptiest first, and of all what is free before what is held.
            order = sorted(pool, key=lambda place: (-free[place], -place))
            for rooms in (free, {n: units for n, (units, _) in pool.items()}):
                for place in order:
                    weight = pool[place][1]
                    room = rooms[place] - away[place][hour]
                    units = max(0.0, min(room, floor(left / weight + SLACK)))
                    away[place][hour] += units
                    left -= units * weight
        return away

    def _without(self, tier: str, away: Mapping[int, Array]) -> ReplayCluster:
        nodes = [
            replace(node, missing=(*node.missing, *self._spans(tier, away[place])))
            if place in away
            else node
            for place, node in enumerate(self._weeks.cluster.nodes)
        ]
        return replace(self._weeks.cluster, nodes=tuple(nodes))

    def _spans(self, tier: str, units: Array) -> Iterator[MissingUnits]:
        at = self._weeks.start
        for amount, hours in groupby(units.tolist()):
            end = at + _HOUR * len(list(hours))
            if amount:
                yield MissingUnits(at, min(end, self._weeks.end), tier, amount)
            at = end
