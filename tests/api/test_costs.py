"""`costs`, `costs/focus` and `waste`: the same figures as rows and as files, and for whom."""

import csv
import hashlib
import io
from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from apps.accounts.models import User
from apps.costs.domain.costing import WASTE, money
from apps.costs.domain.files import FileFormat
from apps.costs.models import PricedHour
from apps.costs.selectors import price_book
from apps.costs.services import close_period, price_hours
from apps.usage.models import CollectionWindow
from tests.api.conftest import client_of
from tests.costs.portal import (
    CHARGINGS,
    NOW,
    PRICES,
    Priced,
    closed_path,
    make_price,
    make_priced,
    rows,
    total,
)
from tests.factories import A100
from tests.shared_rows import copy_of, shared
from tests.spreadsheets import sheet_rows

pytestmark = pytest.mark.django_db

WINDOW = {"start": "2026-10-30", "end": "2026-11-01"}
FIELDS = {
    *("period", "cause", "gpu_hours", "cost", "currency", "price_per_gpu_hour"),
    *("energy_kwh", "carbon_g", "carbon_energy_kwh", "unpriced", "correction"),
}
STEP = Decimal("1e-8")


_priced = shared(make_priced)
priced = copy_of("_priced")


def get(user: User, path: str, params: dict[str, Any], *, status: int = 200) -> Any:
    response = client_of(user).get(f"/api/v1/{path}", params)
    assert response.status_code == status, getattr(response, "content", b"")
    return response


def listed(user: User, path: str, **params: Any) -> list[dict[str, Any]]:
    """Return the rows of all pages."""
    page = get(user, path, {**WINDOW, "page_size": 40, **params}).json()
    found: list[dict[str, Any]] = page["results"]
    while page["next"]:
        page = client_of(user).get(page["next"]).json()
        found += page["results"]
    return found


def file_of(user: User, path: str, format_: str, **params: Any) -> list[dict[str, Any]]:
    """Return the records of a file."""
    response = get(user, path, {**params, "format": format_})
    content = response.getvalue()
    if format_ == "csv":
        return list(csv.DictReader(io.StringIO(content.decode(), newline="")))
    if format_ == "parquet":
        found: list[dict[str, Any]] = pq.read_table(io.BytesIO(content)).to_pylist()
        return found
    return sheet_rows(content, "costs")


def exact(value: Any) -> Decimal:
    """Return money as it was before it became a float."""
    return Decimal(str(value)).quantize(STEP) if value not in (None, "") else Decimal(0)


def summed(records: Iterable[dict[str, Any]], column: str = "cost") -> Decimal:
    return sum((exact(record[column]) for record in records), Decimal(0))


def test_a_row_has_the_fields_of_the_contract(priced: Priced) -> None:
    row = listed(priced.portal.finn, "costs", group_by="team,tier")[0]
    assert set(row) == FIELDS | {"team", "tier"}
    assert row["period"] == "2026-10-30T00:00:00+01:00"
    assert row["team"] is None, "what the platform pays comes first"
    assert row["currency"] == "USD"


@pytest.mark.parametrize(("basis", "policy"), CHARGINGS)
def test_rows_of_every_charging_sum_to_the_cost_of_the_capacity(
    priced: Priced, basis: str, policy: str
) -> None:
    found = listed(priced.portal.finn, "costs", group_by="team", basis=basis, policy=policy)
    assert summed(found) == money(total(rows(priced.window)))


@pytest.mark.parametrize("format_", ["csv", "xlsx", "parquet"])
@pytest.mark.parametrize("path", ["costs", "waste"])
def test_a_file_has_the_rows_of_the_list(priced: Priced, path: str, format_: str) -> None:
    asked = {"group_by": "cluster,team,workload,gpu_model", "interval": "day"}
    shown = listed(priced.portal.finn, path, **asked)
    found = file_of(priced.portal.finn, path, format_, **WINDOW, **asked)
    assert [
        (row["workload"] or "", row["cause"], exact(row["cost"]), row["currency"]) for row in shown
    ] == [(r["workload"] or "", r["cause"], exact(r["cost"]), r["currency"]) for r in found]


@pytest.mark.parametrize("format_", ["csv", "parquet"])
@pytest.mark.parametrize("version", [None, "1.2", "1.3"])
def test_focus_bills_what_the_list_says(priced: Priced, format_: str, version: str | None) -> None:
    of_version = {} if version is None else {"version": version}
    charges = file_of(priced.portal.finn, "costs/focus", format_, period="2026-10", **of_version)
    assert ("Provider" in charges[0], "InvoiceId" in charges[0]) == (not version, bool(version))
    assert ("AllocatedMethodId" in charges[0]) == (version == "1.3")
    month = {"start": "2026-10-01", "end": "2026-11-01", "interval": "total"}
    assert summed(charges, "BilledCost") == summed(listed(priced.portal.finn, "costs", **month))


def test_focus_of_a_month_that_is_mostly_not_collected_says_so_in_a_header(priced: Priced) -> None:
    for user in (priced.portal.finn, priced.portal.dan):
        response = get(user, "costs/focus", {"period": "2026-10"})
        told = response["X-Hours-Not-Collected"]
        assert "hours of west are not collected" in told
        there = CollectionWindow.objects.filter(cluster__name="west").count()
        assert told.split(" ")[0] == f"{745 - there}"
    # The month of now is not over: hours that are to come are not missing.
    assert "X-Hours-Not-Collected" not in get(
        priced.portal.finn, "costs/focus", {"period": "2099-10"}
    )


def test_focus_of_a_closed_month_is_the_file_that_was_kept(
    priced: Priced, settings: Settings, tmp_path: Path
) -> None:
    settings.EXPORTS_DIR = str(tmp_path)
    month = close_period(date(2026, 10, 1), by="finn", now=NOW, forced="what was before the portal")
    content = b"as it was closed"
    month.files["focus-csv"] = hashlib.sha256(content).hexdigest()
    month.save()
    path = closed_path(month.files["focus-csv"], FileFormat.FOCUS_CSV)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    response = get(priced.portal.finn, "costs/focus", {"period": "2026-10"})
    assert response.getvalue() == content
    assert "NOT-as-closed" not in response["Content-Disposition"]
    path.write_bytes(b"changed on disk")
    response = get(priced.portal.finn, "costs/focus", {"period": "2026-10"})
    assert b"BilledCost" in response.getvalue()
    assert "NOT-as-closed" in response["Content-Disposition"]
    own = get(priced.portal.ada, "costs/focus", {"period": "2026-10"})
    assert b"BilledCost" in own.getvalue()
    assert "NOT-as-closed" not in own["Content-Disposition"]


def test_waste_is_what_of_the_costs_is_not_busy(priced: Priced) -> None:
    causes = {cause.value for cause in WASTE}
    every = listed(priced.portal.finn, "costs", interval="total")
    wasted = listed(priced.portal.finn, "waste", interval="total")
    assert {row["cause"] for row in wasted} <= causes
    assert summed(wasted) == summed(row for row in every if row["cause"] in causes)


def test_waste_of_a_lead_has_none_of_the_platforms(priced: Priced) -> None:
    every = listed(priced.portal.finn, "waste", interval="total", group_by="team")
    for asked in ({}, {"group_by": "tier"}):
        own = listed(priced.portal.dan, "waste", interval="total", **asked)
        assert summed(own) == summed(row for row in every if row["team"] == "speech")
    named = listed(priced.portal.dan, "waste", interval="total", group_by="team", team="speech")
    assert {row["team"] for row in named} == {"speech"}
    text = get(priced.portal.dan, "waste", {**WINDOW, "interval": "total", "format": "csv"})
    assert ",unallocated," not in text.getvalue().decode()


def test_an_answer_says_on_what_it_rests(priced: Priced) -> None:
    asked = {**WINDOW, "group_by": "team", "basis": "used", "policy": "use", "page_size": 3}
    page = get(priced.portal.finn, "costs", asked).json()
    terms = page["terms"]
    assert terms["price_book_version"] == price_book().version
    assert {**terms, "price_book_version": ""} == {
        "start": "2026-10-29T23:00:00+00:00",
        "end": "2026-10-31T23:00:00+00:00",
        "time_zone": "Europe/Berlin",
        "currencies": ["USD"],
        "basis": "used",
        "policy": "use",
        "price_book_version": "",
        "coverage_ratio": 1.0,
        "unpriced_gpu_hours": 0.0,
        "not_priced": [],
        "at_least": False,
    }
    following = client_of(priced.portal.finn).get(page["next"]).json()
    assert following["terms"] == terms


def test_waste_is_by_who_held_it_and_says_so(priced: Priced) -> None:
    terms = get(priced.portal.finn, "waste", WINDOW).json()["terms"]
    assert (terms["basis"], terms["policy"]) == ("allocated", "platform")


def test_hours_that_are_not_priced_yet_are_told(priced: Priced) -> None:
    west = priced.portal.clusters[0]
    PricedHour.objects.filter(cluster=west, hour=priced.window.start).delete()
    terms = get(priced.portal.finn, "costs", WINDOW).json()["terms"]
    assert terms["at_least"]
    assert terms["not_priced"] == [
        {"cluster": "west", "hours": 1, "outdated": 0, "first": "2026-10-29T23:00:00+00:00"}
    ]


def test_energy_is_a_row_with_its_kilowatt_hours() -> None:
    priced = make_priced(prices=())
    make_price(A100, "on-demand", "1", per_kwh=Decimal("0.30"))
    price_hours(now=NOW)
    found = listed(priced.portal.finn, "costs", interval="total", group_by="team")
    energy = {r["team"]: (r["energy_kwh"], r["cost"]) for r in found if r["cause"] == "energy"}
    # Two pods on the east cluster: 1 Wh in each of 48 hours.
    # Hours of vision have no price: their energy is told all the same.
    assert energy == {
        **dict.fromkeys(("speech", "unassigned"), (0.048, 0.0144)),
        "vision": (0.144, None),
    }
    assert {row["energy_kwh"] for row in found if row["cause"] != "energy"} == {None}


def test_what_has_no_price_is_null_and_never_zero() -> None:
    priced = make_priced(prices=[price for price in PRICES if price[0] != A100])
    found = listed(priced.portal.finn, "costs", group_by="gpu_model", interval="total")
    unpriced = [row for row in found if row["gpu_model"] == A100]
    assert unpriced
    assert {(r["cost"], r["currency"], r["unpriced"]) for r in unpriced} == {(None, None, True)}
    assert sum(row["gpu_hours"] for row in unpriced) > 0


def test_nobody_gets_the_money_of_other_teams(priced: Priced) -> None:
    portal = priced.portal
    for path in ("costs", "waste"):
        found = listed(portal.dan, path, group_by="team,namespace,workload")
        assert {row["team"] for row in found} <= {"speech", None}
        assert {row["namespace"] for row in found} <= {"speech", None}
        assert listed(portal.dan, path, team="vision") == []
        text = get(portal.dan, path, {**WINDOW, "format": "csv", "group_by": "workload"})
        assert "Job/train" not in text.getvalue().decode()
    month = get(portal.dan, "costs/focus", {"period": "2026-10"}).getvalue().decode()
    assert "vision" not in month
    assert "vision" in get(portal.ada, "costs/focus", {"period": "2026-10"}).getvalue().decode()


def test_a_file_is_named_for_its_window_currency_and_policy(priced: Priced) -> None:
    asked = {**WINDOW, "format": "parquet", "policy": "use"}
    response = get(priced.portal.finn, "costs", asked)
    assert response.getvalue()
    name = response["Content-Disposition"]
    for part in ("2026-10-29T2300Z-to-2026-10-31T2300Z", "USD", "allocated-use", ".parquet"):
        assert part in name


@pytest.mark.parametrize(
    ("path", "params", "parameter"),
    [
        ("costs", {"group_by": "node"}, "group_by"),
        ("costs", {"basis": "promised"}, "basis"),
        ("costs", {"policy": "nobody"}, "policy"),
        ("costs", {"format": "csv", "page_size": "5"}, "page_size"),
        ("costs", {"team": "nobody"}, "team"),
        ("waste", {"basis": "used"}, "basis"),
        ("waste", {"format": "pdf"}, "format"),
        ("costs", {"cursor": "x"}, "cursor"),
        ("costs/focus", {"period": "2026-13"}, "period"),
        ("costs/focus", {"format": "xlsx"}, "format"),
        ("costs/focus", {"version": "1.1"}, "version"),
    ],
)
def test_a_mistake_is_named(
    priced: Priced, path: str, params: dict[str, str], parameter: str
) -> None:
    problem = get(priced.portal.cleo, path, params, status=400).json()
    assert parameter in problem["errors"]


@pytest.mark.parametrize("path", ["costs", "waste"])
@pytest.mark.parametrize("group_by", ["team", "team,namespace,workload"])
def test_a_list_takes_few_queries(priced: Priced, path: str, group_by: str) -> None:
    client = client_of(priced.portal.cleo)
    params = {**WINDOW, "group_by": group_by, "page_size": "500"}
    with CaptureQueriesContext(connection) as queries:
        assert client.get(f"/api/v1/{path}", params).status_code == 200
    assert len(queries) <= 21


def test_prices_in_two_currencies_are_kept_apart() -> None:
    priced = make_priced(1, prices=[price for price in PRICES if price[0] != A100])
    for kind in ("spot", "on-demand"):
        make_price(A100, kind, "2.50", currency="EUR")
    price_hours(now=NOW)
    params = {"start": "2026-10-30", "end": "2026-10-31", "interval": "total"}
    found = listed(priced.portal.finn, "costs", group_by="gpu_model", **params)
    assert {(row["gpu_model"] == A100, row["currency"]) for row in found} == {
        (True, "EUR"),
        (False, "USD"),
    }
