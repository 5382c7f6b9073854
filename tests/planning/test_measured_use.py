"""What a unit of GPUs holds of what was measured on whole ones."""

import pytest

from apps.accounts.domain.structs import replace
from apps.planning.domain.measured_use import GpuOffer, MeasuredUse, holds, unit_memory_mib
from tests.factories import A100, H100

PRODUCT = "nvidia.com/gpu.product"
GPU, SLICE = "nvidia.com/gpu", "nvidia.com/mig-3g.40gb"
USE = MeasuredUse(A100, days=9, memory_peak_mib=20_000.0, p95_activity=0.4)
PART = GpuOffer("slices", SLICE, A100, "unknown", 0.5, 38_912.0, is_part=True)
WHOLE = GpuOffer("gold", GPU, H100, "unknown", 1.0, 81_920.0, is_part=False)


@pytest.mark.parametrize(
    ("resource", "labels", "share", "memory"),
    [
        pytest.param(GPU, {PRODUCT: H100}, 1.0, 81_920.0, id="whole"),
        pytest.param(GPU, {PRODUCT: H100}, 0.25, 20_480.0, id="a replica of four"),
        pytest.param(SLICE, {PRODUCT: A100}, 3 / 7, 38_912.0, id="half of the memory slices"),
        pytest.param(SLICE, {PRODUCT: A100}, 3 / 14, 19_456.0, id="a replica of a MIG device"),
        pytest.param(GPU, {PRODUCT: "nobody's"}, 1.0, None, id="a model that is not known"),
    ],
)
def test_a_unit_has_its_part_of_the_memory(
    resource: str, labels: dict[str, str], share: float, memory: float | None
) -> None:
    assert unit_memory_mib(resource, labels, share) == (memory and pytest.approx(memory))


@pytest.mark.parametrize(
    ("offer", "use", "does"),
    [
        pytest.param(PART, USE, True, id="a part with headroom"),
        pytest.param(PART, replace(USE, p95_activity=0.45), False, id="a part too slow"),
        pytest.param(PART, replace(USE, memory_peak_mib=33_000.0), False, id="too little memory"),
        pytest.param(WHOLE, replace(USE, p95_activity=1.0), True, id="a faster model"),
        pytest.param(
            replace(WHOLE, gpu_model="NVIDIA-L4"), USE, False, id="a model too slow for it"
        ),
        pytest.param(replace(WHOLE, gpu_model="nobody's"), USE, False, id="of unknown speed"),
        pytest.param(replace(PART, memory_mib=None), USE, False, id="of unknown memory"),
        pytest.param(PART, replace(USE, memory_peak_mib=None), False, id="no memory measured"),
        pytest.param(PART, replace(USE, p95_activity=None), False, id="no activity measured"),
    ],
)
def test_what_holds_has_room_for_the_peak_and_a_fifth_more(
    offer: GpuOffer, use: MeasuredUse, does: bool
) -> None:
    assert holds(offer, use) is does
