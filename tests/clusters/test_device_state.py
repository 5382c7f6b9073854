"""How healthy a device is by what it and its node say; no database."""

import pytest

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.state import (
    XIDS,
    DeviceHolder,
    DeviceState,
    Health,
    HealthVerdict,
    Limits,
    NodeNow,
    XidKind,
    health_of,
    judged,
    meaning,
    missing_devices,
    of_models,
    with_claims,
)

DEVICE = DeviceState(uuid="GPU-a", node="n1")
HELD = (DeviceHolder("vision", "train-0"),)
READY = NodeNow()


@pytest.mark.parametrize(
    ("state", "node", "health", "reason"),
    [
        (DEVICE, None, Health.OK, None),
        (DEVICE, READY, Health.OK, None),
        (replace(DEVICE, xid=0), READY, Health.OK, None),
        (replace(DEVICE, xid=31), READY, Health.OK, None),
        (replace(DEVICE, xid=79), READY, Health.BROKEN, "XID 79 (hardware)"),
        (replace(DEVICE, xid=63), READY, Health.WATCH, "XID 63 (hardware)"),
        (replace(DEVICE, xid=119), READY, Health.BROKEN, "XID 119 (driver)"),
        (replace(DEVICE, xid=999), READY, Health.WATCH, "XID 999 (unknown)"),
        (replace(DEVICE, remap_failure=True), READY, Health.BROKEN, "could not be replaced"),
        (replace(DEVICE, remap_failure=False), READY, Health.OK, None),
        (replace(DEVICE, remapped_uncorrectable=2), READY, Health.WATCH, "2 memory rows"),
        (replace(DEVICE, remapped_correctable=9), READY, Health.OK, None),
        (replace(DEVICE, temperature_celsius=88.0), READY, Health.OK, None),
        (replace(DEVICE, temperature_celsius=93.0), READY, Health.WATCH, "93 °C, over 88 °C"),
        (replace(DEVICE, memory_temperature_celsius=101.0), READY, Health.WATCH, "memory temp"),
        (DEVICE, NodeNow(ready=False), Health.BROKEN, "node is not ready"),
        (DEVICE, NodeNow(schedulable=False), Health.WATCH, "no new pods"),
        (
            DEVICE,
            NodeNow(withheld=frozenset({("GPU-a", "")})),
            Health.BROKEN,
            "ResourceSlice keeps pods off",
        ),
        (
            replace(DEVICE, profile="1g.10gb"),
            NodeNow(withheld=frozenset({("GPU-a", "")})),
            Health.OK,
            None,
        ),
    ],
)
def test_health_follows_from_what_is_said(
    state: DeviceState, node: NodeNow | None, health: Health, reason: str | None
) -> None:
    verdict = health_of(state, node=node)
    assert verdict.health is health
    expected = [reason] if reason else []
    assert len(verdict.reasons) == len(expected)
    assert all(part in told for part, told in zip(expected, verdict.reasons, strict=True))


def test_the_worst_reason_comes_first_and_none_is_lost() -> None:
    state = replace(DEVICE, temperature_celsius=95.0, remap_failure=True, xid=79)
    verdict = health_of(state, node=NodeNow(schedulable=False))
    assert verdict.health is Health.BROKEN
    assert len(verdict.reasons) == 4
    assert verdict.reasons[0].startswith("XID 79")
    assert verdict.reasons[-1] == "its node takes no new pods"


def test_limits_of_temperature_can_be_given() -> None:
    state = replace(DEVICE, temperature_celsius=80.0)
    assert health_of(state, limits=Limits(temperature_celsius=75.0)).health is Health.WATCH


def devices(*tenants: tuple[DeviceHolder, ...], **values: object) -> list[DeviceState]:
    return [
        DeviceState(uuid=f"GPU-{n}", node="n1", tenants=held, **values)  # type: ignore[arg-type]
        for n, held in enumerate(tenants)
    ]


def healths(states: list[DeviceState], node: NodeNow) -> dict[str, Health]:
    return {uuid: v.health for (uuid, _), v in judged(states, {"n1": node}).items()}


def test_the_one_free_gpu_is_the_one_that_cannot_be_allocated() -> None:
    found = healths(devices(HELD, (), HELD), NodeNow(missing=1))
    assert found == {"GPU-0": Health.OK, "GPU-1": Health.BROKEN, "GPU-2": Health.OK}


def test_of_several_free_gpus_each_is_watched_for_it_is_not_told_which() -> None:
    found = healths(devices(HELD, (), ()), NodeNow(missing=1))
    assert found == {"GPU-0": Health.OK, "GPU-1": Health.WATCH, "GPU-2": Health.WATCH}


def test_a_gpu_that_is_broken_by_its_own_word_accounts_for_the_missing_one() -> None:
    states = devices((), (), ())
    states[2] = replace(states[2], xid=79)
    found = healths(states, NodeNow(missing=1))
    assert found == {"GPU-0": Health.OK, "GPU-1": Health.OK, "GPU-2": Health.BROKEN}


def test_a_node_that_is_not_known_takes_nothing_from_its_devices() -> None:
    states = devices((), HELD)
    assert set(judged(states, {}).values()) == {HealthVerdict(Health.OK)}


GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-1g.10gb"
SLICED = {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": "4"}
A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}


@pytest.mark.parametrize(
    ("capacity", "allocatable", "labels", "missing"),
    [
        ({GPU: 8.0}, {GPU: 8.0}, {}, 0),
        ({GPU: 8.0}, {GPU: 7.0}, A100, 1),
        ({GPU: 8.0}, {}, {}, 8),
        ({GPU: 32.0}, {GPU: 28.0}, SLICED, 1),
        ({MIG: 14.0}, {MIG: 12.0}, {**A100, f"{MIG}.replicas": "1"}, 2),
        ({MIG: 28.0}, {MIG: 24.0}, {**A100, f"{MIG}.replicas": "4"}, 1),
        ({GPU: 0.0}, {GPU: 1.0}, {}, 0),
    ],
    ids=["all", "one", "none left", "a sliced card", "instances", "a sliced instance", "stale"],
)
def test_missing_units_are_counted_back_to_devices(
    capacity: dict[str, float],
    allocatable: dict[str, float],
    labels: dict[str, str],
    missing: int,
) -> None:
    assert missing_devices(capacity, allocatable, labels) == missing


def test_models_compare_without_regard_to_blanks_and_dashes() -> None:
    models = ["NVIDIA A100-SXM4-80GB", "NVIDIA H100", ""]
    assert of_models(models, ["NVIDIA-A100-SXM4-80GB"]) == ["NVIDIA A100-SXM4-80GB"]


def test_who_claimed_a_gpu_is_on_it_where_no_label_says_otherwise() -> None:
    claimed = {("GPU-a", ""): [DeviceHolder("dra", "p"), DeviceHolder("dra", "p")]}
    labelled = replace(DEVICE, tenants=HELD)
    assert with_claims([DEVICE], claimed) == [replace(DEVICE, tenants=(DeviceHolder("dra", "p"),))]
    assert with_claims([labelled], claimed) == [labelled]
    assert with_claims([DEVICE], {}) == [DEVICE]


def test_of_several_instances_of_one_profile_it_is_not_told_which_was_claimed() -> None:
    small = [replace(DEVICE, gpu_instance=n, profile="1g.10gb") for n in ("7", "8")]
    large = replace(DEVICE, gpu_instance="1", profile="3g.40gb")
    claimed = {("GPU-a", p): [DeviceHolder("dra", "p")] for p in ("1g.10gb", "3g.40gb")}
    found = with_claims([*small, large], claimed)
    assert [len(state.tenants) for state in found] == [0, 0, 1]


@pytest.mark.parametrize(
    ("activity", "active"), [(None, False), (0.0, False), (0.005, False), (0.01, True)]
)
def test_a_device_is_active_from_one_percent_on(activity: float | None, active: bool) -> None:
    assert replace(DEVICE, activity_mean=activity).is_active is active


def test_every_code_of_the_list_says_what_to_do() -> None:
    for code, xid in XIDS.items():
        assert xid.code == code
        assert xid.name
        assert xid.advice.endswith(".")
    assert {code for code, xid in XIDS.items() if xid.kind is XidKind.APPLICATION} >= {13, 31, 43}


def test_a_code_that_is_not_listed_is_unknown_and_not_harmless() -> None:
    assert meaning(12345).kind is XidKind.UNKNOWN
