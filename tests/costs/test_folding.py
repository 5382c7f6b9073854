"""Names of work that came once are forgotten in time; no sum and no closed month changes."""

from datetime import date, timedelta
from typing import Any

import pytest
from django.test import override_settings

from apps.accounts.permissions import EVERYTHING
from apps.clusters.models import Pod, Workload
from apps.costs import services
from apps.costs.models import Adjustment, ClosedAmount, WorkloadCostDay
from apps.costs.models import Price as PriceRow
from apps.costs.services import close_period, price_hours
from apps.costs.services.pricing import fold_workloads
from apps.pending.models import Episode
from apps.usage.domain.usage_query import Grouping, TimeStep, UsageQuery
from apps.usage.models import Day, WorkloadDay
from apps.usage.selectors import usage_rows
from apps.usage.services import prune as prune_facts
from apps.usage.services.days import OLDER, STEADY_KINDS
from tests.costs.portal import CHARGINGS, NOW, Priced, by_cause, make_priced, rows
from tests.factories import H100, make_pod
from tests.shared_rows import copy_of, shared

pytestmark = pytest.mark.django_db

LATE = NOW + timedelta(days=200)
VERY_LATE = NOW + timedelta(days=500)
GROUPS = (Grouping.CLUSTER, Grouping.TEAM, Grouping.NAMESPACE, Grouping.TIER, Grouping.GPU_MODEL)


def fill() -> Priced:
    """Two priced days whose facts by pod are gone, and whose pods and episodes are."""
    made = make_priced(2)
    assert prune_facts(now=LATE)
    services.prune()
    Pod.objects.all().delete()
    Episode.objects.all().delete()
    return made


_priced = shared(fill)
priced = copy_of("_priced")


def sums_of(priced: Priced) -> list[Any]:
    usage = usage_rows(UsageQuery(priced.window, TimeStep.DAY, GROUPS[1:3]), visibility=EVERYTHING)
    costs = [
        rows(priced.window, basis=basis, policy=policy, group_by=GROUPS)
        for basis, policy in CHARGINGS
    ]
    return [usage, costs]


def names(model: type[WorkloadDay] | type[WorkloadCostDay]) -> set[tuple[str, str]]:
    found = model._default_manager.values_list("workload__kind", "workload__name")
    return {(kind, name) for kind, name in found}


def test_jobs_of_long_ago_are_one_row_of_their_namespace_and_no_sum_changes(
    priced: Priced,
) -> None:
    before, named = sums_of(priced), names(WorkloadDay)
    once = {(kind, name) for kind, name in named if kind not in STEADY_KINDS}
    assert len(once) > 1
    assert fold_workloads(now=LATE) == 0, "not past the retention"
    assert fold_workloads(now=VERY_LATE) == Day.objects.count()
    assert sums_of(priced) == before
    folded = (named - once) | {(kind, OLDER) for kind, _ in once}
    assert names(WorkloadDay) == folded
    assert {name for _, name in names(WorkloadCostDay)} == {name for _, name in folded}
    there = set(Workload.objects.values_list("kind", "name"))
    assert not there & once, "nothing names them any more"
    assert fold_workloads(now=VERY_LATE) == 0


def test_a_workload_that_something_names_stays(priced: Priced) -> None:
    kept = WorkloadDay.objects.exclude(workload__kind__in=STEADY_KINDS).first()
    assert kept is not None
    since = priced.window.start
    Pod.objects.create(
        cluster_id=kept.cluster_id, uid="again", workload_id=kept.workload_id, name="again",
        resource="nvidia.com/gpu", units=1, created_at=since, source="api",
    )  # fmt: skip
    fold_workloads(now=VERY_LATE)
    assert Workload.objects.filter(pk=kept.workload_id).exists()


def test_a_pod_that_seemed_to_be_alone_leaves_no_name_once_its_owner_is_known(
    priced: Priced,
) -> None:
    owned = make_pod(Workload.objects.exclude(kind="Pod")[0], created_at=NOW)
    space = owned.workload.namespace
    mistaken = Workload.objects.create(namespace=space, kind="Pod", name=owned.name)
    other = Workload.objects.create(namespace=space, kind="Pod", name="not-a-pod-anymore")
    assert fold_workloads(now=LATE) == 0
    assert not Workload.objects.filter(pk=mistaken.pk).exists()
    assert Workload.objects.filter(pk__in=[other.pk, owned.workload.pk]).count() == 2


@override_settings(WORKLOAD_RETENTION_DAYS=100)
def test_a_closed_month_stays_as_it_was_and_is_corrected_in_sum() -> None:
    priced = make_priced(2)
    closed = close_period(date(2026, 10, 1), by="finn", now=NOW)
    frozen = list(ClosedAmount.objects.order_by("pk").values())
    prune_facts(now=LATE)
    services.prune()
    Pod.objects.all().delete()
    assert fold_workloads(now=LATE)
    assert list(ClosedAmount.objects.order_by("pk").values()) == frozen
    shown = ClosedAmount.objects.exclude(workload=None).values_list("workload__name", flat=True)
    assert None not in shown, "its workloads keep their names"
    before = by_cause(rows(priced.window))
    PriceRow.objects.filter(gpu_model=H100).update(per_gpu_hour=7)
    price_hours(now=LATE)
    booked = Adjustment.objects.filter(period=closed)
    assert booked.exists()
    assert set(booked.values_list("gpu_model__name", flat=True)) == {H100}, "of what changed alone"
    assert OLDER in set(booked.values_list("workload__name", flat=True))
    assert by_cause(rows(priced.window)) == before, "it shows what was frozen"
