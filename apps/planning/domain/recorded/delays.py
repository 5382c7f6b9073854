"""For how long recorded work was held up though it had quota and a node had room.

Series show when a pod was created and bound, not what it was pending for. What the cluster held
meanwhile is known, so time that quota or room explains can be separated from the rest.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from msgspec import Struct

from apps.clusters.domain.window import TimeSpan
from apps.planning.domain.cluster_replay.admission import QueueAdmission
from apps.planning.domain.cluster_replay.inputs import (
    DevicePart,
    MissingUnits,
    Packing,
    RecordedWork,
    ReplayCluster,
    ReplayPolicy,
)
from apps.planning.domain.cluster_replay.node_space import tier_spaces
from apps.planning.domain.recorded.works import WorkLife


class _RecordedEventKind(IntEnum):
    """What happens at one instant, in this order: what ends makes room for what starts."""

    END = 0
    NODE_CLOSES = 1
    UNITS_GO = 2
    NODE_OPENS = 3
    UNITS_COME = 4
    ARRIVE = 5
    START = 6


class _RecordedEvent(NamedTuple):
    """`number` is the place of a work or node; `missing` what a node lacks or has again."""

    at: float
    kind: _RecordedEventKind
    number: int
    missing: MissingUnits | None = None


class _PendingWork(Struct):
    """A work from its arrival to its start; `since`: from when on it could have started."""

    has_quota: bool
    since: float | None = None
    delay: float = 0.0


def unexplained_delays(
    works: Sequence[RecordedWork],
    lives: Sequence[WorkLife],
    cluster: ReplayCluster,
    of: Collection[int],
    window: TimeSpan,
) -> Mapping[int, float]:
    """Return for how many seconds of the window works were pending though they could have started.

    By place in `works`, for places in `of` with any such time. All work starts and ends when and
    where it did. Quota is given as Kueue gives it, and work that started has had it by then.
    """
    return _RecordedCourse(works, lives, cluster, of, window).delays()


class _RecordedCourse:
    """The cluster as it was, from one instant to the next."""

    def __init__(
        self,
        works: Sequence[RecordedWork],
        lives: Sequence[WorkLife],
        cluster: ReplayCluster,
        of: Collection[int],
        window: TimeSpan,
    ) -> None:
        self._works, self._lives, self._cluster = works, lives, cluster
        self._of, self._window = of, window
        # Works are put where they were: which node would be the best one is of no matter.
        self._spaces = tier_spaces(cluster.nodes, Packing.SPREAD)
        self._places = {node.name: place for place, node in enumerate(cluster.nodes)}
        self._admission = QueueAdmission(cluster, ReplayPolicy())
        self._pending: dict[str, dict[int, _PendingWork]] = defaultdict(dict)
        self._parts: dict[int, list[DevicePart]] = {}
        self._unplaced: dict[str, set[int]] = defaultdict(set)
        self._changed: set[str] = set()
        self._found: dict[int, float] = {}

    def delays(self) -> Mapping[int, float]:
        start, end = self._window
        instants: dict[float, list[_RecordedEvent]] = defaultdict(list)
        for one in (*self._work_changes(), *self._node_changes()):
            if one.at < end:
                # What was there before the window comes at its start, all at once.
                instants[max(start, one.at)].append(one)
        for at, changes in sorted(instants.items()):
            for one in sorted(changes, key=lambda each: (each.kind, each.number)):
                self._apply(one, at)
            self._settle(at)
        for own in self._pending.values():
            for number in list(own):
                self._leave(number, end)
        return self._found

    def _work_changes(self) -> Iterator[_RecordedEvent]:
        for number, (work, life) in enumerate(zip(self._works, self._lives, strict=True)):
            times = life.times
            if not work.running:
                yield _RecordedEvent(work.asked_at, _RecordedEventKind.ARRIVE, number)
            over, began = times.ended_at, times.started_at
            # What a kubelet turned away was bound, and never held anything.
            if began is not None and (over is None or over > began):
                yield _RecordedEvent(began, _RecordedEventKind.START, number)
            if over is not None:
                yield _RecordedEvent(over, _RecordedEventKind.END, number)

    def _node_changes(self) -> Iterator[_RecordedEvent]:
        start, _ = self._window
        for place, node in enumerate(self._cluster.nodes):
            for span in node.closed:
                if span.end > start:
                    yield _RecordedEvent(span.start, _RecordedEventKind.NODE_CLOSES, place)
                    yield _RecordedEvent(span.end, _RecordedEventKind.NODE_OPENS, place)
            for missing in node.missing:
                if missing.end > start:
                    yield _RecordedEvent(missing.start, _RecordedEventKind.UNITS_GO, place, missing)
                    yield _RecordedEvent(missing.end, _RecordedEventKind.UNITS_COME, place, missing)

    def _apply(self, one: _RecordedEvent, at: float) -> None:
        match one.kind:
            case _RecordedEventKind.ARRIVE:
                self._arrive(one.number)
            case _RecordedEventKind.START:
                self._begin(one.number, at)
            case _RecordedEventKind.END:
                self._finish(one.number, at)
            case _:
                self._turn_node(one)

    def _turn_node(self, one: _RecordedEvent) -> None:
        missing = one.missing
        for tier, space in self._spaces.items():
            if not space.has(one.number) or (missing is not None and missing.tier != tier):
                continue
            self._changed.add(tier)
            if missing is None:
                is_open = one.kind == _RecordedEventKind.NODE_OPENS
                (space.reopen if is_open else space.close)(one.number)
            else:
                comes = one.kind == _RecordedEventKind.UNITS_COME
                (space.regain if comes else space.lose)(one.number, missing.units)

    def _arrive(self, number: int) -> None:
        work = self._works[number]
        is_queued = self._admission.add(number, work, (-work.priority, work.asked_at, number))
        self._pending[work.tier][number] = _PendingWork(has_quota=not is_queued)
        self._changed.add(work.tier)

    def _begin(self, number: int, at: float) -> None:
        work = self._works[number]
        self._take_quota(number, at)
        self._leave(number, at)
        self._unplaced[work.tier].add(number)
        self._changed.add(work.tier)

    def _take_quota(self, number: int, at: float) -> None:
        work = self._works[number]
        own = self._pending[work.tier].get(number)
        if own is None:
            self._admission.keep(number, work, at)
        # It did start, so it had quota by then, whatever the queues give it here.
        elif not own.has_quota:
            self._admission.remove(number, work)
            self._admission.keep(number, work, at)

    def _finish(self, number: int, at: float) -> None:
        work = self._works[number]
        own = self._pending[work.tier].get(number)
        if own is not None and not own.has_quota:
            self._admission.remove(number, work)
        self._leave(number, at)
        self._admission.release(number)
        self._unplaced[work.tier].discard(number)
        parts = self._parts.pop(number, None)
        if parts is not None:
            self._spaces[work.tier].release(parts)
        self._changed.add(work.tier)

    def _leave(self, number: int, at: float) -> None:
        own = self._pending[self._works[number].tier].pop(number, None)
        if own is None:
            return
        delay = own.delay + (0.0 if own.since is None else at - own.since)
        if delay > 0 and number in self._of:
            self._found[number] = delay

    def _settle(self, at: float) -> None:
        """Place what has started, give quota, and note who could start now."""
        for tier in self._changed:
            # Ends are seen late: a pod may come to a node that looks full for a moment.
            self._unplaced[tier] = {n for n in self._unplaced[tier] if not self._place(n)}
        for admitted in self._admission.admit(at):
            tier = self._works[admitted.number].tier
            self._pending[tier][admitted.number].has_quota = True
            self._changed.add(tier)
        for tier in self._changed:
            self._note_room(tier, at)
        self._changed.clear()

    def _place(self, number: int) -> bool:
        """Take the room of a work on its nodes, anywhere where these are unknown."""
        work = self._works[number]
        space = self._spaces.get(work.tier)
        names = self._lives[number].nodes
        places = [self._places[name] for name in names if name in self._places]
        if space is None:
            return False
        if len(places) == work.pods:
            parts = space.place_on(work.units, places)
        else:
            parts = space.place(work.units, work.pods, work.requires)
        if parts is not None:
            self._parts[number] = parts
        return parts is not None

    def _note_room(self, tier: str, at: float) -> None:
        space = self._spaces.get(tier)
        rooms: dict[object, bool] = {}
        for number, own in self._pending[tier].items():
            if space is None or not own.has_quota or number not in self._of:
                continue
            work = self._works[number]
            needs = (work.units, work.pods, work.requires)
            if needs not in rooms:
                parts = space.place(work.units, work.pods, work.requires)
                rooms[needs] = parts is not None
                # Only tried: nothing is held by work that is still pending.
                space.release(parts or ())
            # Time without room in between is explained, and interrupts the delay.
            if rooms[needs] and own.since is None:
                own.since = at
            elif not rooms[needs] and own.since is not None:
                own.delay += at - own.since
                own.since = None
