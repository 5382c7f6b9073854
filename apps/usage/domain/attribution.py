"""How a device's samples find the pod that held the device (docs/definitions.md#attribution)."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from apps.clusters.domain.samples import ActivitySample, DeviceSlot
from apps.clusters.domain.window import SLOT_SECONDS
from apps.usage.domain.holdings import Holding

# A grid of samples can hold one more than its length says; from two more on a label was there
# while its pod did not run.
_EXCESS_SAMPLES = 2


@dataclass(frozen=True, slots=True)
class Interval:
    """Seconds between samples: as learnt for the hour, else as the catalog says.

    A device that has over half as many samples again is scraped faster, or twice, and has its
    own interval (docs/definitions.md#measured).
    """

    seconds: float

    def of(self, samples_in_slot: int) -> float:
        """Return the interval of a device with that many samples in a whole slot."""
        expected = SLOT_SECONDS / self.seconds
        if samples_in_slot > 1.5 * expected:
            return SLOT_SECONDS / samples_in_slot
        return self.seconds


@dataclass(slots=True)
class Attribution:
    """Device rows by the holding they belong to; `strays` belong to nobody.

    `intervals` gives the sampling interval by (slot, UUID, MIG instance).
    """

    rows: dict[int, list[DeviceSlot]] = field(default_factory=lambda: defaultdict(list))
    strays: list[DeviceSlot] = field(default_factory=list)
    intervals: dict[tuple[int, str, str], float] = field(default_factory=dict)

    def interval(self, row: DeviceSlot) -> float:
        return self.intervals[row.slot, row.uuid, row.gpu_instance]


def attribute(
    rows: Iterable[DeviceSlot], holdings: Sequence[Holding], *, interval: Interval
) -> Attribution:
    """Match every device row to the holding of the pod that its labels name.

    A name that two pods bore within a slot goes to the one on the row's node, else to the one
    that ran longest in it. Rows whose pod held nothing in the slot are strays, as are rows
    without a pod.
    """
    by_name: dict[tuple[str, str], list[tuple[int, Holding]]] = defaultdict(list)
    for number, holding in enumerate(holdings):
        by_name[holding.pod.namespace, holding.pod.name].append((number, holding))
    result = Attribution()
    counts: dict[tuple[int, str, str], int] = defaultdict(int)
    for row in rows:
        counts[row.slot, row.uuid, row.gpu_instance] += row.samples
        match = _match(row, by_name.get((row.namespace, row.pod), ())) if row.pod else None
        if match is None:
            result.strays.append(row)
        else:
            result.rows[match].append(row)
    result.intervals = {device: interval.of(count) for device, count in counts.items()}
    return result


def _match(row: DeviceSlot, candidates: Sequence[tuple[int, Holding]]) -> int | None:
    start, end = row.slot, row.slot + SLOT_SECONDS
    there = [c for c in candidates if c[1].span[0] < end and c[1].span[1] > start]
    if len(there) > 1 and row.node:
        there = [c for c in there if c[1].pod.node == row.node] or there
    if not there:
        return None
    if len(there) == 1:
        return there[0][0]
    return max(there, key=lambda c: (_ran(c[1], start, end), c[1].pod.uid))[0]


def _ran(holding: Holding, start: float, end: float) -> float:
    return sum(max(0.0, min(b, end) - max(a, start)) for a, b in holding.runs)


def mislabelled(attribution: Attribution, holdings: Sequence[Holding]) -> set[str]:
    """Return the UUIDs whose label was there while the pod did not run.

    Their sums mix the pod's samples with others and cannot be cut apart: `recut` does it from
    raw samples (docs/definitions.md#attribution, rule 6).
    """
    uuids = set()
    for number, rows in attribution.rows.items():
        holding = holdings[number]
        for row in rows:
            ran = _ran(holding, row.slot, row.slot + SLOT_SECONDS)
            spare = row.samples - ran / attribution.interval(row)
            if spare >= _EXCESS_SAMPLES:
                uuids.add(row.uuid)
    return uuids


def recut(
    rows: Iterable[DeviceSlot],
    uuids: Collection[str],
    samples: Iterable[ActivitySample],
    holdings: Sequence[Holding],
) -> list[DeviceSlot]:
    """Return `rows` with those of `uuids` summed anew from raw samples.

    A sample keeps its pod only while the pod ran; the others become strays of the device.
    """
    runs: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for holding in holdings:
        runs[holding.pod.namespace, holding.pod.name].extend(holding.runs)
    kept, patterns = [], {}
    for row in rows:
        if row.uuid in uuids:
            patterns[row.slot, row.uuid, row.gpu_instance, row.namespace, row.pod] = row
        else:
            kept.append(row)
    sums: dict[tuple[int, str, str, str, str], tuple[float, int]] = {}
    for sample in samples:
        slot = int(sample.at // SLOT_SECONDS) * SLOT_SECONDS
        holder = (sample.namespace, sample.pod)
        if not any(a <= sample.at < b for a, b in runs.get(holder, ())):
            holder = ("", "")
        key = (slot, sample.uuid, sample.gpu_instance, *holder)
        total, count = sums.get(key, (0.0, 0))
        sums[key] = (total + sample.activity, count + 1)
    kept.extend(_rebuilt(patterns, sums))
    return kept


def _rebuilt(
    patterns: Mapping[tuple[int, str, str, str, str], DeviceSlot],
    sums: Mapping[tuple[int, str, str, str, str], tuple[float, int]],
) -> Iterable[DeviceSlot]:
    by_device = {key[:3]: row for key, row in patterns.items()}
    for key, (total, count) in sorted(sums.items()):
        row = patterns.get(key) or by_device.get(key[:3])
        if row is not None:
            yield row._replace(
                namespace=key[3],
                pod=key[4],
                activity_sum=total,
                samples=count,
                energy_wh=row.energy_wh if key in patterns else None,
            )
