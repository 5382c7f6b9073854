"""Which hours are computed again, sums of days, and what is forgotten when."""

from datetime import date, timedelta
from itertools import pairwise
from typing import Any

import pytest
from celery import current_app
from django.db.models import Sum
from pytest_django import DjangoAssertNumQueries, DjangoCaptureOnCommitCallbacks

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window
from apps.fairness import tasks
from apps.fairness.models import (
    FairnessDay,
    FairnessWindow,
    LoanDay,
    LoanHour,
    TeamFairnessDay,
    TeamFairnessHour,
    TierFairnessDay,
    TierFairnessHour,
)
from apps.fairness.selectors import HourCounts, fairness_rows
from apps.fairness.services import compute_hour, compute_hours, prune, roll_days
from apps.fairness.services.hour_inputs import entitlement_digests
from apps.pending.models import CauseInterval, Episode, PendingDay
from apps.quotas.models import Entitlement
from apps.usage.models import CollectionWindow
from tests.factories import make_cluster, make_tier, make_workload, note_collection
from tests.fairness.ledger import DAY, HALF, HOUR, START, World, due_hours, make_world, told
from tests.shared_rows import copy_of, shared

NOW = START + 6 * HOUR
HOURS = [START + number * HOUR for number in range(4)]
LATER = NOW + 10 * DAY
MONDAY = date(2026, 11, 16)


def make_computed() -> World:
    """Return a world of four computed hours, in which vision borrowed and speech waited."""
    world = make_world()
    for hour in HOURS:
        world.hour(hour, held={"vision": 6.0, "speech": 1.0})
    world.waits("speech", 1.0, START, START + 3 * HOUR)
    assert compute_hours(now=NOW) == 4
    return world


_computed = shared(make_computed)
world = copy_of("_computed")


def test_what_was_computed_is_not_due_again(world: World) -> None:
    assert due_hours(now=NOW) == []
    assert compute_hours(now=NOW) == 0


def test_hours_are_computed_the_newest_first(db: None) -> None:
    world = make_world()
    for hour in HOURS:
        world.hour(hour, held={"vision": 6.0})
    assert due_hours(now=NOW) == HOURS[::-1]
    assert compute_hours(now=NOW, at_most=1) == 1
    assert FairnessWindow.objects.get().hour == HOURS[-1]


def test_when_more_is_due_than_is_done_at_once_the_task_is_asked_for_again(
    db: None, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    world = make_world()
    for hour in HOURS:
        world.hour(hour, held={"vision": 6.0})
    with django_capture_on_commit_callbacks() as asked:
        compute_hours(now=NOW, at_most=3)
    assert len(asked) == 1
    with django_capture_on_commit_callbacks() as asked:
        compute_hours(now=NOW, at_most=3)
    assert asked == []
    assert FairnessWindow.objects.count() == 4


def test_an_hour_that_waits_to_be_collected_is_not_due(world: World) -> None:
    CollectionWindow.objects.create(
        cluster=world.cluster, hour=START + 4 * HOUR, state="waiting", attempted_at=NOW
    )
    assert due_hours(now=NOW) == []


def test_hours_of_which_the_only_cluster_has_no_facts_are_missing(world: World) -> None:
    outage = [START + number * HOUR for number in (4, 5, 6)]
    silver = make_tier("silver", position=1)
    world.entitle("vision", 2.0, tier=silver, since=outage[0])
    for hour in outage:
        tried = {"collected_at": None, "attempted_at": hour + HOUR}
        note_collection(world.cluster, hour, "failed", **tried)
    for number in (7, 8, 9):
        world.hour(START + number * HOUR, held={"vision": 6.0})
    now = START + 10 * HOUR
    assert compute_hours(now=now) == 6
    states = TierFairnessHour.objects.filter(hour__in=outage).order_by("pk")
    told = sorted({(row.hour, row.tier.name, row.state) for row in states})
    assert told == [(hour, tier, "missing") for hour in outage for tier in ("gold", "silver")]
    assert not TeamFairnessHour.objects.filter(hour__in=outage).exists()
    window = Window(START, now)
    gold, *_ = fairness_rows(window, now=now, visibility=EVERYTHING)
    assert gold.hours == HourCounts(known=7, missing=3, watched=7)


def test_an_outage_is_noted_once_however_often_it_is_tried_again(world: World) -> None:
    hour = START + 4 * HOUR
    note_collection(world.cluster, hour, "failed", collected_at=None, attempted_at=NOW)
    assert compute_hours(now=NOW) == 1
    for state in ("waiting", "failed", "waiting", "failed"):
        CollectionWindow.objects.filter(hour=hour).update(state=state, attempted_at=NOW + HOUR)
        assert due_hours(now=NOW + HOUR) == []
    world.hour(hour, held={"vision": 6.0}, collected_at=NOW + HOUR)
    assert due_hours(now=NOW + HOUR) == [hour]


def test_an_attempt_in_one_cluster_leaves_hours_of_others_as_they_are(world: World) -> None:
    east = make_cluster("east")
    note_collection(east, HOURS[1], "failed", collected_at=None, attempted_at=NOW)
    assert compute_hours(now=NOW) == 1
    CollectionWindow.objects.filter(cluster=east).update(state="waiting", attempted_at=NOW)
    assert due_hours(now=NOW) == []


def test_facts_that_come_late_have_their_hour_computed_again(world: World) -> None:
    world.hour(HOURS[1], held={"vision": 4.0}, collected_at=NOW)
    assert due_hours(now=NOW + HOUR) == [HOURS[1]]
    assert compute_hours(now=NOW + HOUR) == 1
    assert told(HOURS[1], "allocated", "borrowed")["vision"] == {"allocated": 4.0}
    assert told(HOURS[2], "allocated", "borrowed")["vision"] == {"allocated": 6.0, "borrowed": 2.0}


def test_a_cluster_that_comes_late_has_the_hour_computed_again(world: World) -> None:
    world.hour(HOURS[2], held={"speech": 2.0}, cluster=make_cluster("east"))
    assert due_hours(now=NOW) == [HOURS[2]]


def test_waits_that_turn_out_otherwise_have_their_hours_computed_again(world: World) -> None:
    CauseInterval.objects.update(end=START + HALF + HOUR)
    assert due_hours(now=NOW) == [HOURS[2], HOURS[1]]
    compute_hours(now=NOW)
    assert told(HOURS[1], "denied")["speech"] == {"denied": 0.5}
    assert told(HOURS[2], "denied")["speech"] == {}
    assert due_hours(now=NOW) == []


def test_a_wait_that_ends_changes_nothing_of_hours_before(world: World) -> None:
    lasting = world.waits("vision", 1.0, START + 3 * HOUR, None)
    assert due_hours(now=NOW) == [HOURS[3]]
    compute_hours(now=NOW)
    CauseInterval.objects.filter(episode=lasting).update(end=NOW)
    Episode.objects.filter(pk=lasting.pk).update(until=NOW)
    assert due_hours(now=NOW + HOUR) == []


def note_waited(world: World, **amounts: int) -> None:
    """Sum what the teams waited on Monday, as it is done whenever anything of a day changes."""
    PendingDay.objects.filter(day=MONDAY).delete()
    for team, amount in amounts.items():
        space = make_workload(world.cluster, team, "train").namespace
        given = {"cluster": world.cluster, "day": MONDAY, "namespace": space, "tier": world.gold}
        PendingDay.objects.create(cause="capacity", waited=amount, team=world.team(team), **given)


def test_waits_of_an_older_day_that_change_have_its_hours_computed_again(world: World) -> None:
    note_waited(world, speech=3)
    assert compute_hours(now=LATER) == 0
    CauseInterval.objects.update(end=START + HOUR)
    assert compute_hours(now=LATER) == 0
    note_waited(world, speech=1)
    assert compute_hours(now=LATER) == 2
    assert told(HOURS[1], "denied")["speech"] == {}
    assert compute_hours(now=LATER) == 0


def test_waits_that_go_from_one_team_to_another_are_seen_though_their_sum_stays(
    world: World,
) -> None:
    note_waited(world, speech=3)
    assert compute_hours(now=LATER) == 0
    moved = make_workload(world.cluster, "vision", "train")
    Episode.objects.update(workload=moved)
    note_waited(world, vision=3)
    assert compute_hours(now=LATER) == 3
    assert told(HOURS[1], "denied")["speech"] == {}
    assert compute_hours(now=LATER) == 0


def test_waits_of_an_older_day_that_are_all_gone_are_seen_within_a_day(world: World) -> None:
    note_waited(world, speech=3)
    assert compute_hours(now=LATER) == 0
    CauseInterval.objects.all().delete()
    PendingDay.objects.all().delete()
    assert compute_hours(now=LATER + DAY) == 3


def test_an_older_day_stays_due_until_all_its_hours_are_done(world: World) -> None:
    note_waited(world, speech=3)
    compute_hours(now=LATER)
    CauseInterval.objects.all().delete()
    note_waited(world, vision=1)
    assert compute_hours(now=LATER, at_most=2) == 2
    assert compute_hours(now=LATER, at_most=2) == 1
    assert compute_hours(now=LATER, at_most=2) == 0


@pytest.mark.parametrize("after", range(0, 48, 3), ids=lambda hours: f"{hours} h after the day")
def test_waits_that_are_told_late_are_seen_at_whatever_time(world: World, after: int) -> None:
    """Nothing else runs between: the day comes of age with or without having been looked at."""
    now = START + DAY + after * HOUR
    CauseInterval.objects.update(end=START + HALF)
    note_waited(world, speech=1)
    assert due_hours(now=now) == [HOURS[2], HOURS[1], HOURS[0]]
    assert compute_hours(now=now) == 3
    assert due_hours(now=now + HOUR) == []


def test_after_a_long_time_older_days_are_looked_at_some_at_a_time(
    db: None, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    world = make_world()
    starts = [START + number * DAY for number in range(12)]
    for start in starts:
        world.hour(start, held={"vision": 6.0})
    now = starts[-1] + 20 * DAY
    with django_capture_on_commit_callbacks() as asked:
        assert compute_hours(now=now) == 12
    assert asked == []
    world.waits("speech", 1.0, START, starts[-1] + DAY)
    with django_capture_on_commit_callbacks() as asked:
        assert compute_hours(now=now) == 10
    assert len(asked) == 1
    with django_capture_on_commit_callbacks() as asked:
        assert compute_hours(now=now) == 2
    assert asked == []
    assert compute_hours(now=now) == 0


def test_an_entitlement_of_the_past_has_its_hours_computed_again(world: World) -> None:
    world.entitle("robotics", 2.0, since=HOURS[1] + HALF, until=HOURS[3])
    assert due_hours(now=NOW) == [HOURS[2], HOURS[1]]
    assert compute_hours(now=NOW, at_most=1) == 1
    assert compute_hours(now=NOW, at_most=1) == 1
    assert told(HOURS[1], "entitlement")["robotics"] == {"entitlement": 1.0}
    assert told(HOURS[2], "entitlement")["robotics"] == {"entitlement": 2.0}
    assert due_hours(now=NOW) == []


def test_an_entitlement_that_turns_out_otherwise_has_its_hours_computed_again(
    world: World,
) -> None:
    vision = Entitlement.objects.filter(team__name="vision")
    vision.update(gpus=5.0)
    assert due_hours(now=NOW) == HOURS[::-1]
    compute_hours(now=NOW)
    vision.update(valid_to=HOURS[3] - HALF)
    assert due_hours(now=NOW) == [HOURS[3], HOURS[2]]
    compute_hours(now=NOW)
    assert told(HOURS[2], "entitlement")["vision"] == {"entitlement": 2.5}
    vision.delete()
    assert due_hours(now=NOW) == [HOURS[2], HOURS[1], HOURS[0]]


def test_entitlements_that_two_teams_exchange_are_seen_whatever_their_keys_are(db: None) -> None:
    world = make_world()
    for number in range(40):
        world.entitle(f"team-{number}", 3.0)
    hour, rows = [HOURS[0]], Entitlement.objects.filter(gpus=3.0).order_by("pk")
    for one, other in pairwise(rows):
        Entitlement.objects.filter(pk=one.pk).update(gpus=5.0)
        before = entitlement_digests(hour)
        Entitlement.objects.filter(pk=one.pk).update(gpus=3.0)
        Entitlement.objects.filter(pk=other.pk).update(gpus=5.0)
        assert entitlement_digests(hour) != before
        Entitlement.objects.filter(pk=other.pk).update(gpus=3.0)


def test_an_entitlement_from_now_on_changes_nothing_of_hours_before(world: World) -> None:
    Entitlement.objects.filter(team__name="vision").update(valid_to=NOW)
    world.entitle("vision", 8.0, since=NOW)
    assert due_hours(now=NOW) == []


def test_hours_that_were_forgotten_stay_as_they_are_whatever_teams_are_entitled_to(
    world: World,
) -> None:
    roll_days(now=LATER)
    prune(now=START + 92 * DAY)
    Entitlement.objects.update(gpus=7.0)
    assert due_hours(now=START + 92 * DAY) == []


def test_facts_are_read_as_far_as_they_were_written_since_and_all_once_a_day(
    world: World,
) -> None:
    # Nothing says when this was: but for a copy of the database nobody writes so.
    world.hour(HOURS[1], held={"vision": 4.0}, collected_at=START - DAY)
    assert due_hours(now=NOW + HOUR) == []
    assert due_hours(now=NOW + DAY) == [HOURS[1]]


def test_what_is_left_over_is_due_the_next_time(world: World) -> None:
    for hour in HOURS:
        world.hour(hour, held={"vision": 4.0}, collected_at=NOW)
    assert compute_hours(now=NOW + 7 * HOUR, at_most=1) == 1
    assert compute_hours(now=NOW + 14 * HOUR) == 3


def test_looking_for_what_is_due_takes_few_queries_however_much_there_is(
    world: World, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(30):
        world.entitle(f"team-{number}", 1.0)
        world.waits(f"team-{number}", 1.0, START, None)
    compute_hours(now=NOW)
    with django_assert_max_num_queries(18):
        assert due_hours(now=NOW) == []
    with django_assert_max_num_queries(24):
        due_hours(now=NOW + 3 * DAY)


def test_a_finished_day_is_the_sum_of_its_hours(world: World) -> None:
    assert roll_days(now=NOW) == 0
    assert roll_days(now=NOW + DAY) == 1
    assert roll_days(now=NOW + DAY) == 0
    names = ("entitlement", "demand", "fair_share", "allocated", "borrowed", "lent", "denied")
    for column in (*names, "weight", "from_pool", "overdrawn", "idle"):
        of_hours = TeamFairnessHour.objects.values("tier", "team").order_by("team")
        expected = of_hours.annotate(amount=Sum(column)).values_list("team", "amount")
        found = TeamFairnessDay.objects.order_by("team").values_list("team", column)
        assert list(found) == list(expected)
    assert set(TeamFairnessDay.objects.values_list("day", flat=True)) == {MONDAY}
    loan = LoanDay.objects.get()
    assert loan.amount == LoanHour.objects.aggregate(Sum("amount"))["amount__sum"]
    held = {str(world.team("vision").pk): 24 * 10**9, str(world.team("speech").pk): 4 * 10**9}
    assert FairnessDay.objects.get().held == held


def test_a_day_says_how_many_hours_it_is_of(world: World) -> None:
    east = make_cluster("east")
    world.hour(HOURS[1], held={"vision": 6.0}, state="partial", collected_at=NOW)
    world.hour(HOURS[2], held={}, cluster=east, state="failed")
    world.hour(HOURS[2], held={"vision": 6.0}, collected_at=NOW)
    compute_hours(now=NOW)
    roll_days(now=NOW + DAY)
    row = TierFairnessDay.objects.get()
    assert (row.hours, row.hours_missing, row.hours_partial) == (3, 1, 1)
    assert (row.hours_watched, row.capacity) == (3, 24 * 10**9)


def test_a_rolled_day_is_rolled_again_when_an_hour_of_it_changes(world: World) -> None:
    roll_days(now=NOW + DAY)
    world.hour(HOURS[0], held={"vision": 5.0}, collected_at=NOW)
    compute_hours(now=NOW + DAY)
    assert roll_days(now=NOW + DAY) == 1
    assert TeamFairnessDay.objects.get(team__name="vision").allocated == 23 * 10**9


def test_hours_are_forgotten_after_their_retention_and_days_never(world: World) -> None:
    assert prune(now=LATER + 365 * DAY) == 0
    roll_days(now=LATER)
    assert prune(now=LATER) == 0
    assert prune(now=START + 92 * DAY) == 1
    assert not any(
        m._default_manager.exists() for m in (TeamFairnessHour, TierFairnessHour, LoanHour)
    )
    assert TeamFairnessDay.objects.count() == 2
    assert prune(now=START + 92 * DAY) == 0


def test_forgotten_hours_are_not_due_again(world: World) -> None:
    roll_days(now=LATER)
    prune(now=START + 92 * DAY)
    world.hour(HOURS[0], held={"vision": 5.0}, collected_at=LATER)
    assert due_hours(now=START + 92 * DAY) == []


def test_days_are_those_of_the_report_zone(world: World) -> None:
    world.hour(START - HOUR, held={"vision": 1.0})
    compute_hour(START - HOUR, now=NOW)
    days = FairnessDay.objects.order_by("day").values_list("day", "start")
    assert list(days) == [(MONDAY - timedelta(days=1), START - DAY), (MONDAY, START)]


@pytest.mark.parametrize(
    "task", [tasks.compute_hours, tasks.roll_days, tasks.prune], ids=lambda t: t.name
)
def test_tasks_are_known_by_name_and_return_counts(db: None, task: Any) -> None:
    assert current_app.tasks[task.name] is not None
    assert task(ignored=1) == 0
