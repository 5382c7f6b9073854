"""Costs by period, group and payer: the same money, however it is cut, and to whom it is shown."""

from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from django.db.models import Sum
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from pytest_django import DjangoAssertNumQueries

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import EVERYTHING, Visibility, visibility_of
from apps.clusters.domain.window import Window
from apps.costs.domain.costing import FREE, HELD, WASTE, Basis, Cause, Policy, money
from apps.costs.models import Price, PricedHour
from apps.costs.selectors import CostQuery, CostRow, capacity_values, cost_page, cost_rows
from apps.costs.selectors import worst_workloads as worst
from apps.costs.services import price_hours
from apps.usage.domain.amounts import NANO
from apps.usage.domain.usage_query import Filters, Grouping, TimeStep
from apps.usage.models import CollectionWindow, TierHour
from apps.usage.selectors import CursorRefused, GroupingRefused
from tests.costs.portal import (
    CHARGINGS,
    COLLECTED,
    DAY,
    GROUPS,
    NOW,
    PRICES,
    Priced,
    by_cause,
    days_from,
    make_priced,
    rows,
    total,
    waterfall,
)
from tests.factories import A100
from tests.shared_rows import shared
from tests.thinned import examples

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
BY_TEAM = {"group_by": (Grouping.TEAM,)}
NOBODY = Visibility(everything=False)


priced = shared(make_priced)
"""Two days that are priced: these tests only read them."""


def teams(found: Sequence[CostRow]) -> set[str]:
    return {row.groups["team"] for row in found}


def paid(found: Sequence[CostRow], team: str) -> int:
    return total([row for row in found if row.groups["team"] == team])


# ---------------------------------------------------------------- what capacity is worth


@pytest.mark.parametrize(
    ("day", "hours"),
    [
        pytest.param(date(2026, 3, 29), 23, id="an hour left out"),
        pytest.param(date(2026, 10, 25), 25, id="an hour twice"),
    ],
)
def test_capacity_of_a_day_on_which_clocks_change_is_that_of_each_hour(
    day: date, hours: int
) -> None:
    priced = make_priced(1, first=day)
    of_hours = TierHour.objects.filter(cluster__name="west", tier__name="gold")
    assert of_hours.count() % hours == 0
    gpus = of_hours.aggregate(sum=Sum("capacity"))["sum"] / hours / NANO
    found = capacity_values(priced.window.end + HOUR, visibility=EVERYTHING)
    assert found["west", "gold"].gpus == pytest.approx(gpus)


def test_capacity_is_the_mean_of_the_hours_that_have_facts() -> None:
    priced = make_priced(1)
    whole = capacity_values(priced.window.end + HOUR, visibility=EVERYTHING)
    # Of the next day six hours are collected, and the sources of another contradict each other.
    hours = [hour.start for hour in days_from(priced.portal, DAY + timedelta(days=1), 1).hours()]
    priced.portal.collect(Window(hours[0], hours[6]))
    CollectionWindow.objects.update(collected_at=COLLECTED)
    for cluster in priced.portal.clusters:
        CollectionWindow.objects.update_or_create(
            cluster=cluster,
            hour=hours[12],
            defaults={"state": "partial", "withheld": True, "collected_at": COLLECTED},
        )
    price_hours(now=NOW)
    assert PricedHour.objects.filter(hour=hours[12]).count() == 2
    found = capacity_values(hours[-1] + 2 * HOUR, visibility=EVERYTHING)
    # The portal has as many GPUs in every hour.
    assert {key: value.gpus for key, value in found.items()} == pytest.approx(
        {key: value.gpus for key, value in whole.items()}
    )


# ---------------------------------------------------------------- the same money


def test_sums_are_exact_under_every_basis_policy_grouping_and_split(priced: Priced) -> None:
    whole = by_cause(rows(priced.window))
    hours = [hour.start for hour in priced.window.hours()]

    @examples(25, suppress_health_check=list(HealthCheck))
    @given(
        charging=st.sampled_from(CHARGINGS),
        group_by=st.lists(st.sampled_from(GROUPS), unique=True).map(tuple),
        interval=st.sampled_from(list(TimeStep)),
        cuts=st.sets(st.sampled_from(hours[1:]), max_size=3),
    )
    def holds(charging: Any, group_by: Any, interval: TimeStep, cuts: set[Any]) -> None:
        basis, policy = charging
        edges = [priced.window.start, *sorted(cuts), priced.window.end]
        found = [
            row
            for start, end in pairwise(edges)
            for row in rows(
                Window(start, end),
                interval=interval,
                group_by=group_by,
                basis=basis,
                policy=policy,
            )
        ]
        assert by_cause(found) == whole

    holds()


@pytest.mark.parametrize(("basis", "policy"), CHARGINGS, ids=lambda value: str(value))
def test_what_teams_do_not_pay_the_platform_pays(
    priced: Priced, basis: Basis, policy: Policy
) -> None:
    found = rows(priced.window, basis=basis, policy=policy, **BY_TEAM)
    platform = by_cause([row for row in found if row.groups["team"] == ""])
    expected = {Cause.UNHEALTHY}
    if policy is not Policy.ENTITLEMENT:
        expected |= {Cause.UNALLOCATED} if policy is Policy.PLATFORM else set()
    else:
        # Pools of the tier silver on both clusters have an entitled team, and gold has two.
        assert Cause.UNALLOCATED not in platform
    if basis is Basis.USED:
        expected |= {Cause.IDLE, Cause.UNDERUSED} & by_cause(found).keys()
    assert platform.keys() == expected


def test_a_team_pays_the_same_whether_all_or_it_alone_is_asked_for(priced: Priced) -> None:
    for basis, policy in CHARGINGS:
        every = rows(priced.window, basis=basis, policy=policy, **BY_TEAM)
        for team in ("vision", "speech", "unassigned", ""):
            alone = rows(priced.window, basis=basis, policy=policy, filters=Filters(team=(team,)))
            assert total(alone) == paid(every, team), (basis, policy, team)


def test_workloads_pay_what_their_team_does_but_for_its_share(priced: Priced) -> None:
    found = rows(priced.window, group_by=(Grouping.TEAM, Grouping.WORKLOAD))
    held = rows(priced.window, **BY_TEAM)
    for team in ("vision", "speech"):
        assert paid(found, team) == paid(held, team)
    assert {row.groups["workload"] for row in found if row.cause in FREE} == {""}


def test_days_are_the_sum_of_their_hours(priced: Priced) -> None:
    by_hour = rows(priced.window, interval=TimeStep.HOUR, **BY_TEAM)
    by_day = rows(priced.window, interval=TimeStep.DAY, **BY_TEAM)
    assert by_cause(by_hour) == by_cause(by_day)
    assert len({row.period for row in by_hour}) == 48
    assert next(row.period.isoformat() for row in by_day if row.period).endswith("+01:00")


def test_a_row_has_its_price_and_where_there_were_several_their_mean(priced: Priced) -> None:
    one = rows(priced.window, group_by=(Grouping.GPU_MODEL, Grouping.CAPACITY_TYPE))
    assert {row.price_per_gpu_hour for row in one} == {Decimal(amount) for _, _, amount in PRICES}
    several = rows(priced.window)
    for row in several:
        assert row.amount is not None
        assert row.price_per_gpu_hour is not None
        mean = row.amount / Decimal(row.gpu_hours).scaleb(-9)
        assert abs(row.price_per_gpu_hour - mean) <= Decimal("1e-8")


def test_two_currencies_are_never_added(priced: Priced) -> None:
    Price.objects.filter(gpu_model=A100, capacity_type="on-demand").update(currency="EUR")
    price_hours(now=NOW)
    found = rows(priced.window)
    assert {row.currency for row in found if row.cause is Cause.BUSY} == {"EUR", "USD"}
    usd, eur = waterfall(priced.window, visibility=EVERYTHING)
    assert (usd.currency, eur.currency) == ("USD", "EUR")
    assert usd.total + eur.total == total(found)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        pytest.param({"group_by": (Grouping.NODE,)}, "not kept by node", id="by node"),
        pytest.param({"group_by": (Grouping.TEAM, Grouping.TEAM)}, "once", id="a group twice"),
    ],
)
def test_what_cannot_be_had_is_refused(priced: Priced, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(GroupingRefused, match=said):
        rows(priced.window, **asked)


@pytest.mark.parametrize(
    ("interval", "group_by", "said"),
    [
        pytest.param(TimeStep.HOUR, (), "hours can be had", id="hours"),
        pytest.param(TimeStep.DAY, (Grouping.WORKLOAD,), "whole days", id="workloads"),
    ],
)
def test_a_long_window_is_read_by_whole_days(
    priced: Priced, interval: TimeStep, group_by: Any, said: str
) -> None:
    start = priced.window.start + HOUR
    with pytest.raises(GroupingRefused, match=said):
        rows(Window(start, start + timedelta(days=100)), interval=interval, group_by=group_by)


# ---------------------------------------------------------------- who sees what


@pytest.mark.parametrize(("basis", "policy"), CHARGINGS, ids=lambda value: str(value))
def test_an_outsider_sees_no_money_of_others(priced: Priced, basis: Basis, policy: Policy) -> None:
    dan = visibility_of(priced.portal.dan)
    asked: dict[str, Any] = {"basis": basis, "policy": policy}
    every = rows(priced.window, group_by=(Grouping.TEAM, Grouping.NAMESPACE), **asked)
    seen = rows(
        priced.window, group_by=(Grouping.TEAM, Grouping.NAMESPACE), visibility=dan, **asked
    )
    assert teams(seen) <= {"speech", ""}
    assert {row.groups["namespace"] for row in seen} <= {"speech", ""}
    assert paid(seen, "speech") == paid(every, "speech")
    platform = [row for row in seen if not row.groups["team"] and not row.groups["namespace"]]
    assert {row.cause for row in platform} <= set(FREE)
    for group_by in [(g,) for g in GROUPS] + [()]:
        alone = rows(priced.window, group_by=group_by, visibility=dan, **asked)
        assert total(alone) == total(seen), group_by


@pytest.mark.parametrize("wanted", ["vision", "unassigned"])
def test_asking_for_a_team_that_is_not_ones_own_gives_nothing(priced: Priced, wanted: str) -> None:
    dan = visibility_of(priced.portal.dan)
    assert rows(priced.window, visibility=dan, filters=Filters(team=(wanted,))) == []
    both = rows(priced.window, visibility=dan, filters=Filters(team=(wanted, "")), **BY_TEAM)
    assert teams(both) == {""}
    assert {row.cause for row in both} <= set(FREE)


def test_who_is_on_no_team_sees_what_nobody_held_and_no_more(priced: Priced) -> None:
    seen = rows(priced.window, visibility=NOBODY, policy=Policy.USE, **BY_TEAM)
    assert teams(seen) == {""}
    assert not {row.cause for row in seen} & set(HELD)
    assert worst(priced.window, filters=Filters(), visibility=NOBODY, limit=5)[Cause.IDLE] == []


def test_finance_and_admins_see_all(priced: Priced) -> None:
    every = rows(priced.window, **BY_TEAM)
    for user in (priced.portal.finn, priced.portal.cleo):
        assert rows(priced.window, visibility=visibility_of(user), **BY_TEAM) == every


# ---------------------------------------------------------------- waste


def test_the_waterfall_falls_from_the_capacity_to_what_was_busy(priced: Priced) -> None:
    (found,) = waterfall(priced.window, visibility=EVERYTHING)
    whole = by_cause(rows(priced.window))
    assert {step.cause: step.cost for step in found.steps if step.cost} == whole
    assert found.total == sum(whole.values())
    assert found.wasted == sum(whole.get(cause, 0) for cause in WASTE)
    assert found.steps[-1].cause is Cause.BUSY


def test_the_waterfall_is_compared_with_the_period_before(priced: Priced) -> None:
    today = Window(priced.window.start + timedelta(days=1), priced.window.end)
    yesterday = Window(priced.window.start, today.start)
    (found,) = waterfall(today, visibility=EVERYTHING, before=yesterday)
    (before,) = waterfall(yesterday, visibility=EVERYTHING)
    assert [step.cost_before for step in found.steps] == [step.cost for step in before.steps]


def test_waste_rows_are_those_of_costs_that_are_waste(priced: Priced) -> None:
    asked: dict[str, Any] = {
        "interval": TimeStep.DAY,
        "group_by": (Grouping.TIER, Grouping.TEAM),
        "filters": Filters(),
        "visibility": EVERYTHING,
    }
    every = rows(priced.window, **asked)
    found = rows(priced.window, waste=True, causes=WASTE, **asked)
    assert found == [row for row in every if row.cause in WASTE]


@pytest.mark.parametrize("group_by", [(), (Grouping.TIER,), (Grouping.TEAM, Grouping.CLUSTER)])
def test_waste_of_a_lead_has_none_of_the_platforms(
    priced: Priced, group_by: tuple[Grouping, ...]
) -> None:
    dan = visibility_of(priced.portal.dan)
    asked = CostQuery(priced.window, group_by=group_by, waste=True, causes=WASTE)
    own = [
        row
        for row in rows(priced.window, group_by=(Grouping.TEAM,))
        if row.groups["team"] == "speech" and row.cause in WASTE
    ]
    assert total(own)
    found = cost_rows(asked, visibility=dan)
    assert total(found) == total(own)
    page = cost_page(asked, visibility=dan, cursor=None, page_size=99)
    assert list(page.rows) == found
    (fall,) = waterfall(priced.window, visibility=dan)
    assert fall.wasted == total(own)
    assert fall.total == paid(rows(priced.window, **BY_TEAM), "speech")


def test_the_worst_workloads_come_first(priced: Priced) -> None:
    found = worst(priced.window, filters=Filters(), visibility=EVERYTHING, limit=3)
    for cause, workloads in found.items():
        costs = [workload.cost or 0 for workload in workloads]
        assert costs == sorted(costs, reverse=True)
        assert len(workloads) <= 3
        assert {workload.cause for workload in workloads} <= {cause}
    whole = rows(priced.window, group_by=(Grouping.CLUSTER, Grouping.NAMESPACE, Grouping.WORKLOAD))
    dearest = max(row.cost or 0 for row in whole if row.cause is Cause.UNDERUSED)
    assert (found[Cause.UNDERUSED][0].cost or 0) <= dearest


# ---------------------------------------------------------------- pages and queries


@pytest.mark.parametrize("size", [1, 7, 500])
@pytest.mark.parametrize("interval", list(TimeStep), ids=str)
def test_pages_joined_are_the_whole_list(priced: Priced, interval: TimeStep, size: int) -> None:
    by = (Grouping.TEAM,) if interval is TimeStep.HOUR else (Grouping.TEAM, GROUPS[0])
    # Half a day at each end: periods that the window holds in part.
    window = Window(priced.window.start + 30 * HOUR, priced.window.end - 11 * HOUR)
    asked = CostQuery(window, interval, by)
    for query in (asked, replace(asked, waste=True, causes=WASTE)):
        every = cost_rows(query, visibility=EVERYTHING)
        joined: list[CostRow] = []
        cursor = None
        while True:
            page = cost_page(query, cursor=cursor, page_size=size, visibility=EVERYTHING)
            joined.extend(page.rows)
            cursor = page.next_cursor
            if cursor is None:
                break
        assert joined == every


def test_a_cursor_of_another_list_is_refused(priced: Priced) -> None:
    asked = CostQuery(priced.window, TimeStep.DAY, (Grouping.TEAM,))
    read = partial(cost_page, page_size=3, visibility=EVERYTHING)
    page = read(asked, cursor=None)
    for cursor, query in (("x", asked), (page.next_cursor, replace(asked, waste=True))):
        with pytest.raises(CursorRefused):
            read(query, cursor=cursor)
    later = Window(priced.window.start - 9 * HOUR, priced.window.start - 5 * HOUR)
    assert read(replace(asked, window=later), cursor=page.next_cursor).rows == ()


@pytest.mark.parametrize(
    ("asked", "most"),
    [
        pytest.param({}, 5, id="all"),
        pytest.param({"group_by": (Grouping.TIER,), "interval": TimeStep.DAY}, 5, id="tiers"),
        pytest.param({**BY_TEAM, "interval": TimeStep.DAY}, 6, id="teams"),
        pytest.param({**BY_TEAM, "policy": Policy.USE}, 7, id="teams share"),
        pytest.param(
            {"group_by": (Grouping.NAMESPACE, Grouping.WORKLOAD), "policy": Policy.USE},
            10,
            id="workloads share",
        ),
        pytest.param({**BY_TEAM, "interval": TimeStep.HOUR}, 5, id="hours"),
    ],
)
def test_a_reading_takes_a_known_number_of_queries(
    priced: Priced,
    django_assert_max_num_queries: DjangoAssertNumQueries,
    asked: dict[str, Any],
    most: int,
) -> None:
    with django_assert_max_num_queries(most):
        rows(priced.window, **asked)


def test_money_is_never_a_float(priced: Priced) -> None:
    for row in rows(priced.window, **BY_TEAM):
        assert isinstance(row.cost, int)
        assert row.amount == money(row.cost)
        assert isinstance(row.price_per_gpu_hour, Decimal)
