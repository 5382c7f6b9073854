"""Alerts that belong in Prometheus itself, as a PrometheusRule or as a plain rules file.

They look at minutes, not at hours of facts, and go on while the portal is away. Metrics and units
are those of dcgm-exporter's default counters and of kube-state-metrics. Rules about the portal
itself are in `portal_rules`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apps.operations.domain.alert_rule import alert
from apps.operations.domain.portal_rules import portal_group

ACTIVITY = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
USED, FREE = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"
TEMPERATURE = "DCGM_FI_DEV_GPU_TEMP"
XID = "DCGM_FI_DEV_XID_ERRORS"

CARD = ("UUID", "modelName", "Hostname", "hostname")
"""Labels of a GPU; its node is named in the old or the new spelling."""
DEVICE = (*CARD, "GPU_I_ID", "GPU_I_PROFILE")
"""Labels of a GPU or MIG instance."""
HOLDER = ("namespace", "pod", "exported_namespace", "exported_pod")

# Faults of the card or its driver; other codes mostly come from the program that runs on it.
HARDWARE_XIDS = (48, 63, 64, 74, 79, 92, 94, 95, 119, 120)


@dataclass(frozen=True, slots=True)
class AlertThresholds:
    """When an alert goes off: fractions are 0..1, times as Prometheus writes them."""

    idle_below: float = 0.1
    idle_for: str = "2h"
    memory_above: float = 0.95
    memory_for: str = "10m"
    celsius_above: float = 88.0
    celsius_for: str = "10m"
    exhausted_for: str = "30m"
    gone_for: str = "10m"


def prometheus_rule() -> dict[str, Any]:
    """Return the PrometheusRule object, for clusters with the Prometheus operator."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "gpuportal-gpus", "labels": {"app.kubernetes.io/name": "gpuportal"}},
        "spec": rule_file(),
    }


def rule_file(given: AlertThresholds | None = None) -> dict[str, Any]:
    """Return what a rules file of Prometheus holds."""
    given = given or AlertThresholds()
    alerts = [
        _idle(given),
        _memory(given),
        _exhausted(given),
        _hot(given),
        _xid_of_hardware(),
        _xid(),
        _gone(given),
    ]
    gpus = {"name": "gpuportal-gpus", "interval": "1m", "rules": alerts}
    return {"groups": [gpus, portal_group()]}


def _idle(given: AlertThresholds) -> dict[str, Any]:
    activity = _by("max", (*DEVICE, *HOLDER), f"{_named(ACTIVITY)}")
    return alert(
        "GpuAllocatedAndIdle",
        f"{activity} < {given.idle_below:g}",
        given.idle_for,
        "info",
        "A pod holds a GPU and does nothing with it",
        f"{_THE_CARD} has been under {given.idle_below:.0%} for {given.idle_for}, while "
        "{{ if $labels.exported_pod }}{{ $labels.exported_namespace }}/{{ $labels.exported_pod }}"
        "{{ else }}{{ $labels.namespace }}/{{ $labels.pod }}{{ end }} holds it.",
    )


def _memory(given: AlertThresholds) -> dict[str, Any]:
    """Warn of full GPUs that several pods are named on, or whose node says that it shares."""
    used, free = (_by("max", DEVICE, metric) for metric in (USED, FREE))
    full = f"{_with_node(f'{used} / ({used} + {free})')} > {given.memory_above:g}"
    several = _by(
        "count", ("UUID", "GPU_I_ID"), _by("max", ("UUID", "GPU_I_ID", *HOLDER), _named(USED))
    )
    sharing = 'kube_node_labels{label_nvidia_com_gpu_sharing_strategy=~"time-slicing|mps"}'
    return alert(
        "GpuMemoryPressureOnSharedCard",
        f"(({full}) and on (UUID, GPU_I_ID) ({several} > 1))\n"
        f"or (({full}) and on (node) {sharing})",
        given.memory_for,
        "warning",
        "The memory of a GPU that pods share is nearly full",
        "{{ $value | humanizePercentage }} of the memory of "
        f"{_THE_CARD} is used: the next allocation fails in any of its pods.",
    )


def _exhausted(given: AlertThresholds) -> dict[str, Any]:
    asked = _by(
        "max",
        ("namespace", "pod", "uid", "container", "resource"),
        'kube_pod_container_resource_requests{resource=~"nvidia_com_mig_.*",node!=""}',
    )
    there = _by(
        "max", ("namespace", "pod", "uid"), 'kube_pod_status_phase{phase=~"Pending|Running"} == 1'
    )
    held = _by("sum", ("resource",), f"{asked} * on (namespace, pod, uid) group_left () {there}")
    offered = _by(
        "max", ("node", "resource"), 'kube_node_status_allocatable{resource=~"nvidia_com_mig_.*"}'
    )
    return alert(
        "GpuMigProfileExhausted",
        f"{held} >= ({_by('sum', ('resource',), offered)} > 0)",
        given.exhausted_for,
        "info",
        "All devices of a MIG profile are held",
        "All {{ $value }} devices {{ $labels.resource }} are allocated: new requests are pending.",
    )


def _hot(given: AlertThresholds) -> dict[str, Any]:
    return alert(
        "GpuTemperatureHigh",
        f"{_by('max', CARD, TEMPERATURE)} > {given.celsius_above:g}",
        given.celsius_for,
        "warning",
        "A GPU is hot",
        f"{_THE_CARD} has {{{{ $value }}}} °C and will be slowed down.",
    )


# The metric holds the code of the newest XID and keeps it: it is a state, not a count. Its
# `increase` is zero from the second sample on.
def _xid_of_hardware() -> dict[str, Any]:
    newest = _by("max", CARD, XID)
    return alert(
        "GpuXidOfHardware",
        "\nor ".join(f"{newest} == {code}" for code in HARDWARE_XIDS),
        "0m",
        "critical",
        "A GPU reports a fault of its hardware or driver",
        f"The newest XID of {_THE_CARD} is {{{{ $value }}}}: drain the node and reset the GPU. "
        "The code stays until the driver is loaded anew.",
    )


def _xid() -> dict[str, Any]:
    newest = _by("max", CARD, XID)
    not_hardware = "".join(f" != {code}" for code in (0, *HARDWARE_XIDS))
    return alert(
        "GpuXid",
        f"{newest}{not_hardware}",
        "0m",
        "info",
        "A GPU reports an XID",
        f"The newest XID of {_THE_CARD} is {{{{ $value }}}}; 13, 31, 43 and 45 mostly come from "
        "the program that ran.",
    )


def _gone(given: AlertThresholds) -> dict[str, Any]:
    there = 'kube_node_status_allocatable{resource=~"nvidia_com_(gpu|mig_).*"} > 0'
    # Memory is exported of whole cards and of MIG instances alike.
    shown = _by("max", ("node",), _with_node(USED))
    return alert(
        "GpuExporterGone",
        f"{_by('max', ('node',), there)} unless on (node) {shown}",
        given.gone_for,
        "warning",
        "A node with GPUs has no GPU metrics",
        "Nothing tells what the GPUs of {{ $labels.node }} do: its exporter is gone, or is not "
        "scraped.",
    )


_THE_CARD = (
    "{{ $labels.modelName }} {{ $labels.UUID }}"
    "{{ if $labels.GPU_I_ID }} instance {{ $labels.GPU_I_ID }}{{ end }}"
    " on {{ $labels.Hostname }}{{ $labels.hostname }}"
)


def _named(metric: str) -> str:
    """Return the series of a metric that name a workload, by either pair of labels.

    Where Prometheus renamed the workload's labels, the plain ones are the exporter's own pod.
    """
    return (
        f'{metric}{{exported_pod!=""}} or '
        f'{metric}{{exported_pod="",pod!="",pod!~".*(dcgm|exporter).*"}}'
    )


def _with_node(expression: str) -> str:
    """Add the label `node` from whichever label the exporter names its node by."""
    for label in ("hostname", "Hostname"):
        expression = f'label_replace({expression}, "node", "$1", "{label}", "(.+)")'
    return expression


def _by(aggregation: str, labels: Sequence[str], inner: str) -> str:
    return f"{aggregation} by ({', '.join(labels)}) ({inner})"
