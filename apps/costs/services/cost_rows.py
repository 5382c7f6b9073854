"""Rows of cost by workload, team and pool, from the facts of hours or of days long past.

Of a day whose facts by pod are gone, the held hours of each team are kept by hour, those of
workloads by day. So teams and pools are priced hour by hour as ever, and what a team's day costs
is divided among its workloads, cause by cause, in proportion to their GPU-hours.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from django.db.models import Sum
from msgspec import Struct, field

from apps.accounts.models import Team
from apps.costs.domain.carbon import carbon_ug
from apps.costs.domain.costing import (
    CHARGED,
    FREE,
    HELD,
    Basis,
    Policy,
    fact_cost,
    shared,
)
from apps.costs.domain.prices import energy_cost
from apps.costs.services.prices import PoolKey, PoolPrice, PoolPrices, RateNames
from apps.usage.models import PodHour, TeamHour, TierHour

HELD_NAMES = tuple(cause.value for cause in HELD)
FREE_NAMES = tuple(cause.value for cause in FREE)
KIND_COLUMNS = ("cluster_id", "tier_id", "gpu_model_id", "capacity_type")
RATE_COLUMNS = ("price", "list_price", "currency")
HELD_COLUMNS = (
    *HELD_NAMES,
    *(f"cost_{name}" for name in HELD_NAMES),
    *("energy_mwh", "cost_energy", "carbon_mwh", "carbon_ug"),
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
FREE_COLUMNS = (
    *(*FREE_NAMES, *(f"cost_{name}" for name in FREE_NAMES)),
    *("burst", "free_energy_mwh", "cost_free_energy", "free_carbon_mwh", "free_carbon_ug"),
)
_WIDTH = len(HELD_NAMES)
_MOST = (2**63 - 1) // 25
"""What an hour's amount may be, so that the day's is a 64-bit number too."""
# What lies beside the causes: the burst and the energy.
_NOTHING_FREE = (0,) * (len(FREE_NAMES) + 2)
_Row = tuple[Any, ...]
HOLDER_COLUMNS = ("team_id", "namespace_id", "workload_id")
WORKLOAD_COLUMNS = (*HOLDER_COLUMNS, *KIND_COLUMNS, *RATE_COLUMNS, *HELD_COLUMNS)
TEAM_COLUMNS = ("team_id", *KIND_COLUMNS, *RATE_COLUMNS, *HELD_COLUMNS, *SHARE_COLUMNS)


class AmountTooLarge(ValueError):
    """An hour of a pool costs more than a 64-bit number of 1e-8 holds; the text says what to do."""


class CostHolder(NamedTuple):
    team: int
    namespace: int = 0
    workload: int = 0


class HourCosts(Struct):
    """Rows of one hour in the order of the columns named; the hour itself is not in them."""

    workloads: list[_Row] = field(default_factory=list)
    teams: list[_Row] = field(default_factory=list)
    pools: list[_Row] = field(default_factory=list)


class PricedFacts(Struct):
    """An hour's facts of each pool: what each workload held, and the unallocated capacity."""

    held: dict[PoolKey, list[tuple[CostHolder, Sequence[int]]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    free: dict[PoolKey, Sequence[int]] = field(default_factory=dict)


def facts_of(cluster: int, hours: Sequence[datetime]) -> dict[datetime, PricedFacts]:
    """Return the facts of some hours of a cluster, by workload. Two queries."""
    return _read_facts(PodHour, HOLDER_COLUMNS, cluster, hours)


def team_facts_of(cluster: int, hours: Sequence[datetime]) -> dict[datetime, PricedFacts]:
    """Return the facts of hours whose facts by pod are gone: each team is one holder.

    Its namespace and workload are 0. Two queries.
    """
    return _read_facts(TeamHour, ("team_id",), cluster, hours)


def _read_facts(
    table: type[PodHour | TeamHour],
    holder: Sequence[str],
    cluster: int,
    hours: Sequence[datetime],
) -> dict[datetime, PricedFacts]:
    found: dict[datetime, PricedFacts] = {hour: PricedFacts() for hour in hours}
    of_hours = {"cluster_id": cluster, "hour__in": list(hours)}
    sums = {f"sum_{name}": Sum(name) for name in (*HELD_NAMES, "energy_mwh")}
    keys = ("hour", *KIND_COLUMNS, *holder)
    first = len(KIND_COLUMNS) + 1
    rows = table._default_manager.filter(**of_hours).order_by().values(*keys).annotate(**sums)
    drawn: dict[tuple[datetime, PoolKey], int] = defaultdict(int)
    for row in rows.values_list(*keys, *sums):
        kind, held = PoolKey(*row[1:first]), [int(value) for value in row[len(keys) :]]
        drawn[row[0], kind] += held[_WIDTH]
        found[row[0]].held[kind].append((CostHolder(*row[first : len(keys)]), held))
    tiers = TierHour.objects.filter(**of_hours).order_by()
    for row in tiers.values_list("hour", *KIND_COLUMNS, *FREE_NAMES, "burst", "energy_mwh"):
        # A tier has one row for each kind in an hour, or sums that are to be added.
        kind = PoolKey(*row[1:first])
        known = found[row[0]].free.get(kind, _NOTHING_FREE)
        found[row[0]].free[kind] = [a + b for a, b in zip(known, row[first:], strict=True)]
    for hour, facts in found.items():
        for kind, (*free, energy) in facts.free.items():
            # A tier's energy is that of its GPUs; the draw of unattributed activity stays out.
            facts.free[kind] = [*free, max(0, energy - drawn[hour, kind])]
    return found


class Pricing:
    """Prices hours; looks team names up once, and those of teams made since. One query."""

    def __init__(self, rates: PoolPrices) -> None:
        self.rates = rates
        self._teams = RateNames(Team)

    def costs(self, hour: datetime, facts: PricedFacts) -> HourCosts:
        """Return the rows of an hour. What has no price costs 0 in them and has no currency.

        Raises AmountTooLarge.
        """
        made = HourCosts()
        for kind in sorted(facts.held.keys() | facts.free.keys()):
            held = sorted(facts.held.get(kind, ()))
            self._pool(made, kind, hour, held, facts.free.get(kind, _NOTHING_FREE))
        return made

    def _pool(
        self,
        made: HourCosts,
        kind: PoolKey,
        hour: datetime,
        held: Sequence[tuple[CostHolder, Sequence[int]]],
        free: Sequence[int],
    ) -> None:
        rate = self.rates.rate(kind, hour)
        grams = self.rates.grams(kind.cluster, hour)
        rated: _Row = (None, None, "") if rate is None else rate[:3]
        by_team: dict[int, list[int]] = defaultdict(lambda: [0] * len(HELD_COLUMNS))
        for holder, amounts in held:
            values = [*_held_values(amounts, rate), *_carbon(amounts[_WIDTH], grams)]
            made.workloads.append((*holder, *kind, *rated, *values))
            _add_to(by_team[holder.team], values)
        whole = [0] * len(HELD_COLUMNS)
        for values in by_team.values():
            _add_to(whole, values)
        beside = [*_free_values(free, rate), *_carbon(free[-1], grams)]
        shares = self._shares(kind, hour, by_team, beside)
        for team in sorted(by_team.keys() | shares.keys()):
            share = shares.get(team, [0] * len(SHARE_COLUMNS))
            made.teams.append((team, *kind, *rated, *by_team[team], *share))
        # Checked here: the database's own error would not name the hour and the tier.
        if max(*whole, *beside) > _MOST:
            raise AmountTooLarge(_too_large(kind, hour, rate))
        made.pools.append((*kind, *rated, *whole, *beside))

    def _shares(
        self,
        kind: PoolKey,
        hour: datetime,
        by_team: Mapping[int, Sequence[int]],
        free: Sequence[int],
    ) -> dict[int, list[int]]:
        used = {basis: self._used(by_team, basis) for basis in Basis}
        return self.shares(kind, hour, used, gpu_hours=free[0], cost=free[len(FREE_NAMES)])

    def _used(self, by_team: Mapping[int, Sequence[int]], basis: Basis) -> dict[str, int]:
        return {self._teams.name(team): _charged(row, basis) for team, row in by_team.items()}

    def shares(
        self,
        kind: PoolKey,
        hour: datetime,
        used: Mapping[Basis, Mapping[str, int]],
        *,
        gpu_hours: int,
        cost: int,
    ) -> dict[int, list[int]]:
        """Return each team's shares of what is unallocated, in the order of SHARE_COLUMNS."""
        entitlements = self.rates.entitlements(kind.tier, hour)
        found: dict[int, list[int]] = defaultdict(lambda: [0] * len(SHARE_COLUMNS))
        # All policies are stored, so that a change of policy needs no pricing anew.
        for place, (policy, basis) in enumerate(SHARES):
            for column, amount in ((place, gpu_hours), (place + len(SHARES), cost)):
                split = shared(amount, policy, entitlements=entitlements, used=used[basis])
                for name, share in split.items():
                    team = self._teams.id(name) if name else None
                    # Cost without a payer stays with the platform, which has no row here.
                    if team is not None and share:
                        found[team][column] += share
        return found


def _too_large(kind: PoolKey, hour: datetime, rate: PoolPrice | None) -> str:
    price = "no price" if rate is None else f"{rate.price / 10**8:,.2f} {rate.currency}"
    return (
        f"the hour {hour:%Y-%m-%dT%H:%MZ} of cluster {kind.cluster}, tier {kind.tier} at {price} "
        "per GPU-hour is more than can be kept: price it in a currency of larger units"
    )


def _held_values(amounts: Sequence[int], rate: PoolPrice | None) -> list[int]:
    """Return HELD_COLUMNS of one holder without carbon; `amounts` are HELD_NAMES and the energy."""
    parts = amounts[:_WIDTH]
    if rate is None:
        return [*parts, *([0] * _WIDTH), amounts[_WIDTH], 0]
    # One rounding for each holder and hour; teams and pools are sums of these.
    cost = fact_cost(dict(zip(HELD, parts, strict=True)), rate.price)
    energy = amounts[_WIDTH]
    return [*parts, *(cost.get(cause, 0) for cause in HELD), energy, _energy(energy, rate)]


def _carbon(energy_mwh: int, grams: Decimal | None) -> tuple[int, int]:
    """Return how much of an hour's energy has a factor, and its carbon in micrograms."""
    return (0, 0) if grams is None else (energy_mwh, carbon_ug(energy_mwh, grams))


def _energy(energy_mwh: int, rate: PoolPrice) -> int:
    if rate.per_kwh is None:
        return 0
    return energy_cost(energy_mwh, per_kwh=rate.per_kwh, pue=rate.pue)


def _free_values(free: Sequence[int], rate: PoolPrice | None) -> list[int]:
    """Return FREE_COLUMNS without carbon; `free` are FREE_NAMES, the burst and the energy."""
    *amounts, burst, energy = free
    if rate is None:
        return [*amounts, *([0] * len(FREE)), burst, energy, 0]
    cost = fact_cost(dict(zip(FREE, amounts, strict=True)), rate.price)
    costs = [cost.get(cause, 0) for cause in FREE]
    return [*amounts, *costs, burst, energy, _energy(energy, rate)]


def _charged(row: Sequence[int], basis: Basis) -> int:
    return sum(row[HELD.index(cause)] for cause in CHARGED[basis])


def _add_to(total: list[int], values: Iterable[int]) -> None:
    for place, value in enumerate(values):
        total[place] += value


def with_hour(at: object, rows: Iterable[_Row]) -> Iterator[_Row]:
    """Yield rows with the hour in front."""
    return ((at, *row) for row in rows)
