"""The waste waterfall: from what the capacity cost, cause by cause, down to what was busy."""

from collections.abc import Sequence
from dataclasses import dataclass

from apps.costs.domain.costing import WASTE, Cause, CostSums

FALL = (
    Cause.UNHEALTHY,
    Cause.UNALLOCATED,
    Cause.NOT_RUNNING,
    Cause.IDLE,
    Cause.UNDERUSED,
    Cause.UNMEASURED,
    Cause.BUSY,
)
"""The order of the steps: from what nobody could have, to what was had and worked."""


@dataclass(frozen=True, slots=True)
class WaterfallStep:
    """One cause. GPU-hours are nano, money units of 1e-8; `above` is where the step starts.

    `share` is of the whole cost, 0..1, None where there is none. `unpriced` GPU-hours are part of
    `gpu_hours` and not of `cost`. `burst` is set for unallocated alone: what shared cards did for
    their tenants beyond what these held; it worked on capacity that is counted as waste here.
    `cost_before` is of the last period, None without one.
    """

    cause: Cause
    waste: bool
    gpu_hours: int
    cost: int
    above: int
    share: float | None
    unpriced: int
    burst: int | None = None
    cost_before: int | None = None


def waterfall(sums: CostSums, before: CostSums | None = None) -> Sequence[WaterfallStep]:
    """Return all seven steps in the order of `FALL`; their costs sum to that of the capacity.

    A cause that cost nothing is there with 0: an absent line would leave open whether it was
    looked for. `before` are the sums of the last period, equally long.
    """
    above = total = sums.total
    steps = []
    for cause in FALL:
        cost = sums.cost.get(cause, 0)
        steps.append(
            WaterfallStep(
                cause=cause,
                waste=cause in WASTE,
                gpu_hours=sums.gpu_hours.get(cause, 0),
                cost=cost,
                above=above,
                share=cost / total if total else None,
                unpriced=sums.unpriced.get(cause, 0),
                burst=sums.burst if cause is Cause.UNALLOCATED else None,
                cost_before=None if before is None else before.cost.get(cause, 0),
            )
        )
        above -= cost
    return steps
