"""One window of a day and its hours, in any order, tell the same of a pod."""

from functools import reduce
from math import inf

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Struct

from apps.clusters.domain.pods.history import merged_inferred
from apps.clusters.domain.pods.kube_state import (
    READ_AHEAD_SECONDS,
    OptionalSeries,
    PodSeries,
    SeriesCoverage,
    pod_record,
)
from apps.clusters.domain.pods.ledger import PodRecord

S = 1_772_409_600
HOURS = 5
INTERVAL = 30
HOUR = 3600
Hole = tuple[float, float]


class Life(Struct, frozen=True):
    """What really happened to a pod, in seconds since S; `removed` from the API server.

    A kubelet may have `refused` it: then it never started.
    """

    created: float
    bound: float
    started: float
    completed: float | None
    removed: float
    refused: float | None = None


class Scrapes(Struct, frozen=True):
    """When kube-state-metrics was scraped; in `missing` its answer left this pod out."""

    phase: float
    away: tuple[Hole, ...]
    missing: tuple[Hole, ...]

    def between(self, start: float, end: float) -> list[float]:
        first = -(-(start - S - self.phase) // INTERVAL)
        found, at = [], S + self.phase + INTERVAL * first
        while at < end:
            if not _within(at - S, self.away):
                found.append(at)
            at += INTERVAL
        return found

    def showing(self, life: Life, start: float, end: float) -> list[float]:
        return [
            at
            for at in self.between(start, end)
            if life.created <= at - S < life.removed and not _within(at - S, self.missing)
        ]


def _within(at: float, holes: tuple[Hole, ...]) -> bool:
    return any(start <= at < start + length for start, length in holes)


def _read(life: Life, scrapes: Scrapes, first: int, hours: int) -> PodRecord | None:
    """Return the record of a window that is read as the adapter reads it."""
    start, end = S + first * HOUR, S + (first + hours) * HOUR
    slots = list(range(start, end, 1800))
    times = {slot: scrapes.between(slot, slot + 1800) for slot in slots}
    shown = {slot: scrapes.showing(life, slot, slot + 1800) for slot in slots}
    later = scrapes.showing(life, end, end + READ_AHEAD_SECONDS)
    shows = [at - S for at in scrapes.showing(life, start, end + READ_AHEAD_SECONDS)]
    if not any(shown.values()):
        return None
    done = life.completed is not None and shows[-1] >= life.completed
    failed = {
        slot: float(sum(at - S >= life.refused for at in seen)) if life.refused else 0.0
        for slot, seen in shown.items()
    }
    refused = life.refused is not None and shows[-1] >= life.refused
    started = {
        slot: S + life.started
        for slot, at in [*shown.items(), (end, later)]
        if at and at[-1] - S >= life.started
    }
    running = {slot: float(sum(_runs(life, at - S) for at in seen)) for slot, seen in shown.items()}
    series = PodSeries(
        uid="u1",
        namespace="vision",
        name="train-0",
        node="n1" if shows[-1] >= life.bound else "",
        requests={"main": {"nvidia_com_gpu": 1.0}},
        created=S + life.created,
        bound=S + life.bound if shows[-1] >= life.bound else None,
        completed=S + life.completed if done and life.completed is not None else None,
        terminal="Failed" if refused else "Succeeded" if done else "",
        terminal_samples=failed if refused else {},
        samples={slot: float(len(seen)) for slot, seen in shown.items() if seen},
        after=bool(later),
        starts=started,
        running={slot: count for slot, count in running.items() if count},
    )
    coverage = SeriesCoverage(
        slots=slots,
        full={slot: float(len(at)) for slot, at in times.items() if at},
        after=bool(scrapes.between(end, end + READ_AHEAD_SECONDS)),
        scrapes={slot: at for slot, at in times.items() if at},
    )
    return pod_record(series, coverage, known=OptionalSeries())


def _runs(life: Life, at: float) -> bool:
    return life.started <= at < (life.completed or life.removed)


def _joined(records: list[PodRecord | None]) -> PodRecord | None:
    known = [record for record in records if record is not None]
    return reduce(merged_inferred, [*known, known[0]]) if known else None


seconds = st.floats(0, HOURS * HOUR - 1).map(lambda at: round(at, 1))
lengths = st.sampled_from([10.0, 45.0, 90.0, 200.0, 1200.0, 2000.0, 4000.0, 9000.0])
holes = st.lists(st.tuples(seconds, lengths), max_size=3).map(tuple)


@st.composite
def lives(draw: st.DrawFn) -> Life:
    born = draw(st.integers(0, HOURS * HOUR - 100))
    steps = [draw(st.integers(0, 4000)) for _ in range(4)]
    bound = born + steps[0] % 100
    started = bound + steps[1] % 300
    completed = float(started + steps[2] + 1) if draw(st.booleans()) else None
    removed = (completed if completed is not None else started) + 1 + steps[3]
    if completed is None and draw(st.booleans()):
        return Life(float(born), float(bound), inf, None, float(removed), refused=float(started))
    return Life(float(born), float(bound), float(started), completed, float(removed))


@given(
    life=lives(),
    scrapes=st.builds(Scrapes, st.sampled_from([0.0, 7.0, 29.9]), holes, holes),
    order=st.permutations(range(HOURS)),
)
@example(  # It lasts, and is left out where an hour ends.
    life=Life(100.0, 110.0, 120.0, None, 4 * HOUR + 10.0),
    scrapes=Scrapes(0.0, (), ((3000.0, 600.0),)),
    order=list(range(HOURS)),
)
@example(  # A kubelet refused it after the last scrape of an hour.
    life=Life(3500.0, 3580.0, inf, None, 2 * HOUR + 10.0, refused=3595.0),
    scrapes=Scrapes(7.0, (), ()),
    order=list(range(HOURS)),
)
@example(  # It completed while kube-state-metrics was away.
    life=Life(100.0, 110.0, 120.0, 5000.0, 4 * HOUR + 10.0),
    scrapes=Scrapes(0.0, ((4500.0, 4000.0),), ()),
    order=list(range(HOURS)),
)
def test_a_day_and_its_hours_in_any_order_tell_the_same(
    life: Life, scrapes: Scrapes, order: list[int]
) -> None:
    whole = _joined([_read(life, scrapes, 0, HOURS)])
    parts = _joined([_read(life, scrapes, hour, 1) for hour in order])
    assert parts == whole
