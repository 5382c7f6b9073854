"""What quota and room do not explain of pending time whose cause nobody saw."""

from typing import Any

import pytest

from apps.planning.domain.cluster_replay.backtest import WorkTimes
from apps.planning.domain.cluster_replay.inputs import (
    ClosedSpan,
    FlavorQuota,
    MissingUnits,
    RecordedWork,
    ReplayCluster,
    ReplayQueue,
)
from apps.planning.domain.recorded.delays import unexplained_delays
from apps.planning.domain.recorded.queues import RecordedQueues, with_queues
from apps.planning.domain.recorded.works import LedgerPod, WorkLife
from tests.planning.clusters import FLAVOR, TIER, node, pool, queue, work

END = 1000.0
Recorded = tuple[RecordedWork, WorkLife]


def recorded(
    asked: float,
    started: float | None,
    ended: float | None = None,
    units: float = 1.0,
    at: str = "n0",
    **more: Any,
) -> Recorded:
    """Return a work as it went; `at` is the node that it ran on."""
    running = started is not None and started < 0
    own = work(asked, units, running=running, **more)
    times = WorkTimes(TIER, units, asked, started, ended, running)
    return own, WorkLife("uid", "family", times, nodes=(at,) if started is not None else ())


def delays(cluster: ReplayCluster, *rows: Recorded) -> dict[int, float]:
    works, lives = zip(*rows, strict=True)
    return dict(unexplained_delays(works, lives, cluster, range(len(rows)), (0.0, END)))


def full_until(end: float, units: float = 8.0, **more: Any) -> Recorded:
    return recorded(-10.0, -10.0, end, units, **more)


OWN = queue("own", 4.0)
QUOTA = pool(8, queues=(OWN,))
OTHERS = ReplayCluster((node("n0", tier="other"),))
CLOSED = ReplayCluster((node("n0", closed=(ClosedSpan(-50.0, 60.0),)),))
BROKEN = ReplayCluster((node("n0", missing=(MissingUnits(20.0, 60.0, TIER, 8.0),)),))


@pytest.mark.parametrize(
    ("cluster", "rows", "delay"),
    [
        pytest.param(pool(8), [recorded(0, 0)], 0, id="started at once"),
        pytest.param(pool(8), [recorded(0, 100)], 100, id="an empty node"),
        pytest.param(pool(8), [recorded(0, 100), full_until(60)], 40, id="full until 60"),
        pytest.param(pool(8), [recorded(0, 60), full_until(60)], 0, id="full until it started"),
        pytest.param(pool(8), [recorded(0, 100), full_until(60, 7)], 100, id="one GPU is free"),
        pytest.param(
            pool(8), [recorded(0, 100, units=2), full_until(60, 7)], 40, id="too few are free"
        ),
        pytest.param(
            pool(8, 8),
            [recorded(0, 100, units=8), full_until(60, 1), full_until(70, 1, at="n1")],
            40,
            id="free GPUs on two nodes are no node with room",
        ),
        pytest.param(
            pool(8),
            [recorded(0, 100), full_until(20), recorded(40, 40, 90, 8)],
            20 + 10,
            id="room that came and went",
        ),
        pytest.param(pool(8), [recorded(0, None, 70)], 70, id="canceled"),
        pytest.param(pool(8), [recorded(0, None)], END, id="pending to the end"),
        pytest.param(pool(8), [recorded(-500, 30)], 30, id="not what came before the window"),
        pytest.param(OTHERS, [recorded(0, 100)], 0, id="no node offers the tier"),
        pytest.param(CLOSED, [recorded(0, 100)], 40, id="a cordoned node"),
        pytest.param(BROKEN, [recorded(0, 100)], 20 + 40, id="broken GPUs"),
        pytest.param(
            pool(8),
            [recorded(0, 100), recorded(5, 5, 5, 8)],
            100,
            id="a pod that a kubelet turned away held nothing",
        ),
        pytest.param(
            QUOTA,
            [recorded(0, 100, queue="own"), full_until(60, 4, queue="own")],
            40,
            id="room without quota",
        ),
        pytest.param(
            QUOTA,
            [recorded(0, 100, units=4, queue="own"), recorded(0, 0, 60, 4, queue="own")],
            40,
            id="who started had quota before",
        ),
        pytest.param(QUOTA, [recorded(0, None, 70, units=6, queue="own")], 0, id="never any quota"),
    ],
)
def test_a_work_could_have_started_for_so_long(
    cluster: ReplayCluster, rows: list[Recorded], delay: float
) -> None:
    assert delays(cluster, *rows).get(0, 0) == delay


def test_only_works_are_told_of_that_were_asked_for() -> None:
    rows = [recorded(0, 50), recorded(0, 100)]
    works, lives = [one for one, _ in rows], [life for _, life in rows]
    assert unexplained_delays(works, lives, pool(8), {1}, (0.0, END)) == {1: 100}


def test_a_gang_needs_room_for_all_of_it() -> None:
    own = work(0, 4.0, pods=2)
    life = WorkLife("uid", "f", WorkTimes(TIER, 8.0, 0, 100, None), nodes=("n0", "n1"))
    assert delays(pool(4, 4), (own, life), full_until(60, 1)) == {0: 40}


def test_a_pod_on_a_node_that_is_not_known_takes_room_where_there_is_some() -> None:
    assert delays(pool(8), recorded(0, 100), full_until(60, at="gone")) == {0: 40}


# ------------------------------------------------------------------ queues of pods of series


def pod(uid: str, *, from_series: bool = True, **more: Any) -> LedgerPod:
    more.setdefault("owner", ("vision", "Job", uid))
    more.setdefault("tier", TIER)
    return LedgerPod(
        uid=uid, team="vision", resource=TIER, units=1.0, gpus=1.0, created=0.0,
        from_series=from_series, **more,
    )  # fmt: skip


def found(*pods: LedgerPod, links: dict[tuple[str, str], str]) -> list[str]:
    labels = (("pool", "a"),)
    queues = RecordedQueues(
        queues=(
            queue("first", 4.0),
            queue("second", 4.0),
            ReplayQueue("elsewhere", {("none", TIER): FlavorQuota(4.0)}),
        ),
        flavors={FLAVOR: labels, "none": (("pool", "b"),)},
        links=links,
    )
    nodes = (node("n0", labels=dict(labels)),)
    return [one.queue for one in with_queues(pods, queues, nodes)]


ONE = {("vision", "main"): "first"}
TWO = {**ONE, ("vision", "more"): "second"}
OTHER = {**ONE, ("vision", "more"): "elsewhere"}


@pytest.mark.parametrize(
    ("pods", "links", "queues"),
    [
        pytest.param([pod("a")], ONE, ["first"], id="one leads to its tier"),
        pytest.param([pod("a")], TWO, [""], id="two do"),
        pytest.param([pod("a")], OTHER, ["first"], id="another has no nodes of its tier"),
        pytest.param([pod("a", tier="t4")], ONE, [""], id="none leads to its tier"),
        pytest.param([pod("a", owner=("speech", "Job", "a"))], ONE, [""], id="no LocalQueue"),
        pytest.param(
            [pod("a"), pod("b", from_series=False)], ONE, ["", ""], id="a watched pod has none"
        ),
        pytest.param(
            [pod("a"), pod("b", from_series=False, queue="first")],
            ONE,
            ["first", "first"],
            id="a watched pod came through it",
        ),
        pytest.param([pod("a", queue="second")], ONE, ["second"], id="it is known"),
    ],
)
def test_pods_of_series_are_in_the_queue_of_their_namespace(
    pods: list[LedgerPod], links: dict[tuple[str, str], str], queues: list[str]
) -> None:
    assert found(*pods, links=links) == queues
