"""Did the saving come? What an accepted recommendation promised, against what came of it."""

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from enum import StrEnum

from apps.costs.domain.recommendations.recommendation import HOURS_PER_MONTH, LEAST_DAYS


class FollowUpOutcome(StrEnum):
    TOO_EARLY = "too-early"
    CAME = "came"
    PARTLY = "partly"
    DID_NOT = "did-not-come"


CAME_FROM = Decimal("0.8")
PARTLY_FROM = Decimal("0.2")


@dataclass(frozen=True, slots=True)
class FollowUp:
    """What it costs less per month than before, to the cent; None while it is too early."""

    verdict: FollowUpOutcome
    saved_per_month: Decimal | None
    ratio: Decimal | None


def follow_up(
    *,
    promised: Decimal,
    cost_before: Decimal,
    days_before: Decimal,
    cost_after: Decimal,
    days_after: Decimal,
) -> FollowUp:
    """Compare costs of as many days before as the evidence had with those since the acceptance.

    Both are of GPU-hours at the prices of the acceptance, so that a price that changed is no
    saving, and both become costs of a month of 730 hours. Nothing is said before seven
    days. Work that ended by itself saves too: the page shows both costs, so that one can tell.
    """
    if days_after < Decimal(LEAST_DAYS) or days_before <= 0 or promised <= 0:
        return FollowUp(FollowUpOutcome.TOO_EARLY, None, None)
    saved = _per_month(cost_before, days_before) - _per_month(cost_after, days_after)
    ratio = saved / promised
    verdict = FollowUpOutcome.DID_NOT
    if ratio >= CAME_FROM:
        verdict = FollowUpOutcome.CAME
    elif ratio >= PARTLY_FROM:
        verdict = FollowUpOutcome.PARTLY
    return FollowUp(
        verdict,
        saved.quantize(Decimal("0.01"), ROUND_HALF_EVEN),
        ratio.quantize(Decimal("0.001"), ROUND_HALF_EVEN),
    )


def _per_month(cost: Decimal, days: Decimal) -> Decimal:
    return cost * HOURS_PER_MONTH / (days * 24)
