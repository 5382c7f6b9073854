"""Demand that only Kueue's series show: what ClusterQueues have pending beyond the history."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from apps.clusters.domain.observed.objects import ObservedKind
from apps.clusters.domain.window import TimeSpan

CLUSTER_QUEUE = ObservedKind.CLUSTER_QUEUE.short
"""The kind of episodes that hold it: one for each queue, resource, namespace, tier and day."""
PENDING_IN_KUEUE = "pending in Kueue"
"""Their detail."""
_FIRST_LIST_SECONDS = 600.0
"""What a watch shows so soon after its start was there before."""
LocalName = tuple[str, str]
"""Namespace and name of a LocalQueue."""


class LocalLink(NamedTuple):
    """A LocalQueue and the ClusterQueue that it leads to, from and until (Unix seconds)."""

    local: LocalName
    cluster_queue: str
    start: float
    end: float


class QueueLinks(Struct, frozen=True):
    """Which LocalQueues lead to which ClusterQueue at one time."""

    by_local: Mapping[LocalName, str]

    @classmethod
    def at(
        cls,
        links: Iterable[LocalLink],
        at: float,
        *,
        queues: Collection[str],
        shown: Iterable[LocalName],
    ) -> "QueueLinks":
        """Return the links at a time; of a cluster with a single ClusterQueue all lead to that.

        `queues` are the ClusterQueues and `shown` the LocalQueues that series show.
        """
        known = {one.local: one.cluster_queue for one in links if one.start <= at < one.end}
        if len(queues) == 1:
            (only,) = queues
            # Links that were watched go first: a LocalQueue may have led to a queue that is gone.
            known = dict.fromkeys(shown, only) | known
        return cls(known)

    def users(self, queue: str) -> frozenset[str]:
        """Return the namespaces that use a ClusterQueue."""
        return frozenset(space for (space, _), one in self.by_local.items() if one == queue)

    def users_now(self, queue: str, pending: Mapping[LocalName, float]) -> frozenset[str]:
        """Return those of them whose LocalQueues have pending Workloads, where that is shown."""
        own = {local: n for local, n in pending.items() if self.by_local.get(local) == queue}
        having = frozenset(space for (space, _), number in own.items() if number > 0)
        # Series of LocalQueues need a feature gate of Kueue; without them any user may be it.
        return having or self.users(queue)


class CountedUnits(NamedTuple):
    """Units that the pending history has already, and the LocalQueue; empty where not known."""

    namespace: str
    local_queue: str
    units: float


def beyond_history(
    shown: Mapping[str, float], counted: Iterable[CountedUnits], links: QueueLinks
) -> dict[str, float]:
    """Return the units of each ClusterQueue that are not counted yet; never below 0.

    All are means of one resource over the same time. Units that may be in several queues are taken
    off once, from the largest. Units of a namespace without a LocalQueue may be in any queue whose
    namespaces are unknown. In doubt the result is too small, so that nothing counts twice.
    """
    users = {queue: links.users(queue) for queue in sorted(shown)}
    left = dict(shown)
    open_ended: dict[tuple[str, ...], float] = {}
    for one in counted:
        queues = _queues_of(one, users, links)
        if len(queues) == 1:
            left[queues[0]] = left[queues[0]] - one.units
        elif queues:
            open_ended[queues] = open_ended.get(queues, 0.0) + one.units
    for queues, units in sorted(open_ended.items()):
        for queue in sorted(queues, key=lambda name: (-left[name], name)):
            taken = min(units, max(0.0, left[queue]))
            left[queue] -= taken
            # What no queue has room for is dropped: it was counted elsewhere.
            units -= taken
    return {queue: max(0.0, units) for queue, units in left.items()}


def _queues_of(
    one: CountedUnits, users: Mapping[str, frozenset[str]], links: QueueLinks
) -> tuple[str, ...]:
    named = links.by_local.get((one.namespace, one.local_queue))
    if named is not None:
        return (named,) if named in users else ()
    using = tuple(queue for queue, spaces in users.items() if one.namespace in spaces)
    # Its LocalQueue was not seen: any queue whose users are unknown may be its own.
    return using or tuple(queue for queue, spaces in users.items() if not spaces)


def link_start(first: float, spans: Sequence[TimeSpan]) -> float:
    """Return since when an object was there that the watch saw first at `first`.

    Items that a watch lists at its start were created before it: they count for all that time.
    """
    start = 0.0
    for since, until in spans:
        if since <= first < since + _FIRST_LIST_SECONDS:
            return start
        start = until
    return first
