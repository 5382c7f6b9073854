"""Pending workloads: one for pods, Workload and controller; the counts are those of the list."""

from copy import deepcopy
from datetime import timedelta

import pytest

from apps.accounts.permissions import EVERYTHING, Visibility
from apps.pending.domain.workload_groups import WorkloadGrouping
from apps.pending.models import Episode
from apps.pending.selectors import PendingFilters, count_workloads, pending_workloads
from tests.factories import Portal, make_workload
from tests.pending.pending_portal import HOUR, NOW, at_most, make_waiting_portal, of
from tests.pending.rows import make_episode
from tests.shared_rows import shared

pytestmark = pytest.mark.django_db

OUTSIDER = Visibility(everything=False)
_waiting = shared(make_waiting_portal)


@pytest.fixture
def queued(_waiting: Portal, db: None) -> Portal:
    """Return the portal with a job of three items and two causes, and one that starts."""
    portal = deepcopy(_waiting)
    west = portal.clusters[0]
    job = make_workload(west, "vision", "queued")
    make_episode(job, "queued-0", since=NOW - HOUR, cause="queue")
    make_episode(job, "queued-1", since=NOW - 3 * HOUR, cause="quota")
    make_episode(
        job, "whole", since=NOW - 4 * HOUR, kind="Job", cause="queue", counts="nothing", counted=0.0
    )
    other = make_workload(west, "speech", "reader", "Deployment")
    make_episode(other, "reader-0", since=NOW - timedelta(minutes=5), cause="starting")
    return portal


def test_the_items_of_a_workload_are_one_row(queued: Portal) -> None:
    Episode.objects.exclude(workload__name="queued").delete()
    found = pending_workloads(
        NOW, by=WorkloadGrouping.NONE, filters=PendingFilters(), visibility=EVERYTHING
    )
    ((workload,),) = (group.workloads for group in found.page(slice(0, 25)))
    assert (found.count, workload.gpus, workload.since) == (1, 2.0, NOW - 3 * HOUR)
    assert [item.name for item in workload.items] == ["queued-1", "queued-0"]
    assert {one.cause: one.workloads for one in found.causes} == {"queue": 1, "quota": 1}


@pytest.mark.parametrize(
    "filters",
    [
        pytest.param(PendingFilters(), id="all"),
        pytest.param(PendingFilters(team=("vision",)), id="team"),
        pytest.param(PendingFilters(tier=("gold",)), id="tier"),
        pytest.param(PendingFilters(cluster=("east",)), id="cluster"),
        pytest.param(PendingFilters(team=("nobody-has-this-name",)), id="none"),
    ],
)
@pytest.mark.parametrize("reader", ["everything", "vision", "outsider"])
def test_the_counts_are_those_of_the_list(
    queued: Portal, filters: PendingFilters, reader: str
) -> None:
    readers: dict[str, Visibility] = {
        "everything": EVERYTHING,
        "vision": of(queued.vision),
        "outsider": OUTSIDER,
    }
    listed = pending_workloads(
        NOW, by=WorkloadGrouping.QUEUE, filters=filters, visibility=readers[reader]
    )
    with at_most(4):
        counts = count_workloads(NOW, filters=filters, visibility=readers[reader])
    assert (counts.count, counts.since) == (listed.count, listed.since)
    assert counts.causes == listed.causes
    assert counts.count == len(list(listed.summaries))
