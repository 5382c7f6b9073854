"""Small clusters and work for tests of the cluster replay."""

from collections.abc import Sequence
from typing import Any

from apps.planning.domain.cluster_replay.engine import replay_cluster
from apps.planning.domain.cluster_replay.inputs import (
    ClusterReplay,
    FlavorQuota,
    RecordedWork,
    ReplayCluster,
    ReplayDevice,
    ReplayNode,
    ReplayPolicy,
    ReplayQueue,
)

TIER, FLAVOR = "a100", "a100"
KEY = (FLAVOR, TIER)
END = 1000.0


def node(name: str, gpus: int = 8, tier: str = TIER, **more: Any) -> ReplayNode:
    return ReplayNode(name, tuple(ReplayDevice(tier, gpu=gpu) for gpu in range(gpus)), **more)


def pool(*gpus: int, **more: Any) -> ReplayCluster:
    return ReplayCluster(tuple(node(f"n{i}", count) for i, count in enumerate(gpus)), **more)


def queue(name: str, nominal: float, **more: Any) -> ReplayQueue:
    """Return a ClusterQueue of the cohort `all` with one flavor; limits go to its quota."""
    limits = {key: more.pop(key) for key in ("borrowing_limit", "lending_limit") if key in more}
    more.setdefault("cohort", "all")
    return ReplayQueue(name, {KEY: FlavorQuota(nominal, **limits)}, **more)


def work(
    asked_at: float = 0.0, units: float = 1.0, runs: float | None = 100.0, **more: Any
) -> RecordedWork:
    more.setdefault("team", "vision")
    more.setdefault("tier", TIER)
    return RecordedWork(asked_at=asked_at, units=units, runs_seconds=runs, **more)


def run(
    works: Sequence[RecordedWork],
    cluster: ReplayCluster,
    policy: ReplayPolicy | None = None,
    *,
    end: float = END,
) -> ClusterReplay:
    return replay_cluster(works, cluster, policy or ReplayPolicy(), start=0.0, end=end)


def starts(found: ClusterReplay) -> list[float | None]:
    return [one.started_at for one in found.played]


def preemptions(found: ClusterReplay) -> list[int]:
    """Return how often each work had to go: its runs that ended before the work did."""
    return [sum(span.end not in {None, one.ended_at} for span in one.runs) for one in found.played]


def run_spans(found: ClusterReplay) -> list[list[tuple[float, float | None]]]:
    return [[(span.start, span.end) for span in one.runs] for one in found.played]
