"""How a pod names its ResourceClaims, and which of its requests these serve."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from apps.clusters.domain.json_fields import items, mapping, text
from apps.clusters.domain.pods.kube_pod import KubePod
from apps.clusters.domain.pods.ledger import PodRecord


class Ask(NamedTuple):
    """A claim that a pod names: its uid and device class → units, of GPU classes alone."""

    uid: str
    requests: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class PodClaims:
    """What a pod asks for by claims.

    `containers` are those that use a claim of GPUs, `served` the (container, resource) that an
    extended resource's claim serves, so that they are no request of their own. `unknown` are the
    names of claims that nobody has seen.
    """

    requests: Mapping[str, float] = field(default_factory=dict)
    uids: tuple[str, ...] = ()
    containers: frozenset[str] = frozenset()
    served: frozenset[tuple[str, str]] = frozenset()
    unknown: frozenset[str] = frozenset()


NO_CLAIMS = PodClaims()


def claim_names(item: Mapping[str, Any]) -> frozenset[str]:
    """Return the names, in the pod's namespace, of the claims that it is to use.

    One that is yet to be made from a template has none.
    """
    return frozenset(use.claim for use in KubePod.of(item).claim_uses if use.claim)


def names_claims(pod: Mapping[str, Any]) -> bool:
    """Say whether a pod asks for anything by claims."""
    # Asked of every pod of a cluster, of which few do.
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    return bool(spec.get("resourceClaims") or status.get("extendedResourceClaimStatus"))


def pod_claims(
    item: Mapping[str, Any],
    find: Callable[[str], Ask | None],
    *,
    remembered: PodRecord | None = None,
) -> PodClaims:
    """Return what a pod asks for by its claims; `find` looks one up by name.

    Claims go when their pod is over: one that is not found counts as `remembered` has the pod.
    """
    requests: dict[str, float] = {}
    uids, unknown, used = set[str](), set[str](), set[str]()
    served: frozenset[tuple[str, str]] = frozenset()
    pod = KubePod.of(item)
    entries = {use.name: use.claim for use in pod.claim_uses if use.claim and use.name}
    extended = text(_extended(pod).get("resourceClaimName"))
    asks = {name: find(name) for name in claim_names(pod)}
    for name, ask in asks.items():
        if ask is None:
            unknown.add(name)
        elif ask.requests:
            uids.add(ask.uid)
            for device_class, units in ask.requests.items():
                requests[device_class] = requests.get(device_class, 0.0) + units
    missing = set[str]()
    if unknown and remembered is not None and remembered.claims:
        missing = unknown
        uids.update(remembered.claims)
        for resource, units in remembered.requests.items():
            requests[resource] = max(units, requests.get(resource, 0.0))
    gpus = {name for name, ask in asks.items() if ask is not None and ask.requests} | missing
    used.update(_users(pod, {entry for entry, name in entries.items() if name in gpus}))
    if extended in gpus:
        served = frozenset(_mapped(pod))
        used.update(container for container, _ in served)
    return PodClaims(requests, tuple(sorted(uids)), frozenset(used), served, frozenset(unknown))


def _extended(pod: KubePod) -> Mapping[str, Any]:
    return mapping(pod.status, "extendedResourceClaimStatus")


def _mapped(pod: KubePod) -> Iterator[tuple[str, str]]:
    for entry in items(_extended(pod).get("requestMappings")):
        yield text(entry.get("containerName")), text(entry.get("resourceName"))


def _users(pod: KubePod, words: Collection[str]) -> Iterator[str]:
    """Yield the containers that use a claim of these words of the pod."""
    for container in pod.containers:
        claims = items(mapping(container, "resources").get("claims"))
        if any(text(claim.get("name")) in words for claim in claims):
            yield text(container.get("name"))
