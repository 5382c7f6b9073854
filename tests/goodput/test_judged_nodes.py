"""Nodes judged from the pod ledger, and who sees what of it."""

from datetime import UTC, datetime, timedelta
from html import unescape

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from apps.accounts.domain.identity import Role
from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.models import Cluster, Device
from apps.goodput.domain.reliability import Judgement
from apps.goodput.selectors import (
    gpu_reliability_rows,
    hardware_advice,
    interruption_rows,
    reliability_reports,
    reliability_rows,
)
from apps.goodput.services import judge_nodes
from apps.operations.services import derive_after_history
from apps.usage.models import DeviceHealthHour
from tests.factories import (
    make_cluster,
    make_pod,
    make_report,
    make_user,
    make_workload,
    note_collection,
)
from tests.shared_rows import shared

pytestmark = pytest.mark.django_db

MIDNIGHT = datetime(2026, 3, 30, tzinfo=UTC)
NOW = MIDNIGHT + timedelta(hours=12)
HOUR = timedelta(hours=1)


def fill() -> None:
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


failing = shared(fill)


def test_the_bad_node_is_found_once_a_day(
    failing: None, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    assert judge_nodes(now=NOW) == 1
    assert judge_nodes(now=NOW + HOUR) == 0
    with django_assert_num_queries(3):
        rows = reliability_rows(reliability_reports(visibility=EVERYTHING))
    assert [row.node for row in rows if row.is_unreliable] == ["bad"]
    bad = rows[0]
    assert (bad.incidents, bad.reasons, bad.lost_gpu_hours) == (150, {"Error": 150}, 300.0)
    # What the nine other nodes had, in nine times the time.
    assert bad.compared == 150
    assert bad.expected == pytest.approx(6 / 9)
    assert bad.ratio_low is not None
    assert bad.ratio_low > 8
    assert bad.advice.startswith("Drain west/bad: 225× the expected failures (")
    (sizes,) = interruption_rows(reliability_reports(visibility=EVERYTHING))
    assert (sizes.least_gpus, sizes.workloads, sizes.interruptions) == (16, 6, 150)
    assert judge_nodes(now=NOW + timedelta(days=1)) == 1


def test_the_lists_are_for_who_sees_all_teams(failing: None) -> None:
    judge_nodes(now=NOW)
    visibility = Visibility(everything=False)
    assert reliability_reports(visibility=visibility) == []


def test_not_judged_yet_and_no_pod_are_told_apart() -> None:
    make_cluster("west")
    make_report()
    admin = Client()
    admin.force_login(make_user("cleo", role=Role.ADMIN))

    def shown() -> str:
        return admin.get("/capacity/reliability/").content.decode()

    assert "Not checked yet" in shown()
    assert judge_nodes(now=NOW) == 1
    assert "No pod ran on a GPU in these days" in shown()


def test_a_report_speaks_of_no_day_before_the_first_run(failing: None) -> None:
    judge_nodes(now=NOW)
    (state,) = reliability_reports(visibility=EVERYTHING)
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
    (row,) = gpu_reliability_rows(reliability_reports(visibility=EVERYTHING))
    assert (row.xids_hardware, row.xids_driver, row.xids_application) == (0, 0, 0)
    assert (row.xids_other, row.last_xid, row.known_hours) == (2, 998, 3)
    assert (row.ecc_uncorrected, row.ecc_corrected, row.thermal_seconds) == (None, None, None)
    note_collection(west, MIDNIGHT - 2 * HOUR, health="ecc_uncorrected xid")
    (row,) = gpu_reliability_rows(reliability_reports(visibility=EVERYTHING))
    assert (row.ecc_uncorrected, row.known_hours) == (0, 1)


def test_hours_without_numbers_and_after_a_gpu_went_are_no_data(failing: None) -> None:
    west = Cluster.objects.get()
    shown_gpu(west, "GPU-a", xid=0, ecc_uncorrected_volatile=0)
    shown_gpu(west, "GPU-gone", xid=79, ecc_uncorrected_volatile=0)
    seen = {"last_seen": MIDNIGHT - 2 * HOUR, "first_seen": MIDNIGHT - 9 * HOUR}
    Device.objects.filter(uuid="GPU-gone").update(**seen)
    for back in range(1, 5):
        hour = MIDNIGHT - back * HOUR
        note_collection(west, hour, health="ecc_uncorrected xid")
        ecc = None if back > 1 else 2
        DeviceHealthHour.objects.create(cluster=west, hour=hour, uuid="GPU-a", ecc_uncorrected=ecc)
        # One that was well, as far as it told.
        DeviceHealthHour.objects.create(cluster=west, hour=hour, uuid="GPU-b")
    judge_nodes(now=NOW)
    rows = {
        row.uuid: row for row in gpu_reliability_rows(reliability_reports(visibility=EVERYTHING))
    }
    assert set(rows) == {"GPU-a", "GPU-gone"}
    assert (rows["GPU-a"].ecc_uncorrected, rows["GPU-a"].known_hours) == (2, 1)
    assert (rows["GPU-gone"].ecc_uncorrected, rows["GPU-gone"].known_hours) == (0, 2)
    DeviceHealthHour.objects.filter(uuid="GPU-a").update(ecc_uncorrected=None, xids=[[1.0, 31]])
    rows = {
        row.uuid: row for row in gpu_reliability_rows(reliability_reports(visibility=EVERYTHING))
    }
    assert (rows["GPU-a"].ecc_uncorrected, rows["GPU-a"].xids_application) == (None, 4)


def test_a_report_is_made_again_when_hours_of_its_days_were_collected(failing: None) -> None:
    west = Cluster.objects.get()
    for back in range(1, 25):
        note_collection(west, MIDNIGHT - back * HOUR, collected_at=NOW - HOUR)
    assert [judge_nodes(now=NOW), judge_nodes(now=NOW + HOUR)] == [1, 0]
    note_collection(west, MIDNIGHT - 25 * HOUR, collected_at=NOW + HOUR)
    # A day after the window is no reason.
    note_collection(west, MIDNIGHT, collected_at=NOW + HOUR)
    (report,) = reliability_reports(visibility=EVERYTHING)
    assert (report.missing_hours, report.end) == (1, MIDNIGHT)
    assert [judge_nodes(now=NOW + 2 * HOUR), judge_nodes(now=NOW + 3 * HOUR)] == [1, 0]
    # Collected again, so that it may say something else.
    note_collection(west, MIDNIGHT - 25 * HOUR, collected_at=NOW + 3 * HOUR)
    assert judge_nodes(now=NOW + 4 * HOUR) == 1
    (report,) = reliability_reports(visibility=EVERYTHING)
    assert report.missing_hours == 0


def test_after_most_days_were_collected_nothing_is_said_until_it_is_judged_again(
    failing: None,
) -> None:
    west = Cluster.objects.get()
    for back in range(1, 25):
        note_collection(west, MIDNIGHT - back * HOUR, collected_at=NOW)
    judge_nodes(now=NOW)
    for back in range(25, 37):
        note_collection(west, MIDNIGHT - back * HOUR, collected_at=NOW)
    make_report()
    (report,) = reliability_reports(visibility=EVERYTHING)
    assert (report.end, reliability_rows([report]), interruption_rows([report])) == (None, [], [])
    admin = Client()
    admin.force_login(make_user("cleo", role=Role.ADMIN))
    assert "Not checked yet." in admin.get("/capacity/reliability/").content.decode()
    derive_after_history(lambda: NOW + HOUR)
    (report,) = reliability_reports(visibility=EVERYTHING)
    assert [row.node for row in reliability_rows([report]) if row.is_unreliable] == ["bad"]


@pytest.mark.parametrize(
    ("state", "advice"),
    [
        (
            {"xid": 79},
            "Replace GPU 0 of west/good-1: XID 79, the GPU no longer answers on its bus.",
        ),
        (
            {"xid": 48, "ecc_uncorrected_volatile": 1},
            "Reset GPU 0 of west/good-1, and replace it when this goes on: "
            "XID 48, memory error that could not be corrected; 1 ECC error was not corrected.",
        ),
        (
            {"xid": 119},
            "Reset GPU 0 of west/good-1, and look for an update of its driver: "
            "XID 119, the GPU's system processor did not answer.",
        ),
        (
            {"remap_failure": 1, "ecc_uncorrected_volatile": 1234},
            "Replace GPU 0 of west/good-1: a bad memory row could not be replaced; "
            "1,234 ECC errors were not corrected.",
        ),
        ({"xid": 31, "remapped_uncorrectable": 2}, ""),
    ],
)
@pytest.mark.parametrize("is_judged", [True, False])
def test_a_broken_gpu_has_advice_however_few_pods_failed_on_it(
    failing: None,
    is_judged: bool,
    state: dict[str, int],
    advice: str,
) -> None:
    shown_gpu(Cluster.objects.get(), "GPU-a", **state)
    if is_judged:
        judge_nodes(now=NOW)
    make_report()
    rows = gpu_reliability_rows(reliability_reports(visibility=EVERYTHING))
    assert [row.advice for row in rows if row.advice] == ([advice] if advice else [])
    assert [row.action is not None for row in rows] == [True] * bool(advice)
    # No pod held it, so that its failures say nothing.
    told_of_it = Judgement.INCOMPARABLE if is_judged else Judgement.UNCHECKED
    assert {(row.judgement, row.expected) for row in rows} <= {(told_of_it, None)}
    counted = {(row.incidents, row.compared, row.gpu_hours, row.lost_gpu_hours) for row in rows}
    assert counted <= {(0, 0, 0.0, 0.0) if is_judged else (None, None, None, None)}
    _, told = hardware_advice("west")
    assert [one.text for one in told] == ([advice] if advice else [])
    admin = Client()
    admin.force_login(make_user("cleo", role=Role.ADMIN))
    page = unescape(admin.get("/capacity/reliability/").content.decode())
    assert (f"<li>{advice}</li>" in page) == bool(advice)
    # A GPU that is listed leads to its page, and its node to its GPUs.
    assert ("/capacity/gpus/west/GPU-a/" in page) == bool(rows)
    assert ("node=good-1" in page) == bool(rows or is_judged)
    found = admin.get("/api/v1/reliability-gpus").json()["results"]
    assert [row["advice"] for row in found if row["advice"]] == ([advice] if advice else [])


def test_a_broken_gpu_that_was_taken_out_has_no_advice(failing: None) -> None:
    shown_gpu(Cluster.objects.get(), "GPU-a", xid=79)
    Device.objects.update(looked_at=NOW + timedelta(days=6))
    assert [one.action for one in hardware_advice("west")[1]] == ["replace"]
    Device.objects.update(looked_at=NOW + timedelta(days=7))
    assert hardware_advice("west")[1] == []


def test_a_partitioned_gpu_that_is_broken_is_one(failing: None) -> None:
    west = Cluster.objects.get()
    for number in range(3):
        Device.objects.create(
            cluster=west, uuid="GPU-a", gpu_instance=str(number), node_name="good-1",
            health="broken", first_seen=NOW, last_seen=NOW, looked_at=NOW, health_since=NOW,
        )  # fmt: skip
    judge_nodes(now=NOW)
    rows = reliability_rows(reliability_reports(visibility=EVERYTHING))
    assert {row.node: row.devices_broken for row in rows if row.devices_broken} == {"good-1": 1}
