from hypothesis import given
from hypothesis import strategies as st

from apps.accounts.domain.structs import replace
from apps.clusters.domain.pods.ledger import (
    NodeInterval,
    Owner,
    PodRecord,
    PodSource,
    gaps,
    merge_intervals,
    merge_pods,
)
from apps.clusters.domain.window import seconds, union

API_POD = PodRecord(
    uid="a",
    namespace="ml",
    name="p",
    owner=Owner("Deployment", "web"),
    requests={"nvidia.com/gpu": 1.0},
    created=0.0,
    node="n1",
    bound=5.0,
    runs=((6.0, None),),
)


def inferred(**changes: object) -> PodRecord:
    return replace(API_POD, source=PodSource.METRICS, **changes)  # type: ignore[arg-type]


def test_what_the_api_said_of_a_pod_wins() -> None:
    assert merge_pods([API_POD], [inferred(bound=7.0)]) == [API_POD]


def test_a_pod_whose_end_nobody_watched_takes_the_end_of_the_series() -> None:
    (pod,) = merge_pods([API_POD], [inferred(finished=90.0)])
    assert pod.ended == 90.0
    assert pod.source is PodSource.API


def test_a_pod_that_started_while_nobody_watched_ran_as_the_series_say() -> None:
    starting = replace(API_POD, runs=())
    (pod,) = merge_pods([starting], [inferred(started=6.0, runs=((6.0, 90.0),), finished=90.0)])
    assert (pod.bound, pod.started, pod.ended, pod.runs) == (5.0, 6.0, 90.0, ((6.0, 90.0),))


def test_a_pod_bound_while_nobody_watched_is_bound_as_the_series_say() -> None:
    waiting = replace(API_POD, node="", bound=None, runs=())
    (pod,) = merge_pods([waiting], [inferred(owner=Owner("ReplicaSet", "web-1"))])
    assert pod.bound == 5.0
    assert pod.owner == Owner("Deployment", "web")


def test_pods_that_only_one_side_knows_are_kept() -> None:
    other = inferred(uid="b")
    assert merge_pods([API_POD], [other]) == [API_POD, other]


def test_gaps_are_what_nobody_watched() -> None:
    watched = [(10.0, 20.0), (20.5, 30.0), (50.0, 90.0)]
    assert gaps(watched, 0.0, 100.0, tolerance=1.0) == [(0.0, 10.0), (30.0, 50.0), (90.0, 100.0)]
    assert gaps([(0.0, 100.0)], 0.0, 100.0, tolerance=1.0) == []
    assert gaps([], 0.0, 100.0, tolerance=1.0) == [(0.0, 100.0)]


def interval(start: float, end: float, source: PodSource = PodSource.API) -> NodeInterval:
    return NodeInterval("n1", start, end, {}, {}, {}, source=source)


POINTS = st.lists(st.integers(0, 100), min_size=2, max_size=8, unique=True).map(sorted)


@given(POINTS)
def test_intervals_of_both_sides_cover_the_time_once(points: list[int]) -> None:
    holes = union((float(a), float(b)) for a, b in zip(points[::2], points[1::2], strict=False))
    merged = merge_intervals(
        [interval(0.0, 100.0)], [interval(0.0, 100.0, PodSource.METRICS)], holes, tolerance=0.0
    )
    assert sum(s.end - s.start for s in merged) == 100.0
    assert seconds(union((s.start, s.end) for s in merged)) == 100.0
    from_series = [(s.start, s.end) for s in merged if s.source is PodSource.METRICS]
    assert union(from_series) == holes


def test_a_short_hole_between_two_intervals_belongs_to_the_first() -> None:
    pieces = [interval(0.0, 10.0), interval(70.0, 100.0)]
    bridged = merge_intervals(pieces, [], [], tolerance=60.0)
    assert [(s.start, s.end) for s in bridged] == [(0.0, 70.0), (70.0, 100.0)]
    assert merge_intervals(pieces, [], [], tolerance=59.0) == pieces


def test_series_without_labels_borrow_those_of_the_api() -> None:
    shown = replace(interval(0.0, 10.0), labels={"zone": "a", "model": "x"})
    bare = replace(interval(10.0, 20.0, PodSource.METRICS), labels={"model": "y"})
    merged = merge_intervals([shown], [bare], [(10.0, 20.0)], tolerance=0.0)
    assert merged[1].labels == {"zone": "a", "model": "y"}
