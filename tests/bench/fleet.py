"""A made-up cluster over an hour of heavy churn, with everything about it known exactly.

The same number of GPUs always gives the same fleet. Nothing here is read from anywhere, so what
the portal finds out about it can be held against the truth.
"""
# ruff: noqa: S311 - made-up data

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import accumulate
from math import ceil, fsum
from random import Random
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.domain.window import SLOT_SECONDS, Window

VERSION = 1
HOUR = Window.hour(datetime(2026, 3, 2, 10, tzinfo=UTC))
# What lies around the hour: it must not leak into it.
AROUND_SECONDS = 300
FIRST = int(HOUR.start_seconds) - AROUND_SECONDS
LAST = int(HOUR.end_seconds) + AROUND_SECONDS
INTERVAL_SECONDS = 30
GPUS_PER_NODE = 8
CLUSTER = "bench"

# How a node's GPUs are dealt: pods of these sizes follow one another on the same GPUs.
_LAYOUTS = (
    ((8,), 14),
    ((4, 4), 14),
    ((4, 2, 1, 1), 14),
    ((2, 2, 2, 2), 12),
    ((2, 2, 1, 1, 1, 1), 14),
    ((1,) * 8, 20),
    ((3, 3, 2), 4),
    ((5, 3), 3),
    ((6, 1, 1), 3),
    ((7, 1), 2),
)
LONG_RUNNING = 0.15
# (share, shortest, longest) life of pods that come and go, in seconds.
_LIVES = ((0.08, 10, 60), (0.17, 60, 900), (0.75, 1200, 7200))
_GAP_SECONDS = (1, 60)
_WAIT_SECONDS = (0, 240)
_START_SECONDS = (2, 45)
_KEPT_SECONDS = (60, 600)
# How long before the data begins the first pods are dealt, so that it begins in full swing.
_RUN_IN_SECONDS = 2 * 7200

MODELS = (
    ("NVIDIA A100-SXM4-80GB", 81920, 50),
    ("NVIDIA H100 80GB HBM3", 81559, 30),
    ("NVIDIA L40S", 46068, 12),
    ("NVIDIA A10", 23028, 8),
)
_CAPACITY_TYPES = (("on-demand", 70), ("spot", 20), ("reserved", 10))

# Levels of activity, and for each a long run of values as an exporter writes them.
LEVELS = (0.0, 0.02, 0.06, 0.15, 0.3, 0.5, 0.7, 0.85, 0.93, 0.97)
RUN_LENGTH = 1009


class Kind(NamedTuple):
    """How the GPUs of a node are given out.

    A unit of `resource` is `weight` GPU-equivalents, of which there are `per_gpu` on a GPU;
    `instances` are the numbers of a GPU's MIG instances, each of `profile`.
    """

    resource: str = "nvidia.com/gpu"
    per_gpu: int = 1
    weight: float = 1.0
    profile: str = ""
    instances: tuple[int, ...] = ()
    labels: Mapping[str, str] = MappingProxyType({})


WHOLE = Kind()


class FleetPod(Struct, frozen=True):
    """One pod, to the second. `ended` is None where it outlives the data.

    `deleted` says that its object went with it, as with a Deployment scaled down; else it stays
    for `kept` seconds as Succeeded, with a completion time.
    """

    uid: str
    namespace: str
    name: str
    kind: str
    owner: str
    controller: tuple[str, str]
    units: int
    node: int
    created: int
    bound: int
    started: int
    ended: int | None
    deleted: bool
    kept: int
    level: int

    @property
    def gone(self) -> int | None:
        """When its object went; None while it is there."""
        if self.ended is None:
            return None
        return self.ended if self.deleted else self.ended + self.kept

    def held_seconds(self, start: int, end: int) -> int:
        """For how many seconds of start..end it held its GPUs."""
        until = end if self.ended is None else min(end, self.ended)
        return max(0, until - max(start, self.bound))


class Segment(Struct, frozen=True):
    """A stretch of one GPU's samples first..last (excluded) with the same labels.

    The activity of sample `i` is value `offset + i - first` of its level's run. `instance` is the
    MIG instance that it is of; `replica` says which of a shared GPU's units its pod has.
    """

    gpu: int
    first: int
    last: int
    pod: int | None
    level: int
    offset: int
    instance: int | None = None
    replica: int | None = None

    def of_instance(self, instance: int) -> "Segment":
        """Return the same of a MIG instance."""
        return replace(self, instance=instance)


class FleetNode(Struct, frozen=True):
    """A node of eight GPUs; `phase` is when it is scraped, in ms after each 30 s."""

    number: int
    model: int
    capacity_type: str
    phase: int
    pods: tuple[FleetPod, ...]
    segments: tuple[Segment, ...]
    kind: Kind = WHOLE

    @property
    def name(self) -> str:
        return f"gpu-node-{self.number:05d}"

    @property
    def model_name(self) -> str:
        """The model as the exporter writes it."""
        return MODELS[self.model][0]

    @property
    def labels(self) -> dict[str, str]:
        """The node's labels, as GPU Feature Discovery and Karpenter write them."""
        return {
            "nvidia.com/gpu.product": self.model_name.replace(" ", "-"),
            "karpenter.sh/capacity-type": self.capacity_type,
            "topology.kubernetes.io/zone": f"zone-{'abc'[self.number % 3]}",
            **self.kind.labels,
        }

    @property
    def on_the_second(self) -> bool:
        """Say whether its scrapes fall on full seconds."""
        return self.phase % 1000 == 0

    def uuid(self, gpu: int) -> str:
        """Return a GPU's UUID."""
        return f"GPU-{UUID(int=(self.number * GPUS_PER_NODE + gpu + 1) * _SPREAD % (1 << 128))}"

    def stamps(self) -> list[int]:
        """Return the times of its scrapes, in ms."""
        begin = FIRST * 1000 + self.phase
        return list(range(begin, LAST * 1000, INTERVAL_SECONDS * 1000))


# An odd number, so that the UUIDs of different GPUs differ.
_SPREAD = 0x9E3779B97F4A7C15F39CC0605CEDC835


class Activity:
    """The values that samples take: strings as they are written, and what they are read as."""

    def __init__(self) -> None:
        self.texts: list[list[str]] = []
        self.values: list[list[float]] = []
        for number, level in enumerate(LEVELS):
            random = Random(f"activity {VERSION} {number}")
            spread = min(level, 1.0 - level) * 0.8
            run = [
                f"{level + random.uniform(-spread, spread):.6f}" if level else "0"
                for _ in range(RUN_LENGTH)
            ]
            self.texts.append(run)
            self.values.append([float(text) for text in run])

    def of(self, segment: Segment) -> list[str]:
        """Return the values of a segment as they are written."""
        start = segment.offset
        return self.texts[segment.level][start : start + segment.last - segment.first]

    def between(self, segment: Segment, first: int, last: int) -> list[float]:
        """Return the values of samples first..last (excluded), which the segment must hold."""
        start = segment.offset + first - segment.first
        return self.values[segment.level][start : start + last - first]


class SlotTruth(Struct, frozen=True):
    """What the raw samples of one GPU under one set of labels say of one slot."""

    slot: int
    uuid: str
    namespace: str
    pod: str
    samples: int
    mean: float
    on_the_second: bool


class Fleet:
    """A cluster of `gpus` GPUs, eight to a node."""

    variant = ""
    """What tells its data from those of other fleets of the same size."""

    def __init__(self, gpus: int) -> None:
        self.gpus = gpus
        self.activity = Activity()
        self._namespaces = [f"team-{n:03d}" for n in range(20 + gpus // 200)]
        # As with the people of a company, a few namespaces hold much and many hold little.
        self._weights = list(accumulate(1.0 / (n + 3) for n in range(len(self._namespaces))))

    @cached_property
    def nodes(self) -> list[FleetNode]:
        """Every node with its pods."""
        return [self._node(number) for number in range(self.gpus // GPUS_PER_NODE)]

    def pods(self) -> Iterator[FleetPod]:
        """Yield every pod that the data shows."""
        for node in self.nodes:
            yield from node.pods

    def gpu_seconds(self) -> dict[str, int]:
        """Return the allocated GPU-seconds of the hour, by namespace, exactly."""
        held: dict[str, int] = {}
        for pod in self.pods():
            seconds = pod.held_seconds(*_HOUR) * pod.units
            if seconds:
                held[pod.namespace] = held.get(pod.namespace, 0) + seconds
        return held

    def slot_truths(self) -> Iterator[SlotTruth]:
        """Yield what the raw samples of every GPU and holder say of the hour's two slots."""
        for node in self.nodes:
            for slot in _SLOTS:
                for (gpu, pod), values in self._values(node, slot).items():
                    holder = None if pod is None else node.pods[pod]
                    yield SlotTruth(
                        slot,
                        node.uuid(gpu),
                        "" if holder is None else holder.namespace,
                        "" if holder is None else holder.name,
                        len(values),
                        fsum(values) / len(values),
                        node.on_the_second,
                    )

    def _values(self, node: FleetNode, slot: int) -> dict[tuple[int, int | None], list[float]]:
        """Return the values of a node's samples in a slot, by GPU and pod."""
        low = sample_index(slot, node.phase)
        high = sample_index(slot + SLOT_SECONDS, node.phase)
        found: dict[tuple[int, int | None], list[float]] = {}
        for segment in node.segments:
            first, last = max(low, segment.first), min(high, segment.last)
            if first < last:
                values = found.setdefault((segment.gpu, segment.pod), [])
                values.extend(self.activity.between(segment, first, last))
        return found

    # ------------------------------------------------------------ dealing it out

    def _node(self, number: int) -> FleetNode:
        random = Random(f"node {VERSION} {number}")
        phase = phase_of(number, random)
        (layout,) = random.choices([x for x, _ in _LAYOUTS], [w for _, w in _LAYOUTS])
        pods: list[FleetPod] = []
        segments: list[Segment] = []
        gpu = 0
        for units in layout:
            lane = list(self.lane(number, units, random, len(pods)))
            for each in range(gpu, gpu + units):
                segments.extend(segments_of(each, lane, len(pods), phase, random))
            pods.extend(lane)
            gpu += units
        (model,) = random.choices(range(len(MODELS)), [weight for _, _, weight in MODELS])
        paid = paid_for(random)
        return FleetNode(number, model, paid, phase, tuple(pods), tuple(segments))

    def lane(
        self, node: int, units: int, random: Random, before: int, *, long: float = LONG_RUNNING
    ) -> Iterator[FleetPod]:
        """Yield the pods that follow one another on the same GPUs, oldest first.

        With the probability `long` it is one that outlives the data.
        """
        if random.random() < long:
            start = FIRST - random.randint(3600, 30 * 86400)
            yield self._pod(node, units, start, None, random, before, long=True)
            return
        at = FIRST - random.randint(0, _RUN_IN_SECONDS)
        while at < LAST:
            bound = at + random.randint(*_GAP_SECONDS)
            ended = bound + random.randint(*_START_SECONDS) + _life(random)
            at = ended
            if ended > FIRST - max(_KEPT_SECONDS) and bound < LAST:
                there = ended if ended < LAST else None
                yield self._pod(node, units, bound, there, random, before, long=False)
                before += 1

    def _pod(
        self,
        node: int,
        units: int,
        bound: int,
        ended: int | None,
        random: Random,
        number: int,
        *,
        long: bool,
    ) -> FleetPod:
        (namespace,) = random.choices(self._namespaces, cum_weights=self._weights)
        kind, owner, controller, deleted = _owner(namespace, random, long=long)
        started = bound + random.randint(*_START_SECONDS)
        return FleetPod(
            uid=str(UUID(int=random.getrandbits(128), version=4)),
            namespace=namespace,
            name=f"{controller[1]}-{_suffix(node, number)}",
            kind=kind,
            owner=owner,
            controller=controller,
            units=units,
            node=node,
            created=bound - random.randint(*_WAIT_SECONDS),
            bound=bound,
            started=started if ended is None else min(started, ended - 1),
            ended=ended,
            deleted=deleted and ended is not None,
            kept=random.randint(*_KEPT_SECONDS),
            level=random.randrange(len(LEVELS)),
        )


_HOUR = (int(HOUR.start_seconds), int(HOUR.end_seconds))
_SLOTS = HOUR.slots()


def paid_for(random: Random) -> str:
    """Return a node's capacity type."""
    (paid,) = random.choices([x for x, _ in _CAPACITY_TYPES], [w for _, w in _CAPACITY_TYPES])
    return paid


def phase_of(number: int, random: Random) -> int:
    """Return when a node is scraped: one in eight on the slot's boundary itself, as many on
    another full second, the others in between."""
    if number % 8 == 0:
        return 0
    if number % 8 == 4:
        return random.randrange(INTERVAL_SECONDS) * 1000
    return random.randrange(INTERVAL_SECONDS) * 1000 + random.randint(5, 995)


def _life(random: Random) -> int:
    (life,) = random.choices(_LIVES, [share for share, _, _ in _LIVES])
    return random.randint(life[1], life[2])


def _owner(namespace: str, random: Random, *, long: bool) -> tuple[str, str, tuple[str, str], bool]:
    """Return (top controller's kind, name), the pod's own controller, and whether its pods go
    without a trace."""
    number = random.randrange(12)
    if long or random.random() < 0.1:
        if random.random() < 0.3:
            name = f"notebook-{number}"
            return "StatefulSet", name, ("StatefulSet", name), True
        name = f"serve-{number}"
        return "Deployment", name, ("ReplicaSet", f"{name}-{_hash(namespace, number)}"), True
    if random.random() < 0.15:
        name = f"nightly-{number}"
        return "CronJob", name, ("Job", f"{name}-{29540000 + random.randrange(4)}"), False
    name = f"train-{number}"
    return "Job", name, ("Job", name), False


def _hash(namespace: str, number: int) -> str:
    return f"{Random(f'{namespace} {number}').getrandbits(40):010x}"


def _suffix(node: int, number: int) -> str:
    return f"{node:05d}{number:03d}"


def segments_of(
    gpu: int, lane: Iterable[FleetPod], before: int, phase: int, random: Random
) -> Iterator[Segment]:
    """Yield one GPU's segments: under its pods' labels while they ran, else without."""
    end = sample_index(LAST, phase)
    at = 0
    for number, pod in enumerate(lane, start=before):
        first = max(at, sample_index(pod.started, phase))
        last = end if pod.ended is None else min(end, sample_index(pod.ended, phase))
        if first >= last:
            continue
        if first > at:
            yield Segment(gpu, at, first, None, 0, 0)
        offset = random.randrange(RUN_LENGTH - end)
        yield Segment(gpu, first, last, number, pod.level, offset)
        at = last
    if at < end:
        yield Segment(gpu, at, end, None, 0, 0)


def sample_index(at: int, phase: int) -> int:
    """Return the number of the first scrape at or after `at`."""
    return max(0, ceil(((at - FIRST) * 1000 - phase) / (INTERVAL_SECONDS * 1000)))


def moment(seconds: int) -> datetime:
    """Return the UTC time of a Unix time."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
