"""Fewer GPUs of a pool at some hours, replayed on small clusters."""

from collections.abc import Sequence
from typing import Any

import pytest

from apps.planning.domain.cluster_replay.backtest import WorkTimes
from apps.planning.domain.cluster_replay.inputs import (
    ClosedSpan,
    MissingUnits,
    RecordedWork,
    ReplayCluster,
    ReplayDevice,
    ReplayNode,
    ReplayPolicy,
)
from apps.planning.domain.policy_effects import RecordedWeeks
from apps.planning.domain.scaled_pools import ScaleEffects, ScaleReplay
from tests.planning.clusters import TIER, node, work

HOUR = 3600.0
NODES = ("n0", "n1")


def replay(
    works: Sequence[RecordedWork], *nodes: ReplayNode, gpus: Sequence[float], **more: Any
) -> ScaleEffects | None:
    happened = [WorkTimes(one.tier, one.total_units, one.asked_at, None, None) for one in works]
    end = HOUR * len(gpus)
    cluster = ReplayCluster(nodes)
    weeks = RecordedWeeks(works, happened, cluster, 0.0, end, [], {}, ReplayPolicy())
    return ScaleReplay(weeks).effects(more.get("tier", TIER), more.get("names", NODES), gpus)


def test_what_is_free_goes_and_no_work_is_pending_for_it() -> None:
    works = [work(units=2.0, runs=HOUR), work(HOUR, 6.0, HOUR)]
    found = replay(works, node("n0", 4), node("n1", 4), gpus=[6.0, 2.0, 8.0])
    assert found is not None
    # Six do not fit on one node of four: they are pending with and without it.
    assert found.before.unmet_gpu_hours == found.after.unmet_gpu_hours == pytest.approx(12.0)
    assert found.freed_gpu_hours == pytest.approx(6.0 + 2.0 + 8.0)


def test_work_that_comes_to_a_smaller_pool_is_pending_until_it_grows_again() -> None:
    found = replay([work(HOUR / 2, 2.0, HOUR)], node("n0", 4), gpus=[4.0, 0.0, 0.0])
    assert found is not None
    assert found.before.unmet_gpu_hours == 0.0
    assert found.after.unmet_gpu_hours == pytest.approx(1.0)
    assert (found.before.p95_seconds, found.after.p95_seconds) == (0.0, HOUR / 2)
    # In a part of this hour two of the four were held without the change, and no GPU is with it.
    assert found.freed_gpu_hours == pytest.approx(4.0)


def test_what_is_held_goes_once_its_work_ends_and_is_not_freed_before() -> None:
    ran = work(-1.0, 4.0, 1.5 * HOUR, running=True, nodes=("n0",))
    works = [ran, work(1.75 * HOUR, 1.0, HOUR / 4)]
    found = replay(works, node("n0", 4), gpus=[4.0, 4.0, 4.0, 0.0])
    assert found is not None
    assert found.freed_gpu_hours == pytest.approx(4.0)
    assert found.after.unmet_gpu_hours == pytest.approx(1.25)


def test_the_emptiest_node_goes_first_and_only_whole_units() -> None:
    devices = tuple(ReplayDevice("shared", 4.0, 0.25, gpu) for gpu in range(2))
    works = [work(tier="shared", units=1.0, runs=None)]
    pool = [ReplayNode(name, devices) for name in NODES]
    found = replay(works, *pool, gpus=[2.1], tier="shared")
    assert found is not None
    assert found.freed_gpu_hours == pytest.approx(2.0)


@pytest.mark.parametrize(
    "one",
    [
        node("n0", 4, closed=(ClosedSpan(0.0, 9.0),)),
        node("n0", 4, missing=(MissingUnits(0.0, 9.0, TIER, 1.0),)),
        node("other", 4),
        node("n0", 4, tier="h100"),
    ],
    ids=["took no pods for a time", "lacked a GPU", "of another pool", "of another tier"],
)
def test_a_pool_without_a_node_that_was_there_all_through_is_not_replayed(one: ReplayNode) -> None:
    assert replay([work()], one, gpus=[1.0]) is None
