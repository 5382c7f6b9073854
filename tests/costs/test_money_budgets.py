"""Money budgets: what a team was charged, against its allowance, for whom it concerns."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pytest_django import DjangoAssertNumQueries

from apps.accounts.models import Team
from apps.accounts.permissions import EVERYTHING, visibility_of
from apps.costs.domain.costing import HELD
from apps.costs.models import Price
from apps.costs.selectors import MoneyBudgetRow, budget_window, money_budget_rows
from apps.costs.services import price_hours
from apps.quotas.models import Budget
from apps.usage.domain.rows import Filters
from tests.costs.portal import NOW, Priced, make_priced, rows
from tests.factories import BEGINNING, H100

pytestmark = pytest.mark.django_db

BERLIN = ZoneInfo("Europe/Berlin")
# The last hour that is priced ends at 23:00 UTC on the 31st.
AT = datetime(2026, 10, 31, 22, 30, tzinfo=UTC)


@pytest.fixture
def priced() -> Priced:
    return make_priced(10, first=date(2026, 10, 22))


def allow(team: Team, money: str, period: str = "month", **values: Any) -> None:
    given = {"currency": "USD", "valid_from": BEGINNING, **values}
    Budget.objects.create(team=team, period=period, money=Decimal(money), **given)


def only(at: datetime = AT) -> MoneyBudgetRow:
    (row,) = money_budget_rows(at, visibility=EVERYTHING)
    return row


def charged(priced: Priced, team: str) -> Decimal:
    found = rows(priced.window, filters=Filters(team=(team,)))
    return sum((row.amount or Decimal(0) for row in found if row.cause in HELD), Decimal(0))


def test_what_is_used_is_what_the_team_was_charged(priced: Priced) -> None:
    allow(priced.portal.vision, "20000")
    row = only()
    assert row.used == charged(priced, "vision")
    assert (row.team, row.unit, row.allowance) == ("vision", "USD", Decimal(20000))
    assert (row.period_start, row.period_end) == (
        datetime(2026, 9, 30, 22, tzinfo=UTC),
        datetime(2026, 10, 31, 23, tzinfo=UTC),
    )


def test_an_even_pace_burns_at_one(priced: Priced) -> None:
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


@pytest.mark.parametrize(
    ("period", "first", "after"),
    [
        pytest.param("week", "2026-10-26", "2026-11-02", id="a week from Monday"),
        pytest.param("month", "2026-10-01", "2026-11-01", id="a month"),
        pytest.param("quarter", "2026-10-01", "2027-01-01", id="a quarter"),
        pytest.param("year", "2026-01-01", "2027-01-01", id="a year"),
    ],
)
def test_periods_are_local(period: str, first: str, after: str) -> None:
    window = budget_window(period, AT, BERLIN)
    local = (window.start.astimezone(BERLIN), window.end.astimezone(BERLIN))
    assert [at.isoformat()[:16] for at in local] == [f"{first}T00:00", f"{after}T00:00"]


def test_a_budget_takes_a_known_number_of_queries(
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    priced = make_priced(1)
    allow(priced.portal.vision, "5")
    with django_assert_max_num_queries(3 + 5):
        money_budget_rows(AT, visibility=EVERYTHING)
