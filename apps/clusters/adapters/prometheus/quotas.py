"""Reading ResourceQuotas and ClusterQueues; their resources are not sanitised.

The series of ClusterQueues' quotas are there where `metrics.enableClusterQueueResources` is on
in Kueue's configuration. Versions differ in further labels (`cohort`, `replica_role`): none is
kept.
"""

from collections.abc import Iterator, Sequence
from math import inf
from typing import Any

import msgspec

from apps.clusters.adapters.prometheus.http_api import MAX_STEPS, Matcher, by, literally, over
from apps.clusters.adapters.prometheus.kube_state.metrics import Namespaced, labels_of
from apps.clusters.adapters.prometheus.window_reader import SlotQuery, WindowReader
from apps.clusters.domain.window import Window
from apps.clusters.ports import QueuePendingSlot, QueueSlot, QuotaSlot

QUOTA = "kube_resourcequota"  # units; hard and used
# Keys of GPU resources with and without prefix (the latter limit nothing, which is worth
# showing), and of devices by DRA device class.
_GPU_KEYS = (
    r"((requests|limits)\.)?(nvidia\.com/(gpu|mig-).*|amd\.com/gpu.*|gpu\.intel\.com/.*)"
    r"|requests\.deviceclass\.resource\.kubernetes\.io/.*"
    r"|.*\.deviceclass\.resource\.k8s\.io/devices"
)
_HARD = "hard"

NOMINAL = "kueue_cluster_queue_nominal_quota"  # units, by flavor
RESERVED = "kueue_cluster_queue_resource_reservation"  # units, by flavor
PENDING = "kueue_cluster_queue_resource_pending"  # units of Workloads without quota, no flavor
WORKLOADS = "kueue_pending_workloads"  # Workloads by status: active or inadmissible
LOCAL_WORKLOADS = "kueue_local_queue_pending_workloads"  # the same; its ClusterQueue is no label
_METRICS = (NOMINAL, RESERVED, PENDING)
_GPUS = r"nvidia\.com/(gpu|mig-).*|amd\.com/gpu.*|gpu\.intel\.com/.*"


class Quota(Namespaced, frozen=True, gc=False):
    resourcequota: str = ""
    resource: str = ""
    type: str = ""


def _means(
    reading: WindowReader,
    window: Window,
    labels: type[msgspec.Struct],
    matchers: Sequence[Matcher],
    metrics: Sequence[str],
) -> Iterator[tuple[str, int, Any, float]]:
    """Yield (metric, slot, labels, mean) of some metrics; drops values that cannot be."""
    slots = window.slots()
    chosen = (*reading.matchers, *matchers)
    for n in range(0, len(slots), MAX_STEPS):
        queries = [
            SlotQuery(
                by("max", labels_of(labels), over("avg_over_time", metric, chosen)),
                labels,
                slots[n : n + MAX_STEPS],
            )
            for metric in metrics
        ]
        for metric, points in zip(metrics, reading.slots(queries), strict=True):
            for slot, of, value in points:
                if 0.0 <= value < inf:
                    yield metric, slot, of, value
                else:
                    names = metric.replace("|", " or ")
                    reading.remark(f"{names} has values that cannot be: they were left out")


def read_quotas(reading: WindowReader, window: Window) -> Iterator[QuotaSlot]:
    """Yield the mean of every GPU quota key in every slot; raises as the port says."""
    matchers = (Matcher("resource", "=~", _GPU_KEYS), Matcher("type", "=~", "hard|used"))
    found: dict[tuple[int, str, str, str], dict[str, float]] = {}
    for _, slot, quota, value in _means(reading, window, Quota, matchers, (QUOTA,)):
        key = (slot, quota.own_namespace, quota.resourcequota, quota.resource)
        found.setdefault(key, {})[quota.type] = value
    for key, values in sorted(found.items()):
        yield QuotaSlot(*key, hard=values.get(_HARD), used=values.get("used"))


class _Labels(msgspec.Struct, frozen=True, gc=False):
    cluster_queue: str = ""
    flavor: str = ""
    resource: str = ""


def read_queues(reading: WindowReader, window: Window) -> Iterator[QueueSlot]:
    """Yield the means of every queue and slot; raises as the port says."""
    found: dict[tuple[int, str, str, str], dict[str, float]] = {}
    matchers = (Matcher("resource", "=~", _GPUS),)
    for metric, slot, labels, value in _means(reading, window, _Labels, matchers, _METRICS):
        key = (slot, labels.cluster_queue, labels.flavor, labels.resource)
        found.setdefault(key, {})[metric] = value
    for key, values in sorted(found.items()):
        yield QueueSlot(*key, *(values.get(metric) for metric in _METRICS))


class _PendingLabels(msgspec.Struct, frozen=True, gc=False):
    """`namespace` is the controller's own where Prometheus renamed that of the LocalQueue."""

    cluster_queue: str = ""
    resource: str = ""
    status: str = ""
    name: str = ""
    namespace: str = ""
    exported_namespace: str = ""

    @property
    def queue(self) -> tuple[str, str]:
        """The namespace, which ClusterQueues have none of, and the name."""
        if self.cluster_queue:
            return "", self.cluster_queue
        return self.exported_namespace or self.namespace, self.name


def read_queue_pending(
    reading: WindowReader, window: Window, gpu_resources: Sequence[str]
) -> Iterator[QueuePendingSlot]:
    """Yield what was pending in every queue and slot; raises as the port says.

    One query a day for the three metrics: their series differ in their labels, and a cluster
    without Kueue answers it with nothing.
    """
    # What has no resource is a number of Workloads.
    gpus = "|".join(["", _GPUS, *([literally(gpu_resources)] if gpu_resources else [])])
    matchers = (Matcher("resource", "=~", gpus),)
    metric = "|".join((PENDING, WORKLOADS, LOCAL_WORKLOADS))
    found: dict[tuple[int, tuple[str, str], str], float] = {}
    for _, slot, labels, value in _means(reading, window, _PendingLabels, matchers, (metric,)):
        key = (slot, labels.queue, labels.resource)
        # Those that may be admitted and those that may not come one by one.
        found[key] = found.get(key, 0.0) + value if labels.status else value
    for (slot, queue, resource), value in sorted(found.items()):
        if resource:
            yield QueuePendingSlot(slot, *queue, resource, units=value)
        else:
            yield QueuePendingSlot(slot, *queue, resource, workloads=value)
