"""Activity in classes: a percentile with a known error, and GPUs that are told apart."""

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.usage.domain.activity import (
    ALMOST_NOTHING,
    CLASSES,
    LETTERS,
    class_of,
    counted,
    highest,
    joined,
    lower_edge,
    most_active_first,
    percentile,
    summed,
    upper_edge,
    written,
)

ACTIVITIES = st.floats(0.0, 1.0)


@given(ACTIVITIES)
def test_an_activity_lies_between_the_edges_of_its_class(activity: float) -> None:
    class_ = class_of(activity)
    assert 0 <= class_ < CLASSES
    assert lower_edge(class_) - 1e-9 <= activity <= upper_edge(class_) + 1e-9


@pytest.mark.parametrize(
    ("activity", "edges"),
    [
        (0.0, (0.0, 0.0)),
        (0.004, (0.0, ALMOST_NOTHING)),
        (0.01, (0.01, 0.05)),
        (0.05, (0.01, 0.05)),
        (0.15, (0.1, 0.15)),
        (0.55, (0.5, 0.55)),
        (0.951, (0.95, 1.0)),
        (1.0, (0.95, 1.0)),
    ],
)
def test_edges(activity: float, edges: tuple[float, float]) -> None:
    class_ = class_of(activity)
    assert (lower_edge(class_), upper_edge(class_)) == pytest.approx(edges)


@given(st.lists(ACTIVITIES, min_size=1, max_size=200))
def test_a_percentile_is_never_too_low_and_at_most_five_points_too_high(
    activities: list[float],
) -> None:
    told = percentile(counted([written(activities)]), 0.95)
    true = sorted(activities)[ceil(len(activities) * 0.95 - 1e-9) - 1]
    assert told is not None
    assert true - 1e-9 <= told <= true + 0.05 + 1e-9


def test_of_nothing_measured_there_is_no_percentile() -> None:
    assert written([None, None]) == ""
    assert percentile(counted([]), 0.95) is None


def test_histograms_add_up() -> None:
    one, other = counted([written([0.0, 0.5])]), counted([written([0.5, 1.0])])
    assert summed((one, other)) == counted([written([0.0, 0.5, 0.5, 1.0])])


def test_the_joint_between_slots_is_no_letter() -> None:
    text = joined([written([0.2, 0.4]), "", written([0.6])])
    assert sum(counted([text])) == 3


# ---------------------------------------------------------------- device by device


def test_slots_that_do_not_show_every_device_say_nothing_of_one() -> None:
    slots = [written([0.9, 0.0]), written([0.9]), written([0.3, 0.5])]
    assert highest(slots, 2) == written([0.9, 0.5])
    assert highest([written([0.9])], 2) == ""


@pytest.mark.parametrize(
    ("slots", "told"),
    [
        # The second device was busy while the first was not measured, or the other way round.
        pytest.param([[0.9, 0.0, 0.0], [0.9, 0.9]], "", id="more were active than are known"),
        pytest.param([[0.0, 0.0, 0.0], [0.02, 0.0]], "", id="one was active, none is known"),
        pytest.param([[0.9, 0.0], [0.9, 0.9, 0.9]], "", id="more devices than it has"),
        pytest.param(
            [[0.9, 0.0, 0.0], [0.9, 0.0]], [0.9, 0.0, 0.0], id="no more than are known to be"
        ),
        pytest.param([[0.9, 0.0, 0.0], [0.004]], [0.9, 0.0, 0.0], id="a flicker is not activity"),
    ],
)
def test_a_slot_that_misses_a_device_may_show_that_another_one_was_active(
    slots: list[list[float]], told: list[float] | str
) -> None:
    devices = len(slots[0])
    assert highest(map(written, slots), devices) == (told and written(map(float, told)))


def test_which_gpu_a_pod_leaves_idle_may_differ_from_pod_to_pod() -> None:
    found = most_active_first({"1": written([0.9, 0.0]), "2": written([0.0, 0.7])})
    assert [lower_edge(class_) for class_ in found] == pytest.approx([0.85, 0.0])


def test_a_pod_that_used_all_its_gpus_speaks_for_all_pods() -> None:
    found = most_active_first({"1": written([0.9, 0.0]), "2": written([0.8, 0.7])})
    assert min(found) == class_of(0.7)


def test_pods_of_different_sizes_are_not_compared() -> None:
    assert most_active_first({"1": LETTERS[5], "2": LETTERS[5] * 2}) == []
    assert most_active_first({}) == []
