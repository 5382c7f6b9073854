"""What exporters show of GPUs that are shared, and what is true of them."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from apps.accounts.domain.structs import replace
from simulator.fleet import GPU_SHARED, MIG_PREFIX, Exporter, Node
from simulator.machines import A100, gpu_node
from simulator.scenarios.base import Scenario
from tests.simulator.scenario_truth import doings, holdings
from tests.simulator.sharing import (
    Fleet,
    every_kind,
    exporter,
    mig_node,
    rows,
    samples,
    shared_node,
    tenant,
)
from tests.simulator.small import ORIGIN

ACTIVITY = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
UTILIZATION = "DCGM_FI_DEV_GPU_UTIL"
POWER = "DCGM_FI_DEV_POWER_USAGE"
Rows = Iterable[tuple[Mapping[str, str], float]]
VIRTUAL: dict[str, Any] = {"virtual_gpus": True, "resource_names": (GPU_SHARED,)}


def pair(setup: Exporter, *, renamed: bool = True) -> Fleet:
    """Return two pods, 0.6 and 0.3, on the first of two cards."""
    resource = GPU_SHARED if renamed else "nvidia.com/gpu"
    pods = [
        tenant("a", "shared", resource=resource, activity=0.6, memory_mib=6000),
        tenant("b", "shared", resource=resource, activity=0.3, memory_mib=3000),
    ]
    return Fleet([shared_node(setup, renamed=renamed)], pods)


def lone_gpu(**changes: object) -> Node:
    """Return a node with one GPU that differs from a good one."""
    node = gpu_node(
        seed="fleet", name="lone", position=1, gpu=A100, gpus=1, created=ORIGIN,
        exporters=(exporter(),),
    )  # fmt: skip
    return replace(node, devices=(replace(node.devices[0], **changes),))  # type: ignore[arg-type]


def by_pod(found: Rows, label: str = "exported_pod") -> dict[tuple[str, str], float]:
    return {(labels["gpu"], labels.get(label, "")): value for labels, value in found}


def test_virtual_gpus_copy_the_gpus_value_to_every_pod() -> None:
    found = by_pod(rows(pair(exporter((4, 4, 0), **VIRTUAL)), UTILIZATION))

    assert found == {("0", "a"): 90.0, ("0", "b"): 90.0}


def test_rows_of_idle_gpus_vanish_up_to_4_8_1_while_a_pod_is_on_the_node() -> None:
    old, new = (pair(exporter(version, **VIRTUAL)) for version in ((4, 8, 1), (4, 8, 2)))

    assert {gpu for gpu, _ in by_pod(rows(old, ACTIVITY))} == {"0"}
    assert {gpu for gpu, _ in by_pod(rows(new, ACTIVITY))} == {"0", "1"}
    assert {gpu for gpu, _ in by_pod(rows(Fleet(old.nodes), ACTIVITY))} == {"0", "1"}


def test_from_4_8_2_utilization_and_memory_are_by_process_beside_the_gpu() -> None:
    fleet = pair(exporter((4, 8, 2), **VIRTUAL))

    assert by_pod(rows(fleet, UTILIZATION)) == {
        ("0", "a"): 60.0, ("0", "b"): 30.0, ("0", ""): 90.0, ("1", ""): 0.0,
    }  # fmt: skip
    assert by_pod(rows(fleet, "DCGM_FI_DEV_FB_USED"))["0", "b"] == 3000.0
    assert by_pod(rows(fleet, ACTIVITY)) == {
        ("0", "a"): 0.9, ("0", "b"): 0.9, ("1", ""): 0.0,
    }  # fmt: skip


def test_without_host_pid_processes_read_0() -> None:
    found = by_pod(rows(pair(exporter((4, 8, 2), host_pid=False, **VIRTUAL)), UTILIZATION))

    assert (found["0", "a"], found["0", "b"], found["0", ""]) == (0.0, 0.0, 90.0)


def test_without_virtual_gpus_one_pod_has_it_all_and_it_is_not_always_the_same() -> None:
    fleet = pair(exporter(), renamed=False)
    seen = {
        tuple(name for gpu, name in by_pod(rows(fleet, UTILIZATION, at=at)) if gpu == "0")
        for at in range(300, 40_000, 900)
    }
    counted = samples(fleet, f'{ACTIVITY}{{gpu="0"}}[30m]', 3599)

    assert {name for names in seen for name in names} == {"a", "b"}
    assert sum(len(row.samples) for row in counted) == 60


def test_a_renamed_resource_is_not_mapped_unless_it_is_listed() -> None:
    found = by_pod(rows(pair(exporter()), UTILIZATION))

    assert found == {("0", ""): 90.0, ("1", ""): 0.0}


def test_mig_rows_have_the_gpus_uuid_and_no_utilization() -> None:
    pods = [tenant("a", "mig", resource=f"{MIG_PREFIX}3g.40gb", instances=(1,), watts=300.0)]
    fleet = Fleet([mig_node(exporter())], pods)
    found = rows(fleet, ACTIVITY)
    cut = [labels for labels, _ in found if "GPU_I_ID" in labels]

    assert len(found) == 2 + 7 + 1
    assert len({labels["UUID"] for labels in cut}) == 2
    assert {labels["GPU_I_PROFILE"] for labels in cut} == {"3g.40gb", "1g.10gb"}
    assert [labels["GPU_I_ID"] for labels, value in found if value] == ["2"]
    assert [labels["gpu"] for labels, _ in rows(fleet, UTILIZATION)] == ["2"]
    assert [v for labels, v in rows(fleet, POWER) if labels["gpu"] == "0"] == [300.0, 300.0]


def test_honored_labels_name_the_workload_plainly() -> None:
    found = rows(pair(exporter(honor_labels=True), renamed=False), UTILIZATION)
    plain = {labels["gpu"]: labels["pod"] for labels, _ in found}

    assert plain["0"] in {"a", "b"}
    assert plain["1"].startswith("nvidia-dcgm-exporter")
    assert all("exported_pod" not in labels for labels, _ in found)


@pytest.mark.parametrize(
    ("version", "label"), [((4, 8, 2), "Hostname"), ((4, 8, 3), "hostname")], ids=str
)
def test_the_label_of_the_host_changed(version: tuple[int, int, int], label: str) -> None:
    assert all(labels[label] == "shared" for labels, _ in rows(pair(exporter(version)), POWER))


def test_without_the_mapping_nobody_is_named() -> None:
    found = rows(pair(exporter(kubernetes=False), renamed=False), UTILIZATION)

    assert by_pod(found) == {("0", ""): 90.0, ("1", ""): 0.0}


@pytest.mark.parametrize(("version", "count"), [((3, 5, 0), 0), ((4, 4, 0), 2)], ids=str)
def test_reserved_memory_is_shown_from_4_4(version: tuple[int, int, int], count: int) -> None:
    assert len(rows(pair(exporter(version)), "DCGM_FI_DEV_FB_RESERVED")) == count


def test_a_second_exporter_shows_every_gpu_again() -> None:
    node = gpu_node(
        seed="fleet", name="whole", position=1, gpu=A100, gpus=2, created=ORIGIN,
        exporters=(exporter(), exporter(job="other", kubernetes=False)),
    )  # fmt: skip
    found = rows(Fleet([node], [tenant("a", "whole", activity=0.4)]), ACTIVITY)

    assert len(found) == 4
    assert sorted(value for _, value in found) == [0.0, 0.0, 0.4, 0.4]
    assert len({(labels["job"], labels["instance"]) for labels, _ in found}) == 2


def test_the_claims_of_a_gpu_are_on_its_rows_from_4_8_3() -> None:
    found = {labels.get("exported_pod"): labels for labels, _ in rows(every_kind(), ACTIVITY)}

    assert found["k"]["dra_claim_name"] == found["l"]["dra_claim_name"] == "c-1"
    assert found["m"]["dra_mig_profile"] == "3g.40gb"


def test_the_last_error_stays_and_says_its_text() -> None:
    node = lone_gpu(xids=((ORIGIN + 1000, 79),))
    before, after = (rows(Fleet([node]), "DCGM_FI_DEV_XID_ERRORS", at=at) for at in (900, 90_000))

    assert [(v, labels["err_msg"]) for labels, v in before] == [(0.0, "No Error")]
    assert [(v, labels["err_code"]) for labels, v in after] == [(79.0, "79")]


def test_a_stuck_counter_reads_0_while_power_does_not() -> None:
    fleet = Fleet([lone_gpu(stuck=True)], [tenant("a", "lone", watts=350.0)])

    assert [value for _, value in rows(fleet, ACTIVITY)] == [0.0]
    assert [value for _, value in rows(fleet, UTILIZATION)] == [50.0]
    assert [value for _, value in rows(fleet, POWER)] == [350.0]


def test_gpus_older_than_the_profiling_counters_have_none(openb: Scenario) -> None:
    models = {labels["modelName"] for labels, _ in rows(openb, ACTIVITY)}
    every = {labels["modelName"] for labels, _ in rows(openb, UTILIZATION)}

    assert every - models == {"P100"}


# ---------------------------------------------------------------- what is true


def test_what_pods_hold_weighs_at_most_what_gpus_are() -> None:
    held: dict[str, float] = defaultdict(float)
    for holding in holdings(every_kind(), ORIGIN + 2000, ORIGIN + 2001):
        held[holding.device.uuid] += holding.gpus
    by_name = {h.pod.name: h for h in holdings(every_kind(), ORIGIN, ORIGIN + 3600)}

    assert max(held.values()) <= 1.0 + 1e-9
    assert by_name["d"].gpus == pytest.approx(3 / 7)
    assert by_name["f"].gpus == pytest.approx(2 / 4)
    assert by_name["g"].gpus == pytest.approx(1 / 4)
    assert by_name["k"].gpus == by_name["l"].gpus == 0.5
    assert by_name["h"].gpu_hours == pytest.approx(0.25 * 2600 / 3600)


def test_a_gpus_activity_is_that_of_its_tenants_and_at_most_all() -> None:
    fleet = every_kind()
    mps = [d for d in doings(fleet, ORIGIN, ORIGIN + 3600) if d.node.name == "mps"]

    assert [(d.start - ORIGIN, d.end - ORIGIN, d.activity) for d in mps] == [
        (60, 1700, 0.7),
        (1700, 3333, 1.0),
        (3333, 3600, 0.6),
    ]
    assert all(math.fsum(d.parts.values()) == pytest.approx(d.activity) for d in mps)


def test_samples_say_what_is_true_of_every_gpu() -> None:
    fleet = every_kind()
    truth: dict[tuple[str, str], float] = defaultdict(float)
    for doing in doings(fleet, ORIGIN + 7200, ORIGIN + 9000):
        number = doing.device.instances[doing.instance].number if doing.instance >= 0 else ""
        truth[doing.device.uuid, str(number)] += doing.activity * (doing.end - doing.start) / 1800
    shown: dict[tuple[str, str], float] = defaultdict(float)
    for labels, value in rows(fleet, ACTIVITY, at=8999):
        key = (labels["UUID"], labels.get("GPU_I_ID", ""))
        shown[key] = max(shown[key], value)

    assert {key: value for key, value in shown.items() if value} == pytest.approx(truth)
    assert any(not name for d in doings(fleet, ORIGIN, ORIGIN + 9000) for name in d.parts)
