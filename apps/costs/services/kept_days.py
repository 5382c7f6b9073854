"""Price a day again of which only sums by team and workload are kept."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct, field

from apps.costs.domain.costing import (
    apportioned,
    divided,
)
from apps.costs.models import TeamCostHour, WorkloadCostDay
from apps.costs.services.cost_rows import (
    _WIDTH,
    HELD_COLUMNS,
    HELD_NAMES,
    HOLDER_COLUMNS,
    KIND_COLUMNS,
    RATE_COLUMNS,
    WORKLOAD_COLUMNS,
    HourCosts,
    Pricing,
    _Row,
    team_facts_of,
)
from apps.usage.models import Day, WorkloadDay

logger = logging.getLogger(__name__)
_HOUR = timedelta(hours=1)
_KINDS = len(KIND_COLUMNS)
_AMOUNTS = (*range(_WIDTH), *map(HELD_COLUMNS.index, ("energy_mwh", "carbon_mwh")))
"""Where in HELD_COLUMNS amounts stand; what each costs stands `_COSTS` of the same place."""
_COSTS = (*range(_WIDTH, 2 * _WIDTH), *map(HELD_COLUMNS.index, ("cost_energy", "carbon_ug")))
_Holding = tuple[Any, ...]
"""A team and its kind of pool."""


class PrunedDay(Struct):
    """Rows of a day: of teams and pools by hour, of workloads for the whole day."""

    hours: dict[datetime, HourCosts] = field(default_factory=dict)
    workloads: list[_Row] = field(default_factory=list)


def pruned_day(day: Day, pricing: Pricing) -> PrunedDay:
    """Return a day as it is priced now. Six queries.

    What was priced before at the same price stays to the last digit: its workloads were rounded
    one by one, which cannot be done again. Raises AmountTooLarge.
    """
    hours = [day.start + n * _HOUR for n in range((day.end - day.start) // _HOUR)]
    facts = team_facts_of(day.cluster_id, hours)
    made = PrunedDay({hour: pricing.costs(hour, facts[hour]) for hour in hours if facts[hour].free})
    workloads = _workloads(day)
    # Each workload was rounded once, and the team's own sum once more.
    rounded = {holding: len(rows) + 1 for holding, rows in workloads.items()}
    _keep_what_is_the_same(day, made, rounded)
    before = _workloads_before(day)
    for holding, by_rate in sorted(_by_rate(made).items()):
        known = before.get(holding, [])
        if _sums_by_rate(known) == by_rate:
            made.workloads += known
        else:
            made.workloads += _divide_day(holding, by_rate, workloads.get(holding, []))
    return made


def _keep_what_is_the_same(day: Day, made: PrunedDay, rounded: dict[_Holding, int]) -> None:
    """Put what teams and pools cost before in place of what differs from it by rounding alone."""
    of_day = {"cluster_id": day.cluster_id, "hour__gte": day.start, "hour__lt": day.end}
    teams = TeamCostHour.objects.filter(**of_day).order_by()
    known = {
        (row[0], *row[1 : 2 + _KINDS]): row[2 + _KINDS :]
        for row in teams.values_list("hour", "team_id", *KIND_COLUMNS, *RATE_COLUMNS, *HELD_COLUMNS)
    }
    first = 1 + _KINDS
    end = first + len(RATE_COLUMNS) + len(HELD_COLUMNS)
    for hour, costs in made.hours.items():
        sums: dict[_Row, list[int]] = defaultdict(lambda: [0] * len(HELD_COLUMNS))
        for place, row in enumerate(costs.teams):
            now, then = row[first:end], known.get((hour, *row[:first]))
            if then is not None and _is_same(now, then, rounded.get(row[:first], 1)):
                costs.teams[place] = row = (*row[:first], *then, *row[end:])
            own = sums[row[1:first]]
            for at, value in enumerate(row[first + len(RATE_COLUMNS) : end]):
                own[at] += value
        costs.pools = [
            (*row[: _KINDS + len(RATE_COLUMNS)], *sums[row[:_KINDS]], *row[end - 1 :])
            for row in costs.pools
        ]


def _is_same(now: _Row, then: _Row, rounded: int) -> bool:
    """Say whether rates and amounts are equal, and costs but for so many roundings."""
    rates = len(RATE_COLUMNS)
    if now[:rates] != then[:rates]:
        return False
    pairs = list(zip(now[rates:], then[rates:], strict=True))
    # Amounts are exact; each workload's cost was rounded alone, which adds up in the sum.
    return all(pairs[at][0] == pairs[at][1] for at in _AMOUNTS) and all(
        abs(pairs[at][0] - pairs[at][1]) <= rounded for at in _COSTS
    )


def _by_rate(made: PrunedDay) -> dict[_Holding, dict[_Row, list[int]]]:
    """Return what each team's day comes to on each kind of pool, by rate."""
    found: dict[_Holding, dict[_Row, list[int]]] = defaultdict(dict)
    first, rates = 1 + _KINDS, len(RATE_COLUMNS)
    for costs in made.hours.values():
        for row in costs.teams:
            values = row[first + rates : first + rates + len(HELD_COLUMNS)]
            if not any(values):
                continue  # it has a share of what was unallocated, and held nothing
            known = found[row[:first]].get(row[first : first + rates], [0] * len(HELD_COLUMNS))
            summed = [a + b for a, b in zip(known, values, strict=True)]
            found[row[:first]][row[first : first + rates]] = summed
    return found


def _workloads(day: Day) -> dict[_Holding, list[tuple[_Row, list[int]]]]:
    """Return what each workload of a team's kind of pool held, as (holder, amounts)."""
    found: dict[_Holding, list[tuple[_Row, list[int]]]] = defaultdict(list)
    # Twice: what has a factor is divided as the energy is.
    columns = (*HOLDER_COLUMNS, *KIND_COLUMNS, *HELD_NAMES, "energy_mwh", "energy_mwh")
    rows = WorkloadDay.objects.filter(cluster_id=day.cluster_id, day=day.day)
    holder = len(HOLDER_COLUMNS)
    for row in rows.order_by("workload_id", "pk").values_list(*columns):
        holding = (row[0], *row[holder : holder + _KINDS])
        found[holding].append((row[:holder], [int(n) for n in row[holder + _KINDS :]]))
    return found


def _workloads_before(day: Day) -> dict[_Holding, list[_Row]]:
    found: dict[_Holding, list[_Row]] = defaultdict(list)
    rows = WorkloadCostDay.objects.filter(cluster_id=day.cluster_id, day=day.day)
    holder = len(HOLDER_COLUMNS)
    for row in rows.order_by("pk").values_list(*WORKLOAD_COLUMNS):
        found[row[0], *row[holder : holder + _KINDS]].append(row)
    return found


def _sums_by_rate(rows: Iterable[_Row]) -> dict[_Row, list[int]]:
    """Return rows of WORKLOAD_COLUMNS summed by rate."""
    first = len(HOLDER_COLUMNS) + _KINDS
    found: dict[_Row, list[int]] = defaultdict(lambda: [0] * len(HELD_COLUMNS))
    for row in rows:
        own = found[row[first : first + len(RATE_COLUMNS)]]
        for at, value in enumerate(row[first + len(RATE_COLUMNS) :]):
            own[at] += value
    return dict(found)


def _divide_day(
    holding: _Holding,
    by_rate: dict[_Row, list[int]],
    workloads: Sequence[tuple[_Row, list[int]]],
) -> list[_Row]:
    """Return a team's day divided among its workloads: rows sum to the team's, rate by rate."""
    if not workloads:
        logger.warning("nothing is kept of what the workloads of %s held", holding)
        return []
    # By text, since a rate may hold None, which cannot be compared with numbers.
    ordered = sorted(by_rate.items(), key=lambda item: repr(item[0]))
    rates, sums = [rate for rate, _ in ordered], [values for _, values in ordered]
    parts: list[list[list[int]]] = [[[0] * len(HELD_COLUMNS) for _ in workloads] for _ in rates]
    for place, (at, cost_at) in enumerate(zip(_AMOUNTS, _COSTS, strict=True)):
        weights = [amounts[place] for _, amounts in workloads]
        shares = divided([values[at] for values in sums], weights)
        for of_rate, values, share in zip(parts, sums, shares, strict=True):
            costs = apportioned(values[cost_at], share) if any(share) else share
            for own, amount, cost in zip(of_rate, share, costs, strict=True):
                # Each cause by its own GPU-hours: one share of all would move cost between causes.
                own[at], own[cost_at] = amount, cost
    return [
        (*holder, *holding[1:], *rate, *own)
        for rate, of_rate in zip(rates, parts, strict=True)
        for (holder, _), own in zip(workloads, of_rate, strict=True)
        if any(own)
    ]
