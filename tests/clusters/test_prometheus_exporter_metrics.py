"""The names and labels of each family, held against its own files."""

import csv
import re
from pathlib import Path

import pytest

from apps.clusters.adapters.prometheus.dcgm.exporters import (
    AMD,
    AMD_OLD,
    AMD_PREFIXED,
    DCGM,
    DCGM_1,
    INTEL,
    INTEL_GROUPS,
    KNOWN_EXPORTERS,
    ExportedHolder,
    ExporterMetrics,
    HolderLabels,
    exporters_with,
)
from apps.clusters.adapters.prometheus.dcgm.vendors import AmdLabels, IntelLabels, device_matchers
from apps.clusters.adapters.prometheus.http_api import Matcher, over
from apps.clusters.domain.devices.exporter_profile import Family

FACTS = Path(__file__).parent / "facts"
_SAMPLE = re.compile(r"(\w+)\{(.*)\} (\S+)")


def metrics_of(file: str) -> dict[str, tuple[str, str]]:
    """Return (type, help) of the metrics that a counters file turns on."""
    lines = (FACTS / file).read_text(encoding="utf-8").splitlines()
    rows = csv.reader(line for line in lines if line.strip() and not line.startswith("#"))
    return {row[0].strip(): (row[1].strip(), ",".join(row[2:]).strip()) for row in rows}


@pytest.mark.parametrize(
    ("exporter", "file"),
    [
        (DCGM, "dcgm-exporter-default-counters.csv"),
        (DCGM_1, "dcgm-exporter-1.x-compatibility-metrics.csv"),
    ],
    ids=["today", "1.x"],
)
def test_metrics_are_on_by_default_and_in_these_units(exporter: ExporterMetrics, file: str) -> None:
    known = metrics_of(file)
    assert "MiB" in known[exporter.memory][1]
    assert "mJ" in known[exporter.energy][1]
    assert known[exporter.energy][0] == "counter"
    assert "(in %)" in known[exporter.utilization][1]
    assert known[exporter.activity][0] == "gauge"
    assert exporter.is_percent(exporter.utilization)
    assert not exporter.is_percent(exporter.activity)


def amd_sample() -> dict[str, tuple[dict[str, str], float]]:
    """Return labels and value of each metric with labels in AMD's older exposition."""
    text = (FACTS / "amd-device-metrics-exporter-metrics_mini.prom.txt").read_text("utf-8")
    found = {}
    for line in text.splitlines():
        match = _SAMPLE.fullmatch(line)
        if match:
            labels = dict(re.findall(r'(\w+)="([^"]*)"', match[2]))
            found[match[1]] = (labels, float(match[3]))
    return found


def test_the_older_exposition_of_amd_is_understood() -> None:
    sample = amd_sample()
    assert exporters_with(set(sample)) == [AMD_OLD]
    labels, value = sample[AMD_OLD.activity]
    assert value == 0.0
    known = AmdLabels(old_uuid=labels["GPU_UUID"], old_serial=labels["SERIAL_NUMBER"])
    assert known.key(exported=False) == HolderLabels("6699c0a8-4200-4242-037f-f97e6cae0f09")


@pytest.mark.parametrize(
    ("exporter", "memory", "energy"),
    [
        (DCGM, (1024.0, 1024.0), (3.6e6, 1.0)),
        (AMD, (1048.576, 1000.0), (3.6e9, 1.0)),
        (INTEL, (2.0**30, 1024.0), (3600.0, 1.0)),
    ],
    ids=["dcgm", "amd", "intel"],
)
def test_units_become_mib_and_watt_hours(
    exporter: ExporterMetrics, memory: tuple[float, float], energy: tuple[float, float]
) -> None:
    assert memory[0] * exporter.mib == pytest.approx(memory[1])
    assert energy[0] * exporter.wh == pytest.approx(energy[1])


@pytest.mark.parametrize(
    ("signs", "expected"),
    [
        ({DCGM.memory}, [DCGM]),
        ({"dcgm_fb_used", DCGM.memory}, [DCGM, DCGM_1]),
        ({"gpu_usage", "gpu_gfx_activity"}, [AMD]),
        ({"amd_gpu_gfx_activity"}, [AMD_PREFIXED]),
        ({"xpum_engine_group_ratio", "xpum_engine_ratio"}, [INTEL]),
        ({"xpum_engine_group_ratio"}, [INTEL_GROUPS]),
        ({"node_load1"}, []),
    ],
)
def test_a_job_shows_one_exporter_of_each_family(
    signs: set[str], expected: list[ExporterMetrics]
) -> None:
    assert exporters_with(signs) == expected


def test_a_metric_of_several_names_is_one_selector() -> None:
    assert over("increase", INTEL.energy, (Matcher("cluster", "=", "c"),)) == (
        'increase({__name__=~"xpum_energy_joules|xpum_energy_joules_total",cluster="c"}[30m])'
    )


@pytest.mark.parametrize(
    ("labels", "uuid", "instance"),
    [
        (AmdLabels(gpu_uuid="u", serial_number="s", gpu_id="3"), "u", ""),
        (AmdLabels(serial_number="s", gpu_id="3"), "s", ""),
        (AmdLabels(gpu_id="3", hostname="a1"), "a1/gpu3", ""),
        (AmdLabels(old_id="3", old_hostname="a1"), "a1/gpu3", ""),
        (AmdLabels(gpu_uuid="u", gpu_partition_id="0"), "u", ""),
        (AmdLabels(gpu_uuid="u", gpu_partition_id="5", gpu_compute_partition_type="cpx"), "u", "5"),
        (AmdLabels(gpu_uuid="u", gpu_partition_id="0", gpu_compute_partition_type="SPX"), "u", ""),
    ],
)
def test_amd_gpus_have_one_identity(labels: AmdLabels, uuid: str, instance: str) -> None:
    key = labels.key(exported=False)
    assert key is not None
    assert (key.uuid, key.gpu_instance) == (uuid, instance)
    assert (labels.device_labels(uuid).uuid, labels.device_labels(uuid).gpu_instance) == (
        uuid,
        instance,
    )


def test_rows_without_a_device_are_no_device() -> None:
    assert AmdLabels(pod="x").key(exported=False) is None
    assert IntelLabels(sub_dev="1").key(exported=False) is None


def test_renamed_labels_of_amd_leave_the_exporters_own_aside() -> None:
    labels = AmdLabels(gpu_uuid="u", pod="exporter-x", exported_pod="train-0")
    assert labels.key(exported=True) == ExportedHolder("u", "", "", "train-0", "")


@pytest.mark.parametrize(
    # Of Neuron the node is asked for: no series names a device.
    "exporter",
    [d for d in KNOWN_EXPORTERS if not d.native and d.family is not Family.NEURON],
)
def test_devices_are_asked_for_by_every_label_that_may_name_them(exporter: ExporterMetrics) -> None:
    labels = [matcher.label for matcher in device_matchers(exporter, ["u", "a1/gpu3"])]
    own = {
        Family.INTEL: ["uuid"],
        Family.ASCEND: ["vdie_id"],
        Family.TPU: ["accelerator_id"],
        Family.GAUDI: ["UUID", "Serial"],
        Family.HAMI: ["device_uuid", "deviceuuid"],
    }
    of_amd = ["gpu_uuid", "GPU_UUID", "serial_number", "SERIAL_NUMBER", "gpu_id", "GPU_ID"]
    assert labels == own.get(exporter.family, of_amd)
