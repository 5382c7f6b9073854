"""Which labels name the workload: the plain ones, or `exported_*` (Prometheus' label clash).

The exporter runs in a pod itself. Where Prometheus adds that pod's labels as target labels and
does not honour those of the exporter, it renames the workload's to `exported_*`; else the plain
ones are the workload's. Which one it is belongs to the scrape job, is detected and may change.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from apps.clusters.adapters.prometheus_reading import Reading, SlotQuery
from apps.clusters.adapters.promql import Matcher, by, one_of, over

ACTIVITY = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"  # fraction 0..1
UTILIZATION = "DCGM_FI_DEV_GPU_UTIL"  # whole per cent; not on MIG
MEMORY = "DCGM_FI_DEV_FB_USED"  # MiB
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"  # counter, mJ since boot

# An exporter whose target labels say `pod` without a clash names itself, not a workload.
_EXPORTER = "dcgm-exporter"


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


class Form(NamedTuple):
    """One of the two ways in which workloads are named."""

    holder: type[Holder]
    device: type[Device]

    @property
    def holder_labels(self) -> tuple[str, ...]:
        return tuple(field.encode_name for field in msgspec.structs.fields(self.holder))

    @property
    def device_labels(self) -> tuple[str, ...]:
        return tuple(field.encode_name for field in msgspec.structs.fields(self.device))


PLAIN = Form(Holder, Device)
EXPORTED = Form(ExportedHolder, ExportedDevice)


def workload(holder: Holder) -> tuple[str, str, str]:
    """Return (namespace, pod, container) of the workload; all empty where there is none."""
    if not holder.pod or (type(holder) is Holder and _EXPORTER in holder.pod):
        return "", "", ""
    return holder.namespace, holder.pod, holder.container


class Part(NamedTuple):
    """Some consecutive slots whose series, as far as `matchers` choose them, have one form."""

    slots: Sequence[int]
    form: Form
    matchers: tuple[Matcher, ...]


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
                yield [Part(stretch, form, reading.matchers + more) for form, more in plan]


def _plan(jobs: Iterable[_Job]) -> tuple[tuple[Form, tuple[Matcher, ...]], ...]:
    exported = sorted({one.job for one in jobs if one.exported_namespace})
    plain = sorted({one.job for one in jobs} - set(exported))
    if not exported or not plain:
        return ((EXPORTED if exported else PLAIN, ()),) if exported or plain else ()
    return ((EXPORTED, (one_of("job", exported),)), (PLAIN, (one_of("job", plain),)))


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
