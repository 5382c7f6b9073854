"""Quotas of the campus: what is summed from the ledger is what its own series count."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta

import pytest

from apps.accounts.models import Team
from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window
from apps.clusters.gateways import cluster_source, metrics_source
from apps.clusters.models import Cluster
from apps.clusters.services.watch.follow import snapshot
from apps.operations.services import load_catalog
from apps.quotas.domain.keys import Counting, meaning_of
from apps.quotas.models import QuotaKeyHour
from apps.quotas.selectors import quota_rows
from apps.quotas.services import roll_hours
from apps.usage.services import collect_window
from simulator.catalog import catalog_yaml
from tests.served_lab import scenario_of, served_lab
from tests.shared_rows import shared
from tests.simulator.conftest import NOW

pytestmark = [pytest.mark.django_db, pytest.mark.long]

HOURS = 2


AT = datetime.fromtimestamp(NOW, UTC)
Shown = dict[tuple[str, str, str], list[tuple[float, float]]]


def collect_quotas() -> Shown:
    """Collect HOURS of the campus and see it once; return limit and use that its series show."""
    scenario = scenario_of("campus", NOW)
    end = AT.replace(minute=0, second=0, microsecond=0)
    window = Window(end - timedelta(hours=HOURS), end)
    shown: Shown = defaultdict(list)
    with served_lab(scenario, NOW) as url:
        load_catalog(catalog_yaml(scenario, url=url), "catalog.yaml", now=AT, dry_run=False)
        cluster = Cluster.objects.get(name="lab")
        collect_window(cluster.name, window, now=AT)
        assert roll_hours(now=AT) == HOURS
        for slot in metrics_source(cluster).quotas(window).rows:
            shown[slot.namespace, slot.quota, slot.key].append((slot.hard or 0.0, slot.used or 0.0))
        source = cluster_source(cluster)
        assert source is not None
        snapshot(cluster, source, AT)
        source.close()
    return shown


shown = shared(collect_quotas)


def test_quotas_of_the_campus_are_as_it_counts_them_itself(shown: Shown, db: None) -> None:
    # Queues have series of their own: tests/simulator/test_kueue_metrics.py.
    rows = QuotaKeyHour.objects.filter(key__source="ResourceQuota").order_by("hour", "key")
    columns = ("key__namespace", "key__name", "key__key", "hard", "used")
    summed: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)
    for namespace, name, key, hard, used in rows.values_list(*columns):
        summed[namespace, name, key].append((hard, used or 0.0))
    compared = 0
    for place, hours in summed.items():
        means = [sum(column) / len(shown[place]) for column in zip(*shown[place], strict=True)]
        found = [sum(column) / HOURS for column in zip(*hours, strict=True)]
        assert found[0] == pytest.approx(means[0]), place
        if meaning_of(place[2]).counting is Counting.REQUESTS:
            # Series are sampled twice a minute: a pod that comes between counts half a minute less.
            assert found[1] == pytest.approx(means[1], rel=0.01, abs=0.2), place
            compared += 1
    assert compared > Team.objects.count() > 0


def test_what_the_quotas_count_is_what_the_ledger_has(shown: Shown, db: None) -> None:
    rows = quota_rows(AT, visibility=EVERYTHING, page_size=500).rows
    inert = [row for row in rows if not row.effective]
    assert inert
    assert all(row.finding and row.fix for row in inert)
    of_pods = [
        row
        for row in rows
        if row.source == "ResourceQuota" and row.effective and not row.unit.startswith("devices")
    ]
    of_queues = [row for row in rows if row.source == "ClusterQueue"]
    assert len(of_pods) > Team.objects.count() > 0
    assert of_queues
    for row in of_queues:
        # All that Kueue admitted on the campus runs: by Deployments, Jobs and pods alone.
        assert row.held == pytest.approx(row.used or 0), row
    for row in of_pods:
        assert row.used == pytest.approx((row.held or 0) + (row.pending or 0)), row
        assert row.tiers, row
