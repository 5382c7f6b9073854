"""Losses that are kept by the day say what the hours of pods did, and stay when these go."""

from datetime import UTC, date, datetime, timedelta

import pytest
from django.db.models import QuerySet
from django.test import Client, override_settings
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import EVERYTHING, visibility_of
from apps.clusters.domain.window import Window
from apps.clusters.models import Pod
from apps.costs.services.pricing import fold_workloads
from apps.goodput.models import LossDay, StoredLossDay
from apps.goodput.selectors import (
    GoodputLedger,
    GoodputRow,
    goodput_by_period,
    goodput_ledger,
)
from apps.goodput.services import keep_losses
from apps.usage.domain.amounts import NANO
from apps.usage.domain.usage_query import Filters, Grouping, TimeStep, UsageQuery, whole_days
from apps.usage.models import CollectionWindow, PodHour
from apps.usage.services import prune, roll_days
from tests.factories import PodFact, Portal, collect, held, hours_of, make_portal
from tests.shared_rows import copy_of, shared
from tests.thinned import thinned

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
LAST = date(2026, 3, 10)
SINCE = datetime(2026, 3, 1, tzinfo=UTC)
CRASH = datetime(2026, 3, 9, 10, 30, tzinfo=UTC)
LATER = datetime(2026, 3, 11, 9, tzinfo=UTC)
BY_DAY = [
    *((), (Grouping.TEAM,), (Grouping.TIER,), (Grouping.CLUSTER, Grouping.CAPACITY_TYPE)),
    (Grouping.CLUSTER, Grouping.NAMESPACE, Grouping.WORKLOAD, Grouping.TEAM),
]
STATES = ("hours", "days", "pruned")


def make_three_days() -> Portal:
    """Three days: `train-0` crashed on the second and ran on, `notes-0` was preempted then."""
    made = _failing()
    made.collect(whole_days(LAST - timedelta(days=1), 2, made.zone))
    made.collect(whole_days(LAST, 1, made.zone), rolled=False)
    return made


def _failing() -> Portal:
    made = make_portal(since=SINCE)
    restarted = [[SINCE.timestamp(), CRASH.timestamp()], [CRASH.timestamp(), None]]
    _change(made, "train-0", runs=restarted)
    _change(made, "notes-0", ended_at=CRASH, end_reason="PreemptionByScheduler")
    _change(made, "bare", ended_at=CRASH, end_reason="", observed_until=CRASH)
    return made


_portal = shared(make_three_days)
portal = copy_of("_portal")


def _change(portal: Portal, name: str, **values: object) -> None:
    Pod.objects.filter(name=name).update(**values)
    pod = next(pod for pod in portal.pods if pod.name == name)
    for key, value in values.items():
        setattr(pod, key, value)


def read(
    portal: Portal,
    *by: Grouping,
    days: int,
    interval: TimeStep = TimeStep.TOTAL,
    of: tuple[str, ...] = (),
) -> GoodputLedger:
    window = whole_days(LAST, days, portal.zone)
    return goodput_ledger(
        *(window,),
        group_by=by,
        filters=Filters(team=of),
        visibility=EVERYTHING,
        interval=interval,
    )


def losses(found: GoodputLedger) -> list[tuple[object, ...]]:
    """Return causes as days have them: GPUs and nodes at the time are known by the hour alone."""
    return [
        (one.cause, one.reason, one.events, one.pods, one.lost_gpu_hours) for one in found.reasons
    ]


def keep(state: str) -> None:
    """Keep the losses of the days, unless they are in `hours` alone, and delete their hours."""
    if state != "hours":
        # The third day is not rolled yet: its hours are read beside the kept days.
        assert keep_losses(now=LATER) == 4
    if state == "pruned":
        assert prune(now=LATER + timedelta(days=200)) == 4
        assert PodHour.objects.filter(hour__lt=CRASH).count() == 0


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("by", BY_DAY, ids=lambda by: "-".join(by) or "total")
def test_a_long_window_has_what_its_hours_have(
    portal: Portal, by: tuple[Grouping, ...], state: str
) -> None:
    short = read(portal, *by, days=3)
    before = read(portal, days=3, interval=TimeStep.DAY)
    keep(state)
    long = read(portal, *by, days=120, interval=TimeStep.DAY)
    assert long.total == short.total == before.total
    assert {tuple(row.groups.values()): row for row in long.rows} == {
        tuple(row.groups.values()): row for row in short.rows
    }
    assert losses(long) == losses(short)
    assert [(one.reason, one.events, one.pods) for one in long.reasons] == [
        ("Restarted", 1, 1),
        ("PreemptionByScheduler", 1, 1),
    ]
    assert long.periods == before.periods
    assert any(row.unwatched for row in long.periods.values())
    assert long.unwatched == short.unwatched > 0


@pytest.mark.parametrize(
    ("by", "step", "state"),
    thinned(BY_DAY, (TimeStep.DAY, TimeStep.WEEK, TimeStep.MONTH), STATES, together=2),
)
def test_periods_by_group_are_the_same_from_hours_and_from_days(
    portal: Portal, by: tuple[Grouping, ...], step: TimeStep, state: str
) -> None:
    def found(days: int) -> list[GoodputRow]:
        asked = UsageQuery(whole_days(LAST, days, portal.zone), step, by)
        return goodput_by_period(asked, visibility=EVERYTHING, zone=portal.zone)

    short = found(3)
    keep(state)
    long = found(120)
    # The first week or month of either window begins with it.
    assert [(row.groups, row.amounts, row.unwatched) for row in long] == [
        (row.groups, row.amounts, row.unwatched) for row in short
    ]
    assert sum(row.amounts.lost for row in long) == read(portal, days=120).total.lost > 0


def test_periods_by_group_know_of_nothing_that_went_before_it_was_kept(portal: Portal) -> None:
    prune(now=LATER + timedelta(days=200))
    asked = UsageQuery(whole_days(LAST, 3, portal.zone), TimeStep.DAY, (Grouping.TEAM,))
    rows = goodput_by_period(asked, visibility=EVERYTHING, zone=portal.zone)
    gone = [row for row in rows if row.period and row.period.date() < LAST]
    assert gone
    assert {row.lost_gpu_hours for row in gone} == {None}
    assert all(row.lost_gpu_hours == 0 for row in rows if row not in gone)


def test_a_reader_sees_the_kept_losses_of_their_teams_alone(portal: Portal) -> None:
    keep("pruned")
    window = whole_days(LAST, 120, portal.zone)
    own = goodput_ledger(
        window, group_by=(), filters=Filters(), visibility=visibility_of(portal.dan)
    )
    assert own.total == read(portal, days=120, of=("speech",)).total
    assert [one.reason for one in own.reasons] == ["PreemptionByScheduler"]


def test_what_went_before_its_losses_were_kept_is_not_known(portal: Portal) -> None:
    whole = read(portal, Grouping.TEAM, days=3)
    prune(now=LATER + timedelta(days=200))
    for days in (3, 120):
        found = read(portal, Grouping.TEAM, days=days)
        assert found.total.allocated == whole.total.allocated
        # The third day is there by the hour; nothing was lost in it.
        assert found.total.lost == 0
        gone = read(portal, days=3).total.allocated - read(portal, days=1).total.allocated
        assert found.unwatched == gone > 0
    first = Window(whole_days(LAST, 3, portal.zone).start, whole_days(LAST, 1, portal.zone).start)
    none = goodput_ledger(first, group_by=(), filters=Filters(), visibility=EVERYTHING)
    assert not none.is_watched
    assert [row.lost_gpu_hours for row in none.rows] == [None]


def test_what_is_lost_later_is_lost_of_the_days_before_a_day_later(portal: Portal) -> None:
    keep_losses(now=LATER)
    before = read(portal, days=120).total.lost
    Pod.objects.filter(name="train-1").update(ended_at=LATER - HOUR, end_reason="OOMKilled")
    assert keep_losses(now=LATER + HOUR) == 0
    # The two days of its cluster: nothing changed on the other one.
    assert keep_losses(now=LATER + timedelta(days=1)) == 2
    found = read(portal, days=120)
    assert found.total.lost == read(portal, days=3).total.lost > before
    assert losses(found) == losses(read(portal, days=3))
    assert "OOMKilled" in {one.reason for one in found.reasons}


def test_days_are_computed_again_where_something_changed(portal: Portal) -> None:
    def kept(days: int) -> int:
        return keep_losses(now=LATER + timedelta(days=days))

    def west() -> QuerySet[StoredLossDay, StoredLossDay]:
        return StoredLossDay.objects.filter(cluster=portal.clusters[0])

    assert (kept(0), kept(1)) == (4, 0)
    # They were looked at all the same, and are not again on that day.
    assert {one.computed_at for one in StoredLossDay.objects.all()} == {LATER + timedelta(days=1)}
    Pod.objects.filter(name="train-1").update(exits=[[CRASH.timestamp() + 60, "Error"]])
    assert (kept(1), kept(2), kept(3)) == (0, 2, 0)
    assert losses(read(portal, days=120)) == losses(read(portal, days=3))
    # A pod that was bound on the second day changes nothing of the first one.
    Pod.objects.filter(name="train-1").update(bound_at=CRASH)
    assert kept(4) == 2
    Pod.objects.filter(name="train-1").update(exits=[[CRASH.timestamp() + 120, "Error"]])
    assert kept(5) == 1
    # Of a pod that no watch saw it is unknown what was lost: another day of the other cluster.
    Pod.objects.filter(name="bare").update(observed_until=CRASH + HOUR)
    assert kept(6) == 2
    hour = CollectionWindow.objects.filter(cluster=portal.clusters[0], hour__lt=CRASH).first()
    assert hour is not None
    CollectionWindow.objects.filter(pk=hour.pk).update(collected_at=LATER)
    assert kept(7) == 1
    # What an older version kept does not say what it rests on.
    west().update(basis="")
    assert (kept(8), kept(9)) == (2, 0)


@pytest.mark.parametrize("state", ["hours", "days", "pruned"])
def test_a_failure_of_a_pod_with_gpus_of_two_models_counts_once(state: str) -> None:
    portal = _failing()
    pod = next(pod for pod in portal.pods if pod.name == "train-0")

    def two_models(hour: datetime) -> list[PodFact]:
        facts = portal.facts_of(hour)
        return [*facts, PodFact(pod, portal.node_gpus[1], portal.vision, held(2.0, busy=1.0))]

    days = whole_days(LAST - timedelta(days=1), 2, portal.zone)
    collect(hours_of(days), portal.node_gpus, two_models, zone=portal.zone)
    keep(state)

    def events(**of: tuple[str, ...]) -> dict[str, int]:
        window = whole_days(LAST, 120 if state != "hours" else 3, portal.zone)
        found = goodput_ledger(window, group_by=(), filters=Filters(**of), visibility=EVERYTHING)
        return {one.reason: one.events for one in found.reasons}

    assert events() == {"Restarted": 1, "PreemptionByScheduler": 1}
    # Each of its tiers lost something, and tells why.
    assert [events(tier=(one,))["Restarted"] for one in ("gold", "silver")] == [1, 1]
    assert events(tier=("gold", "silver")) == events(team=("vision", "speech")) == events()


def test_a_failure_counts_once_where_a_day_before_it_is_read_by_the_hour(portal: Portal) -> None:
    keep_losses(now=LATER)
    # The run that crashed on the 9th was lost of the 8th as well, which is not kept yet.
    for table in (LossDay, StoredLossDay):
        assert table._default_manager.filter(day=date(2026, 3, 8)).delete()[0]
    assert losses(read(portal, days=120)) == losses(read(portal, days=3))


def test_kept_losses_are_folded_with_their_workloads(portal: Portal) -> None:
    roll_days(now=LATER)
    keep_losses(now=LATER)
    before = read(portal, days=120)
    much_later = LATER + timedelta(days=500)
    prune(now=much_later)
    with override_settings(WORKLOAD_RETENTION_DAYS=100):
        assert fold_workloads(now=much_later) > 0
    by = (Grouping.CLUSTER, Grouping.NAMESPACE, Grouping.WORKLOAD, Grouping.TEAM)
    found = read(portal, *by, days=120)
    assert found.total == before.total
    assert losses(found) == losses(before)
    lost = {row.groups["workload"]: row.amounts.lost for row in found.rows if row.amounts.lost}
    assert not any("train" in name for name in lost)
    assert sum(lost.values()) == before.total.lost


def test_few_queries_however_long(
    portal: Portal, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    keep_losses(now=LATER)
    with django_assert_max_num_queries(35):
        read(portal, Grouping.TEAM, days=400, interval=TimeStep.DAY)


def test_page_and_api_show_a_long_window(portal: Portal) -> None:
    keep_losses(now=LATER)
    assert StoredLossDay.objects.count() == 4
    assert LossDay.objects.filter(unwatched__gt=0).exists()
    client = Client()
    client.force_login(portal.cleo)
    page = client.get("/capacity/goodput/", {"first": "2025-03-01", "last": "2026-03-10"})
    assert "PreemptionByScheduler" in page.content.decode()
    span = {"start": "2025-03-01", "end": "2026-03-11"}
    (row,) = client.get("/api/v1/goodput", span).json()["results"]
    assert row["lost_gpu_hours"] == pytest.approx(read(portal, days=3).total.lost / NANO)
