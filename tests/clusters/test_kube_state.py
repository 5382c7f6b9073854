"""The pod ledger from kube-state-metrics series: exact times kept, the rest estimated."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.clusters.domain.pods.history import merged_inferred
from apps.clusters.domain.pods.kube_state import (
    OptionalSeries,
    PodSeries,
    SeriesCoverage,
    effective_units,
    pod_record,
    presence,
)
from apps.clusters.domain.pods.ledger import LastSeen, Owner, PodRecord, PodSource

S = 1_772_409_600
SLOTS = [S, S + 1800]
END = S + 3600
GPU = {"main": {"nvidia_com_gpu": 1.0}}


def coverage(
    full: Mapping[int, float] | None = None, *, after: bool = True, phase: float | None = 0.0
) -> SeriesCoverage:
    """Return an hour that was scraped every 30 s, at that phase where it is known."""
    scrapes = {} if phase is None else {s: [s + phase + 30 * n for n in range(60)] for s in SLOTS}
    return SeriesCoverage(
        SLOTS, dict.fromkeys(SLOTS, 60.0) if full is None else full, after, scrapes
    )


def pod(**more: object) -> PodSeries:
    """Return a pod that was there and ran all the time, and still is."""
    fields: dict[str, object] = {
        "uid": "u1",
        "namespace": "vision",
        "name": "train-0",
        "node": "n1",
        "requests": GPU,
        "created": S - 500.0,
        "bound": S - 400.0,
        "started": S - 390.0,
        "samples": {S: 60.0, S + 1800: 60.0},
        "after": True,
        "starts": {S: S - 380.0, S + 1800: S - 380.0, END: S - 380.0},
        "running": {S: 60.0, S + 1800: 60.0},
    }
    return PodSeries(**{**fields, **more})  # type: ignore[arg-type]


def record(series: PodSeries, seen: SeriesCoverage | None = None, **more: object) -> PodRecord:
    found = pod_record(series, seen or coverage(), **{"known": OptionalSeries(), **more})  # type: ignore[arg-type]
    assert found is not None
    return found


def test_a_pod_that_is_still_there_has_its_exact_times_and_no_end() -> None:
    assert record(pod(priority_class="high", owner=Owner("StatefulSet", "train"))) == PodRecord(
        uid="u1",
        namespace="vision",
        name="train-0",
        owner=Owner("StatefulSet", "train"),
        requests={"nvidia.com/gpu": 1.0},
        created=S - 500.0,
        node="n1",
        bound=S - 400.0,
        started=S - 380.0,
        runs=((S - 380.0, None),),
        priority_class="high",
        source=PodSource.METRICS,
        last_seen=LastSeen(float(END), gone=False),
    )


def test_a_pod_that_nobody_bound_waits() -> None:
    found = record(pod(bound=None, node="", starts={}, running={}, started=None))
    assert (found.bound, found.node, found.runs) == (None, "", ())
    assert found.held(END) is None


# ---------------------------------------------------------------- ends


@pytest.mark.parametrize(
    ("phase", "reason"), [("Succeeded", "Completed"), ("Failed", "Failed")], ids=str
)
def test_a_finished_pod_ends_when_it_completed(phase: str, reason: str) -> None:
    found = record(pod(terminal=phase, completed=S + 1000.0))
    assert (found.finished, found.ended, found.end_reason) == (S + 1000.0, S + 1000.0, reason)
    assert found.runs == ((S - 380.0, S + 1000.0),)


def test_a_pod_that_was_over_before_the_window_still_tells_when() -> None:
    before = record(pod(terminal="Succeeded", completed=S - 60.0))
    assert (before.ended, before.held(END)) == (S - 60.0, (S - 400.0, S - 60.0))


def test_a_pod_created_after_the_window_is_left_out() -> None:
    assert (
        pod_record(pod(created=float(END), samples={}), coverage(), known=OptionalSeries()) is None
    )


def test_one_container_that_completed_does_not_end_a_pod() -> None:
    assert record(pod(completed=S + 1000.0)).ended is None


def test_a_failed_pod_whose_failure_no_slot_shows_is_still_there() -> None:
    assert record(pod(terminal="Failed")).ended is None


def test_without_phases_a_running_pod_runs() -> None:
    assert record(pod(), known=OptionalSeries(phases=False)).ended is None


def test_a_failure_in_a_slot_nobody_covered_ends_where_it_begins() -> None:
    away = coverage({S: 60.0})
    odd = pod(terminal="Failed", terminal_samples={S + 1800: 3.0}, starts={}, running={})
    assert record(odd, away).finished == S + 1800


def test_a_start_in_a_slot_nobody_covered_is_no_run() -> None:
    away = coverage({S: 60.0}, after=False)
    odd = pod(samples={S: 60.0}, starts={S + 1800: S + 1900.0}, running={})
    assert record(odd, away).runs == ()


def test_a_sample_shared_by_copies_is_less_than_one() -> None:
    # One of two copies of kube-state-metrics saw it once.
    doubled = coverage({S: 120.0, S + 1800: 120.0}, phase=10.0)
    short = pod(created=S + 5.0, bound=S + 5.0, samples={S: 1.0}, after=False, starts={})
    assert record(short, doubled).deleted == S + 10.0
    first = pod(created=S + 10.0, bound=S + 10.0, samples={S: 0.5}, after=False, starts={})
    assert record(first, doubled).deleted == S + 10.0


def test_without_phases_a_completion_time_is_believed() -> None:
    assert (
        record(pod(completed=S + 1000.0), known=OptionalSeries(phases=False)).finished == S + 1000.0
    )


@pytest.mark.parametrize(
    ("phase", "count", "end"),
    [
        pytest.param(0.0, 20.0, S + 1800 + 585.0, id="between-two-scrapes"),
        pytest.param(20.0, 20.0, S + 1800 + 605.0, id="the-phase-counts"),
        pytest.param(None, 20.0, S + 1800 + 600.0, id="phase-unknown"),
        pytest.param(20.0, 60.0, END, id="never-past-its-slot"),
        pytest.param(0.0, 59.0, S + 1800 + 1755.0, id="one-sample-lacks"),
    ],
)
def test_a_deleted_pod_ends_after_its_last_sample(
    phase: float | None, count: float, end: float
) -> None:
    gone = pod(samples={S: 60.0, S + 1800: count}, after=False)
    found = record(gone, coverage(phase=phase))
    assert (found.finished, found.deleted) == (None, end)
    assert found.runs == ((S - 380.0, end),)


def test_a_pod_that_came_and_went_within_a_slot() -> None:
    short = pod(
        created=S + 100.0,
        bound=S + 101.0,
        starts={S: S + 110.0},
        running={S: 5.0},
        samples={S: 6.0},
        after=False,
    )
    # Scrapes at 120 .. 270 show it, the one at 300 does not.
    assert record(short).deleted == S + 285.0


def test_a_pod_that_was_replaced_by_its_namesake_is_another() -> None:
    one = record(pod(uid="old", samples={S: 10.0}, after=False))
    two = record(
        pod(uid="new", created=S + 310.0, bound=S + 311.0, samples={S: 49.0, S + 1800: 60.0})
    )
    assert one.deleted is not None
    assert two.bound is not None
    assert one.deleted <= two.bound
    assert two.ended is None


@pytest.mark.parametrize("count", [60.0, 59.0])
def test_where_nobody_looked_afterwards_a_pod_is_still_there(count: float) -> None:
    last = pod(samples={S: 60.0, S + 1800: count}, after=False)
    assert record(last, coverage(after=False)).ended is None
    missing = pod(samples={S: 60.0, S + 1800: 30.0}, after=False)
    assert record(missing, coverage(after=False)).deleted == S + 1800 + 885.0


def test_a_pod_that_outlived_an_outage_has_no_end() -> None:
    away = coverage({S: 60.0}, after=False)
    found = record(
        pod(samples={S: 60.0}, after=False, starts={S: S - 380.0}, running={S: 60.0}), away
    )
    assert (found.ended, found.runs) == (None, ((S - 380.0, None),))
    assert not away.covers(S + 1800)


def test_replicas_of_kube_state_metrics_change_no_end() -> None:
    doubled = coverage({S: 120.0, S + 1800: 120.0})
    gone = pod(samples={S: 120.0, S + 1800: 40.0}, after=False)
    assert record(gone, doubled).deleted == S + 1800 + 585.0


def test_a_pod_refused_by_the_kubelet_held_from_binding_to_its_failure() -> None:
    refused = pod(
        created=S + 50.0,
        bound=S + 61.0,
        started=None,
        starts={},
        running={},
        terminal="Failed",
        samples={S: 58.0, S + 1800: 60.0},
        terminal_samples={S: 57.0, S + 1800: 60.0},
    )
    found = record(refused)
    # The scrape at 60 shows it pending, the one at 90 failed.
    assert (found.finished, found.runs, found.end_reason) == (S + 75.0, (), "Failed")


@pytest.mark.parametrize("starts", [{}, {S: 30.0}])
def test_a_pod_that_failed_before_the_window_was_over_by_then_if_it_never_ran(
    starts: dict[int, float],
) -> None:
    failed: dict[str, Any] = {"terminal": "Failed", "starts": starts, "running": {}}
    old = pod(terminal_samples={S: 60.0, S + 1800: 60.0}, **failed)
    found = pod_record(old, coverage(), known=OptionalSeries())
    assert (found and found.finished) == (None if starts else S)


def test_the_end_of_an_earlier_pod_with_its_uid_is_not_that_of_a_pod() -> None:
    later = pod(
        created=S + 1900.0,
        bound=S + 2000.0,
        started=S + 2000.0,
        completed=S + 1200.0,
        terminal="Succeeded",
        starts={S: S - 380.0, S + 1800: S + 2010.0},
        running={S: 40.0, S + 1800: 53.0},
    )
    found = record(later)
    assert (found.bound, found.ended, found.end_reason) == (S + 2000.0, None, "")
    assert found.runs == ((S + 2010.0, None),)


def test_a_pod_on_a_node_whose_clock_is_behind_ends() -> None:
    """It started and ended before it was created, by the node's clock: it is over all the same."""
    behind = pod(
        created=S + 1900.0,
        bound=S + 1900.0,
        started=S + 1300.0,
        completed=S + 1500.0,
        terminal="Succeeded",
        samples={S + 1800: 56.0},
        starts={S + 1800: S + 1310.0},
        running={S + 1800: 6.0},
    )
    assert record(behind).finished == S + 1500.0


def test_an_end_is_never_before_the_beginning() -> None:
    odd = pod(created=S + 5.0, bound=S + 25.0, samples={S: 1.0}, after=False, starts={}, running={})
    found = record(odd, coverage(phase=10.0))
    assert found.deleted == S + 25.0
    assert found.held(END) is None


# ---------------------------------------------------------------- runs


def test_a_start_that_only_the_next_slot_shows_counts() -> None:
    late = pod(starts={S + 1800: S + 1790.0, END: S + 1790.0}, running={S + 1800: 60.0})
    assert record(late).runs == ((S + 1790.0, None),)
    last = pod(starts={END: END - 10.0}, running={})
    assert record(last).runs == ((END - 10.0, None),)


def test_a_pod_that_waits_for_its_image_does_not_run() -> None:
    assert record(pod(starts={}, running={})).runs == ()


def test_a_crashing_pod_ran_as_long_as_samples_show() -> None:
    crashing = pod(
        starts={S: S - 380.0, S + 1800: S + 1500.0},
        running={S: 30.0, S + 1800: 0.0},
    )
    assert record(crashing).runs == ((S, S + 900.0),)


def test_a_pod_that_restarted_and_went_on_runs_from_its_new_start() -> None:
    restarted = pod(starts={S + 1800: S + 2000.0, END: S + 2000.0}, running={S + 1800: 53.0})
    assert record(restarted).runs == ((S + 2000.0, None),)


def test_runs_go_on_through_an_outage_in_which_nothing_changed() -> None:
    slots = [S, S + 1800, S + 3600]
    seen = SeriesCoverage(slots, {S: 60.0, S + 3600: 60.0}, after=True)
    there = pod(
        samples={S: 60.0, S + 3600: 60.0},
        starts={S: S - 380.0, S + 3600: S - 380.0},
        running={S: 60.0, S + 3600: 60.0},
    )
    assert record(there, seen).runs == ((S - 380.0, None),)


def test_without_container_starts_the_pods_start_stands_in() -> None:
    known = OptionalSeries(starts=False, running=False)
    assert record(pod(starts={}, running={}), known=known).runs == ((S - 390.0, None),)
    assert record(pod(started=None, starts={}), known=known).runs == ()


def test_without_running_states_a_started_container_runs() -> None:
    assert record(pod(running={}), known=OptionalSeries(running=False)).runs == ((S - 380.0, None),)


# ---------------------------------------------------------------- requests and owners


@pytest.mark.parametrize(
    ("more", "units"),
    [
        pytest.param({"requests": GPU}, {"nvidia.com/gpu": 1}, id="one"),
        pytest.param(
            {"requests": {"a": {"nvidia_com_gpu": 1.0}, "b": {"nvidia_com_gpu": 2.0}}},
            {"nvidia.com/gpu": 3},
            id="containers-add",
        ),
        pytest.param(
            {"requests": GPU, "init_requests": {"i": {"nvidia_com_gpu": 1.0}}},
            {"nvidia.com/gpu": 1},
            id="init-does-not-add",
        ),
        pytest.param(
            {"requests": GPU, "init_requests": {"i": {"nvidia_com_gpu": 4.0}}},
            {"nvidia.com/gpu": 4},
            id="init-is-larger",
        ),
        pytest.param(
            {
                "requests": GPU,
                "init_requests": {"s": {"nvidia_com_gpu": 1.0}, "i": {"nvidia_com_gpu": 1.0}},
                "sidecars": {"s"},
            },
            {"nvidia.com/gpu": 2},
            id="sidecar-adds",
        ),
        pytest.param(
            {"requests": {"a": {"nvidia_com_mig_1g_10gb_shared": 2.0, "example_com_npu": 1.0}}},
            {"nvidia.com/mig-1g.10gb.shared": 2, "example.com/npu": 1},
            id="names",
        ),
        pytest.param({"requests": {"a": {"nvidia_com_gpu": 0.0}}}, {}, id="none"),
    ],
)
def test_effective_requests(more: dict[str, object], units: dict[str, float]) -> None:
    assert effective_units(pod(**more), ["example.com/npu"]) == units


def test_a_pod_that_requests_none_is_left_out() -> None:
    none = pod(requests={"a": {"nvidia_com_gpu": 0.0}})
    assert pod_record(none, coverage(), known=OptionalSeries()) is None


@pytest.mark.parametrize(
    ("owner", "top"),
    [
        pytest.param(None, Owner("Pod", "train-0"), id="bare"),
        pytest.param(Owner("<none>", "<none>"), Owner("Pod", "train-0"), id="bare-old"),
        pytest.param(Owner("ReplicaSet", "web-abc"), Owner("Deployment", "web"), id="deployment"),
        pytest.param(Owner("Job", "nightly-1"), Owner("CronJob", "nightly"), id="cronjob"),
        pytest.param(Owner("Job", "alone"), Owner("Job", "alone"), id="job"),
        pytest.param(Owner("ReplicaSet", "gone"), Owner("ReplicaSet", "gone"), id="unknown"),
        pytest.param(Owner("RayCluster", "r"), Owner("RayCluster", "r"), id="custom"),
        pytest.param(Owner("Loop", "a"), Owner("Loop", "b"), id="circle"),
    ],
)
def test_the_owner_is_the_top_controller(owner: Owner | None, top: Owner) -> None:
    owners = {
        ("vision", "ReplicaSet", "web-abc"): Owner("Deployment", "web"),
        ("vision", "Job", "nightly-1"): Owner("CronJob", "nightly"),
        ("vision", "Job", "alone"): Owner("", ""),
        ("vision", "Loop", "a"): Owner("Loop", "b"),
        ("vision", "Loop", "b"): Owner("Loop", "a"),
        ("speech", "ReplicaSet", "gone"): Owner("Deployment", "other-namespace"),
    }
    assert record(pod(owner=owner), owners=owners).owner == top


@pytest.mark.parametrize(
    ("more", "created", "bound"),
    [
        pytest.param({"created": None}, S - 400.0, S - 400.0, id="created-unknown"),
        pytest.param({"bound": None}, S - 500.0, S - 390.0, id="scheduled-unknown"),
        pytest.param({"bound": None, "started": None}, S - 500.0, S - 500.0, id="node-only"),
        pytest.param({"created": None, "bound": None, "started": None}, S, S, id="nothing"),
    ],
)
def test_missing_times_are_replaced_by_the_next_best(
    more: dict[str, object], created: float, bound: float
) -> None:
    found = record(pod(**more))
    assert (found.created, found.bound) == (created, bound)


@pytest.mark.parametrize(
    ("times", "complete"),
    [
        pytest.param([30 * n for n in range(60)], True, id="throughout"),
        pytest.param([30 * n for n in range(60) if n not in {20, 21}], True, id="90-s-hole"),
        pytest.param([30 * n for n in range(60) if not 20 <= n <= 22], False, id="120-s-hole"),
        pytest.param([30 * n for n in range(4, 60)], False, id="late"),
        pytest.param([30 * n for n in range(56)], False, id="early"),
        pytest.param([60 * n for n in range(30) if n != 7], True, id="slow-and-one-failed"),
        pytest.param([60 * n for n in range(30) if n not in {7, 8}], False, id="slow-and-two"),
        pytest.param([300 * n for n in range(6)], True, id="very-slow"),
        pytest.param([900], False, id="once"),
        pytest.param([], True, id="times-unknown"),
    ],
)
def test_a_slot_is_complete_without_holes(times: list[int], complete: bool) -> None:
    full = float(len(times) or 60)
    seen = SeriesCoverage([S], {S: full}, scrapes={S: [S + float(t) for t in times]})
    assert seen.complete(S) is complete
    assert seen.covers(S)
    assert not SeriesCoverage([S], {}, scrapes={}).complete(S)


@pytest.mark.parametrize("missing", [2, 4, 40])
def test_an_hour_read_before_its_last_samples_claims_no_more_than_they_show(missing: int) -> None:
    """A pod is there for two more minutes than what an hour shows that is read too early."""
    there = 60 - missing
    full = {S: 60.0, S + 1800: float(there)}
    scrapes = {S: [S + 30.0 * n for n in range(60)]}
    scrapes[S + 1800] = [S + 1800 + 30.0 * n for n in range(there)]
    early = record(
        pod(samples=full, after=False), SeriesCoverage(SLOTS, full, after=False, scrapes=scrapes)
    )
    assert early.last_seen == LastSeen(S + 1800 + 30.0 * (there - 1), gone=True)
    ended = record(pod(samples={S: 60.0, S + 1800: float(there)}, after=False))
    assert merged_inferred(early, ended).deleted == ended.deleted == S + 1785 + 30.0 * there


def test_presence_is_the_largest_count() -> None:
    assert presence([(1, 5.0), (2, 7.0)], [(1, 6.0)]) == {1: 6.0, 2: 7.0}


# ---------------------------------------------------------------- properties


@given(
    life=st.floats(30, 3500),
    born=st.floats(0, 1799),
    phase=st.floats(0, 29.999),
)
def test_the_estimated_end_lies_within_an_interval_of_the_true_one(
    life: float, born: float, phase: float
) -> None:
    created, end = S + born, min(S + born + life, END - 0.001)
    times = {s: [s + phase + 30 * n for n in range(60)] for s in SLOTS}
    samples = {s: float(sum(created <= t < end for t in times[s])) for s in SLOTS}
    seen = {s: n for s, n in samples.items() if n}
    if not seen:
        return
    series = pod(created=created, bound=created, samples=seen, after=False, starts={}, running={})
    deleted = record(series, coverage(phase=phase)).deleted
    assert deleted is not None
    last = max(seen)
    # A pod that ended before the first scrape of a slot ends with the slot before.
    if end <= last + 1800:
        assert abs(deleted - end) <= 30.0
    else:
        assert deleted == pytest.approx(last + 1800, abs=30.0)


def test_estimates_are_right_on_average() -> None:
    errors = []
    for n in range(600):
        end = S + 1800 + 100 + n * 2.3
        times = [S + 1800 + 17.0 + 30 * k for k in range(60)]
        count = float(sum(t < end for t in times))
        gone = pod(samples={S: 60.0, S + 1800: count}, after=False)
        errors.append((record(gone, coverage(phase=17.0)).deleted or 0.0) - end)
    assert sum(errors) / len(errors) == pytest.approx(0.0, abs=0.5)
