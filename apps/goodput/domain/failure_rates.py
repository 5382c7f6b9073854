"""Failures against what the same work has elsewhere, for any choice of runs.

What fails is mostly the work itself. So failures are compared within one workload where it ran
often, else within its family: jobs that do the same work (`eval-*`).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median

from apps.goodput.domain.poisson import poisson_tail
from apps.goodput.domain.runs import PodRun

INCIDENT_SECONDS = 600.0
"""Failures on a node so near in time are one incident: a node that dies takes all its pods."""
_LEAST_SECONDS = 60.0
"""A start is exposure too: a pod that dies at once ran for no time."""
_LONG = 3.0
"""So many times the usual time to a failure a run counts as exposed."""
_DAY = 86_400.0
_WORST_DAYS = 3
_MANY_RUNS = 20
_CONFIRMED = 0.01

Place = Callable[[PodRun], Hashable]
_Stratum = tuple[bool, Hashable]


def incident_weights(
    runs: Sequence[PodRun], units: Callable[[PodRun], Hashable] | None = None
) -> dict[int, float]:
    """Return by position in `runs` the part of an incident that each failed run is.

    Of a unit that failed again and again its first failure counts alone: what is broken in a pod
    stays so, wherever it runs. Failures of a node within ten minutes are one incident.
    """
    by_node: defaultdict[str, list[int]] = defaultdict(list)
    seen: set[tuple[str, Hashable]] = set()
    failed = sorted((n for n, run in enumerate(runs) if run.reason), key=lambda n: runs[n].end)
    for number in failed:
        run = runs[number]
        unit = (run.node, units(run) if units else number)
        if unit not in seen:
            seen.add(unit)
            by_node[run.node].append(number)
    weights: dict[int, float] = {}
    for numbers in by_node.values():
        incident: list[int] = []
        for number in numbers:
            if incident and runs[number].end - runs[incident[-1]].end > INCIDENT_SECONDS:
                weights.update(dict.fromkeys(incident, 1 / len(incident)))
                incident = []
            incident.append(number)
        weights.update(dict.fromkeys(incident, 1 / len(incident)))
    return weights


@dataclass(frozen=True, slots=True)
class Tally:
    """Incidents of some runs beside those that their work has elsewhere."""

    incidents: int
    expected: float
    is_spread: bool

    @property
    def p_value(self) -> float:
        """The chance of so many or more where only the work decides."""
        return poisson_tail(self.incidents, self.expected)


class FailureRates:
    """How often the work of a cluster fails, by workload or family.

    `place` tells where a run was: what is asked is whether that matters.
    """

    def __init__(self, runs: Sequence[PodRun], place: Place) -> None:
        self._runs = runs
        pods = Counter(run.workload for run in runs)
        # What runs often tells its own rate; jobs are compared with their like. One that failed
        # and was tried again elsewhere would else be compared with that one try alone.
        self._own = {workload for workload, count in pods.items() if count >= _MANY_RUNS}
        hopeless = self._hopeless(place)
        counting = [n for n, run in enumerate(runs) if run.workload not in hopeless]
        kept = incident_weights([runs[number] for number in counting], self._unit)
        self._weights = {counting[n]: weight for n, weight in kept.items()}
        self._failed: defaultdict[_Stratum, float] = defaultdict(float)
        self._seconds: defaultdict[_Stratum, float] = defaultdict(float)
        # A unit that failed is exposed no more: its later failures do not count either.
        self._over: dict[Hashable, float] = {}
        for run in runs:
            if run.reason:
                unit = (run.node, self._unit(run))
                self._over[unit] = min(run.end, self._over.get(unit, inf))
        until: defaultdict[_Stratum, list[float]] = defaultdict(list)
        for number, weight in self._weights.items():
            run = runs[number]
            self._failed[self._stratum(run)] += weight
            until[self._stratum(run)].append(run.end - run.start)
        # Some work fails with time and some at its start. What runs far longer than it takes to
        # fail has shown that it does not, and is no more exposed than one that just came so far.
        self._longest = {one: _LONG * median(some) for one, some in until.items()}
        for run in runs:
            self._seconds[self._stratum(run)] += self._exposure(run)

    def _hopeless(self, place: Place) -> set[int]:
        """Return the workloads that failed in all of several places: for their own sake.

        Of one that ran in a single place nothing tells that.
        """
        units: defaultdict[int, set[Hashable]] = defaultdict(set)
        failed: defaultdict[int, set[Hashable]] = defaultdict(set)
        places: defaultdict[int, set[Hashable]] = defaultdict(set)
        for run in self._runs:
            unit = self._unit(run)
            units[run.workload].add(unit)
            places[run.workload].add(place(run))
            if run.reason:
                failed[run.workload].add(unit)
        return {
            workload
            for workload, own in units.items()
            if own == failed.get(workload) and len(places[workload]) > 1
        }

    def tally(self, numbers: Iterable[int]) -> Tally:
        """Return what runs (by their positions) had, and would have had elsewhere."""
        seconds: defaultdict[_Stratum, float] = defaultdict(float)
        by_day: defaultdict[int, float] = defaultdict(float)
        by_workload: defaultdict[int, float] = defaultdict(float)
        days: set[int] = set()
        for number in numbers:
            run = self._runs[number]
            days.update(range(int(run.start // _DAY), int(run.end // _DAY) + 1))
            stratum = self._stratum(run)
            weight = self._weights.get(number)
            if weight:
                by_day[int(run.end // _DAY)] += weight
                by_workload[run.workload] += weight
            if stratum in self._failed:
                seconds[stratum] += self._exposure(run)
        # Of work that left no time to count by, no rate is known and nothing is expected.
        expected = sum(
            self._failed[one] * some / self._seconds[one]
            for one, some in seconds.items()
            if self._seconds[one]
        )
        count = _whole(by_day.values())
        return Tally(count, expected, _is_spread(by_day, by_workload, len(days), expected))

    def _exposure(self, run: PodRun) -> float:
        if run.start >= self._over.get((run.node, self._unit(run)), inf):
            return 0.0
        longest = self._longest.get(self._stratum(run), inf)
        return max(min(run.end - run.start, longest), _LEAST_SECONDS)

    def _stratum(self, run: PodRun) -> _Stratum:
        if run.family and run.workload not in self._own:
            return True, run.family
        return False, run.workload

    def _unit(self, run: PodRun) -> Hashable:
        if run.family and run.workload not in self._own:
            # However often it was tried again there.
            return "workload", run.workload, run.node
        # Without its id a run is taken for a pod of its own.
        return ("pod", run.pod) if run.pod else ("run", run.workload, run.start, run.end)


def _whole(weights: Iterable[float]) -> int:
    """Return a sum of weights in full incidents; thirds must not lose one to rounding."""
    return int(sum(weights) + 1e-6)


def _is_spread(
    by_day: dict[int, float], by_workload: dict[int, float], days: int, expected: float
) -> bool:
    """Return whether there are too many incidents without the worst days, and the worst workload.

    Counts are taken as independent. A few bad days, of cooling or of a network, or one workload
    whose pods all fail for one cause, are not: neither may decide alone.
    """
    left = _whole(sorted(by_day.values())[:-_WORST_DAYS])
    rest = expected * max(0, days - _WORST_DAYS) / max(1, days)
    others = _whole(sorted(by_workload.values())[:-1])
    return (
        left > 0
        and others > 0
        and poisson_tail(left, rest) <= _CONFIRMED
        and poisson_tail(others, expected) <= _CONFIRMED
    )
