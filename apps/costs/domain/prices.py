"""The price book: what a GPU-hour of a model costs, where, since when, and its likely range."""

import hashlib
import json
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from apps.clusters.domain.tiers import CapacityType, model_key
from apps.costs.domain.costing import units

OWNED = "owned"
CAPACITY_TYPES = (*(str(kind) for kind in CapacityType if kind != CapacityType.UNKNOWN), OWNED)
"""How capacity is paid for: on-demand, spot, reserved, owned."""

HOURS_PER_YEAR = 8760
MOST_PER_GPU_HOUR = 1_000_000
"""Of any currency. Amounts are kept as 64-bit numbers of 1e-8: a day of 3,800 GPUs fits at this
price; what does not fit all the same is not priced, and says so (`cost_rows.AmountTooLarge`)."""
# The unit of stored costs: a finer price could not be charged to the last digit.
_PRICE_STEP = Decimal("1e-8")
_MWH_PER_KWH = 1_000_000
# Of a day on which clocks go back.
_LONGEST_DAY = timedelta(hours=25)

# Which prices may stand for a capacity type, the best first. A node that says nothing of how it
# is paid for is of hardware that somebody owns where such a price is set, else on demand.
_STANDS_FOR = {str(CapacityType.UNKNOWN): (str(CapacityType.UNKNOWN), OWNED, "on-demand")}
_Place = tuple[str, str, str, str]
"""Cluster, tier, model key, capacity type."""
# About how many of a currency make a dollar: only to catch what is off by hundreds.
_PER_DOLLAR = {
    **dict.fromkeys(("USD", "EUR", "GBP", "CHF", "CAD", "AUD", "SGD", "NZD"), 1),
    **dict.fromkeys(("CNY", "DKK", "SEK", "NOK", "PLN", "BRL", "ZAR", "MXN", "HKD"), 8),
    **dict.fromkeys(("CZK", "TWD", "THB", "TRY"), 30),
    **dict.fromkeys(("INR", "RUB", "PHP"), 85),
    **dict.fromkeys(("JPY", "HUF"), 200),
    "KRW": 1400,
}
_TYPED_AS = (
    (Decimal(730), "month"),
    (Decimal(8760), "year"),
    (Decimal(24), "day"),
    (Decimal(100), "hour in hundredths of the currency"),
)


class PriceKind(StrEnum):
    LIST = "list"
    NEGOTIATED = "negotiated"
    OWNED = "owned"


class PriceEntry(Struct, frozen=True):
    """One price: `per_gpu_hour` of the currency for a model, before `discount` (0..1).

    It holds from `valid_from` up to, not including, `valid_to` (None: open). An empty `cluster` or
    `tier` means any. `example` marks a price that came with the portal and was never confirmed;
    `confirmed_by` names who confirmed another, `confirmed_on` the day. Neither is in the version.
    `per_kwh` prices the measured energy on top of the GPU-hours, times `pue` (`energy_cost`); None:
    energy is not billed.
    """

    gpu_model: str
    capacity_type: str
    per_gpu_hour: Decimal
    currency: str
    valid_from: datetime
    valid_to: datetime | None = None
    cluster: str = ""
    tier: str = ""
    discount: Decimal = Decimal(0)
    kind: PriceKind = PriceKind.LIST
    source: str = ""
    example: bool = False
    confirmed_by: str = ""
    confirmed_on: date | None = None
    per_kwh: Decimal | None = None
    pue: Decimal = Decimal(1)

    def __post_init__(self) -> None:
        if self.valid_from.tzinfo is None:
            raise ValueError(f"a price needs a time with a time zone: {self.valid_from}")
        if self.valid_to is not None and self.valid_to <= self.valid_from:
            raise ValueError(f"a price must end after it starts: {self.gpu_model}")
        if not self.per_gpu_hour.is_finite() or self.per_gpu_hour < 0:
            raise ValueError(f"a price must not be negative: {self.gpu_model} {self.per_gpu_hour}")
        if not 0 <= self.discount <= 1:
            raise ValueError(f"a discount is a fraction 0..1, not {self.discount}")

    @property
    def contracted(self) -> Decimal:
        """The price per GPU-hour after the discount, to 1e-8; this is what costs are made of."""
        return (self.per_gpu_hour * (1 - self.discount)).quantize(_PRICE_STEP, ROUND_HALF_EVEN)

    @property
    def contracted_units(self) -> int:
        """The same in units of 1e-8."""
        return units(self.contracted)

    @property
    def tariff(self) -> int | None:
        """The price of a kilowatt-hour as it is measured, times `pue`, in units of 1e-8."""
        return None if self.per_kwh is None else units(self.per_kwh * self.pue)

    @property
    def reference(self) -> str:
        """Which price it is, in a line: kind, model, capacity type, place, start and source."""
        where = f" on {self.cluster}" if self.cluster else ""
        where += f" in {self.tier}" if self.tier else ""
        since = f"{self.valid_from.astimezone(UTC):%Y-%m-%dT%H:%MZ}"
        said = f"{self.kind} price of {self.gpu_model}, {self.capacity_type}{where}, from {since}"
        said += ", an example that was never confirmed" if self.example else ""
        return f"{said}: {self.source}" if self.source else said

    def holds(self, at: datetime) -> bool:
        """Say whether it is valid at `at`."""
        return self.valid_from <= at and (self.valid_to is None or at < self.valid_to)


def places(cluster: str, tier: str, gpu_model: str, capacity_type: str) -> Iterator[_Place]:
    """Yield the places in which a price is looked for, the best first.

    The most specific place wins: cluster and tier, then cluster, then tier, then neither; within
    a place the capacity type itself, then what may stand for it.
    """
    key = model_key(gpu_model)
    kinds = _STANDS_FOR.get(capacity_type, (capacity_type,))
    # Place before capacity type: a site's own price beats a general one of the exact type.
    for where in ((cluster, tier), (cluster, ""), ("", tier), ("", "")):
        for kind in kinds:
            yield (*where, key, kind)


class PriceBook:
    """All prices of all times. It is asked once for each fact, so places are looked up by key."""

    def __init__(self, entries: Iterable[PriceEntry]) -> None:
        """Raise ValueError where two prices of one place start at the same time."""
        self.entries = tuple(sorted(entries, key=_order))
        self._places: dict[_Place, list[PriceEntry]] = {}
        # Newest first in each place: the first that holds is the one that started last.
        for entry in reversed(self.entries):
            self._places.setdefault(_place(entry), []).append(entry)
        for place, kept in self._places.items():
            starts = [entry.valid_from for entry in kept]
            if len(set(starts)) < len(starts):
                raise ValueError(f"two prices of {' '.join(filter(None, place))} start together")

    def price(
        self, *, cluster: str, tier: str, gpu_model: str, capacity_type: str, at: datetime
    ) -> PriceEntry | None:
        """Return the price of a GPU-hour that begins at `at`; None: it is **unpriced**, not free.

        The best of `places` wins, and within it the price that started last, so a new price needs
        no end of the old one.
        """
        for place in places(cluster, tier, gpu_model, capacity_type):
            for entry in self._places.get(place, ()):
                if entry.holds(at):
                    return entry
        return None

    def changing(self, days: Collection[datetime]) -> set[datetime]:
        """Return those of `days`, each by its start, within which some price begins or ends."""
        starts = sorted(days)
        limits = {entry.valid_from for entry in self.entries}
        limits |= {entry.valid_to for entry in self.entries if entry.valid_to is not None}
        found = set()
        for at in limits:
            place = bisect_left(starts, at) - 1
            # One that comes with the next day changes nothing within this one.
            if place >= 0 and at - starts[place] < _LONGEST_DAY and at not in days:
                found.add(starts[place])
        return found

    def entry_of(
        self, place: tuple[str, str, str, str], prices: tuple[int, int], *, start: datetime
    ) -> PriceEntry | None:
        """Return the entry by which hours of a place were priced that begin within a day.

        `place` is cluster, tier, GPU model and capacity type, `prices` are those of a GPU-hour
        after and before the discount, `start` the day's. None where no entry has these prices: it
        was taken out of the book since.
        """
        found = self.entries_of(place, prices, start=start, end=start + _LONGEST_DAY)
        return next(iter(found), None)

    def entries_of(
        self,
        place: tuple[str, str, str, str],
        prices: tuple[int, int],
        *,
        start: datetime,
        end: datetime,
    ) -> list[PriceEntry]:
        """Return the entries by which hours of a window may have been priced, the newest first.

        As `entry_of`, of any window: two prices of equal amount may follow each other in it.
        """
        for one in places(*place):
            found = [
                entry
                for entry in self._places.get(one, ())
                if entry.valid_from < end
                and (entry.valid_to is None or start < entry.valid_to)
                and (entry.contracted_units, units(entry.per_gpu_hour)) == prices
            ]
            if found:
                return found
        return []

    @property
    def version(self) -> str:
        """A short hash of all entries; two books with the same prices have the same."""
        lines = [[str(value) for value in _order(entry)] for entry in self.entries]
        return hashlib.sha256(json.dumps(lines).encode()).hexdigest()[:12]


def _place(entry: PriceEntry) -> _Place:
    return entry.cluster, entry.tier, model_key(entry.gpu_model), entry.capacity_type


def _order(entry: PriceEntry) -> tuple[str, ...]:
    """Return what an entry says, as texts; an amount written in two ways is the same."""
    ends = "" if entry.valid_to is None else _instant_text(entry.valid_to)
    # Books without a tariff keep the version that they had before there were any.
    tariff = (
        () if entry.per_kwh is None else (_decimal_text(entry.per_kwh), _decimal_text(entry.pue))
    )
    return (
        *_place(entry),
        _instant_text(entry.valid_from),
        ends,
        _decimal_text(entry.per_gpu_hour),
        _decimal_text(entry.discount),
        entry.currency,
        entry.kind,
        entry.source,
        str(entry.example),
        *tariff,
    )


def _decimal_text(amount: Decimal) -> str:
    return f"{amount.normalize():f}"


def _instant_text(at: datetime) -> str:
    return f"{at.timestamp():020.6f}"


def amortised(
    price: Decimal, *, gpus: int, years: Decimal, residual: Decimal = Decimal(0)
) -> Decimal:
    """Return what a GPU-hour of owned hardware costs: straight-line, to 1e-8.

        (price − residual) ÷ (GPUs × years × 8,760 h)

    `price` is what the servers cost with everything that belongs to them, `residual` what they will
    be worth after `years`. An hour without use costs the same: it is waste. Raises ValueError for
    what cannot be divided.
    """
    if gpus <= 0 or years <= 0:
        raise ValueError(f"hardware needs GPUs and years to be written off: {gpus}, {years}")
    if not 0 <= residual <= price:
        raise ValueError(f"a residual value lies between 0 and the price, not {residual}")
    hours = gpus * years * HOURS_PER_YEAR
    return ((price - residual) / hours).quantize(_PRICE_STEP, ROUND_HALF_EVEN)


def energy_cost(energy_mwh: int, *, per_kwh: Decimal, pue: Decimal = Decimal(1)) -> int:
    """Return the cost of measured energy (milliwatt-hours), in units of 1e-8 of the currency.

    It is a line of its own beside the ledger: the price of capacity is owed whether a GPU works or
    not, that of energy is not. `pue` is the site's energy ÷ that of its computers, 1 or more.
    Raises ValueError for a PUE under 1.
    """
    if pue < 1:
        raise ValueError(f"a site uses at least what its computers use: PUE {pue}")
    return units(energy_mwh * per_kwh * pue / _MWH_PER_KWH)


class PriceRange(NamedTuple):
    """What a GPU-hour may plausibly cost, in US dollars, between a spot and a dear list price."""

    low: Decimal
    high: Decimal


# Words that a model's key has → the range; the first that fits. Wide on purpose: owned hardware
# and spot are cheap, a bare list price with its host is dear; a month in an hour is 730 times off.
_RANGES: tuple[tuple[str, PriceRange], ...] = tuple(
    (word, PriceRange(Decimal(low), Decimal(high)))
    for word, low, high in (
        ("gb300", "1", "40"),
        ("gb200", "1", "40"),
        ("gh200", "0.5", "20"),
        ("b300", "1", "40"),
        ("b200", "0.8", "40"),
        ("mi355", "0.5", "30"),
        ("mi325", "0.4", "25"),
        ("mi300", "0.4", "25"),
        ("mi250", "0.2", "15"),
        ("h200", "0.5", "25"),
        ("h800", "0.3", "25"),
        ("h100", "0.3", "25"),
        ("h20", "0.2", "15"),
        ("a100", "0.15", "15"),
        ("a800", "0.15", "15"),
        ("rtxpro6000", "0.15", "15"),
        ("l40s", "0.1", "10"),
        ("l40", "0.1", "10"),
        ("a40", "0.08", "8"),
        ("a10", "0.05", "6"),
        ("a30", "0.05", "6"),
        ("v100", "0.05", "8"),
        ("l4", "0.04", "4"),
        ("t4", "0.02", "3"),
        ("p100", "0.02", "4"),
    )
)
_ANY = PriceRange(Decimal("0.005"), Decimal(60))


def plausible_range(gpu_model: str, currency: str) -> PriceRange | None:
    """Return what a GPU-hour of a model may cost; None for a currency that is not known here."""
    factor = _PER_DOLLAR.get(currency.upper())
    if factor is None:
        return None
    key = model_key(gpu_model)
    found = next((span for word, span in _RANGES if word in key), _ANY)
    return PriceRange(found.low * factor, found.high * factor)


def doubt(entry: PriceEntry) -> str | None:
    """Return what looks wrong with a price and what to do about it; None if nothing does."""
    if not entry.contracted:
        return (
            f"{entry.gpu_model} costs nothing per GPU-hour. If the price is not known, leave the "
            "entry out: its hours are then shown as unpriced."
        )
    if entry.contracted > MOST_PER_GPU_HOUR:
        return (
            f"{entry.contracted.normalize():f} {entry.currency} per GPU-hour of {entry.gpu_model} "
            f"is more than {MOST_PER_GPU_HOUR:,}: what large pools cost in a day could not be "
            "kept. Check the number, or use a currency of larger units."
        )
    span = plausible_range(entry.gpu_model, entry.currency)
    if span is None or span.low <= entry.contracted <= span.high:
        return None
    said = (
        f"{entry.contracted.normalize():f} {entry.currency} per GPU-hour of {entry.gpu_model} is "
        f"outside the plausible {span.low.normalize():f} to {span.high.normalize():f}."
    )
    return f"{said} {_remedy(entry, span)}"


def _remedy(entry: PriceEntry, span: PriceRange) -> str:
    """Say what the figure may have been meant for: all that would be plausible, likeliest first."""
    readings = []
    for factor, typed_as in _TYPED_AS:
        hourly = entry.contracted / factor
        if span.low <= hourly <= span.high:
            meant = hourly.quantize(Decimal("0.0001")).normalize()
            readings.append(f'a price per {typed_as}: per_gpu_hour would be "{meant:f}"')
    if not readings:
        return "Check the number and its currency; it must be for one GPU and one hour."
    return f"It looks like {', or '.join(readings)}. Correct it, or confirm it if it is right."
