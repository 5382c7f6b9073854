from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.accounts.domain.structs import replace
from apps.costs.domain.recommendations.capacity import (
    HOURS_PER_WEEK,
    empty_nodes,
    mig_layout,
    shared_out,
    unused_quota,
)
from apps.costs.domain.recommendations.evidence import (
    AllocationInterval,
    LayoutEvidence,
    PoolEvidence,
    QuotaEvidence,
    most_at_once,
)
from apps.costs.domain.recommendations.recommendation import (
    HOURS_PER_MONTH,
    Confidence,
    CutLayout,
    Subject,
)
from tests.costs.evidence import A100, PRICE

TOO_LITTLE = [{"coverage": 0.89}, {"coverage": None}, {"days": 6.0}]
QUOTA = QuotaEvidence(
    subject=Subject("west", "vision"),
    key="requests.nvidia.com/gpu",
    days=30,
    coverage=1.0,
    hard=12,
    peak_used=5,
    unallocated_gpus=10.0,
    price_per_gpu_hour=PRICE,
    currency="USD",
)
LAYOUT = LayoutEvidence(
    subject=Subject("west", node="n1", tier="mig"),
    gpu_model=A100,
    gpus=4,
    layout={"3g.40gb": 2},
    most_held={"3g.40gb": 1},
    days=30,
    coverage=1.0,
    price_per_gpu_hour=PRICE,
    currency="USD",
)


def week(counts: Mapping[int, int], weeks: int = 4) -> dict[int, list[int]]:
    return {hour: [counts.get(hour, 0)] * weeks for hour in range(HOURS_PER_WEEK)}


POOL = PoolEvidence(
    subject=Subject("west", workload=f"Pool/spot/{A100}", tier="exclusive-a100"),
    gpu_model=A100,
    capacity_type="spot",
    gpus_per_node=4,
    empty_nodes=week(dict.fromkeys(range(8), 2)),
    days=30,
    coverage=1.0,
    price_per_gpu_hour=PRICE,
    currency="USD",
)


@pytest.mark.parametrize(
    ("changes", "to", "saving"),
    [
        # 5 × 1.2 = 6 are kept of 12; 6 × 730 × 3.06.
        pytest.param({}, "from 12 to 6", "13402.80", id="half is not used"),
        pytest.param({"unallocated_gpus": 2.0}, "to 6", "4467.60", id="only what stands empty"),
        pytest.param({"unallocated_gpus": 0.0}, "to 6", "0.00", id="nothing stands empty"),
        pytest.param({"weight": 1 / 7}, "to 6", "1914.69", id="of MIG devices"),
        pytest.param({"peak_used": 0.0}, "to 0", "22338.00", id="never used"),
        pytest.param({"peak_used": 10.0}, None, None, id="just enough"),
        pytest.param({"peak_used": 11.0}, None, None, id="the headroom would be more than all"),
        pytest.param({"peak_used": 4.5}, "to 6", "13402.80", id="5.4 are six whole units"),
        pytest.param({"unused_in_tier": 24.0}, "to 6", "5584.50", id="a quarter of what is empty"),
        *[pytest.param(changes, None, None, id=str(changes)) for changes in TOO_LITTLE],
    ],
)
def test_quota_that_nobody_used(
    changes: dict[str, Any], to: str | None, saving: str | None
) -> None:
    found = unused_quota(replace(QUOTA, **changes))
    assert (found and str(found.saving_per_month)) == saving
    assert found is None or (to or "") in found.change


quotas = st.builds(
    lambda namespace, hard, peak, weight, coverage: replace(
        QUOTA,
        subject=Subject("west", namespace, f"ResourceQuota/{namespace}", "gold"),
        hard=float(hard),
        peak_used=peak,
        weight=weight,
        coverage=coverage,
    ),
    st.uuids().map(str),
    st.integers(0, 64),
    st.floats(0, 64),
    st.sampled_from([1.0, 0.25, 1 / 7]),
    st.sampled_from([1.0, 1.0, 0.5, None]),
)


@given(st.lists(quotas, max_size=12), st.floats(0, 100))
def test_quotas_of_a_tier_save_no_more_together_than_stood_empty(
    found: list[QuotaEvidence], empty: float
) -> None:
    shared = shared_out(replace(one, unallocated_gpus=empty) for one in found)
    saved = [one.saving_per_month or 0 for one in map(unused_quota, shared) if one is not None]
    half_cents = Decimal("0.005") * len(saved)
    assert sum(saved) <= Decimal(repr(empty)) * HOURS_PER_MONTH * PRICE + half_cents


@given(quotas)
def test_a_quota_is_never_advised_below_what_was_used_nor_above_what_it_is(
    one: QuotaEvidence,
) -> None:
    found = unused_quota(one)
    if found is not None:
        wanted = float(found.change.split(" to ")[1].split(":")[0])
        assert one.peak_used <= wanted < one.hard
        assert wanted == int(wanted)


@pytest.mark.parametrize(
    ("intervals", "most"),
    [
        pytest.param([], 0, id="nothing"),
        pytest.param([AllocationInterval(0, 600, 8)], 8, id="ten minutes are no mean of an hour"),
        pytest.param(
            [
                AllocationInterval(0, 10, 2),
                AllocationInterval(5, None, 3),
                AllocationInterval(7, 8, 1),
            ],
            6,
            id="overlapping",
        ),
        pytest.param(
            [AllocationInterval(0, 10, 2), AllocationInterval(10, 20, 3)],
            3,
            id="one after the other",
        ),
        pytest.param(
            [AllocationInterval(5, 5, 4), AllocationInterval(9, 7, 4)], 0, id="no time at all"
        ),
    ],
)
def test_most_is_what_was_held_at_once(intervals: list[AllocationInterval], most: float) -> None:
    assert most_at_once(intervals) == most


@pytest.mark.parametrize(
    ("changes", "change", "saving"),
    [
        # 1 of 7 slices of 4 GPUs: 4/7 × 730 × 3.06.
        pytest.param({}, "0 instead of 1 of 7 slices", "1276.46", id="one of two halves is held"),
        pytest.param({"most_held": {"3g.40gb": 2}}, None, None, id="both are"),
        pytest.param({"layout": {"1g.10gb": 7}, "most_held": {}}, None, None, id="none stranded"),
        pytest.param(
            {"layout": {"2g.20gb": 3}, "most_held": {"2g.20gb": 3}},
            "1 × 1g.10gb + 3 × 2g.20gb",
            "1276.46",
            id="room beside them",
        ),
        pytest.param({"gpu_model": "NVIDIA-L4"}, None, None, id="not to be cut"),
        pytest.param({"most_held": {"7g.80gb": 2}}, None, None, id="no layout has that"),
        *[pytest.param(changes, None, None, id=str(changes)) for changes in TOO_LITTLE],
    ],
)
def test_a_layout_that_strands_less(
    changes: dict[str, Any], change: str | None, saving: str | None
) -> None:
    found = mig_layout(replace(LAYOUT, **changes))
    assert (found and str(found.saving_per_month)) == saving
    assert found is None or (change or "") in found.change
    values = found and found.change_values
    assert values is None or isinstance(values, CutLayout)
    now = changes.get("layout", LAYOUT.layout)
    assert (values and values[:2]) == (found and (LAYOUT.gpus, now))


@pytest.mark.parametrize(
    ("changes", "text", "hours", "confidence"),
    [
        pytest.param({}, "2 nodes Mon 00:00 to Mon 08:00", 16, Confidence.HIGH, id="a night"),
        pytest.param(
            {"empty_nodes": week(dict.fromkeys([*range(164, 168), *range(4)], 1))},
            "1 node Sun 20:00 to Mon 04:00",
            8,
            Confidence.HIGH,
            id="over the end of the week",
        ),
        pytest.param(
            {"empty_nodes": week(dict.fromkeys(range(10), 1) | dict.fromkeys(range(2, 8), 3))},
            "1 node Mon 00:00 to Mon 10:00; 2 nodes Mon 02:00 to Mon 08:00",
            22,
            Confidence.HIGH,
            id="more of them in between",
        ),
        pytest.param(
            {"empty_nodes": week(dict.fromkeys(range(HOURS_PER_WEEK), 1))},
            "1 node all week",
            168,
            Confidence.HIGH,
            id="always",
        ),
        pytest.param(
            {"empty_nodes": week(dict.fromkeys(range(8), 1), weeks=3)},
            "1 node Mon 00:00",
            8,
            Confidence.MEDIUM,
            id="three weeks",
        ),
        pytest.param(
            {"empty_nodes": week({5: 1}) | {5: [9, 9, 0, 9]}}, None, 0, None, id="not every week"
        ),
        pytest.param(
            {"empty_nodes": week(dict.fromkeys(range(3), 1))}, None, 0, None, id="too short"
        ),
        pytest.param({"empty_nodes": week({}, weeks=4)}, None, 0, None, id="never"),
        pytest.param(
            {"empty_nodes": week(dict.fromkeys(range(8), 1), weeks=2)}, None, 0, None, id="2 weeks"
        ),
        pytest.param({"empty_nodes": {0: [1] * 4}}, None, 0, None, id="hours are missing"),
        *[pytest.param(changes, None, 0, None, id=str(changes)) for changes in TOO_LITTLE],
    ],
)
def test_nodes_that_are_empty_every_week(
    changes: dict[str, Any], text: str | None, hours: int, confidence: Confidence | None
) -> None:
    found = empty_nodes(replace(POOL, **changes))
    assert (found and found.rating.confidence) == confidence
    if found is not None:
        assert (text or "") in found.change
        assert f"spot nodes with {A100}" in found.change
        assert found.evidence["empty_node_hours_per_week"] == hours
        worth = hours * 4 * Decimal(730) / 168 * PRICE
        assert found.saving_per_month == round(worth, 2)


@given(st.lists(st.integers(0, 3), min_size=168, max_size=168))
def test_no_more_node_hours_are_counted_than_were_empty(counts: list[int]) -> None:
    found = empty_nodes(replace(POOL, empty_nodes=week(dict(enumerate(counts)))))
    hours = 0 if found is None else found.evidence["empty_node_hours_per_week"]
    assert isinstance(hours, int)
    assert 0 <= hours <= sum(counts)
