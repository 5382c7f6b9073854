"""What a key of a quota limits, whether it limits at all, and which tiers it can reach.

Sources: the evaluators of Kubernetes' quota controller (pods, resource claims) and Kueue's flavors.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from apps.clusters.domain.devices.dra import is_gpu_class
from apps.clusters.domain.observed.objects import QuotaScope
from apps.clusters.domain.resources import is_gpu
from apps.clusters.domain.tiers import TierRule

REQUESTS: Final = "requests."
LIMITS: Final = "limits."
COUNT: Final = "count/"
DEVICES: Final = ".deviceclass.resource.k8s.io/devices"
IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
_MIG = "nvidia.com/mig-"
_SHARED = ".shared"
_WHOLE = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")


class QuotaSource(StrEnum):
    """Kinds of object that hold a quota, by the name that the API and the pages use."""

    RESOURCE_QUOTA = "ResourceQuota"
    CLUSTER_QUEUE = "ClusterQueue"
    VOLCANO_QUEUE = "Queue"


class QuotaRef(NamedTuple):
    """A quota key by names; a quota deleted and made again under its name is the same one.

    `namespace` is empty of a queue, which is of its whole cluster. `cluster` is empty where all
    keys at hand are of one cluster.
    """

    source: str
    namespace: str
    name: str
    key: str
    cluster: str = ""


class Counting(StrEnum):
    """What a key adds up: requests of pods, devices that ResourceClaims ask for, or objects."""

    REQUESTS = "requests"
    CLAIMS = "claims"
    OBJECTS = "objects"


@dataclass(frozen=True, slots=True)
class KeyMeaning:
    """What one key of `spec.hard` means.

    `resource` is the resource or device class it names, of GPUs where `of_gpus`. Where it is not
    `effective` Kubernetes accepts it and enforces nothing: `finding` says so and `fix` what to
    do; `instead` is the key to write.
    """

    key: str
    resource: str
    counting: Counting
    of_gpus: bool
    effective: bool = True
    instead: str = ""
    finding: str = ""
    fix: str = ""

    @property
    def unit(self) -> str:
        """What is counted, in words."""
        if self.counting is Counting.CLAIMS:
            return f"devices of {self.resource}"
        if self.counting is Counting.OBJECTS:
            return "objects"
        return unit_of(self.resource)


def meaning_of(
    key: str, *, named: Collection[str] = (), scopes: Sequence[QuotaScope] = ()
) -> KeyMeaning:
    """Return what a ResourceQuota's key limits (facts of Kubernetes' quota evaluators).

    `named` are resources and device classes that tiers name; `scopes` those of its quota. An
    extended resource counts with the prefix `requests.` alone: bare, or as `limits.`, it is
    accepted and never counted. Claims have no scope, so that a quota with scopes counts none.
    """
    if key.startswith(COUNT):
        return KeyMeaning(key, key.removeprefix(COUNT), Counting.OBJECTS, of_gpus=False)
    if key.endswith(DEVICES):
        return _of_claims(key, key.removesuffix(DEVICES), named, scopes)
    for prefix, effective in ((REQUESTS, True), (LIMITS, False), ("", False)):
        resource = key.removeprefix(prefix)
        if not key.startswith(prefix) or not _is_gpu(resource, named):
            continue
        meaning = KeyMeaning(key, resource.removeprefix(IMPLICIT), Counting.REQUESTS, of_gpus=True)
        return meaning if effective else _inert(meaning, f"{REQUESTS}{resource}")
    return KeyMeaning(key, key, Counting.OBJECTS, of_gpus=False)


def meaning_in(source: str, key: str, *, named: Collection[str] = ()) -> KeyMeaning:
    """Return what a key limits: of a ResourceQuota, or of a queue (`flavor/resource`)."""
    if source == QuotaSource.RESOURCE_QUOTA:
        return meaning_of(key, named=named)
    resource = key.partition("/")[2]
    return KeyMeaning(key, resource, Counting.REQUESTS, of_gpus=is_gpu(resource, named))


def unit_of(resource: str) -> str:
    """Return in words what one unit of a GPU resource is, in the plural."""
    if resource.startswith(_MIG):
        profile = resource.removeprefix(_MIG)
        shared = "shared " if profile.endswith(_SHARED) else ""
        return f"{shared}{profile.removesuffix(_SHARED)} MIG devices"
    if resource.endswith(_SHARED):
        return "shared GPUs"
    return "GPUs" if resource in _WHOLE else f"units of {resource}"


def reachable_tiers(
    resource: str, rules: Sequence[TierRule], flavor_labels: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Return the tiers that a key of this resource or device class can reach, in catalog order.

    A ResourceQuota limits the resource wherever a pod goes, so every tier that asks for it is
    reached, whatever nodes it selects. The nodes of a Kueue flavor have `flavor_labels`: tiers
    that select another value of one of them are out of its reach.
    """
    labels = flavor_labels or {}
    reached = (
        rule.tier
        for rule in rules
        if rule.asks_for(resource)
        and all(labels.get(k, v) == v for k, v in rule.node_selector.items())
    )
    return tuple(dict.fromkeys(reached))


def _is_gpu(resource: str, named: Collection[str]) -> bool:
    if resource.startswith(IMPLICIT):
        return _is_gpu_class(resource.removeprefix(IMPLICIT), named)
    return is_gpu(resource, named)


def _is_gpu_class(name: str, named: Collection[str]) -> bool:
    return name in named or is_gpu_class(name, None)


def _of_claims(
    key: str, name: str, named: Collection[str], scopes: Sequence[QuotaScope]
) -> KeyMeaning:
    of_gpus = _is_gpu_class(name, named)
    if not scopes or not of_gpus:
        return KeyMeaning(key, name, Counting.CLAIMS, of_gpus)
    return KeyMeaning(
        key,
        name,
        Counting.CLAIMS,
        of_gpus,
        effective=False,
        instead=key,
        finding=f"{key} limits nothing: ResourceClaims match no scope, and this quota has some.",
        fix=f"Write {key} into a ResourceQuota without scopes.",
    )


def _inert(meaning: KeyMeaning, instead: str) -> KeyMeaning:
    return KeyMeaning(
        meaning.key,
        meaning.resource,
        meaning.counting,
        meaning.of_gpus,
        effective=False,
        instead=instead,
        finding=f"Kubernetes accepts the key {meaning.key} but neither counts nor enforces it.",
        fix=f"Replace it with {instead}.",
    )
