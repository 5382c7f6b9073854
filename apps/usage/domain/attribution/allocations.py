"""The holders of a node's GPUs, and its free and unavailable parts, in one hour.

A sweep over the instants at which anything on a node changed: between two of them the GPUs are
distributed once. Times are Unix seconds, amounts GPU-seconds of GPU-equivalents.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import fsum

from msgspec import Struct, field

from apps.accounts.domain.structs import replace
from apps.clusters.domain.pods.ledger import (
    ClaimAllocationRecord,
    NodeInterval,
    PodRecord,
    PodSource,
)
from apps.clusters.domain.resources import PARTS_OF_GPU
from apps.clusters.domain.tiers import same_model
from apps.clusters.domain.window import SLOT_SECONDS, TimeSpan, clip, overlap, seconds, union
from apps.usage.domain.attribution.claim_allocations import claim_allocations
from apps.usage.domain.attribution.gpu_classes import BoundTier, Classifier, GpuClass, ResourceOffer

_ClassSums = tuple[dict[GpuClass, float], dict[GpuClass, float], dict[GpuClass, float]]
"""By kind of GPU: how many there are, are allocatable, and are left uncovered by MIG devices."""


def is_device_class(resource: str) -> bool:
    """Say whether what a request names is a device class: extended resources have a domain."""
    return "/" not in resource


class Allocation(Struct):
    """One pod's hold on units of one resource within the hour.

    `held` is when it held them, `runs` when a GPU container ran (both disjoint and in order, runs
    within held). `shared`: others may be on the same device. `profile` is the MIG profile of its
    units, empty for whole GPUs; `devices` are the GPUs (UUIDs) that it was given, where a claim
    tells, or who gives out parts of GPUs. `guessed`: its GPU model is not known. `scale` is below 1
    where the GPUs held on its node exceeded the GPUs there.
    """

    pod: PodRecord
    resource: str
    units: float
    weight: float
    gpu_class: GpuClass
    held: tuple[TimeSpan, ...]
    runs: tuple[TimeSpan, ...]
    shared: bool = False
    profile: str = ""
    devices: frozenset[str] = frozenset()
    guessed: bool = False
    scale: float = 1.0
    on_unhealthy: float = 0.0
    _ran: dict[int, float] = field(default_factory=dict)

    @property
    def gpu_equivalents(self) -> float:
        return self.units * self.weight * self.scale

    @property
    def devices_held(self) -> float:
        """How many devices it has: of those that are counted by their cores, the whole ones."""
        return self.units if self.profile else self.units * self.weight

    @property
    def gpu_seconds(self) -> float:
        """What it held in the hour."""
        return seconds(self.held) * self.gpu_equivalents

    def held_in(self, slot: int) -> float:
        """Return the GPU-seconds that it held in a slot."""
        return overlap(self.held, slot, slot + SLOT_SECONDS) * self.gpu_equivalents

    @property
    def span(self) -> TimeSpan:
        """From when it first to when it last held them in the hour."""
        return (self.held[0][0], self.held[-1][1])

    def ran_in(self, slot: int) -> float:
        """Return for how many seconds of a slot its GPU containers ran."""
        ran = self._ran.get(slot)
        if ran is None:
            ran = self._ran[slot] = overlap(self.runs, slot, slot + SLOT_SECONDS)
        return ran

    @property
    def inferred(self) -> bool:
        return self.pod.source is PodSource.METRICS or self.scale < 1.0 or self.guessed


class NodeGpus(Struct):
    """The GPUs of one node and kind over the hour, in GPU-seconds; `first` in its first slot."""

    capacity: float = 0.0
    first: float = 0.0
    unhealthy: float = 0.0
    unallocated: float = 0.0
    stranded: float = 0.0


class NodeLedger(Struct):
    """The outcome for one node; `shared` are the profiles of which several pods share a device."""

    node: str
    gpus: dict[GpuClass, NodeGpus] = field(default_factory=lambda: defaultdict(NodeGpus))
    holdings: list[Allocation] = field(default_factory=list)
    shared: frozenset[str] = frozenset()
    overcommitted: bool = False


class PodLedger(Struct, frozen=True):
    """What is known of pods and nodes, of a cluster or of one node.

    `bound` gives by pod uid what is known of its binding, `limits` the only spans in which it may
    hold. `claims` are the allocations of ResourceClaims.
    """

    pods: Sequence[PodRecord]
    intervals: Sequence[NodeInterval]
    bound: Mapping[str, BoundTier] = field(default_factory=dict)
    limits: Mapping[str, Sequence[TimeSpan]] = field(default_factory=dict)
    claims: Sequence[ClaimAllocationRecord] = ()


def allocate_node(
    node: PodLedger, start: float, end: float, *, classifier: Classifier
) -> NodeLedger:
    """Return who held what on one node in start..end; every pod and claim given is on this node.

    A pod holds no longer than its node exists, and only within its `limits`, where it has some.
    Pods without `bound` are classified by the node's labels when they first held in the hour. Where
    holdings exceed the GPUs they are scaled to fit (`overcommitted`); parts of one GPU are before
    that, where it is known which one. Devices of claims are held
    from when the watch shows them: a watch may list claims of yesterday before it knows the offer
    of the node.
    """
    intervals = sorted(
        (s for s in node.intervals if s.start < end and s.end > start), key=lambda s: s.start
    )
    ledger = NodeLedger(node=intervals[0].node if intervals else "")
    exists = union((max(s.start, start), min(s.end, end)) for s in intervals)
    here = []
    for pod in node.pods:
        held = _held(pod, exists, end, node.limits)
        if held:
            here.append(pod)
            ledger.holdings.extend(_pod_holdings(pod, held, intervals, classifier, node.bound))
    for hold in claim_allocations(node.claims, here, _devices_known(intervals, exists, end), end):
        offer = classifier.of(hold.device_class, _first(intervals, hold.held))[0]
        gpu_class = GpuClass(
            offer.gpu_class.tier, hold.model or offer.gpu_class.model, offer.gpu_class.capacity_type
        )
        ledger.holdings.append(
            Allocation(
                hold.pod,
                hold.device_class,
                hold.units,
                hold.weight,
                gpu_class,
                hold.held,
                _runs(hold.pod, hold.held),
                hold.shared,
                hold.profile,
                hold.gpu_uuids,
            )
        )
    ledger.shared = frozenset(
        o.profile for s in intervals for o in classifier.offers(s) if o.shared
    )
    ledger.holdings = _within_gpus(ledger.holdings)
    _sweep(ledger, intervals, start, end, classifier)
    return ledger


def _devices_known(
    intervals: Sequence[NodeInterval], exists: Sequence[TimeSpan], end: float
) -> Sequence[TimeSpan]:
    """Return when a node exists and its devices are told of, where they ever are in the hour."""
    first = next((interval.start for interval in intervals if interval.devices), None)
    return exists if first is None else clip(exists, first, end)


def _within_gpus(holdings: Sequence[Allocation]) -> list[Allocation]:
    """Return holdings with parts of GPUs reduced while those of one GPU come to more than it is.

    So it is where one pod has most of a GPU's memory and another most of its cores. A pod's parts
    of several GPUs count as equal.
    """
    on: dict[str, list[Allocation]] = defaultdict(list)
    for holding in holdings:
        if holding.resource in PARTS_OF_GPU:
            for uuid in holding.devices:
                on[uuid].append(holding)
    crowded = {uuid: some for uuid, some in on.items() if _share(_on_each(some), 1.0) < 1.0}
    if not crowded:
        return list(holdings)
    fitted: list[Allocation] = []
    for holding in holdings:
        beside = [one for uuid in holding.devices for one in crowded.get(uuid, ())]
        fitted += _fitted(holding, crowded, beside) if holding in beside else [holding]
    return fitted


def _on_each(holdings: Iterable[Allocation]) -> float:
    """Return what holdings have together of a GPU that is one of each one's."""
    return fsum(holding.units * holding.weight / len(holding.devices) for holding in holdings)


def _fitted(
    holding: Allocation, crowded: Mapping[str, Sequence[Allocation]], beside: Sequence[Allocation]
) -> Iterator[Allocation]:
    """Yield a holding of crowded GPUs as several, each of the times at which it fits alike."""
    edges = sorted({at for one in (holding, *beside) for part in one.held for at in part})
    spans: dict[float, list[TimeSpan]] = defaultdict(list)
    for a, b in pairwise(edges):
        if not clip(holding.held, a, b):
            continue
        shares = []
        for uuid in holding.devices:
            there = [one for one in crowded.get(uuid, ()) if clip(one.held, a, b)]
            shares.append(_share(_on_each(there), 1.0))
        spans[fsum(shares) / len(shares)].append((a, b))
    for share, some in sorted(spans.items()):
        held = union(some)
        yield replace(
            holding,
            units=holding.units * share,
            held=held,
            runs=tuple(run for part in held for run in clip(holding.runs, *part)),
            _ran={},
        )


def _held(
    pod: PodRecord, exists: Sequence[TimeSpan], end: float, limits: Mapping[str, Sequence[TimeSpan]]
) -> tuple[TimeSpan, ...]:
    span = pod.held(end)
    held = clip(exists, *span) if span else ()
    if pod.uid in limits:
        held = union(part for limit in limits[pod.uid] for part in clip(held, *limit))
    return held


def _first(intervals: Sequence[NodeInterval], held: Sequence[TimeSpan]) -> NodeInterval:
    # There is one: what was held was clipped to when the node existed.
    return next(interval for interval in intervals if interval.end > held[0][0])


def _runs(pod: PodRecord, held: Sequence[TimeSpan]) -> tuple[TimeSpan, ...]:
    ran = pod.ran(held[-1][1])
    return tuple(run for part in held for run in clip(ran, *part))


def _pod_holdings(
    pod: PodRecord,
    held: tuple[TimeSpan, ...],
    intervals: Sequence[NodeInterval],
    classifier: Classifier,
    bound: Mapping[str, BoundTier],
) -> Iterator[Allocation]:
    runs = _runs(pod, held)
    interval = _first(intervals, held)
    for resource, units in sorted(pod.requests.items()):
        # Held through the claims of the pod (`claim_allocations`), not twice.
        if is_device_class(resource):
            continue
        offers = classifier.of(resource, interval)
        if len(offers) > 1:
            seen = classifier.inventory(interval.node).models_of.get((pod.namespace, pod.name))
            for offer, part, known in _by_model(offers, units, seen or Counter()):
                yield _holding(pod, offer, part, held, runs, guessed=not known)
            continue
        offer = offers[0]
        known_as = bound.get(pod.uid)
        # A pod has one tier and weight: with several resources these do not say whose they are.
        if known_as is not None and len(pod.requests) == 1:
            gpu_class = _as_bound(offer.gpu_class, known_as)
            if gpu_class != offer.gpu_class or known_as.weight != offer.weight:  # hardly ever
                offer = offer._replace(gpu_class=gpu_class, weight=known_as.weight)
        yield _holding(pod, offer, units, held, runs)


def _holding(
    pod: PodRecord,
    offer: ResourceOffer,
    units: float,
    held: tuple[TimeSpan, ...],
    runs: tuple[TimeSpan, ...],
    *,
    guessed: bool = False,
) -> Allocation:
    return Allocation(
        pod,
        offer.resource,
        units,
        offer.weight,
        offer.gpu_class,
        held,
        runs,
        offer.shared,
        offer.profile,
        # Of parts of GPUs alone: what else the pod has is on other devices.
        frozenset(pod.gpus) if offer.resource in PARTS_OF_GPU else frozenset(),
        guessed=guessed,
    )


def _by_model(
    offers: Sequence[ResourceOffer], units: float, seen: Mapping[str, int]
) -> Iterator[tuple[ResourceOffer, float, bool]]:
    """Yield (offer, units, whether that is known) of a pod on a node of several models.

    Its devices' labels decide; what they do not cover is spread as the node's GPUs are.
    """
    left = units
    for offer in offers:
        part = min(left, seen.get(offer.gpu_class.model, 0) / offer.weight)
        if part > 0:
            left -= part
            yield offer, part, True
    if left > 0:
        total = sum(offer.units for offer in offers)
        for offer in offers:
            yield offer, left * offer.units / total, False


def _as_bound(gpu_class: GpuClass, known: BoundTier) -> GpuClass:
    if (known.tier, known.model) == gpu_class[:2]:
        return gpu_class
    # One model is written in two ways by its node and by its devices.
    model = gpu_class.model if same_model(known.model, gpu_class.model) else known.model
    return GpuClass(known.tier, model, gpu_class.capacity_type)


def _sweep(
    ledger: NodeLedger,
    intervals: Sequence[NodeInterval],
    start: float,
    end: float,
    classifier: Classifier,
) -> None:
    # The sweep is slow, and most nodes need none.
    if len(intervals) == 1 and _fits(ledger, intervals[0], start, end, classifier):
        return
    instants = {start, end}
    for interval in intervals:
        instants.update((max(interval.start, start), min(interval.end, end)))
    for holding in ledger.holdings:
        for part in holding.held:
            instants.update(part)
    ordered = sorted(instants)
    sums = {interval.start: _class_sums(interval, classifier) for interval in intervals}
    fitted: dict[int, float] = defaultdict(float)
    for a, b in pairwise(ordered):
        here = [h for h in ledger.holdings if any(s <= a and e >= b for s, e in h.held)]
        there = next((s for s in intervals if s.start <= a and s.end >= b), None)
        share = _distribute(ledger, there, here, (a, b), start + SLOT_SECONDS, sums)
        for holding in here:
            fitted[id(holding)] += share * (b - a)
    for holding in ledger.holdings:
        length = seconds(holding.held)
        # The share differs from instant to instant: a holding is scaled by its mean over the hour.
        if fitted[id(holding)] < length * (1 - 1e-9):
            holding.scale = fitted[id(holding)] / length
            ledger.overcommitted = True


def _fits(
    ledger: NodeLedger, interval: NodeInterval, start: float, end: float, classifier: Classifier
) -> bool:
    """Enter the sums of a node on which nothing is to be settled; False where something is.

    So it is with most nodes, and sums need no sweep: one interval, healthy, all GPUs allocatable,
    and of no kind ever more held than there is.
    """
    there, allocatable, stranded = _class_sums(interval, classifier)
    if not (interval.ready and interval.schedulable) or there != allocatable:
        return False
    held: dict[GpuClass, float] = defaultdict(float)
    for gpu_class, changes in _changes(ledger.holdings).items():
        level, last = 0.0, start
        for at, amount in sorted(changes):
            held[gpu_class] += level * (at - last)
            level, last = level + amount, at
            if _share(level, there.get(gpu_class, 0.0)) < 1.0:
                return False
    first, last = max(interval.start, start), min(interval.end, end)
    length = last - first
    half = _before(first, last, start + SLOT_SECONDS)
    for gpu_class, units in there.items():
        gpus = ledger.gpus[gpu_class]
        free = max(0.0, units * length - held[gpu_class])
        gpus.capacity += units * length
        gpus.first += units * half
        gpus.unallocated += free
        gpus.stranded += min(free, stranded.get(gpu_class, 0.0) * length)
    return True


def _changes(holdings: Iterable[Allocation]) -> dict[GpuClass, list[tuple[float, float]]]:
    """Return by kind of GPU (instant, by how many GPUs more or less are held from then on)."""
    changes: dict[GpuClass, list[tuple[float, float]]] = defaultdict(list)
    for holding in holdings:
        gpus = holding.units * holding.weight
        for a, b in holding.held:
            changes[holding.gpu_class] += ((a, gpus), (b, -gpus))
    return changes


def _distribute(
    ledger: NodeLedger,
    interval: NodeInterval | None,
    holdings: Sequence[Allocation],
    span: TimeSpan,
    half: float,
    sums_of: Mapping[float, _ClassSums],
) -> float:
    """Distribute a node's GPUs over a span; return the share that holdings get.

    `half` is when the second slot of the hour begins.
    """
    if interval is None:
        return 0.0
    length, first = span[1] - span[0], _before(*span, half)
    there, allocatable, stranded = map(dict, sums_of[interval.start])
    held: dict[GpuClass, float] = defaultdict(float)
    for holding in holdings:
        held[holding.gpu_class] += holding.units * holding.weight
    # Of the whole node: a kind may hold more than it has while others have some left to lend.
    share = _share(sum(held.values()), sum(there.values()))
    if share < 1.0:
        held = defaultdict(float, {gpu_class: amount * share for gpu_class, amount in held.items()})
    if any(amount > there.get(gpu_class, 0.0) for gpu_class, amount in held.items()):
        _lend(there, allocatable, held)
    healthy = interval.ready and interval.schedulable
    for gpu_class, capacity in there.items():
        free = max(0.0, capacity - held[gpu_class])
        broken = max(0.0, capacity - allocatable.get(gpu_class, 0.0))
        # Allocation wins: a held GPU counts as allocated even where it is broken.
        unhealthy = min(free, broken) if healthy else free
        gpus = ledger.gpus[gpu_class]
        gpus.capacity += capacity * length
        gpus.first += capacity * first
        gpus.unhealthy += unhealthy * length
        gpus.unallocated += (free - unhealthy) * length
        gpus.stranded += min(free - unhealthy, stranded.get(gpu_class, 0.0)) * length
    _note_unhealthy(holdings, held, allocatable, length, healthy=healthy, share=share)
    return share


def _before(start: float, end: float, at: float) -> float:
    """Return how many seconds of a span lie before an instant."""
    return max(0.0, min(end, at) - start)


def _share(held: float, there: float) -> float:
    # A hair of slack: sums of thirds and sevenths of a GPU must not look overcommitted.
    return 1.0 if held <= there * (1 + 1e-9) else there / held


def _class_sums(interval: NodeInterval, classifier: Classifier) -> _ClassSums:
    there: dict[GpuClass, float] = defaultdict(float)
    allocatable: dict[GpuClass, float] = defaultdict(float)
    stranded: dict[GpuClass, float] = defaultdict(float)
    for offer in classifier.offers(interval):
        there[offer.gpu_class] += offer.units * offer.weight + offer.stranded
        allocatable[offer.gpu_class] += offer.allocatable * offer.weight + offer.stranded
        if offer.stranded:
            stranded[offer.gpu_class] += offer.stranded
    return there, allocatable, stranded


def _lend(
    there: dict[GpuClass, float], allocatable: dict[GpuClass, float], held: Mapping[GpuClass, float]
) -> None:
    """Move free GPUs to the kinds that hold more than they have, allocatable ones first.

    A pod keeps the tier it was bound with. So after its node was relabelled its GPUs still count
    there, and the node's new tier has that much less.
    """
    for gpu_class in sorted(held):
        lacking = held[gpu_class] - there.get(gpu_class, 0.0)
        for other in sorted(there):
            if lacking <= 0:
                break
            moved = min(lacking, max(0.0, there[other] - held.get(other, 0.0)))
            if other != gpu_class and moved > 0:
                # What is lent stays as healthy as it was.
                well = min(moved, allocatable.get(other, 0.0))
                for gpus, amount in ((there, moved), (allocatable, well)):
                    gpus[other] = gpus.get(other, 0.0) - amount
                    gpus[gpu_class] = gpus.get(gpu_class, 0.0) + amount
                lacking -= moved


def _note_unhealthy(
    holdings: Sequence[Allocation],
    held: Mapping[GpuClass, float],
    allocatable: Mapping[GpuClass, float],
    length: float,
    *,
    healthy: bool,
    share: float,
) -> None:
    """Add to each holding its part on unavailable GPUs (allocation wins, kept beside)."""
    for holding in holdings:
        total = held[holding.gpu_class]
        over = total - allocatable.get(holding.gpu_class, 0.0) if healthy else total
        if over > 1e-9 and total > 0:
            part = holding.units * holding.weight * share / total
            holding.on_unhealthy += min(over, total) * part * length
