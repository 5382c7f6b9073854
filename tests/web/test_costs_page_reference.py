"""The worked example in money on the pages, in the API and in every file, to the cent."""

import csv
import io
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import pyarrow.parquet as pq
import pytest
from django.test import Client

from apps.accounts.domain.identity import Role
from apps.accounts.models import User
from apps.costs.domain.costing import WASTE, Cause
from apps.web.costs.query import CAUSES
from tests.api.conftest import client_of
from tests.costs.test_reference_money import A_MONTH, a_month, summed
from tests.costs.test_reference_money import _reference as _reference
from tests.factories import make_user
from tests.spreadsheets import sheet_rows
from tests.web.pages import records_of, text_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("_reference")]

SignIn = Callable[[User], Client]
DAYS = "first=2026-11-19&last=2026-11-19"
WINDOW = {"start": "2026-11-19", "end": "2026-11-20"}


@pytest.fixture
def finance(_reference: None) -> User:
    return make_user("fiona", Role.FINANCE)


def records(content: bytes, format_: str) -> list[dict[str, Any]]:
    if format_.endswith("csv"):
        return list(csv.DictReader(io.StringIO(content.decode(), newline="")))
    if format_.endswith("parquet"):
        found: list[dict[str, Any]] = pq.read_table(io.BytesIO(content)).to_pylist()
        return found
    return sheet_rows(content, "costs")


def is_the_example(parts: Iterable[tuple[str, Any]]) -> bool:
    return a_month(summed(parts)) == A_MONTH


def of_page(lines: Iterable[dict[str, Any]]) -> list[tuple[Cause, Any]]:
    """Return the lines of a page's file, which call a cause by its label."""
    causes = {label.label: cause for cause, label in CAUSES.items()}
    return [(causes[one["cause"]], one["cost"]) for one in lines if one["cause"] != "Total"]


def test_the_pages_the_api_and_all_files_have_the_money_of_the_worked_example(
    finance: User, signed_in: SignIn
) -> None:
    client = signed_in(finance)
    page = text_of(client, f"/costs/?{DAYS}")
    assert 'title="2,350.08 USD">$2,350</a>' in page, "71,481.60 of 730 hours is 2,350.08 of 24"
    figures = re.findall(r'title="([\d,.]+) USD"', text_of(client, f"/costs/waste/?{DAYS}"))
    _charged, platform, unused = (Decimal(text.replace(",", "")) for text in figures[:3])
    assert platform + unused == Decimal("1086.91")
    for address in (
        f"/costs/?{DAYS}&by=workload&tab=lines&table=lines",
        f"/costs/waste/?{DAYS}&table=fall",
    ):
        lines = records_of(client, f"{address}&format=csv")
        assert is_the_example(of_page(lines))
    api: Any = client_of(finance).get("/api/v1/costs", {**WINDOW, "group_by": "team"}).json()
    assert is_the_example((row["cause"], row["cost"]) for row in api["results"])
    wasted: Any = client_of(finance).get("/api/v1/waste", WINDOW).json()["results"]
    month = a_month(summed((row["cause"], row["cost"]) for row in wasted))
    assert month == {cause: cost for cause, cost in A_MONTH.items() if cause in WASTE}
    assert sum(month.values()) == Decimal("33060.24")
    for format_ in ("csv", "xlsx", "parquet", "focus-csv", "focus1.3-csv", "focus1.3-parquet"):
        cause, cost = ("x_Cause", "BilledCost") if "focus" in format_ else ("cause", "cost")
        for address in (f"/costs/file?{DAYS}&by=team", "/costs/exports/file?period=2026-11"):
            response: Any = client.get(f"{address}&format={format_}")
            found = records(response.getvalue(), format_)
            assert is_the_example((r[cause], r[cost]) for r in found), (address, format_)


def test_the_unused_share_of_cost_is_one_figure_on_both_pages(
    finance: User, signed_in: SignIn
) -> None:
    client = signed_in(finance)
    *_, total = records_of(client, f"/costs/?{DAYS}&by=team&table=costs&format=csv")
    share = f"{float(total['unused_ratio']) * 100:.0f} % of the cost"
    assert share in text_of(client, f"/workloads/?{DAYS}")
