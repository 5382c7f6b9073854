"""Failures against what the same work has elsewhere, for any choice of runs.

What fails is mostly the work itself. So failures are compared within one workload where it ran
often, else within its family: jobs that do the same work (`eval-*`).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from math import inf
from statistics import median

from msgspec import Struct

from apps.goodput.domain.poisson import WorkKind, poisson_tail, ratio_range, share_tail
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
_LEAST_ELSEWHERE = 0.25
"""Work is compared where it ran elsewhere for this part of its time here: less tells no rate."""
_HAIR = 1e-6
"""Less than this of an incident is rounding."""

PlaceOf = Callable[[PodRun], Hashable]
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


class Tally(Struct, frozen=True):
    """Incidents of some runs beside those that the same work has elsewhere.

    `compared` are the incidents of work that ran elsewhere too, `expected` what it would have had
    at the rate that it has there, `compared_ratio` the part of all exposure that is of such work,
    0..1. `even` are the incidents that all work had, here and elsewhere, divided by how long it
    ran: over all places they sum to the incidents. `seconds` is the exposure, `kinds` are the
    compared kinds of work.
    """

    incidents: int
    seconds: float
    even: float
    compared: int
    expected: float
    compared_ratio: float
    kinds: tuple[WorkKind, ...]
    is_spread: bool

    @property
    def p_value(self) -> float:
        """The chance of so many or more, given all there were, where only the work decides."""
        return share_tail(self.compared, self.kinds)

    @property
    def ratio(self) -> float | None:
        """Compared ÷ expected; None where none are expected."""
        return self.compared / self.expected if self.expected else None

    @property
    def ratio_range(self) -> tuple[float | None, float | None]:
        """The 95 % range of the ratio; None where nothing bounds it."""
        return ratio_range(self.compared, self.kinds)


class FailureRates:
    """How often the work of a cluster fails, by workload or family.

    `place` tells where a run was: what is asked is whether that matters.
    """

    def __init__(self, runs: Sequence[PodRun], place: PlaceOf) -> None:
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

    def _hopeless(self, place: PlaceOf) -> set[int]:
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

    def tally(self, numbers: Iterable[int], within: Iterable[int] | None = None) -> Tally:
        """Return what runs (by their positions) had, and would have had elsewhere.

        Elsewhere are all runs outside `within`, which includes `numbers` and by default is these.
        """
        own = list(numbers)
        here = self._sums(own)
        place = here if within is None else self._sums(within)
        kinds: dict[_Stratum, WorkKind] = {}
        even = expected = 0.0
        for one, (seconds, failed) in here.items():
            even += self._failed[one] * seconds / self._seconds[one]
            elsewhere = self._seconds[one] - place[one][0]
            # What its own failures say of this place must not be what it is compared with.
            if elsewhere < max(_LEAST_ELSEWHERE * seconds, _LEAST_SECONDS):
                continue
            others = self._failed[one] - place[one][1]
            # Sums of thirds in another order differ by a hair, which is no failure elsewhere.
            others = others if others > _HAIR else 0.0
            kinds[one] = WorkKind(failed + others, seconds, elsewhere)
            expected += others * seconds / elsewhere
        exposed = sum(seconds for seconds, _ in here.values())
        compared = sum(kind.seconds for kind in kinds.values())
        return Tally(
            incidents=_whole(failed for _, failed in here.values()),
            seconds=exposed,
            even=even,
            compared=_whole(here[one][1] for one in kinds),
            expected=expected,
            compared_ratio=compared / exposed if exposed else 0.0,
            kinds=tuple(kind for kind in kinds.values() if kind.incidents and kind.seconds),
            is_spread=self._is_spread(own, kinds),
        )

    def _sums(self, numbers: Iterable[int]) -> Mapping[_Stratum, tuple[float, float]]:
        """Return by stratum the exposure, seconds, and the incidents of runs."""
        seconds: defaultdict[_Stratum, float] = defaultdict(float)
        failed: defaultdict[_Stratum, float] = defaultdict(float)
        for number in numbers:
            stratum = self._stratum(self._runs[number])
            seconds[stratum] += self._exposure(self._runs[number])
            failed[stratum] += self._weights.get(number, 0.0)
        return {one: (some, failed[one]) for one, some in seconds.items()}

    def _is_spread(self, numbers: Iterable[int], kinds: Mapping[_Stratum, WorkKind]) -> bool:
        """Return whether compared incidents are too many without their worst days and workload.

        Counts are taken as independent. A few bad days, of cooling or of a network, or one
        workload whose pods all fail for one cause, are not: neither may decide alone.
        """
        by_day: defaultdict[int, float] = defaultdict(float)
        by_workload: defaultdict[int, float] = defaultdict(float)
        days: set[int] = set()
        for number in numbers:
            run = self._runs[number]
            days.update(range(int(run.start // _DAY), int(run.end // _DAY) + 1))
            if (weight := self._weights.get(number)) and self._stratum(run) in kinds:
                by_day[int(run.end // _DAY)] += weight
                by_workload[run.workload] += weight
        mean = sum(kind.incidents * kind.share for kind in kinds.values())
        left = _whole(sorted(by_day.values())[:-_WORST_DAYS])
        others = _whole(sorted(by_workload.values())[:-1])
        rest = mean * max(0, len(days) - _WORST_DAYS) / max(1, len(days))
        return (
            left > 0
            and others > 0
            and poisson_tail(left, rest) <= _CONFIRMED
            and poisson_tail(others, mean) <= _CONFIRMED
        )

    def _exposure(self, run: PodRun) -> float:
        # One that was refused at once has no length, and is exposed all the same.
        over = self._over.get((run.node, self._unit(run)), inf)
        if run.start >= over and run.end > over:
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
    return int(sum(weights) + _HAIR)
