"""Which room explains which figure."""

from collections.abc import Callable, Mapping
from typing import Any

from django.http import QueryDict
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.selectors import report, team_rows, tier_rows
from apps.costs.domain.costing import Cause
from apps.costs.selectors import (
    ADJUSTMENT,
    COVERED,
    ENERGY,
    PER_GPU_HOUR,
    PLATFORM_NAME,
    QUOTA_SAVING,
    REALIZED,
    RECOMMENDED,
    SAVING,
    SHARE,
    TIER_PRICE,
    CostQuery,
    explain_adjustment,
    explain_cost,
    explain_cost_per_gpu_hour,
    explain_cost_share,
    explain_energy,
    explain_money_budget,
    explain_price,
    explain_realized,
    explain_recommendation,
    explain_saving,
    explain_waste_covered,
)
from apps.costs.selectors import FIGURES as COSTS
from apps.fairness.selectors import FIGURES as FAIRNESS
from apps.fairness.selectors import (
    OF_TIER_AND_TEAM,
    FairnessFilters,
    explain_fairness,
)
from apps.pending.selectors import (
    EVICTIONS,
    PARTIAL,
    PendingFilters,
    explain_eviction,
    explain_partial,
    explain_pending,
    queue_time,
)
from apps.pending.selectors import FIGURES as PENDING
from apps.planning.domain.replay import ChangeImpossible
from apps.planning.selectors import (
    WHAT_IF,
    CapacityUnknown,
    TooMuchToReplay,
    explain_what_if,
    replayed_tier,
)
from apps.quotas.domain.keys import QuotaRef
from apps.quotas.selectors import (
    BUDGETS,
    QUOTAS,
    TEAM_QUOTAS,
    explain_budget,
    explain_quota,
    explain_team_quota,
)
from apps.usage.domain.explained import Explained
from apps.usage.selectors import (
    PENDING_GPUS,
    QUEUE_TIME_DAYS,
    explain_pending_gpus,
    queue_time_counts,
    queue_time_window,
)
from apps.web.costs.query import PLATFORM_PAYS, query_of
from apps.web.costs.query import TAKES as COST_TAKES
from apps.web.costs.recommendations import query_of as recommended_of
from apps.web.fairness.what_if import capped, what_if_input
from apps.web.query_session import QuerySession

_CORRECTIONS = {"yes": True, "no": False}
_SAVINGS = (SAVING, QUOTA_SAVING, COVERED, REALIZED)
_LARGEST_PK = 2**63 - 1
_BIND_TIMES = ("bind_time_p50", "bind_time_p95")
_SUBJECTS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys((*_BIND_TIMES, PENDING_GPUS, "jain_index", "jain_allocation_ratio"), ("tier",)),
    **dict.fromkeys(("team_queue_time_p50", "team_queue_time_p95"), ("tier", "team")),
    **dict.fromkeys(OF_TIER_AND_TEAM, ("tier", "team")),
    **dict.fromkeys(("usage_factor", "dominant_share", *TEAM_QUOTAS), ("team",)),
    **dict.fromkeys((*WHAT_IF, TIER_PRICE), ("cluster", "tier", "team")),
    **dict.fromkeys((*QUOTAS, *PARTIAL), ("cluster", "namespace")),
}
_NAMES = ("cluster", "namespace", "source", "name", "key", "team", "period", "currency")
_PLACE = ("tier", "cluster", "gpu_model", "capacity_type")


class FigureQuery(Struct, frozen=True):
    """A figure that is to be explained, and what of: `names` are those of the address."""

    figure: str
    reading: QuerySession
    names: QueryDict


Provider = Callable[[FigureQuery], Explained | None]


def _pending_filters(asked: FigureQuery) -> PendingFilters:
    return replace(
        asked.reading.pending_filters,
        cause=tuple(asked.names.getlist("cause")),
        kind=tuple(asked.names.getlist("kind")),
    )


def _pending(asked: FigureQuery) -> Explained | None:
    reading = asked.reading
    return explain_pending(
        asked.figure,
        reading.window,
        now=reading.now,
        visibility=reading.visibility,
        filters=_pending_filters(asked),
    )


def _eviction(asked: FigureQuery) -> Explained | None:
    return explain_eviction(
        asked.figure,
        asked.reading.window,
        visibility=asked.reading.visibility,
        filters=_pending_filters(asked),
    )


def _partial(asked: FigureQuery) -> Explained | None:
    place = {key: asked.names.get(key, "") for key in ("cluster", "namespace", "workload")}
    return explain_partial(
        asked.figure, asked.reading.now, visibility=asked.reading.visibility, **place
    )


def _cost(asked: FigureQuery) -> Explained | None:
    query, narrowed = _of_costs(asked)
    if asked.figure == PER_GPU_HOUR:
        return explain_cost_per_gpu_hour(query, **narrowed)
    if asked.figure == SHARE:
        return explain_cost_share(query, of=asked.reading.filters, **narrowed)
    return explain_cost(asked.figure, query, **narrowed)


def _of_costs(asked: FigureQuery) -> tuple[CostQuery, dict[str, Any]]:
    """Return what an address says of costs; `in_…` names what a share is of."""
    reading, names = asked.reading, asked.names
    charged, filters = query_of(names), reading.filters
    keys = ("cluster", *COST_TAKES, "workload")
    of: dict[str, Any] = {key: (names["in_" + key],) for key in keys if names.get("in_" + key)}
    # What the platform pays for is in rows of the team without a name.
    if names.get("payer") == PLATFORM_PAYS:
        of["team"] = (PLATFORM_NAME,)
    if names.get("workload"):
        of["workload"] = (names["workload"],)
    causes = tuple(cause for cause in Cause if cause.value in names.getlist("cause"))
    query = CostQuery(
        reading.window,
        filters=replace(filters, **of),
        basis=charged.basis,
        policy=charged.policy,
        causes=causes or tuple(Cause),
    )
    return query, {
        "visibility": reading.visibility,
        "currency": names.get("currency", ""),
        "corrections": _CORRECTIONS.get(names.get("corrections", "")),
    }


def _price(asked: FigureQuery) -> Explained | None:
    place = {key: asked.names.get(key, "") for key in _PLACE}
    return explain_price(asked.reading.now, **place)


def _energy(asked: FigureQuery) -> Explained:
    reading = asked.reading
    return explain_energy(reading.window, filters=reading.filters, visibility=reading.visibility)


def _adjustment(asked: FigureQuery) -> Explained | None:
    names = {key: asked.names.get(key, "") for key in ("month", "booked_on", "currency")}
    return explain_adjustment(visibility=asked.reading.visibility, **names)


def _saving(asked: FigureQuery) -> Explained | None:
    reading = asked.reading
    filters = recommended_of(asked.names).filters(reading)
    if asked.figure == COVERED:
        return explain_waste_covered(filters=filters, visibility=reading.visibility)
    currency = asked.names.get("currency", "") or report().currency
    if asked.figure == REALIZED:
        return explain_realized(
            filters=filters, visibility=reading.visibility, now=reading.now, currency=currency
        )
    return explain_saving(
        filters=filters,
        visibility=reading.visibility,
        now=reading.now,
        of_quota=asked.figure == QUOTA_SAVING,
        currency=currency,
    )


def _recommendation(asked: FigureQuery) -> Explained | None:
    pk = asked.names.get("recommendation", "")
    # A larger number is no key: the database refuses to compare with it.
    if not pk.isdecimal() or int(pk) > _LARGEST_PK:
        return None
    return explain_recommendation(int(pk), visibility=asked.reading.visibility)


def _fairness(asked: FigureQuery) -> Explained | None:
    reading = asked.reading
    return explain_fairness(
        asked.figure,
        reading.window,
        now=reading.now,
        visibility=reading.visibility,
        filters=FairnessFilters(tier=reading.filters.tier, team=reading.filters.team),
        other=asked.names.get("other", ""),
    )


def _what_if(asked: FigureQuery) -> Explained | None:
    reading, names = asked.reading, asked.names
    tiers = [row.name for row in tier_rows(visibility=reading.visibility)]
    teams = [row.name for row in team_rows(visibility=reading.visibility)]
    wish = what_if_input(names, names.get("simulated", ""), teams=teams, tiers=tiers)
    # The address does not come from the form: nothing of it is replayed.
    if wish.problems or not wish.changes:
        return None
    try:
        window = capped(reading.choice)
        found = replayed_tier(
            window,
            wish.changes,
            names.get("tier", ""),
            after=names.get("after", "") == "yes",
            visibility=reading.visibility,
        )
        return explain_what_if(asked.figure, window, found, team=names.get("team", ""))
    except (ChangeImpossible, CapacityUnknown, TooMuchToReplay):
        return None


def _quota(asked: FigureQuery) -> Explained | None:
    return explain_quota(
        asked.figure,
        asked.reading.window,
        asked.reading.now,
        ref=QuotaRef(**{part: asked.names.get(part, "") for part in QuotaRef._fields}),
        visibility=asked.reading.visibility,
        team=asked.names.get("team", ""),
    )


def _team_quota(asked: FigureQuery) -> Explained | None:
    names: Any = {name: asked.names.get(name, "") for name in ("team", "resource", "unit")}
    return explain_team_quota(
        asked.figure, asked.reading.now, **names, visibility=asked.reading.visibility
    )


def _budget(asked: FigureQuery) -> Explained | None:
    names: Any = {
        "team": asked.names.get("team", ""),
        "period": asked.names.get("period", ""),
        "visibility": asked.reading.visibility,
    }
    unit = asked.names.get("currency", "")
    if unit:
        return explain_money_budget(asked.figure, asked.reading.now, unit=unit, **names)
    return explain_budget(asked.figure, asked.reading.now, **names)


def _bind_time(asked: FigureQuery) -> Explained | None:
    tiers = asked.reading.filters.tier
    # Queue times of several tiers make no common quantile.
    if len(tiers) != 1:
        return None
    window, filters = queue_time_window(asked.reading.now), asked.reading.filters
    return queue_time(
        asked.figure,
        queue_time_counts(window, tier=tiers[0], filters=filters),
        meaning=f"From the creation of a pod to its node, of the last {QUEUE_TIME_DAYS} days.",
        origin="Creation and binding of pods; before the watch from series.",
    )


def _pending_by_tier(asked: FigureQuery) -> Explained | None:
    filters = asked.reading.filters
    if len(filters.tier) != 1:
        return None
    return explain_pending_gpus(asked.reading.now, tier=filters.tier[0], filters=filters)


PROVIDERS: Mapping[str, Provider] = {
    **dict.fromkeys(PENDING, _pending),
    **dict.fromkeys(EVICTIONS, _eviction),
    **dict.fromkeys(PARTIAL, _partial),
    **dict.fromkeys((*COSTS, SHARE, PER_GPU_HOUR), _cost),
    TIER_PRICE: _price,
    ENERGY: _energy,
    ADJUSTMENT: _adjustment,
    **dict.fromkeys(_BIND_TIMES, _bind_time),
    PENDING_GPUS: _pending_by_tier,
    **dict.fromkeys(_SAVINGS, _saving),
    RECOMMENDED: _recommendation,
    **dict.fromkeys(FAIRNESS, _fairness),
    **dict.fromkeys(WHAT_IF, _what_if),
    **dict.fromkeys(QUOTAS, _quota),
    **dict.fromkeys(TEAM_QUOTAS, _team_quota),
    **dict.fromkeys(BUDGETS, _budget),
}


def names_of(params: QueryDict) -> dict[str, str]:
    """Return what an address says the figure is of, beside window and filters."""
    return {name: params.get(name, "") for name in _NAMES if name in params}


def filters_of(figure: str) -> tuple[str, ...]:
    """Return the filters that a figure is narrowed by, beside the cluster."""
    if figure in (*COSTS, SHARE, PER_GPU_HOUR, ENERGY):
        return COST_TAKES
    return (
        ("tier", "team", "namespace")
        if figure in (*PENDING, *EVICTIONS, *_SAVINGS)
        else ("tier", "team")
    )


def subject_of(figure: str) -> tuple[str, ...]:
    """Return the filters without which a figure is of nothing."""
    return _SUBJECTS.get(figure, ())


def explained(asked: FigureQuery) -> Explained | None:
    """Return the explanation of a figure; None where there is none, or it may not be seen."""
    provider = PROVIDERS.get(asked.figure)
    return provider(asked) if provider is not None else None
