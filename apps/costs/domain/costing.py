"""What a fact costs, divided by cause, and who pays for it (docs/definitions.md#waste).

Money is in **units**: whole numbers of 1e-8 of a currency's unit, so that sums are exact. Units
become `Decimal` where they leave, and cents where they are printed.
"""

from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from enum import StrEnum

from msgspec import Struct, field

from apps.usage.domain.amounts import NANO, coverage_ratio

SCALE_DIGITS = 8
SCALE = 10**SCALE_DIGITS

# ISO 4217: currencies whose smallest coin is not a hundredth.
_DIGITS = {
    **dict.fromkeys(("BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF"), 0),
    **dict.fromkeys(("UGX", "UYI", "VND", "VUV", "XAF", "XOF", "XPF"), 0),
    **dict.fromkeys(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"), 3),
}
PLATFORM = ""
"""The payer of what no team pays for. No team can be named so."""


def minor_digits(currency: str) -> int:
    """Return how many decimals amounts of a currency are printed with: 2 for USD, 0 for JPY."""
    return _DIGITS.get(currency.upper(), 2)


def units(amount: Decimal) -> int:
    """Return an amount of money in units of 1e-8, rounded half to even."""
    # With the default 28 digits the product would be rounded first, then a second time.
    with localcontext(prec=60):
        return int((amount * SCALE).to_integral_value(ROUND_HALF_EVEN))


def money(amount: int) -> Decimal:
    """Return units of 1e-8 as an amount of money, in full."""
    return Decimal(amount).scaleb(-SCALE_DIGITS)


def rounded_ratio(numerator: int, denominator: int) -> int:
    """Return numerator / denominator as a whole number, rounded half to even."""
    whole, rest = divmod(numerator, denominator)
    double = 2 * rest
    return whole + (double > denominator or (double == denominator and whole % 2 == 1))


def cents(amounts: Sequence[int], *, digits: int = 2) -> list[Decimal]:
    """Print units as `digits` decimals so that a column adds up as it is printed.

    The sum is rounded half to even, each amount down, and what that leaves goes to the largest
    remainders (of equal ones to the earlier). No amount is off by a whole cent or more.
    """
    coin = 10 ** (SCALE_DIGITS - digits)
    parts = [divmod(amount, coin) for amount in amounts]
    printed = [whole for whole, _ in parts]
    left = rounded_ratio(sum(amounts), coin) - sum(printed)
    # Rounding each amount alone would print a column that does not add up.
    for place in sorted(range(len(parts)), key=lambda at: (-parts[at][1], at))[:left]:
        printed[place] += 1
    return [Decimal(whole).scaleb(-digits) for whole in printed]


def apportioned(total: int, weights: Sequence[int]) -> list[int]:
    """Divide `total` in proportion to `weights`; the parts sum to it exactly.

    Each part is its exact share rounded down, and those with the largest remainders get one more;
    of equal remainders the earlier place wins, so the same call gives the same parts. A negative
    total is divided like its opposite, so that taking back undoes giving. A part differs from its
    exact share by less than 1. Raises ValueError for a negative weight, and for a total without any
    recipient.
    """
    if total < 0:
        # Floor division rounds negatives away from zero: a correction would not undo its charge.
        return [-part for part in apportioned(-total, weights)]
    if any(weight < 0 for weight in weights):
        raise ValueError(f"weights must not be negative: {list(weights)}")
    whole = sum(weights)
    if not whole:
        if total:
            raise ValueError("nothing to divide by: all weights are 0")
        return [0] * len(weights)
    # Whole numbers throughout: a float share loses units beyond 2 ** 53.
    shares = [divmod(total * weight, whole) for weight in weights]
    parts = [share for share, _ in shares]
    left = total - sum(parts)
    first = sorted(range(len(shares)), key=lambda place: (-shares[place][1], place))
    for place in first[:left]:
        parts[place] += 1
    return parts


def divided(totals: Sequence[int], weights: Sequence[int]) -> list[list[int]]:
    """Divide several totals among the same places, so that both ways of adding up are exact.

    A row of the answer is a total's parts, and sums to it; what a place gets of all totals is its
    weight, where the weights sum to the totals. Where they do not, they are first divided anew.
    Neither may be negative. Without a place that has a weight all goes to the first; without any
    place the rows are empty.
    """
    whole = sum(totals)
    left = list(weights)
    # Weights of another rounding differ by a few units; the totals are what was billed.
    if sum(left) != whole and left:
        left = apportioned(whole, left if any(left) else [1, *[0] * (len(left) - 1)])
    rows = []
    for total in totals:
        # No part exceeds what its place has left: the total is at most the sum of that.
        parts = apportioned(total, left) if any(left) else [0] * len(left)
        left = [rest - part for rest, part in zip(left, parts, strict=True)]
        rows.append(parts)
    return rows


class Cause(StrEnum):
    """What became of a GPU-hour, and last what it drew. All before are the capacity.

    Energy has no GPU-hours: it is what was measured of it, where its price has a tariff.
    """

    BUSY = "busy"
    UNMEASURED = "unmeasured"
    UNDERUSED = "underused"
    IDLE = "idle"
    NOT_RUNNING = "not_running"
    UNALLOCATED = "unallocated"
    UNHEALTHY = "unhealthy"
    PLANNED_OUTAGE = "planned_outage"
    ENERGY = "energy"


HELD = (Cause.BUSY, Cause.UNMEASURED, Cause.UNDERUSED, Cause.IDLE, Cause.NOT_RUNNING)
"""The causes of what a team holds; the others but energy are of capacity without a holder."""
_RAN = (Cause.BUSY, Cause.IDLE, Cause.UNDERUSED, Cause.UNMEASURED)
FREE_WASTE = (Cause.UNALLOCATED, Cause.UNHEALTHY)
FREE = (*FREE_WASTE, Cause.PLANNED_OUTAGE)
WASTE = (Cause.UNDERUSED, Cause.IDLE, Cause.NOT_RUNNING, *FREE_WASTE)
"""The causes of waste. GPU-hours without metrics are none, as their activity is unknown; nor is
what was away as planned."""


class Basis(StrEnum):
    """What a team is charged for: what it held, or only what it used."""

    ALLOCATED = "allocated"
    USED = "used"


CHARGED = {Basis.ALLOCATED: HELD, Basis.USED: (Cause.BUSY, Cause.UNMEASURED)}
"""What of its GPU-hours a holder is charged for on a basis; its energy on either.

*Allocated*: all that was held. *Used*: active GPU-hours and those without metrics, as a missing
exporter makes no GPU free or idle.
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
    # In the order of `Cause` and not of the mapping: ties must fall alike in every process.
    causes = [cause for cause in Cause if parts.get(cause)]
    amounts = [parts[cause] for cause in causes]
    return dict(zip(causes, apportioned(cost_of(sum(amounts), price), amounts), strict=True))


class CostSums(Struct):
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
        """The cost of waste; GPU-hours without metrics are not part of it."""
        return sum(self.cost.get(cause, 0) for cause in WASTE)

    def add(self, other: "CostSums") -> None:
        """Add other sums to these, cause by cause."""
        for own, more in (
            (self.gpu_hours, other.gpu_hours),
            (self.cost, other.cost),
            (self.unpriced, other.unpriced),
        ):
            for cause, amount in more.items():
                own[cause] = own.get(cause, 0) + amount
        self.burst += other.burst
        self.energy += other.energy


class Policy(StrEnum):
    PLATFORM = "platform"
    ENTITLEMENT = "entitlement"
    USE = "use"


STATEMENTS = {
    Policy.PLATFORM: "Unallocated cost is paid by the platform.",
    Policy.ENTITLEMENT: "Unallocated cost is apportioned by entitlement.",
    Policy.USE: "Unallocated cost is apportioned by use.",
}
"""What pages and files print about a policy."""


def shared(
    cost: int,
    policy: Policy,
    *,
    entitlements: Mapping[str, int],
    used: Mapping[str, int],
) -> dict[str, int]:
    """Return who pays how much of a pool's unallocated cost, in units of 1e-8; they sum to it.

    `entitlements` are the teams' of that pool and hour (any whole unit), `used` what they held in
    it on the basis that is charged (nano-GPU-hours or units). It is divided where it arises, pool
    by pool and hour by hour, so that sums over any grouping are those of the same shares. Without
    any entitlement, or any use, it stays with the platform. Teams are served in the order of their
    names, so that equal remainders always fall alike.
    """
    weights = _weights(policy, entitlements, used)
    if not any(weights.values()):
        # No payer to divide among: dropping the cost would break the sum over all payers.
        return {PLATFORM: cost}
    # A team without weight would else receive a remainder of 1e-8.
    teams = sorted(team for team, weight in weights.items() if weight)
    parts = apportioned(cost, [weights[team] for team in teams])
    return dict(zip(teams, parts, strict=True))


def _weights(
    policy: Policy, entitlements: Mapping[str, int], used: Mapping[str, int]
) -> Mapping[str, int]:
    match policy:
        case Policy.PLATFORM:
            return {}
        case Policy.ENTITLEMENT:
            return entitlements
        case Policy.USE:
            return used


WATERFALL_CAUSES = (
    Cause.PLANNED_OUTAGE,
    Cause.UNHEALTHY,
    Cause.UNALLOCATED,
    Cause.NOT_RUNNING,
    Cause.IDLE,
    Cause.UNDERUSED,
    Cause.UNMEASURED,
    Cause.BUSY,
)
"""The order of the steps: from capacity that was not available to capacity that worked."""


class WaterfallStep(Struct, frozen=True):
    """One cause. GPU-hours are nano, money units of 1e-8; `above` is where the step starts.

    `share` is of the whole cost, 0..1, None where there is none. `unpriced` GPU-hours are part of
    `gpu_hours` and not of `cost`. `burst` is set for unallocated alone: what shared GPUs did for
    their tenants beyond what these held. It worked on capacity that is counted as waste here.
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


def waterfall_steps(sums: CostSums, before: CostSums | None = None) -> Sequence[WaterfallStep]:
    """Return the steps as `WATERFALL_CAUSES` has them; their costs sum to the capacity's.

    A cause that cost nothing is there with 0: an absent line would leave open whether it was
    looked for. Planned outages alone are a step only where one of the two periods had any.
    `before` are the sums of the last period, equally long.
    """
    above = total = sums.total
    steps = []
    for cause in WATERFALL_CAUSES:
        # Announced outages are rare: where there was none, no reader looks for it.
        known = (sums, before) if before is not None else (sums,)
        if cause is Cause.PLANNED_OUTAGE and not any(one.gpu_hours.get(cause) for one in known):
            continue
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
