"""Money as tables print it: every column and row adds up as it is read."""

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.web.costs import money_format
from apps.web.costs.money_format import UNPRICED, number

THIRDS = [[33_333_333, 33_333_333, 33_333_334], [66_666_666, 66_666_667, 66_666_667]]


@pytest.mark.parametrize(
    ("rows", "currency"),
    [
        (THIRDS, "USD"),
        (THIRDS, "JPY"),
        (THIRDS, "KWD"),
        ([[-1_500_000, 2_499_999], [500_000, 499_999]], "USD"),
        ([[None, 150_500_000], [12_345_678_912, 1]], "USD"),
        ([[None, None], [1, 2]], "USD"),
        ([[]], "USD"),
    ],
    ids=["cents", "no coins", "mills", "negative", "a cell unpriced", "a row unpriced", "nothing"],
)
def test_cells_add_up_to_their_row_and_rows_to_the_whole(
    rows: list[list[int | None]], currency: str
) -> None:
    found = money_format.cells(rows, currency)
    for (whole, cells), row in zip(found, rows, strict=True):
        assert sum(map(number, cells)) == number(whole)
        assert [cell == UNPRICED for cell in cells] == [amount is None for amount in row]
    everything = sum(amount for row in rows for amount in row if amount is not None)
    assert sum((number(whole) for whole, _ in found), Decimal(0)) == number(
        money_format.text(everything, currency)
    )


@settings(max_examples=300)
@given(
    st.lists(st.lists(st.integers(0, 10**9), min_size=3, max_size=3), min_size=1, max_size=8),
    st.lists(st.lists(st.integers(0, 4), min_size=8, max_size=8), min_size=3, max_size=3),
)
def test_two_tables_of_the_same_amounts_come_to_the_same_cents(
    rows: list[list[int]], groups: list[list[int]]
) -> None:
    steps = [sum(row[place] for row in rows) for place in range(3)]
    ((total, columns),) = money_format.cells([steps], "USD")
    other: list[list[int | None]] = [[0, 0, 0] for _ in range(5)]
    for line, row in enumerate(rows):
        for place, amount in enumerate(row):
            at = groups[place][line]
            other[at][place] = (other[at][place] or 0) + amount
    tables: list[list[list[int | None]]] = [[[*row] for row in rows], other]
    for table in tables:
        found = money_format.cells(table, "USD", total=total, columns=columns)
        assert sum((number(whole) for whole, _ in found), Decimal(0)) == number(total)
        for place, column in enumerate(columns):
            assert sum((number(cells[place]) for _, cells in found), Decimal(0)) == number(column)
        for (whole, cells), amounts in zip(found, table, strict=True):
            assert sum(map(number, cells)) == number(whole)
            for cell, exact in zip(cells, amounts, strict=True):
                assert number(cell) >= 0
                assert abs(number(cell) - Decimal(exact or 0).scaleb(-8)) <= Decimal("0.02")


def test_no_printed_cell_is_off_by_a_cent() -> None:
    for (_, cells), row in zip(money_format.cells(THIRDS, "USD"), THIRDS, strict=True):
        for cell, amount in zip(cells, row, strict=True):
            assert abs(number(cell) - Decimal(amount).scaleb(-8)) < Decimal("0.01")


def test_a_file_has_all_digits_and_nothing_for_what_has_no_price() -> None:
    assert [money_format.in_full(amount) for amount in (306_000_001, 300_000_000, 0, None)] == [
        "3.06000001",
        "3",
        "0",
        "",
    ]
