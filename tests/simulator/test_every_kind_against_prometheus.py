"""The lab's answers about shared GPUs against those of a real Prometheus with the same samples."""

from collections.abc import Iterator

import pytest

from simulator.prometheus.openmetrics import sample_rows
from simulator.prometheus.signals import Signals
from tests.real_prometheus import RealPrometheus
from tests.simulator.client import Client, serving
from tests.simulator.sharing import every_kind
from tests.simulator.small import ORIGIN
from tests.simulator.test_against_prometheus import Pair

pytestmark = pytest.mark.prometheus

SLOTS = 5
LABELS = "UUID, GPU_I_ID, namespace, pod, exported_namespace, exported_pod, vgpu"
QUERIES = (
    f"sum by ({LABELS}) (sum_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE[30m]))",
    f"sum by ({LABELS}) (count_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE[30m]))",
    f"sum by ({LABELS}, pod_uid) (sum_over_time(DCGM_FI_DEV_GPU_UTIL[30m]))",
    "max by (UUID, GPU_I_ID) (max_over_time(DCGM_FI_DEV_FB_USED[30m]))",
    "min by (UUID, GPU_I_ID) (min_over_time(DCGM_FI_DEV_FB_FREE[30m]))",
    "max by (UUID) (increase(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[30m]))",
    "max by (UUID, err_code, err_msg) (last_over_time(DCGM_FI_DEV_XID_ERRORS[30m]))",
    "avg by (hostname, Hostname) (avg_over_time(DCGM_FI_DEV_GPU_TEMP[30m]))",
    "sum by (job) (sum_over_time(DCGM_FI_PROF_SM_ACTIVE[30m]))",
    "max by (UUID) (avg_over_time(DCGM_FI_DEV_MEM_COPY_UTIL[30m]))",
    "count by (dra_claim_name, dra_device_name) (present_over_time(DCGM_FI_DEV_SM_CLOCK[30m]))",
    "count by (namespace, pod, job) (present_over_time(up[30m]))",
    "DCGM_FI_DEV_POWER_USAGE",
    'count by (__name__) ({__name__=~"DCGM_.*|kube_.*|up"})',
    "min by (node, resource) (min_over_time(kube_node_status_allocatable[30m]))",
    "max by (pod, resource) (max_over_time(kube_pod_container_resource_requests[30m]))",
    "kube_pod_resourceclaim_info",
    "max by (UUID, GPU_I_ID, exported_pod) (timestamp(DCGM_FI_DEV_FB_FREE))",
)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    scenario = every_kind()
    path = tmp_path_factory.mktemp("kinds") / "kinds.om"
    end = ORIGIN + SLOTS * 1800
    with path.open("w", encoding="utf-8") as file:
        file.writelines(sample_rows(Signals(scenario), ORIGIN * 1000, end * 1000))
    with RealPrometheus.loaded(path) as real, serving(scenario, end) as lab:
        yield Pair(lab, Client(real.url))


@pytest.mark.parametrize("query", QUERIES)
def test_slots_are_as_prometheus_has_them(exported: Pair, query: str) -> None:
    for slot in range(1, SLOTS + 1):
        lab, real = exported.both(
            "/api/v1/query", query=query, time=f"{ORIGIN + 1800 * slot - 1}.999"
        )

        assert lab
        assert lab == pytest.approx(real, rel=1e-12)


@pytest.mark.parametrize("query", QUERIES)
def test_uneven_instants_are_as_prometheus_has_them(exported: Pair, query: str) -> None:
    lab, real = exported.both(
        "/api/v1/query_range", query=query, start=ORIGIN + 617.043,
        end=ORIGIN + SLOTS * 1800 - 1, step=211.7,
    )  # fmt: skip

    assert lab
    assert lab == pytest.approx(real, rel=1e-12)


def test_raw_samples_are_as_prometheus_has_them(exported: Pair) -> None:
    lab, real = exported.both(
        "/api/v1/query",
        query='DCGM_FI_DEV_GPU_UTIL{job=~"s|old|mps"}[30m]',
        time=f"{ORIGIN + 5399}.999",
    )

    assert lab
    assert lab == real
