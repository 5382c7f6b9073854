"""Idle entitlement in the hours with unmet fair share of others, and since when demand is known."""

from collections import defaultdict
from datetime import datetime

import pytest
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window
from apps.fairness.models import TeamFairnessHour, TierFairnessHour
from apps.fairness.selectors import (
    FairnessFilters,
    HourCounts,
    IdleEntitlement,
    estimated_before,
    explain_fairness,
    idle_entitlement,
    share_series,
    tier_shares,
)
from apps.fairness.services import compute_hour, compute_hours, prune, roll_days
from apps.usage.domain.explained import evaluate
from tests.factories import make_tier
from tests.fairness.ledger import DAY, HOUR, START, World, make_world
from tests.shared_rows import copy_of, shared

NOW = START + 2 * DAY
WINDOW = Window(START, START + 12 * HOUR)
OUTSIDER = Visibility(everything=False)


def fill() -> World:
    """Return twelve hours in which now speech, now vision, now both have unmet fair share."""
    world = make_world()
    world.entitle("robotics", 2.0)
    world.entitle("audio", 0.0, weight=0.0)
    held = {"vision": 3.0, "speech": 1.0, "audio": 3.0}
    idle = {"vision": 1.0, "speech": 1.0, "audio": 2.0}
    for number in range(12):
        world.hour(START + number * HOUR, held=held, capacity=7.0, idle=idle)
    world.waits("speech", 2.0, START + 2 * HOUR, START + 6 * HOUR)
    world.waits("vision", 1.0, START + 5 * HOUR, START + 9 * HOUR)
    compute_hours(now=NOW)
    return world


_world = shared(fill)
world = copy_of("_world")


def read(window: Window = WINDOW, tier: str = "gold") -> IdleEntitlement:
    return idle_entitlement(window, [tier], visibility=OUTSIDER)[tier]


def brute() -> tuple[int, dict[str, tuple[float, float]]]:
    """Return the hours with unmet fair share, and what each team left idle, row by row."""
    hours: dict[datetime, list[TeamFairnessHour]] = defaultdict(list)
    for row in TeamFairnessHour.objects.select_related("team").order_by("hour", "pk"):
        hours[row.hour].append(row)
    found: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    short_hours = 0
    for rows in hours.values():
        short = {row.team_id for row in rows if row.denied}
        short_hours += bool(short)
        for row in rows:
            if short and row.team_id not in short:
                within = row.allocated - row.borrowed
                found[row.team.name][0] += (row.entitlement - within - row.lent) / 1e9
                found[row.team.name][1] += min(row.idle, within) / 1e9
    return short_hours, {name: (free, idle) for name, (free, idle) in found.items() if free or idle}


def test_idle_entitlement_is_that_of_hours_in_which_another_team_was_short(world: World) -> None:
    short_hours, truth = brute()
    found = read()
    assert (found.hours, found.is_whole) == (short_hours, True)
    assert 0 < short_hours < 12
    assert {team.team for team in found.teams} == set(truth) >= {"vision", "robotics"}
    for team in found.teams:
        assert (team.unallocated, team.idle) == pytest.approx(truth[team.team])
    totals = [team.total for team in found.teams]
    assert totals == sorted(totals, reverse=True)


def test_idle_gpus_that_are_borrowed_are_no_entitlement(world: World) -> None:
    assert "audio" not in {team.team for team in read().teams}


@pytest.mark.parametrize(
    ("first", "short"),
    [(2, {"speech"}), (5, {"speech", "vision"})],
    ids=["one team is short", "two teams are short"],
)
def test_a_team_that_is_short_itself_kept_nothing_from_others(
    world: World, first: int, short: set[str]
) -> None:
    hour = START + first * HOUR
    rows = TeamFairnessHour.objects.filter(hour=hour, denied__gt=0)
    assert set(rows.values_list("team__name", flat=True)) == short
    found = {team.team for team in read(Window(hour, hour + HOUR)).teams}
    assert not short & found
    # From its fourth hour on, all that robotics leaves is lent.
    assert found == ({"robotics", "vision"} if first == 2 else set())


def test_hours_without_unmet_fair_share_count_nothing(world: World) -> None:
    found = read(Window(START + 10 * HOUR, START + 12 * HOUR))
    assert found == IdleEntitlement(0, True, ())


def test_tiers_are_told_apart_and_unknown_ones_left_out(world: World) -> None:
    make_tier("silver", position=9)
    found = idle_entitlement(WINDOW, ["gold", "silver", "none"], visibility=OUTSIDER)
    assert found["silver"] == IdleEntitlement(0, True, ())
    assert found["gold"] == read()
    assert "none" not in found
    assert idle_entitlement(WINDOW, [], visibility=OUTSIDER) == {}


def test_hours_that_are_not_kept_are_said_to_be_missing(world: World) -> None:
    roll_days(now=START + 3 * DAY)
    prune(now=START + 100 * DAY)
    assert read() == IdleEntitlement(0, False, ())


@pytest.mark.parametrize("team", ["vision", "robotics"])
def test_idle_entitlement_is_explained_hour_by_hour(world: World, team: str) -> None:
    filters = FairnessFilters(tier=("gold",), team=(team,))
    one = explain_fairness(
        "idle_entitlement_meanwhile", WINDOW, now=NOW, visibility=OUTSIDER, filters=filters
    )
    (own,) = (found for found in read().teams if found.team == team)
    assert one is not None
    assert one.value == pytest.approx(own.total)
    assert evaluate(one) == pytest.approx(one.value)


def test_a_name_that_there_is_not_explains_nothing(world: World) -> None:
    for filters in (
        FairnessFilters(tier=("gold",), team=("nobody",)),
        FairnessFilters(tier=("none",), team=("vision",)),
        FairnessFilters(tier=("gold",)),
    ):
        asked = "idle_entitlement_meanwhile"
        assert not explain_fairness(asked, WINDOW, now=NOW, visibility=OUTSIDER, filters=filters)


def test_reading_takes_a_known_number_of_queries(
    world: World, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(5):
        read()


# ---------------------------------------------------------------- shares and estimates


def test_shares_carry_the_sums_of_the_tier(world: World) -> None:
    found = tier_shares(WINDOW, "gold", visibility=OUTSIDER)
    rows = TierFairnessHour.objects.filter(tier=world.gold)
    assert found.borrowable == pytest.approx(sum(row.borrowable for row in rows) / 1e9)
    assert found.overdrawn == pytest.approx(sum(row.overdrawn for row in rows) / 1e9)
    assert sum(team.borrowed for team in found.teams) > 0
    assert found.jain_index is not None
    assert 0 < found.jain_index <= 1


@pytest.mark.parametrize("by_hour", [True, False], ids=["hours", "days"])
def test_averages_over_time_weigh_a_running_day_by_its_hours(world: World, by_hour: bool) -> None:
    for number in range(24, 27):
        world.hour(START + number * HOUR, held={"vision": 6.0}, capacity=7.0)
        compute_hour(START + number * HOUR, now=NOW)
    window = Window(START, START + 27 * HOUR)
    shares = tier_shares(window, "gold", visibility=OUTSIDER)
    series = share_series(window, by_hour=by_hour, visibility=OUTSIDER, tiers=["gold"])
    averages = {one.team: one.average for one in series}
    assert shares.hours.known == 15
    assert set(averages) == {team.team for team in shares.teams}
    for team in shares.teams:
        average = averages[team.team]
        assert average is not None
        amounts = average.allocated, average.entitlement, average.demand
        assert [amount * 15 for amount in amounts] == pytest.approx(
            [team.allocated, team.entitlement, team.demand]
        )


def since(counts: HourCounts) -> datetime | None:
    return estimated_before(WINDOW, "gold", counts, visibility=OUTSIDER)


def test_estimates_end_where_the_watch_begins(world: World) -> None:
    counts = HourCounts(known=12, watched=7)
    assert since(counts) is None
    early = TierFairnessHour.objects.filter(hour__lt=START + 5 * HOUR)
    early.update(watched=False)
    assert since(counts) == START + 5 * HOUR
    # Hours that are not kept may be of either kind.
    assert since(HourCounts(known=13, watched=7)) is None
    TierFairnessHour.objects.filter(hour=START + 8 * HOUR).update(watched=False)
    assert since(counts) is None
    TierFairnessHour.objects.update(watched=False)
    assert since(counts) is None
