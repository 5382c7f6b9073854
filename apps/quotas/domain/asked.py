"""Who asks for units and who holds them: of ResourceClaims, of Kueue's queues and of Volcano's."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from apps.clusters.domain.ledger import ClaimRecord
from apps.clusters.domain.sightings import (
    ClaimRequest,
    SeenClaim,
    SeenClusterQueue,
    SeenPodGroup,
    SeenWorkload,
    Sighting,
)
from apps.quotas.domain.keys import Counting
from apps.quotas.domain.saturation import Life

_ALL_DEVICES = 32.0
"""What a claim for all devices is charged: the most results that a claim may have."""
_RESERVED = "QuotaReserved"

Taken = tuple[float, float, float | None]
"""Units, since when, until when; None: it lasts."""
Owner = tuple[str, str, str]
"""Namespace, kind and name of a top controller."""
Cell = tuple[str, str, str]
"""Queue, flavor (empty of Volcano) and resource."""


def charged(requests: Iterable[ClaimRequest]) -> dict[str, float]:
    """Return device class → devices that a claim is charged when it is made, allocated or not.

    Of alternatives each class is charged the most that one of them asks of it. What is given for
    administration takes no device from anybody and is left out.
    """
    plain: dict[str, float] = defaultdict(float)
    choices: dict[tuple[str, str], float] = {}
    for one in requests:
        if one.admin:
            continue
        count = _ALL_DEVICES if one.count is None else float(one.count)
        if one.of:
            choice = (one.of, one.device_class)
            choices[choice] = max(choices.get(choice, 0.0), count)
        else:
            plain[one.device_class] += count
    for (_, device_class), count in choices.items():
        plain[device_class] += count
    return dict(plain)


def claim_lives(
    seen: Iterable[Sighting], allocated: Iterable[ClaimRecord]
) -> list[tuple[str, Life]]:
    """Return (namespace, life) of every claim: charged from its creation on, bound as allocated.

    Of a claim that is not among the sightings any more only its allocations are known.
    """
    spells: dict[str, list[ClaimRecord]] = defaultdict(list)
    for record in allocated:
        spells[record.uid].append(record)
    found = []
    for one in seen:
        if isinstance(one.body, SeenClaim):
            bound = tuple((r.allocated, r.released) for r in spells.pop(one.uid, ()))
            life = Life(
                charged(one.body.requests), one.body.created, one.gone, bound, "", Counting.CLAIMS
            )
            found.append((one.namespace, life))
    for records in spells.values():
        first, last = records[0], records[-1]
        amounts: dict[str, float] = defaultdict(float)
        for device in last.devices:
            amounts[device.device_class] += 1.0
        bound = tuple((r.allocated, r.released) for r in records)
        life = Life(amounts, first.allocated, last.released, bound, "", Counting.CLAIMS)
        found.append((first.namespace, life))
    return found


@dataclass(slots=True)
class QueueUse:
    """What was taken of each cell of queues, and held by pods: unit spans."""

    taken: dict[Cell, list[Taken]] = field(default_factory=lambda: defaultdict(list))
    held: dict[Cell, list[Taken]] = field(default_factory=lambda: defaultdict(list))


def kueue_use(
    workloads: Iterable[Sighting],
    queues: Mapping[str, SeenClusterQueue],
    local: Mapping[tuple[str, str], str],
    pods: Mapping[Owner, Sequence[Life]],
) -> QueueUse:
    """Return what Kueue's Workloads took of their queues, and what their pods held.

    A Workload takes its quota from its reservation until it is gone. What it held before the
    reservation that it has now, or before it lost it, is known by its pods alone, where the queue
    has one flavor of the resource. `local` maps (namespace, LocalQueue) to the ClusterQueue.
    """
    use = QueueUse()
    for one in workloads:
        body = one.body
        if not isinstance(body, SeenWorkload):
            continue
        queue = body.cluster_queue or local.get((one.namespace, body.queue), "")
        if queue not in queues:
            continue
        since = _reserved_since(body)
        flavors = _flavors(body, queues[queue])
        for resource, total in _asked(body).items():
            flavor = flavors.get(resource)
            if flavor is None:
                continue
            cell = (queue, flavor, resource)
            if since is not None:
                use.taken[cell].append((total, since, one.gone))
            own = pods.get((one.namespace, body.owner_kind, body.owner), ())
            _hold(use, cell, (life for life in own if life.created >= body.created - 1), since)
    return use


def _hold(use: QueueUse, cell: Cell, lives: Iterable[Life], since: float | None) -> None:
    for life in lives:
        units = life.amounts.get(cell[2], 0.0)
        for start, end in life.bound if units > 0 else ():
            use.held[cell].append((units, start, end))
            before = end if since is None else min(since, since if end is None else end)
            if before is None or before > start:
                use.taken[cell].append((units, start, before))


def volcano_use(groups: Iterable[Sighting], pods: Mapping[Owner, Sequence[Life]]) -> QueueUse:
    """Return what the pods of Volcano's PodGroups held of their queues: all that they take."""
    use = QueueUse()
    seen: set[Owner] = set()
    for one in groups:
        body = one.body
        if not isinstance(body, SeenPodGroup) or not body.queue:
            continue
        owner = (one.namespace, body.owner_kind, body.owner)
        if owner in seen:
            continue
        seen.add(owner)
        for life in pods.get(owner, ()):
            for resource, units in life.amounts.items():
                spans = [(units, start, end) for start, end in life.bound]
                use.taken[body.queue, "", resource] += spans
                use.held[body.queue, "", resource] += spans
    return use


def _reserved_since(body: SeenWorkload) -> float | None:
    for one in body.conditions:
        if one.type == _RESERVED and one.status == "True":
            return body.created if one.since is None else one.since
    return None


def _asked(body: SeenWorkload) -> dict[str, float]:
    total: dict[str, float] = defaultdict(float)
    for pods in body.pod_sets:
        for resource, units in pods.requests.items():
            total[resource] += units * pods.count
    return total


def _flavors(body: SeenWorkload, queue: SeenClusterQueue) -> dict[str, str]:
    """Return resource → flavor: that of its admission, else the queue's only one."""
    offered: dict[str, set[str]] = defaultdict(set)
    for quota in queue.quotas:
        offered[quota.resource].add(quota.flavor)
    found = {resource: min(names) for resource, names in offered.items() if len(names) == 1}
    for pods in body.pod_sets:
        found.update(pods.flavors)
    return found
