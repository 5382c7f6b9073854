"""Alerts that belong in Prometheus itself, as a PrometheusRule or as a plain rules file.

They look at minutes, not at hours of facts, and go on while the portal is away. Metrics and units
are those of dcgm-exporter's default counters and of kube-state-metrics. Rules about the portal
itself read its own metrics.
"""

from collections.abc import Sequence
from typing import Any


def alert(
    name: str, expression: str, pending: str, severity: str, summary: str, description: str
) -> dict[str, Any]:
    """Return a rule; it goes off when the expression has been true for `pending`."""
    return {
        "alert": name,
        "expr": expression,
        "for": pending,
        "labels": {"severity": severity},
        "annotations": {"summary": summary, "description": description},
    }


_HEARTBEAT = "gpuportal_beat_heartbeat_timestamp_seconds"
_EXCLUSIVE = 'gpuportal_tier_queue_time_seconds{sharing="exclusive",quantile="0.95"}'


def portal_group() -> dict[str, Any]:
    """Return the group of rules about the portal."""
    rules = [*_switches(), *_data(), *_tasks(), *_people(), _queue_time(), *_objectives()]
    return {"name": "gpuportal-portal", "interval": "1m", "rules": rules}


def _switches() -> list[dict[str, Any]]:
    return [
        alert(
            "GpuportalWatchdog",
            "vector(1)",
            "0m",
            "none",
            "Prometheus and Alertmanager work",
            "This alert always goes off. Route it to a service that tells you when it stops.",
        ),
        alert(
            "GpuportalNotScraped",
            "absent(gpuportal_scrape_source_ok)",
            "5m",
            "critical",
            "Prometheus has no series of the portal",
            "No web process answers /metrics: the portal is down, or is not scraped.",
        ),
        alert(
            "GpuportalHeartbeatLost",
            # `absent` too: a beat that never sent has no series that could be old.
            f"(time() - max({_HEARTBEAT})) > 180 or absent({_HEARTBEAT})",
            "2m",
            "critical",
            "The portal's beat, broker or workers stand still",
            "No task of beat has been carried out for minutes: nothing is collected, applied or "
            "reported. See the processes beat and worker, and the broker.",
        ),
        alert(
            "GpuportalSourceUnread",
            "max by (source) (gpuportal_scrape_source_ok) == 0",
            "10m",
            "warning",
            "Series of the portal cannot be read",
            "The portal cannot read its series of {{ $labels.source }}: see the log of web. Other "
            "alerts about them are silent until then.",
        ),
    ]


def _data() -> list[dict[str, Any]]:
    return [
        alert(
            "GpuportalHoursLate",
            "max by (cluster) (gpuportal_cluster_lag_seconds) >= 7200",
            "10m",
            "warning",
            "The data of a cluster is late",
            "Facts of {{ $labels.cluster }} are {{ $value | humanizeDuration }} behind. Data "
            "quality and manage.py doctor say why.",
        ),
        alert(
            "GpuportalHoursFailed",
            'max by (cluster) (gpuportal_collection_hours{state="failed"}) > 0',
            "1h",
            "warning",
            "Hours of a cluster failed",
            "{{ $value }} hours of {{ $labels.cluster }} failed in the last 7 days.",
        ),
        alert(
            "GpuportalWatchBehind",
            "(time() - max by (cluster) (gpuportal_watch_observed_until_timestamp_seconds)) > 300",
            "5m",
            "warning",
            "A cluster is not watched",
            "The watch has not seen {{ $labels.cluster }} for {{ $value | humanizeDuration }}: "
            "times of pods become estimates.",
        ),
        alert(
            "GpuportalNeverWatched",
            # The first is there of each cluster that is to be watched, the second once it was.
            "max by (cluster) (gpuportal_watch_issues) unless on (cluster) "
            "max by (cluster) (gpuportal_watch_observed_until_timestamp_seconds)",
            "15m",
            "warning",
            "A cluster was never watched",
            "The watch has not seen {{ $labels.cluster }} since it is in the catalog: see the log "
            "of watch.",
        ),
        alert(
            "GpuportalAuditBroken",
            "min(gpuportal_audit_holds) == 0",
            "0m",
            "critical",
            "The audit of the portal does not hold",
            "A line of the audit was changed or is missing: run manage.py verify_audit.",
        ),
    ]


def _tasks() -> list[dict[str, Any]]:
    return [
        alert(
            "GpuportalQueueStands",
            # A backfill is behind everything else, and may take days.
            "(time() - max by (queue) "
            '(gpuportal_queue_oldest_message_timestamp_seconds{queue!="backfill"})) > 900',
            "5m",
            "warning",
            "Tasks of the portal stay in their queue",
            "The oldest task of {{ $labels.queue }} was sent {{ $value | humanizeDuration }} ago: "
            "no worker takes from this queue, or too few do.",
        ),
        alert(
            "GpuportalWorkerSilent",
            "max by (queue) (gpuportal_queue_messages) > 0 and "
            "max by (queue) (gpuportal_queue_workers) == 0",
            "5m",
            "critical",
            "No worker takes from a queue of the portal",
            "{{ $value }} tasks are in {{ $labels.queue }}, and no worker that takes from it has a "
            "heartbeat.",
        ),
        alert(
            "GpuportalTasksFail",
            'sum by (task) (increase(gpuportal_task_seconds_count{outcome="failure"}[30m])) > 3',
            "0m",
            "warning",
            "A task of the portal fails again and again",
            "{{ $labels.task }} failed {{ $value | humanize }} times in 30 minutes: see the log "
            "of worker.",
        ),
        alert(
            "GpuportalLeasesExpired",
            'max by (work) (gpuportal_leases{state="expired"}) > 0',
            "15m",
            "warning",
            "Work of a dead process is not taken up",
            "{{ $value }} of {{ $labels.work }} belonged to a process that is gone, and no other "
            "took them up.",
        ),
        alert(
            "GpuportalDoctorErrors",
            'max(gpuportal_doctor_findings{severity="error"}) > 0',
            "15m",
            "warning",
            "The doctor of the portal found errors",
            "{{ $value }} errors are open: run manage.py doctor, or see Data quality.",
        ),
    ]


def _people() -> list[dict[str, Any]]:
    requests = "gpuportal_http_requests_total"
    return [
        alert(
            "GpuportalAlertsUndelivered",
            'max(gpuportal_deliveries{state="given up"}) > 0 or '
            "(time() - max(gpuportal_delivery_oldest_due_timestamp_seconds)) > 1800",
            "5m",
            "warning",
            "Alerts of the portal do not reach their channel",
            "Alerts were given up, or have been due for half an hour: see Delivery log.",
        ),
        alert(
            "GpuportalErrors",
            f'sum(rate({requests}{{status=~"5.."}}[10m])) / sum(rate({requests}[10m])) > 0.05',
            "10m",
            "critical",
            "The portal answers with errors",
            "{{ $value | humanizePercentage }} of requests end with a status of 500 or more.",
        ),
    ]


def _queue_time() -> dict[str, Any]:
    """Warn of training on whole GPUs that is pending for longer than it was."""
    now = f"max by (tier) ({_EXCLUSIVE})"
    # Without the last day, which would raise the very mean that it is held against.
    before = f"max by (tier) (avg_over_time({_EXCLUSIVE}[7d] offset 1d))"
    return alert(
        "GpuQueueTimeRising",
        # Half an hour at least: twice next to nothing is no news.
        f"({now} > 1800) and ({now} > 2 * {before})",
        "30m",
        "warning",
        "Work on whole GPUs is pending for longer than before",
        "The p95 queue time of {{ $labels.tier }} is {{ $value | humanizeDuration }}, more than "
        "twice the mean of the week before.",
    )


_FAST_BURN = 5.6
"""A twentieth of the error budget of 28 days in 6 hours (`fairness.domain.objectives.RULES`)."""


def _objectives() -> list[dict[str, Any]]:
    """Warn of queue-time objectives whose error budget burns fast or is spent."""
    hour, quarter, left = (
        f"max by (tier) (gpuportal_tier_objective_{name})"
        for name in ("burn_rate_1h", "burn_rate_6h", "budget_left_ratio")
    )
    return [
        alert(
            "GpuQueueTimeBudgetBurns",
            f"({quarter} > {_FAST_BURN}) and ({hour} > {_FAST_BURN})",
            "15m",
            "warning",
            "A queue-time objective loses its error budget fast",
            "Work on {{ $labels.tier }} misses its queue-time objective {{ $value | humanize }} "
            "times as often as its error budget allows, for the last hour and the last 6 hours.",
        ),
        alert(
            "GpuQueueTimeBudgetSpent",
            f"{left} < 0",
            "1h",
            "warning",
            "A queue-time objective is missed",
            "More work on {{ $labels.tier }} missed its queue-time objective than its error budget "
            "allows: see the page of the tier.",
        ),
    ]


ACTIVITY = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
USED, FREE = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"
TEMPERATURE = "DCGM_FI_DEV_GPU_TEMP"
XID = "DCGM_FI_DEV_XID_ERRORS"

GPU = ("UUID", "modelName", "Hostname", "hostname")
"""Labels of a GPU; its node is named in the old or the new spelling."""
DEVICE = (*GPU, "GPU_I_ID", "GPU_I_PROFILE")
"""Labels of a GPU or MIG instance."""
HOLDER = ("namespace", "pod", "exported_namespace", "exported_pod")

# Faults of the GPU or its driver; other codes mostly come from the program that runs on it.
HARDWARE_XIDS = (48, 63, 64, 74, 79, 92, 94, 95, 119, 120)


# When an alert goes off: fractions are 0..1, times as Prometheus writes them.
_IDLE_BELOW, _IDLE_FOR = 0.1, "2h"
_MEMORY_ABOVE, _MEMORY_FOR = 0.95, "10m"
_CELSIUS_ABOVE, _CELSIUS_FOR = 88.0, "10m"
_EXHAUSTED_FOR = "30m"
_GONE_FOR = "10m"


def prometheus_rule() -> dict[str, Any]:
    """Return the PrometheusRule object, for clusters with the Prometheus operator."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "gpuportal-gpus", "labels": {"app.kubernetes.io/name": "gpuportal"}},
        "spec": rule_file(),
    }


def rule_file() -> dict[str, Any]:
    """Return what a rules file of Prometheus holds."""
    rules = (_idle, _memory, _exhausted, _hot, _xid_of_hardware, _xid, _gone)
    gpus = {"name": "gpuportal-gpus", "interval": "1m", "rules": [rule() for rule in rules]}
    return {"groups": [gpus, portal_group()]}


def _idle() -> dict[str, Any]:
    activity = _by("max", (*DEVICE, *HOLDER), f"{_named(ACTIVITY)}")
    return alert(
        "GpuAllocatedAndIdle",
        f"{activity} < {_IDLE_BELOW:g}",
        _IDLE_FOR,
        "info",
        "A pod holds a GPU and does nothing with it",
        f"{_THE_GPU} has been under {_IDLE_BELOW:.0%} for {_IDLE_FOR}, while "
        "{{ if $labels.exported_pod }}{{ $labels.exported_namespace }}/{{ $labels.exported_pod }}"
        "{{ else }}{{ $labels.namespace }}/{{ $labels.pod }}{{ end }} holds it.",
    )


def _memory() -> dict[str, Any]:
    """Warn of full GPUs that several pods are named on, or whose node says that it shares."""
    used, free = (_by("max", DEVICE, metric) for metric in (USED, FREE))
    full = f"{_with_node(f'{used} / ({used} + {free})')} > {_MEMORY_ABOVE:g}"
    several = _by(
        "count", ("UUID", "GPU_I_ID"), _by("max", ("UUID", "GPU_I_ID", *HOLDER), _named(USED))
    )
    sharing = 'kube_node_labels{label_nvidia_com_gpu_sharing_strategy=~"time-slicing|mps"}'
    return alert(
        "GpuMemoryPressureOnSharedCard",
        f"(({full}) and on (UUID, GPU_I_ID) ({several} > 1))\n"
        f"or (({full}) and on (node) {sharing})",
        _MEMORY_FOR,
        "warning",
        "The memory of a GPU that pods share is nearly full",
        "{{ $value | humanizePercentage }} of the memory of "
        f"{_THE_GPU} is used: the next allocation fails in any of its pods.",
    )


def _exhausted() -> dict[str, Any]:
    asked = _by(
        "max",
        ("namespace", "pod", "uid", "container", "resource"),
        # On a node: a pod that is not bound yet holds no device.
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
        # More than 0 of them: 0 held of 0 offered is no profile that ran out.
        f"{held} >= ({_by('sum', ('resource',), offered)} > 0)",
        _EXHAUSTED_FOR,
        "info",
        "All devices of a MIG profile are held",
        "All {{ $value }} devices {{ $labels.resource }} are allocated: new requests are pending.",
    )


def _hot() -> dict[str, Any]:
    return alert(
        "GpuTemperatureHigh",
        f"{_by('max', GPU, TEMPERATURE)} > {_CELSIUS_ABOVE:g}",
        _CELSIUS_FOR,
        "warning",
        "A GPU is hot",
        f"{_THE_GPU} has {{{{ $value }}}} °C and will be slowed down.",
    )


# The metric holds the code of the newest XID and keeps it: it is a state, not a count. Its
# `increase` is zero from the second sample on.
def _xid_of_hardware() -> dict[str, Any]:
    newest = _by("max", GPU, XID)
    return alert(
        "GpuXidOfHardware",
        "\nor ".join(f"{newest} == {code}" for code in HARDWARE_XIDS),
        "0m",
        "critical",
        "A GPU reports a fault of its hardware or driver",
        f"The newest XID of {_THE_GPU} is {{{{ $value }}}}: drain the node and reset the GPU. "
        "The code stays until the driver is loaded anew.",
    )


def _xid() -> dict[str, Any]:
    newest = _by("max", GPU, XID)
    not_hardware = "".join(f" != {code}" for code in (0, *HARDWARE_XIDS))
    return alert(
        "GpuXid",
        f"{newest}{not_hardware}",
        "0m",
        "info",
        "A GPU reports an XID",
        f"The newest XID of {_THE_GPU} is {{{{ $value }}}}; 13, 31, 43 and 45 mostly come from "
        "the program that ran.",
    )


def _gone() -> dict[str, Any]:
    there = 'kube_node_status_allocatable{resource=~"nvidia_com_(gpu|mig_).*"} > 0'
    # Memory is exported of whole GPUs and of MIG instances alike.
    shown = _by("max", ("node",), _with_node(USED))
    return alert(
        "GpuExporterGone",
        f"{_by('max', ('node',), there)} unless on (node) {shown}",
        _GONE_FOR,
        "warning",
        "A node with GPUs has no GPU metrics",
        "Nothing tells what the GPUs of {{ $labels.node }} do: its exporter is gone, or is not "
        "scraped.",
    )


_THE_GPU = (
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
