"""Deciding on a recommendation: accept it, dismiss it with a reason, or think again."""

from datetime import datetime

from django.db import transaction

from apps.accounts.models import User
from apps.accounts.permissions import (
    NotAllowed,
    can_administer,
    teams_led_by,
    visibility_of,
)
from apps.costs.domain.recommendations.states import DECIDABLE, RecommendationState
from apps.costs.models import Recommendation
from apps.costs.services.recommendations.follow_up import cost_before
from apps.costs.services.recommendations.store import mark_alternatives

LONGEST_REASON = 1000


class UnknownRecommendation(Exception):
    """There is none of that number, or it is not for this reader."""


class DecisionRefused(Exception):
    """It cannot be decided so; the text says why, for a person."""


def check_decide(user: User, team_id: int | None) -> None:
    """Who decides on a recommendation: the leads of its team, and administrators.

    Raises NotAllowed. One query at most.
    """
    if can_administer(user):
        return
    if team_id is None:
        raise NotAllowed("What is about shared capacity is decided by administrators.")
    if not (user.is_active and team_id in teams_led_by(user)):
        raise NotAllowed("The leads of this team and administrators decide on this.")


def accept_recommendation(user: User, pk: int, *, now: datetime) -> None:
    """Accept a recommendation: from now on it is looked whether its saving comes.

    What its subject cost until now is noted, to be compared with. Raises UnknownRecommendation,
    NotAllowed and DecisionRefused.
    """
    with transaction.atomic():
        row = _decidable(user, pk)
        if row.state == RecommendationState.ACCEPTED.value:
            return
        before = cost_before(row, now=now)
        row.cost_before, row.days_before = (None, None) if before is None else before
        _decide(row, RecommendationState.ACCEPTED, user, now)


def dismiss_recommendation(user: User, pk: int, reason: str, *, now: datetime) -> None:
    """Dismiss a recommendation for a reason; it is not shown as open again. Raises as `accept`."""
    given = reason.replace("\0", "").strip()
    if not given:
        raise DecisionRefused("Say why it is dismissed: others will wonder.")
    if len(given) > LONGEST_REASON:
        raise DecisionRefused(f"The reason may have {LONGEST_REASON} characters.")
    with transaction.atomic():
        row = _decidable(user, pk)
        row.dismiss_reason = given
        _decide(row, RecommendationState.DISMISSED, user, now)


def reopen_recommendation(user: User, pk: int, *, now: datetime) -> None:
    """Take a decision back. Raises as `accept`."""
    with transaction.atomic():
        _decide(_decidable(user, pk), RecommendationState.OPEN, user, now)


def _decidable(user: User, pk: int) -> Recommendation:
    row = Recommendation.objects.select_for_update().filter(pk=pk).first()
    seen = visibility_of(user)
    if row is None or not (seen.everything or row.team_id in seen.team_ids):
        raise UnknownRecommendation(f"There is no recommendation {pk}, or it is not yours.")
    check_decide(user, row.team_id)
    if row.state not in DECIDABLE:
        raise DecisionRefused(f"It is {row.state}: there is nothing to decide.")
    return row


def _decide(row: Recommendation, state: RecommendationState, user: User, now: datetime) -> None:
    row.state = state.value
    row.decided_by, row.decided_at = user.username, now
    if state is not RecommendationState.DISMISSED:
        row.dismiss_reason = ""
    row.verdict, row.saved_per_month = "", None
    row.cost_after = row.days_after = None
    row.save()
    alike = Recommendation.objects.filter(cluster=row.cluster_id, tier=row.tier_id).exclude(
        state=RecommendationState.GONE.value
    )
    mark_alternatives(list(alike.order_by("pk")))
