"""Bookings: raises with a start and an end, what they plan for a key, and how they fit a tier."""

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

from msgspec import Struct

from apps.planning.domain.capacity_cases import BookedGpus
from apps.quota_requests.domain.execution.applied_changes import AppliedLayer, beneath
from apps.quota_requests.domain.quantities import Quantity


class PlannedChange(Struct, frozen=True):
    """A change of a key; `start` None: it is applied already. `end` None: it stays."""

    before: Quantity
    after: Quantity
    start: datetime | None
    end: datetime | None


class _Layer(Struct):
    change: PlannedChange
    stands: bool = True


def planned_amount(current: Quantity, changes: Sequence[PlannedChange], at: datetime) -> Quantity:
    """Return what a key is planned to be at a time, by what is applied and scheduled.

    Applied `changes` come in the order in which they were applied. As with the worker, a change
    begins only where the amount is the one that it was reviewed from. At its end the key goes back
    to the amount beneath it, unless a later change stands on top.
    """
    amount = current
    layers = [_Layer(one) for one in changes if one.start is None]
    turns = [(one.end, False, one) for one in changes if one.end is not None]
    turns += [(one.start, True, one) for one in changes if one.start is not None]
    # What ends at a moment ends before another begins.
    for moment, begins, one in sorted(turns, key=lambda turn: turn[:2]):
        if moment > at:
            break
        if not begins:
            amount = _ended(layers, one, amount)
        elif one.before == amount:
            layers.append(_Layer(one))
            amount = one.after
    return amount


def _ended(layers: Sequence[_Layer], one: PlannedChange, amount: Quantity) -> Quantity:
    """Return the amount after the end of a change, whose layer does not stand any more."""
    place = next((n for n, layer in enumerate(layers) if layer.change is one), None)
    if place is None:
        return amount
    layers[place].stands = False
    on_top = any(layer.stands for layer in layers[place + 1 :])
    # Another amount was set by somebody else since: the end of this change does not undo that.
    if on_top or amount != one.after:
        return amount
    earlier = (
        AppliedLayer(own.change.before, own.change.after, own.stands)
        for own in reversed(layers[:place])
    )
    return beneath(one.before, earlier)


class TierLimits(Struct, frozen=True):
    """What a tier has and promises now, in GPUs; None is not known."""

    capacity: float | None
    entitled: float
    limits: float | None


class BookedSpan(Struct, frozen=True):
    """A span in which the same bookings hold, in GPUs.

    `clashes`: entitlements and bookings together exceed the capacity. `overcommitted`: limits and
    bookings together do.
    """

    start: datetime
    end: datetime
    booked: float
    entitled: float
    limits: float | None
    capacity: float | None

    @property
    def clashes(self) -> bool:
        return bool(self.booked) and self._over(self.entitled)

    @property
    def overcommitted(self) -> bool:
        return self.limits is not None and self._over(self.limits)

    def _over(self, promised: float) -> bool:
        # Sums of floats: shares that fill a tier exactly must not look like more than it has.
        return self.capacity is not None and promised + self.booked > self.capacity + 1e-9


def booked_spans(
    bookings: Sequence[BookedGpus], tier: TierLimits, *, start: datetime, end: datetime
) -> list[BookedSpan]:
    """Return the spans from `start` to `end`, each with what is booked in it."""
    inside = [one for one in bookings if one.start < end and one.end > start]
    edges = {start, end}
    for one in inside:
        # Only edges inside: a booking from before `start` must not widen the first span.
        edges |= {at for at in (one.start, one.end) if start < at < end}
    times = sorted(edges)
    return [
        BookedSpan(
            begin,
            until,
            # Half-open: a booking that ends at noon makes room for one that starts at noon.
            sum(one.gpus for one in inside if one.start <= begin < one.end),
            tier.entitled,
            tier.limits,
            tier.capacity,
        )
        for begin, until in pairwise(times)
    ]
