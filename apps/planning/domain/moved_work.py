"""Recorded work that requests something else: replayed beside the work as it was.

Moved work runs as long as it did: how fast it runs on a part of a GPU, or beside others, was never
seen.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.domain.names import ONE_OFF
from apps.planning.domain.cluster_replay.backtest import (
    ALL_TIERS,
    TierTimes,
    TimesRow,
    WorkTimes,
    replayed_times,
    tier_times,
    times_row,
)
from apps.planning.domain.cluster_replay.engine import replay_cluster
from apps.planning.domain.cluster_replay.inputs import Labels, RecordedWork, ReplayNode
from apps.planning.domain.policy_effects import RecordedWeeks
from apps.planning.domain.recorded.constraints import TAINTS, needed_taints
from apps.planning.domain.recorded.works import OwnerKey, family_of


class OtherRequest(Struct, frozen=True):
    """Units of a tier that each pod requests instead, each `share` of a GPU.

    `resource` is what counts them in quotas, `node_selector` the tier's node labels.
    """

    tier: str
    resource: str
    units: float
    share: float
    node_selector: Mapping[str, str]


class MoveEffects(Struct, frozen=True):
    """The tiers that a move concerns, together, without and with it; and the moved work.

    `freed_gpu_hours` is what moved work holds less while it runs, `held_gpu_hours` what it holds
    then. `started` of the `works` ran with the move.
    """

    before: TimesRow
    after: TimesRow
    freed_gpu_hours: float
    held_gpu_hours: float
    works: int
    started: int


class MoveReplay:
    """Recorded weeks replayed as they were, once, and with work of one owner moved.

    `owners` are those of the works, in the same order.
    """

    def __init__(self, weeks: RecordedWeeks, owners: Sequence[OwnerKey]) -> None:
        self._weeks = weeks
        self._families = [_judged(owner) for owner in owners]

    @cached_property
    def _before(self) -> list[WorkTimes]:
        return self._replayed(self._weeks.works)

    def offers(self, tier: str, node_selector: Mapping[str, str]) -> bool:
        """Say whether a node that has these labels offers the tier."""
        return bool(_offering(self._weeks.cluster.nodes, tier, node_selector))

    def moved(self, owner: OwnerKey, tier: str, then: OtherRequest) -> dict[int, RecordedWork]:
        """Return the works of an owner, or of its family, that move from a tier, by their place."""
        return {
            number: self._moved(work, then)
            for number, work in enumerate(self._weeks.works)
            if work.tier == tier
            and self._families[number] == _judged(owner)
            # What requests no more than that already stays as it is.
            and (then.tier != tier or work.units > then.units)
        }

    def effects(self, owner: OwnerKey, tier: str, then: OtherRequest) -> MoveEffects | None:
        """Return what comes of it when work of an owner moves; None where none was recorded."""
        moved = self.moved(owner, tier, then)
        if not moved:
            return None
        works = [moved.get(number, work) for number, work in enumerate(self._weeks.works)]
        after = self._replayed(works)
        for number, work in moved.items():
            gpus = then.share * work.total_units
            after[number] = after[number]._replace(tier=then.tier, gpus=gpus)
        held = {number: self._held_hours(after[number]) for number in moved}
        tiers = {tier, then.tier}
        return MoveEffects(
            before=times_row(self._together(self._before, tiers)),
            after=times_row(self._together(after, tiers)),
            freed_gpu_hours=sum(
                (self._weeks.happened[number].gpus - after[number].gpus) * hours
                for number, hours in held.items()
            ),
            held_gpu_hours=sum(after[number].gpus * hours for number, hours in held.items()),
            works=len(moved),
            started=sum(after[number].started_at is not None for number in moved),
        )

    def _replayed(self, works: Sequence[RecordedWork]) -> list[WorkTimes]:
        weeks = self._weeks
        found = replay_cluster(works, weeks.cluster, weeks.policy, start=weeks.start, end=weeks.end)
        return replayed_times(found.played, weeks.happened, end=weeks.end)

    def _moved(self, work: RecordedWork, then: OtherRequest) -> RecordedWork:
        if then.tier == work.tier:
            return replace(work, units=then.units)
        return replace(
            work,
            tier=then.tier,
            units=then.units,
            resource=then.resource,
            requires=self._requires(work.requires, then),
            # It ran elsewhere; what runs there already comes first as the weeks begin.
            nodes=(),
            running=False,
        )

    def _requires(self, before: Labels, then: OtherRequest) -> Labels:
        """Return the labels of nodes for moved work: those of the tier, and its own that fit it."""
        nodes = _offering(self._weeks.cluster.nodes, then.tier, then.node_selector)
        kept = {
            key: value
            for key, value in before
            # Labels of the tier that it leaves go with that.
            if key != TAINTS and any(node.labels.get(key) == value for node in nodes)
        }
        taints = needed_taints(self._weeks.cluster.nodes, then.tier)
        return tuple(sorted({**kept, **then.node_selector, **dict(taints)}.items()))

    def _together(self, times: Sequence[WorkTimes], tiers: Collection[str]) -> TierTimes:
        own = (one for one in times if one.tier in tiers)
        sums = tier_times(own, start=self._weeks.start, end=self._weeks.end)
        return sums.get(ALL_TIERS, TierTimes())

    def _held_hours(self, one: WorkTimes) -> float:
        sums = tier_times([one], start=self._weeks.start, end=self._weeks.end)
        return sums[one.tier].allocated_gpu_hours / one.gpus


def _judged(owner: OwnerKey) -> OwnerKey:
    """Return whom a recommendation judges: work that runs once together with its family."""
    namespace, kind, _ = owner
    return (namespace, kind, family_of(owner)) if kind in ONE_OFF else owner


def _offering(
    nodes: Sequence[ReplayNode], tier: str, labels: Mapping[str, str]
) -> list[ReplayNode]:
    return [
        node
        for node in nodes
        if any(device.tier == tier for device in node.devices)
        and all(node.labels.get(key) == value for key, value in labels.items())
    ]
