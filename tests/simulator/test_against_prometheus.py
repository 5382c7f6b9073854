"""The lab's answers against those of a real Prometheus that holds the same samples."""

from collections.abc import Iterator
from typing import Any

import pytest

from simulator.epochs import Epoch
from simulator.prometheus.openmetrics import sample_rows
from simulator.prometheus.signals import Signals
from simulator.scenarios.base import Scenario
from tests.real_prometheus import RealPrometheus
from tests.simulator.client import Client, Served, serving
from tests.simulator.conftest import NOW
from tests.simulator.small import ORIGIN, Small, pod

pytestmark = [pytest.mark.prometheus, pytest.mark.long]

HOURS = 3
START = NOW // 3600 * 3600 - 10 * 3600
END = START + HOURS * 3600

LABELS = "UUID, modelName, Hostname, exported_namespace, exported_pod, exported_container"
GPU = 'resource=~"nvidia_com_gpu.*|amd_com_gpu.*"'
QUERIES = (
    f'sum by ({LABELS}) (sum_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE{{cluster="lab"}}[30m]))',
    f'sum by ({LABELS}) (count_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE{{cluster="lab"}}[30m]))',
    f"max by ({LABELS}) (max_over_time(DCGM_FI_DEV_FB_USED[30m]))",
    "max by (UUID) (increase(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[30m]))",
    "increase(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[7m])",
    'avg by (exported_namespace) (avg_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu=~"0|1"}[30m]))',
    'min by (gpu) (min_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE{exported_pod!=""}[17m]))',
    "count(present_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE[30m]))",
    "group by (exported_namespace) (DCGM_FI_PROF_GR_ENGINE_ACTIVE)",
    'DCGM_FI_PROF_GR_ENGINE_ACTIVE{exported_pod=~".+"}',
    'last_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu!~"[1-7]"}[30m])',
    'count by (__name__) ({__name__=~"kube_.*"})',
    f"max by (namespace, pod, uid, container, node, resource) "
    f"(max_over_time(kube_pod_container_resource_requests{{{GPU}}}[30m]))",
    f"max by (namespace, pod, uid, node) "
    f"(count_over_time(kube_pod_container_resource_requests{{{GPU}}}[30m]))",
    "max by (namespace, pod, uid) (max_over_time(kube_pod_created[30m]))",
    "max by (namespace, pod, uid) (max_over_time(kube_pod_completion_time[30m]))",
    "max by (namespace, pod, uid) (max_over_time(kube_pod_status_scheduled_time[30m]))",
    'max by (uid, phase) (max_over_time(kube_pod_status_phase{phase=~"Running|Succeeded"}[30m]))',
    f"min by (node, resource) (min_over_time(kube_node_status_allocatable{{{GPU}}}[30m]))",
    "avg_over_time(kube_resourcequota[30m])",
    "kube_node_labels",
    "max by (UUID, exported_pod) (timestamp(DCGM_FI_DEV_FB_USED))",
)


class Pair:
    """The lab and a Prometheus that was filled from its export."""

    def __init__(self, lab: Served, prometheus: Client) -> None:
        self.lab = lab
        self.prometheus = prometheus

    def both(self, path: str, **parameters: object) -> tuple[Any, Any]:
        """Return the answers of the lab and of Prometheus to one question."""
        return (
            _comparable(self.lab.get(path, **parameters)),
            _comparable(self.prometheus.get(path, **parameters)),
        )


@pytest.fixture(scope="module")
def exported(helios: Scenario, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Serve three hours of a part of helios that is small enough to load."""
    part = _Part(helios, teams=("vchbv", "vccaa"))
    path = tmp_path_factory.mktemp("export") / "helios.om"
    with path.open("w", encoding="utf-8") as file:
        file.writelines(sample_rows(Signals(part), START * 1000, END * 1000))
    with RealPrometheus.loaded(path) as real, serving(part, END) as lab:
        yield Pair(lab, Client(real.url))


class _Part(Scenario):
    """A scenario's nodes and pods of a few namespaces."""

    def __init__(self, whole: Scenario, *, teams: tuple[str, ...]) -> None:
        epoch = whole.epoch_at(START)
        assert epoch is not None
        self.seed, self.begins = whole.seed, whole.begins
        self.nodes = [node for node in whole.nodes if node.labels["node-pool"] in teams]
        self.namespaces = [space for space in whole.namespaces if space.name in teams]
        self.quotas = [quota for quota in whole.quotas if quota.namespace in teams]
        self.controllers = [c for c in whole.controllers if c.namespace in teams]
        self.teams = []
        self._epoch = Epoch(
            epoch.start,
            epoch.end,
            pods=[pod for pod in epoch.pods if pod.namespace in teams],
            hard=epoch.hard,
            controllers=[c for c in epoch.controllers if c.namespace in teams],
        )

    def epochs(self, start: int, end: int) -> Iterator[Epoch]:
        yield self._epoch


def _comparable(answer: Any) -> Any:
    """Return type → labels → (time, value), whatever the order of the answer."""
    assert answer["status"] == "success", answer
    found = {}
    for row in answer["data"]["result"]:
        points = row.get("values") or [row["value"]]
        key = tuple(sorted(row["metric"].items()))
        found.update({(key, at): float(value) for at, value in points})
    return found


@pytest.mark.parametrize("query", QUERIES)
def test_slots_one_by_one_are_as_prometheus_has_them(exported: Pair, query: str) -> None:
    seen = 0
    for slot in range(1, 2 * HOURS + 1):
        time = f"{START + 1800 * slot - 1}.999"
        lab, real = exported.both("/api/v1/query", query=query, time=time)
        seen += len(lab)

        assert lab == pytest.approx(real, rel=1e-12)
    assert seen


@pytest.mark.parametrize("query", QUERIES)
def test_slots_by_range_query_are_as_prometheus_has_them(exported: Pair, query: str) -> None:
    lab, real = exported.both(
        "/api/v1/query_range",
        query=query,
        start=f"{START + 1799}.999",
        end=f"{END - 1}.999",
        step=1800,
    )

    assert lab
    assert lab == pytest.approx(real, rel=1e-12)


@pytest.mark.parametrize("query", QUERIES)
def test_uneven_instants_are_as_prometheus_has_them(exported: Pair, query: str) -> None:
    lab, real = exported.both(
        "/api/v1/query_range", query=query, start=START + 2417.043, end=END - 1, step=421.7
    )

    assert lab
    assert lab == pytest.approx(real, rel=1e-12)


def test_raw_samples_are_as_prometheus_has_them(exported: Pair) -> None:
    gpus = exported.lab.get("/api/v1/label/UUID/values")["data"][:3]
    lab, real = exported.both(
        "/api/v1/query",
        query=f'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{UUID=~"{"|".join(gpus)}"}}[30m]',
        time=f"{START + 3599}.999",
    )

    assert len(lab) == 3 * 60
    assert lab == real


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pair, float]]:
    """Serve one GPU, and the exact time of one of its scrapes."""
    scenario = Small([pod("a", bound=0, finished=3600, activity=0.25)])
    path = tmp_path_factory.mktemp("edge") / "small.om"
    with path.open("w", encoding="utf-8") as file:
        file.writelines(sample_rows(Signals(scenario), ORIGIN * 1000, (ORIGIN + 7200) * 1000))
    scrape = ORIGIN + 1800 + scenario.nodes[0].scrape_phase_ms / 1000
    with RealPrometheus.loaded(path) as real, serving(scenario, ORIGIN + 7200) as lab:
        yield Pair(lab, Client(real.url)), scrape


@pytest.mark.parametrize("shift_ms", [-1, 0, 1])
@pytest.mark.parametrize(
    "query",
    [
        'count_over_time(DCGM_FI_DEV_FB_USED{gpu="0"}[1m])',
        'increase(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0"}[1m])',
        "count(DCGM_FI_DEV_FB_USED)",
    ],
)
def test_the_ends_of_a_range_are_taken_in_as_prometheus_does(
    edge: tuple[Pair, float], query: str, shift_ms: int
) -> None:
    pair, scrape = edge
    lab, real = pair.both("/api/v1/query", query=query, time=f"{scrape + shift_ms / 1000:.3f}")

    assert lab
    assert lab == pytest.approx(real, rel=1e-12)


@pytest.mark.parametrize("after", [299.999, 300.0, 300.001])
def test_an_ended_series_is_seen_as_long_as_prometheus_does(
    edge: tuple[Pair, float], after: float
) -> None:
    pair, scrape = edge
    last = scrape + 1770 + after
    lab, real = pair.both(
        "/api/v1/query", query='DCGM_FI_DEV_FB_USED{exported_pod="a"}', time=f"{last:.3f}"
    )

    assert bool(lab) == (after <= 300.0)
    assert lab == real
