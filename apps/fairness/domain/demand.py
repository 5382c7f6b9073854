"""Demand: what a team holds and asks for of a tier, as far as it counts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import fsum

from apps.pending.domain.causes import OF_DEMAND, Cause


@dataclass(frozen=True, slots=True)
class Asked:
    """GPU-equivalents that a team waits for in a slot (mean), and why it waits.

    `possible` is False where no node of the tier could ever take the request: nobody is denied
    what nobody could have.
    """

    team: str
    gpus: float
    cause: Cause
    possible: bool = True


def counted_pending(asked: Iterable[Asked], *, capacity: float) -> Mapping[str, float]:
    """Return the pending GPU-equivalents of each team that count for fairness.

    Only causes that more GPUs, more quota or another order would end count (`OF_DEMAND`), only
    requests that the tier could serve, and at most the tier's capacity
    (docs/definitions.md#fairness). A team of which nothing counts is not in it.
    """
    counted: dict[str, list[float]] = {}
    for ask in asked:
        if ask.possible and ask.cause in OF_DEMAND and ask.gpus > 0:
            counted.setdefault(ask.team, []).append(ask.gpus)
    return {team: min(fsum(gpus), capacity) for team, gpus in counted.items()}
