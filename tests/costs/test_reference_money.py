"""The worked example in money: the reference cluster, collected over a day, to the cent."""

import csv
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from django.core.management import call_command

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window
from apps.costs.domain.costing import WASTE, Cause, money
from apps.costs.selectors import CostQuery, cost_rows
from apps.costs.services import price_hours
from apps.operations.services import load_catalog
from apps.usage.domain.usage_query import Grouping, TimeStep
from apps.usage.services import collect_window
from simulator.catalog import catalog_yaml
from tests.costs.portal import waterfall
from tests.served_lab import scenario_of, served_lab
from tests.spreadsheets import sheet_rows

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
START = datetime(2026, 11, 18, 23, tzinfo=UTC)
DAY = Window(START, START + timedelta(days=1))
MONTH_HOURS = Decimal(730)
A_MONTH = {
    Cause.BUSY: Decimal("38421.36"),
    Cause.IDLE: Decimal("8488.44"),
    Cause.UNDERUSED: Decimal("24571.80"),
}


@pytest.fixture
def _reference() -> Iterator[None]:
    scenario = scenario_of("reference", NOW.timestamp())
    with served_lab(scenario, NOW.timestamp()) as url:
        load_catalog(catalog_yaml(scenario, url=url), "catalog.yaml", now=NOW, dry_run=False)
        collect_window("lab", DAY, now=NOW)
        price_hours(now=NOW)
        yield


def a_month(amounts: dict[Cause, Decimal]) -> dict[Cause, Decimal]:
    """Return a day's amounts as those of 730 hours, in cents; causes of nothing left out."""
    cent = Decimal("0.01")
    scaled = {
        cause: (amount * MONTH_HOURS / 24).quantize(cent, ROUND_HALF_EVEN)
        for cause, amount in amounts.items()
    }
    return {cause: amount for cause, amount in scaled.items() if amount}


def summed(rows: Iterable[tuple[Any, Any]]) -> dict[Cause, Decimal]:
    found: dict[Cause, Decimal] = {}
    for cause, cost in rows:
        known = found.get(Cause(cause), Decimal(0))
        found[Cause(cause)] = known + Decimal(str(cost))
    return found


def records(format_: str, path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".csv":
        return list(csv.DictReader(StringIO(path.read_text(encoding="utf-8"), newline="")))
    if path.suffix == ".parquet":
        found: list[dict[str, Any]] = pq.read_table(BytesIO(path.read_bytes())).to_pylist()
        return found
    return sheet_rows(path, "costs")


@pytest.mark.usefixtures("_reference")
def test_not_busy_money_by_cause_is_that_of_the_worked_example_everywhere(tmp_path: Path) -> None:
    rows = cost_rows(
        CostQuery(DAY, TimeStep.DAY, (Grouping.TEAM, Grouping.WORKLOAD)), visibility=EVERYTHING
    )
    of_page = summed((row.cause, row.amount) for row in rows)
    assert a_month(of_page) == A_MONTH
    assert sum(A_MONTH.values()) == Decimal("71481.60")
    assert sum(A_MONTH[cause] for cause in A_MONTH if cause in WASTE) == Decimal("33060.24")
    (fall,) = waterfall(DAY, visibility=EVERYTHING)
    assert summed((s.cause, money(s.cost)) for s in fall.steps if s.cost) == of_page
    for format_, suffix in (
        ("csv", "csv"),
        ("xlsx", "xlsx"),
        ("parquet", "parquet"),
        ("focus-csv", "csv"),
        ("focus-parquet", "parquet"),
        ("focus1.3-csv", "csv"),
    ):
        path = tmp_path / f"{format_}.{suffix}"
        call_command("export_costs", period="2026-11", format=format_, output=str(path))
        cause, cost = ("x_Cause", "BilledCost") if "focus" in format_ else ("cause", "cost")
        found = summed((record[cause], record[cost]) for record in records(format_, path))
        assert a_month(found) == A_MONTH, format_
