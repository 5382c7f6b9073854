"""The site's approval policy: whether a request approves itself, and how many decide else."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from math import fsum
from typing import Any

from django.conf import settings
from django.db.models import Q

from apps.accounts.models import Team
from apps.clusters.selectors import report
from apps.quota_requests.domain.approval_policy import (
    RECENT_DAYS,
    ApprovalRules,
    PolicyDecision,
    PolicyFacts,
    RecentIncreases,
    decide,
)
from apps.quota_requests.domain.quantities import quantity
from apps.quota_requests.domain.states import RequestState, TransitionDenied
from apps.quota_requests.models import ChangeRequest
from apps.quota_requests.selectors.requests import decision_in
from apps.quota_requests.services.evidence.impact import Impact
from apps.quota_requests.services.evidence.known_quotas import reviewed, wanted
from apps.quota_requests.services.evidence.snapshot import KnownOfTeam

# Decided and not taken back; what still has to be applied counts as well.
_IN_FORCE = [
    *(RequestState.APPROVED.value, RequestState.APPLYING.value, RequestState.FAILED.value),
    *(RequestState.SCHEDULED.value, RequestState.APPLIED.value, RequestState.REVERTING.value),
]
_INCREASE_COLUMNS = (
    *("tiers", "before", "after", "by_rule", "ruling__gpus"),
    *("ruling__cost_per_month", "preview__cost_per_month_most", "preview__currency"),
)


def recent_increases(request: ChangeRequest, *, currency: str, now: datetime) -> RecentIncreases:
    """Return the team's recent increases in the tiers that a request reaches. One query.

    Raises decided by one person or a rule in the last 30 days and not reverted; a raise that two
    people decided was reviewed as a large one. Decreases take nothing off: else a limit without use
    could be given up for one that many want.
    """
    # EXPIRED after it was applied: it lies under a later change, and its raise was not taken back.
    stands = Q(state__in=_IN_FORCE) | Q(state=RequestState.EXPIRED.value, applied_at__isnull=False)
    rows = ChangeRequest.objects.filter(
        stands,
        team=request.team_id,
        approvals_needed=1,
        decided_at__gt=now - timedelta(days=RECENT_DAYS),
    ).exclude(pk=request.pk)
    found = [_Raise(*row) for row in rows.order_by("pk").values_list(*_INCREASE_COLUMNS)]
    raises = [one for one in found if one.is_raise and one.reaches(request.tiers)]
    return RecentIncreases(
        by_rule_gpus=_sum_known_gpus(one.gpus for one in raises if one.by_rule),
        gpus=_sum_known_gpus(one.gpus for one in raises),
        cost=_sum_known_cost(one.cost_in(currency) for one in raises),
    )


class _Raise:
    """A row of `_INCREASE_COLUMNS`."""

    def __init__(self, *row: Any) -> None:
        self.tiers, self.before, self.after, self.by_rule, self._gpus, *rest = row
        ruled, shown, self._in = rest
        # Requests that were submitted before rulings kept their cost have that of the preview.
        self._cost = shown if ruled is None else ruled

    @property
    def is_raise(self) -> bool:
        return quantity(self.after) > quantity(self.before)

    def reaches(self, tiers: Iterable[str]) -> bool:
        return bool(set(self.tiers) & set(tiers))

    @property
    def gpus(self) -> float | None:
        return None if self._gpus is None else float(self._gpus)

    def cost_in(self, currency: str) -> Decimal | None:
        is_known = self._cost is not None and self._in == currency
        return Decimal(self._cost) if is_known else None


def _sum_known_gpus(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if None in known else fsum(value for value in known if value is not None)


def _sum_known_cost(values: Iterable[Decimal | None]) -> Decimal | None:
    known = list(values)
    return None if None in known else sum((v for v in known if v is not None), Decimal(0))


def rules_of_site() -> ApprovalRules:
    """Return what the site has set; by default nothing approves itself and one person decides.

    One query, for the currency.
    """
    two = settings.REQUESTS_TWO_FROM_GPUS
    return ApprovalRules(
        raises_by_rule=settings.REQUESTS_RAISES_BY_RULE,
        decreases_by_rule=settings.REQUESTS_DECREASES_BY_RULE,
        most_gpus_by_rule=float(settings.REQUESTS_MOST_GPUS_BY_RULE or 0),
        two_from_gpus=None if two is None else float(two),
        two_from_cost=settings.REQUESTS_TWO_FROM_COST,
        currency=report().currency,
    )


def decide_by_policy(
    request: ChangeRequest, impact: Impact, known: KnownOfTeam, *, now: datetime
) -> PolicyDecision:
    """Hold a request against the rules, with what is known of it."""
    rules, preview, fair = rules_of_site(), impact.preview, known.evidence.fair_share
    facts = PolicyFacts(
        gpus=impact.gpus,
        entitled_gpus_after=impact.entitled_after,
        fair_share_gpus=fair.gpus if fair else None,
        budgets=known.budgets,
        no_budget=not known.budgets,
        cost_per_month=impact.cost,
        currency=preview.currency,
        shared=impact.shared,
        used_above_new_limit=impact.used_above,
        foreign_owner=None if preview.live is None else bool(preview.owners),
        dry_run=preview.dry_run_passed,
        team=request.team.name,
        tiers=preview.tiers,
        recent=recent_increases(request, currency=rules.currency, now=now),
    )
    return decide(facts, rules, decrease=wanted(request) < reviewed(request))


def check_still_small(request: ChangeRequest, *, now: datetime) -> None:
    """Raise TransitionDenied where another raise of the team was let through meanwhile.

    To be called in the transaction that lets this one through: the row of the team is held until
    it is written, so that of two at once the later sees the other.
    """
    Team.objects.select_for_update().get(pk=request.team_id)
    # A decrease adds nothing to the sum of raises.
    if wanted(request) < reviewed(request):
        return
    rules = rules_of_site()
    before = recent_increases(request, currency=rules.currency, now=now).by_rule_gpus
    kept = decision_in(request)
    own = kept.gpus if kept else None
    if own is None or before is None or own + before > rules.most_gpus_by_rule:
        raise TransitionDenied(
            "With the team's other raises this is above the limit for small raises."
        )
