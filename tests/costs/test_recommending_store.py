"""Recommendations as rows from day to day: what is written, what returns, what is forgotten."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.clusters.models import Cluster
from apps.costs.domain.recommendations.recommendation import (
    Confidence,
    Rating,
    RecommendationKind,
    RecommendationState,
    Saving,
    Subject,
)
from apps.costs.domain.recommendations.recommendation import Finding as Found
from apps.costs.models import Recommendation
from apps.costs.services.recommendations import GONE_FOR, TeamFinding, store
from tests.factories import make_cluster, make_tier

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 21, 1, 30, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def cluster() -> Cluster:
    make_tier("gold")
    return make_cluster()


def found(
    name: str, saving: str = "100.00", kind: RecommendationKind = RecommendationKind.SPOT
) -> TeamFinding:
    one = Found(
        kind=kind,
        subject=Subject("west", "vision", f"Job/{name}", "gold"),
        change="Run it on spot.",
        saved=Saving(1.0, Decimal(saving)),
        currency="USD",
        rating=Rating(Confidence.LOW, "only 7 days"),
        evidence={"days": 7.0, "price_per_gpu_hour": Decimal("3.06")},
    )
    return TeamFinding(one, None)


def written(cluster: Cluster, some: list[TeamFinding], now: datetime) -> list[str]:
    """Store what was found; return the statements that wrote rows' contents."""
    with CaptureQueriesContext(connection) as queries:
        store(cluster, some, now=now)
    updates = (query["sql"] for query in queries if query["sql"].startswith("UPDATE"))
    return [sql for sql in updates if '"change"' in sql]


def states() -> dict[str, str]:
    return dict(Recommendation.objects.values_list("workload", "state"))


def test_what_says_the_same_as_before_is_only_seen_again(cluster: Cluster) -> None:
    store(cluster, [found("a"), found("b")], now=NOW)
    assert written(cluster, [found("a"), found("b")], NOW + DAY) == []
    assert set(Recommendation.objects.values_list("last_seen", flat=True)) == {NOW + DAY}


def test_only_what_changed_is_written(cluster: Cluster) -> None:
    store(cluster, [found("a"), found("b")], now=NOW)
    (sql,) = written(cluster, [found("a"), found("b", "90.00")], NOW + DAY)
    changed = Recommendation.objects.get(workload="Job/b")
    assert changed.saving_per_month == Decimal("90.00")
    assert f'"id" IN ({changed.pk})' in sql


def test_what_is_gone_is_written_once(cluster: Cluster) -> None:
    store(cluster, [found("a")], now=NOW)
    assert written(cluster, [], NOW + DAY)
    assert states() == {"Job/a": RecommendationState.GONE.value}
    assert written(cluster, [], NOW + 2 * DAY) == []
    assert Recommendation.objects.get().last_seen == NOW


def test_what_was_gone_returns_as_the_same_row(cluster: Cluster) -> None:
    store(cluster, [found("a"), found("b")], now=NOW)
    before = set(Recommendation.objects.values_list("pk", flat=True))
    store(cluster, [], now=NOW + DAY)
    store(cluster, [found("b", "5.00")], now=NOW + 2 * DAY)
    assert states() == {
        "Job/a": RecommendationState.GONE.value,
        "Job/b": RecommendationState.OPEN.value,
    }
    assert set(Recommendation.objects.values_list("pk", flat=True)) == before
    assert Recommendation.objects.get(workload="Job/b").last_seen == NOW + 2 * DAY


def test_an_alternative_that_goes_is_none_any_more(cluster: Cluster) -> None:
    dearer = found("a", "10.00", RecommendationKind.MIG_PROFILE)
    store(cluster, [found("a"), dearer], now=NOW)
    assert Recommendation.objects.get(kind=RecommendationKind.MIG_PROFILE.value).alternative
    store(cluster, [dearer], now=NOW + DAY)
    assert not Recommendation.objects.filter(alternative=True).exists()


def test_what_is_gone_for_long_is_deleted_and_what_was_decided_is_kept(cluster: Cluster) -> None:
    store(cluster, [found("a"), found("b")], now=NOW)
    dismissed = Recommendation.objects.filter(workload="Job/b")
    dismissed.update(state=RecommendationState.DISMISSED.value, dismiss_reason="Needed.")
    store(cluster, [], now=NOW + GONE_FOR)
    assert states() == {
        "Job/a": RecommendationState.GONE.value,
        "Job/b": RecommendationState.DISMISSED.value,
    }
    store(cluster, [], now=NOW + GONE_FOR + DAY)
    assert states() == {"Job/b": RecommendationState.DISMISSED.value}


def test_how_many_rows_are_gone_does_not_matter(cluster: Cluster) -> None:
    store(cluster, [found(f"old-{number}") for number in range(30)], now=NOW)
    store(cluster, [], now=NOW + DAY)
    with CaptureQueriesContext(connection) as queries:
        store(cluster, [found("a")], now=NOW + 2 * DAY)
    reads = [query["sql"] for query in queries if query["sql"].startswith("SELECT")]
    assert len(reads) == 3, "tiers, what stands, what returns"
