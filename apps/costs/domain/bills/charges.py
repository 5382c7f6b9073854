"""A charge of a bill, and reading its cells: amounts, times and texts of CSV and Parquet."""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from enum import StrEnum

from msgspec import Struct, field

from apps.costs.domain.costing import units
from apps.costs.domain.exchange_rates import MonthRates, converted

NO_SKU = "(no SKU)"
EXPORT_AGAIN = "Export the file again as CSV (UTF-8) or Parquet."
LONGEST_SKU = 300
MOST_DAYS = 3700
"""A charge of more than ten years is a typing error, and would spread over as many rows."""
_MOST_AMOUNT = Decimal(10_000_000_000)  # Of a line; a sum of eight of these fits in 64 bits.
_DECIMAL = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
_GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
_DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+")
_DOT_GROUPS = re.compile(r"[+-]?\d{1,3}(\.\d{3}){2,}")
_THREE_AFTER_DOT = re.compile(r"[+-]?\d{1,3}\.\d{3}")
Cells = Sequence[object]
NumberedRows = Iterable[tuple[int, Cells]]
"""Rows of a file with their line numbers, the head left out."""


class BillRefused(ValueError):
    """A bill cannot be imported; the text names the line, what is wrong, and what to do."""


class ChargeKind(StrEnum):
    """What a charge is. All but usage are kept apart: the portal's cost has none of them."""

    USAGE = "usage"
    TAX = "tax"
    CREDIT = "credit"
    REFUND = "refund"
    CORRECTION = "correction"


class BillCharge(Struct, frozen=True):
    """A line of a bill: `amount` in units of 1e-8, for the time from `start` up to `end`.

    Both are aware; equal ones are a moment, as of a fee.
    """

    sku: str
    description: str
    kind: ChargeKind
    start: datetime
    end: datetime
    amount: int


def refused(line: int, problem: str) -> BillRefused:
    """Return the refusal of a line; `problem` says what is wrong and what to do."""
    return BillRefused(f"Line {line}: {problem}")


def text_of(cell: object) -> str:
    """Return a cell as text without surrounding blanks; empty for null."""
    return "" if cell is None else str(cell).replace("\0", "").strip()


def cell_of(cells: Cells, place: int | None) -> object:
    """Return the cell of a column; None where the file does not have the column."""
    return None if place is None else cells[place]


class AmountReader:
    """Reads the amounts of one file: 1234.5 and 1,234.50; between semicolons 1.234,50 too.

    Between semicolons 1.234 is read as a decimal, unless another line of the file has a decimal
    comma: then it can be either, and the file is refused.
    """

    def __init__(self, *, semicolons: bool = False) -> None:
        self._semicolons = semicolons
        self._has_comma = False
        self._unclear: tuple[int, str] | None = None

    def read(self, cell: object, line: int) -> int:
        """Return an amount in units of 1e-8. Raises BillRefused."""
        text = text_of(cell)
        if not text:
            raise refused(line, "the cost is empty. Write 0 where nothing was charged.")
        try:
            amount = Decimal(self._plain(text, line))
        except InvalidOperation:
            raise refused(
                line, f"“{text[:40]}” is no amount. Write it as 1234.56, without a currency sign."
            ) from None
        if not amount.is_finite() or abs(amount) > _MOST_AMOUNT:
            raise refused(line, f"“{text[:40]}” is no amount that a bill can have. Correct it.")
        return units(amount)

    def _plain(self, text: str, line: int) -> str:
        """Return the text as Python reads decimals; as it is where it is none."""
        if self._semicolons and _DECIMAL_COMMA.fullmatch(text):
            self._has_comma = True
            return text.replace(".", "").replace(",", ".")
        if self._semicolons and _DOT_GROUPS.fullmatch(text):
            return text.replace(".", "")
        if self._semicolons and _THREE_AFTER_DOT.fullmatch(text):
            self._unclear = self._unclear or (line, text)
        if not self._semicolons and _GROUPED.fullmatch(text):
            return text.replace(",", "")
        # Decimal itself takes underscores, NaN and digits of other scripts.
        return text if _DECIMAL.fullmatch(text) and text.isascii() else ""

    def check(self) -> None:
        """Raise BillRefused where an amount of the file can be read in two ways."""
        if self._has_comma and self._unclear:
            line, text = self._unclear
            raise refused(
                line,
                f"“{text}” can be read as {text.replace('.', '')} or as {text.replace('.', ',')}: "
                "other lines have a decimal comma. Write it without a dot.",
            )


def instant_of(cell: object, column: str, line: int) -> datetime:
    """Return an aware time; one without an offset is in UTC, as FOCUS has it. BillRefused."""
    if isinstance(cell, datetime):
        found = cell
    else:
        text = text_of(cell)
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            raise refused(
                line, f"{column} “{text[:40]}” is no time. Write it as 2026-10-31T00:00:00Z."
            ) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def day_of_cell(cell: object, column: str, line: int) -> date:
    """Return a day written as 2026-10-31. Raises BillRefused."""
    text = text_of(cell)
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise refused(line, f"{column} “{text[:40]}” is no day. Write it as 2026-10-31.") from None


def check_period(start: datetime, end: datetime, line: int) -> None:
    """Raise BillRefused for a charge that ends before it starts, or takes ten years."""
    if end < start:
        raise refused(line, "the charge ends before it starts. Correct one of the two times.")
    if end - start > timedelta(days=MOST_DAYS) or not 1990 <= start.year <= end.year < 2200:
        raise refused(line, f"{start:%Y-%m-%d} to {end:%Y-%m-%d} is no charge period. Correct it.")


class BillCurrency(Struct, frozen=True):
    """The portal's currency, and the rates by which amounts in others are converted to it."""

    name: str
    rates: MonthRates = field(default_factory=dict)

    def amount(self, cell: object, currency: str, line: int, amounts: AmountReader) -> int:
        """Return the amount of a cell that is in `currency`. Raises BillRefused."""
        written = currency.upper()
        if written == self.name:
            return amounts.read(cell, line)
        rate = self.rates.get(written)
        if rate is None:
            said = f"is in {currency[:10]}" if currency else "has no currency"
            raise refused(
                line,
                f"the charge {said}, the portal reports in {self.name}. The catalog has no "
                f"exchange rate of the month: add one, or import a bill in {self.name}.",
            )
        return converted(amounts.read(cell, line), rate)


def sku_of(*names: str) -> str:
    """Return the first name that is there, as a SKU."""
    return next(filter(None, names), NO_SKU)[:LONGEST_SKU]
