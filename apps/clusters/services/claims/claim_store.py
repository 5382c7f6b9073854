"""The ResourceClaims of a cluster as `watch` learns them, in memory until written."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from apps.clusters.domain.devices.pod_claims import Ask
from apps.clusters.domain.devices.resource_claims import (
    Allocation,
    ClaimState,
    Find,
    IsGpuClass,
    asked,
    claim_record,
    claimed_devices,
    is_resolved,
    is_same,
)
from apps.clusters.domain.observed.store import ObservedStore
from apps.clusters.domain.pods.ledger import ClaimAllocationRecord

ClaimKey = tuple[str, str]


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

    def apply(self, claim: ClaimState, at: float, find: Find, is_gpu: IsGpuClass) -> None:
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
        find: Find,
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

    def resolve(self, at: float, find: Find, is_gpu: IsGpuClass, *, everything: bool) -> None:
        """Look again at allocations of devices that were not known; `everything`: at all claims.

        That is for a change of what counts as a GPU. What is known of a device stays.
        """
        for uid, claim in self._claims.items.items():
            record = self.get(uid)
            if everything or (record is not None and not is_resolved(record.devices)):
                self._settle(claim, at, at, find, is_gpu)

    def ask(self, namespace: str, name: str, find: Find, is_gpu: IsGpuClass) -> Ask | None:
        """Return what the claim of a name asks for; None while there is none."""
        found = self._claims.by_index("name", (namespace, name))
        # A claim that was made anew under the name of one that is not gone yet came last.
        return Ask(found[-1].uid, asked(found[-1], find, is_gpu)) if found else None

    def _settle(
        self, claim: ClaimState, at: float, since: float, find: Find, is_gpu: IsGpuClass
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


def _until(allocation: Allocation, at: float) -> float:
    return at if allocation.at is None else min(at, allocation.at)


def _node_of(allocation: Allocation, find: Find) -> str:
    """Return the node of the devices where that is one and the same."""
    found = (find(r.driver, r.pool, r.device) for r in allocation.results)
    nodes = {device.node for device in found if device is not None}
    return nodes.pop() if len(nodes) == 1 else ""
