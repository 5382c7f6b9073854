import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.usage.domain.amounts import Amounts, HeldSlot, Split, held_amounts, hours, nano, split
from tests.usage.equations import broken_equations

SLOTS = st.lists(
    st.builds(
        lambda seconds, share, activity, whole: HeldSlot(
            seconds, seconds * share if activity is not None else 0.0, activity, whole
        ),
        st.floats(0, 1e5),
        st.floats(0, 1),
        st.none() | st.floats(0, 1),
        st.booleans(),
    ),
    max_size=10,
)


@given(SLOTS, st.floats(0, 1), st.floats(0, 1e5))
def test_the_parts_sum_to_what_was_held_to_the_last_digit(
    slots: list[HeldSlot], idle_below: float, waited: float
) -> None:
    ran = sum(slot.gpu_seconds for slot in slots)
    row = held_amounts(ran + waited, split(slots, idle_below=idle_below))
    assert list(broken_equations(row)) == []
    assert hours(row.allocated) == pytest.approx((ran + waited) / 3600, abs=1e-8)


@pytest.mark.parametrize("threshold", [-0.1, 1.1])
def test_a_threshold_that_is_no_fraction_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match="fraction"):
        split([], idle_below=threshold)


def test_the_largest_part_takes_what_rounding_left() -> None:
    third = 3600 / 3 * 1e-9
    row = held_amounts(3 * third, Split(third, third, third, 0.0))
    assert row.allocated == sum((row.busy, row.idle, row.underused, row.unmeasured))


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (Amounts(allocated=1), "not the sum"),
        (Amounts(allocated=-1, busy=-1), "busy is negative"),
        (Amounts(capacity=2, unhealthy=1), "capacity 2 is not"),
        (Amounts(capacity=0, unhealthy=-1, unallocated=1), "unhealthy is negative"),
    ],
)
def test_a_broken_row_is_called_out(row: Amounts, complaint: str) -> None:
    assert any(complaint in text for text in broken_equations(row))


def test_ratios_of_nothing_are_none() -> None:
    nothing = Amounts()
    assert nothing.allocation_ratio is None
    assert nothing.utilization_ratio is None
    assert nothing.coverage_ratio is None


def test_grades_sum_to_what_is_allocated() -> None:
    row = Amounts(
        allocated=nano(10), unmeasured=nano(1), grade_apportioned=nano(2), grade_inferred=nano(3)
    )
    assert row.grades == {"measured": 4.0, "apportioned": 2.0, "inferred": 3.0, "unmeasured": 1.0}


def test_adding_keeps_what_neither_row_has() -> None:
    row = Amounts(allocated=1, memory_peak_mib=5.0)
    row.add(Amounts(allocated=2, memory_peak_mib=3.0))
    assert (row.allocated, row.memory_peak_mib, row.capacity) == (3, 5.0, None)
    row.add(Amounts(capacity=7))
    assert row.capacity == 7
