"""Changes of policies, and the recorded cluster and works of a replay with and without them."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.planning.domain.cluster_replay.inputs import (
    FlavorQuota,
    Packing,
    PendingOrder,
    Reclaim,
    RecordedWork,
    ReplayCluster,
    ReplayPolicy,
    ReplayQueue,
)
from apps.quotas.domain.keys import DEVICES, REQUESTS, QuotaSource

_DAY, _MINUTE = 86400.0, 60.0
TeamTier = tuple[str, str]


class PolicyRefused(ValueError):
    """A change that cannot be replayed; the text says why, for a person."""


class LimitChange(Struct, frozen=True):
    """Another limit of a quota key, in units of its resource.

    `others` is the least of the other limits on the resource in the namespace: each of them has to
    let a pod in. `team` is the one that uses the key; empty where several do. `lends`: what others
    may borrow of it after the change, as by Kueue's lendingLimit; None: as it is.
    """

    source: str
    namespace: str
    name: str
    key: str
    before: float
    after: float
    others: float | None = None
    team: str = ""
    lends: float | None = None

    @property
    def resource(self) -> str:
        """What the key counts."""
        if self.source == QuotaSource.CLUSTER_QUEUE:
            return self.key.partition("/")[2]
        return self.key.removeprefix(REQUESTS).removesuffix(DEVICES)


class ShareChange(Struct, frozen=True):
    """Another entitlement (GPU-equivalents) or weight of a team in a tier; None: as it is."""

    team: str
    tier: str
    gpus: float | None = None
    weight: float | None = None


class PolicyChange(Struct, frozen=True):
    """What is to be otherwise; the defaults change nothing.

    `fair_order`: pending work of teams below their entitlement comes first, then of the team that
    holds least for its weight. `half_life_days`: what a team held before counts too, by half after
    that time. `idle_minutes`: work is ended after that time without activity; `idle_of` narrows it
    to a team in a tier. `strict_order`: work that does not fit blocks later work of its tier.
    `placement`: how nodes are chosen. `node_preemption`: pending work preempts running work of
    lower priority where no node has room. Of each ClusterQueue: `fair_sharing` lets the queue with
    the least share borrow first; `queue_preemption` lets its work preempt its own of lower
    priority; `reclaim` says whose work gives back borrowed quota.
    """

    limits: tuple[LimitChange, ...] = ()
    shares: tuple[ShareChange, ...] = ()
    fair_order: bool = False
    half_life_days: float | None = None
    no_borrowing: bool = False
    idle_minutes: float | None = None
    idle_of: TeamTier | None = None
    strict_order: bool = False
    placement: Packing | None = None
    node_preemption: bool = False
    fair_sharing: bool = False
    queue_preemption: bool | None = None
    reclaim: Reclaim | None = None

    @property
    def is_empty(self) -> bool:
        return self == PolicyChange()

    @property
    def of_queues(self) -> bool:
        """Whether it sets what only ClusterQueues follow."""
        return self.fair_sharing or self.queue_preemption is not None or self.reclaim is not None

    @property
    def needs_borrowing(self) -> bool:
        """Whether it sets what only queues and namespaces that borrow follow."""
        reclaims = self.reclaim not in (None, Reclaim.NEVER)
        return self.fair_sharing or reclaims or any(one.lends is not None for one in self.limits)


class TeamShare(Struct, frozen=True):
    """What a team may count on in a tier, in GPU-equivalents, and its weight."""

    gpus: float
    weight: float


Shares = Mapping[TeamTier, TeamShare]


def check_change(change: PolicyChange) -> None:
    """Raise PolicyRefused for a change that changes nothing, or has parts without effect."""
    if change.is_empty:
        raise PolicyRefused("Nothing is changed: enter a limit or a policy.")
    if (change.shares or change.half_life_days is not None) and not change.fair_order:
        raise PolicyRefused(
            "Entitlements, weights and the half-life order pending work only in fair order: "
            "choose it."
        )
    if change.no_borrowing and change.needs_borrowing:
        raise PolicyRefused(
            "Without borrowing, fair sharing, reclaim and loans do nothing: leave them out."
        )
    amounts = [
        *(one.after for one in change.limits),
        *(one.lends for one in change.limits if one.lends is not None),
        *(x for one in change.shares for x in (one.gpus, one.weight) if x is not None),
    ]
    if any(amount < 0 for amount in amounts):
        raise PolicyRefused("A limit, entitlement or weight cannot be negative.")
    for time in (change.half_life_days, change.idle_minutes):
        if time is not None and time <= 0:
            raise PolicyRefused("A half-life or idle limit is longer than 0.")


def cluster_with(cluster: ReplayCluster, change: PolicyChange, *, after: bool) -> ReplayCluster:
    """Return the cluster with the limits that a change concerns, as they are now or `after` it.

    Raises PolicyRefused for a queue that was not recorded, and for one that is to lend but is in no
    cohort. So are policies of queues where there are none.
    """
    if change.of_queues and not cluster.queues:
        raise PolicyRefused("No ClusterQueue is recorded in these days: no policy of queues holds.")
    queues = {queue.name: queue for queue in cluster.queues}
    spaces = {name: dict(limits) for name, limits in cluster.namespace_quotas.items()}
    lending = dict(cluster.namespace_lending)
    for one in change.limits:
        amount = one.after if after else one.before
        if one.source != QuotaSource.CLUSTER_QUEUE:
            # Both replays use the least limit, so that raising one alone may change nothing.
            least = amount if one.others is None else min(amount, one.others)
            spaces.setdefault(one.namespace, {})[one.resource] = least
            if after and one.lends is not None:
                lending[one.namespace, one.resource] = one.lends
        elif one.name in queues:
            queues[one.name] = _with_nominal(queues[one.name], one, amount)
            if after and one.lends is not None:
                queues[one.name] = _lending(queues[one.name], one, one.lends)
        else:
            raise PolicyRefused(f"ClusterQueue {one.name} is not recorded in these days.")
    return replace(
        cluster,
        queues=tuple(_with_policies(one, change) if after else one for one in queues.values()),
        namespace_quotas=spaces,
        namespace_lending=lending,
    )


def _with_nominal(queue: ReplayQueue, limit: LimitChange, amount: float) -> ReplayQueue:
    flavor, _, resource = limit.key.partition("/")
    quota = queue.quotas.get((flavor, resource), FlavorQuota(0.0))
    return replace(
        queue, quotas={**queue.quotas, (flavor, resource): replace(quota, nominal=amount)}
    )


def _with_policies(queue: ReplayQueue, change: PolicyChange) -> ReplayQueue:
    own, reclaim = change.queue_preemption, change.reclaim
    return replace(
        queue,
        preempts_own=queue.preempts_own if own is None else own,
        reclaim=queue.reclaim if reclaim is None else reclaim,
    )


def _lending(queue: ReplayQueue, limit: LimitChange, lends: float) -> ReplayQueue:
    if not queue.cohort:
        raise PolicyRefused(
            f"ClusterQueue {queue.name} is in no cohort: no other queue can borrow from it."
        )
    flavor, _, resource = limit.key.partition("/")
    quota = replace(queue.quotas[flavor, resource], lending_limit=lends)
    return replace(queue, quotas={**queue.quotas, (flavor, resource): quota})


def policy_without(base: ReplayPolicy, change: PolicyChange) -> ReplayPolicy:
    """Return the policy before a change: recorded nodes would hide another placement."""
    return base if change.placement is None else replace(base, recorded_nodes=False)


def policy_with(base: ReplayPolicy, change: PolicyChange, shares: Shares) -> ReplayPolicy:
    """Return the policy after a change; `shares` are the entitlements and weights of now."""
    if change.fair_order:
        now = dict(shares)
        for one in change.shares:
            # A team that has no entitlement yet begins with none.
            known = now.get((one.team, one.tier), TeamShare(0.0, 0.0))
            gpus = known.gpus if one.gpus is None else one.gpus
            # As in the catalog: a weight that is not set is the entitlement.
            follows = one.gpus is not None and known.weight == known.gpus
            weight = gpus if follows else known.weight
            now[one.team, one.tier] = TeamShare(gpus, weight if one.weight is None else one.weight)
        half_life = change.half_life_days
        base = replace(
            base,
            order=PendingOrder.FAIR,
            entitlements={key: share.gpus for key, share in now.items()},
            weights={key: share.weight for key, share in now.items()},
            half_life=None if half_life is None else half_life * _DAY,
        )
    idle = change.idle_minutes
    return replace(
        policy_without(base, change),
        packing=base.packing if change.placement is None else change.placement,
        strict=base.strict or change.strict_order,
        preemption=base.preemption or change.node_preemption,
        fair_sharing=base.fair_sharing or change.fair_sharing,
        borrowing=base.borrowing and not change.no_borrowing,
        idle_limit=base.idle_limit if idle is None else idle * _MINUTE,
    )


def with_idle_ends(
    works: Sequence[RecordedWork],
    idle_seconds: Iterable[float],
    change: PolicyChange,
    *,
    end: float,
) -> list[RecordedWork]:
    """Return works told how long each did nothing until its end, in the same order.

    Without an idle limit they stay as they are, as do those that it does not concern. Work that
    still did nothing at `end` ends there, so that a limit can end it earlier.
    """
    if change.idle_minutes is None:
        return list(works)
    return [
        _idle_until(work, idle, end) if idle > 0 and _is_limited(work, change) else work
        for work, idle in zip(works, idle_seconds, strict=True)
    ]


def _is_limited(work: RecordedWork, change: PolicyChange) -> bool:
    return change.idle_of is None or change.idle_of == (work.team, work.tier)


def _idle_until(work: RecordedWork, idle: float, end: float) -> RecordedWork:
    # Ending there changes no sum: the replay ends too.
    if work.runs_seconds is None:
        return replace(work, idle_seconds=idle, ends_at=end)
    # It cannot end before the replay begins.
    return replace(work, idle_seconds=min(idle, work.runs_seconds))
