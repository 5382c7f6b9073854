"""The course of an episode: marks and the ledger's times become spans that cover it."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.pending.domain.diagnosis import Cause, Counts, Outcome
from apps.pending.domain.episodes import (
    CauseSpan,
    EpisodeTimes,
    PodLife,
    Recording,
    changed_at,
    interval_changes,
    object_episode,
    pod_episode,
    rescaled,
)


def mark(start: float, cause: Cause = Cause.CAPACITY, **values: object) -> CauseSpan:
    return CauseSpan(start, cause, **{"counts": Counts.PENDING, "counted": 2.0, **values})  # type: ignore[arg-type]


def told(course: EpisodeTimes) -> list[tuple[float, float | None, str]]:
    return [(s.start, s.end, f"{s.counts}: {s.cause} {s.detail}".strip()) for s in course.intervals]


COURSES = [
    pytest.param(
        PodLife(10.0), [], [(10.0, None, "pending: other not seen pending")], None, id="never seen"
    ),
    pytest.param(
        PodLife(10.0), [mark(12.0)], [(10.0, None, "pending: capacity")], None,
        id="the first cause holds from the beginning",
    ),
    pytest.param(
        PodLife(10.0), [mark(10.0), mark(20.0, Cause.QUOTA), mark(30.0, Cause.QUOTA)],
        [(10.0, 20.0, "pending: capacity"), (20.0, None, "pending: quota")], None,
        id="what stays the same is one interval",
    ),
    pytest.param(
        PodLife(10.0, bound=25.0, started=40.0), [mark(10.0), mark(30.0, Cause.QUOTA)],
        [(10.0, 25.0, "pending: capacity"), (25.0, 40.0, "starting: starting")],
        Outcome.STARTED, id="bound and started as the ledger says",
    ),
    pytest.param(
        PodLife(10.0, bound=25.0),
        [mark(10.0), mark(26.0, Cause.STARTING, counts=Counts.STARTING, detail="image")],
        [(10.0, 25.0, "pending: capacity"), (25.0, None, "starting: starting image")],
        None, id="bound, and its image is pulled",
    ),
    pytest.param(
        PodLife(10.0, bound=10.0, started=10.0), [], [], Outcome.STARTED, id="at once"
    ),
    pytest.param(
        PodLife(10.0, ended=50.0), [mark(10.0)], [(10.0, 50.0, "pending: capacity")],
        Outcome.GAVE_UP, id="deleted while it waited",
    ),
    pytest.param(
        PodLife(10.0, bound=11.0, ended=12.0, refused=True), [],
        [(10.0, 11.0, "pending: other not seen pending"), (11.0, 12.0, "starting: starting")],
        Outcome.REFUSED, id="refused by the kubelet",
    ),
    pytest.param(
        PodLife(10.0, bound=20.0, started=30.0), [mark(31.0)],
        [(10.0, 20.0, "pending: capacity"), (20.0, 30.0, "starting: starting")],
        Outcome.STARTED, id="seen only after it was bound, by a clock ahead",
    ),
    pytest.param(
        PodLife(10.0, bound=5.0, started=4.0), [mark(10.0)], [], Outcome.STARTED,
        id="clocks that differ make no negative wait",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("life", "marks", "intervals", "outcome"), COURSES)
def test_a_pod_waits_until_it_is_bound_and_starts_until_it_runs(
    life: PodLife,
    marks: list[CauseSpan],
    intervals: list[tuple[float, float | None, str]],
    outcome: Outcome | None,
) -> None:
    course = pod_episode(life, marks, counted=2.0)
    assert told(course) == intervals
    assert course.outcome is outcome


times = st.integers(min_value=0, max_value=60).map(float)
maybe = st.none() | times
causes = st.sampled_from([Cause.CAPACITY, Cause.QUOTA, Cause.TAINT])
some_marks = st.lists(
    st.builds(
        CauseSpan,
        start=times,
        cause=causes,
        counts=st.sampled_from([Counts.PENDING, Counts.STARTING]),
        counted=st.just(2.0),
    ),
    max_size=6,
)


@given(st.builds(PodLife, times, maybe, maybe, maybe), some_marks)
def test_intervals_are_contiguous_and_cover_the_episode(
    life: PodLife, marks: list[CauseSpan]
) -> None:
    course = pod_episode(life, marks, counted=2.0)
    intervals = course.intervals
    assert all(one.end == other.start for one, other in pairwise(intervals))
    assert all(one.end is None or one.end > one.start for one in intervals)
    assert not any(one.is_same(other) for one, other in pairwise(intervals))
    if course.until is not None and course.until <= course.since:
        assert intervals == ()
        return
    assert intervals[0].start == course.since
    assert intervals[-1].end == course.until
    for interval in intervals:
        starting = course.bound is not None and interval.start >= course.bound
        assert (interval.counts is Counts.STARTING) == starting


@given(st.builds(PodLife, times, maybe, maybe, maybe), some_marks)
def test_the_course_of_what_is_kept_is_what_is_kept(life: PodLife, marks: list[CauseSpan]) -> None:
    course = pod_episode(life, marks, counted=2.0)
    again = pod_episode(life, course.intervals, counted=2.0)
    assert again == course
    changes = interval_changes(course.intervals, again.intervals)
    assert (changes.write, changes.delete, changes.touched) == ((), (), None)


def test_anything_else_ends_no_sooner_than_it_began() -> None:
    course = object_episode(10.0, [mark(10.0)], until=5.0, outcome=Outcome.SETTLED)
    assert (course.until, course.intervals, course.outcome) == (10.0, (), Outcome.SETTLED)


def test_only_what_changed_of_the_intervals_is_written() -> None:
    known = object_episode(10.0, [mark(10.0), mark(20.0, Cause.QUOTA)]).intervals
    wanted = object_episode(10.0, [*known, mark(30.0, Cause.TAINT)]).intervals
    changes = interval_changes(known, wanted)
    assert [(interval.start, interval.end) for interval in changes.write] == [
        (20.0, 30.0),
        (30.0, None),
    ]
    assert changes.touched == 30.0
    assert changes.delete == ()


def test_a_text_alone_is_no_change() -> None:
    assert interval_changes([mark(10.0, message="a")], [mark(10.0, message="b")]).write == ()


def test_a_pod_weighed_anew_counts_so_from_its_beginning() -> None:
    marks = [mark(10.0, counted=2.0), mark(20.0, counted=1.0)]
    assert [one.counted for one in rescaled(marks, 2.0, 0.5)] == [0.5, 0.25]


@pytest.mark.parametrize(
    ("seen", "before", "found"),
    [
        pytest.param(95.0, 90.0, 95.0, id="between the looks: the object's own time"),
        pytest.param(80.0, 90.0, 100.0, id="before the last look, which saw it otherwise"),
        pytest.param(110.0, 90.0, 100.0, id="in the future"),
        pytest.param(None, 90.0, 100.0, id="not known"),
        pytest.param(40.0, None, 40.0, id="the first look"),
    ],
)
def test_a_cause_changed_when_its_object_did(
    seen: float | None, before: float | None, found: float
) -> None:
    assert changed_at(seen, before=before, now=100.0) == found


@pytest.mark.parametrize(
    ("at", "inferred", "told_as"),
    [
        pytest.param(5.0, False, "before recording", id="before anybody watched"),
        pytest.param(5.0, True, "before recording", id="known from metrics, before"),
        pytest.param(15.0, False, "not seen pending", id="watched"),
        pytest.param(25.0, False, "not watched", id="watch was away"),
        pytest.param(35.0, False, "not seen pending", id="watched at present"),
        pytest.param(35.0, True, "not watched", id="known from metrics alone"),
    ],
)
def test_why_nobody_saw_what_a_pod_waited_for(at: float, inferred: bool, told_as: str) -> None:
    assert Recording(((10.0, 20.0), (30.0, 40.0))).unseen(at, inferred=inferred) == told_as


def test_without_any_watch_nothing_was_watched() -> None:
    assert Recording(()).unseen(5.0) == "not watched"
