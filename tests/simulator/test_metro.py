"""`metro`: the second cluster of `campus`, which only metrics tell of."""

from datetime import UTC, datetime, timedelta

import pytest

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster
from apps.operations.services import load_catalog
from apps.usage import selectors as usage
from apps.usage.domain.amounts import NANO
from apps.usage.domain.usage_query import Grouping, UsageQuery
from apps.usage.services import collect_window
from simulator.catalog import catalog_yaml
from simulator.fleet import FOREVER
from simulator.prometheus.signals import Signals
from simulator.scenarios.base import Scenario
from tests.served_lab import served_lab
from tests.simulator.conftest import NOW
from tests.simulator.scenario_truth import doings, holdings

HOURS = 4
# Around the end of a week, when lasting pods are new.
END = datetime(2026, 11, 20, 2, tzinfo=UTC)
WINDOW = Window(END - timedelta(hours=HOURS), END)


@pytest.fixture
def metro(campus: Scenario) -> Scenario:
    (found,) = campus.others
    return found


def test_its_pods_wait_only_while_no_node_has_room(metro: Scenario) -> None:
    epoch = metro.epoch_at(NOW)
    assert epoch is not None
    bound = [pod for pod in epoch.pods if pod.bound < FOREVER]
    waited = [pod for pod in bound if pod.bound > pod.created]

    assert waited
    for pod in waited:
        for at in (pod.created, (pod.created + pod.bound) // 2, pod.bound - 1):
            used = {node.name: 0 for node in metro.nodes}
            for other in bound:
                if other.bound <= at < other.released:
                    used[other.node] += other.units
            assert min(used.values()) + pod.units > 4, (pod.name, at)


def test_its_metrics_stand_beside_those_of_the_campus(campus: Scenario) -> None:
    signals = Signals(campus)
    span = (NOW * 1000 - 60_000, NOW * 1000)

    found = {s.labels["cluster"] for s in signals.series("kube_node_created", *span)}
    assert found == {"lab", "metro"}
    only = list(signals.series("kube_node_created", *span, of=lambda name: name == "metro"))
    assert {one.labels["node"] for one in only} == {"mi-01", "mi-02", "mi-03", "mi-04"}
    gpus = {one.labels["gpu_uuid"] for one in signals.series("gpu_gfx_activity", *span)}
    assert len(gpus) == 16
    assert "metro" not in {s.labels["cluster"] for s in signals.series("up", *span)}


@pytest.mark.django_db
def test_the_ledger_has_its_gpus_from_metrics_alone(campus: Scenario, metro: Scenario) -> None:
    with served_lab(campus, NOW) as url:
        now = datetime.fromtimestamp(NOW, UTC)
        load_catalog(catalog_yaml(campus, url=url), "catalog.yaml", now=now, dry_run=False)
        assert Cluster.objects.get(name="metro").kubernetes is None
        ended = collect_window("metro", WINDOW, now=now)
    assert {(one.state.value, one.error) for one in ended} == {("complete", "")}
    start, end = int(WINDOW.start.timestamp()), int(WINDOW.end.timestamp())
    (row,) = usage.usage_rows(
        UsageQuery(WINDOW, group_by=(Grouping.TIER, Grouping.GPU_MODEL)), visibility=EVERYTHING
    )

    assert row.groups == {"tier": "whole-mi300x", "gpu_model": "AMD Instinct MI300X"}
    held = sum(one.gpu_hours for one in holdings(metro, start, end))
    busy = sum(d.activity * (d.end - d.start) / 3600 for d in doings(metro, start, end))
    assert row.amounts.capacity == 16 * HOURS * NANO
    assert row.amounts.allocated == pytest.approx(held * NANO, rel=1e-3)
    assert row.amounts.busy == pytest.approx(busy * NANO, rel=0.02)
