"""Days of 23 and 25 hours, samples that come late, and clocks that are off."""

from collections.abc import Collection, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cache, partial
from random import Random
from zoneinfo import ZoneInfo

import pytest
from django.db.models import Count, Sum
from django.test import TestCase

from apps.clusters.domain.window import Window, day_window
from apps.clusters.models import Cluster
from apps.usage.domain.collection import CollectionState
from apps.usage.models import CollectionWindow, TeamDay, TeamHour, TierDay, TierHour
from apps.usage.services import collect_enqueued, collect_window, schedule_collections
from tests.faults.collecting import HOURS, START, Collecting, World, catalog, collecting, parts_of
from tests.faults.facts import Facts, Row, differences, facts
from tests.faults.proxy import BODY_FAULTS, Fault, Proxy, Spoiled, undisturbed
from tests.faults.stages import messages
from tests.simulator.only_faults import OnlyFaults

pytestmark = [pytest.mark.django_db, pytest.mark.long, pytest.mark.usefixtures("no_pauses")]


# ---------------------------------------------------------------- summer time

DAYS = [
    pytest.param("Europe/Berlin", date(2026, 10, 25), 25, id="an hour twice"),
    pytest.param("Europe/Berlin", date(2026, 3, 29), 23, id="an hour left out"),
    pytest.param("America/St_Johns", date(2026, 11, 1), 25, id="half an hour beside UTC"),
]


@cache
def _world(zone: str, day: date) -> World:
    """Return the fault scenarios from the day before until the day after a local day."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    start, end = midnight - timedelta(days=1), midnight + timedelta(days=2)
    scenario = OnlyFaults(round(start.timestamp()), round(end.timestamp()))
    return World(scenario, start, partial(catalog, zone=zone))


@pytest.mark.exhaustive
@pytest.mark.parametrize(("zone", "day", "hours"), DAYS)
def test_a_day_on_which_clocks_change_has_all_its_hours_once(
    door: Proxy, zone: str, day: date, hours: int
) -> None:
    window = day_window(day, ZoneInfo(zone))
    assert window.seconds == hours * 3600
    with collecting(door, world=_world(zone, day)) as portal:
        portal.move_to(window.end + timedelta(minutes=10))
        _collect_whole(portal, window)
        quiet = portal.finish(window.end)
        _assert_sums(day, hours)
    order = list(window.hours())
    Random(hours).shuffle(order)  # noqa: S311 - no secret
    spoiled = Spoiled(7, (*BODY_FAULTS, Fault.REORDERED))
    with collecting(door, spoiled, _world(zone, day)) as portal:
        portal.collect_all(order)
        found = portal.finish(window.end)
        _assert_sums(day, hours)
    assert door.faults.total() > len(order)
    assert differences(quiet, found) == []


def _collect_whole(portal: Collecting, window: Window) -> None:
    """Collect a day in queries of at most 24 hours."""
    for part in parts_of(window, 24):
        ended = collect_window("lab", part, now=portal.now(), source=portal.source)
        assert {one.state for one in ended} == {CollectionState.COMPLETE}


def _assert_sums(day: date, hours: int) -> None:
    """Assert that the sums of a day are those of its hours, of which each counts once."""
    for of_day, of_hours, dimension in ((TierDay, TierHour, "tier"), (TeamDay, TeamHour, "team")):
        amounts = {name: Sum(name) for name in ("allocated", "busy", "unmeasured")}
        sums = list(
            of_hours._default_manager.values(dimension).annotate(**amounts).order_by(dimension)
        )
        days = of_day._default_manager.filter(day=day)
        assert list(days.values(dimension).annotate(**amounts).order_by(dimension)) == sums
        assert sum(one["allocated"] for one in sums) > 0
    seen = TierHour.objects.aggregate(hours=Count("hour", distinct=True))
    assert seen["hours"] == CollectionWindow.objects.filter(state="complete").count() == hours


# ---------------------------------------------------------------- late samples


def _collect_behind(portal: Collecting, behind: timedelta) -> list[CollectionState]:
    """Collect each hour ten minutes after its end, from a Prometheus that is `behind`."""
    found = []
    for hour in HOURS:
        now = hour.end + timedelta(minutes=10)
        portal.move_to(now - behind)
        (ended,) = collect_window("lab", hour, now=now, source=portal.source)
        found.append(ended.state)
    return found


@pytest.mark.parametrize(
    "minutes",
    [
        pytest.param(12, id="two minutes lack"),
        pytest.param(30, id="a third lacks", marks=pytest.mark.exhaustive),
        pytest.param(69, id="a minute is there", marks=pytest.mark.exhaustive),
    ],
)
def test_samples_that_come_late_are_taken_in(
    door: Proxy, quiet_series: Facts, minutes: int
) -> None:
    with collecting(door) as portal:
        found_first = _collect_behind(portal, timedelta(minutes=minutes))
        assert found_first == [CollectionState.PARTIAL] * len(HOURS)
        portal.move_to(HOURS[-1].end + timedelta(minutes=30))
        portal.collect_due()
        found = portal.finish(HOURS[-1].end)
    assert differences(quiet_series, found) == []


# ---------------------------------------------------------------- clocks that are off


@pytest.mark.parametrize("minutes", [10, pytest.param(-10, marks=pytest.mark.exhaustive)])
def test_hours_of_a_portal_whose_clock_is_off_are_the_same_in_the_end(
    door: Proxy, quiet_series: Facts, minutes: int
) -> None:
    off = timedelta(minutes=minutes)
    with collecting(door) as portal:
        for hour in HOURS:
            # Two minutes after the end of the hour by the portal's clock.
            now = hour.end + timedelta(minutes=2)
            portal.move_to(now - off)
            collect_window("lab", hour, now=now, source=portal.source)
        portal.move_to(HOURS[-1].end + timedelta(minutes=30))
        portal.collect_due()
        found = portal.finish(HOURS[-1].end)
    assert differences(quiet_series, found) == []


def _turn(portal: Collecting, beat: timedelta, worker: timedelta) -> None:
    """Enqueue what is due by beat's clock, and let a worker do it by its own."""
    with messages() as told, TestCase.captureOnCommitCallbacks(execute=True):
        schedule_collections(now=portal.now() + beat)
    for message in told:
        collect_enqueued(
            message["cluster_id"],
            datetime.fromisoformat(message["hour"]),
            now=portal.now() + worker,
            enqueued=datetime.fromisoformat(message["enqueued"]),
        )


@pytest.mark.parametrize(
    ("minutes", "worker"),
    [
        pytest.param(35, 35),
        *(
            pytest.param(*case, marks=pytest.mark.exhaustive)
            for case in ((20, 20), (60, 60), (120, 120), (35, 0), (120, 0))
        ),
    ],
)
def test_hours_that_clocks_take_for_over_too_early_are_collected_again(
    door: Proxy, quiet_series: Facts, minutes: int, worker: int
) -> None:
    """They are tried six times before they are over; then the clocks are set right."""
    off = timedelta(minutes=minutes), timedelta(minutes=worker)
    with collecting(door) as portal:
        Cluster.objects.update(collect_from=START)
        portal.move_to(HOURS[1].start + timedelta(minutes=22))
        while portal.now() < HOURS[-1].end:
            _turn(portal, *off)
            portal.clock.advance(60)
        for _ in range(24):
            portal.clock.advance(600)
            _turn(portal, timedelta(), timedelta())
        own = {hour.start for hour in HOURS}
        CollectionWindow.objects.exclude(hour__in=own).delete()
        states = set(CollectionWindow.objects.values_list("state", flat=True))
        portal.move_to(HOURS[-1].end + timedelta(hours=20))
        portal.derive()
        found = facts()
    assert states == {CollectionState.COMPLETE}
    told = {table: _of_hours(quiet_series[table], own) for table in _OF_HOURS}
    assert len(told["usage_podhour"]) > 20
    assert differences(told, {table: _of_hours(found[table], own) for table in told}) == []


_OF_HOURS = ("usage_podhour", "usage_nodehour", "usage_teamhour", "usage_tierhour")


def _of_hours(rows: Sequence[Row], hours: Collection[datetime]) -> list[Row]:
    # SQLite gives times as they are stored: in UTC, without saying so.
    return [row for row in rows if dict(row)["hour"].replace(tzinfo=UTC) in hours]


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_worker_whose_clock_is_set_to_another_year_holds_no_hour_up(
    door: Proxy, *, is_killed: bool
) -> None:
    ahead = timedelta(days=400)
    with collecting(door) as portal:
        Cluster.objects.update(collect_from=START)
        portal.move_to(HOURS[-1].end + timedelta(minutes=10))
        door.script = lambda _: Fault.REFUSED
        for hour in HOURS:
            collect_window("lab", hour, now=portal.now() + ahead, source=portal.source)
        if is_killed:
            CollectionWindow.objects.update(lease_until=portal.now() + ahead)
        door.script = undisturbed
        _turn(portal, timedelta(), timedelta())
        states = set(CollectionWindow.objects.values_list("state", flat=True))
    assert states == {CollectionState.COMPLETE}
