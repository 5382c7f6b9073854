"""A month that is opened again while it is priced: whoever comes first, nothing is left behind."""

import threading
from datetime import date, timedelta
from decimal import Decimal
from time import monotonic

import pytest
from django.db import connection, transaction

from apps.costs.models import Adjustment, ClosedPeriod, Price
from apps.costs.services import close_period, price_hours, reopen_period
from tests.costs.portal import NOW, make_priced, rows, total
from tests.factories import H100

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        connection.vendor == "sqlite",
        reason="the tests' SQLite is in memory, where threads cannot wait for one another",
    ),
]

OCTOBER = date(2026, 10, 1)
LATER = NOW + timedelta(hours=6)
_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = %s"


def is_waiting() -> bool:
    """Say whether some session of this database waits for a lock."""
    with connection.cursor() as cursor:
        # Within a transaction PostgreSQL shows what it showed first, until it is told not to.
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(_WAITING, [connection.settings_dict["NAME"]])
        return bool(cursor.fetchone()[0])


def in_thread(act: object, done: threading.Event) -> threading.Thread:
    def run() -> None:
        try:
            assert callable(act)
            act()
        finally:
            connection.close()
            done.set()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def until_waiting_or(done: threading.Event) -> None:
    deadline = monotonic() + 120
    while not done.wait(0.02) and not is_waiting():
        assert monotonic() < deadline


def test_what_is_being_booked_while_a_month_is_opened_is_taken_back() -> None:
    priced = make_priced(1)
    close_period(OCTOBER, by="finn", now=NOW, forced="a part of it")
    before = total(rows(priced.window))
    Price.objects.filter(gpu_model=H100).update(per_gpu_hour=Decimal(7))
    cleo, done = priced.portal.cleo, threading.Event()
    with transaction.atomic():
        assert price_hours(now=LATER) == 48
        assert Adjustment.objects.exists(), "booked, and not yet seen by others"
        opening = in_thread(
            lambda: reopen_period(OCTOBER, by=cleo, reason="a wrong price", now=LATER), done
        )
        until_waiting_or(done)
    opening.join(120)
    assert ClosedPeriod.objects.get().reopened_at is not None
    assert not Adjustment.objects.exists()
    assert price_hours(now=LATER) == 48, "all of its hours are due"
    assert total(rows(priced.window)) > before


def test_a_month_that_is_being_opened_is_not_booked_against() -> None:
    priced = make_priced(1)
    close_period(OCTOBER, by="finn", now=NOW, forced="a part of it")
    before = total(rows(priced.window))
    Price.objects.filter(gpu_model=H100).update(per_gpu_hour=Decimal(7))
    done = threading.Event()
    with transaction.atomic():
        reopen_period(OCTOBER, by=priced.portal.cleo, reason="a wrong price", now=LATER)
        pricing = in_thread(lambda: price_hours(now=LATER), done)
        until_waiting_or(done)
    pricing.join(120)
    price_hours(now=LATER)
    assert not Adjustment.objects.exists()
    assert total(rows(priced.window)) > before
