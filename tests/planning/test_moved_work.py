"""Recorded work that requests something else, replayed on small clusters."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from apps.planning.domain.cluster_replay.backtest import WorkTimes
from apps.planning.domain.cluster_replay.inputs import (
    FlavorQuota,
    RecordedWork,
    ReplayCluster,
    ReplayDevice,
    ReplayNode,
    ReplayPolicy,
    ReplayQueue,
)
from apps.planning.domain.moved_work import MoveEffects, MoveReplay, OtherRequest
from apps.planning.domain.policy_effects import RecordedWeeks
from apps.planning.domain.recorded.constraints import TAINTS
from apps.planning.domain.recorded.works import OwnerKey
from tests.planning.clusters import END, TIER, node, work

NOTEBOOK = ("vision", "StatefulSet", "notebook-ada")
OTHER = ("speech", "Deployment", "serve")
QUARTER = OtherRequest("shared", "nvidia.com/gpu.shared", 1.0, 0.25, {"product": "A100-SHARED"})
HOURS = END / 3600


def shared(name: str = "s0", **labels: str) -> ReplayNode:
    """Return a node with a GPU that four share."""
    device = ReplayDevice("shared", 4.0, 0.25)
    return ReplayNode(name, (device,), {"product": "A100-SHARED", TAINTS: "", **labels})


def whole(gpus: int = 2) -> ReplayNode:
    return node("n0", gpus, labels={"product": "A100", TAINTS: ""})


def replay(
    works: Sequence[tuple[OwnerKey, RecordedWork]], *nodes: ReplayNode, **more: Any
) -> MoveReplay:
    own = [one for _, one in works]
    happened = [
        WorkTimes(one.tier, one.total_units, one.asked_at, None, None, one.running) for one in own
    ]
    cluster = ReplayCluster(nodes, **more)
    weeks = RecordedWeeks(own, happened, cluster, 0.0, END, [], {}, ReplayPolicy())
    return MoveReplay(weeks, [owner for owner, _ in works])


def effects(
    works: Sequence[tuple[OwnerKey, RecordedWork]], *nodes: ReplayNode, **more: Any
) -> MoveEffects:
    found = replay(works, *nodes, **more).effects(NOTEBOOK, TIER, QUARTER)
    assert found is not None
    return found


def test_what_ran_before_moves_as_the_replay_begins_and_lets_others_start() -> None:
    found = effects(
        [
            (NOTEBOOK, work(-100.0, runs=None, running=True, nodes=("n0",))),
            (OTHER, work(100.0, runs=200.0)),
        ],
        whole(1),
        shared(),
    )
    assert found.freed_gpu_hours == pytest.approx(0.75 * HOURS)
    assert found.held_gpu_hours == pytest.approx(0.25 * HOURS)
    assert (found.works, found.started) == (1, 1)
    assert found.before.unmet_gpu_hours == pytest.approx(900 / 3600)
    assert found.after.unmet_gpu_hours == 0.0
    # What ran before has no queue time, moved or not.
    assert (found.before.p95_seconds, found.after.p95_seconds) == (None, 0.0)


def test_what_runs_there_already_keeps_its_units() -> None:
    there = work(-50.0, 4.0, None, tier="shared", running=True, nodes=("s0",))
    mine = work(-100.0, runs=None, running=True, nodes=("n0",))
    found = effects([(NOTEBOOK, mine), (OTHER, there)], whole(), shared())
    assert (found.works, found.started) == (1, 0)
    assert (found.freed_gpu_hours, found.held_gpu_hours) == (0.0, 0.0)
    assert found.after.unmet_gpu_hours == pytest.approx(0.25 * HOURS)
    assert found.before.unmet_gpu_hours == 0.0


def test_without_quota_for_the_other_resource_it_is_pending() -> None:
    queue = ReplayQueue("q", {("a100", "nvidia.com/gpu"): FlavorQuota(8.0)})
    mine = work(runs=None, queue="q", resource="nvidia.com/gpu")
    found = effects([(NOTEBOOK, mine)], whole(), shared(), queues=(queue,))
    assert (found.works, found.started) == (1, 0)
    assert found.after.unmet_gpu_hours == pytest.approx(0.25 * HOURS)


@pytest.mark.parametrize(
    ("requires", "kept"),
    [
        ({"zone": "z1"}, {"zone": "z1"}),
        # Neither names a node of the other tier: they are those of the tier that it leaves.
        ({"product": "A100", TAINTS: "dedicated=vision"}, {}),
        ({"zone": "z9"}, {}),
    ],
)
def test_it_keeps_its_node_labels_that_fit_the_other_tier(
    requires: Mapping[str, str], kept: Mapping[str, str]
) -> None:
    mine = work(requires=tuple(sorted(requires.items())))
    nodes = (whole(), shared("s0", zone="z1"), shared("s1", zone="z2"))
    (moved,) = replay([(NOTEBOOK, mine)], *nodes).moved(NOTEBOOK, TIER, QUARTER).values()
    assert dict(moved.requires) == {"product": "A100-SHARED", **kept}


def test_it_bears_the_taints_of_most_nodes_of_the_other_tier() -> None:
    nodes = (shared("s0"), *(shared(f"s{n}", **{TAINTS: "gpu=present"}) for n in (1, 2)))
    (moved,) = replay([(NOTEBOOK, work())], *nodes).moved(NOTEBOOK, TIER, QUARTER).values()
    assert dict(moved.requires)[TAINTS] == "gpu=present"


def test_work_that_runs_once_moves_with_its_family_and_other_work_alone() -> None:
    works = [
        (("vision", "Job", "eval-x7k2p"), work()),
        (("vision", "Job", "eval-1731974400"), work()),
        (("vision", "Job", "train-x7k2p"), work()),
        (("speech", "Job", "eval-x7k2p"), work()),
        (NOTEBOOK, work()),
        (("vision", "StatefulSet", "notebook-lin"), work()),
        (NOTEBOOK, work(tier="shared")),
    ]
    found = replay(works, whole(8), shared())
    for name in ("eval-x7k2p", "eval-*"):
        assert set(found.moved(("vision", "Job", name), TIER, QUARTER)) == {0, 1}
    assert set(found.moved(NOTEBOOK, TIER, QUARTER)) == {4}
    assert found.effects(("vision", "Job", "gone"), TIER, QUARTER) is None


def test_fewer_units_of_its_own_tier_stay_where_they_were() -> None:
    fewer = OtherRequest(TIER, TIER, 1.0, 1.0, {})
    works = [
        (NOTEBOOK, work(-9.0, 3.0, None, running=True, nodes=("n0",))),
        (NOTEBOOK, work(0.0, 1.0, None)),
        (OTHER, work(5.0, 2.0, None)),
    ]
    found = replay(works, whole(4)).effects(NOTEBOOK, TIER, fewer)
    assert found is not None
    # The one that requests one already is none of those that change.
    assert (found.works, found.started) == (1, 1)
    assert found.freed_gpu_hours == pytest.approx(2 * HOURS)
    assert found.before.unmet_gpu_hours > found.after.unmet_gpu_hours == 0.0


def test_a_tier_is_offered_by_nodes_with_its_labels() -> None:
    found = replay([], whole(), shared())
    assert found.offers("shared", {"product": "A100-SHARED"})
    assert not found.offers("shared", {"product": "L4"})
    assert not found.offers("", {})
