"""`campus` with planted failures, of which it is known what each costs.

Some work of the pools crashes and is started again, runs out of memory, is evicted or preempted,
or loses its node; some of it saves its state now and then. One node and one GPU are bad: what runs
there fails more often. Everything else is as in `campus`.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import log
from typing import NamedTuple

from msgspec import Struct

from apps.accounts.domain.structs import replace
from simulator import identity
from simulator.fleet import DAY, FOREVER, LINGER_SECONDS, Crash, Node, NodeState, Pod
from simulator.scenarios.campus.pods import part_of
from simulator.scenarios.campus.pools import Pool
from simulator.scenarios.campus.scenario import Campus
from simulator.scenarios.trace import Trace

NODE_LOST = "DeletionByTaintManager"
ENDS = {"Error": 0.12, "OOMKilled": 0.2, "Evicted": 0.26, "PreemptionByScheduler": 0.32}
"""Reasons, and the chance of a pod up to and with each."""
_CRASHES = 0.55
_MOST_CRASHES = 3
_BACK_OFF_SECONDS = 40
"""Of the first crash; each one after it pauses twice as long, as a kubelet has it."""
_APART_SECONDS = 1200
"""Runs are no shorter: a status tells the last two, so that a list now and then shows each."""
_SAVES = 0.5
_NOT_READY_BEFORE, _NOT_READY_AFTER = 300, 900
"""For how long a node is not ready before its pods are deleted (their toleration), and after."""


class BadHardware(NamedTuple):
    """Nodes, and GPUs by node and index, on which work fails so many times in an hour.

    Such a GPU shows the XID `code` once.
    """

    nodes: Mapping[str, float] = {}
    gpus: Mapping[tuple[str, int], float] = {}
    code: int = 94


BAD_HARDWARE = BadHardware({"a100-07": 0.4}, {("a100-08", 6): 3.0})
"""What is bad in the scenario: bad enough to be found in eight days."""


class NodeLoss(NamedTuple):
    """A node that loses its pods at `at`."""

    node: str
    at: int


class Failure(Struct, frozen=True):
    """What a failure of a pod cost: the spans of its life that were lost, and its weight.

    `workload` is Kind/name of its top controller.
    """

    pod: str
    namespace: str
    workload: str
    tier: str
    node: str
    reason: str
    spans: tuple[tuple[int, int], ...]
    gpu_equivalents: float

    def gpu_hours(self, start: int, end: int) -> float:
        """Return what of start..end was lost, GPU-hours."""
        seconds = sum(max(0, min(b, end) - max(a, start)) for a, b in self.spans)
        return seconds / 3600 * self.gpu_equivalents


class FailingCampus(Campus):
    """Failures happen in start..end of `planted`; `losses` are of nodes.

    Work on `bad` hardware fails beside what fails for its own sake.
    """

    title = "campus with a bad node, a bad GPU and other failures at a cost that is known"

    def __init__(
        self,
        *,
        seed: int,
        origin: int,
        trace: Trace,
        planted: tuple[int, int],
        losses: Sequence[NodeLoss] = (),
        bad: BadHardware | None = None,
    ) -> None:
        self._bad = bad or BadHardware()
        self._planted = planted
        self._losses: Mapping[str, int] = dict(losses)
        self.failures: list[Failure] = []
        super().__init__(seed=seed, origin=origin, trace=trace)

    def own_nodes(self, begins: int, origin: int) -> list[Node]:
        return [self._erring(self._losing(node)) for node in super().own_nodes(begins, origin)]

    def pool_pods(self, pool: Pool, number: int, start: int, end: int) -> Iterator[Pod]:
        for pod in super().pool_pods(pool, number, start, end):
            # Pods of claims are spared: a reader of samples does not know their devices.
            failing = pod if pool.device_class else self._failing(pod)
            if failing is not pod:
                node = next(node for node in pool.nodes if node.name == pod.node)
                self.failures += _failures(failing, pool.tier.name, pod.units * part_of(pool, node))
            yield failing

    def _losing(self, node: Node) -> Node:
        at = self._losses.get(node.name)
        if at is None:
            return node
        away = NodeState(at - _NOT_READY_BEFORE, ready=False)
        return replace(node, states=(away, NodeState(at + _NOT_READY_AFTER), *node.states))

    def _erring(self, node: Node) -> Node:
        """Return a node whose bad GPUs show their error after a day."""
        bad = {index for name, index in self._bad.gpus if name == node.name}
        xids = ((self._planted[0] + DAY, self._bad.code),)
        return replace(
            node,
            devices=tuple(
                replace(one, xids=xids) if one.index in bad else one for one in node.devices
            ),
        )

    def _broken_at(self, pod: Pod) -> int:
        """Return when bad hardware ends a pod; FOREVER where it does not."""
        rate = self._bad.nodes.get(pod.node, 0.0)
        rate += sum(self._bad.gpus.get((pod.node, index), 0.0) for index in set(pod.devices))
        if not rate:
            return FOREVER
        first = max(pod.started, self._planted[0])
        hours = -log(1 - identity.fraction(pod.uid, "hardware")) / rate
        return first + 1 + int(hours * 3600)

    def _failing(self, pod: Pod) -> Pod:
        """Return a pod with what goes wrong with it; the same one where nothing does."""
        if pod.started >= FOREVER:
            return pod
        at = self._broken_at(pod)
        if at < pod.finished and self._counts(at, pod):
            return _ended(_saving(pod, at), at, "Error")
        lost = self._losses.get(pod.node, FOREVER)
        if pod.started < lost < pod.finished:
            return _ended(_saving(pod, lost), lost, NODE_LOST)
        chance = identity.fraction(pod.uid, "failure")
        reason = next((name for name, most in ENDS.items() if chance < most), "")
        if reason:
            at = pod.started + int((pod.finished - pod.started) * identity.fraction(pod.uid, "at"))
            return _ended(_saving(pod, at), at, reason) if self._counts(at, pod) else pod
        return self._crashing(pod) if chance < _CRASHES else pod

    def _crashing(self, pod: Pod) -> Pod:
        crashes: list[Crash] = []
        began, back_off = pod.started, _BACK_OFF_SECONDS
        wanted = 1 + identity.below(_MOST_CRASHES, pod.uid, "crashes")
        for number in range(wanted):
            at = began + _APART_SECONDS + identity.below(3 * _APART_SECONDS, pod.uid, number)
            if at + back_off + _APART_SECONDS > pod.finished:
                break
            if self._counts(at, pod):
                crashes.append(Crash(at, ("Error", "OOMKilled")[number % 2], back_off))
                began, back_off = crashes[-1].restarted, 2 * back_off
            else:
                began = at
        if not crashes:
            return pod
        return replace(_saving(pod, crashes[-1].at), crashes=tuple(crashes))

    def _counts(self, at: int, pod: Pod) -> bool:
        first, last = self._planted
        return first <= at < last and at > pod.started


def _saving(pod: Pod, until: int) -> Pod:
    """Return a pod with its checkpoints, if it is of those that have some."""
    if identity.fraction(pod.uid, "saves") >= _SAVES:
        return pod
    every = 600 + identity.below(1800, pod.uid, "every")
    return replace(pod, checkpoints=tuple(range(pod.started + every, until, every)))


def _ended(pod: Pod, at: int, reason: str) -> Pod:
    gone = at + LINGER_SECONDS
    return replace(pod, finished=at, deleted=gone, end_reason=reason)


def _failures(pod: Pod, tier: str, weight: float) -> Iterator[Failure]:
    top = pod.owner
    while top.parent is not None:
        top = top.parent
    ends = [(crash.at, crash.reason, crash.restarted) for crash in pod.crashes]
    if pod.end_reason:
        ends.append((pod.finished, pod.end_reason, pod.finished))
    for (start, end), (at, reason, restarted) in zip(pod.runs, ends, strict=False):
        saved = pod.checkpoint(end) or start
        spans = ((max(start, saved), end), (at, restarted))
        yield Failure(
            *(pod.uid, pod.namespace, f"{top.kind}/{top.name}", tier, pod.node),
            *(reason, spans, weight),
        )
