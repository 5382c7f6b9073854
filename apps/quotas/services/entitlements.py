"""Writes of entitlements and budgets, as the catalog states them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from apps.accounts.domain.rows import row_from
from apps.accounts.services import team_ids
from apps.clusters.services import span, tier_ids, write_valid
from apps.quotas.models import Budget, Entitlement


@dataclass(frozen=True, slots=True)
class EntitlementRecord:
    """GPU-equivalents of a tier that a team may count on in a span, and its weight."""

    team: str
    tier: str
    gpus: float
    weight: float
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    pk: int | None = None


@dataclass(frozen=True, slots=True)
class BudgetRecord:
    """A team's budget per period in a span: `gpu_hours` or `money` with its currency."""

    team: str
    period: str
    gpu_hours: float | None = None
    money: Decimal | None = None
    currency: str = ""
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    pk: int | None = None


def loaded_entitlements() -> list[EntitlementRecord]:
    """Return all entitlements there ever were. One query."""
    rows = Entitlement.objects.select_related("team", "tier")
    return [
        EntitlementRecord(
            r.team.name, r.tier.name, r.gpus, r.weight, r.valid_from, r.valid_to, r.pk
        )
        for r in rows.order_by("team__name", "tier__name", "valid_from")
    ]


def write_entitlements(records: Sequence[EntitlementRecord], *, withdrawn: Collection[int]) -> None:
    """Delete the withdrawn, update the records with a pk and insert the others."""
    if not records and not withdrawn:
        return
    teams, tiers = team_ids(), tier_ids()
    rows = [
        Entitlement(
            pk=r.pk,
            team_id=teams[r.team],
            tier_id=tiers[r.tier],
            gpus=r.gpus,
            weight=r.weight,
            **span(r),
        )
        for r in records
    ]
    write_valid(Entitlement, rows, columns=["gpus", "weight"], withdrawn=withdrawn)


def loaded_budgets() -> list[BudgetRecord]:
    """Return all budgets there ever were. One query."""
    rows = Budget.objects.select_related("team")
    return [
        row_from(
            BudgetRecord,
            r,
            team=r.team.name,
        )
        for r in rows.order_by("team__name", "period", "valid_from", "pk")
    ]


def write_budgets(records: Sequence[BudgetRecord], *, withdrawn: Collection[int]) -> None:
    """Delete the withdrawn, update the records with a pk and insert the others."""
    if not records and not withdrawn:
        return
    teams = team_ids()
    rows = [
        Budget(
            pk=r.pk,
            team_id=teams[r.team],
            period=r.period,
            gpu_hours=r.gpu_hours,
            money=r.money,
            currency=r.currency,
            **span(r),
        )
        for r in records
    ]
    columns = ["gpu_hours", "money", "currency"]
    write_valid(Budget, rows, columns=columns, withdrawn=withdrawn)
