"""Reading ResourceQuotas as kube-state-metrics shows them: keys are not sanitised there."""

from collections.abc import Iterator
from math import inf

import msgspec

from apps.clusters.adapters.prometheus.kube_state.metrics import labels_of
from apps.clusters.adapters.prometheus.promql import MAX_STEPS, Matcher, by, over
from apps.clusters.adapters.prometheus.transport.window_reader import SlotQuery, WindowReader
from apps.clusters.domain.window import Window
from apps.clusters.ports import QuotaSlot

QUOTA = "kube_resourcequota"  # units; hard and used
# Keys of GPU resources with and without prefix (the latter limit nothing, which is worth
# showing), and of devices by DRA device class.
_GPU_KEYS = (
    r"((requests|limits)\.)?(nvidia\.com/(gpu|mig-).*|amd\.com/gpu.*|gpu\.intel\.com/.*)"
    r"|requests\.deviceclass\.resource\.kubernetes\.io/.*"
    r"|.*\.deviceclass\.resource\.k8s\.io/devices"
)
_HARD = "hard"


class Quota(msgspec.Struct, frozen=True, gc=False):
    namespace: str = ""
    exported_namespace: str = ""
    resourcequota: str = ""
    resource: str = ""
    type: str = ""


def read_quotas(reading: WindowReader, window: Window) -> Iterator[QuotaSlot]:
    """Yield the mean of every GPU quota key in every slot; raises as the port says."""
    matchers = (
        *reading.matchers,
        Matcher("resource", "=~", _GPU_KEYS),
        Matcher("type", "=~", "hard|used"),
    )
    query = by("max", labels_of(Quota), over("avg_over_time", QUOTA, matchers))
    slots = window.slots()
    found: dict[tuple[int, str, str, str], dict[str, float]] = {}
    for n in range(0, len(slots), MAX_STEPS):
        for slot, quota, value in reading.one(SlotQuery(query, Quota, slots[n : n + MAX_STEPS])):
            if not 0.0 <= value < inf:
                reading.remark(f"{QUOTA} has values that cannot be: they were left out")
                continue
            namespace = quota.exported_namespace or quota.namespace
            key = (slot, namespace, quota.resourcequota, quota.resource)
            found.setdefault(key, {})[quota.type] = value
    for key, values in sorted(found.items()):
        yield QuotaSlot(*key, hard=values.get(_HARD), used=values.get("used"))
