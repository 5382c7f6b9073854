"""Waste covered: what open recommendations would avoid of the waste, and why not the rest."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Annotated, ClassVar

from django.db.models import Max, Min, Sum

from apps.accounts.permissions import Visibility
from apps.clusters.domain.columns import Column
from apps.clusters.selectors import report
from apps.costs.domain.money import SCALE, SCALE_DIGITS
from apps.costs.domain.recommendations.coverage import Cell, together
from apps.costs.domain.recommendations.states import RecommendationState
from apps.costs.models import Recommendation, RecommendationRun, WasteSum
from apps.costs.selectors.recommendations import RecommendationFilters

DECIDED = "decided"
"""The reason of waste whose recommendations are accepted or dismissed."""
_Place = tuple[int, int | None, int | None]


_Ratio = Annotated[
    float | None,
    Column(
        help="Covered ÷ waste, 0..1; null without waste.",
        key="waste_covered_ratio",
        after="covered",
    ),
]
_NotCovered = Annotated[
    Mapping[str, float], Column(help="Cost of the rest, by why nothing covers it.")
]


@dataclass(frozen=True, slots=True)
class WasteCovered:
    """How much of the waste the open recommendations would avoid, each GPU-hour once.

    Priced waste of the days that were looked at last, in units of 1e-8 of one currency. `rest` has
    why nothing open covers it, the most first. `by` has (waste, covered) of each team, tier and
    cause, by their names; an empty team is the platform. Days are None before the first look.
    """

    schema: ClassVar[str] = "Summary"

    waste: Annotated[
        int,
        Column(
            help="Waste of the days of the evidence, of teams you see in detail.",
            key="waste_cost",
            digits=SCALE_DIGITS,
        ),
    ]
    covered: Annotated[
        int,
        Column(
            help="What of it at least one open recommendation would avoid.",
            key="covered_cost",
            digits=SCALE_DIGITS,
        ),
    ]
    currency: Annotated[str, Column(help="The report's; waste in others is left out.")]
    first: Annotated[date | None, Column(help="First day of the evidence.", key="first_day")]
    last: Annotated[date | None, Column(help="Last day of the evidence.", key="last_day")]
    rest: Sequence[tuple[str, int]]
    by: Mapping[tuple[str, str, str], tuple[int, int]]

    @property
    def ratio(self) -> _Ratio:
        return self.covered / self.waste if self.waste else None

    @property
    def not_covered(self) -> _NotCovered:
        return {reason: cost / SCALE for reason, cost in self.rest}


def waste_covered(*, filters: RecommendationFilters, visibility: Visibility) -> WasteCovered:
    """Return how much of the waste is covered, in the report's currency.

    Of the filters cluster, tier and team count. A reader who does not see everything gets the waste
    of their teams alone. Four queries.
    """
    currency = report().currency
    names = {
        f"{column}__name__in": wanted
        for column, wanted in (
            ("cluster", filters.cluster),
            ("tier", filters.tier),
            ("team", filters.team),
        )
        if wanted
    }
    sums = WasteSum.objects.filter(currency=currency, **names)
    rows = Recommendation.objects.filter(
        currency=currency, state=RecommendationState.OPEN.value, **names
    ).exclude(covers=[])
    if not visibility.everything:
        sums = sums.filter(team__in=visibility.team_ids)
        rows = rows.filter(team__in=visibility.team_ids)
    covered = _covered(rows.values_list("cluster_id", "tier_id", "team_id", "covers"))
    waste: dict[tuple[_Place, str], int] = defaultdict(int)
    found: dict[tuple[_Place, str], int] = defaultdict(int)
    reasons: dict[str, int] = defaultdict(int)
    named: dict[tuple[_Place, str], tuple[str, str, str]] = {}
    columns = ("cluster_id", "tier_id", "team_id", "cause", "reason", "team__name", "tier__name")
    for *place, cause, reason, team, tier, cost in (
        sums.order_by().values_list(*columns).annotate(whole=Sum("cost"))
    ):
        key = ((place[0], place[1], place[2]), cause)
        waste[key] += cost
        reasons[reason] += cost
        found[key] += cost if reason == WasteSum.COVERED else 0
        named[key] = (team or "", tier, cause)
    # One that is reopened tells what it covered when it was decided on; that may be more by now.
    counted = {key: min(covered.get(key, 0), found[key]) for key in waste}
    reasons[DECIDED] = reasons.pop(WasteSum.COVERED, 0) - sum(counted.values())
    by: dict[tuple[str, str, str], tuple[int, int]] = {}
    for key, amount in waste.items():
        known = by.get(named[key], (0, 0))
        by[named[key]] = known[0] + amount, known[1] + counted[key]
    days = RecommendationRun.objects.aggregate(first=Min("first"), last=Max("day"))
    return WasteCovered(
        currency=currency,
        waste=sum(waste.values()),
        covered=sum(counted.values()),
        rest=sorted(
            ((reason, cost) for reason, cost in reasons.items() if cost > 0),
            key=lambda one: (-one[1], one[0]),
        ),
        by=by,
        first=days["first"],
        last=days["last"],
    )


def _covered(
    rows: Iterable[tuple[int, int | None, int | None, list[tuple[str, str, int]]]],
) -> dict[tuple[_Place, str], int]:
    """Return what is covered of each place and cause."""
    claims: dict[_Place, list[dict[Cell, int]]] = defaultdict(list)
    for cluster, tier, team, covers in rows:
        claim = {Cell(name, cause): units for name, cause, units in covers}
        claims[cluster, tier, team].append(claim)
    found: dict[tuple[_Place, str], int] = defaultdict(int)
    for place, of_place in claims.items():
        for cell, units in together(of_place).items():
            found[place, cell.cause] += units
    return found
