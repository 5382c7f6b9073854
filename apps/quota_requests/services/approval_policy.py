"""What the site's rules say of a request: whether it approves itself, and how many decide else."""

from datetime import datetime

from django.conf import settings

from apps.accounts.models import Team
from apps.clusters.selectors import report
from apps.quota_requests.domain.approval_policy import Facts, Rules, Ruling, ruling
from apps.quota_requests.domain.states import TransitionDenied
from apps.quota_requests.models import ChangeRequest
from apps.quota_requests.selectors.snapshots import ruling_in
from apps.quota_requests.services.evidence.impact import Impact
from apps.quota_requests.services.evidence.known_quotas import reviewed, wanted
from apps.quota_requests.services.evidence.recent_increases import recent_increases
from apps.quota_requests.services.evidence.snapshot import KnownOfTeam


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
    request: ChangeRequest, impact: Impact, known: KnownOfTeam, *, now: datetime
) -> Ruling:
    """Hold a request against the rules, with what is known of it."""
    rules, preview, fair = rules_of_site(), impact.preview, known.evidence.fair_share
    facts = Facts(
        gpus=impact.gpus,
        promised_gpus_after=impact.promised_after,
        fair_share_gpus=fair.gpus if fair else None,
        budgets=known.budgets,
        no_budget=not known.budgets,
        cost_per_month=impact.cost,
        currency=preview.currency,
        shared=impact.shared,
        used_above_new_limit=impact.used_above,
        foreign_owner=bool(preview.owners),
        dry_run=preview.dry_run_passed,
        team=request.team.name,
        tiers=preview.tiers,
        lately=recent_increases(request, currency=rules.currency, now=now),
    )
    return ruling(facts, rules, decrease=wanted(request) < reviewed(request))


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
    kept = ruling_in(request)
    own = kept.gpus if kept else None
    if own is None or before is None or own + before > rules.most_gpus_by_rule:
        raise TransitionDenied("Together with the team's other raises this is not a small one.")
