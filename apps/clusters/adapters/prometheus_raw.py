"""Raw samples of a few devices, for what sums over slots cannot tell apart."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from apps.clusters.adapters.prometheus_activity import (
    Sample,
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
    workload,
)
from apps.clusters.adapters.prometheus_reading import Reading
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

Raw = dict[Holder, list[list[Sample]]]
"""Every series of a device and holder, each in order of time."""


def batches(values: Collection[str], size: int = UUIDS_PER_QUERY) -> Iterator[list[str]]:
    """Yield the values in order, some at a time."""
    ordered = sorted(values)
    for n in range(0, len(ordered), size):
        yield ordered[n : n + size]


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
    series = [samples for some in found.values() for samples in some]
    if metric == ACTIVITY:
        return 0.01 if reads_percent(v for samples in series for _, v in samples) else 1.0
    sums = [
        (sum(v for _, v in samples), len(samples))
        for samples in (usable(one, scale=0.01) for one in series)
    ]
    return 1.0 if reads_fraction((total * 100, count) for total, count in sums) else 0.01


def read_samples(
    reading: Reading, uuids: Sequence[str], window: Window
) -> Iterator[ActivitySample]:
    """Yield the usable samples of some devices in the window, device by device."""
    if not uuids:
        return
    covering = _slots(window)
    chunked = [covering[n : n + MAX_STEPS] for n in range(0, len(covering), MAX_STEPS)]
    for stretch in parts(reading, chunked):
        for part in stretch:
            start = max(window.start_seconds, part.slots[0])
            end = min(window.end_seconds, part.slots[-1] + SLOT_SECONDS)
            yield from _part_samples(reading, part, uuids, start, end)


def _slots(window: Window) -> list[int]:
    """Return every slot that the window touches; it need not begin or end with one."""
    first = int(window.start_seconds) // SLOT_SECONDS * SLOT_SECONDS
    return [*range(first, int(-(-window.end_seconds // 1)), SLOT_SECONDS)]


def _part_samples(
    reading: Reading, part: Part, uuids: Sequence[str], start: float, end: float
) -> Iterator[ActivitySample]:
    missing = set(uuids)
    for metric in (ACTIVITY, UTILIZATION):
        found = raw_series(
            reading, metric, part.matchers, missing, form=part.form, start=start, end=end
        )
        scale = unit_scale(metric, found)
        yield from _cleaned(found, scale)
        missing -= {holder.uuid for holder in found}
        if not missing:
            return


def _cleaned(found: Raw, scale: float) -> Iterator[ActivitySample]:
    together: dict[tuple[str, str, str, str], list[list[Sample]]] = {}
    for holder, series in found.items():
        namespace, pod, _ = workload(holder)
        key = (holder.uuid, holder.gpu_instance, namespace, pod)
        together.setdefault(key, []).extend(series)
    for key, series in sorted(together.items()):
        for at, value in usable(merged(series), scale=scale):
            yield ActivitySample(*key, at, value)


def summed(series: Iterable[Sequence[Sample]], *, scale: float) -> tuple[float, int]:
    """Return the sum and number of the usable samples of one device and holder."""
    samples = usable(merged([one for one in series if one]), scale=scale)
    return sum(value for _, value in samples), len(samples)
