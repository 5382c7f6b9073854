"""Errors and throttling of GPUs as the simulator plants them, collected as in production."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from pytest_django import DjangoAssertNumQueries

from apps.accounts.domain.structs import replace
from apps.clusters.adapters.prometheus.client import PrometheusApi
from apps.clusters.adapters.prometheus.http_api import PrometheusConfig
from apps.clusters.adapters.prometheus.source import PrometheusSource
from apps.clusters.domain.devices.errors import (
    GpuHealthHour,
    HealthAnswer,
    HealthMeasure,
    XidEvent,
    xid_events,
)
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, Device
from apps.clusters.services import snapshot_cluster, store_device_states
from apps.operations.services import load_catalog
from apps.usage.models import CollectionWindow, DeviceHealthHour, PodDevices
from apps.usage.services import collect_window
from apps.usage.services.facts import Dimensions, PodIds
from apps.usage.services.health import write_health, write_pod_devices
from simulator.catalog import catalog_yaml
from simulator.fleet import CLASSIC_METRICS, HEALTH_METRICS, STANDARD_METRICS
from simulator.scenarios.base import Team
from tests.clusters.scripted_prometheus import Answer, forwarded, scripted
from tests.served_lab import served_lab
from tests.simulator.small import ORIGIN, Small, pod

pytestmark = pytest.mark.django_db

HOUR = 3600
START = datetime.fromtimestamp(ORIGIN, UTC)
NOW_SECONDS = ORIGIN + 6 * HOUR + 900
NOW = datetime.fromtimestamp(NOW_SECONDS, UTC)
DEFAULT = "remapped_correctable remapped_uncorrectable xid"
ALL = f"ecc_corrected ecc_uncorrected power {DEFAULT[:-4]} thermal xid"


def planted(metrics: Sequence[str]) -> Small:
    """Return four GPUs: one is well, one has XIDs, one bad memory, and one is hot."""
    scenario = Small(
        [
            pod("train", bound=60, started=90, devices=(0, 1)),
            pod("eval", bound=60, started=90, finished=5 * HOUR, devices=(2,)),
        ]
    )
    scenario.teams = [Team("vision", ("vision",), 4, "CC-1")]
    (node,) = scenario.nodes
    at = [ORIGIN + seconds for seconds in (1800, 2 * HOUR + 600, 2 * HOUR + 1200, 4 * HOUR + 5)]
    well, failing, faulty, hot = node.devices
    devices = (
        well,
        replace(failing, xids=tuple(zip(at, (31, 79, 79, 48), strict=True))),
        replace(faulty, memory_faults=tuple(at), remapped_rows=3),
        replace(hot, hot=((ORIGIN + 3000, ORIGIN + 4000), (NOW_SECONDS - 600, NOW_SECONDS + 9))),
    )
    exporter = replace(node.exporters[0], metrics=tuple(metrics))
    scenario.nodes = [replace(node, devices=devices, exporters=(exporter,))]
    return scenario


def collect(scenario: Small, *windows: Window) -> None:
    with served_lab(scenario, NOW_SECONDS) as url:
        load_catalog(catalog_yaml(scenario, url=url), "catalog.yaml", now=NOW, dry_run=False)
        snapshot_cluster("lab", now=NOW)
        for window in windows:
            collect_window("lab", window, now=NOW)
        cluster_id = Cluster.objects.get().pk
        store_device_states(cluster_id, NOW)


def hours(first: int, last: int) -> Window:
    return Window(START + timedelta(hours=first), START + timedelta(hours=last))


def stored() -> list[tuple[object, ...]]:
    columns = ("hour", "uuid", "node_name", "xids", "remapped_uncorrectable", "ecc_uncorrected")
    return list(DeviceHealthHour.objects.order_by("hour", "uuid").values_list(*columns))


@pytest.mark.parametrize(
    "windows",
    [[hours(0, 6)], [hours(n, n + 1) for n in (3, 0, 5, 2, 4, 1)]],
    ids=["at once", "by the hour"],
)
def test_planted_faults_are_found_in_their_hours(windows: list[Window]) -> None:
    scenario = planted((*STANDARD_METRICS, *HEALTH_METRICS))
    collect(scenario, *windows)
    _, failing, faulty, hot = (one.uuid for one in scenario.nodes[0].devices)
    codes = {
        (row.hour, row.uuid): [code for _, code in row.xids]
        for row in DeviceHealthHour.objects.all()
        if row.xids
    }
    # The same error again, twenty minutes later, changes nothing that an exporter shows.
    assert codes == {
        (START, failing): [31],
        (START + timedelta(hours=2), failing): [79],
        (START + timedelta(hours=4), failing): [48],
    }
    found = DeviceHealthHour.objects.filter(uuid=faulty).order_by("hour")
    counts = [
        (row.hour, row.remapped_uncorrectable, row.ecc_uncorrected, row.remapped_correctable)
        for row in found
    ]
    assert counts == [(START + timedelta(hours=h), n, n, 0) for h, n in ((0, 1), (2, 2), (4, 1))]
    heat = DeviceHealthHour.objects.filter(uuid=hot).order_by("hour")
    seconds = [row.thermal_seconds or 0.0 for row in heat]
    # What lies between two scrapes belongs to the hour of the later one.
    assert seconds == pytest.approx([600, 400], abs=35)
    assert sum(seconds) == pytest.approx(1000, rel=0.03)
    assert {row.power_seconds for row in heat} == {0.0}
    assert set(CollectionWindow.objects.values_list("health", flat=True)) == {ALL}
    again = stored()
    with_times = DeviceHealthHour.objects.get(uuid=failing, hour=START)
    ((at, _),) = with_times.xids
    assert 0 <= at - (ORIGIN + 1800) <= 30
    collect(scenario, hours(0, 6))
    assert stored() == again


def test_what_is_not_exported_is_no_data() -> None:
    scenario = planted(STANDARD_METRICS)
    collect(scenario, hours(0, 6))
    assert set(CollectionWindow.objects.values_list("health", flat=True)) == {DEFAULT}
    nulls = ("ecc_corrected", "ecc_uncorrected", "thermal_seconds", "power_seconds")
    assert set(DeviceHealthHour.objects.values_list(*nulls)) == {(None,) * 4}
    hot = scenario.nodes[0].devices[3].uuid
    assert not DeviceHealthHour.objects.filter(uuid=hot).exists()
    states = Device.objects.values_list("state", flat=True)
    for name in ("throttle_reasons", "ecc_uncorrected_volatile", "ecc_corrected_aggregate"):
        assert {state[name] for state in states} == {None}


def test_the_state_of_a_gpu_tells_ecc_and_throttling_now() -> None:
    scenario = planted((*STANDARD_METRICS, *HEALTH_METRICS))
    collect(scenario, hours(0, 1))
    states = {row.uuid: row.state for row in Device.objects.all()}
    well, _, faulty, hot = (one.uuid for one in scenario.nodes[0].devices)
    reasons = {row.uuid: row.reasons for row in Device.objects.all()}
    assert reasons[hot] == ["its clocks are held down: thermal slowdown"]
    assert "4 ECC errors that were not corrected" in reasons[faulty]
    assert reasons[well] == []
    assert states[well]["throttle_reasons"] == 0
    assert states[hot]["throttle_reasons"] == 0x20
    assert states[faulty]["ecc_uncorrected_volatile"] == 4
    assert states[faulty]["ecc_uncorrected_aggregate"] == 4
    assert states[faulty]["ecc_corrected_volatile"] == 0


def test_pods_are_kept_with_the_gpus_they_were_seen_on() -> None:
    scenario = planted(STANDARD_METRICS)
    collect(scenario, *(hours(n, n + 1) for n in range(3)))
    first, second, third, _ = (one.uuid for one in scenario.nodes[0].devices)
    kept = {row.pod.name: row.uuids.split() for row in PodDevices.objects.select_related("pod")}
    assert kept == {"train": sorted([first, second]), "eval": [third]}


def test_gpus_of_pods_that_are_known_are_read_once_and_not_written(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    collect(planted(STANDARD_METRICS), hours(0, 1))
    pods = {row.pod.uid: row.pod for row in PodDevices.objects.select_related("pod")}
    seen = {row.pod.uid: set(row.uuids.split()) for row in PodDevices.objects.select_related("pod")}
    ids = {uid: PodIds(pod.pk, 0, 0, "vision") for uid, pod in pods.items()}
    dimensions = Dimensions(0, ids, {}, {}, {}, lambda _: 0)
    with django_assert_num_queries(1) as queries:
        write_pod_devices(seen, dimensions)
    assert "JOIN" not in queries[0]["sql"]
    seen[min(seen)].add("GPU-new")
    write_pod_devices(seen, dimensions)
    again = {
        row.pod.uid: set(row.uuids.split()) for row in PodDevices.objects.select_related("pod")
    }
    assert again == seen


def test_where_none_of_these_series_exist_an_hour_costs_one_request_more() -> None:
    scenario = planted((*CLASSIC_METRICS, "up"))
    with (
        served_lab(scenario, NOW_SECONDS) as url,
        scripted(lambda asked: Answer(forwarded(url, asked))) as server,
    ):
        load_catalog(catalog_yaml(scenario, url=url), "catalog.yaml", now=NOW, dry_run=False)
        snapshot_cluster("lab", now=NOW)
        cluster = Cluster.objects.get()
        config = PrometheusConfig.from_catalog({**cluster.prometheus, "url": server.url})
        source = PrometheusSource(PrometheusApi(config))
        hour = hours(3, 4)
        (outcome,) = collect_window("lab", hour, now=NOW, source=source)
        asked = [one.form.get("query", "") for one in server.asked]
        server.asked.clear()
        source.devices(hour)
        source.ledger(hour, gpu_resources=["nvidia.com/gpu"])
        source.queue_pending(hour, gpu_resources=["nvidia.com/gpu"])
        needed = [one.form.get("query", "") for one in server.asked]
        source.close()
    assert outcome.state.value == "complete"
    (more,) = (Counter(asked) - Counter(needed)).elements()
    assert more.startswith("count by (__name__) (last_over_time(")
    assert CollectionWindow.objects.get(hour=hour.start).health == ""


def test_an_error_that_was_there_before_is_no_event() -> None:
    sticky = [(at, 79.0) for at in (0.0, 30.0, 630.0, 660.0)]
    assert list(xid_events(sticky, start=600, read_from=0)) == []
    late = [(at + 400, code) for at, code in sticky]
    assert list(xid_events(late, start=400, read_from=0)) == [XidEvent(400.0, 79)]
    mixed = [(0.0, 0.0), (610.0, 31.0), (640.0, 31.0), (670.0, 79.0), (700.0, 31.0)]
    assert list(xid_events(mixed, start=600, read_from=0)) == [(610, 31), (670, 79), (700, 31)]


@pytest.mark.django_db
def test_a_measure_that_cannot_be_is_stored_as_no_data_beside_zeros() -> None:
    cluster = Cluster.objects.create(name="west")
    exported = {ORIGIN: frozenset(HealthMeasure)}
    growth = {HealthMeasure.ECC_UNCORRECTED: None, HealthMeasure.THERMAL: None}
    row = GpuHealthHour(ORIGIN, "GPU-1", growth=growth)
    write_health(cluster, hours(0, 1), HealthAnswer((row,), exported), ())
    found = DeviceHealthHour.objects.get()
    assert (found.ecc_uncorrected, found.thermal_seconds) == (None, None)
    assert (found.ecc_corrected, found.power_seconds) == (0, 0.0)
