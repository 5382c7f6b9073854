"""The catalog of clusters, tiers and namespaces: writing it, and its rules at any time."""

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import cache, cached_property, partial
from math import inf
from typing import Any

from django.db.models import FilteredRelation, Q
from msgspec import Struct, field

from apps.accounts.domain.rows import CatalogRecord, DatedRecord, row_from
from apps.accounts.models import Team
from apps.accounts.services import team_ids
from apps.clusters.domain import tiers as domain
from apps.clusters.domain.devices.mig import mig_part
from apps.clusters.domain.names import NamespacePattern, namespace_team
from apps.clusters.domain.pods.ledger import ClaimedDevice, PodRecord
from apps.clusters.domain.resources import main_resource
from apps.clusters.domain.tiers import (
    GpuSharing,
    NodeOffers,
    gpu_model,
    tier_before_binding,
    tier_of,
    unit_weight,
)
from apps.clusters.models import (
    Cluster,
    NamespaceTeam,
    ReportSettings,
    Tier,
    TierRule,
    holds_at,
)
from apps.clusters.selectors import tier_catalog

# Built-in tiers come after all that a catalog can number.
_BUILTIN_POSITION = 2_000_000_000


class ClusterRecord(CatalogRecord, frozen=True):
    """A cluster of the catalog with its connections; `kubernetes` None: metrics only.

    With `slurm` it is known by its job log, and `prometheus` is empty.
    """

    name: str
    prometheus: Mapping[str, Any]
    kubernetes: Mapping[str, Any] | None = None
    active: bool = True
    slurm: Mapping[str, Any] | None = None


class TierRecord(CatalogRecord, frozen=True):
    """A tier's name, place and promise."""

    name: str
    position: int
    promise: str = ""
    active: bool = True


class RuleRecord(DatedRecord, frozen=True):
    """What a tier matches in a span; `valid_from` None: not decided yet."""

    tier: str
    position: int
    sharing: str
    resources: tuple[str, ...]
    device_classes: tuple[str, ...]
    node_selector: Mapping[str, str]
    allowed_teams: tuple[str, ...]


class NamespaceTeamRecord(DatedRecord, frozen=True):
    """A namespace pattern whose namespaces belong to a team in a span."""

    pattern: str
    team: str
    position: int


class ReportRecord(CatalogRecord, frozen=True):
    """The report's time zone and currency, and its exchange rates as `ReportSettings` has them."""

    time_zone: str = "UTC"
    currency: str = "USD"
    exchange_rates: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)


def ensure_builtin() -> None:
    """Create the tiers `unmatched` and `undetermined` where missing. One query when there."""
    there = set(Tier.objects.filter(name__in=domain.BUILTIN_TIERS).values_list("name", flat=True))
    missing = [
        Tier(name=name, position=_BUILTIN_POSITION + place, builtin=True)
        for place, name in enumerate(domain.BUILTIN_TIERS)
        if name not in there
    ]
    if missing:
        # Two processes may start at once with an empty database.
        Tier.objects.bulk_create(missing, ignore_conflicts=True)


# ---------------------------------------------------------------- reads for the facts


def tier_ids() -> dict[str, int]:
    """Return every tier's id by name, built-in ones included. One query."""
    return dict(Tier.objects.order_by("name").values_list("name", "pk"))


def cluster_ids() -> dict[str, int]:
    """Return every cluster's id by name. One query."""
    return dict(Cluster.objects.order_by("name").values_list("name", "pk"))


def tier_rules_at(at: datetime) -> list[domain.TierRule]:
    """Return the rules in force at `at`, in the order in which they are tried. One query."""
    rows = TierRule.objects.filter(holds_at(at)).select_related("tier")
    return [_rule(row) for row in rows.order_by("position", "pk")]


def team_finder_at(at: datetime) -> Callable[[str], int]:
    """Return what tells the id of the team that a namespace belonged to at `at`. One query.

    The very name comes first, then patterns in catalog order; `unassigned` is the team
    of all others. Raises Team.DoesNotExist when that team is missing (`ensure_builtin` makes it).
    """
    patterns = FilteredRelation("namespace_teams", condition=holds_at(at, "namespace_teams__"))
    teams = Team.objects.annotate(rule=patterns)
    rows = teams.filter(Q(name=domain.UNASSIGNED) | Q(rule__isnull=False))
    found: list[NamespacePattern] = []
    unassigned: int | None = None
    for row in rows.order_by("rule__position", "rule__pk", "pk").values(
        "pk", "name", "rule__pattern"
    ):
        if row["name"] == domain.UNASSIGNED:
            unassigned = row["pk"]
        if row["rule__pattern"] is not None:
            found.append(NamespacePattern(row["pk"], row["rule__pattern"]))
    if unassigned is None:
        raise Team.DoesNotExist(f"the built-in team {domain.UNASSIGNED} is missing")
    # Asked once for every pod of an hour, of which many are in one namespace.
    return cache(namespace_team(found, otherwise=unassigned))


# ---------------------------------------------------------------- what is loaded


def loaded_clusters() -> list[ClusterRecord]:
    """Return all clusters by name, inactive ones too. One query."""
    return [row_from(ClusterRecord, row) for row in Cluster.objects.order_by("name")]


def loaded_tiers() -> list[TierRecord]:
    """Return all tiers that catalogs have named, inactive ones too. One query."""
    rows = Tier.objects.filter(builtin=False).order_by("position", "name")
    return [row_from(TierRecord, row) for row in rows]


def loaded_rules() -> list[RuleRecord]:
    """Return all tier rules there ever were. One query."""
    rows = TierRule.objects.select_related("tier").order_by("valid_from", "position", "pk")
    return [
        row_from(
            RuleRecord,
            row,
            tier=row.tier.name,
            resources=tuple(row.resources),
            device_classes=tuple(row.device_classes),
            allowed_teams=tuple(row.allowed_teams),
        )
        for row in rows
    ]


def loaded_namespace_teams() -> list[NamespaceTeamRecord]:
    """Return all patterns of namespaces there ever were, with their teams. One query."""
    rows = NamespaceTeam.objects.select_related("team").order_by("valid_from", "position", "pk")
    return [row_from(NamespaceTeamRecord, row, team=row.team.name) for row in rows]


def loaded_report() -> list[ReportRecord]:
    """Return the report's settings in a list, empty before the first load. One query."""
    rows = ReportSettings.objects.order_by("pk")[:1]
    return [row_from(ReportRecord, row, exchange_rates=row.exchange_rates or {}) for row in rows]


# ---------------------------------------------------------------- writes


def span(record: DatedRecord) -> dict[str, Any]:
    """Return the span's columns. Raises ValueError where the start is not decided yet."""
    if record.valid_from is None:
        raise ValueError(f"no start was decided for {record}")
    return {"valid_from": record.valid_from, "valid_to": record.valid_to}


def write_valid(
    model: type[Any],
    records: Sequence[DatedRecord],
    *,
    columns: Sequence[str],
    names: Mapping[str, Callable[[], Mapping[str, int]]],
    withdrawn: Collection[int],
) -> None:
    """Delete the `withdrawn`, update the rows of records that have a pk, and insert the others.

    `columns` are copied from the records. `names` are those columns that name a row of another
    table (empty: none), each with what tells the ids of that table. Deleting comes first: an
    updated or new row may take the place of one that goes.
    """
    if not records and not withdrawn:
        return
    ids = {column: known() for column, known in names.items()}
    rows = [
        model(
            pk=record.pk,
            **{column: getattr(record, column) for column in columns},
            **{f"{column}_id": _id_of(getattr(record, column), ids[column]) for column in names},
            **span(record),
        )
        for record in records
    ]
    if withdrawn:
        model._default_manager.filter(pk__in=withdrawn).delete()
    written = [*columns, *names, "valid_from", "valid_to"]
    model._default_manager.bulk_update([r for r in rows if r.pk], written, batch_size=200)
    model._default_manager.bulk_create([row for row in rows if not row.pk])


def _id_of(name: str, ids: Mapping[str, int]) -> int | None:
    return ids[name] if name else None


def write_clusters(records: Sequence[ClusterRecord]) -> None:
    """Insert the clusters without pk and update the others."""
    rows = [
        Cluster(
            pk=r.pk,
            name=r.name,
            prometheus=dict(r.prometheus),
            kubernetes=None if r.kubernetes is None else dict(r.kubernetes),
            slurm=None if r.slurm is None else dict(r.slurm),
            active=r.active,
        )
        for r in records
    ]
    columns = ["prometheus", "kubernetes", "slurm", "active"]
    Cluster.objects.bulk_update([row for row in rows if row.pk], columns)
    Cluster.objects.bulk_create([row for row in rows if not row.pk])


def write_tiers(records: Sequence[TierRecord]) -> None:
    """Insert the tiers without pk and update the others."""
    rows = [
        Tier(pk=r.pk, name=r.name, position=r.position, promise=r.promise, active=r.active)
        for r in records
    ]
    Tier.objects.bulk_update([row for row in rows if row.pk], ["position", "promise", "active"])
    Tier.objects.bulk_create([row for row in rows if not row.pk])


def write_rules(records: Sequence[RuleRecord], *, withdrawn: Collection[int]) -> None:
    """Store tier rules as `write_valid` says."""
    columns = (
        *("position", "sharing", "resources", "device_classes"),
        *("node_selector", "allowed_teams"),
    )
    names = {"tier": tier_ids}
    write_valid(TierRule, records, columns=columns, names=names, withdrawn=withdrawn)


def write_namespace_teams(
    records: Sequence[NamespaceTeamRecord], *, withdrawn: Collection[int]
) -> None:
    """Store patterns of namespaces as `write_valid` says."""
    columns, names = ("position", "pattern"), {"team": team_ids}
    write_valid(NamespaceTeam, records, columns=columns, names=names, withdrawn=withdrawn)


def write_report(records: Sequence[ReportRecord]) -> None:
    """Store the one row of report settings."""
    for r in records:
        ReportSettings(
            pk=r.pk,
            time_zone=r.time_zone,
            currency=r.currency,
            exchange_rates=r.exchange_rates,
        ).save()


class TierAssignment(Struct, frozen=True):
    """What a pod counts as: its tier, the GPU model (None: not known) and its GPU-equivalents."""

    tier: str
    gpu_model: str | None
    gpu_equivalents: float


class TierHistory(Struct, frozen=True, dict=True):
    """Every rule there ever was: (valid from, valid to, place, rule); times in Unix seconds."""

    rules: tuple[tuple[float, float, int, domain.TierRule], ...]

    @classmethod
    def load(cls) -> "TierHistory":
        """Read the catalog's rules. One query."""
        rows = sorted(tier_catalog().rules, key=lambda one: (one.valid_from, one.position, one.pk))
        return cls(
            tuple(
                (
                    row.valid_from.timestamp(),
                    inf if row.valid_to is None else row.valid_to.timestamp(),
                    row.position,
                    _rule(row),
                )
                for row in rows
            )
        )

    def at(self, seconds: float) -> list[domain.TierRule]:
        """Return the rules valid at that time, in catalog order."""
        # Each pod of a snapshot needs them, and catalogs change now and then.
        epoch = bisect_right(self._changes, seconds)
        if epoch not in self._epochs:
            # Tried in the order of the catalog, not in that of their age.
            valid = [r for r in self.rules if r[0] <= seconds < r[1]]
            ordered = sorted(valid, key=lambda r: (r[2], r[3].tier))
            self._epochs[epoch] = [rule for _, _, _, rule in ordered]
        return self._epochs[epoch]

    @cached_property
    def _changes(self) -> list[float]:
        """Times at which a rule began or ended."""
        return sorted({at for since, until, _, _ in self.rules for at in (since, until)})

    @cached_property
    def _epochs(self) -> dict[int, list[domain.TierRule]]:
        """What is known of the times between these changes, by how many there were before."""
        return {}

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
    ) -> TierAssignment:
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
) -> TierAssignment:
    """Return what a pod counts as under `rules`; the rest as in TierHistory.assign.

    Devices tell their model and weight themselves, which no label of the node does.
    """
    resource, _ = main_resource(pod.requests)
    if pod.bound is None or labels is None:
        tier = tier_before_binding(resource, pod.node_selector, rules)
        nodes = NodeOffers() if places is None else places

        def weigh(resource: str) -> float:
            return nodes.weight(resource, pod.node_selector, tier, rules)

        return TierAssignment(tier, None, _weigh(pod, weigh, devices))
    tier = tier_of(resource, labels, rules)
    models = {device.model for device in devices if device.device_class == resource} - {""}
    # A claim may hold several models: the node's label then stands for the whole pod.
    model = models.pop() if len(models) == 1 else gpu_model(labels)
    return TierAssignment(tier, model, _weigh(pod, partial(_weight_on, labels), devices))


def _weight_on(labels: Mapping[str, str], resource: str) -> float:
    return unit_weight(resource, labels)


def _weigh(
    pod: PodRecord, weigh: Callable[[str], float], devices: Sequence[ClaimedDevice]
) -> float:
    # A class whose devices are known weighs what they are; other requests by the unit.
    given = {device.device_class for device in devices}
    return sum(mig_part(d.profile, d.model) * d.share for d in devices) + sum(
        units * weigh(resource) for resource, units in pod.requests.items() if resource not in given
    )


def _rule(row: TierRule) -> domain.TierRule:
    return domain.TierRule(
        tier=row.tier.name,
        sharing=GpuSharing(row.sharing),
        resources=tuple(row.resources),
        device_classes=tuple(row.device_classes),
        node_selector=dict(row.node_selector),
    )
