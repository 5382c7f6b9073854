"""Which room explains which figure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from django.http import QueryDict

from apps.clusters.selectors import report
from apps.costs.selectors import explain_cost
from apps.costs.selectors.explained import FIGURES as COSTS
from apps.costs.selectors.explained_savings import SAVING, explain_saving
from apps.costs.selectors.recommendations import RecommendationFilters
from apps.fairness.selectors import FairnessFilters, explain_fairness
from apps.fairness.selectors.explained import FIGURES as FAIRNESS
from apps.pending.selectors import PendingFilters, explain_pending
from apps.pending.selectors.explained import FIGURES as PENDING
from apps.quotas.selectors import explain_budget, explain_quota
from apps.quotas.selectors.explained import BUDGETS, QUOTAS
from apps.usage.domain.explained import Explained
from apps.web.money.asked import TAKES as COST_TAKES
from apps.web.money.asked import asked_of
from apps.web.reading import Reading

_KEY = ("cluster", "source", "namespace", "name", "key")


@dataclass(frozen=True, slots=True)
class FigureQuery:
    """A figure that is to be explained, and what of: `names` are those of the address."""

    figure: str
    reading: Reading
    names: QueryDict


Provider = Callable[[FigureQuery], Explained | None]


def _pending(asked: FigureQuery) -> Explained | None:
    reading, own = asked.reading, asked.reading.filters
    filters = PendingFilters(
        cluster=own.cluster,
        team=own.team,
        tier=own.tier,
        namespace=own.namespace,
        cause=tuple(asked.names.getlist("cause")),
    )
    return explain_pending(
        asked.figure,
        reading.window,
        now=reading.now,
        visibility=reading.visibility,
        filters=filters,
    )


def _cost(asked: FigureQuery) -> Explained | None:
    reading = asked.reading
    charged = asked_of(asked.names)
    return explain_cost(
        asked.figure,
        reading.window,
        filters=reading.filters,
        visibility=reading.visibility,
        basis=charged.basis,
        policy=charged.policy,
        currency=asked.names.get("currency", ""),
    )


def _saving(asked: FigureQuery) -> Explained | None:
    reading, own = asked.reading, asked.reading.filters
    filters = RecommendationFilters(cluster=own.cluster, team=own.team, tier=own.tier)
    return explain_saving(
        filters=filters,
        visibility=reading.visibility,
        now=reading.now,
        currency=asked.names.get("currency", "") or report().currency,
    )


def _fairness(asked: FigureQuery) -> Explained | None:
    reading = asked.reading
    return explain_fairness(
        asked.figure,
        reading.window,
        now=reading.now,
        visibility=reading.visibility,
        filters=FairnessFilters(tier=reading.filters.tier, team=reading.filters.team),
    )


def _quota(asked: FigureQuery) -> Explained | None:
    return explain_quota(
        asked.figure,
        asked.reading.now,
        key=[asked.names.get(part, "") for part in _KEY],
        visibility=asked.reading.visibility,
    )


def _budget(asked: FigureQuery) -> Explained | None:
    return explain_budget(
        asked.figure,
        asked.reading.now,
        team=asked.names.get("team", ""),
        period=asked.names.get("period", ""),
        visibility=asked.reading.visibility,
    )


PROVIDERS: Mapping[str, Provider] = {
    **dict.fromkeys(PENDING, _pending),
    **dict.fromkeys(COSTS, _cost),
    SAVING: _saving,
    **dict.fromkeys(FAIRNESS, _fairness),
    **dict.fromkeys(QUOTAS, _quota),
    **dict.fromkeys(BUDGETS, _budget),
}


def filters_of(figure: str) -> tuple[str, ...]:
    """Return the filters that a figure is narrowed by, beside the cluster."""
    if figure in COSTS:
        return COST_TAKES
    return ("tier", "team", "namespace") if figure in PENDING else ("tier", "team")


def explained(asked: FigureQuery) -> Explained | None:
    """Return the explanation of a figure; None where there is none, or it may not be seen."""
    provider = PROVIDERS.get(asked.figure)
    return provider(asked) if provider is not None else None
