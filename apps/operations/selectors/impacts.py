"""The impact of proposals: shares of a tier, namespaces that move, cost, and a budget's pace."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from msgspec import Struct

from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.domain.names import NamespacePattern, namespace_team
from apps.clusters.domain.window import Window, hour_floor
from apps.clusters.models import Namespace, NamespaceTeam, holds_at
from apps.clusters.selectors import report
from apps.costs.domain.costing import SCALE
from apps.costs.selectors import CostQuery, MoneyBudgetRow, cost_rows, money_budget_rows
from apps.operations.domain.proposals import (
    ProposalKind,
    ProposalTarget,
    ProposedChange,
    budget_parts,
)
from apps.quotas.domain.budgets import period_at
from apps.quotas.selectors import BurnRow, EntitledTeam, budget_rows, entitled_teams
from apps.usage.domain.amounts import NANO
from apps.usage.domain.usage_query import Filters, Grouping, TimeStep, UsageQuery
from apps.usage.models import HAS_FACTS, CollectionWindow
from apps.usage.selectors import usage_rows

_DAY, _HOUR = timedelta(days=1), timedelta(hours=1)
COST_DAYS = 30
_NOBODY = 0


class EntitlementImpact(Struct, frozen=True):
    """An entitlement against its tier: GPUs, averages of the last 24 closed hours.

    `others` is the sum of the entitlements of other teams in the tier. `capacity` and `allocated`
    (of this team) are None where no hour of the tier is known.
    """

    others: float
    capacity: float | None
    allocated: float | None

    def committed(self, gpus: float) -> float | None:
        """Return all entitlements ÷ capacity (1.0 is all of it) with `gpus` for this team."""
        return (self.others + gpus) / self.capacity if self.capacity else None

    def share(self, gpus: float) -> float | None:
        """Return this team's part (0..1) of all entitlements in the tier; None without any."""
        return gpus / (self.others + gpus) if self.others + gpus else None


class NamespaceMove(Struct, frozen=True):
    """A namespace that another team would have; an empty team is none."""

    namespace: str
    before: str
    after: str


class NamespacesImpact(Struct, frozen=True):
    """The namespaces that change their team, and their cost of the last COST_DAYS by currency.

    `costs` is empty where nothing of them has a price, or the reader does not see their money.
    """

    moves: tuple[NamespaceMove, ...]
    costs: Mapping[str, Decimal]


class BudgetImpact(Struct, frozen=True):
    """What a team used in the period that runs, and what it will have used at its end at this pace.

    Both in `unit`, `gpu_hours` or a currency; None where no hour of the period is known, or the
    reader does not see the money.
    """

    unit: str
    used: float | None
    projected: float | None

    def burn_rate(self, allowance: float) -> float | None:
        """Return the pace, 1.0 for a linear one; None of a budget of 0."""
        return self.projected / allowance if self.projected is not None and allowance else None


ProposalImpact = EntitlementImpact | NamespacesImpact | BudgetImpact


def proposal_impacts(
    changes: Sequence[ProposedChange], *, now: datetime, visibility: Visibility
) -> list[ProposalImpact]:
    """Return the impact of each change, in order.

    Entitlements and GPU sums are open to everybody; money is read only of teams whose money the
    reader sees. At most 60 queries, however many changes there are; none for none.
    """
    # Read by kind: the queries of a kind do not grow with its proposals.
    by_kind: dict[ProposalKind, list[ProposedChange]] = defaultdict(list)
    for change in changes:
        by_kind[change.target.kind].append(change)
    found: dict[ProposalTarget, ProposalImpact] = {}
    for kind, some in by_kind.items():
        match kind:
            case ProposalKind.ENTITLEMENT:
                found |= _entitlements(some, now)
            case ProposalKind.NAMESPACES:
                found |= _namespaces(some, now, visibility)
            case ProposalKind.BUDGET:
                found |= _budgets(some, now, visibility)
    return [found[change.target] for change in changes]


# ---------------------------------------------------------------- entitlements


def _entitlements(
    changes: Iterable[ProposedChange], now: datetime
) -> dict[ProposalTarget, ProposalImpact]:
    targets = [change.target for change in changes]
    tiers = tuple(sorted({target.subject for target in targets}))
    # The hour that runs is not collected yet: with it every average would be too low.
    closed = hour_floor(now, report().zone)
    day = Window(closed - _DAY, closed)
    capacity: dict[str, list[int]] = defaultdict(list)
    asked = UsageQuery(day, TimeStep.HOUR, (Grouping.TIER,), Filters(tier=tiers))
    for row in usage_rows(asked, visibility=EVERYTHING):
        if row.amounts.capacity is not None:
            capacity[row.groups[Grouping.TIER]].append(row.amounts.capacity)
    teams = tuple(sorted({target.team for target in targets}))
    groups = (Grouping.TIER, Grouping.TEAM)
    asked = UsageQuery(day, group_by=groups, filters=Filters(tier=tiers, team=teams))
    held = {
        (row.groups[Grouping.TIER], row.groups[Grouping.TEAM]): row.amounts.allocated
        for row in usage_rows(asked, visibility=EVERYTHING)
    }
    entitled = entitled_teams(now, visibility=EVERYTHING)
    return {
        target: _entitlement(target, entitled, capacity.get(target.subject, ()), held)
        for target in targets
    }


def _entitlement(
    target: ProposalTarget,
    entitled: Sequence[EntitledTeam],
    capacity: Sequence[int],
    held: Mapping[tuple[str, str], int],
) -> EntitlementImpact:
    others = (e.gpus for e in entitled if e.tier == target.subject and e.team != target.team)
    hours = len(capacity)
    # A team that held nothing in an hour has no row of its own.
    allocated = held.get((target.subject, target.team), 0)
    return EntitlementImpact(
        others=sum(others),
        capacity=sum(capacity) / NANO / hours if hours else None,
        allocated=allocated / NANO / hours if hours else None,
    )


# ---------------------------------------------------------------- namespaces


def _namespaces(
    changes: Sequence[ProposedChange], now: datetime, visibility: Visibility
) -> dict[ProposalTarget, ProposalImpact]:
    names = list(
        Namespace.objects.filter(cluster__active=True)
        .order_by("name")
        .values_list("name", flat=True)
        .distinct()
    )
    rows = NamespaceTeam.objects.filter(holds_at(now)).order_by("position", "pk")
    rules = list(rows.values_list("team__name", "pattern"))
    moves = {change.target: _moves(change, names, rules) for change in changes}
    moved = {move.namespace for found in moves.values() for move in found}
    costs = _costs(moved, now, visibility)
    return {target: NamespacesImpact(found, _sum(found, costs)) for target, found in moves.items()}


def _moves(
    change: ProposedChange, names: Sequence[str], rules: Sequence[tuple[str, str]]
) -> tuple[NamespaceMove, ...]:
    team, wanted = change.target.team, list(change.after.get("patterns", ()))
    # An exact name goes before a pattern of any team, so all teams' patterns decide together.
    kept = [(owner, name) for owner, name in rules if owner != team or name in wanted]
    # What is new comes last, as it does when the catalog is loaded.
    changed = [*kept, *((team, name) for name in wanted if (team, name) not in kept)]
    before, after = _TeamFinder(rules), _TeamFinder(changed)
    pairs = ((name, before(name), after(name)) for name in names)
    return tuple(NamespaceMove(*pair) for pair in pairs if pair[1] != pair[2])


class _TeamFinder:
    """The team of a namespace by these patterns; empty where none names it."""

    def __init__(self, rules: Sequence[tuple[str, str]]) -> None:
        self._teams = ["", *dict.fromkeys(team for team, _ in rules)]
        places = {team: place for place, team in enumerate(self._teams)}
        patterns = [NamespacePattern(places[team], pattern) for team, pattern in rules]
        self._place_of = namespace_team(patterns, otherwise=_NOBODY)

    def __call__(self, namespace: str) -> str:
        return self._teams[self._place_of(namespace)]


def _costs(
    names: Iterable[str], now: datetime, visibility: Visibility
) -> Mapping[str, Mapping[str, Decimal]]:
    """Return namespace → currency → cost of the last COST_DAYS."""
    found: dict[str, dict[str, Decimal]] = defaultdict(dict)
    asked = tuple(sorted(names))
    if not asked:
        return found
    closed = hour_floor(now, report().zone)
    query = CostQuery(
        Window(closed - COST_DAYS * _DAY, closed),
        group_by=(Grouping.NAMESPACE,),
        filters=Filters(namespace=asked),
        # Corrections are of closed months: they do not move with a namespace.
        corrections=False,
    )
    for row in cost_rows(query, visibility=visibility):
        if row.cost is not None and row.currency:
            sums = found[row.groups[Grouping.NAMESPACE]]
            sums[row.currency] = sums.get(row.currency, Decimal(0)) + Decimal(row.cost) / SCALE
    return found


def _sum(
    moves: Iterable[NamespaceMove], costs: Mapping[str, Mapping[str, Decimal]]
) -> Mapping[str, Decimal]:
    found: dict[str, Decimal] = {}
    for move in moves:
        for currency, cost in costs.get(move.namespace, {}).items():
            found[currency] = found.get(currency, Decimal(0)) + cost
    return found


# ---------------------------------------------------------------- budgets


def _budgets(
    changes: Sequence[ProposedChange], now: datetime, visibility: Visibility
) -> dict[ProposalTarget, ProposalImpact]:
    found: dict[ProposalTarget, ProposalImpact] = {}
    by_unit: dict[str, list[ProposalTarget]] = defaultdict(list)
    for change in changes:
        by_unit[budget_parts(change.target.subject)[1]].append(change.target)
    for unit, targets in by_unit.items():
        rows: Sequence[BurnRow | MoneyBudgetRow] = (
            money_budget_rows(now, visibility=visibility)
            if unit == "money"
            else budget_rows(now, visibility=visibility, points=False, ranges=False)
        )
        running = {(row.team, row.period): row for row in rows}
        for target in targets:
            row = running.get((target.team, budget_parts(target.subject)[0]))
            found[target] = (
                _of_running(row) if row else _without_budget(target, now, visibility=visibility)
            )
    return found


def _of_running(row: BurnRow | MoneyBudgetRow) -> BudgetImpact:
    # The rate rests on known hours alone: missing ones do not make a team look slow.
    rate = row.burn_rate
    projected = None if rate is None else rate * float(row.allowance)
    return BudgetImpact(row.unit, float(row.used), projected)


def _without_budget(
    target: ProposalTarget, now: datetime, *, visibility: Visibility
) -> BudgetImpact:
    """Return what a team used in the period that runs, where it has no such budget."""
    period, unit = budget_parts(target.subject)
    settings = report()
    whole = period_at(period, now, settings.zone)
    so_far = Window(whole.start, max(whole.start, hour_floor(now, settings.zone)))
    own = Filters(team=(target.team,))
    if unit == "money":
        unit = settings.currency
        query = CostQuery(so_far, group_by=(Grouping.TEAM,), filters=own)
        found = cost_rows(query, visibility=visibility)
        costs = [row.cost for row in found if row.cost is not None and row.currency == unit]
        # Hours without a price are unpriced, not free.
        used = None if found and not costs else float(Decimal(sum(costs)) / SCALE)
    else:
        rows = usage_rows(UsageQuery(so_far, filters=own), visibility=EVERYTHING)
        used = sum(row.amounts.allocated for row in rows) / NANO
    within = {"hour__gte": so_far.start, "hour__lt": so_far.end}
    hours = CollectionWindow.objects.filter(HAS_FACTS, **within).order_by("hour")
    known = hours.values("hour").distinct().count()
    if used is None or not known:
        return BudgetImpact(unit, None, None)
    return BudgetImpact(unit, used, used / known * ((whole.end - whole.start) / _HOUR))
