"""Nodes before the first watch, as collected hours tell them."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.pods.ledger import NodeInterval, PodSource
from apps.clusters.domain.tiers import GpuSharing, TierRule
from apps.clusters.domain.window import HOUR_SECONDS, Window
from apps.clusters.models import NodeInterval as NodeIntervalRow
from apps.clusters.models import ObservedObject, WatchCoverage
from apps.clusters.services import snapshot_cluster
from apps.operations.services import load_catalog
from apps.planning.domain.cluster_replay.inputs import ReplayAssumption as Assumption
from apps.planning.domain.cluster_replay.inputs import ReplayNode
from apps.planning.domain.recorded.nodes import replay_nodes
from apps.planning.domain.recorded.series_nodes import NodeTierHour, SeriesNodes, series_nodes
from apps.planning.models import Backtest, LayoutPlan
from apps.planning.selectors import RecordedDemand, backtest_reports, recorded_demand
from apps.planning.services import advise_layouts, backtest_clusters
from apps.usage.services import collect_window
from simulator.catalog import catalog_yaml
from tests.factories import A100
from tests.served_lab import scenario_of, served_lab
from tests.shared_rows import shared

GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-1g.10gb"
WHOLE = TierRule("whole", GpuSharing.EXCLUSIVE, (GPU,), (), {"nvidia.com/gpu.product": A100})
SMALL = TierRule("small", GpuSharing.MIG, (MIG,))
SHARED = TierRule("shared", GpuSharing.TIME_SLICED, ("nvidia.com/gpu.shared",))
RULES = (WHOLE, SMALL, SHARED)
HOUR = float(HOUR_SECONDS)
FOUND = NodeInterval("n1", 8 * HOUR, 9 * HOUR, {GPU: 8.0}, {GPU: 8.0}, WHOLE.node_selector)


def told(
    *hours: int, tier: str = "whole", capacity: float = 8.0, away: float = 0.0, over: float = 0.0
) -> list[NodeTierHour]:
    return [NodeTierHour("n1", at * HOUR, tier, A100, capacity, away, over) for at in hours]


def nodes_of(hours: list[NodeTierHour], *found: NodeInterval) -> tuple[SeriesNodes, ReplayNode]:
    series = series_nodes(hours, found, (), RULES, (0.0, 8 * HOUR))
    ends = {"start": 0.0, "end": 8 * HOUR, "watched_from": series.start or 0.0}
    (node,) = replay_nodes(series.intervals, RULES, **ends)
    return series, node


def test_a_node_is_as_the_watch_found_it_with_the_capacity_of_each_hour() -> None:
    hours = [*told(0, 1, 2), *told(3, away=8.0), *told(4, away=2.0), *told(5, 6, 7)]
    series, node = nodes_of(hours, FOUND)
    assert (len(node.devices), node.labels) == (8, WHOLE.node_selector)
    assert [span[:] for span in node.closed] == [(3 * HOUR, 4 * HOUR)]
    assert [(one.start, one.units) for one in node.missing] == [(4 * HOUR, 2.0)]
    assert (series.unseen, series.start) == (frozenset(), 0.0)
    assert {one.source for one in series.intervals} == {PodSource.METRICS}


def test_hours_that_were_not_collected_are_as_the_hour_before() -> None:
    _, node = nodes_of(told(0, 1, 5), FOUND)
    assert (node.closed, node.missing) == ((), ())


def test_a_node_is_away_while_other_nodes_are_told() -> None:
    other = [hour._replace(node="n2") for hour in told(*range(8))]
    series = series_nodes([*told(0, 1, 5), *other], [FOUND], (), RULES, (0.0, 8 * HOUR))
    spans = [(one.start / HOUR, one.end / HOUR) for one in series.intervals if one.node == "n1"]
    assert spans == [(0, 2), (5, 6)]
    assert series.unseen == {"n2"}


def test_a_node_that_no_watch_saw_has_the_labels_of_its_tier() -> None:
    series, node = nodes_of(told(0, 1))
    assert (len(node.devices), node.devices[0].tier) == (8, "whole")
    assert node.labels == WHOLE.node_selector
    assert [span.start for span in node.closed] == [2 * HOUR]
    assert series.unseen == {"n1"}


def test_what_mig_leaves_over_is_no_unit() -> None:
    # While all is held, or away, nothing shows as stranded.
    hours = [*told(0, tier="small", capacity=2.0), *told(1, tier="small", capacity=2.0, over=1.0)]
    _, node = nodes_of(hours)
    assert (len(node.devices), node.devices[0].profile) == (7, "1g.10gb")
    assert node.missing == ()


def test_a_tier_that_the_catalog_has_no_more_is_left_out() -> None:
    series = series_nodes(told(0, tier="gone"), (), (), RULES, (0.0, 8 * HOUR))
    assert (series.intervals, series.start) == ((), None)


# ------------------------------------------------------------------ collected from the simulator

NOW = datetime(2026, 11, 21, 6, tzinfo=UTC)
WINDOW = Window(NOW - timedelta(hours=6), NOW - timedelta(hours=2))


@contextmanager
def connected() -> Iterator[None]:
    """Serve `campus` to the portal."""
    scenario = scenario_of("campus", NOW.timestamp())
    with served_lab(scenario, NOW.timestamp()) as url:
        load_catalog(catalog_yaml(scenario, url=url), "catalog.yaml", now=NOW, dry_run=False)
        yield


def collect() -> None:
    """Collect four hours from Prometheus alone."""
    with connected():
        collect_window("lab", WINDOW, now=NOW)


collected = shared(collect)


@pytest.fixture
def lab(collected: None, db: None) -> Iterator[None]:
    with connected():
        yield


def devices_of(found: RecordedDemand) -> dict[str, Counter[tuple[str, float, float, str]]]:
    return {
        node.name: Counter((one.tier, one.units, one.weight, one.profile) for one in node.devices)
        for node in found.cluster.nodes
        # No series tells of devices that only ResourceSlices offer.
        if not any(one.tier.startswith("claim-") for one in node.devices)
    }


def demand() -> RecordedDemand:
    return recorded_demand("lab", WINDOW, visibility=EVERYTHING)


@pytest.mark.long
def test_nodes_of_hours_are_those_that_a_watch_shows(lab: None) -> None:
    never = demand()
    assert Assumption.LABELS_UNKNOWN in never.assumptions
    snapshot_cluster("lab", now=NOW)
    before = demand()
    from_series = {
        Assumption.NODES_FROM_SERIES,
        Assumption.PENDING_FROM_SERIES,
        Assumption.DELAYS_FROM_SERIES,
    }
    # The watch began after the window: the queues that it found are taken for those of before.
    assert {*before.assumptions} == {*from_series, Assumption.LIMITS_AS_WATCHED}
    assert sum(bool(one.queue) for one in before.works) > len(before.works) / 2
    assert not any(one.queue for one in never.works)
    # Now as if it had been watched all the time: nothing is said of series.
    NodeIntervalRow.objects.update(start=WINDOW.start)
    WatchCoverage.objects.update(start=WINDOW.start)
    watched = demand()
    assert watched.assumptions == ()
    assert devices_of(before) == devices_of(watched)
    assert len(devices_of(watched)) > 40
    # It was away throughout: which slices of its GPUs are no unit has not been seen.
    known = {name: own for name, own in devices_of(watched).items() if name != "mig-04"}
    assert {name: devices_of(never)[name] for name in known} == known


@pytest.mark.long
def test_advice_and_backtest_say_what_is_from_series(lab: None) -> None:
    assert (backtest_clusters(now=NOW), advise_layouts(now=NOW)) == (0, 0), "hours of today"
    # Half of yesterday is the least that is replayed.
    collect_window("lab", Window(NOW - timedelta(hours=18), WINDOW.start), now=NOW)
    assert (backtest_clusters(now=NOW), advise_layouts(now=NOW)) == (1, 1)
    report = next(one for one in backtest_reports(visibility=EVERYTHING) if one.rows)
    assert any(text.startswith("From series: nodes") for text in report.assumptions)
    advice = LayoutPlan.objects.exclude(advice=None).get().advice
    assert advice is not None
    assert advice["assumptions"][0] == Assumption.NODES_FROM_SERIES
    assert Backtest.objects.exclude(works=0).get().error == ""
    assert ObservedObject.objects.count() == 0
