"""The cost explorer: figures that add up to the cent, what has no price, and whose money."""

import csv
import io
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from html import unescape
from typing import Any

import pytest
from django.db.models import F
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from apps.accounts.models import User
from apps.costs.domain.costing import cents, money
from apps.costs.models import ClosedPeriod, Price
from apps.costs.selectors.prices import price_book
from apps.costs.services import price_hours
from apps.usage.models import CollectionWindow, PodHour, TeamDay, TeamHour, TierDay, TierHour
from tests.costs.portal import CHARGINGS, NOW, PRICES, Priced, make_price, make_priced, rows, total
from tests.factories import A100, make_portal
from tests.thinned import thinned
from tests.web.pages import check_explained, file_of, records_of, table_links, text_of
from tests.web.shown import tables_of
from tests.web.test_files import matches

pytestmark = pytest.mark.django_db

SignIn = Callable[[User], Client]
DAYS = "first=2026-10-30&last=2026-10-31"


def number(text: str) -> Decimal:
    return Decimal(text.replace(",", ""))


def column(page: str, table: str, name: str) -> list[str]:
    """Return the texts of a column, its total left out."""
    head, *lines = tables_of(page)[table].rows
    place = next(at for at, cell in enumerate(head) if cell.text.startswith(name))
    return [line[place].text for line in lines]


def exact(page: str, table: str, name: str) -> list[Decimal]:
    """Return the amounts of a column in full, its total last."""
    head, *lines = tables_of(page)[table].rows
    place = next(at for at, cell in enumerate(head) if cell.text.startswith(name))
    return [number((line[place].title or line[place].text).split(" ")[0]) for line in lines]


@pytest.mark.parametrize(
    ("charging", "by"),
    thinned(CHARGINGS, ["team", "tier", "workload", "gpu_model", "capacity_type"]),
)
def test_every_grouping_and_charging_adds_up_to_the_capacity_to_the_cent(
    charging: tuple[str, str], by: str, priced: Priced, finance: Client
) -> None:
    basis, policy = charging
    page = text_of(finance, f"/costs/?{DAYS}&by={by}&basis={basis}&policy={policy}")
    (whole,) = cents([total(rows(priced.window))])
    *shown, last = exact(page, "costs", "Cost")
    assert sum(shown) == last == money(total(rows(priced.window)))
    printed = column(page, "costs", "Cost")
    assert [number(text) for text in printed] == [round(amount) for amount in (*shown, last)]
    asked = f"/costs/?{DAYS}&by={by}&basis={basis}&tab=lines"
    lines = text_of(finance, f"{asked}&policy={policy}&per_page=100")
    assert sum(number(text) for text in column(lines, "lines", "Cost")) == whole
    records = records_of(finance, f"{asked}&format=csv&table=lines")
    assert sum(Decimal(row["cost"]) for row in records) == money(total(rows(priced.window)))


@pytest.mark.parametrize("query", ["by=team", "by=tier&basis=used", "by=workload&policy=use"])
def test_every_cost_is_explained_by_its_gpu_hours_and_prices(query: str, finance: Client) -> None:
    assert check_explained(finance, f"/costs/?{DAYS}&{query}") == {
        *("cost", "cost_share", "cost_per_gpu_hour")
    }


def test_costs_are_sorted_as_asked_and_add_up_all_the_same(finance: Client) -> None:
    page = text_of(finance, f"/costs/?{DAYS}&by=team&sort=cost")
    *shown, last = exact(page, "costs", "Cost")
    assert shown == sorted(shown)
    assert sum(shown) == last


@pytest.mark.parametrize(
    "path", ["/costs/", "/costs/?tab=lines", "/costs/waste/", "/costs/exports/?tab=adjustments"]
)
def test_every_table_downloads_as_exactly_what_is_shown(path: str, finance: Client) -> None:
    page = text_of(finance, f"{path}&{DAYS}" if "?" in path else f"{path}?{DAYS}")
    shown = tables_of(page)
    for link, table in zip(table_links(page), shown.values(), strict=True):
        records = list(csv.reader(io.StringIO(file_of(finance.get(link)), newline="")))
        for record, row in zip(records[1:], table.rows[1:], strict=True):
            told = dict(zip(records[0], record, strict=True))
            # As long as all else of a line: in its file alone.
            told.pop("price_source", None)
            for (key, value), cell in zip(told.items(), row, strict=True):
                assert cell.text == "unpriced" or matches(cell, key, value), (table.id, key)


@pytest.mark.parametrize("format_", ["csv", "xlsx", "parquet", "focus-csv", "focus-parquet"])
def test_files_of_every_format_are_had_from_the_page(format_: str, finance: Client) -> None:
    page = unescape(text_of(finance, f"/costs/?{DAYS}&by=tier&policy=use&tab=files"))
    link = f"/costs/file?first=2026-10-30&last=2026-10-31&by=tier&policy=use&format={format_}"
    assert f'href="{link}"' in page
    response: Any = finance.get(link)
    content = response.getvalue()
    assert response.status_code == 200
    assert content
    for part in ("2026-10-29T2300Z", "Europe-Berlin", "USD", "allocated", "use", "prices-"):
        assert part in response["Content-Disposition"]


def test_a_csv_file_sums_to_the_page_and_says_how_to_read_it(
    priced: Priced, finance: Client
) -> None:
    text = file_of(finance.get(f"/costs/file?{DAYS}&by=team&format=csv"))
    records = list(csv.DictReader(io.StringIO(text, newline="")))
    assert sum(Decimal(row["cost"]) for row in records) == money(total(rows(priced.window)))
    assert {row["time_zone"] for row in records} == {"Europe/Berlin"}
    assert {row["unallocated_policy"] for row in records} == {"platform"}
    assert all(row["price_book_version"] for row in records)


@pytest.mark.parametrize("by", ["gpu_model", "team", "tier"])
@pytest.mark.parametrize("path", ["/costs/", "/costs/waste/"])
def test_each_line_item_names_the_prices_that_it_has(by: str, path: str, finance: Client) -> None:
    asked = f"{path}?{DAYS}&by={by}&tab=lines"
    records = records_of(finance, f"{asked}&format=csv&table=lines")
    known = {entry.reference for entry in price_book().entries}
    named: set[str] = set()
    for row in records:
        sources = set(filter(None, row["price_source"].split("; ")))
        assert sources <= known
        assert bool(sources) == bool(row["cost"]), "each price has a source, and nothing else"
        if by == "gpu_model":
            assert all(f" price of {row['gpu_model']}, " in text for text in sources)
        named |= sources
    assert named == known


def test_a_price_that_was_taken_out_of_the_book_is_no_source(signed_in: SignIn) -> None:
    priced = make_priced()
    Price.objects.filter(gpu_model=A100).delete()
    asked = f"/costs/?{DAYS}&by=gpu_model&tab=lines&format=csv&table=lines"
    records = records_of(signed_in(priced.portal.finn), asked)
    assert {bool(row["price_source"]) for row in records if row["gpu_model"] == A100} == {False}
    assert {bool(row["price_source"]) for row in records if row["gpu_model"] != A100} == {True}


def test_hours_without_a_price_are_a_line_of_their_own_and_no_zero(signed_in: SignIn) -> None:
    priced = make_priced(prices=[price for price in PRICES if price[0] != A100])
    page = text_of(signed_in(priced.portal.finn), f"/costs/?{DAYS}&by=gpu_model")
    assert "<b>Unpriced:</b>" in page
    shown = dict(
        zip(column(page, "costs", "GPU model"), column(page, "costs", "Cost"), strict=True)
    )
    assert shown[A100] == "unpriced"
    lines = text_of(signed_in(priced.portal.finn), f"/costs/?{DAYS}&by=gpu_model&tab=lines")
    assert "unpriced" in column(lines, "lines", "Note")


def test_terms_are_on_the_page(finance: Client) -> None:
    page = text_of(finance, f"/costs/?{DAYS}&basis=used&policy=entitlement")
    assert "and those without metrics" in page
    assert "Unallocated cost is apportioned by entitlement." in page
    assert "Price book <code>" in page
    assert re.search(r"Priced up to <time[^>]*>1 Nov( 2026)? 00:00</time>", page)


def test_the_period_before_is_held_beside(signed_in: SignIn) -> None:
    priced = make_priced(4)
    client = signed_in(priced.portal.finn)
    page = text_of(client, "/costs/?first=2026-11-01&last=2026-11-02&by=tier")
    assert "Compared with the previous 2 days." in page
    before = exact(page, "costs", "Previous")
    assert sum(before[:-1]) == before[-1] > 0
    assert "cost" in check_explained(client, "/costs/?first=2026-11-01&last=2026-11-02&by=tier")
    alone = text_of(client, "/costs/?first=2026-11-01&last=2026-11-02&by=tier&compare=no")
    assert "Compared with" not in alone
    gone = text_of(client, "/costs/?first=2026-10-30&last=2026-10-31&by=tier")
    assert "No comparison: only 0 of 48 hours of the previous 2 days have data." in gone


def test_costs_are_compared_with_a_period_that_is_known_alone(signed_in: SignIn) -> None:
    priced = make_priced(4)
    client = signed_in(priced.portal.finn)
    days = "first=2026-11-01&last=2026-11-02"
    hours = CollectionWindow.objects.order_by("hour", "pk")
    first = hours.values_list("hour", flat=True)[0]
    hours.filter(hour__lt=first + timedelta(hours=2)).delete()
    page = text_of(client, f"/costs/?{days}")
    assert "Compared with the previous 2 days." in page, "two hours of 48 make little difference"
    hours.filter(hour__lt=first + timedelta(hours=24)).delete()
    for path in ("/costs/", "/costs/waste/"):
        page = text_of(client, f"{path}?{days}")
        assert page.count("No comparison: only 24 of 48 hours of the previous 2 days") == 1
        assert "have data. Data starts 31 Oct." in page
        assert "key-change" not in page
        assert "Previous" not in page


def test_the_home_of_finance_says_once_why_it_compares_nothing(signed_in: SignIn) -> None:
    priced = make_priced(4)
    home = text_of(signed_in(priced.portal.finn), "/")
    assert home.count("No comparison: only 0 of ") == 1
    assert "hours of the same days of September have data. Data starts 30 Oct." in home
    heads = [cell.text for cell in tables_of(home)["spend"].rows[0]]
    assert not any("Change" in head for head in heads)


def test_without_a_window_finance_sees_the_last_closed_month(signed_in: SignIn) -> None:
    priced = make_priced(4)
    ClosedPeriod.objects.create(
        month=date(2026, 9, 1),
        start=datetime(2026, 8, 31, 22, tzinfo=UTC),
        end=datetime(2026, 9, 30, 22, tzinfo=UTC),
        closed_at=NOW,
        basis="allocated",
        policy="platform",
    )
    client = signed_in(priced.portal.finn)
    for path in ("/costs/", "/costs/waste/"):
        page = text_of(client, path)
        assert "1 Sep – 30 Sep" in page
        assert "first=2026-09-01&amp;last=2026-09-30" in page
        assert "1 Sep – 30 Sep" not in text_of(client, f"{path}?window=7d")
        assert "1 Sep – 30 Sep" not in text_of(signed_in(priced.portal.ada), path)


def test_bars_are_stacked_by_group_in_money(finance: Client) -> None:
    page = text_of(finance, f"/costs/?{DAYS}&by=team")
    assert '"measure":"USD"' in page
    assert '"--ledger-group-1"' in page
    assert "USD per hour" in page
    shown = column(page, "over-time-usd", "In all")
    assert len(shown) == 48


def test_nobody_sees_the_money_of_other_teams(priced: Priced, signed_in: SignIn) -> None:
    dan = signed_in(priced.portal.dan)
    for by in ("team", "namespace", "workload"):
        page = text_of(dan, f"/costs/?{DAYS}&by={by}&tab=lines")
        assert "You see the costs of your teams" in page
        table = " ".join(c.text for row in tables_of(page)["lines"].rows for c in row)
        for hidden in ("vision", "Job/train", "stray", "unassigned"):
            assert hidden not in table, by
    text = file_of(dan.get(f"/costs/file?{DAYS}&by=team&by=workload&format=csv"))
    assert "speech" in text
    assert "vision" not in text
    assert tables_of(text_of(dan, f"/costs/?{DAYS}&team=vision")).get("costs") is None


def test_two_currencies_are_never_added_up(signed_in: SignIn) -> None:
    priced = make_priced(1, prices=[price for price in PRICES if price[0] != A100])
    for kind in ("spot", "on-demand"):
        make_price(A100, kind, "2.50", currency="EUR")
    price_hours(now=NOW)
    client = signed_in(priced.portal.finn)
    page = text_of(client, "/costs/?first=2026-10-30&last=2026-10-30&by=team")
    found = rows(priced.window)
    for table, currency in (("costs", "USD"), ("costs-eur", "EUR")):
        *shown, last = exact(page, table, "Cost")
        whole = money(total(row for row in found if row.currency == currency))
        assert sum(shown) == last == whole > 0
    assert 'data-chart="over-time-eur-figure"' in page
    wasted = text_of(client, "/costs/waste/?first=2026-10-30&last=2026-10-30")
    assert {"fall", "fall-eur", "unused", "unused-eur"} <= tables_of(wasted).keys()


def test_lists_of_workloads_have_one_currency_in_a_column(signed_in: SignIn) -> None:
    priced = make_priced(1, prices=[price for price in PRICES if price[0] != A100])
    for kind in ("spot", "on-demand"):
        make_price(A100, kind, "2.50", currency="EUR")
    price_hours(now=NOW)
    address = "/capacity/teams/vision/?first=2026-10-30&last=2026-10-30&tab=cost"
    client = signed_in(priced.portal.ada)
    table = tables_of(text_of(client, address))["workloads"]
    assert table.rows[0][2].text == "Unused USD"
    assert {row[1].text: row[2].text[:1] for row in table.rows[1:]}["silver"] == "€"
    records = records_of(client, f"{address}&format=csv&table=workloads")
    assert {row["tier"] for row in records if row["unused"]} == {"gold"}


def test_a_currency_other_than_the_reports_is_shown_alone(signed_in: SignIn) -> None:
    priced = make_priced(1, prices=())
    for kind in ("spot", "on-demand"):
        make_price(A100, kind, "2.50", currency="EUR")
    price_hours(now=NOW)
    client = signed_in(priced.portal.finn)
    page = text_of(client, "/costs/?first=2026-10-30&last=2026-10-30&by=team")
    assert "EUR" in page


def test_what_was_not_priced_did_not_cost_0(signed_in: SignIn) -> None:
    client = signed_in(make_priced(1).portal.finn)
    page = text_of(client, "/costs/?first=2026-10-30&last=2026-10-30")
    assert "<dt>Charged</dt>" in page
    before = text_of(client, "/costs/?first=2026-09-01&last=2026-09-01")
    assert "<dt>Charged</dt>" not in before


def test_an_empty_price_book_is_told_and_breaks_nothing(signed_in: SignIn) -> None:
    priced = make_priced(1, prices=())
    page = text_of(signed_in(priced.portal.finn), "/costs/?first=2026-10-30&last=2026-10-30")
    assert "<b>Unpriced:</b>" in page
    assert set(column(page, "costs", "Cost")[:-1]) == {"unpriced"}


def test_a_portal_without_facts_says_what_to_do(signed_in: SignIn) -> None:
    page = text_of(signed_in(make_portal().finn), "/costs/")
    assert "No hour has a price yet" in page
    assert "No hour has been collected yet." in page


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("by=colour", "There is no group “colour”"),
        ("basis=promised", "There is no basis “promised”"),
        ("policy=nobody", "There is no policy “nobody”"),
    ],
)
def test_what_makes_no_sense_is_told_and_gives_no_file(
    query: str, words: str, finance: Client
) -> None:
    assert words in text_of(finance, f"/costs/?{DAYS}&{query}")
    response = finance.get(f"/costs/file?{DAYS}&{query}&format=csv")
    assert response.status_code == 400
    assert words in response.content.decode()


@pytest.mark.parametrize("by", ["none", "team", "workload"])
def test_the_page_takes_few_queries(
    by: str, finance: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_max_num_queries(27):
        text_of(finance, f"/costs/?{DAYS}&by={by}&policy=use")


@pytest.mark.parametrize("basis", ["allocated", "used"])
def test_metrics_coverage_and_source_of_pods_are_one_figure_on_all_pages(
    basis: str, priced: Priced, finance: Client
) -> None:
    """Of pods that series alone know costs said 100 % measured, and the overview next to none."""
    for table in (PodHour, TeamHour, TierHour, TeamDay, TierDay):
        table._default_manager.update(
            grade_inferred=(F("allocated") - F("unmeasured")) / 2, unmeasured=F("allocated") / 10
        )
    name = priced.portal.tiers[0].name
    paths = (
        f"/capacity/tiers/{name}/?",
        f"/costs/?tier={name}",
        f"/costs/waste/?tier={name}",
    )
    grades = {path: _grades(finance, f"{path}&{DAYS}&basis={basis}") for path in paths}
    assert len(set(grades.values())) == 1, grades
    assert "Metrics coverage" in grades[paths[0]]
    assert "from series" in grades[paths[0]]


def _grades(client: Client, path: str) -> str:
    return text_of(client, path).partition('class="grades"')[2].partition("</dl>")[0]
