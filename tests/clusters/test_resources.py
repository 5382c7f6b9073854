from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.clusters.domain.resources import (
    counts_no_device,
    desanitise,
    effective_request,
    gpu_amounts,
    is_gpu,
    parse_quantity,
    sanitise,
    whole_request,
)


@pytest.mark.parametrize(
    ("resource", "gpu"),
    [
        ("nvidia.com/gpu", True),
        ("nvidia.com/gpu.shared", True),
        ("nvidia.com/mig-1g.10gb", True),
        ("amd.com/gpu", True),
        ("gpu.intel.com/xe", True),
        ("gpu.intel.com/i915_monitoring", False),
        ("aws.amazon.com/neuroncore", True),
        ("habana.ai/gaudi", True),
        ("google.com/tpu", True),
        ("huawei.com/Ascend910", True),
        ("huawei.com/Ascend910-4c", False),
        ("huawei.com/Ascend310P-2c", True),
        ("huawei.com/Ascend310P-4c.3cpu", True),
        ("huawei.com/Ascend310P-memory", False),
        ("huawei.com/Ascend310P-Unhealthy", False),
        ("nvidia.com/gpumem", True),
        ("nvidia.com/gpumem-percentage", False),
        ("nvidia.com/gpucores", False),
        ("cpu", False),
        ("rdma/hca", False),
        ("example.com/accelerator", False),
    ],
)
def test_gpu_resources_are_known_by_their_prefix(resource: str, *, gpu: bool) -> None:
    assert is_gpu(resource) is gpu


def test_a_resource_that_a_tier_names_is_a_gpu_resource() -> None:
    assert is_gpu("example.com/accelerator", {"example.com/accelerator"})


@pytest.mark.parametrize(
    ("text", "value"),
    [("2", 2.0), (4, 4.0), ("1500m", 1.5), ("2k", 2000.0), ("1Gi", 2.0**30), ("1e3", 1000.0)],
)
def test_quantities_are_read_as_kubernetes_writes_them(text: object, value: float) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize("text", ["", "many", "-1", "1 Gi", None])
def test_other_texts_are_no_quantity(text: object) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        parse_quantity(text)


def test_a_strange_amount_does_not_hide_the_others() -> None:
    amounts = {"nvidia.com/gpu": "8", "nvidia.com/mig-1g.5gb": "lots", "cpu": "4"}
    assert gpu_amounts(amounts) == {"nvidia.com/gpu": 8.0}


def test_what_hami_counts_of_each_gpu_is_no_number_of_gpus() -> None:
    amounts = {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}
    spec = {"containers": [{"resources": {"limits": amounts | {"cpu": "4"}}}]}
    assert gpu_amounts(amounts) == {"nvidia.com/gpu": 2.0}
    assert effective_request(spec["containers"]) == {"nvidia.com/gpu": 2.0}
    # The scheduler, too, passes over it: no node offers any.
    assert whole_request(spec) == {"cpu": 4.0, "nvidia.com/gpu": 2.0}
    assert [counts_no_device(sanitise(one)) for one in amounts] == [False, True, True]


@pytest.mark.parametrize(
    "resource",
    [
        *("aws.amazon.com/neuron", "habana.ai/gaudi", "google.com/tpu", "huawei.com/Ascend910B"),
        *("huawei.com/Ascend310P-2c", "huawei.com/Ascend310P-2c.1cpu"),
    ],
)
def test_resources_of_other_vendors_come_back_from_series(resource: str) -> None:
    assert desanitise(sanitise(resource)) == resource


def container(units: int, *, always: bool = False) -> dict[str, Any]:
    spec: dict[str, Any] = {"resources": {"limits": {"nvidia.com/gpu": str(units)}}}
    return spec | ({"restartPolicy": "Always"} if always else {})


@pytest.mark.parametrize(
    ("containers", "inits", "units"),
    [
        pytest.param([1], [], 1, id="one"),
        pytest.param([1, 2], [], 3, id="containers add up"),
        pytest.param([1], [(1, False)], 1, id="an init container comes first, not on top"),
        pytest.param([1], [(4, False)], 4, id="a greedy init container"),
        pytest.param([1], [(1, True)], 2, id="a sidecar stays"),
        pytest.param([1], [(1, True), (4, False)], 5, id="a sidecar beside an init container"),
        pytest.param([1], [(4, False), (1, True)], 4, id="a sidecar after an init container"),
        pytest.param([0], [], None, id="zero is no request"),
    ],
)
def test_the_effective_request_is_the_most_held_at_once(
    containers: list[int], inits: list[tuple[int, bool]], units: int | None
) -> None:
    request = effective_request(
        [container(n) for n in containers], [container(n, always=a) for n, a in inits]
    )
    assert request.get("nvidia.com/gpu") == units


@pytest.mark.parametrize(
    "name",
    [
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "nvidia.com/mig-1g.10gb",
        "nvidia.com/mig-1g.10gb.shared",
        "nvidia.com/mig-1g.10gb.me",
        "amd.com/gpu",
        "gpu.intel.com/xe",
    ],
)
def test_known_names_survive_sanitising(name: str) -> None:
    assert desanitise(sanitise(name)) == name


def test_a_name_that_a_tier_uses_survives_sanitising() -> None:
    assert desanitise("example_com_npu_v2", ["example.com/npu-v2"]) == "example.com/npu-v2"


@given(st.text())
def test_any_other_name_comes_back_unchanged_or_as_a_gpu(name: str) -> None:
    clean = sanitise(name)
    assert desanitise(clean) == clean or is_gpu(desanitise(clean))
