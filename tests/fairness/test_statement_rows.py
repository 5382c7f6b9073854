"""A team's week in words, from what is stored."""

from datetime import date, timedelta

import pytest
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import Visibility
from apps.fairness.models import TierFairnessHour
from apps.fairness.selectors import (
    FairnessFilters,
    HourCounts,
    Statement,
    UnknownTeam,
    explain_fairness,
    statement,
)
from apps.fairness.services import compute_hours, prune, roll_days
from apps.quotas.models import Entitlement
from apps.usage.domain.explained import evaluate
from tests.fairness.ledger import DAY, HOUR, START, World, make_world
from tests.shared_rows import copy_of, shared

MONDAY = date(2026, 11, 16)
WEEK = timedelta(days=7)
NOW = START + 8 * DAY
OUTSIDER = Visibility(everything=False)


def fill() -> World:
    """Return a week of ten known hours, of which robotics held 2 GPUs idle."""
    world = make_world()
    world.entitle("robotics", 0.0, weight=0.0)
    for number in range(10):
        held = {"vision": 4.0, "speech": 1.0, "robotics": 3.0}
        world.hour(START + DAY + number * HOUR, held=held, idle={"robotics": 2.0, "vision": 1.0})
    world.waits("speech", 2.0, START + DAY + 5 * HOUR, START + DAY + 9 * HOUR)
    compute_hours(now=NOW)
    return world


_world = shared(fill)
world = copy_of("_world")


def read(team: str, week: date = MONDAY) -> Statement:
    return statement(team, week, now=NOW, visibility=OUTSIDER)


@pytest.mark.parametrize("rolled", [True, False], ids=["from sums of days", "from hours"])
@pytest.mark.parametrize(
    ("team", "sentence"),
    [
        (
            "speech",
            "entitled to 4 GPUs, received 1.0, lent 2.2 to robotics; "
            "missed 8 GPU-hours of its fair share while robotics left 2 GPUs idle",
        ),
        ("vision", "entitled to 4 GPUs, received 4.0; no unmet fair share"),
        (
            "robotics",
            "entitled to 0 GPUs, received 3.0, borrowed 3.0 of which 2.2 from speech "
            "and 0.8 from demand of other teams; no unmet fair share",
        ),
    ],
    ids=["denied", "content", "borrowed"],
)
def test_a_week_is_told_in_a_sentence(
    world: World, team: str, sentence: str, *, rolled: bool
) -> None:
    if rolled:
        roll_days(now=NOW)
    (tier,) = read(team).tiers
    assert tier.sentence == sentence
    assert tier.hours.known == 10


def test_any_day_of_a_week_tells_it_and_the_weeks_beside(world: World) -> None:
    found = read("speech", MONDAY + timedelta(days=3))
    assert (found.week, found.previous, found.next) == (MONDAY, None, MONDAY + WEEK)
    after = read("speech", MONDAY + WEEK)
    assert (after.known_hours, after.previous, after.next) == (0, MONDAY, None)
    assert (found.window.start, found.window.end) == (START, START + WEEK)


def test_a_tier_of_which_nothing_is_known_makes_no_sentence(world: World) -> None:
    (gold,) = read("vision", MONDAY + WEEK).tiers
    assert (gold.tier, gold.hours, gold.figures, gold.sentence) == (
        "gold",
        HourCounts(),
        None,
        None,
    )


def test_what_a_team_was_entitled_to_is_told_of_a_week_without_facts(world: World) -> None:
    ended = START + 3 * DAY
    Entitlement.objects.filter(team__name="vision").update(valid_to=ended)
    assert [tier.tier for tier in read("vision").tiers] == ["gold"]
    assert read("vision", MONDAY + WEEK).tiers == ()
    assert read("vision", MONDAY + 2 * WEEK).tiers == read("speech", MONDAY + 2 * WEEK).tiers == ()


def test_an_entitlement_of_hours_that_are_not_known_counts_nothing_in_those_that_are(
    world: World,
) -> None:
    world.entitle("audio", 1.0, since=START + 3 * DAY)
    (tier,) = read("audio").tiers
    assert tier.hours.known == 10
    assert tier.sentence == "entitled to 0 GPUs, received 0.0; no demand"


def test_a_team_of_no_tier_is_known_to_be_of_none_in_hours_that_miss_nothing(
    world: World,
) -> None:
    world.team("audio")
    assert (read("audio").tiers, read("audio").known_hours) == ((), 10)
    TierFairnessHour.objects.filter(hour__gte=START + DAY + 7 * HOUR).update(state="missing")
    assert (read("audio").tiers, read("audio").known_hours) == ((), 7)
    TierFairnessHour.objects.all().delete()
    assert read("audio").known_hours == 0


@pytest.mark.parametrize("rolled", [True, False], ids=["from sums of days", "from hours"])
@pytest.mark.parametrize(
    ("figure", "team", "other", "value"),
    [
        ("loan", "robotics", "speech", 22.0),
        ("overdrawn", "robotics", "", 8.0),
        ("small_loans_taken", "robotics", "", 0.0),
        ("small_loans_given", "speech", "", 0.0),
        ("mean_allocated", "robotics", "", 3.0),
        ("mean_idle_beside", "speech", "robotics", 2.0),
        ("mean_idle_beside", "speech", "nobody", None),
        ("dominant_share", "vision", "", 0.5),
    ],
)
def test_figures_of_a_week_are_explained(
    world: World, figure: str, team: str, other: str, value: float | None, *, rolled: bool
) -> None:
    if rolled:
        roll_days(now=NOW)
    one = explain_fairness(
        figure,
        read(team).window,
        now=NOW,
        visibility=OUTSIDER,
        filters=FairnessFilters(tier=(world.gold.name,), team=(team,)),
        other=other,
    )
    assert (None if one is None else one.value) == (None if value is None else pytest.approx(value))
    assert one is None or evaluate(one) == pytest.approx(one.value)


def test_once_hours_are_forgotten_nobody_is_said_to_have_idle(world: World) -> None:
    roll_days(now=NOW)
    prune(now=START + 100 * DAY)
    (tier,) = read("speech").tiers
    assert tier.sentence == (
        "entitled to 4 GPUs, received 1.0, lent 2.2 to robotics; missed 8 GPU-hours of its "
        "fair share"
    )


def test_a_team_that_there_is_not_is_refused(db: None) -> None:
    with pytest.raises(UnknownTeam, match="no team 'nobody'"):
        read("nobody")


def test_a_statement_takes_a_known_number_of_queries(
    world: World, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    roll_days(now=NOW)
    with django_assert_max_num_queries(18):
        read("speech")
