"""Levels and domains from labels of nodes, and what Kueue and NodeResourceTopology tell of them."""

from typing import Any

import pytest

from apps.clusters.domain.observed.extract import observed_object
from apps.clusters.domain.observed.objects import (
    FlavorSnapshot,
    ObservedKind,
)
from apps.clusters.domain.observed.places import (
    NodeResourceTopologySnapshot,
    NumaZone,
    TopologySnapshot,
)
from apps.clusters.domain.topology import (
    LEVEL_LABELS,
    LEVELS,
    TopologyLevel,
    domain_of,
    known_levels,
    levels_with,
)

ZONE, BLOCK, RACK, NVLINK, HOST = LEVELS
GCE = "cloud.google.com/gce-topology"
EKS = "topology.k8s.aws/network-node-layer"
OCI = "oci.oraclecloud.com/rdma"
OWN = {"topology.kubernetes.io/zone": "a", "topology.kubernetes.io/rack": "r1"}


def test_a_domain_is_named_with_those_around_it() -> None:
    assert domain_of("n1", OWN, ZONE) == ("a",)
    assert domain_of("n1", OWN, RACK) == ("a", "r1")
    assert domain_of("n1", OWN, BLOCK) is None
    assert domain_of("n1", OWN, HOST) == ("n1",)


@pytest.mark.parametrize(
    ("labels", "domain"),
    [
        ({f"{GCE}-block": "b", f"{GCE}-subblock": "s"}, ("b", "s")),
        ({f"{EKS}-2": "b", f"{EKS}-3": "s"}, ("b", "s")),
        ({f"{OCI}.network_block_id": "b", f"{OCI}.local_block_id": "s"}, ("b", "s")),
        ({"rack": "s"}, ("s",)),
    ],
    ids=["gke", "eks", "oke", "plain"],
)
def test_clouds_name_racks_by_labels_of_their_own(
    labels: dict[str, str], domain: tuple[str, ...]
) -> None:
    assert domain_of("n1", labels, RACK) == domain


def test_levels_are_those_that_some_node_names() -> None:
    assert known_levels([OWN, {}]) == (ZONE, RACK, HOST)
    assert known_levels([{"nvidia.com/gpu.clique": "u.1"}]) == (NVLINK, HOST)
    assert known_levels([]) == (HOST,)


@pytest.mark.parametrize(
    ("labels", "levels"),
    [
        (("x/row", "x/pod", "kubernetes.io/hostname"), {"x/pod": RACK, "x/row": BLOCK}),
        (("x/row", "topology.kubernetes.io/rack"), {"x/row": BLOCK}),
        (("x/hall", "topology.kubernetes.io/block", "x/shelf"), {"x/shelf": RACK, "x/hall": ZONE}),
        (("x/1", "x/2", "x/3", "x/4"), {"x/4": RACK, "x/3": BLOCK, "x/2": ZONE}),
        (("topology.kubernetes.io/zone", "rack"), {}),
    ],
)
def test_an_undeclared_label_of_kueue_is_of_the_level_above(
    labels: tuple[str, ...], levels: dict[str, TopologyLevel]
) -> None:
    found = levels_with([labels, labels])
    new = {one: level for level in LEVELS for one in found[level] if one not in LEVEL_LABELS[level]}
    assert new == levels
    assert all(found[level][0] == label for label, level in levels.items())


# ---------------------------------------------------------------- objects


def test_a_kueue_topology_and_the_flavor_that_names_it_are_read() -> None:
    levels = [{"nodeLabel": "cloud.provider.com/topology-block"}, {}, {"nodeLabel": "x/rack"}]
    found = observed_object(ObservedKind.TOPOLOGY, {"spec": {"levels": levels}})
    assert found == TopologySnapshot(("cloud.provider.com/topology-block", "x/rack"))
    flavor = observed_object(ObservedKind.RESOURCE_FLAVOR, {"spec": {"topologyName": "default"}})
    assert flavor == FlavorSnapshot(topology="default")


def test_what_a_node_publishes_of_its_numa_nodes_is_read() -> None:
    gpus = {"name": "nvidia.com/gpu", "capacity": "4", "allocatable": "4", "available": "3"}
    item: dict[str, Any] = {
        "attributes": [
            {"name": "topologyManagerScope", "value": "pod"},
            {"name": "topologyManagerPolicy", "value": "single-numa-node"},
        ],
        "zones": [
            {"name": "node-0", "type": "Node", "resources": [gpus, {"name": "cpu"}, {}]},
            {"name": "l3-0", "type": "Cache"},
        ],
    }
    found = observed_object(ObservedKind.NODE_RESOURCE_TOPOLOGY, item)
    zone = NumaZone("node-0", {"nvidia.com/gpu": 4.0}, {"nvidia.com/gpu": 3.0})
    assert found == NodeResourceTopologySnapshot("single-numa-node", (zone,))


@pytest.mark.parametrize(
    ("policies", "policy"),
    [(["None"], "none"), (["BestEffortPodLevel"], "best-effort"), (["New"], ""), ([], "")],
)
def test_older_exporters_name_the_policy_in_a_list(policies: list[str], policy: str) -> None:
    item = {"topologyPolicies": policies}
    found = observed_object(ObservedKind.NODE_RESOURCE_TOPOLOGY, item)
    assert found == NodeResourceTopologySnapshot(policy)
