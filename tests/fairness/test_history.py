"""Which hours are computed again, sums of days, and what is forgotten when."""

from datetime import date, timedelta
from typing import Any

import pytest
from celery import current_app
from django.db.models import Sum
from pytest_django import DjangoCaptureOnCommitCallbacks

from apps.fairness import tasks
from apps.fairness.models import (
    FairDate,
    FairDay,
    FairHour,
    FairLoan,
    FairLoanDay,
    FairTierDay,
    FairTierHour,
    FairWindow,
)
from apps.fairness.services import compute_hour, compute_hours, due_hours, prune, roll_days
from apps.pending.models import CauseSpell, Episode, WaitDay
from apps.usage.models import CollectionWindow
from tests.factories import make_cluster, make_workload
from tests.fairness.ledger import DAY, HALF, HOUR, START, World, make_world, told

NOW = START + 6 * HOUR
HOURS = [START + number * HOUR for number in range(4)]
LATER = NOW + 10 * DAY
MONDAY = date(2026, 11, 16)


@pytest.fixture
def world(db: None) -> World:
    """Return a world of four computed hours, in which vision borrowed and speech waited."""
    world = make_world()
    for hour in HOURS:
        world.hour(hour, held={"vision": 6.0, "speech": 1.0})
    world.waits("speech", 1.0, START, START + 3 * HOUR)
    assert compute_hours(now=NOW) == 4
    return world


def test_what_was_computed_is_not_due_again(world: World) -> None:
    assert due_hours(now=NOW) == []
    assert compute_hours(now=NOW) == 0


def test_hours_are_computed_the_newest_first(db: None) -> None:
    world = make_world()
    for hour in HOURS:
        world.hour(hour, held={"vision": 6.0})
    assert due_hours(now=NOW) == HOURS[::-1]
    assert compute_hours(now=NOW, at_most=1) == 1
    assert FairWindow.objects.get().hour == HOURS[-1]


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
    assert FairWindow.objects.count() == 4


def test_an_hour_that_no_cluster_has_facts_of_is_not_due(world: World) -> None:
    CollectionWindow.objects.create(cluster=world.cluster, hour=START + 4 * HOUR, state="waiting")
    CollectionWindow.objects.create(cluster=world.cluster, hour=START + 5 * HOUR, state="failed")
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
    CauseSpell.objects.update(end=START + HALF + HOUR)
    assert due_hours(now=NOW) == [HOURS[2], HOURS[1]]
    compute_hours(now=NOW)
    assert told(HOURS[1], "denied")["speech"] == {"denied": 0.5}
    assert told(HOURS[2], "denied")["speech"] == {}
    assert due_hours(now=NOW) == []


def test_a_wait_that_ends_changes_nothing_of_hours_before(world: World) -> None:
    lasting = world.waits("vision", 1.0, START + 3 * HOUR, None)
    assert due_hours(now=NOW) == [HOURS[3]]
    compute_hours(now=NOW)
    CauseSpell.objects.filter(episode=lasting).update(end=NOW)
    Episode.objects.filter(pk=lasting.pk).update(until=NOW)
    assert due_hours(now=NOW + HOUR) == []


def note_waited(world: World, amount: int) -> None:
    space = make_workload(world.cluster, "speech", "train").namespace
    WaitDay.objects.update_or_create(
        cluster=world.cluster,
        day=MONDAY,
        namespace=space,
        tier=world.gold,
        cause="capacity",
        defaults={"waited": amount},
    )


def test_waits_of_an_older_day_that_change_have_all_of_it_computed_again(world: World) -> None:
    note_waited(world, 3)
    assert compute_hours(now=LATER) == 0
    CauseSpell.objects.update(end=START + HOUR)
    assert compute_hours(now=LATER) == 0
    note_waited(world, 1)
    assert compute_hours(now=LATER) == 4
    assert told(HOURS[1], "denied")["speech"] == {}
    assert compute_hours(now=LATER) == 0


def test_an_older_day_stays_due_until_all_its_hours_are_done(world: World) -> None:
    note_waited(world, 3)
    compute_hours(now=LATER)
    note_waited(world, 1)
    assert compute_hours(now=LATER, at_most=3) == 3
    assert compute_hours(now=LATER, at_most=4) == 4
    assert compute_hours(now=LATER, at_most=4) == 0


def test_a_finished_day_is_the_sum_of_its_hours(world: World) -> None:
    assert roll_days(now=NOW) == 0
    assert roll_days(now=NOW + DAY) == 1
    assert roll_days(now=NOW + DAY) == 0
    names = ("entitlement", "demand", "fair_share", "allocated", "borrowed", "lent", "denied")
    for column in (*names, "weight", "from_pool", "overdrawn", "idle"):
        of_hours = FairHour.objects.values("tier", "team").order_by("team")
        expected = of_hours.annotate(amount=Sum(column)).values_list("team", "amount")
        found = FairDay.objects.order_by("team").values_list("team", column)
        assert list(found) == list(expected)
    assert set(FairDay.objects.values_list("day", flat=True)) == {MONDAY}
    loan = FairLoanDay.objects.get()
    assert loan.amount == FairLoan.objects.aggregate(Sum("amount"))["amount__sum"]
    held = {str(world.team("vision").pk): 24 * 10**9, str(world.team("speech").pk): 4 * 10**9}
    assert FairDate.objects.get().held == held


def test_a_day_says_how_many_hours_it_is_of(world: World) -> None:
    east = make_cluster("east")
    world.hour(HOURS[1], held={"vision": 6.0}, state="partial", collected_at=NOW)
    world.hour(HOURS[2], held={}, cluster=east, state="failed")
    world.hour(HOURS[2], held={"vision": 6.0}, collected_at=NOW)
    compute_hours(now=NOW)
    roll_days(now=NOW + DAY)
    row = FairTierDay.objects.get()
    assert (row.hours, row.hours_missing, row.hours_partial) == (3, 1, 1)
    assert (row.hours_watched, row.capacity) == (3, 24 * 10**9)


def test_a_rolled_day_is_rolled_again_when_an_hour_of_it_changes(world: World) -> None:
    roll_days(now=NOW + DAY)
    world.hour(HOURS[0], held={"vision": 5.0}, collected_at=NOW)
    compute_hours(now=NOW + DAY)
    assert roll_days(now=NOW + DAY) == 1
    assert FairDay.objects.get(team__name="vision").allocated == 23 * 10**9


def test_hours_are_forgotten_after_their_retention_and_days_never(world: World) -> None:
    assert prune(now=LATER + 365 * DAY) == 0
    roll_days(now=LATER)
    assert prune(now=LATER) == 0
    assert prune(now=START + 92 * DAY) == 1
    assert not any(m._default_manager.exists() for m in (FairHour, FairTierHour, FairLoan))
    assert FairDay.objects.count() == 2
    assert prune(now=START + 92 * DAY) == 0


def test_forgotten_hours_are_not_due_again(world: World) -> None:
    roll_days(now=LATER)
    prune(now=START + 92 * DAY)
    world.hour(HOURS[0], held={"vision": 5.0}, collected_at=LATER)
    assert due_hours(now=START + 92 * DAY) == []


def test_days_are_those_of_the_report_zone(world: World) -> None:
    world.hour(START - HOUR, held={"vision": 1.0})
    compute_hour(START - HOUR, now=NOW)
    days = FairDate.objects.order_by("day").values_list("day", "start")
    assert list(days) == [(MONDAY - timedelta(days=1), START - DAY), (MONDAY, START)]


@pytest.mark.parametrize(
    "task", [tasks.compute_hours, tasks.roll_days, tasks.prune], ids=lambda t: t.name
)
def test_tasks_are_known_by_name_and_return_counts(db: None, task: Any) -> None:
    assert current_app.tasks[task.name] is not None
    assert task(ignored=1) == 0
