"""Quotas that nobody uses: what was used of them at once, and GPUs that are saved once."""

from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from msgspec import to_builtins

from apps.accounts.domain.identity import Role
from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.observed.objects import ObservedKind as SeenKind
from apps.clusters.domain.observed.objects import QuotaSnapshot
from apps.clusters.models import ObservedObject, WatchCoverage
from apps.clusters.services.catalog import TierHistory
from apps.costs.domain.recommendations.recommendation import RecommendationKind
from apps.costs.models import Recommendation
from apps.costs.selectors.recommendations import RecommendationFilters, recommendation_sums
from apps.costs.services.evidence.capacity import quota_evidence
from apps.costs.services.evidence.offers import PricesInForce, offer_book
from apps.costs.services.evidence.span import span_of
from apps.costs.services.recommendation_run import store_recommendations
from apps.costs.services.recommendations import accept_recommendation
from apps.pending.domain.diagnosis import Cause, Counts
from apps.pending.models import CauseInterval, Episode
from apps.quotas.models import QuotaKey, QuotaKeyHour
from tests.costs.capacity_portal import (
    LAST,
    MIG,
    NOW,
    World,
    a_month,
    found,
    make_nightly,
    make_world,
)
from tests.factories import (
    BEGINNING,
    make_team,
    make_user,
    make_workload,
)

pytestmark = pytest.mark.django_db


def make_quota(
    world: World,
    key: str = "requests.nvidia.com/gpu",
    *,
    name: str = "gpus",
    namespace: str = "vision",
    hard: float = 8.0,
    is_there: bool = True,
    **used: Any,
) -> None:
    """Make a quota of eight of which two were used on the mean of every hour."""
    if is_there:
        body = QuotaSnapshot(hard={key: hard}, observed_hard={key: hard}, used={key: 2.0})
        ObservedObject.objects.create(
            cluster=world.cluster,
            kind=SeenKind.RESOURCE_QUOTA.value,
            uid=f"uid-{name}",
            namespace=namespace,
            name=name,
            first_at=BEGINNING,
            changed_at=BEGINNING,
            body=to_builtins(body),
        )
        start = world.hours[0]
        WatchCoverage.objects.get_or_create(cluster=world.cluster, start=start, end=NOW)
    row = QuotaKey.objects.create(
        cluster=world.cluster,
        source="ResourceQuota",
        namespace=namespace,
        name=name,
        key=key,
    )
    team = make_team("vision")
    rows = [
        QuotaKeyHour(
            key=row,
            cluster=world.cluster,
            team=team,
            hour=hour,
            seconds=3600.0,
            hard=8.0,
            **({"used": 2.0} | used),
        )
        for hour in world.hours
    ]
    QuotaKeyHour.objects.bulk_create(rows)


def test_a_quota_is_lowered_to_its_peak_and_some_headroom() -> None:
    world = make_world()
    make_quota(world)
    QuotaKeyHour.objects.filter(hour=world.hours[50]).update(used=4.0)
    one = found(RecommendationKind.UNUSED_QUOTA)
    assert one is not None
    assert one.change == (
        "Lower requests.nvidia.com/gpu from 8 to 5: at most 4 were ever used at once."
    )
    key = "requests.nvidia.com/gpu"
    assert one.change_values == {"key": key, "before": 8.0, "after": 5.0}
    assert one.saving_per_month == a_month(3)
    assert one.workload == "ResourceQuota/gpus"
    assert one.team is not None
    assert one.patch == (
        "kubectl --namespace vision patch resourcequota gpus --type merge --patch "
        """'{"spec": {"hard": {"requests.nvidia.com/gpu": "5"}}}'"""
    )


@pytest.mark.parametrize(
    ("key", "used"),
    [
        pytest.param("requests.nvidia.com/gpu", {"used": None}, id="not known"),
        pytest.param("requests.nvidia.com/gpu", {"used": 8.0}, id="used up"),
        pytest.param("limits.nvidia.com/gpu", {}, id="limits nothing"),
        pytest.param("pods", {}, id="counts no GPUs"),
    ],
)
def test_a_quota_of_which_nothing_is_known_or_left_stays(key: str, used: dict[str, Any]) -> None:
    make_quota(make_world(), key, **used)
    assert found(RecommendationKind.UNUSED_QUOTA) is None


@pytest.mark.parametrize(
    ("gpus", "values", "change"),
    [
        pytest.param(1.0, {}, "from 8 to 6: at most 5 were", id="five at once"),
        pytest.param(4.0, {}, None, id="all eight"),
        pytest.param(4.0, {"day": LAST + timedelta(days=1), "finished_at": None}, None, id="now"),
        pytest.param(4.0, {"requests": {"nvidia.com/gpu": 4}}, None, id="as asked for"),
        pytest.param(4.0, {"requests": {MIG: 4}}, "at most 4 were", id="of another resource"),
        pytest.param(4.0, {"day": date(2026, 9, 1)}, "at most 4 were", id="long ago"),
    ],
)
def test_what_was_used_for_minutes_is_not_taken_away(
    gpus: float, values: dict[str, Any], change: str | None
) -> None:
    world = make_world()
    make_quota(world)
    make_nightly(world, gpus, **values)
    one = found(RecommendationKind.UNUSED_QUOTA)
    assert (one is None) == (change is None)
    assert one is None or (change or "") in one.change


def test_what_a_quota_refused_counts_as_used() -> None:
    world = make_world()
    make_quota(world)
    refuse(world, 4.0)
    assert found(RecommendationKind.UNUSED_QUOTA) is None


def refuse(world: World, gpus: float) -> None:
    """Let quotas of the namespace refuse a controller's pods for a minute."""
    at = world.hours[70]
    refused = {"cause": Cause.QUOTA.value, "counts": Counts.SUPPRESSED.value}
    episode = Episode.objects.create(
        cluster=world.cluster,
        workload=make_workload(world.cluster, "vision", "refused", "Deployment"),
        uid="uid-refused",
        kind="ReplicaSet",
        name="refused",
        resource="nvidia.com/gpu",
        units=gpus,
        gpu_equivalents=gpus,
        counted=gpus,
        since=at,
        until=at + timedelta(minutes=1),
        **refused,
    )
    until = at + timedelta(minutes=1)
    CauseInterval.objects.create(episode=episode, start=at, end=until, counted=gpus, **refused)


def test_what_a_quota_allows_is_what_it_allows_now() -> None:
    world = make_world()
    make_quota(world, hard=6.0)
    one = found(RecommendationKind.UNUSED_QUOTA)
    assert one is not None
    assert "from 6 to 5" in one.change


def test_nothing_is_said_of_a_quota_that_is_not_there_any_more() -> None:
    make_quota(make_world(), is_there=False)
    assert found(RecommendationKind.UNUSED_QUOTA) is None


def test_nothing_is_said_of_quotas_that_nobody_watches_any_more() -> None:
    """What was seen of them may have been set anew since: advice could raise them."""
    make_quota(make_world())
    WatchCoverage.objects.update(end=NOW - timedelta(hours=7))
    assert found(RecommendationKind.UNUSED_QUOTA) is None


def test_quotas_of_many_namespaces_take_as_many_queries_as_one() -> None:
    world, counts = make_world(), []
    for namespaces in (1, 5):
        for number in range(namespaces):
            make_quota(world, name=f"gpus-{namespaces}-{number}", namespace=f"of-{number}")
        span, history = span_of(world.cluster, LAST, now=NOW), TierHistory.load()
        rules = history.at(NOW.timestamp())
        book = offer_book(world.cluster, LAST, rules, PricesInForce(NOW))
        with CaptureQueriesContext(connection) as queries:
            evidence = list(quota_evidence(span, book, history, {}))
        counts.append((len(evidence), len(queries)))
    assert counts == [(1, 10), (6, 10)]


def test_quotas_save_no_cash_and_are_added_up_apart() -> None:
    """Ten quotas share twelve empty GPUs: their worth is that of twelve, and none of it money."""
    world = make_world()
    for number in range(10):
        make_quota(world, name=f"gpus-{number}", hard=64.0)
    store_recommendations(now=NOW)
    rows = Recommendation.objects.filter(state="open")
    assert rows.filter(kind=RecommendationKind.UNUSED_QUOTA.value, alternative=False).count() == 10
    cash_rows = rows.exclude(kind=RecommendationKind.UNUSED_QUOTA.value)
    assert cash_rows.filter(alternative=False).count() == 1, "of hours and nodes of one pool"
    assert not any(row.covers for row in rows.filter(kind=RecommendationKind.UNUSED_QUOTA.value))
    asked: dict[str, Any] = {"filters": RecommendationFilters(), "visibility": EVERYTHING}
    (quota,) = recommendation_sums(**asked, of_quota=True)
    worth = quota.saving_per_month
    assert worth is not None
    assert a_month(12) - Decimal("0.10") <= worth <= a_month(12)
    (cash,) = recommendation_sums(**asked)
    assert cash.count == 1


def test_a_decision_on_nodes_leaves_quotas_as_they_are() -> None:
    world = make_world()
    make_quota(world, hard=64.0)
    store_recommendations(now=NOW)
    nodes = Recommendation.objects.get(kind=RecommendationKind.EMPTY_NODES.value)
    accept_recommendation(make_user("ada", Role.ADMIN), nodes.pk, now=NOW)
    assert (
        not Recommendation.objects.filter(alternative=True)
        .exclude(kind=RecommendationKind.EMPTY_HOURS.value)
        .exists()
    )
