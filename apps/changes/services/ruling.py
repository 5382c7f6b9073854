"""What the site's rules say of a request: whether it approves itself, and how many decide else."""

from dataclasses import dataclass
from typing import Any

from django.conf import settings

from apps.changes.domain.rules import Facts, Rules, ruling
from apps.changes.models import ChangeRequest
from apps.changes.services.evidence import Evidence
from apps.changes.services.known_quotas import reviewed, wanted
from apps.changes.services.previews import Previewed
from apps.clusters.selectors import report


@dataclass(frozen=True, slots=True)
class Ruled:
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


def ruled(request: ChangeRequest, preview: Previewed, evidence: Evidence) -> Ruled:
    """Hold a request against the rules. A change that the cluster refuses never approves itself."""
    facts = Facts(
        gpus=preview.gpus,
        promised_gpus_after=preview.promised_after,
        fair_share_gpus=evidence.fair_share_gpus,
        budget_burn_rate=evidence.burn_rate,
        no_budget=evidence.no_budget,
        cost_per_month=preview.cost,
        currency=preview.currency,
        shared=preview.shared,
        used_above_new_limit=preview.used_above,
        foreign_owner=bool(preview.owners),
    )
    decrease = wanted(request) < reviewed(request)
    found = ruling(facts, rules_of_site(), decrease=decrease)
    by_rule = found.by_rule and preview.frozen["dry_run_passed"] is True
    return Ruled(
        by_rule,
        found.approvals_needed,
        {
            "by_rule": by_rule,
            "approvals_needed": found.approvals_needed,
            "checks": [
                {"name": one.name, "holds": one.holds, "sentence": one.sentence}
                for one in found.checks
            ],
        },
    )
