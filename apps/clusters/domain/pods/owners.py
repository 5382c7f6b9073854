"""Who owns a pod: the chain of ownerReferences, and what its first link alone can tell."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apps.clusters.domain.json_fields import items, mapping, text
from apps.clusters.domain.pods.ledger import Owner

HASH_LABEL = "pod-template-hash"
# Kinds whose plural need not be asked of the server.
PLURALS = {
    "ReplicaSet": "replicasets",
    "Deployment": "deployments",
    "StatefulSet": "statefulsets",
    "DaemonSet": "daemonsets",
    "ReplicationController": "replicationcontrollers",
    "Job": "jobs",
    "CronJob": "cronjobs",
}


@dataclass(frozen=True, slots=True)
class OwnerReference:
    """The controller that an object names in its metadata."""

    api_version: str
    kind: str
    name: str
    uid: str

    @property
    def group_path(self) -> str:
        """Path of its API group and version, as `/apis/batch/v1`."""
        return "/api/v1" if self.api_version == "v1" else f"/apis/{self.api_version}"


def controller_of(item: Mapping[str, Any]) -> OwnerReference | None:
    """Return the owner that controls an object; None when it stands alone.

    A static pod is controlled by its Node, which is a place and no workload: it stands alone too.
    """
    for owner in items(mapping(item, "metadata").get("ownerReferences")):
        if owner.get("controller") and owner.get("kind") != "Node":
            return OwnerReference(
                api_version=text(owner.get("apiVersion")),
                kind=text(owner.get("kind")),
                name=text(owner.get("name")),
                uid=text(owner.get("uid")),
            )
    return None


def nearest_owner(pod: Mapping[str, Any]) -> Owner:
    """Return the top controller as far as the pod itself tells it."""
    reference = controller_of(pod)
    if reference is None:
        return Owner("Pod", text(mapping(pod, "metadata").get("name")))
    return named_by(reference, mapping(pod, "metadata", "labels"))


def named_by(reference: OwnerReference, labels: Mapping[str, str]) -> Owner:
    """Return the owner that a reference names, a Deployment for the ReplicaSets it makes.

    A Deployment names its ReplicaSets `<deployment>-<pod-template-hash>` and labels the pods
    with that hash, so the Deployment is known even where its ReplicaSet cannot be read.
    """
    ending = f"-{labels.get(HASH_LABEL, '')}"
    if reference.kind == "ReplicaSet" and len(ending) > 1 and reference.name.endswith(ending):
        return Owner("Deployment", reference.name.removesuffix(ending))
    return Owner(reference.kind, reference.name)
