"""Series that are away must not read as a cluster that is empty; and zero, where true, is zero."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from pytest_django import Settings

from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window
from apps.operations.services import load_catalog
from apps.usage.domain.collection import CollectionState
from apps.usage.domain.usage_query import Filters
from apps.usage.models import CollectionWindow, PodHour, TeamDay, TierDay, TierHour
from apps.usage.selectors import collected_hours, freshness
from apps.usage.services import HourOutcome, collect_window, schedule_collections
from simulator.catalog import catalog_yaml
from simulator.scenarios.base import Scenario
from tests.served_lab import scenario_of, served_lab
from tests.simulator.truths import NOW as TRACE_NOW
from tests.simulator.truths import origin_of
from tests.usage.faults import (
    Fault,
    absurd,
    away,
    faulty,
    half_away,
    late,
    stripped,
    unnamed,
    warned,
)

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = Window(NOW - timedelta(hours=3), NOW - timedelta(hours=2))
BEFORE = Window(HOUR.start - timedelta(hours=1), HOUR.start)
EVERYBODY = Visibility(everything=True)
KSM = "kube_.*"
EMPTY_HOUR = 216  # of the trace: from here on nothing ran for a day
REQUESTS = "kube_pod_container_resource_requests"
CAPACITY = "kube_node_status_capacity"


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return scenario_of("reference", NOW.timestamp())


@pytest.fixture(scope="module")
def lab(scenario: Scenario) -> Iterator[str]:
    with served_lab(scenario, NOW.timestamp()) as url:
        yield url


def collect(
    scenario: Scenario,
    url: str,
    window: Window = HOUR,
    fault: Fault | None = None,
    *,
    now: datetime = NOW,
) -> HourOutcome:
    """Collect a window of what is served, with a fault in it; return how the last hour ended."""
    if fault is not None:
        with faulty(url, fault) as bad:
            return collect(scenario, bad, window, now=now)
    load_catalog(catalog_yaml(scenario, url=url), "catalog.yaml", now=now, dry_run=False)
    return collect_window("lab", window, now=now)[-1]


FAULTS = [
    pytest.param(away("kube_pod.*"), REQUESTS, id="all pods"),
    pytest.param(away(REQUESTS), REQUESTS, id="requests alone"),
    pytest.param(away("kube_node.*"), CAPACITY, id="all nodes"),
    pytest.param(away(CAPACITY), CAPACITY, id="capacity alone"),
    pytest.param(away(f"{CAPACITY}|{REQUESTS}"), CAPACITY, id="capacity and requests"),
    pytest.param(half_away(), REQUESTS, id="half of all series"),
    pytest.param(half_away(KSM), REQUESTS, id="one shard of kube-state-metrics"),
    pytest.param(half_away(KSM, "node"), REQUESTS, id="half of the nodes"),
    pytest.param(
        half_away("kube_pod_container_state_started"),
        "kube_pod_container_state_started",
        id="half of the starts",
    ),
    pytest.param(stripped, "kube_node_created", id="no labels"),
    pytest.param(absurd, CAPACITY, id="every value 1e300"),
]


@pytest.mark.parametrize(("fault", "series"), FAULTS)
def test_an_hour_whose_sources_contradict_each_other_has_no_figures(
    scenario: Scenario, lab: str, fault: Fault, series: str
) -> None:
    outcome = collect(scenario, lab, fault=fault)
    assert outcome.state is CollectionState.PARTIAL
    assert series in outcome.error
    assert not TierHour.objects.exists(), "nothing is shown as zero"
    row = CollectionWindow.objects.get()
    assert (row.withheld, row.collected_at, row.coverage_ratio) == (True, None, None)


@pytest.mark.long
def test_without_labels_replicas_are_not_taken_for_gpus() -> None:
    """Half as much again as there is, had they been."""
    campus = scenario_of("campus", NOW.timestamp())
    with served_lab(campus, NOW.timestamp()) as url:
        outcome = collect(campus, url, fault=away("kube_node_labels"))
        assert "kube_node_labels: nodes without labels offer" in outcome.error
        assert not TierHour.objects.exists()
        assert (
            collect(campus, url, Window(BEFORE.start, HOUR.end)).state is CollectionState.COMPLETE
        )
    assert set(CollectionWindow.objects.values_list("state", flat=True)) == {"complete"}


@pytest.mark.parametrize(("fault", "series"), FAULTS[:2])
def test_what_is_withheld_is_in_no_average(
    scenario: Scenario, lab: str, fault: Fault, series: str
) -> None:
    del series
    collect(scenario, lab, BEFORE)
    collect(scenario, lab, fault=fault)
    window = Window(BEFORE.start, HOUR.end)
    assert collected_hours(window, filters=Filters(), visibility=EVERYBODY) == ({"lab": 1}, {})
    found = freshness(window, filters=Filters(), visibility=EVERYBODY)
    assert (found.failed, found.partial) == ((HOUR.start,), ())
    assert found.last_hour_end == BEFORE.end


@pytest.mark.parametrize(
    "metric", ["kube_node_labels", "kube_node_status_allocatable", "kube_pod_status_scheduled_time"]
)
def test_a_metric_that_the_hour_before_had_is_missed(
    scenario: Scenario, lab: str, metric: str
) -> None:
    collect(scenario, lab, BEFORE)
    outcome = collect(scenario, lab, fault=away(metric))
    assert outcome.state is CollectionState.PARTIAL
    assert f"{metric}: 0% of the objects have it, 100% in the last complete hour" in outcome.error
    assert set(TierHour.objects.values_list("hour", flat=True)) == {BEFORE.start}


def test_active_devices_miss_the_pods_that_were_there_where_no_exporter_names_them(
    scenario: Scenario, lab: str
) -> None:
    collect(scenario, lab, BEFORE)
    outcome = collect(scenario, lab, fault=unnamed(half_away("kube_pod.*", "pod")))
    assert outcome.state is CollectionState.PARTIAL
    assert "active devices are more than its pods hold" in outcome.error
    assert set(TierHour.objects.values_list("hour", flat=True)) == {BEFORE.start}


def test_a_cluster_that_never_had_node_labels_is_complete(scenario: Scenario, lab: str) -> None:
    window = Window(BEFORE.start, HOUR.end)
    assert (
        collect(scenario, lab, window, away("kube_node_labels")).state is CollectionState.COMPLETE
    )


def test_an_hour_taken_for_true_is_looked_at_again_once_a_better_one_is_known(
    scenario: Scenario, lab: str
) -> None:
    """A backfill runs newest first: what the first hours lack shows only later."""
    fault = away("kube_node_labels")
    assert collect(scenario, lab, fault=fault).state is CollectionState.COMPLETE
    collect(scenario, lab, BEFORE)
    assert CollectionWindow.objects.get(hour=HOUR.start).again_at == NOW
    later = NOW + timedelta(minutes=1)
    assert collect(scenario, lab, fault=fault, now=later).state is CollectionState.PARTIAL
    hours = TierHour.objects.values_list("hour", flat=True)
    assert set(hours) == {BEFORE.start}, "facts from the same answers go too"
    for day in (TeamDay, TierDay):
        assert sum(day._default_manager.values_list("allocated", flat=True)) == 32 * 10**9
    assert CollectionWindow.objects.get(hour=HOUR.start).collected_at == later
    assert collect(scenario, lab, now=later).state is CollectionState.COMPLETE
    assert not CollectionWindow.objects.filter(withheld=True).exists()


def test_facts_of_before_the_outage_stay(scenario: Scenario, lab: str) -> None:
    collect(scenario, lab)
    facts = list(PodHour.objects.order_by("pk").values())
    outcome = collect(scenario, lab, fault=away("kube_pod.*"))
    assert outcome.state is CollectionState.PARTIAL
    assert list(PodHour.objects.order_by("pk").values()) == facts
    row = CollectionWindow.objects.get()
    assert (row.state, row.withheld) == ("complete", False)
    assert REQUESTS in row.error


def test_the_server_s_own_warning_makes_an_hour_partial(scenario: Scenario, lab: str) -> None:
    said = "receive series from store-2: connection refused"
    outcome = collect(scenario, lab, fault=warned(said))
    assert outcome.state is CollectionState.PARTIAL
    assert outcome.error == f"the metrics server warns: {said}"
    assert TierHour.objects.exists(), "nothing lacks: it may be another cluster's store"


def test_a_warning_where_much_less_is_there_than_before_is_believed(
    scenario: Scenario, lab: str
) -> None:
    """Nodes, their pods and their devices are away together: they agree, the server does not."""
    collect(scenario, lab, BEFORE)
    of_nodes, of_devices = half_away(KSM, "node"), half_away("DCGM.*", "Hostname")
    both = warned("partial response", lambda query, body: of_devices(query, of_nodes(query, body)))
    outcome = collect(scenario, lab, fault=both)
    assert "partial response" in outcome.error
    assert set(TierHour.objects.values_list("hour", flat=True)) == {BEFORE.start}


def test_a_remark_on_the_query_is_no_warning(scenario: Scenario, lab: str) -> None:
    remark = 'PromQL info: metric might not be a counter: "x"'
    assert collect(scenario, lab, fault=warned(remark)).state is CollectionState.COMPLETE


@pytest.mark.long
def test_zero_is_true_where_pods_quotas_and_devices_agree() -> None:
    """On 10 May of the trace nothing ran for hours, of 856 GPUs, and all had been held before."""
    helios = scenario_of("helios", TRACE_NOW)
    start = datetime.fromtimestamp(origin_of(helios), UTC) + timedelta(hours=EMPTY_HOUR - 1)
    end = start + timedelta(hours=2)
    with served_lab(helios, TRACE_NOW) as url:
        assert collect(helios, url, Window(start, end), now=end).state is CollectionState.COMPLETE
    assert set(CollectionWindow.objects.values_list("state", flat=True)) == {"complete"}
    held = dict(TierHour.objects.values_list("hour", "allocated"))
    assert held[end - timedelta(hours=1)] == 0


# ---------------------------------------------------------------- another try


def messages(now: datetime) -> list[datetime]:
    """Return the hours that beat enqueues; whoever works on the others is done at once."""
    CollectionWindow.objects.update(lease_until=None)
    CollectionWindow.objects.exclude(hour=HOUR.start).update(state="complete")
    due = schedule_collections(now=now)
    leased = CollectionWindow.objects.filter(lease_until__isnull=False).order_by("hour")
    found = list(leased.values_list("hour", flat=True))
    assert len(found) == due
    return found


def test_a_contradiction_is_tried_again_at_first_often_then_daily_while_prometheus_keeps_it(
    scenario: Scenario, lab: str, settings: Settings
) -> None:
    settings.METRICS_RETENTION_DAYS = 3
    settings.GAP_FILL_DAYS = 1
    later = NOW + timedelta(hours=12)
    with faulty(lab, away("kube_pod.*")) as url:
        load_catalog(catalog_yaml(scenario, url=url), "catalog.yaml", now=NOW, dry_run=False)
        now, tries = NOW, []
        while now < NOW + timedelta(days=5):
            if HOUR.start in messages(now) or now == NOW:
                tries.append(now)
                collect_window("lab", HOUR, now=now)
            now += timedelta(minutes=30) if now < later else timedelta(hours=2)
    usual = [at for at in tries if at < later]
    assert len(usual) in range(2, 8)
    assert [at.day for at in tries[len(usual) :]] == [22, 23], "the hour is of the 21st"


def test_a_complete_hour_that_lacks_a_few_samples_is_looked_at_once_more_when_they_are_in(
    scenario: Scenario, lab: str, settings: Settings
) -> None:
    settings.LATE_SAMPLES_SECONDS = 1800
    early, whole = HOUR.end + timedelta(minutes=5), HOUR.end + timedelta(minutes=30)
    first = collect(scenario, lab, fault=late, now=early)
    assert first.state is CollectionState.COMPLETE
    assert 0.95 <= (first.coverage_ratio or 0.0) < 0.98
    assert HOUR.start not in messages(whole - timedelta(minutes=1))
    assert HOUR.start in messages(whole)
    CollectionWindow.objects.update(lease_until=None)
    assert collect(scenario, lab, now=whole).coverage_ratio == 1.0
    assert HOUR.start not in messages(whole + timedelta(hours=2))
