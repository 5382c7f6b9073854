"""What a catalog changes: the rows that it asks for, held against those that are loaded."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter
from typing import Any, TypeVar

from apps.accounts import services as accounts
from apps.accounts.services import LeadRecord, TeamRecord
from apps.clusters import services as clusters
from apps.clusters.domain.tiers import model_key
from apps.clusters.services import ClaimRecord, ClusterRecord, ReportRecord, RuleRecord, TierRecord
from apps.costs import services as costs
from apps.costs.services import PriceRecord
from apps.operations.domain.difference import CatalogDifference
from apps.operations.domain.instants import BEGINNING
from apps.operations.domain.positions import positions
from apps.operations.domain.schema import Catalog
from apps.operations.domain.source_positions import Path
from apps.operations.domain.timeline import (
    AnyRecord,
    DatedRecord,
    DesiredRow,
    RecordKind,
    TimelinePlan,
    plan_current,
    plan_dated,
)
from apps.operations.services import desired_rows
from apps.quotas import services as quotas
from apps.quotas.services import BudgetRecord, EntitlementRecord

_QUIET = frozenset({"active", "lead", "position"})

_Retirable = TypeVar("_Retirable", ClusterRecord, TeamRecord, TierRecord)


def _named(what: str, name: str, *columns: str) -> RecordKind[AnyRecord]:
    """Return a kind whose records are told apart, and called, by the field `name`."""
    field = attrgetter(name)
    return RecordKind(what, key=field, name=field, columns=columns, quiet=_QUIET)


TEAM: RecordKind[TeamRecord] = _named("team", "name", "cost_center", "active")
CLUSTER: RecordKind[ClusterRecord] = _named("cluster", "name", "prometheus", "kubernetes", "active")
TIER: RecordKind[TierRecord] = _named("tier", "name", "position", "promise", "active")
CLAIM: RecordKind[ClaimRecord] = _named("namespace claim", "pattern", "team", "position")
RULE: RecordKind[RuleRecord] = _named(
    "tier rule",
    "tier",
    *("position", "sharing", "resources", "device_classes", "node_selector", "allowed_teams"),
)
LEAD: RecordKind[LeadRecord] = RecordKind(
    "lead",
    key=lambda r: (r.team, r.username),
    name=lambda r: f"{r.username} of {r.team}",
    columns=("lead",),
    quiet=_QUIET,
)
ENTITLEMENT: RecordKind[EntitlementRecord] = RecordKind(
    "entitlement",
    key=lambda r: (r.team, r.tier),
    name=lambda r: f"{r.team} × {r.tier}",
    columns=("gpus", "weight"),
)
BUDGET: RecordKind[BudgetRecord] = RecordKind(
    "budget",
    key=lambda r: (r.team, r.period, r.money is None),
    name=lambda r: f"{r.team} per {r.period} in {'GPU-hours' if r.money is None else 'money'}",
    columns=("gpu_hours", "money", "currency"),
)
# A price is told by the day from which it holds, so what it says of that day may be put right.
PRICE: RecordKind[PriceRecord] = RecordKind(
    "price",
    key=lambda r: (r.cluster, r.tier, model_key(r.gpu_model), r.capacity_type),
    name=lambda r: " ".join(filter(None, (r.gpu_model, r.capacity_type, r.cluster, r.tier))),
    columns=(
        *("per_gpu_hour", "currency", "discount", "kind", "source", "example"),
        *("per_kwh", "pue"),
    ),
    quiet=frozenset({"discount", "kind", "example", "pue"}),
    corrects=True,
)
REPORT: RecordKind[ReportRecord] = RecordKind(
    "report",
    key=lambda _: None,
    name=lambda _: "settings",
    columns=("time_zone", "currency"),
)


@dataclass(frozen=True, slots=True)
class Loaded:
    """All rows that catalogs have made so far."""

    clusters: list[ClusterRecord]
    tiers: list[TierRecord]
    rules: list[RuleRecord]
    teams: list[TeamRecord]
    leads: list[LeadRecord]
    claims: list[ClaimRecord]
    entitlements: list[EntitlementRecord]
    budgets: list[BudgetRecord]
    prices: list[PriceRecord]
    report: list[ReportRecord]

    @property
    def is_first(self) -> bool:
        """Whether no catalog ever said anything that holds in time."""
        return not (self.rules or self.claims or self.entitlements or self.budgets or self.prices)


@dataclass(frozen=True, slots=True)
class Plans:
    """What a load stores, table by table."""

    clusters: TimelinePlan[ClusterRecord]
    tiers: TimelinePlan[TierRecord]
    rules: TimelinePlan[RuleRecord]
    teams: TimelinePlan[TeamRecord]
    leads: TimelinePlan[LeadRecord]
    claims: TimelinePlan[ClaimRecord]
    entitlements: TimelinePlan[EntitlementRecord]
    budgets: TimelinePlan[BudgetRecord]
    prices: TimelinePlan[PriceRecord]
    report: TimelinePlan[ReportRecord]

    def difference(self) -> CatalogDifference:
        """Return all changes in the order of the catalog's sections."""
        return CatalogDifference(tuple(change for plan in self._all() for change in plan.changes))

    def refused(self) -> list[tuple[Path, str]]:
        """Return where the catalog would rewrite what is in force, with the reasons."""
        return [refusal for plan in self._all() for refusal in plan.refused]

    def store(self) -> None:
        """Write everything; the caller holds the transaction."""
        accounts.write_teams(self.teams.saved)
        accounts.write_leads(self.leads.saved)
        clusters.write_clusters(self.clusters.saved)
        clusters.write_tiers(self.tiers.saved)
        clusters.write_rules(self.rules.saved, withdrawn=self.rules.withdrawn)
        clusters.write_claims(self.claims.saved, withdrawn=self.claims.withdrawn)
        quotas.write_entitlements(self.entitlements.saved, withdrawn=self.entitlements.withdrawn)
        quotas.write_budgets(self.budgets.saved, withdrawn=self.budgets.withdrawn)
        costs.write_prices(self.prices.saved, withdrawn=self.prices.withdrawn)
        clusters.write_report(self.report.saved)

    def _all(self) -> list[TimelinePlan[Any]]:
        return [getattr(self, name) for name in self.__slots__]


def loaded() -> Loaded:
    """Return what is loaded. Ten queries."""
    return Loaded(
        clusters=clusters.loaded_clusters(),
        tiers=clusters.loaded_tiers(),
        rules=clusters.loaded_rules(),
        teams=accounts.loaded_teams(),
        leads=accounts.loaded_leads(),
        claims=clusters.loaded_claims(),
        entitlements=quotas.loaded_entitlements(),
        budgets=quotas.loaded_budgets(),
        prices=costs.loaded_prices(),
        report=clusters.loaded_report(),
    )


def plan_catalog(catalog: Catalog, held: Loaded, *, now: datetime) -> Plans:
    """Return what loading `catalog` at `now` stores, given what is loaded. No queries."""
    # The first catalog of a portal describes the history that is read in after it.
    opening = BEGINNING if held.is_first else now

    def dated(
        rows: list[DatedRecord],
        asked: Iterable[DesiredRow[DatedRecord]],
        kind: RecordKind[DatedRecord],
    ) -> TimelinePlan[DatedRecord]:
        return plan_dated(rows, asked, kind, now=now, opening=opening)

    tier_places = positions([t.name for t in catalog.tiers], _places(held.rules, RULE))
    patterns = [pattern for team in catalog.teams for pattern in team.namespaces]
    claims = desired_rows.claims(catalog, positions(patterns, _places(held.claims, CLAIM)))
    tiers = desired_rows.tiers(catalog, tier_places)
    return Plans(
        clusters=plan_current(
            held.clusters, desired_rows.clusters(catalog), CLUSTER, retire=_retired
        ),
        tiers=plan_current(held.tiers, tiers, TIER, retire=_retired),
        rules=dated(held.rules, desired_rows.rules(catalog, tier_places), RULE),
        teams=plan_current(held.teams, desired_rows.teams(catalog), TEAM, retire=_retired),
        leads=plan_current(
            held.leads, desired_rows.leads(catalog), LEAD, retire=lambda r: replace(r, lead=False)
        ),
        claims=dated(held.claims, claims, CLAIM),
        entitlements=dated(held.entitlements, desired_rows.entitlements(catalog), ENTITLEMENT),
        budgets=dated(held.budgets, desired_rows.budgets(catalog), BUDGET),
        prices=dated(held.prices, desired_rows.prices(catalog), PRICE),
        report=plan_current(held.report, desired_rows.report(catalog), REPORT, retire=lambda r: r),
    )


def _retired(record: _Retirable) -> _Retirable:
    return replace(record, active=False)


def _places(rows: Iterable[RuleRecord | ClaimRecord], kind: RecordKind[Any]) -> dict[str, int]:
    """Return the positions of the rows that hold on, by name."""
    return {kind.name(row): row.position for row in rows if row.valid_to is None}
