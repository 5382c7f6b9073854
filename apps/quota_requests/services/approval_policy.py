"""What the site's rules say of a request: whether it approves itself, and how many decide else."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings

from apps.accounts.models import Team
from apps.clusters.selectors import report
from apps.quota_requests.domain.approval_policy import Facts, Rules, ruling
from apps.quota_requests.domain.frozen import figure
from apps.quota_requests.domain.states import TransitionDenied
from apps.quota_requests.models import ChangeRequest
from apps.quota_requests.services.evidence.impact import Previewed
from apps.quota_requests.services.evidence.known_quotas import reviewed, wanted
from apps.quota_requests.services.evidence.recent_increases import recent_increases
from apps.quota_requests.services.evidence.snapshot import Evidence


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """A ruling, and the same as it is frozen with the request."""

    by_rule: bool
    approvals_needed: int
    frozen: dict[str, Any]


def rules_of_site() -> Rules:
    """Return what the site has set; by default nothing approves itself and one person decides.

    One query, for the currency.
    """
    two = settings.CHANGES_TWO_FROM_GPUS
    return Rules(
        raises_by_rule=settings.CHANGES_RAISES_BY_RULE,
        decreases_by_rule=settings.CHANGES_DECREASES_BY_RULE,
        most_gpus_by_rule=float(settings.CHANGES_MOST_GPUS_BY_RULE or 0),
        two_from_gpus=None if two is None else float(two),
        two_from_cost=settings.CHANGES_TWO_FROM_COST,
        currency=report().currency,
    )


def decide_by_policy(
    request: ChangeRequest, preview: Previewed, evidence: Evidence, *, now: datetime
) -> PolicyDecision:
    """Hold a request against the rules, with what is known of it."""
    rules = rules_of_site()
    facts = Facts(
        gpus=preview.gpus,
        promised_gpus_after=preview.promised_after,
        fair_share_gpus=evidence.fair_share_gpus,
        budgets=evidence.budgets,
        no_budget=evidence.no_budget,
        cost_per_month=preview.cost,
        currency=preview.currency,
        shared=preview.shared,
        used_above_new_limit=preview.used_above,
        foreign_owner=bool(preview.owners),
        dry_run=preview.frozen["dry_run_passed"],
        team=request.team.name,
        tiers=preview.tiers,
        lately=recent_increases(request, currency=rules.currency, now=now),
    )
    decrease = wanted(request) < reviewed(request)
    found = ruling(facts, rules, decrease=decrease)
    return PolicyDecision(
        found.by_rule,
        found.approvals_needed,
        {
            "by_rule": found.by_rule,
            "approvals_needed": found.approvals_needed,
            "decides": found.decides,
            "gpus": figure(preview.gpus),
            "cost_per_month": figure(preview.cost),
            "checks": [
                {"name": one.name, "holds": one.holds, "sentence": one.sentence}
                for one in found.checks
            ],
        },
    )


def check_still_small(request: ChangeRequest, *, now: datetime) -> None:
    """Raise TransitionDenied where another raise of the team was let through meanwhile.

    To be called in the transaction that lets this one through: the row of the team is held until
    it is written, so that of two at once the later sees the other.
    """
    Team.objects.select_for_update().get(pk=request.team_id)
    if wanted(request) < reviewed(request):
        return
    rules = rules_of_site()
    before = recent_increases(request, currency=rules.currency, now=now).by_rule_gpus
    own = request.ruling.get("gpus")
    if own is None or before is None or float(own) + before > rules.most_gpus_by_rule:
        raise TransitionDenied("Together with the team's other raises this is not a small one.")
