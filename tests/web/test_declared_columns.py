"""A column is one line in one place: declared with its row, it is on the page, in files and API."""

import csv
import io
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any, NamedTuple, get_origin

import pyarrow.parquet as pq
import pytest
import yaml
from django.conf import settings
from django.test import Client

from apps.accounts.models import User
from apps.api import row_serializers
from apps.clusters.domain.columns import Column, columns_of
from apps.costs.selectors import CostRow
from apps.costs.services import price_hours
from apps.pending.selectors import PendingRow, QueueTimeSums
from apps.quotas.selectors import BudgetRow, QuotaSum, UnusedRow
from apps.usage.domain.collection import CollectionState
from apps.usage.domain.usage_query import PodRow, UsageRow
from apps.usage.models import CollectionWindow
from tests.factories import Portal
from tests.spreadsheets import sheet_rows
from tests.web.conftest import ERROR, HOURLY, LOOKED
from tests.web.pages import records_of, text_of
from tests.web.shown import tables_of

PAGE = f"/workloads/west/vision/Job/train/?tab=pods&{HOURLY}"
DAYS = "start=2025-10-24&end=2025-10-26"
LETTERS = Column("Letters", "letters", "Letters of the name.", key="name_letters")


FILES = ("csv", "xlsx", "parquet")


class Listed(NamedTuple):
    """A declared row, its list in the API with its schema, and the page and table that have it."""

    row: type
    api: str = ""
    schema: str = ""
    page: str = ""
    files: tuple[str, ...] = ("csv",)


LISTS = [
    Listed(PodRow, f"pods?{DAYS}", "Pod", f"{PAGE}&table=pods"),
    Listed(UsageRow, f"usage?{DAYS}&group_by=tier", "Usage"),
    Listed(PendingRow, "pending?", "Pending"),
    Listed(
        QueueTimeSums,
        f"pending/history?{DAYS}&group_by=day,tier",
        "PendingHistory",
        f"/pending/?tab=history&{HOURLY}&table=causes",
    ),
    Listed(BudgetRow, "budgets?", "Budget", "/costs/budgets/?table=budgets", ()),
    Listed(
        CostRow,
        f"costs?{DAYS}&group_by=team",
        "Cost",
        f"/costs/?{HOURLY}&by=team&tab=lines&table=lines",
        FILES,
    ),
]

ON_PAGES = [
    Listed(QuotaSum, page="/quotas/?tab=teams&table=sums"),
    Listed(UnusedRow, page=f"/quotas/?tab=unused&{HOURLY}&table=unused"),
]
"""Lists that the API does not have."""


@pytest.fixture(params=LISTS, ids=lambda one: one.row.__name__)
def listed(request: pytest.FixtureRequest) -> Iterator[Listed]:
    """Yield a list whose row has one more column for the time of a test."""
    listed: Listed = request.param
    with more_columns(listed):
        yield listed


@contextmanager
def more_columns(*lists: Listed) -> Iterator[None]:
    """Give the row of each list one more column until the end of the block."""
    with pytest.MonkeyPatch.context() as patch:
        for one in lists:
            patch.setattr(one.row, "letters", property(lambda row: 7), raising=False)
            patch.setitem(one.row.__annotations__, "letters", Annotated[int, LETTERS])
        forget()
        yield
    forget()


@pytest.fixture
def reader(listed: Listed, admin: Client) -> Client:
    """Return a client of an admin of the portal, which has rows of the list."""
    if listed.row is CostRow:
        CollectionWindow.objects.filter(state=CollectionState.COMPLETE).update(collected_at=LOOKED)
        price_hours(now=LOOKED)
    return admin


def forget() -> None:
    for kept in (columns_of, row_serializers._writers, row_serializers._cell_writers):
        kept.cache_clear()


def test_a_new_column_is_in_the_api(listed: Listed, reader: Client) -> None:
    answer: Any = reader.get(f"/api/v1/{listed.api}")
    assert {row[LETTERS.key] for row in answer.json()["results"]} == {7}


def test_new_columns_are_in_the_schema(admin: Client) -> None:
    with more_columns(*LISTS):
        schema = yaml.load(admin.get("/api/schema/").content, yaml.CSafeLoader)
    schemas = schema["components"]["schemas"]
    assert {one.schema: schemas[one.schema]["properties"].get(LETTERS.key) for one in LISTS} == {
        one.schema: {"type": "integer", "description": LETTERS.help} for one in LISTS
    }


def test_a_new_column_is_in_every_file(listed: Listed, reader: Client) -> None:
    for format_ in listed.files:
        answer: Any = reader.get(f"/api/v1/{listed.api}&format={format_}")
        assert {str(row[LETTERS.key]) for row in rows_of(answer.getvalue(), format_)} == {"7"}


def rows_of(content: bytes, format_: str) -> list[dict[str, Any]]:
    if format_ == "xlsx":
        return sheet_rows(content, "costs")
    if format_ == "parquet":
        found: list[dict[str, Any]] = pq.read_table(io.BytesIO(content)).to_pylist()
        return found
    return list(csv.DictReader(io.StringIO(content.decode())))


@pytest.mark.parametrize(
    "listed",
    [one for one in (*LISTS, *ON_PAGES) if one.page],
    ids=lambda one: one.row.__name__,
    indirect=True,
)
def test_a_new_column_is_on_the_page_and_in_its_file(listed: Listed, reader: Client) -> None:
    table = listed.page.rpartition("table=")[2]
    head, *lines = tables_of(text_of(reader, listed.page))[table].rows
    place = next(n for n, cell in enumerate(head) if cell.text.startswith(LETTERS.label))
    assert {line[place].text for line in lines} == {"7"}
    assert {row[LETTERS.key] for row in records_of(reader, f"{listed.page}&format=csv")} == {"7"}


def test_columns_for_administrators_are_theirs_on_the_page_in_files_and_in_the_api(
    portal: Portal, admin: Client, signed_in: Callable[[User], Client]
) -> None:
    page, lead = f"/admin/data-quality/?{HOURLY}", signed_in(portal.ada)
    for client, told in ((admin, True), (lead, False)):
        head, *_ = tables_of(text_of(client, f"{page}&tab=exporters"))["clusters"].rows
        assert any(cell.text.startswith("Prometheus") for cell in head) == told
        kept = records_of(client, f"{page}&format=csv&table=clusters")
        assert all(("prometheus_url" in row) == told for row in kept)
        answer: Any = client.get("/api/v1/clusters")
        assert all(bool(row["prometheus_url"]) == told for row in answer.json()["results"])
        answer = client.get("/api/v1/collections?state=failed")
        assert [row["error"] for row in answer.json()["results"]] == [ERROR if told else None] * 2
        assert (ERROR in text_of(client, page)) == told
        hours = records_of(client, f"{page}&format=csv&table=collections")
        assert any(row["remarks"] == ERROR for row in hours) == told


def test_no_help_of_a_page_speaks_the_language_of_the_api() -> None:
    import_module(settings.ROOT_URLCONF)  # with it all rows that pages show
    speech = re.compile(r"\bnull\b|\b(?:true|false):|\b0\.\.1\b|[a-z]_[a-z]", re.IGNORECASE)
    shown = {
        (row.__qualname__, column.name, column.help)
        for row in declared_rows()
        for column in columns_of(row)
        if column.label
    }
    assert len(shown) > 100
    assert [said for said in sorted(shown) if speech.search(said[-1])] == []


def declared_rows() -> set[type]:
    """Return the classes of the product that declare columns."""
    modules = [module for name, module in sys.modules.items() if name.startswith("apps.")]
    classes = {one for module in modules for one in vars(module).values() if isinstance(one, type)}
    return {
        one
        for one in classes
        if any(
            get_origin(hint) is Annotated for hint in vars(one).get("__annotations__", {}).values()
        )
    }
