"""Do the device exporters show what facts are made of, and for whom."""

from collections.abc import Iterator, Sequence

from apps.clusters.domain.devices.exporter_profile import VENDOR_LIMITS, Generation, WorkloadLabels
from apps.clusters.domain.quantities import counted
from apps.clusters.domain.tiers import same_model
from apps.operations.domain.examine import attribution
from apps.operations.domain.findings import Finding, some
from apps.operations.domain.observations import ClusterLook, ObservedDevice

PROFILING = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
_CSV = "# counters of dcgm-exporter (Helm: customMetrics, or the ConfigMap of its CSV):\n"
_ACTIVITY_LINE = f"{_CSV}{PROFILING}, gauge, Ratio of time the graphics engine is active."
_MEMORY_LINE = f"{_CSV}DCGM_FI_DEV_FB_USED, gauge, Framebuffer memory used (in MiB)."
_ENERGY_LINE = (
    f"{_CSV}DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Total energy since boot (in mJ)."
)


def check(look: ClusterLook) -> Iterator[Finding]:
    """Yield what the exporters of the cluster lack or show in an odd way."""
    if not look.measured:
        return
    if not look.metrics.cards:
        yield from _nothing(look)
        return
    for model in sorted({card.model for card in look.metrics.cards}):
        yield from _model(look, model, look.cards_of(model))
    yield from _forms(look)
    yield from _counters(look)
    yield from _profile(look)
    yield from attribution.check(look)


def _nothing(look: ClusterLook) -> Iterator[Finding]:
    nodes = {node.node for node in look.nodes if node.capacity or node.devices}
    if not nodes:
        return
    yield Finding(
        "no-device-metrics",
        look.cluster,
        "",
        f"{counted(len(nodes), 'node has', 'nodes have')} GPUs, and Prometheus has no series of "
        "any GPU exporter: everything that runs is unmeasured.",
        "helm upgrade --install dcgm-exporter gpu-helm-charts/dcgm-exporter \\\n"
        "  --set serviceMonitor.enabled=true\n"
        "# it is there? then the matchers of the catalog must fit its series:\n"
        "count by (cluster) (DCGM_FI_DEV_FB_USED)    # in Prometheus",
        pods=len(look.past.tenants),
        places=some(nodes),
    )


def _model(look: ClusterLook, model: str, cards: Sequence[ObservedDevice]) -> Iterator[Finding]:
    shown = model or "of no model"
    found = counted(len(cards), "device")
    # Some cards of a model being silent is a fault of nodes, which coverage shows.
    if not any(card.activity for card in cards):
        yield Finding(
            "no-activity-metric",
            look.cluster,
            model,
            f"{found} {shown}: neither {PROFILING} nor DCGM_FI_DEV_GPU_UTIL is exported, so what "
            "runs there is unmeasured. Profiling needs Volta or newer, the capability SYS_ADMIN, "
            "and on nodes of several models that the first GPU has it too.",
            f"{_ACTIVITY_LINE}\nsecurityContext: {{capabilities: {{add: [SYS_ADMIN]}}}}",
        )
    elif _only_coarse(look, model):
        yield Finding(
            "no-profiling-metric",
            look.cluster,
            model,
            f"{found} {shown}: {PROFILING} is not exported, and DCGM_FI_DEV_GPU_UTIL stands in. "
            "It is in whole per cent and does not exist on MIG.",
            f"{_ACTIVITY_LINE}\nsecurityContext: {{capabilities: {{add: [SYS_ADMIN]}}}}",
        )
    if not any(card.memory for card in cards):
        yield Finding(
            "no-memory-metric",
            look.cluster,
            model,
            f"{found} {shown} without memory: its peaks are unknown, and so is which shared card "
            "is full.",
            _MEMORY_LINE,
        )
    if not any(card.energy for card in cards):
        yield Finding(
            "no-energy-metric",
            look.cluster,
            model,
            f"{found} {shown} without energy: watt-hours of pods stay empty.",
            _ENERGY_LINE,
        )


def _only_coarse(look: ClusterLook, model: str) -> bool:
    used = [
        metrics
        for job in look.metrics.profile.jobs
        for name, metrics in job.activity_metrics
        if same_model(name, model)
    ]
    return bool(used) and all(
        metric == "DCGM_FI_DEV_GPU_UTIL" for metrics in used for metric in metrics
    )


def _forms(look: ClusterLook) -> Iterator[Finding]:
    jobs = look.metrics.profile.jobs
    forms = {job.workload_labels for job in jobs} - {WorkloadLabels.NONE}
    if len(forms) > 1:
        told = "; ".join(
            f"by {form}: {', '.join(job.job for job in jobs if job.workload_labels is form)}"
            for form in sorted(forms)
        )
        yield Finding(
            "label-forms-mixed",
            look.cluster,
            "",
            f"Scrape jobs name the workload differently: {told}. The portal reads each in its own "
            "way; queries of your own see only a part.",
            "# in the ServiceMonitor of each exporter, alike:\n"
            "spec: {endpoints: [{honorLabels: false}]}",
        )
    hosts = {job.generation for job in jobs}
    upper_and_lower = {Generation.HOSTNAME_UPPER, Generation.HOSTNAME_LOWER} <= hosts
    if Generation.BOTH in hosts or upper_and_lower:
        yield Finding(
            "host-labels-mixed",
            look.cluster,
            "",
            "Some exporters name their node by Hostname (4.8.2 and older), others by hostname "
            "(4.8.3 and newer). The portal reads both; joins of your own lose one part.",
            "kubectl rollout status --namespace NAMESPACE daemonset/dcgm-exporter\n"
            "# or the same name for all, in the ServiceMonitor:\n"
            "metricRelabelings: [{sourceLabels: [Hostname], regex: (.+), targetLabel: hostname}]",
        )
    answers = look.metrics.answers
    if answers and answers.scraped_twice:
        yield Finding(
            "scraped-twice",
            look.cluster,
            "",
            f"{counted(answers.scraped_twice, 'GPU is', 'GPUs are')} shown by more than one scrape "
            "target. The portal counts each once; sums of your own do not.",
            "# one exporter a node: that of the GPU operator, or the stand-alone chart\n"
            "helm uninstall dcgm-exporter    # or: ClusterPolicy dcgmExporter.enabled: false",
        )


def _counters(look: ClusterLook) -> Iterator[Finding]:
    stuck = look.metrics.remarks.get("stuck_counter") or look.past.hours.remarks.get(
        "stuck_counter"
    )
    if stuck:
        yield Finding(
            "stuck-counter",
            look.cluster,
            "",
            f"{counted(stuck, 'time')} {PROFILING} stood at 0 while utilization said busy; "
            "utilization was taken instead. Mostly another profiler holds the counters.",
            "# on the node; nothing else may profile (Nsight, another DCGM):\n"
            "dcgmi profile --resume\n"
            "kubectl delete pod --namespace NAMESPACE --selector app=dcgm-exporter "
            "--field-selector spec.nodeName=NODE",
        )
    rescaled = sorted({name for job in look.metrics.profile.jobs for name in job.rescaled})
    if rescaled:
        yield Finding(
            "units-rescaled",
            look.cluster,
            "",
            f"{', '.join(rescaled)} {'comes' if len(rescaled) == 1 else 'come'} in another unit "
            "than the exporter's own (a collector converts it). The portal converts it back; a "
            "change of that rule shows as a jump.",
            "# take the conversion out of the collector, or out of metric_relabel_configs",
        )


def _profile(look: ClusterLook) -> Iterator[Finding]:
    if look.metrics.changes:
        yield Finding(
            "exporter-changed",
            look.cluster,
            "",
            " ".join(look.metrics.changes),
            "# meant? nothing to do. Else: what was rolled out at that time?\n"
            "kubectl rollout history --namespace NAMESPACE daemonset/dcgm-exporter",
            since=look.metrics.changed_at,
        )
    for family in look.metrics.profile.families:
        limits = VENDOR_LIMITS.get(family, ())
        if limits:
            yield Finding(
                "vendor-limits",
                look.cluster,
                str(family),
                f"{family}: {' '.join(limits)}",
                "# nothing to do: the portal says unmeasured where it cannot know",
            )
