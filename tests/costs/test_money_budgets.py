"""Money budgets: what a team was charged, against its allowance, for whom it concerns."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from apps.accounts.models import Team
from apps.accounts.permissions import EVERYTHING, visibility_of
from apps.clusters.domain.window import Window
from apps.clusters.models import GpuModel, Tier
from apps.costs.domain.costing import HELD
from apps.costs.models import Adjustment, ClosedPeriod, Price, TeamCostDay
from apps.costs.selectors import MoneyBudgetRow, money_budget_rows
from apps.costs.selectors.costs import terms
from apps.costs.selectors.explain_costs import explain_money_budget
from apps.costs.selectors.rows import CostQuery
from apps.costs.services import price_hours
from apps.costs.services.messages import note_money_alerts
from apps.quotas.models import Budget
from apps.quotas.selectors import budget_alerts
from apps.usage.domain.explained import Number, evaluate
from apps.usage.domain.usage_query import Filters, TimeStep
from tests.costs.portal import NOW, Priced, make_priced, rows
from tests.factories import BEGINNING, H100, make_cluster, make_team, note_collection
from tests.shared_rows import copy_of, shared

pytestmark = pytest.mark.django_db

WHOLE = Decimal("0.01")
# The last hour that is priced ends at 23:00 UTC on the 31st.
AT = datetime(2026, 10, 31, 22, 30, tzinfo=UTC)


_priced = shared(lambda: make_priced(10, first=date(2026, 10, 22)))
priced = copy_of("_priced")


def allow(team: Team, money: str, period: str = "month", **values: Any) -> None:
    given = {"currency": "USD", "valid_from": BEGINNING, **values}
    Budget.objects.create(team=team, period=period, money=Decimal(money), **given)


def only(at: datetime = AT) -> MoneyBudgetRow:
    (row,) = money_budget_rows(at, visibility=EVERYTHING)
    return row


def charged(priced: Priced, team: str) -> Decimal:
    found = rows(priced.window, filters=Filters(team=(team,)))
    return sum((row.amount or Decimal(0) for row in found if row.cause in HELD), Decimal(0))


def explained(figure: str) -> Number | None:
    """Return a figure of vision's budget as its explanation gives it, held to the formula."""
    of: dict[str, Any] = {"team": "vision", "unit": "USD", "visibility": EVERYTHING}
    one = explain_money_budget(figure, AT, period="month", **of)
    assert one is not None
    assert one.value is None or float(evaluate(one) or 0) == pytest.approx(float(one.value))
    assert one.prices
    assert sum(line["cost"] for line in one.rows) == only().used
    return one.value


def test_what_is_used_is_what_the_team_was_charged(priced: Priced) -> None:
    allow(priced.portal.vision, "20000")
    row = only()
    assert row.used == charged(priced, "vision")
    assert explained("budget_used") == row.used
    assert explained("budget_share") == float(row.used) / float(row.allowance)
    assert explained("budget_burn") == row.burn_rate
    assert explained("budget_burn_1d") == row.burn_rate_1d is not None
    assert explained("budget_burn_7d") == row.burn_rate_7d is not None
    if row.exhausted_at is not None and row.as_of is not None:
        hours = (row.exhausted_at - row.as_of).total_seconds() / 3600
        assert explained("budget_hours_left") == pytest.approx(hours)
    assert (row.team, row.unit, row.allowance) == ("vision", "USD", Decimal(20000))
    assert (row.period_start, row.period_end) == (
        datetime(2026, 9, 30, 22, tzinfo=UTC),
        datetime(2026, 10, 31, 23, tzinfo=UTC),
    )


def test_an_linear_pace_burns_at_one(priced: Priced) -> None:
    allow(priced.portal.vision, "1")
    per_hour = float(charged(priced, "vision")) / 241  # with the hour the clock repeats
    Budget.objects.update(money=Decimal(str(round(per_hour * 31 * 24, 2))))
    row = only()
    assert row.burn_rate_1d == pytest.approx(1.0, rel=0.01)
    assert row.burn_rate_7d == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.97], ids=["early", "midway", "of late"])
def test_when_it_was_used_up_is_told_to_the_hour(priced: Priced, share: float) -> None:
    whole = charged(priced, "vision")
    allow(priced.portal.vision, str(round(whole * Decimal(str(share)), 2)))
    at = only().exhausted_at
    assert at is not None
    expected = priced.window.start + timedelta(hours=241 * share)
    assert abs(at - expected) < timedelta(hours=1, minutes=30)


def test_hours_without_a_price_are_told_beside(priced: Priced) -> None:
    allow(priced.portal.vision, "20000")
    before = only()
    Price.objects.filter(gpu_model=H100).delete()
    price_hours(now=NOW)
    row = only()
    assert row.used < before.used
    # Vision holds five H100 in each of the 241 hours.
    assert row.unpriced_gpu_hours == pytest.approx(5 * 241)


def test_before_the_first_hour_there_is_no_rate() -> None:
    priced = make_priced(1)
    allow(priced.portal.vision, "5", "week")
    row = only(datetime(2027, 3, 1, 0, 30, tzinfo=UTC))
    assert (row.used, row.burn_rate, row.exhausted_at) == (Decimal(0), None, None)


def test_a_budget_is_for_whom_its_money_concerns() -> None:
    priced = make_priced(1)
    allow(priced.portal.vision, "5")
    allow(priced.portal.speech, "5")
    for user, teams in (
        (priced.portal.ada, ["vision"]),
        (priced.portal.dan, ["speech"]),
        (priced.portal.finn, ["speech", "vision"]),
    ):
        found = money_budget_rows(AT, visibility=visibility_of(user))
        assert [row.team for row in found] == teams


def test_a_budget_that_does_not_hold_is_left_out() -> None:
    priced = make_priced(1)
    allow(priced.portal.vision, "5", valid_to=datetime(2026, 10, 1, tzinfo=UTC))
    Budget.objects.create(
        team=priced.portal.speech, period="month", gpu_hours=5, valid_from=BEGINNING
    )
    assert money_budget_rows(AT, visibility=EVERYTHING) == []


@pytest.mark.parametrize("more", [0, 4])
def test_more_budgets_need_no_more_queries(
    django_assert_num_queries: DjangoAssertNumQueries, more: int
) -> None:
    priced = make_priced(1)
    teams = [make_team(f"team-{n}") for n in range(more)]
    for team in (priced.portal.vision, priced.portal.speech, *teams):
        for period in ("week", "month", "year"):
            allow(team, "5", period)
    with django_assert_num_queries(11):
        assert len(money_budget_rows(AT, visibility=EVERYTHING)) == 3 * (2 + more)


def test_one_team_can_be_asked_for_alone() -> None:
    priced = make_priced(1)
    allow(priced.portal.vision, "5")
    allow(priced.portal.speech, "5")
    found = money_budget_rows(AT, visibility=EVERYTHING, team="speech")
    assert [row.team for row in found] == ["speech"]


def test_money_in_full_has_all_its_digits() -> None:
    priced = make_priced(1)
    allow(priced.portal.vision, "1234567.12345678")
    assert only().allowance == Decimal("1234567.12345678")


def test_a_cluster_whose_hours_are_not_priced_makes_the_burn_a_lower_bound(
    priced: Priced,
) -> None:
    allow(priced.portal.vision, "20000")
    before = only()
    note_collection(make_cluster("south"), priced.window.start)
    row = only()
    assert row.known_until is None
    assert before.coverage_ratio is not None
    assert row.coverage_ratio == pytest.approx(before.coverage_ratio * 2 / 3)
    assert row.used == before.used


def test_a_day_that_cost_nothing_is_part_of_the_pattern(priced: Priced) -> None:
    """A Saturday of which all is known and which has no row: Saturdays may be for nothing."""
    saturday = date(2026, 10, 24)
    TeamCostDay.objects.filter(team=priced.portal.vision, day=saturday).delete()
    whole = charged(priced, "vision")
    allow(priced.portal.vision, str((whole * 3).quantize(WHOLE)), "quarter")
    row = only()
    assert row.exhausted_at is not None
    assert row.exhausted_at_late is not None
    # About twenty days at the mean, with three Saturdays or so among them.
    assert row.exhausted_at_late - row.exhausted_at > timedelta(days=1.5)


def book(
    priced: Priced, cost: str, *, booked_on: date, currency: str = "USD", **values: Any
) -> None:
    """Book a correction of a closed September on a day."""
    start = datetime(2026, 8, 31, 22, tzinfo=UTC)
    closed = ClosedPeriod.objects.create(
        month=date(2026, 9, 1), start=start, end=start + timedelta(days=30),
        time_zone="Europe/Berlin", currency="USD", basis="allocated", policy="platform",
        price_book="1", rows_sha256="0" * 64, closed_at=AT, closed_by="finn",
    )  # fmt: skip
    cluster = priced.portal.clusters[0]
    Adjustment.objects.create(
        period=closed, booked_on=booked_on, booked_at=AT, day=date(2026, 9, 20), cluster=cluster,
        tier=Tier.objects.get(name="gold"), gpu_model=GpuModel.objects.order_by("pk")[0],
        capacity_type="on-demand",
        team=priced.portal.vision, currency=currency,
        cost=int(Decimal(cost) * 10**8),
        **{"cause": "idle", "gpu_hours": 0, "unpriced": 0} | values,
    )  # fmt: skip


@pytest.mark.parametrize("cost", ["120", "-120.5"], ids=["more", "less"])
def test_corrections_count_when_they_are_booked_and_are_no_pace(priced: Priced, cost: str) -> None:
    allow(priced.portal.vision, "20000")
    before = only()
    book(priced, cost, booked_on=date(2026, 10, 30))
    row = only()
    assert row.used == before.used + Decimal(cost)
    assert (row.burn_rate_1d, row.burn_rate_7d) == (before.burn_rate_1d, before.burn_rate_7d)


def test_a_correction_of_energy_counts_too(priced: Priced) -> None:
    allow(priced.portal.vision, "20000")
    before = only()
    book(priced, "120", booked_on=date(2026, 10, 30), cause="energy")
    assert only().used == before.used + 120


def test_a_price_found_for_a_closed_month_leaves_this_month_as_it_is(priced: Priced) -> None:
    Price.objects.filter(gpu_model=H100).delete()
    price_hours(now=NOW)
    allow(priced.portal.vision, "20000")
    before, asked = only(), CostQuery(priced.window, TimeStep.DAY, (), Filters())
    notes = terms(asked, visibility=EVERYTHING)
    assert before.unpriced_gpu_hours > 0
    missing = -int((before.unpriced_gpu_hours + 5) * 10**9)
    book(
        priced, "0", booked_on=date(2026, 10, 30), currency="", gpu_hours=missing, unpriced=missing
    )
    row = only()
    assert row.unpriced_gpu_hours == before.unpriced_gpu_hours
    after = terms(asked, visibility=EVERYTHING)
    assert after.unpriced_gpu_hours == notes.unpriced_gpu_hours > 0


def test_a_correction_booked_before_the_period_is_of_another_budget(priced: Priced) -> None:
    allow(priced.portal.vision, "20000")
    before = only()
    book(priced, "120", booked_on=date(2026, 9, 30))
    assert only().used == before.used


def test_an_allowance_that_a_correction_uses_up_ends_on_the_day_of_booking(
    priced: Priced,
) -> None:
    allow(priced.portal.vision, str((charged(priced, "vision") + 100).quantize(WHOLE)))
    book(priced, "20000", booked_on=date(2026, 10, 26))
    ended = only().exhausted_at
    assert ended is not None
    start = datetime(2026, 10, 25, 23, tzinfo=UTC)
    assert start <= ended < start + timedelta(hours=1)


def test_thresholds_of_money_are_noted_once_and_for_whom_they_concern(priced: Priced) -> None:
    allow(priced.portal.vision, str((charged(priced, "vision") * Decimal("1.2")).quantize(WHOLE)))
    assert note_money_alerts(now=AT) == 2
    assert note_money_alerts(now=AT) == 0
    window = Window(AT, AT + timedelta(hours=1))
    own = budget_alerts(window, visibility=visibility_of(priced.portal.ada))
    assert [(alert.unit, alert.threshold) for alert in own] == [("USD", 0.5), ("USD", 0.8)]
    assert budget_alerts(window, visibility=visibility_of(priced.portal.dan)) == []
