"""What the portal's accounts have to be able to do in a cluster, and what neither may."""

from collections.abc import Iterable, Iterator

from apps.clusters.domain.pods.owners import PLURALS
from apps.clusters.domain.tiers import TierRule
from apps.operations.domain.observations import Right

DRA_GROUP = "resource.k8s.io"
LEDGER = (("", "nodes"), ("", "namespaces"), ("", "pods"))
DRA = tuple((DRA_GROUP, r) for r in ("resourceclaims", "resourceslices", "deviceclasses"))
_FOLLOWED = ("list", "watch")
_GROUPS = {"Job": "batch", "CronJob": "batch", "ReplicationController": ""}
OWNERS = tuple((_GROUPS.get(kind, "apps"), plural) for kind, plural in PLURALS.items())


def explaining(collections: Iterable[str]) -> Iterator[Right]:
    """Yield the rights to follow collections, given by their paths, that explain waiting."""
    for path in collections:
        group = path.split("/")[2] if path.startswith("/apis/") else ""
        for verb in _FOLLOWED:
            yield Right(verb, group, path.rpartition("/")[2])


def needed(rules: Iterable[TierRule]) -> Iterator[Right]:
    """Yield the rights that watch and collect use; those on DRA objects where a tier is of DRA."""
    with_claims = any(rule.device_classes for rule in rules)
    for group, resource in (*LEDGER, *(DRA if with_claims else ())):
        for verb in _FOLLOWED:
            yield Right(verb, group, resource)
    for group, resource in OWNERS:
        yield Right("get", group, resource)


# ---------------------------------------------------------------- the account that changes quotas

RESOURCE_QUOTAS = ("", "resourcequotas")
# What limits are kept in, where a cluster has it.
QUEUES = (("kueue.x-k8s.io", "clusterqueues"), ("scheduling.volcano.sh", "queues"))
LIMITS = (RESOURCE_QUOTAS, *QUEUES)
_CHANGED = ("get", "patch")
ANYTHING = Right("*", "*", "*")


def changing(collections: Iterable[str]) -> Iterator[Right]:
    """Yield the rights to change limits; of queues where the cluster has them, by their paths."""
    served = (path for path in collections if path.startswith("/apis/"))
    there = {(path.split("/")[2], path.rpartition("/")[2]) for path in served}
    for group, resource in (RESOURCE_QUOTAS, *(queue for queue in QUEUES if queue in there)):
        for verb in _CHANGED:
            yield Right(verb, group, resource)


# Asked for as signs: who may do one of these may do harm that no change of a quota needs. Rights
# that every account has, as to ask for its own, are none of them.
_HARM = (
    Right("create", "", "pods"),
    Right("delete", "", "pods"),
    Right("patch", "", "nodes"),
    Right("patch", "apps", "deployments"),
    Right("get", "", "secrets"),
    Right("list", "", "secrets"),
    Right("impersonate", "", "users"),
    Right("patch", "rbac.authorization.k8s.io", "clusterroles"),
)
# A limit is never made, never taken away and never written as a whole, not for a moment.
BEYOND_WRITING = (
    *(Right(verb, *limit) for limit in LIMITS for verb in ("create", "update", "delete")),
    *_HARM,
)
BEYOND_READING = (
    *(Right(verb, *limit) for limit in LIMITS for verb in ("create", "update", "patch", "delete")),
    *_HARM,
)
