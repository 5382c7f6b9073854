"""What queues may hold: Kueue's quotas with what a cohort lends, Volcano's three amounts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    FlavorUse,
    ObservedKind,
    ObservedObject,
    VolcanoQueueSnapshot,
)
from apps.pending.domain.diagnosis import ClusterState
from apps.pending.domain.queues.cluster_queues import queues_of

CAPABILITY = "capability"
DESERVED = "deserved"


@dataclass(frozen=True, slots=True)
class QueueLimit:
    """A queue's limit on one resource: of Kueue in one flavor (`part`), else of one kind of it.

    `hard` is Kueue's nominal quota, Volcano's capability or deserved share. `ceiling` is the most
    that it may ever hold, with what others lend; None for no limit. `reserved` may be more than
    `used`: what waits for admission checks. `borrowed` is a part of `used` above nominal. `lent`
    are the queues and cohorts that lend to its cohort, itself among them, with how much. Units of
    the resource; None where the object does not say.
    """

    name: str
    part: str
    resource: str
    hard: float
    ceiling: float | None
    used: float | None = None
    reserved: float | None = None
    borrowed: float | None = None
    borrowing_limit: float | None = None
    lending_limit: float | None = None
    guarantee: float | None = None
    weight: float | None = None
    cohort: str = ""
    lent: Sequence[tuple[str, float]] = ()

    @property
    def key(self) -> str:
        """How the quota is named: `a100/nvidia.com/gpu`, `capability/nvidia.com/gpu`."""
        return f"{self.part}/{self.resource}"


def kueue_limits(seen: Sequence[ObservedObject]) -> list[QueueLimit]:
    """Return the limits of all ClusterQueues among the observed objects (Cohorts are read too).

    The ceiling is nominal + min(borrowing limit, what the cohort can lend): without a cohort the
    nominal quota, and lending limits keep quota from the cohort.
    """
    by_kind: dict[ObservedKind, list[ObservedObject]] = {}
    for one in seen:
        by_kind.setdefault(one.kind, []).append(one)
    queues = queues_of(ClusterState(0.0, by_kind))
    found = []
    for name, body in queues.by_name.items():
        used, reserved = _by_cell(body.used), _by_cell(body.reserved)
        for resource in dict.fromkeys(quota.resource for quota in body.quotas):
            ceilings = {room.flavor: room.most for room in queues.rooms(name, resource)}
            for quota in body.quotas:
                if quota.resource != resource:
                    continue
                cell = (quota.flavor, resource)
                use, kept = used.get(cell), reserved.get(cell)
                found.append(
                    QueueLimit(
                        name=name,
                        part=quota.flavor,
                        resource=resource,
                        hard=quota.nominal,
                        ceiling=ceilings[quota.flavor],
                        used=use.total if use else None,
                        reserved=kept.total if kept else None,
                        borrowed=use.borrowed if use else None,
                        borrowing_limit=quota.borrowing_limit,
                        lending_limit=quota.lending_limit,
                        weight=body.weight,
                        cohort=body.cohort,
                        lent=queues.lenders(name, quota.flavor, resource),
                    )
                )
    return found


def volcano_limits(name: str, body: VolcanoQueueSnapshot) -> list[QueueLimit]:
    """Return a Volcano queue's capability (never more) and deserved (more can be reclaimed)."""
    found = []
    for part, amounts in ((CAPABILITY, body.capability), (DESERVED, body.deserved)):
        for resource, hard in sorted(amounts.items()):
            ceiling = body.capability.get(resource)
            found.append(
                QueueLimit(
                    name=name,
                    part=part,
                    resource=resource,
                    hard=hard,
                    ceiling=ceiling,
                    used=body.allocated.get(resource, 0.0),
                    guarantee=body.guarantee.get(resource),
                    weight=body.weight,
                )
            )
    return found


def set_limits(one: ObservedObject) -> list[tuple[str, str, str, float]]:
    """Return (part, resource, key, hard) of what a queue alone sets, whatever others lend it."""
    if isinstance(one.body, ClusterQueueSnapshot):
        cells = ((q.flavor, q.resource, q.nominal) for q in one.body.quotas)
        return [(part, resource, f"{part}/{resource}", hard) for part, resource, hard in cells]
    if isinstance(one.body, VolcanoQueueSnapshot):
        limits = volcano_limits(one.name, one.body)
        return [(limit.part, limit.resource, limit.key, limit.hard) for limit in limits]
    return []


def _by_cell(uses: Iterable[FlavorUse]) -> Mapping[tuple[str, str], FlavorUse]:
    return {(use.flavor, use.resource): use for use in uses}
