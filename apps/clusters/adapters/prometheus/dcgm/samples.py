"""Raw samples as the port gives them: each device once, whatever the number of its exporters."""

from collections.abc import Collection, Iterator, Sequence

from apps.clusters.adapters.prometheus.dcgm.activity import Sample, between, merged, usable
from apps.clusters.adapters.prometheus.dcgm.exporter_metrics import ACTIVITY, DIALECTS
from apps.clusters.adapters.prometheus.dcgm.label_schemes import LabelledSlots, parts, parts_of
from apps.clusters.adapters.prometheus.dcgm.rows import DeviceKey
from apps.clusters.adapters.prometheus.dcgm.stuck_counters import working
from apps.clusters.adapters.prometheus.dcgm.vendors import vendor_series
from apps.clusters.adapters.prometheus.promql import MAX_STEPS
from apps.clusters.adapters.prometheus.transport.raw import Raw, raw_series, unit_scale
from apps.clusters.adapters.prometheus.transport.window_reader import WindowReader
from apps.clusters.domain.devices.samples import ActivitySample
from apps.clusters.domain.window import SLOT_SECONDS, Window

_Pod = tuple[str, str]
_Devices = dict[DeviceKey, dict[_Pod, list[list[Sample]]]]
"""Every series of a device and pod, each in order of time."""


def read_samples(
    reading: WindowReader,
    uuids: Sequence[str],
    window: Window,
    known: Sequence[Sequence[LabelledSlots]] | None = None,
) -> Iterator[ActivitySample]:
    """Yield the usable samples of some devices in the window, device by device.

    `known` are the parts of a longer window where these were found already.
    """
    if not uuids:
        return
    covering = slots_touched(window)
    chunked = [covering[n : n + MAX_STEPS] for n in range(0, len(covering), MAX_STEPS)]
    found = parts(reading, chunked) if known is None else parts_of(known, covering)
    for stretch in found:
        yield from _stretch_samples(reading, stretch, uuids, window)


def slots_touched(window: Window) -> list[int]:
    """Return every slot that the window touches; it need not begin or end with one."""
    first = int(window.start_seconds) // SLOT_SECONDS * SLOT_SECONDS
    return [*range(first, int(-(-window.end_seconds // 1)), SLOT_SECONDS)]


def _stretch_samples(
    reading: WindowReader, stretch: Sequence[LabelledSlots], uuids: Sequence[str], window: Window
) -> Iterator[ActivitySample]:
    missing = set(uuids)
    for dialect in DIALECTS:
        some = [part for part in stretch if part.dialect is dialect]
        for metric in dialect.metrics if some else ():
            devices = _devices(reading, some, metric, missing, window)
            if metric == ACTIVITY:
                for key in _stuck(reading, some, devices):
                    del devices[key]
            for device, together in sorted(devices.items()):
                yield from _joined(device, together)
            missing -= {uuid for uuid, _ in devices}
            if not missing:
                return


def _devices(
    reading: WindowReader,
    some: Sequence[LabelledSlots],
    metric: str,
    uuids: Collection[str],
    window: Window,
) -> _Devices:
    """Return the usable samples of a metric, by device and pod."""
    devices: _Devices = {}
    for part in some:
        found = _part_series(reading, part, metric, uuids, window)
        _gather(part, found, unit_scale(metric, found, part.dialect), devices)
    return devices


def _stuck(
    reading: WindowReader, some: Sequence[LabelledSlots], devices: _Devices
) -> list[DeviceKey]:
    """Return the whole devices whose counter reads 0 throughout while they work."""
    still = {
        uuid
        for (uuid, instance), together in devices.items()
        if not instance
        and not any(value for series in together.values() for one in series for _, value in one)
    }
    slots = sorted({slot for part in some for slot in part.slots})
    suspects = working(reading, dict.fromkeys(slots, still)) if still else set()
    return [(uuid, "") for uuid in sorted({uuid for _, uuid in suspects})]


def _part_series(
    reading: WindowReader, part: LabelledSlots, metric: str, uuids: Collection[str], window: Window
) -> Raw:
    start = max(window.start_seconds, part.slots[0])
    end = min(window.end_seconds, part.slots[-1] + SLOT_SECONDS)
    if not part.dialect.native:
        return vendor_series(reading, part, metric, uuids, start=start, end=end)
    return raw_series(reading, metric, part.matchers, uuids, form=part.form, span=(start, end))


def _gather(
    part: LabelledSlots,
    found: Raw,
    scale: float,
    into: _Devices,
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
