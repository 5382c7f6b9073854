"""Which running work makes room: for a queue's quota, as Kueue does, and on a node."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct

from apps.planning.domain.cluster_replay.inputs import SLACK, FlavorTier, ReplayQueue
from apps.planning.domain.cluster_replay.quota_tree import QuotaCell


class QuotaHolder(NamedTuple):
    """Work that has quota of `cell`; `since` is when it was admitted."""

    number: int
    queue: str
    key: FlavorTier
    cell: QuotaCell
    units: float
    priority: int
    since: float


def rank(holder: QuotaHolder) -> tuple[int, float, int]:
    """Return what sorts holders of a queue: the lowest priority, then the latest, goes first."""
    return (holder.priority, -holder.since, holder.number)


class QuotaDemand(Struct, frozen=True):
    """What a pending work asks of its queue."""

    queue: ReplayQueue
    cell: QuotaCell
    units: float
    priority: int


def quota_victims(demand: QuotaDemand, holders: Iterable[QuotaHolder]) -> list[int]:
    """Return the holders to preempt so that the demand has quota; empty where all are too few.

    `holders` are in the order in which they go: those of queues that borrow first, then by `rank`.
    As few as possible are preempted, and no queue loses its own quota.
    """
    cell, units = demand.cell, demand.units
    gone: list[QuotaHolder] = []
    fits = cell.fits(units)
    for holder in holders:
        if fits:
            break
        # Asked again each time: a queue that has lost enough no longer borrows.
        if holder.cell is cell or holder.cell.borrows():
            holder.cell.take(-holder.units)
            gone.append(holder)
            fits = cell.fits(units)
    needed = _fewest(demand, gone) if fits else []
    # Cells are used to try; the caller takes the quota of the victims itself.
    for holder in needed if fits else gone:
        holder.cell.take(holder.units)
    return [holder.number for holder in needed]


def own_victims(lacking: float, holders: Iterable[QuotaHolder]) -> list[int]:
    """Return the holders to preempt of a queue that lacks so many units; empty where too few.

    What a queue gives back it may take again, so sums tell what `quota_victims` tries.
    """
    gone: list[QuotaHolder] = []
    left = lacking - SLACK
    for holder in holders:
        if left <= 0:
            break
        left -= holder.units
        gone.append(holder)
    if left > 0:
        return []
    needed = list(gone)
    for holder in reversed(gone):
        if left + holder.units <= 0:
            left += holder.units
            needed.remove(holder)
    return [holder.number for holder in needed]


def _fewest(demand: QuotaDemand, gone: Sequence[QuotaHolder]) -> list[QuotaHolder]:
    """Put back holders that need not go, the last one first; return the others."""
    needed = list(gone)
    # Who was taken last counts most, and is the first to be spared.
    for holder in reversed(gone):
        holder.cell.take(holder.units)
        if demand.cell.fits(demand.units):
            needed.remove(holder)
        else:
            holder.cell.take(-holder.units)
    return needed


class NodeHolder(NamedTuple):
    """A running work that may go from a node; `units` are those that it has there."""

    number: int
    priority: int
    since: float
    units: float


def node_victims(
    units: float,
    nodes: Sequence[int],
    room_on: Callable[[int], float],
    holders: Callable[[int], Sequence[NodeHolder]],
) -> list[int]:
    """Return the works to preempt so that a pod has room on one of the nodes; empty: no help.

    `room_on` is negative where a node lacks what its pods still hold.

    The chosen node has the lowest highest priority among its victims, then the fewest victims,
    then the first place. On a node the lowest priority goes first, then the latest start.
    """
    best: tuple[int, int, int] | None = None
    chosen: list[int] = []
    for node in nodes:
        room, gone = room_on(node), []
        for holder in sorted(holders(node), key=lambda one: (one.priority, -one.since, one.number)):
            if room >= units - SLACK:
                break
            room += holder.units
            gone.append(holder)
        # Where no pod has to go, preemption is not what helps.
        if room < units - SLACK or not gone:
            continue
        # As kube-scheduler chooses among its candidates: the highest victim counts first.
        score = (max(one.priority for one in gone), len(gone), node)
        if best is None or score < best:
            best, chosen = score, [one.number for one in gone]
    return chosen
