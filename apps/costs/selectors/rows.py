"""The query for costs and the rows that answer it."""

from collections.abc import Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

from django.conf import settings
from django.db.models import QuerySet
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import Visibility
from apps.clusters.domain.columns import Column
from apps.costs.domain.costing import (
    SCALE_DIGITS,
    Basis,
    Cause,
    Policy,
    coverage_of,
    money,
    rounded_ratio,
)
from apps.costs.models import Adjustment
from apps.usage.domain.amounts import NANO
from apps.usage.domain.usage_query import TimeStep, UsageQuery
from gpuportal.queries import BatchQuery

PLATFORM_NAME = ""
"""The team of a row that the platform pays for; pages and API find their own word for it."""
_GROUPS = (
    Column("Cluster", key="cluster"),
    Column("Tier", key="tier"),
    Column(
        *("Team", "", "The team that pays.", "team"),
        api_note="Null for the platform, or no team.",
        empty_is_null=True,
    ),
    Column("Namespace", key="namespace", empty_is_null=True),
    Column("Workload", key="workload", empty_is_null=True),
    Column("GPU model", key="gpu_model"),
    Column("Capacity type", key="capacity_type"),
)
_PricePerGpuHour = Annotated[
    int | None,
    Column(
        "Per GPU-hour",
        help="After discounts; the mean where several held.",
        key="price_per_gpu_hour",
        after="currency",
        digits=SCALE_DIGITS,
    ),
]
_Unpriced = Annotated[
    bool, Column(help="The price book has no price for these hours.", after="carbon_mwh")
]


def charging() -> tuple[Basis, Policy]:
    """Return the basis and the policy for unallocated capacity that the portal is set to."""
    return (
        Basis(getattr(settings, "COST_BASIS", Basis.ALLOCATED.value)),
        Policy(getattr(settings, "UNALLOCATED_POLICY", Policy.PLATFORM.value)),
    )


class CostRow(Struct, frozen=True):
    """The cost of one cause in a period, by the groups that were asked for.

    All rows together are the cost of the capacity and of its energy, exactly.

    Amounts are whole: `gpu_hours` nano, money units of 1e-8 of `currency`. `cost`, `currency` and
    prices are None where the hours have no price: unpriced, not free. `period` is None for a
    total. A row of energy has no GPU-hours; `energy_mwh` is what its GPUs drew, None in other rows.
    Its `cost` is 0 where the price has no tariff: the energy was measured, and is not billed.
    `carbon_mwh` is the part of it whose hour has a factor, `carbon_ug` its carbon.
    """

    period: Annotated[
        datetime | None,
        Column(help="Start, with the report zone's offset; null for the total.", keep_offset=True),
    ]
    groups: Annotated[Mapping[str, str], Column(groups=_GROUPS)]
    cause: Annotated[Cause, Column("Cause", api_note=f"One of {', '.join(Cause)}.")]
    gpu_hours: Annotated[int, Column("GPU-hours", "GPU-h", digits=9)]
    cost: Annotated[
        int | None,
        Column(
            "Cost",
            api_note="To 1e-8; files carry it as a decimal. Empty (null) without a price.",
            digits=SCALE_DIGITS,
        ),
    ]
    currency: Annotated[str | None, Column("Currency", api_note="Empty (null) without a price.")]
    price: int | None = None
    list_price: int | None = None
    energy_mwh: Annotated[
        int | None,
        Column(
            help="Measured energy, in rows of energy; these have no GPU-hours. Else null.",
            key="energy_kwh",
            digits=6,
        ),
    ] = None
    carbon_ug: Annotated[
        int | None,
        Column(
            help="Carbon of the energy, grams of CO2e, PUE included. Null without a factor.",
            key="carbon_g",
            digits=6,
        ),
    ] = None
    carbon_mwh: Annotated[
        int | None,
        Column(
            help="The part of the energy whose hour has a carbon factor. Null in other rows.",
            key="carbon_energy_kwh",
            digits=6,
        ),
    ] = None
    correction: Annotated[
        bool,
        Column(
            help="A difference to a closed month, booked in this period (by hour, in the first "
            "of the day); may be negative."
        ),
    ] = False

    @property
    def price_units(self) -> _PricePerGpuHour:
        """The price of these hours; where several held, the mean. None: unpriced."""
        if self.price is not None or self.cost is None or not self.gpu_hours:
            return self.price
        # The rounding is of positive divisors; corrections may have less than no hours.
        sign = -1 if self.gpu_hours < 0 else 1
        return rounded_ratio(sign * self.cost * NANO, sign * self.gpu_hours)

    @property
    def price_per_gpu_hour(self) -> Decimal | None:
        """The price of these hours in full."""
        return None if self.price_units is None else money(self.price_units)

    @property
    def unpriced(self) -> _Unpriced:
        """Whether the price book has no price for these hours."""
        return self.cost is None

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


def coverage_ratio(rows: Iterable[CostRow]) -> float | None:
    """Return the metrics coverage of rows, 0..1; None where nothing ran."""
    # Corrections are of hours of another month.
    return coverage_of((row.cause, row.gpu_hours) for row in rows if not row.correction)


def unpriced(rows: Iterable[CostRow]) -> int:
    """Return the nano-GPU-hours that have no price."""
    return sum(row.gpu_hours for row in rows if row.lacks_price)


class CostQuery(UsageQuery, frozen=True):
    """What is asked of costs. `team` in the filters is who pays; "" there is the platform.

    `causes` are those of which there are rows. `by_rate` keeps rows of different prices apart.
    `waste`: the question is which team held unused capacity. Then corrections are left out, and so
    is what the platform pays, unless the reader sees everything or the filter names the platform:
    its waste belongs to no team. `unbilled_energy`: measured energy whose price has no tariff is in
    the rows too. It costs nothing, which is right in files of what was drawn and noise in sums of
    money.
    """

    basis: Basis = Basis.ALLOCATED
    policy: Policy = Policy.PLATFORM
    causes: tuple[Cause, ...] = tuple(Cause)
    by_rate: bool = False
    corrections: bool = True
    waste: bool = False
    unbilled_energy: bool = False

    @property
    def whole(self) -> "CostQuery":
        """The same of all that was held, as one sum: what its coverage is told from."""
        # What a basis leaves uncharged ran, too.
        return replace(
            self,
            interval=TimeStep.TOTAL,
            group_by=(),
            basis=Basis.ALLOCATED,
            causes=tuple(Cause),
            by_rate=False,
        )


def _corrected_days() -> QuerySet[Adjustment, tuple[date]]:
    """Return the days on which corrections of closed months are booked: most months have none."""
    return Adjustment.objects.order_by().values_list("booked_on").distinct()


CORRECTED_DAYS = BatchQuery(_corrected_days)


class LineKey(NamedTuple):
    """What tells lines apart: `ids` in the order of the groups; an empty currency: unpriced."""

    period: datetime
    ids: tuple[Any, ...]
    cause: Cause
    currency: str
    correction: bool = False
    price: int | None = None
    list_price: int | None = None


class CostLine(Struct):
    """What a key sums to; `low` and `high` are the least and greatest price in it.

    For lines of energy alone `energy_mwh` is what was measured, `carbon_mwh` the part of it whose
    hour has a factor, and `carbon_ug` the carbon of that.
    """

    gpu_hours: int = 0
    cost: int = 0
    low: int | None = None
    high: int | None = None
    energy_mwh: int = 0
    carbon_mwh: int = 0
    carbon_ug: int = 0

    def add(
        self, gpu_hours: int, cost: int, low: int | None, high: int | None, *energy: int
    ) -> None:
        self.gpu_hours += gpu_hours
        self.cost += cost
        if energy:
            measured, known, carbon = energy
            self.energy_mwh += measured
            self.carbon_mwh += known
            self.carbon_ug += carbon
        if low is not None:
            self.low = low if self.low is None else min(self.low, low)
        if high is not None:
            self.high = high if self.high is None else max(self.high, high)


def covers_platform(asked: CostQuery, visibility: Visibility) -> bool:
    """Say whether what the platform pays is in the answer; else its costs are not 0 but left out.

    Waste is told by who held it: who does not see everything gets that of their teams alone.
    """
    teams = asked.filters.team
    if not teams:
        return visibility.everything or not asked.waste
    return PLATFORM_NAME in teams
