"""The waste page: the waterfall, who wasted what, the worst workloads."""

import csv
import io
from collections.abc import Callable
from decimal import Decimal

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from apps.accounts.models import User
from apps.accounts.permissions import EVERYTHING
from apps.costs.domain.costing import WASTE
from apps.costs.domain.money import cents, money
from apps.costs.selectors import waterfall
from tests.costs.portal import PRICES, Priced, make_priced, rows
from tests.factories import A100, make_portal
from tests.web.pages import file_of, text_of
from tests.web.shown import tables_of
from tests.web.test_costs_page import DAYS, column, number

pytestmark = pytest.mark.django_db

SignIn = Callable[[User], Client]


@pytest.fixture
def priced() -> Priced:
    return make_priced()


@pytest.fixture
def finance(priced: Priced, signed_in: SignIn) -> Client:
    return signed_in(priced.portal.finn)


def wasted(priced: Priced) -> int:
    return sum(row.cost or 0 for row in rows(priced.window) if row.cause in WASTE)


def test_the_steps_add_up_to_the_capacity_to_the_cent(priced: Priced, finance: Client) -> None:
    page = text_of(finance, f"/waste/?{DAYS}")
    (fall,) = waterfall(priced.window, visibility=EVERYTHING)
    *steps, last = column(page, "fall", "Cost")
    assert len(steps) == 7
    assert sum(map(number, steps)) == number(last) == cents([fall.total])[0]
    assert f"<b>{last} USD</b>" in page


@pytest.mark.parametrize("by", ["tier", "team"])
def test_waste_by_group_adds_up_both_ways(by: str, priced: Priced, finance: Client) -> None:
    page = text_of(finance, f"/waste/?{DAYS}")
    head, *lines, last = tables_of(page)[f"waste-{by}"].rows
    assert head[1].text.startswith("Waste")
    for line in (*lines, last):
        whole, *causes = (number(cell.text) for cell in line[1:7])
        assert sum(causes) == whole
    assert sum(number(line[1].text) for line in lines) == number(last[1].text)
    assert number(last[1].text) == cents([wasted(priced)])[0]


def test_the_file_has_the_same_waste(priced: Priced, finance: Client) -> None:
    text = file_of(finance.get(f"/waste/file?{DAYS}&format=csv"))
    records = list(csv.DictReader(io.StringIO(text, newline="")))
    assert {row["cause"] for row in records} <= {cause.value for cause in WASTE}
    assert sum(Decimal(row["cost"] or 0) for row in records) == money(wasted(priced))


def test_the_worst_workloads_lead_to_their_pods(finance: Client) -> None:
    page = text_of(finance, f"/waste/?{DAYS}")
    assert column(page, "worst", "Workload")
    assert "/workloads/west/vision/Job/train/?first=2026-10-30&amp;last=2026-10-31#pods" in page


def test_nobody_sees_the_waste_of_other_teams(priced: Priced, signed_in: SignIn) -> None:
    page = text_of(signed_in(priced.portal.dan), f"/waste/?{DAYS}")
    for table in ("waste-team", "worst"):
        shown = " ".join(cell.text for row in tables_of(page)[table].rows for cell in row)
        for hidden in ("vision", "Job/train", "stray", "unassigned"):
            assert hidden not in shown
    assert "that of other teams is left out" in page


def test_waste_without_a_price_is_told(signed_in: SignIn) -> None:
    priced = make_priced(prices=[price for price in PRICES if price[0] != A100])
    page = text_of(signed_in(priced.portal.finn), f"/waste/?{DAYS}")
    assert "<b>Unpriced:</b>" in page
    steps = dict(zip(column(page, "fall", "Cause"), column(page, "fall", "Cost"), strict=True))
    assert steps["Unhealthy"] == "unpriced", "all of it is on cards without a price"
    assert steps["Idle"] == "0.00", "there was none of it"
    tiers = dict(
        zip(column(page, "waste-tier", "Tier"), column(page, "waste-tier", "Waste"), strict=True)
    )
    assert tiers["silver"] == "unpriced"
    assert tiers["gold"] == tiers["Total"] == f"{cents([wasted(priced)])[0]:,}"


def test_a_portal_without_facts_has_the_page(signed_in: SignIn) -> None:
    page = text_of(signed_in(make_portal().finn), "/waste/")
    assert "No hour has a price yet" in page


def test_the_page_takes_few_queries(
    finance: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_max_num_queries(48):
        text_of(finance, f"/waste/?{DAYS}")
