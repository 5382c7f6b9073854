"""One hour's measures of many tiers and teams, without a database."""

import numpy as np

from apps.fairness.domain.measures import TierSlots, measure, nano_sums

_SLOTS = 2


def tiers_of_an_hour(teams: int, tiers: int) -> list[TierSlots]:
    """Return two slots of each tier, in which a third of the teams wait for 4 GPUs more."""
    random = np.random.default_rng(6)
    found = []
    for _ in range(tiers):
        entitlement = np.tile(random.integers(0, 9, teams).astype(float), (_SLOTS, 1))
        held = random.uniform(0.0, 8.0, (_SLOTS, teams))
        capacity = np.full(_SLOTS, max(entitlement.sum(axis=1).max(), held.sum(axis=1).max()))
        pending = np.where(random.random((_SLOTS, teams)) < 1 / 3, 4.0, 0.0)
        found.append(
            TierSlots(
                hours=np.full(_SLOTS, 0.5),
                capacity=capacity,
                entitlement=entitlement,
                weight=entitlement,
                held=held,
                pending=pending,
            )
        )
    return found


def whole_hour(tiers: list[TierSlots]) -> None:
    """Measure every tier, and round what comes out as it is stored."""
    for slots in tiers:
        nano_sums(measure(slots))
