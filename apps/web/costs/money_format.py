"""Tables with money: printed in cents that add up within the table, carried in full by files."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from msgspec import field

from apps.clusters.domain.columns import columns_of
from apps.costs.domain.costing import SCALE_DIGITS, cents, minor_digits, money
from apps.web.components.formats import MINUS, Format, Value, plain
from apps.web.components.table_cells import Cell
from apps.web.components.tables import Column, Table, TableRow, declared_values

UNPRICED = "unpriced"
MoneyOf = Mapping[str, int | None]


class MoneyRow(TableRow, frozen=True):
    """`amounts` are units of 1e-8 by column key, None where there is no price; `texts` is what
    the page shows of them. In `values` the same stand as numbers, to be sorted by.
    """

    amounts: MoneyOf = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)


class MoneyTable(Table, frozen=True):
    """A table whose columns of money are written by its rows, not by their format."""

    def _record(self, row: TableRow) -> list[str]:
        record = Table._record(self, row)
        if isinstance(row, MoneyRow):
            for place, column in enumerate(self.columns):
                if column.key in row.amounts:
                    record[place] = in_full(row.amounts[column.key])
        return record

    def _cell(self, row: TableRow, column: Column, scale: float) -> Cell:
        if not isinstance(row, MoneyRow) or column.key not in row.amounts:
            return Table._cell(self, row, column, scale)
        text, full = row.texts[column.key], in_full(row.amounts[column.key])
        return Cell(
            text=text,
            title=f"{full} {column.unit}".strip() if full and full != text else "",
            is_number=True,
            href=row.links.get(column.key),
            explain_href=row.explains.get(column.key, "") if full else "",
            label=column.head,
        )


def money_row(
    row: Any,
    *,
    values: Mapping[str, Value],
    links: Mapping[str, str | None],
    explains: Mapping[str, str],
    texts: Mapping[str, str] | None = None,
) -> MoneyRow:
    """Return the line of a declared row with a `currency`; without one it has no price.

    `values` are those that the page writes in its own words, `texts` the amounts that it has
    written so that they add up.
    """
    amounts = {
        column.key: getattr(row, column.name) if row.currency else None
        for column in columns_of(row.__class__, ())
        if column.digits == SCALE_DIGITS
    }
    texts_of = dict(texts or {})
    for key in amounts.keys() - texts_of.keys():
        amount = amounts[key]
        texts_of[key] = UNPRICED if amount is None else text(amount, row.currency)
    numbers = {key: number_of(amount) for key, amount in amounts.items()}
    return MoneyRow(
        {**declared_values(row), **numbers, **values},
        links,
        explains=explains,
        amounts=amounts,
        texts=texts_of,
    )


def in_full(amount: int | None) -> str:
    """Write units with all their digits; nothing for what has no price."""
    return "" if amount is None else plain(money(amount))


def money_column(key: str, label: str, currency: str, hint: str = "") -> Column:
    return Column(key, label, Format.DECIMAL, currency, hint)


def number_of(amount: int | None) -> float | None:
    """Return money as a number to sort by."""
    return None if amount is None else float(money(amount))


WHOLE = 0
"""The decimals of tables by group: cents are for line items, prices and files."""


def texts(amounts: Sequence[int | None], currency: str, *, digits: int | None = None) -> list[str]:
    """Print a column so that it adds up as it is printed; what has no price says so.

    `digits` are the decimals, the currency's own unless given.
    """
    digits = minor_digits(currency) if digits is None else digits
    priced = iter(cents([amount for amount in amounts if amount is not None], digits=digits))
    return [UNPRICED if amount is None else _formatted(next(priced)) for amount in amounts]


def _formatted(amount: Decimal) -> str:
    return f"{amount:,}".replace("-", MINUS)


def text(amount: int, currency: str) -> str:
    """Print one amount."""
    return texts([amount], currency)[0]


def cells(
    rows: Sequence[Sequence[int | None]], currency: str, *, digits: int | None = None
) -> list[tuple[str, list[str]]]:
    """Print (sum of the row, its cells): the sums add up down the column, the cells to their sum.

    The exact amounts beside differ from what is printed by less than its last decimal. What has no
    price is in no sum; a row of nothing else has none. `digits` are the decimals, the currency's
    own unless given.
    """
    digits = minor_digits(currency) if digits is None else digits
    sums = texts([_sum(row) for row in rows], currency, digits=digits)
    grid = [_adding_up(whole, row, digits) for whole, row in zip(sums, rows, strict=True)]
    return [
        (whole, [UNPRICED if n is None else _formatted(Decimal(n).scaleb(-digits)) for n in line])
        for whole, line in zip(sums, grid, strict=True)
    ]


def _sum(row: Sequence[int | None]) -> int | None:
    known = [amount for amount in row if amount is not None]
    # A row of nothing but unpriced cells, and zeros for what it has none of, has no sum.
    return sum(known) if any(known) or len(known) == len(row) else None


def number(text: str) -> Decimal:
    """Return an amount as it was printed; 0 for what has no price."""
    return Decimal(0) if text == UNPRICED else Decimal(text.replace(",", "").replace(MINUS, "-"))


def _adding_up(whole: str, amounts: Sequence[int | None], digits: int) -> list[int | None]:
    """Divide a printed sum among its parts, by largest remainder; in coins."""
    coin = 10 ** (SCALE_DIGITS - digits)
    coins = [None if amount is None else amount // coin for amount in amounts]
    left = int(number(whole).scaleb(digits)) - sum(count or 0 for count in coins)
    known = [place for place, amount in enumerate(amounts) if amount is not None]
    # Largest remainders first, as `cents` does: each cell is off by less than a coin.
    known.sort(key=lambda place: (-((amounts[place] or 0) % coin), place))
    for place in known[: max(0, left)]:
        coins[place] = (coins[place] or 0) + 1
    return coins
