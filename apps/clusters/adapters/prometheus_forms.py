"""Which labels name the workload: the plain ones, or `exported_*` (Prometheus' label clash).

The exporter runs in a pod itself. Where Prometheus adds that pod's labels as target labels and
does not honour those of the exporter, it renames the workload's to `exported_*`; else the plain
ones are the workload's. Which one it is belongs to the scrape job, is detected and may change.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from apps.clusters.adapters.prometheus_reading import Reading, SlotQuery
from apps.clusters.adapters.promql import Matcher, by, one_of, over

ACTIVITY = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"  # fraction 0..1
UTILIZATION = "DCGM_FI_DEV_GPU_UTIL"  # whole per cent; not on MIG
MEMORY = "DCGM_FI_DEV_FB_USED"  # MiB
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"  # counter, mJ since boot

UP = "up"  # 0 or 1, for each scrape target, with exactly the target's labels

# An exporter whose target labels say `pod` without a clash names itself, not a workload. `up`
# tells which pods these are; only where it is not kept does the name decide.
_EXPORTER = re.compile(r"dcgm|exporter")


class Holder(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A device and who held it: the key by which the answers of several queries are joined."""

    uuid: str = msgspec.field(name="UUID", default="")
    gpu_instance: str = msgspec.field(name="GPU_I_ID", default="")
    namespace: str = ""
    pod: str = ""
    container: str = ""


class ExportedHolder(Holder, frozen=True, gc=False, cache_hash=True):
    """The same where the workload's labels were renamed."""

    namespace: str = msgspec.field(name="exported_namespace", default="")
    pod: str = msgspec.field(name="exported_pod", default="")
    container: str = msgspec.field(name="exported_container", default="")


class Device(msgspec.Struct, frozen=True, gc=False):
    """All labels that a row is made of. A node is named in one of five ways."""

    uuid: str = msgspec.field(name="UUID", default="")
    gpu_instance: str = msgspec.field(name="GPU_I_ID", default="")
    namespace: str = ""
    pod: str = ""
    container: str = ""
    profile: str = msgspec.field(name="GPU_I_PROFILE", default="")
    model: str = msgspec.field(name="modelName", default="")
    node_label: str = msgspec.field(name="node", default="")
    kubernetes_node: str = ""
    nodename: str = ""
    hostname: str = ""
    old_hostname: str = msgspec.field(name="Hostname", default="")

    @property
    def node(self) -> str:
        return (
            self.node_label
            or self.kubernetes_node
            or self.nodename
            or self.hostname
            or self.old_hostname
        )


class ExportedDevice(Device, frozen=True, gc=False):
    """The same where the workload's labels were renamed."""

    namespace: str = msgspec.field(name="exported_namespace", default="")
    pod: str = msgspec.field(name="exported_pod", default="")
    container: str = msgspec.field(name="exported_container", default="")


class Target(msgspec.Struct, frozen=True, gc=False):
    """A device as one scrape target shows it."""

    uuid: str = msgspec.field(name="UUID", default="")
    job: str = ""
    instance: str = ""


class TargetHolder(Holder, frozen=True, gc=False, cache_hash=True):
    """A device and its holder as one scrape target shows them."""

    job: str = ""
    instance: str = ""


class ExportedTargetHolder(ExportedHolder, frozen=True, gc=False, cache_hash=True):
    """The same where the workload's labels were renamed."""

    job: str = ""
    instance: str = ""


class Form(NamedTuple):
    """One of the two ways in which workloads are named."""

    holder: type[Holder]
    device: type[Device]
    target_holder: type[TargetHolder] | type[ExportedTargetHolder]

    @property
    def plain(self) -> bool:
        """Whether workloads have the labels that an exporter's own pod could have, too."""
        return self.holder is Holder

    @property
    def holder_labels(self) -> tuple[str, ...]:
        return tuple(field.encode_name for field in msgspec.structs.fields(self.holder))

    @property
    def device_labels(self) -> tuple[str, ...]:
        return tuple(field.encode_name for field in msgspec.structs.fields(self.device))


PLAIN = Form(Holder, Device, TargetHolder)
EXPORTED = Form(ExportedHolder, ExportedDevice, ExportedTargetHolder)

Pods = Collection[tuple[str, str]]
"""(namespace, pod)."""


def workload(holder: Holder, exporters: Pods | None = None) -> tuple[str, str, str]:
    """Return (namespace, pod, container) of the workload; all empty where there is none.

    `exporters` are the pods that are scraped themselves; None: not known, their name decides.
    """
    if not holder.pod:
        return "", "", ""
    if not isinstance(holder, ExportedHolder):
        own = (
            _EXPORTER.search(holder.pod) is not None
            if exporters is None
            else (holder.namespace, holder.pod) in exporters
        )
        if own:
            return "", "", ""
    return holder.namespace, holder.pod, holder.container


class Part(NamedTuple):
    """Some consecutive slots whose series, as far as `matchers` choose them, have one form.

    `exporters` are by slot the pods that are scrape targets, of slots where that is known.
    """

    slots: Sequence[int]
    form: Form
    matchers: tuple[Matcher, ...]
    exporters: Mapping[int, Pods] = MappingProxyType({})

    def workload(self, holder: Holder, slot: int) -> tuple[str, str, str]:
        """Return (namespace, pod, container) of the workload that a series of a slot names."""
        return workload(holder, self.exporters.get(slot))


class _TargetPod(msgspec.Struct, frozen=True, gc=False):
    namespace: str = ""
    pod: str = ""


class _Job(msgspec.Struct, frozen=True, gc=False):
    job: str = ""
    exported_namespace: str = ""


_JOBS = ("job", "exported_namespace")


def parts(reading: Reading, chunked: Sequence[Sequence[int]]) -> Iterator[list[Part]]:
    """Yield, for every stretch of slots with one answer, the parts to read it in.

    There are two parts where jobs of both forms scrape the cluster. Slots without any device
    series come out in no part.
    """
    seen = _jobs(reading, chunked)
    for slots in chunked:
        for plan, group in groupby(slots, key=lambda slot: _plan(seen.get(slot, ()))):
            stretch = list(group)
            if plan:
                yield [
                    _part(reading, stretch, form, jobs, all_jobs=len(plan) == 1)
                    for form, jobs in plan
                ]


def _part(
    reading: Reading, slots: Sequence[int], form: Form, jobs: Sequence[str], *, all_jobs: bool
) -> Part:
    only = () if all_jobs else (one_of("job", jobs),)
    exporters = _exporters(reading, slots, jobs) if form.plain else {}
    return Part(slots, form, reading.matchers + only, exporters)


def _exporters(
    reading: Reading, slots: Sequence[int], jobs: Sequence[str]
) -> dict[int, set[tuple[str, str]]]:
    """Return by slot the pods that are targets of these jobs; no slot that keeps no `up`."""
    matchers = (*reading.matchers, one_of("job", jobs))
    inner = over("present_over_time", UP, matchers)
    found: dict[int, set[tuple[str, str]]] = {}
    query = SlotQuery(by("count", ("namespace", "pod"), inner), _TargetPod, slots)
    for slot, target, _ in reading.one(query):
        found.setdefault(slot, set()).add((target.namespace, target.pod))
    return found


def _plan(jobs: Iterable[_Job]) -> tuple[tuple[Form, tuple[str, ...]], ...]:
    """Return the forms that occur, with the jobs of each."""
    exported = {one.job for one in jobs if one.exported_namespace}
    plain = {one.job for one in jobs} - exported
    plan = ((EXPORTED, tuple(sorted(exported))), (PLAIN, tuple(sorted(plain))))
    return tuple(one for one in plan if one[1])


def _jobs(reading: Reading, chunked: Sequence[Sequence[int]]) -> dict[int, set[_Job]]:
    """Return the jobs that scraped devices in each slot, by the first metric that shows any."""
    seen: dict[int, set[_Job]] = {}
    missing = list(chunked)
    # Memory is exported for whole devices and MIG instances alike.
    for metric in (MEMORY, ACTIVITY, UTILIZATION):
        query = by("count", _JOBS, over("present_over_time", metric, reading.matchers))
        found: dict[int, set[_Job]] = {}
        for points in reading.slots([SlotQuery(query, _Job, slots) for slots in missing]):
            for slot, job, _ in points:
                found.setdefault(slot, set()).add(job)
        for slot, jobs in found.items():
            seen.setdefault(slot, jobs)
        missing = [slots for slots in missing if not all(slot in seen for slot in slots)]
        if not missing:
            break
    return seen
