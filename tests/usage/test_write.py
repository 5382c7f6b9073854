"""Facts in the database: written whole, written again without a trace, summed exactly."""

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.db import DatabaseError, models, transaction

from apps.clusters.domain.devices.state import ActivityLevels
from apps.clusters.domain.window import Window, from_seconds
from apps.clusters.models import (
    Cluster,
    Node,
    NodeInterval,
    Pod,
    WatchCoverage,
)
from apps.usage.domain.attribution.attribute_hour import HourFacts
from apps.usage.models import (
    CollectionWindow,
    Day,
    NodeHour,
    PodHour,
    TeamDay,
    TeamHour,
    TierDay,
    TierHour,
    WorkloadDay,
)
from apps.usage.services import HourPruned, forget, prune, roll_days
from apps.usage.services.facts import (
    CAPACITY_COLUMNS,
    HELD_COLUMNS,
    Dimensions,
    insert,
    write_hour,
)
from tests.usage.dimensions import make_dimensions
from tests.usage.hours import START, device, hour_facts, interval, pod

pytestmark = pytest.mark.django_db

BERLIN = ZoneInfo("Europe/Berlin")
HOUR = Window.hour(from_seconds(START))
FACTS = (PodHour, NodeHour, TierHour, TeamHour, TeamDay, TierDay)


@pytest.fixture
def dimensions() -> Dimensions:
    return make_dimensions(units=1, created_at=datetime(2026, 11, 1, tzinfo=UTC))


def some_facts(activity: float = 0.7, pods: int = 2) -> HourFacts:
    names = [f"p{number + 1}" for number in range(pods)]
    rows = [
        device(
            slot, activity, uuid=f"GPU-{name}", pod_name=name, memory=100.0 * (slot + 1)
        )._replace(levels=ActivityLevels(activity / 2, activity / 4, None if slot else 0.5))
        for name in names
        for slot in (0, 1)
    ]
    return hour_facts([interval()], [pod(name, bound=-7200) for name in names], rows)


def write(facts: HourFacts, dimensions: Dimensions, *, hour: Window = HOUR) -> None:
    with transaction.atomic():
        write_hour(hour, facts, dimensions, zone=BERLIN)


def contents(tables: Iterable[type[models.Model]] = FACTS) -> dict[str, list[tuple[object, ...]]]:
    """Every row of the tables without its id, in order."""
    found = {}
    for table in tables:
        names = [f.attname for f in table._meta.concrete_fields if f.name != "id"]
        found[table.__name__] = sorted(table._default_manager.values_list(*names), key=repr)
    return found


def shifted(hours: int) -> Window:
    return Window.hour(HOUR.start + timedelta(hours=hours))


def test_writing_an_hour_again_changes_nothing(dimensions: Dimensions) -> None:
    write(some_facts(), dimensions)
    before = contents()
    assert all(before.values()), "every table has rows"
    write(some_facts(), dimensions)
    assert contents() == before


def test_an_hour_that_shrank_leaves_no_old_rows(dimensions: Dimensions) -> None:
    write(some_facts(pods=1), dimensions)
    expected = contents()
    write(some_facts(pods=2), dimensions)
    write(some_facts(pods=1), dimensions)
    assert contents() == expected


def test_the_order_of_hours_does_not_matter(dimensions: Dimensions) -> None:
    hours = [(shifted(n), some_facts(activity=0.1 * n)) for n in range(1, 6)]
    for hour, facts in hours:
        write(facts, dimensions, hour=hour)
    expected = contents()
    for table in FACTS:
        table._default_manager.all().delete()
    for hour, facts in reversed(hours):
        write(facts, dimensions, hour=hour)
    assert contents() == expected


def sums(table: type[models.Model], names: Iterable[str]) -> dict[str, int]:
    rows = table._default_manager.all()
    return {name: sum(getattr(row, name) or 0 for row in rows) for name in names}


def test_pods_teams_nodes_tiers_and_days_sum_to_the_same(dimensions: Dimensions) -> None:
    for n in range(4):
        write(some_facts(activity=0.123456789 * n, pods=1 + n % 2), dimensions, hour=shifted(n))
    assert roll_days(now=HOUR.start + timedelta(days=3)) == 1
    names = [name for name in HELD_COLUMNS if name != "memory_peak_mib"]
    expected = sums(PodHour, names)
    assert expected["busy"] > 0
    assert expected["memory_copy_measured"] * 2 == expected["sm_measured"] > 0
    for table in (TeamHour, NodeHour, TierHour, TeamDay, TierDay, WorkloadDay):
        assert sums(table, names) == expected, table.__name__
    capacity = sums(NodeHour, CAPACITY_COLUMNS)
    assert sums(TierHour, CAPACITY_COLUMNS) == sums(TierDay, CAPACITY_COLUMNS) == capacity


def test_memory_is_the_peak_of_the_day(dimensions: Dimensions) -> None:
    write(some_facts(), dimensions)
    assert TeamDay.objects.get().memory_peak_mib == 200.0


def test_the_day_is_that_of_the_report_zone(dimensions: Dimensions) -> None:
    late = Window.hour(datetime(2026, 11, 2, 23, tzinfo=UTC))
    write(some_facts(), dimensions, hour=late)
    assert TierDay.objects.get().day == date(2026, 11, 3)
    assert Day.objects.get().start == datetime(2026, 11, 2, 23, tzinfo=UTC)


def test_a_rolled_day_is_rolled_anew_after_one_of_its_hours_changed(
    dimensions: Dimensions,
) -> None:
    later = HOUR.start + timedelta(days=3)
    write(some_facts(activity=0.2), dimensions)
    roll_days(now=later)
    write(some_facts(activity=0.9), dimensions)
    assert roll_days(now=later) == 1
    assert roll_days(now=later) == 0, "nothing is left to roll"
    assert sums(WorkloadDay, ["busy"]) == sums(PodHour, ["busy"])


def test_a_day_that_still_runs_is_not_rolled(dimensions: Dimensions) -> None:
    write(some_facts(), dimensions)
    assert roll_days(now=HOUR.end) == 0
    assert not WorkloadDay.objects.exists()


def test_pruning_keeps_sums_and_refuses_to_write_the_day_again(dimensions: Dimensions) -> None:
    write(some_facts(), dimensions)
    later = HOUR.start + timedelta(days=92)
    assert prune(now=later) == 0, "a day that is not rolled yet is kept"
    roll_days(now=later)
    before = contents((TeamHour, TierHour, TeamDay, TierDay, WorkloadDay))
    assert prune(now=later) == 1
    assert not PodHour.objects.exists()
    assert not NodeHour.objects.exists()
    with pytest.raises(HourPruned, match="2026-11-02"):
        write(some_facts(), dimensions)
    assert contents((TeamHour, TierHour, TeamDay, TierDay, WorkloadDay)) == before


def test_the_hourly_rows_of_recent_days_are_kept(dimensions: Dimensions) -> None:
    write(some_facts(), dimensions)
    roll_days(now=HOUR.start + timedelta(days=3))
    assert prune(now=HOUR.start + timedelta(days=89)) == 0
    assert PodHour.objects.exists()


def test_the_ledger_and_data_health_are_forgotten_after_their_retention(
    dimensions: Dimensions,
) -> None:
    cluster = Cluster.objects.get()
    Pod.objects.filter(uid="uid-p1").update(ended_at=HOUR.start)
    node = Node.objects.get()
    for start, end in ((HOUR.start, HOUR.end), (HOUR.end, None)):
        NodeInterval.objects.create(node=node, start=start, end=end, ready=True, schedulable=True)
    WatchCoverage.objects.create(cluster=cluster, start=HOUR.start, end=HOUR.end)
    CollectionWindow.objects.create(cluster=cluster, hour=HOUR.start, state="complete")
    assert forget(now=HOUR.start + timedelta(days=399)) == 0
    assert forget(now=HOUR.end + timedelta(days=401)) == 4
    assert [p.uid for p in Pod.objects.all()] == ["uid-p2"], "one that still lives is kept"
    assert NodeInterval.objects.get().end is None


def test_rows_that_the_database_refuses_raise_an_error_that_callers_know() -> None:
    """Of COPY psycopg raises its own, which nobody catches."""
    with pytest.raises(DatabaseError), transaction.atomic():
        insert(Cluster, ("name",), [("long" * 1000,)])
