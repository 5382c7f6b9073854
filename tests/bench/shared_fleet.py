"""A made-up cluster of which a third of the nodes is exclusive, a third shared, a third MIG.

As many GPUs as another fleet, of the same makings: what sharing costs is told by their difference.
Shared GPUs are time-sliced into four replicas, of which three are given out at a time, and their
exporters repeat a GPU's row for each of its pods (virtual GPUs). MIG GPUs are two 3g.40gb. As
many pods come and go on a GPU as on an exclusive one; the others stay.
"""
# ruff: noqa: S311 - made-up data

from collections.abc import Iterator, Sequence
from itertools import chain
from random import Random

from tests.bench.fleet import (
    GPUS_PER_NODE,
    LAST,
    LEVELS,
    LONG_RUNNING,
    RUN_LENGTH,
    VERSION,
    WHOLE,
    Fleet,
    FleetNode,
    FleetPod,
    Kind,
    Segment,
    paid_for,
    phase_of,
    sample_index,
    segments_of,
)

REPLICAS = 4
TENANTS = 3
PROFILE = "3g.40gb"
TIME_SLICED = Kind(
    "nvidia.com/gpu.shared",
    REPLICAS,
    1 / REPLICAS,
    labels={
        "nvidia.com/gpu.replicas": str(REPLICAS),
        "nvidia.com/gpu.sharing-strategy": "time-slicing",
    },
)
MIG = Kind(
    f"nvidia.com/mig-{PROFILE}",
    2,
    3 / 7,
    PROFILE,
    (1, 2),
    {"nvidia.com/gpu.count": str(GPUS_PER_NODE), "nvidia.com/mig.strategy": "mixed"},
)
KINDS = (WHOLE, TIME_SLICED, MIG)
# A100 and H100 of the models: the others have no such profile.
_MODELS = 2


class SharedFleet(Fleet):
    """A cluster of `gpus` GPUs whose nodes are exclusive, shared and MIG in turn.

    What `slot_truths` says holds of its exclusive nodes alone.
    """

    variant = "shared"

    def _node(self, number: int) -> FleetNode:
        kind = KINDS[number % len(KINDS)]
        if kind is WHOLE:
            return super()._node(number)
        random = Random(f"{kind.resource} {VERSION} {number}")
        phase, model = phase_of(number, random), random.randrange(_MODELS)
        tenants = TENANTS if kind is TIME_SLICED else kind.per_gpu
        staying = 1.0 - (1.0 - LONG_RUNNING) / tenants
        pods: list[FleetPod] = []
        segments: list[Segment] = []
        for gpu in range(GPUS_PER_NODE):
            lanes = []
            for _ in range(tenants):
                before = len(pods)
                pods.extend(self.lane(number, 1, random, before, long=staying))
                lanes.append((before, pods[before:]))
            dealt = _copies if kind is TIME_SLICED else _instances
            segments.extend(dealt(gpu, lanes, phase, random))
        paid = paid_for(random)
        return FleetNode(number, model, paid, phase, tuple(pods), tuple(segments), kind)


_Lanes = Sequence[tuple[int, Sequence[FleetPod]]]
"""Pods that follow one another, and the number of the first of them."""


def _instances(gpu: int, lanes: _Lanes, phase: int, random: Random) -> Iterator[Segment]:
    """Yield a MIG GPU's segments: each instance like a GPU of its own."""
    for instance, (before, lane) in zip(MIG.instances, lanes, strict=True):
        for segment in segments_of(gpu, lane, before, phase, random):
            yield segment.of_instance(instance)


def _copies(gpu: int, lanes: _Lanes, phase: int, random: Random) -> Iterator[Segment]:
    """Yield a shared GPU's segments: its own values under the labels of each pod that runs."""
    level = random.randrange(len(LEVELS))
    end = sample_index(LAST, phase)
    offset = random.randrange(RUN_LENGTH - end)
    taken: list[tuple[int, int]] = []
    for replica, (before, lane) in enumerate(lanes):
        for one in segments_of(gpu, lane, before, phase, random):
            if one.pod is not None:
                taken.append((one.first, one.last))
                at = offset + one.first
                yield Segment(gpu, one.first, one.last, one.pod, level, at, replica=replica)
    at = 0
    for first, last in chain(sorted(taken), [(end, end)]):
        if first > at:
            yield Segment(gpu, at, first, None, 0, 0)
        at = max(at, last)
