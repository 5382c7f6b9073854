"""What is known of hours, and what allowances come to of it: without a database."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from apps.clusters.domain.window import Window
from apps.quotas.domain.budgets import (
    NOTHING,
    Allowance,
    ClusterHours,
    KnownHours,
    Spending,
    SpentAmount,
    burn_of,
    day_of_end,
    points_of,
    spent_of,
    whole_days,
)

ZONE = ZoneInfo("UTC")
START = datetime(2026, 3, 2, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
WEEK = Window(START, START + 7 * DAY)
PURSE = ("vision", "gpu_hours")


def hours_of(known: int, *, last: int = 23) -> ClusterHours:
    return ClusterHours(START, START + last * HOUR, 24, 24, {START: known})


def joined(hour: int) -> ClusterHours:
    first = START + hour * HOUR
    return ClusterHours(first, START + 23 * HOUR, 24 - hour, 24 - hour, {START: 24 - hour}, first)


@pytest.mark.parametrize(
    ("clusters", "ratio"),
    [
        ({"west": hours_of(24)}, 1.0),
        ({"west": hours_of(24), "east": hours_of(12)}, 0.75),
        ({"west": hours_of(24), "east": ClusterHours(begun=START)}, 0.5),
        ({"west": hours_of(24), "new": joined(18)}, 1.0),
        ({"west": hours_of(24), "new": ClusterHours()}, 1.0),
        ({}, None),
    ],
    ids=[
        "whole", "one lags", "nothing of one was collected", "one joined late",
        "one has just joined", "no active cluster",
    ],
)  # fmt: skip
def test_coverage_is_of_all_hours_of_all_clusters(
    clusters: dict[str, ClusterHours], ratio: float | None
) -> None:
    assert KnownHours(START + DAY, clusters).coverage(WEEK, at=START + DAY) == ratio


def test_before_the_first_hour_of_a_period_there_is_no_coverage() -> None:
    assert KnownHours(START, {"west": hours_of(0)}).coverage(WEEK, at=START + HOUR) is None


@pytest.mark.parametrize(
    ("later", "ratio"),
    [
        (timedelta(minutes=119), 1.0),
        (26 * HOUR, 0.5),
        (timedelta(days=3, hours=2), 0.25),
        (timedelta(days=30), 1 / 7),
    ],
    ids=["hours on their way", "a day", "three days", "the period is over"],
)
def test_hours_that_nobody_collected_are_missing(later: timedelta, ratio: float) -> None:
    known = KnownHours(START + DAY, {"west": hours_of(24)})
    assert known.coverage(WEEK, at=START + DAY + later) == pytest.approx(ratio)


def test_hours_missing_of_a_retired_cluster_are_missing_still() -> None:
    gone = ClusterHours(START, START + 5 * HOUR, since={START: 6}, ended=START + 12 * HOUR)
    clusters, at = {"west": hours_of(24)}, START + DAY
    assert KnownHours(at, clusters, retired={"gone": gone}).coverage(WEEK, at=at) == 30 / 36
    before = ClusterHours(START - DAY, START - HOUR, since={START: 0}, ended=START)
    assert KnownHours(at, clusters, retired={"before": before}).coverage(WEEK, at=at) == 1.0


def test_what_is_known_of_one_cluster_does_not_stand_for_another() -> None:
    much = ClusterHours(START + 20 * HOUR, START + 23 * HOUR, since={START: 24})
    known = KnownHours(START + DAY, {"much": much, "west": hours_of(12)})
    assert known.coverage(WEEK, at=START + DAY) == 16 / 28


def test_all_is_known_until_the_end_of_the_one_that_lags_most() -> None:
    west, east = hours_of(24), hours_of(12, last=11)
    assert KnownHours(START + DAY, {"west": west, "east": east}).until == START + 12 * HOUR
    assert KnownHours(START + DAY, {"west": west, "east": ClusterHours()}).until is None


def test_a_cluster_that_lags_goes_on_as_in_its_own_known_hours() -> None:
    amounts = {"west": 24.0, "east": 12.0, "retired": 6.0}
    assert spent_of(amounts, {"west": 24, "east": 6}, hours=24) == SpentAmount(24 + 48 + 6, 24.0)
    assert spent_of(amounts, {"west": 0}, hours=24) == NOTHING


def test_a_cluster_that_joined_counts_for_the_hours_it_was_there() -> None:
    amounts, known = {"west": 168.0, "new": 100.0}, {"west": 168, "new": 2}
    there = {"west": 168, "new": 4}
    assert spent_of(amounts, known, hours=168, there=there) == SpentAmount(168 + 200, 168.0)
    alone = {"new": 2}
    assert spent_of({"new": 100.0}, alone, hours=168, there=alone) == SpentAmount(100.0, 2.0)
    assert spent_of(amounts, alone, hours=168, there=alone) == SpentAmount(268.0, 168.0)


def test_the_pace_of_a_cluster_that_joined_is_not_that_of_a_whole_day() -> None:
    spending = Spending(last_day={PURSE: {"west": 24.0, "new": 24.0}})
    known = KnownHours(START + DAY, {"west": hours_of(24), "new": joined(22)})
    _, burn = burn_of(allowance(168.0), spending, known, at=START + DAY, zone=ZONE)
    assert burn.burn_rate_1d == 2.0


def test_a_day_is_whole_when_every_cluster_known_by_then_has_its_hours() -> None:
    west = ClusterHours(START, START + 71 * HOUR)
    east = ClusterHours(START + DAY, START + 71 * HOUR)
    both = [(START + n * HOUR, 1 if n < 24 or n == 30 else 2) for n in range(72)]
    found = whole_days(both, [west, east, ClusterHours()], before=date(2026, 3, 4), zone=ZONE)
    assert list(found) == [(date(2026, 3, 2), 24.0)]


@pytest.mark.parametrize(
    ("amount", "expected"),
    [(10.0, (date(2026, 3, 2), 10.0)), (25.0, (date(2026, 3, 4), 5.0)), (41.0, None)],
    ids=["on the first day", "later", "not yet"],
)
def test_the_day_on_which_an_allowance_ended(
    amount: float, expected: tuple[date, float] | None
) -> None:
    days = [(date(2026, 3, 2), 20.0), (date(2026, 3, 3), 0.0), (date(2026, 3, 4), 20.0)]
    assert day_of_end(days, amount) == expected


def allowance(amount: float) -> Allowance:
    return Allowance("vision", "week", WEEK, "gpu_hours", amount)


SPENDING = Spending(
    {PURSE: {date(2026, 3, 1): 99.0, date(2026, 3, 2): 24.0}},
    {PURSE: {"west": 24.0}},
    {PURSE: {"west": 24.0}},
    {PURSE: {date(2026, 3, 3): 6.0}},
)
KNOWN = KnownHours(START + DAY, {"west": hours_of(24)}, ((date(2026, 3, 2), 24.0),))


def test_what_is_booked_counts_against_the_allowance_and_is_no_pace() -> None:
    used, burn = burn_of(allowance(168.0), SPENDING, KNOWN, at=START + DAY, zone=ZONE)
    assert used == 30.0
    assert (burn.burn_rate_1d, burn.burn_rate_7d) == (1.0, 1.0)
    assert burn.burn_rate == pytest.approx(30 / 24)


def test_when_it_was_used_up_is_told_by_the_hours_of_that_day() -> None:
    hours = [(START + n * HOUR, 1.0) for n in range(24)]
    _, burn = burn_of(allowance(6.5), SPENDING, KNOWN, at=START + DAY, zone=ZONE, hours=hours)
    assert burn.exhausted_at == START + 6.5 * HOUR


@pytest.mark.parametrize(
    ("later", "day", "week"),
    [(0, True, True), (24, False, True), (168, False, False)],
    ids=["now", "a day later", "a week later"],
)
def test_a_pace_of_which_no_hour_is_known_is_none(
    later: int,
    day: bool,
    week: bool,
) -> None:
    at = START + DAY + later * HOUR
    _, burn = burn_of(allowance(168.0), SPENDING, KNOWN, at=at, zone=ZONE)
    assert (burn.burn_rate_1d is not None, burn.burn_rate_7d is not None) == (day, week)


def test_the_burn_down_ends_where_knowledge_does() -> None:
    end = START + DAY + 6 * HOUR
    known = KnownHours(end, {"west": hours_of(30)})
    assert list(points_of(allowance(9.0), SPENDING, known, ZONE)) == [
        (START, 0.0),
        (START + DAY, 24.0),
        (end, 30.0),
    ]
    assert list(points_of(allowance(9.0), SPENDING, KnownHours(START, {}), ZONE)) == []


# Data starts in the middle of the week: 12 of the 36 hours so far are known.
LATE = KnownHours(
    START + 36 * HOUR,
    {"west": ClusterHours(START + DAY, START + 35 * HOUR, 12, 12, {START: 12}, START + DAY)},
)
OF_12_HOURS = Spending({PURSE: {date(2026, 3, 3): 12.0}})


def test_hours_that_were_never_collected_are_no_zero_use() -> None:
    used, burn = burn_of(allowance(168.0), OF_12_HOURS, LATE, at=LATE.end, zone=ZONE)
    assert used == 12.0
    assert burn.burn_rate == pytest.approx(1.0)


def test_a_period_that_began_before_the_data_is_known_from_then_on_alone() -> None:
    assert LATE.data_start == START + DAY
    assert LATE.coverage(WEEK, at=LATE.end) == pytest.approx(12 / 36)
    points = list(points_of(allowance(9.0), OF_12_HOURS, LATE, ZONE))
    assert points == [(START + DAY, 0.0), (LATE.end, 12.0)]


def test_a_gap_within_the_data_counts_in_no_share_either() -> None:
    gap = {"west": ClusterHours(START, START + 35 * HOUR, 12, 12, {START: 12}, START)}
    known = KnownHours(LATE.end, gap)
    _, burn = burn_of(allowance(168.0), OF_12_HOURS, known, at=known.end, zone=ZONE)
    assert burn.burn_rate == pytest.approx(1.0)
