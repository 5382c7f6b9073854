"""The intervals of a cluster's GPU nodes as `watch` learns them, in memory until written."""

from collections.abc import Iterable
from dataclasses import dataclass

from apps.clusters.domain.observed.store import ObservedStore
from apps.clusters.domain.pods.kube_objects import NodeState

_INSTANT = 1e-6


@dataclass(slots=True)
class NodeStateInterval:
    """A node's state since `start`; `end` is None while it lasts."""

    start: float
    state: NodeState
    end: float | None = None


class NodeStore(ObservedStore[NodeStateInterval]):
    """One open interval for each GPU node there is; a change of state closes it and opens another.

    Their rows are by (node, start).
    """

    def __init__(self, intervals: Iterable[NodeStateInterval] = ()) -> None:
        super().__init__(_node, intervals, row=lambda interval: (_node(interval), interval.start))

    def apply(
        self,
        state: NodeState,
        at: float,
        *,
        since: float | None = None,
        ready_at: float | None = None,
    ) -> None:
        """Apply a node as it is at `at`. An interval that it ends is closed at `since`, else `at`.

        `ready_at` is when it became ready, or ceased to be, by its own word.
        """
        interval = self.get(state.name)
        if interval is not None and interval.state == state:
            return
        if (
            interval is not None
            and ready_at is not None
            and interval.state.ready != state.ready
            and interval.start < ready_at < at
        ):
            at = ready_at
        if not state.has_gpus:
            self.delete(state.name, at if since is None else since)
            return
        if interval is not None and at <= interval.start:
            # Twice in one instant: the later state is the state of that instant.
            interval.state = state
            self.mark(interval)
            return
        if interval is not None:
            self._close(interval, at if since is None else since)
        self.keep(NodeStateInterval(start=at, state=state))

    def delete(self, name: str, at: float) -> None:
        """Close the interval of a node that is no more, or has no GPUs any more."""
        interval = self.drop(name)
        if interval is not None:
            self._close(interval, at)

    def relist(self, states: Iterable[NodeState], at: float, last_seen: float | None) -> None:
        """Apply a whole list after a gap since `last_seen`.

        A node that is as it was goes on in its interval. One that changed or went did so some time
        in the gap: its interval ends when it was last seen, and the gap stays open.
        """
        since = at if last_seen is None else min(at, last_seen)
        there = {state.name: state for state in states}
        for name in sorted(self.items.keys() - there.keys()):
            self.delete(name, since)
        for state in there.values():
            self.apply(state, at, since=since)

    def _close(self, interval: NodeStateInterval, at: float) -> None:
        interval.end = max(at, interval.start + _INSTANT)
        self.mark(interval)


def _node(interval: NodeStateInterval) -> str:
    return interval.state.name
