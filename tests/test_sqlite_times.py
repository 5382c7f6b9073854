"""Times of SQLite are read as Django reads them."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from django.db import connection
from django.db.models import Max

from apps.clusters.models import Cluster
from apps.usage.models import CollectionWindow, Day
from gpuportal.sqlite_times import date_of, time_of

AT = datetime(2026, 10, 25, 1, 30, 0, 250, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"2026-10-25 01:30:00.000250", AT),
        (b"2026-10-25 01:30:00", AT.replace(microsecond=0)),
        (b"2026-10-25 03:30:00+02:00", AT.replace(microsecond=0)),
        (b"no time", None),
    ],
)
def test_a_text_is_a_time_in_utc(text: bytes, expected: datetime | None) -> None:
    assert time_of(text) == expected
    assert time_of(text) == expected, "of what is kept, too"


def test_a_zone_that_a_text_names_stays() -> None:
    found = time_of(b"2026-10-25 03:30:00+02:00")
    assert found is not None
    assert found.tzinfo == timezone(timedelta(hours=2))


def test_a_text_is_a_date() -> None:
    assert date_of(b"2026-10-25") == date(2026, 10, 25)
    assert date_of(b"soon") is None


@pytest.mark.django_db
def test_rows_have_aware_times_and_dates() -> None:
    cluster = Cluster.objects.create(name="west")
    hour = AT.replace(minute=0, microsecond=0)
    CollectionWindow.objects.create(
        cluster=cluster, hour=hour, state="complete", collected_at=AT, attempts=1
    )
    Day.objects.create(
        cluster=cluster, day=AT.date(), start=hour, end=hour + timedelta(days=1), rolled=True
    )
    windows = CollectionWindow.objects
    assert windows.values_list("hour", "collected_at").get() == (hour, AT)
    assert windows.get().collected_at == AT
    assert windows.aggregate(newest=Max("collected_at"))["newest"] == AT
    assert Day.objects.values_list("day", "start").get() == (AT.date(), hour)
    with connection.cursor() as cursor:
        cursor.execute("SELECT hour, attempted_at FROM usage_collectionwindow")
        assert cursor.fetchone() == (hour, None)
