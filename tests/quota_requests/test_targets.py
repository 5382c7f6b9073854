"""What a request can be about, and what is refused with its fix."""

import pytest

from apps.clusters.domain.tiers import GpuSharing, TierRule
from apps.quota_requests.domain.quantities import quantity
from apps.quota_requests.domain.targets import (
    QueueCell,
    QuotaKeyTarget,
    Target,
    TargetRefused,
    VolcanoCell,
    VolcanoField,
    amount_for,
    check_change,
    reachable_tiers,
    target_of,
    wanted_amount,
)
from apps.quotas.domain.keys import QuotaRef

GPU = "requests.nvidia.com/gpu"
QUOTA = QuotaKeyTarget("vision", "gpu", GPU)
CELL = QueueCell("cq-a", "a100", "nvidia.com/gpu")
VOLCANO = VolcanoCell("bronze", VolcanoField.CAPABILITY, "nvidia.com/gpu")


@pytest.mark.parametrize(
    ("source", "key", "resource"),
    [
        pytest.param("ResourceQuota", GPU, "nvidia.com/gpu", id="whole GPUs"),
        pytest.param("ResourceQuota", "requests.amd.com/gpu", "amd.com/gpu", id="AMD"),
        pytest.param(
            "ResourceQuota",
            "requests.nvidia.com/mig-1g.10gb",
            "nvidia.com/mig-1g.10gb",
            id="MIG",
        ),
        pytest.param(
            "ResourceQuota",
            "gpu.nvidia.com.deviceclass.resource.k8s.io/devices",
            "gpu.nvidia.com",
            id="device class",
        ),
        pytest.param(
            "ResourceQuota",
            "requests.deviceclass.resource.kubernetes.io/gpu.nvidia.com",
            "gpu.nvidia.com",
            id="implicit resource of a class",
        ),
        pytest.param("ResourceQuota", "requests.acme.io/npu", "acme.io/npu", id="named by a tier"),
        pytest.param("ClusterQueue", "a100/nvidia.com/gpu", "nvidia.com/gpu", id="Kueue"),
        pytest.param("Queue", "deserved/nvidia.com/gpu", "nvidia.com/gpu", id="Volcano"),
    ],
)
def test_a_key_for_gpus_makes_a_target(source: str, key: str, resource: str) -> None:
    namespace = "vision" if source == "ResourceQuota" else ""
    found = target_of(QuotaRef(source, namespace, "gpu", key), named={"acme.io/npu"})
    assert (found.source, found.namespace, found.key) == (source, namespace, key)
    assert found.resource == resource


@pytest.mark.parametrize(
    ("source", "namespace", "name", "key", "words"),
    [
        pytest.param("Quota", "v", "q", GPU, "no kind of quota", id="source"),
        pytest.param("ResourceQuota", "v", "", GPU, "name of the quota", id="no name"),
        pytest.param("ResourceQuota", "", "q", GPU, "namespace", id="no namespace"),
        pytest.param("ResourceQuota", "v", "q", "nvidia.com/gpu", "neither counts", id="inert"),
        pytest.param(
            "ResourceQuota", "v", "q", "limits.nvidia.com/gpu", "neither counts", id="limits"
        ),
        pytest.param("ResourceQuota", "v", "q", "requests.cpu", "not a key for GPUs", id="cpu"),
        pytest.param("ResourceQuota", "v", "q", "pods", "not a key for GPUs", id="pods"),
        pytest.param(
            "ResourceQuota",
            "v",
            "q",
            "nic.acme.io.deviceclass.resource.k8s.io/devices",
            "not a key for GPUs",
            id="devices of another kind",
        ),
        pytest.param("ClusterQueue", "", "q", "nvidia.com/gpu", "not a GPU", id="no flavor"),
        pytest.param("ClusterQueue", "", "q", "a100", "does not name", id="no resource"),
        pytest.param("ClusterQueue", "", "q", "a100/cpu", "not a GPU", id="Kueue cpu"),
        pytest.param("Queue", "", "q", "weight", "does not name", id="Volcano weight"),
        pytest.param(
            "Queue", "", "q", "guarantee/nvidia.com/gpu", "not changed here", id="guarantee"
        ),
    ],
)
def test_other_keys_are_refused(
    source: str, namespace: str, name: str, key: str, words: str
) -> None:
    with pytest.raises(TargetRefused, match=words):
        target_of(QuotaRef(source, namespace, name, key))


@pytest.mark.parametrize("key", ["nvidia.com/gpu", "limits.nvidia.com/gpu"])
def test_a_key_that_limits_nothing_comes_with_its_fix(key: str) -> None:
    with pytest.raises(TargetRefused) as refused:
        target_of(QuotaRef("ResourceQuota", "vision", "gpu", key))
    assert "requests.nvidia.com/gpu" in refused.value.fix


@pytest.mark.parametrize(
    ("target", "written", "text"),
    [
        pytest.param(QUOTA, " 8 ", "8", id="blanks of a form"),
        pytest.param(QUOTA, "1500m", "1500m", id="fraction of a ResourceQuota"),
        pytest.param(QUOTA, "0", "0", id="nothing"),
        pytest.param(CELL, "2k", "2000", id="Kueue"),
        pytest.param(VOLCANO, 4, "4", id="Volcano"),
    ],
)
def test_an_amount_is_taken_as_the_target_can_hold_it(
    target: Target, written: object, text: str
) -> None:
    assert amount_for(target, written).text == text


@pytest.mark.parametrize(
    ("target", "written", "words"),
    [
        pytest.param(QUOTA, "-1", "negative", id="negative"),
        pytest.param(QUOTA, "many", "not a quantity", id="word"),
        pytest.param(QUOTA, None, "not a quantity", id="nothing"),
        pytest.param(CELL, "1500m", "whole units", id="fraction in Kueue"),
        pytest.param(VOLCANO, "0.5", "whole units", id="fraction in Volcano"),
    ],
)
def test_an_amount_that_the_target_cannot_hold_is_refused(
    target: Target, written: object, words: str
) -> None:
    with pytest.raises(TargetRefused, match=words):
        amount_for(target, written)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        pytest.param("0.5", "0.5 is not a whole number", id="a fraction"),
        pytest.param("1500m", "1500m is not a whole number", id="thousandths"),
        pytest.param("8Ki", "8Ki is 8192 units", id="a suffix of memory"),
        pytest.param("2000m", "2000m is 2 units", id="whole in thousandths"),
        pytest.param(str(2**53 + 1), "more than any cluster", id="more than JSON holds"),
    ],
)
def test_only_whole_units_in_plain_digits_are_asked_for(written: str, words: str) -> None:
    for resource in (GPU, "requests.nvidia.com/mig-1g.10gb", "requests.nvidia.com/gpu.shared"):
        with pytest.raises(TargetRefused, match=words) as refused:
            wanted_amount(QuotaKeyTarget("vision", "gpu", resource), written)
        assert refused.value.fix == "Write whole units in plain digits, as 8."


@pytest.mark.parametrize("written", [" 8 ", "8.0", 8, "+8", "08"])
def test_a_whole_number_is_one_however_it_is_written(written: object) -> None:
    assert wanted_amount(QUOTA, written) == quantity("8")


def test_a_change_to_the_same_amount_is_none() -> None:
    with pytest.raises(TargetRefused, match="nothing to change"):
        check_change(quantity("2k"), quantity("2000"))
    check_change(quantity("2"), quantity("3"))


@pytest.mark.parametrize(
    ("target", "words"),
    [(QUOTA, "vision/gpu"), (CELL, "flavor a100"), (VOLCANO, "Volcano queue bronze")],
    ids=["quota", "Kueue", "Volcano"],
)
def test_a_target_names_itself(target: Target, words: str) -> None:
    assert words in str(target)


A100 = TierRule("a100", GpuSharing.EXCLUSIVE, ("nvidia.com/gpu",), (), {"product": "A100"})
H100 = TierRule("h100", GpuSharing.EXCLUSIVE, ("nvidia.com/gpu",), (), {"product": "H100"})
MIG = TierRule("mig", GpuSharing.MIG, ("nvidia.com/mig-1g.10gb",))
NODES = [({"nvidia.com/gpu"}, {"product": "H100"}), ({"nvidia.com/mig-1g.10gb"}, {})]


def test_a_key_is_listed_under_every_tier_that_it_can_reach() -> None:
    assert reachable_tiers(QUOTA, [A100, H100, MIG]) == ("a100", "h100")


def test_a_tier_without_nodes_is_not_reached() -> None:
    assert reachable_tiers(QUOTA, [A100, H100, MIG], NODES) == ("h100",)


@pytest.mark.parametrize(
    ("labels", "nodes", "tiers"),
    [
        pytest.param({"product": "A100"}, None, ("a100",), id="by the flavor"),
        pytest.param({"product": "H100"}, NODES, ("h100",), id="by the flavor's nodes"),
        pytest.param({"product": "A100"}, NODES, (), id="a flavor without nodes"),
        pytest.param({"rack": "9"}, None, ("a100", "h100"), id="a flavor that says nothing of it"),
    ],
)
def test_a_flavor_narrows_the_tiers(
    labels: dict[str, str],
    nodes: list[tuple[set[str], dict[str, str]]] | None,
    tiers: tuple[str, ...],
) -> None:
    assert reachable_tiers(CELL, [A100, H100, MIG], nodes, flavor_labels=labels) == tiers
