"""What the database makes of times and sums agrees with Python."""

from datetime import UTC, datetime, timedelta
from math import floor

import pytest
from django.db import connection

from apps.clusters.models import Cluster, WatchCoverage
from apps.usage.models import TierHour
from gpuportal.database_functions import (
    OneOfTimes,
    SmallSum,
    UnixSeconds,
    WholeSeconds,
    insert_many,
)
from tests.factories import make_cluster, make_model, make_tier

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "at",
    [
        pytest.param(datetime(2026, 11, 2, 10, 0, tzinfo=UTC), id="whole second"),
        pytest.param(datetime(2026, 11, 2, 10, 0, 1, 250_000, tzinfo=UTC), id="a quarter"),
        pytest.param(datetime(2026, 11, 2, 10, 0, 1, 123_456, tzinfo=UTC), id="microseconds"),
        pytest.param(datetime(2026, 11, 2, 10, 0, 1, 750_000, tzinfo=UTC), id="three quarters"),
        pytest.param(datetime(2026, 11, 2, 10, 0, 1, 999_900, tzinfo=UTC), id="nearly a second"),
        pytest.param(datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), id="before the epoch"),
    ],
)
def test_a_time_is_read_as_unix_seconds(at: datetime) -> None:
    cluster = Cluster.objects.create(name="c")
    WatchCoverage.objects.create(cluster=cluster, start=at, end=at)
    (found,) = WatchCoverage.objects.values_list(UnixSeconds("start"), flat=True)
    assert found == pytest.approx(at.timestamp(), abs=1e-6)
    # Cut and not rounded, on both databases alike.
    (whole,) = WatchCoverage.objects.values_list(WholeSeconds("start"), flat=True)
    assert whole == floor(at.timestamp())


def test_no_time_is_no_number() -> None:
    Cluster.objects.create(name="c")
    found = Cluster.objects.values_list(UnixSeconds("watchcoverage__start"), flat=True)
    assert list(found) == [None]


def test_a_time_is_found_among_others_to_the_second() -> None:
    cluster, start = Cluster.objects.create(name="c"), datetime(2026, 11, 2, 10, tzinfo=UTC)
    every = [start + n * timedelta(minutes=30) for n in range(4)]
    for at in every:
        WatchCoverage.objects.create(cluster=cluster, start=at, end=at)
    rows = WatchCoverage.objects.order_by("start").values_list("start", flat=True)
    assert list(rows.filter(OneOfTimes("start", every[1:3]))) == every[1:3]
    assert list(rows.filter(OneOfTimes("start", [start + timedelta(seconds=1)]))) == []


def test_a_small_sum_is_exact_up_to_nine_million_gpu_hours() -> None:
    cluster, tier, model = make_cluster(), make_tier("whole"), make_model()
    parts = (2**52 - 1, 2**51 + 1, 2**50 - 7, 3)
    for n, part in enumerate(parts):
        hour = datetime(2026, 11, 2, n, tzinfo=UTC)
        of = {"cluster": cluster, "tier": tier, "gpu_model": model, "capacity_type": "spot"}
        TierHour.objects.create(hour=hour, allocated=part, **of)
    found = TierHour.objects.aggregate(sum=SmallSum("allocated"))["sum"]
    assert found == sum(parts)
    assert type(found) is int


@pytest.mark.parametrize("count", [0, 1, 999, 1_000, 1_003])
def test_each_row_of_many_is_inserted_once(count: int) -> None:
    rows = [(number, f"row {number}") for number in range(count)]
    with connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE numbers (number integer PRIMARY KEY, name text)")
        insert_many(cursor, "INSERT INTO numbers (number, name)", rows)
        known = [(number, "another") for number, _ in [*rows, (count, "")]]
        keep = "ON CONFLICT (number) DO NOTHING"
        insert_many(cursor, "INSERT INTO numbers (number, name)", known, keep)
        cursor.execute("SELECT number, name FROM numbers ORDER BY number")
        assert cursor.fetchall() == [*rows, (count, "another")]
        cursor.execute("DROP TABLE numbers")
