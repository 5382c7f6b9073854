"""Messages about costs: monthly reports by mail, and alerts on money budgets."""

import logging
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from hashlib import sha256
from smtplib import SMTPException, SMTPRecipientsRefused
from typing import Final

from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction
from django.db.models import F
from msgspec import Struct

from apps.accounts.domain.identity import Role
from apps.accounts.models import Membership, User
from apps.accounts.permissions import EVERYTHING, Visibility, teams_led_by
from apps.accounts.services import leases
from apps.clusters.domain.window import month_after
from apps.clusters.selectors import report
from apps.costs.domain.exports import MailState
from apps.costs.domain.monthly_report import body, due_month, subject
from apps.costs.models import MonthlyMail, PoolCostDay
from apps.costs.selectors.budgets import money_budget_rows
from apps.costs.selectors.months import closed_period, gaps_of, month_window, monthly_report
from apps.quotas.services import note_alerts

MOST_ATTEMPTS: Final = 12
LEASE: Final = timedelta(minutes=5)
_FIRST_WAIT: Final = timedelta(minutes=10)
_LONGEST_WAIT: Final = timedelta(hours=12)
_LONGEST_MISSED: Final = timedelta(days=366)
"""What is missing for so long does not come any more."""

logger = logging.getLogger(__name__)


class ReportFile(Struct, frozen=True):
    """A file that goes with a mail."""

    name: str
    text: str


ReportFileOf = Callable[[date, Visibility], ReportFile]
"""Makes the file of a month for who sees so much."""


def send_monthly_reports(*, now: datetime, file_of: ReportFileOf | None = None) -> int:
    """Send the report of the month before to who has not got it; return how many were sent.

    Sent from the day of the month that is set, once the month is closed or complete, even if that
    is after the next one has ended. Two workers do no harm: each message is one row, and the worker
    that takes it sends it. A message that a server refuses is noted and tried again, later each
    time. Without a mail server: nothing. `file_of` makes what is attached.
    """
    zone = report().zone
    month = due_month(now.astimezone(zone).date(), settings.MONTHLY_MAIL_DAY)
    if not settings.EMAIL_HOST:
        return 0
    if month is not None and not MonthlyMail.objects.filter(month=month).exists():
        # Noted on the first due day: a month that is complete later is not forgotten.
        _note_mails(month, MailState.WAITING, now)
    for waiting in _unsent_months(now) if settings.MONTHLY_MAIL_DAY else ():
        if _is_whole(waiting):
            _note_due(waiting, now)
    if month is not None and _is_noted(month):
        _note_mails(month, MailState.DUE, now)
    due = MonthlyMail.objects.filter(leases.free(now), state=MailState.DUE.value, next_at__lte=now)
    ids = list(due.order_by("month", "recipient").values_list("pk", flat=True))
    return sum(_send_mail(pk, now, file_of) for pk in ids)


def _is_whole(month: date) -> bool:
    """Say whether a month is closed, or has facts and prices for all of its hours."""
    if closed_period(month) is not None:
        return True
    window = month_window(month, report().zone)
    if not PoolCostDay.objects.filter(day__gte=month, day__lt=month_after(month)).exists():
        return False
    gaps = gaps_of(window)
    if gaps:
        logger.info("the report of %s is delayed: %s", f"{month:%Y-%m}", "; ".join(gaps.texts()))
    return not gaps


def recipients() -> Sequence[str]:
    """Return who gets a report: finance, and the leads of teams where that is switched on."""
    return sorted({*_of_finance(), *_leads()})


def _of_finance() -> Sequence[str]:
    """Return the addresses that are set, else those of everybody of the role finance."""
    if settings.MONTHLY_MAIL_TO:
        return sorted(set(settings.MONTHLY_MAIL_TO))
    people = User.objects.filter(role=Role.FINANCE.value, is_active=True).exclude(email="")
    return sorted(set(people.order_by("pk").values_list("email", flat=True)))


def _leads() -> dict[str, frozenset[int]]:
    """Return the teams that people lead, by their addresses; empty where leads get no mail."""
    if not settings.MONTHLY_MAIL_LEADS:
        return {}
    led = Membership.objects.filter(lead=True, team__active=True).values("username")
    people = User.objects.filter(username__in=led, is_active=True).exclude(email="").order_by("pk")
    found: dict[str, frozenset[int]] = {}
    for person in people:
        found[person.email] = found.get(person.email, frozenset()) | teams_led_by(person)
    return found


def _visibility_for(address: str) -> Visibility | None:
    """Return what the report to an address may hold; None: nothing any more."""
    if address in _of_finance():
        return EVERYTHING
    led = _leads().get(address)
    return Visibility(everything=False, team_ids=led) if led else None


def _unsent_months(now: datetime) -> Sequence[date]:
    """Return the months whose reports wait for what is missing, the oldest first."""
    rows = MonthlyMail.objects.filter(
        state=MailState.WAITING.value, month__gte=(now - _LONGEST_MISSED).date()
    )
    return list(rows.order_by("month").values_list("month", flat=True).distinct())


def _is_noted(month: date) -> bool:
    """Say whether a report is sent or was tried: who is new among the addresses gets it too."""
    rows = MonthlyMail.objects.filter(month=month)
    return rows.exclude(state=MailState.WAITING.value).exists()


def _note_due(month: date, now: datetime) -> None:
    """Send the report of a month that was delayed, to the present addresses."""
    with transaction.atomic():
        MonthlyMail.objects.filter(month=month, state=MailState.WAITING.value).delete()
        _note_mails(month, MailState.DUE, now)


def _note_mails(month: date, state: MailState, now: datetime) -> None:
    """Make a row for each address that has none."""
    rows = [
        MonthlyMail(month=month, recipient=to, state=state.value, next_at=now)
        for to in recipients()
    ]
    # Two workers make the same rows; the unique constraint keeps one of each.
    MonthlyMail.objects.bulk_create(rows, ignore_conflicts=True)


def _send_mail(pk: int, now: datetime, file_of: ReportFileOf | None) -> int:
    due = MonthlyMail.objects.filter(pk=pk, state=MailState.DUE.value)
    if not leases.take_all(due, now, lease_until=now + LEASE, attempts=F("attempts") + 1):
        return 0
    row = MonthlyMail.objects.get(pk=pk)
    sees = _visibility_for(row.recipient)
    if sees is None:
        # Who may see the money of all teams may have changed since the first try.
        MonthlyMail.objects.filter(pk=pk).update(
            state=MailState.FAILED.value,
            lease_until=None,
            error="This address gets no reports any more.",
        )
        return 0
    try:
        _mail_message(row, sees, file_of).send()
    except (OSError, SMTPException, ValueError) as error:
        # A ValueError is an address or a header that no mail can have.
        _try_later(row, _failure_sentence(error), now)
        return 0
    except Exception as error:
        # Of one recipient: what it was cannot be foreseen, and the others are not to wait for it.
        logger.exception("the report of %s to %s", f"{row.month:%Y-%m}", row.recipient)
        _try_later(row, f"The portal failed ({type(error).__name__}); its log tells more.", now)
        return 0
    MonthlyMail.objects.filter(pk=pk).update(
        state=MailState.SENT.value, sent_at=now, lease_until=None, error=""
    )
    logger.info("the report of %s went to %s", f"{row.month:%Y-%m}", row.recipient)
    return 1


def _mail_message(row: MonthlyMail, sees: Visibility, file_of: ReportFileOf | None) -> EmailMessage:
    found = monthly_report(row.month, visibility=sees)
    link = f"{settings.PORTAL_URL}/costs/exports/" if settings.PORTAL_URL else ""
    # The same each time: where a sending was cut short after the server had taken the message,
    # mail programs show the second one as the first.
    named = sha256(f"{row.month} {row.recipient}".encode()).hexdigest()[:32]
    domain = settings.DEFAULT_FROM_EMAIL.rpartition("@")[2].strip(" >") or "localhost"
    message = EmailMessage(
        subject=subject(found),
        body=body(found, link=link),
        from_email=settings.DEFAULT_FROM_EMAIL,
        to=[row.recipient],
        headers={"Message-ID": f"<gpuportal-{row.month:%Y-%m}-{named}@{domain}>"},
    )
    if file_of is not None:
        file = file_of(row.month, sees)
        message.attach(file.name, file.text, "text/html")
    return message


def _try_later(row: MonthlyMail, why: str, now: datetime) -> None:
    """Note why it was not sent, and when it is tried again: later each time, and not for ever."""
    over = row.attempts >= MOST_ATTEMPTS
    wait = min(_FIRST_WAIT * 2 ** min(row.attempts - 1, 10), _LONGEST_WAIT)
    logger.warning("the report of %s to %s was not sent: %s", row.month, row.recipient, why)
    MonthlyMail.objects.filter(pk=row.pk).update(
        state=(MailState.FAILED if over else MailState.DUE).value,
        next_at=now + wait,
        lease_until=None,
        error=why,
    )


def _failure_sentence(error: Exception) -> str:
    if isinstance(error, SMTPRecipientsRefused):
        return "The mail server refuses the address."
    if isinstance(error, ValueError):
        return f"No mail can be sent to this address: {error}"[:500]
    return f"The mail server could not be used: {error}"[:500]


def note_money_alerts(*, now: datetime) -> int:
    """Note what money budgets have come to since; return how many alerts are new.

    What was not priced yet is not counted: a threshold is noted late, and never too early.
    """
    rows = money_budget_rows(now, visibility=EVERYTHING)
    return note_alerts(rows, now=now)
