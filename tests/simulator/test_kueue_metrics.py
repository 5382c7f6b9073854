"""Kueue's series of the lab: as a real Prometheus has them, and as the portal reads them."""

from collections.abc import Iterator

import pytest

from apps.accounts.domain.structs import replace
from apps.clusters.adapters.prometheus.client import PrometheusApi
from apps.clusters.adapters.prometheus.http_api import PrometheusConfig
from apps.clusters.adapters.prometheus.source import PrometheusSource
from apps.clusters.domain.window import Window, from_seconds
from apps.clusters.ports import QueueSlot
from simulator.fleet import Admission, Pod
from simulator.prometheus.exporters.kueue import METRICS
from simulator.prometheus.openmetrics import sample_rows
from simulator.prometheus.signals import Signals
from simulator.scenarios.base import Queue
from tests.real_prometheus import RealPrometheus
from tests.served_lab import served_lab
from tests.simulator.client import Client, serving
from tests.simulator.small import ORIGIN, Small, pod
from tests.simulator.test_against_prometheus import Pair

SLOTS = 4
END = ORIGIN + SLOTS * 1800
GPU = "nvidia.com/gpu"


def scenario() -> Small:
    """Return a queue of two GPUs: one pod waits 20 minutes for its quota, one gets it at once."""
    first = pod("first", created=60, bound=120, finished=1260)
    waits = pod("waits", created=60, bound=1300, devices=(0, 1))
    made = Small([_queued(first, 60), _queued(waits, 1260)])
    made.queues = [Queue("cq", "main", "vision", "a100", GPU, 2, ORIGIN)]
    return made


def _queued(one: Pod, reserved: int) -> Pod:
    """Return a pod that a queue lets go when it has reserved quota for it."""
    at = ORIGIN + reserved
    gate = "kueue.x-k8s.io/admission"
    return replace(one, admission=Admission(gate, at, "cq", "main", one.created, at, one.uid))


def test_the_portal_reads_what_is_reserved_and_what_is_pending() -> None:
    with served_lab(scenario(), END) as url:
        source = PrometheusSource(PrometheusApi(PrometheusConfig.from_catalog({"url": url})))
        shown = source.queues(Window(from_seconds(ORIGIN), from_seconds(ORIGIN + 3600))).rows
        source.close()
    pending, held = shown[0], shown[1]
    assert (pending.flavor, pending.nominal, pending.reserved) == ("", None, None)
    # Two GPUs for 1,200 of the 1,800 seconds; one, then two are reserved.
    assert pending.pending == pytest.approx(2 * 1200 / 1800, rel=0.05)
    assert held == QueueSlot(ORIGIN, "cq", "a100", GPU, 2.0, held.reserved, None)
    assert held.reserved == pytest.approx((1 * 1200 + 2 * 540) / 1800, rel=0.05)
    later = [(row.flavor, row.reserved, row.pending) for row in shown[2:]]
    assert later == [("", None, 0.0), ("a100", 2.0, None)]


def test_a_cluster_without_queues_shows_none_of_kueue() -> None:
    assert not METRICS.keys() & Signals(Small([pod("one")])).metrics.keys()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    path = tmp_path_factory.mktemp("kueue") / "kueue.om"
    with path.open("w", encoding="utf-8") as file:
        file.writelines(sample_rows(Signals(scenario()), ORIGIN * 1000, END * 1000))
    with RealPrometheus.loaded(path) as real, serving(scenario(), END) as lab:
        yield Pair(lab, Client(real.url))


@pytest.mark.prometheus
@pytest.mark.parametrize("metric", sorted(METRICS))
def test_slots_are_as_prometheus_has_them(exported: Pair, metric: str) -> None:
    query = f"max by (cluster_queue, flavor, resource, status) (avg_over_time({metric}[30m]))"
    for slot in range(1, SLOTS + 1):
        lab, real = exported.both(
            "/api/v1/query", query=query, time=f"{ORIGIN + 1800 * slot - 1}.999"
        )
        assert lab
        assert lab == pytest.approx(real, rel=1e-12)
