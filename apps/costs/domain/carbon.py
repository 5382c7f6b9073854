"""Carbon of measured energy: kWh × PUE × grams of CO2e a kWh, hour by hour.

Amounts are whole: energy in milliwatt-hours, carbon in micrograms. One mWh at 1 g/kWh is 1 µg.
"""

import csv
import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation, localcontext

from msgspec import Struct, field

from apps.clusters.domain.resources import counted

HEAD = ("hour", "g_per_kwh")
MOST_G_PER_KWH = Decimal(5000)
"""More than any grid or generator emits; what is above is in another unit."""
_MOST_PROBLEMS = 10
_YEARS = range(2000, 2100)
# A line has a time and a number: what is longer is another file, or a quote that nothing closes.
_MOST_CHARACTERS = 200
# Far finer than any factor is known. Without a limit 1e-999999999 would be written out in full.
_MOST_DECIMALS = 20
# As editors count lines: other breaks of Unicode are characters of a cell.
_LINE_END = re.compile(r"\r\n|\r|\n")


class CarbonFile(Struct, frozen=True):
    """Grams of CO2e a kWh by the start of the hour (UTC, `2026-01-01T00`), as decimal texts."""

    hours: Mapping[str, str] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """What the file says in a line; the same for the same hours and values."""
        if not self.hours:
            return ""
        text = "\n".join(f"{hour},{value}" for hour, value in sorted(self.hours.items()))
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        hours = counted(len(self.hours), "hour")
        return f"{hours}, {min(self.hours)} to {max(self.hours)}Z, {digest}"


class CarbonFileRefused(ValueError):
    """A file of factors is not one; `problems` are sentences, each with its line and column."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def read_carbon_file(text: str) -> CarbonFile:
    """Return the factors of a CSV: start of an hour with its offset, and grams of CO2e a kWh.

    A first line `hour,g_per_kwh` is its head; empty lines are skipped. Raises CarbonFileRefused
    with the first ten lines that are wrong.
    """
    hours: dict[str, str] = {}
    first_on: dict[str, int] = {}
    problems: list[str] = []
    # Spreadsheets write a byte order mark first, which would belong to the first cell.
    for number, line in enumerate(_LINE_END.split(text.removeprefix("\ufeff")), start=1):
        try:
            cells = _cells(line)
            if not any(cells) or (not first_on and tuple(cells) == HEAD):
                continue
            hour, value = _factor(cells)
        except ValueError as error:
            problems.append(f"line {number}{error}")
            continue
        first = first_on.setdefault(hour, number)
        if first != number:
            problems.append(f"line {number}, {HEAD[0]}: {cells[0]} stands on line {first} already")
        hours[hour] = value
    if not hours and not problems:
        problems = ["line 1: no hour is given; write lines such as 2026-01-01T00:00:00Z,380"]
    if problems:
        more = len(problems) - _MOST_PROBLEMS
        raise CarbonFileRefused(
            [*problems[:_MOST_PROBLEMS], *([f"and {more:,} more lines"] if more > 0 else [])]
        )
    return CarbonFile(hours)


def _cells(line: str) -> list[str]:
    # Each line by itself: a quote that nothing closes would swallow all hours after it.
    if len(line) > _MOST_CHARACTERS:
        raise ValueError(f": has {len(line):,} characters; an hour and its g/kWh are needed")
    return [cell.strip() for cell in next(csv.reader([line]), [])]


def _factor(cells: list[str]) -> tuple[str, str]:
    if len(cells) != len(HEAD):
        raise ValueError(f": has {len(cells)} values; an hour and its g/kWh are needed")
    try:
        hour = _hour(cells[0])
    except ValueError as error:
        raise ValueError(f", {HEAD[0]}: {error}") from None
    try:
        return hour, _grams(cells[1])
    except ValueError as error:
        raise ValueError(f", {HEAD[1]}: {error}") from None


def _hour(cell: str) -> str:
    try:
        at = datetime.fromisoformat(cell)
    except ValueError:
        raise ValueError(f"{cell[:40]!r} is not a time such as 2026-01-01T00:00:00Z") from None
    if at.tzinfo is None:
        raise ValueError(f"{cell!r} has no offset; write it as {cell}Z for UTC")
    # Before the change to UTC, which leads out of the calendar at its ends.
    if at.year not in _YEARS:
        raise ValueError(f"{cell!r} is not in the years {_YEARS[0]} to {_YEARS[-1]}")
    at = at.astimezone(UTC)
    # After the change to UTC: a zone of half an hour has no hour that starts when one of UTC does.
    if at.minute or at.second or at.microsecond:
        raise ValueError(f"{cell!r} is not the start of an hour of UTC")
    return hour_key(at)


def _grams(cell: str) -> str:
    try:
        value = Decimal(cell)
    except InvalidOperation:
        raise ValueError(f"{cell[:40]!r} is not a number of g/kWh") from None
    if value.is_nan():  # and comparing it would raise
        raise ValueError(f"{cell[:40]!r} is not a number of g/kWh")
    if not Decimal(0) <= value <= MOST_G_PER_KWH:
        raise ValueError(f"{cell[:40]} g/kWh is not from 0 to {MOST_G_PER_KWH:,}")
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and -exponent > _MOST_DECIMALS:
        raise ValueError(f"{cell[:40]} has more than {_MOST_DECIMALS} decimals")
    return f"{value.normalize():f}"


def hour_key(at: datetime) -> str:
    """Return how an hour is written in a `CarbonFile`."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H")


class SiteFactor(Struct, frozen=True):
    """What a cluster's site adds to measured energy, from `valid_from` until `valid_to`.

    `carbon_g_per_kwh` None: the factor of an hour is in `by_hour`, or there is none.
    """

    cluster: int
    valid_from: datetime
    valid_to: datetime | None
    pue: Decimal = Decimal(1)
    carbon_g_per_kwh: Decimal | None = None
    by_hour: Mapping[str, str] = field(default_factory=dict)

    def holds(self, at: datetime) -> bool:
        """Say whether it is in force at `at`."""
        return self.valid_from <= at and (self.valid_to is None or at < self.valid_to)

    def grams(self, hour: datetime) -> Decimal | None:
        """Return the grams of CO2e a measured kWh of an hour, PUE included; None: no factor."""
        factor = self.carbon_g_per_kwh
        if factor is None:
            written = self.by_hour.get(hour_key(hour))
            factor = None if written is None else Decimal(written)
        return None if factor is None else factor * self.pue


def carbon_ug(energy_mwh: int, grams_per_kwh: Decimal) -> int:
    """Return the carbon of milliwatt-hours in micrograms, rounded once, half to even."""
    # With the default 28 digits the product would be rounded before, and then once more.
    with localcontext(prec=60):
        return int((energy_mwh * grams_per_kwh).to_integral_value(ROUND_HALF_EVEN))
