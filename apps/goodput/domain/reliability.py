"""Nodes on which work fails more often than the same work fails elsewhere.

The question is not how often a node failed, but whether it failed more often than chance would let
it. What fails is mostly the work itself, so each workload's failures are expected on its nodes in
proportion to how long it ran there; a node is held against the sum of that. Counts are taken as
Poisson, with exact tails and intervals (Garwood 1936), and many nodes are judged at once (Holm
1979): the chance that any node of a sound fleet is accused is `LEVEL`.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp, inf, lgamma, log

from apps.goodput.domain.runs import PodRun

LEVEL = 0.01
_TAIL = 0.025
_LEAST_FAILURES = 3
_INCIDENT_SECONDS = 600.0
"""Failures on a node so near in time are one incident: a node that dies takes all its pods."""
_LEAST_SECONDS = 60.0
"""A start is exposure too: a pod that dies at once ran for no time."""


@dataclass(frozen=True, slots=True)
class NodeFailures:
    """How a node did: incidents, and how many its work would have had elsewhere.

    `ratio` is incidents ÷ expected with its 95 % interval, None where none were expected.
    `p_value` is the chance of so many or more on a sound node. `lost_gpu_hours` are those of the
    runs that failed. `reasons` counts failed runs.
    """

    node: str
    incidents: int
    expected: float
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    p_value: float
    is_unreliable: bool
    gpu_hours: float
    lost_gpu_hours: float
    reasons: dict[str, int]


def node_failures(runs: Iterable[PodRun]) -> list[NodeFailures]:
    """Return the nodes of a cluster, the least likely to be sound first."""
    by_node: defaultdict[str, list[PodRun]] = defaultdict(list)
    for run in runs:
        by_node[run.node].append(run)
    weights = {node: list(_weighted(own)) for node, own in by_node.items()}
    expected = _expected(by_node, weights)
    found = [
        _judged(node, own, incidents=round(sum(w for _, w in weights[node])), mean=expected[node])
        for node, own in by_node.items()
    ]
    found.sort(key=lambda one: (one.p_value, one.node))
    return list(_with_verdicts(found))


def _weighted(runs: Sequence[PodRun]) -> Iterator[tuple[PodRun, float]]:
    """Yield the failed runs of a node with their share of an incident."""
    incident: list[PodRun] = []
    for run in sorted((run for run in runs if run.reason), key=lambda run: run.end):
        if incident and run.end - incident[-1].end > _INCIDENT_SECONDS:
            yield from ((one, 1 / len(incident)) for one in incident)
            incident = []
        incident.append(run)
    yield from ((one, 1 / len(incident)) for one in incident)


def _expected(
    by_node: dict[str, list[PodRun]], weights: dict[str, list[tuple[PodRun, float]]]
) -> dict[str, float]:
    """Return the incidents that each node would have if only the work decided."""
    exposure: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for node, own in by_node.items():
        for run in own:
            seconds = max(run.end - run.start, _LEAST_SECONDS)
            exposure[run.workload][node] = exposure[run.workload].get(node, 0.0) + seconds
    failed: defaultdict[int, float] = defaultdict(float)
    for weighted in weights.values():
        for run, weight in weighted:
            failed[run.workload] += weight
    expected = dict.fromkeys(by_node, 0.0)
    # Of a workload that ran on one node alone all failures are expected there: nothing tells
    # whether the work or the node failed, so the node is not accused.
    for workload, incidents in failed.items():
        total = sum(exposure[workload].values())
        for node, seconds in exposure[workload].items():
            expected[node] += incidents * seconds / total
    return expected


def _judged(node: str, runs: Sequence[PodRun], *, incidents: int, mean: float) -> NodeFailures:
    low, high = poisson_range(incidents)
    failed = [run for run in runs if run.reason]
    return NodeFailures(
        node=node,
        incidents=incidents,
        expected=mean,
        ratio=incidents / mean if mean else None,
        ratio_low=low / mean if mean else None,
        ratio_high=high / mean if mean else None,
        p_value=poisson_tail(incidents, mean),
        is_unreliable=False,
        gpu_hours=sum(run.gpu_hours for run in runs),
        lost_gpu_hours=sum(run.gpu_hours for run in failed),
        reasons=dict(Counter(run.reason for run in failed).most_common()),
    )


def _with_verdicts(found: Sequence[NodeFailures]) -> Iterator[NodeFailures]:
    """Yield the nodes with their verdicts; `found` are by p-value."""
    # Once a node passes, all that are likelier to be sound pass too, whatever their own level.
    accusing = True
    for position, one in enumerate(found):
        accusing = accusing and one.p_value <= LEVEL / (len(found) - position)
        is_unreliable = accusing and one.incidents >= _LEAST_FAILURES
        yield replace(one, is_unreliable=True) if is_unreliable else one


# ---------------------------------------------------------------- interruptions


@dataclass(frozen=True, slots=True)
class SizeInterruptions:
    """Interruptions of workloads that held so many GPUs at once, `least` and more.

    `hours` are those in which one of them ran, `mean_hours` hours ÷ interruptions; None where no
    run was interrupted.
    """

    least: int
    workloads: int
    hours: float
    interruptions: int

    @property
    def mean_hours(self) -> float | None:
        """The mean time between interruptions, hours."""
        return self.hours / self.interruptions if self.interruptions else None


SIZES = (0, 2, 8, 16, 64)


def interruptions_by_size(runs: Iterable[PodRun]) -> list[SizeInterruptions]:
    """Return interruptions by the GPUs that a workload held at most at once, smallest first.

    Failed runs of a workload within ten minutes interrupt it once: a gang fails as one.
    """
    by_workload: defaultdict[int, list[PodRun]] = defaultdict(list)
    for run in runs:
        by_workload[run.workload].append(run)
    rows = dict.fromkeys(SIZES, (0, 0.0, 0))
    for own in by_workload.values():
        size = max(least for least in SIZES if least <= round(_most_at_once(own), 6))
        count, hours, interruptions = rows[size]
        interrupted = round(sum(weight for _, weight in _weighted(own)))
        rows[size] = (count + 1, hours + _covered(own) / 3600, interruptions + interrupted)
    return [SizeInterruptions(size, *row) for size, row in rows.items() if row[0]]


def _most_at_once(runs: Sequence[PodRun]) -> float:
    changes = [(run.start, run.gpu_equivalents) for run in runs]
    # Ends sort before starts of the same instant: a pod that takes over holds no GPU twice.
    changes += [(run.end, -run.gpu_equivalents) for run in runs]
    held = most = 0.0
    for _, change in sorted(changes):
        held += change
        most = max(most, held)
    return most


def _covered(runs: Sequence[PodRun]) -> float:
    """Return the seconds in which at least one of the runs ran."""
    seconds, until = 0.0, -inf
    for run in sorted(runs, key=lambda run: run.start):
        seconds += max(0.0, run.end - max(run.start, until))
        until = max(until, run.end)
    return seconds


# ---------------------------------------------------------------- Poisson


def poisson_tail(count: int, mean: float) -> float:
    """Return the chance of `count` or more where `mean` are expected."""
    return 1.0 if count == 0 else max(0.0, 1.0 - _below(count, mean))


def poisson_range(count: int) -> tuple[float, float]:
    """Return the means for which `count` is within the middle 95 %: the exact interval."""
    low = 0.0 if count == 0 else _root(lambda mean: poisson_tail(count, mean) - _TAIL, count)
    high = _root(lambda mean: _TAIL - _below(count + 1, mean), 2 * count + 10)
    return low, high


def _below(count: int, mean: float) -> float:
    """Return the chance of less than `count`."""
    if mean <= 0:
        return 1.0
    # By logarithms: powers and factorials of some hundred failures overflow a float.
    return sum(exp(k * log(mean) - mean - lgamma(k + 1)) for k in range(count))


def _root(rising: Callable[[float], float], above: float) -> float:
    """Return where a rising function is zero, between 0 and `above`."""
    low, high = 0.0, float(above)
    while rising(high) < 0:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2
