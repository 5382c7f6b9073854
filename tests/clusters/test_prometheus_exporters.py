"""Every generation and family of exporter gives the same kind of rows, from a real Prometheus."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.clusters.domain.devices.exporter_profile import (
    Family,
    Generation,
    JobProfile,
    VirtualGpus,
    WorkloadLabels,
)
from apps.clusters.domain.devices.state import DeviceSlot
from apps.clusters.domain.window import Window, from_seconds
from apps.clusters.ports import DeviceAnswer
from tests.clusters import exporter_series
from tests.clusters.device_series import ACTIVITY, UTILIZATION, WATTS
from tests.clusters.exporter_clusters import FIRST_HOUR, Clusters
from tests.clusters.exporter_series import FORMS, RELEASES, generation_name
from tests.clusters.openmetrics import HOUR, ORIGIN, SLOT, write
from tests.clusters.scripted_prometheus import Answer, Asked, forwarded, scripted
from tests.real_prometheus import RealPrometheus

pytestmark = pytest.mark.prometheus

THREE_HOURS = Window(from_seconds(ORIGIN), from_seconds(ORIGIN + 3 * HOUR))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = Path(tmp_path_factory.mktemp("openmetrics")) / "exporters.prom"
    with RealPrometheus.loaded(write(file, exporter_series.all_series())) as server:
        yield server.url


@pytest.fixture(scope="module")
def clusters(url: str) -> Clusters:
    return Clusters(url)


def first(answer: DeviceAnswer) -> list[DeviceSlot]:
    """Return the rows of the first half hour, in order."""
    return sorted(row for row in answer.rows if row.slot == ORIGIN)


def mean(row: DeviceSlot) -> float | None:
    return None if row.activity_sum is None else round(row.activity_sum / row.samples, 6)


def used(row: DeviceSlot) -> float | None:
    return None if row.process_sum is None else round(row.process_sum / row.samples, 6)


def means(answer: DeviceAnswer) -> dict[tuple[str, str], float | None]:
    return {(row.uuid, row.pod): mean(row) for row in first(answer)}


def only_job(answer: DeviceAnswer) -> JobProfile:
    (job,) = answer.profile.jobs
    return job


# ---------------------------------------------------------------- shared GPUs


def test_pitfall_2_a_device_row_beside_rows_by_process_is_not_added_up(clusters: Clusters) -> None:
    answer = clusters.devices("by-process")
    rows = [row for row in first(answer) if row.uuid == "GPU-p1"]
    assert [(row.pod, mean(row), used(row), row.samples) for row in rows] == [
        ("", 0.9, None, 60),
        ("a", 0.9, 0.6, 60),
        ("b", 0.9, 0.3, 60),
    ]
    assert only_job(answer).virtual_gpus is VirtualGpus.BY_PROCESS
    assert only_job(answer).pod_uid


def test_a_sharer_that_does_nothing_used_nothing(clusters: Clusters) -> None:
    rows = [row for row in first(clusters.devices("by-process")) if row.uuid == "GPU-p2"]
    assert [(row.pod, used(row)) for row in rows] == [("", None), ("c", 0.5), ("d", 0.0)]


def test_a_gpu_at_rest_tells_nothing_of_its_processes(clusters: Clusters) -> None:
    answer = clusters.devices("by-process")
    rows = [row for row in first(answer) if row.uuid == "GPU-p3"]
    assert [(row.pod, mean(row), used(row)) for row in rows] == [
        ("", 0.0, None), ("e", 0.0, None), ("f", 0.0, None),
    ]  # fmt: skip
    assert answer.findings == {}


def test_pitfall_3_without_host_pid_nobody_is_called_idle(clusters: Clusters) -> None:
    answer = clusters.devices("no-host-pid")
    assert [(row.pod, mean(row), row.process_sum) for row in first(answer)] == [
        ("", 0.9, None), ("a", 0.9, 0.0), ("b", 0.9, 0.0),
    ]  # fmt: skip
    assert sum(answer.findings.values()) == 2
    assert {name for _, name in answer.findings} == {"no_process_values"}
    assert any("hostPID: true" in warning for warning in answer.warnings)


def test_copies_beside_a_device_row_are_no_values_by_process(clusters: Clusters) -> None:
    answer = clusters.devices("device-beside")
    assert {used(row) for row in answer.rows} == {None}
    assert {mean(row) for row in answer.rows} == {0.7}
    assert only_job(answer).virtual_gpus is VirtualGpus.COPIES_AND_DEVICE


def test_the_devices_own_row_may_be_in_gpu_util_alone(clusters: Clusters) -> None:
    answer = clusters.devices("beside-in-two")
    assert [(row.pod, mean(row), used(row)) for row in first(answer)] == [
        ("a", 0.9, 0.6), ("b", 0.9, 0.3),
    ]  # fmt: skip
    assert only_job(answer).virtual_gpus is VirtualGpus.BY_PROCESS


def test_another_exporters_row_is_no_row_of_the_device(clusters: Clusters) -> None:
    answer = clusters.devices("copies-twice")
    rows = [row for row in first(answer) if row.uuid == "GPU-c2"]
    assert [(row.pod, row.samples, mean(row), used(row)) for row in rows] == [
        ("a", 60, 0.7, None), ("b", 60, 0.7, None),
    ]  # fmt: skip
    assert any("two exporters on n1" in warning for warning in answer.warnings)


def test_jobs_are_described_apart(clusters: Clusters) -> None:
    jobs = {job.job: job for job in clusters.devices("copies-twice").profile.jobs}
    assert jobs["dcgm-exporter"].workload_labels is WorkloadLabels.EXPORTED
    assert set(jobs) == {"dcgm-exporter", "standalone-dcgm"}
    two = {job.family: job for job in clusters.devices("two-vendors").profile.jobs}
    assert two[Family.AMD].activity_metrics == (("MI300X", ("gpu_gfx_activity",)),)
    assert two[Family.DCGM].activity_metrics == (("NVIDIA A100-SXM4-80GB", (ACTIVITY,)),)


def test_a_row_after_the_pods_is_no_row_beside_them(clusters: Clusters) -> None:
    answer = clusters.devices("released")
    assert [(row.pod, row.samples, mean(row), used(row)) for row in first(answer)] == [
        ("", 10, 0.0, None), ("a", 50, 0.7, None), ("b", 50, 0.7, None),
    ]  # fmt: skip
    assert only_job(answer).virtual_gpus is VirtualGpus.COPIES


def test_a_pod_with_two_replicas_used_what_its_processes_used(clusters: Clusters) -> None:
    rows = first(clusters.devices("replicas-by-process"))
    assert [(row.pod, row.samples, mean(row), used(row)) for row in rows] == [
        ("", 60, 0.8, None), ("one", 60, 0.8, 0.2), ("two", 60, 0.8, 0.6),
    ]  # fmt: skip


def test_values_by_process_may_be_all_there_is(clusters: Clusters) -> None:
    answer = clusters.devices("process-only")
    assert [(row.pod, mean(row), used(row)) for row in first(answer)] == [
        ("", 0.9, None), ("a", 0.6, 0.6), ("b", 0.3, 0.3),
    ]  # fmt: skip
    assert answer.activity_metric == UTILIZATION


def test_values_by_process_are_the_same_over_a_longer_window(clusters: Clusters) -> None:
    long = clusters.devices("by-process", THREE_HOURS)
    hour = clusters.devices("by-process")
    assert [row for row in sorted(long.rows) if row.slot < ORIGIN + HOUR] == sorted(hour.rows)


# ---------------------------------------------------------------- stuck counters


@pytest.mark.parametrize("window", [FIRST_HOUR, THREE_HOURS], ids=["hour", "backfill"])
def test_a_stuck_counter_gives_way_to_utilization(clusters: Clusters, window: Window) -> None:
    answer = clusters.devices("stuck", window)
    assert means(answer) == {
        ("GPU-s1", "train-0"): 0.8,
        ("GPU-s2", "idle-0"): 0.0,
        ("GPU-s3", "train-1"): 0.5,
        ("GPU-s4", "mig-0"): 0.0,
    }
    assert answer.findings == {(slot, "stuck_counter"): 1 for slot in window.slots()}
    assert any("stays at 0 on GPU-s1 " in warning for warning in answer.warnings)


def test_raw_samples_of_a_stuck_counter_are_those_of_utilization(clusters: Clusters) -> None:
    source = clusters.source("stuck")
    samples = source.activity_samples(["GPU-s1", "GPU-s2", "GPU-s3"], FIRST_HOUR).rows
    source.close()
    assert {(one.uuid, one.activity) for one in samples} == {
        ("GPU-s1", 0.8), ("GPU-s2", 0.0), ("GPU-s3", 0.5),
    }  # fmt: skip
    assert len(samples) == 3 * 120


def test_gpus_at_rest_cost_one_instant_and_no_range(clusters: Clusters) -> None:
    extra = [
        asked.form.get("query", "")
        for asked in clusters.asked("at-rest")
        if UTILIZATION in asked.form.get("query", "").replace("FB_USED|", "")
    ]
    assert extra == [f'max by (UUID) ({UTILIZATION}{{cluster="at-rest"}})']


def test_an_hour_of_working_gpus_takes_no_more_queries_than_before(clusters: Clusters) -> None:
    # Before exporters were described: 2 to find jobs, 4 for each slot, 2 to learn the interval.
    assert len(clusters.asked("working")) <= 12 + 1
    assert len(clusters.asked("at-rest")) <= 12 + 1


# ---------------------------------------------------------------- generations and labels


@pytest.mark.parametrize(
    ("world", "labels", "generation", "nodes"),
    [
        ("working", WorkloadLabels.EXPORTED, Generation.HOSTNAME_UPPER, ("Hostname",)),
        ("by-process", WorkloadLabels.EXPORTED, Generation.BOTH, ("hostname", "Hostname")),
        ("upgrading", WorkloadLabels.EXPORTED, Generation.BOTH, ("hostname", "Hostname")),
        ("first-release", WorkloadLabels.OLD, Generation.FIRST, ("node",)),
        ("old-labels", WorkloadLabels.OLD, Generation.HOSTNAME_UPPER, ("Hostname",)),
    ],
)
def test_the_exporter_is_described(
    clusters: Clusters,
    world: str,
    labels: WorkloadLabels,
    generation: Generation,
    nodes: tuple[str, ...],
) -> None:
    job = only_job(clusters.devices(world))
    assert (job.workload_labels, job.generation, job.node_labels) == (labels, generation, nodes)


_SHARED: dict[str, list[tuple[str, float | None, float | None]]] = {
    "3.3.7": [("last-listed", 0.9, None)],
    "4.4.0": [("a", 0.9, None), ("b", 0.9, None)],
    "4.8.1": [("a", 0.9, None), ("b", 0.9, None)],
    "4.8.2": [("", 0.9, None), ("a", 0.9, 0.6), ("b", 0.9, 0.3)],
    "4.8.3": [("", 0.9, None), ("a", 0.9, 0.6), ("b", 0.9, 0.3)],
}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("form", FORMS, ids=["renamed", "honoured"])
def test_every_release_says_the_same_of_the_same_gpus(
    clusters: Clusters, release: str, form: str
) -> None:
    answer = clusters.devices(generation_name(release, form))
    by_gpu: dict[str, list[DeviceSlot]] = defaultdict(list)
    for row in first(answer):
        by_gpu[row.uuid].append(row)
    assert {(row.node, row.samples) for row in answer.rows} == {("n1", 60)}
    assert [(row.namespace, row.pod, mean(row)) for row in by_gpu["GPU-x"]] == [
        ("vision", "alone", 0.5)
    ]
    assert [(row.gpu_instance, row.profile, row.pod, mean(row)) for row in by_gpu["GPU-m"]] == [
        ("1", "3g.40gb", "mig-1", 0.25),
        ("2", "3g.40gb", "mig-2", 0.75),
    ]
    assert [(row.pod, mean(row), used(row)) for row in by_gpu["GPU-s"]] == _SHARED[release]
    assert [(row.pod, mean(row)) for row in by_gpu.get("GPU-i", [])] in ([], [("", 0.0)])


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("form", FORMS, ids=["renamed", "honoured"])
def test_every_release_is_described(clusters: Clusters, release: str, form: str) -> None:
    job = only_job(clusters.devices(generation_name(release, form)))
    newest = release == "4.8.3"
    assert job.generation is (Generation.HOSTNAME_LOWER if newest else Generation.HOSTNAME_UPPER)
    assert job.workload_labels is (WorkloadLabels.EXPORTED if form else WorkloadLabels.PLAIN)
    assert job.mig
    assert job.pod_uid is (release != "3.3.7")
    assert (
        job.virtual_gpus
        is {
            1: VirtualGpus.NONE,
            2: VirtualGpus.COPIES,
            3: VirtualGpus.BY_PROCESS,
        }[len(_SHARED[release])]
    )


@pytest.mark.parametrize("release", RELEASES)
def test_energy_of_a_mig_gpu_is_that_of_the_gpu_in_every_release(
    clusters: Clusters, release: str
) -> None:
    rows = first(clusters.devices(generation_name(release, "exported_")))
    energy = sum(row.energy_wh or 0.0 for row in rows if row.uuid == "GPU-m")
    assert energy == pytest.approx(WATTS / 2, rel=1e-3)


def test_pitfall_1_copies_of_a_shared_gpu_stay_copies_of_one_value(clusters: Clusters) -> None:
    rows = [
        row
        for row in first(clusters.devices(generation_name("4.8.1", "exported_")))
        if row.uuid == "GPU-s"
    ]
    assert max(mean(row) or 0.0 for row in rows) == 0.9
    assert {row.process_sum for row in rows} == {None}


def test_pitfall_5_gpus_whose_rows_vanish_are_not_made_up(clusters: Clusters) -> None:
    answer = clusters.devices(generation_name("4.8.1", "exported_"))
    assert "GPU-i" not in {row.uuid for row in answer.rows}


def test_the_first_release_gives_the_same_rows(clusters: Clusters) -> None:
    answer = clusters.devices("first-release")
    assert [
        (*row[1:9], mean(row), row.samples, row.memory_used_peak_mib) for row in first(answer)
    ] == [
        ("GPU-o1", "", "", "", "n1", "vision", "train-0", "main", 0.8, 60, 1000.0),
        ("GPU-o2", "", "", "", "n1", "", "", "", 0.0, 60, 1000.0),
    ]
    assert [row.energy_wh for row in first(answer)] == pytest.approx([WATTS / 2] * 2, rel=1e-3)
    assert answer.scrape_interval_seconds == 30.0
    assert only_job(answer).family is Family.DCGM_1


def test_raw_samples_of_the_first_release(clusters: Clusters) -> None:
    source = clusters.source("first-release")
    samples = source.activity_samples(["GPU-o1"], FIRST_HOUR).rows
    source.close()
    assert {(s.uuid, s.namespace, s.pod, s.activity) for s in samples} == {
        ("GPU-o1", "vision", "train-0", 0.8)
    }
    assert len(samples) == 120


def test_old_labels_on_todays_metrics(clusters: Clusters) -> None:
    answer = clusters.devices("old-labels")
    (row,) = first(answer)
    assert (row.uuid, row.model, row.node, row.pod, mean(row)) == (
        "GPU-l1", "Tesla T4", "n1", "train-0", 0.25,
    )  # fmt: skip
    assert answer.scrape_interval_seconds == 30.0


def test_of_two_releases_on_one_gpu_the_newer_tells(clusters: Clusters) -> None:
    answer = clusters.devices("both-releases")
    assert means(answer) == {("GPU-o1", "train-0"): 0.5, ("GPU-o2", ""): 0.0}
    assert answer.profile.families == (Family.DCGM, Family.DCGM_1)


# ---------------------------------------------------------------- other vendors


def test_amd_gpus_are_known_by_uuid_serial_number_or_number(clusters: Clusters) -> None:
    answer = clusters.devices("amd")
    assert [
        (row.uuid, row.model, row.node, row.namespace, row.pod, mean(row), row.samples)
        for row in first(answer)
    ] == [
        ("692247001", "MI300X", "a1", "", "", 0.0, 60),
        ("a1/gpu2", "MI300X", "a1", "", "", 0.12, 60),
        ("c3ff-0", "MI300X", "a1", "vision", "train-0", 0.75, 60),
    ]
    assert {row.memory_used_peak_mib for row in answer.rows} == {1000.0}
    assert answer.scrape_interval_seconds == 30.0
    assert only_job(answer).workload_labels is WorkloadLabels.PLAIN


def test_amd_energy_is_in_microjoules(clusters: Clusters) -> None:
    energy = [row.energy_wh for row in first(clusters.devices("amd"))]
    assert energy == pytest.approx([WATTS / 2] * 3, rel=1e-3)


def test_amd_names_may_have_a_prefix_and_renamed_labels(clusters: Clusters) -> None:
    answer = clusters.devices("amd-prefixed")
    assert means(answer) == {("c3ff-9", "train-0"): 0.75, ("c3ff-8", ""): 0.2}
    assert only_job(answer).workload_labels is WorkloadLabels.EXPORTED


def test_amd_partitions_without_values_are_without_metrics(clusters: Clusters) -> None:
    answer = clusters.devices("amd-partitions")
    assert [
        (row.gpu_instance, row.profile, row.activity_sum, row.samples) for row in first(answer)
    ] == [
        ("0", "cpx-nps4", 24.0, 60),
        ("1", "cpx-nps4", None, 0),
        ("2", "cpx-nps4", None, 0),
    ]
    assert any("partitions other than 0" in warning for warning in answer.warnings)


def test_amd_labels_were_in_upper_case_once(clusters: Clusters) -> None:
    (row,) = first(clusters.devices("amd-old"))
    assert (row.uuid, row.namespace, row.pod, row.node, mean(row)) == (
        "6699c0a8-4200-4242-037f-f97e6cae0f09", "vision", "train-0", "a1", 0.5,
    )  # fmt: skip


def test_intel_gpus_are_as_active_as_their_most_active_tile(clusters: Clusters) -> None:
    answer = clusters.devices("intel")
    (row,) = first(answer)
    assert (row.uuid, row.node, row.pod, mean(row), row.samples) == (
        "0000-1", "i1", "train-0", 0.6, 60,
    )  # fmt: skip
    assert row.memory_used_peak_mib == 4096.0
    assert row.energy_wh == pytest.approx(WATTS / 2, rel=1e-3)
    assert only_job(answer).workload_labels is WorkloadLabels.KUBE


def test_intel_engine_groups_stand_in_for_the_gpu(clusters: Clusters) -> None:
    assert means(clusters.devices("intel-groups")) == {("0000-2", ""): 0.7}


@pytest.mark.parametrize(
    ("world", "uuid", "activity"),
    [
        ("amd", "c3ff-0", 0.75),
        ("amd", "692247001", 0.0),
        ("amd", "a1/gpu2", 0.12),
        ("intel", "0000-1", 0.6),
        ("ascend", "D0-6EF4", 0.36),
        ("ascend", "h1/npu2", 0.5),
        ("neuron", "n1/neuron0:0-1", 0.6),
        ("neuron", "n1/neuron2:4-5", 0.0),
        ("neuron", "i-02/neuron0:0-1", 0.4),
        ("gaudi", "01P0-AA", 0.75),
        ("gaudi", "AM501", 0.0),
    ],
)
def test_raw_samples_of_other_vendors(
    clusters: Clusters, world: str, uuid: str, activity: float
) -> None:
    source = clusters.source(world)
    samples = source.activity_samples([uuid], FIRST_HOUR).rows
    source.close()
    assert {(one.uuid, one.activity) for one in samples} == {(uuid, activity)}
    assert len(samples) == 120


def test_ascend_chips_are_known_by_die_or_number_and_name_their_pods(clusters: Clusters) -> None:
    answer = clusters.devices("ascend")
    assert [
        (row.uuid, row.model, row.node, row.namespace, row.pod, mean(row), row.samples)
        for row in first(answer)
    ] == [
        ("D0-6EF4", "Ascend910B", "h1", "vision", "train-0", 0.36, 60),
        ("D1-6EF4", "Ascend910B", "h1", "", "", 0.0, 60),
        ("h1/npu2", "Ascend910B", "h1", "", "", 0.5, 60),
    ]
    assert {row.memory_used_peak_mib for row in answer.rows} == {8192.0}
    # Power is no energy: what is not exported is not known, and no zero.
    assert {row.energy_wh for row in answer.rows} == {None}
    assert answer.profile.families == (Family.ASCEND,)


def test_tpu_chips_count_once_and_gpus_of_the_same_names_are_none(clusters: Clusters) -> None:
    answer = clusters.devices("tpu")
    assert [
        (row.uuid[-2:], row.model, row.node, row.namespace, row.pod, mean(row), row.samples)
        for row in first(answer)
    ] == [
        ("-0", "tpu7x", "t1", "", "", 0.0, 60),
        ("-4", "tpu7x", "t1", "vision", "train-0", 0.425, 60),
    ]
    assert {row.memory_used_peak_mib for row in answer.rows} == {4096.0}
    assert answer.profile.families == (Family.TPU,)


def test_neuron_devices_are_as_active_as_the_mean_of_their_cores(clusters: Clusters) -> None:
    answer = clusters.devices("neuron")
    assert [
        (row.uuid, row.model, row.node, row.pod, mean(row), row.samples) for row in first(answer)
    ] == [
        ("i-02/neuron0:0-1", "", "i-02", "", 0.4, 60),
        ("n1/neuron0:0-1", "", "n1", "", 0.6, 60),
        ("n1/neuron1:2-3", "", "n1", "", 0.25, 60),
        # Its cores are not shown, since no runtime has them in use: it is idle.
        ("n1/neuron2:4-5", "", "n1", "", 0.0, 60),
    ]
    # Neither is exported by the device: not known, and no zero.
    assert {(row.memory_used_peak_mib, row.energy_wh) for row in answer.rows} == {(None, None)}
    assert answer.profile.families == (Family.NEURON,)
    assert answer.activity_metric == "neuroncore_utilization_ratio"
    assert "neuroncore_utilization_ratio reads per cent here, not 0..1" in answer.warnings
    assert answer.scrape_interval_seconds == 30.0


def test_gaudi_devices_name_their_pods(clusters: Clusters) -> None:
    answer = clusters.devices("gaudi")
    assert [
        (row.uuid, row.model, row.node, row.namespace, row.pod, mean(row)) for row in first(answer)
    ] == [("01P0-AA", "", "", "vision", "train-0", 0.75), ("AM501", "", "", "", "", 0.0)]
    assert {row.memory_used_peak_mib for row in answer.rows} == {8192.0}
    assert [row.energy_wh for row in first(answer)] == pytest.approx([WATTS / 2] * 2, rel=1e-3)
    assert only_job(answer).workload_labels is WorkloadLabels.OLD


def test_hami_shows_gpus_that_no_other_exporter_measures(clusters: Clusters) -> None:
    answer = clusters.devices("hami")
    found = {row.uuid: (row.model, row.node, row.pod, mean(row)) for row in first(answer)}
    assert found["GPU-h0"] == ("NVIDIA A100-SXM4-80GB", "m1", "", 0.4)
    assert found["GPU-h2"] == ("NVIDIA A100-SXM4-80GB", "m2", "", 0.6)
    assert found["GPU-v1"][2:] == ("train-1", 0.3), "DCGM measures better"
    assert {row.energy_wh for row in first(answer) if row.uuid != "GPU-v1"} == {None}
    assert {row.memory_used_peak_mib for row in answer.rows if row.uuid == "GPU-h0"} == {8192.0}


def test_two_vendors_share_a_cluster(clusters: Clusters) -> None:
    answer = clusters.devices("two-vendors")
    assert means(answer) == {("GPU-v1", "train-1"): 0.3, ("c3ff-7", "train-0"): 0.75}
    assert answer.profile.families == (Family.AMD, Family.DCGM)
    assert answer.activity_metric == f"{ACTIVITY}, gpu_gfx_activity"


# ---------------------------------------------------------------- pitfalls


def test_pitfall_9_percent_and_ratio_are_one_unit(clusters: Clusters) -> None:
    found = means(clusters.devices("mixed-models"))
    assert found["GPU-t2", "b"] == found["GPU-a1", "c"] == 0.8


def test_pitfall_15_idle_gpus_belong_to_no_namespace_where_labels_clash(
    clusters: Clusters,
) -> None:
    answer = clusters.devices("amd-prefixed")
    assert {(row.uuid, row.namespace) for row in answer.rows} == {
        ("c3ff-9", "vision"), ("c3ff-8", ""),
    }  # fmt: skip


def test_pitfall_16_no_gpu_is_lost_while_hostname_is_renamed(clusters: Clusters) -> None:
    answer = clusters.devices("upgrading")
    assert {row.uuid: row.node for row in answer.rows} == {f"GPU-g{n}": f"n{n}" for n in range(10)}


def test_pitfall_34_millijoules_and_microjoules_are_both_watt_hours(clusters: Clusters) -> None:
    rows = first(clusters.devices("two-vendors"))
    assert [row.energy_wh for row in rows] == pytest.approx([WATTS / 2] * 2, rel=1e-3)


def test_pitfall_35_memory_is_in_mib_whatever_the_exporter_counts_in(clusters: Clusters) -> None:
    memory = {
        world: first(clusters.devices(world))[0].memory_used_peak_mib for world in ("amd", "intel")
    }
    assert memory == {"amd": 1000.0, "intel": 4096.0}


def test_pitfall_45_a_gpu_without_any_metric_is_without_metrics_not_idle(
    clusters: Clusters,
) -> None:
    answer = clusters.devices("mixed-models")
    assert means(answer)["GPU-t1", "a"] is None
    assert only_job(answer).activity_metrics == (
        ("NVIDIA A100-SXM4-80GB", (ACTIVITY,)),
        ("Tesla T4", (UTILIZATION,)),
    )


def test_pitfall_47_an_exporter_that_is_away_is_missing_not_zero(clusters: Clusters) -> None:
    answer = clusters.devices("away")
    assert [row.slot for row in answer.rows] == [ORIGIN]
    assert clusters.devices("away", THREE_HOURS).rows == answer.rows


def test_pitfall_50_a_gpu_that_two_releases_show_is_one_gpu(clusters: Clusters) -> None:
    rows = [row for row in clusters.devices("both-releases").rows if row.uuid == "GPU-o1"]
    assert [(row.slot, row.samples) for row in rows] == [(ORIGIN, 60), (ORIGIN + SLOT, 60)]


def test_a_server_that_lists_no_labels_is_read_all_the_same(url: str, clusters: Clusters) -> None:
    def without_labels(asked: Asked) -> Answer:
        if asked.path.endswith("/labels"):
            return Answer(b"404 page not found", 404)
        return Answer(forwarded(url, asked))

    with scripted(without_labels) as server:
        source = clusters.source("working", server.url)
        answer = source.devices(FIRST_HOUR)
        source.close()
    assert sorted(answer.rows) == sorted(clusters.devices("working").rows)
    assert only_job(answer).label_names is None
    assert only_job(answer).generation is Generation.UNKNOWN
