"""Which workloads get advice at all, and what they could be moved to."""

from datetime import date, timedelta

import pytest
from django.db.models import F

from apps.clusters.models import Pod
from apps.costs.domain.recommendations.recommendation import RecommendationKind
from apps.costs.models import Price, Recommendation
from apps.costs.services.recommendation_run import store_recommendations
from apps.usage.domain.activity import CLASSES, class_of
from apps.usage.domain.amounts import Amounts
from apps.usage.models import PodHour, TierDay, WorkloadActivityDay, WorkloadDay
from tests.costs.one_job import FIRST, LAST, NOW, OneJob, four, make_one_job
from tests.costs.portal import make_price
from tests.factories import A100, held, make_model, make_tier

pytestmark = pytest.mark.django_db


def make_pool(job: OneJob, capacity_type: str, model: str = A100, tier: str = "other") -> None:
    TierDay.objects.create(
        day=LAST,
        cluster=job.cluster,
        tier=make_tier(tier, position=1, model=model),
        gpu_model=make_model(model),
        capacity_type=capacity_type,
        capacity=8 * 24 * 10**9,
    )


def found(kind: RecommendationKind) -> Recommendation | None:
    store_recommendations(now=NOW)
    return Recommendation.objects.filter(kind=kind.value).first()


def make_activity() -> None:
    """Let every day's half-hours be a tenth active, in little memory."""
    WorkloadDay.objects.update(memory_peak_mib=6000.0)
    slots = [0] * CLASSES
    slots[class_of(0.1)] = 192
    columns = ("cluster_id", "tier_id", "gpu_model_id", "capacity_type", "team_id")
    WorkloadActivityDay.objects.bulk_create(
        WorkloadActivityDay(
            **row, slots=slots, resource="nvidia.com/gpu", least_units=4, most_units=4
        )
        for row in WorkloadDay.objects.values(*columns, "namespace_id", "workload_id", "day")
    )


# ---------------------------------------------------------------- spot


def test_spot_is_told_of_where_the_cluster_has_some() -> None:
    make_pool(make_one_job(), "spot")
    make_price(A100, "spot", "1.00")
    one = found(RecommendationKind.SPOT)
    assert one is not None
    assert "(tier other)" in one.change


def test_a_spot_price_alone_does_not_make_spot() -> None:
    make_one_job()
    make_price(A100, "spot", "1.00")
    assert found(RecommendationKind.SPOT) is None


def test_spot_in_another_currency_is_not_compared() -> None:
    make_pool(make_one_job(), "spot")
    make_price(A100, "spot", "1.00", currency="EUR")
    assert found(RecommendationKind.SPOT) is None


def test_owned_gpus_are_not_left_for_spot() -> None:
    make_pool(make_one_job(kind="Job"), "spot")
    make_price(A100, "spot", "1.00")
    Price.objects.filter(capacity_type="on-demand").update(kind="owned")
    assert found(RecommendationKind.SPOT) is None


# ---------------------------------------------------------------- a smaller model


@pytest.mark.parametrize(
    ("kind", "capacity_type", "currency", "words"),
    [
        pytest.param("Deployment", "on-demand", "USD", "to Tesla-T4 (tier other).", id="offered"),
        pytest.param("Deployment", "on-demand", "EUR", None, id="in another currency"),
        pytest.param("Deployment", "spot", "USD", None, id="only as spot, for a service"),
        pytest.param(
            *("Job", "spot", "USD", "(tier other, on spot capacity, with checkpoints)"),
            id="only as spot, for a job",
        ),
    ],
)
def test_a_smaller_model(kind: str, capacity_type: str, currency: str, words: str | None) -> None:
    make_pool(make_one_job(kind=kind), capacity_type, "Tesla-T4")
    make_price("Tesla-T4", capacity_type, "0.35", currency=currency)
    make_activity()
    one = found(RecommendationKind.SMALLER_MODEL)
    assert (one is None) == (words is None)
    assert one is None or (words or "") in one.change


# ---------------------------------------------------------------- enough, and still there


def seen_on(days: int) -> OneJob:
    """Let it hold its GPUs all the time, measured on its first day and the last ones."""
    measured = {FIRST, *(LAST - timedelta(days=back) for back in range(days - 1))}

    def of_hour(day: date) -> Amounts:
        # What does not run is not measured, and is not missed by the coverage either.
        return four(day) if day in measured else held(4.0, not_running=4.0)

    return make_one_job(of_hour)


@pytest.mark.parametrize(("days", "is_enough"), [(6, False), (7, True)])
def test_days_count_on_which_something_was_measured(days: int, is_enough: bool) -> None:
    make_pool(seen_on(days), "spot")
    make_price(A100, "spot", "1.00")
    one = found(RecommendationKind.SPOT)
    assert (one is not None) == is_enough
    assert one is None or one.evidence["measured_days"] == days


@pytest.mark.parametrize(
    ("kind", "is_advised"),
    [("Job", False), ("PyTorchJob", False), ("CronJob", True)],
)
def test_what_ran_once_and_has_ended_gets_no_advice(kind: str, is_advised: bool) -> None:
    make_pool(make_one_job(kind=kind), "spot")
    make_price(A100, "spot", "1.00")
    Pod.objects.update(ended_at=NOW - timedelta(days=1))
    assert (found(RecommendationKind.SPOT) is not None) == is_advised


@pytest.mark.parametrize(("ended", "is_advised"), [(False, True), (True, False)])
def test_a_notebook_that_is_a_bare_pod_is_advised_while_it_is_there(
    ended: bool, is_advised: bool
) -> None:
    job = make_one_job(kind="Pod")
    job.pod.workload.name = "jupyter-ann"
    job.pod.workload.save()
    WorkloadDay.objects.update(busy=0, underused=0, idle=F("allocated"))
    PodHour.objects.update(busy=0, underused=0, idle=F("allocated"))
    if ended:
        Pod.objects.update(ended_at=NOW - timedelta(minutes=5))
    assert (found(RecommendationKind.STOP_IDLE_NOTEBOOK) is not None) == is_advised


# ---------------------------------------------------------------- several kinds of GPUs


def also_held_on_spot(share: float, **amounts: float) -> None:
    """Let the workload hold a share of it on spot nodes of the tier too, before its last day."""
    for row in WorkloadDay.objects.filter(day__lt=LAST):
        row.pk, row.capacity_type = None, "spot"
        row.allocated = int(row.allocated * share)
        for name in ("busy", "idle", "underused"):
            setattr(row, name, int(row.allocated * amounts.get(name, 0.0)))
        row.save()


@pytest.mark.parametrize(("busy", "is_advised"), [(0.9, True), (1.0, False)])
def test_what_is_well_used_on_all_gpus_of_the_tier_together_gets_no_advice(
    busy: float, is_advised: bool
) -> None:
    make_pool(make_one_job(), "spot")
    make_price(A100, "spot", "1.00")
    also_held_on_spot(1.0, busy=busy, idle=1.0 - busy)
    own = WorkloadDay.objects.filter(capacity_type="on-demand")
    own.update(busy=F("allocated") * 0.65, idle=F("allocated") * 0.35, underused=0)
    assert (found(RecommendationKind.SPOT) is not None) == is_advised


def test_idle_time_on_other_gpus_than_the_main_ones_is_worth_their_own_price() -> None:
    make_one_job()
    make_price(A100, "spot", "1.00")
    also_held_on_spot(0.5, busy=0.5, idle=0.5)
    make_activity()
    idle_hour = [10**9] + [0] * 23
    WorkloadActivityDay.objects.filter(capacity_type="spot").update(
        idle_after=idle_hour, idle_pods=1
    )
    one = found(RecommendationKind.IDLE_TIMEOUT)
    assert one is not None
    assert float(one.evidence["saved_per_gpu_hour"]) == 1.0
    # Stopping what is marked to stay would undo its purpose.
    Pod.objects.update(kept_for_latency=True)
    Recommendation.objects.all().delete()
    assert found(RecommendationKind.IDLE_TIMEOUT) is None
