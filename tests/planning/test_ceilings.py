"""Node groups and ProvisioningRequests from the API server to the capacity plan."""

from copy import deepcopy
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.ports import SourceRejected
from apps.clusters.services.watch.collections import AUTOSCALER_STATUS
from apps.clusters.services.watch.follow import snapshot
from apps.planning.domain.capacity_cases import NodeGroupLimit, room_of_groups
from apps.planning.selectors import CeilingGap, Ceilings, SourceGap, capacity_plans, ceilings
from apps.planning.services import plan_capacity
from tests.clusters.fakes.fake_cluster import FakeCluster
from tests.clusters.kube_factories import A100, GPU, PRODUCT, node
from tests.factories import make_cluster
from tests.fairness.ledger import World
from tests.planning.test_capacity_plans import NOW, OUTSIDER, make_days
from tests.shared_rows import shared

_days = shared(make_days)
_POOL = "eks.amazonaws.com/nodegroup"
_ACCEPTED = {"type": "Accepted", "status": "True", "reason": "Accepted"}


@pytest.fixture
def days_of_gold(_days: World, db: None) -> World:
    plan_capacity(now=NOW)
    return deepcopy(_days)


def status(*groups: tuple[str, int, int, int], hours: int = 0) -> dict[str, Any]:
    """Return the ConfigMap of cluster-autoscaler; groups are (name, least, most, nodes)."""
    at = NOW - timedelta(hours=hours)
    lines = [f"time: {at:%Y-%m-%d %H:%M:%S}.123 +0000 UTC", "autoscalerStatus: Running"]
    lines.append("nodeGroups:")
    for name, least, most, nodes in groups:
        counts = f"nodeCounts: {{registered: {{ready: {nodes}}}}}, cloudProviderTarget: {nodes}"
        lines += [
            f"- name: {name}",
            f"  health: {{status: Healthy, {counts}, minSize: {least}, maxSize: {most}}}",
        ]
    name = "cluster-autoscaler-status"
    return {
        "metadata": {"uid": "s", "name": name, "namespace": "kube-system"},
        "data": {"status": "\n".join(lines)},
    }


def server(*objects: dict[str, Any]) -> FakeCluster:
    """Return an API server with a node of the group `a100` and these statuses."""
    source = FakeCluster()
    source.put("/api/v1/nodes", node(labels={PRODUCT: A100, _POOL: "a100"}))
    for one in objects:
        source.put(AUTOSCALER_STATUS, one)
    return source


def request(name: str, namespace: str, *conditions: dict[str, str], **metadata: Any) -> Any:
    """Return a ProvisioningRequest of two pods."""
    stamp = {"creationTimestamp": f"{NOW:%Y-%m-%dT%H:%M:%SZ}"}
    return {
        "metadata": {"uid": f"u-{name}", "name": name, "namespace": namespace, **stamp, **metadata},
        "spec": {"provisioningClassName": "check-capacity", "podSets": [{"count": 2}]},
        "status": {"conditions": list(conditions)},
    }


def with_group(source: FakeCluster, group: str, version: str, plural: str, *found: Any) -> None:
    source.put(
        "/apis", {"metadata": {"name": group, "uid": group}, "versions": [{"version": version}]}
    )
    names = {"metadata": {"name": version, "uid": f"{group}-v"}, "resources": [{"name": plural}]}
    source.put(f"/apis/{group}", names)
    for one in found:
        source.put(f"/apis/{group}/{version}/{plural}", one)


def seen(source: FakeCluster, visibility: Visibility = EVERYTHING) -> Ceilings:
    """Return the ceilings after the watch of the cluster `east` has seen this server."""
    snapshot(make_cluster("east"), source, NOW)
    return ceilings(NOW, visibility=visibility)


def of(found: Ceilings, cluster: str) -> dict[str, SourceGap]:
    return {one.source: one.gap for one in found.gaps if one.cluster == cluster}


def test_a_node_group_may_add_the_gpus_of_its_nodes(days_of_gold: World) -> None:
    found = seen(server(status(("a100", 1, 3, 1), ("cpu", 1, 9, 1))))
    assert found.groups == {
        "gold": [NodeGroupLimit("east", "a100", "gold", 1, 3, 1, 2, 8.0)],
        # No node is known to be of it, so nothing says that it has no GPU.
        "": [NodeGroupLimit("east", "cpu", "", 1, 9, 1, 8, None)],
    }
    assert of(found, "east") == {}
    (plan,) = capacity_plans(NOW, booked={}, visibility=EVERYTHING)
    assert {row.node_group_room_gpus for row in plan.rows()} == {16.0}


def test_a_group_of_nodes_without_gpus_is_no_ceiling(days_of_gold: World) -> None:
    source = server(status(("cpu", 1, 9, 1)))
    source.put("/api/v1/nodes", node("c1", gpus=None, labels={_POOL: "cpu"}))
    assert seen(source).groups == {}


def test_the_largest_node_of_a_group_counts(days_of_gold: World) -> None:
    source = server(status(("a100", 1, 3, 2)))
    labels = {PRODUCT: A100, _POOL: "a100"}
    source.put("/api/v1/nodes", node("n9", allocatable=7, labels=labels))
    (group,) = seen(source).groups["gold"]
    assert (group.gpus_per_node, group.room_gpus) == (8.0, 8.0)


def test_rooms_of_groups_are_summed_where_all_are_known() -> None:
    known = NodeGroupLimit("west", "a", "gold", 0, 3, 1, 2, 8.0)
    unknown = NodeGroupLimit("west", "b", "gold", 0, None, 1, None, 8.0)
    rooms = [room_of_groups(own) for own in ([], [known], [known, known], [known, unknown])]
    assert rooms == [None, 16.0, 32.0, None]


@pytest.mark.parametrize(
    ("objects", "gap"),
    [
        ([], SourceGap.NO_DATA),
        ([status(("a100", 1, 3, 1), hours=4)], SourceGap.SILENT),
        ([status()], None),
    ],
)
def test_a_cluster_without_a_status_has_no_data(
    days_of_gold: World, objects: list[dict[str, Any]], gap: SourceGap | None
) -> None:
    assert of(seen(server(*objects)), "east").get("cluster-autoscaler") is gap


class Refusing(FakeCluster):
    """An API server that lets the account read neither ConfigMaps nor ProvisioningRequests."""

    def list(self, path: str) -> Any:
        if "configmaps" in path or "provisioning" in path:
            raise SourceRejected("HTTP 403: forbidden.")
        return super().list(path)


def test_a_cluster_without_the_rights_is_not_readable(
    days_of_gold: World, admin_client: Client
) -> None:
    source = Refusing()
    with_group(source, "autoscaling.x-k8s.io", "v1", "provisioningrequests")
    found = seen(source)
    assert CeilingGap("east", "cluster-autoscaler", SourceGap.NOT_READABLE) in found.gaps
    assert CeilingGap("east", "ProvisioningRequests", SourceGap.NOT_READABLE) in found.gaps
    for address in ("/capacity/plan/", "/capacity/plan/gold/"):
        page = " ".join(admin_client.get(address).content.decode().split())
        assert "cluster-autoscaler: not readable in east." in page
        assert "ProvisioningRequests: not readable in east." in page
    row = admin_client.get("/api/v1/capacity-plan").json()["results"][0]
    assert row["node_group_room_gpus"] is None


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_requests_show_their_state_and_the_gpus_of_their_workload(
    days_of_gold: World, admin_client: Client, version: str
) -> None:
    source = server(status(("a100", 1, 3, 1)))
    owners = {"ownerReferences": [{"kind": "Workload", "uid": "w1", "name": "w1"}]}
    found = {"type": "Provisioned", "status": "False", "reason": "CapacityIsNotFound"}
    failed = {"type": "Failed", "status": "True", "reason": "OutOfQuota", "message": "No quota."}
    requests = (
        request("a", "vision", _ACCEPTED, found, **owners),
        request("b", "speech", _ACCEPTED, failed),
    )
    with_group(source, "autoscaling.x-k8s.io", version, "provisioningrequests", *requests)
    containers = [{"name": "c", "resources": {"requests": {GPU: "4"}}}]
    workload = {
        "metadata": {"uid": "w1", "name": "w1", "namespace": "vision"},
        "spec": {
            "queueName": "q",
            "podSets": [
                {"name": "m", "count": 2, "template": {"spec": {"containers": containers}}}
            ],
        },
    }
    with_group(source, "kueue.x-k8s.io", "v1beta2", "workloads", workload)
    rows = seen(source).requests
    assert [(row.name, row.state, row.reason, row.pods, row.gpus) for row in rows] == [
        ("b", "failed", "OutOfQuota", 2, None),
        ("a", "pending", "CapacityIsNotFound", 2, 8.0),
    ]
    page = " ".join(admin_client.get("/capacity/plan/").content.decode().split())
    assert "Provisioning requests" in page
    assert "OutOfQuota" in page
    assert "No quota." in page


def test_requests_of_namespaces_of_other_teams_are_counted_alone(days_of_gold: World) -> None:
    source = server()
    with_group(source, "autoscaling.x-k8s.io", "v1", "provisioningrequests", request("a", "vision"))
    found = seen(source, OUTSIDER)
    assert (found.requests, found.hidden) == ([], 1)


def test_the_page_says_which_maximum_a_purchase_runs_into(
    days_of_gold: World, admin_client: Client
) -> None:
    address = "/capacity/plan/gold/"
    assert "Node groups" not in admin_client.get(address).content.decode()
    seen(server(status(("a100", 1, 1, 1))))
    page = " ".join(admin_client.get(address).content.decode().split())
    assert "Node groups of cluster-autoscaler may add 0 GPUs up to their maxima." in page
    assert "For 4 GPUs more, raise the maximum of a100 first." in page


def test_ceilings_are_read_with_few_queries(
    days_of_gold: World, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    source = server(status(("a100", 1, 3, 1)))
    with_group(
        source, "autoscaling.x-k8s.io", "v1", "provisioningrequests",
        *(request(f"a{number}", "vision") for number in range(20)),
    )  # fmt: skip
    snapshot(make_cluster("east"), source, NOW)
    with django_assert_max_num_queries(8):
        ceilings(NOW, visibility=OUTSIDER)
