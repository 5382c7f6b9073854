"""Money as tables print it: every column and row adds up as it is read."""

from decimal import Decimal

import pytest

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
