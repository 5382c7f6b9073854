from collections.abc import Mapping

import pytest

from apps.clusters.domain.tiers import (
    UNKNOWN_MODEL,
    CapacityType,
    GpuSharing,
    TierRule,
    capacity_type,
    gpu_model,
    is_shared,
    same_model,
    tier_before_binding,
    tier_of,
    unit_weight,
    unreachable,
)

A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
L4_SHARED = {
    "nvidia.com/gpu.product": "NVIDIA-L4-SHARED",
    "nvidia.com/gpu.replicas": "4",
    "nvidia.com/gpu.sharing-strategy": "time-slicing",
}
RULES = (
    TierRule("gold", GpuSharing.EXCLUSIVE, ("nvidia.com/gpu",), node_selector=A100),
    TierRule(
        "shared",
        GpuSharing.TIME_SLICED,
        ("nvidia.com/gpu", "nvidia.com/gpu.shared"),
        node_selector={"nvidia.com/gpu.sharing-strategy": "time-slicing"},
    ),
)


@pytest.mark.parametrize(
    ("resource", "labels", "tier"),
    [
        pytest.param("nvidia.com/gpu", A100, "gold", id="by label"),
        pytest.param("nvidia.com/gpu", L4_SHARED, "shared", id="un-renamed slices"),
        pytest.param("nvidia.com/gpu.shared", A100, "unmatched", id="resource of another"),
        pytest.param("amd.com/gpu", {}, "unmatched", id="no tier names it"),
    ],
)
def test_a_tier_matches_on_resource_and_node_labels(
    resource: str, labels: Mapping[str, str], tier: str
) -> None:
    assert tier_of(resource, labels, RULES) == tier


def test_the_first_tier_that_matches_wins() -> None:
    both = A100 | L4_SHARED | A100
    assert tier_of("nvidia.com/gpu", both, RULES) == "gold"
    assert tier_of("nvidia.com/gpu", both, RULES[::-1]) == "shared"


@pytest.mark.parametrize(
    ("resource", "selector", "tier"),
    [
        pytest.param("nvidia.com/gpu", {}, "undetermined", id="either could serve it"),
        pytest.param("nvidia.com/gpu", A100, "gold", id="its selector settles it"),
        pytest.param(
            "nvidia.com/gpu", {"nvidia.com/gpu.product": "L4"}, "shared", id="one cannot serve it"
        ),
        pytest.param("nvidia.com/gpu.shared", {}, "shared", id="one tier names it"),
        pytest.param("amd.com/gpu", {}, "unmatched", id="none names it"),
    ],
)
def test_a_request_waits_in_a_tier_only_when_that_is_certain(
    resource: str, selector: Mapping[str, str], tier: str
) -> None:
    assert tier_before_binding(resource, selector, RULES) == tier


def test_a_tier_behind_a_wider_one_can_never_match() -> None:
    wide = TierRule("any", GpuSharing.EXCLUSIVE, ("nvidia.com/gpu",))
    assert unreachable([wide, RULES[0]]) == [("gold", "any")]
    assert unreachable([RULES[0], wide]) == []
    assert unreachable([wide, RULES[1]]) == [], "its second resource is still its own"


GPU = "nvidia.com/gpu"
MIG_SINGLE = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"}


@pytest.mark.parametrize(
    ("resource", "labels", "weight", "shared"),
    [
        pytest.param(GPU, A100, 1.0, False, id="a whole card"),
        pytest.param(GPU, {}, 1.0, False, id="nothing known"),
        pytest.param(GPU, L4_SHARED, 0.25, True, id="un-renamed replicas"),
        pytest.param("nvidia.com/gpu.shared", L4_SHARED, 0.25, True, id="renamed replicas"),
        pytest.param("nvidia.com/gpu.shared", {}, 1.0, True, id="replicas unknown"),
        pytest.param(GPU, {"nvidia.com/gpu.replicas": "x"}, 1.0, False, id="strange label"),
        pytest.param(GPU, {"nvidia.com/gpu.replicas": "0"}, 1.0, False, id="MIG under mixed"),
        pytest.param("nvidia.com/mig-3g.40gb", A100, 3 / 7, False, id="MIG mixed"),
        pytest.param(GPU, MIG_SINGLE, 1 / 7, False, id="MIG single looks like GPUs"),
        pytest.param(
            "nvidia.com/mig-1g.6gb",
            {"nvidia.com/gpu.product": "NVIDIA-A30"},
            1 / 4,
            False,
            id="a part of four slices",
        ),
        pytest.param(
            "nvidia.com/mig-1g.10gb.shared",
            {"nvidia.com/mig-1g.10gb.replicas": "2"},
            1 / 14,
            True,
            id="replicas of a MIG device",
        ),
        pytest.param("nvidia.com/mig-strange", A100, 1.0, False, id="strange profile"),
    ],
)
def test_a_unit_weighs_its_part_of_the_gpu(
    resource: str, labels: Mapping[str, str], weight: float, *, shared: bool
) -> None:
    assert unit_weight(resource, labels) == pytest.approx(weight)
    assert is_shared(resource, labels) is shared


def test_models_are_compared_without_blanks_and_dashes() -> None:
    assert same_model("NVIDIA A100-SXM4-80GB", "nvidia-a100-sxm4-80gb")
    assert not same_model("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-40GB")
    assert gpu_model(A100) == "NVIDIA-A100-SXM4-80GB"
    assert gpu_model({}) == UNKNOWN_MODEL


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"karpenter.sh/capacity-type": "on-demand"}, CapacityType.ON_DEMAND),
        ({"eks.amazonaws.com/capacityType": "SPOT"}, CapacityType.SPOT),
        ({"eks.amazonaws.com/capacityType": "CAPACITY_BLOCK"}, CapacityType.RESERVED),
        ({"cloud.google.com/gke-spot": "true"}, CapacityType.SPOT),
        ({"cloud.google.com/gke-preemptible": "True"}, CapacityType.SPOT),
        ({"kubernetes.azure.com/scalesetpriority": "spot"}, CapacityType.SPOT),
        ({"karpenter.sh/capacity-type": "lunar"}, CapacityType.UNKNOWN),
        ({}, CapacityType.UNKNOWN),
    ],
)
def test_how_a_node_is_paid_for_is_read_from_its_labels(
    labels: Mapping[str, str], expected: CapacityType
) -> None:
    assert capacity_type(labels) is expected


def test_a_vnpu_is_the_part_of_its_chip_that_its_cores_are() -> None:
    assert unit_weight("huawei.com/Ascend310P-2c", {}) == 0.25
    assert unit_weight("huawei.com/Ascend310P-4c.3cpu", {}) == 0.5
    assert unit_weight("huawei.com/Ascend310P", {}) == 1.0
