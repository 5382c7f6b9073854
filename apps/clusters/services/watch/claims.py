"""ResourceClaims as `watch` follows them: in memory, and as rows of allocations."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from django.db import transaction

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.dra import VERSIONS, served_version
from apps.clusters.domain.devices.resource_claims import (
    NO_CLAIMS,
    AllocationResult,
    ClaimState,
    ClaimUnits,
    FindDevice,
    IsGpuClass,
    PodClaims,
    claim_names,
    claim_record,
    claim_state,
    claimed_devices,
    holder,
    is_resolved,
    is_same,
    names_claims,
    pod_claims,
    requested_devices,
)
from apps.clusters.domain.observed.store import ObservedStore
from apps.clusters.domain.pods.ledger import (
    ClaimAllocationRecord,
    ClaimedDevice,
    OfferedDevice,
    PodRecord,
)
from apps.clusters.domain.tiers import BUILTIN_TIERS
from apps.clusters.domain.window import from_seconds
from apps.clusters.models import ClaimInterval, WatchIssue
from apps.clusters.ports import ClusterSource
from apps.clusters.services.catalog import TierAssignment
from apps.clusters.services.pods.ledger_rows import (
    NameRegistry,
    chunks,
    claim_of,
    claim_values,
)
from apps.clusters.services.pods.pod_store import TrackedPod, known_pods, lock_cluster, upsert_pods
from apps.clusters.services.watch.collections import uid_of
from apps.clusters.services.watch.offered_devices import DeviceStore, evaluate

ClaimKey = tuple[str, str]

_AT_ONCE = 1000
_FIELDS = ["namespace", "name", "node_name", "released_at", "devices"]
Assign = Callable[[TrackedPod, ClaimAllocationRecord], TierAssignment | None]
GROUP = "/apis/resource.k8s.io"
SLICES, CLASSES, CLAIMS = "resourceslices", "deviceclasses", "resourceclaims"
KINDS = (CLASSES, SLICES, CLAIMS)
"""In the order in which they are taken in: each needs those before it."""
Object = Mapping[str, Any]


class ClaimStore(ObservedStore[ClaimAllocationRecord]):
    """The record of each allocation of GPUs that lasts, by claim, and every claim there is.

    Rows are by (uid, allocated). `touched` are the (namespace, name) of claims that were seen
    differently: their pods may ask for something else now.
    """

    def __init__(self, allocated: Iterable[ClaimAllocationRecord] = ()) -> None:
        super().__init__(lambda one: one.uid, allocated, row=lambda one: (one.uid, one.allocated))
        self.touched: set[ClaimKey] = set()
        self._claims = ObservedStore[ClaimState](
            lambda claim: claim.uid, indexes={"name": lambda claim: (claim.key,)}
        )

    def apply(self, claim: ClaimState, at: float, find: FindDevice, is_gpu: IsGpuClass) -> None:
        """Apply a claim as it is at `at`."""
        self._put_claim(claim)
        self._settle(claim, at, at, find, is_gpu)

    def delete(self, uid: str, at: float) -> None:
        """Apply that a claim is no more: what it was given is free."""
        self._claims.drop(uid)
        self._release(uid, at)

    def relist(
        self,
        claims: Collection[ClaimState],
        at: float,
        last_seen: float | None,
        find: FindDevice,
        is_gpu: IsGpuClass,
    ) -> None:
        """Apply a whole list after a gap since `last_seen`.

        What is no longer allocated was freed some time in the gap: it counts as freed then.
        """
        since = at if last_seen is None else min(at, last_seen)
        there = {claim.uid for claim in claims}
        for uid in sorted((self._claims.items.keys() | self.items.keys()) - there):
            self.delete(uid, since)
        for claim in claims:
            self._put_claim(claim)
            self._settle(claim, at, since, find, is_gpu)

    def _put_claim(self, claim: ClaimState) -> None:
        if self._claims.put(claim) != claim:
            self.touched.add(claim.key)

    def resolve(self, at: float, find: FindDevice, is_gpu: IsGpuClass, *, everything: bool) -> None:
        """Look again at allocations of devices that were not known; `everything`: at all claims.

        That is for a change of what counts as a GPU. What is known of a device stays.
        """
        for uid, claim in self._claims.items.items():
            record = self.get(uid)
            # Most claims are resolved: they are passed by at every batch.
            if everything or (record is not None and not is_resolved(record.devices)):
                self._settle(claim, at, at, find, is_gpu)

    def ask(
        self, namespace: str, name: str, find: FindDevice, is_gpu: IsGpuClass
    ) -> ClaimUnits | None:
        """Return the request of a claim by its name; None while there is none."""
        found = self._claims.by_index("name", (namespace, name))
        # A claim that was made anew under the name of one that is not gone yet came last.
        return (
            ClaimUnits(found[-1].uid, requested_devices(found[-1], find, is_gpu)) if found else None
        )

    def _settle(
        self, claim: ClaimState, at: float, since: float, find: FindDevice, is_gpu: IsGpuClass
    ) -> None:
        """Bring the record of a claim in line; one that ended unseen ended at `since`."""
        devices = claimed_devices(claim, find, is_gpu)
        if claim.allocation is None or not devices:
            self._release(claim.uid, since)
            return
        known = self.get(claim.uid)
        if known is not None and not is_same(known, claim.allocation, devices):
            self._release(claim.uid, _until(claim.allocation, since))
            known = None
        if known is None:
            node = claim.allocation.node or _node_of(claim.allocation, find)
            self._allocate(claim_record(claim, devices, node=node, seen=at), claim)
        # Slices may come after claims. A device is looked up until it is found, then it stays.
        elif not is_resolved(known.devices) and devices != known.devices:
            node = known.node or _node_of(claim.allocation, find)
            self._allocate(replace(known, devices=devices, node=node), claim)

    def _allocate(self, record: ClaimAllocationRecord, claim: ClaimState) -> None:
        self.keep(record)
        self.touched.add(claim.key)

    def _release(self, uid: str, at: float) -> None:
        record = self.drop(uid)
        if record is not None:
            self.mark(replace(record, released=max(at, record.allocated)))


def _until(allocation: AllocationResult, at: float) -> float:
    return at if allocation.at is None else min(at, allocation.at)


def _node_of(allocation: AllocationResult, find: FindDevice) -> str:
    """Return the node of the devices where that is one and the same."""
    found = (find(r.driver, r.pool, r.device) for r in allocation.results)
    nodes = {device.node for device in found if device is not None}
    return nodes.pop() if len(nodes) == 1 else ""


def open_claims(cluster_id: int) -> list[ClaimAllocationRecord]:
    """Return the allocations that last, as far as the database knows. One query."""
    rows = ClaimInterval.objects.filter(cluster_id=cluster_id, released_at__isnull=True)
    return [claim_of(row) for row in rows.order_by("allocated_at", "pk")]


def write_claims(
    cluster_id: int, records: Iterable[ClaimAllocationRecord], names: NameRegistry, assign: Assign
) -> None:
    """Insert or update allocations, by (cluster, uid, allocated), and the row of each claim.

    Of two ends of one allocation the later holds, and each ends where the next one of its claim
    begins, so that the order of writers does not matter.
    """
    by_uid: dict[str, list[ClaimAllocationRecord]] = defaultdict(list)
    for record in records:
        by_uid[record.uid].append(record)
    for uids in chunks(sorted(by_uid), _AT_ONCE):
        with transaction.atomic():
            _write(cluster_id, {uid: by_uid[uid] for uid in uids}, names, assign)


def _write(
    cluster_id: int,
    ours: Mapping[str, Sequence[ClaimAllocationRecord]],
    names: NameRegistry,
    assign: Assign,
) -> None:
    lock_cluster(cluster_id)
    there: dict[str, list[ClaimAllocationRecord]] = defaultdict(list)
    rows = ClaimInterval.objects.filter(cluster_id=cluster_id, uid__in=list(ours))
    for row in rows.order_by("uid", "allocated_at"):
        there[row.uid].append(claim_of(row))
    joined = {uid: _joined(there[uid], records) for uid, records in ours.items()}
    ClaimInterval.objects.bulk_create(
        [
            ClaimInterval(cluster_id=cluster_id, **claim_values(record))
            for uid, records in joined.items()
            for record in records
            if record not in there[uid]
        ],
        update_conflicts=True,
        unique_fields=["cluster", "uid", "allocated_at"],
        update_fields=_FIELDS,
    )
    known = known_pods(cluster_id, list(ours))
    holders = [_holder(joined[uid], known.get(uid), assign) for uid in sorted(ours)]
    upsert_pods(cluster_id, holders, names)


def _joined(
    there: Iterable[ClaimAllocationRecord], ours: Iterable[ClaimAllocationRecord]
) -> list[ClaimAllocationRecord]:
    """Return all allocations of one claim, in order, none reaching into the next."""
    intervals = {_micros(record.allocated): record for record in there}
    for record in ours:
        known = intervals.get(_micros(record.allocated))
        ends = [r.released for r in (known, record) if r is not None and r.released is not None]
        intervals[_micros(record.allocated)] = replace(record, released=max(ends, default=None))
    ordered = [intervals[at] for at in sorted(intervals)]
    for place, following in enumerate(ordered[1:]):
        released = ordered[place].released
        if released is None or released > following.allocated:
            ordered[place] = replace(ordered[place], released=following.allocated)
    return ordered


def _micros(at: float) -> int:
    # Microseconds as the database keeps them: floats of one time may differ in the last digit.
    return round(at * 1e6)


def _holder(
    intervals: Sequence[ClaimAllocationRecord], known: TrackedPod | None, assign: Assign
) -> TrackedPod:
    """Return the row of a claim: from its first allocation until its last one was released."""
    tracked = TrackedPod(holder(intervals[-1], since=intervals[0].allocated))
    found = None if known is None else known.assigned
    now = assign(tracked, intervals[-1])
    # A tier that was found stays, as that of a pod does: a later catalog moves no past hours.
    if found is None or found.tier in BUILTIN_TIERS:
        found = now or found
    elif now is not None and is_resolved(intervals[-1].devices):
        # Its devices may have been known later than the claim.
        found = replace(found, gpu_equivalents=now.gpu_equivalents)
    tracked.assigned = found
    return tracked


def stored_notes(cluster_id: int) -> dict[str, str]:
    """Return the notes of a cluster: subject → text. One query."""
    rows = WatchIssue.objects.filter(cluster_id=cluster_id).order_by("subject")
    return dict(rows.values_list("subject", "text"))


def write_notes(cluster_id: int, notes: Mapping[str, str], at: float) -> None:
    """Make these the notes of a cluster; one that stands keeps the time since when it does."""
    there = WatchIssue.objects.filter(cluster_id=cluster_id)
    with transaction.atomic():
        there.exclude(subject__in=list(notes)).delete()
        WatchIssue.objects.bulk_create(
            [
                WatchIssue(cluster_id=cluster_id, subject=s, text=text, since=from_seconds(at))
                for s, text in sorted(notes.items())
            ],
            update_conflicts=True,
            unique_fields=["cluster", "subject"],
            update_fields=["text"],
        )


def collections_of(version: str | None) -> tuple[str, ...]:
    """Return the collections of a served version; none where no version is served."""
    return () if version is None else tuple(f"{GROUP}/{version}/{kind}" for kind in KINDS)


def discovered_claims(source: ClusterSource) -> tuple[str, ...]:
    """Ask a server which of these collections it has. Raises what the source raises."""
    return collections_of(served_version(source.get(GROUP), VERSIONS))


class ClaimWatch:
    """The slices, classes and claims of a cluster, and the pods that name claims.

    Pods are kept as they were shown: a pod's requests are known when its claims are, in whatever
    order the streams deliver them. To apply the same object again changes nothing.
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
        # The nodes that may offer other devices now; None: all of them.
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
        """Return what a pod requests by claims; keeps the pod while it is there."""
        self.keep(pod)
        if not names_claims(pod):
            return NO_CLAIMS
        namespace = str(pod["metadata"].get("namespace", ""))

        def find(name: str) -> ClaimUnits | None:
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
