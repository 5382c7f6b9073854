"""The rows of a catalog, table by table; what it leaves out is filled in."""

from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from apps.accounts.domain.structs import replace
from apps.accounts.services import LeadRecord, TeamRecord
from apps.clusters.domain.serving_objectives import ttft_ms
from apps.clusters.services import (
    ClusterRecord,
    NamespaceTeamRecord,
    ReportRecord,
    RuleRecord,
    TierRecord,
)
from apps.costs.services import PriceRecord
from apps.fairness.services import ObjectiveRecord
from apps.operations.domain.schema import (
    Account,
    Budget,
    Catalog,
    OAuth2,
    Price,
    Prometheus,
    ServingObjective,
    SigV4,
    Slurm,
    kind_of,
    per_gpu_hour,
    whole_seconds,
    written_off,
)
from apps.operations.domain.source_positions import Path, instant
from apps.operations.domain.timeline import DesiredRow
from apps.quotas.services import BudgetRecord, EntitlementRecord
from apps.usage.services import ServingObjectiveRecord

_DAY_SECONDS = 86_400


def desired_clusters(catalog: Catalog) -> list[ClusterRecord]:
    """Return the clusters; connections hold only the keys that were given."""
    return [
        ClusterRecord(
            name=cluster.name,
            prometheus={} if cluster.prometheus is None else _given(cluster.prometheus),
            kubernetes=None if cluster.kubernetes is None else _given(cluster.kubernetes),
            slurm=None if cluster.slurm is None else _given(cluster.slurm),
        )
        for cluster in catalog.clusters
    ]


def desired_tiers(catalog: Catalog, places: Mapping[str, int]) -> list[TierRecord]:
    """Return the tiers at their places."""
    return [TierRecord(t.name, places[t.name], t.promise) for t in catalog.tiers]


def desired_rules(catalog: Catalog, places: Mapping[str, int]) -> Iterator[DesiredRow[RuleRecord]]:
    """Yield one rule for each tier."""
    since = instant_reader(catalog)
    for index, tier in enumerate(catalog.tiers):
        record = RuleRecord(
            tier=tier.name,
            position=places[tier.name],
            sharing=tier.sharing.value,
            resources=tier.resources,
            device_classes=tier.device_classes,
            node_selector=tier.node_selector,
            allowed_teams=tier.allowed_teams,
            valid_from=since(tier.valid_from),
        )
        yield DesiredRow(record, _place(("tiers", index), tier.valid_from))


def desired_objectives(catalog: Catalog) -> Iterator[DesiredRow[ObjectiveRecord]]:
    """Yield the queue-time objectives of the tiers that have one."""
    since = instant_reader(catalog)
    for index, tier in enumerate(catalog.tiers):
        if tier.queue_time is None:
            continue
        record = ObjectiveRecord(
            tier=tier.name,
            p95_seconds=whole_seconds(tier.queue_time.p95),
            days=whole_seconds(tier.queue_time.over) // _DAY_SECONDS,
            valid_from=since(tier.valid_from),
        )
        yield DesiredRow(record, _place(("tiers", index), tier.valid_from))


def desired_teams(catalog: Catalog) -> list[TeamRecord]:
    """Return the teams."""
    return [TeamRecord(team.name, team.cost_center) for team in catalog.teams]


def desired_leads(catalog: Catalog) -> list[LeadRecord]:
    """Return everybody who is named as a lead."""
    return [LeadRecord(team.name, lead) for team in catalog.teams for lead in team.leads]


def desired_namespace_teams(
    catalog: Catalog, places: Mapping[str, int]
) -> Iterator[DesiredRow[NamespaceTeamRecord]]:
    """Yield one row for each namespace pattern."""
    since = instant_reader(catalog)
    for index, team in enumerate(catalog.teams):
        path = _place(("teams", index), team.valid_from)
        for pattern in team.namespaces:
            record = NamespaceTeamRecord(
                pattern, team.name, places[pattern], valid_from=since(team.valid_from)
            )
            yield DesiredRow(record, path)


def desired_entitlements(catalog: Catalog) -> Iterator[DesiredRow[EntitlementRecord]]:
    """Yield what each team may count on; a weight alone goes with an entitlement of 0."""
    since = instant_reader(catalog)
    for index, team in enumerate(catalog.teams):
        path = _place(("teams", index), team.valid_from)
        for tier in dict.fromkeys((*team.entitlements, *team.weights)):
            gpus = team.entitlements.get(tier, 0.0)
            record = EntitlementRecord(
                team=team.name,
                tier=tier,
                gpus=gpus,
                # A weight that is not given is the entitlement itself.
                weight=team.weights.get(tier, gpus),
                valid_from=since(team.valid_from),
            )
            yield DesiredRow(record, path)


def desired_budgets(catalog: Catalog) -> Iterator[DesiredRow[BudgetRecord]]:
    """Yield each team's allowances."""
    since = instant_reader(catalog)
    for index, team in enumerate(catalog.teams):
        path = _place(("teams", index), team.valid_from)
        for budget in team.budgets:
            yield DesiredRow(_budget(team.name, budget, since(team.valid_from)), path)


def _budget(team: str, budget: Budget, valid_from: datetime | None) -> BudgetRecord:
    return BudgetRecord(
        team=team,
        period=budget.period.value,
        gpu_hours=budget.gpu_hours,
        money=None if budget.money is None else Decimal(budget.money),
        currency=budget.currency or "",
        valid_from=valid_from,
    )


def desired_prices(catalog: Catalog) -> Iterator[DesiredRow[PriceRecord]]:
    """Yield the prices."""
    since = instant_reader(catalog)
    for index, price in enumerate(catalog.prices):
        record = PriceRecord(
            cluster=price.cluster or "",
            tier=price.tier or "",
            gpu_model=price.gpu_model,
            capacity_type=price.capacity_type.value,
            per_gpu_hour=per_gpu_hour(price),
            currency=price.currency,
            discount=Decimal(price.discount),
            kind=kind_of(price).value,
            source=price.source or written_off(price),
            example=price.example,
            confirmed_by=price.confirmed_by,
            confirmed_on=date.fromisoformat(price.confirmed_on) if price.confirmed_on else None,
            valid_from=since(price.valid_from),
            **_energy(price),
        )
        yield DesiredRow(record, _place(("prices", index), price.valid_from))


def _energy(price: Price) -> dict[str, Any]:
    part = price.owned or price.energy
    if part is None or part.per_kwh is None:
        return {}
    return {"per_kwh": Decimal(part.per_kwh), "pue": Decimal(part.pue)}


def desired_serving_objectives(
    catalog: Catalog, places: Mapping[str, int]
) -> Iterator[DesiredRow[ServingObjectiveRecord]]:
    """Yield the objectives of inference services at their places."""
    since = instant_reader(catalog)
    for index, objective in enumerate(catalog.serving_objectives):
        record = serving_objective_record(objective)
        placed = replace(
            record, position=places[record.match], valid_from=since(objective.valid_from)
        )
        yield DesiredRow(placed, _place(("serving_objectives", index), objective.valid_from))


def serving_objective_record(objective: ServingObjective) -> ServingObjectiveRecord:
    """Return the row of an objective; its place and its start are known later."""
    return ServingObjectiveRecord(
        ttft_ms=ttft_ms(objective.ttft),
        position=0,
        cluster=objective.cluster or "",
        namespace=objective.namespace or "",
        workload=objective.workload or "",
        model=objective.model or "",
    )


def desired_report(catalog: Catalog) -> list[ReportRecord]:
    """Return the one row of report settings."""
    rates: dict[str, dict[str, list[str]]] = {}
    for one in sorted(catalog.report.exchange_rates, key=lambda one: (one.month, one.currency)):
        rates.setdefault(one.month, {})[one.currency] = [one.rate, one.source]
    return [ReportRecord(catalog.report.time_zone, catalog.report.currency, rates)]


def _given(
    connection: Prometheus | Account | OAuth2 | SigV4 | Slurm,
) -> dict[str, object]:
    """Return the keys of a connection that have a value, also within an account in it."""
    # Defaults are left out, so that two catalogs that mean the same are stored the same.
    values = msgspec.structs.asdict(connection)
    return {
        name: _json_value(value)
        for name, value in values.items()
        # Matchers were always stored, and are not to look changed.
        if value not in (None, False, (), {}) or name == "matchers"
    }


def _json_value(value: object) -> object:
    """Return a value as JSON gives it back."""
    if isinstance(value, Account | OAuth2 | SigV4):
        return _given(value)
    return msgspec.to_builtins(list(value) if isinstance(value, tuple) else value)


def instant_reader(catalog: Catalog) -> Callable[[str | None], datetime | None]:
    """Return what reads a `valid_from`: a date begins at midnight in the report's zone."""
    zone = ZoneInfo(catalog.report.time_zone)
    return lambda text: None if text is None else instant(text, zone)


def _place(path: Path, valid_from: str | None) -> Path:
    return path if valid_from is None else (*path, "valid_from")
