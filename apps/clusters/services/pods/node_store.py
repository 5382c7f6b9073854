"""The intervals of a cluster's GPU nodes as `watch` learns them, in memory until written."""

from collections.abc import Iterable
from dataclasses import dataclass

from apps.clusters.domain.pods.kube_objects import NodeState

_INSTANT = 1e-6


@dataclass(slots=True)
class NodeStateInterval:
    """A node's state since `start`; `end` is None while it lasts."""

    start: float
    state: NodeState
    end: float | None = None


class NodeStore:
    """One open interval for each GPU node there is; a change of state closes it and opens another.

    `changed` holds what is to be written, by (node, start).
    """

    def __init__(self, intervals: Iterable[NodeStateInterval] = ()) -> None:
        self.open = {interval.state.name: interval for interval in intervals}
        self.changed: dict[tuple[str, float], NodeStateInterval] = {}

    def seen(
        self,
        state: NodeState,
        at: float,
        *,
        since: float | None = None,
        ready_at: float | None = None,
    ) -> None:
        """Take in a node as it is at `at`. An interval that it ends is closed at `since`, else
        `at`.

        `ready_at` is when it became ready, or ceased to be, by its own word.
        """
        interval = self.open.get(state.name)
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
            self.gone(state.name, at if since is None else since)
            return
        if interval is not None and at <= interval.start:
            # Twice in one instant: the later state is the state of that instant.
            interval.state = state
            self._keep(interval)
            return
        if interval is not None:
            self._close(interval, at if since is None else since)
        self.open[state.name] = NodeStateInterval(start=at, state=state)
        self._keep(self.open[state.name])

    def gone(self, name: str, at: float) -> None:
        """Take in that a node is no more, or has no GPUs any more."""
        interval = self.open.pop(name, None)
        if interval is not None:
            self._close(interval, at)

    def listed(self, states: Iterable[NodeState], at: float, last_seen: float | None) -> None:
        """Take in a whole list after a gap since `last_seen`.

        A node that is as it was goes on in its interval. One that changed or went did so some time
        in the gap: its interval ends when it was last seen, and the gap stays open.
        """
        since = at if last_seen is None else min(at, last_seen)
        there = {state.name: state for state in states}
        for name in sorted(self.open.keys() - there.keys()):
            self.gone(name, since)
        for state in there.values():
            self.seen(state, at, since=since)

    def _close(self, interval: NodeStateInterval, at: float) -> None:
        interval.end = max(at, interval.start + _INSTANT)
        self._keep(interval)

    def _keep(self, interval: NodeStateInterval) -> None:
        self.changed[interval.state.name, interval.start] = interval
