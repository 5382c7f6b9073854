"""Small builders of an hour's input for domain tests; times are seconds after the hour's start."""

from collections.abc import Iterator, Mapping, Sequence

from apps.clusters.domain.devices.state import ActivitySample, DeviceSlot
from apps.clusters.domain.pods.ledger import (
    ClaimAllocationRecord,
    NodeInterval,
    Owner,
    PodRecord,
    PodSource,
)
from apps.clusters.domain.tiers import GpuSharing, TierRule
from apps.clusters.domain.window import HOUR_SECONDS, SLOT_SECONDS, TimeSpan
from apps.usage.domain.attribution.allocations import PodLedger
from apps.usage.domain.attribution.attribute import SampleInterval
from apps.usage.domain.attribution.attribute_hour import (
    HourDevices,
    HourFacts,
    HourInput,
    RawSamples,
    attribute_hour,
)
from apps.usage.domain.attribution.gpu_classes import BoundTier

START = 1_793_613_600  # 2026-11-02 10:00 UTC
GPU = "nvidia.com/gpu"
LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    "karpenter.sh/capacity-type": "on-demand",
}
RULES = (TierRule("gold", GpuSharing.EXCLUSIVE, (GPU,), node_selector={}),)
INTERVAL = 30.0


def interval(
    node: str = "n1",
    start: float = -HOUR_SECONDS,
    end: float = 2 * HOUR_SECONDS,
    *,
    gpus: float = 4,
    allocatable: float | None = None,
    labels: Mapping[str, str] = LABELS,
    ready: bool = True,
    schedulable: bool = True,
) -> NodeInterval:
    return NodeInterval(
        node=node,
        start=START + start,
        end=START + end,
        capacity={GPU: gpus},
        allocatable={GPU: gpus if allocatable is None else allocatable},
        labels=labels,
        ready=ready,
        schedulable=schedulable,
    )


def pod(
    name: str = "p1",
    bound: float = -600,
    end: float | None = None,
    *,
    units: float = 1,
    node: str = "n1",
    runs: Sequence[tuple[float, float | None]] | None = None,
    source: PodSource = PodSource.API,
    resource: str = GPU,
) -> PodRecord:
    """A pod that runs from its binding to its end unless `runs` says otherwise."""
    spans = [(bound, end)] if runs is None else runs
    return PodRecord(
        uid=f"uid-{name}",
        namespace="ml",
        name=name,
        owner=Owner("Job", "train"),
        requests={resource: units},
        created=START + bound,
        node=node,
        bound=START + bound,
        finished=None if end is None else START + end,
        runs=tuple((START + a, None if b is None else START + b) for a, b in spans),
        source=source,
    )


def device(
    slot: int,
    activity: float | None,
    *,
    uuid: str = "GPU-1",
    pod_name: str = "p1",
    samples: int = 60,
    node: str = "n1",
    container: str = "main",
    memory: float | None = None,
    energy: float | None = None,
) -> DeviceSlot:
    """One device row of slot 0 or 1 of the hour."""
    return DeviceSlot(
        slot=START + slot * SLOT_SECONDS,
        uuid=uuid,
        gpu_instance="",
        profile="",
        model="NVIDIA A100-SXM4-80GB",
        node=node,
        namespace="ml" if pod_name else "",
        pod=pod_name,
        container=container if pod_name else "",
        activity_sum=None if activity is None else activity * samples,
        samples=samples,
        memory_used_peak_mib=memory,
        energy_wh=energy,
    )


def hour_facts(
    intervals: Sequence[NodeInterval],
    pods: Sequence[PodRecord],
    rows: Sequence[DeviceSlot] = (),
    *,
    rules: Sequence[TierRule] = RULES,
    bound: Mapping[str, BoundTier] | None = None,
    limits: Mapping[str, Sequence[TimeSpan]] | None = None,
    claims: Sequence[ClaimAllocationRecord] = (),
    raw: RawSamples | None = None,
    idle_below: float = 0.1,
) -> HourFacts:
    """Reckon an hour; raw samples are those that the rows sum, from each slot's start on."""
    ledger = PodLedger(pods, intervals, bound or {}, limits or {}, claims)
    devices = HourDevices(rows, SampleInterval(INTERVAL))
    known = HourInput(START, ledger, rules, lambda: devices)
    return attribute_hour(
        known, raw or (lambda uuids: even_samples(rows, uuids)), idle_below=idle_below
    )[0]


def even_samples(rows: Sequence[DeviceSlot], uuids: Sequence[str]) -> Iterator[ActivitySample]:
    """Yield as many samples as each row of these devices has, all of its mean."""
    for row in rows:
        if row.uuid in uuids and row.activity_sum is not None:
            for number in range(row.samples):
                at = row.slot + number * INTERVAL
                mean = row.activity_sum / row.samples
                yield ActivitySample(row.uuid, row.gpu_instance, row.namespace, row.pod, at, mean)
