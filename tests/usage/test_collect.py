"""Collecting hours end to end: the lab over HTTP, the real adapters, the database."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.db import models

from apps.clusters.domain.pods.ledger import NodeInterval
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, Pod, WatchCoverage
from apps.clusters.services.watch.follow import snapshot_cluster
from apps.operations.services import load_catalog
from apps.usage.domain.collection import CollectionState
from apps.usage.models import (
    CollectionWindow,
    NodeHour,
    PodHour,
    TeamDay,
    TeamHour,
    TierDay,
    TierHour,
)
from apps.usage.services import HourOutcome, UnknownCluster, collect_enqueued, collect_window
from simulator.catalog import catalog_yaml
from simulator.prometheus.openmetrics import sample_rows
from simulator.prometheus.signals import Signals
from simulator.scenarios.base import Scenario
from simulator.scenarios.registry import load
from tests.clusters.fakes.fake_metrics import FakeMetrics
from tests.gate import Gate, gate
from tests.real_prometheus import RealPrometheus
from tests.served_lab import scenario_of, served_lab

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = Window(NOW - timedelta(hours=3), NOW - timedelta(hours=2))
FACTS = (PodHour, NodeHour, TierHour, TeamHour, TeamDay, TierDay)


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return scenario_of("reference", NOW.timestamp())


@pytest.fixture(scope="module")
def lab(scenario: Scenario) -> Iterator[str]:
    with served_lab(scenario, NOW.timestamp()) as served:
        yield served


@pytest.fixture
def door(lab: str) -> Iterator[Gate]:
    with gate(lab, opened=True) as made:
        yield made


def connect(scenario: Scenario, url: str) -> None:
    load_catalog(catalog_yaml(scenario, url=url), "catalog.yaml", now=NOW, dry_run=False)


def collect(window: Window = HOUR) -> list[HourOutcome]:
    return collect_window("lab", window, now=NOW)


def amounts(table: type[models.Model], hours: float = 1.0) -> dict[str, float]:
    rows = table._default_manager.all()
    return {name: sum(getattr(r, name) for r in rows) / 1e9 / hours for name in WORKED_EXAMPLE}


WORKED_EXAMPLE = {
    "capacity": 32.0,
    "unhealthy": 0.0,
    "unallocated": 0.0,
    "allocated": 32.0,
    "not_running": 0.0,
    "unmeasured": 0.0,
    "idle": 3.8,
    "underused": 11.0,
    "busy": 17.2,
}


def contents() -> dict[str, list[tuple[object, ...]]]:
    """Every fact without its id; rows refer to pods and workloads by name, not by id."""
    skipped = {"id", "pod_id", "node_id", "workload_id", "namespace_id", "team_id"}
    found = {}
    for table in FACTS:
        own = [f.attname for f in table._meta.concrete_fields if f.attname not in skipped]
        names = {f.attname for f in table._meta.concrete_fields}
        via = {
            "pod_id": "pod__uid",
            "node_id": "node__name",
            "workload_id": "workload__name",
            "team_id": "team__name",
        }
        related = [path for column, path in via.items() if column in names]
        rows = table._default_manager.values_list(*own, *related)
        found[table.__name__] = sorted(rows, key=repr)
    return found


# ------------------------------------------------------------------ figures


def test_the_worked_example_over_a_full_day(scenario: Scenario, lab: str) -> None:
    connect(scenario, lab)
    start = datetime(2026, 11, 18, 23, tzinfo=UTC)
    outcomes = collect(Window(start, start + timedelta(days=1)))
    assert {outcome.state for outcome in outcomes} == {CollectionState.COMPLETE}
    assert amounts(TierHour, 24) == pytest.approx(WORKED_EXAMPLE, rel=1e-3, abs=1e-6)
    assert amounts(TierDay, 24) == amounts(TierHour, 24)


def test_the_ledger_of_the_api_gives_the_worked_example_graded_measured(
    scenario: Scenario, lab: str
) -> None:
    connect(scenario, lab)
    lab_time = HOUR.start - timedelta(minutes=10)
    snapshot_cluster("lab", now=lab_time)
    WatchCoverage.objects.update(end=HOUR.end)
    (outcome,) = collect()
    assert outcome.state is CollectionState.COMPLETE
    assert CollectionWindow.objects.get().ledger_source == "api"
    assert amounts(TierHour) == pytest.approx(WORKED_EXAMPLE, rel=1e-3, abs=1e-6)
    assert all(row.grade_inferred == 0 for row in PodHour.objects.all())
    assert Pod.objects.filter(bound_at__isnull=True).count() == 4, "four notebooks wait"


def test_without_the_api_the_ledger_is_inferred(scenario: Scenario, lab: str) -> None:
    connect(scenario, lab)
    collect()
    assert CollectionWindow.objects.get().ledger_source == "metrics"
    assert all(row.grade_inferred == row.allocated for row in PodHour.objects.all())
    assert Pod.objects.filter(source="metrics").count() == 24, "20 run, 4 wait"


def test_half_an_hour_that_was_not_watched_is_read_from_series(
    scenario: Scenario, lab: str
) -> None:
    connect(scenario, lab)
    snapshot_cluster("lab", now=HOUR.start)
    WatchCoverage.objects.update(end=HOUR.start + timedelta(minutes=30))
    (outcome,) = collect()
    assert outcome.state is CollectionState.COMPLETE
    assert CollectionWindow.objects.get().ledger_source == "mixed"
    assert amounts(TierHour) == pytest.approx(WORKED_EXAMPLE, rel=1e-3, abs=1e-6)


def test_the_order_of_hours_does_not_matter_for_a_pod_lost_while_nobody_watched(
    scenario: Scenario, lab: str
) -> None:
    """`watch` saw a pod and went away; the series show that it lived on."""
    connect(scenario, lab)
    snapshot_cluster("lab", now=HOUR.start)
    last_seen = HOUR.start + timedelta(minutes=10)
    WatchCoverage.objects.update(end=last_seen)
    Pod.objects.filter(bound_at__isnull=False).update(
        lost=True, deleted_at=last_seen, ended_at=last_seen
    )
    window = Window(HOUR.start, HOUR.start + timedelta(hours=2))
    first, second = window.hours()
    collect(first)
    early = contents()
    collect(second)
    collect(first)
    assert amounts(TierHour, 2) == pytest.approx(WORKED_EXAMPLE, rel=1e-3, abs=1e-6)
    TierHour.objects.filter(hour=second.start).delete()
    again = contents()["TierHour"]
    assert again == early["TierHour"]


# ------------------------------------------------------------------ the same facts


def test_collecting_again_and_hour_by_hour_gives_the_same_facts(
    scenario: Scenario, lab: str
) -> None:
    connect(scenario, lab)
    window = Window(HOUR.start, HOUR.start + timedelta(hours=3))
    collect(window)
    expected = contents()
    collect(window)
    assert contents() == expected
    for table in FACTS:
        table._default_manager.all().delete()
    for hour in reversed(list(window.hours())):
        collect(hour)
    assert contents() == expected


@pytest.mark.prometheus
@pytest.mark.parametrize(
    "name", ["reference", pytest.param("helios", marks=pytest.mark.exhaustive)]
)
def test_a_real_prometheus_gives_the_facts_that_the_lab_gives(name: str, tmp_path: Path) -> None:
    scenario = load(name, now=int(NOW.timestamp()))
    start = datetime(2026, 11, 20, 9, tzinfo=UTC)
    window = Window(start, start + timedelta(hours=2))
    with served_lab(scenario, NOW.timestamp()) as served:
        connect(scenario, served)
        collect(window)
    expected = contents()
    assert expected["PodHour"]
    for table in (*FACTS, Pod, CollectionWindow):
        table._default_manager.all().delete()
    exported = tmp_path / "lab.om"
    before, after = start - timedelta(minutes=10), window.end + timedelta(minutes=5)
    with exported.open("w") as file:
        file.writelines(
            sample_rows(
                Signals(scenario),
                int(before.timestamp()) * 1000,
                int(after.timestamp()) * 1000,
            )
        )
    with RealPrometheus.loaded(exported) as server:
        Cluster.objects.update(prometheus=Cluster.objects.get().prometheus | {"url": server.url})
        outcomes = collect(window)
    assert {outcome.state for outcome in outcomes} == {CollectionState.COMPLETE}
    assert contents() == expected


# ------------------------------------------------------------------ bad input


def failed_with(words: str) -> None:
    row = CollectionWindow.objects.get()
    assert row.state == "failed"
    assert re.search(words, row.error), row.error
    assert row.lease_until is None
    assert not any(table._default_manager.exists() for table in FACTS), "nothing written half"


@pytest.mark.parametrize(
    ("value", "shown"), [("NaN", "NaN"), ("+Inf", "inf"), ("1e+300", "1e+300"), ("-1", "-1")]
)
def test_counts_that_cannot_be_say_what_came_and_are_asked_for_again(
    scenario: Scenario, door: Gate, value: str, shown: str
) -> None:
    connect(scenario, door.url)
    door.spoil = lambda _, answer: (
        *answer[:2],
        re.sub(rb'(\[[\d.]+,)"[^"]*"', rb'\1"%s"' % value.encode(), answer[2]),
    )
    (outcome,) = collect()
    assert outcome.state is CollectionState.FAILED
    there = r"([1-9]\d*) of \1 values of .*count_over_time\(\w+.*proxy"
    failed_with(f"answers {re.escape(shown)} for {there}")
    assert "report" not in CollectionWindow.objects.get().error
    door.spoil = lambda _, answer: answer
    (outcome,) = collect()
    assert outcome.state is CollectionState.COMPLETE


@pytest.mark.parametrize(
    ("status", "kind", "body", "words"),
    [
        pytest.param(500, "text/plain", b"boom", "500", id="500"),
        pytest.param(429, "text/plain", b"slow down", "429", id="429"),
        pytest.param(401, "text/plain", b"who are you", "401", id="401"),
        pytest.param(200, "text/html", b"<html>Sign in</html>", "(?i)json|html", id="HTML"),
        pytest.param(200, "application/json", b'{"status":"succ', "(?i)cut|json", id="truncated"),
        pytest.param(200, "application/json", b'{"a": 1}', "(?i)prometheus", id="another API"),
    ],
)
def test_an_answer_that_is_none_fails_the_hour_and_the_next_run_heals_it(
    scenario: Scenario, door: Gate, status: int, kind: str, body: bytes, words: str
) -> None:
    connect(scenario, door.url)
    door.spoil = lambda _, __: (status, kind, body)
    (outcome,) = collect()
    assert outcome.state is CollectionState.FAILED
    failed_with(words)
    door.spoil = lambda _, answer: answer
    (outcome,) = collect()
    assert outcome.state is CollectionState.COMPLETE
    assert CollectionWindow.objects.get().error == ""
    assert amounts(TierHour) == pytest.approx(WORKED_EXAMPLE, rel=1e-3, abs=1e-6)


def test_a_server_that_is_down_fails_the_hour(scenario: Scenario, lab: str) -> None:
    with gate(lab, opened=True) as made:
        url = made.url
    connect(scenario, url)
    collect()
    failed_with("(?i)connect")


def test_empty_answers_fail_the_hour_and_never_read_as_zero(scenario: Scenario, door: Gate) -> None:
    connect(scenario, door.url)
    empty = b'{"status":"success","data":{"resultType":"vector","result":[]}}'
    door.spoil = lambda _, __: (200, "application/json", empty)
    collect()
    failed_with("retention")


def test_without_device_samples_the_hour_is_partial_and_without_metrics(
    scenario: Scenario, door: Gate
) -> None:
    connect(scenario, door.url)
    empty = b'{"status":"success","data":{"resultType":"vector","result":[]}}'

    def no_devices(form: bytes, answer: tuple[int, str, bytes]) -> tuple[int, str, bytes]:
        return (200, "application/json", empty) if b"DCGM_FI" in form else answer

    door.spoil = no_devices
    (outcome,) = collect()
    assert outcome.state is CollectionState.PARTIAL
    assert outcome.coverage_ratio == 0.0
    assert "dcgm-exporter" in outcome.error
    found = amounts(TierHour)
    assert (found["unmeasured"], found["idle"], found["busy"]) == (32.0, 0.0, 0.0)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "1.8446744073709552e+19"])
def test_absurd_sums_are_cut_from_raw_samples_or_left_without_metrics(
    scenario: Scenario, door: Gate, value: str
) -> None:
    connect(scenario, door.url)

    def spoilt(form: bytes, answer: tuple[int, str, bytes]) -> tuple[int, str, bytes]:
        if b"sum_over_time" not in form or b"GR_ENGINE" not in form:
            return answer
        status, kind, body = answer
        changed = re.sub(
            rb'(\[[0-9.]+,")[0-9.e+-]+("\])', rb"\g<1>" + value.encode() + rb"\2", body
        )
        return status, kind, changed

    door.spoil = spoilt
    (outcome,) = collect()
    assert outcome.state is CollectionState.COMPLETE
    assert amounts(TierHour) == pytest.approx(WORKED_EXAMPLE, rel=1e-3, abs=1e-6)
    assert CollectionWindow.objects.get().warnings, "data health says that samples were absurd"


def test_data_that_nobody_thought_of_fails_the_hour_with_a_word(
    scenario: Scenario, lab: str
) -> None:
    connect(scenario, lab)
    node = NodeInterval("n1", 0.0, 4e9, {"nvidia.com/gpu": float("inf")}, {}, {})
    strange = FakeMetrics(nodes=[node])
    (outcome,) = collect_window("lab", HOUR, now=NOW, source=strange)
    assert outcome.state is CollectionState.FAILED
    failed_with("cannot be read.*report it")


def test_a_failure_leaves_the_facts_of_an_earlier_success(scenario: Scenario, door: Gate) -> None:
    connect(scenario, door.url)
    collect()
    expected = contents()
    door.spoil = lambda _, __: (503, "text/plain", b"away")
    collect()
    row = CollectionWindow.objects.get()
    assert row.state == "complete"
    assert "503" in row.error
    assert contents() == expected


# ------------------------------------------------------------------ who asks for what


def test_an_unknown_cluster_is_named() -> None:
    with pytest.raises(UnknownCluster, match="'nowhere'"):
        collect_window("nowhere", HOUR, now=NOW)


@pytest.mark.parametrize("minutes", [10, 30])
def test_hours_off_the_report_zones_grid_are_refused(
    scenario: Scenario, lab: str, minutes: int
) -> None:
    connect(scenario, lab)
    late = timedelta(minutes=minutes)
    with pytest.raises(ValueError, match=r"09:00:00\+00:00"):
        collect(Window(HOUR.start + late, HOUR.end + late))
    assert not CollectionWindow.objects.exists()


def test_a_late_message_for_a_complete_hour_does_nothing(scenario: Scenario, lab: str) -> None:
    connect(scenario, lab)
    pk = Cluster.objects.get().pk
    assert collect_enqueued(pk, HOUR.start, now=NOW) == 1
    assert collect_enqueued(pk, HOUR.start, now=NOW) == 0
    assert CollectionWindow.objects.get().attempts == 1
    assert collect_enqueued(pk + 1000, HOUR.start, now=NOW) == 0


def test_a_message_sent_before_the_last_try_does_nothing(scenario: Scenario, door: Gate) -> None:
    connect(scenario, door.url)
    door.spoil = lambda _, __: (500, "text/plain", b"away")
    collect()
    pk = Cluster.objects.get().pk
    before = NOW - timedelta(minutes=1)
    assert collect_enqueued(pk, HOUR.start, now=NOW, enqueued=before) == 0
    assert CollectionWindow.objects.get().attempts == 1
