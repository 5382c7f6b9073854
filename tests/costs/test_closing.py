from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.costs.domain.costing import SCALE, Cause, fact_cost
from apps.costs.domain.months import (
    NOTHING,
    ClosedLine,
    LineAmount,
    LineId,
    NotCanonical,
    adjustments,
    canonical_rows,
    sha256_of,
)
from apps.usage.domain.amounts import NANO


def fingerprint(rows: Iterable[ClosedLine], *, header: Mapping[str, str]) -> str:
    return sha256_of(canonical_rows(rows, header=header))


HEADER = {"period": "2026-10", "currency": "USD", "price_book": "abc"}
KEYS = st.tuples(st.sampled_from(["2026-10-01", "2026-10-02"]), st.sampled_from(["a", "b", "c"]))
AMOUNTS = st.builds(LineAmount, st.integers(0, 10**6), st.integers(0, 10**9), st.integers(0, 10**6))
MONTHS = st.dictionaries(KEYS, AMOUNTS)


def by_key(lines: list[ClosedLine]) -> dict[LineId, LineAmount]:
    total: dict[LineId, LineAmount] = {}
    for key, amount in lines:
        total[key] = total.get(key, NOTHING) + amount
    return total


@given(MONTHS, st.lists(MONTHS, max_size=4))
def test_what_was_frozen_and_all_adjustments_are_what_it_would_be_today(
    frozen: dict[LineId, LineAmount], later: list[dict[LineId, LineAmount]]
) -> None:
    booked: list[ClosedLine] = []
    for recomputed in later:
        booked += adjustments(frozen, recomputed, booked)
        known = by_key([*frozen.items(), *booked])
        assert {k: v for k, v in known.items() if v} == {k: v for k, v in recomputed.items() if v}
        assert adjustments(frozen, recomputed, booked) == []


def test_a_row_that_is_gone_comes_as_its_negative_and_a_new_one_as_itself() -> None:
    gone, new = LineAmount(5, 50), LineAmount(7, 70)
    assert adjustments({("a",): gone}, {("b",): new}) == [
        (("a",), LineAmount(-5, -50)),
        (("b",), new),
    ]


def test_a_corrected_price_changes_no_closed_month_but_becomes_a_line() -> None:
    def rows(price: int) -> dict[LineId, LineAmount]:
        cost = fact_cost({Cause.IDLE: NANO, Cause.BUSY: 3 * NANO}, price)
        return {("vision", cause.value): LineAmount(NANO, cost[cause]) for cause in cost}

    frozen = rows(3 * SCALE)
    before = fingerprint(sorted(frozen.items()), header=HEADER)
    lines = adjustments(frozen, rows(2 * SCALE))
    assert fingerprint(sorted(frozen.items()), header=HEADER) == before
    assert [amount.cost for _, amount in lines] == [-3 * SCALE, -SCALE]
    assert [amount.gpu_hours for _, amount in lines] == [0, 0]


@given(MONTHS)
def test_a_fingerprint_depends_on_every_figure(month: dict[LineId, LineAmount]) -> None:
    rows = sorted(month.items())
    print_ = fingerprint(rows, header=HEADER)
    assert fingerprint(iter(rows), header=dict(reversed(HEADER.items()))) == print_
    assert fingerprint(rows, header=HEADER | {"price_book": "abd"}) != print_
    for place, (key, amount) in enumerate(rows):
        changed = [*rows]
        changed[place] = key, amount + LineAmount(0, 1)
        assert fingerprint(changed, header=HEADER) != print_


def test_the_bytes_of_a_month_are_these_and_stay_these() -> None:
    rows = [(("2026-10-01", "vision", "idle"), LineAmount(1, 2)), (("ä",), LineAmount(3, 4, 3))]
    assert b"".join(canonical_rows(rows, header={"period": "2026-10", "currency": "USD"})) == (
        b'{"currency":"USD","period":"2026-10"}\n'
        b'["2026-10-01","vision","idle",1,2,0]\n'
        b'["\xc3\xa4",3,4,3]\n'
    )


@pytest.mark.parametrize("keys", [["b", "a"], ["a", "a"]], ids=["out of order", "twice"])
def test_rows_out_of_order_are_not_frozen(keys: list[str]) -> None:
    with pytest.raises(NotCanonical):
        fingerprint([((key,), NOTHING) for key in keys], header=HEADER)
