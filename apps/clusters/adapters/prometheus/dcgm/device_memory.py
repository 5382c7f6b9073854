"""Memory of devices at one time: used, free, reserved and total from one scrape.

A device whose pod changed is shown by two series for as long as an instant query looks back. Their
values are never mixed: only the series that was scraped last tells, and only what it said at once.
"""

from collections.abc import Mapping
from typing import NamedTuple

from apps.clusters.adapters.prometheus.dcgm.exporter_metrics import DCGM_1, MEMORY
from apps.clusters.adapters.prometheus.dcgm.label_schemes import HolderLabels, LabelledSlots
from apps.clusters.adapters.prometheus.promql import by, selector
from apps.clusters.adapters.prometheus.transport.api import slot_end
from apps.clusters.adapters.prometheus.transport.window_reader import WindowReader

_Key = tuple[str, str]
"""(UUID, MIG instance)."""
_LARGEST_MIB = 1e7
# Values are whole MiB, each rounded by itself, and drivers keep a little that no metric shows.
_TOLERANCE = 0.02

_USED, _FREE, _RESERVED, _TOTAL = "used", "free", "reserved", "total"
_NAMES = {
    MEMORY: _USED,
    "DCGM_FI_DEV_FB_FREE": _FREE,
    "DCGM_FI_DEV_FB_RESERVED": _RESERVED,
    "DCGM_FI_DEV_FB_TOTAL": _TOTAL,
}
_OLD_NAMES = {"dcgm_fb_used": _USED, "dcgm_fb_free": _FREE}


class Memory(NamedTuple):
    """Memory of a device in MiB; None: not exported, or its values contradict each other."""

    used_mib: float | None = None
    total_mib: float | None = None


class _Scrape(NamedTuple):
    """What one series' labels showed of a device: value and scrape time by kind of memory."""

    holder: HolderLabels
    values: dict[str, float]
    times: dict[str, float]

    @property
    def order(self) -> tuple[float, bool, float]:
        """The newest last; of one instant the row of the whole device, else the fullest."""
        return self.times.get(_USED, 0.0), not self.holder.pod, self.values.get(_USED, 0.0)


def read_memory(reading: WindowReader, part: LabelledSlots) -> dict[_Key, Memory]:
    """Return the memory of each device that a part shows; raises as the port says."""
    names = _OLD_NAMES if part.dialect is DCGM_1 else _NAMES
    scrapes: dict[HolderLabels, _Scrape] = {}
    for name, kind in names.items():
        chosen = selector(name, part.matchers)
        for inner in (chosen, f"timestamp({chosen})"):
            found = _by_series(reading, part, inner)
            if not found:
                break
            for holder, value in found:
                scrape = scrapes.setdefault(holder, _Scrape(holder, {}, {}))
                (scrape.values if inner is chosen else scrape.times)[kind] = value
    newest: dict[_Key, _Scrape] = {}
    for holder, scrape in scrapes.items():
        key = (holder.uuid, holder.gpu_instance)
        newest[key] = max(newest.get(key, scrape), scrape, key=lambda one: one.order)
    return {key: memory_of(scrape.values, scrape.times) for key, scrape in newest.items()}


def _by_series(
    reading: WindowReader, part: LabelledSlots, inner: str
) -> list[tuple[HolderLabels, float]]:
    kind = part.form.target_holder
    labels = (*part.form.holder_labels, "job", "instance")
    at = slot_end(part.slots[0])
    return [
        (one.metric, one.value[1])
        for one in reading.instant(by("max", labels, inner), at, kind)
        if one.value[1] >= 0.0
    ]


def memory_of(values: Mapping[str, float], times: Mapping[str, float]) -> Memory:
    """Return used and total memory of one series' `values` by kind, of the time that used has.

    Total is as exported, else the sum of its parts where used and free are there; older exporters
    do not show what is reserved. What cannot be true together is no data.
    """
    at = times.get(_USED)
    together = {
        kind: value
        for kind, value in values.items()
        if times.get(kind) == at and value <= _LARGEST_MIB
    }
    used, free = together.get(_USED), together.get(_FREE)
    if used is None:
        return Memory()
    parts = None if free is None else used + free + together.get(_RESERVED, 0.0)
    total = together.get(_TOTAL, parts)
    if total is None:
        return Memory(used)
    largest, smallest = total * (1.0 + _TOLERANCE), total * (1.0 - _TOLERANCE)
    if (used if parts is None else parts) > largest:
        return Memory()
    if parts is not None and _RESERVED in together and parts < smallest:
        return Memory()
    return Memory(used, total)
