"""How a key was used, change by change, within the hours that were summed."""

from datetime import UTC, datetime, timedelta

import pytest

from apps.clusters.domain.window import from_seconds
from apps.quotas.domain.saturation import LimitInterval
from apps.quotas.domain.usage_changes import KeySpans, UsageStep, time_at_limit, usage_steps
from apps.quotas.selectors import peak_ratio

HOUR = 3600.0


def at(hours: float) -> datetime:
    return from_seconds(hours * HOUR)


def hour(number: int, hard: float, used: float | None, blocked: float | None = 0.0) -> UsageStep:
    return UsageStep(at(number), at(number + 1), hard, used, blocked)


def test_spans_tell_when_something_changed_within_an_hour() -> None:
    spans = KeySpans(
        limits=(LimitInterval(0.0, HOUR / 2, 2.0), LimitInterval(HOUR / 2, HOUR, 4.0)),
        used=((2.0, 0.0, None), (1.0, HOUR / 2, None)),
        blocked=((1.0, 0.0, HOUR / 2),),
    )
    assert usage_steps([hour(0, 3.0, 2.5, 0.5)], spans) == [
        UsageStep(at(0), at(0.5), 2.0, 2.0, 1.0),
        UsageStep(at(0.5), at(1), 4.0, 3.0, 0.0),
    ]


def test_equal_hours_are_one_step_and_a_gap_parts_them() -> None:
    steps = usage_steps([hour(0, 2, 1), hour(1, 2, 1), hour(3, 2, 1)], KeySpans())
    assert [(one.start, one.end) for one in steps] == [(at(0), at(2)), (at(3), at(4))]


def test_an_hour_whose_spans_do_not_come_to_its_sum_keeps_its_mean() -> None:
    spans = KeySpans(used=((8.0, 0.0, None),))
    assert usage_steps([hour(0, 8, 2.5)], spans) == [hour(0, 8, 2.5)]


def test_an_unknown_amount_stays_unknown() -> None:
    assert usage_steps([hour(0, 8, None, None)], KeySpans()) == [hour(0, 8, None, None)]


def test_a_broken_mean_of_a_limit_stands_for_the_highest_in_the_hour() -> None:
    assert [one.hard for one in usage_steps([hour(0, 2.17, 1)], KeySpans())] == [3]


@pytest.mark.parametrize(
    ("steps", "share"),
    [
        ([], None),
        ([hour(0, 2, None)], None),
        ([hour(0, 2, 2), hour(1, 2, 1)], 0.5),
        ([hour(0, 0, 0)], 0.0),
    ],
)
def test_time_at_the_limit_is_a_part_of_the_known_time(
    steps: list[UsageStep], share: float | None
) -> None:
    assert time_at_limit(steps).share == share


def test_a_peak_lasts_a_second_as_pods_tell_no_parts_of_one() -> None:
    first = datetime(2026, 11, 23, 22, 20, tzinfo=UTC)
    raised = first + timedelta(seconds=40.7)
    steps = [
        UsageStep(first, first + timedelta(seconds=40), 4, 2, 1),
        # The pod that the raise let in is told to be from before it.
        UsageStep(first + timedelta(seconds=40), raised, 2, 3, 0),
        UsageStep(raised, first + timedelta(hours=1), 4, 3, 0),
    ]
    assert peak_ratio(steps) == 3 / 4
    assert peak_ratio([UsageStep(first, raised, 2, 3, 0)]) == 3 / 2
    assert peak_ratio([UsageStep(first, raised, 2, None, None)]) is None
