"""What a fact costs, divided by what became of its GPU-hours (docs/definitions.md#waste)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from apps.costs.domain.apportion import apportioned
from apps.costs.domain.money import rounded_ratio
from apps.usage.domain.amounts import NANO, coverage_ratio


class Cause(StrEnum):
    """What became of a GPU-hour, and last what it drew. The first seven are the capacity.

    Energy has no GPU-hours: it is what was measured of it, where its price has a tariff.
    """

    BUSY = "busy"
    UNMEASURED = "unmeasured"
    UNDERUSED = "underused"
    IDLE = "idle"
    NOT_RUNNING = "not_running"
    UNALLOCATED = "unallocated"
    UNHEALTHY = "unhealthy"
    ENERGY = "energy"


HELD = (Cause.BUSY, Cause.UNMEASURED, Cause.UNDERUSED, Cause.IDLE, Cause.NOT_RUNNING)
"""The causes of what a team holds; the other two are of capacity that nobody holds."""
_RAN = (Cause.BUSY, Cause.IDLE, Cause.UNDERUSED, Cause.UNMEASURED)
FREE = (Cause.UNALLOCATED, Cause.UNHEALTHY)
WASTE = (Cause.UNDERUSED, Cause.IDLE, Cause.NOT_RUNNING, Cause.UNALLOCATED, Cause.UNHEALTHY)
"""What is not busy. Unmeasured is none of it: nobody knows."""


class Basis(StrEnum):
    """What a team is charged for: what it held, or only what it used."""

    ALLOCATED = "allocated"
    USED = "used"


CHARGED = {Basis.ALLOCATED: HELD, Basis.USED: (Cause.BUSY, Cause.UNMEASURED)}
"""What of its GPU-hours a holder is charged for on a basis; its energy on either.

*Allocated*: all that was held. *Used*: what was busy, and what nobody measured: a missing exporter
makes no GPU free, nor does it make one idle.
"""


def coverage_of(parts: Iterable[tuple[Cause, int]]) -> float | None:
    """Return the metrics coverage of (cause, nano-GPU-hours), 0..1; None when nothing ran."""
    ran = dict.fromkeys(_RAN, 0)
    for cause, gpu_hours in parts:
        if cause in ran:
            ran[cause] += gpu_hours
    return coverage_ratio(sum(ran.values()), ran[Cause.UNMEASURED])


def cost_of(nano_gpu_hours: int, price: int) -> int:
    """Return nano-GPU-hours × price (units of 1e-8 per GPU-hour) in units, rounded half to even."""
    return rounded_ratio(nano_gpu_hours * price, NANO)


def fact_cost(parts: Mapping[Cause, int], price: int) -> dict[Cause, int]:
    """Return what a fact's parts cost, in units of 1e-8; they sum to the fact's own cost.

    The fact is rounded once, as a whole. That amount is divided among the parts in proportion to
    their GPU-hours: each rounded down, and what is left to the largest remainders, of equal ones
    to the earlier in the order of `Cause`. So no part is off by a whole 1e-8, and all ways to sum
    facts (by cause first or last) give the same.
    """
    causes = [cause for cause in Cause if parts.get(cause)]
    amounts = [parts[cause] for cause in causes]
    return dict(zip(causes, apportioned(cost_of(sum(amounts), price), amounts), strict=True))


@dataclass(slots=True)
class CostSums:
    """Sums of facts by cause: GPU-hours, what they cost, and those that have no price.

    `gpu_hours` and `unpriced` are nano-GPU-hours (`unpriced` a part of `gpu_hours`), `cost` units
    of 1e-8 of one currency, of the priced ones. `burst` (nano-GPU-hours) and `energy` (units)
    stand beside.
    """

    gpu_hours: dict[Cause, int] = field(default_factory=dict)
    cost: dict[Cause, int] = field(default_factory=dict)
    unpriced: dict[Cause, int] = field(default_factory=dict)
    burst: int = 0
    energy: int = 0

    @property
    def total(self) -> int:
        """What all GPU-hours cost, without energy."""
        return sum(self.cost.values())

    @property
    def wasted(self) -> int:
        """What is not busy costs; unmeasured is not part of it."""
        return sum(self.cost.get(cause, 0) for cause in WASTE)
