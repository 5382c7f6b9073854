"""Do device exporters and kube-state-metrics show what facts are made of, and for whom."""

from collections import Counter
from collections.abc import Iterator, Sequence

from apps.clusters.domain.devices.exporter_profile import VENDOR_LIMITS, Generation, WorkloadLabels
from apps.clusters.domain.resources import counted
from apps.clusters.domain.tiers import GpuSharing, same_model
from apps.operations.domain.examine.sharing import Offer, offers
from apps.operations.domain.findings import Finding, some
from apps.operations.domain.observations import ClusterObservations, NodeTenant, ObservedDevice

_SLOT_SECONDS = 1800
_COPIED = 1.5
"""From so many times the samples of one row on, each sharer has a row of its own."""


def check_attribution(observed: ClusterObservations) -> Iterator[Finding]:
    """Yield where pods hold GPUs whose series do not name them; needs GPUs and tenants."""
    running = [tenant for tenant in observed.past.tenants if tenant.running]
    named = {device.node for device in observed.metrics.devices if device.named}
    if running and observed.metrics.devices and not named:
        # Without a single name the finer causes below could not be told apart.
        yield _no_labels(observed, running)
        return
    yield from _unmapped(observed, running, named)
    yield from _virtual_gpus(observed, running, named)
    yield from _process_values(observed)
    yield from _claims(observed, running, named)


def _no_labels(observed: ClusterObservations, running: list[NodeTenant]) -> Finding:
    return observed.finding(
        "no-pod-labels",
        "",
        f"No series of {counted(len(observed.metrics.devices), 'device')} names a pod, while "
        f"{counted(len(running), 'pod')} hold GPUs. A pod that is alone on its node is found by "
        "elimination. All others have no metrics.",
        "# dcgm-exporter: environment and the kubelet's socket\n"
        'env: [{name: DCGM_EXPORTER_KUBERNETES, value: "true"}]\n'
        "volumeMounts: [{name: pod-resources, mountPath: /var/lib/kubelet/pod-resources}]",
        pods=len(running),
    )


def _seen_nodes(observed: ClusterObservations) -> set[str]:
    return {device.node for device in observed.metrics.devices}


def _unmapped(
    observed: ClusterObservations, running: list[NodeTenant], named: set[str]
) -> Iterator[Finding]:
    """Yield where only pods of a renamed resource are on a node, and its series name no pod."""
    found: dict[str, list[NodeTenant]] = {}
    # Where pods hold whole GPUs too, series that name none of them have another cause.
    others = {t.node for t in running if not t.resource.endswith(".shared")}
    for tenant in running:
        on_shared = tenant.resource.endswith(".shared") and tenant.node not in others
        if on_shared and tenant.node in _seen_nodes(observed) - named:
            found.setdefault(tenant.resource, []).append(tenant)
    for resource, tenants in sorted(found.items()):
        nodes = {tenant.node for tenant in tenants}
        yield observed.finding(
            "shared-unmapped",
            resource,
            f"{counted(len(tenants), 'pod')} hold {resource} on {counted(len(nodes), 'node')} "
            "whose series name no pod: the exporter maps only the resources that it is "
            "configured for. Each GPU's activity is divided among its holders.",
            f'# dcgm-exporter:\nenv: [{{name: NVIDIA_RESOURCE_NAMES, value: "{resource}"}}]',
            pods=len(tenants),
            places=some(nodes),
        )


def _virtual_gpus(
    observed: ClusterObservations, running: list[NodeTenant], named: set[str]
) -> Iterator[Finding]:
    """Yield where more pods share GPUs than the series can name at a time.

    With more pods than GPUs on a node at least one GPU has two of them. Where no GPU has more
    samples than one row gives, the exporter names one pod at a time.
    """
    # Too few samples show no interval: then that of the catalog counts.
    interval = observed.metrics.interval_seconds or observed.catalog_interval_seconds
    usual = _SLOT_SECONDS / interval
    shared: dict[str, Offer] = {o.node: o for o in offers(observed) if o.shared}
    tenants = Counter(t.node for t in running if t.node in shared)
    affected, pods = set(), 0
    for node, count in tenants.items():
        devices = [device for device in observed.metrics.devices if device.node == node]
        if node not in named or count <= len(devices):
            continue
        if max(device.named for device in devices) < _COPIED * usual:
            affected.add(node)
            pods += count
    if not affected:
        return
    yield observed.finding(
        "virtual-gpus-off",
        "",
        f"On {counted(len(affected), 'node')} {counted(pods, 'pod')} share GPUs, and the "
        "exporter names one of a GPU's pods at a time. The GPU's activity is divided among the "
        "pods that held it: grade apportioned.",
        "# dcgm-exporter 4.8.2 or newer, with hostPID for values by process:\n"
        'env: [{name: KUBERNETES_VIRTUAL_GPUS, value: "true"}]\nhostPID: true',
        pods=pods,
        places=some(affected),
    )


def _process_values(observed: ClusterObservations) -> Iterator[Finding]:
    zero = observed.metrics.remarks.get("no_process_values", 0)
    if not zero:
        return
    shared = {offer.node for offer in offers(observed) if offer.shared}
    pods = sum(tenant.running and tenant.node in shared for tenant in observed.past.tenants)
    yield observed.finding(
        "process-values-zero",
        "",
        f"{counted(zero, 'time')} all pods of a shared GPU read 0 while the GPU was active: the "
        "exporter cannot match processes to pods. The GPU's activity is divided by what each "
        "pod held.",
        "# the DaemonSet of dcgm-exporter:\nspec: {template: {spec: {hostPID: true}}}",
        pods=pods,
    )


def _claims(
    observed: ClusterObservations, running: list[NodeTenant], named: set[str]
) -> Iterator[Finding]:
    tiers = {rule.tier for rule in observed.rules if rule.sharing is GpuSharing.DRA}
    classes = {name for rule in observed.rules for name in rule.device_classes}
    mapped = any(job.dra_labels for job in observed.metrics.profile.jobs)
    nodes = _seen_nodes(observed) - named
    held = [t for t in running if (t.tier in tiers or t.resource in classes) and t.node in nodes]
    if mapped or not held:
        return
    yield observed.finding(
        "dra-labels-missing",
        "",
        f"{counted(len(held), 'pod')} hold GPUs by claims on nodes whose series name no claim: "
        "they are found through their devices' UUIDs where ResourceSlices publish them.",
        "# dcgm-exporter 4.8.3 or newer (older ones read only resource.k8s.io/v1beta1):\n"
        'env: [{name: KUBERNETES_ENABLE_DRA, value: "true"}]',
        pods=len(held),
        places=some(t.node for t in held),
    )


PROFILING = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
_CSV = "# counters of dcgm-exporter (Helm: customMetrics, or the ConfigMap of its CSV):\n"
_ACTIVITY_LINE = f"{_CSV}{PROFILING}, gauge, Ratio of time the graphics engine is active."
_MEMORY_LINE = f"{_CSV}DCGM_FI_DEV_FB_USED, gauge, Framebuffer memory used (in MiB)."
_ENERGY_LINE = (
    f"{_CSV}DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Total energy since boot (in mJ)."
)


def check_exporters(observed: ClusterObservations) -> Iterator[Finding]:
    """Yield what the exporters of the cluster lack or show in an odd way."""
    if not observed.measured:
        return
    if not observed.metrics.devices:
        yield from _nothing(observed)
        return
    for model in sorted({device.model for device in observed.metrics.devices}):
        yield from _model(observed, model, observed.devices_of(model))
    yield from _forms(observed)
    yield from _counters(observed)
    yield from _profile(observed)
    yield from check_attribution(observed)


def _nothing(observed: ClusterObservations) -> Iterator[Finding]:
    # A cluster without GPUs has no GPU metrics, and misses none.
    nodes = {node.node for node in observed.nodes if node.capacity or node.devices}
    if not nodes:
        return
    yield observed.finding(
        "no-device-metrics",
        "",
        f"{counted(len(nodes), 'node has', 'nodes have')} GPUs, and Prometheus has no series of "
        "any GPU exporter: all their pods are without metrics.",
        "helm upgrade --install dcgm-exporter gpu-helm-charts/dcgm-exporter \\\n"
        "  --set serviceMonitor.enabled=true\n"
        "# it is there? then the matchers of the catalog must fit its series:\n"
        "count by (cluster) (DCGM_FI_DEV_FB_USED)    # in Prometheus",
        pods=len(observed.past.tenants),
        places=some(nodes),
    )


def _model(
    observed: ClusterObservations, model: str, devices: Sequence[ObservedDevice]
) -> Iterator[Finding]:
    shown = model or "of no model"
    found = counted(len(devices), "device")
    # Some GPUs of a model being silent is a fault of nodes, which coverage shows.
    if not any(device.activity for device in devices):
        yield observed.finding(
            "no-activity-metric",
            model,
            f"{found} {shown}: neither {PROFILING} nor DCGM_FI_DEV_GPU_UTIL is exported, so "
            "their pods have no metrics. Profiling needs Volta or newer and the capability "
            "SYS_ADMIN. On nodes of several models the first GPU must support it, too.",
            f"{_ACTIVITY_LINE}\nsecurityContext: {{capabilities: {{add: [SYS_ADMIN]}}}}",
        )
    elif _only_coarse(observed, model):
        yield observed.finding(
            "no-profiling-metric",
            model,
            f"{found} {shown}: {PROFILING} is not exported, and DCGM_FI_DEV_GPU_UTIL stands in. "
            "It is in whole per cent and does not exist on MIG.",
            f"{_ACTIVITY_LINE}\nsecurityContext: {{capabilities: {{add: [SYS_ADMIN]}}}}",
        )
    if not any(device.memory for device in devices):
        yield observed.finding(
            "no-memory-metric",
            model,
            f"{found} {shown} without memory: its peaks, and which shared GPU is full, are "
            "unknown.",
            _MEMORY_LINE,
        )
    if not any(device.energy for device in devices):
        yield observed.finding(
            "no-energy-metric",
            model,
            f"{found} {shown} without energy: watt-hours of pods stay empty.",
            _ENERGY_LINE,
        )


def _only_coarse(observed: ClusterObservations, model: str) -> bool:
    used = [
        metrics
        for job in observed.metrics.profile.jobs
        for name, metrics in job.activity_metrics
        if same_model(name, model)
    ]
    # `all` of nothing is true, and without a profile nothing is known.
    return bool(used) and all(
        metric == "DCGM_FI_DEV_GPU_UTIL" for metrics in used for metric in metrics
    )


def _forms(observed: ClusterObservations) -> Iterator[Finding]:
    jobs = observed.metrics.profile.jobs
    # A job that names no workload does not name it in another way.
    forms = {job.workload_labels for job in jobs} - {WorkloadLabels.NONE}
    if len(forms) > 1:
        told = "; ".join(
            f"by {form}: {', '.join(job.job for job in jobs if job.workload_labels is form)}"
            for form in sorted(forms)
        )
        yield observed.finding(
            "label-forms-mixed",
            "",
            f"Scrape jobs name the workload differently: {told}. The portal reads each in its own "
            "way; queries of your own see only a part.",
            "# in the ServiceMonitor of each exporter, alike:\n"
            "spec: {endpoints: [{honorLabels: false}]}",
        )
    hosts = {job.generation for job in jobs}
    upper_and_lower = {Generation.HOSTNAME_UPPER, Generation.HOSTNAME_LOWER} <= hosts
    if Generation.BOTH in hosts or upper_and_lower:
        yield observed.finding(
            "host-labels-mixed",
            "",
            "Some exporters name their node by Hostname (4.8.2 and older), others by hostname "
            "(4.8.3 and newer). The portal reads both; joins of your own lose one part.",
            "kubectl rollout status --namespace NAMESPACE daemonset/dcgm-exporter\n"
            "# or the same name for all, in the ServiceMonitor:\n"
            "metricRelabelings: [{sourceLabels: [Hostname], regex: (.+), targetLabel: hostname}]",
        )
    answers = observed.metrics.answers
    if answers and answers.scraped_twice:
        yield observed.finding(
            "scraped-twice",
            "",
            f"{counted(answers.scraped_twice, 'GPU is', 'GPUs are')} shown by more than one scrape "
            "target. The portal counts each once; sums of your own do not.",
            "# one exporter a node: that of the GPU operator, or the stand-alone chart\n"
            "helm uninstall dcgm-exporter    # or: ClusterPolicy dcgmExporter.enabled: false",
        )


def _counters(observed: ClusterObservations) -> Iterator[Finding]:
    # The newest slot may be quiet just now: the hours of the last day tell as well.
    stuck = observed.metrics.remarks.get("stuck_counter") or observed.past.hours.remarks.get(
        "stuck_counter"
    )
    if stuck:
        yield observed.finding(
            "stuck-counter",
            "",
            f"{counted(stuck, 'time')} {PROFILING} stayed at 0 while utilization did not; "
            "utilization was used instead. Usually another profiler holds the counters.",
            "# on the node; nothing else may profile (Nsight, another DCGM):\n"
            "dcgmi profile --resume\n"
            "kubectl delete pod --namespace NAMESPACE --selector app=dcgm-exporter "
            "--field-selector spec.nodeName=NODE",
        )
    rescaled = sorted({name for job in observed.metrics.profile.jobs for name in job.rescaled})
    if rescaled:
        yield observed.finding(
            "units-rescaled",
            "",
            f"{', '.join(rescaled)} {'comes' if len(rescaled) == 1 else 'come'} in another unit "
            "than the exporter's own (a collector converts it). The portal converts it back; a "
            "change of that rule shows as a jump.",
            "# take the conversion out of the collector, or out of metric_relabel_configs",
        )


def _profile(observed: ClusterObservations) -> Iterator[Finding]:
    if observed.metrics.changes:
        yield observed.finding(
            "exporter-changed",
            "",
            " ".join(observed.metrics.changes),
            "# meant? nothing to do. Else: what was rolled out at that time?\n"
            "kubectl rollout history --namespace NAMESPACE daemonset/dcgm-exporter",
            since=observed.metrics.changed_at,
        )
    for family in observed.metrics.profile.families:
        limits = VENDOR_LIMITS.get(family, ())
        if limits:
            yield observed.finding(
                "vendor-limits",
                str(family),
                f"{family}: {' '.join(limits)}",
                "# nothing to do: the portal says “no metrics” where it cannot know",
            )


NODE_LABELS = (
    "nvidia.com/gpu.product",
    "nvidia.com/gpu.sharing-strategy",
    "nvidia.com/gpu.replicas",
    "nvidia.com/mig.strategy",
    "karpenter.sh/capacity-type",
    "eks.amazonaws.com/capacityType",
    "cloud.google.com/gke-spot",
)


def check_kube_state(observed: ClusterObservations) -> Iterator[Finding]:
    """Yield what is missing or doubled; only the API can stand in for it."""
    if not observed.measured:
        return
    stands_in = (
        "The Kubernetes API stands in for it while it is watched; gaps of the watch cannot be "
        "rebuilt."
        if observed.api is not None
        else "Without the Kubernetes API nothing else tells which pods and nodes there are."
    )
    # None was not looked at.
    if observed.metrics.kube_state is False:
        yield observed.finding(
            "kube-state-missing",
            "",
            f"Prometheus has no series of kube-state-metrics. {stands_in}",
            "helm upgrade --install kube-state-metrics prometheus-community/kube-state-metrics \\\n"
            f"  --set 'metricLabelsAllowlist={{nodes=[{','.join(_labels(observed))}]}}'",
        )
    yield from _node_labels(observed, stands_in)
    yield from _counted_twice(observed)


def _node_labels(observed: ClusterObservations, stands_in: str) -> Iterator[Finding]:
    bare = [node.node for node in observed.metrics.nodes if not node.labels]
    if not bare:
        return
    yield observed.finding(
        "node-labels-missing",
        "",
        f"kube-state-metrics shows {counted(len(bare), 'GPU node')} without labels, so that GPU "
        f"model, sharing and capacity type are not known from it. {stands_in}",
        "# arguments of kube-state-metrics:\n"
        f"--metric-labels-allowlist=nodes=[{','.join(_labels(observed))}]",
        places=some(bare),
    )


def _labels(observed: ClusterObservations) -> list[str]:
    """Return the labels to show: those the ledger reads, and those that tiers select on."""
    named = {key for rule in observed.rules for key in rule.node_selector}
    return [*NODE_LABELS, *sorted(named - set(NODE_LABELS))]


def _counted_twice(observed: ClusterObservations) -> Iterator[Finding]:
    answers = observed.metrics.answers
    if answers is None:
        return
    if answers.kube_state_copies > 1:
        yield observed.finding(
            "kube-state-duplicated",
            "",
            f"Each node is shown {answers.kube_state_copies} times by kube-state-metrics. The "
            "portal counts it once; dashboards that sum do not.",
            "kubectl get pods --all-namespaces --selector app.kubernetes.io/name=kube-state-metrics"
            "\n# one replica, or sharding on: a StatefulSet with\n--pod=$(POD_NAME)\n"
            "--pod-namespace=$(POD_NAMESPACE)",
        )
    if answers.clusters > 1:
        # Nothing but matchers tells them apart: namesakes of both would be one pod, quota or node.
        yield observed.finding(
            "series-of-several-clusters",
            "",
            f"The series that the catalog chooses for this cluster are of {answers.clusters} "
            "clusters, by their label cluster: GPUs, pods and quotas of the others count as its "
            "own.",
            f"clusters:\n  - name: {observed.cluster}\n    prometheus:\n"
            f"      matchers: {{cluster: {observed.cluster}}}",
        )
