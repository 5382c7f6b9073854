"""The daily backtest: computed once, kept, and shown without computing."""

from datetime import datetime, timedelta

import pytest
from django.test import Client

from apps.accounts.permissions import Visibility
from apps.clusters.models import Cluster, NodeInterval, Pod, WatchCoverage
from apps.operations.services import derive_replays
from apps.planning.models import Backtest
from apps.planning.selectors import backtest_reports
from apps.planning.services import backtest_clusters
from tests.factories import make_user, note_collection
from tests.planning.test_recorded_demand import HOUR, START, cluster

__all__ = ["cluster"]
READER = Visibility(everything=False)
NOW = START + 25 * HOUR
DAY = timedelta(days=1)


def test_a_cluster_is_replayed_once_a_day(cluster: Cluster) -> None:
    WatchCoverage.objects.update(end=START + 3 * DAY)
    assert [backtest_clusters(now=NOW + hours * HOUR) for hours in (0, 1, 24)] == [1, 0, 1]
    (found,) = backtest_reports(visibility=READER)
    assert (found.cluster, found.end, found.works) == ("west", START + 2 * DAY, 4)
    sums = found.rows[0]
    assert (sums.tier, sums.happened.allocated_gpu_hours > 0) == ("", True)
    assert any("same work" in text for text in found.assumptions)


def test_a_backtest_of_the_first_day_is_replaced_as_days_are_collected(cluster: Cluster) -> None:
    """As on a fresh install, on which beat comes before the days are collected."""
    assert backtest_clusters(now=NOW) == 1
    (found,) = backtest_reports(visibility=READER)
    assert (found.start, found.end) == (START, START + DAY)
    collect(cluster, START - 20 * HOUR, START)
    assert [backtest_clusters(now=NOW + minute * HOUR / 60) for minute in (1, 2)] == [1, 0]
    (found,) = backtest_reports(visibility=READER)
    assert (found.start, found.end) == (START - DAY, START + DAY)
    collect(cluster, START - 20 * DAY, START - DAY)
    assert [backtest_clusters(now=NOW + minute * HOUR / 60) for minute in (3, 4)] == [1, 0]
    (found,) = backtest_reports(visibility=READER)
    assert (found.start, found.end) == (START - 13 * DAY, START + DAY)


def test_days_that_are_not_known_are_not_replayed(cluster: Cluster) -> None:
    WatchCoverage.objects.update(end=START + 5 * HOUR)
    assert backtest_clusters(now=NOW) == 0
    (found,) = backtest_reports(visibility=READER)
    assert (found.rows, found.error) == ((), "The last day of west is not known yet.")
    collect(cluster, START + 5 * HOUR, START + 12 * HOUR)
    assert backtest_clusters(now=NOW + HOUR) == 1


def collect(cluster: Cluster, start: datetime, end: datetime) -> None:
    for number in range(round((end - start) / HOUR)):
        note_collection(cluster, start + number * HOUR)


def test_who_computes_holds_a_lease(cluster: Cluster) -> None:
    Backtest.objects.create(cluster=cluster, lease_until=NOW + HOUR)
    assert backtest_clusters(now=NOW) == 0
    assert backtest_clusters(now=NOW + 2 * HOUR) == 1


def test_the_last_figures_stay_where_nothing_is_recorded(cluster: Cluster) -> None:
    WatchCoverage.objects.update(end=START + 2 * DAY)
    backtest_clusters(now=NOW)
    NodeInterval.objects.all().delete()
    assert backtest_clusters(now=NOW + DAY) == 0
    (found,) = backtest_reports(visibility=READER)
    assert found.rows
    assert found.error.startswith("No watch has seen nodes")


def test_where_nothing_was_recorded_it_is_tried_again_the_same_day(cluster: Cluster) -> None:
    kept = list(NodeInterval.objects.all())
    NodeInterval.objects.all().delete()
    assert backtest_clusters(now=NOW) == 0
    # As when the history is collected an hour after the portal was installed.
    NodeInterval.objects.bulk_create(kept)
    assert [backtest_clusters(now=NOW + hours * HOUR) for hours in (1, 2)] == [1, 0]
    (found,) = backtest_reports(visibility=READER)
    assert (found.error, bool(found.rows)) == ("", True)


def test_once_the_past_is_collected_the_same_day_is_replayed_anew(cluster: Cluster) -> None:
    assert backtest_clusters(now=NOW) == 1
    kept = list(Pod.objects.all())
    Pod.objects.all().delete()
    steps = {one.step: one.done for one in derive_replays(lambda: NOW + HOUR)}
    assert set(steps) == {"capacity plan", "backtest", "layouts", "replayed recommendations"}
    assert None not in steps.values()
    (found,) = backtest_reports(visibility=READER)
    assert found.works < 4, "without the pods there is less"
    Pod.objects.bulk_create(kept)
    derive_replays(lambda: NOW + HOUR)
    (found,) = backtest_reports(visibility=READER)
    assert found.works == 4


def test_the_page_says_not_computed_yet_or_shows_the_figures(
    cluster: Cluster, client: Client
) -> None:
    client.force_login(make_user("ada"))
    assert "Not computed yet" in client.get("/capacity/backtest/").content.decode()
    backtest_clusters(now=NOW)
    shown = client.get("/capacity/backtest/").content.decode()
    assert "All tiers" in shown
    assert "4 workloads from" in shown
    assert "The same work is requested" in shown
    # A change of nothing is an error of nothing.
    assert "no change" not in shown
    assert "0 %" in shown


pytestmark = pytest.mark.django_db
