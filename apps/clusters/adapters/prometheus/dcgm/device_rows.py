"""Device rows in the making, from sums over slots and from raw samples of a few devices.

DCGM writes activity as a fraction 0..1 (`DCGM_FI_PROF_GR_ENGINE_ACTIVE`) or as whole per cent
(`DCGM_FI_DEV_GPU_UTIL`). Collectors in between have been seen to rescale either, and old
exporters leak blanks such as 2147483632 or 9.2e18.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from math import inf
from statistics import median

import msgspec

from apps.clusters.adapters.prometheus.dcgm.exporters import (
    DCGM,
    PLAIN,
    DeviceLabels,
    ExporterMetrics,
    HolderLabels,
    LabelScheme,
)
from apps.clusters.adapters.prometheus.http_api import END_MARGIN_SECONDS, Matcher, one_of, raw
from apps.clusters.adapters.prometheus.window_reader import WindowReader
from apps.clusters.domain.devices.mig import profile_name
from apps.clusters.domain.devices.state import NO_LEVELS, ActivityLevels, DeviceSlot
from apps.clusters.domain.window import SLOT_SECONDS, TimeSpan

Sample = tuple[float, float]
"""(Unix seconds, value)."""

# Values a little over 1 are jitter of the counters and are clamped; more is no fraction.
LARGEST_FRACTION = 1.05
LARGEST_PERCENT = 105.0
# Part of a sampling interval that must lie between samples of two series of one device, for the
# second to count as following the first and not as its copy.
_APART = 0.75

# A grid of samples can hold one more than its length says.
SPARE_SAMPLES = 2
_COPIED = 1.25
DeviceKey = tuple[str, str]
"""(UUID, MIG instance)."""
UUIDS_PER_QUERY = 50
# From how many devices on a query for all of them is cheaper than naming them.
_MOST_NAMED = 500
Raw = dict[HolderLabels, list[list[Sample]]]
"""Every series of a device and holder, each in order of time."""


def usable(samples: Iterable[Sample], *, scale: float) -> list[Sample]:
    """Return the samples that are fractions 0..1 once multiplied by `scale`; 1..1.05 become 1."""
    # NaN fails both comparisons.
    return [
        (at, min(value * scale, 1.0))
        for at, value in samples
        if 0.0 <= value * scale <= LARGEST_FRACTION
    ]


def reads_percent(values: Iterable[float]) -> bool:
    """Say whether values of a metric of fractions are per cent: most that are not 0 exceed 1."""
    fractions = percents = 0
    for value in values:
        if 0.0 < value <= LARGEST_FRACTION:
            fractions += 1
        elif LARGEST_FRACTION < value <= LARGEST_PERCENT:
            percents += 1
    return percents > fractions


def reads_fraction(sums: Iterable[tuple[float, int]]) -> bool:
    """Say whether (sum, samples) of a metric of whole per cent were rescaled to fractions.

    No mean is over 1 then, and only a value strictly between 0 and 1 proves it: a sum of whole
    per cent is a whole number. A device at exactly 1 % looks like one at 100 % of the other
    scale and proves nothing.
    """
    found = False
    for total, count in sums:
        if not 0.0 <= total <= LARGEST_PERCENT * count:
            continue
        if total > LARGEST_FRACTION * count:
            return False
        if total != int(total):
            found = True
    return found


def merged(series: Sequence[Sequence[Sample]]) -> list[Sample]:
    """Return the samples of several series of one device and holder as those of one.

    Series that follow each other are joined; where they overlap (two exporters, or one that is
    scraped twice) the copies are dropped.
    """
    if len(series) == 1:
        return list(series[0])
    spacing = sampling_interval(max(series, key=len, default=())) or 0.0
    ordered = sorted((at, number, value) for number, one in enumerate(series) for at, value in one)
    kept: list[Sample] = []
    last_at, last_number = float("-inf"), -1
    for at, number, value in ordered:
        if number == last_number or at - last_at >= _APART * spacing:
            kept.append((at, value))
            last_at, last_number = at, number
    return kept


def between(samples: Sequence[Sample], others: Sequence[Sequence[Sample]]) -> list[Sample]:
    """Return those samples that lie where none of the other series has any.

    What an exporter shows that does not know the pods is dropped where another one names them.
    """
    spacing = sampling_interval(max([*others, samples], key=len)) or 0.0
    times = sorted(at for one in others for at, _ in one)
    kept = []
    for at, value in samples:
        place = bisect_left(times, at)
        near = min((abs(at - other) for other in times[max(0, place - 1) : place + 1]), default=inf)
        if near >= _APART * spacing:
            kept.append((at, value))
    return kept


def sampling_interval(samples: Sequence[Sample]) -> float | None:
    """Return the median spacing in seconds, to the millisecond; None of fewer than two samples."""
    spacings = [b[0] - a[0] for a, b in pairwise(samples)]
    return round(median(spacings), 3) if spacings else None


class DeviceRow(msgspec.Struct, gc=False):
    """A device and holder in one slot; `activity` is the sum of fractions over `samples`.

    `process` is the mean of what the holder's own processes used, where that is known.
    """

    device: DeviceLabels
    namespace: str
    pod: str
    container: str
    activity: float | None
    samples: int
    memory: float | None
    energy: float | None
    process: float | None = None
    levels: ActivityLevels = NO_LEVELS

    def join(self, other: "DeviceRow") -> None:
        """Add another series of the same device and holder."""
        if other.activity is not None:
            self.activity = (self.activity or 0.0) + other.activity
            self.samples += other.samples
        self.memory = _largest(self.memory, other.memory)
        # Of two series one is a copy, or a part of the time: the mean of one stands for both.
        self.levels = self.levels if self.levels != NO_LEVELS else other.levels
        # Both carry the growth of one counter: a sum would count it twice.
        self.energy = _largest(self.energy, other.energy)
        if (other.device.node, other.device.model) > (self.device.node, self.device.model):
            self.device = other.device


def _largest(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def joined(rows: Iterable[DeviceRow]) -> list[DeviceRow]:
    """Return one row for each device and holder."""
    found: dict[tuple[str, ...], DeviceRow] = {}
    for row in rows:
        device = row.device
        key = (device.uuid, device.gpu_instance, row.namespace, row.pod, row.container)
        if key in found:
            found[key].join(row)
        else:
            found[key] = row
    return list(found.values())


def most_samples(interval_seconds: float) -> float:
    """Return how many samples one series can have in a slot; more are of copies."""
    return max(SLOT_SECONDS / interval_seconds * _COPIED, room_for_one(interval_seconds))


def room_for_one(interval_seconds: float) -> float:
    """Return how many samples one scraper can take in a slot."""
    return SLOT_SECONDS / interval_seconds + SPARE_SAMPLES


def without_repeats(rows: Iterable[DeviceRow], interval: Callable[[DeviceKey], float]) -> None:
    """Count a holder of several replicas of a GPU once, in place; its mean stays.

    It is exported once for each replica, so that its row has more samples than there can be.
    """
    for row in rows:
        seconds = interval(key_of(row))
        if row.activity is not None and row.samples > most_samples(seconds):
            samples = round(SLOT_SECONDS / seconds)
            row.activity *= samples / row.samples
            row.samples = samples


def key_of(row: DeviceRow) -> DeviceKey:
    """Return the device of a row."""
    return row.device.uuid, row.device.gpu_instance


def place_of(row: DeviceRow) -> str:
    """Return the node of a row; the device where no label names the node."""
    return row.device.node or row.device.uuid


def share_energy(rows: Collection[DeviceRow], interval: Callable[[DeviceKey], float]) -> None:
    """Make the energy of the rows of a device add up to what the device used, in place.

    Each row carries the growth of the counter while its labels were there. Rows that follow each
    other in time add up. Rows side by side (MIG instances, sharers of a GPU) repeat the whole
    device's growth and are scaled to the time there is.
    """
    metered = [row for row in rows if row.energy is not None]
    counts = Counter([row.device.uuid for row in metered])
    several: dict[str, list[DeviceRow]] = {uuid: [] for uuid, n in counts.items() if n > 1}
    for row in metered if several else ():
        if row.device.uuid in several:
            several[row.device.uuid].append(row)
    for some in several.values():
        most = SLOT_SECONDS / interval(key_of(some[0]))
        seen = sum(row.samples for row in some)
        for row in some:
            # No samples to go by: equal parts still add up to what the GPU used.
            if seen == 0:
                row.energy = (row.energy or 0.0) / len(some)
            elif seen > most + SPARE_SAMPLES:
                row.energy = (row.energy or 0.0) * most / seen


def device_slots(slot: int, rows: Iterable[DeviceRow]) -> Iterator[DeviceSlot]:
    """Yield the rows as the port gives them."""
    for row in rows:
        device = row.device
        yield DeviceSlot(
            slot,
            device.uuid,
            device.gpu_instance,
            profile_name(device.profile),
            device.model,
            device.node,
            row.namespace,
            row.pod,
            row.container,
            row.activity,
            row.samples,
            row.memory,
            row.energy,
            None if row.process is None else row.process * row.samples,
            row.levels,
        )


def batches(values: Collection[str]) -> Iterator[list[str]]:
    """Yield the values in order, some at a time."""
    ordered = sorted(values)
    for n in range(0, len(ordered), UUIDS_PER_QUERY):
        yield ordered[n : n + UUIDS_PER_QUERY]


def named_devices(
    uuids: Collection[str], label: str = PLAIN.uuid_label
) -> Iterator[tuple[Matcher, ...]]:
    """Yield matchers that name these devices, or none where they are too many or unknown."""
    if not 0 < len(uuids) <= _MOST_NAMED:
        yield ()
        return
    for some in batches(uuids):
        yield (one_of(label, some),)


def raw_series(
    reading: WindowReader,
    metric: str,
    matchers: tuple[Matcher, ...],
    uuids: Collection[str],
    *,
    scheme: LabelScheme,
    span: TimeSpan,
) -> Raw:
    """Return the raw samples of a span of some devices."""
    start, end = span
    found: Raw = {}
    queries = [
        raw(metric, (*matchers, one_of(scheme.uuid_label, some)), seconds=end - start)
        for some in batches(uuids)
    ]
    for series in reading.raws(queries, end - END_MARGIN_SECONDS, scheme.holder):
        for one in series:
            found.setdefault(one.metric, []).append(one.values)
    return found


def unit_scale(metric: str, found: Raw, exporter: ExporterMetrics = DCGM) -> float:
    """Return what the values of `metric` are multiplied by to be fractions 0..1."""
    values = (v for some in found.values() for samples in some for _, v in samples)
    if not exporter.is_percent(metric):
        return 0.01 if reads_percent(values) else 1.0
    return 1.0 if reads_fraction((value, 1) for value in values) else 0.01


def summed(series: Iterable[Sequence[Sample]], *, scale: float) -> tuple[float, int]:
    """Return the sum and number of the usable samples of one device and holder."""
    samples = usable(merged([one for one in series if one]), scale=scale)
    return sum(value for _, value in samples), len(samples)
