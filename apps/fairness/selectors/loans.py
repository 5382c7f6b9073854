"""Who borrowed from whom."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping

from django.db.models import Q, Sum

from apps.clusters.domain.tiers import UNASSIGNED
from apps.fairness.models import LoanDay, LoanHour
from apps.fairness.selectors.measures.sums import Parts, TeamSums
from apps.fairness.selectors.rows import BorrowMatrix, Loaned, Margin
from apps.usage.domain.amounts import hours

Loans = Mapping[tuple[int, int], int]
"""(lender, borrower) → nano-GPU-hours."""
_SMALLEST = 1000
"""Nano-GPU-hours: what rounding may leave between the loans told and their sums."""


def matrix_of(
    tier: str, loans: Loans, sums: Mapping[int, TeamSums], names: Mapping[int, str]
) -> BorrowMatrix:
    """Return who borrowed from whom in a tier, and all that each did so, from loans and sums.

    Of each hour and day only the largest loans are told apart.
    """
    rows = [
        Loaned(names.get(lender, UNASSIGNED), names.get(borrower, UNASSIGNED), hours(amount))
        for (lender, borrower), amount in loans.items()
    ]
    taken: Counter[int] = Counter()
    given: Counter[int] = Counter()
    for (lender, borrower), amount in loans.items():
        given[lender] += amount
        taken[borrower] += amount
    margins = [
        _margin(names.get(team, UNASSIGNED), own, (taken[team], given[team]))
        for team, own in sums.items()
        if own.borrowed or own.lent
    ]
    return BorrowMatrix(
        tier=tier,
        loans=tuple(sorted(rows, key=lambda row: (-row.gpu_hours, row.lender, row.borrower))),
        teams=tuple(sorted(margins, key=lambda row: row.team)),
    )


def loans_of(parts: Parts, tiers: Collection[int], *, team: int | None = None) -> dict[int, Loans]:
    """Return the loans of each tier, or those of one team. Two queries, at most."""
    found: dict[int, dict[tuple[int, int], int]] = {tier: defaultdict(int) for tier in tiers}
    keys = ("tier_id", "lender_id", "borrower_id")
    of_team = Q() if team is None else Q(lender=team) | Q(borrower=team)
    for where, model in ((parts.days, LoanDay), (parts.hours, LoanHour)):
        if where is None:
            continue
        rows = model._default_manager.filter(where, of_team, tier__in=tiers).order_by()
        for tier, lender, borrower, amount in rows.values_list(*keys).annotate(Sum("amount")):
            found[tier][lender, borrower] += int(amount)
    return {tier: dict(loans) for tier, loans in found.items()}


def _margin(name: str, own: TeamSums, told: tuple[int, int]) -> Margin:
    """Return what a team moved in all; `told` is what the loans say that it borrowed and lent."""
    borrowed = own.borrowed - own.from_pool - own.overdrawn
    return Margin(
        team=name,
        borrowed_gpu_hours=hours(own.borrowed),
        lent_gpu_hours=hours(own.lent),
        from_pool_gpu_hours=hours(own.from_pool),
        overdrawn_gpu_hours=hours(own.overdrawn),
        borrowed_of_others_gpu_hours=_rest(borrowed - told[0]),
        lent_to_others_gpu_hours=_rest(own.lent - told[1]),
    )


def _rest(amount: int) -> float:
    return hours(amount) if amount > _SMALLEST else 0.0
