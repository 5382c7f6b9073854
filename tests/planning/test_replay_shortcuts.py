"""What a replay does not try again would have failed: trying all of it gives the same answer."""
# ruff: noqa: S311 - made-up worlds

from collections.abc import Callable
from math import inf
from random import Random

import pytest

from apps.planning.domain.cluster_replay.admission import QueueAdmission
from apps.planning.domain.cluster_replay.engine import replay_cluster
from apps.planning.domain.cluster_replay.full_queues import FullQueues
from apps.planning.domain.cluster_replay.inputs import (
    ClosedSpan,
    FlavorQuota,
    MissingUnits,
    Packing,
    PendingOrder,
    Reclaim,
    RecordedWork,
    ReplayCluster,
    ReplayCohort,
    ReplayDevice,
    ReplayNode,
    ReplayPolicy,
    ReplayQueue,
)
from apps.planning.domain.cluster_replay.node_space import TierSpace
from apps.planning.domain.cluster_replay.pending_line import PendingLine, RoomNeeds
from apps.planning.domain.cluster_replay.queue_state import QueueState
from apps.planning.domain.cluster_replay.quota_line import QuotaNeeds, ScopeRoom

END = 100.0
Played = list[tuple[object, ...]]


def node(draw: Random, number: int) -> ReplayNode:
    units = [float(draw.choice((1, 1, 1, 2, 4))) for _ in range(draw.randint(1, 4))]
    away, lacking = (float(draw.randint(0, 80)) for _ in range(2))
    return ReplayNode(
        f"n{number}",
        tuple(ReplayDevice("whole", units=own, gpu=place) for place, own in enumerate(units)),
        {"zone": f"z{number % 2}"},
        (ClosedSpan(away, away + draw.randint(1, 30)),) if draw.random() < 0.3 else (),
        (MissingUnits(lacking, lacking + 9, "whole", 1.0),) if draw.random() < 0.3 else (),
    )


def queue(draw: Random, number: int) -> ReplayQueue:
    quota = FlavorQuota(
        float(draw.randint(0, 5)), draw.choice((None, 1.0, 3.0)), draw.choice((None, 1.0))
    )
    return ReplayQueue(
        f"q{number}",
        {("any", "whole"): quota},
        cohort=draw.choice(("all", "all", "other", "")),
        weight=draw.choice((1.0, 2.0)),
        strict=draw.random() < 0.3,
        reclaim=draw.choice(list(Reclaim)),
        preempts_own=draw.random() < 0.4,
        next_before_borrowing=draw.random() < 0.3,
    )


def work(draw: Random, nodes: tuple[ReplayNode, ...]) -> RecordedWork:
    pods = draw.choice((1, 1, 1, 1, 2, 3))
    running = draw.random() < 0.1
    zone = draw.choice(("", "", "", "z0", "z1"))
    there = [one.name for one in nodes if zone in ("", one.labels["zone"])]
    return RecordedWork(
        team=f"t{draw.randrange(3)}",
        tier="whole",
        units=float(draw.choice((0.5, 1, 1, 2, 2, 3, 4))),
        asked_at=-float(draw.randint(1, 9)) if running else float(draw.randint(0, 90)),
        pods=pods,
        runs_seconds=draw.choice((None, *[float(draw.randint(1, 40))] * 6)),
        leaves_at=float(draw.randint(0, 100)) if draw.random() < 0.15 else None,
        priority=draw.choice((0, 0, 1, 2)),
        queue=draw.choice(("", "q0", "q1", "q2")),
        namespace=f"ns{draw.randrange(3)}",
        requires=(("zone", zone),) if zone else (),
        running=running,
        nodes=tuple(draw.choice(there) for _ in range(pods)) if there else (),
        delay_seconds=float(draw.choice((0, 0, 3))),
        check_seconds=float(draw.choice((0, 0, 2))),
    )


def world(draw: Random) -> tuple[list[RecordedWork], ReplayCluster, ReplayPolicy]:
    nodes = tuple(node(draw, number) for number in range(draw.randint(1, 6)))
    limits = {f"ns{number}": {"whole": float(draw.randint(1, 6))} for number in range(2)}
    cluster = ReplayCluster(
        nodes,
        tuple(queue(draw, number) for number in range(draw.randint(0, 3))),
        (ReplayCohort("all", "top"), ReplayCohort("top")) if draw.random() < 0.3 else (),
        {"any": ()},
        limits if draw.random() < 0.4 else {},
    )
    policy = ReplayPolicy(
        order=draw.choice(list(PendingOrder)),
        packing=draw.choice(list(Packing)),
        strict=draw.random() < 0.25,
        entitlements={(f"t{number}", "whole"): float(draw.randint(0, 4)) for number in range(3)},
        half_life=draw.choice((None, 20.0)),
        borrowing=draw.random() < 0.8,
        fair_sharing=draw.random() < 0.5,
        preemption=draw.random() < 0.5,
        resumes=draw.random() < 0.5,
        recorded_nodes=draw.random() < 0.4,
    )
    return [work(draw, nodes) for _ in range(draw.randint(1, 60))], cluster, policy


def answer(seed: int) -> Played:
    works, cluster, policy = world(Random(seed))
    found = replay_cluster(works, cluster, policy, start=0.0, end=END)
    return [(p.flavor, tuple(p.runs), p.ended_at) for p in found.played]


def test_what_is_not_tried_again_would_have_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = range(400)
    found = [answer(seed) for seed in seeds]
    tried: list[bool] = []
    unblock = PendingLine.unblock

    def unblock_all(
        line: PendingLine,
        most: Callable[[int], float] | None = None,
        fits: Callable[[RoomNeeds], bool] | None = None,
    ) -> bool:
        tried.append(most is not None)
        return unblock(line)

    def no_limit(*_: object) -> ScopeRoom:
        return ScopeRoom(inf)

    def wake_all(full: FullQueues, _: int) -> list[str]:
        names = list(full._needed)
        for name in names:
            full.forget(name)
        return names

    def expect_unused(own: QueueState) -> None:
        own.unused, own.later = True, None

    monkeypatch.setattr(PendingLine, "unblock", unblock_all)
    monkeypatch.setattr(QueueState, "scope_room", no_limit)
    monkeypatch.setattr(QueueAdmission, "_is_later", lambda *_: False)
    monkeypatch.setattr(QueueAdmission, "_still_next", lambda *_: None)
    monkeypatch.setattr(QueueAdmission, "_is_enough", lambda *_: True)
    monkeypatch.setattr(FullQueues, "is_full", lambda *_: False)
    monkeypatch.setattr(FullQueues, "woken", wake_all)
    monkeypatch.setattr(QueueState, "note_use", expect_unused)
    monkeypatch.setattr(TierSpace, "has_room", lambda *_: True)
    for needs in (RoomNeeds, QuotaNeeds):
        monkeypatch.setattr(needs, "includes", lambda *_: False)
    for seed, shortened in zip(seeds, found, strict=True):
        assert answer(seed) == shortened, seed
    assert tried.count(True) > len(tried) / 2, "most of the time something is not tried again"
