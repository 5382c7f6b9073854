"""Pending pods, by tier."""

from datetime import UTC, datetime, timedelta

import pytest

from apps.accounts.permissions import EVERYTHING, visibility_of
from apps.usage import selectors
from apps.usage.domain.usage_query import Filters
from apps.usage.selectors import PendingGpus
from tests.factories import Portal, make_pod, make_portal, make_workload
from tests.shared_rows import copy_of, shared

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
SINCE = datetime(2026, 1, 1, tzinfo=UTC)
AT = datetime(2026, 3, 10, 12, tzinfo=UTC)


_portal = shared(lambda: make_portal(since=SINCE))
portal = copy_of("_portal")


def test_pending_work_is_counted_by_tier_over_all_teams(portal: Portal) -> None:
    work = make_workload(portal.clusters[0], "speech", "queue")
    gold, silver = portal.tiers
    make_pod(work, "w1", created_at=AT - 2 * HOUR, tier=silver, units=2.0)
    make_pod(work, "w2", created_at=AT - HOUR, tier=silver, gpu_equivalents=0.5)
    make_pod(work, "bound later", created_at=AT - HOUR, bound_at=AT + SECOND, tier=gold)
    make_pod(work, "bound now", created_at=AT - HOUR, bound_at=AT, tier=gold)
    make_pod(work, "gone", created_at=AT - HOUR, ended_at=AT, tier=gold)
    make_pod(work, "to come", created_at=AT + SECOND, tier=gold)
    make_pod(work, "nowhere", created_at=AT - HOUR)
    assert selectors.pending_by_tier(AT, visibility=visibility_of(portal.dan)) == [
        PendingGpus("gold", 2, 5.0, SINCE),
        PendingGpus("silver", 2, 2.5, AT - 2 * HOUR),
        PendingGpus("undetermined", 1, 1.0, AT - HOUR),
    ]


def test_pending_work_can_be_narrowed_to_clusters(portal: Portal) -> None:
    def waiting(*clusters: str) -> list[PendingGpus]:
        filters = Filters(cluster=clusters)
        return selectors.pending_by_tier(AT, visibility=EVERYTHING, filters=filters)

    every = [PendingGpus("gold", 1, 4.0, SINCE)]
    assert waiting("west") == waiting("west", "east") == waiting() == every
    assert waiting("east") == []


def test_clusters_that_left_the_catalog_wait_for_nothing(portal: Portal) -> None:
    portal.clusters[0].active = False
    portal.clusters[0].save()
    assert selectors.pending_by_tier(AT, visibility=EVERYTHING) == []
