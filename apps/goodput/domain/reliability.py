"""Nodes and GPUs on which work fails more often than the same work fails elsewhere.

The question is not how often a node failed, but whether it failed more often than chance would let
it. Counts are taken as Poisson and compared with those of the same work elsewhere, never with their
own, and many are judged at once (Holm 1979): the chance that any node of a sound fleet is accused
is `LEVEL`, and so is that of any GPU. A GPU must also fail more than the rest of its node, so that
a bad node accuses none of its GPUs; a node is judged without the runs on GPUs that are accused.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from math import inf

from msgspec import Struct

from apps.accounts.domain.rows import row_from
from apps.accounts.domain.structs import replace
from apps.goodput.domain.failure_rates import FailureRates, Tally, incident_weights
from apps.goodput.domain.poisson import binomial_tail
from apps.goodput.domain.runs import PodRun

LEVEL = 0.01
_LEAST_FAILURES = 3
_CONFIRMED = 0.05
_LEAST_COMPARED = 0.5
"""Where less of the run time is of work that ran elsewhere too, the rest may hide anything."""
_APART = 100.0
"""So many times likelier to be sound another GPU of the same runs must be."""


class NodeFailures(Struct, frozen=True):
    """How a node did: incidents, and how many its work would have had elsewhere.

    `compared` incidents are of work that ran on others too, and `compared_ratio` is its part of
    the run time, 0..1. `ratio` is compared ÷ expected, None where none were expected, with its
    95 % range, None where nothing bounds it. `p_value` is the chance of so many or more on a sound
    node, without those of accused GPUs.
    `lost_gpu_hours` is what the failures cost, as the goodput ledger has it. `reasons` counts
    failed runs.
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
    # Reports of the version before do not have them: all was compared then.
    compared: int | None = None
    compared_ratio: float = 1.0


class GpuFailures(NodeFailures, frozen=True, kw_only=True):
    """How a GPU did; fields as those of its node.

    `gpu_hours` are its own, `lost_gpu_hours` what failures of its runs cost on all their GPUs.
    """

    uuid: str


class Judgement(StrEnum):
    """What can be said of a node or GPU by its failures."""

    UNRELIABLE = "unreliable"
    UNDECIDED = "too few failures to tell"
    INCOMPARABLE = "too little to compare"
    USUAL = "as expected"
    UNCHECKED = "not checked yet"


def judgement(one: NodeFailures) -> Judgement:
    """Return what can be said of a node or GPU."""
    if one.is_unreliable:
        return Judgement.UNRELIABLE
    # Alone it would stand out: among many, some do by chance, so that it is not accused.
    if one.ratio_low is not None and one.ratio_low > 1:
        return Judgement.UNDECIDED
    return Judgement.INCOMPARABLE if one.compared_ratio < _LEAST_COMPARED else Judgement.USUAL


def node_failures(
    runs: Iterable[PodRun], *, accused_gpus: Collection[str] = ()
) -> list[NodeFailures]:
    """Return the nodes of a cluster, the least likely to be sound first."""
    known = list(runs)
    rates = FailureRates(known, lambda run: run.node)
    by_node: defaultdict[str, list[int]] = defaultdict(list)
    for number, run in enumerate(known):
        by_node[run.node].append(number)
    accused = frozenset(accused_gpus)
    found = []
    spread = set()
    for node, numbers in by_node.items():
        own = [known[number] for number in numbers]
        whole = rates.tally(numbers)
        others = [n for n in numbers if accused.isdisjoint(known[n].gpus)] if accused else numbers
        rest = whole if len(others) == len(numbers) else rates.tally(others, numbers)
        p_value = rest.p_value
        is_grave = rest.is_spread and rest.compared >= _LEAST_FAILURES and p_value <= LEVEL
        if is_grave and not _is_of_one_gpu(known, others, numbers, rates):
            spread.add(node)
        found.append(_failures(node, own, whole, p_value))
    found.sort(key=lambda one: (one.p_value, -one.incidents, one.node))
    return list(_with_verdicts(found, spread))


def _is_of_one_gpu(
    runs: Sequence[PodRun], numbers: Sequence[int], within: Sequence[int], rates: FailureRates
) -> bool:
    """Return whether one GPU alone, which failed too seldom to be accused, explains its node."""
    failed = Counter(gpu for n in numbers if runs[n].reason for gpu in runs[n].gpus)
    if not failed:
        return False
    worst = failed.most_common(1)[0][0]
    held = rates.tally((n for n in numbers if worst in runs[n].gpus), within)
    left = rates.tally((n for n in numbers if worst not in runs[n].gpus), within)
    return left.p_value > _CONFIRMED and _chance_of_more(held, left) <= _CONFIRMED


def _failures(node: str, runs: Sequence[PodRun], tally: Tally, p_value: float) -> NodeFailures:
    low, high = tally.ratio_range
    failed = [run for run in runs if run.reason]
    return row_from(
        NodeFailures,
        tally,
        node=node,
        ratio_low=low,
        ratio_high=high,
        p_value=p_value,
        is_unreliable=False,
        gpu_hours=sum(run.gpu_hours for run in runs),
        lost_gpu_hours=sum(run.lost_gpu_hours for run in failed),
        reasons=dict(Counter(run.reason for run in failed).most_common()),
    )


def _with_verdicts(
    found: Sequence[NodeFailures], spread: Collection[str]
) -> Iterator[NodeFailures]:
    """Yield the nodes with their verdicts; `found` are by p-value."""
    # Once a node passes, all that are likelier to be sound pass too, whatever their own level.
    accusing = True
    for position, one in enumerate(found):
        accusing = accusing and one.p_value <= LEVEL / (len(found) - position)
        is_unreliable = accusing and one.node in spread
        yield replace(one, is_unreliable=True) if is_unreliable else one


# ---------------------------------------------------------------- GPUs


def gpu_failures(runs: Iterable[PodRun]) -> list[GpuFailures]:
    """Return the GPUs of a cluster, the least likely to be sound first.

    Only runs whose GPUs are known count. GPUs that always failed together are not accused, for
    nothing tells them apart.
    """
    return _GpuCourt([run for run in runs if run.gpus]).judged()


class _GpuCourt:
    """Judges GPUs one after another: what an accused one explains accuses no other."""

    def __init__(self, runs: Sequence[PodRun]) -> None:
        self._runs = runs
        self._rates = FailureRates(runs, lambda run: run.gpus)
        self._of_gpu: defaultdict[str, list[int]] = defaultdict(list)
        self._of_node: defaultdict[str, list[int]] = defaultdict(list)
        self._node: dict[str, str] = {}
        for number, run in enumerate(runs):
            self._of_node[run.node].append(number)
            for gpu in run.gpus:
                self._of_gpu[gpu].append(number)
                self._node[gpu] = run.node
        self._explained: set[int] = set()

    def judged(self) -> list[GpuFailures]:
        """Return all GPUs with their verdicts."""
        chances = {gpu: self._p_value(gpu) for gpu in self._of_gpu}
        first = dict(chances)
        accused: set[str] = set()
        waiting = dict(chances)
        while waiting:
            gpu = min(waiting, key=lambda one: (waiting[one], one))
            if waiting.pop(gpu) > LEVEL / (len(chances) - len(accused)):
                break
            if self._is_accusable(gpu, chances):
                accused.add(gpu)
                self._explained.update(self._of_gpu[gpu])
                # What the others of its node had without it.
                beside = [one for one in waiting if self._node[one] == self._node[gpu]]
                chances.update(again := {one: self._p_value(one) for one in beside})
                waiting.update(again)
        self._explained.clear()
        found = [self._failures(gpu, first[gpu], gpu in accused) for gpu in self._of_gpu]
        return sorted(found, key=lambda one: (not one.is_unreliable, one.p_value, one.uuid))

    def _failures(self, gpu: str, p_value: float, is_accused: bool) -> GpuFailures:  # noqa: FBT001
        own = [self._runs[number] for number in self._of_gpu[gpu]]
        of_runs = _failures(self._node[gpu], own, self._tally(self._of_gpu[gpu]), p_value)
        hours = sum(run.gpu_hours / len(run.gpus) for run in own)
        fields = {name: getattr(of_runs, name) for name in NodeFailures.__struct_fields__}
        fields.update(is_unreliable=is_accused, gpu_hours=hours)
        return GpuFailures(**fields, uuid=gpu)

    def _tally(self, numbers: Collection[int]) -> Tally:
        left = (number for number in numbers if number not in self._explained)
        return self._rates.tally(left, numbers)

    def _p_value(self, gpu: str) -> float:
        """Return the chance that it is sound: against the fleet, and against its own node."""
        own = self._tally(self._of_gpu[gpu])
        if own.compared < _LEAST_FAILURES:
            return 1.0
        held = set(self._of_gpu[gpu])
        rest = self._tally([n for n in self._of_node[self._node[gpu]] if n not in held])
        return max(own.p_value, _chance_of_more(own, rest))

    def _is_accusable(self, gpu: str, chances: Mapping[str, float]) -> bool:
        """Return whether its failures are spread, and tell it from those that it ran with."""
        own = self._of_gpu[gpu]
        beside = {one for number in own for one in self._runs[number].gpus} - {gpu}
        rivals = [chances[one] <= chances[gpu] * _APART for one in beside]
        return self._tally(own).is_spread and not any(rivals)


def _chance_of_more(one: Tally, other: Tally) -> float:
    """Return the chance that one of two has so many of their incidents, were both alike.

    What is bad fails all work alike, or each in proportion to how often it fails elsewhere: the
    incidents must be too many by how long both ran, and by what their work has elsewhere.
    """
    shares = (
        part / both if (both := part + rest) else 1.0
        for part, rest in ((one.even, other.even), (one.seconds, other.seconds))
    )
    return binomial_tail(one.incidents, one.incidents + other.incidents, max(shares))


# ---------------------------------------------------------------- interruptions


class SizeInterruptions(Struct, frozen=True):
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
        # Wherever its pods were: a gang that fails on eight nodes is interrupted once. A pod that
        # its node refused never ran, and interrupts nothing.
        ran = [run._replace(node="") for run in own if run.end > run.start]
        interrupted = round(sum(incident_weights(ran).values()))
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
