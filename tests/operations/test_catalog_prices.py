"""Prices of the catalog: what they come to, and what they say of themselves."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from apps.costs.models import Price
from apps.costs.selectors import price_book
from apps.operations.domain.source_positions import CatalogError
from tests.operations.catalogs import changes, load, small

pytestmark = pytest.mark.django_db

L4: dict[str, Any] = {"gpu_model": "L4", "capacity_type": "owned", "currency": "USD"}
OWNED: dict[str, Any] = {"price": "14000", "gpus": 8, "years": 4.5, "residual": "1000"}


def test_owned_hardware_costs_what_it_is_written_off_by_the_hour() -> None:
    load(small(prices=[{**L4, "owned": {**OWNED, "per_kwh": "0.31", "pue": "1.4"}}]))
    price = Price.objects.get()
    assert price.per_gpu_hour == Decimal("0.04122273")
    assert (price.kind, price.per_kwh, price.pue) == ("owned", Decimal("0.31"), Decimal("1.4"))
    assert price.source == "14000 USD less 1000 for 8 GPUs over 4.5 years of 8,760 hours"


def test_a_price_keeps_its_tier_discount_kind_and_source() -> None:
    priced = {
        **L4,
        "capacity_type": "spot",
        "per_gpu_hour": "0.5",
        "tier": "a100",
        "discount": "0.2",
        "kind": "negotiated",
        "source": "contract 7",
        "example": True,
    }
    load(small(prices=[priced, {**priced, "tier": "any"}]))
    of_tier, _ = price_book().entries
    assert (of_tier.tier, of_tier.contracted, of_tier.kind.value) == (
        "a100",
        Decimal("0.4"),
        "negotiated",
    )
    assert (of_tier.source, of_tier.example) == ("contract 7", True)


def test_a_price_keeps_who_confirmed_it_and_when() -> None:
    named = {**L4, "per_gpu_hour": "0.5", "confirmed_by": "procurement", "valid_from": "2026-01-01"}
    load(small(prices=[{**named, "confirmed_on": "2026-09-28"}]))
    (entry,) = price_book().entries
    assert (entry.confirmed_by, entry.confirmed_on) == ("procurement", date(2026, 9, 28))
    version = price_book().version
    load(small(prices=[{**named, "confirmed_on": "2026-10-01"}]))
    assert [entry.confirmed_on for entry in price_book().entries] == [date(2026, 10, 1)]
    assert price_book().version == version, "what it costs is the same"


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"example": True, "confirmed_by": "finn"}, "that somebody confirmed is no example"),
        ({"confirmed_on": "2026-09-28"}, "needs confirmed_by"),
        ({"confirmed_by": "finn", "confirmed_on": "2026-13-01"}, "month must be in 1..12"),
    ],
)
def test_a_confirmation_that_makes_no_sense_is_refused(
    values: dict[str, object], problem: str
) -> None:
    with pytest.raises(CatalogError, match=problem):
        load(small(prices=[{**L4, "per_gpu_hour": "0.5", **values}]))


def test_a_figure_that_is_confirmed_passes() -> None:
    load(small(prices=[{**L4, "per_gpu_hour": "584", "confirmed": True}]))
    assert Price.objects.get().per_gpu_hour == 584


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"discount": "0.1"}, id="a discount"),
        pytest.param({"kind": "negotiated"}, id="a kind"),
        pytest.param({"source": "list of May"}, id="a source"),
        pytest.param({"per_gpu_hour": "0.6"}, id="an amount"),
    ],
)
def test_what_a_price_says_now_leaves_what_it_said_before(change: dict[str, str]) -> None:
    first = {**L4, "per_gpu_hour": "0.5"}
    load(small(prices=[first]))
    later = datetime(2027, 3, 1, tzinfo=UTC)
    told = load(small(prices=[{**first, **change}]), later)
    assert changes(told) == ["changed price L4 owned"]
    old, new = Price.objects.order_by("valid_from")
    assert (old.valid_to, new.valid_from) == (later, later)
    assert old.per_gpu_hour == Decimal("0.5")
