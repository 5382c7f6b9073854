"""GPUs that KAI Scheduler shares: their users hold them by fraction, their reservation nothing."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.accounts.domain.structs import replace
from apps.clusters.adapters.kubernetes.shapes import Decoders
from apps.clusters.domain.devices.state import DeviceSlot
from apps.clusters.domain.observed.objects import ObservedKind
from apps.clusters.domain.observed.pods import ExtractionContext, controller_snapshot, pod_snapshot
from apps.clusters.domain.pods.kube_objects import pod_record
from apps.clusters.domain.pods.ledger import NodeInterval, Owner, PodRecord
from apps.clusters.domain.resources import GPU, GPU_FRACTION, GPU_MEMORY
from apps.clusters.domain.tiers import GpuSharing, TierRule
from apps.usage.domain.attribution.allocations import PodLedger
from apps.usage.domain.attribution.attribute import SampleInterval
from apps.usage.domain.attribution.attribute_hour import (
    HourDevices,
    HourFacts,
    HourInput,
    attribute_hour,
)

HOUR = 1_772_409_600  # 2026-03-02T00:00:00Z
NODE = "gpu-1"
RULES = [TierRule("fractions", GpuSharing.EXCLUSIVE, (GPU,))]
MEMORY = {"nvidia.com/gpu.memory": "40000"}


def as_read(plural: str, item: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = Decoders(plural).item.decode(msgspec.json.encode(item))
    return found


def kai_pod(
    name: str,
    annotations: Mapping[str, str],
    *,
    groups: tuple[str, ...] = ("group-1",),
    scheduler: str = "kai-scheduler",
    bound: bool = True,
) -> dict[str, Any]:
    """Return a pod as KAI's binder leaves it: its GPU group in a label, no GPU in its resources."""
    labels = {"kai.scheduler/queue": "research"}
    if bound:
        one = {"runai-gpu-group": groups[0]} if groups else {}
        labels |= one if len(groups) < 2 else {f"runai-gpu-group/{g}": g for g in groups}
    started = {"state": {"running": {"startedAt": "2026-03-01T23:00:05Z"}}}
    pod = {
        "metadata": {
            "uid": f"uid-{name}",
            "namespace": "vision",
            "name": name,
            "creationTimestamp": "2026-03-01T23:00:00Z",
            "labels": labels,
            "annotations": {"other": "left out", **annotations},
        },
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "proxy"}, {"name": "main"}],
            **({"nodeName": NODE} if bound else {}),
        },
        "status": {
            "phase": "Running" if bound else "Pending",
            "containerStatuses": [{"name": n, **started} for n in ("proxy", "main")] * bound,
        },
    }
    return as_read("pods", pod)


def reservation(group: str = "group-1", name: str = "gpu-reservation-0a1b") -> dict[str, Any]:
    """Return the pod that holds a GPU for those that share it."""
    amounts = {"limits": {GPU: "1"}, "requests": {GPU: "1"}}
    pod = {
        "metadata": {
            "uid": f"uid-{name}",
            "namespace": "kai-resource-reservation",
            "name": name,
            "creationTimestamp": "2026-03-01T23:00:00Z",
            "labels": {"app": "kai-resource-reservation", "runai-gpu-group": group},
            "annotations": {"run.ai/reserve_for_gpu_index": "GPU-0"},
        },
        "spec": {
            "nodeName": NODE,
            "containers": [{"name": "resource-reservation", "resources": amounts}],
        },
        "status": {"phase": "Running"},
    }
    return as_read("pods", pod)


def record(pod: dict[str, Any]) -> PodRecord | None:
    return pod_record(pod, owner=Owner("Pod", pod["metadata"]["name"]))


def held(annotations: Mapping[str, str], **about: Any) -> dict[str, float] | None:
    found = record(kai_pod("one", annotations, **about))
    return None if found is None else dict(found.requests)


def row(uuid: str, pod: tuple[str, str], activity: float) -> list[DeviceSlot]:
    return [
        DeviceSlot(
            slot=slot,
            uuid=uuid,
            gpu_instance="",
            node=NODE,
            model="A100",
            profile="",
            namespace=pod[0],
            pod=pod[1],
            container="",
            activity_sum=activity * 60,
            samples=60,
        )
        for slot in (HOUR, HOUR + 1800)
    ]


def facts(
    pods: list[dict[str, Any]],
    rows: list[DeviceSlot] | None = None,
    *,
    gpus: int = 2,
    known: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> HourFacts:
    records = [found for pod in pods if (found := record(pod)) is not None]
    records = [replace(one, gpus=known.get(one.uid, ())) for one in records]
    there = {GPU: float(gpus)}
    interval = NodeInterval(NODE, HOUR - 7200, HOUR + 7200, there, there, MEMORY)
    devices = HourDevices(rows or [], SampleInterval(30.0))
    hour = HourInput(HOUR, PodLedger(records, [interval]), RULES, lambda: devices)
    result, _ = attribute_hour(hour, lambda _: None, idle_below=0.05)
    return result


def gpu_hours(nano: int | None) -> float:
    return (nano or 0) / 1e9


# ---------------------------------------------------------------- what they hold


def test_a_pod_holds_its_fraction_of_each_of_its_gpus() -> None:
    assert held({"gpu-fraction": "0.25"}) == {GPU_FRACTION: 0.25}
    several = {"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2"}
    assert held(several, groups=("group-1", "group-2")) == {GPU_FRACTION: 0.5}
    assert held({"gpu-memory": "2000"}) == {GPU_MEMORY: 2000.0}


def test_the_container_that_is_named_runs_with_the_gpu_else_the_first() -> None:
    pod = kai_pod("one", {"gpu-fraction": "0.5", "gpu-fraction-container-name": "main"})
    pod["status"]["containerStatuses"][1]["state"] = {"waiting": {"reason": "ImagePullBackOff"}}
    found = record(pod)
    assert found is not None
    assert found.runs == ()
    pod["metadata"]["annotations"].pop("gpu-fraction-container-name")
    first = record(pod)
    assert first is not None
    assert first.runs == ((HOUR - 3595.0, None),)


@pytest.mark.parametrize("odd", ["", "half", "-0.5", "0", "1.5", "nan"])
def test_an_annotation_that_is_no_fraction_counts_nothing(odd: str) -> None:
    assert held({"gpu-fraction": odd}) is None


def test_annotations_without_kai_count_nothing() -> None:
    asked = {"gpu-fraction": "0.5"}
    # Bound by somebody else: there is no group of a GPU. Pending for Kubernetes' own scheduler.
    assert held(asked, groups=()) is None
    assert held(asked, bound=False, scheduler="default-scheduler") is None
    assert held(asked, bound=False) == {GPU_FRACTION: 0.5}


def test_who_reserves_a_gpu_is_no_workload() -> None:
    assert record(reservation()) is None
    # Anybody may write the label: elsewhere it hides no GPU.
    hiding = reservation()
    hiding["metadata"]["namespace"] = "vision"
    assert record(hiding) is not None
    assert pod_snapshot(reservation(), ExtractionContext()) is None


def test_pods_of_a_controller_ask_for_what_its_template_says() -> None:
    template = {
        "metadata": {"annotations": {"gpu-fraction": "0.5", "other": "left out"}},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main"}]},
    }
    about = {"uid": "u", "namespace": "vision", "name": "web", "creationTimestamp": None}
    item = as_read(
        "replicasets", {"metadata": about, "spec": {"replicas": 2, "template": template}}
    )
    found = controller_snapshot(ObservedKind.REPLICA_SET, item, ExtractionContext())
    assert found is not None
    assert found.requests == {GPU_FRACTION: 0.5}


def test_the_rest_of_a_shared_gpu_is_unallocated() -> None:
    pods = [kai_pod("a", {"gpu-fraction": "0.25"}), kai_pod("b", {"gpu-memory": "20000"})]
    total = facts([reservation(), *pods]).total()
    assert gpu_hours(total.allocated) == pytest.approx(0.75)
    assert gpu_hours(total.unallocated) == pytest.approx(1.25)
    assert gpu_hours(total.capacity) == pytest.approx(2.0)


# ---------------------------------------------------------------- what they do


def test_the_activity_of_a_reserved_gpu_is_of_those_that_share_it() -> None:
    pods = [kai_pod("a", {"gpu-fraction": "0.25"}), kai_pod("b", {"gpu-fraction": "0.75"})]
    rows = [
        *row("GPU-0", ("kai-resource-reservation", "gpu-reservation-0a1b"), 0.8),
        *row("GPU-1", ("", ""), 0.0),
    ]
    found = facts([reservation(), *pods], rows)
    busy = {fact.uid: gpu_hours(fact.amounts.busy) for fact in found.pods}
    # The free GPU beside it is of nobody and thins nothing.
    assert busy == pytest.approx({"uid-a": 0.2, "uid-b": 0.6})
    assert all(f.amounts.grade_apportioned == f.amounts.allocated for f in found.pods)
    assert found.total().unattributed == 0


def test_a_gpu_that_is_known_is_of_those_that_share_it_alone() -> None:
    """Two reserved GPUs of a node, one busy and one at rest: nobody is taken for half busy."""
    known = {"uid-a": ("GPU-0",), "uid-b": ("GPU-1",), "uid-c": ("GPU-0", "GPU-1")}
    pods = [
        kai_pod("a", {"gpu-fraction": "0.25"}),
        kai_pod("b", {"gpu-fraction": "0.5"}),
        kai_pod("c", {"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2"}),
    ]
    rows = [
        *row("GPU-0", ("kai-resource-reservation", "gpu-reservation-0"), 0.4),
        *row("GPU-1", ("kai-resource-reservation", "gpu-reservation-1"), 0.0),
    ]
    found = facts([reservation(), *pods[:2]], rows, known=known)
    busy = {fact.uid: gpu_hours(fact.amounts.busy) for fact in found.pods}
    assert busy == pytest.approx({"uid-a": 0.25, "uid-b": 0.0})
    # What is above the part of the one pod there is no other's: it used what was free.
    assert gpu_hours(found.total().burst) == pytest.approx(0.15)
    both = facts([reservation(), *pods], rows, known=known)
    assert gpu_hours(both.total().busy) == pytest.approx(0.4)
    # Without the UUIDs all pods of the node would share the activity of both.
    apart = facts([reservation(), *pods[:2]], rows)
    assert gpu_hours(next(f for f in apart.pods if f.uid == "uid-b").amounts.busy) > 0.2


def test_activity_of_a_reservation_without_users_is_of_nobody() -> None:
    rows = row("GPU-0", ("kai-resource-reservation", "gpu-reservation-0a1b"), 0.5)
    total = facts([reservation()], rows).total()
    assert total.allocated == 0
    assert gpu_hours(total.unattributed) == pytest.approx(0.5)


@given(
    gpus=st.lists(st.lists(st.integers(1, 100), min_size=1, max_size=5), min_size=1, max_size=4),
    activity=st.floats(0, 1),
)
def test_fractions_never_hold_more_than_their_gpus_and_all_sums_agree(
    gpus: list[list[int]], activity: float
) -> None:
    # KAI gives out no more than the whole of a GPU.
    pods, rows, wanted = [], [], 0
    for number, parts in enumerate(gpus):
        group = f"group-{number}"
        name = f"gpu-reservation-{number}"
        pods.append(reservation(group, name))
        rows += row(f"GPU-{number}", ("kai-resource-reservation", name), activity)
        for place, part in enumerate(parts):
            if sum(parts[: place + 1]) <= 100:
                wanted += part
                asked = {"gpu-fraction": f"{part / 100:g}"}
                pods.append(kai_pod(f"p{number}-{place}", asked, groups=(group,)))
    found = facts(pods, rows, gpus=len(gpus))
    total = found.total()
    assert gpu_hours(total.allocated) == pytest.approx(wanted / 100)
    assert total.capacity == total.allocated + (total.unhealthy or 0) + (total.unallocated or 0)
    assert gpu_hours(total.capacity) == pytest.approx(len(gpus))
    assert sum(fact.amounts.allocated for fact in found.pods) == total.allocated
    assert total.busy <= total.allocated


@pytest.mark.parametrize(
    ("annotations", "held"),
    [
        ({"gpu-memory": "1e308", "gpu-fraction-num-devices": "1e308"}, None),
        ({"gpu-memory": "2000", "gpu-fraction-num-devices": "1e308"}, {GPU_MEMORY: 2000.0}),
        ({"gpu-fraction": "1", "gpu-fraction-num-devices": "1e30"}, {GPU_FRACTION: 1.0}),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "1.5"}, {GPU_FRACTION: 0.5}),
        ({"gpu-fraction": "²"}, None),
    ],
)
def test_shares_that_no_node_has_are_not_held(
    annotations: dict[str, str], held: dict[str, float] | None
) -> None:
    found = pod_record(kai_pod("strange", annotations), owner=Owner("Pod", "strange"))
    assert (None if found is None else found.requests) == held
