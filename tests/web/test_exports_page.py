"""Exports: months and their files, what is closed, by whom, and with which hashes."""

import hashlib
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import User
from apps.costs.services import close_period
from tests.costs.portal import PRICES, Priced, make_priced
from tests.factories import A100, make_portal
from tests.web.pages import file_of, text_of

pytestmark = pytest.mark.django_db

SignIn = Callable[[User], Client]
MONTH = date(2026, 10, 1)
CLOSED_AT = datetime(2026, 11, 2, 12, tzinfo=UTC)


@pytest.fixture
def priced() -> Priced:
    return make_priced()


def closed(priced: Priced) -> None:
    close_period(MONTH, by="finn", now=CLOSED_AT, forced="what was before the portal")


@pytest.mark.parametrize("format_", ["csv", "xlsx", "parquet", "focus-csv", "focus-parquet"])
def test_a_month_is_had_in_every_format(format_: str, priced: Priced, signed_in: SignIn) -> None:
    response: Any = signed_in(priced.portal.finn).get(
        f"/exports/file?period=2026-10&format={format_}&policy=use"
    )
    assert response.status_code == 200
    assert len(response.getvalue()) > 500
    assert "2026-10_2026-09-30T2200Z_2026-10-31T2300Z" in response["Content-Disposition"]
    assert "_use_" in response["Content-Disposition"]


def test_an_open_month_says_what_keeps_it_from_being_closed(
    signed_in: SignIn,
) -> None:
    priced = make_priced(prices=[price for price in PRICES if price[0] != A100])
    page = text_of(signed_in(priced.portal.finn), "/exports/")
    assert 'id="month-2026-10"' in page
    assert "What keeps it from being closed:" in page
    assert "no price for" in page


def test_a_closed_month_says_by_whom_and_its_files_have_the_hashes_it_names(
    priced: Priced, signed_in: SignIn
) -> None:
    closed(priced)
    client = signed_in(priced.portal.finn)
    page = text_of(client, "/exports/")
    assert "by finn" in page
    assert "what was before the portal" in page
    assert "allocated; what nobody held kept with the platform; price book" in page
    for format_ in ("csv", "xlsx", "parquet", "focus-csv", "focus-parquet"):
        # Whatever is asked for: it is charged as it was closed.
        response: Any = client.get(f"/exports/file?period=2026-10&format={format_}&policy=use")
        assert hashlib.sha256(response.getvalue()).hexdigest() in page, format_


def test_months_are_for_finance_and_files_for_all(priced: Priced, signed_in: SignIn) -> None:
    dan = signed_in(priced.portal.dan)
    page = text_of(dan, "/exports/")
    assert "Which months are closed is for finance and administrators." in page
    assert 'id="month-' not in page
    text = file_of(dan.get("/exports/file?period=2026-10&format=csv"))
    assert "speech" in text
    assert "vision" not in text
    assert "stray" not in text


@pytest.mark.parametrize("query", ["period=october", "period=2026-13", "format=pdf"])
def test_what_is_no_month_or_format_gives_no_file(
    query: str, priced: Priced, signed_in: SignIn
) -> None:
    response = signed_in(priced.portal.finn).get(f"/exports/file?{query}")
    assert response.status_code == 400


def test_a_portal_without_facts_has_the_page(signed_in: SignIn) -> None:
    page = text_of(signed_in(make_portal().finn), "/exports/")
    assert "No day has a cost yet" in page
    assert "Nothing was booked against a closed month." in page
