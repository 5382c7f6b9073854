"""The capacity plan from facts, fairness and pending work to stored outlooks, pages and API."""

from datetime import date, datetime, timedelta
from typing import Any

import pytest
from django.db.models import F
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.domain.window import Window
from apps.clusters.models import NodeInterval, Tier, TierRule
from apps.fairness.models import TierFairnessDay
from apps.fairness.services import compute_hours, roll_days
from apps.planning.domain.capacity_cases import CaseAction, SizePoint, SpotInterruptions
from apps.planning.models import CapacityPlan
from apps.planning.selectors import capacity_plans
from apps.planning.services import plan_capacity
from apps.planning.services.spot_nodes import spot_interruptions
from apps.usage.models import TierHour
from tests.factories import make_gpus, make_pod, make_workload
from tests.fairness.ledger import DAY, HOUR, START, World, make_world
from tests.planning.topology_portal import GPU, make_node
from tests.shared_rows import copy_of, shared

DAYS = 3
_MINUTE = timedelta(minutes=1)
NOW = START + DAYS * DAY + 3 * HOUR
OUTSIDER = Visibility(everything=False)


def make_days() -> World:
    """Make three days of a full tier of 8 GPUs, in which 4 more GPUs are pending half of each day.

    One more GPU-hour is pending for a cause that is no demand.
    """
    world = make_world()
    for number in range(DAYS * 24):
        world.hour(START + number * HOUR, held={"vision": 7.0, "speech": 1.0}, idle={"vision": 2.0})
    for day in range(DAYS):
        at = START + day * DAY + 6 * HOUR
        world.waits("speech", 4.0, at, at + 12 * HOUR)
    world.waits("speech", 1.0, START + HOUR, START + 2 * HOUR, cause="volume")
    compute_hours(now=NOW, at_most=DAYS * 24 + 3)
    roll_days(now=NOW)
    node_gpus = make_gpus(world.cluster, "n1", world.gold)
    train = make_workload(world.cluster, "vision", "train")
    notes = make_workload(world.cluster, "speech", "train")
    make_pod(train, "big", created_at=START, node_gpus=node_gpus, units=7.0)
    # Canceled work is replayed to run as long as this does in the window: a second. It holds the
    # eighth GPU, so what takes that comes as it ends: else a GPU-second more would be unmet.
    before = START - HOUR
    second = START + timedelta(seconds=1)
    make_pod(notes, "small", created_at=second, node_gpus=node_gpus, units=1.0)
    ran: dict[str, Any] = {"bound_at": before, "ended_at": second, "tier": world.gold}
    make_pod(notes, "quick", created_at=before, units=1.0, **ran)
    for day in range(DAYS):
        at = START + day * DAY + 6 * HOUR
        make_pod(
            notes,
            f"extra-{day}",
            created_at=at,
            ended_at=at + 12 * HOUR,
            tier=world.gold,
            units=4.0,
        )
    return world


_days = shared(make_days)
days_of_gold = copy_of("_days")


def test_demand_is_allocated_and_what_is_pending_for_want_of_capacity(days_of_gold: World) -> None:
    assert plan_capacity(now=NOW) == 1
    (plan,) = capacity_plans(NOW, booked={}, visibility=OUTSIDER)
    found = plan.outlook
    assert (found.tier, plan.first_day, plan.through) == (
        "gold",
        date(2026, 11, 16),
        date(2026, 11, 18),
    )
    assert found.demand == pytest.approx((10.0,) * DAYS)
    assert found.capacity == pytest.approx((8.0,) * DAYS)
    # Three days are too few for a forecast: nothing is made up.
    assert plan.demand == pytest.approx(10.0)
    assert found.forecast is None
    assert plan.forecast_until is None


def test_sizes_are_the_days_replayed_that_are_known(days_of_gold: World) -> None:
    plan_capacity(now=NOW)
    (plan,) = capacity_plans(NOW, booked={}, visibility=OUTSIDER)
    sizes = {size.gpus: size for size in plan.outlook.sizes}
    # Four GPUs for twelve hours on each day.
    assert sizes[8.0].unmet_gpu_hours == pytest.approx(DAYS * 48, abs=1e-9)
    assert sizes[12.0].unmet_gpu_hours == 0
    assert plan.outlook.replayed_days == DAYS
    assert {row.replayed_days for row in plan.rows()} == {DAYS}
    bought = next(case for case in plan.cases if case.action is CaseAction.BUY)
    assert isinstance(bought.after, SizePoint)
    assert (bought.gpus, bought.after.gpus) == (4, 12.0)


def test_the_size_of_today_is_replayed_where_it_was_another_before(days_of_gold: World) -> None:
    """As where nodes came within the days that are replayed."""
    earlier = TierFairnessDay.objects.filter(day__lt=date(2026, 11, 18))
    earlier.update(capacity=F("capacity") / 2)
    plan_capacity(now=NOW)
    (plan,) = capacity_plans(NOW, booked={}, visibility=OUTSIDER)
    assert plan.outlook.capacity == pytest.approx((4.0, 4.0, 8.0))
    assert plan.outlook.as_it_is is not None
    assert plan.outlook.as_it_is.unmet_gpu_hours == pytest.approx(DAYS * 48, abs=1e-9)
    assert [(case.action, case.gpus) for case in plan.cases if case.action is CaseAction.BUY] == [
        (CaseAction.BUY, 4)
    ]


def test_a_plan_is_made_once_a_day_and_again_with_more_days(days_of_gold: World) -> None:
    assert [plan_capacity(now=NOW), plan_capacity(now=NOW + HOUR)] == [1, 0]
    CapacityPlan.objects.update(days=DAYS + 1)
    assert plan_capacity(now=NOW + timedelta(minutes=10)) == 0
    assert plan_capacity(now=NOW + HOUR) == 1
    CapacityPlan.objects.update(through=date(2026, 11, 17))
    assert plan_capacity(now=NOW + HOUR) == 1


def test_a_plan_of_the_first_day_is_made_anew_with_the_days_before(days_of_gold: World) -> None:
    """As on a fresh install, on which the newest day is collected first."""
    early = TierFairnessDay.objects.filter(day__lt=date(2026, 11, 18))
    kept = list(early)
    early.delete()
    plan_capacity(now=NOW)
    (plan,) = capacity_plans(NOW, booked={}, visibility=OUTSIDER)
    assert plan.outlook.replayed_days == 1
    assert plan.outlook.as_it_is is not None
    assert plan.outlook.as_it_is.unmet_gpu_hours == pytest.approx(48, abs=1e-9)
    TierFairnessDay.objects.bulk_create(kept)
    assert plan_capacity(now=NOW + _MINUTE) == 1, "three times the days are not put off"
    (plan,) = capacity_plans(NOW, booked={}, visibility=OUTSIDER)
    assert plan.outlook.replayed_days == DAYS
    assert [plan_capacity(now=NOW + 2 * _MINUTE), plan_capacity(now=NOW, anew=True)] == [0, 1]


def test_a_tier_without_whole_days_has_no_plan(db: None) -> None:
    world = make_world()
    world.hour(held={"vision": 1.0})
    compute_hours(now=START + 2 * HOUR)
    assert plan_capacity(now=START + 2 * HOUR) == 0
    assert capacity_plans(START, booked={}, visibility=EVERYTHING) == []


def test_a_retired_tier_is_not_planned(days_of_gold: World) -> None:
    plan_capacity(now=NOW)
    Tier.objects.update(active=False)
    assert capacity_plans(NOW, booked={}, visibility=EVERYTHING) == []


def test_plans_are_read_with_few_queries(
    days_of_gold: World, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    plan_capacity(now=NOW)
    with django_assert_max_num_queries(6):
        capacity_plans(NOW, booked={}, visibility=EVERYTHING)


def test_pages_and_api_show_the_same_plan(days_of_gold: World, admin_client: Client) -> None:
    plan_capacity(now=NOW)
    listed = admin_client.get("/capacity/plan/").content.decode()
    assert "gold" in listed
    page = admin_client.get("/capacity/plan/gold/").content.decode()
    assert "Buy 4 GPUs" in page
    assert "falls from 144 to 0 GPU-h" in page
    assert "Last 3 days with other capacity" in page
    assert "3 days replayed for each capacity: 16 Nov – 18 Nov" in page
    rows = admin_client.get("/api/v1/capacity-plan").json()["results"]
    assert [(row["tier"], row["action"], row["action_gpus"]) for row in rows] == [
        ("gold", "buy", 4),
    ]
    assert (rows[0]["forecast_gpus"], rows[0]["cost_per_month"]) == (None, None)
    assert rows[0]["unmet_gpu_hours"] == pytest.approx(144.0, abs=1e-9)
    assert rows[0]["replayed_days"] == DAYS


def test_the_printable_case_has_the_action_its_basis_and_the_backtest(
    days_of_gold: World, admin_client: Client
) -> None:
    plan_capacity(now=NOW)
    assert "/capacity/plan/gold/case/" in admin_client.get("/capacity/plan/gold/").content.decode()
    response: Any = admin_client.get("/capacity/plan/gold/case/")
    page = response.content.decode()
    assert "Buy 4 GPUs" in page
    # The replay is held against what pending work itself tells: four GPUs for twelve hours a day.
    assert "gives 144 GPU-h pending" in page
    assert "Recorded as pending in these days: 144 GPU-h." in page
    assert "Costs are not shown" in page, "no hour has a price"
    basis = {
        row.values["gpus"]: row.values["basis"]
        for row in response.context["tables"]["options"].rows
    }
    assert {gpus: why for gpus, why in basis.items() if why} == {8.0: "today", 12.0: "action"}


def test_a_plan_of_before_has_no_recorded_pending_and_not_zero(
    days_of_gold: World, admin_client: Client
) -> None:
    plan_capacity(now=NOW)
    plan = CapacityPlan.objects.get()
    del plan.outlook["recorded_unmet_gpu_hours"]
    plan.save()
    page = admin_client.get("/capacity/plan/gold/case/").content.decode()
    assert "Recorded as pending in these days: no data." in page


def test_spot_nodes_that_vanished_are_interruptions_where_pods_held_their_gpus(
    days_of_gold: World,
) -> None:
    cluster, spot = days_of_gold.cluster, {"karpenter.sh/capacity-type": "spot"}
    workload = make_workload(cluster, "vision", "train")
    TierRule.objects.update(resources=[GPU], node_selector={})

    def node(name: str, end: datetime | None, labels: dict[str, str] = spot) -> NodeInterval:
        return make_node(cluster, name, labels=labels, start=START - HOUR, end=end)

    def hold(name: str, end: datetime) -> None:
        node_gpus = make_gpus(cluster, name, days_of_gold.gold)
        make_pod(
            workload, f"on-{name}", created_at=START, node_gpus=node_gpus, units=1.0, ended_at=end
        )

    gone = START + DAY
    for name, end, last in (
        ("drained", gone, gone - 4 * _MINUTE),
        ("killed", gone, gone),
        ("empty", gone, gone - HOUR),
        ("lasting", None, gone),
    ):
        node(name, end)
        hold(name, last)
    node("bought", gone, {})
    hold("bought", gone)
    # It was away, and came back.
    again = node("back", gone)
    hold("back", gone)
    again.pk, again.start, again.end = None, gone + HOUR, None
    again.save()
    window = Window(START, START + DAYS * DAY)
    days = [date(2026, 11, 16) + number * DAY for number in range(DAYS)]
    assert spot_interruptions(window, {"gold": days}) == {"gold": SpotInterruptions(3, 2, 3)}
    # They vanished at the beginning of the second day, which is not known.
    some = {"gold": [days[0], days[2]]}
    assert spot_interruptions(window, some) == {"gold": SpotInterruptions(0, 0, 2)}
    # Of days before the watch of the cluster nothing is known.
    NodeInterval.objects.filter(start__lt=START).update(start=START + HOUR)
    assert spot_interruptions(window, {"gold": days}) == {"gold": SpotInterruptions(3, 2, 2)}
    assert spot_interruptions(window, {"gold": days[:1]}) == {}


def test_spot_nodes_of_series_alone_have_no_data_of_interruptions(
    days_of_gold: World, admin_client: Client
) -> None:
    NodeInterval.objects.all().delete()
    TierHour.objects.update(capacity_type="spot")
    plan_capacity(now=NOW)
    page = admin_client.get("/capacity/plan/gold/").content.decode()
    assert "interruptions: no data from the watch" in page
    assert "no node vanished" not in page
    (row,) = admin_client.get("/api/v1/capacity-plan").json()["results"]
    assert row["spot_ratio"] == 1.0
    assert (row["spot_nodes_vanished"], row["spot_interruptions_per_month"]) == (None, None)


def test_interruptions_are_of_a_month_and_unknown_in_plans_of_before(
    days_of_gold: World, admin_client: Client
) -> None:
    plan_capacity(now=NOW)
    assert "interruptions" not in admin_client.get("/capacity/plan/gold/").content.decode()
    plan = CapacityPlan.objects.get()
    plan.outlook["spot_ratio"] = 0.25
    plan.save()
    assert "interruptions: no data" in admin_client.get("/capacity/plan/gold/").content.decode()
    plan.outlook["spot_interruptions"] = {"nodes": 3, "in_use": 2, "days": 20}
    plan.save()
    page = admin_client.get("/capacity/plan/gold/").content.decode()
    assert "3 interruptions a month, 2 of 3 vanished nodes in use" in page
    (row,) = admin_client.get("/api/v1/capacity-plan").json()["results"]
    assert (row["spot_nodes_vanished"], row["spot_interruptions_per_month"]) == (3, 3.0)


def test_before_the_first_plan_pages_say_so(db: None, admin_client: Client) -> None:
    make_world()
    for address in ("/capacity/plan/", "/capacity/plan/gold/", "/capacity/plan/gold/case/"):
        assert "Not computed yet" in admin_client.get(address).content.decode()
    assert admin_client.get("/capacity/plan/none/").status_code == 404
    assert admin_client.get("/capacity/plan/none/case/").status_code == 404
