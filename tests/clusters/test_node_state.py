"""What is read of a node as the API server tells it: labels, GPUs, readiness."""

from typing import Any

import pytest

from apps.clusters.domain.pods.kube_objects import node_state
from apps.clusters.domain.topology import TOPOLOGY_LABELS
from tests.clusters.kube_factories import A100, PRODUCT, node


def test_labels_that_tiers_select_on_are_kept() -> None:
    one = node(labels={PRODUCT: A100, "pool": "gold", "kubernetes.io/hostname": "node-a"})
    assert node_state(one).labels == {PRODUCT: A100}
    assert node_state(one, label_keys={"pool"}).labels == {PRODUCT: A100, "pool": "gold"}


@pytest.mark.parametrize("key", sorted(TOPOLOGY_LABELS))
def test_where_a_node_stands_is_kept(key: str) -> None:
    assert node_state(node(labels={key: "r7"})).labels == {key: "r7"}


@pytest.mark.parametrize(
    ("item", "has_gpus"),
    [
        (node(), True),
        (node(gpus=0), True),
        (node(gpus=None), False),
        (node(gpus=None, labels={"nvidia.com/gpu.present": "true"}), True),
    ],
    ids=["8 GPUs", "a GPU node whose plugin is gone", "CPU only", "GPUs offered by DRA"],
)
def test_a_gpu_node_is_known_by_its_resources_or_label(
    item: dict[str, Any], has_gpus: bool
) -> None:
    assert node_state(item).has_gpus is has_gpus


def test_a_node_that_has_not_reported_is_not_ready() -> None:
    bare = {"metadata": {"name": "new"}}
    state = node_state(bare)
    assert (state.ready, state.schedulable, state.has_gpus) == (False, True, False)
