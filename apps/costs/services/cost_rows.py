"""From an hour's facts to rows of cost: by workload, by team and by pool."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import Sum

from apps.accounts.models import Team
from apps.costs.domain.costing import CHARGED, HELD, Basis, Cause, fact_cost
from apps.costs.domain.prices import energy_cost
from apps.costs.domain.unallocated import Policy, shared
from apps.costs.services.rates import Kind, Rate, Rates
from apps.usage.models import PodHour, TierHour

HELD_NAMES = tuple(cause.value for cause in HELD)
FREE_NAMES = ("unallocated", "unhealthy")
KIND_COLUMNS = ("cluster_id", "tier_id", "gpu_model_id", "capacity_type")
RATE_COLUMNS = ("price", "list_price", "currency")
HELD_COLUMNS = (
    *HELD_NAMES,
    *(f"cost_{name}" for name in HELD_NAMES),
    *("energy_mwh", "cost_energy"),
)
SHARES = (
    (Policy.ENTITLEMENT, Basis.ALLOCATED),
    (Policy.USE, Basis.ALLOCATED),
    (Policy.USE, Basis.USED),
)
"""The sharings that are kept, in the order of SHARE_COLUMNS; by entitlement both bases agree."""
SHARE_COLUMNS = (
    *("by_entitlement", "by_held", "by_used"),
    *("cost_by_entitlement", "cost_by_held", "cost_by_used"),
)
FREE_COLUMNS = (*FREE_NAMES, *(f"cost_{name}" for name in FREE_NAMES), "burst")

_WIDTH = len(HELD_NAMES)
_Row = tuple[Any, ...]


class Holder(NamedTuple):
    team: int
    namespace: int
    workload: int


@dataclass(slots=True)
class HourCosts:
    """Rows of one hour in the order of the columns named; the hour itself is not in them."""

    workloads: list[_Row] = field(default_factory=list)
    teams: list[_Row] = field(default_factory=list)
    pools: list[_Row] = field(default_factory=list)


HOLDER_COLUMNS = ("team_id", "namespace_id", "workload_id")
WORKLOAD_COLUMNS = (*HOLDER_COLUMNS, *KIND_COLUMNS, *RATE_COLUMNS, *HELD_COLUMNS)
TEAM_COLUMNS = ("team_id", *KIND_COLUMNS, *RATE_COLUMNS, *HELD_COLUMNS, *SHARE_COLUMNS)
POOL_COLUMNS = (*KIND_COLUMNS, *RATE_COLUMNS, *HELD_COLUMNS, *FREE_COLUMNS)


@dataclass(slots=True)
class HourFacts:
    """What an hour's facts say of each pool: who held what, and what nobody held."""

    held: dict[Kind, list[tuple[Holder, Sequence[int]]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    free: dict[Kind, Sequence[int]] = field(default_factory=dict)


def facts_of(cluster: int, hours: Sequence[datetime]) -> dict[datetime, HourFacts]:
    """Return the facts of some hours of a cluster. Two queries."""
    found: dict[datetime, HourFacts] = {hour: HourFacts() for hour in hours}
    of_hours = {"cluster_id": cluster, "hour__in": list(hours)}
    sums = {f"sum_{name}": Sum(name) for name in (*HELD_NAMES, "energy_mwh")}
    keys = ("hour", *HOLDER_COLUMNS, *KIND_COLUMNS)
    pods = PodHour.objects.filter(**of_hours).order_by().values(*keys).annotate(**sums)
    for row in pods.values_list(*keys, *sums):
        kind = Kind(*row[4:8])
        found[row[0]].held[kind].append((Holder(*row[1:4]), [int(value) for value in row[8:]]))
    tiers = TierHour.objects.filter(**of_hours).order_by()
    for row in tiers.values_list("hour", *KIND_COLUMNS, *FREE_NAMES, "burst"):
        # A tier has one row for each kind in an hour, or sums that are to be added.
        kind = Kind(*row[1:5])
        known = found[row[0]].free.get(kind, (0, 0, 0))
        found[row[0]].free[kind] = [a + b for a, b in zip(known, row[5:], strict=True)]
    return found


class Pricing:
    """Prices hours; looks team names up once. One query."""

    def __init__(self, rates: Rates) -> None:
        self.rates = rates
        self._names = dict(Team.objects.order_by("pk").values_list("pk", "name"))
        self._ids = {name: pk for pk, name in self._names.items()}

    def costs(self, hour: datetime, facts: HourFacts) -> HourCosts:
        """Return the rows of an hour. What has no price costs 0 in them and has no currency."""
        made = HourCosts()
        for kind in sorted(facts.held.keys() | facts.free.keys()):
            held = sorted(facts.held.get(kind, ()))
            self._pool(made, kind, hour, held, facts.free.get(kind, (0, 0, 0)))
        return made

    def _pool(
        self,
        made: HourCosts,
        kind: Kind,
        hour: datetime,
        held: Sequence[tuple[Holder, Sequence[int]]],
        free: Sequence[int],
    ) -> None:
        rate = self.rates.rate(kind, hour)
        rated: _Row = (None, None, "") if rate is None else rate[:3]
        by_team: dict[int, list[int]] = defaultdict(lambda: [0] * len(HELD_COLUMNS))
        for holder, amounts in held:
            values = _held_values(amounts, rate)
            made.workloads.append((*holder, *kind, *rated, *values))
            _add(by_team[holder.team], values)
        whole = [0] * len(HELD_COLUMNS)
        for values in by_team.values():
            _add(whole, values)
        beside = _free_values(free, rate)
        shares = self._shares(kind, hour, by_team, beside)
        for team in sorted(by_team.keys() | shares.keys()):
            share = shares.get(team, [0] * len(SHARE_COLUMNS))
            made.teams.append((team, *kind, *rated, *by_team[team], *share))
        made.pools.append((*kind, *rated, *whole, *beside))

    def _shares(
        self, kind: Kind, hour: datetime, by_team: Mapping[int, Sequence[int]], free: Sequence[int]
    ) -> dict[int, list[int]]:
        """Return each team's shares of what is unallocated, in the order of SHARE_COLUMNS."""
        gpu_hours, cost = free[0], free[len(FREE_NAMES)]
        entitlements = self.rates.entitlements(kind.tier, hour)
        found: dict[int, list[int]] = defaultdict(lambda: [0] * len(SHARE_COLUMNS))
        for place, (policy, basis) in enumerate(SHARES):
            used = {self._names[team]: _charged(row, basis) for team, row in by_team.items()}
            for column, amount in ((place, gpu_hours), (place + len(SHARES), cost)):
                split = shared(amount, policy, entitlements=entitlements, used=used)
                for team, share in split.items():
                    # What nobody can be charged stays with the platform, which has no row here.
                    if team and share:
                        found[self._ids[team]][column] += share
        return found


def _held_values(amounts: Sequence[int], rate: Rate | None) -> list[int]:
    """Return HELD_COLUMNS of one holder; `amounts` are HELD_NAMES and the energy."""
    parts = amounts[:_WIDTH]
    if rate is None:
        return [*parts, *([0] * _WIDTH), amounts[_WIDTH], 0]
    cost = fact_cost(dict(zip(HELD, parts, strict=True)), rate.price)
    energy = 0
    if rate.energy is not None:
        tariff = rate.energy
        energy = energy_cost(amounts[_WIDTH], per_kwh=tariff.per_kwh, pue=tariff.pue)
    return [*parts, *(cost.get(cause, 0) for cause in HELD), amounts[_WIDTH], energy]


def _free_values(free: Sequence[int], rate: Rate | None) -> list[int]:
    """Return FREE_COLUMNS; `free` are FREE_NAMES and the burst."""
    unallocated, unhealthy, burst = free
    if rate is None:
        return [unallocated, unhealthy, 0, 0, burst]
    parts = {Cause.UNALLOCATED: unallocated, Cause.UNHEALTHY: unhealthy}
    cost = fact_cost(parts, rate.price)
    return [unallocated, unhealthy, *(cost.get(cause, 0) for cause in parts), burst]


def _charged(row: Sequence[int], basis: Basis) -> int:
    return sum(row[HELD.index(cause)] for cause in CHARGED[basis])


def _add(total: list[int], values: Iterable[int]) -> None:
    for place, value in enumerate(values):
        total[place] += value


def with_hour(at: object, rows: Iterable[_Row]) -> Iterator[_Row]:
    """Yield rows with the hour in front."""
    return ((at, *row) for row in rows)
