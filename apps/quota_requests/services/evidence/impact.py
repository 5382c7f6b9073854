"""The preview of a change: what it would do, by what the portal knows and what clusters say."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from apps.accounts.permissions import Visibility
from apps.clusters.domain.observed.objects import FlavorSnapshot, NodeSnapshot, ObservedKind
from apps.clusters.domain.tiers import (
    TierRule,
    capacity_type,
    gpu_model,
    tier_of,
    unit_weight,
)
from apps.clusters.gateways import ClusterClients
from apps.clusters.models import Cluster
from apps.clusters.services import TierHistory, observed_objects
from apps.costs.selectors import PriceList, price_list
from apps.quota_requests.domain.borrowing import CohortShare
from apps.quota_requests.domain.execution.owners import preview_owners
from apps.quota_requests.domain.impact import KeyState, cost_ceiling, preview
from apps.quota_requests.domain.overcommitment import QuotaCommitment, TierCapacity
from apps.quota_requests.domain.snapshots import Preview
from apps.quota_requests.domain.targets import QueueCell, Target, reachable_tiers
from apps.quota_requests.models import ChangeRequest
from apps.quota_requests.services.evidence.blocked_workloads import blocked_workloads, is_strict
from apps.quota_requests.services.evidence.known_quotas import (
    amount_of,
    reviewed,
    target_of_request,
    wanted,
)
from apps.quota_requests.services.evidence.overcommitment import committed_gpus
from apps.quota_requests.services.evidence.used_tiers import used_tiers
from apps.quota_requests.services.execution.dry_run import check
from apps.quotas.domain.keys import QuotaSource
from apps.quotas.selectors import QuotaFilters, QuotaRow, every_quota_row

_EVERYTHING = Visibility(everything=True)
_OF_CLUSTER = (
    *("dry_run_passed", "dry_run", "dry_run_detail", "api_version", "uid"),
    *("patch_file", "revert_file"),
)


@dataclass(frozen=True, slots=True)
class Impact:
    """A preview, and what else rules are held against.

    `gpus` is the change in GPU-equivalents of the tier that weighs most, `promised_after` what all
    quotas of the team promise it with the change; None where that is not known. `cost` is the
    ceiling per month of the dearest tier. `shared`: the limit is not of the asking team alone.
    """

    preview: Preview
    gpus: float | None
    promised_after: float | None
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
        promises=tuple(known.commitments({tier.tier for tier in tiers})),
        # Without what is used there is no headroom that anything could start in.
        waiting=blocked_workloads(request, target, known.rows, now=now) if is_used_known else (),
        shares=known.shares(),
        strict=is_strict(request, target),
        ours=target.name,
        things=own.unit if own else "units",
        priced=used_tiers(request, tuple(tier.tier for tier in tiers), now=now),
    )
    worked = preview(state, before=before, after=after)
    checked = check(request.cluster, target, before=before, after=after, clients=clients)
    weights = {tier.tier: tier.weight for tier in tiers}
    heaviest = max(weights.values(), default=None)
    team = request.team.name
    return Impact(
        preview=replace(
            worked,
            **{name: getattr(checked, name) for name in _OF_CLUSTER},
            live=None if checked.live is None else checked.live.text,
            owners=preview_owners(checked.owners),
            used=used.text if is_used_known else None,
            taken_at=now,
            currency=known.currency,
        ),
        gpus=None if heaviest is None else float((after - before).units) * heaviest,
        promised_after=committed_gpus(own, after, weights=weights, team=team, at=now),
        # A rule decides by the dearest tier that the key can reach, used so far or not.
        cost=cost_ceiling(tiers, before=before, after=after).most,
        shared=own is None or own.team != team,
        used_above=not is_used_known or used > after,
    )


def _taken(own: QuotaRow | None) -> float:
    """Return what of a limit is taken: in Kueue also by what waits for its admission checks."""
    return 0.0 if own is None else max(own.used or 0.0, own.reserved or 0.0)


@dataclass(slots=True)
class _ClusterState:
    """What is known of a target's cluster at a moment."""

    cluster: Cluster
    target: Target
    rows: Sequence[QuotaRow]
    nodes: Sequence[NodeSnapshot]
    rules: Sequence[TierRule]
    flavor: Mapping[str, str]
    prices: PriceList
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
            prices=price_list(now, visibility=_EVERYTHING),
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
            capacity_units=sum(_offered(n, resource) for n in nodes) if nodes else None,
            free_units=sum(_free(n, resource) for n in nodes) if nodes else None,
            weight=max((unit_weight(resource, n.labels) for n in nodes), default=1.0),
            price_per_gpu_hour=max(known) if known and len(known) == len(prices) else None,
            promises=tuple(self.commitments({tier})),
        )

    def _serves(self, node: NodeSnapshot, tier: str) -> bool:
        resource = self.target.resource
        return (
            _offered(node, resource) > 0
            and all(node.labels.get(k) == v for k, v in self.flavor.items())
            and tier_of(resource, node.labels, self.rules) == tier
        )

    def _price(self, node: NodeSnapshot, tier: str) -> Decimal | None:
        found = self.prices.of(
            self.cluster.name,
            gpu_model(node.labels),
            capacity_type(node.labels).value,
            tier=tier,
        )
        if found is None:
            return None
        self.currency = found.currency
        return found.per_gpu_hour

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
    if not node.ready or node.unschedulable:
        return 0.0
    if resource in node.devices:
        return float(node.free_devices.get(resource, 0))
    return max(0.0, node.allocatable.get(resource, 0.0) - node.used.get(resource, 0.0))
