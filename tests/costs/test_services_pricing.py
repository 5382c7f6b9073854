"""Hours become money: exact, once, and again only when facts or prices change."""

import logging
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db.models import Min, Sum
from pytest_django import DjangoAssertNumQueries

from apps.clusters.domain.window import Window
from apps.clusters.models import ReportSettings
from apps.costs.domain.costing import Cause
from apps.costs.models import (
    PoolCostDay,
    PoolCostHour,
    PricedHour,
    TeamCostHour,
    WorkloadCostDay,
    WorkloadCostHour,
)
from apps.costs.models import Price as PriceRow
from apps.costs.services import price_hours, prune
from apps.costs.services.cost_rows import Pricing
from apps.costs.services.prices import PoolPrices
from apps.costs.services.pricing import price_day
from apps.quotas.models import Entitlement
from apps.usage.models import CollectionWindow, Day, PodHour
from tests.costs.portal import (
    COLLECTED,
    NOW,
    PRICES,
    by_cause,
    cost_of_capacity,
    make_price,
    make_priced,
    rows,
    stored,
    total,
)
from tests.factories import A100, H100, make_team

pytestmark = pytest.mark.django_db


def test_the_capacity_costs_what_its_pools_do_within_the_stated_rounding() -> None:
    priced = make_priced()
    exact = cost_of_capacity(priced.window)
    facts = WorkloadCostHour.objects.count() + PoolCostHour.objects.count()
    assert abs(total(rows(priced.window)) - exact) <= Decimal(facts) / 2


def test_each_fact_is_rounded_once_and_its_causes_sum_to_it() -> None:
    make_priced(1)
    for row in WorkloadCostHour.objects.all():
        held = row.busy + row.unmeasured + row.underused + row.idle + row.not_running
        cost = (
            row.cost_busy
            + row.cost_unmeasured
            + row.cost_underused
            + row.cost_idle
            + row.cost_not_running
        )
        assert row.price is not None
        assert abs(cost * 10**9 - held * row.price) * 2 <= 10**9


def test_pricing_again_changes_nothing_and_finds_nothing_to_do() -> None:
    make_priced(1)
    before = stored()
    assert price_hours(now=NOW) == 0
    PricedHour.objects.all().delete()
    assert price_hours(now=NOW) == 2 * 24
    assert stored() == before


def test_a_run_is_bounded_and_the_next_goes_on() -> None:
    make_priced(2)
    PricedHour.objects.all().delete()
    assert price_hours(now=NOW, most=1) == 24, "one day of one cluster is the least"
    assert price_hours(now=NOW) == 3 * 24
    assert price_hours(now=NOW) == 0


def test_hours_that_are_collected_again_are_priced_again() -> None:
    priced = make_priced(1)
    west = priced.portal.clusters[0]
    hour = priced.window.start
    changed = PodHour.objects.filter(cluster=west, hour=hour).first()
    assert changed is not None
    before = by_cause(rows(priced.window))
    PodHour.objects.filter(pk=changed.pk).update(
        underused=changed.underused - 10**8, idle=changed.idle + 10**8
    )
    CollectionWindow.objects.filter(cluster=west, hour=hour).update(
        collected_at=COLLECTED + timedelta(hours=1)
    )
    assert price_hours(now=NOW) == 1
    after = by_cause(rows(priced.window))
    assert after[Cause.UNDERUSED] < before[Cause.UNDERUSED]
    assert sum(after.values()) == sum(before.values())


def test_a_price_that_is_put_right_reprices_its_hours_alone() -> None:
    priced = make_priced(2)
    tomorrow = priced.window.start + timedelta(days=1)
    old = PriceRow.objects.get(gpu_model=H100)
    make_price(H100, "on-demand", "7", valid_from=tomorrow)
    PriceRow.objects.filter(pk=old.pk).update(valid_to=tomorrow)
    assert price_hours(now=NOW) == 2 * 24, "the later day of both clusters"
    pools = PoolCostHour.objects.filter(gpu_model__name=H100).order_by("hour")
    assert set(pools.filter(hour__lt=tomorrow).values_list("price", flat=True)) == {688000001}
    assert set(pools.filter(hour__gte=tomorrow).values_list("price", flat=True)) == {700000000}


def test_the_price_of_next_month_reprices_nothing() -> None:
    make_priced(1)
    make_price(H100, "on-demand", "9", valid_from=datetime(2026, 12, 1, tzinfo=UTC))
    assert price_hours(now=NOW) == 0


def test_a_source_that_is_put_right_reprices_nothing() -> None:
    make_priced(1)
    PriceRow.objects.update(source="contract 7")
    assert price_hours(now=NOW) == 0


def test_a_changed_entitlement_shares_the_unallocated_anew() -> None:
    make_priced(1)
    before = TeamCostHour.objects.aggregate(shares=Sum("by_entitlement"))["shares"]
    Entitlement.objects.all().delete()
    assert price_hours(now=NOW) == 2 * 24
    assert before > 0
    assert TeamCostHour.objects.aggregate(shares=Sum("by_entitlement"))["shares"] == 0


def test_what_has_no_price_is_unpriced_and_not_free() -> None:
    priced = make_priced(1, prices=PRICES[1:])
    found = rows(priced.window, group_by=())
    unpriced = [row for row in found if row.cost is None]
    assert unpriced
    assert all((row.currency, row.price_per_gpu_hour) == (None, None) for row in unpriced)
    whole = sum(row.gpu_hours for row in found)
    assert whole == 24 * 24 * 10**9, "three nodes of eight cards"
    assert sum(row.gpu_hours for row in unpriced) == 24 * 8 * 10**9


def test_the_list_price_and_the_discount_are_kept_with_the_cost() -> None:
    make_priced(1, prices=())
    make_price(A100, "on-demand", "4", discount=Decimal("0.25"))
    price_hours(now=NOW)
    kept = PoolCostHour.objects.filter(price__isnull=False)
    assert set(kept.values_list("price", "list_price", "currency")) == {
        (300000000, 400000000, "USD")
    }


def test_measured_energy_is_a_line_of_its_own() -> None:
    make_priced(1, prices=())
    make_price(A100, "owned", "1", per_kwh=Decimal("0.30"), pue=Decimal("1.5"))
    make_price(A100, "on-demand", "1", per_kwh=Decimal("0.30"), pue=Decimal("1.5"))
    price_hours(now=NOW)
    row = WorkloadCostHour.objects.filter(price__isnull=False).first()
    assert row is not None
    # 1,000 mWh × 1.5 × 0.30 a kWh.
    assert row.cost_energy == round(Decimal("0.001") / 1000 * row.energy_mwh * 45_000_000)


def test_a_day_is_the_sum_of_its_hours() -> None:
    make_priced(2)
    for hours, days in ((PoolCostHour, PoolCostDay), (WorkloadCostHour, WorkloadCostDay)):
        columns = ("busy", "cost_busy", "idle", "cost_idle", "cost_energy")
        sums = {f"sum_{name}": Sum(name) for name in columns}
        assert hours._default_manager.aggregate(**sums) == days._default_manager.aggregate(**sums)


def test_hours_by_workload_go_with_their_facts_and_their_days_stay() -> None:
    priced = make_priced(2)
    first = Day.objects.order_by("day")[:1].get()
    of_first = Window(first.start, first.end)
    before = rows(of_first)
    Day.objects.filter(day=first.day).update(pruned=True)
    assert prune() == 2, "of two clusters"
    oldest = WorkloadCostHour.objects.aggregate(oldest=Min("hour"))["oldest"]
    assert oldest == first.end
    assert price_hours(now=NOW) == 0, "nothing is new"
    assert rows(of_first) == before
    assert total(rows(priced.window)) > total(before)


def test_a_team_that_is_made_while_hours_are_priced_gets_its_costs() -> None:
    priced = make_priced(1)
    pricing = Pricing(PoolPrices())
    late = make_team("late")
    hour = PodHour.objects.filter(team=priced.portal.vision).earliest("hour")
    PodHour.objects.filter(pk=hour.pk).update(team=late)
    day = Day.objects.get(cluster=hour.cluster_id)
    assert price_day(day.pk, [hour.hour], pricing, now=NOW) == 1
    own = TeamCostHour.objects.get(team=late)
    assert own.cost_busy + own.cost_underused > 0
    assert own.by_held > 0, "it shares what nobody held"


def test_a_price_too_large_to_be_kept_leaves_its_hours_unpriced_and_the_others_priced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    priced = make_priced(1)
    PriceRow.objects.filter(gpu_model=H100).update(per_gpu_hour=Decimal("900000000"))
    PriceRow.objects.filter(gpu_model=A100).update(per_gpu_hour=Decimal(2))
    east = priced.portal.clusters[1]
    with caplog.at_level(logging.ERROR):
        assert price_hours(now=NOW) == 24, "those of the other cluster"
    assert "is more than can be kept" in caplog.text
    assert set(PoolCostHour.objects.filter(cluster=east).values_list("price", flat=True)) == {
        200000000
    }


def test_days_of_two_time_zones_are_summed_from_their_own_hours() -> None:
    priced = make_priced(2)
    before = total(rows(priced.window))
    ReportSettings.objects.update(time_zone="America/New_York")
    PricedHour.objects.update(rates="")
    assert price_hours(now=NOW) == 4 * 24
    for table, days in ((PoolCostHour, PoolCostDay), (WorkloadCostHour, WorkloadCostDay)):
        for day in Day.objects.all():
            of_day = {"cluster": day.cluster_id}
            hours = table._default_manager.filter(
                hour__gte=day.start, hour__lt=day.end, **of_day
            ).aggregate(cost=Sum("cost_busy"))
            kept = days._default_manager.filter(day=day.day, **of_day)
            assert kept.aggregate(cost=Sum("cost_busy")) == hours
    assert total(rows(priced.window)) == before


def test_nothing_to_price_takes_few_queries(
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    make_priced(1)
    with django_assert_max_num_queries(15):
        price_hours(now=NOW)
