"""Metrics of kube-state-metrics, their labels as typed keys, and the queries made of them.

All of kube-state-metrics is read with `max` or `sum` over identity, so that replicas of it do no
harm: samples are counted against those of what was there throughout, which has as many copies.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from apps.clusters.adapters.prometheus.http_api import Matcher, by, over
from apps.clusters.adapters.prometheus.window_reader import SlotQuery, WindowReader
from apps.clusters.domain.resources import sanitise

# Metrics of kube-state-metrics 2.x; values are units, Unix seconds, or 0 and 1.
REQUESTS = "kube_pod_container_resource_requests"
INIT_REQUESTS = "kube_pod_init_container_resource_requests"
INIT_INFO = "kube_pod_init_container_info"
CREATED = "kube_pod_created"
SCHEDULED = "kube_pod_status_scheduled_time"
STARTED = "kube_pod_start_time"
COMPLETED = "kube_pod_completion_time"
PHASE = "kube_pod_status_phase"
UNSCHEDULABLE = "kube_pod_status_unschedulable"
OWNER = "kube_pod_owner"
INFO = "kube_pod_info"
REPLICASET_OWNER = "kube_replicaset_owner"
JOB_OWNER = "kube_job_owner"
CONTAINER_STARTED = "kube_pod_container_state_started"
CONTAINER_RUNNING = "kube_pod_container_status_running"
NODE_CREATED = "kube_node_created"
NODE_CAPACITY = "kube_node_status_capacity"
NODE_ALLOCATABLE = "kube_node_status_allocatable"
NODE_CONDITION = "kube_node_status_condition"
NODE_CORDONED = "kube_node_spec_unschedulable"
NODE_LABELS = "kube_node_labels"

GPU_RESOURCES = (
    "nvidia_com_gpu.*",
    "nvidia_com_mig_.*",
    "amd_com_gpu.*",
    "gpu_intel_com_.*",
    "aws_amazon_com_neuron.*",
    "habana_ai_gaudi",
    "google_com_tpu",
    "huawei_com_Ascend.*",
)

Aggregated = tuple[str, str]
"""(aggregation over series, function over time)."""

COUNT: Aggregated = ("sum", "count_over_time")
LARGEST: Aggregated = ("max", "max_over_time")
MEAN: Aggregated = ("max", "avg_over_time")
EARLIEST: Aggregated = ("min", "min_over_time")
TOTAL: Aggregated = ("sum", "sum_over_time")

# There were no pods before.
_EARLIEST_AT = 946_684_800.0  # 2000-01-01
# Clocks of machines differ; what lies a day ahead is no time at all.
_LARGEST_AHEAD_SECONDS = 86_400.0
# No pod or node has as many GPUs: such a value is an error of the exporter.
_LARGEST_UNITS = 10_000.0
LARGEST_MIB = 1e7
"""No GPU has more memory."""


class PodLabels(msgspec.Struct, frozen=True, gc=False):
    """A pod's identity; its names come with its requests alone, which keeps answers small."""

    uid: str = ""


class Container(PodLabels, frozen=True, gc=False):
    container: str = ""
    exported_container: str = ""

    @property
    def name(self) -> str:
        return self.exported_container or self.container


class ContainerResource(Container, frozen=True, gc=False):
    resource: str = ""


class RequestLabels(msgspec.Struct, frozen=True, gc=False):
    """Where kube-state-metrics is scraped without honor_labels, its own pod has the plain names."""

    uid: str = ""
    namespace: str = ""
    pod: str = ""
    container: str = ""
    exported_namespace: str = ""
    exported_pod: str = ""
    exported_container: str = ""
    node: str = ""
    resource: str = ""


class Phase(PodLabels, frozen=True, gc=False):
    phase: str = ""


class PodOwner(PodLabels, frozen=True, gc=False):
    owner_kind: str = ""
    owner_name: str = ""


class PodInfo(PodLabels, frozen=True, gc=False):
    node: str = ""
    priority_class: str = ""


class Namespaced(msgspec.Struct, frozen=True, gc=False):
    """Without honor_labels the plain name is that of the exporter's own namespace."""

    namespace: str = ""
    exported_namespace: str = ""

    @property
    def own_namespace(self) -> str:
        return self.exported_namespace or self.namespace


class ReplicaSet(Namespaced, frozen=True, gc=False):
    replicaset: str = ""
    owner_kind: str = ""
    owner_name: str = ""


class Job(Namespaced, frozen=True, gc=False):
    job_name: str = ""
    owner_kind: str = ""
    owner_name: str = ""


class NodeLabels(msgspec.Struct, frozen=True, gc=False):
    node: str = ""


class NodeResource(NodeLabels, frozen=True, gc=False):
    resource: str = ""


class Plausible(Struct, frozen=True):
    """Drops values that no cluster can have, and says so; `end` is that of the whole window.

    One absurd value must neither stop an hour nor give a pod all the GPUs of a node.
    """

    reading: WindowReader
    end: float

    def time(self, metric: str, at: float) -> float | None:
        """Return a Unix time between the year 2000 and a day after the window; None is unset."""
        if at == 0.0:
            return None
        fits = _EARLIEST_AT <= at <= self.end + _LARGEST_AHEAD_SECONDS
        return self._retained(metric, at, fits=fits, what="times")

    def units(self, metric: str, amount: float) -> float | None:
        """Return an amount of a resource."""
        return self._retained(metric, amount, fits=0.0 <= amount <= _LARGEST_UNITS, what="amounts")

    def mebibytes(self, metric: str, amount: float) -> float | None:
        """Return an amount of a GPU's memory in MiB."""
        return self._retained(metric, amount, fits=0.0 <= amount <= LARGEST_MIB, what="amounts")

    def fraction(self, metric: str, mean: float) -> float | None:
        """Return the mean of a value that is 0 or 1."""
        return self._retained(metric, mean, fits=0.0 <= mean <= 1.0 + 1e-9, what="values")

    def count(self, metric: str, samples: float) -> float | None:
        """Return a number of samples."""
        return self._retained(metric, samples, fits=0.0 <= samples < float("inf"), what="values")

    def _retained(self, metric: str, value: float, *, fits: bool, what: str) -> float | None:
        # NaN fails every comparison.
        if fits:
            return value
        self.reading.remark(f"{metric} has {what} that cannot be: they were left out")
        return None


def labels_of(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the labels that a query must keep for `kind`."""
    return tuple(field.encode_name for field in msgspec.structs.fields(kind))


def label_name(key: str) -> str:
    """Return the label under which kube-state-metrics shows a Kubernetes label.

    Other characters become `_`, and a capital after a small letter or digit begins a new word:
    `eks.amazonaws.com/capacityType` is `label_eks_amazonaws_com_capacity_type`.
    """
    words = []
    for before, char in zip(" " + key, sanitise(key), strict=False):
        if char.isupper() and (before.islower() or before.isdigit()):
            words.append("_")
        words.append(char.lower())
    return "label_" + "".join(words)


def gpu_matcher(named: Sequence[str]) -> Matcher:
    """Return the matcher of GPU resources: the known ones, and those that tiers name."""
    return Matcher(
        "resource",
        "=~",
        "|".join([*GPU_RESOURCES, *sorted({sanitise(resource) for resource in named})]),
    )


def over_slots(
    kind: type[Any],
    how: Aggregated,
    metric: str,
    matchers: Sequence[Matcher],
    slots: Sequence[int],
) -> SlotQuery:
    """Return the query of one value for each slot and each `kind` of identity."""
    aggregation, function = how
    return SlotQuery(
        by(aggregation, labels_of(kind), over(function, metric, matchers)), kind, slots
    )


def over_all(
    kind: type[Any],
    how: Aggregated,
    metric: str,
    matchers: Sequence[Matcher],
    seconds: float,
) -> tuple[str, type[Any]]:
    """Return the instant query of one value over a stretch of time for each `kind`."""
    aggregation, function = how
    inner = over(function, metric, matchers, seconds=seconds)
    return by(aggregation, labels_of(kind), inner), kind
