"""The waste page: the waterfall, who wasted what, the worst workloads."""

import csv
import io
import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from html import unescape

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from apps.accounts.domain.structs import replace
from apps.accounts.models import User
from apps.accounts.permissions import EVERYTHING
from apps.costs.domain.costing import FREE_WASTE, WASTE, Cause, cents, money
from apps.costs.models import PricedHour
from apps.costs.services import price_hours, prune
from apps.usage.domain.usage_query import Grouping
from apps.usage.models import Day
from apps.web.components.figure_row import figure_row
from apps.web.costs import explorer
from apps.web.costs.comparison import PreviousCosts
from apps.web.costs.explorer import WindowCosts
from apps.web.costs.query import CAUSES
from tests.costs.portal import NOW, PRICES, Priced, make_price, make_priced, rows, waterfall
from tests.factories import A100, make_portal
from tests.web.pages import check_explained, file_of, text_of
from tests.web.shown import ShownCell, figures_of, tables_of
from tests.web.test_costs_page import DAYS, column, number
from tests.web.test_devices_page import words

pytestmark = pytest.mark.django_db

SignIn = Callable[[User], Client]
HELD_WASTE = tuple(cause for cause in WASTE if cause not in FREE_WASTE)


def wasted(priced: Priced) -> int:
    return sum(row.cost or 0 for row in rows(priced.window) if row.cause in WASTE)


def test_the_steps_add_up_to_the_capacity_to_the_cent(priced: Priced, finance: Client) -> None:
    page = text_of(finance, f"/costs/waste/?{DAYS}")
    (fall,) = waterfall(priced.window, visibility=EVERYTHING)
    *steps, last = column(page, "fall", "Cost")
    assert len(steps) == 7
    assert sum(map(number, steps)) == number(last) == cents([fall.total])[0]
    assert f'"waterfall-cost">${number(last):,.0f}</span>' in page


def amount(cell: ShownCell) -> Decimal:
    """Return what a cell of money is in full: its title, where the text is short."""
    return number((cell.title or cell.text).split(" ")[0])


@pytest.mark.parametrize(
    ("query", "table", "causes"),
    [
        ("by=tier", "unused", HELD_WASTE),
        ("by=team", "unused", HELD_WASTE),
        ("by=none", "unused", HELD_WASTE),
        ("tab=platform", "platform", FREE_WASTE),
        ("by=gpu_model&tab=platform", "platform", FREE_WASTE),
    ],
)
def test_waste_by_group_adds_up_both_ways(
    query: str, table: str, causes: tuple[Cause, ...], priced: Priced, finance: Client
) -> None:
    page = text_of(finance, f"/costs/waste/?{DAYS}&{query}")
    head, *lines = tables_of(page)[table].rows
    labels = [cell.text.removesuffix(" USD") for cell in head]
    whole_at = labels.index(table.capitalize())
    cause_at = [labels.index(CAUSES[cause].label) for cause in causes]
    for line in lines:
        assert sum(amount(line[at]) for at in cause_at) == amount(line[whole_at])
    of = money(sum(row.cost or 0 for row in rows(priced.window) if row.cause in causes))
    *groups, last = lines if len(lines) > 1 else [*lines, *lines]
    for at in (whole_at, *cause_at):
        assert sum(amount(line[at]) for line in groups) == amount(last[at])
        for line in lines:
            assert number(line[at].text) == round(amount(line[at]))
    assert amount(last[whole_at]) == of
    steps = {line[0].text: line[3] for line in tables_of(page)["fall"].rows[1:]}
    for at in cause_at:
        assert amount(last[at]) == amount(steps[labels[at]]), labels[at]


def test_platform_cost_never_enters_the_waste_of_a_team(finance: Client) -> None:
    page = text_of(finance, f"/costs/waste/?{DAYS}")
    table = tables_of(page)["unused"]
    assert not {"(nobody)", "(platform)"} & {line[0].text for line in table.rows}
    heads = {cell.text.removesuffix(" USD") for cell in table.rows[0]}
    assert not heads & {"Unallocated", "Unavailable"}


def test_every_waste_is_explained_by_its_gpu_hours_and_prices(finance: Client) -> None:
    assert check_explained(finance, f"/costs/waste/?{DAYS}") >= {
        "waste_cost",
        "idle_cost",
        "busy_cost",
    }
    assert check_explained(finance, f"/costs/waste/?{DAYS}&tab=platform") >= {"unallocated_cost"}


def test_the_file_has_the_same_waste(priced: Priced, finance: Client) -> None:
    text = file_of(finance.get(f"/costs/waste/file?{DAYS}&format=csv"))
    records = list(csv.DictReader(io.StringIO(text, newline="")))
    assert {row["cause"] for row in records} <= {cause.value for cause in WASTE}
    assert sum(Decimal(row["cost"] or 0) for row in records) == money(wasted(priced))


def test_the_worst_workloads_lead_to_their_pods(finance: Client) -> None:
    page = text_of(finance, f"/costs/waste/?{DAYS}&tab=workloads")
    assert column(page, "worst", "Workload")
    costs = [float(text) for text in column(page, "worst", "Cost")]
    assert costs == sorted(costs, reverse=True)
    assert (
        "/workloads/west/vision/Job/train/?first=2026-10-30&amp;last=2026-10-31&amp;tab=pods"
        in page
    )


def test_nobody_sees_the_waste_of_other_teams(priced: Priced, signed_in: SignIn) -> None:
    dan = signed_in(priced.portal.dan)
    for tab, table in (("groups", "unused"), ("workloads", "worst"), ("lines", "lines")):
        page = text_of(dan, f"/costs/waste/?{DAYS}&tab={tab}")
        shown = " ".join(cell.text for row in tables_of(page)[table].rows for cell in row)
        for hidden in ("vision", "Job/train", "stray", "unassigned"):
            assert hidden not in shown
    assert "tab=platform" not in page
    assert "platform" not in tables_of(text_of(dan, f"/costs/waste/?{DAYS}&tab=platform"))


def test_waste_without_a_price_is_told(signed_in: SignIn) -> None:
    priced = make_priced(prices=[price for price in PRICES if price[0] != A100])
    client = signed_in(priced.portal.finn)
    page = text_of(client, f"/costs/waste/?{DAYS}&by=tier")
    assert "<b>Unpriced:</b>" in page
    steps = dict(zip(column(page, "fall", "Cause"), column(page, "fall", "Cost"), strict=True))
    assert steps["Unavailable"] == "unpriced", "all of it is on cards without a price"
    assert steps["Idle"] == "0.00", "there was none of it"
    tiers = {line[0].text: line for line in tables_of(page)["unused"].rows}
    shown = [
        cell.text
        for head, cell in zip(tiers["Tier"], tiers["silver"], strict=True)
        if head.text.endswith("USD")
    ]
    assert shown == ["unpriced"] * 5 + ["–"], "also where there was none of it"
    check_explained(client, f"/costs/waste/?{DAYS}&by=tier")
    unused = sum(row.cost or 0 for row in rows(priced.window) if row.cause in HELD_WASTE)
    assert amount(tiers["gold"][2]) == amount(tiers["Total"][2]) == money(unused)


def test_a_portal_without_facts_has_the_page(signed_in: SignIn) -> None:
    page = text_of(signed_in(make_portal().finn), "/costs/waste/")
    assert "No hour has a price yet" in page


def test_the_page_takes_few_queries(
    finance: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_max_num_queries(23):
        text_of(finance, f"/costs/waste/?{DAYS}")


def test_hours_that_are_not_priced_yet_are_told(priced: Priced, finance: Client) -> None:
    assert "Not all is priced" not in text_of(finance, f"/costs/waste/?{DAYS}")
    PricedHour.objects.filter(cluster=priced.portal.clusters[0]).delete()
    for path in ("/costs/waste/", "/costs/"):
        page = text_of(finance, f"{path}?{DAYS}")
        assert "48 collected hours of west in this window are not priced yet" in page
        assert "Charged, at least" in page


def test_a_lead_sees_the_waste_of_their_teams_alone(priced: Priced, signed_in: SignIn) -> None:
    ada = signed_in(priced.portal.ada)
    page = text_of(ada, f"/costs/waste/?{DAYS}")
    steps = dict(zip(column(page, "fall", "Cause"), column(page, "fall", "Cost"), strict=True))
    assert not {"Unallocated", "Unavailable"} & steps.keys(), "hidden, and not 0"
    figures = figures_of(page)
    assert "Platform" not in figures
    assert not any("platform" in text for text in figures.values())
    whole = next(text for name, text in figures.items() if name.startswith("Total, my teams"))
    assert whole.split()[0] == figures["Charged"].split()[0]
    # What the platform pays is open to all: the costs have it, with the same unused cost.
    costs = figures_of(text_of(ada, f"/costs/?{DAYS}"))
    assert not costs["Platform"].startswith("$0 ")
    assert costs["Unused (teams)"] == figures["Unused (teams)"]
    assert column(page, "unused", "Team") == ["vision"]
    text = file_of(ada.get(f"/costs/waste/file?{DAYS}&format=csv"))
    assert {row["team"] for row in csv.DictReader(io.StringIO(text, newline=""))} == {"vision"}


@pytest.mark.parametrize("platform", [True, False])
def test_a_window_that_has_everything_rare_has_room_for_its_figures(
    priced: Priced, platform: bool
) -> None:
    some = rows(priced.window, group_by=(Grouping.TEAM,))
    one = next(row for row in some if row.cost)
    every = [*(replace(one, cause=cause) for cause in Cause), replace(one, correction=True)]
    costs = WindowCosts(every, PreviousCosts(), "USD", {"USD": every}, platform)
    labels = [figure.label for figure in figure_row(*explorer.figures_of(costs, "USD", [])).figures]
    # What the waterfall does not have comes first.
    assert {"Corrections", "Energy"} <= set(labels)
    assert ("Planned outage" in labels) is not platform


def test_waste_is_not_compared_with_a_period_of_few_hours(priced: Priced, finance: Client) -> None:
    alone = text_of(finance, f"/costs/waste/?{DAYS}")
    assert "No comparison: only 0 of 48 hours of the previous 2 days have data." in alone
    second = "first=2026-10-31&last=2026-10-31"
    assert "No comparison" not in text_of(finance, f"/costs/waste/?{second}")
    PricedHour.objects.filter(hour__lt=priced.window.start + timedelta(hours=20)).delete()
    said = "No comparison: only 4 of 24 hours of the previous day have data and were priced."
    for path in ("/costs/waste/", "/costs/"):
        assert said in text_of(finance, f"{path}?{second}")


def test_the_worst_workloads_of_hours_that_are_kept_no_longer_are_refused_with_the_reason(
    priced: Priced, finance: Client
) -> None:
    Day.objects.update(pruned=True)
    prune()
    asked = "start=2026-10-30T05:00&end=2026-10-31T05:00"
    page = text_of(finance, f"/costs/waste/?{asked}&tab=workloads")
    assert "is kept by whole days alone" in page
    assert "Cost breakdown" in page


def test_energy_is_told_on_top_of_the_capacity(signed_in: SignIn) -> None:
    priced = make_priced(prices=())
    make_price(A100, "on-demand", "1", per_kwh=Decimal("30"))
    price_hours(now=NOW)
    finance = signed_in(priced.portal.finn)
    page = text_of(finance, f"/costs/waste/?{DAYS}")
    (fall,) = waterfall(priced.window, visibility=EVERYTHING)
    assert "Energy adds $3." in words(page)
    (link,) = re.findall(r'href="(/explain/cost/[^"]+)" title="2.88 USD">\$3</a>', page)
    assert "2.88 USD" in text_of(finance, unescape(link))
    assert f'title="{cents([fall.total + fall.energy])[0]} USD"' in page
    explorer = text_of(finance, f"/costs/?{DAYS}&by=none&tab=lines")
    assert "Energy" in column(explorer, "lines", "Cause")
