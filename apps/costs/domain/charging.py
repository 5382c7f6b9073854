"""Who pays for what in one pool and hour: the one way from costs to payers, for pages and files."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from apps.costs.domain.costing import CHARGED, HELD, Basis, Cause, CostSums
from apps.costs.domain.unallocated import PLATFORM, Policy, shared


class Payment(NamedTuple):
    """What a payer (a team, or PLATFORM) pays of a cause; `holder` held it, empty for nobody.

    `gpu_hours` and, of them, `unpriced` are nano, `cost` units of 1e-8.
    """

    payer: str
    holder: str
    cause: Cause
    gpu_hours: int
    cost: int
    unpriced: int


def payments(
    held: Mapping[str, CostSums],
    free: CostSums,
    *,
    basis: Basis,
    policy: Policy,
    entitlements: Mapping[str, int],
) -> Iterator[Payment]:
    """Yield who pays what of a pool (cluster × tier × model × capacity type) in one hour.

    A team pays of what it held the causes that its basis charges; the rest stays with the platform.
    Unallocated capacity is shared by `policy`, where use is what teams held on the basis; unhealthy
    capacity is the platform's whatever the policy, for no team could have had it. Energy is paid
    by who held the card that drew it, on either basis; that of other cards by the platform. All
    payments together are the cost of the pool, in each cause as well, to the last digit.
    """
    for team in sorted(held):
        for cause in HELD:
            payer = team if cause in CHARGED[basis] else PLATFORM
            yield from _paid(payer, team, cause, held[team])
        yield from _paid(team, team, Cause.ENERGY, held[team])
    yield from _paid(PLATFORM, "", Cause.UNHEALTHY, free)
    yield from _paid(PLATFORM, "", Cause.ENERGY, free)
    used = {
        team: sum(sums.gpu_hours.get(cause, 0) for cause in CHARGED[basis])
        for team, sums in held.items()
    }
    amounts = _amounts(free, Cause.UNALLOCATED)
    shares = [shared(one, policy, entitlements=entitlements, used=used) for one in amounts]
    for payer in sorted(shares[0]):
        payment = Payment(payer, "", Cause.UNALLOCATED, *(share[payer] for share in shares))
        if any(payment[3:]):
            yield payment


def _paid(payer: str, holder: str, cause: Cause, sums: CostSums) -> Iterator[Payment]:
    amounts = _amounts(sums, cause)
    if any(amounts):
        yield Payment(payer, holder, cause, *amounts)


def _amounts(sums: CostSums, cause: Cause) -> tuple[int, int, int]:
    if cause is Cause.ENERGY:
        return 0, sums.energy, 0
    return sums.gpu_hours.get(cause, 0), sums.cost.get(cause, 0), sums.unpriced.get(cause, 0)
