"""`python -m tests.bench.replaying [LOAD]`: CPU seconds of a replayed month of 1,000 GPUs.

LOAD is the GPU-hours asked for ÷ those that there are (0.9). The month is generated: 50,000 works
of 20 teams on 125 nodes, of 1 to 64 GPUs, with three priorities; a twentieth selects a zone.
"""
# ruff: noqa: S311 - a generated month

import sys
from collections.abc import Mapping
from random import Random
from time import process_time
from typing import Any

from apps.planning.domain.cluster_replay.engine import replay_cluster
from apps.planning.domain.cluster_replay.inputs import (
    FlavorQuota,
    PendingOrder,
    Reclaim,
    RecordedWork,
    ReplayCluster,
    ReplayDevice,
    ReplayNode,
    ReplayPolicy,
    ReplayQueue,
)
from tests.planning.clusters import preemptions

LOAD = 0.9
_DAY, _DAYS = 86400.0, 31
_NODES, _GPUS, _TEAMS, _WORKS = 125, 8, 20, 50_000
_TIER = "h100"
# (GPUs of a pod, pods, how many of 100).
_SIZES = ((1, 1, 50), (2, 1, 16), (4, 1, 12), (8, 1, 16), (8, 2, 3), (8, 4, 2), (8, 8, 1))
_SHARE = _NODES * _GPUS / _TEAMS
_ENTITLED = {(f"t{team}", _TIER): _SHARE for team in range(_TEAMS)}

POLICIES: Mapping[str, tuple[ReplayPolicy, dict[str, Any] | None]] = {
    "first in, first out": (ReplayPolicy(), None),
    "strict order": (ReplayPolicy(strict=True), None),
    "fair order": (ReplayPolicy(order=PendingOrder.FAIR, entitlements=_ENTITLED), None),
    "queues without borrowing": (ReplayPolicy(borrowing=False), {}),
    "queues that borrow": (ReplayPolicy(), {}),
    "queues that borrow, fair sharing": (ReplayPolicy(fair_sharing=True), {}),
    "queues that lend half": (ReplayPolicy(), {"lends": 0.5}),
    "queues that reclaim": (ReplayPolicy(), {"reclaim": Reclaim.ANY}),
    "queues that reclaim from lower priority": (
        ReplayPolicy(), {"reclaim": Reclaim.LOWER_PRIORITY},
    ),
    "priority preemption in queues": (ReplayPolicy(), {"preempts_own": True}),
    "priority preemption in queues, and reclaim": (
        ReplayPolicy(), {"preempts_own": True, "reclaim": Reclaim.ANY},
    ),
    "priority preemption at nodes": (ReplayPolicy(preemption=True), None),
}  # fmt: skip


def month(load: float, works: int = _WORKS) -> list[RecordedWork]:
    """Return the works of the month, which ask for `load` of all its GPU-hours."""
    draw = Random(1)
    sizes = [(units, pods) for units, pods, count in _SIZES for _ in range(count)]
    drawn = [
        (draw.random() * _DAYS * _DAY, draw.choice(sizes), draw.lognormvariate(0, 1.6))
        for _ in range(works)
    ]
    hours = sum(units * pods * runs for _, (units, pods), runs in drawn)
    scale = load * _NODES * _GPUS * _DAYS * _DAY / hours
    found = []
    for at, (units, pods), runs in sorted(drawn):
        team, zone = draw.randrange(_TEAMS), draw.randrange(80)
        found.append(
            RecordedWork(
                team=f"t{team}",
                tier=_TIER,
                units=float(units),
                pods=pods,
                asked_at=at,
                runs_seconds=max(30.0, min(runs * scale, 5 * _DAY)),
                priority=draw.choices((0, 1, 2), (70, 20, 10))[0],
                queue=f"q{team}",
                requires=(("zone", f"z{zone}"),) if zone < 4 else (),
            )
        )
    return found


def cluster_of(settings: dict[str, Any] | None) -> ReplayCluster:
    """Return the nodes, with a queue of a cohort for each team unless the settings are None."""
    nodes = tuple(
        ReplayNode(
            f"n{number}",
            tuple(ReplayDevice(_TIER, gpu=gpu) for gpu in range(_GPUS)),
            {"zone": f"z{number % 4}"},
        )
        for number in range(_NODES)
    )
    if settings is None:
        return ReplayCluster(nodes)
    more = dict(settings)
    lends = more.pop("lends", None)
    quota = FlavorQuota(_SHARE, None, None if lends is None else lends * _SHARE)
    queues = (
        ReplayQueue(f"q{team}", {("any", _TIER): quota}, "all", **more) for team in range(_TEAMS)
    )
    return ReplayCluster(nodes, tuple(queues), flavors={"any": ()})


def measure(name: str, load: float = LOAD, works: int = _WORKS) -> tuple[float, int, int]:
    """Return the CPU seconds of a replay, and how many works started and were preempted."""
    policy, settings = POLICIES[name]
    asked, cluster = month(load, works), cluster_of(settings)
    before = process_time()
    found = replay_cluster(asked, cluster, policy, start=0.0, end=_DAYS * _DAY)
    seconds = process_time() - before
    started = sum(one.started_at is not None for one in found.played)
    return seconds, started, sum(preemptions(found))


def main(load: float) -> None:
    """Print a row of Markdown for each policy."""
    for name in POLICIES:
        seconds, started, preempted = measure(name, load)
        sys.stdout.write(f"| {name} | {seconds:.1f} | {started:,} | {preempted:,} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else LOAD)
