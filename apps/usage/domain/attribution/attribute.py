"""How a device's samples find the pod that held the device (docs/definitions.md#attribution)."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import fsum

from msgspec import Struct, field

from apps.clusters.domain.devices.state import NO_LEVELS, ActivitySample, DeviceSlot
from apps.clusters.domain.tiers import same_model
from apps.clusters.domain.window import SLOT_SECONDS
from apps.usage.domain.attribution.allocations import Allocation
from apps.usage.domain.attribution.energy import divide_instances, idle_power
from apps.usage.domain.attribution.pools import Device, Pools
from apps.usage.domain.attribution.sharing import (
    DeviceGroup,
    DeviceShare,
    Division,
    counted_once,
    divide,
    divide_by_instants,
    is_clear,
    is_crowded,
    ran_at_once,
)

# A grid of samples can hold one more than its length says; from two more on a label was there
# while its pod did not run.
_EXCESS_SAMPLES = 2

_Numbered = tuple[int, Allocation]
_NOBODY = -1


class SampleInterval(Struct, frozen=True):
    """Seconds between samples: as learnt by device and slot, else the common value.

    `learnt` is keyed by (slot, UUID, MIG instance). A device that is not in it and has over half
    as many samples again as the common value gives is scraped faster, or twice
    (docs/definitions.md#measured).
    """

    seconds: float
    learnt: Mapping[Device, float] = field(default_factory=dict)

    def of(self, device: Device, samples: int) -> float:
        """Return the interval of a device with that many samples in its slot."""
        if device in self.learnt:
            return self.learnt[device]
        if samples > self._most:
            return SLOT_SECONDS / samples
        return self.seconds

    def differing(self, devices: Mapping[Device, int]) -> Iterator[tuple[Device, float]]:
        """Yield those devices with another interval than the common one; values are samples."""
        most = self._most
        for device, samples in devices.items():
            if samples > most or device in self.learnt:
                seconds = self.of(device, samples)
                if seconds != self.seconds:
                    yield device, seconds

    @property
    def _most(self) -> float:
        """More samples than this in a slot are of a device that is scraped faster, or twice."""
        return 1.5 * SLOT_SECONDS / self.seconds


class Attribution(Struct):
    """Device rows by the number of the holding they belong to; `strays` belong to none.

    `common_interval` are the seconds between samples, `intervals` those of devices and slots that
    have others, `devices` how many devices and slots there are. `ambiguous` are UUIDs whose rows
    name a pod of which there were two, `guessed` the holdings whose rows could not be told apart.

    Of devices that several pods may be on, `shares` has by the number of a holding what it had in
    each slot, and `unclear` the groups whose sums cannot be cut at the pods' times; `settled` are
    the devices of the groups whose sums could. `idle_watts` has the idle power of GPU models.
    """

    common_interval: float
    rows: dict[int, list[DeviceSlot]] = field(default_factory=lambda: defaultdict(list))
    strays: list[DeviceSlot] = field(default_factory=list)
    intervals: dict[Device, float] = field(default_factory=dict)
    devices: int = 0
    ambiguous: set[str] = field(default_factory=set)
    guessed: set[int] = field(default_factory=set)
    shares: dict[int, list[DeviceShare]] = field(default_factory=lambda: defaultdict(list))
    unclear: list[DeviceGroup] = field(default_factory=list)
    settled: set[Device] = field(default_factory=set)
    idle_watts: dict[str, float] = field(default_factory=dict)

    def take(self, division: Division) -> None:
        """Add what became of a group."""
        self.strays += division.strays
        for number, share in division.shares.items():
            self.shares[number].append(share)

    def interval(self, row: DeviceSlot) -> float:
        # Asked for every row, and in most hours all devices have the common one.
        if not self.intervals:
            return self.common_interval
        return self.intervals.get(row[:3], self.common_interval)

    def usual_interval(self) -> float | None:
        """Return the interval of most devices, the shorter of equals; None without devices."""
        if not self.devices:
            return None
        counts = Counter(self.intervals.values())
        counts[self.common_interval] += self.devices - len(self.intervals)
        return min(counts, key=lambda seconds: (-counts[seconds], seconds))


def attribute(
    rows: Iterable[DeviceSlot],
    holdings: Sequence[Allocation],
    *,
    interval: SampleInterval,
    offered: Mapping[tuple[str, str], float] | None = None,
) -> Attribution:
    """Match every device row to the holding of the pod that its labels name.

    A name that two pods bore within a slot goes to the one on the row's node, else, until raw
    samples tell them apart (`recut`), to the one that ran longest in it. Rows whose pod held
    nothing in the slot are strays, as are rows without a pod.

    `offered` is how many devices each (node, MIG profile) has that one pod has alone: only where
    all of them are shown is a pod that nothing names found by elimination.
    """
    by_name = _by_name(holdings)
    pools = Pools(holdings, offered or {})
    result = Attribution(interval.seconds)
    rows = list(rows)
    result.idle_watts = idle_power(rows, interval.seconds)
    counts = _Counts()
    # Most clusters share no GPUs, and rows are many: the cheap question comes first.
    pooling = pools.any
    for row in divide_instances(rows, result.idle_watts):
        named = by_name.get((row.namespace, row.pod), ()) if row.pod else ()
        pooled = pooling and pools.take(row, named)
        counts.add(row, pooled=pooled)
        if pooled:
            continue
        found = _holders(row, named) if named else ()
        if not found:
            result.strays.append(row)
            continue
        if len(found) > 1:
            result.ambiguous.add(row.uuid)
            # The uid decides between equals, so that each run gives the same.
            found = sorted(found, key=lambda c: (c[1].ran_in(row.slot), c[1].pod.uid))
        result.rows[found[-1][0]].append(row)
    counts.note_intervals(result, interval)
    left = _without_copies(_without_parents(result, counts.instances), counts)
    result.strays = pools.take_unnamed(left, result.rows)
    for group in pools.groups():
        if is_clear(group, holdings, result.interval):
            result.take(divide(group, holdings, result.interval, result.idle_watts))
            result.settled.update((group.slot, *key) for key in group.devices())
        else:
            result.unclear.append(group)
    result.strays += counted_once(pools.nobodys, result.interval)
    return result


class _Counts:
    """How many samples each device has in a slot, copies of it left out.

    `named` are those of its pods together, `bare` of its longest row without one. `by_process` are
    the devices with values by process, `instances` the slots and GPUs that have MIG instances.
    """

    def __init__(self) -> None:
        self.named: dict[Device, int] = {}
        self.bare: dict[Device, int] = {}
        self.by_process: set[Device] = set()
        self.instances: set[tuple[int, str]] = set()

    def add(self, row: DeviceSlot, *, pooled: bool) -> None:
        device = row[:3]
        if pooled or not row.pod:
            # Beside others of the device, perhaps: must not look like faster scrapes.
            self.bare[device] = max(self.bare.get(device, 0), row.samples)
        else:
            self.named[device] = self.named.get(device, 0) + row.samples
        if row.process_sum is not None:
            self.by_process.add(device)
        if row.gpu_instance and not pooled:
            self.instances.add((row.slot, row.uuid))

    def with_own_row(self, result: Attribution) -> set[Device]:
        """Return the devices with a row of their own at the time of their pods' rows."""
        return {
            device
            for device in self.named.keys() & self.bare.keys()
            if device in self.by_process
            or is_crowded(
                self.named[device] + self.bare[device],
                result.intervals.get(device, result.common_interval),
            )
        }

    def note_intervals(self, result: Attribution, interval: SampleInterval) -> None:
        samples = self.named.copy()
        for device, count in self.bare.items():
            samples[device] = max(samples.get(device, 0), count)
        result.devices = len(samples)
        for device, seconds in interval.differing(samples):
            result.intervals[device] = seconds


def _without_parents(result: Attribution, cut: Collection[tuple[int, str]]) -> Attribution:
    """Take their activity from the rows of whole GPUs that stand beside those of their MIG
    instances; `cut` has the slots and GPUs that have any.
    """
    # Exporters show a partitioned GPU beside its instances: its activity would count twice.
    if cut:
        result.strays = [
            row._replace(activity_sum=None, samples=0)
            if not (row.gpu_instance or row.pod) and (row.slot, row.uuid) in cut
            else row
            for row in result.strays
        ]
    return result


def _without_copies(result: Attribution, counts: _Counts) -> list[DeviceSlot]:
    """Return the strays; of a device's own row only what the rows of its pods leave over.

    In virtual-GPU mode exporters show a device without a pod beside the rows of its pods.
    """
    # Most devices of a cluster have one or the other: those are passed by.
    both = counts.with_own_row(result)
    named: dict[Device, list[DeviceSlot]] = defaultdict(list)
    for rows in (result.strays, *result.rows.values()) if both else ():
        for row in rows:
            if row[:3] in both and row.pod:
                named[row[:3]].append(row)
    if not named:
        return result.strays
    left = []
    for row in result.strays:
        pods = () if row.pod else named.get(row[:3], ())
        if not pods or not ran_at_once([row, *pods], result.interval(row)):
            left.append(row)
        elif row.activity_sum is not None:
            rest = row.activity_sum - sum(one.activity_sum or 0.0 for one in pods)
            samples = row.samples - sum(one.samples for one in pods)
            left.append(row._replace(activity_sum=max(0.0, rest), samples=max(0, samples)))
    return left


def _by_name(holdings: Sequence[Allocation]) -> dict[tuple[str, str], list[_Numbered]]:
    by_name: dict[tuple[str, str], list[_Numbered]] = defaultdict(list)
    for number, holding in enumerate(holdings):
        by_name[holding.pod.namespace, holding.pod.name].append((number, holding))
    return by_name


def _holders(row: DeviceSlot, named: Sequence[_Numbered]) -> Sequence[_Numbered]:
    """Return the holdings that the row may belong to, of those whose pod has its name."""
    start, end = row.slot, row.slot + SLOT_SECONDS
    if len(named) == 1:
        held = named[0][1].held
        return named if held[0][0] < end and held[-1][1] > start else ()
    return _narrowed(
        row, [one for one in named if one[1].held[0][0] < end and one[1].held[-1][1] > start]
    )


def _narrowed(row: DeviceSlot, there: Sequence[_Numbered]) -> Sequence[_Numbered]:
    """Return those of several holdings of one name that fit a device: they may be of one pod."""
    if len(there) > 1 and row.node:
        there = [one for one in there if one[1].pod.node == row.node] or there
    if len(there) > 1:
        # Its MIG devices by profile, its whole GPUs by model, and what claims gave it by device.
        there = [one for one in there if one[1].profile == row.profile] or there
        there = [one for one in there if same_model(one[1].gpu_class.model, row.model)] or there
        # A claim tells the device; who has no claim may be on any other.
        given = [one for one in there if row.uuid in one[1].devices]
        there = given or [one for one in there if not one[1].devices] or there
    return there


def mislabelled(attribution: Attribution, holdings: Sequence[Allocation]) -> set[str]:
    """Return the UUIDs whose label was there while its pod did not run, or names two pods.

    Their sums mix the pod's samples with others and cannot be cut apart: `recut` does it from
    raw samples (docs/definitions.md#attribution, rule 6).
    """
    uuids = set(attribution.ambiguous)
    for number, rows in attribution.rows.items():
        holding = holdings[number]
        for row in rows:
            expected = holding.ran_in(row.slot) / attribution.interval(row)
            if row.samples - expected >= _EXCESS_SAMPLES:
                uuids.add(row.uuid)
    return uuids


def guess(attribution: Attribution, uuids: Collection[str], holdings: Sequence[Allocation]) -> None:
    """Note that rows of `uuids` stay as their labels have them: raw samples were refused."""
    for number, rows in attribution.rows.items():
        if any(row.uuid in uuids for row in rows):
            attribution.guessed.add(number)
    for group in attribution.unclear:
        attribution.guessed.update(group.tenants)
        attribution.take(divide(group, holdings, attribution.interval, attribution.idle_watts))
    attribution.unclear.clear()


def recut(
    attribution: Attribution,
    uuids: Collection[str],
    samples: Iterable[ActivitySample],
    holdings: Sequence[Allocation],
) -> None:
    """Replace the rows of `uuids` by rows summed anew from raw samples.

    A sample belongs to the pod of its labels that ran at its instant, on the device's node where
    two bore the name; the others become strays of the device. One of a device that several pods
    may be on is divided among those that ran at its instant.
    """
    of_group = {
        (group.slot, *key): group for group in attribution.unclear for key in group.devices()
    }
    # A GPU may have to be cut in one slot and not in the other, where it is counted already.
    done = attribution.settled | of_group.keys()
    patterns = _taken_out(attribution, lambda row: row.uuid in uuids and row[:3] not in done)
    grouped: dict[int, list[ActivitySample]] = defaultdict(list)
    by_name = _by_name(holdings)
    values: dict[tuple[Device, int], list[float]] = defaultdict(list)
    for device, together in groupby(samples, _device_of):
        some = list(together)
        if device in of_group:
            grouped[id(of_group[device])] += some
        for sample in some if device in patterns else ():
            candidates = by_name.get((sample.namespace, sample.pod), ())
            holder = _holder_at(sample.at, patterns[device], candidates)
            values[device, holder].append(sample.activity)
    sums = {key: (fsum(some), len(some)) for key, some in values.items()}
    _put(attribution, patterns, sums, holdings)
    for group in attribution.unclear:
        own = grouped[id(group)]
        idle = attribution.idle_watts
        attribution.take(divide_by_instants(group, holdings, attribution.interval, own, idle))
    attribution.unclear.clear()


def _device_of(sample: ActivitySample) -> Device:
    slot = int(sample.at // SLOT_SECONDS) * SLOT_SECONDS
    return (slot, sample.uuid, sample.gpu_instance)


def _taken_out(
    attribution: Attribution, wanted: Callable[[DeviceSlot], bool]
) -> dict[Device, DeviceSlot]:
    """Take rows out; return for each device one with its peak memory and all of its energy."""
    found: dict[Device, list[DeviceSlot]] = defaultdict(list)
    for rows in (*attribution.rows.values(), attribution.strays):
        for row in rows:
            if wanted(row):
                found[row[:3]].append(row)
        rows[:] = [row for row in rows if row[:3] not in found]
    patterns = {}
    for device, rows in found.items():
        peaks = [r.memory_used_peak_mib for r in rows if r.memory_used_peak_mib is not None]
        energy = [r.energy_wh for r in rows if r.energy_wh is not None]
        idle = [r.idle_wh for r in rows if r.idle_wh is not None]
        patterns[device] = max(rows, key=lambda row: (row.node, row.model, row.profile))._replace(
            memory_used_peak_mib=max(peaks, default=None),
            energy_wh=fsum(energy) if energy else None,
            idle_wh=fsum(idle) if idle else None,
            # Means of a slot cannot be cut at the pods' times.
            levels=NO_LEVELS,
        )
    return patterns


def _holder_at(at: float, device: DeviceSlot, candidates: Sequence[_Numbered]) -> int:
    running = [c for c in candidates if any(a <= at < b for a, b in c[1].runs)]
    running = list(_narrowed(device, running))
    return running[0][0] if running else _NOBODY


def _put(
    attribution: Attribution,
    patterns: Mapping[Device, DeviceSlot],
    sums: Mapping[tuple[Device, int], tuple[float, int]],
    holdings: Sequence[Allocation],
) -> None:
    """Add the new rows; memory and energy stay with the holder of most samples of a device."""
    most: dict[Device, tuple[int, int]] = {}
    for (device, number), (_, count) in sums.items():
        most[device] = max(most.get(device, (0, number)), (count, number))
    for (device, number), (total, count) in sorted(sums.items()):
        row = patterns[device]
        if most[device][1] != number:
            row = row._replace(memory_used_peak_mib=None, energy_wh=None, idle_wh=None)
        row = row._replace(activity_sum=total, samples=count)
        if number == _NOBODY:
            attribution.strays.append(row._replace(namespace="", pod="", container=""))
        else:
            pod = holdings[number].pod
            attribution.rows[number].append(row._replace(namespace=pod.namespace, pod=pod.name))
