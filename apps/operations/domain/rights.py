"""What the portal's account has to be able to read of a cluster."""

from collections.abc import Iterable, Iterator

from apps.clusters.domain.owners import PLURALS
from apps.clusters.domain.tiers import TierRule
from apps.operations.domain.looks import Right

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
