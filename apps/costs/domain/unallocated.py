"""Who pays for capacity that nobody held: three policies, each exact to the last digit."""

from collections.abc import Mapping
from enum import StrEnum

from apps.costs.domain.apportion import apportioned

PLATFORM = ""
"""The payer of what no team pays for. No team can be named so."""


class Policy(StrEnum):
    PLATFORM = "platform"
    ENTITLEMENT = "entitlement"
    USE = "use"


STATEMENTS = {
    Policy.PLATFORM: "Capacity that nobody held is paid by the platform.",
    Policy.ENTITLEMENT: "Capacity that nobody held is shared by entitlement.",
    Policy.USE: "Capacity that nobody held is shared by use.",
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
    it on the basis that is charged (nano-GPU-hours or units). It is shared where it arises, pool
    by pool and hour by hour, so that sums over any grouping are those of the same shares. Where
    nobody is entitled, or nobody used any, it stays with the platform. Teams are served in the
    order of their names, so that equal remainders always fall alike.
    """
    weights = _weights(policy, entitlements, used)
    if not any(weights.values()):
        return {PLATFORM: cost}
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
