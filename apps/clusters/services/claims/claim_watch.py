"""Dynamic resource allocation as `watch` follows it: what nodes offer, what pods ask claims for."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from apps.clusters.domain.devices.dra import VERSIONS, served_version
from apps.clusters.domain.devices.pod_claims import (
    NO_CLAIMS,
    Ask,
    PodClaims,
    claim_names,
    names_claims,
    pod_claims,
)
from apps.clusters.domain.devices.resource_claims import claim_state
from apps.clusters.domain.observed.store import ObservedStore
from apps.clusters.domain.pods.ledger import (
    ClaimAllocationRecord,
    ClaimedDevice,
    OfferedDevice,
    PodRecord,
)
from apps.clusters.ports import ClusterSource
from apps.clusters.services.claims.claim_store import ClaimStore
from apps.clusters.services.claims.device_selectors import evaluate
from apps.clusters.services.claims.device_store import DeviceStore
from apps.clusters.services.watch.versions import uid_of

GROUP = "/apis/resource.k8s.io"
SLICES, CLASSES, CLAIMS = "resourceslices", "deviceclasses", "resourceclaims"
KINDS = (CLASSES, SLICES, CLAIMS)
"""In the order in which they are taken in: each needs those before it."""

Object = Mapping[str, Any]


def collections_of(version: str | None) -> tuple[str, ...]:
    """Return the collections of a served version; none where no version is served."""
    return () if version is None else tuple(f"{GROUP}/{version}/{kind}" for kind in KINDS)


def discovered(source: ClusterSource) -> tuple[str, ...]:
    """Ask a server which of these collections it has. Raises what the source raises."""
    return collections_of(served_version(source.get(GROUP), VERSIONS))


class ClaimWatch:
    """The slices, classes and claims of a cluster, and the pods that name claims.

    Pods are kept as they were shown: what one asks for is known when its claims are, in whatever
    order the streams bring them. Taking in the same again changes nothing.
    """

    def __init__(
        self, paths: Sequence[str], allocated: Iterable[ClaimAllocationRecord] = ()
    ) -> None:
        self.devices = DeviceStore(evaluate)
        self.claims = ClaimStore(allocated)
        self.refusals: dict[str, str] = {}
        self._kinds = {path: path.rpartition("/")[2] for path in paths}
        self._named: frozenset[str] = frozenset()
        self._gpu_classes: frozenset[str] = frozenset()
        self._pods = ObservedStore[Object](uid_of, indexes={"claim": _claim_keys})
        self._nodes: set[str] | None = set()
        self._everything = False

    def follows(self, path: str) -> bool:
        return path in self._kinds or path == GROUP

    def place(self, path: str) -> int:
        """Return when a collection is to be taken in among those of one batch."""
        return KINDS.index(self._kinds[path]) if path in self._kinds else 0

    # ------------------------------------------------------------ taking in

    def relist(self, path: str, items: Sequence[Object], at: float, last: float | None) -> None:
        """Apply a whole collection after a gap since `last`."""
        self.refusals.pop(path, None)
        kind = self._kinds[path]
        if kind == SLICES:
            self.devices.relist_slices(items)
            self._nodes = None
        elif kind == CLASSES:
            self.devices.relist_classes(items)
            self._nodes = None
        else:
            found = [claim for claim in map(claim_state, items) if claim is not None]
            self.claims.relist(found, at, last, self.devices.find, self.is_gpu)

    def apply(self, path: str, item: Object, at: float, gone: float | None) -> None:
        """Apply one object; `gone` is when it went, None while it is there."""
        kind = self._kinds[path]
        uid = uid_of(item)
        if kind == SLICES:
            nodes = (
                self.devices.apply_slice(item) if gone is None else self.devices.delete_slice(uid)
            )
            self._nodes = None if self._nodes is None else self._nodes | nodes
        elif kind == CLASSES:
            self.devices.apply_class(item, gone=gone is not None)
            self._nodes = None
        elif gone is not None:
            self.claims.delete(uid, gone)
        else:
            claim = claim_state(item)
            if claim is not None:
                self.claims.apply(claim, at, self.devices.find, self.is_gpu)

    def refused(self, path: str, why: str) -> None:
        """Take in that a collection may not be read."""
        self.refusals[path] = why

    def settle(self, named: frozenset[str], at: float) -> None:
        """Bring claims in line with the devices and classes; `named` are those of tiers."""
        classes = self.devices.gpu_classes
        if (named, classes) != (self._named, self._gpu_classes):
            self._named, self._gpu_classes, self._everything = named, classes, True
        self.claims.resolve(at, self.devices.find, self.is_gpu, everything=self._everything)

    def is_gpu(self, device_class: str) -> bool:
        """Say whether a device class is one of GPUs, as far as is known now."""
        return self.devices.is_gpu_class(device_class, self._named)

    # ------------------------------------------------------------ nodes

    def of_node(self, node: str) -> tuple[OfferedDevice, ...] | None:
        """Return what slices offer on a node; None while no slice was seen."""
        return self.devices.of_node(node) if self.devices.known else None

    def nodes_to_see(self, nodes: Collection[str]) -> list[str]:
        """Return which of these nodes may offer other devices than before, once."""
        touched, self._nodes = self._nodes, set()
        if not self.devices.known:
            return []
        return sorted(nodes if touched is None else touched & set(nodes))

    # ------------------------------------------------------------ pods

    def claims_of(self, pod: Object, remembered: PodRecord | None) -> PodClaims:
        """Return what a pod asks for by claims; keeps the pod while it is there."""
        self.keep(pod)
        if not names_claims(pod):
            return NO_CLAIMS
        namespace = str(pod["metadata"].get("namespace", ""))

        def find(name: str) -> Ask | None:
            return self.claims.ask(namespace, name, self.devices.find, self.is_gpu)

        return pod_claims(pod, find, remembered=remembered)

    def keep(self, pod: Object) -> None:
        """Keep a pod that names claims, to look at it again when they change."""
        if names_claims(pod):
            self._pods.put(pod)

    def forget(self, uid: str) -> None:
        """Drop a pod that is gone."""
        self._pods.drop(uid)

    def keep_only(self, uids: Collection[str]) -> None:
        """Drop all pods but these."""
        self._pods.retain(uids)

    def pods_to_see(self) -> list[Object]:
        """Return the pods that name a claim seen differently, until `pods_seen`."""
        if self._everything:
            return list(self._pods.items.values())
        found = (self._pods.by_index("claim", key) for key in sorted(self.claims.touched))
        return list({uid_of(pod): pod for pods in found for pod in pods}.values())

    def pods_seen(self) -> None:
        """Note that these were looked at."""
        self._everything = False
        self.claims.touched.clear()

    def is_there(self, uid: str) -> bool:
        return uid in self._pods

    def devices_of(self, uids: Iterable[str]) -> tuple[ClaimedDevice, ...]:
        """Return the devices that claims were given, as far as they are held now."""
        found = (self.claims.get(uid) for uid in uids)
        return tuple(device for record in found if record for device in record.devices)

    # ------------------------------------------------------------ what a person should know

    def notes(self) -> dict[str, str]:
        """Return what keeps this from being whole, by what it is about."""
        refused = {
            self._kinds.get(
                path, "resource.k8s.io"
            ): f"{why} Until then the GPUs that claims hold are not all known."
            for path, why in self.refusals.items()
        }
        return {**self.devices.notes(), **refused}


def _claim_keys(pod: Object) -> set[tuple[str, str]]:
    namespace = str(pod["metadata"].get("namespace", ""))
    return {(namespace, name) for name in claim_names(pod)}
