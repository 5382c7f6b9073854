"""Tables sort by any column, as the address says."""

import html
import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from django.http import QueryDict
from django.test import Client, RequestFactory

from apps.usage.domain.amounts import nano
from apps.web.components.formats import Format
from apps.web.components.table_arrangement import (
    MOST_SORTED,
    TableOrder,
    arranged,
    in_order,
    order_from,
)
from apps.web.components.tables import Column, Table, TableRow
from tests.web.conftest import HOURLY
from tests.web.pages import records_of, table_links, text_of
from tests.web.shown import tables_of

NAME = Column("name", "Name")
HOURS = Column("busy_gpu_hours", "Busy", Format.GPU_HOURS, "GPU-h")
SEEN = Column("seen_at", "Seen", Format.TIME)
ROWS = [
    TableRow({"name": "b", "busy_gpu_hours": nano(2), "seen_at": datetime(2025, 1, 2, tzinfo=UTC)}),
    TableRow({"name": "A", "busy_gpu_hours": None, "seen_at": None}),
    TableRow(
        {"name": "c", "busy_gpu_hours": nano(10), "seen_at": datetime(2025, 1, 1, tzinfo=UTC)}
    ),
]


def table(name: str = "t", rows: list[TableRow] = ROWS, *, ordered: bool = False) -> Table:
    return Table(name, "T", [NAME, HOURS, SEEN], rows, ZoneInfo("UTC"), "Nothing.", ordered=ordered)


def names(rows: object) -> str:
    return "".join(str(row.values["name"]) for row in rows)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("column", "falling", "expected"),
    [
        pytest.param(NAME, False, "Abc", id="names without regard to case"),
        pytest.param(NAME, True, "cbA", id="names backwards"),
        pytest.param(HOURS, False, "bcA", id="numbers by size, the absent last"),
        pytest.param(HOURS, True, "cbA", id="the largest first, the absent still last"),
        pytest.param(SEEN, False, "cbA", id="times, the oldest first"),
        pytest.param(SEEN, True, "bcA", id="times, the newest first"),
    ],
)
def test_rows_sort_by_the_values_of_a_column(column: Column, falling: bool, expected: str) -> None:
    assert names(in_order(ROWS, column, TableOrder(column.key, falling=falling))) == expected


def test_rows_that_are_alike_keep_their_order() -> None:
    alike = [TableRow({"name": name, "busy_gpu_hours": 1}) for name in "xyz"]
    for falling in (False, True):
        assert names(in_order(alike, HOURS, TableOrder(HOURS.key, falling=falling))) == "xyz"


@pytest.mark.parametrize(
    ("query", "order"),
    [
        ("", None),
        ("sort=", None),
        ("sort=-", None),
        ("sort=name", TableOrder("name")),
        ("sort=-name", TableOrder("name", falling=True)),
        ("other.sort=name", None),
    ],
)
def test_an_order_is_read_from_the_address(query: str, order: TableOrder | None) -> None:
    assert order_from(QueryDict(query), "sort") == order


def test_one_table_sorts_by_a_short_word_and_several_by_their_names() -> None:
    request = RequestFactory().get("/x/?sort=name&u.sort=-name")
    assert names(arranged([table()], request)[0].rows) == "Abc"
    assert [names(t.rows) for t in arranged([table("t"), table("u")], request)] == ["bAc", "cbA"]


def test_a_head_leads_to_the_other_direction_and_keeps_the_rest_of_the_address() -> None:
    request = RequestFactory().get("/x/?window=7d&page=3&u.sort=name&t.sort=-busy_gpu_hours")
    heads = arranged([table("t"), table("u")], request)[0].headings()
    assert [(h.direction, h.href) for h in heads] == [
        ("", "/x/?window=7d&u.sort=name&t.sort=name#t"),
        ("descending", "/x/?window=7d&u.sort=name&t.sort=busy_gpu_hours#t"),
        ("", "/x/?window=7d&u.sort=name&t.sort=-seen_at#t"),
    ]


def test_a_table_with_an_order_of_its_own_has_no_heads_to_click() -> None:
    (kept,) = arranged([table(ordered=True)], RequestFactory().get("/x/?sort=name"))
    assert names(kept.rows) == "bAc"
    assert not any(head.href or head.direction for head in kept.headings())


def test_a_column_that_is_not_there_is_said_and_sorts_nothing() -> None:
    (kept,) = arranged([table()], RequestFactory().get("/x/?sort=nonsense"))
    assert names(kept.rows) == "bAc"
    assert "no column “nonsense”" in kept.note


def test_what_is_too_long_to_sort_says_so() -> None:
    long = Table(
        "t",
        "T",
        [NAME],
        ROWS[:1],
        ZoneInfo("UTC"),
        "",
        every=lambda: (TableRow({"name": str(n)}) for n in range(MOST_SORTED + 1)),
    )
    (kept,) = arranged([long], RequestFactory().get("/x/?sort=name"))
    assert names(kept.rows) == "b"
    assert "Not sorted" in kept.note


def test_a_page_of_a_sorted_table_is_a_page_of_all_its_rows(admin: Client) -> None:
    address = f"/capacity/teams/vision/?tab=workloads&{HOURLY}&per_page=1&workloads.sort=-workload"
    whole = tables_of(text_of(admin, address.replace("per_page=1&", "")))["workloads"].rows[1:-1]
    names_seen = [row[2].text for row in whole]
    assert names_seen == sorted(names_seen, reverse=True)
    assert len(set(names_seen)) > 1
    seen = []
    for number in range(1, len(whole) + 1):
        page = text_of(admin, f"{address}&page={number}")
        seen += tables_of(page)["workloads"].rows[1:-1]
    assert [[c.text for c in row] for row in seen] == [[c.text for c in row] for row in whole]
    pager = re.findall(r'href="([^"]+)" rel="prev"', page)
    assert "workloads.sort=-workload" in html.unescape(pager[0])


@pytest.mark.parametrize("key", ["pod", "-busy_gpu_hours", "created_at"])
def test_a_file_carries_the_order_of_the_screen(key: str, admin: Client) -> None:
    page = text_of(admin, f"/workloads/west/vision/Job/train/?tab=pods&{HOURLY}&sort={key}")
    shown = [row[0].text for row in tables_of(page)["pods"].rows[1:]]
    (link,) = [a for a in table_links(page) if "table=pods" in a]
    assert [record["pod"] for record in records_of(admin, link)] == shown
    values = [record[key.removeprefix("-")] for record in records_of(admin, link)]
    numbers = [float(v) for v in values] if key.startswith("-") else values
    assert numbers == sorted(numbers, reverse=key.startswith("-"))


def test_window_and_order_do_not_undo_each_other(admin: Client) -> None:
    page = text_of(admin, f"/capacity/teams/?{HOURLY}&sort=-allocated_gpu_hours")
    assert html.unescape(page).count("sort=-allocated_gpu_hours") >= 2  # in the picker's links
    assert "first=2025-10-25&amp;last=2025-10-27&amp;sort=allocated_gpu_hours" in page
