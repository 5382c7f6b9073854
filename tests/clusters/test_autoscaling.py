"""The status of cluster-autoscaler in both of its formats, and ProvisioningRequests."""

from typing import Any

import pytest

from apps.clusters.domain.observed.autoscaling import (
    autoscaler_snapshot,
    is_of_group,
    provisioning_snapshot,
)
from apps.clusters.domain.observed.places import (
    AutoscalerSnapshot,
    NodeGroup,
    ProvisioningSnapshot,
    ProvisioningState,
)

HOUR = 1765461600.0
"""11 December 2025, 14:00 UTC."""
YAML = """\
time: 2025-12-11 14:40:54.65491129 +0000 UTC
autoscalerStatus: Running
clusterWide:
  health:
    status: Healthy
    nodeCounts:
      registered:
        total: 3
        ready: 3
nodeGroups:
- name: shoot--lab--gpu-z1
  health:
    status: Healthy
    nodeCounts:
      registered:
        total: 2
        ready: 1
        notStarted: 1
      longUnregistered: 0
      unregistered: 0
    cloudProviderTarget: 2
    minSize: 0
    maxSize: 3
    lastProbeTime: "2025-12-11T14:40:54.65491129Z"
  scaleUp:
    status: NoActivity
- name: shoot--lab--cpu-z1
  health:
    status: Healthy
    minSize: 1
    maxSize: 1
"""
TEXT = """\
Cluster-autoscaler status at 2025-12-11 14:40:54.65491129 +0000 UTC:
Cluster-wide:
  Health:      Healthy (ready=3 unready=0 notStarted=0 longNotStarted=0 registered=3)
               LastProbeTime:      2025-12-11 14:40:54.65491129 +0000 UTC m=+118.7
  ScaleUp:     NoActivity (ready=3 registered=3)

NodeGroups:
  Name:        gpu-asg
  Health:      Healthy (ready=1 unready=0 (resourceUnready=0) notStarted=1 longNotStarted=0 \
registered=2 longUnregistered=0 cloudProviderTarget=2 (minSize=0, maxSize=3))
               LastProbeTime:      2025-12-11 14:40:54.65491129 +0000 UTC m=+118.7
  ScaleUp:     NoActivity (ready=1 cloudProviderTarget=2)
  ScaleDown:   NoCandidates (candidates=0)

  Name:        cpu-asg
  Health:      Healthy (ready=1 cloudProviderTarget=1 (minSize=1, maxSize=1))
"""


def config_map(status: str, **annotations: str) -> dict[str, Any]:
    return {"metadata": {"annotations": annotations}, "data": {"status": status}}


@pytest.mark.parametrize(
    ("status", "groups"),
    [
        pytest.param(
            YAML,
            (
                NodeGroup("shoot--lab--gpu-z1", 0, 3, 1, 2),
                NodeGroup("shoot--lab--cpu-z1", 1, 1, None, None),
            ),
            id="yaml",
        ),
        pytest.param(
            TEXT, (NodeGroup("gpu-asg", 0, 3, 1, 2), NodeGroup("cpu-asg", 1, 1, 1, 1)), id="text"
        ),
    ],
)
def test_both_formats_tell_the_sizes_of_node_groups(
    status: str, groups: tuple[NodeGroup, ...]
) -> None:
    assert autoscaler_snapshot(config_map(status)) == AutoscalerSnapshot(groups, HOUR)
    # What it asked the cloud for counts: a node that has not come yet takes its place.
    assert groups[0].room == 1


def test_a_group_without_a_size_has_no_room_in_numbers() -> None:
    assert NodeGroup("a", 0, 3).room is None
    assert NodeGroup("a", 0, None, 1, 1).room is None
    assert NodeGroup("a", 0, 3, 1).room == 2
    assert NodeGroup("a", 0, 3, 5, 5).room == 0


@pytest.mark.parametrize(
    "status", ["", "Initializing", "a: [", "- 1", "{1: 2}", "nodeGroups: none", "\x00"]
)
def test_what_is_no_status_has_no_groups(status: str) -> None:
    assert autoscaler_snapshot(config_map(status)) == AutoscalerSnapshot()


def test_a_status_that_is_not_running_yet_has_an_empty_list() -> None:
    assert autoscaler_snapshot(config_map("autoscalerStatus: Initializing")).groups == ()
    told = {"cluster-autoscaler.kubernetes.io/last-updated": "2025-12-11 14:01:02.3 +0000 UTC"}
    assert autoscaler_snapshot(config_map("", **told)).hour == HOUR


@pytest.mark.parametrize(
    ("group", "node", "labels", "is_of"),
    [
        ("eks-gpu-pool-1ac0ba5b-2d1c-4d0e-9a6f-8c3f0e1d2b3a", "ip-10-0-0-1",
         {"eks.amazonaws.com/nodegroup": "gpu-pool"}, True),
        ("eks-gpu-pool-1ac0ba5b-2d1c-4d0e-9a6f-8c3f0e1d2b3a", "ip-10-0-0-1",
         {"eks.amazonaws.com/nodegroup": "gpu"}, False),
        ("eksctl-lab-nodegroup-gpu-NodeGroup-1A2B3C", "ip-10-0-0-1",
         {"alpha.eksctl.io/nodegroup-name": "gpu"}, True),
        ("https://www.googleapis.com/compute/v1/projects/p/zones/z/instanceGroups/gke-lab-gpu-1a2b-grp",
         "gke-lab-gpu-1a2b-x9z1", {}, True),
        ("https://www.googleapis.com/compute/v1/projects/p/zones/z/instanceGroups/gke-lab-gpu-1a2b-grp",
         "gke-lab-gpu-1a2c-x9z1", {"cloud.google.com/gke-nodepool": "gpu"}, False),
        ("aks-gpu-12345678-vmss", "aks-gpu-12345678-vmss00000a", {}, True),
        ("aks-gpu-12345678-vmss", "aks-gpu2-12345678-vmss000000", {}, False),
        ("gpu.lab.example.org", "i-0a1b", {"kops.k8s.io/instancegroup": "gpu"}, True),
        ("shoot--lab--gpu-z1", "shoot--lab--gpu-z1-5d-x", {}, False),
        ("gpu", "worker-1", {"worker.gardener.cloud/pool": "gpu"}, True),
        ("", "worker-1", {}, False),
    ],
)  # fmt: skip
def test_nodes_are_of_the_group_that_names_tell(
    group: str,
    node: str,
    labels: dict[str, str],
    is_of: bool,
) -> None:
    assert is_of_group(group, node, labels) is is_of


def condition(kind: str, status: str, reason: str = "", message: str = "") -> dict[str, str]:
    at = "2025-12-11T14:00:00Z"
    return {"type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": at}  # fmt: skip


ACCEPTED = condition("Accepted", "True", "Accepted", "It is accepted.")
FOUND = condition("Provisioned", "True", "CapacityIsFound", "Capacity is found.")


@pytest.mark.parametrize(
    ("conditions", "state", "reason"),
    [
        ([], ProvisioningState.PENDING, ""),
        ([ACCEPTED], ProvisioningState.PENDING, "Accepted"),
        ([ACCEPTED, condition("Provisioned", "False", "CapacityIsNotFound")],
         ProvisioningState.PENDING, "CapacityIsNotFound"),
        ([ACCEPTED, FOUND], ProvisioningState.PROVISIONED, "CapacityIsFound"),
        ([FOUND, condition("Failed", "False")], ProvisioningState.PROVISIONED, "CapacityIsFound"),
        ([ACCEPTED, condition("Failed", "True", "OutOfQuota")],
         ProvisioningState.FAILED, "OutOfQuota"),
        ([FOUND, condition("BookingExpired", "True", "Expired")],
         ProvisioningState.EXPIRED, "Expired"),
        ([FOUND, condition("BookingExpired", "True"), condition("CapacityRevoked", "True", "Gone")],
         ProvisioningState.REVOKED, "Gone"),
    ],
)  # fmt: skip
def test_conditions_give_the_state_of_a_request(
    conditions: list[dict[str, str]], state: ProvisioningState, reason: str
) -> None:
    owners = [{"kind": "Job", "uid": "j"}, {"kind": "Workload", "uid": "w"}]
    found = provisioning_snapshot(
        {
            "metadata": {"creationTimestamp": "2025-12-11T14:00:00Z", "ownerReferences": owners},
            "spec": {
                "provisioningClassName": "check-capacity.autoscaling.x-k8s.io",
                "podSets": [{"count": 2, "podTemplateRef": {"name": "a"}}, {"count": 1}],
            },
            "status": {"conditions": conditions},
        }
    )
    assert (found.state, found.reason, found.pods, found.owner) == (state, reason, 3, "w")
    assert found.since == (HOUR if conditions else None)


def test_a_request_without_anything_is_pending() -> None:
    assert provisioning_snapshot({}) == ProvisioningSnapshot(0.0)
