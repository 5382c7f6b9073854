"""Raw samples of a few devices, for what sums over slots cannot tell apart."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from apps.clusters.adapters.prometheus_activity import (
    Sample,
    between,
    merged,
    reads_fraction,
    reads_percent,
    usable,
)
from apps.clusters.adapters.prometheus_forms import (
    ACTIVITY,
    UTILIZATION,
    Form,
    Holder,
    Part,
    parts,
)
from apps.clusters.adapters.prometheus_reading import Reading
from apps.clusters.adapters.prometheus_rows import DeviceKey
from apps.clusters.adapters.promql import (
    END_MARGIN_SECONDS,
    MAX_STEPS,
    Matcher,
    one_of,
    raw,
)
from apps.clusters.domain.samples import ActivitySample
from apps.clusters.domain.window import SLOT_SECONDS, Window

UUIDS_PER_QUERY = 50
# From how many devices on a query for all of them is cheaper than naming them.
_MOST_NAMED = 500

_Pod = tuple[str, str]

Raw = dict[Holder, list[list[Sample]]]
"""Every series of a device and holder, each in order of time."""


def batches(values: Collection[str], size: int = UUIDS_PER_QUERY) -> Iterator[list[str]]:
    """Yield the values in order, some at a time."""
    ordered = sorted(values)
    for n in range(0, len(ordered), size):
        yield ordered[n : n + size]


def named_devices(uuids: Collection[str]) -> Iterator[tuple[Matcher, ...]]:
    """Yield matchers that name these devices, or none where they are too many or unknown."""
    if not 0 < len(uuids) <= _MOST_NAMED:
        yield ()
        return
    for some in batches(uuids):
        yield (one_of("UUID", some),)


def raw_series(
    reading: Reading,
    metric: str,
    matchers: tuple[Matcher, ...],
    uuids: Collection[str],
    *,
    form: Form,
    start: float,
    end: float,
) -> Raw:
    """Return the raw samples of start..end of some devices."""
    found: Raw = {}
    for some in batches(uuids):
        query = raw(metric, (*matchers, one_of("UUID", some)), seconds=end - start)
        for one in reading.raw(query, end - END_MARGIN_SECONDS, form.holder):
            found.setdefault(one.metric, []).append(one.values)
    return found


def unit_scale(metric: str, found: Raw) -> float:
    """Return what the values of `metric` are multiplied by to be fractions 0..1."""
    values = (v for some in found.values() for samples in some for _, v in samples)
    if metric == ACTIVITY:
        return 0.01 if reads_percent(values) else 1.0
    return 1.0 if reads_fraction((value, 1) for value in values) else 0.01


def read_samples(
    reading: Reading, uuids: Sequence[str], window: Window
) -> Iterator[ActivitySample]:
    """Yield the usable samples of some devices in the window, device by device."""
    if not uuids:
        return
    covering = _slots(window)
    chunked = [covering[n : n + MAX_STEPS] for n in range(0, len(covering), MAX_STEPS)]
    for stretch in parts(reading, chunked):
        yield from _stretch_samples(reading, stretch, uuids, window)


def _slots(window: Window) -> list[int]:
    """Return every slot that the window touches; it need not begin or end with one."""
    first = int(window.start_seconds) // SLOT_SECONDS * SLOT_SECONDS
    return [*range(first, int(-(-window.end_seconds // 1)), SLOT_SECONDS)]


def _stretch_samples(
    reading: Reading, stretch: Sequence[Part], uuids: Sequence[str], window: Window
) -> Iterator[ActivitySample]:
    missing = set(uuids)
    for metric in (ACTIVITY, UTILIZATION):
        devices: dict[DeviceKey, dict[_Pod, list[list[Sample]]]] = {}
        for part in stretch:
            found = raw_series(
                reading,
                metric,
                part.matchers,
                missing,
                form=part.form,
                start=max(window.start_seconds, part.slots[0]),
                end=min(window.end_seconds, part.slots[-1] + SLOT_SECONDS),
            )
            _gather(part, found, unit_scale(metric, found), devices)
        for device, together in sorted(devices.items()):
            yield from _joined(device, together)
        missing -= {uuid for uuid, _ in devices}
        if not missing:
            return


def _gather(
    part: Part,
    found: Raw,
    scale: float,
    into: dict[DeviceKey, dict[_Pod, list[list[Sample]]]],
) -> None:
    """Add the usable samples of a part, by device and pod."""
    for holder, series in found.items():
        together = into.setdefault((holder.uuid, holder.gpu_instance), {})
        for one in series:
            if one:
                slot = int(one[0][0]) // SLOT_SECONDS * SLOT_SECONDS
                namespace, pod, _ = part.workload(holder, slot)
                together.setdefault((namespace, pod), []).append(usable(one, scale=scale))


def _joined(
    device: DeviceKey, together: dict[_Pod, list[list[Sample]]]
) -> Iterator[ActivitySample]:
    """Yield the samples of a device once, whatever the number of its exporters."""
    joined = {name: merged(series) for name, series in together.items()}
    named = [samples for (_, pod), samples in joined.items() if pod]
    for name, samples in sorted(joined.items()):
        for at, value in samples if name[1] else between(samples, named):
            yield ActivitySample(*device, *name, at, value)


def summed(series: Iterable[Sequence[Sample]], *, scale: float) -> tuple[float, int]:
    """Return the sum and number of the usable samples of one device and holder."""
    samples = usable(merged([one for one in series if one]), scale=scale)
    return sum(value for _, value in samples), len(samples)
