"""Days whose facts by pod are gone are priced from what is kept of them, and lose nothing."""

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db.models import Sum
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import EVERYTHING
from apps.costs import services
from apps.costs.domain.costing import divided
from apps.costs.models import (
    Adjustment,
    ClosedAmount,
    PoolCostDay,
    PoolCostHour,
    PricedHour,
    TeamCostDay,
    TeamCostHour,
    WorkloadCostDay,
    WorkloadCostHour,
)
from apps.costs.models import Price as PriceRow
from apps.costs.selectors import not_priced
from apps.costs.services import close_period, price_hours, reopen_period
from apps.usage.domain.usage_query import Filters, Grouping, TimeStep
from apps.usage.models import CollectionWindow, PodHour
from apps.usage.selectors import GroupingRefused
from apps.usage.services import prune as prune_facts
from tests.costs.portal import CHARGINGS, GROUPS, NOW, Priced, by_cause, make_priced, rows, total
from tests.factories import H100

pytestmark = pytest.mark.django_db

OCTOBER = date(2026, 10, 1)
MUCH_LATER = NOW + timedelta(days=200)
BY_WORKLOAD: dict[str, Any] = {
    "group_by": (Grouping.CLUSTER, Grouping.TEAM, Grouping.NAMESPACE, Grouping.WORKLOAD)
}
HELD = ("busy", "unmeasured", "underused", "idle", "not_running")


def forget_pods() -> None:
    """Let the retention pass: facts by pod go, and hours of cost by workload after them."""
    assert prune_facts(now=MUCH_LATER)
    services.prune()
    assert not PodHour.objects.exists()
    assert not WorkloadCostHour.objects.exists()


def forget_prices() -> None:
    """Make it as if the days had been collected and pruned before anything was priced."""
    for table in (
        *(PricedHour, WorkloadCostDay, TeamCostDay, TeamCostHour, PoolCostDay, PoolCostHour),
    ):
        table._default_manager.all().delete()


def raise_price(at: datetime | None = None) -> None:
    """Let H100 cost 7, from a time on or ever since."""
    if at is None:
        PriceRow.objects.filter(gpu_model=H100).update(per_gpu_hour=Decimal(7))
        return
    old = PriceRow.objects.get(gpu_model=H100)
    PriceRow.objects.filter(pk=old.pk).update(valid_to=at)
    PriceRow.objects.create(
        gpu_model=H100,
        capacity_type="on-demand",
        per_gpu_hour=Decimal(7),
        currency="USD",
        valid_from=at,
    )


def assert_all_agree(priced: Priced) -> None:
    """Assert that hours, days, teams and workloads tell the same of every cause."""
    whole = by_cause(rows(priced.window))
    for grouping in GROUPS:
        assert by_cause(rows(priced.window, group_by=(grouping,))) == whole
    assert by_cause(rows(priced.window, interval=TimeStep.HOUR, group_by=(Grouping.TEAM,))) == whole
    for basis, policy in CHARGINGS:
        found = rows(priced.window, basis=basis, policy=policy, **BY_WORKLOAD)
        assert by_cause(found) == whole
    for table in (TeamCostDay, WorkloadCostDay):
        sums = {name: Sum(name) for name in (*HELD, *(f"cost_{n}" for n in HELD), "energy_mwh")}
        keys = ("team", "tier", "gpu_model", "capacity_type", "day", "price")
        kept = table._default_manager.filter(busy__gt=0).order_by(*keys).values(*keys)
        found_sums = list(kept.annotate(**{f"s_{k}": v for k, v in sums.items()}))
        if table is TeamCostDay:
            of_teams = found_sums
    assert found_sums == of_teams


def test_a_backfill_older_than_the_retention_is_priced_all_the_same() -> None:
    priced = make_priced(2)
    before = total(rows(priced.window))
    by_workload = rows(priced.window, **BY_WORKLOAD)
    forget_pods()
    forget_prices()
    assert rows(priced.window) == []
    assert price_hours(now=MUCH_LATER) == 4 * 24
    facts = TeamCostHour.objects.count() + WorkloadCostDay.objects.count()
    assert abs(total(rows(priced.window)) - before) <= facts, "but for roundings"
    again = rows(priced.window, **BY_WORKLOAD)
    assert [(row.groups, row.cause, row.gpu_hours) for row in again] == [
        (row.groups, row.cause, row.gpu_hours) for row in by_workload
    ]
    assert_all_agree(priced)
    assert price_hours(now=MUCH_LATER) == 0
    assert not_priced(priced.window, filters=Filters(), visibility=EVERYTHING) == []


def test_a_price_put_right_after_the_retention_reprices_old_days() -> None:
    priced = make_priced(2)
    forget_pods()
    before = rows(priced.window, group_by=(Grouping.GPU_MODEL, Grouping.WORKLOAD))
    raise_price()
    assert price_hours(now=MUCH_LATER) == 4 * 24
    after = rows(priced.window, group_by=(Grouping.GPU_MODEL, Grouping.WORKLOAD))
    for then, now in zip(before, after, strict=True):
        if now.groups["gpu_model"] == H100:
            assert now.price_per_gpu_hour == 7
        else:
            assert now == then, "what costs what it did stays to the last digit"
    assert_all_agree(priced)


def test_a_price_that_begins_within_an_old_day_divides_its_workloads() -> None:
    priced = make_priced(2)
    forget_pods()
    raise_price(priced.window.start + timedelta(hours=7))
    price_hours(now=MUCH_LATER)
    first = WorkloadCostDay.objects.filter(gpu_model__name=H100).order_by("day")[0].day
    of_first = WorkloadCostDay.objects.filter(gpu_model__name=H100, day=first)
    assert set(of_first.values_list("price", flat=True)) == {688000001, 700000000}
    assert_all_agree(priced)


def test_pricing_an_old_day_again_without_news_changes_no_digit() -> None:
    priced = make_priced(2)
    forget_pods()
    asked: dict[str, Any] = {"interval": TimeStep.DAY, "group_by": GROUPS}
    before = rows(priced.window, **asked)
    PricedHour.objects.update(rates="")
    assert price_hours(now=MUCH_LATER) == 4 * 24
    assert rows(priced.window, **asked) == before


def test_hours_whose_data_health_is_forgotten_are_priced_still() -> None:
    priced = make_priced(1)
    forget_pods()
    CollectionWindow.objects.all().delete()
    raise_price()
    assert price_hours(now=MUCH_LATER) == 2 * 24
    found = rows(priced.window, group_by=(Grouping.GPU_MODEL,))
    assert {row.price for row in found if row.groups["gpu_model"] == H100} == {700000000}


def test_a_correction_of_an_old_closed_month_is_booked() -> None:
    priced = make_priced(2)
    close_period(OCTOBER, by="finn", now=NOW)
    before = rows(priced.window)
    forget_pods()
    PricedHour.objects.update(rates="")
    price_hours(now=MUCH_LATER)
    assert not Adjustment.objects.exists(), "without news nothing is booked"
    raise_price()
    price_hours(now=MUCH_LATER)
    assert rows(priced.window) == before
    booked = Adjustment.objects.aggregate(cost=Sum("cost"), gpu_hours=Sum("gpu_hours"))
    h100 = sum(r.gpu_hours for r in rows(priced.window, filters=Filters(gpu_model=(H100,))))
    assert booked["gpu_hours"] == 0
    assert abs(booked["cost"] - Decimal(h100) / 10**9 * 11999999) < 1000
    assert set(Adjustment.objects.values_list("gpu_model__name", flat=True)) == {H100}
    assert price_hours(now=MUCH_LATER) == 0


def test_an_old_month_that_is_opened_again_keeps_its_corrections() -> None:
    priced = make_priced(2)
    closed = close_period(OCTOBER, by="finn", now=NOW)
    forget_pods()
    raise_price()
    price_hours(now=MUCH_LATER)
    together = sum(
        table._default_manager.filter(period=closed).aggregate(cost=Sum("cost"))["cost"]
        for table in (ClosedAmount, Adjustment)
    )
    reopen_period(OCTOBER, by=priced.portal.cleo, reason="a wrong price", now=MUCH_LATER)
    assert price_hours(now=MUCH_LATER) == 4 * 24
    assert total(rows(priced.window)) == together
    assert_all_agree(priced)


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param({"group_by": (Grouping.WORKLOAD,)}, id="grouped"),
        pytest.param({"filters": Filters(namespace=("vision",))}, id="filtered"),
        pytest.param({**BY_WORKLOAD, "interval": TimeStep.HOUR}, id="by hour"),
    ],
)
def test_part_of_an_old_day_by_workload_is_refused_and_not_left_out(asked: dict[str, Any]) -> None:
    priced = make_priced(2)
    forget_pods()
    part = type(priced.window)(priced.window.start + timedelta(hours=5), priced.window.end)
    with pytest.raises(GroupingRefused, match=r"up to 2026-10-3.* is kept by whole days alone"):
        rows(part, **asked)
    by_team = rows(part, group_by=(Grouping.TEAM,))
    assert total(by_team) == total(rows(part))


def test_whole_old_days_by_workload_are_there() -> None:
    priced = make_priced(2)
    whole = total(rows(priced.window))
    forget_pods()
    assert total(rows(priced.window, **BY_WORKLOAD)) == whole


def test_an_old_day_takes_few_queries(
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    make_priced(1)
    forget_pods()
    raise_price()
    with django_assert_max_num_queries(2 * 26 + 13):
        price_hours(now=MUCH_LATER)


TOTALS = st.lists(st.integers(0, 10**12), max_size=5)
WEIGHTS = st.lists(st.integers(0, 10**12), max_size=6)


@given(TOTALS, WEIGHTS)
def test_totals_divided_among_places_add_up_both_ways(
    totals: list[int], weights: list[int]
) -> None:
    parts = divided(totals, weights)
    assert [sum(row) for row in parts] == (totals if weights else [0] * len(totals))
    assert all(part >= 0 for row in parts for part in row)


@given(st.lists(st.lists(st.integers(0, 10**12), min_size=3, max_size=3), min_size=1, max_size=4))
def test_places_get_their_weights_where_these_sum_to_the_totals(grid: list[list[int]]) -> None:
    totals = [sum(row) for row in grid]
    weights = [sum(column) for column in zip(*grid, strict=True)]
    parts = divided(totals, weights)
    assert [sum(column) for column in zip(*parts, strict=True)] == weights
