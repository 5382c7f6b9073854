"""What a bill differs by from the portal's cost, and how its total divides."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from typing import NamedTuple

from msgspec import Struct, field

from apps.costs.domain.bills.charges import ChargeKind
from apps.costs.domain.bills.sku_mapping import SkuMapper

ANY_TYPE = ""
"""The capacity type of what a bill does not divide by it."""


class PoolDay(NamedTuple):
    """A day of a GPU model of a capacity type."""

    day: date
    gpu_model: str
    capacity_type: str = ANY_TYPE


class BilledDay(NamedTuple):
    """What a SKU was billed with on a day, in units of 1e-8."""

    sku: str
    kind: ChargeKind
    day: date
    amount: int


class BillParts(Struct):
    """How a bill divides, in units of 1e-8; the parts sum to `total`.

    `mapped` is by day, GPU model and capacity type; `apart` by kind what is no usage.
    """

    mapped: dict[PoolDay, int] = field(default_factory=lambda: defaultdict(int))
    not_gpu: int = 0
    not_mapped: int = 0
    apart: dict[ChargeKind, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def gpus(self) -> int:
        """What was billed for GPUs."""
        return sum(self.mapped.values())

    @property
    def total(self) -> int:
        """All of it."""
        return self.gpus + self.not_gpu + self.not_mapped + sum(self.apart.values())


def divide(billed: Iterable[BilledDay], mapper: SkuMapper) -> BillParts:
    """Return the parts of a bill; each amount is in exactly one of them."""
    parts = BillParts()
    for one in billed:
        target = mapper.target(one.sku)
        # The kind before the SKU: the tax on a GPU's SKU is no cost of a GPU.
        if one.kind is not ChargeKind.USAGE:
            parts.apart[one.kind] += one.amount
        elif target is None:
            parts.not_mapped += one.amount
        # Mapped to no GPU by a user, which is known; None above is not mapped at all.
        elif not target.gpu_model:
            parts.not_gpu += one.amount
        else:
            parts.mapped[PoolDay(one.day, target.gpu_model, target.capacity_type)] += one.amount
    return parts


class ComparedCost(Struct, frozen=True):
    """Two sums in units of 1e-8: what was billed, and what the portal makes it."""

    billed: int
    portal: int

    @property
    def difference(self) -> int:
        return self.billed - self.portal

    @property
    def ratio(self) -> float | None:
        """The difference as a part of the portal's cost; None where that is nothing."""
        return self.difference / self.portal if self.portal else None


def by_day_and_model(
    billed: Mapping[PoolDay, int], portal: Mapping[PoolDay, int]
) -> dict[PoolDay, ComparedCost]:
    """Return both sums by day and GPU model, of all capacity types, in that order."""
    sums = [_summed(of, lambda key: PoolDay(key.day, key.gpu_model)) for of in (billed, portal)]
    return _compared(*sums)


def by_pool(
    billed: Mapping[PoolDay, int], portal: Mapping[PoolDay, int], *, of: date
) -> dict[PoolDay, ComparedCost]:
    """Return both sums of all days by GPU model and capacity type, under the day `of`.

    A model that a bill names without a capacity type is compared as a whole.
    """
    whole = {key.gpu_model for key in billed if key.capacity_type == ANY_TYPE}

    def key_of(key: PoolDay) -> PoolDay:
        kind = ANY_TYPE if key.gpu_model in whole else key.capacity_type
        return PoolDay(of, key.gpu_model, kind)

    return _compared(_summed(billed, key_of), _summed(portal, key_of))


def _summed(of: Mapping[PoolDay, int], key_of: Callable[[PoolDay], PoolDay]) -> dict[PoolDay, int]:
    found: dict[PoolDay, int] = defaultdict(int)
    for key, amount in of.items():
        found[key_of(key)] += amount
    return found


def _compared(
    billed: dict[PoolDay, int], portal: dict[PoolDay, int]
) -> dict[PoolDay, ComparedCost]:
    return {
        key: ComparedCost(billed.get(key, 0), portal.get(key, 0))
        for key in sorted(billed.keys() | portal.keys())
    }
