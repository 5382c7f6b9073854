"""Whose turn it is: what teams hold of a tier, and held before, against entitlement and weight."""

from collections import defaultdict
from math import inf

from msgspec import Struct

from apps.planning.domain.cluster_replay.inputs import SLACK, ReplayPolicy


class _TeamHolding(Struct):
    """GPU-equivalents held now, and the mean of those held before, recent ones counting most."""

    held: float = 0.0
    mean: float = 0.0
    at: float = 0.0


class TeamTurns:
    """The order of teams in a tier."""

    def __init__(self, tier: str, policy: ReplayPolicy, start: float) -> None:
        self._tier = tier
        self._entitled = policy.entitlements
        self._weights = policy.entitlements if policy.weights is None else policy.weights
        self._half_life = policy.half_life
        self._teams: dict[str, _TeamHolding] = defaultdict(lambda: _TeamHolding(at=start))

    def hold(self, team: str, gpus: float, at: float) -> None:
        """Note that a team holds `gpus` GPU-equivalents more, or less where negative."""
        own = self._teams[team]
        own.mean = self._mean(own, at)
        own.at = at
        own.held += gpus

    def turn(self, team: str, at: float) -> tuple[float, float]:
        """Return what sorts teams: below entitlement first, then by holding ÷ weight."""
        own = self._teams[team]
        # Without a weight a team comes after all that have one.
        weight = self._weights.get((team, self._tier), 0.0)
        level = self._mean(own, at) if self._half_life else own.held
        above = own.held >= self._entitled.get((team, self._tier), 0.0) - SLACK
        return (float(above), level / weight if weight > 0 else inf)

    def _mean(self, own: _TeamHolding, at: float) -> float:
        if not self._half_life:
            return 0.0
        left: float = 2.0 ** ((own.at - at) / self._half_life)
        return own.held + (own.mean - own.held) * left
