"""Expected queue times that a worker computes ahead."""

from datetime import timedelta

import pytest

from apps.clusters.models import Cluster, NodeInterval, Pod, WatchCoverage
from apps.planning.models import QueueForecast
from apps.planning.selectors import queue_forecasts
from apps.planning.services import forecast_queue_times
from tests.factories import make_pod, make_workload
from tests.planning.test_recorded_demand import HOUR, START, cluster, whole

__all__ = ["cluster"]
pytestmark = pytest.mark.django_db
NOW = START + timedelta(days=20)
DAY = timedelta(days=1)


@pytest.fixture
def busy(cluster: Cluster) -> Cluster:
    """Each eight hours one more comes than fits, so that one of two queues for hours."""
    Pod.objects.all().delete()
    tier, train = whole(), make_workload(cluster, "vision", "train")
    for number in range(59):
        at = START + number * 8 * HOUR
        for name, late in (("first", 0), ("second", 4)):
            bound = at + late * HOUR
            came = at + timedelta(minutes=late)
            make_pod(train, f"{name}-{number}", created_at=came, bound_at=bound, tier=tier,
                     units=4.0, queue="main", ended_at=bound + 4 * HOUR)  # fmt: skip
    make_pod(train, "now", created_at=NOW - HOUR, bound_at=NOW - HOUR, tier=tier, units=4.0,
             queue="main", node_name="n1")  # fmt: skip
    return cluster


def test_forecasts_are_computed_every_quarter_of_an_hour(busy: Cluster) -> None:
    rows = [forecast_queue_times(now=NOW + timedelta(minutes=m)) for m in (0, 5, 16)]
    assert rows == [2, 0, 2]
    known = QueueForecast.objects.get()
    assert known.trained_at == NOW
    assert len(known.past) > 30
    row, blocked = queue_forecasts(busy.pk, now=NOW + HOUR)
    assert (row.tier, row.queue, row.units) == ("whole", "vision-cq", 4.0)
    assert blocked.units == 16.0
    # The queue has four GPUs, which are held for about three hours more.
    assert row.starts_now == 0.0
    assert 0.5 * 3600 < row.queued[1] < 8 * 3600


def test_more_known_days_are_learnt_from_at_once(busy: Cluster) -> None:
    WatchCoverage.objects.update(start=NOW - 2 * DAY, end=NOW + DAY)
    at = [NOW + timedelta(minutes=20 * number) for number in range(4)]
    forecast_queue_times(now=at[0])
    forecast_queue_times(now=at[1])
    assert QueueForecast.objects.get().trained_at == at[0]
    WatchCoverage.objects.update(start=NOW - 15 * DAY)
    forecast_queue_times(now=at[2])
    forecast_queue_times(now=at[3])
    assert QueueForecast.objects.get().trained_at == at[2]


def test_old_forecasts_are_none(busy: Cluster) -> None:
    forecast_queue_times(now=NOW)
    assert queue_forecasts(busy.pk, now=NOW + 2 * HOUR) == []


def test_where_nothing_is_recorded_there_are_none(busy: Cluster) -> None:
    forecast_queue_times(now=NOW)
    NodeInterval.objects.all().delete()
    assert forecast_queue_times(now=NOW + HOUR) == 0
    assert queue_forecasts(busy.pk, now=NOW + HOUR) == []
