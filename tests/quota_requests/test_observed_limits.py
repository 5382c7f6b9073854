"""What sightings show of a target, of each kind of quota; and the tasks that look at them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    FlavorQuota,
    ObservedKind,
    ObservedObject,
    QuotaSnapshot,
    VolcanoQueueSnapshot,
)
from apps.clusters.models import Cluster, WatchCoverage, WatchIssue
from apps.quota_requests import tasks
from apps.quota_requests.domain.execution.applied_changes import ObservedLimit
from apps.quota_requests.domain.quantities import quantity
from apps.quota_requests.domain.targets import (
    QueueCell,
    QuotaKeyTarget,
    Target,
    VolcanoCell,
    VolcanoField,
)
from apps.quota_requests.services.evidence.known_quotas import (
    ON_ITS_WAY,
    SETTLING,
    amount_in,
    shown_now,
)
from tests.factories import make_cluster
from tests.quota_requests.portal import make_sighting

pytestmark = pytest.mark.django_db

GPU = "nvidia.com/gpu"
KEY = f"requests.{GPU}"
VOLCANO = VolcanoQueueSnapshot(capability={GPU: 4.0}, deserved={GPU: 2.0})


@pytest.mark.parametrize(
    ("kind", "body", "target", "amount"),
    [
        pytest.param(
            *(
                ObservedKind.RESOURCE_QUOTA,
                QuotaSnapshot(hard={KEY: 2.5}),
                QuotaKeyTarget("a", "q", KEY),
                "2500m",
            ),
            id="a fraction of a ResourceQuota",
        ),
        pytest.param(
            *(
                ObservedKind.RESOURCE_QUOTA,
                QuotaSnapshot(hard={"pods": 1.0}),
                QuotaKeyTarget("a", "q", KEY),
                None,
            ),
            id="a key that is gone",
        ),
        pytest.param(
            ObservedKind.CLUSTER_QUEUE,
            ClusterQueueSnapshot(quotas=(FlavorQuota("x", GPU, 9.0), FlavorQuota("y", GPU, 8.0))),
            *(QueueCell("q", "y", GPU), "8"),
            id="a flavor of a ClusterQueue",
        ),
        pytest.param(
            *(ObservedKind.CLUSTER_QUEUE, ClusterQueueSnapshot(), QueueCell("q", "y", GPU), None),
            id="a flavor that is gone",
        ),
        pytest.param(
            *(
                ObservedKind.VOLCANO_QUEUE,
                VOLCANO,
                VolcanoCell("q", VolcanoField.CAPABILITY, GPU),
                "4",
            ),
            id="what a Volcano queue may use",
        ),
        pytest.param(
            *(
                ObservedKind.VOLCANO_QUEUE,
                VOLCANO,
                VolcanoCell("q", VolcanoField.DESERVED, GPU),
                "2",
            ),
            id="what a Volcano queue is meant to have",
        ),
    ],
)
def test_a_object_shows_the_amount_of_its_target(
    kind: ObservedKind, body: Any, target: Target, amount: str | None
) -> None:
    seen = ObservedObject(kind, "u", target.namespace, "q", body, first=0.0, changed=0.0)
    assert amount_in(seen, target) == (None if amount is None else quantity(amount))


def test_nothing_is_shown_of_a_cluster_that_nobody_watches() -> None:
    assert shown_now(make_cluster("west").pk, [QuotaKeyTarget("a", "q", KEY)]) == {}


SEEN = datetime(2026, 11, 16, 12, tzinfo=UTC)
LATER = SEEN + timedelta(hours=1)


def watched(subject: str = "") -> Cluster:
    """Make a cluster that is watched until LATER, but for what a note says."""
    cluster = make_cluster("west")
    WatchCoverage.objects.create(cluster=cluster, start=SEEN - timedelta(days=1), end=LATER)
    if subject:
        WatchIssue.objects.create(cluster=cluster, subject=subject, text="-", since=SEEN)
    return cluster


@pytest.mark.parametrize(
    ("subject", "at"),
    [
        pytest.param("", LATER - SETTLING, id="followed"),
        pytest.param("waiting:pods", LATER - SETTLING, id="another collection is silent"),
        pytest.param("waiting:resourcequotas", SEEN - ON_ITS_WAY, id="silent"),
    ],
)
def test_a_quota_is_known_as_long_as_its_collection_is_followed(subject: str, at: datetime) -> None:
    cluster, target = watched(subject), QuotaKeyTarget("a", "q", KEY)
    body = QuotaSnapshot(hard={KEY: 6.0})
    make_sighting(cluster, ObservedKind.RESOURCE_QUOTA, "q", body, namespace="a", at=SEEN)
    assert shown_now(cluster.pk, [target]) == {
        target: ObservedLimit(quantity("6"), exists=True, at=at)
    }


def test_what_is_not_there_is_not_gone_where_its_collection_is_silent() -> None:
    cell, key = QueueCell("q", "y", GPU), QuotaKeyTarget("a", "q", KEY)
    cluster = watched("waiting:kueue.x-k8s.io")
    assert set(shown_now(cluster.pk, [cell, key])) == {key}


def test_what_many_targets_show_takes_three_queries(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    cluster = watched()
    with django_assert_num_queries(3):
        shown_now(cluster.pk, [QuotaKeyTarget("a", f"q{n}", KEY) for n in range(20)])


def test_tasks_with_nothing_to_do_do_nothing() -> None:
    assert tasks.carry_out(execution_id=1) == ""
    assert [
        task()
        for task in (
            tasks.schedule_executions,
            tasks.revert_due,
            tasks.expire,
            tasks.watch_gitops,
            tasks.check_drift,
        )
    ] == [0] * 5
