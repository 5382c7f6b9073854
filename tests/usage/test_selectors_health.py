"""Data quality: what was collected, what is missing, and who sees why."""

from datetime import UTC, datetime, timedelta

import pytest
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster
from apps.usage import selectors
from apps.usage.domain.usage_query import Filters
from apps.usage.selectors import Freshness
from tests.factories import collect, make_cluster, make_gpus, make_report, make_tier
from tests.factories import note_collection as note

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
AT = datetime(2026, 3, 10, 12, tzinfo=UTC)
NOBODY = Visibility(everything=False)


@pytest.fixture
def west() -> Cluster:
    make_report("Europe/Berlin")
    return make_cluster("west")


def fresh(
    hours: int = 6, *, now: datetime | None = None, clusters: tuple[str, ...] = ()
) -> Freshness:
    window = Window(AT, AT + hours * HOUR)
    return selectors.freshness(
        window, filters=Filters(cluster=clusters), visibility=NOBODY, now=now
    )


def numbers(hours: tuple[datetime, ...]) -> list[float]:
    """Return hours as their distance from the first one."""
    return [(hour - AT) / HOUR for hour in hours]


def test_hours_without_a_row_or_only_pending_are_missing(west: Cluster) -> None:
    for hour, state in enumerate(("complete", "failed", "partial", "waiting", "complete")):
        note(west, AT + hour * HOUR, state)
    note(west, AT + 6 * HOUR)
    found = fresh()
    assert numbers(found.missing) == [3, 5]
    assert numbers(found.failed) == [1]
    assert numbers(found.partial) == [2]
    assert found.last_hour_end == AT + 7 * HOUR
    assert found.first_hour == AT


def test_hours_before_the_first_are_not_missing(west: Cluster) -> None:
    note(west, AT + 4 * HOUR)
    assert numbers(fresh().missing) == []


def test_hours_since_the_clusters_own_start_are_missing(west: Cluster) -> None:
    west.collect_from = AT + 2 * HOUR
    west.save()
    note(west, AT + 4 * HOUR)
    assert numbers(fresh().missing) == [2, 3]


def test_a_scheduler_that_stands_still_shows_once_the_clock_is_given(west: Cluster) -> None:
    note(west, AT)
    assert numbers(fresh().missing) == []
    # The hour that closed a minute ago may still settle.
    assert numbers(fresh(now=AT + 4 * HOUR + timedelta(minutes=1)).missing) == [1, 2]
    assert numbers(fresh(now=AT + 4 * HOUR + timedelta(minutes=3)).missing) == [1, 2, 3]


def test_a_cluster_never_asked_for_has_nothing_missing_and_no_last_hour(west: Cluster) -> None:
    assert fresh(now=AT + 100 * HOUR) == Freshness(None, (), (), ())


def test_an_hour_that_one_of_two_clusters_lacks_is_missing(west: Cluster) -> None:
    east = make_cluster("east")
    for hour in range(3):
        note(west, AT + hour * HOUR)
    note(east, AT)
    note(east, AT + 2 * HOUR)
    assert numbers(fresh().missing) == [1]
    assert numbers(fresh(clusters=("west",)).missing) == []


def test_a_cluster_that_left_the_catalog_is_not_missed(west: Cluster) -> None:
    note(west, AT)
    note(make_cluster("gone", active=False), AT, "failed")
    assert fresh() == Freshness(AT + HOUR, (), (), (), AT)


def test_hours_of_a_zone_at_half_past_are_told_apart() -> None:
    make_report("Asia/Kolkata")
    west = make_cluster("west")
    half = timedelta(minutes=30)
    note(west, AT + half)
    note(west, AT + half + 2 * HOUR)
    assert numbers(fresh().missing) == [1.5]


def test_a_long_complete_window_takes_a_known_number_of_queries(
    west: Cluster, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for hour in range(5):
        note(west, AT + hour * HOUR)
    with django_assert_num_queries(3):
        assert fresh(1000, now=AT + 5 * HOUR).missing == ()
    with django_assert_num_queries(4):
        assert len(fresh(1000, now=AT + 30 * HOUR).missing) == 24


def test_errors_and_warnings_are_for_who_sees_everything(west: Cluster) -> None:
    note(west, AT, "failed", error="401 from http://p:9090", warnings=["http://p:9090 is old"])
    for visibility, error, warnings in (
        (EVERYTHING, "401 from http://p:9090", ("http://p:9090 is old",)),
        (NOBODY, None, ()),
    ):
        (row,) = selectors.collection_page(
            None,
            filters=Filters(),
            states=(),
            visibility=visibility,
            cursor=None,
            page_size=10,
        ).rows
        assert (row.state, row.error, row.warnings) == ("failed", error, warnings)


def test_the_portal_is_ready_once_an_hour_has_facts(west: Cluster) -> None:
    note(west, AT)
    assert not selectors.data_ready()
    node_gpus = [make_gpus(west, "n", make_tier("gold"))]
    collect([AT], node_gpus, lambda hour: [], zone=make_report())
    assert selectors.data_ready()
