"""A cluster, and a real Prometheus with made ones, started once for all tests that ask for it."""

from collections.abc import Iterator
from itertools import chain

import pytest

from apps.clusters.models import Cluster
from tests.clusters.device_series import all_series
from tests.clusters.openmetrics import write
from tests.real_prometheus import RealPrometheus


@pytest.fixture
def cluster(db: None) -> Cluster:
    return Cluster.objects.create(name="west")


@pytest.fixture(scope="session")
def prometheus_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a real Prometheus that holds every made cluster."""
    file = tmp_path_factory.mktemp("openmetrics") / "worlds.prom"
    with RealPrometheus.loaded(write(file, chain(all_series()))) as server:
        yield server.url
