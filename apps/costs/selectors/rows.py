"""What the read side of costs hands out: frozen rows, whole numbers, no ORM objects."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Decimal, localcontext

from apps.costs.domain.costing import Basis, Cause, coverage_of
from apps.costs.domain.money import money
from apps.costs.domain.unallocated import Policy
from apps.usage.domain.amounts import NANO
from apps.usage.domain.rows import TimeStep, UsageQuery

PLATFORM_NAME = ""
"""The team of a row that the platform pays for; pages and API find their own word for it."""

_STEP = Decimal("1e-8")


@dataclass(frozen=True, slots=True)
class CostRow:
    """One period × group × cause. `gpu_hours` are nano, `cost` units of 1e-8 of `currency`.

    `cost` and `currency` are None where the hours have no price: unpriced, not free. A
    `correction` is a difference to a closed month, booked in this period; its amounts may be
    negative. `period` carries the report zone's offset, None for a total. A row of energy has no
    GPU-hours; `energy_mwh` is what its cards drew, None in other rows.
    """

    period: datetime | None
    groups: Mapping[str, str]
    cause: Cause
    gpu_hours: int
    cost: int | None
    currency: str | None
    price: int | None = None
    list_price: int | None = None
    correction: bool = False
    energy_mwh: int | None = None

    @property
    def amount(self) -> Decimal | None:
        """The cost in full, None where it is unpriced."""
        return None if self.cost is None else money(self.cost)

    @property
    def lacks_price(self) -> bool:
        """Whether these are hours of the period that have no price.

        A price that was found for a closed month comes as a correction of less than nothing.
        """
        return self.cost is None and not self.correction

    @property
    def price_per_gpu_hour(self) -> Decimal | None:
        """The price of these hours; where several held, the mean, to 1e-8. None: unpriced."""
        if self.price is not None:
            return money(self.price)
        if self.cost is None or not self.gpu_hours:
            return None
        with localcontext(prec=40):
            mean = money(self.cost) * NANO / self.gpu_hours
            return mean.quantize(_STEP, ROUND_HALF_EVEN)


def coverage_ratio(rows: Iterable[CostRow]) -> float | None:
    """Return the metrics coverage of rows, 0..1; None where nothing ran."""
    return coverage_of((row.cause, row.gpu_hours) for row in rows if not row.correction)


def unpriced(rows: Iterable[CostRow]) -> int:
    """Return the nano-GPU-hours that have no price."""
    return sum(row.gpu_hours for row in rows if row.lacks_price)


@dataclass(frozen=True, slots=True)
class CostQuery(UsageQuery):
    """What is asked of costs. `team` in the filters is who pays; "" there is the platform.

    `causes` are those of which there are rows. `by_rate` keeps rows of different prices apart.
    `waste`: the question is who held what was not busy. Then corrections are left out, and what
    the platform pays too, unless the reader sees everything or the filter names the platform: it
    is nobody's waste but the platform's.
    """

    basis: Basis = Basis.ALLOCATED
    policy: Policy = Policy.PLATFORM
    causes: tuple[Cause, ...] = tuple(Cause)
    by_rate: bool = False
    corrections: bool = True
    waste: bool = False

    @property
    def whole(self) -> "CostQuery":
        """The same of all that was held, as one sum: what its coverage is told from."""
        # What a basis charges to nobody ran, too.
        return replace(
            self,
            interval=TimeStep.TOTAL,
            group_by=(),
            basis=Basis.ALLOCATED,
            causes=tuple(Cause),
            by_rate=False,
        )
