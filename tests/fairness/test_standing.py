"""Where one team stands, against what is told of all teams."""

from copy import deepcopy
from datetime import date
from zoneinfo import ZoneInfo

import pytest
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window, hour_floor
from apps.clusters.models import ReportSettings
from apps.fairness.models import TeamFairnessDay, TeamFairnessHour
from apps.fairness.selectors import fairness_rows, statement, team_position
from apps.fairness.selectors.window_sums import plan_of, team_sums
from apps.fairness.services import compute_hours, roll_days
from tests.factories import make_tier
from tests.fairness.ledger import DAY, HOUR, START, World, make_world
from tests.shared_rows import shared

NOW = START + 52 * HOUR
WINDOW = Window(START + 20 * HOUR, START + 52 * HOUR)
OUTSIDER = Visibility(everything=False)


def make_hours() -> World:
    """Make 32 hours in which vision borrowed 2 of speech, which wanted them for ten hours."""
    world = make_world()
    make_tier("silver", position=1)
    for number in range(20, 52):
        world.hour(START + number * HOUR, held={"vision": 6.0, "speech": 1.0})
    world.waits("speech", 1.0, START + 40 * HOUR, START + 50 * HOUR)
    compute_hours(now=NOW, at_most=100)
    return world


_hours = shared(make_hours)


@pytest.fixture(params=["days are summed", "all is read from hours"])
def world(request: pytest.FixtureRequest, _hours: World, db: None) -> World:
    if request.param == "days are summed":
        assert roll_days(now=NOW)
        TeamFairnessHour.objects.filter(hour__gte=START + DAY, hour__lt=START + 2 * DAY).delete()
    return deepcopy(_hours)


@pytest.mark.parametrize("team", ["vision", "speech"])
def test_a_team_stands_where_it_stands_among_all(world: World, team: str) -> None:
    (gold,) = fairness_rows(WINDOW, now=NOW, visibility=OUTSIDER)
    own = next(row for row in gold.teams if row.team == team)
    found = team_position(WINDOW, team, now=NOW, visibility=OUTSIDER)
    (tier,) = found.tiers
    assert (tier.tier, tier.hours) == ("gold", gold.hours)
    for name in ("entitlement", "allocated", "borrowed", "lent", "denied"):
        assert getattr(tier, f"{name}_gpu_hours") == getattr(own, f"{name}_gpu_hours")
    assert found.usage_factor == own.usage_factor
    assert tier.allocated_gpu_hours > 0


def test_other_tiers_can_be_left_out(world: World) -> None:
    found = {
        name: team_position(WINDOW, "vision", tiers=(name,), now=NOW, visibility=OUTSIDER)
        for name in ("gold", "silver")
    }
    assert {name: [tier.tier for tier in one.tiers] for name, one in found.items()} == {
        "gold": ["gold"],
        "silver": [],
    }


def test_a_team_that_there_is_not_stands_nowhere(world: World) -> None:
    found = team_position(WINDOW, "nobody", now=NOW, visibility=OUTSIDER)
    assert (found.tiers, found.usage_factor) == ((), None)


def test_a_team_is_found_hour_by_hour_and_by_spans_alike(world: World) -> None:
    pk = world.team("vision").pk
    long = Window(WINDOW.end - 1001 * HOUR, WINDOW.end)
    within = Window(WINDOW.start + HOUR / 2, WINDOW.end)
    for window in (WINDOW, long, within):
        parts = plan_of(window)
        every = team_sums(parts, [world.gold.pk])[world.gold.pk]
        assert team_sums(parts, [world.gold.pk], team=pk)[world.gold.pk] == {pk: every[pk]}


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "Europe/Berlin", "America/St_Johns"])
def test_a_team_has_all_its_hours_wherever_local_days_begin(db: None, zone: str) -> None:
    world = make_world()
    ReportSettings.objects.update(time_zone=zone)
    start = hour_floor(START + DAY, ZoneInfo(zone))
    for number in range(10):
        world.hour(start + number * HOUR, held={"vision": 6.0, "speech": 1.0})
    now = start + 10 * HOUR
    compute_hours(now=now, at_most=100)
    window = Window(start, now)
    (tier,) = team_position(window, "vision", now=now, visibility=OUTSIDER).tiers
    assert (tier.allocated_gpu_hours, tier.borrowed_gpu_hours) == (60.0, 20.0)
    told = statement("vision", date(2026, 11, 16), now=now, visibility=OUTSIDER)
    (gold,) = told.tiers
    assert gold.figures is not None
    assert (gold.figures.allocated_gpu_hours, gold.hours.known) == (60.0, 10)


def test_where_a_team_stands_takes_a_known_number_of_queries(
    world: World, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    assert TeamFairnessDay.objects.exists() or TeamFairnessHour.objects.exists()
    with django_assert_max_num_queries(14):
        team_position(WINDOW, "vision", now=NOW, visibility=OUTSIDER)
