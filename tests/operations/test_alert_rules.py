"""The alert rules: Prometheus takes them, and each goes off where it should and only there."""

import subprocess
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import call_command

from apps.operations.domain.alert_rules import HARDWARE_XIDS, prometheus_rule, rule_file
from tests.programs import find

GPU = 'UUID="GPU-1",modelName="A100",hostname="node-1"'
OLD = 'UUID="GPU-1",modelName="A100",Hostname="node-1"'


def printed(*arguments: str) -> Any:
    out = StringIO()
    call_command("alert_rules", *arguments, stdout=out)
    return yaml.safe_load(out.getvalue())


def test_the_command_prints_a_prometheus_rule() -> None:
    made = printed()
    assert made == prometheus_rule()
    assert made["kind"] == "PrometheusRule"


def test_the_command_prints_a_plain_rules_file() -> None:
    assert printed("--plain") == rule_file() == prometheus_rule()["spec"]


def test_no_rule_takes_the_code_of_an_xid_for_a_count() -> None:
    gpus, _ = rule_file()["groups"]
    for rule in gpus["rules"]:
        assert "increase(" not in rule["expr"]
        assert "rate(" not in rule["expr"]


def series(name: str, labels: str, values: str) -> dict[str, str]:
    return {"series": f"{name}{{{labels}}}", "values": values}


def memory(labels: str, used: int) -> list[dict[str, str]]:
    return [
        series("DCGM_FI_DEV_FB_USED", labels, f"{used}x200"),
        series("DCGM_FI_DEV_FB_FREE", labels, f"{1000 - used}x200"),
    ]


SHARING = series(
    "kube_node_labels",
    'node="node-1",label_nvidia_com_gpu_sharing_strategy="time-slicing"',
    "1x200",
)
ACTIVITY = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
REQUESTS = "kube_pod_container_resource_requests"


def mig(pods: int, phase: str = "Running") -> list[dict[str, str]]:
    """Return a node of two MIG devices and as many pods that hold one."""
    of = 'resource="nvidia_com_mig_3g_40gb",unit="integer"'
    rows = [series("kube_node_status_allocatable", f'node="node-1",{of}', "2x200")]
    for n in range(pods):
        pod = f'namespace="ml",pod="p-{n}",uid="u-{n}"'
        rows.append(series(REQUESTS, f'{pod},container="c",node="node-1",{of}', "1x200"))
        rows.append(series("kube_pod_status_phase", f'{pod},phase="{phase}"', "1x200"))
    return rows


GPUS_OF_NODE = series(
    "kube_node_status_allocatable",
    'node="node-1",resource="nvidia_com_gpu",unit="integer"',
    "8x200",
)

CASES = [
    pytest.param(
        "GpuAllocatedAndIdle",
        [series(ACTIVITY, f'{GPU},exported_namespace="ml",exported_pod="a",pod="e"', "0.02x200")],
        1,
        id="idle-with-renamed-labels",
    ),
    pytest.param(
        "GpuAllocatedAndIdle",
        [series(ACTIVITY, f'{GPU},namespace="ml",pod="a"', "0.02x200")],
        1,
        id="idle-with-plain-labels",
    ),
    pytest.param(
        "GpuAllocatedAndIdle",
        [series(ACTIVITY, f'{GPU},namespace="gpu",pod="nvidia-dcgm-exporter-x"', "0.02x200")],
        0,
        id="a-card-that-nobody-holds-is-not-idle",
    ),
    pytest.param(
        "GpuAllocatedAndIdle",
        [series(ACTIVITY, f'{GPU},exported_namespace="ml",exported_pod="a"', "0.02x60 0.9x140")],
        0,
        id="busy-again-within-two-hours",
    ),
    pytest.param(
        "GpuMemoryPressureOnSharedCard",
        [
            *memory(f'{GPU},exported_namespace="ml",exported_pod="a"', 970),
            *memory(f'{GPU},exported_namespace="ml",exported_pod="b"', 970),
        ],
        1,
        id="full-with-two-pods-named",
    ),
    pytest.param(
        "GpuMemoryPressureOnSharedCard",
        [*memory(f'{GPU},exported_namespace="ml",exported_pod="a"', 970), SHARING],
        1,
        id="full-on-a-node-that-shares",
    ),
    pytest.param(
        "GpuMemoryPressureOnSharedCard",
        [*memory(f'{OLD},exported_namespace="ml",exported_pod="a"', 970), SHARING],
        1,
        id="full-with-the-old-name-of-the-node",
    ),
    pytest.param(
        "GpuMemoryPressureOnSharedCard",
        memory(f'{GPU},exported_namespace="ml",exported_pod="a"', 970),
        0,
        id="a-full-card-of-one-pod-is-its-own-matter",
    ),
    pytest.param(
        "GpuMemoryPressureOnSharedCard",
        [*memory(f'{GPU},exported_namespace="ml",exported_pod="a"', 500), SHARING],
        0,
        id="half-full",
    ),
    pytest.param("GpuMigProfileExhausted", mig(2), 1, id="both-mig-devices-held"),
    pytest.param("GpuMigProfileExhausted", mig(1), 0, id="one-mig-device-free"),
    pytest.param("GpuMigProfileExhausted", mig(2, "Succeeded"), 0, id="pods-that-are-over"),
    pytest.param(
        "GpuTemperatureHigh", [series("DCGM_FI_DEV_GPU_TEMP", GPU, "91x200")], 1, id="hot"
    ),
    pytest.param(
        "GpuTemperatureHigh",
        [series("DCGM_FI_DEV_GPU_TEMP", f'{GPU},GPU_I_ID="{n}"', "91x200") for n in (1, 2)],
        1,
        id="a-hot-card-of-two-instances-is-one",
    ),
    pytest.param(
        "GpuTemperatureHigh", [series("DCGM_FI_DEV_GPU_TEMP", GPU, "70x200")], 0, id="warm"
    ),
    pytest.param(
        "GpuXidOfHardware", [series("DCGM_FI_DEV_XID_ERRORS", GPU, "79x200")], 1, id="xid-79"
    ),
    pytest.param("GpuXid", [series("DCGM_FI_DEV_XID_ERRORS", GPU, "79x200")], 0, id="79-once"),
    pytest.param(
        "GpuXidOfHardware", [series("DCGM_FI_DEV_XID_ERRORS", GPU, "31x200")], 0, id="31-is-not"
    ),
    pytest.param("GpuXid", [series("DCGM_FI_DEV_XID_ERRORS", GPU, "31x200")], 1, id="xid-31"),
    pytest.param("GpuXid", [series("DCGM_FI_DEV_XID_ERRORS", GPU, "0x200")], 0, id="no-xid"),
    pytest.param("GpuExporterGone", [GPUS_OF_NODE], 1, id="no-exporter"),
    pytest.param(
        "GpuExporterGone", [GPUS_OF_NODE, *memory(GPU, 10)], 0, id="exporter-with-hostname"
    ),
    pytest.param(
        "GpuExporterGone", [GPUS_OF_NODE, *memory(OLD, 10)], 0, id="exporter-with-old-hostname"
    ),
]


@pytest.mark.prometheus
def test_prometheus_takes_the_rules(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    made = rule_file()
    rules.write_text(yaml.safe_dump(made), encoding="utf-8")
    done = subprocess.run(  # noqa: S603 - our own words
        [find("promtool"), "check", "rules", rules], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    count = sum(len(group["rules"]) for group in made["groups"])
    assert count > 20
    assert f"{count} rules found" in done.stdout


@pytest.mark.long
@pytest.mark.prometheus
def test_alerts_go_off_where_they_should_and_only_there(tmp_path: Path) -> None:
    """All cases in one run of promtool: each asks how many alerts there are after three hours."""
    gpus, _ = rule_file()["groups"]
    # The rules of the portal itself have tests of their own, and a minute is often for three hours.
    often = {"groups": [{**gpus, "interval": "5m"}]}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(often), encoding="utf-8")
    tests = []
    for case in CASES:
        alert, rows, count = case.values
        value = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
        expected = [{"labels": "{}", "value": count}] if count else []
        question = {"expr": value, "eval_time": "3h", "exp_samples": expected}
        tests.append(
            {
                "name": case.id,
                "interval": "1m",
                "input_series": rows,
                "promql_expr_test": [question],
            }
        )
    written = {"rule_files": ["rules.yaml"], "evaluation_interval": "5m", "tests": tests}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(written), encoding="utf-8")
    done = subprocess.run(  # noqa: S603 - our own words
        [find("promtool"), "test", "rules", "tests.yaml"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_hardware_xids_are_written_once_each() -> None:
    assert sorted(set(HARDWARE_XIDS)) == list(HARDWARE_XIDS)
