"""One hour of one cluster: from pods, nodes and device rows to facts. Pure."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import fsum
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct, field

from apps.clusters.domain.devices.mig import mig_part
from apps.clusters.domain.devices.state import NO_LEVELS, ActivitySample, DeviceSlot
from apps.clusters.domain.pods.ledger import ClaimAllocationRecord, NodeInterval, PodRecord
from apps.clusters.domain.tiers import UNMATCHED, CapacityType, TierRule
from apps.clusters.domain.window import HOUR_SECONDS, SLOT_SECONDS
from apps.usage.domain.activity import joined, written
from apps.usage.domain.amounts import (
    CAPACITY_FIELDS,
    SECONDS_PER_HOUR,
    Amounts,
    HeldSlot,
    add_levels,
    held_amounts,
    nano,
    split,
)
from apps.usage.domain.attribution.allocations import (
    Allocation,
    NodeGpus,
    NodeLedger,
    PodLedger,
    allocate_node,
)
from apps.usage.domain.attribution.attribute import (
    Attribution,
    SampleInterval,
    attribute,
    guess,
    mislabelled,
    recut,
)
from apps.usage.domain.attribution.gpu_classes import Classifier, GpuClass, inventories
from apps.usage.domain.attribution.sharing import DeviceShare

_uuid_and_instance = attrgetter("uuid", "gpu_instance")

RawSamples = Callable[[Sequence[str]], Iterable[ActivitySample] | None]
"""Gives the raw samples of some devices (UUIDs) in the hour; None where they are refused."""


class PodFact(NamedTuple):
    """A pod's holding of one kind of GPU in the hour.

    `activity` is how active its devices were, slot by slot, as
    `apps.usage.domain.activity` writes it.
    """

    uid: str
    node: str
    gpu_class: GpuClass
    amounts: Amounts
    activity: str = ""


class NodeFact(NamedTuple):
    """The whole ledger of one node's GPUs of one kind in the hour."""

    node: str
    gpu_class: GpuClass
    amounts: Amounts


class HourFacts(Struct):
    """The facts of an hour; `findings` counts what was noticed on the way.

    `first_held` (by pod uid and GPU) and `first_capacity` are the parts of `allocated` and
    `capacity` that lie in the first of the hour's two slots, in nano-GPU-hours; `first_free` (by
    node and GPU) is what of capacity nothing held in it. `devices` are by pod uid the UUIDs of the
    GPUs on which it was seen, of those that are not shared.
    """

    pods: list[PodFact] = field(default_factory=list)
    nodes: list[NodeFact] = field(default_factory=list)
    first_held: dict[tuple[str, GpuClass], int] = field(default_factory=dict)
    first_capacity: dict[GpuClass, int] = field(default_factory=dict)
    first_free: dict[tuple[str, GpuClass], int] = field(default_factory=dict)
    findings: Counter[str] = field(default_factory=Counter)
    devices: dict[str, set[str]] = field(default_factory=dict)

    def total(self) -> Amounts:
        """Return the sum over all nodes."""
        total = Amounts()
        for fact in self.nodes:
            total.add(fact.amounts)
        return total

    def least_measured_nodes(self, most: int) -> list[str]:
        """Return the names of the nodes with the most GPU-hours without metrics, worst first."""
        lacking: dict[str, int] = defaultdict(int)
        for fact in self.nodes:
            lacking[fact.node] += fact.amounts.unmeasured
        worst = sorted((-amount, node) for node, amount in lacking.items() if amount)
        return [node for _, node in worst[:most]]


def allocate_cluster(start: float, known: PodLedger, *, classifier: Classifier) -> list[NodeLedger]:
    """Return who held what in the hour that begins at `start`, node by node, in name order.

    Pods on a node that is not known to have existed hold nothing.
    """
    pods: dict[str, list[PodRecord]] = defaultdict(list)
    for pod in known.pods:
        if pod.node:
            pods[pod.node].append(pod)
    intervals: dict[str, list[NodeInterval]] = defaultdict(list)
    for interval in known.intervals:
        intervals[interval.node].append(interval)
    claims: dict[str, list[ClaimAllocationRecord]] = defaultdict(list)
    for claim in known.claims:
        claims[claim.node].append(claim)
    ledgers = []
    for node in sorted(intervals):
        here = sorted(pods.get(node, ()), key=_uid)
        own = PodLedger(here, intervals[node], known.bound, known.limits, claims.get(node, ()))
        ledgers.append(allocate_node(own, start, start + HOUR_SECONDS, classifier=classifier))
    return ledgers


def _uid(pod: PodRecord) -> str:
    return pod.uid


def hour_facts(
    start: int,
    ledgers: Sequence[NodeLedger],
    attribution: Attribution,
    *,
    idle_below: float,
) -> HourFacts:
    """Return the facts of the hour that begins at `start`.

    `attribution` numbers the holdings in the order in which `ledgers` hold them. Both ledger
    equations hold exactly for every row.
    """
    result = HourFacts()
    slots = (start, start + SLOT_SECONDS)
    allocated: dict[tuple[str, GpuClass], Amounts] = defaultdict(Amounts)
    again: dict[tuple[str, GpuClass], list[str]] = defaultdict(list)
    held: dict[tuple[str, GpuClass], list[float]] = defaultdict(list)
    strays = list(attribution.strays)
    # Over all nodes: `attribution` counts the holdings in exactly this order.
    number = 0
    for ledger in ledgers:
        of_pod: dict[tuple[str, GpuClass], PodFact] = {}
        for holding in ledger.holdings:
            own = attribution.rows.get(number, ())
            ran = {slot: holding.ran_in(slot) for slot in slots}
            # Exporters keep a label for a while after its pod: such samples are of no pod.
            if not all(ran.values()):
                strays += [row for row in own if ran[row.slot] <= 0]
                own = [row for row in own if ran[row.slot] > 0]
            if own:
                result.devices.setdefault(holding.pod.uid, set()).update(row.uuid for row in own)
            shares = attribution.shares.get(number, ())
            fact = _pod_fact(holding, own, shares, ran, attribution, idle_below)
            if holding.inferred or number in attribution.guessed:
                # An hour of a pod has one grade: what comes from series outweighs what is
                # apportioned.
                fact.amounts.grade_inferred = fact.amounts.allocated - fact.amounts.unmeasured
                fact.amounts.grade_apportioned = 0
            allocated[ledger.node, fact.gpu_class].add(fact.amounts)
            key = (fact.uid, fact.gpu_class)
            held[key].append(holding.held_in(start))
            # A claim whose sharers change has several holdings of one pod.
            before = of_pod.setdefault(key, fact)
            if before is fact:
                result.pods.append(fact)
            else:
                before.amounts.add(fact.amounts)
                again[key].append(fact.activity)
            number += 1
        if ledger.overcommitted:
            result.findings["overcommitted"] += 1
    if again:
        result.pods = [_rejoined(fact, again[fact.uid, fact.gpu_class]) for fact in result.pods]
    unattributed, drawn = _stray_activity(strays, attribution, result.findings)
    for ledger in ledgers:
        result.nodes.extend(_node_facts(ledger, allocated, unattributed, drawn))
    result.nodes.extend(_nowhere(unattributed, drawn))
    _first_slot(start, held, ledgers, result)
    return result


def _rejoined(fact: PodFact, others: Sequence[str]) -> PodFact:
    return fact._replace(activity=joined([fact.activity, *others]))


def _first_slot(
    start: int,
    held: Mapping[tuple[str, GpuClass], Sequence[float]],
    ledgers: Sequence[NodeLedger],
    result: HourFacts,
) -> None:
    """Say what of the hour's sums lies in its first slot; never more than the whole.

    `held` has what the holdings of each pod and kind of GPU had in it.
    """
    capacity: dict[GpuClass, list[float]] = defaultdict(list)
    for ledger in ledgers:
        in_use: dict[GpuClass, list[float]] = defaultdict(list)
        for holding in ledger.holdings:
            in_use[holding.gpu_class].append(holding.held_in(start))
        for gpu_class, gpus in ledger.gpus.items():
            capacity[gpu_class].append(gpus.first)
            free = max(0.0, gpus.first - fsum(in_use[gpu_class]))
            result.first_free[ledger.node, gpu_class] = nano(free / SECONDS_PER_HOUR)
    for fact in result.pods:
        # `fsum` is exact, so the order of holdings changes no digit. Rounded apart from the hour,
        # the part could exceed it.
        first = nano(fsum(held[fact.uid, fact.gpu_class]) / SECONDS_PER_HOUR)
        result.first_held[fact.uid, fact.gpu_class] = min(first, fact.amounts.allocated)
    for gpu_class, parts in capacity.items():
        result.first_capacity[gpu_class] = nano(fsum(parts) / SECONDS_PER_HOUR)


def _pod_fact(
    holding: Allocation,
    rows: Sequence[DeviceSlot],
    shares: Sequence[DeviceShare],
    ran: Mapping[int, float],
    attribution: Attribution,
    idle_below: float,
) -> PodFact:
    """Return what a pod held; `rows` are its own, `ran` the seconds it ran in each slot.

    `shares` are what it had of devices that others may be on.
    """
    held_slots: list[HeldSlot] = []
    letters = []
    # Of several shares in a slot the first tells.
    shared = {share.slot: share for share in reversed(shares)}
    for slot, seconds in ran.items():
        if slot in shared:
            parts = [_shared_slot(holding, shared[slot], seconds)]
        elif seconds > 0:
            own = [row for row in rows if row.slot == slot]
            parts = _held_slots(holding, slot, seconds, own, attribution)
        else:
            continue
        held_slots += parts
        letters.append(written([part.activity for part in parts]))
    amounts = held_amounts(holding.gpu_seconds, split(held_slots, idle_below=idle_below))
    add_levels(amounts, held_slots)
    energy = [row.energy_wh for row in rows if row.energy_wh]
    peaks = [row.memory_used_peak_mib for row in rows if row.memory_used_peak_mib is not None]
    if shares:
        amounts.burst = nano(fsum([share.burst for share in shares]) / SECONDS_PER_HOUR)
        amounts.grade_apportioned = _divided(holding, shares, amounts)
        energy += [share.energy_wh for share in shares if share.energy_wh]
        peaks += [one.memory_peak_mib for one in shares if one.memory_peak_mib is not None]
    amounts.allocated_on_unhealthy = nano(holding.on_unhealthy / SECONDS_PER_HOUR)
    amounts.energy_mwh = round(fsum(energy) * 1000)
    _add_split(amounts, [*rows, *shares])
    amounts.memory_peak_mib = max(peaks) if peaks else None
    return PodFact(holding.pod.uid, holding.pod.node, holding.gpu_class, amounts, joined(letters))


def _add_split(amounts: Amounts, parts: Iterable[DeviceSlot | DeviceShare]) -> None:
    """Add the energy whose idle part is known, and that part; without any both stay as they are."""
    known = [(one.energy_wh or 0.0, one.idle_wh) for one in parts if one.idle_wh is not None]
    if known:
        whole, idle = (round(fsum(some) * 1000) for some in zip(*known, strict=True))
        amounts.energy_split_mwh = (amounts.energy_split_mwh or 0) + whole
        amounts.energy_idle_mwh = (amounts.energy_idle_mwh or 0) + idle


def _shared_slot(holding: Allocation, share: DeviceShare, ran: float) -> HeldSlot:
    held = holding.gpu_equivalents
    measured = share.measured_seconds * held
    activity = min(1.0, share.busy / measured) if measured > 0 else None
    return HeldSlot(ran * held, measured, activity, _whole(holding.pod, share.slot), share.levels)


def _divided(holding: Allocation, shares: Sequence[DeviceShare], amounts: Amounts) -> int:
    """Return how much of what was measured is estimated: the grade `apportioned`."""
    seconds = fsum([share.measured_seconds for share in shares if share.divided])
    amount = nano(seconds * holding.gpu_equivalents / SECONDS_PER_HOUR)
    return min(amount, amounts.allocated - amounts.unmeasured)


def _held_slots(
    holding: Allocation, slot: int, ran: float, rows: Sequence[DeviceSlot], attribution: Attribution
) -> list[HeldSlot]:
    """Return one part for each device with samples, and one for the units without metrics.

    Devices are in the order of their UUIDs. Several series of one device, as of two containers of
    a pod, are one device.
    """
    series: dict[tuple[str, str], list[DeviceSlot]] = {}
    for row in sorted(rows, key=_uuid_and_instance) if len(rows) > 1 else rows:
        if row.activity_sum is not None and row.samples:
            series.setdefault((row.uuid, row.gpu_instance), []).append(row)
    count, held = len(series), holding.units
    # A pod cannot use more GPUs than it holds: labels on more of them share what it holds.
    units = min(1.0, held / count) if count else 0.0
    weight = units * holding.weight * holding.scale
    whole = _whole(holding.pod, slot)
    parts = []
    for some in series.values():
        row = some[0]
        total, samples, levels = row.activity_sum or 0.0, row.samples, row.levels
        if len(some) > 1:
            total = fsum([row.activity_sum or 0.0 for row in some])
            samples = sum([row.samples for row in some])
            # Series of one device are copies of its levels: one of them tells.
            levels = next((row.levels for row in some if row.levels != NO_LEVELS), NO_LEVELS)
        # A grid of samples can hold one more than its length says: a pod ran no longer for that.
        measured = min(ran, samples * attribution.interval(row))
        activity = min(1.0, max(0.0, total / samples))
        parts.append(HeldSlot(ran * weight, measured * weight, activity, whole, levels))
    rest = held - units * count
    if rest > 0:
        unseen = ran * rest * holding.weight * holding.scale
        parts.append(HeldSlot(unseen, 0.0, None, whole))
    return parts


def _whole(pod: PodRecord, slot: int) -> bool:
    first = pod.runs[0][0] if pod.runs else pod.bound
    ended = pod.ended
    return first is not None and first <= slot and (ended is None or ended >= slot + SLOT_SECONDS)


def _stray_activity(
    strays: Iterable[DeviceSlot], attribution: Attribution, findings: Counter[str]
) -> tuple[dict[str, float], dict[str, list[DeviceSlot]]]:
    """Return by node the GPU-seconds of activity, and the rows with energy, of no pod."""
    activity: dict[str, list[float]] = defaultdict(list)
    drawn: dict[str, list[DeviceSlot]] = defaultdict(list)
    for row in strays:
        if row.activity_sum:
            part = mig_part(row.profile, row.model) if row.profile else 1.0
            activity[row.node].append(row.activity_sum * attribution.interval(row) * part)
            if row.pod:
                findings["label_without_pod"] += 1
        if row.energy_wh:
            drawn[row.node].append(row)
    return {node: fsum(amounts) for node, amounts in activity.items()}, drawn


def _add_drawn(amounts: Amounts, rows: Sequence[DeviceSlot]) -> None:
    """Add the energy of rows that are of no pod."""
    amounts.energy_mwh += round(fsum(row.energy_wh or 0.0 for row in rows) * 1000)
    _add_split(amounts, rows)


def _node_facts(
    ledger: NodeLedger,
    allocated: Mapping[tuple[str, GpuClass], Amounts],
    unattributed: dict[str, float],
    drawn: dict[str, list[DeviceSlot]],
) -> Iterable[NodeFact]:
    gpus = dict(ledger.gpus)
    for holding in ledger.holdings:
        gpus.setdefault(holding.gpu_class, NodeGpus())
    for position, gpu_class in enumerate(sorted(gpus)):
        held = Amounts(**dict.fromkeys(CAPACITY_FIELDS, 0))
        if (ledger.node, gpu_class) in allocated:
            held.add(allocated[ledger.node, gpu_class])
        _close(held, gpus[gpu_class])
        # Strays name a node and no tier: they count once, in the first row of the node.
        if position == 0:
            held.unattributed = nano(unattributed.pop(ledger.node, 0.0) / SECONDS_PER_HOUR)
            _add_drawn(held, drawn.pop(ledger.node, ()))
        yield NodeFact(ledger.node, gpu_class, held)


def _close(row: Amounts, gpus: NodeGpus) -> None:
    """Fill in the capacity side so that its equation holds to the last digit.

    What rounding leaves over is taken from what is free, then added to the capacity: a few
    nano-GPU-hours at most.
    """
    unhealthy = nano(gpus.unhealthy / SECONDS_PER_HOUR)
    free = nano(gpus.capacity / SECONDS_PER_HOUR) - row.allocated
    row.unhealthy = max(0, min(unhealthy, free))
    row.unallocated = max(0, free - row.unhealthy)
    row.stranded = min(row.unallocated, nano(gpus.stranded / SECONDS_PER_HOUR))
    row.capacity = row.allocated + row.unhealthy + row.unallocated


def _nowhere(
    unattributed: Mapping[str, float], drawn: Mapping[str, Sequence[DeviceSlot]]
) -> list[NodeFact]:
    """Return rows for activity on nodes whose GPUs are not known: it must not disappear."""
    gpu_class = GpuClass(UNMATCHED, "unknown", CapacityType.UNKNOWN.value)
    rows = []
    for node in sorted(unattributed.keys() | drawn.keys()):
        amounts = Amounts(**dict.fromkeys(CAPACITY_FIELDS, 0))
        amounts.unattributed = nano(unattributed.get(node, 0.0) / SECONDS_PER_HOUR)
        _add_drawn(amounts, drawn.get(node, ()))
        rows.append(NodeFact(node, gpu_class, amounts))
    return rows


class HourDevices(NamedTuple):
    """The device rows of one hour of one cluster, and the seconds between their samples."""

    rows: Sequence[DeviceSlot]
    interval: SampleInterval


class HourInput(Struct, frozen=True):
    """What is known of one hour of one cluster; `start` in Unix seconds, `rules` of the hour.

    `devices` may have to wait for an answer. It is asked as late as can be: who held what is
    mostly known without it.
    """

    start: int
    ledger: PodLedger
    rules: Sequence[TierRule]
    devices: Callable[[], HourDevices]


def attribute_hour(
    hour: HourInput, raw: RawSamples, *, idle_below: float
) -> tuple[HourFacts, Attribution]:
    """Return the hour's facts, and how device rows found their pods.

    `raw` is asked for the devices alone whose sums over a slot cannot be told apart.
    """
    classifier = Classifier(hour.rules, lambda: inventories(hour.devices().rows))
    ledgers = allocate_cluster(hour.start, hour.ledger, classifier=classifier)
    holdings = [holding for ledger in ledgers for holding in ledger.holdings]
    offered = _offered(hour.ledger.intervals, classifier)
    rows, interval = hour.devices()
    attribution = attribute(rows, holdings, interval=interval, offered=offered)
    findings = _cut_by_samples(attribution, holdings, raw)
    result = hour_facts(hour.start, ledgers, attribution, idle_below=idle_below)
    result.findings.update(findings)
    return result, attribution


def _offered(
    intervals: Sequence[NodeInterval], classifier: Classifier
) -> dict[tuple[str, str], float]:
    """Return how many devices each node offers that one pod has alone, by node and profile."""
    most: dict[tuple[str, str], float] = {}
    for interval in intervals:
        units: dict[str, float] = defaultdict(float)
        for offer in classifier.offers(interval):
            if not offer.shared:
                # As pods hold them: cores of an accelerator are parts of a device.
                units[offer.profile] += offer.units * (1.0 if offer.profile else offer.weight)
        for profile, count in units.items():
            key = (interval.node, profile)
            # The most of the hour: where fewer are shown, the one that a pod was on may be missing.
            most[key] = max(most.get(key, 0.0), count)
    return most


def _cut_by_samples(
    attribution: Attribution, holdings: Sequence[Allocation], raw: RawSamples
) -> Counter[str]:
    """Cut what sums mix from raw samples; return the findings.

    Where raw samples are refused the labels are believed, and the result is graded `inferred`.
    """
    labels = mislabelled(attribution, holdings)
    # Raw samples are many: they are read of these devices alone.
    groups = {row.uuid for group in attribution.unclear for row in group.rows}
    uuids = labels | groups
    if not uuids:
        return Counter()
    samples = raw(sorted(uuids))
    if samples is None:
        guess(attribution, uuids, holdings)
        return Counter(raw_samples_refused=len(uuids))
    recut(attribution, uuids, samples, holdings)
    return Counter(label_outlived_pod=len(labels), cut_at_pod_times=len(groups - labels))
