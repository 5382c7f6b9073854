"""The database's reading of a time agrees with Python's."""

from datetime import UTC, datetime
from math import floor

import pytest

from apps.clusters.models import Cluster, WatchCoverage
from gpuportal.database_functions import UnixSeconds, WholeSeconds

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
