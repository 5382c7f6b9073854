"""Changes of one quota key on top of each other: what is beneath when one of them ends."""

from collections.abc import Iterable
from dataclasses import dataclass

from apps.quota_requests.domain.quantities import Quantity


@dataclass(frozen=True, slots=True)
class Layer:
    """A change that was applied. `stands`: it still holds, where nothing lies on top of it.

    Of one that does not stand the end has come while a later change lay on top.
    """

    before: Quantity
    after: Quantity
    stands: bool


def beneath(before: Quantity, earlier: Iterable[Layer]) -> Quantity:
    """Return to what a change goes back that began at `before`; `earlier` is the latest first.

    A raise whose time is over is passed through, to what was before it: raised to 8 until Friday
    and from 8 to 10 until Sunday, a quota of 6 is 6 again after Sunday. Where somebody else set
    the amount in between, that is what it goes back to.
    """
    amount = before
    for layer in earlier:
        if layer.stands or layer.after != amount:
            break
        amount = layer.before
    return amount
