"""Loading a catalog: read it, plan against what is loaded, and store, in one transaction."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, TypeVar

from django.db import IntegrityError, OperationalError, transaction
from msgspec import Struct

from apps.accounts import services as accounts
from apps.accounts.domain.structs import replace
from apps.accounts.services import LeadRecord, TeamRecord
from apps.clusters import services as clusters
from apps.clusters.domain.tiers import model_key
from apps.clusters.services import (
    ClusterRecord,
    NamespaceTeamRecord,
    ReportRecord,
    RuleRecord,
    TierRecord,
)
from apps.costs import services as costs
from apps.costs.services import EnergyFactorRecord, PriceRecord
from apps.fairness import services as fairness
from apps.fairness.services import ObjectiveRecord
from apps.operations.domain.proposals import (
    ProposalKind,
    ProposalState,
    ProposalTarget,
    value_in,
)
from apps.operations.domain.schema import (
    Catalog,
)
from apps.operations.domain.source_positions import BEGINNING, CatalogError, Path, Problems
from apps.operations.domain.timeline import (
    AnyDated,
    AnyRecord,
    CatalogDifference,
    DesiredRow,
    RecordKind,
    TimelinePlan,
    plan_current,
    plan_dated,
    positions,
)
from apps.operations.models import CatalogProposal
from apps.operations.services.catalog.desired_rows import (
    desired_budgets,
    desired_clusters,
    desired_entitlements,
    desired_leads,
    desired_namespace_teams,
    desired_objectives,
    desired_prices,
    desired_report,
    desired_rules,
    desired_serving_objectives,
    desired_teams,
    desired_tiers,
    instant_reader,
    serving_objective_record,
)
from apps.operations.services.catalog.energy_factors import (
    ENERGY_FACTOR,
    CarbonFiles,
    desired_energy_factors,
    held_carbon_files,
    read_carbon_files,
)
from apps.operations.services.catalog.yaml_reader import read_catalog
from apps.quotas import services as quotas
from apps.quotas.services import BudgetRecord, EntitlementRecord
from apps.usage import services as usage
from apps.usage.selectors import data_ready
from apps.usage.services import ServingObjectiveRecord

_QUIET = frozenset({"active", "lead", "position"})

_Retirable = TypeVar("_Retirable", ClusterRecord, TeamRecord, TierRecord)


def _named(what: str, name: str, *columns: str) -> RecordKind[AnyRecord]:
    """Return a kind whose records are told apart, and called, by the field `name`."""
    field = attrgetter(name)
    return RecordKind(what, key=field, name=field, columns=columns, quiet=_QUIET)


TEAM: RecordKind[TeamRecord] = _named("team", "name", "cost_center", "active")
CLUSTER: RecordKind[ClusterRecord] = _named(
    "cluster", "name", "prometheus", "kubernetes", "slurm", "active"
)
TIER: RecordKind[TierRecord] = _named("tier", "name", "position", "promise", "active")
NAMESPACE_TEAM: RecordKind[NamespaceTeamRecord] = _named(
    "namespace pattern", "pattern", "team", "position"
)
RULE: RecordKind[RuleRecord] = _named(
    "tier rule",
    "tier",
    *("position", "sharing", "resources", "device_classes", "node_selector", "allowed_teams"),
)
OBJECTIVE: RecordKind[ObjectiveRecord] = _named(
    "queue-time objective", "tier", "p95_seconds", "days"
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
    # A team may have one in GPU-hours and one in money for the same period.
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
        *("confirmed_by", "confirmed_on", "per_kwh", "pue"),
    ),
    quiet=frozenset({"discount", "kind", "example", "confirmed_by", "confirmed_on", "pue"}),
    corrects=True,
)
SERVING_OBJECTIVE: RecordKind[ServingObjectiveRecord] = _named(
    "serving objective", "match", "position", "ttft_ms"
)
REPORT: RecordKind[ReportRecord] = RecordKind(
    "report",
    key=lambda _: None,
    name=lambda _: "settings",
    columns=("time_zone", "currency", "exchange_rates"),
)


class Loaded(Struct, frozen=True):
    """All rows that catalogs have made so far."""

    clusters: list[ClusterRecord]
    tiers: list[TierRecord]
    rules: list[RuleRecord]
    objectives: list[ObjectiveRecord]
    teams: list[TeamRecord]
    leads: list[LeadRecord]
    namespace_teams: list[NamespaceTeamRecord]
    entitlements: list[EntitlementRecord]
    budgets: list[BudgetRecord]
    prices: list[PriceRecord]
    energy_factors: list[EnergyFactorRecord]
    serving_objectives: list[ServingObjectiveRecord]
    report: list[ReportRecord]

    @property
    def is_first(self) -> bool:
        """Whether no catalog ever said anything that holds in time."""
        return not (
            self.rules
            or self.namespace_teams
            or self.entitlements
            or self.budgets
            or self.prices
            or self.serving_objectives
        )


class Plans(Struct, frozen=True):
    """What a load stores, table by table."""

    clusters: TimelinePlan[ClusterRecord]
    tiers: TimelinePlan[TierRecord]
    rules: TimelinePlan[RuleRecord]
    objectives: TimelinePlan[ObjectiveRecord]
    teams: TimelinePlan[TeamRecord]
    leads: TimelinePlan[LeadRecord]
    namespace_teams: TimelinePlan[NamespaceTeamRecord]
    entitlements: TimelinePlan[EntitlementRecord]
    budgets: TimelinePlan[BudgetRecord]
    prices: TimelinePlan[PriceRecord]
    energy_factors: TimelinePlan[EnergyFactorRecord]
    serving_objectives: TimelinePlan[ServingObjectiveRecord]
    report: TimelinePlan[ReportRecord]

    def difference(self) -> CatalogDifference:
        """Return all changes in the order of the catalog's sections."""
        return CatalogDifference(tuple(change for plan in self._all() for change in plan.changes))

    def refused(self) -> list[tuple[Path, str]]:
        """Return where the catalog would rewrite what is in force, with the reasons."""
        return [refusal for plan in self._all() for refusal in plan.refused]

    def store(self) -> None:
        """Write everything; the caller holds the transaction."""
        # In this order: what comes later names teams, clusters and tiers by the ids of their rows.
        accounts.write_teams(self.teams.saved)
        accounts.write_leads(self.leads.saved)
        clusters.write_clusters(self.clusters.saved)
        clusters.write_tiers(self.tiers.saved)
        clusters.write_rules(self.rules.saved, withdrawn=self.rules.withdrawn)
        fairness.write_objectives(self.objectives.saved, withdrawn=self.objectives.withdrawn)
        clusters.write_namespace_teams(
            self.namespace_teams.saved, withdrawn=self.namespace_teams.withdrawn
        )
        quotas.write_entitlements(self.entitlements.saved, withdrawn=self.entitlements.withdrawn)
        quotas.write_budgets(self.budgets.saved, withdrawn=self.budgets.withdrawn)
        costs.write_prices(self.prices.saved, withdrawn=self.prices.withdrawn)
        costs.write_energy_factors(
            self.energy_factors.saved, withdrawn=self.energy_factors.withdrawn
        )
        usage.write_serving_objectives(
            self.serving_objectives.saved, withdrawn=self.serving_objectives.withdrawn
        )
        clusters.write_report(self.report.saved)

    def _all(self) -> list[TimelinePlan[Any]]:
        # The fields in their order, which is that of the catalog's sections.
        return [getattr(self, name) for name in self.__struct_fields__]


def loaded() -> Loaded:
    """Return what is loaded. Thirteen queries."""
    return Loaded(
        clusters=clusters.loaded_clusters(),
        tiers=clusters.loaded_tiers(),
        rules=clusters.loaded_rules(),
        objectives=fairness.loaded_objectives(),
        teams=accounts.loaded_teams(),
        leads=accounts.loaded_leads(),
        namespace_teams=clusters.loaded_namespace_teams(),
        entitlements=quotas.loaded_entitlements(),
        budgets=quotas.loaded_budgets(),
        prices=costs.loaded_prices(),
        energy_factors=costs.loaded_energy_factors(),
        serving_objectives=usage.loaded_serving_objectives(),
        report=clusters.loaded_report(),
    )


def plan_catalog(
    catalog: Catalog, held: Loaded, *, now: datetime, files: CarbonFiles | None = None
) -> Plans:
    """Return what loading `catalog` at `now` stores, given what is loaded. No queries.

    `files` are those of carbon factors; without them what was read last stays.
    """
    if files is None:
        files = held_carbon_files(held.energy_factors)
    # The first catalog of a portal describes the history that is read in after it.
    opening = BEGINNING if held.is_first else now

    def dated(
        rows: list[AnyDated],
        asked: Iterable[DesiredRow[AnyDated]],
        kind: RecordKind[AnyDated],
    ) -> TimelinePlan[AnyDated]:
        return plan_dated(rows, asked, kind, now=now, opening=opening)

    tier_places = positions([t.name for t in catalog.tiers], _places(held.rules, RULE))
    patterns = [pattern for team in catalog.teams for pattern in team.namespaces]
    namespace_teams = desired_namespace_teams(
        catalog, positions(patterns, _places(held.namespace_teams, NAMESPACE_TEAM))
    )
    tiers = desired_tiers(catalog, tier_places)
    objective_names = [serving_objective_record(one).match for one in catalog.serving_objectives]
    serving_objectives = desired_serving_objectives(
        catalog,
        positions(objective_names, _places(held.serving_objectives, SERVING_OBJECTIVE)),
    )
    return Plans(
        clusters=plan_current(held.clusters, desired_clusters(catalog), CLUSTER, retire=_retired),
        tiers=plan_current(held.tiers, tiers, TIER, retire=_retired),
        rules=dated(held.rules, desired_rules(catalog, tier_places), RULE),
        objectives=dated(held.objectives, desired_objectives(catalog), OBJECTIVE),
        teams=plan_current(held.teams, desired_teams(catalog), TEAM, retire=_retired),
        leads=plan_current(
            held.leads, desired_leads(catalog), LEAD, retire=lambda r: replace(r, lead=False)
        ),
        namespace_teams=dated(held.namespace_teams, namespace_teams, NAMESPACE_TEAM),
        entitlements=dated(held.entitlements, desired_entitlements(catalog), ENTITLEMENT),
        budgets=dated(held.budgets, desired_budgets(catalog), BUDGET),
        prices=dated(held.prices, desired_prices(catalog), PRICE),
        energy_factors=dated(
            held.energy_factors,
            desired_energy_factors(catalog, files, instant_reader(catalog)),
            ENERGY_FACTOR,
        ),
        serving_objectives=dated(held.serving_objectives, serving_objectives, SERVING_OBJECTIVE),
        # The one row of settings is never retired.
        report=plan_current(held.report, desired_report(catalog), REPORT, retire=lambda r: r),
    )


def _retired(record: _Retirable) -> _Retirable:
    return replace(record, active=False)


def _places(
    rows: Iterable[RuleRecord | NamespaceTeamRecord | ServingObjectiveRecord],
    kind: RecordKind[Any],
) -> dict[str, int]:
    """Return the positions of the rows that hold on, by name."""
    return {kind.name(row): row.position for row in rows if row.valid_to is None}


class CatalogNotStored(Exception):
    """The catalog is right, but the database did not take it; nothing was changed."""


def ensure_builtin() -> None:
    """Create the tiers and the team that always exist, where they are missing."""
    accounts.ensure_builtin()
    clusters.ensure_builtin()


def load_catalog(
    text: str,
    filename: str,
    *,
    now: datetime,
    dry_run: bool = False,
    undo_approved: bool = False,
) -> CatalogDifference:
    """Make the portal's catalog what `text` says; return what that changed, or would change.

    `filename` stands in errors only. `now` (aware) is when changes take effect that name no
    `valid_from`. The same text again changes nothing. One transaction; loads wait for each other.
    A text that says something else than what was approved on pages since the last load is wrong,
    unless `undo_approved`: its author did not know of the approval.
    Raises CatalogError with everything that is wrong, and CatalogNotStored when another process
    got in the way; then nothing is changed.
    """
    catalog, problems = read_catalog(text, filename, now=now)
    files = read_carbon_files(catalog, filename, problems)
    approved = _approved_since()
    if not undo_approved:
        _note_undone(catalog, approved, problems)
    if dry_run:
        # Without the lock, as nothing is stored; the load itself checks again.
        return _checked(catalog, problems, filename, loaded(), now, files).difference()
    # Only these: what is approved from here on is in no file yet.
    known = [row.pk for row in approved]
    return _stored(catalog, problems, filename, now, files=files, known=known)


def load_changed(text: str, *, now: datetime) -> CatalogDifference:
    """Do the same for a catalog that was exported and changed here, which no file has yet."""
    catalog, problems = read_catalog(text, _EXPORTED, now=now)
    return _stored(catalog, problems, _EXPORTED, now)


def plan_changed(text: str, held: Loaded, *, now: datetime) -> CatalogDifference:
    """Return what loading such a catalog would change now. Raises CatalogError."""
    catalog, problems = read_catalog(text, _EXPORTED, now=now)
    return _checked(catalog, problems, _EXPORTED, held, now).difference()


_EXPORTED = "the exported catalog"


def _stored(
    catalog: Catalog,
    problems: Problems,
    filename: str,
    now: datetime,
    *,
    files: CarbonFiles | None = None,
    known: Sequence[int] = (),
) -> CatalogDifference:
    """Store a catalog; the file that it is from knows of the proposals `known` from then on."""
    try:
        with transaction.atomic():
            # First, for the row of the built-in team is the lock.
            ensure_builtin()
            accounts.lock_catalog()
            plans = _checked(catalog, problems, filename, loaded(), now, files)
            plans.store()
            if known:
                CatalogProposal.objects.filter(pk__in=known).update(in_file=True)
    except IntegrityError as error:
        raise CatalogNotStored(
            "another process changed the catalog's rows at the same time; load it again"
        ) from error
    except OperationalError as error:
        raise CatalogNotStored(
            f"the database could not be written ({error}); load it again when it is free"
        ) from error
    return plans.difference()


def _approved_since() -> list[CatalogProposal]:
    """Return what was approved on pages and stood in no file that was loaded since."""
    rows = CatalogProposal.objects.filter(state=ProposalState.APPROVED.value, in_file=False)
    return list(rows.select_related("team").order_by("decided_at", "pk"))


def _note_undone(catalog: Catalog, approved: Sequence[CatalogProposal], problems: Problems) -> None:
    """Note where the catalog says something else than what was approved since the last load."""
    # In order of decision: of two on one target the later counts.
    latest = {
        ProposalTarget(ProposalKind(row.kind), row.team.name, row.subject): row for row in approved
    }
    places = {team.name: ("teams", index) for index, team in enumerate(catalog.teams)}
    for target, row in latest.items():
        if target.team in places and value_in(catalog, target) == row.after:
            continue
        problems.add(
            places.get(target.team, ("teams",)),
            f"would undo proposal {row.pk}: {target}, approved by {row.decided_by} on "
            f"{row.decided_at:%Y-%m-%d}. Write the file anew with export_catalog, or load it with "
            "--undo-approved",
        )


def _checked(
    catalog: Catalog,
    problems: Problems,
    filename: str,
    held: Loaded,
    now: datetime,
    files: CarbonFiles | None = None,
) -> Plans:
    # Planned also where problems are known, so that one run names the refusals as well.
    plans = plan_catalog(catalog, held, now=now, files=files)
    for path, reason in (*plans.refused(), *_other_zone(catalog, held)):
        problems.add(path, reason)
    if problems.found:
        raise CatalogError(filename, problems.found)
    return plans


def _other_zone(catalog: Catalog, held: Loaded) -> list[tuple[Path, str]]:
    """Refuse a time zone that would cut days otherwise than those that are summed already."""
    zones = {record.time_zone for record in held.report}
    asked = catalog.report.time_zone
    # Without facts no day was cut yet.
    if not zones or asked in zones or not data_ready():
        return []
    (zone,) = zones
    reason = (
        f"{asked} is not the zone of the facts that are there, {zone}, in which days were summed. "
        f"Keep {zone}, or start a new portal with an empty database and collect its past anew"
    )
    return [(("report", "time_zone"), reason)]
