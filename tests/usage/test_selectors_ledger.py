"""The ledger read by period and group: nothing is lost or counted twice, whatever the question."""

from collections.abc import Iterable
from contextlib import nullcontext
from copy import deepcopy
from datetime import date, timedelta
from decimal import Decimal
from itertools import combinations, product
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoAssertNumQueries

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import Visibility, visibility_of
from apps.clusters.domain.window import Window
from apps.usage.domain.amounts import HELD_FIELDS, Amounts
from apps.usage.domain.usage_query import Filters, Grouping, TimeStep, UsageRow
from apps.usage.models import Day, PodHour, TierDay, TierHour
from apps.usage.selectors import GroupingRefused
from apps.usage.selectors.fact_tables import amounts_of
from tests import factories
from tests.factories import Portal, make_portal
from tests.shared_rows import copy_of, shared
from tests.usage.three_days import BERLIN, days, make_three_days, read, utc

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
GROUPINGS = [groups for count in range(3) for groups in combinations(Grouping, count)]


def total(rows: Iterable[UsageRow]) -> Amounts:
    whole = Amounts()
    for row in rows:
        whole.add(row.amounts)
    return whole


def held_in(window: Window) -> Amounts:
    """Return the plain sum over the pods' hours of a window, added up one by one."""
    whole = Amounts()
    for fact in PodHour.objects.filter(hour__gte=window.start, hour__lt=window.end):
        whole.add(
            Amounts(
                **{name: getattr(fact, name) for name in HELD_FIELDS},
                memory_peak_mib=fact.memory_peak_mib,
            )
        )
    return whole


def held_part(amounts: Amounts) -> list[Any]:
    return [getattr(amounts, name) for name in (*HELD_FIELDS, "memory_peak_mib")]


_three_days = shared(make_three_days)
portal = copy_of("_three_days")


WINDOWS = [
    pytest.param(days(date(2026, 3, 28), 3), id="whole days"),
    pytest.param(Window(utc(2026, 3, 28, 5), utc(2026, 3, 30, 17)), id="with edges"),
    pytest.param(Window(utc(2026, 3, 29, 5), utc(2026, 3, 29, 9)), id="within a day"),
    pytest.param(Window(utc(2026, 3, 1), utc(2026, 5, 1)), id="wider than the facts"),
]


@pytest.mark.parametrize("window", WINDOWS)
def test_every_grouping_sums_to_the_pods_hours(
    portal: Portal, window: Window, subtests: pytest.Subtests
) -> None:
    expected = held_part(held_in(window))
    for groups, interval in product(GROUPINGS, TimeStep):
        with subtests.test(groups=groups, interval=interval):
            assert held_part(total(read(window, *groups, interval=interval))) == expected


def test_both_equations_hold_for_every_row(portal: Portal, subtests: pytest.Subtests) -> None:
    for groups in GROUPINGS:
        with subtests.test(groups=groups):
            rows = read(days(date(2026, 3, 28), 3), *groups)
            assert rows
            assert all(balanced(row.amounts) for row in rows)


def balanced(a: Amounts) -> bool:
    parts = a.not_running + a.unmeasured + a.idle + a.underused + a.busy
    if a.capacity is None or a.unhealthy is None or a.unallocated is None:
        return a.allocated == parts and (a.capacity, a.unhealthy, a.unallocated) == (None,) * 3
    return a.allocated == parts and a.capacity == a.unhealthy + a.unallocated + a.allocated


def test_capacity_is_there_unless_a_team_or_finer_is_named(
    portal: Portal, subtests: pytest.Subtests
) -> None:
    for groups in GROUPINGS:
        finer = {Grouping.TEAM, Grouping.NAMESPACE, Grouping.WORKLOAD} & set(groups)
        with subtests.test(groups=groups):
            rows = read(days(date(2026, 3, 28), 1), *groups)
            assert rows
            assert all((row.amounts.capacity is None) == bool(finer) for row in rows)


def test_a_filter_on_a_team_takes_capacity_away(portal: Portal) -> None:
    rows = read(days(date(2026, 3, 28), 1), Grouping.TIER, filters=Filters(team=("vision",)))
    assert [row.groups["tier"] for row in rows] == ["gold", "silver"]
    assert all(row.amounts.capacity is None for row in rows)


def test_periods_are_local_days_with_the_offset_of_their_start(portal: Portal) -> None:
    rows = read(days(date(2026, 3, 28), 3))
    assert [row.period.isoformat() for row in rows if row.period] == [
        "2026-03-28T00:00:00+01:00",
        "2026-03-29T00:00:00+01:00",
        "2026-03-30T00:00:00+02:00",
    ]
    # 11 GPUs are held in every hour; the day of the change has 23.
    assert [row.amounts.allocated for row in rows] == [h * 11 * 10**9 for h in (24, 23, 24)]


def test_the_hour_that_autumn_repeats_is_two_periods() -> None:
    portal = make_portal()
    window = days(date(2026, 10, 25), 1)
    portal.collect(window)
    hours = read(window, interval=TimeStep.HOUR)
    assert len(hours) == 25
    assert [row.period.isoformat() for row in hours[1:4] if row.period] == [
        "2026-10-25T01:00:00+02:00",
        "2026-10-25T02:00:00+02:00",
        "2026-10-25T02:00:00+01:00",
    ]
    (day,) = read(window)
    assert day.amounts.allocated == 25 * 11 * 10**9


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        (TimeStep.WEEK, ["2026-03-23T00:00:00+01:00", "2026-03-30T00:00:00+02:00"]),
        (TimeStep.MONTH, ["2026-03-01T00:00:00+01:00"]),
    ],
)
def test_weeks_start_on_monday_and_months_on_the_first(
    portal: Portal, interval: TimeStep, expected: list[str]
) -> None:
    rows = read(days(date(2026, 3, 28), 3), interval=interval)
    assert [row.period.isoformat() for row in rows if row.period] == expected


def test_a_zone_at_half_past_has_days_of_facts_that_start_at_half_past() -> None:
    portal = make_portal("Asia/Kolkata")
    kolkata = ZoneInfo("Asia/Kolkata")
    window = days(date(2026, 3, 28), 2, kolkata)
    assert window.start.minute == 30
    portal.collect(window)
    rows = read(window, Grouping.TIER)
    assert {row.period.isoformat() for row in rows if row.period} == {
        "2026-03-28T00:00:00+05:30",
        "2026-03-29T00:00:00+05:30",
    }
    assert held_part(total(rows)) == held_part(held_in(window))
    assert len(read(window, interval=TimeStep.HOUR)) == 48


def test_a_total_has_no_period(portal: Portal) -> None:
    (row,) = read(days(date(2026, 3, 28), 3), interval=TimeStep.TOTAL)
    assert row.period is None
    assert row.groups == {}


def test_groups_keep_the_order_asked_for_and_rows_are_sorted_by_their_names(
    portal: Portal,
) -> None:
    rows = read(
        days(date(2026, 3, 28), 3), Grouping.TEAM, Grouping.CLUSTER, interval=TimeStep.TOTAL
    )
    assert [list(row.groups.items()) for row in rows] == [
        [("team", "speech"), ("cluster", "east")],
        [("team", "speech"), ("cluster", "west")],
        [("team", "unassigned"), ("cluster", "east")],
        [("team", "vision"), ("cluster", "west")],
    ]


def test_workloads_of_one_name_are_one_row_unless_told_apart(portal: Portal) -> None:
    window = days(date(2026, 3, 28), 1)
    names = [row.groups["workload"] for row in read(window, Grouping.WORKLOAD)]
    assert names == ["Deployment/serve", "Job/train", "Pod/bare", "StatefulSet/notes"]
    apart = read(window, Grouping.CLUSTER, Grouping.WORKLOAD)
    assert [tuple(row.groups.values()) for row in apart][-1] == ("west", "StatefulSet/notes")
    assert len(apart) == 5


FILTERED: list[tuple[Filters, int | None]] = [
    (Filters(cluster=("west",)), 8),
    (Filters(tier=("gold",)), 6),
    (Filters(tier=("gold", "silver")), 11),
    (Filters(team=("speech",)), 3),
    (Filters(namespace=("vision", "stray")), 7),
    (Filters(workload=("StatefulSet/notes",)), 3),
    (Filters(workload=("train",)), None),
    (Filters(gpu_model=("nvidia a100 sxm4 80gb",)), 5),
    (Filters(capacity_type=("spot",)), 2),
    (Filters(node=("west-1",)), 6),
    (Filters(node=("west-1",), team=("vision",)), 5),
    (Filters(tier=("gold",), team=("speech",), cluster=("east",)), None),
    (Filters(cluster=("nowhere",)), None),
]


def test_filters_narrow_to_what_they_name(portal: Portal, subtests: pytest.Subtests) -> None:
    for filters, gpus in FILTERED:
        with subtests.test(filters=filters):
            rows = read(days(date(2026, 3, 28), 1), interval=TimeStep.TOTAL, filters=filters)
            found = [row.amounts.allocated for row in rows]
            assert found == ([gpus * 24 * 10**9] if gpus else [])


def test_an_hour_that_was_not_collected_is_absent_and_never_zero() -> None:
    portal = make_portal()
    at = utc(2026, 3, 10, 12)
    factories.collect(
        [at, at + 2 * HOUR], portal.node_gpus, portal.facts_of, zone=BERLIN, rolled=False
    )
    rows = read(Window(at, at + 4 * HOUR), interval=TimeStep.HOUR)
    assert [row.period for row in rows] == [at, at + 2 * HOUR]


def test_rolled_days_are_read_from_their_sums_when_the_hours_are_gone(portal: Portal) -> None:
    window = days(date(2026, 3, 28), 2)
    before = read(window, Grouping.NAMESPACE)
    PodHour.objects.filter(hour__lt=window.end).delete()
    assert read(window, Grouping.NAMESPACE) == before


def test_a_day_rolled_by_one_cluster_only_is_read_by_hour_for_the_other(portal: Portal) -> None:
    window = days(date(2026, 3, 28), 3)
    before = read(window, Grouping.CLUSTER, Grouping.WORKLOAD)
    Day.objects.filter(cluster=portal.clusters[0], day=date(2026, 3, 28)).update(rolled=False)
    assert read(window, Grouping.CLUSTER, Grouping.WORKLOAD) == before


def test_days_closed_in_another_zone_are_read_by_hour(portal: Portal) -> None:
    factories.make_report("Asia/Tokyo")
    window = days(date(2026, 3, 29), 1, ZoneInfo("Asia/Tokyo"))
    (row,) = read(window)
    assert row.period is not None
    assert row.period.isoformat() == "2026-03-29T00:00:00+09:00"
    assert held_part(row.amounts) == held_part(held_in(window))


# ---------------------------------------------------------------- who sees what


def teams_of(rows: Iterable[UsageRow]) -> set[str]:
    return {row.groups["team"] for row in rows}


def test_team_sums_are_for_everybody(portal: Portal) -> None:
    rows = read(days(date(2026, 3, 28), 1), Grouping.TEAM, visibility=visibility_of(portal.dan))
    assert teams_of(rows) == {"speech", "unassigned", "vision"}


@pytest.mark.parametrize(
    "finer", [Grouping.NAMESPACE, Grouping.WORKLOAD, Grouping.NODE], ids=lambda g: g.value
)
@pytest.mark.parametrize(
    ("person", "teams"),
    [
        ("ada", {"vision"}),
        ("ben", {"vision"}),
        ("dan", {"speech"}),
        ("cleo", {"vision", "speech", "unassigned"}),
        ("finn", {"vision", "speech", "unassigned"}),
    ],
)
def test_what_is_finer_than_a_team_is_for_its_people(
    portal: Portal, person: str, teams: set[str], finer: Grouping
) -> None:
    visibility = visibility_of(getattr(portal, person))
    window = days(date(2026, 3, 28), 3)
    assert teams_of(read(window, Grouping.TEAM, finer, visibility=visibility)) == teams


@pytest.mark.parametrize(
    "filters",
    [
        Filters(namespace=("vision",)),
        Filters(workload=("Job/train",)),
        Filters(node=("west-1",), team=("vision",)),
    ],
    ids=str,
)
def test_a_filter_that_names_what_one_may_not_see_gives_no_rows(
    portal: Portal, filters: Filters
) -> None:
    window = days(date(2026, 3, 28), 3)
    assert read(window, filters=filters)
    assert not read(window, filters=filters, visibility=visibility_of(portal.dan))


@pytest.mark.parametrize(
    ("groups", "filters"),
    [
        ([Grouping.NODE], Filters()),
        ([Grouping.NODE, Grouping.TIER, Grouping.GPU_MODEL], Filters()),
        ([], Filters(node=("west-1", "west-2", "east-1"))),
        ([Grouping.CAPACITY_TYPE], Filters(node=("west-1", "east-1"))),
    ],
    ids=str,
)
def test_a_node_tells_an_outsider_nothing_of_other_teams(
    portal: Portal, groups: list[Grouping], filters: Filters
) -> None:
    window = days(date(2026, 3, 28), 1)
    dan = visibility_of(portal.dan)
    rows = read(window, *groups, filters=filters, visibility=dan)
    of_speech = read(window, *groups, filters=replace(filters, team=("speech",)))
    assert rows == of_speech
    assert rows
    assert {row.amounts.capacity for row in rows} == {None}
    everybody = read(window, *groups, filters=filters)
    assert sum(r.amounts.allocated for r in everybody) > sum(r.amounts.allocated for r in rows)
    assert None not in {row.amounts.capacity for row in everybody}


@pytest.mark.parametrize("kinds", [1, 26, 1200])
def test_thousands_of_workloads_can_be_named(portal: Portal, kinds: int) -> None:
    names = tuple(f"Kind{n % kinds}/w{n}" for n in range(3000))
    window = days(date(2026, 3, 28), 1)
    chosen = read(window, filters=Filters(workload=("Job/train",)))
    assert chosen
    assert read(window, filters=Filters(workload=(*names, "Job/train"))) == chosen


def test_who_is_on_no_team_sees_nothing_finer(portal: Portal) -> None:
    nobody = Visibility(everything=False)
    assert not read(days(date(2026, 3, 28), 3), Grouping.NAMESPACE, visibility=nobody)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("interval", "groups", "filters", "window", "text"),
    [
        (TimeStep.HOUR, [], Filters(), days(date(2026, 1, 1), 93), "at most 92 days"),
        (TimeStep.DAY, [Grouping.NODE], Filters(), days(date(2026, 1, 1), 93), "leave out node"),
        (TimeStep.DAY, [], Filters(node=("a",)), days(date(2026, 1, 1), 93), "leave out node"),
        (
            TimeStep.TOTAL,
            [Grouping.NAMESPACE],
            Filters(),
            Window(utc(2026, 1, 1, 5), utc(2026, 6, 1)),
            "midnight in Europe/Berlin",
        ),
        (
            TimeStep.DAY,
            [Grouping.TIER, Grouping.TIER],
            Filters(),
            days(date(2026, 1, 1), 1),
            "named once",
        ),
    ],
    ids=["hours", "nodes", "node filter", "namespaces off midnight", "twice"],
)
def test_what_cannot_be_had_is_refused_with_what_to_do(
    portal: Portal,
    interval: TimeStep,
    groups: list[Grouping],
    filters: Filters,
    window: Window,
    text: str,
) -> None:
    with pytest.raises(GroupingRefused, match=text):
        read(window, *groups, interval=interval, filters=filters)


def test_hours_of_92_days_with_the_autumn_change_are_given(portal: Portal) -> None:
    assert read(days(date(2026, 9, 1), 92), interval=TimeStep.HOUR) == []


# ---------------------------------------------------------------- queries


@pytest.mark.parametrize(
    ("groups", "queries"),
    [
        # Report, small names, days, day sums, hour sums; one for each kind of finer names.
        ((), 5),
        ((Grouping.CLUSTER,), 5),
        ((Grouping.TIER,), 5),
        ((Grouping.TIER, Grouping.TEAM, Grouping.GPU_MODEL, Grouping.CAPACITY_TYPE), 5),
        ((Grouping.NAMESPACE, Grouping.WORKLOAD), 7),
        # Only hours are kept of nodes: no days.
        ((Grouping.NODE,), 4),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else None,
)
def test_a_reading_takes_a_known_number_of_queries(
    portal: Portal,
    groups: tuple[Grouping, ...],
    queries: int,
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    window = Window(utc(2026, 3, 27, 5), utc(2026, 3, 30, 17))
    with django_assert_num_queries(queries):
        read(window, *groups)


def test_hourly_rows_are_read_by_index(portal: Portal) -> None:
    plan = TierHour.objects.filter(
        cluster_id__in=[1, 2], hour__gte=utc(2026, 3, 1), hour__lt=utc(2026, 3, 2)
    ).explain()
    assert "tier_hour_hour" in plan or "Seq Scan" in plan


def test_the_hours_of_a_workload_are_read_without_those_of_others(
    portal: Portal,
) -> None:
    window = Window(utc(2026, 3, 28, 5), utc(2026, 3, 28, 17))
    with CaptureQueriesContext(connection) as asked:
        read(window, interval=TimeStep.HOUR, filters=Filters(workload=("Job/train",)))
    _many_hours_of_another_workload()
    explain = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE {PodHour._meta.db_table}")
        cursor.execute(f"{explain} {asked.captured_queries[-1]['sql']}")
        plan = str(cursor.fetchall())
    assert "pod_hour_workload" in plan or "workload_id_hour_idx" in plan, plan


def _many_hours_of_another_workload() -> None:
    """So many that no plan reads all rows; a few rows are read in any order at all."""
    like = PodHour.objects.exclude(workload__name="train").first()
    assert like is not None
    rows = [deepcopy(like) for _ in range(5000)]
    for row in rows:
        row.pk = None
    PodHour.objects.bulk_create(rows)


def test_sums_come_as_ints_or_as_decimals_and_are_the_same_amounts() -> None:
    values = [*range(11), 7.5, *range(11, 16)]
    decimals = [Decimal(v) if isinstance(v, int) else v for v in values]
    assert amounts_of(decimals) == amounts_of(values)
    assert amounts_of(decimals).memory_peak_mib == 7.5
    without_capacity = amounts_of([*range(11), None])
    assert (without_capacity.energy_mwh, without_capacity.capacity) == (10, None)


def test_a_total_may_be_larger_than_any_row(portal: Portal) -> None:
    TierDay.objects.update(allocated=2**62)
    # SQLite adds up to 2^63, a million GPUs for a year, and refuses more: nothing comes out wrong.
    refused = connection.vendor == "sqlite"
    with pytest.raises(OperationalError, match="overflow") if refused else nullcontext():
        (row,) = read(days(date(2026, 3, 28), 3), interval=TimeStep.TOTAL)
        assert row.amounts.allocated == TierDay.objects.count() * 2**62 > 2**63


def test_devices_that_were_active_without_any_known_capacity_do_not_have_none() -> None:
    held = [0] * len(HELD_FIELDS)
    strays = amounts_of([*held, None, *[None] * 8, 0, 0, 0, 0, 7])
    assert (strays.capacity, strays.unallocated, strays.unattributed) == (None, None, 7)
    known = amounts_of([*held, None, *[None] * 8, 5, 0, 5, 0, 2])
    for one, other in ((strays, known), (known, strays)):
        both = replace(one)
        both.add(other)
        assert (both.capacity, both.unallocated, both.unattributed) == (5, 5, 9)
    assert amounts_of([*held, None, *[None] * 8, 0, 0, 0, 0, 0]).capacity == 0, (
        "scaled to zero, and known"
    )
