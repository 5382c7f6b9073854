"""What quota keys limit, and which tiers they reach."""

import pytest

from apps.clusters.domain.observed.objects import QuotaScope
from apps.clusters.domain.tiers import GpuSharing, TierRule
from apps.quotas.domain.keys import (
    Counting,
    KeyMeaning,
    meaning_in,
    meaning_of,
    reachable_tiers,
    unit_of,
)

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"
NPU, CLASS = "acme.example/npu", "gpu.nvidia.com"
_PODS = Counting.REQUESTS
DEVICES = ".deviceclass.resource.k8s.io/devices"
IMPLICIT = "deviceclass.resource.kubernetes.io/"


@pytest.mark.parametrize(
    ("key", "resource", "counting", "unit"),
    [
        (f"requests.{GPU}", GPU, _PODS, "GPUs"),
        (f"requests.{MIG}", MIG, _PODS, "1g.10gb MIG devices"),
        (f"requests.{MIG}.shared", f"{MIG}.shared", _PODS, "shared 1g.10gb MIG devices"),
        (f"requests.{GPU}.shared", f"{GPU}.shared", _PODS, "GPU replicas"),
        (f"requests.{NPU}", NPU, _PODS, f"units of {NPU}"),
        (f"{CLASS}{DEVICES}", CLASS, Counting.CLAIMS, f"devices of {CLASS}"),
        (f"fast{DEVICES}", "fast", Counting.CLAIMS, "devices of fast"),
        (f"requests.{IMPLICIT}{CLASS}", CLASS, _PODS, f"units of {CLASS}"),
    ],
)
def test_keys_that_limit_gpus(key: str, resource: str, counting: Counting, unit: str) -> None:
    meaning = meaning_of(key, named={NPU, "fast"})
    assert meaning == KeyMeaning(key, resource, counting, of_gpus=True)
    assert meaning.unit() == unit


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        (GPU, f"requests.{GPU}"),
        (f"limits.{GPU}", f"requests.{GPU}"),
        (MIG, f"requests.{MIG}"),
        (f"limits.{MIG}", f"requests.{MIG}"),
        (f"{IMPLICIT}gpu.nvidia.com", f"requests.{IMPLICIT}gpu.nvidia.com"),
    ],
)
def test_keys_that_kubernetes_accepts_and_never_counts(key: str, instead: str) -> None:
    meaning = meaning_of(key)
    assert meaning.of_gpus
    assert not meaning.effective
    assert meaning.instead == instead
    assert key in meaning.finding
    assert instead in meaning.fix


def test_claims_match_no_scope_so_a_quota_with_scopes_counts_no_devices() -> None:
    key, scopes = f"gpu.nvidia.com{DEVICES}", (QuotaScope("PriorityClass", "In", ("high",)),)
    assert not meaning_of(key, scopes=scopes).effective
    assert meaning_of(key).effective
    assert meaning_of(f"requests.{GPU}", scopes=scopes).effective


@pytest.mark.parametrize(
    "key",
    [
        "requests.cpu", "limits.memory", "pods", "count/pods", "persistentvolumeclaims",
        "count/resourceclaims.resource.k8s.io", f"net.example.com{DEVICES}",
        f"requests.{IMPLICIT}net.example.com",
    ],
)  # fmt: skip
def test_other_keys_are_not_of_gpus_and_no_finding(key: str) -> None:
    meaning = meaning_of(key)
    assert not meaning.of_gpus
    assert meaning.effective
    assert not meaning.finding


def test_objects_are_counted_as_objects() -> None:
    assert meaning_of("count/pods").unit() == "objects"
    assert unit_of("amd.com/gpu") == "GPUs"


@pytest.mark.parametrize(
    ("sharing", "unit"),
    [
        ((), "GPUs"),
        ((GpuSharing.EXCLUSIVE,), "GPUs"),
        ((GpuSharing.TIME_SLICED,), "GPU replicas"),
        ((GpuSharing.MPS, GpuSharing.TIME_SLICED), "GPU replicas"),
        ((GpuSharing.MIG,), "MIG devices"),
        ((GpuSharing.EXCLUSIVE, GpuSharing.MPS), "GPUs"),
    ],
)
def test_a_unit_of_a_shared_gpu_is_told_to_be_one(
    sharing: tuple[GpuSharing, ...], unit: str
) -> None:
    assert meaning_in("ClusterQueue", f"t4/{GPU}").unit(sharing) == unit


RULES = [
    TierRule("a100", GpuSharing.EXCLUSIVE, (GPU,), node_selector={"model": "a100"}),
    TierRule("h100", GpuSharing.EXCLUSIVE, (GPU,), node_selector={"model": "h100", "pool": "big"}),
    TierRule("any", GpuSharing.EXCLUSIVE, (GPU,)),
    TierRule("small", GpuSharing.MIG, (MIG,)),
    TierRule("dra", GpuSharing.DRA, device_classes=("gpu.nvidia.com",)),
]


@pytest.mark.parametrize(
    ("resource", "flavor", "tiers"),
    [
        (GPU, None, ("a100", "h100", "any")),
        (GPU, {"model": "a100"}, ("a100", "any")),
        (GPU, {"pool": "big"}, ("a100", "h100", "any")),
        (GPU, {"model": "t4"}, ("any",)),
        (MIG, None, ("small",)),
        ("gpu.nvidia.com", None, ("dra",)),
        ("amd.com/gpu", None, ()),
    ],
    ids=str,
)
def test_a_key_reaches_every_tier_that_its_nodes_do_not_exclude(
    resource: str, flavor: dict[str, str] | None, tiers: tuple[str, ...]
) -> None:
    assert reachable_tiers(resource, RULES, flavor) == tiers


def test_a_key_of_a_queue_names_its_flavor_before_the_resource() -> None:
    meaning = meaning_in("ClusterQueue", f"a100/{GPU}")
    assert (meaning.resource, meaning.unit(), meaning.effective) == (GPU, "GPUs", True)
    assert meaning_in("ResourceQuota", f"requests.{GPU}") == meaning_of(f"requests.{GPU}")
    assert not meaning_in("Queue", "capability/cpu").of_gpus
