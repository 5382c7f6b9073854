"""The tier rules of the catalog at any time, held in memory by what runs for long."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from apps.clusters.domain import tiers as domain
from apps.clusters.domain.devices.mig import mig_part
from apps.clusters.domain.node_offers import NodeOffers
from apps.clusters.domain.pods.kube_objects import main_resource
from apps.clusters.domain.pods.ledger import ClaimedDevice, PodRecord
from apps.clusters.domain.tiers import (
    GpuSharing,
    gpu_model,
    tier_before_binding,
    tier_of,
    unit_weight,
)
from apps.clusters.models import TierRule


@dataclass(frozen=True, slots=True)
class Assigned:
    """What a pod counts as: its tier, the GPU model (None: not known) and its GPU-equivalents."""

    tier: str
    gpu_model: str | None
    gpu_equivalents: float


@dataclass(frozen=True)
class TierHistory:
    """Every rule there ever was: (valid from, valid to, place, rule); times in Unix seconds."""

    rules: tuple[tuple[float, float, int, domain.TierRule], ...]

    @classmethod
    def load(cls) -> "TierHistory":
        """Read the catalog's rules. One query."""
        rows = TierRule.objects.select_related("tier").order_by("valid_from", "position", "pk")
        return cls(rules=tuple(_rule(row) for row in rows))

    def at(self, seconds: float) -> list[domain.TierRule]:
        """Return the rules valid at that time, in catalog order."""
        valid = [r for r in self.rules if r[0] <= seconds < r[1]]
        return [rule for _, _, _, rule in sorted(valid, key=lambda r: (r[2], r[3].tier))]

    def within(self, start: float, end: float) -> list[domain.TierRule]:
        """Return the rules valid at any time from `start` to `end`."""
        return [rule for since, until, _, rule in self.rules if since < end and until > start]

    @cached_property
    def resources(self) -> frozenset[str]:
        """Every resource that a rule names or named."""
        return frozenset(name for _, _, _, rule in self.rules for name in rule.resources)

    @cached_property
    def label_keys(self) -> frozenset[str]:
        """Every node label that a rule selects or selected on."""
        return frozenset(key for _, _, _, rule in self.rules for key in rule.node_selector)

    @cached_property
    def device_classes(self) -> frozenset[str]:
        """Every device class that a rule names or named."""
        return frozenset(name for _, _, _, rule in self.rules for name in rule.device_classes)

    def assign(
        self,
        pod: PodRecord,
        labels: Mapping[str, str] | None,
        now: float,
        devices: Sequence[ClaimedDevice] = (),
        places: NodeOffers | None = None,
    ) -> Assigned:
        """Return what a pod counts as, by the rules valid when it was bound (until then: `now`).

        `labels` are those of its node; None while it has none, or none that is known. `devices`
        are what its claims were given, `places` the nodes it may come to.
        """
        rules = self.at(now if pod.bound is None else pod.bound)
        return assign(pod, labels, rules, devices, places)


def assign(
    pod: PodRecord,
    labels: Mapping[str, str] | None,
    rules: list[domain.TierRule],
    devices: Sequence[ClaimedDevice] = (),
    places: NodeOffers | None = None,
) -> Assigned:
    """Return what a pod counts as under `rules`; the rest as in TierHistory.assign.

    Devices tell their model and weight themselves, which no label of the node does.
    """
    resource, _ = main_resource(pod.requests)
    if pod.bound is None or labels is None:
        tier = tier_before_binding(resource, pod.node_selector, rules)
        nodes = NodeOffers() if places is None else places

        def weigh(resource: str) -> float:
            return nodes.weight(resource, pod.node_selector, tier, rules)

        return Assigned(tier, None, _weigh(pod, weigh, devices))
    tier = tier_of(resource, labels, rules)
    models = {device.model for device in devices if device.device_class == resource} - {""}
    model = models.pop() if len(models) == 1 else gpu_model(labels)
    return Assigned(tier, model, _weigh(pod, partial(_weight_on, labels), devices))


def _weight_on(labels: Mapping[str, str], resource: str) -> float:
    return unit_weight(resource, labels)


def _weigh(
    pod: PodRecord, weigh: Callable[[str], float], devices: Sequence[ClaimedDevice]
) -> float:
    given = {device.device_class for device in devices}
    return sum(mig_part(d.profile, d.model) * d.share for d in devices) + sum(
        units * weigh(resource) for resource, units in pod.requests.items() if resource not in given
    )


def _rule(row: TierRule) -> tuple[float, float, int, domain.TierRule]:
    rule = domain.TierRule(
        tier=row.tier.name,
        sharing=GpuSharing(row.sharing),
        resources=tuple(row.resources),
        device_classes=tuple(row.device_classes),
        node_selector=dict(row.node_selector),
    )
    end = float("inf") if row.valid_to is None else row.valid_to.timestamp()
    return row.valid_from.timestamp(), end, row.position, rule
