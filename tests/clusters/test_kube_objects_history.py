"""What is known of a pod, joined over time: later looks of the API, and hours of series."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.accounts.domain.structs import replace
from apps.clusters.domain.pods.history import extended_runs, merged_inferred, reopened, updated
from apps.clusters.domain.pods.ledger import Owner, PodRecord, PodSource
from tests.clusters.kube_factories import (
    T0,
    container,
    owner,
    pod,
    record,
    running,
    status,
    terminated,
)

RUNS: dict[str, tuple[list[Any], list[Any], list[Any]]] = {
    "first sight": ([], [(9, None)], [(9, None)]),
    "the same again": ([(9, None)], [(9, None)], [(9, None)]),
    "it ended": ([(9, None)], [(9, 40)], [(9, 40)]),
    "it was restarted": ([(9, None)], [(9, 40), (60, None)], [(9, 40), (60, None)]),
    "an older run is forgotten by the status": (
        [(9, 40), (60, None)],
        [(60, 80), (90, None)],
        [(9, 40), (60, 80), (90, None)],
    ),
    "two restarts at once, the end between unseen": (
        [(9, None)],
        [(60, 80), (90, None)],
        [(9, 80), (90, None)],
    ),
    "another container goes on": ([(9, None)], [(9, None)], [(9, None)]),
    "the status was wiped": ([(9, None)], [], [(9, None)]),
    "nothing yet": ([], [], []),
}


@pytest.mark.parametrize(("known", "seen", "expected"), RUNS.values(), ids=RUNS)
def test_runs_are_kept_that_the_status_has_forgotten(
    known: list[Any], seen: list[Any], expected: list[Any]
) -> None:
    assert list(extended_runs(tuple(known), tuple(seen))) == expected


LIFE = [
    pod(),
    pod(bound=5, statuses=[status()]),
    pod(bound=5, phase="Running", statuses=[status(state=running(9))]),
    pod(bound=5, phase="Running", statuses=[status(last=terminated(9, 40, "Error", 1))]),
    pod(
        bound=5,
        phase="Running",
        statuses=[status(state=running(60), last=terminated(9, 40, "Error", 1))],
    ),
    pod(
        bound=5,
        phase="Succeeded",
        statuses=[status(state=terminated(60, 90), last=terminated(9, 40, "Error", 1))],
    ),
]


def _told(looks: list[PodRecord]) -> PodRecord:
    known = looks[0]
    for n, look in enumerate(looks[1:]):
        known = updated(known, look, at=T0 + 100 + n)
    return known


@given(st.lists(st.integers(0, len(LIFE) - 1), max_size=5))
def test_a_life_in_order_is_the_same_however_many_looks_are_missed_or_doubled(
    extra: list[int],
) -> None:
    looks = sorted({2, 4, 5, *extra})
    doubled = [n for n in looks for _ in range(1 + extra.count(n))]
    told = _told([record(LIFE[n]) for n in doubled])
    assert told == _told([record(item) for item in LIFE])
    assert told.runs == ((T0 + 9, T0 + 40), (T0 + 60, T0 + 90))


def test_a_pod_whose_statuses_are_wiped_when_it_fails_ends_when_that_was_seen() -> None:
    ran = record(pod(bound=5, phase="Running", statuses=[status(state=running(9))]))
    failed = record(pod(bound=5, phase="Failed", reason="Evicted"))
    told = updated(ran, failed, at=T0 + 77)
    assert (told.finished, told.end_reason) == (T0 + 77, "Evicted")
    assert told.runs == ((T0 + 9, T0 + 77),)
    assert updated(told, failed, at=T0 + 99) == told


def test_a_pod_whose_container_was_lost_sight_of_ran_until_that_was_seen() -> None:
    containers = [container("a"), container("b")]
    ran = record(
        pod(
            bound=5,
            phase="Running",
            containers=containers,
            statuses=[status("a", running(9)), status("b", running(9))],
        )
    )
    unknown = {"terminated": {"reason": "ContainerStatusUnknown"}}
    ended = [status("a", terminated(9, 30)), status("b", unknown)]
    over = record(pod(bound=5, phase="Failed", containers=containers, statuses=ended))
    told = updated(ran, over, at=T0 + 77, vague=True)
    assert (told.finished, told.runs) == (T0 + 77, ((T0 + 9, T0 + 77),))
    assert updated(told, over, at=T0 + 99, vague=True) == told


def test_what_was_first_seen_to_go_stays_gone() -> None:
    item = pod(bound=5, phase="Running", statuses=[status(state=running(9))])
    gone = updated(record(item), record(item, deleted=70), at=T0 + 70)
    assert updated(gone, record(item, deleted=95), at=T0 + 95).deleted == T0 + 70
    assert gone.runs == ((T0 + 9, T0 + 70),)


def test_an_owner_that_has_gone_since_is_kept() -> None:
    item = pod(owner=owner("Job", "nightly-1", api_version="batch/v1"))
    known = replace(record(item), owner=Owner("CronJob", "nightly"))
    assert updated(known, record(item), at=T0).owner == Owner("CronJob", "nightly")
    assert updated(record(item), known, at=T0).owner == Owner("CronJob", "nightly")


def test_a_lost_pod_opened_again_runs_on_where_it_ran_when_last_seen() -> None:
    looks = [status(state=running(60), last=terminated(9, 40))]
    ran = record(pod(bound=5, phase="Running", statuses=looks))
    lost = replace(
        ran, deleted=T0 + 100, runs=((T0 + 9, T0 + 40), (T0 + 60, T0 + 100)), end_reason="Lost"
    )
    again = reopened(lost)
    assert (again.ended, again.runs) == (None, ran.runs)


# ---------------------------------------------------------------- hours of series

OFFSETS = st.none() | st.integers(0, 50).map(lambda n: T0 + n)


@st.composite
def hours(draw: st.DrawFn) -> PodRecord:
    """Return what one hour of series may say of a pod: exact times alike, estimates any."""
    finished, deleted = draw(OFFSETS), draw(OFFSETS)
    created, bound = draw(OFFSETS), draw(OFFSETS)
    reason = "" if finished is None else draw(st.sampled_from(["", "Failed"]))
    estimates = {
        "created": created is not None,
        "bound": bound is not None,
        "finished": bool(reason) and draw(st.booleans()),
    }
    start = draw(OFFSETS)
    end = finished if finished is not None else deleted
    return PodRecord(
        uid="u",
        namespace="vision",
        name="pod",
        owner=draw(st.sampled_from([Owner("ReplicaSet", "a-1"), Owner("Deployment", "a")])),
        requests=draw(st.sampled_from([{"nvidia.com/gpu": 1.0}, {"nvidia.com/gpu": 2.0}])),
        created=T0 if created is None else created,
        node=draw(st.sampled_from(["", "node-a"])),
        bound=draw(st.sampled_from([None, T0 + 1])) if bound is None else bound,
        started=start,
        finished=finished,
        deleted=deleted,
        runs=() if start is None else ((start, end),),
        end_reason=reason,
        source=PodSource.METRICS,
        estimated=frozenset(name for name, estimated in estimates.items() if estimated),
    )


def _joined(records: tuple[PodRecord, ...]) -> PodRecord:
    joined = merged_inferred(records[0], records[0])
    for one in records:
        joined = merged_inferred(joined, one)
    return joined


@given(st.lists(hours(), min_size=2, max_size=4))
def test_hours_of_series_give_the_same_pod_in_any_order_and_twice(records: list[PodRecord]) -> None:
    joined = _joined(tuple(records))
    assert all(_joined(order) == joined for order in itertools.permutations(records))
    assert merged_inferred(joined, joined) == joined
    assert _joined((*records, *records)) == joined


def test_an_exact_time_replaces_earlier_estimates() -> None:
    base = PodRecord("u", "n", "p", Owner("Pod", "p"), {"nvidia.com/gpu": 1.0}, created=T0)
    partial = replace(
        base,
        bound=T0,
        finished=T0 + 10,
        end_reason="Failed",
        estimated=frozenset({"created", "bound", "finished"}),
    )
    whole = replace(base, created=T0 + 3, bound=T0 + 4, finished=T0 + 25, end_reason="Failed")
    for joined in (merged_inferred(partial, whole), merged_inferred(whole, partial)):
        assert (joined.created, joined.bound, joined.finished) == (T0 + 3, T0 + 4, T0 + 25)
        assert joined.estimated == frozenset()
    refused = replace(whole, finished=T0 + 9, estimated=frozenset({"finished"}))
    too_early = replace(partial, finished=T0 - 60)
    assert merged_inferred(too_early, refused).finished == T0 + 4
    earlier = replace(partial, finished=T0 + 7)
    joined = merged_inferred(partial, earlier)
    assert (joined.finished, joined.estimated) == (T0 + 7, partial.estimated)


def test_a_completion_time_is_kept_beside_later_estimates() -> None:
    base = PodRecord("u", "n", "p", Owner("Pod", "p"), {"nvidia.com/gpu": 1.0}, created=T0)
    first = replace(base, started=T0 + 5, runs=((T0 + 5, T0 + 20),), deleted=T0 + 20)
    later = replace(base, started=T0 + 5, runs=((T0 + 5, T0 + 30),), deleted=T0 + 30)
    done = replace(base, started=T0 + 5, runs=((T0 + 5, T0 + 25),), finished=T0 + 25)
    assert merged_inferred(first, later).ended == T0 + 30
    assert merged_inferred(later, done).ended == T0 + 25
    assert merged_inferred(done, later).runs == ((T0 + 5, T0 + 25),)
