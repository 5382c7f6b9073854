"""Writes of entitlements and budgets, as the catalog states them."""

from collections.abc import Collection, Sequence
from decimal import Decimal

from apps.accounts.domain.rows import DatedRecord, row_from
from apps.accounts.services import team_ids
from apps.clusters.services import tier_ids, write_valid
from apps.quotas.models import Budget, Entitlement


class EntitlementRecord(DatedRecord, frozen=True):
    """GPU-equivalents of a tier that a team may count on in a span, and its weight."""

    team: str
    tier: str
    gpus: float
    weight: float


class BudgetRecord(DatedRecord, frozen=True):
    """A team's budget per period in a span: `gpu_hours` or `money` with its currency."""

    team: str
    period: str
    gpu_hours: float | None = None
    money: Decimal | None = None
    currency: str = ""


def loaded_entitlements() -> list[EntitlementRecord]:
    """Return all entitlements there ever were. One query."""
    rows = Entitlement.objects.select_related("team", "tier")
    return [
        row_from(EntitlementRecord, r, team=r.team.name, tier=r.tier.name)
        for r in rows.order_by("team__name", "tier__name", "valid_from")
    ]


def write_entitlements(records: Sequence[EntitlementRecord], *, withdrawn: Collection[int]) -> None:
    """Delete the withdrawn, update the records with a pk and insert the others."""
    columns, names = ("gpus", "weight"), {"team": team_ids, "tier": tier_ids}
    write_valid(Entitlement, records, columns=columns, names=names, withdrawn=withdrawn)


def loaded_budgets() -> list[BudgetRecord]:
    """Return all budgets there ever were. One query."""
    rows = Budget.objects.select_related("team")
    return [
        row_from(BudgetRecord, r, team=r.team.name)
        for r in rows.order_by("team__name", "period", "valid_from", "pk")
    ]


def write_budgets(records: Sequence[BudgetRecord], *, withdrawn: Collection[int]) -> None:
    """Delete the withdrawn, update the records with a pk and insert the others."""
    columns, names = ("period", "gpu_hours", "money", "currency"), {"team": team_ids}
    write_valid(Budget, records, columns=columns, names=names, withdrawn=withdrawn)
