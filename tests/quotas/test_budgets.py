"""Budgets in their running period: burn-down, rates, when they end, and what is alerted."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.db.models import F
from pytest_django import DjangoAssertNumQueries

from apps.accounts.domain.structs import replace
from apps.accounts.models import Team
from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster
from apps.quotas.domain.budgets import (
    Allowance,
    ClusterHours,
    KnownHours,
    Spending,
    SpendingAt,
    period_at,
)
from apps.quotas.models import Budget, BudgetAlert
from apps.quotas.selectors import BudgetRow, budget_alerts, budget_rows, burn_rows, with_ranges
from apps.quotas.selectors.budgets import money_allowances
from apps.quotas.services import note_alerts, note_budget_alerts
from apps.usage.models import CollectionWindow, TeamDay, TeamHour
from tests.factories import Portal, make_cluster, make_portal, note_collection
from tests.shared_rows import copy_of, shared

START = datetime(2026, 1, 1, tzinfo=UTC)
NOW = START + timedelta(days=10, hours=1, minutes=20)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
OUTSIDER = Visibility(everything=False)
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("period", "start", "end"),
    [
        ("week", (2026, 3, 23), (2026, 3, 30)),
        ("month", (2026, 3, 1), (2026, 4, 1)),
        ("quarter", (2026, 1, 1), (2026, 4, 1)),
        ("year", (2026, 1, 1), (2027, 1, 1)),
    ],
    ids=str,
)
def test_periods_are_local_to_the_report(
    period: str, start: tuple[int, int, int], end: tuple[int, int, int]
) -> None:
    at = datetime(2026, 3, 29, 20, tzinfo=UTC)
    found = period_at(period, at, BERLIN)
    assert found.start == datetime(*start, tzinfo=BERLIN)
    assert found.end == datetime(*end, tzinfo=BERLIN)


def test_a_december_ends_with_its_year_and_other_periods_are_refused() -> None:
    at = datetime(2026, 12, 31, 12, tzinfo=UTC)
    assert period_at("month", at, BERLIN).end == datetime(2027, 1, 1, tzinfo=BERLIN)
    assert period_at("quarter", at, BERLIN).start == datetime(2026, 10, 1, tzinfo=BERLIN)
    with pytest.raises(ValueError, match="fortnight"):
        period_at("fortnight", at, BERLIN)


def fill() -> Portal:
    """Vision holds 7 GPUs from the first hour of the year on, in every hour."""
    portal = make_portal("UTC", since=START)
    portal.collect(Window(START, START + timedelta(days=10, hours=1)))
    return portal


_portal = shared(fill)
portal = copy_of("_portal")


def budget(team: Team, gpu_hours: float, period: str = "month") -> None:
    Budget.objects.create(team=team, period=period, gpu_hours=gpu_hours, valid_from=START)


def only(rows: list[BudgetRow]) -> BudgetRow:
    (row,) = rows
    return row


def test_a_steady_team_burns_its_budget_evenly(portal: Portal) -> None:
    budget(portal.vision, 7 * 744)
    row = only(budget_rows(NOW, visibility=OUTSIDER))
    assert (row.team, row.unit, row.period) == ("vision", "gpu_hours", "month")
    assert (row.period_start, row.period_end) == (START, datetime(2026, 2, 1, tzinfo=UTC))
    assert row.used == pytest.approx(7 * 241)
    assert row.burn_rate == pytest.approx(1.0)
    assert row.burn_rate_1d == pytest.approx(1.0)
    assert row.burn_rate_7d == pytest.approx(1.0)
    assert row.as_of == START + timedelta(days=10, hours=1)


def test_days_that_were_never_collected_are_no_zero_use(db: None) -> None:
    portal = make_portal("UTC", since=START)
    begun = START + 5 * DAY
    portal.collect(Window(begun, START + timedelta(days=10, hours=1)))
    budget(portal.vision, 7 * 744)
    row = only(budget_rows(NOW, visibility=OUTSIDER))
    assert row.used == pytest.approx(7 * 121)
    assert row.burn_rate == pytest.approx(1.0)
    assert (row.data_start, row.at_least) == (begun, True)
    assert row.coverage_ratio == pytest.approx(121 / 241)
    assert row.points[0].at == begun


def test_a_small_budget_ends_before_its_period(portal: Portal) -> None:
    budget(portal.vision, 7 * 372)
    row = only(budget_rows(NOW, visibility=OUTSIDER))
    expected = START + timedelta(hours=372)
    for found in (row.exhausted_at, row.exhausted_at_early, row.exhausted_at_late):
        assert found is not None
        assert abs(found - expected) < timedelta(seconds=5)
    assert row.burn_rate == pytest.approx(2.0)


def test_a_budget_that_is_used_up_tells_when(portal: Portal) -> None:
    budget(portal.vision, 7 * 30.5)
    row = only(budget_rows(NOW, visibility=OUTSIDER))
    assert row.exhausted_at is not None
    assert abs(row.exhausted_at - (START + timedelta(hours=30.5))) < timedelta(seconds=5)


def test_the_burn_down_has_a_point_at_the_end_of_each_day(portal: Portal) -> None:
    budget(portal.vision, 7 * 744)
    points = only(budget_rows(NOW, visibility=OUTSIDER)).points
    assert points[0].at == START
    assert points[0].used == 0
    assert [point.at for point in points[1:11]] == [START + n * DAY for n in range(1, 11)]
    assert [point.used for point in points[1:11]] == pytest.approx([168 * n for n in range(1, 11)])
    assert points[-1].at == START + timedelta(days=10, hours=1)
    assert points[-1].used == pytest.approx(7 * 241)


def test_before_the_first_closed_hour_nothing_is_known(db: None) -> None:
    portal = make_portal("UTC", since=START)
    budget(portal.vision, 100)
    row = only(budget_rows(NOW, visibility=OUTSIDER))
    assert (row.used, row.burn_rate, row.exhausted_at, row.as_of) == (0, None, None, None)
    assert row.points == ()


def test_a_period_that_has_just_begun_has_no_rate_and_the_last_week_all_the_same(
    portal: Portal,
) -> None:
    budget(portal.vision, 700, "week")
    at = datetime(2026, 1, 12, 0, 10, tzinfo=UTC)
    row = only(budget_rows(at, visibility=OUTSIDER))
    assert row.period_start == datetime(2026, 1, 12, tzinfo=UTC)
    assert (row.used, row.burn_rate) == (0, None)
    assert row.burn_rate_7d is not None


def test_only_budgets_that_hold_are_shown(portal: Portal) -> None:
    budget(portal.vision, 100)
    Budget.objects.update(valid_to=NOW)
    assert budget_rows(NOW, visibility=EVERYTHING) == []


def test_more_budgets_need_no_more_queries(
    portal: Portal, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for team in (portal.vision, portal.speech, portal.unassigned):
        for period in ("week", "month", "year"):
            budget(team, 10_000, period)
    with django_assert_max_num_queries(20):
        assert len(budget_rows(NOW, visibility=OUTSIDER)) == 9


def test_one_team_can_be_asked_for_alone(portal: Portal) -> None:
    for team in (portal.vision, portal.speech):
        budget(team, 7 * 744)
    everyone = {row.team: row for row in budget_rows(NOW, visibility=OUTSIDER)}
    assert budget_rows(NOW, visibility=OUTSIDER, team="vision") == [everyone["vision"]]


def test_all_hours_of_all_clusters_are_the_whole_coverage(portal: Portal) -> None:
    budget(portal.vision, 7 * 744)
    row = only(budget_rows(NOW, visibility=OUTSIDER))
    assert (row.coverage_ratio, row.known_until, row.at_least) == (1.0, row.as_of, False)


def lag(portal: Portal, hours: int) -> None:
    """Forget the last hours of one cluster, as if they had not been collected yet."""
    since = START + timedelta(days=10, hours=1 - hours)
    of = {"cluster": portal.clusters[0], "hour__gte": since}
    CollectionWindow.objects.filter(**of).delete()
    for row in TeamHour.objects.filter(**of):
        own = {name: getattr(row, name) for name in ("cluster", "team", "tier", "gpu_model")}
        days = TeamDay.objects.filter(day=row.hour.date(), capacity_type=row.capacity_type, **own)
        days.update(allocated=F("allocated") - row.allocated)
        row.delete()


def test_a_cluster_that_lags_is_told_and_does_not_lower_the_pace(portal: Portal) -> None:
    budget(portal.vision, 7 * 744)
    lag(portal, 12)
    row = only(budget_rows(NOW, visibility=OUTSIDER))
    assert row.as_of == START + timedelta(days=10, hours=1)
    assert row.known_until == START + timedelta(days=9, hours=13)
    clusters = len(portal.clusters)
    assert row.coverage_ratio == pytest.approx(1 - 12 / (241 * clusters))
    assert row.at_least
    assert row.burn_rate_1d == pytest.approx(1.0)
    assert row.burn_rate_7d == pytest.approx(1.0)


def test_a_cluster_that_was_never_collected_makes_the_burn_a_lower_bound(portal: Portal) -> None:
    budget(portal.vision, 7 * 744)
    note_collection(make_cluster("south"), START, "failed")
    row = only(budget_rows(NOW, visibility=OUTSIDER))
    clusters = len(portal.clusters)
    assert (row.known_until, row.at_least) == (None, True)
    assert row.coverage_ratio == pytest.approx(clusters / (clusters + 1))
    assert row.burn_rate_7d == pytest.approx(1.0)


def test_a_cluster_that_joins_late_makes_no_gap(portal: Portal) -> None:
    budget(portal.vision, 7 * 744)
    south = make_cluster("south")
    assert only(budget_rows(NOW, visibility=OUTSIDER)).coverage_ratio == 1.0
    note_collection(south, START + 10 * DAY)
    assert only(budget_rows(NOW, visibility=OUTSIDER)).coverage_ratio == 1.0
    note_collection(south, START + 10 * DAY - HOUR, "waiting")
    hours = 241 * len(portal.clusters) + 1
    row = only(budget_rows(NOW, visibility=OUTSIDER))
    assert row.coverage_ratio == pytest.approx(hours / (hours + 1))


def test_what_is_missing_of_a_cluster_is_so_after_it_retires(portal: Portal) -> None:
    budget(portal.vision, 7 * 744)
    lag(portal, 12)
    for n in range(12):
        note_collection(portal.clusters[0], START + 10 * DAY - n * HOUR, "failed")
    before = only(budget_rows(NOW, visibility=OUTSIDER))
    Cluster.objects.filter(pk=portal.clusters[0].pk).update(active=False)
    after = only(budget_rows(NOW, visibility=OUTSIDER))
    assert before.coverage_ratio == pytest.approx(1 - 12 / (241 * len(portal.clusters)))
    assert after.coverage_ratio == before.coverage_ratio


def test_a_portal_that_collects_nothing_any_more_says_how_little_it_knows(portal: Portal) -> None:
    budget(portal.vision, 7 * 744)
    row = only(budget_rows(NOW + 10 * DAY, visibility=OUTSIDER))
    assert row.coverage_ratio == pytest.approx(241 / 479)
    budget(portal.speech, 700, "week")
    later = NOW + 10 * DAY
    week = only(budget_rows(later, visibility=OUTSIDER, team="speech"))
    assert (week.burn_rate, week.coverage_ratio) == (None, 0.0)


def test_a_pace_that_nobody_knows_any_more_is_not_told(portal: Portal) -> None:
    budget(portal.vision, 7 * 372)
    later = NOW + timedelta(days=2)
    row = only(budget_rows(later, visibility=OUTSIDER))
    assert row.burn_rate_1d is None
    assert row.exhausted_at is not None
    row = only(budget_rows(NOW + timedelta(days=8), visibility=OUTSIDER))
    assert (row.burn_rate_7d, row.exhausted_at, row.exhausted_at_early) == (None, None, None)


def test_what_a_retired_cluster_did_counts_and_tells_when_it_was_used_up(portal: Portal) -> None:
    """What was used, and the hours that tell when it was used up, are of the same clusters."""
    budget(portal.vision, 7 * 30.5)
    before = only(budget_rows(NOW, visibility=OUTSIDER))
    Cluster.objects.filter(pk=portal.clusters[0].pk).update(active=False)
    after = only(budget_rows(NOW, visibility=OUTSIDER))
    assert (after.used, after.exhausted_at) == (before.used, before.exhausted_at)


def test_money_burns_by_the_amounts_that_costs_hand_over(portal: Portal) -> None:
    Budget.objects.create(
        team=portal.vision, period="month", money="3100", currency="USD", valid_from=START
    )
    assert budget_rows(NOW, visibility=EVERYTHING) == []
    zone = ZoneInfo("UTC")
    days = {(START + n * DAY).date(): 200.0 for n in range(10)}
    purse = ("vision", "USD")
    spending = Spending({purse: days}, {purse: {"west": 200.0}}, {purse: {"west": 1400.0}})
    hours = ClusterHours(START, START + 10 * DAY - HOUR, 24, 168, {START: 240})
    known = KnownHours(START + 10 * DAY, {"west": hours})
    allowances = money_allowances(NOW, zone, visibility=EVERYTHING)
    spent = SpendingAt(NOW, zone, spending, known)
    row = only(burn_rows(allowances, spent, hours_of=lambda *_: {}))
    assert (row.unit, row.allowance, row.used) == ("USD", 3100, 2000)
    assert row.burn_rate == pytest.approx(2.0)
    assert row.exhausted_at == START + timedelta(days=15.5)


def test_an_alert_is_noted_once_for_each_threshold_and_period(portal: Portal) -> None:
    budget(portal.vision, 7 * 300)
    assert note_budget_alerts(now=NOW) == 3
    assert note_budget_alerts(now=NOW + HOUR) == 0
    found = budget_alerts(Window(NOW, NOW + HOUR), visibility=OUTSIDER)
    assert [(a.kind, a.threshold) for a in found] == [
        ("used", 0.5), ("used", 0.8), ("projected", 1.0),
    ]  # fmt: skip
    assert all(a.team == "vision" and a.allowance == 2100 for a in found)


def row_of(used: float, *, start: datetime = START, ends: datetime | None = None) -> BudgetRow:
    return BudgetRow(
        "vision", "month", start, start + 31 * DAY, "USD", 100.0, used, None, None, None, ends,
        None, None,
    )  # fmt: skip


def test_a_later_threshold_and_a_later_period_are_alerted_anew(portal: Portal) -> None:
    assert note_alerts([row_of(50)], now=NOW) == 1
    assert note_alerts([row_of(101, ends=NOW)], now=NOW) == 2
    assert note_alerts([row_of(51, start=START + 31 * DAY)], now=NOW) == 1
    assert not BudgetAlert.objects.filter(kind="projected").exists()


def test_alerts_on_money_are_for_who_sees_the_team(portal: Portal) -> None:
    note_alerts([row_of(50)], now=NOW)
    window = Window(NOW, NOW + HOUR)
    assert budget_alerts(window, visibility=OUTSIDER) == []
    own = Visibility(everything=False, team_ids=frozenset([portal.vision.pk]))
    assert len(budget_alerts(window, visibility=own)) == 1


def test_allowances_are_sorted_by_team_and_period() -> None:
    zone = ZoneInfo("UTC")
    rows = burn_rows(
        [
            Allowance(team, "month", period_at("month", NOW, zone), "gpu_hours", 10.0)
            for team in ("b", "a")
        ],
        SpendingAt(NOW, zone, Spending(), None),
        hours_of=lambda *_: {},
    )
    assert [row.team for row in rows] == ["a", "b"]


# ---------------------------------------------------------------- many budgets


def go_on(portal: Portal, days: int) -> datetime:
    """Let all go on as it was for so many days from the second on; return when that is."""
    first = START + DAY
    model_days = list(TeamDay.objects.filter(day=first.date()))
    hours = list(TeamHour.objects.filter(hour__gte=first, hour__lt=first + DAY))
    windows = list(CollectionWindow.objects.filter(hour__gte=first, hour__lt=first + DAY))
    for model in (TeamDay, TeamHour, CollectionWindow):
        model.objects.all().delete()
    for n in range(days):
        for one in model_days:
            one.pk, one.day = None, (START + n * DAY).date()
        for row in hours:
            row.pk, row.hour = None, row.hour + (DAY if n else -DAY)
        for window in windows:
            window.pk, window.hour = None, window.hour + (DAY if n else -DAY)
        TeamDay.objects.bulk_create(model_days)
        TeamHour.objects.bulk_create(hours)
        CollectionWindow.objects.bulk_create(windows)
    return START + days * DAY


def make_spring(portal: Portal) -> datetime:
    """A hundred days of the year; of 16,800 GPU-hours all sorts of budgets."""
    for period in ("week", "month", "quarter", "year"):
        budget(portal.vision, {"week": 700.0, "month": 400.0}.get(period, 9000.0), period)
        budget(portal.speech, 1e6, period)
    budget(portal.unassigned, 0.0, "year")
    return go_on(portal, 100)


_spring = shared(make_spring, upon="_portal")


@pytest.fixture
def spring(_spring: datetime, portal: Portal) -> datetime:
    return _spring


def test_a_row_without_its_range_is_the_same_otherwise(spring: datetime) -> None:
    whole = budget_rows(spring, visibility=OUTSIDER)
    brief = budget_rows(spring, visibility=OUTSIDER, ranges=False)
    assert len({row.exhausted_at for row in whole if row.used >= row.allowance > 0}) == 3
    for one, other in zip(brief, whole, strict=True):
        assert one.points == ()
        assert (
            replace(
                other,
                points=(),
                exhausted_at_early=one.exhausted_at_early,
                exhausted_at_late=one.exhausted_at_late,
            )
            == one
        )
        if one.used < one.allowance:
            assert one.exhausted_at_late is None


def test_what_is_shown_of_a_row_is_read_in_full(spring: datetime) -> None:
    brief = budget_rows(spring, visibility=OUTSIDER, ranges=False)
    assert with_ranges(brief, spring) == budget_rows(spring, visibility=OUTSIDER)
    assert with_ranges(brief[5:7], spring) == budget_rows(spring, visibility=OUTSIDER)[5:7]
    assert with_ranges([], spring) == []
    bare = budget_rows(spring, visibility=OUTSIDER, points=False)
    assert with_ranges(brief, spring, points=False) == bare


def test_a_budget_that_was_taken_away_meanwhile_stays_as_it_was_read(spring: datetime) -> None:
    brief = budget_rows(spring, visibility=OUTSIDER, ranges=False)
    Budget.objects.all().delete()
    assert with_ranges(brief, spring) == brief


def test_alerts_read_no_day_of_what_lasts(
    spring: datetime, portal: Portal, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    Budget.objects.exclude(team=portal.speech).delete()
    with django_assert_max_num_queries(11) as asked:
        note_budget_alerts(now=spring)
    days = [one["sql"] for one in asked.captured_queries if "usage_teamday" in one["sql"]]
    assert len(days) == 1
    assert "GROUP BY 1" in days[0] or 'GROUP BY "usage_teamday"."team_id"' in days[0]


def test_rows_without_ranges_read_no_day_of_what_lasts(
    spring: datetime, portal: Portal, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_max_num_queries(12):
        budget_rows(spring, visibility=OUTSIDER, ranges=False)
    Budget.objects.exclude(team=portal.speech).delete()
    with django_assert_max_num_queries(9) as asked:
        budget_rows(spring, visibility=OUTSIDER, ranges=False)
    days = [one["sql"] for one in asked.captured_queries if "usage_teamday" in one["sql"]]
    assert len(days) == 1
    assert "GROUP BY 1" in days[0] or 'GROUP BY "usage_teamday"."team_id"' in days[0]
