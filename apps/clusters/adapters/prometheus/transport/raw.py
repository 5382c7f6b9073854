"""Raw samples of a few devices, for what sums over slots cannot tell apart."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from apps.clusters.adapters.prometheus.dcgm.activity import (
    Sample,
    merged,
    reads_fraction,
    reads_percent,
    usable,
)
from apps.clusters.adapters.prometheus.dcgm.exporter_metrics import DCGM, ExporterMetrics
from apps.clusters.adapters.prometheus.dcgm.label_schemes import PLAIN, HolderLabels, LabelScheme
from apps.clusters.adapters.prometheus.promql import END_MARGIN_SECONDS, Matcher, one_of, raw
from apps.clusters.adapters.prometheus.transport.window_reader import WindowReader
from apps.clusters.domain.time_spans import Span

UUIDS_PER_QUERY = 50
# From how many devices on a query for all of them is cheaper than naming them.
_MOST_NAMED = 500

Raw = dict[HolderLabels, list[list[Sample]]]
"""Every series of a device and holder, each in order of time."""


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
    form: LabelScheme,
    span: Span,
) -> Raw:
    """Return the raw samples of a span of some devices."""
    start, end = span
    found: Raw = {}
    for some in batches(uuids):
        query = raw(metric, (*matchers, one_of(form.uuid_label, some)), seconds=end - start)
        for one in reading.raw(query, end - END_MARGIN_SECONDS, form.holder):
            found.setdefault(one.metric, []).append(one.values)
    return found


def unit_scale(metric: str, found: Raw, dialect: ExporterMetrics = DCGM) -> float:
    """Return what the values of `metric` are multiplied by to be fractions 0..1."""
    values = (v for some in found.values() for samples in some for _, v in samples)
    if not dialect.is_percent(metric):
        return 0.01 if reads_percent(values) else 1.0
    return 1.0 if reads_fraction((value, 1) for value in values) else 0.01


def summed(series: Iterable[Sequence[Sample]], *, scale: float) -> tuple[float, int]:
    """Return the sum and number of the usable samples of one device and holder."""
    samples = usable(merged([one for one in series if one]), scale=scale)
    return sum(value for _, value in samples), len(samples)
