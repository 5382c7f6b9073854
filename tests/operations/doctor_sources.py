"""A healthy cluster as the doctor sees it, to plant faults in."""

from datetime import UTC, datetime, timedelta
from typing import Any

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.exporter_profile import (
    ExporterProfile,
    Family,
    Generation,
    JobProfile,
    WorkloadLabels,
)
from apps.clusters.domain.pods.ledger import NodeInterval, OfferedDevice
from apps.clusters.domain.tiers import GpuSharing, TierRule
from apps.operations.domain.observations import (
    ApiObservations,
    ClusterHistory,
    ClusterObservations,
    CollectedHours,
    MetricsAnswers,
    MetricsObservations,
    NodeDay,
    NodeHeadroom,
    NodeTenant,
    ObservedDevice,
    PodGroup,
    QuotaRow,
    SourceTrouble,
    TeamTier,
    TierMonth,
)

NOW = datetime(2026, 11, 20, 12, 10, tzinfo=UTC)
A100 = "NVIDIA-A100-SXM4-80GB"
H100 = "NVIDIA-H100-80GB-HBM3"
L4 = "NVIDIA-L4"
T4 = "Tesla-T4"
GPU, SHARED, MIG = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-3g.40gb"
PRODUCT, STRATEGY = "nvidia.com/gpu.product", "nvidia.com/gpu.sharing-strategy"
PROFILING = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"


def node(name: str, capacity: dict[str, float], **labels: str) -> NodeInterval:
    """Return a node; labels are written with _ for what a keyword cannot have."""
    given = {_LABELS[key]: value for key, value in labels.items()}
    return NodeInterval(name, 0.0, NOW.timestamp(), capacity, capacity, given)


_LABELS = {
    "product": PRODUCT,
    "strategy": STRATEGY,
    "replicas": "nvidia.com/gpu.replicas",
    "memory": "nvidia.com/gpu.memory",
    "mig": "nvidia.com/mig.strategy",
    "state": "nvidia.com/mig.config.state",
}

WHOLE = node("whole-1", {GPU: 8.0}, product=A100, strategy="none", replicas="1")
SLICED = node(
    "sliced-1", {SHARED: 8.0}, product=L4, strategy="time-slicing", replicas="4", memory="23034"
)
SPLIT = node("split-1", {MIG: 2.0}, product=H100, mig="mixed")
CLAIMED = replace(
    node("claimed-1", {}, product=H100),
    devices=(
        OfferedDevice(
            "gpu.nvidia.com", "claimed-1", "gpu-0", "GPU-d0", "", H100, ("gpu.nvidia.com",)
        ),
    ),
)
NODES = (WHOLE, SLICED, SPLIT, CLAIMED)

RULES = (
    TierRule("exclusive-a100", GpuSharing.EXCLUSIVE, (GPU,), node_selector={PRODUCT: A100}),
    TierRule("shared-l4", GpuSharing.TIME_SLICED, (SHARED,), node_selector={PRODUCT: L4}),
    TierRule("mig-3g", GpuSharing.MIG, (MIG,)),
    TierRule("dra-h100", GpuSharing.DRA, (), ("gpu.nvidia.com",)),
)


def device(uuid: str, on: str, model: str, **values: Any) -> ObservedDevice:
    """Return a GPU that one pod held through a slot of 60 samples."""
    given: dict[str, Any] = {"samples": 60, "named": 60, "pods": 1}
    given |= {"activity": True, "memory": True, "energy": True, "gpu_instance": ""}
    return ObservedDevice(uuid=uuid, model=model, node=on, **(given | values))


DEVICES = (
    *(device(f"GPU-w{n}", "whole-1", "NVIDIA A100-SXM4-80GB") for n in range(8)),
    # Two sharers a GPU: each has a row of its own, with the device's samples.
    *(device(f"GPU-s{n}", "sliced-1", "NVIDIA L4", named=120, pods=2) for n in range(2)),
    *(device("GPU-m0", "split-1", "NVIDIA H100 80GB HBM3", gpu_instance=n) for n in ("1", "2")),
    device("GPU-d0", "claimed-1", "NVIDIA H100 80GB HBM3"),
)


def tenant(pod: str, on: str, resource: str, tier: str, **values: Any) -> NodeTenant:
    given: dict[str, Any] = {"namespace": "vision", "kind": "Job", "workload": "train"}
    given |= {"units": 1.0, "running": True}
    return NodeTenant(pod=pod, node=on, resource=resource, tier=tier, **(given | values))


TENANTS = (
    *(tenant(f"train-{n}", "whole-1", GPU, "exclusive-a100") for n in range(8)),
    *(tenant(f"notes-{n}", "sliced-1", SHARED, "shared-l4") for n in range(4)),
    tenant("serve", "split-1", MIG, "mig-3g"),
    tenant("claimer", "claimed-1", "gpu.nvidia.com", "dra-h100"),
)

PROFILE = ExporterProfile(
    (
        JobProfile(
            job="dcgm-exporter",
            family=Family.DCGM,
            generation=Generation.HOSTNAME_LOWER,
            workload_labels=WorkloadLabels.EXPORTED,
            node_labels=("hostname",),
            dra_labels=True,
            activity_metrics=(("NVIDIA A100-SXM4-80GB", (PROFILING,)),),
            memory_metric="DCGM_FI_DEV_FB_USED",
            energy_metric="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        ),
    )
)


def with_job(**values: Any) -> ExporterProfile:
    """Return the healthy profile with another exporter job."""
    return ExporterProfile((replace(PROFILE.jobs[0], **values),))


ANSWERS = MetricsAnswers(
    skew_seconds=0.4,
    tainted=frozenset(one.node for one in NODES),
    room={one.node: NodeHeadroom(32.0, 128.0 * 2**30) for one in NODES},
)

METRICS = MetricsObservations(
    version="2.42.0",
    devices=DEVICES,
    interval_seconds=30.0,
    profile=PROFILE,
    kube_state=True,
    nodes=NODES,
    quotas=(
        QuotaRow("vision", "gpu", "requests.nvidia.com/gpu", 8.0),
        QuotaRow("vision", "gpu", "requests.nvidia.com/gpu.shared", 8.0),
    ),
    answers=ANSWERS,
)

PAST = ClusterHistory(
    nodes=NODES,
    tenants=TENANTS,
    groups=(
        PodGroup("vision", "Job", GPU, 1.0, "exclusive-a100", 80),
        PodGroup("vision", "PyTorchJob", GPU, 8.0, "exclusive-a100", 4),
        PodGroup("vision", "StatefulSet", SHARED, 1.0, "shared-l4", 12),
    ),
    node_days=(
        NodeDay("whole-1", "exclusive-a100", 190.0, 2.0, 0.5, 2.0, 70_000.0),
        NodeDay("sliced-1", "shared-l4", 40.0, 0.0, 0.0, 8.0, 12_000.0),
    ),
    tiers=(
        TierMonth("exclusive-a100", 5000.0, 0.0, 3.0),
        TierMonth("shared-l4", 900.0, 0.0, 0.0),
        TierMonth("mig-3g", 400.0, 0.4, 0.0),
    ),
    teams=(TeamTier("vision", "exclusive-a100", 5000.0),),
    hours=CollectedHours(
        complete=24,
        newest=NOW - timedelta(minutes=10),
        due=NOW - timedelta(minutes=10),
    ),
)

API = ApiObservations(version="v1.36.2", watched_until=NOW - timedelta(seconds=20))


def healthy() -> ClusterObservations:
    """Return a cluster of whole, time-sliced, MIG and DRA GPUs with which nothing is wrong."""
    return ClusterObservations(
        cluster="west",
        now=NOW,
        metrics=METRICS,
        api=API,
        past=PAST,
        rules=RULES,
        allowed={"exclusive-a100": frozenset({"vision"})},
    )


def with_metrics(**values: Any) -> ClusterObservations:
    return replace(healthy(), metrics=replace(METRICS, **values))


def with_answers(**values: Any) -> ClusterObservations:
    return with_metrics(answers=replace(ANSWERS, **values))


def with_past(**values: Any) -> ClusterObservations:
    return replace(healthy(), past=replace(PAST, **values))


def with_hours(**values: Any) -> ClusterObservations:
    return with_past(hours=replace(PAST.hours, **values))


def with_api(**values: Any) -> ClusterObservations:
    return replace(healthy(), api=replace(API, **values))


def with_devices(on: str, **values: Any) -> ClusterObservations:
    """Return the healthy cluster with the GPUs of a node (``: of all) changed."""
    changed = [one._replace(**values) if on in {"", one.node} else one for one in DEVICES]
    return with_metrics(devices=changed)


def with_nodes(*added: NodeInterval, without: str = "") -> ClusterObservations:
    """Return the healthy cluster with nodes more, tainted and with room, or one less."""
    look = healthy()
    nodes = [*(one for one in NODES if one.node != without), *added]
    answers = replace(
        ANSWERS,
        tainted=frozenset(one.node for one in nodes),
        room={one.node: NodeHeadroom(32.0, 128.0 * 2**30) for one in nodes},
    )
    return replace(
        look,
        past=replace(PAST, nodes=nodes),
        metrics=replace(METRICS, nodes=nodes, answers=answers),
    )


def prometheus_down() -> ClusterObservations:
    down = MetricsObservations(
        trouble=SourceTrouble("Prometheus at http://p:9090 cannot be reached", True)
    )
    return replace(healthy(), metrics=down)
