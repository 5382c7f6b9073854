"""What figures rest on is told with them: hours that are not priced are never silently missing."""

from datetime import date, datetime, timedelta
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import EVERYTHING
from apps.costs.domain.costing import Basis, Policy
from apps.costs.models import Adjustment, Price, PricedHour
from apps.costs.selectors import CostQuery, month_window, not_priced, price_book, terms
from apps.costs.services import close_period, price_hours
from apps.usage.domain.usage_query import Filters, Grouping, TimeStep
from apps.usage.models import CollectionWindow
from tests.costs.portal import NOW, PRICES, Priced, make_price, make_priced, rows, total
from tests.factories import A100, H100
from tests.shared_rows import copy_of, shared

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


_priced = shared(lambda: make_priced(1))
priced = copy_of("_priced")


def question(priced: Priced, **asked: Any) -> CostQuery:
    return CostQuery(priced.window, TimeStep.DAY, (Grouping.TEAM,), Filters(), **asked)


def missing(priced: Priced, **filters: Any) -> list[tuple[str, int, int, datetime]]:
    found = not_priced(priced.window, filters=Filters(**filters), visibility=EVERYTHING)
    return [(one.cluster, one.hours, one.outdated, one.first) for one in found]


def test_hours_that_are_collected_and_not_priced_are_told_by_cluster(priced: Priced) -> None:
    assert missing(priced) == []
    start = priced.window.start
    west, east = priced.portal.clusters
    PricedHour.objects.filter(cluster=west, hour__gte=start + 20 * HOUR).delete()
    CollectionWindow.objects.filter(cluster=east, hour=start + HOUR).update(collected_at=NOW)
    assert missing(priced) == [
        ("east", 0, 1, start + HOUR),
        ("west", 4, 0, start + 20 * HOUR),
    ]
    assert missing(priced, cluster=("east",)) == [("east", 0, 1, start + HOUR)]
    found = terms(question(priced), visibility=EVERYTHING)
    assert found.at_least
    price_hours(now=NOW)
    assert missing(priced) == []
    assert not terms(question(priced), visibility=EVERYTHING).at_least


def test_terms_say_all_that_figures_rest_on(
    priced: Priced, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_max_num_queries(8):
        found = terms(question(priced, basis=Basis.USED, policy=Policy.USE), visibility=EVERYTHING)
    assert (found.basis, found.policy, found.time_zone) == ("used", "use", "Europe/Berlin")
    assert (found.currencies, found.coverage_ratio) == (("USD",), 1.0)
    assert (found.unpriced_gpu_hours, found.at_least) == (0.0, False)


def test_without_a_price_sums_are_lower_bounds() -> None:
    priced = make_priced(1, prices=PRICES[1:])
    found = terms(question(priced), visibility=EVERYTHING)
    assert (found.unpriced_gpu_hours, found.at_least) == (24 * 8.0, True)


def test_corrections_are_in_the_sum_of_every_interval(priced: Priced) -> None:
    close_period(date(2026, 10, 1), by="finn", now=NOW, forced="a part of it")
    Price.objects.filter(gpu_model=H100).update(per_gpu_hour=7)
    price_hours(now=NOW)
    november = month_window(date(2026, 11, 1), priced.portal.zone)
    whole = total(rows(november))
    assert whole
    for interval in TimeStep:
        assert total(rows(november, interval=interval)) == whole
    (booked,) = set(Adjustment.objects.values_list("booked_on", flat=True))
    by_hour = [row for row in rows(november, interval=TimeStep.HOUR) if row.correction]
    assert {row.period.isoformat() for row in by_hour if row.period} == {f"{booked}T00:00:00+01:00"}


def test_a_split_of_the_window_has_each_correction_once(priced: Priced) -> None:
    close_period(date(2026, 10, 1), by="finn", now=NOW, forced="a part of it")
    Price.objects.filter(gpu_model=H100).update(per_gpu_hour=7)
    price_hours(now=NOW)
    november = month_window(date(2026, 11, 1), priced.portal.zone)
    cut = november.start + 37 * HOUR
    halves = [type(november)(november.start, cut), type(november)(cut, november.end)]
    assert sum(total(rows(half)) for half in halves) == total(rows(november))


# ---------------------------------------------------------------- prices are looked up in one way


@pytest.mark.parametrize(
    ("kind", "tier", "expected"),
    [
        pytest.param("unknown", "", "1.5", id="owned stands for unknown"),
        pytest.param("unknown", "gold", "9", id="that of the tier goes before"),
        pytest.param("on-demand", "gold", "3", id="the kind itself"),
        pytest.param("spot", "gold", None, id="nothing stands for spot"),
    ],
)
def test_the_prices_of_a_moment_are_looked_up_as_those_of_the_book(
    kind: str, tier: str, expected: str | None
) -> None:
    priced = make_priced(1, prices=())
    gold, _ = priced.portal.tiers
    make_price(A100, "owned", "1.5")
    make_price(A100, "on-demand", "2")
    make_price(A100, "on-demand", "3", valid_from=priced.window.start)
    make_price(A100, "owned", "9", tier=gold)
    found = [
        book.price(cluster="west", tier=tier, gpu_model=A100, capacity_type=kind, at=NOW)
        for book in (price_book(NOW), price_book())
    ]
    amounts = [None if one is None else str(one.per_gpu_hour.normalize()) for one in found]
    assert amounts == [expected, expected]
