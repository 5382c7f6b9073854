"""Nodes judged from the pod ledger, and who sees what of it."""

from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from apps.accounts.domain.identity import Role
from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.models import Cluster, Device
from apps.goodput.selectors import (
    gpu_reliability_rows,
    interruption_rows,
    reliability_rows,
    reliability_states,
)
from apps.goodput.services import judge_nodes
from apps.usage.models import DeviceHealthHour
from tests.factories import (
    make_cluster,
    make_pod,
    make_report,
    make_user,
    make_workload,
    note_collection,
)

MIDNIGHT = datetime(2026, 3, 30, tzinfo=UTC)
NOW = MIDNIGHT + timedelta(hours=12)
HOUR = timedelta(hours=1)


@pytest.fixture
def failing(db: None) -> None:
    """Fill a month: `west` has ten nodes; on `bad` each of six workloads fails every day."""
    west = make_cluster("west")
    for number in range(6):
        workload = make_workload(west, "vision", f"train-{number}")
        for day in range(25):
            for node in ("bad", *(f"good-{k}" for k in range(9))):
                begun = MIDNIGHT - timedelta(days=day + 1) + number * HOUR
                failed = node == "bad" or (node == "good-0" and day == 3)
                make_pod(
                    workload,
                    f"{workload.name}-{day}-{node}",
                    created_at=begun,
                    node_name=node,
                    bound_at=begun,
                    finished_at=begun + HOUR,
                    end_reason="Error" if failed else "Completed",
                    units=2.0,
                )


def test_the_bad_node_is_found_once_a_day(
    failing: None, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    assert judge_nodes(now=NOW) == 1
    assert judge_nodes(now=NOW + HOUR) == 0
    with django_assert_num_queries(2):
        rows = reliability_rows(visibility=EVERYTHING)
    assert [row.node for row in rows if row.is_unreliable] == ["bad"]
    bad = rows[0]
    assert (bad.incidents, bad.reasons, bad.lost_gpu_hours) == (150, {"Error": 150}, 300.0)
    assert bad.expected == pytest.approx((150 + 6) / 10)
    assert bad.ratio_low is not None
    assert bad.ratio_low > 8
    (sizes,) = interruption_rows(visibility=EVERYTHING)
    assert (sizes.least_gpus, sizes.workloads, sizes.interruptions) == (16, 6, 150)
    assert judge_nodes(now=NOW + timedelta(days=1)) == 1


def test_the_lists_are_for_who_sees_all_teams(failing: None) -> None:
    judge_nodes(now=NOW)
    visibility = Visibility(everything=False)
    assert reliability_rows(visibility=visibility) == []
    assert interruption_rows(visibility=visibility) == []
    assert reliability_states(visibility=visibility) == []


def test_not_judged_yet_and_no_pod_are_told_apart(db: None) -> None:
    make_cluster("west")
    make_report()
    admin = Client()
    admin.force_login(make_user("cleo", role=Role.ADMIN))

    def shown() -> str:
        return admin.get("/capacity/reliability/").content.decode()

    assert "Not computed yet" in shown()
    assert judge_nodes(now=NOW) == 1
    assert "No pod ran on a GPU in these days" in shown()


def test_a_report_speaks_of_no_day_before_the_first_run(failing: None) -> None:
    judge_nodes(now=NOW)
    (state,) = reliability_states(visibility=EVERYTHING)
    assert (state.start, state.end) == (MIDNIGHT - timedelta(days=25), MIDNIGHT)


def shown_gpu(cluster: Cluster, uuid: str, **state: int) -> None:
    """Make a GPU as its exporter shows it now."""
    Device.objects.create(
        cluster=cluster,
        uuid=uuid,
        node_name="good-1",
        health="ok",
        first_seen=NOW,
        last_seen=NOW,
        looked_at=NOW,
        health_since=NOW,
        state={"uuid": uuid, "node": "good-1", "index": "0", "model": "A100", **state},
    )


def test_errors_of_unknown_kind_are_counted_and_days_without_data_are_not_zero(
    failing: None,
) -> None:
    west = Cluster.objects.get()
    # Its exporter shows ECC today, and showed XIDs alone in the hours that were collected.
    shown_gpu(west, "GPU-a", xid=999, ecc_uncorrected_volatile=0)
    for back in range(1, 4):
        note_collection(west, MIDNIGHT - back * HOUR, health="xid")
    note_collection(west, MIDNIGHT - 4 * HOUR)
    note_collection(west, MIDNIGHT, health="ecc_uncorrected xid")
    at = (MIDNIGHT - HOUR).timestamp()
    DeviceHealthHour.objects.create(
        cluster_id=west.pk, hour=MIDNIGHT - HOUR, uuid="GPU-a", xids=[[at, 999], [at + 60, 998]]
    )
    judge_nodes(now=NOW)
    (row,) = gpu_reliability_rows(visibility=EVERYTHING)
    assert (row.xids_hardware, row.xids_driver, row.xids_application) == (0, 0, 0)
    assert (row.xids_other, row.last_xid, row.known_hours) == (2, 998, 3)
    assert (row.ecc_uncorrected, row.ecc_corrected, row.thermal_seconds) == (None, None, None)
    note_collection(west, MIDNIGHT - 2 * HOUR, health="ecc_uncorrected xid")
    (row,) = gpu_reliability_rows(visibility=EVERYTHING)
    assert (row.ecc_uncorrected, row.known_hours) == (0, 1)
