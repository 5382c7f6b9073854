"""Prices: what holds now, what held before, and GPU models without a price."""

import csv
import io
from collections.abc import Callable
from datetime import date

import pytest
from django.test import Client

from apps.accounts.models import User
from apps.costs.models import Price
from apps.costs.services import close_period
from tests.costs.bills import OCTOBER
from tests.costs.portal import NOW, PRICES, make_priced
from tests.costs.test_exchange_rates import ECB, load_rates
from tests.factories import A100, make_portal
from tests.web.pages import file_of, records_of, table_links, text_of
from tests.web.shown import figures_of, tables_of

pytestmark = pytest.mark.django_db

SignIn = Callable[[User], Client]
DAYS = "first=2026-10-30&last=2026-10-31"


def test_models_without_a_price_come_first(signed_in: SignIn) -> None:
    priced = make_priced(prices=[price for price in PRICES if price[0] != A100])
    page = text_of(signed_in(priced.portal.finn), f"/costs/prices/?{DAYS}")
    assert "GPU-h excluded" in page
    assert page.index('id="unpriced"') < page.index('id="prices"')
    assert A100 in page[page.index('id="unpriced"') : page.index('id="prices"')]


def test_everybody_sees_prices_with_their_source_and_the_file_has_them(signed_in: SignIn) -> None:
    dan = signed_in(make_priced().portal.dan)
    page = text_of(dan, f"/costs/prices/?{DAYS}")
    assert 'id="unpriced"' not in page
    links = table_links(page)
    records = list(csv.DictReader(io.StringIO(file_of(dan.get(links[0])), newline="")))
    assert {record["gpu_model"] for record in records} == {price[0] for price in PRICES}
    assert {record["status"] for record in records} <= {"example", "confirmed", "unconfirmed"}


def test_what_all_prices_have_in_common_is_in_files_alone(signed_in: SignIn) -> None:
    finance = signed_in(make_priced().portal.finn)
    page = text_of(finance, f"/costs/prices/?{DAYS}")
    heads = [cell.text for cell in tables_of(page)["prices"].rows[0]]
    assert [head.split(" ")[0] for head in heads] == [
        *(
            "GPU",
            "Capacity",
            "Price",
            "Valid",
            "Valid",
            "Status",
            "Confirmed",
            "Confirmed",
            "Source",
        )
    ]
    assert "USD per GPU-h" in heads[2]
    assert "Price book" not in figures_of(page)
    (record, *_) = csv.DictReader(
        io.StringIO(file_of(finance.get(table_links(page)[0])), newline="")
    )
    assert {"cluster", "tier", "currency", "discount_ratio", "pue"} <= record.keys()


def test_each_price_says_who_confirmed_it_and_when(signed_in: SignIn) -> None:
    finance = signed_in(make_priced().portal.finn)
    first, second, _ = Price.objects.order_by("gpu_model", "capacity_type")
    Price.objects.filter(pk=first.pk).update(
        confirmed_by="procurement", confirmed_on=date(2026, 9, 28), source="contract 7"
    )
    Price.objects.filter(pk=second.pk).update(example=True)
    page = text_of(finance, f"/costs/prices/?{DAYS}")
    rows = [[cell.text for cell in row] for row in tables_of(page)["prices"].rows[1:]]
    (confirmed,) = [row for row in rows if row[5] == "confirmed"]
    assert confirmed[6:9] == ["procurement", "28 Sep", "contract 7"]
    assert sorted(row[5] for row in rows) == ["confirmed", "example", "unconfirmed"]
    figures = figures_of(page)
    assert next(v for k, v in figures.items() if k.startswith("Unconfirmed")).startswith("2 of 3")


def test_a_portal_without_prices_says_what_to_do(signed_in: SignIn) -> None:
    page = text_of(signed_in(make_portal().finn), "/costs/prices/?tab=history")
    assert "The price book is empty" in page


def test_exchange_rates_say_where_they_come_from_and_when_they_were_fixed(
    signed_in: SignIn,
) -> None:
    portal = make_priced().portal
    rates = "/costs/prices/?tab=rates"
    assert "No exchange rate is set" in text_of(signed_in(portal.dan), rates)
    november = ECB | {"month": "2026-11", "rate": "1.09", "source": "ECB, 2 November"}
    load_rates(ECB, november, ECB | {"currency": "GBP", "rate": "1.31", "source": ""})
    close_period(OCTOBER, by="finn", now=NOW, forced="a part of it")
    file = f"{rates}&format=csv&table=rates"
    months = [
        ("2026-11", "EUR", "1.09", "USD", "ECB, 2 November"),
        ("2026-10", "EUR", "1.0842", "USD", "ECB, 1 October"),
        ("2026-10", "GBP", "1.31", "USD", ""),
    ]
    keys = ("month", "currency", "rate", "into", "source")
    found = records_of(signed_in(portal.dan), file)
    assert [tuple(row[key] for key in keys) for row in found] == months
    assert [bool(row["fixed_at"]) for row in found] == [False, True, True]
    # What is loaded later changes no closed month, and is no source of its rate.
    load_rates(ECB | {"rate": "2", "source": "a slip"}, november)
    found = records_of(signed_in(portal.dan), file)
    assert [row["rate"] for row in found] == ["1.09", "1.0842", "1.31"]
    assert [row["source"] for row in found] == ["ECB, 2 November", "", ""]
    page = text_of(signed_in(portal.finn), rates)
    assert "not closed" in page
