"""A table and its file are the same table."""

import csv
import io
import re
from zoneinfo import ZoneInfo

import pytest

from apps.accounts.domain.structs import replace
from apps.usage.domain.amounts import Amounts, nano
from apps.usage.domain.usage_query import UsageRow
from apps.web.components import tables
from apps.web.components.formats import Format, Value
from apps.web.components.page_query import href
from apps.web.components.table_rendering import body, csv_text
from apps.web.components.tables import Column, Table, TableRow

ZONE = ZoneInfo("UTC")
COLUMNS = [
    Column("name", "Name"),
    Column("allocated_gpu_hours", "Allocated", Format.GPU_HOURS, "GPU-h"),
    Column("utilization_ratio", "Utilization", Format.RATIO, "%"),
    Column("wait_seconds", "Waited", Format.SECONDS),
]


def table(*rows: TableRow, total: TableRow | None = None) -> Table:
    return Table("t", "T", COLUMNS, rows, ZONE, "Nothing.", total=total)


def row(name: str, amount: int = nano(1.25)) -> TableRow:
    values: dict[str, Value] = {
        "name": name,
        "allocated_gpu_hours": amount,
        "utilization_ratio": 0.5,
    }
    return TableRow({**values, "wait_seconds": 61.5})


def test_a_cell_is_short_with_the_exact_value_as_its_title() -> None:
    cells = table(row("a", nano(1234.5678))).body()[0]
    assert [(c.text, c.title) for c in cells] == [
        ("a", ""),
        ("1,234.6", "1234.5678 GPU-h"),
        ("50.0", "0.5"),
        ("1m 2s", "61.5 s"),
    ]
    assert [c.is_number for c in cells] == [False, True, True, True]


def test_only_a_long_name_may_take_several_lines() -> None:
    short, long = (table(row(name)).body()[0][0] for name in ("vision", "v" * 60))
    assert not short.is_long
    assert long.is_long


def test_a_bar_that_is_over_has_a_tick_at_100_percent() -> None:
    full, over = (row("a"), replace(row("b"), values={"name": "b", "utilization_ratio": 2.0}))
    assert [c[2].share + c[2].whole for c in table(full).body()] == ["0.500"]
    cells = [line[2] for line in table(full, over).body()]
    assert [(c.share, c.whole) for c in cells] == [("0.250", "0.500"), ("1.000", "0.500")]
    assert 'class="num bar bar-over" style="--share: 0.250; --whole: 0.500"' in body(
        table(full, over)
    )


def test_a_cell_brings_the_head_of_its_column_along() -> None:
    told = body(table(row("a")))
    assert re.findall('data-label="([^"]+)"', told) == [
        "Allocated GPU\u2011h",
        "Utilization %",
        "Waited",
    ]


def test_a_phone_shows_the_leading_columns_or_those_that_are_named_and_the_sorted_one() -> None:
    more = Column("team", "Team")
    wide = replace(table(*(row(f"p{n}") for n in range(12))), columns=[*COLUMNS, more])
    named = replace(wide, on_phone=("name", "team"))
    by_team = replace(wide, sorted_by="-team")
    assert [shown_on_phone(one) for one in (table(row("a")), wide, named, by_team)] == [
        [True] * 4,
        [True] * 4 + [False],
        [True, False, False, False, True],
        [True, True, True, False, True],
    ]
    assert body(wide).count("data-more") == len(wide.rows)
    assert (table(row("a")).more_text, wide.more_text) == ("", "All 12 rows, 5 columns")


def shown_on_phone(one: Table) -> list[bool]:
    return [not head.is_more for head in one.headings()]


def test_a_file_has_the_rows_and_the_total_in_full() -> None:
    text = csv_text(table(row("a"), row("b", 1), total=row("Total")))
    assert text.split("\r\n") == [
        "name,allocated_gpu_hours,utilization_ratio,wait_seconds",
        "a,1.25,0.5,61.5",
        "b,0.000000001,0.5,61.5",
        "Total,1.25,0.5,61.5",
        "",
    ]


@pytest.mark.parametrize(
    "name", ["=1+1", "+1", "-1", "@x", "\tx", "\rx", "\nx", "\uff1d1", '=HYPERLINK("x","y")']
)
def test_a_name_is_never_a_formula_in_a_spreadsheet(name: str) -> None:
    read = list(csv.reader(io.StringIO(csv_text(table(row(name))), newline="")))
    assert read[1][0] == f"'{name}"


@pytest.mark.parametrize("name", ["a,b", 'say "x"', "two\nlines", "ünï", "a;b"])
def test_a_name_comes_out_of_the_file_as_it_went_in(name: str) -> None:
    read = list(csv.reader(io.StringIO(csv_text(table(row(name))), newline="")))
    assert read[1][0] == name


def test_absent_values_are_empty_in_files_and_dashes_on_pages() -> None:
    given = table(TableRow({"name": "a"}))
    assert csv_text(given).splitlines()[1] == "a,,,"
    assert [c.text for c in given.body()[0]] == ["a", "–", "–", "–"]


def test_ratios_of_a_total_derive_from_sums() -> None:
    many = Amounts(allocated=nano(90), busy=nano(90), capacity=nano(100))
    few = Amounts(allocated=nano(10), busy=nano(0), capacity=nano(100))
    total = tables.total_row("name", [UsageRow(None, {}, many), UsageRow(None, {}, few)])
    assert total is not None
    assert total.values["utilization_ratio"] == 0.9
    assert total.values["allocation_ratio"] == 0.5


def test_one_line_needs_no_total() -> None:
    assert tables.total_row("name", [UsageRow(None, {}, Amounts())]) is None


@pytest.mark.parametrize("name", ["", "a/b", "/"])
def test_a_name_that_fits_no_address_has_no_link(name: str) -> None:
    assert href("tier", (), name=name) is None


def test_an_address_keeps_the_query_and_escapes_names() -> None:
    link = href("team", (("window", "7d"), ("cluster", "a&b")), name="x y")
    assert link == "/capacity/teams/x%20y/?window=7d&cluster=a%26b"


def test_of_rows_that_are_made_later_only_those_shown_are_made() -> None:
    made: list[int] = []

    def row_of(number: int) -> TableRow:
        made.append(number)
        return TableRow({"name": str(number)})

    rows = tables.LaterRows(range(1000), row_of)
    assert len(rows) == 1000
    assert [row.values["name"] for row in rows[10:12]] == ["10", "11"]
    assert rows[-1].values["name"] == "999"
    assert made == [10, 11, 999]
    assert len(list(rows)) == 1000
