"""Quotas, MIG layouts, empty nodes, offers: gathered from rows, by plain arithmetic."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db.models import F

from apps.clusters.domain.calendar import day_start
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, NodeSpell, TierRule
from apps.costs.domain.recommendations.recommendation import Kind
from apps.costs.models import Recommendation
from apps.costs.services.recommending import recommend
from apps.quotas.models import QuotaKey, QuotaKeyHour
from apps.usage.domain.activity import CLASSES, class_of
from apps.usage.models import CollectionWindow, NodeHour, TierDay, WorkloadActivityDay, WorkloadDay
from tests.costs.portal import make_price
from tests.factories import (
    A100,
    BEGINNING,
    Cards,
    PodFact,
    collect,
    ensure_builtin,
    held,
    hours_of,
    make_cards,
    make_cluster,
    make_pod,
    make_report,
    make_team,
    make_tier,
    make_workload,
)

pytestmark = pytest.mark.django_db

FIRST = date(2026, 10, 5)
WEEKS = 3
LAST = FIRST + timedelta(days=7 * WEEKS - 1)
NOW = datetime(2026, 10, 26, 1, tzinfo=UTC)
PRICE = Decimal("3.06")
MIG = "nvidia.com/mig-3g.40gb"
MONTH = 730
LABELS = {"nvidia.com/gpu.product": A100}


@dataclass(frozen=True)
class World:
    """Two nodes of eight GPUs: a job holds four of the first, nobody anything of the second."""

    cluster: Cluster
    cards: Sequence[Cards]
    hours: Sequence[datetime]


def make_world(**job: Any) -> World:
    zone = make_report()
    ensure_builtin()
    cluster, gold = make_cluster(), make_tier("gold")
    team = make_team("vision", "vision")
    cards = [make_cards(cluster, name, gold) for name in ("n1", "n2")]
    for of_node in cards:
        make_spell(of_node, {"nvidia.com/gpu": 8})
    workload = make_workload(cluster, "vision", job.pop("name", "train"), job.pop("kind", "Job"))
    pod = make_pod(workload, created_at=BEGINNING, cards=cards[0], units=4.0)
    make_price(A100, "on-demand", str(PRICE))
    window = Window(day_start(FIRST, zone), day_start(LAST + timedelta(days=1), zone))
    hours = hours_of(window)
    fact = PodFact(pod, cards[0], team, held(4.0, busy=3.6, **job))
    collect(hours, cards, lambda _: [fact], zone=zone)
    return World(cluster, cards, hours)


def make_spell(cards: Cards, capacity: dict[str, float], **labels: str) -> NodeSpell:
    return NodeSpell.objects.create(
        node=cards.node,
        start=BEGINNING,
        ready=True,
        schedulable=True,
        capacity=capacity,
        allocatable=capacity,
        labels=LABELS | labels | {"karpenter.sh/capacity-type": "on-demand"},
    )


def found(kind: Kind) -> Recommendation | None:
    recommend(now=NOW)
    return Recommendation.objects.filter(kind=kind.value).first()


def a_month(gpus: Decimal | int, price: Decimal = PRICE) -> Decimal:
    return (gpus * MONTH * price).quantize(Decimal("0.01"))


# ---------------------------------------------------------------- empty nodes


def test_a_node_that_is_empty_every_week_can_be_sent_away() -> None:
    make_world()
    one = found(Kind.EMPTY_NODES)
    assert one is not None
    assert one.change == "Scale down while nodes are empty every week: 1 node all week."
    assert one.saving_per_month == a_month(8)
    assert (one.team, one.tier and one.tier.name) == (None, "gold")


def test_hours_that_were_not_collected_do_not_make_a_node_empty() -> None:
    world = make_world()
    lost = world.hours[: len(world.hours) // 2]
    CollectionWindow.objects.filter(hour__in=lost).delete()
    NodeHour.objects.filter(hour__in=lost).delete()
    assert found(Kind.EMPTY_NODES) is None


def test_a_node_that_was_ill_was_not_empty() -> None:
    world = make_world()
    ill = NodeHour.objects.filter(node=world.cards[1].node)
    ill.update(unhealthy=F("capacity"), unallocated=0)
    assert found(Kind.EMPTY_NODES) is None


# ---------------------------------------------------------------- quotas


def make_quota(world: World, key: str = "requests.nvidia.com/gpu", **used: Any) -> None:
    """Make a quota of eight of which two were used, and five in one hour."""
    row = QuotaKey.objects.create(
        cluster=world.cluster,
        source="ResourceQuota",
        namespace="vision",
        name="gpus",
        key=key,
    )
    team = make_team("vision")
    rows = [
        QuotaKeyHour(
            key=row,
            cluster=world.cluster,
            team=team,
            hour=hour,
            seconds=3600.0,
            hard=8.0,
            **({"used": 2.0} | used),
        )
        for hour in world.hours
    ]
    QuotaKeyHour.objects.bulk_create(rows)


def test_a_quota_is_lowered_to_its_peak_and_some_headroom() -> None:
    world = make_world()
    make_quota(world)
    QuotaKeyHour.objects.filter(hour=world.hours[50]).update(used=4.0)
    one = found(Kind.UNUSED_QUOTA)
    assert one is not None
    assert one.change == ("Lower requests.nvidia.com/gpu from 8 to 5: at most 4 were ever used.")
    assert one.saving_per_month == a_month(3)
    assert one.workload == "ResourceQuota/gpus"
    assert one.team is not None
    assert one.patch == (
        "kubectl --namespace vision patch resourcequota gpus --type merge --patch "
        """'{"spec": {"hard": {"requests.nvidia.com/gpu": "5"}}}'"""
    )


@pytest.mark.parametrize(
    ("key", "used"),
    [
        pytest.param("requests.nvidia.com/gpu", {"used": None}, id="not known"),
        pytest.param("requests.nvidia.com/gpu", {"used": 8.0}, id="used up"),
        pytest.param("limits.nvidia.com/gpu", {}, id="limits nothing"),
        pytest.param("pods", {}, id="counts no GPUs"),
    ],
)
def test_a_quota_of_which_nothing_is_known_or_left_stays(key: str, used: dict[str, Any]) -> None:
    make_quota(make_world(), key, **used)
    assert found(Kind.UNUSED_QUOTA) is None


# ---------------------------------------------------------------- MIG layouts


def test_cards_whose_layout_strands_a_slice_are_cut_otherwise() -> None:
    world = make_world()
    tier = make_tier("slices", position=1)
    TierRule.objects.filter(tier=tier).update(resources=[MIG])
    cards = make_cards(world.cluster, "m1", tier, gpus=2.0)
    make_spell(cards, {MIG: 4}, **{"nvidia.com/gpu.count": "2"})
    one = found(Kind.MIG_LAYOUT)
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
    one = found(Kind.FEWER_GPUS)
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
    assert found(Kind.FEWER_GPUS) is None


def test_a_gpu_that_worked_on_one_day_alone_was_active() -> None:
    make_world()
    make_activity({"1": "k0kk"})
    WorkloadActivityDay.objects.filter(day=LAST).update(gpus={"1": "0kkk"})
    assert found(Kind.FEWER_GPUS) is None


def test_restartable_work_is_told_what_spot_would_save() -> None:
    world = make_world()
    make_price(A100, "spot", "1.00")
    for number in range(3):
        make_pod(
            make_workload(world.cluster, "vision", "train"),
            f"run-{number}",
            created_at=world.hours[number],
            cards=world.cards[0],
            finished_at=world.hours[number + 5],
            runs=[[0, 1], [2, 3]],
            end_reason="Completed",
        )
    one = found(Kind.SPOT)
    assert one is not None
    assert one.evidence["finished_after_restart"] == 3
    assert one.saving_per_month == a_month(4, PRICE - Decimal("1.1"))


def test_work_that_moved_to_spot_is_not_told_to_do_so_again() -> None:
    make_world()
    make_price(A100, "spot", "1.00")
    WorkloadDay.objects.filter(day__gt=LAST - timedelta(days=3)).update(capacity_type="spot")
    assert found(Kind.SPOT) is None


def test_work_that_ended_weeks_ago_is_left_alone() -> None:
    make_world()
    make_price(A100, "spot", "1.00")
    WorkloadDay.objects.filter(day__gt=LAST - timedelta(days=8)).delete()
    assert found(Kind.SPOT) is None


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
    cards = make_cards(cluster, "s1", shared)
    make_spell(cards, {"nvidia.com/gpu.shared": 32}, **{"nvidia.com/gpu.replicas": "4"})
    make_capacity(cards)
    one = found(Kind.SHARED_TIER)
    assert (one is not None) == is_offered
    if one is not None:
        assert one.saving_per_month == a_month(3)
        assert '"nvidia.com/gpu.shared": 1' in one.patch


def make_capacity(cards: Cards) -> None:
    """Say that these cards were there on the last day."""
    TierDay.objects.create(
        day=LAST,
        cluster=cards.node.cluster,
        tier=cards.tier,
        gpu_model=cards.model,
        capacity_type=cards.capacity_type,
        capacity=8 * 24 * 10**9,
    )
