"""Devices that are exported several times: their samples are counted once.

Two exporters on a node (one of the GPU operator's, one of one's own), or one that two jobs
scrape, show every device twice. One of them may not know the pods: its series are pod-less copies
of what the other shows under the name of a pod.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from math import inf, isfinite
from typing import NamedTuple

from msgspec import Struct, field

from apps.clusters.adapters.prometheus.client import slot_end
from apps.clusters.adapters.prometheus.dcgm.device_rows import (
    DeviceKey,
    DeviceRow,
    batches,
    key_of,
    most_samples,
    named_devices,
    place_of,
    without_repeats,
)
from apps.clusters.adapters.prometheus.dcgm.exporters import (
    ACTIVITY,
    DCGM,
    UTILIZATION,
    SeriesPart,
    Target,
)
from apps.clusters.adapters.prometheus.http_api import Matcher, by, one_of, over, raw
from apps.clusters.adapters.prometheus.window_reader import SlotQuery, WindowReader
from apps.clusters.domain.window import SLOT_SECONDS
from apps.clusters.ports import SourceRejected

# In sampling intervals; exporters that change places are both there for a moment.
_OVERLAP = 4.0

Workload = tuple[str, str, str]
"""(namespace, pod, container)."""


class DuplicateSeries(NamedTuple):
    """Devices of one slot that have more samples than one series can have, by node."""

    slot: int
    devices: Mapping[str, list[DeviceKey]]


class _TargetSamples(Struct):
    """What one target shows of a device: (samples, sum) by workload."""

    samples: dict[Workload, float] = field(default_factory=dict)
    sums: dict[Workload, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        return sum(self.samples.values())

    @property
    def names_pods(self) -> bool:
        return any(pod for _, pod, _ in self.samples)


_Targets = dict[tuple[int, DeviceKey], dict[tuple[str, str], _TargetSamples]]


def duplicates_of(
    slot: int,
    rows: Iterable[DeviceRow],
    many: Collection[DeviceKey],
) -> DuplicateSeries | None:
    """Return the devices that are there several times in a slot; None without any.

    `many` are those with more samples than one series can have.
    """
    if not many:
        return None
    devices: dict[str, dict[DeviceKey, None]] = defaultdict(dict)
    for row in rows:
        if key_of(row) in many:
            devices[place_of(row)].setdefault(key_of(row))
    return DuplicateSeries(slot, {place: list(keys) for place, keys in devices.items()})


def count_once(
    reading: WindowReader,
    parts: Sequence[SeriesPart],
    duplicates: Sequence[DuplicateSeries],
    by_slot: Mapping[int, list[DeviceRow]],
    interval: Callable[[int, DeviceKey], float],
) -> dict[int, set[DeviceKey]]:
    """Count the samples of devices that are there several times once, in place.

    Returns the devices by slot that are seen through two exporters.
    """
    if not duplicates:
        return {}
    doubled = _doubled(reading, duplicates, interval)
    suspects = {
        of_slot.slot: {key for node in doubled[of_slot.slot] for key in of_slot.devices[node]}
        for of_slot in duplicates
    }
    if any(suspects.values()):
        targets = _by_target(reading, parts, suspects)
        bare = 0
        for slot, keys in suspects.items():
            seen = {key: targets.get((slot, key), {}) for key in keys}
            bare += _choose(by_slot[slot], seen, lambda key, at=slot: interval(at, key))  # type: ignore[misc]
        _remark(reading, set().union(*doubled.values()), bare=bare > 0)
    for of_slot in duplicates:
        slot = of_slot.slot
        without_repeats(by_slot[slot], lambda key, at=slot: interval(at, key))  # type: ignore[misc]
    return suspects


def _remark(reading: WindowReader, nodes: Collection[str], *, bare: bool) -> None:
    reading.remark(
        f"devices are scraped through two exporters on {few_of(nodes)}: their samples were "
        "counted once; scrape one of them"
        + (", the one that names pods: the copies without pods were left out" if bare else "")
    )


def _doubled(
    reading: WindowReader,
    duplicates: Sequence[DuplicateSeries],
    interval: Callable[[int, DeviceKey], float],
) -> defaultdict[int, set[str]]:
    """Return by slot the nodes whose devices are seen through several targets at a time."""
    # One device stands for its node: an exporter shows all of a node's.
    nodes = {
        (of_slot.slot, min(keys)): node
        for of_slot in duplicates
        for node, keys in of_slot.devices.items()
    }
    several = _with_several_targets(reading, duplicates, nodes)
    doubled: defaultdict[int, set[str]] = defaultdict(set)
    for slot, keys in several.items():
        beside = _overlapping(reading, slot, keys, interval)
        doubled[slot] = {nodes[slot, key] for key in beside}
    return doubled


def _with_several_targets(
    reading: WindowReader,
    duplicates: Sequence[DuplicateSeries],
    places: Collection[tuple[int, DeviceKey]],
) -> dict[int, set[DeviceKey]]:
    targets: dict[tuple[int, str], set[tuple[str, str]]] = defaultdict(set)
    for more in named_devices({uuid for _, (uuid, _) in places}):
        for metric in (ACTIVITY, UTILIZATION):
            inner = over("present_over_time", metric, (*reading.matchers, *more))
            query = SlotQuery(
                by("count", ("UUID", "job", "instance"), inner), Target, _range(duplicates)
            )
            for slot, target, _ in reading.one(query):
                targets[slot, target.uuid].add((target.job, target.instance))
    found: dict[int, set[DeviceKey]] = defaultdict(set)
    for slot, key in places:
        if len(targets[slot, key[0]]) > 1:
            found[slot].add(key)
    return found


def _overlapping(
    reading: WindowReader,
    slot: int,
    keys: Collection[DeviceKey],
    interval: Callable[[int, DeviceKey], float],
) -> set[DeviceKey]:
    """Return those devices whose targets stand beside each other.

    An exporter that was restarted is another target and follows the first. Where raw samples
    are refused, targets are taken to stand beside each other.
    """
    spans: dict[str, dict[tuple[str, str], tuple[float, float]]] = defaultdict(dict)
    for some in batches({uuid for uuid, _ in keys}):
        for metric in (ACTIVITY, UTILIZATION):
            query = raw(metric, (*reading.matchers, one_of("UUID", some)))
            try:
                series = reading.raw(query, slot_end(slot), Target)
            except SourceRejected as refusal:
                reading.remark(f"raw samples are refused ({refusal})")
                return set(keys)
            for one in (one for one in series if one.values):
                of, target = spans[one.metric.uuid], (one.metric.job, one.metric.instance)
                first, last = of.get(target, (inf, -inf))
                # A target has a series for each holder: its span is that of all of them.
                of[target] = (min(first, one.values[0][0]), max(last, one.values[-1][0]))
    # By their begin: where any two targets overlap, two neighbours overlap at least as long.
    return {
        key
        for key in keys
        if any(
            a[1] - b[0] > _OVERLAP * interval(slot, key)
            for a, b in pairwise(sorted(spans[key[0]].values()))
        )
    }


def _range(duplicates: Sequence[DuplicateSeries]) -> range:
    slots = [of_slot.slot for of_slot in duplicates]
    return range(min(slots), max(slots) + SLOT_SECONDS, SLOT_SECONDS)


def _by_target(
    reading: WindowReader,
    parts: Sequence[SeriesPart],
    suspects: Mapping[int, Collection[DeviceKey]],
) -> _Targets:
    """Return what each target shows of the suspects, in the metric that was used for them."""
    found: _Targets = {}
    for metric in (ACTIVITY, UTILIZATION):
        missing = {
            key[0] for slot, keys in suspects.items() for key in keys if (slot, key) not in found
        }
        if not missing:
            break
        here: _Targets = defaultdict(lambda: defaultdict(_TargetSamples))
        for part in (one for one in parts if one.exporter is DCGM):
            for more in named_devices(missing, part.scheme.uuid_label):
                _add_targets(reading, part, metric, more, here)
        found.update({place: seen for place, seen in here.items() if place not in found})
    return found


def _add_targets(
    reading: WindowReader, part: SeriesPart, metric: str, more: Sequence[Matcher], into: _Targets
) -> None:
    kind = part.scheme.target_holder
    labels = (*part.scheme.holder_labels, "job", "instance")
    matchers = (*part.matchers, *more)
    for function in ("count_over_time", "sum_over_time"):
        query = by("sum", labels, over(function, metric, matchers))
        for slot, one, value in reading.one(SlotQuery(query, kind, part.slots)):
            seen = into[slot, (one.uuid, one.gpu_instance)][one.job, one.instance]
            name = part.workload(one, slot)
            of = seen.samples if function == "count_over_time" else seen.sums
            of[name] = of.get(name, 0.0) + value


def _choose(
    rows: list[DeviceRow],
    targets: Mapping[DeviceKey, Mapping[tuple[str, str], _TargetSamples]],
    interval: Callable[[DeviceKey], float],
) -> bool:
    """Keep of each device what its targets show once, in place; say whether copies lacked pods."""
    bare = False
    emptied = []
    for number, row in enumerate(rows):
        key = key_of(row)
        seen = targets.get(key, {})
        # One target alone: its many samples are of replicas of a GPU (`without_repeats`).
        if len(seen) < 2 or row.activity is None or not row.samples:
            continue
        # An exporter that knows the pods tells more than one that does not.
        kept = [one for one in seen.values() if one.names_pods] or list(seen.values())
        bare = bare or len(kept) < len(seen)
        _keep(row, list(seen.values()), kept, most_samples(interval(key)))
        if not row.samples:
            emptied.append(number)
    # From the end, so that the numbers of the others stay right.
    for number in reversed(emptied):
        del rows[number]
    return bare


def _keep(
    row: DeviceRow, every: Sequence[_TargetSamples], kept: Sequence[_TargetSamples], most: float
) -> None:
    """Reduce a row to the `kept` targets, and these to one; its mean is that of the kept."""
    name = (row.namespace, row.pod, row.container)
    count = _share(_shown(kept, name), _shown(every, name))
    total = _share(_shown(kept, name, sums=True), _shown(every, name, sums=True))
    longest, together = max(one.total for one in kept), sum(one.total for one in kept)
    # Targets that all fit into the slot follow each other.
    copies = together / longest if together > most else 1.0
    mean = (row.activity or 0.0) / row.samples
    if count is None:
        count = 1.0
    elif count < 1.0 and total is not None and count > 0.0:
        mean = min(1.0, mean * total / count)
    shown = row.samples * count / copies
    if row.energy is not None and count < 1.0:
        # The counter of the copies went on where the pods' own has another row.
        row.energy *= min(1.0, shown / longest)
    row.samples = max(1, round(shown)) if shown > 0 else 0
    row.activity = mean * row.samples


def _shown(some: Iterable[_TargetSamples], name: Workload, *, sums: bool = False) -> float:
    """Return the samples (or their sum) that some targets show under a name."""
    return sum((one.sums if sums else one.samples).get(name, 0.0) for one in some)


def _share(part: float, whole: float) -> float | None:
    if not (isfinite(part) and isfinite(whole)) or whole <= 0.0 or not 0.0 <= part <= whole:
        return None
    return part / whole


def few_of(names: Collection[str]) -> str:
    """Return a few of some names, and how many more there are."""
    ordered = sorted(names)
    more = f" and {len(ordered) - 3} more" if len(ordered) > 3 else ""
    return ", ".join(ordered[:3]) + more
