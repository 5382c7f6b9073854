"""Keys of quotas: what each limits, which tiers it reaches, and its headroom for a pod.

Sources: the evaluators of Kubernetes' quota controller (pods, resource claims) and Kueue's flavors.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct

from apps.clusters.domain.observed.objects import QuotaScope
from apps.clusters.domain.resources import GPU_FRACTION, GPU_MEMORY, is_gpu, names_gpus
from apps.clusters.domain.tiers import GpuSharing, TierRule

REQUESTS: Final = "requests."
LIMITS: Final = "limits."
COUNT: Final = "count/"
DEVICES: Final = ".deviceclass.resource.k8s.io/devices"
IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
_MIG = "nvidia.com/mig-"
_SHARED = ".shared"
_WHOLE = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")
_PRIORITY = "PriorityClass"
_REPLICAS = "GPU replicas"
_REPLICATED = frozenset({GpuSharing.TIME_SLICED, GpuSharing.MPS})


class QuotaSource(StrEnum):
    """Kinds of object that hold a quota, by the name that the API and the pages use."""

    RESOURCE_QUOTA = "ResourceQuota"
    CLUSTER_QUEUE = "ClusterQueue"
    VOLCANO_QUEUE = "Queue"
    # Its kind is Queue, too; a cluster may have both.
    KAI_QUEUE = "KaiQueue"


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


class KeyMeaning(Struct, frozen=True):
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

    def unit(self, sharing: Collection[GpuSharing] = ()) -> str:
        """Return what is counted, in words; `sharing` is that of the tiers that the key reaches."""
        if self.counting is Counting.CLAIMS:
            return f"devices of {self.resource}"
        if self.counting is Counting.OBJECTS:
            return "objects"
        return unit_of(self.resource, sharing)


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
    # An extended resource has no limit apart from its request, so Kubernetes counts the request
    # alone.
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


def unit_of(resource: str, sharing: Collection[GpuSharing] = ()) -> str:
    """Return in words what one unit of a GPU resource is, in the plural.

    A resource that is called as whole GPUs are may be replicas or MIG devices: `sharing` of the
    tiers that it reaches tells, where they agree.
    """
    if resource.startswith(_MIG):
        profile = resource.removeprefix(_MIG)
        shared = "shared " if profile.endswith(_SHARED) else ""
        return f"{shared}{profile.removesuffix(_SHARED)} MIG devices"
    if resource.endswith(_SHARED):
        return _REPLICAS
    if resource == GPU_MEMORY:
        return "MiB of GPU memory"
    if resource == GPU_FRACTION:
        return "GPUs"
    if resource not in _WHOLE:
        return f"units of {resource}"
    if sharing and _REPLICATED.issuperset(sharing):
        return _REPLICAS
    return "MIG devices" if set(sharing) == {GpuSharing.MIG} else "GPUs"


def reachable_tiers(
    resource: str, rules: Sequence[TierRule], flavor_labels: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Return the tiers that a key of this resource or device class can reach, in catalog order.

    A ResourceQuota limits the resource wherever a pod goes, so it reaches every tier of that
    resource, whatever nodes the tier selects. The nodes of a Kueue flavor have `flavor_labels`:
    tiers that select another value of one of them are out of its reach.
    """
    labels = flavor_labels or {}
    reached = (
        rule.tier
        for rule in rules
        if rule.asks_for(resource)
        # A label that the flavor does not set may have any value on its nodes.
        and all(labels.get(k, v) == v for k, v in rule.node_selector.items())
    )
    return tuple(dict.fromkeys(reached))


def sharing_of(tiers: Collection[str], rules: Iterable[TierRule]) -> frozenset[GpuSharing]:
    """Return how the GPUs of these tiers are shared."""
    return frozenset(rule.sharing for rule in rules if rule.tier in tiers)


def _is_gpu(resource: str, named: Collection[str]) -> bool:
    # A device class asked for as a resource: its quota key names the class, not a resource.
    if resource.startswith(IMPLICIT):
        return names_gpus(resource.removeprefix(IMPLICIT), named)
    return is_gpu(resource, named)


def _of_claims(
    key: str, name: str, named: Collection[str], scopes: Sequence[QuotaScope]
) -> KeyMeaning:
    of_gpus = names_gpus(name, named)
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


class ScopedRequest(Struct, frozen=True):
    """What scopes look at in a pod; None for what is not known of it.

    `terminating`: it has an active deadline. `best_effort`: it requests neither CPU nor memory.
    `cross_namespace`: its pod affinity looks into other namespaces.
    """

    priority_class: str = ""
    terminating: bool | None = None
    best_effort: bool | None = None
    cross_namespace: bool | None = None


class NamedQuota(Struct, frozen=True):
    """A ResourceQuota: its limits and what is used of them, by key."""

    name: str
    hard: Mapping[str, float]
    used: Mapping[str, float]
    scopes: tuple[QuotaScope, ...] = ()


class Headroom(Struct, frozen=True):
    """Units that may still be asked for, and the key that lets no more in.

    Below 0 where a limit was lowered under what is used. `certain` is False where a quota that
    leaves less may count the pod too, which its scopes do not tell.
    """

    units: float
    quota: str
    key: str
    certain: bool = True


def headroom(
    resource: str,
    asking: ScopedRequest,
    quotas: Iterable[NamedQuota],
    *,
    named: Collection[str] = (),
    counting: Counting = Counting.REQUESTS,
) -> Headroom | None:
    """Return how many units of a GPU resource (or device class) a namespace's quotas leave.

    All quotas that match must let a request in, so it is the least of what each leaves; None
    where none limits it. Of equal ones the first by name is returned.
    """
    sure: list[Headroom] = []
    perhaps: list[float] = []
    for quota in sorted(quotas, key=lambda one: one.name):
        counted = counts(quota.scopes, asking)
        # A quota that cannot count the pod does not stop it either.
        if counted is False:
            continue
        for key, hard in sorted(quota.hard.items()):
            meaning = meaning_of(key, named=named, scopes=quota.scopes)
            if (meaning.resource, meaning.counting) != (resource, counting):
                continue
            if not (meaning.effective and meaning.of_gpus):
                continue
            left = hard - quota.used.get(key, 0.0)
            if counted is None:
                perhaps.append(left)
            else:
                sure.append(Headroom(left, quota.name, key))
    if not sure:
        return None
    least = min(sure, key=lambda one: one.units)
    doubtful = any(left < least.units for left in perhaps)
    return Headroom(least.units, least.quota, least.key, certain=not doubtful)


def counts(scopes: Sequence[QuotaScope], asking: ScopedRequest) -> bool | None:
    """Say whether a quota with these scopes counts a pod; None where that cannot be told.

    A pod must match every scope. A quota without scopes counts all pods.
    """
    answers = [_scope_matches(scope, asking) for scope in scopes]
    if any(answer is False for answer in answers):
        return False
    return None if any(answer is None for answer in answers) else True


def scope_words(scope: QuotaScope) -> str:
    """Return a scope as it is shown: `PriorityClass In high, urgent`."""
    plain = scope.operator == "Exists" and not scope.values
    if plain:
        return scope.name
    return f"{scope.name} {scope.operator} {', '.join(scope.values)}".rstrip()


def _scope_matches(scope: QuotaScope, asking: ScopedRequest) -> bool | None:
    if scope.name == _PRIORITY:
        return _class_selected(scope, asking.priority_class)
    known = {
        "Terminating": asking.terminating,
        "BestEffort": asking.best_effort,
        "CrossNamespacePodAffinity": asking.cross_namespace,
        # Of volume claims, never of pods.
        "VolumeAttributesClass": False,
    }
    answer = known.get(scope.name.removeprefix("Not"))
    return not answer if scope.name.startswith("Not") and answer is not None else answer


def _class_selected(scope: QuotaScope, name: str) -> bool | None:
    """Say whether a label selector's operator takes a class; a pod may have none, which is ``."""
    match scope.operator:
        case "Exists":
            return name != ""
        case "DoesNotExist":
            return name == ""
        case "In":
            return name in scope.values
        case "NotIn":
            return name not in scope.values
        case _:
            return None
