"""MIG layouts, empty nodes, offers: gathered from rows, by plain arithmetic."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db.models import F

from apps.accounts.domain.structs import replace
from apps.clusters.models import Cluster, Tier, TierRule
from apps.clusters.services.catalog import TierHistory
from apps.costs.domain.recommendations.recommendation import RecommendationKind
from apps.costs.models import PoolCostDay, PricedHour, Recommendation
from apps.costs.services.evidence.hours import pending_hours
from apps.costs.services.evidence.offers import PricesInForce, offer_book
from apps.costs.services.evidence.span import span_of
from apps.costs.services.evidence.workloads import service_evidence, workload_evidence
from apps.costs.services.follow_up import cost_before
from apps.usage.domain.activity import CLASSES, class_of
from apps.usage.models import CollectionWindow, NodeHour, TierDay, WorkloadActivityDay, WorkloadDay
from tests.costs.capacity_portal import (
    FIRST,
    LAST,
    MIG,
    NOW,
    PRICE,
    a_month,
    found,
    make_interval,
    make_nightly,
    make_world,
)
from tests.costs.portal import make_price
from tests.factories import (
    A100,
    H100,
    NodeGpus,
    make_gpus,
    make_model,
    make_pod,
    make_report,
    make_tier,
    make_workload,
)

pytestmark = pytest.mark.django_db


# ---------------------------------------------------------------- empty nodes


def test_a_node_that_is_empty_every_week_can_be_sent_away() -> None:
    make_world()
    one = found(RecommendationKind.EMPTY_NODES)
    assert one is not None
    assert one.change == (
        f"Scale down on-demand nodes with {A100} while they are empty every week: 1 node all week."
    )
    assert one.workload == f"Pool/on-demand/{A100}"
    assert one.saving_per_month == a_month(8)
    assert (one.team, one.tier and one.tier.name) == (None, "gold")


def test_hours_that_were_not_collected_do_not_make_a_node_empty() -> None:
    world = make_world()
    lost = world.hours[: len(world.hours) // 2]
    CollectionWindow.objects.filter(hour__in=lost).delete()
    NodeHour.objects.filter(hour__in=lost).delete()
    assert found(RecommendationKind.EMPTY_NODES) is None


def test_a_node_that_was_ill_was_not_empty() -> None:
    world = make_world()
    ill = NodeHour.objects.filter(node=world.node_gpus[1].node)
    ill.update(unhealthy=F("capacity"), unallocated=0)
    assert found(RecommendationKind.EMPTY_NODES) is None


def test_a_part_of_an_hour_takes_nothing_from_the_others() -> None:
    world = make_world()
    hour = NodeHour.objects.filter(node=world.node_gpus[1].node, hour=world.hours[30])
    hour.update(capacity=F("capacity") / 80, unallocated=F("unallocated") / 80)
    one = found(RecommendationKind.EMPTY_NODES)
    assert one is not None
    assert one.evidence["gpus_per_node"] == 8
    assert one.evidence["empty_node_hours_per_week"] == 7 * 24 - 1, "of that hour it is not told"


def test_empty_nodes_of_two_capacity_types_are_two_pools() -> None:
    world = make_world()
    row = NodeHour.objects.filter(node=world.node_gpus[1].node)
    third = make_gpus(world.cluster, "n3", world.node_gpus[1].tier, capacity_type="spot")
    make_price(A100, "spot", "1.00")
    NodeHour.objects.bulk_create(
        NodeHour(**(values | {"id": None, "node_id": third.node.pk, "capacity_type": "spot"}))
        for values in row.values()
    )
    found(RecommendationKind.EMPTY_NODES)
    rows = Recommendation.objects.filter(kind=RecommendationKind.EMPTY_NODES.value)
    assert {one.workload: one.saving_per_month for one in rows} == {
        f"Pool/on-demand/{A100}": a_month(8),
        f"Pool/spot/{A100}": a_month(8, Decimal(1)),
    }


def test_the_saving_of_an_accepted_pool_is_looked_for_in_its_own_cost() -> None:
    world = make_world()
    make_price(A100, "spot", "1.00")
    make_price(H100, "on-demand", "5.00")
    one = found(RecommendationKind.EMPTY_NODES)
    assert one is not None
    PricedHour.objects.bulk_create(
        PricedHour(cluster=world.cluster, hour=hour, facts_at=hour) for hour in world.hours
    )
    own = {"cluster": world.cluster, "tier": world.node_gpus[0].tier, "currency": "USD"}
    for model, kind, gpu_hours in (
        (make_model(), "on-demand", 10),
        (make_model(), "spot", 100),
        (make_model(H100), "on-demand", 1000),
    ):
        pool = {"gpu_model": model, "capacity_type": kind, "unallocated": gpu_hours * 10**9}
        PoolCostDay.objects.create(day=FIRST, **own, **pool)
    before = cost_before(one, now=NOW)
    assert before is not None
    assert before[0] == 10 * PRICE


# ---------------------------------------------------------------- MIG layouts


def test_a_layout_keeps_what_was_held_of_it_for_minutes() -> None:
    world = make_world()
    tier = make_tier("slices", position=1)
    TierRule.objects.filter(tier=tier).update(resources=[MIG])
    node_gpus = make_gpus(world.cluster, "m1", tier, gpus=2.0)
    make_interval(node_gpus, {MIG: 4}, **{"nvidia.com/gpu.count": "2"})
    make_nightly(world, 4.0, resource=MIG, node_name="m1")
    assert found(RecommendationKind.MIG_LAYOUT) is None


def test_gpus_whose_layout_strands_a_slice_are_cut_otherwise() -> None:
    world = make_world()
    tier = make_tier("slices", position=1)
    TierRule.objects.filter(tier=tier).update(resources=[MIG])
    node_gpus = make_gpus(world.cluster, "m1", tier, gpus=2.0)
    make_interval(node_gpus, {MIG: 4}, **{"nvidia.com/gpu.count": "2"})
    one = found(RecommendationKind.MIG_LAYOUT)
    assert one is not None
    assert (one.node, one.evidence["stranded_slices_now"]) == ("m1", 1)
    assert one.evidence["stranded_slices_then"] == 0
    assert one.saving_per_month == a_month(Decimal(2) / 7)


# ---------------------------------------------------------------- GPUs of a pod, spot, restarts


def make_activity(gpus: dict[str, str] | None, **values: Any) -> None:
    """Give every day of the workload its histogram; half of all slots at 90 %."""
    slots = [0] * CLASSES
    slots[0] = slots[class_of(0.9)] = 96
    given = {"slots": slots, "resource": "nvidia.com/gpu", "least_units": 4, "most_units": 4}
    columns = ("cluster_id", "tier_id", "gpu_model_id", "capacity_type", "team_id")
    rows = WorkloadDay.objects.values(*columns, "namespace_id", "workload_id", "day")
    WorkloadActivityDay.objects.bulk_create(
        WorkloadActivityDay(**row, gpus=gpus, **(given | values)) for row in rows
    )


def test_gpus_of_a_pod_that_never_did_anything_are_given_back() -> None:
    make_world()
    make_activity({"1": "k01k"})
    one = found(RecommendationKind.FEWER_GPUS)
    assert one is not None
    assert one.change.startswith("Ask for 2 GPUs per pod instead of 4:")
    assert one.saving_per_month == a_month(2)
    assert '"nvidia.com/gpu": 2' in one.patch


@pytest.mark.parametrize(
    ("gpus", "values"),
    [
        pytest.param(None, {}, id="not known"),
        pytest.param({"1": "k01k", "2": "kkkk"}, {}, id="another pod used all"),
        pytest.param({"1": "k01k"}, {"least_units": 2}, id="pods of several sizes"),
    ],
)
def test_gpus_are_left_where_it_is_not_certain(
    gpus: dict[str, str] | None, values: dict[str, Any]
) -> None:
    make_world()
    make_activity(gpus, **values)
    assert found(RecommendationKind.FEWER_GPUS) is None


def test_a_gpu_that_worked_on_one_day_alone_was_active() -> None:
    make_world()
    make_activity({"1": "k0kk"})
    WorkloadActivityDay.objects.filter(day=LAST).update(gpus={"1": "0kkk"})
    assert found(RecommendationKind.FEWER_GPUS) is None


def test_restartable_work_is_told_what_spot_would_save() -> None:
    world = make_world()
    make_price(A100, "spot", "1.00")
    make_capacity(make_gpus(world.cluster, "s1", world.node_gpus[0].tier, capacity_type="spot"))
    for number in range(3):
        make_pod(
            make_workload(world.cluster, "vision", "train"),
            f"run-{number}",
            created_at=world.hours[number],
            node_gpus=world.node_gpus[0],
            finished_at=world.hours[number + 5],
            runs=[[0, 1], [2, 3]],
            end_reason="Completed",
        )
    one = found(RecommendationKind.SPOT)
    assert one is not None
    assert one.evidence["finished_after_restart"] == 3
    assert one.saving_per_month == a_month(4, PRICE - Decimal("1.1"))


def test_work_that_moved_to_spot_is_not_told_to_do_so_again() -> None:
    make_world()
    make_price(A100, "spot", "1.00")
    WorkloadDay.objects.filter(day__gt=LAST - timedelta(days=3)).update(capacity_type="spot")
    assert found(RecommendationKind.SPOT) is None


def test_work_that_ended_weeks_ago_is_left_alone() -> None:
    make_world()
    make_price(A100, "spot", "1.00")
    WorkloadDay.objects.filter(day__gt=LAST - timedelta(days=8)).delete()
    assert found(RecommendationKind.SPOT) is None


# ---------------------------------------------------------------- what else there is


def make_idle_notebook() -> None:
    make_world(name="notebook-ada", kind="StatefulSet", idle=0.4)
    WorkloadDay.objects.update(busy=0, underused=0, idle=F("allocated"), memory_peak_mib=6000.0)
    make_activity(None, least_units=1, most_units=1)


@pytest.mark.parametrize(
    ("allowed", "is_offered"), [([], True), (["vision"], True), (["speech"], False)]
)
def test_a_shared_tier_is_offered_to_whom_it_lets_in(allowed: list[str], is_offered: bool) -> None:
    make_idle_notebook()
    cluster = Cluster.objects.get()
    shared = make_tier("shared", position=1)
    rule = {"resources": ["nvidia.com/gpu.shared"], "sharing": "time-sliced"}
    TierRule.objects.filter(tier=shared).update(**rule, allowed_teams=allowed)
    node_gpus = make_gpus(cluster, "s1", shared)
    make_interval(node_gpus, {"nvidia.com/gpu.shared": 32}, **{"nvidia.com/gpu.replicas": "4"})
    make_capacity(node_gpus)
    one = found(RecommendationKind.SHARED_TIER)
    assert (one is not None) == is_offered
    if one is not None:
        assert one.saving_per_month == a_month(3)
        assert '"nvidia.com/gpu.shared": 1' in one.patch


def make_capacity(node_gpus: NodeGpus) -> None:
    """Say that these GPUs were there on the last day."""
    TierDay.objects.create(
        day=LAST,
        cluster=node_gpus.node.cluster,
        tier=node_gpus.tier,
        gpu_model=node_gpus.model,
        capacity_type=node_gpus.capacity_type,
        capacity=8 * 24 * 10**9,
    )


# ---------------------------------------------------------------- patterns of hours


def test_what_pends_is_told_by_the_hours_of_facts_in_a_zone_at_half_past() -> None:
    world = make_world()
    make_report("Asia/Kolkata")
    span = span_of(world.cluster, LAST, now=NOW)
    at = span.window.start + timedelta(days=9, minutes=40)
    train = make_workload(world.cluster, "vision", "late")
    late = {"created_at": at, "bound_at": at + timedelta(minutes=30)}
    make_pod(train, "late", node_gpus=world.node_gpus[1], units=2.0, **late)
    book = offer_book(
        world.cluster, LAST, TierHistory.load().at(NOW.timestamp()), PricesInForce(NOW)
    )
    waits = pending_hours(span, book)["gold"]
    hour = int(span.window.start.timestamp()) + 9 * 24 * 3600
    assert waits.of_all(hour) == pytest.approx(2 / 3)
    assert waits.of_others(hour + 3600, "speech") == pytest.approx(1 / 3)


def test_a_service_without_metrics_for_a_while_is_not_scaled_down_for_it() -> None:
    world = make_world(kind="Deployment", name="api", unmeasured=0.25)
    span, gold = span_of(world.cluster, LAST, now=NOW), Tier.objects.get(name="gold")
    book = offer_book(
        world.cluster, LAST, TierHistory.load().at(NOW.timestamp()), PricesInForce(NOW)
    )
    sharing = book.sharing("gold")
    assert sharing is not None
    (one,) = workload_evidence(span, gold, sharing, PricesInForce(NOW))
    half_used = replace(one, evidence=replace(one.evidence, mean_activity=0.5, tier_activity=0.5))
    ((service, _),) = service_evidence(span, gold, [half_used])
    assert {active for hour in service.active.values() for active in hour} == {3.25}
