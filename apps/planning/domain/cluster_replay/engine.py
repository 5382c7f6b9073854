"""Replay recorded work on the nodes and queues of a cluster, event by event."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from enum import IntEnum
from functools import partial
from heapq import heappop, heappush

from msgspec import Struct

from apps.planning.domain.cluster_replay.admission import QueueAdmission, namespace_admission
from apps.planning.domain.cluster_replay.inputs import (
    SLACK,
    ClusterReplay,
    DevicePart,
    HeldSpan,
    Labels,
    MissingUnits,
    PendingOrder,
    PlayedWork,
    RecordedWork,
    ReplayAssumption,
    ReplayCluster,
    ReplayPolicy,
)
from apps.planning.domain.cluster_replay.node_space import TierSpace, tier_spaces
from apps.planning.domain.cluster_replay.pending_line import LineKey, PendingLine, RoomNeeds
from apps.planning.domain.cluster_replay.preemption import NodeHolder, node_victims
from apps.planning.domain.cluster_replay.queue_state import below
from apps.planning.domain.cluster_replay.team_turns import TeamTurns

_MOST_LOSSES = 3
"""How often a work may be preempted at one instant before it returns only at the next one."""


class _EventKind(IntEnum):
    """The order of events of one instant: ends come first, so that arrivals see what they free."""

    END = 0
    CANCEL = 1
    NODE_CLOSES = 2
    UNITS_GO = 3
    NODE_OPENS = 4
    UNITS_COME = 5
    CHECKED = 6
    ARRIVE = 7


class _Phase(IntEnum):
    AHEAD = 0
    UNCREATED = 1
    QUEUED = 2
    CHECKED = 3
    PENDING = 4
    RUNNING = 5
    OVER = 6


class _WorkState(Struct):
    """A work as the replay goes on; `attempt` tells ends of an earlier run from those of this."""

    played: PlayedWork
    requires: Labels
    left: float | None
    phase: _Phase = _Phase.AHEAD
    attempt: int = 0
    parts: tuple[DevicePart, ...] = ()
    gpus: float = 0.0
    checks_left: float = 0.0


def replay_cluster(
    works: Sequence[RecordedWork],
    cluster: ReplayCluster,
    policy: ReplayPolicy,
    *,
    start: float,
    end: float,
    until_started: int | None = None,
) -> ClusterReplay:
    """Return what becomes of each work from `start` to `end` on the cluster under the policy.

    Work for a tier that no node offers, or that is too large for all nodes, stays pending. The same
    input gives the same result. With `until_started` nothing is replayed after the work of that
    place has started. Raises ValueError for a work without units or pods.
    """
    for work in works:
        if work.units <= 0 or work.pods < 1:
            raise ValueError(f"work of {work.team} requests nothing: {work.units} × {work.pods}")
    run = _ClusterRun([work for work in works if work.asked_at < end], cluster, policy, start)
    run.until(end, until_started)
    assumed = _assumed(works, cluster, policy, in_circles=run.in_circles)
    return ClusterReplay(run.played(), assumed)


def run_seconds(work: RecordedWork, policy: ReplayPolicy) -> float | None:
    """Return how long a work runs under the policy's idle-time limit; None where not known."""
    if work.runs_seconds is None:
        return None
    return work.runs_seconds - idle_cut(work, policy)


def idle_cut(work: RecordedWork, policy: ReplayPolicy) -> float:
    """Return by how many seconds the idle-time limit shortens a work."""
    if policy.idle_limit is None:
        return 0.0
    return max(0.0, work.idle_seconds - policy.idle_limit)


def _assumed(
    works: Sequence[RecordedWork],
    cluster: ReplayCluster,
    policy: ReplayPolicy,
    *,
    in_circles: bool,
) -> tuple[ReplayAssumption, ...]:
    preempts = policy.preemption or any(
        queue.preempts_own or queue.reclaim != queue.reclaim.NEVER for queue in cluster.queues
    )
    holds = {
        ReplayAssumption.SAME_DEMAND: True,
        ReplayAssumption.GREEDY_PLACEMENT: True,
        ReplayAssumption.RECORDED_NODES: policy.recorded_nodes,
        ReplayAssumption.WHOLE_GANGS: any(work.pods > 1 for work in works),
        ReplayAssumption.STRICT_ORDER: policy.strict,
        ReplayAssumption.SMALL_PASSES: not policy.strict,
        ReplayAssumption.KUEUE_ORDER: bool(cluster.queues) and not policy.fair_sharing,
        ReplayAssumption.FAIR_SHARING: bool(cluster.queues) and policy.fair_sharing,
        ReplayAssumption.VICTIMS_BY_PRIORITY: policy.fair_sharing
        and any(queue.reclaim != queue.reclaim.NEVER for queue in cluster.queues),
        ReplayAssumption.NO_PREEMPTION: not preempts,
        ReplayAssumption.RESTARTS: preempts and not policy.resumes,
        ReplayAssumption.PREEMPTION_CIRCLES: in_circles,
        ReplayAssumption.OPEN_END: any(work.runs_seconds is None for work in works),
        ReplayAssumption.RUNNING_KEEPS: any(work.running for work in works),
        ReplayAssumption.START_DELAYS: any(
            work.delay_seconds or work.check_seconds for work in works
        ),
        ReplayAssumption.IDLE_ENDED: policy.idle_limit is not None,
        ReplayAssumption.NO_OTHER_RESOURCES: True,
    }
    return tuple(assumption for assumption, is_held in holds.items() if is_held)


def _ran_where_it_may(works: Sequence[RecordedWork], cluster: ReplayCluster) -> bool:
    """Say whether all work may be on the nodes that it ran on in every flavor that it can get.

    Else one work may have room there where another that needs the same has none.
    """
    nodes = {node.name: node.labels for node in cluster.nodes}
    queues = {queue.name: {key[0] for key in queue.quotas} for queue in cluster.queues}
    for queue, requires, name in {(w.queue, w.requires, name) for w in works for name in w.nodes}:
        labels = [cluster.flavors.get(flavor, ()) for flavor in queues.get(queue, ())]
        there = nodes.get(name)
        if there is not None and any(
            there.get(key) != value for own in (requires, *labels) for key, value in own
        ):
            return False
    return True


class _ClusterRun:
    """The state of the cluster while it is replayed."""

    def __init__(
        self,
        works: Sequence[RecordedWork],
        cluster: ReplayCluster,
        policy: ReplayPolicy,
        start: float,
    ) -> None:
        self._policy, self._cluster, self._start = policy, cluster, start
        self._states = [
            _WorkState(
                PlayedWork(work),
                work.requires,
                run_seconds(work, policy),
                checks_left=work.check_seconds,
            )
            for work in works
        ]
        self._spaces = tier_spaces(cluster.nodes, policy.packing)
        self._places = {node.name: place for place, node in enumerate(cluster.nodes)}
        self._weights = [[device.weight for device in node.devices] for node in cluster.nodes]
        self._admission = QueueAdmission(cluster, policy)
        self._creation = namespace_admission(cluster, policy)
        self._missing = [
            (place, span) for place, node in enumerate(cluster.nodes) for span in node.missing
        ]
        self._lines: dict[str, PendingLine] = defaultdict(PendingLine)
        self._turns = {tier: TeamTurns(tier, policy, start) for tier in self._spaces}
        self._dirty: set[str] = set()
        # Who holds how many units of a tier on a node; kept where work may be preempted there.
        self._held_on: dict[tuple[str, int], dict[int, float]] = defaultdict(
            lambda: defaultdict(float)
        )
        # The same by priority.
        self._held_by: dict[tuple[str, int], dict[int, float]] = defaultdict(
            lambda: defaultdict(float)
        )
        self._events: list[tuple[float, int, int, int]] = []
        # How often work was preempted at this instant, and who returns only at the next one.
        self._losses: Counter[int] = Counter()
        self._returning: list[int] = []
        self.in_circles = False
        self._is_by_needs = not policy.recorded_nodes or _ran_where_it_may(works, cluster)
        self._prepare(start)

    def until(self, end: float, until_started: int | None = None) -> None:
        """Let everything happen that happens before `end`, or until one work has started."""
        probe = None if until_started is None else self._states[until_started].played
        while self._events and self._events[0][0] < end and not (probe and probe.runs):
            at = self._events[0][0]
            # All of one moment first: what ends then has made room before anybody is placed.
            while self._events and self._events[0][0] == at:
                _, kind, number, attempt = heappop(self._events)
                self._happen(at, kind, number, attempt)
            self._settle(at)
            self._let_return()
        # At the end itself work still ends and leaves, but none starts.
        while self._events and self._events[0][0] == end:
            _, kind, number, attempt = heappop(self._events)
            # Ends and cancellations alone, which come first in `_EventKind`.
            if kind <= _EventKind.CANCEL:
                self._happen(end, kind, number, attempt)

    def played(self) -> tuple[PlayedWork, ...]:
        return tuple(state.played for state in self._states)

    # ------------------------------------------------------------ events

    def _prepare(self, start: float) -> None:
        self._prepare_nodes(start)
        self._prepare_works(start)

    def _prepare_nodes(self, start: float) -> None:
        for place, node in enumerate(self._cluster.nodes):
            for span in node.closed:
                # Spans that end before the replay begins have no events in it.
                if span.end > start:
                    self._push(max(span.start, start), _EventKind.NODE_CLOSES, place)
                    self._push(span.end, _EventKind.NODE_OPENS, place)
        for number, (_, missing) in enumerate(self._missing):
            if missing.end > start:
                self._push(max(missing.start, start), _EventKind.UNITS_GO, number)
                self._push(missing.end, _EventKind.UNITS_COME, number)

    def _prepare_works(self, start: float) -> None:
        running = sorted(
            (state.played.work.asked_at, number)
            for number, state in enumerate(self._states)
            if state.played.work.running
        )
        # The oldest first: where there is too little room now, the newest lose theirs.
        for _, number in running:
            if not self._keep_running(number, start):
                self._push(start, _EventKind.ARRIVE, number)
        for number, state in enumerate(self._states):
            work = state.played.work
            if not work.running:
                asked_at = max(start, work.asked_at)
                # Nothing explains the delay, so it comes before quota and room are asked for.
                self._push(asked_at + work.delay_seconds, _EventKind.ARRIVE, number)
            for leaves_at in (work.leaves_at, work.ends_at):
                if leaves_at is not None:
                    self._push(max(start, leaves_at), _EventKind.CANCEL, number)

    def _push(self, at: float, kind: _EventKind, number: int, attempt: int = 0) -> None:
        heappush(self._events, (at, kind, number, attempt))

    def _keep_running(self, number: int, start: float) -> bool:
        """Let a work go on where it ran, else elsewhere; say whether it has room."""
        work = self._states[number].played.work
        space = self._spaces.get(work.tier)
        if space is None:
            return False
        places = [self._places[name] for name in work.nodes if name in self._places]
        # A gang is kept whole: where one of its nodes is gone, all of it moves.
        parts = space.place_on(work.units, places) if len(places) == work.pods else None
        if parts is None:
            parts = space.place(work.units, work.pods, work.requires)
        if parts is None:
            return False
        self._creation.keep(number, work, start)
        self._admission.keep(number, work, start)
        self._start_work(number, start, parts)
        return True

    def _happen(self, at: float, kind: int, number: int, attempt: int) -> None:
        match kind:
            case _EventKind.END:
                self._end(number, at, attempt)
            case _EventKind.ARRIVE:
                self._arrive(number)
            case _EventKind.CANCEL:
                self._cancel(number, at)
            case _EventKind.CHECKED:
                self._end_checks(number, attempt)
            case _EventKind.NODE_CLOSES | _EventKind.NODE_OPENS:
                for tier, space in self._spaces.items():
                    if space.has(number):
                        self._turn_node(kind, tier, number)
            case _EventKind.UNITS_GO | _EventKind.UNITS_COME:  # pragma: no branch
                self._turn_units(kind, *self._missing[number])

    def _end(self, number: int, at: float, attempt: int) -> None:
        state = self._states[number]
        # Ends of runs that were preempted stay among the events.
        if state.phase == _Phase.RUNNING and state.attempt == attempt:
            self._stop_work(number, at)
            state.phase, state.played.ended_at = _Phase.OVER, at

    def _turn_units(self, kind: int, node: int, missing: MissingUnits) -> None:
        space = self._spaces[missing.tier]
        if kind == _EventKind.UNITS_GO:
            space.lose(node, missing.units)
        else:
            space.regain(node, missing.units)
            self._unblock(missing.tier, [node])

    def _turn_node(self, kind: int, tier: str, node: int) -> None:
        if kind == _EventKind.NODE_CLOSES:
            self._spaces[tier].close(node)
        else:
            self._spaces[tier].reopen(node)
            self._unblock(tier, [node])

    def _cancel(self, number: int, at: float) -> None:
        state = self._states[number]
        if state.phase in (_Phase.OVER, _Phase.RUNNING):
            return
        # It would have been canceled by now, but it has started. A service ends all the same.
        if state.played.runs and at != state.played.work.ends_at:
            return
        if state.phase == _Phase.UNCREATED:
            self._creation.remove(number, state.played.work)
        elif state.phase == _Phase.QUEUED:
            self._admission.remove(number, state.played.work)
        elif state.phase == _Phase.PENDING:
            self._lines[state.played.work.tier].remove(number)
            # It may have closed the line; of room there is no more than before.
            self._unblock(state.played.work.tier, [])
        self._admission.release(number)
        self._creation.release(number)
        state.phase, state.played.ended_at = _Phase.OVER, at

    def _arrive(self, number: int) -> None:
        state = self._states[number]
        if state.phase == _Phase.OVER:
            return
        if self._creation.add(number, state.played.work, self._line_key(number)):
            state.phase = _Phase.UNCREATED
        else:
            self._join_queue(number)

    def _join_queue(self, number: int) -> None:
        state = self._states[number]
        if self._admission.add(number, state.played.work, self._line_key(number)):
            state.phase = _Phase.QUEUED
        else:
            self._join_line(number)

    def _await_checks(self, number: int, at: float) -> None:
        """Let a work keep its quota while it is checked; preempted work is not checked again."""
        state = self._states[number]
        if state.checks_left <= 0:
            self._join_line(number)
            return
        state.phase = _Phase.CHECKED
        state.attempt += 1
        self._push(at + state.checks_left, _EventKind.CHECKED, number, state.attempt)

    def _end_checks(self, number: int, attempt: int) -> None:
        state = self._states[number]
        if state.phase == _Phase.CHECKED and state.attempt == attempt:
            # Checks passed once are not repeated after a preemption.
            state.checks_left = 0.0
            self._join_line(number)

    def _line_key(self, number: int) -> LineKey:
        work = self._states[number].played.work
        return (-work.priority, work.asked_at, number)

    def _join_line(self, number: int) -> None:
        state = self._states[number]
        work = state.played.work
        state.phase = _Phase.PENDING
        team = work.team if self._policy.order == PendingOrder.FAIR else ""
        # Who may preempt is not held up by who may not.
        level = work.priority if self._policy.preemption else 0
        needs = RoomNeeds(work.units, work.pods, state.requires, level)
        self._lines[work.tier].add(team, needs, self._line_key(number))
        self._dirty.add(work.tier)

    def _unblock(self, tier: str, nodes: Sequence[int]) -> None:
        """Let work be tried again that may have room now: more than before is on `nodes` alone."""
        line, space = self._lines[tier], self._spaces.get(tier)
        if space is None or not line.is_held_up:
            return

        def most(level: int) -> float:
            """Return the most that a node has for a pod that may preempt all below its level."""
            # A pod would have to be on one of these nodes: nothing else has changed.
            return max([self._room_by_force(tier, node, level) for node in nodes], default=0.0)

        def fits(needs: RoomNeeds) -> bool:
            """Say whether work may have room, of those that need at most as much for a pod."""
            units, pods, requires, level = needs
            if pods > 1:
                # A gang preempts no work: it has more room only where a pod of it fits now.
                has_more = any(space.free(node) >= units - SLACK for node in nodes)
                return has_more and space.has_room(units, pods, requires)
            return not requires or any(
                space.allows(node, requires)
                and self._room_by_force(tier, node, level) >= units - SLACK
                for node in nodes
            )

        # Trying nodes that work ran on changes the last digits of what is free: it stays as it is.
        alone = None if self._policy.recorded_nodes else fits
        if line.unblock(most if self._is_by_needs else None, alone):
            self._dirty.add(tier)

    def _room_by_force(self, tier: str, node: int, level: int) -> float:
        """Return what of a node is free, or would be without work of a priority below a level."""
        space = self._spaces[tier]
        if not self._policy.preemption:
            return space.free(node)
        held = self._held_by[tier, node]
        # Devices that failed under running pods make no room when these go.
        return space.room(node) + below(held, level)

    def _priority(self, number: int) -> int:
        return self._states[number].played.work.priority

    # ------------------------------------------------------------ who starts

    def _settle(self, at: float) -> None:
        """Admit and place until nothing more can start."""
        while self._dirty or self._admission.is_dirty or self._creation.is_dirty:
            # A quota lets in what fits, as the API server does: it knows no order but tries.
            for created in self._creation.admit(at) if self._creation.is_dirty else ():
                self._join_queue(created.number)
            for admitted in self._admission.admit(at) if self._admission.is_dirty else ():
                for victim in admitted.victims:
                    self._preempt(victim, at)
                state = self._states[admitted.number]
                state.requires, state.played.flavor = admitted.requires, admitted.flavor
                self._await_checks(admitted.number, at)
            for tier in sorted(self._dirty):
                self._place_tier(tier, at)

    def _place_tier(self, tier: str, at: float) -> None:
        self._dirty.discard(tier)
        space, line = self._spaces.get(tier), self._lines[tier]
        if space is None:
            return
        is_fair = self._policy.order == PendingOrder.FAIR
        turn = partial(self._turns[tier].turn, at=at) if is_fair else None
        line.order(turn)
        failed: list[RoomNeeds] = []
        while (first := line.first()) is not None:
            number, needs = first
            if failed and any(map(needs.includes, failed)):
                line.block(needs)
                continue
            parts = self._find_room(number, space, at)
            if self._policy.preemption:
                # Teams of whom work was preempted have their turn sooner.
                line.order(turn)
            if parts is not None:
                line.remove(number)
                self._start_work(number, at, parts)
                if self._policy.preemption:
                    # Who was preempted for it may have given back more than it took.
                    failed = []
            elif self._policy.strict and space.fits_empty(needs.units, needs.pods, needs.requires):
                line.close(number, needs)
            else:
                line.block(needs)
                if self._is_by_needs:
                    failed.append(needs)

    def _find_room(self, number: int, space: TierSpace, at: float) -> list[DevicePart] | None:
        state = self._states[number]
        work = state.played.work
        parts = self._recorded_room(work, space)
        if parts is None:
            parts = space.place(work.units, work.pods, state.requires)
        # Room for a gang by preemption would have to be found on several nodes at once.
        if parts is not None or not self._policy.preemption or work.pods > 1:
            return parts
        nodes = [
            node
            for node in space.open_nodes(state.requires)
            if self._room_by_force(work.tier, node, work.priority) >= work.units - 2 * SLACK
        ]
        holders = partial(self._holders_below, work.tier, work.priority)
        victims = node_victims(work.units, nodes, space.room, holders)
        for victim in victims:
            self._preempt(victim, at)
        return space.place(work.units, 1, state.requires) if victims else None

    def _recorded_room(self, work: RecordedWork, space: TierSpace) -> list[DevicePart] | None:
        """Take the nodes that a work ran on, where that is asked for and all have room."""
        if not self._policy.recorded_nodes:
            return None
        places = [self._places[name] for name in work.nodes if name in self._places]
        if len(places) != work.pods or not all(map(space.is_open, places)):
            return None
        return space.place_on(work.units, places)

    def _holders_below(self, tier: str, level: int, node: int) -> list[NodeHolder]:
        """Return who holds units of a node and has a priority below a level."""
        return [
            NodeHolder(number, priority, self._states[number].played.runs[-1].start, units)
            for number, units in self._held_on.get((tier, node), {}).items()
            if (priority := self._priority(number)) < level
        ]

    # ------------------------------------------------------------ runs

    def _start_work(self, number: int, at: float, parts: Sequence[DevicePart]) -> None:
        state = self._states[number]
        work = state.played.work
        state.phase, state.parts = _Phase.RUNNING, tuple(parts)
        # The end of an earlier run is still among the events.
        state.attempt += 1
        state.gpus = sum([self._weights[node][device] * units for node, device, units in parts])
        state.played.runs.append(HeldSpan(at, None, state.parts))
        self._turns[work.tier].hold(work.team, state.gpus, at)
        if self._policy.preemption:
            for part in parts:
                self._held_on[work.tier, part.node][number] += part.units
                self._held_by[work.tier, part.node][work.priority] += part.units
        if work.ends_at is not None:
            # A time of the clock, whenever it started; durations below count from the start.
            ends_at = work.ends_at - idle_cut(work, self._policy)
            self._push(max(at, ends_at), _EventKind.END, number, state.attempt)
        elif state.left is not None:
            self._push(at + state.left, _EventKind.END, number, state.attempt)

    def _stop_work(self, number: int, at: float) -> None:
        state = self._states[number]
        work = state.played.work
        runs = state.played.runs
        runs[-1] = HeldSpan(runs[-1].start, at, state.parts)
        nodes = self._spaces[work.tier].release(state.parts)
        self._turns[work.tier].hold(work.team, -state.gpus, at)
        for node in set(nodes) if self._policy.preemption else ():
            units = self._held_on[work.tier, node].pop(number)
            self._held_by[work.tier, node][work.priority] -= units
        self._admission.release(number)
        self._creation.release(number)
        state.parts = ()
        self._unblock(work.tier, nodes)

    def _preempt(self, number: int, at: float) -> None:
        """Take a work's quota and GPUs; it is pending again at once."""
        state = self._states[number]
        if state.phase == _Phase.RUNNING:
            self._stop_work(number, at)
            if self._policy.resumes and state.left is not None:
                state.left -= at - state.played.runs[-1].start
        else:
            if state.phase == _Phase.PENDING:
                self._lines[state.played.work.tier].remove(number)
            self._admission.release(number)
            self._creation.release(number)
        # The flavor of the admission that it lost may not be the one of the next.
        state.requires = state.played.work.requires
        self._losses[number] += 1
        if self._losses[number] < _MOST_LOSSES:
            self._arrive(number)
        else:
            # Queues that reclaim and preempt their own work may preempt one another in a circle, as
            # in Kueue. There each round takes time; here all would be at one instant, without end.
            state.phase, self.in_circles = _Phase.AHEAD, True
            self._returning.append(number)

    def _let_return(self) -> None:
        """Let who lost too often join its queue with the next event."""
        for number in self._returning if self._events else ():
            self._push(self._events[0][0], _EventKind.ARRIVE, number)
        self._returning.clear()
        self._losses.clear()
