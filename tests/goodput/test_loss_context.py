"""What was with GPUs and nodes of runs that failed: told where it is known, and no zero else."""

from datetime import datetime, timedelta
from urllib.parse import urlencode

import pytest
from django.test import Client

from apps.accounts.permissions import EVERYTHING
from apps.clusters.models import NodeInterval, Pod
from apps.goodput.selectors import LostReasonRow, goodput_ledger
from apps.usage.domain.usage_query import Filters
from apps.usage.models import CollectionWindow, DeviceHealthHour, PodDevices
from tests.factories import Portal
from tests.goodput.test_goodput_rows import CRASH, SINCE, _portal, portal, window_of
from tests.web.pages import records_of

pytestmark = pytest.mark.django_db
__all__ = ["_portal", "portal"]

FELL_OFF = 79
SPAN = {"start": "2026-03-08", "end": "2026-03-11"}


def exported(portal: Portal, health: str) -> None:
    pod = Pod.objects.get(name="train-0")
    hour = CRASH.replace(minute=0)
    CollectionWindow.objects.update_or_create(
        cluster_id=pod.cluster_id, hour=hour, defaults={"health": health}
    )


def shown(portal: Portal, at: datetime) -> None:
    """Let a GPU of `train-0` show an XID."""
    pod = Pod.objects.get(name="train-0")
    PodDevices.objects.update_or_create(pod=pod, defaults={"uuids": "GPU-1 GPU-2"})
    DeviceHealthHour.objects.all().delete()
    DeviceHealthHour.objects.create(
        cluster_id=pod.cluster_id,
        uuid="GPU-2",
        node_name=pod.node_name,
        hour=at.replace(minute=0, second=0),
        xids=[[at.timestamp(), FELL_OFF]],
    )


def node_was(
    portal: Portal, *, ready: bool, schedulable: bool, end: datetime | None = None
) -> None:
    pod = Pod.objects.get(name="train-0")
    intervals = NodeInterval.objects.filter(
        node__name=pod.node_name, node__cluster_id=pod.cluster_id
    )
    node = portal.node_gpus[0].node
    intervals.delete()
    NodeInterval.objects.create(
        node=type(node).objects.get(name=pod.node_name, cluster_id=pod.cluster_id),
        start=CRASH - timedelta(minutes=2),
        end=end,
        ready=ready,
        schedulable=schedulable,
    )


def restarted(portal: Portal) -> LostReasonRow:
    found = goodput_ledger(window_of(portal), group_by=(), filters=Filters(), visibility=EVERYTHING)
    return next(one for one in found.reasons if one.reason == "Restarted")


def test_where_nothing_is_known_there_is_no_zero(portal: Portal) -> None:
    NodeInterval.objects.all().delete()
    row = restarted(portal)
    assert (row.xid_events, row.not_ready_events, row.cordoned_events) == (None, None, None)
    lost = row.xid_lost_gpu_hours, row.not_ready_lost_gpu_hours, row.cordoned_lost_gpu_hours
    assert lost == (None, None, None)
    assert (row.xid_checked_events, row.node_checked_events) == (0, 0)
    # GPUs are known, and nothing exports XIDs.
    shown(portal, CRASH - timedelta(minutes=1))
    exported(portal, "thermal")
    assert restarted(portal).xid_events is None


@pytest.mark.parametrize(
    ("before", "count"),
    [(timedelta(minutes=9), 1), (timedelta(seconds=-30), 1), (timedelta(minutes=11), 0)],
)
def test_an_xid_of_the_ten_minutes_before_is_told(
    portal: Portal, before: timedelta, count: int
) -> None:
    exported(portal, "thermal xid")
    shown(portal, CRASH - before)
    row = restarted(portal)
    assert (row.xid_events, row.xid_checked_events) == (count, 1)
    # Its one failure: what it cost is all of the reason, or nothing.
    assert row.xid_lost_gpu_hours == (row.lost_gpu_hours if count else 0)


def test_hours_that_begin_at_half_past_tell_xids_too(portal: Portal) -> None:
    """Those of a report in Asia/Kolkata; the XID is of the hour before that of the failure."""
    exported(portal, "xid")
    shown(portal, CRASH - timedelta(minutes=1))
    CollectionWindow.objects.filter(hour=CRASH.replace(minute=0)).update(health="")
    CollectionWindow.objects.update_or_create(
        cluster_id=Pod.objects.get(name="train-0").cluster_id,
        hour=CRASH,
        defaults={"health": "xid"},
    )
    DeviceHealthHour.objects.update(hour=CRASH - timedelta(hours=1))
    row = restarted(portal)
    assert (row.xid_events, row.xid_checked_events) == (1, 1)


def test_an_xid_has_the_cost_of_its_failures_alone(portal: Portal) -> None:
    """`serve-abc` crashed at the same time, on a GPU of its own without an XID."""
    both = restarted(portal).lost_gpu_hours
    spans = [[SINCE.timestamp(), CRASH.timestamp()], [CRASH.timestamp(), None]]
    Pod.objects.filter(name="serve-abc").update(runs=spans)
    serve = Pod.objects.get(name="serve-abc")
    PodDevices.objects.create(pod=serve, uuids="GPU-9")
    exported(portal, "xid")
    shown(portal, CRASH - timedelta(minutes=1))
    node_was(portal, ready=False, schedulable=False)
    row = restarted(portal)
    assert (row.events, row.xid_events, row.xid_checked_events) == (2, 1, 2)
    # The four GPUs of `train-0`, from the window's start to the crash; the node lost both.
    hours = (CRASH - window_of(portal).start) / timedelta(hours=1)
    assert row.xid_lost_gpu_hours == pytest.approx(4 * hours) == pytest.approx(both)
    assert row.lost_gpu_hours == pytest.approx(5 * hours)
    assert row.not_ready_lost_gpu_hours == row.cordoned_lost_gpu_hours == row.lost_gpu_hours


def test_the_node_is_told_as_it_was_at_the_failure(portal: Portal) -> None:
    node_was(portal, ready=False, schedulable=True)
    row = restarted(portal)
    assert (row.not_ready_events, row.cordoned_events, row.node_checked_events) == (1, 0, 1)
    node_was(portal, ready=True, schedulable=False)
    row = restarted(portal)
    assert (row.not_ready_events, row.cordoned_events) == (0, 1)
    # It was back before the pod failed, and nobody watched it then.
    node_was(portal, ready=False, schedulable=True, end=CRASH - timedelta(minutes=1))
    assert restarted(portal).not_ready_events is None


def test_page_api_and_file_say_the_same(portal: Portal) -> None:
    exported(portal, "xid")
    shown(portal, CRASH - timedelta(minutes=1))
    node_was(portal, ready=False, schedulable=True)
    client = Client()
    client.force_login(portal.cleo)
    rows = client.get("/api/v1/goodput/losses", SPAN).json()["results"]
    assert [(row["reason"], row["events"]) for row in rows] == [
        ("Restarted", 1),
        ("PreemptionByScheduler", 1),
    ]
    assert (rows[0]["xid_events"], rows[0]["not_ready_events"]) == (1, 1)
    assert rows[0]["xid_lost_gpu_hours"] == rows[0]["lost_gpu_hours"] > 0
    assert rows[0]["not_ready_lost_gpu_hours"] == rows[0]["lost_gpu_hours"]
    assert rows[0]["cordoned_lost_gpu_hours"] == 0
    assert rows[1]["xid_events"] is rows[1]["xid_lost_gpu_hours"] is None
    for address in (
        "/api/v1/goodput/losses?format=csv&",
        "/capacity/goodput/?format=csv&table=reasons&",
    ):
        lines = records_of(client, address + urlencode(SPAN))
        (row,) = [one for one in lines if one["reason"] == "Restarted"]
        assert (row["xid_events"], row["not_ready_events"]) == ("1", "1")
        assert row["xid_lost_gpu_hours"] == row["lost_gpu_hours"]
        assert float(row["cordoned_lost_gpu_hours"]) == 0
    page = client.get("/capacity/goodput/", SPAN).content.decode()
    assert "After XID" in page
    assert "Lost after XID" in page
    assert "no data" in page
    own = Client()
    own.force_login(portal.dan)
    (row,) = own.get("/api/v1/goodput/losses", SPAN).json()["results"]
    assert row["reason"] == "PreemptionByScheduler"
