"""Sums of a bill by SKU, kind and local day; charges of several days are spread by time."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from msgspec import Struct

from apps.clusters.domain.window import day_start
from apps.costs.domain.bills.charges import BillCharge, BillRefused, ChargeKind
from apps.costs.domain.costing import apportioned

AmountKey = tuple[str, ChargeKind, date]
_DAY = timedelta(days=1)
# What a column of 64 bits holds.
_MOST_UNITS = 2**63 - 1
_PERIODS = 20_000  # A month by hour has 744; each line of a bill has one of few periods.


class BillSums(Struct, frozen=True):
    """A whole bill: units of 1e-8 by SKU, kind and local day; they sum to `total`.

    `descriptions` has each SKU with its first description, `line_count` counts charges.
    """

    amounts: Mapping[AmountKey, int]
    descriptions: Mapping[str, str]
    line_count: int
    total: int


def spread(start: datetime, end: datetime, amount: int, zone: ZoneInfo) -> list[tuple[date, int]]:
    """Divide an amount among the local days of a charge by time; the parts sum to it exactly.

    A day on which clocks change has 23 or 25 hours and as large a part.
    """
    days, seconds = _weights(start, end, zone)
    return list(zip(days, apportioned(amount, seconds), strict=True))


@lru_cache(_PERIODS)
def _weights(
    start: datetime, end: datetime, zone: ZoneInfo
) -> tuple[tuple[date, ...], tuple[int, ...]]:
    """Return the local days of a charge, and how many microseconds of it each has."""
    day = start.astimezone(zone).date()
    if end <= start:
        return (day,), (1,)
    days, weights = [], []
    at = start
    while at < end:
        until = min(end, day_start(day + _DAY, zone))
        # Some zone may skip a whole day; it has no time then.
        if until > at:
            days.append(day)
            weights.append((until - at) // timedelta(microseconds=1))
            at = until
        day += _DAY
    return tuple(days), tuple(weights)


def sum_charges(charges: Iterable[BillCharge], zone: ZoneInfo) -> BillSums:
    """Return the sums of a bill. Raises BillRefused for one without lines, or too large a sum."""
    amounts: dict[AmountKey, int] = defaultdict(int)
    descriptions: dict[str, str] = {}
    lines = total = 0
    for charge in charges:
        lines += 1
        total += charge.amount
        descriptions.setdefault(charge.sku, charge.description)
        for day, part in spread(charge.start, charge.end, charge.amount, zone):
            amounts[charge.sku, charge.kind, day] += part
    if not lines:
        raise BillRefused("The file has no line below its head. Export the month again.")
    if any(abs(amount) > _MOST_UNITS for amount in (*amounts.values(), total)):
        raise BillRefused("The bill is larger than 92 billion. Check its amounts and currency.")
    return BillSums(dict(amounts), descriptions, lines, total)


def check_month(sums: BillSums, month: date) -> None:
    """Raise BillRefused for a bill of which no usage is of the month."""
    usage = {day for _, kind, day in sums.amounts if kind is ChargeKind.USAGE}
    days = sorted(usage or {day for _, _, day in sums.amounts})
    if not any((day.year, day.month) == (month.year, month.month) for day in days):
        raise BillRefused(
            f"The file has no charge of {month:%Y-%m}: its days are {days[0]} to {days[-1]}. "
            "Choose that month, or another file."
        )
