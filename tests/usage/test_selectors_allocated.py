"""What teams hold and wait for now."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import Visibility
from apps.clusters.models import Pod
from apps.usage.selectors.pending import AllocatedGpus, allocated_now, exists_at
from tests.factories import make_cluster, make_gpus, make_pod, make_team, make_tier, make_workload

pytestmark = pytest.mark.django_db

AT = datetime(2026, 3, 10, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


def test_held_and_pending_are_summed_by_team_and_tier_over_all_clusters(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    west, east, gone = make_cluster("west"), make_cluster("east"), make_cluster("gone")
    gone.active = False
    gone.save()
    gold, silver = make_tier("gold"), make_tier("silver", position=1)
    make_team("vision", "vision*")
    make_team("speech", "speech")
    for cluster, namespace in ((west, "vision"), (east, "vision-prod"), (gone, "vision")):
        work = make_workload(cluster, namespace, "train")
        node_gpus = make_gpus(cluster, "n1", gold)
        held = f"held-{cluster.name}"
        make_pod(work, held, created_at=AT - HOUR, node_gpus=node_gpus, units=4.0)
        make_pod(work, f"over-{held}", created_at=AT - HOUR, node_gpus=node_gpus, ended_at=AT)
        make_pod(work, f"waits-{held}", created_at=AT - HOUR, tier=gold, gpu_equivalents=0.5)
        make_pod(work, f"later-{held}", created_at=AT + SECOND, tier=gold)
    other = make_workload(west, "speech", "serve")
    make_pod(other, created_at=AT - HOUR, bound_at=AT + SECOND, tier=silver, units=2.0)
    make_pod(other, created_at=AT - HOUR)
    with django_assert_num_queries(2):
        found = allocated_now(AT, visibility=Visibility(everything=False))
    assert found == {
        ("vision", "gold"): AllocatedGpus(held=8.0, waiting=1.0),
        ("speech", "silver"): AllocatedGpus(held=0.0, waiting=2.0),
    }


def test_only_sqlite_is_kept_from_finding_pods_by_their_cluster() -> None:
    # PostgreSQL would expect few pods, and look up the workload of each of them by itself.
    written = str(Pod.objects.filter(exists_at(AT)).query)
    assert ('"cluster_id" + 0' in written) is (connection.vendor == "sqlite")
