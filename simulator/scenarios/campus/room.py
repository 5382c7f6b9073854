"""When a pool of `campus` has room for a pod, and what the scheduler says when it has none."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from simulator.fleet import GPU, Node
from simulator.kubernetes.fields.specs import gpu_amounts
from simulator.scenarios.campus.pools import Pool
from simulator.scenarios.packing import Draft
from simulator.scheduler.filters import NO_DEVICES, NOT_SELECTED, TAINTED, UNSCHEDULABLE


class FreeSpace:
    """How much is free on the roomiest node of a pool, over time.

    What nodes offer counts, not what the pool gives out: a GPU that somebody uses behind the
    scheduler's back is free to it.
    """

    def __init__(self, pool: Pool, packed: Iterable[Sequence[Draft]], start: int) -> None:
        self._times: list[int] = []
        self._most: list[int] = []
        used, offers = [0] * len(pool.nodes), _Offers(pool)
        for at, moves in sorted(_moves(pool, packed, start).items()):
            for node, units in moves:
                used[node] += units
            self._times.append(at)
            self._most.append(max(offers.of(n, at) - taken for n, taken in enumerate(used)))

    def ends(self, units: int, start: int, end: int) -> int:
        """Return from when on no node has room for so many units until `end`.

        That is `end` where one has room just before, and `start` where none ever has.
        """
        place = bisect_left(self._times, end) - 1
        since = end
        while place >= 0 and self._most[place] < units:
            since = self._times[place]
            if since <= start:
                break
            place -= 1
        return max(start, since)


def _moves(
    pool: Pool, packed: Iterable[Sequence[Draft]], start: int
) -> Mapping[int, list[tuple[int, int]]]:
    """Return what changes: (node, units taken) by time; nodes may change with nothing taken."""
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    found[start] = []
    for node in pool.nodes:
        for state in node.states:
            found[max(start, state.since)] += []
    for drafts in packed:
        for draft in drafts:
            if draft.bound < draft.ended:
                found[draft.bound].append((draft.node, draft.units))
                found[draft.ended].append((draft.node, -draft.units))
    return found


class _Offers:
    """What the nodes of a pool offer at a time, each found once for each of its states."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._found: dict[tuple[int, int], int] = {}

    def of(self, place: int, at: int) -> int:
        node = self._pool.nodes[place]
        since = node.state(at).since if node.states else 0
        if (place, since) not in self._found:
            self._found[place, since] = self._offered(node, place, at)
        return self._found[place, since]

    def _offered(self, node: Node, place: int, at: int) -> int:
        state = node.state(at)
        if state.cordoned:
            return 0
        if self._pool.device_class:
            return len(self._pool.places[place])
        return gpu_amounts(node, state.unhealthy).get(self._pool.resource, 0)


class Verdicts:
    """What the scheduler says of a pod that no node has room for, by when it looked."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._changing = [node for node in nodes if node.states]
        self._turns = sorted({s.since for n in nodes if not n.repeats for s in n.states})
        self._said: dict[tuple[str, int, tuple[str, ...]], str] = {}

    def attempts(
        self, pool: Pool, selector: Mapping[str, str], start: int, end: int
    ) -> Iterator[tuple[int, str]]:
        """Yield (when, what) of each look in start..end: at first, and when nodes changed."""
        for at in (start, *(turn for turn in self._turns if start < turn < end)):
            yield at, self._text(pool, selector, at)

    def _text(self, pool: Pool, selector: Mapping[str, str], at: int) -> str:
        closed = tuple(node.name for node in self._changing if node.state(at).cordoned)
        there = sum(node.created <= at for node in self._nodes)
        key = (pool.tag, there, closed)
        if key not in self._said:
            nodes = [node for node in self._nodes if node.created <= at]
            self._said[key] = _scheduler_message(
                Counter(_refusal(n, pool, selector, closed) for n in nodes)
            )
        return self._said[key]


def _refusal(node: Node, pool: Pool, selector: Mapping[str, str], closed: Sequence[str]) -> str:
    """Return why a node does not take a pod, in the order in which the scheduler looks."""
    if node.name in closed:
        return UNSCHEDULABLE
    if any(key != GPU for key, _, _ in node.taints):
        return TAINTED
    if any(node.labels.get(key) != value for key, value in selector.items()):
        return NOT_SELECTED
    return NO_DEVICES if pool.device_class else f"Insufficient {pool.resource}"


def _scheduler_message(reasons: Counter[str]) -> str:
    nodes = reasons.total()
    helped = sum(count for text, count in reasons.items() if text.startswith("Insufficient "))
    tried = [
        f"{count} {text}"
        for count, text in (
            (nodes - helped, "Preemption is not helpful for scheduling"),
            (helped, "No preemption victims found for incoming pod"),
        )
        if count
    ]
    head = f"0/{nodes} nodes are available: "
    said = ", ".join(sorted(f"{count} {text}" for text, count in reasons.items()))
    why = "still not schedulable" if NO_DEVICES in reasons else "no new claims to deallocate"
    return f"{head}{said}. {why}, preemption: {head}{', '.join(sorted(tried))}."
