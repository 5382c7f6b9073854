"""What is told of fairness over a window, from days and from hours."""

from datetime import date, datetime
from typing import Any

import numpy as np
import pytest
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.domain.window import Window
from apps.fairness.domain.shares import jain_allocation_ratio, jain_index
from apps.fairness.models import (
    FairnessDay,
    LoanHour,
    TeamFairnessHour,
    TierFairnessDay,
    TierTeamBlob,
)
from apps.fairness.selectors import (
    FairnessFilters,
    FairnessOverview,
    HourCounts,
    TeamFairness,
    TierDetail,
    TierFairness,
    explain_fairness,
    fairness_overview,
    fairness_rows,
    tier_detail,
)
from apps.fairness.selectors.usage_factor import usage_factor_of_teams
from apps.fairness.services import compute_hours, roll_days
from apps.usage.domain.explained import evaluate
from apps.usage.models import CollectionWindow, TeamDay
from tests.factories import BEGINNING, make_cluster, make_tier, note_collection
from tests.fairness.ledger import DAY, HALF, HOUR, START, World, make_world
from tests.shared_rows import copy_of, shared

NOW = START + 52 * HOUR
WINDOW = Window(START + 20 * HOUR, START + 52 * HOUR)
OUTSIDER = Visibility(everything=False)


def make_day_and_a_half() -> World:
    """Return a world of 32 hours: vision holds 6 of 8, speech 1 and wants 1 more for 10 hours."""
    world = make_world()
    world.entitle("robotics", 0.0, weight=0.0)
    for number in range(20, 52):
        world.hour(START + number * HOUR, held={"vision": 6.0, "speech": 1.0})
    world.waits("speech", 1.0, START + 40 * HOUR, START + 50 * HOUR)
    world.waits("speech", 1.0, START + 51 * HOUR, None)
    world.waits("speech", 1.0, START + 44 * HOUR, START + 45 * HOUR, outcome="gave_up")
    compute_hours(now=NOW, at_most=100)
    return world


_day_and_a_half = shared(make_day_and_a_half)
world = copy_of("_day_and_a_half")


@pytest.fixture(params=["days are summed", "all is read from hours"])
def read(request: pytest.FixtureRequest, world: World) -> World:
    if request.param == "days are summed":
        assert roll_days(now=NOW) == 2
        # Nothing of a summed day may come from its hours, nor be counted twice.
        TeamFairnessHour.objects.filter(hour__gte=START + DAY, hour__lt=START + 2 * DAY).delete()
    return world


def rows_of(window: Window = WINDOW, **values: Any) -> TierFairness:
    given: dict[str, Any] = {"now": NOW, "visibility": OUTSIDER, **values}
    (tier,) = fairness_rows(window, **given)
    return tier


def detail_of() -> TierDetail:
    found = tier_detail(WINDOW, "gold", now=NOW, visibility=OUTSIDER)
    assert found is not None
    return found


def team(tier: TierFairness, name: str) -> TeamFairness:
    return next(row for row in tier.teams if row.team == name)


def test_teams_are_told_what_they_held_lent_and_were_denied(read: World) -> None:
    tier = rows_of()
    assert [row.team for row in tier.teams] == ["speech", "vision"]
    vision, speech = team(tier, "vision"), team(tier, "speech")
    assert vision.entitlement_gpus == speech.entitlement_gpus == 4.0
    assert (vision.allocated_gpu_hours, vision.borrowed_gpu_hours) == (192.0, 64.0)
    # 12 GPU-hours waited: 10 of one pod, 1 of one that left, 1 of one that still waits.
    assert speech.demand_gpu_hours == 32 + 12
    assert speech.denied_gpu_hours == 12.0
    # In the hour in which two waited speech could lend one GPU only; the other was overdrawn.
    assert (speech.lent_gpu_hours, vision.overdrawn_gpu_hours) == (63.0, 1.0)
    assert (vision.fair_share_gpu_hours, speech.fair_share_gpu_hours) == (191.0, 44.0)
    assert tier.hours == HourCounts(known=32, watched=32)
    assert tier.capacity_gpu_hours == 256.0


def test_indices_are_those_of_the_sums(read: World) -> None:
    tier = rows_of()
    sums = [
        [getattr(row, f"{name}_gpu_hours") for row in tier.teams]
        for name in ("allocated", "fair_share", "demand", "entitlement")
    ]
    allocated, fair_share, demand, entitlement = sums
    assert tier.jain_index == jain_index(allocated=allocated, fair_share=fair_share, demand=demand)
    vision, speech = 192 / 191, 32 / 44
    by_hand = (vision + speech) ** 2 / (2 * (vision**2 + speech**2))
    assert tier.jain_index == pytest.approx(by_hand)
    expected = jain_allocation_ratio(allocated=allocated, entitlement=entitlement)
    assert tier.jain_allocation_ratio == expected


def test_waits_belong_to_the_window_in_which_they_end(read: World) -> None:
    speech = team(rows_of(), "speech")
    assert (speech.wait_p50_seconds, speech.wait_p95_seconds) == (36_000, 36_000)
    assert (speech.waits_ended, speech.waiting_now, speech.gave_up) == (1, 1, 1)
    own: dict[str, Any] = {"filters": FairnessFilters(tier=(speech.tier,), team=("speech",))}
    for figure in ("team_queue_time_p50", "team_queue_time_p95"):
        one = explain_fairness(figure, WINDOW, now=NOW, visibility=EVERYTHING, **own)
        assert one is not None
        assert one.value == evaluate(one) == 36_000
    before = team(rows_of(Window(START, START + 42 * HOUR)), "speech")
    assert (before.wait_p50_seconds, before.waits_ended, before.gave_up) == (None, 0, 0)
    assert before.waiting_now == 1


def test_a_tier_that_is_only_waited_for_is_told(world: World) -> None:
    silver = make_tier("silver", position=1)
    world.waits("vision", 2.0, NOW - HOUR / 2, None, tier=silver)
    window = Window(NOW - HOUR, NOW)
    assert [row.tier for row in fairness_rows(window, now=NOW, visibility=OUTSIDER)] == [
        "gold",
        "silver",
    ]
    (tier,) = fairness_rows(
        window, now=NOW, visibility=OUTSIDER, filters=FairnessFilters(tier=("silver",))
    )
    assert tier.jain_index is None
    assert [(row.team, row.waiting_now, row.entitlement_gpus) for row in tier.teams] == [
        ("vision", 1, 0.0)
    ]


def test_a_filter_of_teams_narrows_rows_and_no_index(world: World) -> None:
    narrowed = rows_of(filters=FairnessFilters(team=("speech",)))
    assert [row.team for row in narrowed.teams] == ["speech"]
    assert narrowed.jain_index == rows_of().jain_index


def test_everybody_reads_the_same(world: World) -> None:
    assert rows_of(visibility=OUTSIDER) == rows_of(visibility=EVERYTHING)


def test_nothing_is_told_of_hours_that_nobody_computed(world: World) -> None:
    before = Window(START - 10 * DAY, START - 9 * DAY)
    assert fairness_rows(before, now=NOW, visibility=OUTSIDER) == []
    assert fairness_overview(before, visibility=OUTSIDER) == FairnessOverview((), ())
    assert tier_detail(before, "gold", now=NOW, visibility=OUTSIDER) is None


def test_the_matrix_says_who_borrowed_from_whom(read: World) -> None:
    matrix = detail_of().matrix
    assert [(row.lender, row.borrower, row.gpu_hours) for row in matrix.loans] == [
        ("speech", "vision", 63.0)
    ]
    moved = {row.team: (row.borrowed_gpu_hours, row.lent_gpu_hours) for row in matrix.teams}
    assert moved == {"speech": (0.0, 63.0), "vision": (64.0, 0.0)}
    assert not any(row.borrowed_of_others_gpu_hours for row in matrix.teams)


def test_loans_too_small_to_be_told_are_of_others(world: World) -> None:
    LoanHour.objects.filter(hour__lt=START + 21 * HOUR).delete()
    rows = {row.team: row for row in detail_of().matrix.teams}
    assert rows["vision"].borrowed_of_others_gpu_hours == 2.0
    assert rows["speech"].lent_to_others_gpu_hours == 2.0


def test_nothing_is_told_of_a_tier_that_there_is_not(db: None) -> None:
    assert tier_detail(WINDOW, "none", now=NOW, visibility=OUTSIDER) is None


def test_days_are_told_each_with_its_index(read: World) -> None:
    days = detail_of().days
    assert [(row.day, row.hours.known) for row in days] == [
        (date(2026, 11, 16), 4),
        (date(2026, 11, 17), 24),
        (date(2026, 11, 18), 4),
    ]
    for row in days:
        start = START + (row.day - days[0].day)
        whole = Window(max(start, WINDOW.start), min(start + DAY, WINDOW.end))
        tier = rows_of(whole)
        assert row.jain_index == pytest.approx(tier.jain_index, rel=1e-12)
        assert row.jain_allocation_ratio == pytest.approx(tier.jain_allocation_ratio, rel=1e-12)
        assert row.denied_gpu_hours == sum(one.denied_gpu_hours for one in tier.teams)
        assert row.allocated_gpu_hours == 7 * row.hours.known
        assert row.borrowable_gpu_hours == tier.borrowable_gpu_hours


def test_the_row_of_a_tier_by_itself_is_the_same_as_among_all(read: World) -> None:
    assert detail_of().fairness == rows_of()


def test_the_dominant_share_is_the_largest_part_of_any_tier(read: World) -> None:
    silver = make_tier("silver", position=1)
    at = START + 51 * HOUR
    world = read
    world.hour(at, held={"speech": 3.5}, capacity=4.0, tier=silver, collected_at=NOW + HOUR)
    compute_hours(now=NOW)
    found = fairness_overview(WINDOW, visibility=OUTSIDER)
    assert [(row.team, row.share, row.tier) for row in found.shares] == [
        ("speech", 0.875, "silver"),
        ("vision", 0.75, "gold"),
    ]


@pytest.mark.parametrize("of_teams", [(), ("speech",)], ids=["all teams", "one team"])
def test_all_tiers_at_a_glance_are_as_they_are_team_by_team(
    read: World, of_teams: tuple[str, ...]
) -> None:
    filters = FairnessFilters(team=of_teams)
    found = fairness_overview(WINDOW, visibility=OUTSIDER, filters=filters)
    (glance,) = found.tiers
    tier = rows_of(filters=filters)
    same = ("tier", "hours", "capacity_gpu_hours", "from_pool_gpu_hours", "overdrawn_gpu_hours")
    for name in (*same, "borrowable_gpu_hours"):
        assert getattr(glance, name) == getattr(tier, name)
    for name in ("jain_index", "jain_allocation_ratio"):
        assert getattr(glance, name) == pytest.approx(getattr(tier, name), rel=1e-12)
    assert glance.borrowed_gpu_hours == sum(row.borrowed_gpu_hours for row in tier.teams)
    assert glance.denied_gpu_hours == sum(row.denied_gpu_hours for row in tier.teams)
    assert glance.denied_teams == sum(row.denied_gpu_hours > 0 for row in tier.teams)
    assert glance.teams == len(tier.teams)


def test_a_glance_without_packs_is_read_from_rows(read: World) -> None:
    stored = fairness_overview(WINDOW, visibility=OUTSIDER)
    TierTeamBlob.objects.all().delete()
    assert fairness_overview(WINDOW, visibility=OUTSIDER) == stored


def test_a_glance_with_packs_of_some_hours_is_the_same(read: World) -> None:
    stored = fairness_overview(WINDOW, visibility=OUTSIDER)
    some = [START + number * HOUR for number in (20, 22, 23, 50)]
    TierTeamBlob.objects.filter(span=TierTeamBlob.HOUR, start__in=some).delete()
    assert fairness_overview(WINDOW, visibility=OUTSIDER) == stored


def test_a_window_that_begins_within_an_hour_counts_hours_that_begin_in_it(read: World) -> None:
    window = Window(WINDOW.start + HOUR / 2, WINDOW.end)
    (glance,) = fairness_overview(window, visibility=OUTSIDER).tiers
    assert glance.hours == rows_of(window).hours == HourCounts(known=31, watched=31)
    assert glance.borrowed_gpu_hours == 62.0


def test_a_glance_narrows_tiers_and_no_share(world: World) -> None:
    found = fairness_overview(
        WINDOW, visibility=OUTSIDER, filters=FairnessFilters(tier=("silver",))
    )
    assert found.tiers == ()
    assert [row.team for row in found.shares] == ["vision", "speech"]


def test_the_fair_share_factor_halves_what_was_used_a_week_ago(world: World) -> None:
    world.hour(START - 7 * DAY, held={"speech": 2.0}, collected_at=NOW)
    compute_hours(now=NOW, at_most=100)
    roll_days(now=NOW)
    at = START + 2 * DAY
    found = usage_factor_of_teams(at, now=NOW).of_teams
    # Days are aged from their ends: that of a week ago by eight of them, today by one and none.
    ages = np.array([8.0, 1.0, 0.0])
    weight = np.exp2(-ages / 7)
    vision = (weight * [0.0, 24.0, 144.0]).sum()
    speech = (weight * [2.0, 4.0, 24.0]).sum()
    expected = {
        "vision": 2 ** -(vision / (vision + speech) * 2),
        "speech": 2 ** -(speech / (vision + speech) * 2),
    }
    for name, factor in expected.items():
        assert found[world.team(name).pk] == pytest.approx(factor)
    assert found[world.team("robotics").pk] == 0.0
    assert team(rows_of(Window(START, at)), "vision").usage_factor == found[world.team("vision").pk]


@pytest.mark.parametrize("hours", [48, 30], ids=["of whole days", "of a part of a day"])
def test_days_that_are_not_summed_yet_count_by_their_facts(world: World, hours: int) -> None:
    for day in (16, 17):
        TeamDay.objects.create(
            day=date(2026, 11, day),
            team=world.team("vision"),
            cluster=world.cluster,
            tier=world.gold,
            gpu_model=world.model,
            capacity_type="on-demand",
            allocated=144 * 10**9,
        )
    at = START + hours * HOUR
    found = usage_factor_of_teams(at, now=NOW).of_teams
    # What only hours tell is what speech held of the part of a day.
    vision = 144 * 2 ** -((hours - 24) / 24 / 7) + (144 if hours == 48 else 36)
    speech = 0 if hours == 48 else 6
    expected = 2 ** -(vision / (vision + speech) * 2)
    assert found[world.team("vision").pk] == pytest.approx(expected)


@pytest.mark.parametrize("rolled", [True, False], ids=["summed", "not summed"])
def test_what_was_held_while_another_cluster_was_out_counts_as_used(
    world: World, rolled: bool
) -> None:
    east = make_cluster("east")
    world.hour(START + 20 * HOUR, held={"speech": 9.0}, cluster=east)
    note_collection(east, START + 21 * HOUR, "failed", collected_at=NOW)
    compute_hours(now=NOW)
    if rolled:
        roll_days(now=NOW)
        assert TierFairnessDay.objects.get(day=date(2026, 11, 16)).hours_missing == 1
        held = FairnessDay.objects.get(day=date(2026, 11, 16)).held
        assert held[str(world.team("vision").pk)] == 24 * 10**9
    found = usage_factor_of_teams(START + DAY, now=NOW)
    if rolled:
        # Vision held 24 of 37 GPU-hours, and is entitled to half.
        assert found.of_teams[world.team("vision").pk] == pytest.approx(2 ** -(24 / 37 * 2))
    # Of five hours of two clusters one is not known.
    assert found.known == 5 / 6


def test_teams_are_told_how_much_of_what_their_factors_are_made_of_is_known(world: World) -> None:
    note_collection(make_cluster("east"), START + 30 * HOUR, "failed")
    assert rows_of().usage_known == 32 / 33


def test_today_counts_up_to_the_hour_and_no_further(world: World) -> None:
    today, day = START + 50 * HOUR, date(2026, 11, 18)
    given = {"cluster": world.cluster, "tier": world.gold, "gpu_model": world.model}
    TeamDay.objects.create(
        day=day, team=world.team("vision"), allocated=24 * 10**9, capacity_type="any", **given
    )
    roll_days(now=NOW)

    def used(at: datetime) -> float:
        """Return what the factor of vision makes of its part of all that was used."""
        factor = usage_factor_of_teams(at, now=NOW).of_teams[world.team("vision").pk]
        return float(-np.log2(factor) / 2)

    # 168 GPU-hours until midnight, of 196; then 6 of 7 an hour, the third of which is not over.
    decay = [2 ** (-hours / 24 / 7) for hours in (24, 0)]
    speech = 4 * decay[0] + 24
    vision = 24 * decay[0] + 144
    assert used(START + 48 * HOUR) == pytest.approx(vision / (vision + speech))
    decay = [2 ** (-hours / 24 / 7) for hours in (26.5, 2.5)]
    speech = 4 * decay[0] + 24 * decay[1] + 2
    vision = 24 * decay[0] + 144 * decay[1] + 12
    assert used(today + HALF) == pytest.approx(vision / (vision + speech))


def test_where_nothing_is_known_nobody_has_a_fair_share_factor(world: World) -> None:
    CollectionWindow.objects.update(state="failed")
    found = usage_factor_of_teams(START + DAY, now=NOW)
    assert (found.of_teams, found.known) == ({}, 0.0)


def test_where_nobody_is_entitled_there_is_no_fair_share_factor(world: World) -> None:
    assert usage_factor_of_teams(BEGINNING, now=NOW).of_teams == {}


def test_readings_take_a_known_number_of_queries(
    read: World, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_max_num_queries(24):
        rows_of()
    with django_assert_max_num_queries(31):
        tier_detail(WINDOW, "gold", now=NOW, visibility=OUTSIDER)
    with django_assert_max_num_queries(10):
        fairness_overview(WINDOW, visibility=OUTSIDER)
