"""The waste page: the waterfall, who wasted what, the worst workloads."""

import csv
import io
import re
from collections.abc import Callable
from copy import deepcopy
from datetime import timedelta
from decimal import Decimal
from html import unescape

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from apps.accounts.models import User
from apps.accounts.permissions import EVERYTHING
from apps.costs.domain.costing import WASTE, cents, money
from apps.costs.models import PricedHour
from apps.costs.selectors import waterfall
from apps.costs.services import price_hours, prune
from apps.usage.models import Day
from tests.costs.portal import NOW, PRICES, Priced, make_price, make_priced, rows
from tests.factories import A100, make_portal
from tests.web.pages import check_explained, file_of, text_of
from tests.web.shown import tables_of
from tests.web.test_costs_page import DAYS, column, number
from tests.web.test_devices_page import words
from tests.worlds import shared

pytestmark = pytest.mark.django_db

SignIn = Callable[[User], Client]


_priced = shared(make_priced)


@pytest.fixture
def priced(_priced: Priced) -> Priced:
    return deepcopy(_priced)


@pytest.fixture
def finance(priced: Priced, signed_in: SignIn) -> Client:
    return signed_in(priced.portal.finn)


def wasted(priced: Priced) -> int:
    return sum(row.cost or 0 for row in rows(priced.window) if row.cause in WASTE)


def test_the_steps_add_up_to_the_capacity_to_the_cent(priced: Priced, finance: Client) -> None:
    page = text_of(finance, f"/costs/waste/?{DAYS}")
    (fall,) = waterfall(priced.window, visibility=EVERYTHING)
    *steps, last = column(page, "fall", "Cost")
    assert len(steps) == 7
    assert sum(map(number, steps)) == number(last) == cents([fall.total])[0]
    assert f"<b>{last} USD</b>" in page


@pytest.mark.parametrize("by", ["tier", "team"])
def test_waste_by_group_adds_up_both_ways(by: str, priced: Priced, finance: Client) -> None:
    page = text_of(finance, f"/costs/waste/?{DAYS}")
    head, *lines, last = tables_of(page)[f"waste-{by}"].rows
    assert head[1].text.startswith("Waste")
    for line in (*lines, last):
        whole, *causes = (number(cell.text) for cell in line[1:7])
        assert sum(causes) == whole
    assert sum(number(line[1].text) for line in lines) == number(last[1].text)
    assert f"{last[1].text} USD</a></b> of it" in page
    steps = dict(zip(column(page, "fall", "Cause"), column(page, "fall", "Cost"), strict=True))
    for place, cell in enumerate(head[2:7], start=2):
        assert last[place].text == steps[cell.text.removesuffix(" USD")], cell.text


def test_every_waste_is_explained_by_its_gpu_hours_and_prices(finance: Client) -> None:
    assert check_explained(finance, f"/costs/waste/?{DAYS}") >= {
        "waste_cost",
        "idle_cost",
        "busy_cost",
    }


def test_the_file_has_the_same_waste(priced: Priced, finance: Client) -> None:
    text = file_of(finance.get(f"/costs/waste/file?{DAYS}&format=csv"))
    records = list(csv.DictReader(io.StringIO(text, newline="")))
    assert {row["cause"] for row in records} <= {cause.value for cause in WASTE}
    assert sum(Decimal(row["cost"] or 0) for row in records) == money(wasted(priced))


def test_the_worst_workloads_lead_to_their_pods(finance: Client) -> None:
    page = text_of(finance, f"/costs/waste/?{DAYS}")
    assert column(page, "worst", "Workload")
    assert (
        "/workloads/west/vision/Job/train/?first=2026-10-30&amp;last=2026-10-31&amp;tab=pods"
        in page
    )


def test_nobody_sees_the_waste_of_other_teams(priced: Priced, signed_in: SignIn) -> None:
    page = text_of(signed_in(priced.portal.dan), f"/costs/waste/?{DAYS}")
    for table in ("waste-team", "worst"):
        shown = " ".join(cell.text for row in tables_of(page)[table].rows for cell in row)
        for hidden in ("vision", "Job/train", "stray", "unassigned"):
            assert hidden not in shown
    assert "Unallocated capacity belongs to the platform" in page


def test_waste_without_a_price_is_told(signed_in: SignIn) -> None:
    priced = make_priced(prices=[price for price in PRICES if price[0] != A100])
    client = signed_in(priced.portal.finn)
    page = text_of(client, f"/costs/waste/?{DAYS}")
    assert "<b>Unpriced:</b>" in page
    steps = dict(zip(column(page, "fall", "Cause"), column(page, "fall", "Cost"), strict=True))
    assert steps["Unavailable"] == "unpriced", "all of it is on cards without a price"
    assert steps["Idle"] == "0.00", "there was none of it"
    tiers = dict(
        zip(column(page, "waste-tier", "Tier"), column(page, "waste-tier", "Waste"), strict=True)
    )
    assert tiers["silver"] == "unpriced"
    table = tables_of(page)["waste-tier"]
    (silver,) = (line for line in table.rows if line[0].text == "silver")
    assert {cell.text for cell in silver[1:7]} == {"unpriced"}, "also where there was none of it"
    check_explained(client, f"/costs/waste/?{DAYS}")
    assert tiers["gold"] == tiers["Total"] == f"{cents([wasted(priced)])[0]:,}"


def test_a_portal_without_facts_has_the_page(signed_in: SignIn) -> None:
    page = text_of(signed_in(make_portal().finn), "/costs/waste/")
    assert "No hour has a price yet" in page


def test_the_page_takes_few_queries(
    finance: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_max_num_queries(48):
        text_of(finance, f"/costs/waste/?{DAYS}")


def test_hours_that_are_not_priced_yet_are_told(priced: Priced, finance: Client) -> None:
    assert "Not all is priced" not in text_of(finance, f"/costs/waste/?{DAYS}")
    PricedHour.objects.filter(cluster=priced.portal.clusters[0]).delete()
    for path in ("/costs/waste/", "/costs/"):
        page = text_of(finance, f"{path}?{DAYS}")
        assert "48 collected hours of west in this window are not priced yet" in page
    assert "All capacity costs at least" in text_of(finance, f"/costs/waste/?{DAYS}")
    assert "Charged, at least" in text_of(finance, f"/costs/?{DAYS}")


def test_a_lead_sees_the_waste_of_their_teams_alone(priced: Priced, signed_in: SignIn) -> None:
    ada = signed_in(priced.portal.ada)
    page = text_of(ada, f"/costs/waste/?{DAYS}")
    assert "The GPUs that your teams held cost" in page
    assert "All capacity costs" not in page
    steps = dict(zip(column(page, "fall", "Cause"), column(page, "fall", "Cost"), strict=True))
    assert steps["Unallocated"] == steps["Unavailable"] == "0.00"
    assert column(page, "waste-team", "Team") == ["vision"]
    text = file_of(ada.get(f"/costs/waste/file?{DAYS}&format=csv"))
    assert {row["team"] for row in csv.DictReader(io.StringIO(text, newline=""))} == {"vision"}


def test_waste_is_not_compared_with_a_period_of_few_hours(priced: Priced, finance: Client) -> None:
    alone = text_of(finance, f"/costs/waste/?{DAYS}")
    assert "No comparison: only 0 of 48 hours of the 2 days before have facts." in alone
    second = "first=2026-10-31&last=2026-10-31"
    assert "No comparison" not in text_of(finance, f"/costs/waste/?{second}")
    PricedHour.objects.filter(hour__lt=priced.window.start + timedelta(hours=20)).delete()
    said = "No comparison: only 4 of 24 hours of the day before have facts and were priced."
    for path in ("/costs/waste/", "/costs/"):
        assert said in text_of(finance, f"{path}?{second}")


def test_the_worst_workloads_of_hours_that_are_kept_no_longer_are_refused_with_the_reason(
    priced: Priced, finance: Client
) -> None:
    Day.objects.update(pruned=True)
    prune()
    page = text_of(finance, "/costs/waste/?start=2026-10-30T05:00&end=2026-10-31T05:00")
    assert "is kept by whole days alone" in page
    assert "All capacity costs" in page


def test_energy_is_told_on_top_of_the_capacity(signed_in: SignIn) -> None:
    priced = make_priced(prices=())
    make_price(A100, "on-demand", "1", per_kwh=Decimal("30"))
    price_hours(now=NOW)
    finance = signed_in(priced.portal.finn)
    page = text_of(finance, f"/costs/waste/?{DAYS}")
    (fall,) = waterfall(priced.window, visibility=EVERYTHING)
    assert "Measured energy costs 2.88 USD on top" in words(page)
    (link,) = re.findall(r'href="(/explain/energy_cost/[^"]+)">2.88</a>', page)
    assert "2.88 USD" in text_of(finance, unescape(link))
    assert f"{cents([fall.total + fall.energy])[0]} USD in all" in page
    explorer = text_of(finance, f"/costs/?{DAYS}&by=none&tab=lines")
    assert "Energy" in column(explorer, "lines", "Cause")
