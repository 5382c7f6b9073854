"""What devices say of themselves at one time, read from a real Prometheus."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from msgspec.structs import asdict

from apps.accounts.domain.structs import replace
from apps.clusters.adapters.prometheus.client import PrometheusApi
from apps.clusters.adapters.prometheus.http_api import PrometheusConfig
from apps.clusters.adapters.prometheus.source import PrometheusSource
from apps.clusters.domain.devices.state import DeviceHolder, DeviceState
from apps.clusters.domain.window import from_seconds
from apps.clusters.ports import SourceRejected, SourceUnavailable
from tests.clusters.openmetrics import ORIGIN, SLOT, Series, scrapes, series, write
from tests.clusters.scripted_prometheus import EMPTY, Answer, scripted
from tests.real_prometheus import RealPrometheus

pytestmark = pytest.mark.prometheus

AT = from_seconds(ORIGIN + SLOT)
TIMES = list(scrapes(ORIGIN, ORIGIN + SLOT))
DEVICE = {"UUID": "GPU-a", "gpu": "3", "modelName": "NVIDIA H100", "Hostname": "n1", "job": "dcgm"}
FULL: Mapping[str, float] = {
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.5,
    "DCGM_FI_DEV_GPU_UTIL": 60,
    "DCGM_FI_PROF_SM_ACTIVE": 0.3,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.2,
    "DCGM_FI_DEV_MEM_COPY_UTIL": 40,
    "DCGM_FI_DEV_FB_USED": 1000,
    "DCGM_FI_DEV_FB_FREE": 79_000,
    "DCGM_FI_DEV_FB_RESERVED": 500,
    "DCGM_FI_DEV_GPU_TEMP": 61,
    "DCGM_FI_DEV_MEMORY_TEMP": 70,
    "DCGM_FI_DEV_POWER_USAGE": 412.5,
    "DCGM_FI_DEV_SM_CLOCK": 1410,
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": 2,
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": 1,
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
}


def rows(world: str, values: Mapping[str, float], **labels: str) -> list[Series]:
    return rows_at(TIMES, world, values, labels)


def rows_at(
    times: Sequence[float], world: str, values: Mapping[str, float], labels: Mapping[str, str]
) -> list[Series]:
    given = {**DEVICE, "cluster": world, **labels}
    return [series(metric, given, value, times) for metric, value in values.items()]


def xid(world: str, code: int, message: str, **labels: str) -> list[Series]:
    told = {"err_code": str(code), "err_msg": message, **labels}
    return rows(world, {"DCGM_FI_DEV_XID_ERRORS": code}, **told)


def worlds() -> Iterator[Series]:
    own = {"namespace": "vision", "pod": "train-0", "container": "main"}
    exported = {f"exported_{key}": value for key, value in own.items()}
    target = {"namespace": "gpu-operator", "pod": "nvidia-dcgm-exporter-x2x9z", "container": "e"}
    place = {"pci_bus_id": "00000000:1B:00.0", "DCGM_FI_DRIVER_VERSION": "580.95.05"}
    yield from rows("plain", FULL, **own, **place)
    yield from xid("plain", 79, "GPU has fallen off the bus", **own, **place)
    yield from rows("plain", FULL, UUID="GPU-b", gpu="4")
    yield from rows("renamed", FULL, **target, **exported)
    yield from rows("renamed", FULL, **target, UUID="GPU-b", hostname="n2")
    yield from xid("renamed", 0, "No Error", **target, **exported)
    mig = {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.25, "DCGM_FI_DEV_FB_USED": 10}
    for instance, watts in (("7", 300.0), ("8", 300.0)):
        named = {"GPU_I_ID": instance, "GPU_I_PROFILE": "1g.10gb"}
        yield from rows("mig", {**mig, "DCGM_FI_DEV_POWER_USAGE": watts}, **named)
    for vgpu, pod, used in (("0", "a", 100.0), ("1", "b", 200.0)):
        copies = {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.8, "DCGM_FI_DEV_FB_USED": used}
        yield from rows("virtual", copies, vgpu=vgpu, namespace="speech", pod=pod)
    whole = {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.8, "DCGM_FI_DEV_FB_USED": 350}
    yield from rows("virtual", whole)
    yield from rows("sparse", {"DCGM_FI_DEV_FB_USED": 5})
    old = {"dcgm_gpu_utilization": 40, "dcgm_fb_used": 30, "dcgm_fb_free": 70, "dcgm_gpu_temp": 50}
    names = {"uuid": "GPU-old", "pod_name": "p", "pod_namespace": "n", "container_name": "c"}
    yield from rows("old", old, UUID="", **names)
    stuck = {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0, "DCGM_FI_DEV_GPU_UTIL": 80}
    yield from rows("stuck", {**stuck, "DCGM_FI_DEV_FB_USED": 5})
    blank = {"DCGM_FI_DEV_GPU_TEMP": 9.2e18, "DCGM_FI_DEV_POWER_USAGE": 2147483632}
    yield from rows("blank", {**blank, "DCGM_FI_DEV_FB_USED": 5})
    half = TIMES[: len(TIMES) // 2]
    then = TIMES[len(TIMES) // 2 :]
    first, second = {"pod": "one", "namespace": "n"}, {"pod": "two", "namespace": "n"}
    moved = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
    yield from rows_at(half[:-12], "handed-on", {moved: 0.9, "DCGM_FI_DEV_FB_USED": 9}, first)
    yield from rows_at(then, "handed-on", {moved: 0.1, "DCGM_FI_DEV_FB_USED": 9}, second)
    amd = {"gpu_gfx_activity": 50, "gpu_used_vram": 1048.576}
    told = {"gpu_uuid": "amd-1", "gpu_id": "0", "card_series": "MI300X", "hostname": "n9"}
    yield from rows("amd", amd, UUID="", modelName="", Hostname="", **told, **own)
    full, empty = (
        {"DCGM_FI_DEV_FB_USED": 20_000, "DCGM_FI_DEV_FB_FREE": 2_000},
        {
            "DCGM_FI_DEV_FB_USED": 1_000,
            "DCGM_FI_DEV_FB_FREE": 21_000,
        },
    )
    reserved = {"DCGM_FI_DEV_FB_RESERVED": 512}
    yield from rows_at(TIMES[:-4], "given-up", {**full, **reserved}, first)
    yield from rows_at(TIMES[-4:], "given-up", {**empty, **reserved}, {})
    yield from rows_at(TIMES[:-4], "no-longer-free", full, {})
    yield from rows_at(TIMES[-4:], "no-longer-free", {"DCGM_FI_DEV_FB_USED": 1_000}, {})
    for cluster, total in (("too-much", 12_000), ("too-little", 30_000), ("exact", 22_512)):
        yield from rows(cluster, {**full, **reserved, "DCGM_FI_DEV_FB_TOTAL": total})
    yield from rows("fuller-than-whole", {"DCGM_FI_DEV_FB_USED": 9, "DCGM_FI_DEV_FB_TOTAL": 8})
    yield from rows("two-views", {"DCGM_FI_DEV_FB_USED": 7.0}, job="a", **exported)
    yield from rows("two-views", empty, job="b", instance="other:9400", vgpu="1")
    memory = {"DCGM_FI_DEV_FB_USED": 7.0}
    yield from rows("two", {**memory, "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.3}, **exported)
    yield from rows("two", {**memory, "DCGM_FI_DEV_GPU_TEMP": 44}, job="other", Hostname="")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = Path(tmp_path_factory.mktemp("openmetrics")) / "states.prom"
    with RealPrometheus.loaded(write(file, worlds())) as server:
        yield server.url


def states(url: str, world: str) -> list[DeviceState]:
    entry = {"url": url, "matchers": {"cluster": world}}
    source = PrometheusSource(PrometheusApi(PrometheusConfig.from_catalog(entry)))
    try:
        return list(source.device_states(AT).rows)
    finally:
        source.close()


def test_a_gpu_tells_everything_that_its_exporter_shows(url: str) -> None:
    first, second = states(url, "plain")
    assert first == DeviceState(
        uuid="GPU-a",
        model="NVIDIA H100",
        node="n1",
        index="3",
        pci_bus_id="00000000:1B:00.0",
        driver_version="580.95.05",
        tenants=(DeviceHolder("vision", "train-0", "main"),),
        activity_mean=0.5,
        activity_now=0.5,
        sm_active=0.3,
        tensor_active=0.2,
        memory_copy=0.4,
        memory_used_mib=1000,
        memory_total_mib=80_500,
        temperature_celsius=61,
        memory_temperature_celsius=70,
        power_watts=412.5,
        sm_clock_mhz=1410,
        xid=79,
        xid_message="GPU has fallen off the bus",
        remapped_correctable=2,
        remapped_uncorrectable=1,
        remap_failure=False,
    )
    assert (second.uuid, second.tenants, second.xid) == ("GPU-b", (), None)


def test_renamed_labels_name_the_workload_and_the_exporters_own_pod_is_no_tenant(url: str) -> None:
    first, second = states(url, "renamed")
    assert first.tenants == (DeviceHolder("vision", "train-0", "main"),)
    assert (second.tenants, second.node) == ((), "n2")
    assert (first.xid, first.xid_message) == (0, "")


def test_instances_of_one_gpu_are_devices_of_their_own(url: str) -> None:
    found = states(url, "mig")
    assert [(s.key, s.profile) for s in found] == [
        (("GPU-a", "7"), "1g.10gb"),
        (("GPU-a", "8"), "1g.10gb"),
    ]
    assert {s.power_watts for s in found} == {300.0}
    assert {s.activity_mean for s in found} == {0.25}


def test_copies_for_each_pod_of_a_shared_gpu_are_one_device(url: str) -> None:
    (device,) = states(url, "virtual")
    assert [tenant.pod for tenant in device.tenants] == ["a", "b"]
    assert device.activity_mean == pytest.approx(0.8)
    assert device.memory_used_mib == 350


def test_what_is_not_exported_is_absent_and_never_zero(url: str) -> None:
    (device,) = states(url, "sparse")
    known = {name: value for name, value in asdict(device).items() if value not in (None, "", ())}
    assert known == {
        "uuid": "GPU-a",
        "model": "NVIDIA H100",
        "node": "n1",
        "index": "3",
        "memory_used_mib": 5,
    }


def test_the_first_generation_of_names_is_read(url: str) -> None:
    (device,) = states(url, "old")
    assert device.uuid == "GPU-old"
    assert device.tenants == (DeviceHolder("n", "p", "c"),)
    assert [device.activity_mean, device.activity_now] == pytest.approx([0.4, 0.4])
    assert (device.memory_used_mib, device.memory_total_mib, device.temperature_celsius) == (
        30,
        100,
        50,
    )


def test_a_counter_that_stands_at_zero_is_not_believed(url: str) -> None:
    (device,) = states(url, "stuck")
    assert [device.activity_mean, device.activity_now] == pytest.approx([0.8, 0.8])


def test_blanks_are_absent(url: str) -> None:
    (device,) = states(url, "blank")
    assert (device.temperature_celsius, device.power_watts) == (None, None)


def test_the_mean_is_over_all_who_held_the_gpu_and_the_tenant_is_who_holds_it_now(
    url: str,
) -> None:
    (device,) = states(url, "handed-on")
    assert [tenant.pod for tenant in device.tenants] == ["two"]
    assert device.activity_mean == pytest.approx((18 * 0.9 + 30 * 0.1) / 48)
    assert device.activity_now == 0.1


def test_of_an_amd_gpu_activity_and_memory_are_read(url: str) -> None:
    (device,) = states(url, "amd")
    assert device.memory_used_mib == pytest.approx(1000.0)
    assert replace(device, memory_used_mib=None) == DeviceState(
        uuid="amd-1",
        model="MI300X",
        node="n9",
        tenants=(DeviceHolder("vision", "train-0", "main"),),
        activity_mean=0.5,
    )


def test_two_exporters_of_one_gpu_fill_each_others_gaps(url: str) -> None:
    (device,) = states(url, "two")
    assert (device.temperature_celsius, device.activity_mean, device.node) == (44, 0.3, "n1")
    assert device.tenants == (DeviceHolder("vision", "train-0", "main"),)


def test_memory_of_a_gpu_that_changed_hands_is_that_of_its_newest_scrape(url: str) -> None:
    """Instant queries look back five minutes, so the series of the pod before is still there."""
    (device,) = states(url, "given-up")
    assert (device.memory_used_mib, device.memory_total_mib) == (1_000, 22_512)


def test_free_memory_of_an_earlier_scrape_makes_no_total(url: str) -> None:
    (device,) = states(url, "no-longer-free")
    assert (device.memory_used_mib, device.memory_total_mib) == (1_000, None)


@pytest.mark.parametrize(
    ("world", "expected"),
    [
        ("exact", (20_000, 22_512)),
        ("too-much", (None, None)),
        ("too-little", (None, None)),
        ("fuller-than-whole", (None, None)),
    ],
)
def test_memory_that_contradicts_itself_is_no_data(
    url: str, world: str, expected: tuple[float | None, float | None]
) -> None:
    (device,) = states(url, world)
    assert (device.memory_used_mib, device.memory_total_mib) == expected


def test_used_and_total_memory_come_from_one_exporter(url: str) -> None:
    (device,) = states(url, "two-views")
    pair = (device.memory_used_mib, device.memory_total_mib)
    assert pair in {(7.0, None), (1_000, 22_000)}


def test_a_cluster_without_devices_has_none(url: str) -> None:
    assert states(url, "nowhere") == []


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer(b"down", status=503), SourceUnavailable),
        (Answer(b"<html>", status=200), SourceRejected),
        (Answer(EMPTY[:-4]), SourceUnavailable),
    ],
    ids=["down", "not the API", "cut off"],
)
def test_a_failure_is_told_and_no_empty_answer(answer: Answer, error: type[Exception]) -> None:
    with scripted(lambda _asked: answer) as server:
        source = PrometheusSource(
            PrometheusApi(
                PrometheusConfig.from_catalog({"url": server.url}), wait=lambda _seconds: None
            )
        )
        with pytest.raises(error):
            source.device_states(AT)
        source.close()
