"""The catalog as it is loaded, written as the file that says the same.

Loading the text again changes nothing, whatever pages changed since the last load.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeVar, cast

import msgspec
import yaml

from apps.accounts.domain.formats import whole_duration
from apps.clusters.domain.serving_objectives import ttft_text
from apps.clusters.domain.tiers import GpuSharing
from apps.clusters.services import ClusterRecord, ReportRecord, RuleRecord
from apps.costs.domain.prices import PriceKind
from apps.costs.services import EnergyFactorRecord, PriceRecord
from apps.fairness.services import ObjectiveRecord
from apps.operations.domain.checks import price_doubt
from apps.operations.domain.schema import (
    Budget,
    Catalog,
    Cluster,
    Energy,
    ExchangeRate,
    PaidAs,
    Period,
    Price,
    QueueTime,
    Report,
    ServingObjective,
    SiteEnergy,
    Team,
    Tier,
)
from apps.operations.domain.timeline import AnyDated, RecordKind
from apps.operations.services.catalog.energy_factors import ENERGY_FACTOR
from apps.operations.services.catalog.loading import (
    BUDGET,
    ENTITLEMENT,
    NAMESPACE_TEAM,
    OBJECTIVE,
    RULE,
    SERVING_OBJECTIVE,
    Loaded,
    loaded,
)
from apps.quotas.services import BudgetRecord, EntitlementRecord
from apps.usage.services import ServingObjectiveRecord

_HEAD = """\
# The catalog as the portal holds it at {at}, written by manage.py export_catalog.
# Loading this file changes nothing. docs/catalog.md explains the keys.
"""


def export_catalog(*, now: datetime) -> str:
    """Return the YAML text of what is loaded. Thirteen queries."""
    return catalog_text(catalog_of(loaded(), now=now), now=now)


def catalog_text(catalog: Catalog, *, now: datetime) -> str:
    """Return a catalog as YAML 1.2 that `load_catalog` reads back as the same."""
    body = yaml.dump(_said(catalog), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return _HEAD.format(at=_instant(now)) + body


def catalog_of(held: Loaded, *, now: datetime) -> Catalog:
    """Return the catalog that leaves `held` as it is. Rows of the past are not in it."""
    rules = _lasting(held.rules, RULE, now)
    promises = {tier.name: tier.promise for tier in held.tiers}
    objectives = {row.tier: row for row in _lasting(held.objectives, OBJECTIVE, now)}
    factors = {row.cluster: row for row in _lasting(held.energy_factors, ENERGY_FACTOR, now)}
    settings = held.report[0] if held.report else None
    return Catalog(
        clusters=tuple(
            _cluster(cluster, factors.get(cluster.name))
            for cluster in held.clusters
            if cluster.active
        ),
        tiers=tuple(
            _tier(rule, promises[rule.tier], objectives.get(rule.tier), now)
            for rule in sorted(rules, key=lambda rule: (rule.position, rule.tier))
        ),
        teams=_teams(held, now),
        prices=tuple(
            _price(price) for price in held.prices if price.valid_to is None or price.valid_to > now
        ),
        serving_objectives=tuple(
            _serving_objective(row, now)
            for row in sorted(
                _lasting(held.serving_objectives, SERVING_OBJECTIVE, now),
                key=lambda row: (row.position, row.match),
            )
        ),
        report=Report() if settings is None else _report(settings),
    )


def _report(settings: ReportRecord) -> Report:
    return Report(
        time_zone=settings.time_zone,
        currency=settings.currency,
        exchange_rates=tuple(
            ExchangeRate(month=month, currency=currency, rate=rate, source=source)
            for month, rates in settings.exchange_rates.items()
            for currency, (rate, source) in rates.items()
        ),
    )


def _lasting(rows: Iterable[AnyDated], kind: RecordKind[AnyDated], now: datetime) -> list[AnyDated]:
    """Return the last row of each key: the one in force, or the plan that follows it."""
    last: dict[Any, AnyDated] = {}
    for row in rows:
        if row.valid_to is None:
            last[kind.key(row)] = row
    return list(last.values())


def _cluster(record: ClusterRecord, factor: EnergyFactorRecord | None) -> Cluster:
    connection: dict[str, Any] = {"name": record.name}
    if record.slurm is not None:
        connection["slurm"] = record.slurm
    else:
        connection["prometheus"] = record.prometheus
    if record.kubernetes is not None:
        connection["kubernetes"] = record.kubernetes
    cluster = msgspec.convert(connection, Cluster)
    if factor is None:
        return cluster
    grams = factor.carbon_g_per_kwh
    energy = SiteEnergy(
        pue=_decimal(factor.pue),
        carbon_g_per_kwh=None if grams is None else _decimal(grams),
        carbon_file=factor.carbon_file or None,
        valid_from=_instant(cast("datetime", factor.valid_from)),
    )
    return msgspec.structs.replace(cluster, energy=energy)


def _tier(rule: RuleRecord, promise: str, objective: ObjectiveRecord | None, now: datetime) -> Tier:
    return Tier(
        name=rule.tier,
        sharing=GpuSharing(rule.sharing),
        resources=rule.resources,
        device_classes=rule.device_classes,
        node_selector=dict(rule.node_selector),
        promise=promise,
        allowed_teams=rule.allowed_teams,
        queue_time=None
        if objective is None
        else QueueTime(p95=whole_duration(objective.p95_seconds), over=f"{objective.days}d"),
        # One date for both: what changes at once has no plan of its own.
        valid_from=_latest_plan([[rule], [objective] if objective else []], now),
    )


def _teams(held: Loaded, now: datetime) -> tuple[Team, ...]:
    """Return the teams in the order in which their patterns are tried."""
    rows = _lasting(held.namespace_teams, NAMESPACE_TEAM, now)
    first = {}
    # Backwards: the first pattern of a team is the one that stays.
    for row in sorted(rows, key=lambda row: row.position, reverse=True):
        first[row.team] = row.position
    active = [team for team in held.teams if team.active]
    # Teams without a pattern come last: no namespace is tried against them.
    ordered = sorted(active, key=lambda team: (team.name not in first, first.get(team.name, 0)))
    entitlements = _by_team(_lasting(held.entitlements, ENTITLEMENT, now), "team")
    budgets = _by_team(_lasting(held.budgets, BUDGET, now), "team")
    patterns = _by_team(sorted(rows, key=lambda row: row.position), "team")
    leads = _by_team([lead for lead in held.leads if lead.lead], "team")
    return tuple(
        Team(
            name=team.name,
            cost_center=team.cost_center,
            leads=tuple(lead.username for lead in leads.get(team.name, ())),
            namespaces=tuple(row.pattern for row in patterns.get(team.name, ())),
            entitlements=_entitled(entitlements.get(team.name, ())),
            weights=_weighted(entitlements.get(team.name, ())),
            budgets=tuple(_budget(budget) for budget in budgets.get(team.name, ())),
            valid_from=_latest_plan(
                [group.get(team.name, ()) for group in (patterns, entitlements, budgets)], now
            ),
        )
        for team in ordered
    )


_Row = TypeVar("_Row")


def _by_team(rows: Iterable[_Row], field: str) -> dict[str, list[_Row]]:
    found: dict[str, list[_Row]] = {}
    for row in rows:
        found.setdefault(getattr(row, field), []).append(row)
    return found


def _entitled(rows: Iterable[EntitlementRecord]) -> dict[str, float]:
    """Return entitlements by tier; one of 0 beside a weight is what a weight alone means."""
    return {row.tier: row.gpus for row in rows if row.gpus or not row.weight}


def _weighted(rows: Iterable[EntitlementRecord]) -> dict[str, float]:
    """Return the weights by tier that are not the entitlement."""
    return {row.tier: row.weight for row in rows if row.weight != row.gpus}


def _budget(row: BudgetRecord) -> Budget:
    return Budget(
        period=Period(row.period),
        gpu_hours=row.gpu_hours,
        money=None if row.money is None else _decimal(row.money),
        currency=row.currency or None,
    )


def _price(row: PriceRecord) -> Price:
    price = Price(
        gpu_model=row.gpu_model,
        capacity_type=PaidAs(row.capacity_type),
        per_gpu_hour=_decimal(row.per_gpu_hour),
        currency=row.currency,
        cluster=row.cluster or None,
        tier=row.tier or None,
        discount=_decimal(row.discount),
        # `owned` alone gives the kind by itself, and it is written as what it amounts to.
        kind=PriceKind(row.kind),
        energy=None
        if row.per_kwh is None
        else Energy(per_kwh=_decimal(row.per_kwh), pue=_decimal(row.pue)),
        source=row.source,
        example=row.example,
        confirmed_by=row.confirmed_by,
        confirmed_on=row.confirmed_on.isoformat() if row.confirmed_on else None,
        valid_from=_instant(cast("datetime", row.valid_from)),
    )
    # It was confirmed when it was loaded; without the word the file would be refused.
    return price if price_doubt(price) is None else msgspec.structs.replace(price, confirmed=True)


def _serving_objective(row: ServingObjectiveRecord, now: datetime) -> ServingObjective:
    return ServingObjective(
        ttft=ttft_text(row.ttft_ms),
        cluster=row.cluster or None,
        namespace=row.namespace or None,
        workload=row.workload or None,
        model=row.model or None,
        valid_from=_planned(row.valid_from, now),
    )


def _latest_plan(groups: Iterable[Iterable[Any]], now: datetime) -> str | None:
    """Return the start of what is planned for a team; a catalog plans for one day at a time."""
    starts = [row.valid_from for rows in groups for row in rows if row.valid_from > now]
    return _instant(max(starts)) if starts else None


def _planned(start: datetime | None, now: datetime) -> str | None:
    return _instant(start) if start is not None and start > now else None


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _decimal(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _said(value: Any) -> Any:
    """Return plain data without what a catalog leaves out: defaults, and keys without a value."""
    if isinstance(value, msgspec.Struct):
        return {
            field.name: _said(getattr(value, field.name))
            for field in msgspec.structs.fields(value)
            if field.required or not _is_default(getattr(value, field.name), field)
        }
    if isinstance(value, Mapping):
        return {key: _said(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_said(item) for item in value]
    if isinstance(value, float):
        # 5000, not 5000.0: as people write it, and the same when it is read.
        return int(value) if value.is_integer() else value
    # An enum is a text, but the safe dumper of PyYAML takes it for an object.
    return str(value) if isinstance(value, str) else value


def _is_default(value: Any, field: msgspec.structs.FieldInfo) -> bool:
    if field.default is not msgspec.NODEFAULT:
        return bool(value == field.default)
    made = cast("Callable[[], Any]", field.default_factory)
    return bool(value == made())


class _Dumper(yaml.SafeDumper):
    """Quotes each text that the core schema of YAML 1.2 could read as something else."""


_PLAIN = re.compile(r"[A-Za-z][\w./-]*(?: [\w./-]+)*")
# Booleans in YAML 1.1 too, which many tools still read: a team may well be called `on`.
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = _PLAIN.fullmatch(text) is not None and text.lower() not in _WORDS
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _text)
