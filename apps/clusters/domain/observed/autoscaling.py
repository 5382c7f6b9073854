"""What autoscalers tell: the status of cluster-autoscaler, and ProvisioningRequests."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import yaml

from apps.clusters.domain.kube_json import (
    JsonObject,
    condition,
    created,
    items,
    mapping,
    number,
    text,
)
from apps.clusters.domain.observed.places import (
    AutoscalerSnapshot,
    NodeGroup,
    ProvisioningSnapshot,
    ProvisioningState,
)

# Tokens of the text that cluster-autoscaler wrote before 1.30: `minSize=1, maxSize=3`.
_PAIR = re.compile(r"(\w+)=(\d+)")
_NAME = re.compile(r"^\s*Name:\s+(\S+)\s*$")
_HEALTH = re.compile(r"^\s*Health:\s")
_GROUPS = re.compile(r"^\s*NodeGroups:\s*$")
_WRITTEN = "cluster-autoscaler.kubernetes.io/last-updated"
_HOUR = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d):\d\d:\S+ \+0000 UTC")

# The later end of a request says more: one that is over was provisioned before.
_STATES: Mapping[str, ProvisioningState] = {
    "Failed": ProvisioningState.FAILED,
    "CapacityRevoked": ProvisioningState.REVOKED,
    "BookingExpired": ProvisioningState.EXPIRED,
    "Provisioned": ProvisioningState.PROVISIONED,
}

# Labels by which clouds and tools name the group of a node.
_LABELS = (
    *("eks.amazonaws.com/nodegroup", "alpha.eksctl.io/nodegroup-name", "kops.k8s.io/instancegroup"),
    *(
        "cloud.google.com/gke-nodepool",
        "kubernetes.azure.com/agentpool",
        "worker.gardener.cloud/pool",
    ),
)
_EKS = re.compile(r"eks-(.+)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_EKSCTL = re.compile(r"eksctl-.+-nodegroup-(.+)-NodeGroup-\w+")


def autoscaler_snapshot(item: JsonObject) -> AutoscalerSnapshot:
    """Return the status that cluster-autoscaler keeps in a ConfigMap.

    Since 1.30 it writes YAML, before that text.
    """
    status = text(mapping(item, "data").get("status"))
    groups = _from_yaml(status)
    if groups is None:
        groups = _from_text(status)
    return AutoscalerSnapshot(groups, _hour(item, status))


def _hour(item: JsonObject, status: str) -> float | None:
    noted = text(mapping(mapping(item, "metadata"), "annotations").get(_WRITTEN))
    found = _HOUR.search(noted) or _HOUR.search(status)
    if found is None:
        return None
    return (
        datetime.strptime(f"{found[1]} {found[2]}", "%Y-%m-%d %H").replace(tzinfo=UTC).timestamp()
    )


def _from_yaml(status: str) -> tuple[NodeGroup, ...] | None:
    """Return the groups of a status in YAML; None where it is none."""
    try:
        found: Any = yaml.safe_load(status)
    except (yaml.YAMLError, ValueError):
        return None
    if not isinstance(found, Mapping) or "autoscalerStatus" not in found:
        return None
    groups = []
    for one in items(found.get("nodeGroups")):
        health = mapping(one, "health")
        counts = mapping(mapping(health, "nodeCounts"), "registered")
        groups.append(
            NodeGroup(
                name=text(one.get("name")),
                least=_count(health.get("minSize")),
                most=_count(health.get("maxSize")),
                ready=_count(counts.get("ready")),
                target=_count(health.get("cloudProviderTarget")),
            )
        )
    return tuple(group for group in groups if group.name)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _from_text(status: str) -> tuple[NodeGroup, ...] | None:
    """Return the groups of a status in text; None where it has no word of them."""
    lines = iter(status.splitlines())
    if not any(_GROUPS.match(line) for line in lines):
        return None
    return tuple(_named_groups(lines))


def _named_groups(lines: Iterator[str]) -> Iterator[NodeGroup]:
    name = ""
    for line in lines:
        named = _NAME.match(line)
        if named:
            name = named[1]
        elif name and _HEALTH.match(line):
            found = {key: int(value) for key, value in _PAIR.findall(line)}
            keys = ("minSize", "maxSize", "ready", "cloudProviderTarget")
            yield NodeGroup(name, *map(found.get, keys))
            name = ""


def provisioning_snapshot(item: JsonObject) -> ProvisioningSnapshot:
    """Return a ProvisioningRequest with the state that its conditions give."""
    spec, status = mapping(item, "spec"), mapping(item, "status")
    there = {name: found for name in _STATES if (found := condition(status, name)) is not None}
    held = next((name for name, one in there.items() if one.status == "True"), "")
    # What is not provisioned yet says why in the same condition.
    told = there.get(held or "Provisioned") or condition(status, "Accepted")
    owners = items(mapping(item, "metadata").get("ownerReferences"))
    return ProvisioningSnapshot(
        created=created(item),
        class_name=text(spec.get("provisioningClassName")),
        pods=sum(max(0, number(one.get("count"))) for one in items(spec.get("podSets"))),
        state=_STATES.get(held, ProvisioningState.PENDING),
        reason=told.reason if told else "",
        message=told.message if told else "",
        since=told.since if told else None,
        owner=next((text(one.get("uid")) for one in owners if one.get("kind") == "Workload"), ""),
    )


def is_of_group(group: str, node: str, labels: Mapping[str, str]) -> bool:
    """Say whether a node is of a node group of cluster-autoscaler, as far as names tell.

    AWS names groups after the group of EKS, eksctl or kops that a label names; GKE and AKS name
    nodes after the group. Other clouds may tell by a label that is the group's name.
    """
    short = group.rpartition("/")[2]
    named = {labels[key] for key in _LABELS if labels.get(key)}
    if short in named:
        return True
    for pattern in (_EKS, _EKSCTL):
        made = pattern.fullmatch(short)
        if made:
            return made[1] in named
    if short.endswith("-grp"):
        return node.startswith(short.removesuffix("-grp") + "-")
    if short.endswith("-vmss"):
        return node.lower().startswith(short.lower())
    # A zone and the cluster's domain follow the name of kops' group.
    return short.partition(".")[0] in named
