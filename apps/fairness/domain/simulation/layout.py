"""Who is entitled to what of which tier, and the changes that a what-if tries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from apps.clusters.domain import quantities
from apps.clusters.domain.quantities import quantity


class ChangeImpossible(ValueError):
    """A change that the layout does not admit; the text says why."""


@dataclass(frozen=True, slots=True)
class TierPlan:
    """Capacity and entitlements of a tier, in GPU-equivalents; weights are by default these."""

    capacity: float
    entitlements: Mapping[str, float]
    weights: Mapping[str, float] | None = None

    def weight(self, team: str) -> float:
        return (self.entitlements if self.weights is None else self.weights).get(team, 0.0)


Layout = Mapping[str, TierPlan]
"""Plans by the tier's name."""


@dataclass(frozen=True, slots=True)
class AddGpus:
    """More capacity of a tier, or less where negative."""

    tier: str
    gpus: float

    def __str__(self) -> str:
        sign = "+" if self.gpus >= 0 else ""
        return f"{sign}{quantities.gpus(self.gpus)} in {self.tier}"


@dataclass(frozen=True, slots=True)
class Entitle:
    """Another entitlement of a team; its weight changes in proportion (from none: to `gpus`)."""

    team: str
    tier: str
    gpus: float

    def __str__(self) -> str:
        return f"{self.team} entitled to {quantity(self.gpus)} in {self.tier}"


@dataclass(frozen=True, slots=True)
class MoveCards:
    """Whole cards that leave one tier and serve another.

    `usable` is the part of a card that the other tier's units cover: 1 for 7 × 1g.10gb, 6/7 for
    2 × 3g.40gb, whose last slice serves nobody.
    """

    cards: float
    from_tier: str
    to_tier: str
    usable: float = 1.0

    def __str__(self) -> str:
        return f"move {self.cards:g} cards from {self.from_tier} to {self.to_tier}"


@dataclass(frozen=True, slots=True)
class MoveWork:
    """A team's work asks in another tier, where a GPU-equivalent of it becomes `gpus`."""

    team: str
    from_tier: str
    to_tier: str
    gpus: float

    def __str__(self) -> str:
        return (
            f"{self.team}'s work of {self.from_tier} asks in {self.to_tier}, "
            f"{quantities.gpus(self.gpus)} for each it asked for"
        )


Change = AddGpus | Entitle | MoveCards | MoveWork


def changed(layout: Layout, changes: Sequence[Change]) -> dict[str, TierPlan]:
    """Return the layout after the changes, one after another.

    Raises ChangeImpossible for an unknown tier, more cards than there are, or a negative amount.
    """
    plans = dict(layout)
    for change in changes:
        match change:
            case AddGpus():
                _grow(plans, change.tier, change.gpus)
            case Entitle():
                _entitle(plans, change)
            case MoveCards():
                _move(plans, change)
            case MoveWork():  # pragma: no branch - there is no other change
                _check_work(plans, change)
    return plans


def _plan(plans: Mapping[str, TierPlan], tier: str) -> TierPlan:
    if tier not in plans:
        raise ChangeImpossible(f"there is no tier {tier}")
    return plans[tier]


def _grow(plans: dict[str, TierPlan], tier: str, gpus: float) -> None:
    plan = _plan(plans, tier)
    if plan.capacity + gpus < 0:
        raise ChangeImpossible(
            f"{tier} has {quantities.gpus(plan.capacity)}, {quantity(-gpus)} cannot leave it"
        )
    plans[tier] = replace(plan, capacity=plan.capacity + gpus)


def _entitle(plans: dict[str, TierPlan], change: Entitle) -> None:
    plan = _plan(plans, change.tier)
    if change.gpus < 0:
        raise ChangeImpossible("an entitlement cannot be negative")
    before = plan.entitlements.get(change.team, 0.0)
    weights = plan.weights
    if weights is not None:
        weight = weights.get(change.team, 0.0) * change.gpus / before if before else change.gpus
        weights = {**weights, change.team: weight}
    entitlements = {**plan.entitlements, change.team: change.gpus}
    plans[change.tier] = replace(plan, entitlements=entitlements, weights=weights)


def _move(plans: dict[str, TierPlan], change: MoveCards) -> None:
    if change.cards < 0:
        raise ChangeImpossible("move cards the other way instead of a negative number")
    if not 0 <= change.usable <= 1:
        raise ChangeImpossible(f"a card is usable from 0 to 1, not {change.usable:g}")
    _grow(plans, change.from_tier, -change.cards)
    _grow(plans, change.to_tier, change.cards * change.usable)


def _check_work(plans: Mapping[str, TierPlan], change: MoveWork) -> None:
    _plan(plans, change.from_tier)
    _plan(plans, change.to_tier)
    if change.gpus <= 0:
        raise ChangeImpossible("work that moves must ask for some GPU")
