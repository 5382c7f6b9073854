"""The price book: what a GPU-hour of a model costs, where, how it is paid for, and since when."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Decimal
from enum import StrEnum

from apps.clusters.domain.tiers import CapacityType, model_key
from apps.costs.domain.money import units

OWNED = "owned"
CAPACITY_TYPES = (*(str(kind) for kind in CapacityType if kind != CapacityType.UNKNOWN), OWNED)
"""How capacity is paid for: on-demand, spot, reserved, owned."""

HOURS_PER_YEAR = 8760
MOST_PER_GPU_HOUR = 1_000_000
"""Of any currency. Amounts are kept as 64-bit numbers of 1e-8: a day of 3,800 GPUs fits at this
price; what does not fit all the same is not priced, and says so (`cost_rows.AmountTooLarge`)."""
_PRICE_STEP = Decimal("1e-8")
_MWH_PER_KWH = 1_000_000

# Which prices may stand for a capacity type, the best first. A node that says nothing of how it
# is paid for is of hardware that somebody owns where such a price is set, else on demand.
_STANDS_FOR = {str(CapacityType.UNKNOWN): (str(CapacityType.UNKNOWN), OWNED, "on-demand")}


class PriceKind(StrEnum):
    LIST = "list"
    NEGOTIATED = "negotiated"
    OWNED = "owned"


@dataclass(frozen=True, slots=True)
class PriceEntry:
    """One price: `per_gpu_hour` of the currency for a model, before `discount` (0..1).

    It holds from `valid_from` up to, not including, `valid_to` (None: open). An empty `cluster` or
    `tier` means any. `example` marks a price that came with the portal: nobody has observed for it.
    `per_kwh` prices the measured energy on top of the GPU-hours, times `pue` (`energy_cost`);
    None: energy is not billed.
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

    def holds(self, at: datetime) -> bool:
        """Say whether it is valid at `at`."""
        return self.valid_from <= at and (self.valid_to is None or at < self.valid_to)


_Place = tuple[str, str, str, str]
"""Cluster, tier, model key, capacity type."""


def places(cluster: str, tier: str, gpu_model: str, capacity_type: str) -> Iterator[_Place]:
    """Yield the places in which a price is looked for, the best first.

    The most specific place wins: cluster and tier, then cluster, then tier, then neither; within
    a place the capacity type itself, then what may stand for it.
    """
    key = model_key(gpu_model)
    kinds = _STANDS_FOR.get(capacity_type, (capacity_type,))
    for where in ((cluster, tier), (cluster, ""), ("", tier), ("", "")):
        for kind in kinds:
            yield (*where, key, kind)


class PriceBook:
    """All prices of all times. It is asked once for each fact, so places are looked up by key."""

    def __init__(self, entries: Iterable[PriceEntry]) -> None:
        """Raise ValueError where two prices of one place start at the same time."""
        self.entries = tuple(sorted(entries, key=_order))
        self._places: dict[_Place, list[PriceEntry]] = {}
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

    @property
    def version(self) -> str:
        """A short hash of all entries; two books with the same prices have the same."""
        lines = [[str(value) for value in _order(entry)] for entry in self.entries]
        return hashlib.sha256(json.dumps(lines).encode()).hexdigest()[:12]


def _place(entry: PriceEntry) -> _Place:
    return entry.cluster, entry.tier, model_key(entry.gpu_model), entry.capacity_type


def _order(entry: PriceEntry) -> tuple[str, ...]:
    """Return what an entry says, as texts; an amount written in two ways is the same."""
    ends = "" if entry.valid_to is None else _instant(entry.valid_to)
    # Books without a tariff keep the version that they had before there were any.
    tariff = () if entry.per_kwh is None else (_plain(entry.per_kwh), _plain(entry.pue))
    return (
        *_place(entry),
        _instant(entry.valid_from),
        ends,
        _plain(entry.per_gpu_hour),
        _plain(entry.discount),
        entry.currency,
        entry.kind,
        entry.source,
        str(entry.example),
        *tariff,
    )


def _plain(amount: Decimal) -> str:
    return f"{amount.normalize():f}"


def _instant(at: datetime) -> str:
    return f"{at.timestamp():020.6f}"


def amortised(
    price: Decimal, *, gpus: int, years: Decimal, residual: Decimal = Decimal(0)
) -> Decimal:
    """Return what a GPU-hour of owned hardware costs: straight-line, to 1e-8.

        (price − residual) ÷ (GPUs × years × 8,760 h)

    `price` is what the servers cost with everything that belongs to them, `residual` what they
    will be worth after `years`. An hour in which nobody used the card costs the same: it is waste.
    Raises ValueError for what cannot be divided.
    """
    if gpus <= 0 or years <= 0:
        raise ValueError(f"hardware needs GPUs and years to be written off: {gpus}, {years}")
    if not 0 <= residual <= price:
        raise ValueError(f"a residual value lies between 0 and the price, not {residual}")
    hours = gpus * years * HOURS_PER_YEAR
    return ((price - residual) / hours).quantize(_PRICE_STEP, ROUND_HALF_EVEN)


def energy_cost(energy_mwh: int, *, per_kwh: Decimal, pue: Decimal = Decimal(1)) -> int:
    """Return the cost of measured energy (milliwatt-hours), in units of 1e-8 of the currency.

    It is a line of its own beside the ledger: the price of capacity is owed whether a card works
    or not, that of energy is not. `pue` is the site's energy ÷ that of its computers, 1 or more.
    Raises ValueError for a PUE under 1.
    """
    if pue < 1:
        raise ValueError(f"a site uses at least what its computers use: PUE {pue}")
    return units(energy_mwh * per_kwh * pue / _MWH_PER_KWH)
