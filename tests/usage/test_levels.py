"""How deep GPUs were in use: SM, tensor and memory copy activity beside busy."""

from datetime import UTC, datetime, timedelta

import pytest

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.devices.state import ActivityLevels
from apps.clusters.domain.window import Window
from apps.usage.domain.amounts import Amounts, hours, nano
from apps.usage.domain.attribution.attribute_hour import HourFacts
from apps.usage.domain.usage_query import UsageQuery
from apps.usage.models import Day, PodHour, WorkloadDay
from apps.usage.selectors import usage_rows
from apps.usage.services import roll_days
from tests.factories import make_portal
from tests.usage.hours import LABELS, device, hour_facts, interval, pod

DEEP = ActivityLevels(0.4, 0.1, 0.3)
FOUR = LABELS | {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"}


def by_pod(facts: HourFacts) -> dict[str, Amounts]:
    return {fact.uid.removeprefix("uid-"): fact.amounts for fact in facts.pods}


def ratios(row: Amounts) -> tuple[float | None, ...]:
    return row.sm_active_ratio, row.tensor_active_ratio, row.memory_copy_ratio


def test_levels_are_of_the_time_that_has_them() -> None:
    rows = [device(0, 0.8)._replace(levels=DEEP), device(1, 0.8)]
    facts = hour_facts([interval(gpus=1)], [pod()], rows)
    (row,) = by_pod(facts).values()
    assert ratios(row) == pytest.approx((0.4, 0.1, 0.3))
    assert hours(row.sm_measured or 0) == pytest.approx(0.5)
    assert ratios(facts.total()) == ratios(row)


def test_a_level_that_nobody_exports_is_absent_and_not_zero() -> None:
    rows = [device(slot, 0.8)._replace(levels=ActivityLevels(memory_copy=0.0)) for slot in (0, 1)]
    (row,) = by_pod(hour_facts([interval(gpus=1)], [pod()], rows)).values()
    assert ratios(row) == (None, None, 0.0)
    assert (row.sm_active, row.sm_measured) == (None, None)


def test_gpus_of_a_pod_count_each_by_its_own_time() -> None:
    rows = [device(slot, 0.8)._replace(levels=DEEP) for slot in (0, 1)]
    rows += [device(0, 0.8, uuid="GPU-2")._replace(levels=ActivityLevels(0.8, 0.1, 0.3))]
    (row,) = by_pod(hour_facts([interval(gpus=2)], [pod(units=2)], rows)).values()
    assert hours(row.sm_measured or 0) == pytest.approx(1.5)
    assert row.sm_active_ratio == pytest.approx((2 * 0.4 + 0.8) / 3)


def test_levels_of_a_shared_gpu_are_apportioned_like_its_activity() -> None:
    names = ["a", "b"]
    rows = [
        device(slot, 0.4, pod_name=name)._replace(levels=ActivityLevels(0.2, 0.1))
        for name in names
        for slot in (0, 1)
    ]
    facts = hour_facts([interval(gpus=4, labels=FOUR)], [pod(name) for name in names], rows)
    for row in by_pod(facts).values():
        assert hours(row.busy) == pytest.approx(0.2)
        assert hours(row.sm_active or 0) == pytest.approx(0.1)
        assert hours(row.tensor_active or 0) == pytest.approx(0.05)
        assert row.memory_copy_ratio is None
    assert hours(facts.total().sm_active or 0) == pytest.approx(0.2)


@pytest.mark.django_db
def test_levels_are_summed_over_hours_days_and_workloads() -> None:
    portal = make_portal()
    start = datetime(2026, 3, 3, 23, tzinfo=UTC)
    window = Window(start, start + timedelta(days=1))
    portal.collect(window)
    first = PodHour.objects.order_by("pk").values_list("pk", flat=True)[0]
    PodHour.objects.filter(pk=first).update(sm_active=nano(0.5), sm_measured=nano(2))
    Day.objects.update(rolled=False)
    roll_days(now=window.end)
    assert [
        (row.sm_active, row.sm_measured)
        for row in WorkloadDay.objects.filter(sm_measured__isnull=False)
    ] == [(nano(0.5), nano(2))]
    whole = usage_rows(UsageQuery(window), visibility=EVERYTHING)[0].amounts
    assert ratios(whole) == (None, None, None)
