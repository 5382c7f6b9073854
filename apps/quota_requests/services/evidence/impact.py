"""The impact of a change: what it would do, by what the portal knows and what clusters say."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from math import fsum

from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import Visibility
from apps.clusters.domain.observed.objects import (
    CONTROLLERS,
    ClusterQueueSnapshot,
    ControllerSnapshot,
    FlavorSnapshot,
    LocalQueueSnapshot,
    NodeSnapshot,
    ObservedKind,
    WorkloadSnapshot,
)
from apps.clusters.domain.tiers import TierRule, capacity_type, gpu_model, tier_of, unit_weight
from apps.clusters.gateways import ClusterClients
from apps.clusters.models import Cluster
from apps.clusters.services import TierHistory, observed_objects
from apps.costs.domain.prices import PriceBook
from apps.costs.selectors import price_book
from apps.pending.domain.diagnosis import BLOCKING_QUOTA, Cause, Counts
from apps.pending.domain.queues.cluster_queues import has_quota
from apps.pending.domain.queues.kueue import INACTIVE, MISCONFIGURED, STOPPED
from apps.pending.selectors import PendingFilters, PendingPage, PendingRow, pending_now
from apps.quota_requests.domain.execution.executor import preview_owners
from apps.quota_requests.domain.limit_effects import (
    BlockedWork,
    CohortShare,
    QuotaCommitment,
    TierCapacity,
)
from apps.quota_requests.domain.quantities import Quantity
from apps.quota_requests.domain.snapshots import ImpactPreview, KeyState, cost_ceiling, preview
from apps.quota_requests.domain.targets import QueueCell, QuotaKeyTarget, Target, reachable_tiers
from apps.quota_requests.models import ChangeRequest
from apps.quota_requests.selectors.bookings import booking_conflicts
from apps.quota_requests.services.evidence.known_quotas import (
    amount_of,
    reviewed,
    target_of_request,
    wanted,
)
from apps.quota_requests.services.evidence.snapshot import used_tiers
from apps.quota_requests.services.execution.api_calls import check
from apps.quotas.domain.keys import QuotaSource
from apps.quotas.selectors import QuotaFilters, QuotaRow, every_quota_row

_EVERYTHING = Visibility(everything=True)
_MOST = 500
_STRICT = "StrictFIFO"
_NOT_FOR_QUOTA = frozenset({INACTIVE, MISCONFIGURED, STOPPED})
"""Why a Workload of Kueue is pending where no quota change helps."""
_OF_CLUSTER = (
    *("dry_run_passed", "dry_run", "dry_run_detail", "api_version", "uid"),
    *("patch_file", "revert_file"),
)


def committed_gpus(
    own: QuotaRow | None,
    after: Quantity,
    *,
    weights: Mapping[str, float],
    team: str,
    at: datetime,
) -> float | None:
    """Return the team's promised GPU-equivalents with the change; None where it is not known.

    `weights` are by tier, of one unit. Several namespaces, queues and clusters add up: each of
    them raised a little is a large raise. Where a cluster has several kinds of limits on the same
    work, the kind that promises more there is taken, so that the sum is never too small. As many
    queries as `every_quota_row` takes.
    """
    if own is None or own.team != team or not weights:
        return None
    filters = QuotaFilters(team=(team,), tier=tuple(weights), effective=True)
    rows = every_quota_row(at, filters=filters, visibility=_EVERYTHING)
    kinds: dict[str, dict[str, dict[tuple[str, str, str], float]]] = {}
    for row in rows:
        # The observed rows have the old limit of this key; all others count as they are.
        hard = float(after.units) if row.ref == own.ref else row.hard
        gpus = hard * _weight(row.tiers, weights)
        places = kinds.setdefault(row.cluster, {}).setdefault(row.source, {})
        places[_limited_place(row)] = max(gpus, places.get(_limited_place(row), 0.0))
    if not any(row.ref == own.ref for row in rows):
        return None
    return fsum(
        # Not their sum: a ResourceQuota and a ClusterQueue limit the same pods twice.
        max(fsum(places.values()) for places in of_cluster.values())
        for of_cluster in kinds.values()
    )


def _limited_place(row: QuotaRow) -> tuple[str, str, str]:
    """Return whose limit it is: of a namespace by resource, of a queue by flavor and resource."""
    if row.namespace:
        return (row.cluster, row.namespace, row.resource)
    flavor = row.key if row.source == "ClusterQueue" else row.resource
    return (row.cluster, row.name, flavor)


def _weight(tiers: Collection[str], weights: Mapping[str, float]) -> float:
    # A unit may be any of these tiers: the heaviest counts, so that the sum is never too small.
    return max((weights[tier] for tier in tiers if tier in weights), default=0.0)


def blocked_workloads(
    request: ChangeRequest, target: Target, rows: Sequence[QuotaRow], *, now: datetime
) -> list[BlockedWork]:
    """Return the pending work of a target's resource, at most 500 items.

    An item that another one counts, as a pod by its Workload, is not counted twice, and one that
    has its quota already is pending for another cause. Seven queries.
    """
    if isinstance(target, QuotaKeyTarget):
        return _refused(request, target, rows, now)
    if isinstance(target, QueueCell):
        return _lined_up(request, target, now)
    return _queued(request, target, now)


def is_strict(request: ChangeRequest, target: Target) -> bool:
    """Say whether a queue is strict: nothing passes the work ahead of it. One query."""
    if not isinstance(target, QueueCell):
        return False
    seen = observed_objects(request.cluster_id, [ObservedKind.CLUSTER_QUEUE])
    bodies = (one.body for one in seen if one.name == target.name)
    return any(isinstance(b, ClusterQueueSnapshot) and b.strategy == _STRICT for b in bodies)


def _refused(
    request: ChangeRequest, target: QuotaKeyTarget, rows: Sequence[QuotaRow], now: datetime
) -> list[BlockedWork]:
    waiting = _blocked_episodes(request, Cause.QUOTA, now, namespace=target.namespace)
    makers = {
        one.uid: one.body
        for one in observed_objects(request.cluster_id, CONTROLLERS)
        if isinstance(one.body, ControllerSnapshot)
    }
    others = _other_headroom(target, rows)
    found = []
    for row in waiting:
        if row.resource != target.resource or not _is_meant(row, target.name):
            continue
        # Its controller counts it already; both would start twice the pods.
        if row.counts == Counts.NOTHING:
            continue
        maker = makers.get(row.uid)
        units, pods = row.units, 1
        if maker is not None and maker.requests.get(target.resource):
            units = maker.requests[target.resource]
            # A refused pod has no object: its controller alone knows how many are missing.
            pods = max(1, maker.wanted - maker.pods)
        found.append(BlockedWork(row.uid, row.name, units, pods, row.since, others))
    return found


def _lined_up(request: ChangeRequest, target: QueueCell, now: datetime) -> list[BlockedWork]:
    """Return the Workloads of Kueue that wait for quota: each is let through whole.

    Their pods wait behind their gates beside them, and are not told of again.
    """
    seen = observed_objects(
        request.cluster_id, [ObservedKind.LOCAL_QUEUE, ObservedKind.KUEUE_WORKLOAD]
    )
    local = {
        (one.namespace, one.name)
        for one in seen
        if isinstance(one.body, LocalQueueSnapshot) and one.body.cluster_queue == target.name
    }
    waiting = {one.uid: one.body for one in seen if isinstance(one.body, WorkloadSnapshot)}
    found = []
    for row in _blocked_episodes(request, Cause.QUEUE, now, kind="Workload"):
        body = waiting.get(row.uid)
        if body is None or has_quota(body) or row.detail in _NOT_FOR_QUOTA:
            continue
        units, pods = _requested(body, target.resource)
        here = body.cluster_queue == target.name or (row.namespace, row.queue) in local
        if not pods or not here:
            continue
        found.append(
            BlockedWork(
                *(row.uid, _name(row, request), units / pods, pods, row.since),
                whole=True,
                priority=body.priority,
            )
        )
    return found


def _requested(body: WorkloadSnapshot, resource: str) -> tuple[float, int]:
    """Return what all pods of a Workload ask for of a resource, and how many of them do."""
    asking = [one for one in body.pod_sets if one.requests.get(resource, 0.0) > 0]
    return sum(one.requests[resource] * one.count for one in asking), sum(o.count for o in asking)


def _queued(request: ChangeRequest, target: Target, now: datetime) -> list[BlockedWork]:
    """Return the work pending in a queue of Volcano: a group for those of its pods that are not
    there.
    """
    return [
        BlockedWork(row.uid, _name(row, request), row.units * _part(row), 1, row.since)
        for row in _blocked_episodes(request, Cause.QUEUE, now)
        if row.resource == target.resource and row.queue == target.name
    ]


def _part(row: PendingRow) -> float:
    """Return which part of a thing is not counted with another one."""
    if row.counts == Counts.NOTHING or not row.gpu_equivalents:
        return 0.0
    return row.counted / row.gpu_equivalents


def _name(row: PendingRow, request: ChangeRequest) -> str:
    """Return what the asking team may read: of others' work in a shared queue only whose it is."""
    return row.name if row.team == request.team.name else f"work of {row.team}"


def _blocked_episodes(
    request: ChangeRequest, cause: Cause, now: datetime, *, namespace: str = "", kind: str = ""
) -> Sequence[PendingRow]:
    filters = PendingFilters(
        cluster=(request.cluster.name,),
        namespace=(namespace,) if namespace else (),
        cause=(cause.value,),
        kind=(kind,) if kind else (),
    )
    page = PendingPage(size=_MOST)
    return pending_now(now, filters=filters, visibility=_EVERYTHING, page=page).rows


def _is_meant(row: PendingRow, quota: str) -> bool:
    """Say whether a refusal names the quota, or none to tell."""
    named = [one for one in row.blockers if one.startswith(BLOCKING_QUOTA)]
    return not named or f"{BLOCKING_QUOTA}{quota}" in named


def _other_headroom(target: QuotaKeyTarget, rows: Sequence[QuotaRow]) -> float | None:
    """Return the least that other quotas of the namespace leave of the resource."""
    return min(
        (
            row.hard - (row.used or 0.0)
            for row in rows
            if row.namespace == target.namespace
            and row.source == target.source
            and (row.name, row.key) != (target.name, target.key)
            and row.resource == target.resource
            and row.effective
            # A quota with scopes counts some pods only: its headroom is not that of all work.
            and not row.scopes
        ),
        default=None,
    )


class Impact(Struct, frozen=True):
    """A preview, and what else rules are held against.

    `gpus` is the change in GPU-equivalents of the tier that weighs most, `entitled_after` the sum
    of all quotas of the team with the change; None where that is not known. `cost` is at most that
    per month, in the dearest tier. `shared`: the limit is not of the requesting team alone.
    """

    preview: ImpactPreview
    gpus: float | None
    entitled_after: float | None
    cost: Decimal | None
    shared: bool
    used_above: bool


def impact_of(
    request: ChangeRequest, *, now: datetime, clients: ClusterClients | None = None
) -> Impact:
    """Work out what a change would do, with a dry run against the cluster where that is possible.

    A cluster that cannot be asked does not stop it: the preview says so. About twenty queries.
    """
    target = target_of_request(request)
    before, after = reviewed(request), wanted(request)
    known = _ClusterState.read(request, target, now)
    tiers, own = known.tier_figures(), known.own
    used = amount_of(_taken(own))
    is_used_known = own is not None and own.used is not None
    state = KeyState(
        tiers=tiers,
        used=used,
        entitlements=tuple(known.commitments({tier.tier for tier in tiers})),
        # Without what is used there is no headroom that anything could start in.
        waiting=blocked_workloads(request, target, known.rows, now=now) if is_used_known else (),
        shares=known.shares(),
        strict=is_strict(request, target),
        ours=target.name,
        unit_name=own.unit if own else "units",
        priced=used_tiers(request, tuple(tier.tier for tier in tiers), now=now),
    )
    worked = preview(state, before=before, after=after)
    checked = check(request.cluster, target, before=before, after=after, clients=clients)
    weights = {tier.tier: tier.weight for tier in tiers}
    heaviest = max(weights.values(), default=None)
    units = float((after - before).units)
    return Impact(
        preview=replace(
            worked,
            **{name: getattr(checked, name) for name in _OF_CLUSTER},
            live=None if checked.live is None else checked.live.text,
            owners=preview_owners(checked.owners),
            used=used.text if is_used_known else None,
            taken_at=now,
            currency=known.currency,
            conflicts=booking_conflicts(
                request, {tier: units * weight for tier, weight in weights.items()}, now=now
            ),
        ),
        gpus=None if heaviest is None else units * heaviest,
        entitled_after=committed_gpus(own, after, weights=weights, team=request.team.name, at=now),
        # A rule decides by the dearest tier that the key can reach, used so far or not.
        cost=cost_ceiling(tiers, before=before, after=after).most,
        shared=own is None or own.team != request.team.name,
        used_above=not is_used_known or used > after,
    )


def _taken(own: QuotaRow | None) -> float:
    """Return how much of a limit is taken; in Kueue work with pending admission checks counts."""
    return 0.0 if own is None else max(own.used or 0.0, own.reserved or 0.0)


class _ClusterState(Struct):
    """What is known of a target's cluster at a moment."""

    cluster: Cluster
    target: Target
    rows: Sequence[QuotaRow]
    nodes: Sequence[NodeSnapshot]
    rules: Sequence[TierRule]
    flavor: Mapping[str, str]
    prices: PriceBook
    at: datetime
    currency: str = ""
    own: QuotaRow | None = None

    @classmethod
    def read(cls, request: ChangeRequest, target: Target, now: datetime) -> "_ClusterState":
        cluster = request.cluster
        filters = QuotaFilters(cluster=(cluster.name,))
        rows = every_quota_row(now, filters=filters, visibility=_EVERYTHING)
        seen = observed_objects(cluster.pk, (ObservedKind.NODE, ObservedKind.RESOURCE_FLAVOR))
        flavors = {one.name: one.body for one in seen if isinstance(one.body, FlavorSnapshot)}
        flavor = flavors.get(target.flavor) if isinstance(target, QueueCell) else None
        return cls(
            cluster=cluster,
            target=target,
            rows=rows,
            nodes=[one.body for one in seen if isinstance(one.body, NodeSnapshot)],
            rules=TierHistory.load().at(now.timestamp()),
            flavor=flavor.node_labels if flavor else {},
            prices=price_book(now),
            at=now,
            own=next((row for row in rows if row.ref == request.ref), None),
        )

    def tier_figures(self) -> list[TierCapacity]:
        """Return what there is of each tier that the key can reach, in catalog order."""
        offers = [({*node.allocatable, *node.devices}, node.labels) for node in self.nodes]
        tiers = reachable_tiers(self.target, self.rules, offers or None, flavor_labels=self.flavor)
        return [self._figures(tier) for tier in tiers]

    def _figures(self, tier: str) -> TierCapacity:
        resource = self.target.resource
        nodes = [node for node in self.nodes if self._serves(node, tier)]
        prices = [self._price(node, tier) for node in nodes]
        known = [price for price in prices if price is not None]
        return TierCapacity(
            tier=tier,
            # No node at all means that nodes are not known: that is no capacity of zero.
            capacity_units=sum(_offered(n, resource) for n in nodes) if nodes else None,
            free_units=sum(_free(n, resource) for n in nodes) if nodes else None,
            weight=max((unit_weight(resource, n.labels) for n in nodes), default=1.0),
            # One node without a price makes the tier's unknown: the pods may land on just that
            # one.
            price_per_gpu_hour=max(known) if known and len(known) == len(prices) else None,
            entitlements=tuple(self.commitments({tier})),
        )

    def _serves(self, node: NodeSnapshot, tier: str) -> bool:
        resource = self.target.resource
        return (
            _offered(node, resource) > 0
            and all(node.labels.get(k) == v for k, v in self.flavor.items())
            and tier_of(resource, node.labels, self.rules) == tier
        )

    def _price(self, node: NodeSnapshot, tier: str) -> Decimal | None:
        found = self.prices.price(
            cluster=self.cluster.name,
            tier=tier,
            gpu_model=gpu_model(node.labels),
            capacity_type=capacity_type(node.labels).value,
            at=self.at,
        )
        if found is None:
            return None
        self.currency = found.currency
        return found.contracted

    def commitments(self, tiers: Collection[str]) -> Iterable[QuotaCommitment]:
        """Yield what quotas of the same kind that reach any of the tiers promise, each once.

        Of a namespace with several it is the least.
        """
        least: dict[tuple[str, str], QuotaRow] = {}
        for row in self._alike(tiers):
            place = _place(row)
            if self.own is not None and place == _place(self.own):
                continue
            if place not in least or row.hard < least[place].hard:
                least[place] = row
        for place, row in sorted(least.items()):
            yield QuotaCommitment(place[0], row.hard)
        if self.own is not None:
            yield QuotaCommitment(_place(self.own)[0], self.own.hard, ours=True)

    def _alike(self, tiers: Collection[str]) -> Iterable[QuotaRow]:
        """Yield the quotas of the same kind that limit the resource; Volcano's by their field."""
        part = self.target.key.partition("/")[0]
        for row in self.rows:
            same = row.source == self.target.source and row.resource == self.target.resource
            if self.target.source is QuotaSource.VOLCANO_QUEUE:
                same = same and row.key.partition("/")[0] == part
            if same and row.effective and not row.scopes and not set(tiers).isdisjoint(row.tiers):
                yield row

    def shares(self) -> list[CohortShare]:
        """Return the queues of the cohort for a cell of Kueue; else none."""
        own = self.own
        if own is None or not own.cohort:
            return []
        return [
            CohortShare(row.name, row.hard, row.held or 0.0, row.borrowing_limit, row.lending_limit)
            for row in self.rows
            if (row.source, row.cohort, row.key) == (own.source, own.cohort, own.key)
        ]


def _place(row: QuotaRow) -> tuple[str, str]:
    """Return whose promise a quota is: of a namespace one in all, of a queue each flavor's."""
    return (row.namespace, "") if row.namespace else (row.name, row.key)


def _offered(node: NodeSnapshot, resource: str) -> float:
    return float(node.allocatable.get(resource) or node.devices.get(resource, 0))


def _free(node: NodeSnapshot, resource: str) -> float:
    # It is part of the capacity, yet nothing can start on it now.
    if not node.ready or node.unschedulable:
        return 0.0
    if resource in node.devices:
        return float(node.free_devices.get(resource, 0))
    return max(0.0, node.allocatable.get(resource, 0.0) - node.used.get(resource, 0.0))
