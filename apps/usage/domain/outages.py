"""Planned outages: what of a node's hour was away by intention, and is no waste."""

from collections.abc import Iterable
from typing import NamedTuple

from apps.accounts.domain.structs import replace
from apps.clusters.domain.window import HOUR_SECONDS
from apps.usage.domain.amounts import Amounts


class OutageSpan(NamedTuple):
    """A time in which a node is away as planned, in Unix seconds."""

    start: float
    end: float


class OutagePart(NamedTuple):
    """What a planned outage took of an hour, in nano-GPU-hours, from what nothing held.

    `unhealthy` and `unallocated` are what it took of the amounts of these names, `first` is what of
    both lies in the first half of the hour.
    """

    unhealthy: int
    unallocated: int
    first: int


class NodeRest(NamedTuple):
    """What of a node's hour no pod held, in nano-GPU-hours, beside its whole `capacity`.

    `first` is what of `unhealthy` and `unallocated` lies in the first half of the hour.
    """

    capacity: int
    unhealthy: int
    unallocated: int
    first: int


def outage_part(rest: NodeRest, spans: Iterable[OutageSpan], hour: float) -> OutagePart:
    """Return what planned outages took of a node's hour.

    As much of its capacity as they lasted, but never what a pod held: pods may run to their end.
    """
    spans = list(spans)
    half = HOUR_SECONDS // 2
    free = rest.unhealthy + rest.unallocated
    first = min(free, rest.first)
    # By half: what was free before an outage is not what it took.
    taken = [
        min(there, round(rest.capacity * _away(spans, start, start + half) / HOUR_SECONDS))
        for there, start in ((first, hour), (free - first, hour + half))
    ]
    # A cordoned node is unavailable: that goes first, and the rest before it was cordoned.
    sick = min(rest.unhealthy, sum(taken))
    return OutagePart(sick, sum(taken) - sick, taken[0])


def without_part(amounts: Amounts, part: OutagePart) -> Amounts:
    """Return a node's ledger row with the part as `planned_outage`; both equations go on to hold.

    `part` is of this row, so that nothing becomes negative.
    """
    whole = amounts.unallocated or 0
    left = whole - part.unallocated
    return replace(
        amounts,
        planned_outage=(amounts.planned_outage or 0) + part.unhealthy + part.unallocated,
        unhealthy=(amounts.unhealthy or 0) - part.unhealthy,
        unallocated=left,
        # Stranded is a part of unallocated for as long as that lasts.
        stranded=(amounts.stranded or 0) * left // whole if whole else 0,
    )


def _away(spans: Iterable[OutageSpan], start: float, end: float) -> float:
    """Return for how many seconds from `start` to `end` any of the spans lasts."""
    found, until = 0.0, start
    for span in sorted(spans):
        # Outages of one node may overlap: no second counts twice.
        begins, ends = max(span.start, until), min(span.end, end)
        found += max(0.0, ends - begins)
        until = max(until, ends)
    return found
