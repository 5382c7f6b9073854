"""Exchange rates of a month: read from the catalog, in FOCUS files and bills, kept by a closing."""

import csv
import io
from decimal import Decimal
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from apps.accounts.domain.identity import Role
from apps.accounts.permissions import EVERYTHING
from apps.costs import selectors as costs
from apps.costs.domain.bills.charges import BillRefused
from apps.costs.domain.exchange_rates import converted, rate_text
from apps.costs.domain.files import FileFormat, FocusVersion, focus_format
from apps.costs.models import Price
from apps.costs.selectors import period_file
from apps.costs.services import CloseRefused, close_period, price_hours, reopen_period
from apps.operations.domain.source_positions import CatalogError
from apps.operations.services.catalog.exporting import export_catalog
from apps.operations.services.catalog.loading import load_changed
from tests.costs.bills import OCTOBER, imported, plain, written
from tests.costs.focus_requirements import Row, violations
from tests.costs.portal import NOW, make_priced, rows, total
from tests.costs.written import bytes_of
from tests.factories import A100, make_user

pytestmark = pytest.mark.django_db
VERSIONS = list(FocusVersion)
RATE = Decimal("1.0842")
ECB = {"month": "2026-10", "currency": "EUR", "rate": "1.0842", "source": "ECB, 1 October"}
BILLED = ("BilledCost", "EffectiveCost", "ContractedCost", "ListCost")


def load_rates(*rates: dict[str, str]) -> Any:
    """Load the catalog that is there with these rates; return what that changed."""
    catalog = yaml.safe_load(export_catalog(now=NOW))
    catalog["report"]["exchange_rates"] = list(rates)
    return load_changed(yaml.safe_dump(catalog, sort_keys=False), now=NOW)


def price_in_euro() -> None:
    """Let one GPU model be priced in EUR; the report is in USD."""
    Price.objects.filter(gpu_model=A100).update(currency="EUR")
    price_hours(now=NOW)


def month(version: FocusVersion) -> list[Row]:
    content = content_of(focus_format(version, "csv"))
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


def content_of(format_: FileFormat) -> bytes:
    return bytes_of(period_file(OCTOBER, format_, visibility=EVERYTHING), format_)


def summed(found: list[Row], column: str) -> Decimal:
    return sum((Decimal(row[column]) for row in found), Decimal(0))


def test_the_catalog_keeps_rates_and_exports_them() -> None:
    make_priced()
    assert load_rates(ECB).changes
    assert not load_rates(ECB).changes, "the same again changes nothing"
    exported = yaml.safe_load(export_catalog(now=NOW))
    assert exported["report"]["exchange_rates"] == [ECB]


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ([ECB, ECB | {"rate": "1.1"}], "a second rate of that currency and month"),
        ([ECB | {"currency": "USD"}], "USD is the report's currency"),
        ([ECB | {"rate": "0"}], "a rate is above 0"),
        ([ECB | {"month": "2026-13"}], "a month such as 2026-10"),
    ],
)
def test_a_rate_that_cannot_be_is_refused(rates: list[dict[str, str]], said: str) -> None:
    make_priced()
    with pytest.raises(CatalogError, match=said):
        load_rates(*rates)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_focus_file_is_billed_in_the_currency_of_the_report(version: FocusVersion) -> None:
    make_priced()
    price_in_euro()
    before = month(version)
    assert {row["BillingCurrency"] for row in before} == {"USD", "EUR"}
    load_rates(ECB)
    found = month(version)
    assert {row["BillingCurrency"] for row in found} == {"USD"}
    assert {row["x_ExchangeRate"] for row in found} == {"", "1.0842"}
    assert len(found) == len(before)
    for then, now in zip(before, found, strict=True):
        rate = RATE if then["BillingCurrency"] == "EUR" else Decimal(1)
        for name in (*BILLED, "ContractedUnitPrice", "ListUnitPrice"):
            if then[name]:
                assert abs(Decimal(now[name]) - Decimal(then[name]) * rate) <= Decimal("5e-9")
        if version.is_since(FocusVersion.V1_2):
            # What the price book says stays beside it, in its own currency.
            assert now["PricingCurrency"] == then["BillingCurrency"]
            assert now["PricingCurrencyEffectiveCost"] == then["EffectiveCost"]
            assert now["PricingCurrencyContractedUnitPrice"] == then["ContractedUnitPrice"]
    if version.is_since(FocusVersion.V1_2):
        assert violations(found, found[0], version) == []


def test_a_month_without_a_rate_of_its_own_is_not_converted() -> None:
    make_priced()
    price_in_euro()
    before = content_of(FileFormat.FOCUS_1_3_CSV)
    load_rates(ECB | {"month": "2026-11"}, ECB | {"currency": "CHF"})
    found = month(FocusVersion.V1_3)
    assert {row["BillingCurrency"] for row in found} == {"USD", "EUR"}
    assert {row["x_ExchangeRate"] for row in found} == {""}
    load_rates()
    assert content_of(FileFormat.FOCUS_1_3_CSV) == before, "without rates not a byte differs"


def test_a_closed_month_keeps_the_rates_that_it_was_closed_with() -> None:
    make_priced()
    price_in_euro()
    load_rates(ECB)
    closed = close_period(OCTOBER, by="finn", now=NOW, forced="a part of it")
    assert closed.exchange_rates == {"EUR": "1.0842"}
    formats = (FileFormat.FOCUS_CSV, FileFormat.FOCUS_1_2_CSV, FileFormat.FOCUS_1_3_CSV)
    before = {format_: content_of(format_) for format_ in formats}
    load_rates(ECB | {"rate": "1.2"})
    assert {format_: content_of(format_) for format_ in formats} == before
    reopen_period(OCTOBER, by=make_user("carl", Role.ADMIN), reason="another rate", now=NOW)
    assert {row["x_ExchangeRate"] for row in month(FocusVersion.V1_2)} == {"", "1.2"}
    again = close_period(OCTOBER, by="finn", now=NOW, forced="a part of it")
    assert again.rows_sha256 != closed.rows_sha256, "the hash of a month names its rates"


def test_a_month_that_lacks_a_rate_is_not_closed_unasked() -> None:
    """Its files would be billed in two currencies for good."""
    make_priced()
    price_in_euro()
    lacking = "no exchange rate of the month for EUR"

    def lacks() -> bool:
        states = costs.period_states(now=NOW, visibility=EVERYTHING)
        gaps = next(one.gaps for one in states if one.month == OCTOBER)
        return gaps is not None and lacking in gaps.texts()

    assert not lacks(), "a site that converts nothing has no rates at all"
    load_rates(ECB | {"month": "2026-11"}, ECB | {"currency": "CHF"})
    assert lacks()
    with pytest.raises(CloseRefused, match=lacking):
        close_period(OCTOBER, by="finn", now=NOW)
    load_rates(ECB)
    assert not lacks()
    assert close_period(OCTOBER, by="finn", now=NOW).exchange_rates == {"EUR": "1.0842"}


def test_a_month_without_rates_has_the_hash_that_it_had() -> None:
    make_priced()
    closed = close_period(OCTOBER, by="finn", now=NOW, forced="a part of it")
    assert closed.exchange_rates == {}
    load_rates(ECB)
    # Loaded after the closing: the files are those of the closing.
    assert "x_ExchangeRate" not in month(FocusVersion.V1_3)[0]


def test_bills_and_prices_of_another_currency_are_compared_in_that_of_the_report() -> None:
    priced = make_priced()
    price_in_euro()
    euros = written(
        ("day", "sku", "cost", "currency"),
        [("2026-10-30", f"{A100}/spot", "100", "EUR"), ("2026-10-30", f"{A100}/spot", "10", "USD")],
    )
    with pytest.raises(BillRefused, match=r"Line 2: .* EUR, .* no exchange rate of the month"):
        imported(euros)
    imported(plain(("2026-10-30", f"{A100}/spot", "10")))
    found = costs.reconcile(OCTOBER, visibility=EVERYTHING, now=NOW)
    assert found is not None
    assert found.others == ("EUR",)
    load_rates(ECB)
    bill = imported(euros)
    assert bill.total == 11_842_000_000
    assert bill.exchange_rates == {"EUR": "1.0842"}
    found = costs.reconcile(OCTOBER, visibility=EVERYTHING, now=NOW)
    assert found is not None
    assert found.others == ()
    by_currency = {
        currency: total(row for row in rows(priced.window) if row.currency == currency)
        for currency in ("USD", "EUR")
    }
    expected = by_currency["USD"] + by_currency["EUR"] * RATE
    assert abs(found.whole.portal - expected) <= len(rows(priced.window)) * 10


@given(st.integers(-(10**17), 10**17), st.decimals("0.00000001", "1000000", places=8))
def test_an_amount_is_rounded_once(amount: int, rate: Decimal) -> None:
    assert abs(converted(amount, rate) - Decimal(amount) * rate) <= Decimal("0.5")
    assert converted(-amount, rate) == -converted(amount, rate)
    assert Decimal(rate_text(rate)) == rate
