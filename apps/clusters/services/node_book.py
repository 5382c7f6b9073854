"""The spells of a cluster's GPU nodes as `watch` learns them, in memory until written."""

from collections.abc import Iterable
from dataclasses import dataclass

from apps.clusters.domain.kube_objects import NodeState

_INSTANT = 1e-6


@dataclass(slots=True)
class Spell:
    """A node's state since `start`; `end` is None while it lasts."""

    start: float
    state: NodeState
    end: float | None = None


class NodeBook:
    """One open spell for each GPU node there is; a change of state closes it and opens another.

    `changed` holds what is to be written, by (node, start).
    """

    def __init__(self, spells: Iterable[Spell] = ()) -> None:
        self.open = {spell.state.name: spell for spell in spells}
        self.changed: dict[tuple[str, float], Spell] = {}

    def seen(
        self,
        state: NodeState,
        at: float,
        *,
        since: float | None = None,
        ready_at: float | None = None,
    ) -> None:
        """Take in a node as it is at `at`. A spell that it ends is closed at `since`, else `at`.

        `ready_at` is when it became ready, or ceased to be, by its own word.
        """
        spell = self.open.get(state.name)
        if spell is not None and spell.state == state:
            return
        if (
            spell is not None
            and ready_at is not None
            and spell.state.ready != state.ready
            and spell.start < ready_at < at
        ):
            at = ready_at
        if not state.has_gpus:
            self.gone(state.name, at if since is None else since)
            return
        if spell is not None and at <= spell.start:
            # Twice in one instant: the later state is the state of that instant.
            spell.state = state
            self._keep(spell)
            return
        if spell is not None:
            self._close(spell, at if since is None else since)
        self.open[state.name] = Spell(start=at, state=state)
        self._keep(self.open[state.name])

    def gone(self, name: str, at: float) -> None:
        """Take in that a node is no more, or has no GPUs any more."""
        spell = self.open.pop(name, None)
        if spell is not None:
            self._close(spell, at)

    def listed(self, states: Iterable[NodeState], at: float, last_seen: float | None) -> None:
        """Take in a whole list after a gap since `last_seen`.

        A node that is as it was goes on in its spell. One that changed or went did so some time
        in the gap: its spell ends when it was last seen, and the gap stays open.
        """
        since = at if last_seen is None else min(at, last_seen)
        there = {state.name: state for state in states}
        for name in sorted(self.open.keys() - there.keys()):
            self.gone(name, since)
        for state in there.values():
            self.seen(state, at, since=since)

    def _close(self, spell: Spell, at: float) -> None:
        spell.end = max(at, spell.start + _INSTANT)
        self._keep(spell)

    def _keep(self, spell: Spell) -> None:
        self.changed[spell.state.name, spell.start] = spell
