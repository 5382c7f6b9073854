"""The layout advice of a cluster: chosen by the integer program, told by the replay."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.domain.resources import gpus
from apps.planning.domain.cluster_replay.inputs import Packing, ReplayAssumption, ReplayNode
from apps.planning.domain.layouts.figures import (
    DemandWindow,
    LayoutFigures,
    TierFigures,
    layout_figures,
    tier_demand,
)
from apps.planning.domain.layouts.options import (
    GpuLayout,
    LayoutChoices,
    NodeGroup,
    changed_node,
)
from apps.planning.domain.layouts.program import (
    MOST_SECONDS,
    GroupChange,
    LayoutSolution,
    choose_layouts,
)

CHANGE_HOURS = 0.5
"""Assumed time that a node is away while its layout changes."""
_FACTORS = (1.0, 10.0, 50.0)
"""A change has to gain this many times its own loss: one bold program, two more careful ones."""
_LEAST_GAIN = 0.01
"""The least part of the unmet demand that advice has to gain."""
_WEEK = 7 * 24
_HOUR = 3600.0


class LayoutSpan(Struct, frozen=True):
    """GPUs of a node, by number, that get a layout."""

    gpus: tuple[int, ...]
    layout: GpuLayout


class LayoutStep(Struct, frozen=True):
    """A node to empty and to change, at the hour in which it was emptiest; times are Unix seconds.

    `held_gpus` is what was held on it in that hour of the week, the mean of the window. `had_mig`:
    it has MIG devices now.
    """

    node: str
    gpu_model: str
    gpus: int
    before: str
    layout: tuple[LayoutSpan, ...]
    starts_at: float
    held_gpus: float
    had_mig: bool = False

    @property
    def ends_at(self) -> float:
        return self.starts_at + CHANGE_HOURS * _HOUR

    @property
    def lost_gpu_hours(self) -> float:
        return self.gpus * CHANGE_HOURS

    @property
    def after(self) -> str:
        """What it offers then: `6 GPUs: 2 × 3g.40gb; 2 GPUs: 7 × 1g.10gb`."""
        counts = ((gpus(len(own.gpus)), own.layout.text) for own in self.layout)
        return "; ".join(f"{count}: {text}" for count, text in counts)


class LayoutAdvice(Struct, frozen=True):
    """What changes, and the same weeks replayed before and after; no steps: nothing to change.

    `is_optimal` False: the solver ran out of time. `left` counts nodes that are left as they are,
    by `LeftAsIs`. `changeable` are the nodes that could have been changed.
    """

    before: LayoutFigures
    after: LayoutFigures
    steps: tuple[LayoutStep, ...]
    packing: Packing
    is_optimal: bool
    changeable: int
    left: Mapping[str, int]
    assumptions: tuple[ReplayAssumption, ...]

    @property
    def lost_gpu_hours(self) -> float:
        """What the change itself costs."""
        return sum(step.lost_gpu_hours for step in self.steps)

    def tiers(self) -> Iterator[tuple[str, TierFigures, TierFigures]]:
        """Yield each tier with its figures before and after."""
        none = TierFigures()
        for tier in sorted({*self.before.tiers, *self.after.tiers}):
            yield tier, self.before.tiers.get(tier, none), self.after.tiers.get(tier, none)


class HeldGpus(Struct, frozen=True):
    """Mean GPUs that were held on each node in each hour of a week from `start` on."""

    start: float
    by_hour: Mapping[str, Sequence[float]]

    def at(self, node: str, time: float) -> float:
        own = self.by_hour.get(node)
        return own[int((time - self.start) // _HOUR) % _WEEK] if own else 0.0


def layout_advice(
    demand: DemandWindow,
    choices: LayoutChoices,
    held: HeldGpus,
    packing: Packing,
    *,
    most_seconds: float = MOST_SECONDS,
) -> LayoutAdvice:
    """Return the layouts that leave least of the recorded demand unmet.

    The program knows no gangs, queues and quotas. So several of its solutions are replayed, and
    the one with the least unmet demand is taken, if it gains more than the change costs.
    """
    before, assumptions = layout_figures(demand, demand.cluster, packing)
    # Nothing to change is the first candidate: a solution has to beat it.
    best = LayoutAdvice(
        before, before, (), packing, is_optimal=True,
        changeable=sum(len(group.nodes) for group in choices.groups),
        left={reason.value: count for reason, count in choices.left.items()},
        assumptions=assumptions,
    )  # fmt: skip
    # A replay is no promise: a gain within its noise is not worth emptying a node.
    least = before.unmet_gpu_hours * (1 - _LEAST_GAIN)
    for solution in _solutions(demand, choices, most_seconds):
        steps = _steps(choices.groups, solution.changes, held, demand.end)
        nodes = advised_nodes(demand.cluster.nodes, steps)
        after, _ = layout_figures(demand, replace(demand.cluster, nodes=nodes), packing)
        found = replace(best, after=after, steps=steps, is_optimal=solution.is_optimal)
        # Both in GPU-hours, so that the hours a node is away count against the gain.
        cost = after.unmet_gpu_hours + found.lost_gpu_hours
        if cost < least:
            best, least = found, cost
    return best


def advised_nodes(
    nodes: Sequence[ReplayNode], steps: Sequence[LayoutStep]
) -> tuple[ReplayNode, ...]:
    """Return the nodes as they are after the steps."""
    by_node = {step.node: step for step in steps}
    return tuple(_changed(node, by_node.get(node.name)) for node in nodes)


def held_gpus(
    spans: Sequence[tuple[str, float, float, float]], *, start: float, end: float
) -> HeldGpus:
    """Return mean GPUs by node and hour of the week; `spans` are (node, GPUs, from, to)."""
    # Days that are replayed may be fewer than a week: then an hour is its own mean.
    weeks = max(1.0, (end - start) / _HOUR / _WEEK)
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * _WEEK)
    for node, amount, first, last in spans:
        begins, ends = (max(first, start) - start) / _HOUR, (min(last, end) - start) / _HOUR
        for hour in range(int(begins), int(ends) + 1):
            part = min(ends, hour + 1) - max(begins, hour)
            sums[node][hour % _WEEK] += amount * max(0.0, part) / weeks
    return HeldGpus(start, dict(sums))


def _solutions(
    demand: DemandWindow, choices: LayoutChoices, most_seconds: float
) -> Iterator[LayoutSolution]:
    """Yield the solutions that change something, each once."""
    wanted = tier_demand(demand)
    seen: list[tuple[GroupChange, ...]] = []
    for factor in _FACTORS:
        found = choose_layouts(
            choices.groups,
            choices.fixed,
            wanted,
            hours_lost=factor * CHANGE_HOURS,
            most_seconds=most_seconds / len(_FACTORS),
        )
        is_change = found is not None and any(one.nodes for one in found.changes)
        if found is not None and is_change and found.changes not in seen:
            seen.append(found.changes)
            yield found


def _steps(
    groups: Sequence[NodeGroup], changes: Sequence[GroupChange], held: HeldGpus, now: float
) -> tuple[LayoutStep, ...]:
    """Return the changed nodes in the order of their hours: one node at a time."""
    # The coming week, from the next full hour on.
    times = [(now // _HOUR + hour + 1) * _HOUR for hour in range(_WEEK)]
    taken: set[float] = set()
    steps = []
    for group, change in zip(groups, changes, strict=True):
        best = {node: min((held.at(node, time), time) for time in times) for node in group.nodes}
        # Those that are emptiest: which of equal nodes is changed makes no difference later.
        nodes = sorted(group.nodes, key=lambda node: (best[node], node))[: change.nodes]
        layouts = [
            group.options[place] for place, gpus in sorted(change.gpus.items()) for _ in range(gpus)
        ]
        for number, node in enumerate(nodes):
            own = layouts[number * group.gpus : (number + 1) * group.gpus]
            # Two nodes away at once would cost more than each of them alone.
            free = [time for time in times if time not in taken] or times
            amount, at = min((held.at(node, time), time) for time in free)
            taken.add(at)
            steps.append(
                LayoutStep(
                    node=node,
                    gpu_model=group.model,
                    gpus=group.gpus,
                    before=group.text,
                    layout=_spans(own),
                    starts_at=at,
                    held_gpus=amount,
                    had_mig=group.has_mig,
                )
            )
    return tuple(sorted(steps, key=lambda step: (step.starts_at, step.node)))


def _spans(layouts: Sequence[GpuLayout]) -> tuple[LayoutSpan, ...]:
    numbered = groupby(enumerate(layouts), key=lambda pair: pair[1])
    return tuple(LayoutSpan(tuple(gpu for gpu, _ in own), layout) for layout, own in numbered)


def _changed(node: ReplayNode, step: LayoutStep | None) -> ReplayNode:
    if step is None:
        return node
    each = [own.layout for own in step.layout for _ in own.gpus]
    return changed_node(node, step.gpu_model, each)
