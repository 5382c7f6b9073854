from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.costs.domain.costing import apportioned, cents, minor_digits, money, rounded_ratio, units

WEIGHTS = st.lists(st.integers(0, 10**15), min_size=1, max_size=12).filter(any)
AMOUNTS = st.lists(st.integers(-(10**15), 10**15), max_size=30)


@given(st.integers(-(10**18), 10**18), WEIGHTS)
def test_parts_sum_to_the_total_and_are_off_by_less_than_one(
    total: int, weights: list[int]
) -> None:
    parts = apportioned(total, weights)
    whole = sum(weights)
    assert sum(parts) == total
    for part, weight in zip(parts, weights, strict=True):
        assert abs(part * whole - total * weight) < whole


@pytest.mark.parametrize(
    ("total", "weights", "parts"),
    [
        pytest.param(10, [1, 1, 1], [4, 3, 3], id="of equal remainders the earlier wins"),
        pytest.param(10, [1, 2, 4], [1, 3, 6], id="the largest remainders get one more"),
        pytest.param(-10, [1, 1, 1], [-4, -3, -3], id="taking back undoes giving"),
        pytest.param(7, [0, 5, 0], [0, 7, 0], id="who has no weight gets nothing"),
        pytest.param(0, [0, 0], [0, 0], id="nothing to divide among nobody"),
    ],
)
def test_a_total_is_divided(total: int, weights: list[int], parts: list[int]) -> None:
    assert apportioned(total, weights) == parts


@pytest.mark.parametrize(
    ("weights", "message"), [([0, 0], "nothing to divide by"), ([1, -1], "must not be negative")]
)
def test_what_cannot_be_divided_is_refused(weights: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        apportioned(1, weights)


@given(AMOUNTS, st.sampled_from([0, 2, 3]))
def test_printed_cents_add_up_to_the_printed_sum(amounts: list[int], digits: int) -> None:
    printed = cents(amounts, digits=digits)
    assert sum(printed, Decimal(0)) == cents([sum(amounts)], digits=digits)[0]
    coin = Decimal(1).scaleb(-digits)
    for amount, shown in zip(amounts, printed, strict=True):
        assert abs(money(amount) - shown) < coin


def test_thirds_of_a_cent_are_printed_so_that_the_column_adds_up() -> None:
    third = units(Decimal("33.33333333"))
    assert [str(one) for one in cents([third, third, units(Decimal("33.33333334"))])] == [
        "33.33",
        "33.33",
        "33.34",
    ]


@pytest.mark.parametrize(
    ("numerator", "denominator", "whole"),
    [(5, 2, 2), (7, 2, 4), (-5, 2, -2), (-7, 2, -4), (2, 3, 1), (1, 3, 0), (-1, 3, 0)],
)
def test_halves_are_rounded_to_even(numerator: int, denominator: int, whole: int) -> None:
    assert rounded_ratio(numerator, denominator) == whole


@given(st.integers(-(10**20), 10**20))
def test_units_and_money_are_each_others_inverse(amount: int) -> None:
    assert units(money(amount)) == amount


@pytest.mark.parametrize(("currency", "digits"), [("USD", 2), ("jpy", 0), ("KWD", 3), ("XYZ", 2)])
def test_a_currency_has_its_own_smallest_coin(currency: str, digits: int) -> None:
    assert minor_digits(currency) == digits
