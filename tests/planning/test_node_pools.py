"""Node pools of Karpenter from the API server to the capacity plan of the tiers that they serve."""

from copy import deepcopy
from typing import Any

import pytest
from django.test import Client

from apps.accounts.permissions import EVERYTHING
from apps.clusters.services.watch.follow import snapshot
from apps.planning.domain.capacity_cases import PoolLimit, room_of
from apps.planning.selectors import TierCapacityPlan, capacity_plans
from apps.planning.services import plan_capacity
from tests.clusters.fakes.fake_cluster import FakeCluster
from tests.clusters.kube_factories import A100, GPU, PRODUCT, node
from tests.factories import make_cluster
from tests.fairness.ledger import World
from tests.planning.test_capacity_plans import NOW, make_days
from tests.shared_rows import shared

_GROUP = "/apis/karpenter.sh"
_LABEL = "karpenter.sh/nodepool"
_days = shared(make_days)


@pytest.fixture
def days_of_gold(_days: World, db: None) -> World:
    plan_capacity(now=NOW)
    return deepcopy(_days)


def pool(name: str, most: int | None, used: int, **template: Any) -> dict[str, Any]:
    """Return a NodePool as Karpenter's API has it."""
    return {
        "metadata": {"uid": f"uid-{name}", "name": name},
        "spec": {
            "limits": {"cpu": "1000"} | ({} if most is None else {GPU: str(most)}),
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "5m"},
            "template": template,
        },
        "status": {"resources": {"cpu": "96", "nodes": "1"} | ({GPU: str(used)} if used else {})},
    }


def server(*pools: dict[str, Any], version: str = "v1") -> FakeCluster:
    """Return an API server with a node of the pool `a100` and these pools."""
    source = FakeCluster()
    source.put("/api/v1/nodes", node(labels={PRODUCT: A100, _LABEL: "a100"}))
    source.put(
        "/apis",
        {"metadata": {"name": "karpenter.sh", "uid": "g"}, "versions": [{"version": version}]},
    )
    source.put(
        _GROUP, {"metadata": {"name": version, "uid": "v"}, "resources": [{"name": "nodepools"}]}
    )
    for one in pools:
        source.put(f"{_GROUP}/{version}/nodepools", one)
    return source


def plan_with(source: FakeCluster) -> TierCapacityPlan:
    """Return the plan of `gold` as the watch of another cluster has seen this server."""
    snapshot(make_cluster("east"), source, NOW)
    (plan,) = capacity_plans(NOW, booked={}, visibility=EVERYTHING)
    return plan


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_pool_limits_the_tier_of_its_nodes(days_of_gold: World, version: str) -> None:
    plan = plan_with(server(pool("a100", 10, 8), version=version))
    assert plan.pools == [PoolLimit("east", "a100", 10.0, 8.0, "WhenEmpty after 5m")]
    assert {row.node_pool_room_gpus for row in plan.rows()} == {2.0}


def test_a_pool_without_nodes_serves_the_tier_of_the_labels_in_its_template(
    days_of_gold: World,
) -> None:
    one = {"key": PRODUCT, "operator": "In", "values": [A100]}
    either = {"key": PRODUCT, "operator": "In", "values": [A100, "NVIDIA-L4"]}
    plan = plan_with(
        server(
            pool("named", 16, 0, metadata={"labels": {PRODUCT: A100}}),
            pool("required", 4, 0, spec={"requirements": [one]}),
            pool("either", 4, 0, spec={"requirements": [either]}),
        ),
    )
    assert [(one.name, one.most_gpus) for one in plan.pools] == [("named", 16.0), ("required", 4.0)]


def test_a_pool_without_a_limit_has_no_room_in_numbers(days_of_gold: World) -> None:
    plan = plan_with(server(pool("a100", None, 8)))
    assert [one.most_gpus for one in plan.pools] == [None]
    assert {row.node_pool_room_gpus for row in plan.rows()} == {None}


def test_a_lowered_limit_takes_no_room_of_another_pool() -> None:
    over, room = PoolLimit("west", "a", 4.0, 8.0), PoolLimit("west", "b", 8.0, 6.0)
    assert (room_of([over]), room_of([over, room]), room_of([])) == (0.0, 2.0, None)


def test_the_page_says_which_limit_a_purchase_runs_into(
    days_of_gold: World, admin_client: Client
) -> None:
    address = "/capacity/plan/gold/"
    assert "Node pools" not in admin_client.get(address).content.decode()
    plan_with(server(pool("a100", 10, 8)))
    page = " ".join(admin_client.get(address).content.decode().split())
    assert "Buy 4 GPUs" in page
    assert "Node pools of Karpenter may add 2 GPUs within their limits." in page
    assert "For 4 GPUs more, raise the limit of a100 first." in page
    assert "WhenEmpty after 5m" in page
    (row,) = admin_client.get("/api/v1/capacity-plan").json()["results"]
    assert row["node_pool_room_gpus"] == 2.0


def test_the_page_names_the_quota_of_queues(days_of_gold: World, admin_client: Client) -> None:
    source = server()
    kueue = "/apis/kueue.x-k8s.io"
    source.put(
        "/apis",
        {"metadata": {"name": "kueue.x-k8s.io", "uid": "k"}, "versions": [{"version": "v1beta2"}]},
    )
    names = [{"name": "clusterqueues"}, {"name": "resourceflavors"}]
    source.put(kueue, {"metadata": {"name": "v1beta2", "uid": "w"}, "resources": names})
    flavor = {"nodeLabels": {PRODUCT: A100}}
    source.put(
        f"{kueue}/v1beta2/resourceflavors",
        {"metadata": {"uid": "f", "name": "a100"}, "spec": flavor},
    )
    quotas = [{"name": GPU, "nominalQuota": "9"}]
    group = {"coveredResources": [GPU], "flavors": [{"name": "a100", "resources": quotas}]}
    source.put(
        f"{kueue}/v1beta2/clusterqueues",
        {"metadata": {"uid": "q", "name": "research"}, "spec": {"resourceGroups": [group]}},
    )
    plan_with(source)
    page = " ".join(admin_client.get("/capacity/plan/gold/").content.decode().split())
    assert "ClusterQueues that reach this tier have a nominal quota of 9 GPUs." in page
    assert "Queued work gets no more until it is raised." in page
