"""Replays the last days of a simulated cluster with nothing changed, beside what happened.

`python -m tests.planning.scenario_backtest SCENARIO [DAYS]` prints both for each tier. Work that
asks by claims is left out, and so is work that was canceled before any node told its tier.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median_low
from typing import Any

from apps.clusters.domain.tiers import (
    GpuSharing,
    TierRule,
    tier_before_binding,
    tier_of,
    unit_weight,
)
from apps.planning.domain.cluster_replay.backtest import TierTimes, WorkTimes, tier_times
from apps.planning.domain.cluster_replay.engine import replay_cluster
from apps.planning.domain.cluster_replay.inputs import (
    ClosedSpan,
    FlavorQuota,
    Packing,
    RecordedWork,
    ReplayCluster,
    ReplayDevice,
    ReplayNode,
    ReplayPolicy,
    ReplayQueue,
)
from simulator.fleet import DAY, FOREVER, Node, Pod, Sharing
from simulator.kubernetes.fields.specs import gpu_amounts
from simulator.scenarios.registry import load
from tests.simulator.truths import NOW

_TODAY = int(NOW) // DAY * DAY
_Times = Mapping[str, TierTimes]


def backtest(name: str, *, days: int) -> tuple[_Times, _Times]:
    """Return the sums of each tier over the last days, as they were and as they are replayed."""
    scenario: Any = load(name, now=int(NOW))
    rules = [
        TierRule(t.name, GpuSharing(t.sharing), t.resources, t.device_classes, t.node_selector)
        for t in scenario.tiers
    ]
    nodes = tuple(_node(node, rules) for node in scenario.nodes)
    start, end = float(_TODAY - days * DAY), float(_TODAY)
    pods = {p.uid: p for e in scenario.epochs(int(start), int(end))
            for p in e.pods_between(int(start), int(end))}  # fmt: skip
    labels = {node.name: node.labels for node in scenario.nodes}
    weights = {device.tier: device.weight for node in nodes for device in node.devices}
    recorded = [
        (pod, tier)
        for pod in pods.values()
        if (tier := _tier(pod, labels, rules)) in weights and _ended(pod) > start
    ]
    works = _works(recorded, start)
    cluster = ReplayCluster(nodes, tuple(_queues(scenario, works)), (), _flavors(scenario))
    policy = ReplayPolicy(packing=Packing.PACK)
    replayed = replay_cluster(works, cluster, policy, start=start, end=end)
    real = [
        WorkTimes(
            tier, weights[tier] * pod.units, pod.created, _known(pod.bound), _known(_ended(pod)),
            pod.bound < start,
        )
        for pod, tier in recorded
    ]  # fmt: skip
    played = [
        WorkTimes(
            one.work.tier, weights[one.work.tier] * one.work.units, one.work.asked_at,
            one.started_at, one.ended_at, one.work.running,
        )
        for one in replayed.played
    ]  # fmt: skip
    return tier_times(real, start=start, end=end), tier_times(played, start=start, end=end)


def _known(at: int) -> float | None:
    return None if at >= FOREVER else float(at)


def _ended(pod: Pod) -> int:
    return min(pod.finished, pod.deleted)


def _tier(pod: Pod, labels: Mapping[str, Mapping[str, str]], rules: Sequence[TierRule]) -> str:
    if pod.claim is not None or pod.units <= 0:
        return ""
    if pod.node:
        return tier_of(pod.resource, labels[pod.node], rules)
    return tier_before_binding(pod.resource, pod.node_selector, rules)


def _node(node: Node, rules: Sequence[TierRule]) -> ReplayNode:
    shared = node.sharing in {Sharing.TIME_SLICED, Sharing.MPS}
    devices = []
    for resource, amount in gpu_amounts(node).items():
        units = node.replicas if shared else 1
        tier, weight = tier_of(resource, node.labels, rules), unit_weight(resource, node.labels)
        devices += [ReplayDevice(tier, units, weight)] * (amount // units)
    states = () if node.repeats else node.states
    ends = [*(state.since for state in states[1:]), FOREVER]
    closed = tuple(
        ClosedSpan(state.since, until)
        for state, until in zip(states, ends if states else (), strict=True)
        if state.cordoned or not state.ready
    )
    return ReplayNode(node.name, tuple(devices), node.labels, closed)


def _works(recorded: Sequence[tuple[Pod, str]], start: float) -> list[RecordedWork]:
    runs: dict[str, list[int]] = defaultdict(list)
    for pod, tier in recorded:
        if pod.bound < FOREVER and _ended(pod) < FOREVER:
            runs[tier].append(_ended(pod) - pod.bound)
    return [_work(pod, tier, runs[tier], start) for pod, tier in recorded]


def _work(pod: Pod, tier: str, runs: Sequence[int], start: float) -> RecordedWork:
    ended, running = _ended(pod), pod.bound < start
    seconds: float | None = None
    if pod.bound >= FOREVER:
        # How long it would have run is not known: as long as others of its tier.
        seconds = median_low(runs) if runs else None
    elif ended < FOREVER:
        seconds = ended - max(pod.bound, start)
    return RecordedWork(
        team=pod.namespace,
        tier=tier,
        units=pod.units,
        asked_at=pod.created,
        runs_seconds=seconds,
        leaves_at=_known(ended) if pod.bound >= FOREVER else None,
        queue=pod.admission.queue if pod.admission else "",
        requires=tuple(sorted(pod.node_selector.items())),
        running=running,
        nodes=(pod.node,) if running else (),
    )


def _queues(scenario: Any, works: Sequence[RecordedWork]) -> Iterator[ReplayQueue]:
    tiers: dict[str, set[str]] = defaultdict(set)
    for work in works:
        tiers[work.queue].add(work.tier)
    for queue in getattr(scenario, "queues", ()):
        quota = FlavorQuota(queue.nominal, queue.borrowing, queue.lending)
        quotas = {(queue.flavor, tier): quota for tier in sorted(tiers[queue.name])}
        yield ReplayQueue(queue.name, quotas, queue.flavor, strict=queue.strict)


def _flavors(scenario: Any) -> dict[str, tuple[tuple[str, str], ...]]:
    flavors = getattr(scenario, "flavors", {})
    return {name: tuple(sorted(labels.items())) for name, labels in flavors.items()}


def main(name: str, days: int) -> int:
    real, played = backtest(name, days=days)
    for tier in sorted(real):
        for label, own in (("happened", real[tier]), ("replayed", played[tier])):
            p50, p95 = own.percentiles()
            sys.stdout.write(
                f"{tier or 'all tiers'} {label}: p50 {p50} s, p95 {p95} s, "
                f"unmet {own.unmet_gpu_hours:.1f}, allocated {own.allocated_gpu_hours:.1f}\n"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 14))
