"""The rows that a checked catalog asks for, each with the place in the text that asks."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from apps.accounts.services import LeadRecord, TeamRecord
from apps.clusters.services import ClaimRecord, ClusterRecord, ReportRecord, RuleRecord, TierRecord
from apps.costs.services import PriceRecord
from apps.operations.domain.instants import instant
from apps.operations.domain.priced import kind_of, per_gpu_hour, written_off
from apps.operations.domain.schema import Account, Budget, Catalog, Price, Prometheus
from apps.operations.domain.source_positions import Path
from apps.operations.domain.timeline import DesiredRow
from apps.quotas.services import BudgetRecord, EntitlementRecord


def clusters(catalog: Catalog) -> list[ClusterRecord]:
    """Return the clusters; connections hold only the keys that were given."""
    return [
        ClusterRecord(
            name=cluster.name,
            prometheus=_given(cluster.prometheus),
            kubernetes=None if cluster.kubernetes is None else _given(cluster.kubernetes),
        )
        for cluster in catalog.clusters
    ]


def tiers(catalog: Catalog, places: Mapping[str, int]) -> list[TierRecord]:
    """Return the tiers at their places."""
    return [TierRecord(t.name, places[t.name], t.promise) for t in catalog.tiers]


def rules(catalog: Catalog, places: Mapping[str, int]) -> Iterator[DesiredRow[RuleRecord]]:
    """Yield one rule for each tier."""
    since = _reader(catalog)
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


def teams(catalog: Catalog) -> list[TeamRecord]:
    """Return the teams."""
    return [TeamRecord(team.name, team.cost_center) for team in catalog.teams]


def leads(catalog: Catalog) -> list[LeadRecord]:
    """Return everybody who is named as a lead."""
    return [LeadRecord(team.name, lead) for team in catalog.teams for lead in team.leads]


def claims(catalog: Catalog, places: Mapping[str, int]) -> Iterator[DesiredRow[ClaimRecord]]:
    """Yield one claim for each namespace pattern."""
    since = _reader(catalog)
    for index, team in enumerate(catalog.teams):
        path = _place(("teams", index), team.valid_from)
        for pattern in team.namespaces:
            record = ClaimRecord(
                pattern, team.name, places[pattern], valid_from=since(team.valid_from)
            )
            yield DesiredRow(record, path)


def entitlements(catalog: Catalog) -> Iterator[DesiredRow[EntitlementRecord]]:
    """Yield what each team may count on; a weight alone goes with an entitlement of 0."""
    since = _reader(catalog)
    for index, team in enumerate(catalog.teams):
        path = _place(("teams", index), team.valid_from)
        for tier in dict.fromkeys((*team.entitlements, *team.weights)):
            gpus = team.entitlements.get(tier, 0.0)
            record = EntitlementRecord(
                team=team.name,
                tier=tier,
                gpus=gpus,
                weight=team.weights.get(tier, gpus),
                valid_from=since(team.valid_from),
            )
            yield DesiredRow(record, path)


def budgets(catalog: Catalog) -> Iterator[DesiredRow[BudgetRecord]]:
    """Yield each team's allowances."""
    since = _reader(catalog)
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


def prices(catalog: Catalog) -> Iterator[DesiredRow[PriceRecord]]:
    """Yield the prices."""
    since = _reader(catalog)
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
            valid_from=since(price.valid_from),
            **_energy(price),
        )
        yield DesiredRow(record, _place(("prices", index), price.valid_from))


def _energy(price: Price) -> dict[str, Any]:
    if price.owned is None or price.owned.per_kwh is None:
        return {}
    return {"per_kwh": Decimal(price.owned.per_kwh), "pue": Decimal(price.owned.pue)}


def report(catalog: Catalog) -> list[ReportRecord]:
    """Return the one row of report settings."""
    return [ReportRecord(catalog.report.time_zone, catalog.report.currency)]


def _given(connection: Prometheus | Account) -> dict[str, object]:
    """Return the keys of a connection that say something; so too of an account inside of it."""
    values = msgspec.structs.asdict(connection)
    return {
        name: _given(value) if isinstance(value, Account) else value
        for name, value in values.items()
        if value not in (None, False)
    }


def _reader(catalog: Catalog) -> Callable[[str | None], datetime | None]:
    """Return what reads a `valid_from`: a date begins at midnight in the report's zone."""
    zone = ZoneInfo(catalog.report.time_zone)
    return lambda text: None if text is None else instant(text, zone)


def _place(path: Path, valid_from: str | None) -> Path:
    return path if valid_from is None else (*path, "valid_from")
