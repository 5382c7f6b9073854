"""What is told of fairness over a window, from days and from hours."""

from datetime import date
from typing import Any

import numpy as np
import pytest
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.domain.window import Window
from apps.clusters.models import NamespaceClaim
from apps.fairness.domain.indices import jain_allocation_ratio, jain_index
from apps.fairness.domain.layout import AddGpus, ChangeImpossible, Entitle
from apps.fairness.models import FairHour, FairLoan, FairPack
from apps.fairness.selectors import (
    FairnessFilters,
    Hours,
    TeamFairness,
    TierFairness,
    WindowTooLong,
    borrow_matrix,
    dominant_shares,
    fair_overview,
    fairness_rows,
    index_over_time,
    tier_detail,
    what_if,
)
from apps.fairness.selectors.usage_factor import usage_factor_of_teams
from apps.fairness.services import compute_hours, roll_days
from apps.pending.models import Episode
from apps.usage.models import TeamDay
from tests.factories import BEGINNING, make_cards, make_pod, make_team, make_tier, make_workload
from tests.fairness.ledger import DAY, HOUR, START, World, make_world

NOW = START + 52 * HOUR
WINDOW = Window(START + 20 * HOUR, START + 52 * HOUR)
OUTSIDER = Visibility(everything=False)


@pytest.fixture
def world(db: None) -> World:
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


@pytest.fixture(params=["days are summed", "all is read from hours"])
def read(request: pytest.FixtureRequest, world: World) -> World:
    if request.param == "days are summed":
        assert roll_days(now=NOW) == 2
        # Nothing of a summed day may come from its hours, nor be counted twice.
        FairHour.objects.filter(hour__gte=START + DAY, hour__lt=START + 2 * DAY).delete()
    return world


def rows_of(window: Window = WINDOW, **values: Any) -> TierFairness:
    given: dict[str, Any] = {"now": NOW, "visibility": OUTSIDER, **values}
    (tier,) = fairness_rows(window, **given)
    return tier


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
    assert tier.hours == Hours(known=32, watched=32)
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
    assert index_over_time(before, "gold", visibility=OUTSIDER) == []
    assert dominant_shares(before, visibility=OUTSIDER) == []
    assert fair_overview(before, visibility=OUTSIDER).tiers == ()
    assert tier_detail(before, "gold", now=NOW, visibility=OUTSIDER) is None


def test_the_matrix_says_who_borrowed_from_whom(read: World) -> None:
    matrix = borrow_matrix(WINDOW, "gold", visibility=OUTSIDER)
    assert [(row.lender, row.borrower, row.gpu_hours) for row in matrix.loans] == [
        ("speech", "vision", 63.0)
    ]
    moved = {row.team: (row.borrowed_gpu_hours, row.lent_gpu_hours) for row in matrix.teams}
    assert moved == {"speech": (0.0, 63.0), "vision": (64.0, 0.0)}
    assert not any(row.borrowed_of_others_gpu_hours for row in matrix.teams)


def test_loans_too_small_to_be_told_are_of_others(world: World) -> None:
    FairLoan.objects.filter(hour__lt=START + 21 * HOUR).delete()
    rows = {row.team: row for row in borrow_matrix(WINDOW, "gold", visibility=OUTSIDER).teams}
    assert rows["vision"].borrowed_of_others_gpu_hours == 2.0
    assert rows["speech"].lent_to_others_gpu_hours == 2.0


def test_a_tier_that_there_is_not_has_no_matrix_and_no_days(db: None) -> None:
    assert borrow_matrix(WINDOW, "none", visibility=OUTSIDER).loans == ()
    assert index_over_time(WINDOW, "none", visibility=OUTSIDER) == []
    assert tier_detail(WINDOW, "none", now=NOW, visibility=OUTSIDER) is None


def test_days_are_told_each_with_its_index(read: World) -> None:
    days = index_over_time(WINDOW, "gold", visibility=OUTSIDER)
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


def test_everything_of_a_tier_in_one_is_the_same_as_one_by_one(read: World) -> None:
    found = tier_detail(WINDOW, "gold", now=NOW, visibility=OUTSIDER)
    assert found is not None
    assert found.fairness == rows_of()
    assert found.matrix == borrow_matrix(WINDOW, "gold", visibility=OUTSIDER)
    assert list(found.days) == index_over_time(WINDOW, "gold", visibility=OUTSIDER)


def test_the_dominant_share_is_the_largest_part_of_any_tier(read: World) -> None:
    silver = make_tier("silver", position=1)
    at = START + 51 * HOUR
    world = read
    world.hour(at, held={"speech": 3.5}, capacity=4.0, tier=silver, collected_at=NOW + HOUR)
    compute_hours(now=NOW)
    found = dominant_shares(WINDOW, visibility=OUTSIDER)
    assert [(row.team, row.share, row.tier) for row in found] == [
        ("speech", 0.875, "silver"),
        ("vision", 0.75, "gold"),
    ]


@pytest.mark.parametrize("of_teams", [(), ("speech",)], ids=["all teams", "one team"])
def test_all_tiers_at_a_glance_are_as_they_are_team_by_team(
    read: World, of_teams: tuple[str, ...]
) -> None:
    filters = FairnessFilters(team=of_teams)
    found = fair_overview(WINDOW, visibility=OUTSIDER, filters=filters)
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
    assert list(found.shares) == dominant_shares(WINDOW, visibility=OUTSIDER)


def test_a_glance_without_packs_is_read_from_rows(read: World) -> None:
    packed = fair_overview(WINDOW, visibility=OUTSIDER)
    FairPack.objects.all().delete()
    assert fair_overview(WINDOW, visibility=OUTSIDER) == packed


def test_a_glance_with_packs_of_some_hours_is_the_same(read: World) -> None:
    packed = fair_overview(WINDOW, visibility=OUTSIDER)
    some = [START + number * HOUR for number in (20, 22, 23, 50)]
    FairPack.objects.filter(span=FairPack.HOUR, start__in=some).delete()
    assert fair_overview(WINDOW, visibility=OUTSIDER) == packed


def test_a_window_that_begins_within_an_hour_counts_hours_that_begin_in_it(read: World) -> None:
    window = Window(WINDOW.start + HOUR / 2, WINDOW.end)
    (glance,) = fair_overview(window, visibility=OUTSIDER).tiers
    assert glance.hours == rows_of(window).hours == Hours(known=31, watched=31)
    assert glance.borrowed_gpu_hours == 62.0


def test_a_glance_narrows_tiers_and_no_share(world: World) -> None:
    found = fair_overview(WINDOW, visibility=OUTSIDER, filters=FairnessFilters(tier=("silver",)))
    assert found.tiers == ()
    assert [row.team for row in found.shares] == ["vision", "speech"]


def test_the_usage_factor_halves_what_was_used_a_week_ago(world: World) -> None:
    world.hour(START - 7 * DAY, held={"speech": 2.0})
    compute_hours(now=NOW, at_most=100)
    roll_days(now=NOW)
    at = START + 2 * DAY
    found = usage_factor_of_teams(at, now=NOW)
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
    found = usage_factor_of_teams(at, now=NOW)
    # What only hours tell is what speech held of the part of a day.
    vision = 144 * 2 ** -((hours - 24) / 24 / 7) + (144 if hours == 48 else 36)
    speech = 0 if hours == 48 else 6
    expected = 2 ** -(vision / (vision + speech) * 2)
    assert found[world.team("vision").pk] == pytest.approx(expected)


def test_where_nobody_is_entitled_there_is_no_usage_factor(world: World) -> None:
    assert usage_factor_of_teams(BEGINNING, now=NOW) == {}


def test_readings_take_a_known_number_of_queries(
    read: World, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_max_num_queries(18):
        rows_of()
    with django_assert_max_num_queries(7):
        borrow_matrix(WINDOW, "gold", visibility=OUTSIDER)
    with django_assert_max_num_queries(7):
        index_over_time(WINDOW, "gold", visibility=OUTSIDER)
    with django_assert_max_num_queries(24):
        tier_detail(WINDOW, "gold", now=NOW, visibility=OUTSIDER)
    with django_assert_max_num_queries(9):
        dominant_shares(WINDOW, visibility=OUTSIDER)
    with django_assert_max_num_queries(9):
        fair_overview(WINDOW, visibility=OUTSIDER)


# ---------------------------------------------------------------- what if


@pytest.fixture
def pods(world: World) -> World:
    """Return a world with the pods behind its facts: speech's second waits for a ninth GPU."""
    cards = make_cards(world.cluster, "n1", world.gold)
    train = make_workload(world.cluster, "vision", "train")
    notes = make_workload(world.cluster, "speech", "train")
    make_pod(train, "big", created_at=START, cards=cards, units=7.0)
    make_pod(notes, "small", created_at=START, cards=cards, units=1.0)
    late = Episode.objects.get(since=START + 40 * HOUR)
    values: dict[str, Any] = {"tier": world.gold, "node_name": "n1", "units": 1.0}
    make_pod(
        notes,
        "late",
        created_at=late.since,
        bound_at=late.until,
        ended_at=START + 55 * HOUR,
        **values,
    )
    open_one = Episode.objects.get(until__isnull=True)
    make_pod(notes, "asks", uid=open_one.uid, created_at=open_one.since)
    return world


def test_what_if_replays_the_ledger_before_and_after(pods: World) -> None:
    report = what_if(WINDOW, [AddGpus("gold", 2)], visibility=OUTSIDER)
    (before,), (after,) = report.before, report.after
    assert report.told == ("+2 GPUs in gold",)
    assert (before.capacity_gpu_hours, after.capacity_gpu_hours) == (256.0, 320.0)
    rows = {row.team: row for row in before.teams}
    assert list(rows) == ["robotics", "speech", "vision"]
    # All 8 GPUs are held, so that the later two of speech wait to the end.
    assert (rows["speech"].waits_ended, rows["speech"].waiting_now) == (0, 2)
    assert rows["speech"].denied_gpu_hours == 13.0
    then = {row.team: row for row in after.teams}
    assert (then["speech"].waits_ended, then["speech"].waiting_now) == (2, 0)
    assert then["speech"].wait_p95_seconds == 0.0
    assert (then["speech"].denied_gpu_hours, after.denied_gpu_hours) == (0.0, 0.0)
    assert any("Nothing is preempted" in text for text in report.assumptions)


def test_what_if_tries_other_entitlements(pods: World) -> None:
    report = what_if(WINDOW, [Entitle("speech", "gold", 1.0)], visibility=OUTSIDER)
    ((before,), (after,)) = report.before, report.after
    entitled = [
        next(row.entitlement_gpu_hours for row in tier.teams if row.team == "speech")
        for tier in (before, after)
    ]
    assert entitled == [128.0, 32.0]


def test_pods_of_a_namespace_that_moved_are_of_whose_it_was_then(pods: World) -> None:
    NamespaceClaim.objects.filter(team__name="speech").update(valid_to=START + 50 * HOUR)
    make_team("robotics", "speech", since=START + 50 * HOUR)
    (before,) = what_if(WINDOW, [], visibility=OUTSIDER).before
    waiting = {row.team: row.waiting_now for row in before.teams}
    assert waiting == {"robotics": 1, "speech": 1, "vision": 0}


def test_what_if_refuses_what_it_cannot_do(pods: World) -> None:
    with pytest.raises(ChangeImpossible, match="no tier"):
        what_if(WINDOW, [AddGpus("platinum", 1)], visibility=OUTSIDER)
    with pytest.raises(WindowTooLong, match="31 days"):
        what_if(Window(START, START + 32 * DAY), [], visibility=OUTSIDER)


def test_what_if_takes_a_known_number_of_queries(
    pods: World, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_max_num_queries(12):
        what_if(WINDOW, [], visibility=OUTSIDER)
