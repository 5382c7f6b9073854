"""What other queues of a cohort could borrow, before a change and after; in units of the key."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum


@dataclass(frozen=True, slots=True)
class CohortShare:
    """A queue of a cohort, of one flavor and resource: limits None are none; `held` is used now."""

    name: str
    nominal: float
    held: float
    borrowing_limit: float | None = None
    lending_limit: float | None = None


@dataclass(frozen=True, slots=True)
class BorrowingRoom:
    """What a queue could borrow at most, before and after, in units.

    While our queue uses nothing (`idle`) its nominal quota can be lent; while it uses all of it
    (`full`) only what the cards then leave. `lost` is the larger of the two losses, never negative.
    """

    name: str
    idle_before: float
    idle_after: float
    full_before: float
    full_after: float
    lost: float = 0.0


def borrowing(
    shares: Sequence[CohortShare], ours: str, *, after: float, capacity: float | None
) -> list[BorrowingRoom]:
    """Return the rooms of all other queues of the cohort, who loses most first.

    Room = min(borrowing limit, Σ of what the others can lend, cards that neither the queue's own
    nominal quota nor the others' use takes). `capacity` None: the cards set no limit.
    """
    rooms = []
    for share in shares:
        if share.name == ours:
            continue
        idle_before, idle_after, full_before, full_after = (
            _room(share, _with(shares, ours, nominal=nominal, held=held), capacity)
            for nominal, held in _scenes(shares, ours, after)
        )
        lost = max(0.0, idle_before - idle_after, full_before - full_after)
        rooms.append(
            BorrowingRoom(share.name, idle_before, idle_after, full_before, full_after, lost)
        )
    return sorted(rooms, key=lambda room: (-room.lost, room.name))


def _scenes(shares: Sequence[CohortShare], ours: str, after: float) -> list[tuple[float, float]]:
    before = next((s.nominal for s in shares if s.name == ours), 0.0)
    return [(before, 0.0), (after, 0.0), (before, before), (after, after)]


def _with(
    shares: Sequence[CohortShare], ours: str, *, nominal: float, held: float
) -> list[CohortShare]:
    return [
        CohortShare(s.name, nominal, held, s.borrowing_limit, s.lending_limit)
        if s.name == ours
        else s
        for s in shares
    ]


def _room(share: CohortShare, shares: Sequence[CohortShare], capacity: float | None) -> float:
    others = [s for s in shares if s.name != share.name]
    room = fsum(_lendable(s) for s in others)
    if capacity is not None:
        room = min(room, capacity - share.nominal - fsum(min(s.held, s.nominal) for s in others))
    if share.borrowing_limit is not None:
        room = min(room, share.borrowing_limit)
    return max(0.0, room)


def _lendable(share: CohortShare) -> float:
    left = max(0.0, share.nominal - share.held)
    return left if share.lending_limit is None else min(left, share.lending_limit)
