"""The doctor through the real clients of Prometheus and Kubernetes, on a simulated cluster."""

from datetime import UTC, datetime, timedelta

import pytest

from apps.clusters.domain.window import Window
from apps.clusters.services.watch.follow import snapshot_cluster
from apps.operations.services import load_catalog, run_doctor
from apps.usage.services import collect_window
from simulator.catalog import catalog_yaml
from tests.served_lab import scenario_of, served_lab

NOW = datetime(2026, 11, 20, 12, 10, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=30)


@pytest.mark.django_db
def test_of_the_reference_scenario_only_the_missing_taint_is_noted() -> None:
    scenario = scenario_of("reference", NOW.timestamp())
    with served_lab(scenario, NOW.timestamp()) as url:
        load_catalog(catalog_yaml(scenario, url=url), "catalog.yaml", now=LONG_AGO)
        snapshot_cluster("lab", now=NOW)
        end = NOW.replace(minute=0)
        collect_window("lab", Window(end - timedelta(hours=2), end), now=NOW)
        found = run_doctor(NOW)
    assert [finding.code for finding in found.findings] == ["nodes-without-taint"]
    (lab,) = found.clusters
    assert (lab.devices, lab.prometheus, lab.kubernetes) == (32, "2.42.0", "v1.36.2")
