"""What a pod that no node holds yet weighs: as much as it would on the nodes of its tier."""

from collections.abc import Mapping

import pytest

from apps.accounts.domain.structs import replace
from apps.clusters.domain.pods.ledger import Owner, PodRecord, PodSource
from apps.clusters.domain.tiers import GpuSharing, NodeOffer, NodeOffers, TierRule
from apps.clusters.models import Cluster, Pod, Tier
from apps.clusters.models import TierRule as TierRuleRow
from apps.clusters.ports import ObjectChange
from apps.clusters.services.catalog import TierHistory
from apps.clusters.services.pods.inferred_pods import store_inferred_pods
from apps.clusters.services.watch.collections import NODES, PODS, Item, Relisted, WatchEvent
from apps.clusters.services.watch.informer import Informer
from tests.clusters.fakes.fake_cluster import FakeCluster
from tests.clusters.kube_factories import A100, GPU, PRODUCT, T0, at, node, pod

REPLICAS = "nvidia.com/gpu.replicas"
L40S = {PRODUCT: "NVIDIA-L40S", "nvidia.com/gpu.sharing-strategy": "mps", REPLICAS: "4"}
SINGLE = {PRODUCT: "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"}
WHOLE = {PRODUCT: A100}
RULES = [
    TierRule("whole", GpuSharing.EXCLUSIVE, (GPU,), (), WHOLE),
    TierRule("mps", GpuSharing.MPS, (GPU,), (), {PRODUCT: "NVIDIA-L40S"}),
    TierRule("single", GpuSharing.MIG, (GPU,), (), SINGLE),
]


@pytest.mark.parametrize(
    ("tier", "selector", "places", "weight"),
    [
        ("mps", {PRODUCT: "NVIDIA-L40S"}, [L40S, WHOLE], 0.25),
        ("single", SINGLE, [SINGLE], 1 / 7),
        ("whole", WHOLE, [L40S, WHOLE], 1),
        ("mps", {}, [], 1),
        ("undetermined", {}, [L40S], 1),
        ("mps", {"pool": "x"}, [L40S], 0.25),
        ("mps", {"pool": "x"}, [{**L40S, "pool": "y"}], 1),
        ("mps", {"pool": "x"}, [{**L40S, "pool": "x", REPLICAS: "2"}, L40S, L40S], 0.5),
        ("mps", {}, [{**L40S, REPLICAS: "2"}, L40S, L40S], 0.25),
        ("mps", {}, [{**L40S, REPLICAS: "2"}, L40S], 0.5),
        ("unmatched", {}, [{PRODUCT: "Tesla-T4", REPLICAS: "2"}], 0.5),
    ],
    ids=[
        "shared by MPS",
        "single MIG",
        "whole",
        "no node at all",
        "any tier",
        "a label that is not kept",
        "a label that differs",
        "one that is sure before many that may be",
        "what most nodes have",
        "the larger of equals",
        "of no tier",
    ],
)
def test_a_unit_weighs_what_it_would_on_the_nodes_of_its_tier(
    tier: str, selector: Mapping[str, str], places: list[Mapping[str, str]], weight: float
) -> None:
    found = NodeOffers([NodeOffer(labels) for labels in places])
    assert found.weight(GPU, selector, tier, RULES) == pytest.approx(weight)
    assert found.weight(GPU, selector, tier, RULES) == pytest.approx(weight)


def test_nodes_that_do_not_offer_the_resource_do_not_count() -> None:
    found = NodeOffers([NodeOffer(L40S, {"nvidia.com/gpu.shared"})])
    assert found.weight(GPU, {}, "mps", RULES) == 1


def test_other_rules_are_looked_at_anew() -> None:
    found = NodeOffers([NodeOffer(L40S)])
    assert found.weight(GPU, {}, "mps", RULES) == 0.25
    assert found.weight(GPU, {}, "mps", RULES[:1]) == 1


# ---------------------------------------------------------------- in the ledger


@pytest.fixture
def cluster() -> Cluster:
    for place, rule in enumerate(RULES):
        TierRuleRow.objects.create(
            tier=Tier.objects.create(name=rule.tier, position=place),
            position=place,
            sharing=rule.sharing.value,
            resources=[GPU],
            node_selector=dict(rule.node_selector),
            valid_from=at(-1_000_000),
        )
    for name in ("unmatched", "undetermined"):
        Tier.objects.get_or_create(name=name, defaults={"builtin": True})
    return Cluster.objects.create(name="west")


def _waiting() -> dict[str, object]:
    return pod(spec={"nodeSelector": {PRODUCT: "NVIDIA-L40S"}})


def _apply(informer: Informer, *items: Item) -> tuple[str | None, float]:
    informer.apply(items)
    informer.write()
    row = Pod.objects.select_related("tier").get()
    return (row.tier.name if row.tier else None, row.gpu_equivalents)


@pytest.mark.django_db
def test_a_pending_pod_of_a_shared_tier_does_not_wait_for_whole_gpus(cluster: Cluster) -> None:
    shared = node(labels=L40S, gpus=8)
    lists = (Relisted(NODES, [shared], T0), Relisted(PODS, [_waiting()], T0))
    assert _apply(Informer(cluster.pk, FakeCluster()), *lists) == ("mps", 0.25)
    # The pods' list may also be the first to come.
    Pod.objects.all().delete()
    assert _apply(Informer(cluster.pk, FakeCluster()), *reversed(lists)) == ("mps", 0.25)


@pytest.mark.django_db
def test_a_pending_pod_is_weighed_again_when_nodes_come(cluster: Cluster) -> None:
    informer = Informer(cluster.pk, FakeCluster())
    assert _apply(informer, Relisted(NODES, [], T0), Relisted(PODS, [_waiting()], T0)) == ("mps", 1)
    shared = node(labels=L40S, gpus=8)
    assert _apply(informer, WatchEvent(NODES, ObjectChange("ADDED", shared), T0 + 9)) == (
        "mps",
        0.25,
    )


@pytest.mark.django_db
def test_a_pending_pod_of_series_weighs_what_it_would_on_its_tiers_nodes(cluster: Cluster) -> None:
    record = PodRecord(
        uid="uid-1",
        namespace="vision",
        name="pod",
        owner=Owner("Job", "train"),
        requests={GPU: 8.0},
        created=T0,
        node_selector={PRODUCT: "NVIDIA-L40S"},
        source=PodSource.METRICS,
    )
    store_inferred_pods(cluster, [record], TierHistory.load(), {"n1": WHOLE, "n2": L40S}, now=at(0))
    assert Pod.objects.get().gpu_equivalents == 2
    bound = replace(record, node="n2", bound=T0 + 9)
    store_inferred_pods(cluster, [bound], TierHistory.load(), {"n1": WHOLE, "n2": L40S}, now=at(0))
    assert Pod.objects.get().gpu_equivalents == 2
