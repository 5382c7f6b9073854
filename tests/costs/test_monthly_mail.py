"""The monthly report by mail: what it says, to whom it goes, when, and how often."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core import mail
from django.core.mail.backends.base import BaseEmailBackend
from pytest_django import Settings

from apps.accounts.domain.structs import replace
from apps.accounts.models import User
from apps.accounts.permissions import EVERYTHING, Visibility
from apps.costs.domain.costing import WASTE, Basis, Cause, Policy
from apps.costs.domain.monthly_report import MonthlyReport, body, due_month, subject
from apps.costs.models import MonthlyMail
from apps.costs.selectors.months import monthly_mails, monthly_report
from apps.costs.services import close_period
from apps.costs.services.messages import MOST_ATTEMPTS, ReportFile, send_monthly_reports
from apps.usage.domain.usage_query import Grouping
from tests.costs.portal import PRICES, by_cause, days_from, make_priced, rows, total
from tests.factories import A100, note_collection
from tests.shared_rows import remembered

OCTOBER = date(2026, 10, 1)
THIRD = datetime(2026, 11, 3, 6, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _mail(settings: Settings) -> None:
    settings.EMAIL_HOST = "mail.example"
    settings.MONTHLY_MAIL_DAY = 3
    settings.MONTHLY_MAIL_TO = []
    settings.PORTAL_URL = "https://gpu.example.org"


class _Refusing(BaseEmailBackend):
    """A mail server that is away."""

    def send_messages(self, email_messages: Sequence[Any]) -> int:
        raise ConnectionRefusedError("nobody listens there")


@remembered
def closed_month() -> None:
    priced = make_priced()
    User.objects.filter(pk=priced.portal.finn.pk).update(email="finn@example.org")
    User.objects.filter(pk=priced.portal.ada.pk).update(email="ada@example.org")
    now = datetime(2026, 11, 2, 12, tzinfo=UTC)
    close_period(OCTOBER, by="finn", now=now, forced="what was before the portal")


@remembered
def unfinished_month() -> None:
    """Make a month that lacks hours, which finn is to get the report of."""
    priced = make_priced()
    User.objects.filter(pk=priced.portal.finn.pk).update(email="finn@example.org")
    note_collection(priced.portal.clusters[0], datetime(2026, 10, 5, tzinfo=UTC), "waiting")


def sent_to() -> list[str]:
    return [to for message in mail.outbox for to in message.to]


# ---------------------------------------------------------------- when and to whom


@pytest.mark.django_db
def test_the_month_before_goes_to_finance_once() -> None:
    closed_month()
    assert send_monthly_reports(now=THIRD) == 1
    assert send_monthly_reports(now=THIRD + timedelta(hours=1)) == 0
    assert sent_to() == ["finn@example.org"]
    row = MonthlyMail.objects.get()
    assert (row.month, row.state, row.sent_at, row.attempts) == (OCTOBER, "sent", THIRD, 1)


@pytest.mark.django_db
def test_a_month_that_becomes_whole_after_the_next_one_ended_is_sent_then_and_once() -> None:
    unfinished_month()
    assert send_monthly_reports(now=THIRD) == 0
    assert MonthlyMail.objects.get().state == "waiting"
    december = datetime(2026, 12, 5, 6, tzinfo=UTC)
    assert send_monthly_reports(now=december) == 0
    close_period(OCTOBER, by="finn", now=december, forced="the rest is lost")
    assert send_monthly_reports(now=december + timedelta(hours=1)) == 1
    assert send_monthly_reports(now=december + timedelta(hours=2)) == 0
    assert sent_to() == ["finn@example.org"]
    assert MonthlyMail.objects.get(state="sent").month == OCTOBER


@pytest.mark.django_db
def test_a_month_that_waited_goes_to_who_is_of_finance_when_it_is_sent() -> None:
    unfinished_month()
    send_monthly_reports(now=THIRD)
    User.objects.filter(username="finn").update(email="new@example.org")
    close_period(OCTOBER, by="finn", now=THIRD, forced="the rest is lost")
    send_monthly_reports(now=THIRD + timedelta(hours=1))
    assert sent_to() == ["new@example.org"]
    assert MonthlyMail.objects.get().state == "sent"


@pytest.mark.django_db
@pytest.mark.parametrize(("day", "later"), [(0, 40), (3, 400)], ids=["switched off", "too old"])
def test_a_month_that_waited_is_not_sent(settings: Settings, day: int, later: int) -> None:
    unfinished_month()
    send_monthly_reports(now=THIRD)
    close_period(OCTOBER, by="finn", now=THIRD, forced="the rest is lost")
    settings.MONTHLY_MAIL_DAY = day
    assert send_monthly_reports(now=THIRD + timedelta(days=later)) == 0


@pytest.mark.django_db
def test_addresses_that_are_set_get_it_instead(settings: Settings) -> None:
    settings.MONTHLY_MAIL_TO = ["books@example.org", "cfo@example.org"]
    closed_month()
    assert send_monthly_reports(now=THIRD) == 2
    assert sorted(sent_to()) == ["books@example.org", "cfo@example.org"]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "value"), [("MONTHLY_MAIL_DAY", 4), ("MONTHLY_MAIL_DAY", 0), ("EMAIL_HOST", "")]
)
def test_nothing_is_sent_before_its_day_or_without_a_server(
    settings: Settings, name: str, value: object
) -> None:
    setattr(settings, name, value)
    closed_month()
    assert send_monthly_reports(now=THIRD) == 0
    assert mail.outbox == []


@pytest.mark.django_db
def test_an_address_that_is_none_does_not_hold_up_the_others(settings: Settings) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    settings.MONTHLY_MAIL_TO = ["a\n@example.org", "books@example.org"]
    closed_month()
    assert send_monthly_reports(now=THIRD) == 1
    assert sent_to() == ["books@example.org"]
    bad = MonthlyMail.objects.get(state="due")
    assert "No mail can be sent to this address" in bad.error
    assert bad.next_at > THIRD


@pytest.mark.django_db
def test_a_failure_of_one_recipient_does_not_hold_up_the_others(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.MONTHLY_MAIL_TO = ["a@example.org", "books@example.org", "cfo@example.org"]
    closed_month()
    calls: list[date] = []

    def file_of(month: date, visibility: Visibility) -> ReportFile:
        calls.append(month)
        if visibility.everything and len(calls) == 1:
            raise LookupError("a team that is gone")
        return ReportFile("report.html", "<p>October</p>")

    assert send_monthly_reports(now=THIRD, file_of=file_of) == 2
    assert sent_to() == ["books@example.org", "cfo@example.org"]
    bad, *_ = monthly_mails(visibility=EVERYTHING)
    assert (bad.recipient, bad.state, bad.attempts) == ("a@example.org", "due", 1)
    assert bad.error == "The portal failed (LookupError); its log tells more."
    assert "a team that is gone" in caplog.text
    assert send_monthly_reports(now=bad.next_at, file_of=file_of) == 1
    assert not any(row.error for row in monthly_mails(visibility=EVERYTHING))
    assert monthly_mails(visibility=Visibility(everything=False)) == []


@pytest.mark.django_db
def test_who_is_of_finance_no_more_gets_no_second_try(settings: Settings) -> None:
    closed_month()
    settings.EMAIL_BACKEND = f"{__name__}._Refusing"
    assert send_monthly_reports(now=THIRD) == 0
    User.objects.update(role="viewer")
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    assert send_monthly_reports(now=THIRD + timedelta(days=1)) == 0
    assert mail.outbox == []
    assert MonthlyMail.objects.get().state == "failed"


@pytest.mark.django_db
def test_a_month_that_lacks_something_waits_until_it_is_closed() -> None:
    priced = make_priced(prices=[price for price in PRICES if price[0] != A100])
    User.objects.filter(pk=priced.portal.finn.pk).update(email="finn@example.org")
    assert send_monthly_reports(now=THIRD) == 0
    close_period(OCTOBER, by="finn", now=THIRD, forced="no price for old cards")
    assert send_monthly_reports(now=THIRD) == 1
    assert "GPU-hours have no price. Totals exclude them." in str(mail.outbox[0].body)
    assert "no price for old cards" in str(mail.outbox[0].body)


@pytest.mark.django_db
def test_a_month_without_any_cost_is_not_reported(settings: Settings) -> None:
    settings.MONTHLY_MAIL_TO = ["books@example.org"]
    make_priced(now=datetime(2026, 11, 2, 12, tzinfo=UTC))
    assert send_monthly_reports(now=THIRD + timedelta(days=60)) == 0


@pytest.mark.django_db
def test_what_a_server_refuses_is_tried_again_later_and_not_for_ever(settings: Settings) -> None:
    closed_month()
    working = settings.EMAIL_BACKEND
    settings.EMAIL_BACKEND = f"{__name__}._Refusing"
    assert send_monthly_reports(now=THIRD) == 0
    row = MonthlyMail.objects.get()
    assert (row.state, row.attempts) == ("due", 1)
    assert "nobody listens there" in row.error
    settings.EMAIL_BACKEND = working
    assert send_monthly_reports(now=row.next_at - timedelta(seconds=1)) == 0
    assert send_monthly_reports(now=row.next_at) == 1
    MonthlyMail.objects.update(state="due", attempts=MOST_ATTEMPTS - 1)
    settings.EMAIL_BACKEND = f"{__name__}._Refusing"
    assert send_monthly_reports(now=row.next_at) == 0
    assert MonthlyMail.objects.get().state == "failed"


@pytest.mark.django_db
def test_one_that_somebody_else_is_sending_is_left_to_them() -> None:
    closed_month()
    until = THIRD + timedelta(minutes=5)
    MonthlyMail.objects.create(
        month=OCTOBER, recipient="finn@example.org", next_at=THIRD, lease_until=until
    )
    assert send_monthly_reports(now=THIRD) == 0
    assert send_monthly_reports(now=until) == 1


@pytest.mark.django_db
def test_a_message_has_the_same_name_however_often_it_is_sent() -> None:
    closed_month()
    send_monthly_reports(now=THIRD)
    MonthlyMail.objects.update(state="due")
    send_monthly_reports(now=THIRD)
    names = {message.extra_headers["Message-ID"] for message in mail.outbox}
    assert (len(mail.outbox), len(names)) == (2, 1)


@pytest.mark.parametrize(
    ("today", "day", "month"),
    [
        (date(2026, 11, 2), 3, None),
        (date(2026, 11, 3), 3, OCTOBER),
        (date(2026, 11, 30), 3, OCTOBER),
        (date(2027, 1, 28), 28, date(2026, 12, 1)),
        (date(2026, 11, 30), 0, None),
    ],
)
def test_the_report_of_the_month_before_is_due_from_a_day_on(
    today: date, day: int, month: date | None
) -> None:
    assert due_month(today, day) == month


# ---------------------------------------------------------------- what it says


@pytest.mark.django_db
def test_a_report_sums_to_the_page() -> None:
    priced = make_priced()
    found = monthly_report(OCTOBER, visibility=EVERYTHING)
    window = days_from(priced.portal, date(2026, 10, 1), 31)
    page = rows(window, group_by=(Grouping.TEAM,))
    assert found.totals == {"USD": total(page)}
    assert sum(amount for _, amount in found.teams["USD"]) == total(page)
    wasted = {cause: cost for cause, cost in by_cause(page).items() if cause in WASTE}
    assert dict(found.wasted["USD"]) == wasted
    assert found.coverage_ratio is not None


REPORT = MonthlyReport(
    month=OCTOBER,
    time_zone="Europe/Berlin",
    totals={"USD": 7_148_160_000_000},
    teams={"USD": [("vision", 7_000_000_000_001), ("", 148_159_999_999)]},
    wasted={"USD": [(Cause.UNDERUSED, 2_457_180_000_000), (Cause.IDLE, 848_844_000_000)]},
    basis=Basis.ALLOCATED,
    policy=Policy.PLATFORM,
    price_book="0123456789ab",
    coverage_ratio=0.98765,
    unpriced=0,
)


def test_a_message_says_what_was_paid_what_was_wasted_and_on_what_terms() -> None:
    text = body(REPORT, link="https://gpu.example.org/exports/")
    for said in (
        "70,000",
        "the platform",
        "1,482",
        "71,482",
        "Underutilized",
        "33,060",
        "99 % of running time is measured",
        "0123456789ab",
        "allocated",
        "Europe/Berlin",
        "figures may change",
        "https://gpu.example.org/exports/",
    ):
        assert said in text, said
    assert subject(REPORT) == "GPU costs of October 2026: $71,482"


def test_amounts_of_a_message_add_up_as_they_are_printed() -> None:
    thirds = [(f"team {n}", 33_333_333) for n in range(3)]
    report = replace(REPORT, totals={"USD": 99_999_999}, teams={"USD": thirds})
    lines = body(report, link="").split("in USD")[1].splitlines()
    printed = [Decimal(line.split()[-1]) for line in lines if line.startswith("  ")]
    assert sum(printed[:3]) == printed[3] == Decimal(1)


def test_currencies_are_not_added_up() -> None:
    report = replace(
        REPORT,
        totals={"EUR": 100_000_000, "JPY": 500_000_000},
        teams={"EUR": [("a", 100_000_000)], "JPY": [("b", 500_000_000)]},
        wasted={},
    )
    assert subject(report) == "GPU costs of October 2026: €1 and ¥5"


def test_a_name_cannot_add_lines_to_a_message() -> None:
    report = replace(REPORT, teams={"USD": [("a\r\n\r\nTotal: 0", 7_148_160_000_000)]})
    assert "\nTotal: 0" not in body(report, link="")


def test_a_month_without_prices_says_so() -> None:
    nothing = replace(REPORT, totals={}, teams={}, wasted={}, unpriced=5 * 10**9)
    assert "5.0 GPU-hours have no price" in body(nothing, link="")
    assert subject(nothing) == "GPU costs of October 2026: nothing is priced"
