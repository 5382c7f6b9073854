"""The integer program that chooses layouts: GPUs of each group and layout, by HiGHS.

It minimises unmet demand, in GPU-hours, and what the change itself costs. Tiers are apart: unmet
demand of one is a convex function of its capacity, and so a few straight lines.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import inf

import numpy as np
from msgspec import Struct, field

from apps.planning.domain.layouts.options import NodeGroup

MOST_SECONDS = 10.0
"""Time limit of the solver; the best solution by then is taken."""


class TierDemand(Struct, frozen=True):
    """Units of a tier that were wanted in each of the hours; `weight`: GPU-equivalents of one."""

    tier: str
    weight: float
    hours: tuple[float, ...]

    def unmet(self, capacity: float) -> float:
        """Return the GPU-hours that a capacity in units leaves unmet."""
        return self.weight * sum(max(0.0, wanted - capacity) for wanted in self.hours)

    def bounds(self) -> Iterator[tuple[float, float]]:
        """Yield (value at no capacity, slope) of the lines that bound `unmet` from below."""
        for level in sorted({0.0, *self.hours}):
            more = [wanted for wanted in self.hours if wanted > level]
            yield self.weight * sum(more), -self.weight * len(more)


class GroupChange(Struct, frozen=True):
    """How many nodes of a group are changed, and the GPUs of each layout (by its place)."""

    nodes: int
    gpus: Mapping[int, int]


class LayoutSolution(Struct, frozen=True):
    """A change for each group, in their order; `is_optimal` False where time ran out.

    `cost` is the value of the objective, in GPU-hours.
    """

    changes: tuple[GroupChange, ...]
    cost: float
    is_optimal: bool


def choose_layouts(
    groups: Sequence[NodeGroup],
    fixed: Mapping[str, float],
    demand: Sequence[TierDemand],
    *,
    hours_lost: float,
    most_seconds: float = MOST_SECONDS,
) -> LayoutSolution | None:
    """Return the layouts with the least unmet demand; None where none was found in time.

    `fixed` are units of nodes that stay. A changed GPU costs `hours_lost` GPU-hours, so nothing is
    changed that gains less.
    """
    model = _Model()
    columns = [_add_group(model, group, hours_lost) for group in groups]
    offered: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    base: dict[str, float] = defaultdict(float, fixed)
    for group, own in zip(groups, columns, strict=True):
        for tier, units in group.units.items():
            base[tier] += units * len(group.nodes)
            offered[tier][own.nodes] -= units
        for option, column in zip(group.options, own.options, strict=True):
            for tier, units in option.units:
                offered[tier][column] += units * (group.gpus if option.whole_node else 1)
    for one in demand:
        unmet = model.column(1.0)
        for at_zero, slope in one.bounds():
            # unmet ≥ at_zero + slope × capacity, and capacity = base + what changes.
            terms = {column: -slope * units for column, units in offered[one.tier].items()}
            model.row({unmet: 1.0, **terms}, at_zero + slope * base[one.tier])
    values, cost, is_optimal = model.solve(most_seconds)
    if values is None:
        return None
    changes = []
    for group, own in zip(groups, columns, strict=True):
        gpus = {
            place: round(values[column]) * (group.gpus if option.whole_node else 1)
            for place, (option, column) in enumerate(zip(group.options, own.options, strict=True))
        }
        chosen = {place: count for place, count in gpus.items() if count}
        changes.append(GroupChange(round(values[own.nodes]), chosen))
    return LayoutSolution(tuple(changes), cost, is_optimal)


class _GroupColumns(Struct, frozen=True):
    """Columns: changed nodes, and nodes (where a layout is of whole nodes) or GPUs by option."""

    nodes: int
    options: tuple[int, ...]


class _Model(Struct):
    """Columns and rows as HiGHS takes them."""

    costs: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    integers: list[int] = field(default_factory=list)
    rows: list[tuple[dict[int, float], float, float]] = field(default_factory=list)

    def column(self, cost: float, most: float | None = None) -> int:
        """Add a column from 0 on and return its place; with `most` it is whole."""
        self.costs.append(cost)
        self.upper.append(inf if most is None else most)
        if most is not None:
            self.integers.append(len(self.costs) - 1)
        return len(self.costs) - 1

    def row(self, terms: dict[int, float], least: float, most: float = inf) -> None:
        self.rows.append((terms, least, most))

    def solve(self, most_seconds: float) -> tuple[list[float] | None, float, bool]:
        """Return the values of all columns, the objective, and whether it is the least."""
        # When something is to be solved: it takes as much memory as a room.
        import highspy

        solver = highspy.Highs()  # type: ignore[no-untyped-call]
        solver.silent()
        limits = {"time_limit": most_seconds, "threads": 1, "mip_rel_gap": 0.0, "mip_abs_gap": 1e-6}
        for name, value in limits.items():
            solver.setOptionValue(name, value)
        for cost, upper in zip(self.costs, self.upper, strict=True):
            solver.addCol(cost, 0.0, upper, 0, np.array([], np.int32), np.array([], np.float64))
        for column in self.integers:
            solver.changeColIntegrality(column, highspy.HighsVarType.kInteger)
        for terms, least, most in self.rows:
            index = np.array(list(terms), np.int32)
            factors = np.array(list(terms.values()), np.float64)
            solver.addRow(least, most, len(terms), index, factors)
        solver.run()
        is_optimal = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
        # Out of time there may be a solution all the same: it is used, and said to be no optimum.
        info = solver.getInfo()
        if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return None, 0.0, False
        return list(solver.getSolution().col_value), info.objective_function_value, is_optimal


def _add_group(model: _Model, group: NodeGroup, hours_lost: float) -> _GroupColumns:
    count = len(group.nodes)
    nodes = model.column(hours_lost * group.gpus, count)
    own = tuple(
        model.column(0.0, count if option.whole_node else count * group.gpus)
        for option in group.options
    )
    terms = {
        column: float(group.gpus if option.whole_node else 1)
        for option, column in zip(group.options, own, strict=True)
    }
    # Each GPU of a changed node has a layout; those of other nodes have none.
    model.row({**terms, nodes: -float(group.gpus)}, 0.0, 0.0)
    return _GroupColumns(nodes, own)
