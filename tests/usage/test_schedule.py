"""What beat enqueues: the closed hour, gaps, lost leases; and what a backfill plans."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import Celery, current_app
from pytest_django import DjangoAssertNumQueries, DjangoCaptureOnCommitCallbacks, Settings

from apps.clusters.models import Cluster
from apps.usage.models import CollectionWindow
from apps.usage.services import backfill_plan, note_backfill, schedule_collections
from tests.factories import make_cluster, make_report

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 21, 12, 5, tzinfo=UTC)


@pytest.fixture
def west(settings: Settings) -> Cluster:
    settings.GAP_FILL_DAYS = 1
    settings.SETTLING_SECONDS = 120
    settings.LEASE_SECONDS = 900
    make_report("Europe/Berlin")
    return make_cluster("west")


def hours(**filters: object) -> list[datetime]:
    return [row.hour for row in CollectionWindow.objects.filter(**filters).order_by("-hour")]


def test_the_newest_closed_hour_comes_first_then_the_gaps(
    west: Cluster, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    with django_capture_on_commit_callbacks() as messages:
        assert schedule_collections(now=NOW) == 12
    assert len(messages) == 12
    assert hours()[0] == datetime(2026, 11, 21, 11, tzinfo=UTC)
    assert len(hours()) == 24, "a day of hours is waited for"
    assert hours(lease_until__isnull=False) == hours()[:12]


def test_only_so_many_hours_are_on_the_way_however_long_the_worker_is_away(
    west: Cluster,
) -> None:
    schedule_collections(now=NOW)
    assert schedule_collections(now=NOW) == 0
    CollectionWindow.objects.filter(hour__gte=NOW - timedelta(hours=4)).update(
        state="complete", lease_until=None
    )
    assert schedule_collections(now=NOW) == 3, "as many as were done"
    assert schedule_collections(now=NOW + timedelta(seconds=901)) == 12, "leases ran out"


def test_before_its_settling_time_an_hour_is_left_alone(west: Cluster) -> None:
    schedule_collections(now=NOW.replace(minute=1))
    assert hours()[0] == datetime(2026, 11, 21, 10, tzinfo=UTC)


def test_complete_hours_are_done(west: Cluster) -> None:
    schedule_collections(now=NOW)
    CollectionWindow.objects.update(state="complete", lease_until=None)
    assert schedule_collections(now=NOW) == 0


def test_failed_hours_wait_longer_each_time(west: Cluster) -> None:
    schedule_collections(now=NOW)
    CollectionWindow.objects.update(state="failed", lease_until=None, attempts=3, attempted_at=NOW)
    assert schedule_collections(now=NOW + timedelta(minutes=3)) == 0
    assert schedule_collections(now=NOW + timedelta(minutes=4)) == 12


def test_a_cluster_that_left_the_catalog_is_not_collected(west: Cluster) -> None:
    Cluster.objects.update(active=False)
    assert schedule_collections(now=NOW) == 0
    assert not CollectionWindow.objects.exists()


def test_a_cluster_is_collected_from_its_own_beginning(west: Cluster) -> None:
    Cluster.objects.update(collect_from=datetime(2026, 11, 21, 10, 20, tzinfo=UTC))
    assert schedule_collections(now=NOW) == 2


def test_messages_name_the_cluster_and_the_hour(
    west: Cluster, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    Cluster.objects.update(collect_from=datetime(2026, 11, 21, 11, tzinfo=UTC))
    with current_app.connection_for_read() as connection:
        queue = connection.SimpleQueue("collect")
        queue.clear()
        with django_capture_on_commit_callbacks(execute=True):
            schedule_collections(now=NOW)
        message = queue.get(block=False)
        message.ack()
    assert message.headers["task"] == "usage.collect_hour"
    assert message.payload[1] == {
        "cluster_id": west.pk,
        "hour": "2026-11-21T11:00:00+00:00",
        "enqueued": "2026-11-21T12:05:00+00:00",
    }


@pytest.mark.redis
def test_a_closed_hour_is_taken_before_the_backfill_of_a_new_cluster(
    west: Cluster,
    redis_url: str,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    Cluster.objects.update(collect_from=NOW - timedelta(hours=2))
    new = make_cluster("new")
    taken: list[tuple[str, datetime]] = []

    def take(body: Mapping[str, Any], message: Any) -> None:
        values = message.payload[1]
        at = datetime.fromisoformat(values["hour"])
        taken.append((Cluster.objects.get(pk=values["cluster_id"]).name, at))
        CollectionWindow.objects.filter(cluster=values["cluster_id"], hour=at).update(
            state="complete", lease_until=None
        )
        message.ack()

    def schedule(now: datetime) -> None:
        with django_capture_on_commit_callbacks(execute=True):
            schedule_collections(now=now)

    broker = Celery(broker=redis_url, set_as_current=False)
    broker.conf.update(task_routes=settings.CELERY_TASK_ROUTES, task_default_queue="collect")
    monkeypatch.setattr(current_app, "send_task", broker.send_task)
    with broker.connection_for_read() as connection:
        channel = connection.channel()
        # As a worker that has one child.
        channel.basic_qos(0, 1, False)
        queues = [broker.amqp.queues[name] for name in ("backfill", "collect")]
        with broker.amqp.Consumer(channel, queues, callbacks=[take], accept=["json"]):
            schedule(NOW)
            while len(taken) < 8:
                connection.drain_events(timeout=20)
            closed = {(name, hour) for name, hour in taken if hour > NOW - timedelta(hours=4)}
            assert set(taken[:5]) == closed
            assert {name for name, _ in taken[5:]} == {new.name}
            later = NOW + timedelta(hours=1)
            schedule(later)
            while len(taken) < 11:
                connection.drain_events(timeout=20)
    # One hour of the backfill was at work already.
    hour = later.replace(minute=0) - timedelta(hours=1)
    assert set(taken[8:11]) >= {("west", hour), ("new", hour)}


def test_scheduling_takes_a_few_queries_however_many_hours(
    west: Cluster, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_max_num_queries(10):
        schedule_collections(now=NOW)


def test_a_backfill_takes_whole_local_days_newest_first(west: Cluster) -> None:
    plan = backfill_plan("west", 2, now=NOW)
    assert [(w.start.day, w.start.hour, int(w.seconds / 3600)) for w in plan] == [
        (20, 23, 13),
        (19, 23, 24),
        (18, 23, 24),
    ]


def test_a_backfill_goes_on_where_it_was(west: Cluster) -> None:
    done = datetime(2026, 11, 20, 3, tzinfo=UTC)
    CollectionWindow.objects.create(cluster=west, hour=done, state="complete")
    plan = backfill_plan("west", 1, now=NOW)
    assert [int(w.seconds / 3600) for w in plan] == [13, 4, 19]
    again = backfill_plan("west", 1, now=NOW, again=True)
    assert [int(w.seconds / 3600) for w in again] == [13, 24]


def test_a_backfill_is_noted_before_it_begins_and_again_changes_nothing(west: Cluster) -> None:
    kept = datetime(2026, 11, 20, 3, tzinfo=UTC)
    CollectionWindow.objects.create(cluster=west, hour=kept, state="failed", attempts=2)
    plan = backfill_plan("west", 1, now=NOW)
    assert note_backfill("west", plan) == 36
    assert note_backfill("west", plan) == 0
    rows = CollectionWindow.objects.order_by("hour")
    assert {(row.state, row.attempts) for row in rows} == {("waiting", 0), ("failed", 2)}
    assert len(rows) == sum(int(w.seconds / 3600) for w in plan)


def test_a_day_of_25_hours_is_two_windows(west: Cluster) -> None:
    now = datetime(2026, 10, 26, 12, tzinfo=UTC)
    plan = backfill_plan("west", 1, now=now)
    assert [int(w.seconds / 3600) for w in plan] == [12, 24, 1]
