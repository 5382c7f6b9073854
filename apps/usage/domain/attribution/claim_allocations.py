"""Who held the devices of claims: at every instant the pods that name a claim share them evenly."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from apps.clusters.domain.devices.mig import mig_part
from apps.clusters.domain.devices.resource_claims import holder
from apps.clusters.domain.pods.ledger import ClaimAllocationRecord, ClaimedDevice, PodRecord
from apps.clusters.domain.window import TimeSpan, clip, union


class ClaimAllocation(NamedTuple):
    """A pod's part of the alike devices of a claim; `shared`: others held them at the time.

    `units` counts devices, `weight` is what one is in GPU-equivalents, `gpu_uuids` are their UUIDs.
    """

    pod: PodRecord
    device_class: str
    profile: str
    model: str
    units: float
    weight: float
    gpu_uuids: frozenset[str]
    held: tuple[TimeSpan, ...]
    shared: bool


def claim_allocations(
    claims: Sequence[ClaimAllocationRecord],
    pods: Sequence[PodRecord],
    exists: Sequence[TimeSpan],
    end: float,
) -> Iterator[ClaimAllocation]:
    """Yield who held the devices of each claim on a node that `exists` in these spans.

    At every instant the pods that name a claim share its devices evenly; while there are none
    the claim's own row holds them. A claim counts once, however many pods use it.
    """
    users: dict[str, list[PodRecord]] = defaultdict(list)
    for pod in pods:
        for uid in pod.claims:
            users[uid].append(pod)
    for claim in sorted(claims, key=lambda one: (one.uid, one.allocated)):
        until = end if claim.released is None else min(end, claim.released)
        allocated = clip(exists, claim.allocated, until)
        if allocated:
            yield from _holds(claim, users.get(claim.uid, ()), allocated, end)


def _holds(
    claim: ClaimAllocationRecord,
    users: Sequence[PodRecord],
    allocated: Sequence[TimeSpan],
    end: float,
) -> Iterator[ClaimAllocation]:
    spans = {pod.uid: _during(pod, allocated, end) for pod in users}
    by_uid: Mapping[str, PodRecord] = {pod.uid: pod for pod in users}
    held: dict[tuple[str, int], list[TimeSpan]] = defaultdict(list)
    edges = {
        t for span in (*allocated, *(s for some in spans.values() for s in some)) for t in span
    }
    for a, b in pairwise(sorted(edges)):
        if not clip(allocated, a, b):
            continue
        here = [uid for uid, some in spans.items() if clip(some, a, b)]
        # The empty uid stands for the claim itself, which holds its devices without users.
        for uid in here or [""]:
            held[uid, max(1, len(here))].append((a, b))
    for (uid, sharers), some in sorted(held.items()):
        pod = by_uid[uid] if uid else holder(claim)
        for alike, shares in _alike(claim.devices).items():
            device_class, profile, model = alike
            yield ClaimAllocation(
                pod,
                device_class,
                profile,
                model,
                sum(share for _, share in shares) / sharers,
                mig_part(profile, model),
                frozenset(uuid for uuid, _ in shares),
                union(some),
                sharers > 1 or any(share < 1.0 for _, share in shares),
            )


def _during(pod: PodRecord, allocated: Sequence[TimeSpan], end: float) -> tuple[TimeSpan, ...]:
    span = pod.held(end)
    return clip(allocated, *span) if span else ()


def _alike(
    devices: Sequence[ClaimedDevice],
) -> dict[tuple[str, str, str], list[tuple[str, float]]]:
    found: dict[tuple[str, str, str], list[tuple[str, float]]] = defaultdict(list)
    for device in devices:
        key = (device.device_class, device.profile, device.model)
        found[key].append((device.card, device.share))
    return found
