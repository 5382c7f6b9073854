"""The bad node and the bad GPU of `campus-failures` are those that the portal names, and no other.

Through the whole chain: what the simulator serves is looked at, collected and judged.
"""

from datetime import UTC, datetime, timedelta

import pytest

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster
from apps.clusters.services import snapshot_cluster, store_device_states
from apps.goodput.selectors import (
    gpu_reliability_rows,
    hardware_advice,
    reliability_reports,
    reliability_rows,
)
from apps.goodput.services import judge_nodes
from apps.operations.services import load_catalog
from apps.usage.services import collect_window
from simulator.catalog import catalog_yaml
from simulator.scenarios.campus.failures import BAD_HARDWARE
from simulator.scenarios.registry import load
from tests.served_lab import served_lab

# Eight days are collected. `make check` plants into another chain: test_planted_hardware.
pytestmark = [pytest.mark.django_db, pytest.mark.exhaustive]

MIDNIGHT = datetime(2026, 11, 5, tzinfo=UTC)
NOW = MIDNIGHT + timedelta(hours=2)
DAYS = 8
_A_DAY = timedelta(days=1)


def test_the_bad_node_and_gpu_of_the_scenario_are_found_and_no_other() -> None:
    campus = load("campus-failures", now=int(NOW.timestamp()))
    with served_lab(campus, NOW.timestamp()) as url:
        load_catalog(catalog_yaml(campus, url=url), "catalog.yaml", now=NOW, dry_run=False)
        snapshot_cluster("lab", now=NOW)
        for back in range(DAYS, 0, -1):
            start = MIDNIGHT - back * _A_DAY
            collect_window("lab", Window(start, start + _A_DAY), now=NOW)
        store_device_states(Cluster.objects.get(name="lab").pk, NOW)
    assert judge_nodes(now=NOW) == 2
    reports = reliability_reports(visibility=EVERYTHING, clusters=["lab"])
    bad_nodes = [row.node for row in reliability_rows(reports) if row.is_unreliable]
    assert bad_nodes == list(BAD_HARDWARE.nodes)
    bad_gpus = [row for row in gpu_reliability_rows(reports) if row.is_unreliable]
    assert [(row.node, int(row.gpu)) for row in bad_gpus] == list(BAD_HARDWARE.gpus)
    nodes, gpus = hardware_advice("lab")
    assert list(nodes) == bad_nodes
    assert bad_gpus[0].advice in [one.text for one in gpus]
