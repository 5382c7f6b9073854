"""Nodes judged from the pod ledger, and who sees what of it."""

from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from apps.accounts.domain.identity import Role
from apps.accounts.permissions import EVERYTHING, Visibility
from apps.goodput.selectors import interruption_rows, reliability_rows, reliability_states
from apps.goodput.services import judge_nodes
from tests.factories import make_cluster, make_pod, make_report, make_user, make_workload

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
