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
from apps.clusters.domain.pods.ledger import ClaimAllocationRecord

ClaimKey = tuple[str, str]


class ClaimStore:
    """Every claim there is, and the record of each allocation of GPUs that lasts.

    `changed` holds records to be written, by (uid, allocated); `touched` the (namespace, name)
    of claims that were seen differently, whose pods are to be looked at again.
    """

    def __init__(self, allocated: Iterable[ClaimAllocationRecord] = ()) -> None:
        self.open = {record.uid: record for record in allocated}
        self.changed: dict[tuple[str, float], ClaimAllocationRecord] = {}
        self.touched: set[ClaimKey] = set()
        self._states: dict[str, ClaimState] = {}
        self._uids: dict[ClaimKey, str] = {}

    def seen(self, claim: ClaimState, at: float, find: Find, is_gpu: IsGpuClass) -> None:
        """Take in a claim as it is at `at`."""
        if self._states.get(claim.uid) != claim:
            self.touched.add(claim.key)
        self._states[claim.uid] = claim
        self._uids[claim.key] = claim.uid
        self._apply(claim, at, at, find, is_gpu)

    def gone(self, uid: str, at: float) -> None:
        """Take in that a claim is no more: what it was given is free."""
        claim = self._states.pop(uid, None)
        if claim is not None and self._uids.get(claim.key) == uid:
            del self._uids[claim.key]
        self._release(uid, at)

    def listed(
        self,
        claims: Collection[ClaimState],
        at: float,
        last_seen: float | None,
        find: Find,
        is_gpu: IsGpuClass,
    ) -> None:
        """Take in a whole list after a gap since `last_seen`.

        What is no longer allocated was freed some time in the gap: it counts as freed then.
        """
        since = at if last_seen is None else min(at, last_seen)
        there = {claim.uid for claim in claims}
        for uid in sorted((self._states.keys() | self.open.keys()) - there):
            self.gone(uid, since)
        for claim in claims:
            if self._states.get(claim.uid) != claim:
                self.touched.add(claim.key)
            self._states[claim.uid] = claim
            self._uids[claim.key] = claim.uid
            self._apply(claim, at, since, find, is_gpu)

    def resolve(self, at: float, find: Find, is_gpu: IsGpuClass, *, everything: bool) -> None:
        """Look again at allocations of devices that were not known; `everything`: at all claims.

        That is for a change of what counts as a GPU. What is known of a device stays.
        """
        for uid, claim in self._states.items():
            record = self.open.get(uid)
            if everything or (record is not None and not is_resolved(record.devices)):
                self._apply(claim, at, at, find, is_gpu)

    def ask(self, namespace: str, name: str, find: Find, is_gpu: IsGpuClass) -> Ask | None:
        """Return what the claim of a name asks for; None while there is none."""
        uid = self._uids.get((namespace, name))
        if uid is None:
            return None
        return Ask(uid, asked(self._states[uid], find, is_gpu))

    def _apply(
        self, claim: ClaimState, at: float, since: float, find: Find, is_gpu: IsGpuClass
    ) -> None:
        """Bring the record of a claim in line; one that ended unseen ended at `since`."""
        devices = claimed_devices(claim, find, is_gpu)
        if claim.allocation is None or not devices:
            self._release(claim.uid, since)
            return
        known = self.open.get(claim.uid)
        if known is not None and not is_same(known, claim.allocation, devices):
            self._release(claim.uid, _until(claim.allocation, since))
            known = None
        if known is None:
            node = claim.allocation.node or _node_of(claim.allocation, find)
            self._keep(claim_record(claim, devices, node=node, seen=at), claim)
        elif not is_resolved(known.devices) and devices != known.devices:
            node = known.node or _node_of(claim.allocation, find)
            self._keep(replace(known, devices=devices, node=node), claim)

    def _keep(self, record: ClaimAllocationRecord, claim: ClaimState) -> None:
        self.open[record.uid] = record
        self.changed[record.uid, record.allocated] = record
        self.touched.add(claim.key)

    def _release(self, uid: str, at: float) -> None:
        record = self.open.pop(uid, None)
        if record is not None:
            ended = replace(record, released=max(at, record.allocated))
            self.changed[uid, record.allocated] = ended


def _until(allocation: Allocation, at: float) -> float:
    return at if allocation.at is None else min(at, allocation.at)


def _node_of(allocation: Allocation, find: Find) -> str:
    """Return the node of the devices where that is one and the same."""
    found = (find(r.driver, r.pool, r.device) for r in allocation.results)
    nodes = {device.node for device in found if device is not None}
    return nodes.pop() if len(nodes) == 1 else ""
