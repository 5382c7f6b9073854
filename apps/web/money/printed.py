"""Tables with money: printed in cents that add up within the table, carried in full by files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from apps.costs.domain.money import SCALE_DIGITS, cents, minor_digits, money
from apps.web.formats import Format, plain
from apps.web.tables import Cell, Column, Row, Table

UNPRICED = "unpriced"
MoneyOf = Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class MoneyRow(Row):
    """`amounts` are units of 1e-8 by column key, None where there is no price; `printed` is what
    the page shows of them. In `values` the same stand as numbers, to be sorted by.
    """

    amounts: MoneyOf = field(default_factory=dict)
    printed: Mapping[str, str] = field(default_factory=dict)


class MoneyTable(Table):
    """A table whose columns of money are written by its rows, not by their format."""

    __slots__ = ()

    def _record(self, row: Row) -> list[str]:
        record = Table._record(self, row)
        if isinstance(row, MoneyRow):
            for place, column in enumerate(self.columns):
                if column.key in row.amounts:
                    record[place] = in_full(row.amounts[column.key])
        return record

    def _cell(self, row: Row, column: Column) -> Cell:
        if not isinstance(row, MoneyRow) or column.key not in row.amounts:
            return Table._cell(self, row, column)
        text, full = row.printed[column.key], in_full(row.amounts[column.key])
        return Cell(
            text=text,
            title=f"{full} {column.unit}".strip() if full and full != text else "",
            is_number=True,
            href=row.links.get(column.key),
        )


def in_full(amount: int | None) -> str:
    """Write units with all their digits; nothing for what has no price."""
    return "" if amount is None else plain(money(amount))


def money_column(key: str, label: str, currency: str, hint: str = "") -> Column:
    return Column(key, label, Format.DECIMAL, currency, hint)


def number_of(amount: int | None) -> float | None:
    """Return money as a number to sort by."""
    return None if amount is None else float(money(amount))


def texts(amounts: Sequence[int | None], currency: str) -> list[str]:
    """Print a column so that it adds up as it is printed; what has no price says so."""
    digits = minor_digits(currency)
    priced = iter(cents([amount for amount in amounts if amount is not None], digits=digits))
    return [UNPRICED if amount is None else f"{next(priced):,}" for amount in amounts]


def text(amount: int, currency: str) -> str:
    """Print one amount."""
    return texts([amount], currency)[0]


def cells(rows: Sequence[Sequence[int | None]], currency: str) -> list[tuple[str, list[str]]]:
    """Print (sum of the row, its cells): the sums add up down the column, the cells to their sum.

    The exact amounts beside differ from what is printed by less than a cent each. What has no
    price is in no sum; a row of nothing else has none.
    """
    digits = minor_digits(currency)
    sums = texts([_sum(row) for row in rows], currency)
    return [(whole, _row_texts(whole, row, digits)) for whole, row in zip(sums, rows, strict=True)]


def _sum(row: Sequence[int | None]) -> int | None:
    known = [amount for amount in row if amount is not None]
    return sum(known) if any(known) or len(known) == len(row) else None


def _row_texts(whole: str, row: Sequence[int | None], digits: int) -> list[str]:
    known = [amount for amount in row if amount is not None]
    said = iter(_adding_up_to(number(whole), known, digits))
    return [UNPRICED if amount is None else f"{next(said):,}" for amount in row]


def number(text: str) -> Decimal:
    """Return an amount as it was printed; 0 for what has no price."""
    return Decimal(0) if text == UNPRICED else Decimal(text.replace(",", ""))


def _adding_up_to(whole: Decimal, amounts: Sequence[int], digits: int) -> list[Decimal]:
    """Divide a printed sum among its parts, by largest remainder."""
    coin = 10 ** (SCALE_DIGITS - digits)
    parts = [divmod(amount, coin) for amount in amounts]
    coins = [count for count, _ in parts]
    left = int(whole.scaleb(digits)) - sum(coins)
    for place in sorted(range(len(parts)), key=lambda at: (-parts[at][1], at))[:left]:
        coins[place] += 1
    return [Decimal(count).scaleb(-digits) for count in coins]


def summed_texts(printed: Sequence[str]) -> str:
    """Add up amounts as they are printed."""
    if printed and set(printed) == {UNPRICED}:
        return UNPRICED
    return f"{sum(map(number, printed), Decimal(0)):,}"
