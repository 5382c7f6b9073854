"""Which pods shared cards: pods that held units of one shared resource of a node at one time."""

from collections.abc import Iterable
from dataclasses import dataclass

from apps.clusters.domain.devices.mig import mig_part
from apps.clusters.domain.pods.ledger import NodeInterval
from apps.clusters.domain.tiers import gpu_model, is_shared, mig_profile, unit_weight
from apps.clusters.domain.time_spans import Span, overlap, union


@dataclass(frozen=True, slots=True)
class SharedTimes:
    """When a resource of a node stood for shared devices, and how many of these there were at most.

    `devices` is None where no interval of the node tells.
    """

    spans: tuple[Span, ...]
    devices: int | None


def shared_times(
    resource: str, intervals: Iterable[NodeInterval], *, lifetime: Span
) -> SharedTimes:
    """Return when, within a pod's lifetime on a node, units of its resource were shares.

    Where nothing is known of the node the name of the resource decides.
    """
    known = list(intervals)
    if not known:
        always = (lifetime,) if is_shared(resource, {}) else ()
        return SharedTimes(always, None)
    shared = [interval for interval in known if is_shared(resource, interval.labels)]
    spans = union(
        (max(interval.start, lifetime[0]), min(interval.end, lifetime[1])) for interval in shared
    )
    return SharedTimes(
        spans, max((_devices(resource, interval) for interval in shared), default=None)
    )


def _devices(resource: str, interval: NodeInterval) -> int:
    """Return of how many devices a node's units of a resource are shares."""
    profile = mig_profile(resource, interval.labels)
    whole = mig_part(profile, gpu_model(interval.labels)) if profile else 1.0
    units = interval.capacity.get(resource, 0.0)
    return max(1, round(units * unit_weight(resource, interval.labels) / whole))


def shared_seconds(shared: SharedTimes, own: Span, other: Span) -> float:
    """Return for how long two pods held units at the same time while these were shares."""
    start, end = max(own[0], other[0]), min(own[1], other[1])
    return overlap(shared.spans, start, end) if end > start else 0.0
