"""Reading ClusterQueues as Kueue's controller shows them; resources are not sanitised there.

The series of quotas are there where `metrics.enableClusterQueueResources` is on in Kueue's
configuration. Versions differ in further labels (`cohort`, `replica_role`): none is kept.
"""

from collections.abc import Iterator
from math import inf

import msgspec

from apps.clusters.adapters.prometheus_kube_metrics import labels_of
from apps.clusters.adapters.prometheus_reading import Reading, SlotQuery
from apps.clusters.adapters.promql import MAX_STEPS, Matcher, by, over
from apps.clusters.domain.window import Window
from apps.clusters.ports import QueueSlot

NOMINAL = "kueue_cluster_queue_nominal_quota"  # units, by flavor
RESERVED = "kueue_cluster_queue_resource_reservation"  # units, by flavor
PENDING = "kueue_cluster_queue_resource_pending"  # units of Workloads without quota, no flavor
_GPUS = r"nvidia\.com/(gpu|mig-).*|amd\.com/gpu.*|gpu\.intel\.com/.*"


class _Labels(msgspec.Struct, frozen=True, gc=False):
    cluster_queue: str = ""
    flavor: str = ""
    resource: str = ""


def read_queues(reading: Reading, window: Window) -> Iterator[QueueSlot]:
    """Yield the means of every queue and slot; raises as the port says."""
    slots = window.slots()
    found: dict[tuple[int, str, str, str], dict[str, float]] = {}
    for n in range(0, len(slots), MAX_STEPS):
        part = slots[n : n + MAX_STEPS]
        queries = [SlotQuery(_query(reading, metric), _Labels, part) for metric in _METRICS]
        for metric, points in zip(_METRICS, reading.slots(queries), strict=True):
            for slot, labels, value in points:
                if not 0.0 <= value < inf:
                    reading.remark(f"{metric} has values that cannot be: they were left out")
                    continue
                key = (slot, labels.cluster_queue, labels.flavor, labels.resource)
                found.setdefault(key, {})[metric] = value
    for key, values in sorted(found.items()):
        yield QueueSlot(*key, *(values.get(metric) for metric in _METRICS))


_METRICS = (NOMINAL, RESERVED, PENDING)


def _query(reading: Reading, metric: str) -> str:
    matchers = (*reading.matchers, Matcher("resource", "=~", _GPUS))
    return by("max", labels_of(_Labels), over("avg_over_time", metric, matchers))
