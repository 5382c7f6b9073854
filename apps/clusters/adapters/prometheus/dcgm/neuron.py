"""Neuron devices from series of their cores, and the choice of a reader by family.

Neuron Monitor shows the cores that a runtime has in use, numbered over a node, and of every node
how many devices and cores there are. A device is as active as the mean of its cores; a core that
is not shown does nothing. No series names a device or a pod, so that devices get names here.

Sources: AWS' documentation of Neuron Monitor and its script for Prometheus.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from math import nan
from typing import NamedTuple

import msgspec

from apps.clusters.adapters.prometheus.dcgm.device_rows import (
    LARGEST_FRACTION,
    LARGEST_PERCENT,
    DeviceRow,
    Raw,
    Sample,
    reads_percent,
)
from apps.clusters.adapters.prometheus.dcgm.exporters import (
    DeviceLabels,
    HolderLabels,
    SeriesPart,
)
from apps.clusters.adapters.prometheus.dcgm.vendors import VendorReader, vendor_series
from apps.clusters.adapters.prometheus.http_api import END_MARGIN_SECONDS, by, one_of, over, raw
from apps.clusters.adapters.prometheus.kube_state.metrics import labels_of
from apps.clusters.adapters.prometheus.window_reader import Points, SlotQuery, WindowReader
from apps.clusters.domain.devices.exporter_profile import Family
from apps.clusters.domain.resources import MOST_DEVICES

HARDWARE = "neuron_hardware_info"
_PLACE_LABELS = ("node", "kubernetes_node", "nodename", "hostname", "instance_id")
"""The labels by which series may name a node, the best first."""
_MOST_CORES = 64
_Target = tuple[str, str, str]
"""Node, job and instance of a scrape target."""


class NeuronLabels(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The labels of a core, or of a node's hardware, with those that may name the node."""

    node: str = ""
    kubernetes_node: str = ""
    nodename: str = ""
    hostname: str = ""
    instance_id: str = ""
    job: str = ""
    instance: str = ""
    neuroncore: str = ""
    neuron_device_count: str = ""
    neuroncore_per_device_count: str = ""

    @property
    def place(self) -> str:
        """The node; its EC2 instance where no label names it, as some clusters name nodes so."""
        return next(filter(None, (getattr(self, name) for name in _PLACE_LABELS)), "")

    @property
    def target(self) -> _Target:
        return self.place, self.job, self.instance

    @property
    def core(self) -> int | None:
        """The number of the core on its node; None where it is no number."""
        return _whole(self.neuroncore, MOST_DEVICES * _MOST_CORES)


class NeuronSeries(NeuronLabels, frozen=True, gc=False, cache_hash=True):
    """The same with the metric, for queries of several."""

    name: str = msgspec.field(name="__name__", default="")


class _Device(NamedTuple):
    """A device of a node by its number, and the first and the last of its cores."""

    place: str
    number: int
    first: int
    last: int

    @property
    def uuid(self) -> str:
        # Its cores are part of the name: nothing else tells raw series which are the device's.
        return f"{self.place}/neuron{self.number}:{self.first}-{self.last}"

    @property
    def cores(self) -> range:
        return range(self.first, self.last + 1)

    def mean(self, values: Mapping[int, float]) -> float:
        """Return the mean over all its cores of what is known of some."""
        return sum(values.get(core, 0.0) for core in self.cores) / len(self.cores)

    def sample(self, values: Mapping[int, float]) -> float:
        """Return the mean at one time; NaN, which is left out, where a value cannot be."""
        here = (values.get(core, 0.0) for core in self.cores)
        # Together with others it might look like a fraction.
        return self.mean(values) if all(0.0 <= v <= LARGEST_PERCENT for v in here) else nan


def vendor_reader(reading: WindowReader, part: SeriesPart) -> VendorReader:
    """Return the reader of a part of another vendor's devices."""
    kind = NeuronReader if part.exporter.family is Family.NEURON else VendorReader
    return kind(reading, part)


def device_series(
    reading: WindowReader,
    part: SeriesPart,
    metric: str,
    uuids: Collection[str],
    span: tuple[float, float],
) -> Raw:
    """Return the raw samples of some devices of another vendor, in start..end of `span`."""
    if part.exporter.family is Family.NEURON:
        return _neuron_series(reading, part, uuids, span)
    return vendor_series(reading, part, metric, uuids, start=span[0], end=span[1])


class NeuronReader(VendorReader):
    """Reads one part of Neuron devices, each with all cores that the node's hardware tells of."""

    def queries(self) -> list[SlotQuery]:
        exporter, matchers = self.part.exporter, self.part.matchers
        return [
            # A core has a series for each runtime that had it, one after the other.
            self._by_labels("sum", over("sum_over_time", exporter.activity, matchers)),
            self._by_labels("max", over("count_over_time", HARDWARE, matchers)),
        ]

    def _by_labels(self, aggregation: str, inner: str) -> SlotQuery:
        query = by(aggregation, labels_of(NeuronLabels), inner)
        return SlotQuery(query, NeuronLabels, self.part.slots)

    def rows(self, answers: Iterator[Points]) -> Iterator[tuple[int, list[DeviceRow]]]:
        """Yield (slot, rows) of the whole part."""
        cores: defaultdict[int, defaultdict[_Target, dict[int, float]]]
        cores = defaultdict(lambda: defaultdict(dict))
        for slot, labels, value in next(answers):
            if labels.core is not None:
                cores[slot][labels.target][labels.core] = value
        hardware: defaultdict[int, dict[str, tuple[NeuronLabels, int]]] = defaultdict(dict)
        for slot, labels, value in next(answers):
            known = hardware[slot].get(labels.place)
            # A node that is scraped twice: the target with more samples tells.
            if known is None or value > known[1]:
                hardware[slot][labels.place] = labels, int(value)
        for slot in self.part.slots:
            rows: list[DeviceRow] = []
            for labels, samples in hardware[slot].values():
                sums = cores[slot].get(labels.target, {})
                rows += self._node_rows(labels, sums, samples)
            yield slot, rows

    def _node_rows(
        self, labels: NeuronLabels, sums: Mapping[int, float], samples: int
    ) -> Iterator[DeviceRow]:
        metric, scale = self.part.exporter.activity, 1.0
        # Amazon's own collector writes per cent under the same name.
        if reads_percent(value / samples for value in sums.values()):
            self.rescaled.add(metric)
            self._reading.remark(f"{metric} reads per cent here, not 0..1")
            scale = 0.01
        usable, odd = {}, set()
        for core, value in sums.items():
            if 0.0 <= value * scale <= LARGEST_FRACTION * samples:
                usable[core] = min(value * scale, float(samples))
            else:
                odd.add(core)
                self._reading.remark(
                    f"{metric} has values outside 0..1 on core {core} of {labels.place}: its "
                    "device has no metrics"
                )
        self.metrics.add(metric)
        for device in _devices_of(labels):
            self.uuids.add(device.uuid)
            named = DeviceLabels(uuid=device.uuid, node_label=device.place)
            # A core that is not shown does nothing; of one that shows what cannot be, nothing is
            # known, and its device would look idle without it.
            known = odd.isdisjoint(device.cores)
            mean, count = (device.mean(usable), samples) if known else (None, 0)
            yield DeviceRow(named, "", "", "", mean, count, None, None)


def _devices_of(hardware: NeuronLabels) -> Iterator[_Device]:
    count = _whole(hardware.neuron_device_count, MOST_DEVICES) or 0
    each = _whole(hardware.neuroncore_per_device_count, _MOST_CORES)
    for number in range(count if each and hardware.place else 0):
        first = number * (each or 0)
        yield _Device(hardware.place, number, first, first + (each or 0) - 1)


def _whole(text: str, most: int) -> int | None:
    # Labels are texts of anybody: what is no small number is none.
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(most)):
        return None
    found = int(text)
    return found if found <= most else None


def _device_named(uuid: str) -> _Device | None:
    """Return the device that `_Device.uuid` names; None for any other name."""
    place, mark, rest = uuid.rpartition("/neuron")
    number, _, cores = rest.partition(":")
    texts = (number, *cores.partition("-")[::2])
    parts = [_whole(text, MOST_DEVICES * _MOST_CORES) for text in texts]
    numbers = [part for part in parts if part is not None]
    if not mark or len(numbers) < len(parts) or numbers[1] > numbers[2]:
        return None
    return _Device(place, *numbers)


def _neuron_series(
    reading: WindowReader, part: SeriesPart, uuids: Iterable[str], span: tuple[float, float]
) -> Raw:
    """Return the samples of devices: the mean of their cores whenever the hardware was told."""
    wanted = [device for uuid in uuids if (device := _device_named(uuid)) is not None]
    missing = {device.place for device in wanted}
    times: defaultdict[_Target, list[float]] = defaultdict(list)
    cores: defaultdict[_Target, defaultdict[float, dict[int, float]]]
    cores = defaultdict(lambda: defaultdict(dict))
    for label in _PLACE_LABELS:
        # Each label is a query of its own: the next are tried for nodes that are missing.
        if not missing:
            break
        metric = f"{part.exporter.activity}|{HARDWARE}"
        matchers = (*part.matchers, one_of(label, sorted(missing)))
        query = raw(metric, matchers, seconds=span[1] - span[0])
        for one in reading.raw(query, span[1] - END_MARGIN_SECONDS, NeuronSeries):
            target, core = one.metric.target, one.metric.core
            if one.metric.name == HARDWARE:
                times[target] += [at for at, _ in one.values]
            elif core is not None:
                for at, value in one.values:
                    here = cores[target][at]
                    here[core] = here.get(core, 0.0) + value
        missing -= {target[0] for target in times}
    found: Raw = {}
    for device in wanted:
        targets = [target for target in times if target[0] == device.place]
        if targets:
            # All series of a target have the times of its scrapes.
            target = max(targets, key=lambda one: (len(times[one]), one))
            samples: list[Sample] = [
                (at, device.sample(cores[target].get(at, {}))) for at in sorted(times[target])
            ]
            found[HolderLabels(device.uuid)] = [samples]
    return found
