"""The shares of `campus`: who is let through when, told from a few pods on its H100 nodes."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from simulator.fleet import FOREVER, Admission
from simulator.scenarios.base import Queue
from simulator.scenarios.campus.pools import Pool, make_nodes, make_pools
from simulator.scenarios.campus.queues import CLAIM_GATE, admissions
from simulator.scenarios.campus.room import FreeSpace, Verdicts
from simulator.scenarios.packing import Draft
from simulator.scheduler.kueue import GATE

START = 1_000
NODES = make_nodes("test", START, START)
POOL = next(pool for pool in make_pools(NODES) if pool.tag == "whole-h100")


class When(NamedTuple):
    evaluated_at: int
    reserved: int
    at: int


def queue(nominal: int, *, strict: bool = True) -> Queue:
    return Queue("team-h100", "whole-h100", "team", "h100", POOL.resource, nominal, START, strict)


def on_nodes(units: int, nodes: Sequence[int], until: int) -> list[Draft]:
    """Return pods of others that hold so much of each of these nodes until a time."""
    return [
        Draft(100 + node, 100 + node, units, START, START, until, node, tuple(range(units)))
        for node in nodes
    ]


def let(drafts: Sequence[Draft], nominal: int, others: Sequence[Draft] = ()) -> list[Admission]:
    room = FreeSpace(POOL, [drafts, others], START)
    return list(admissions(drafts, POOL, queue(nominal), room, "seed"))


def when(drafts: Sequence[Draft], nominal: int, others: Sequence[Draft] = ()) -> list[When]:
    return [When(one.evaluated_at, one.reserved, one.at) for one in let(drafts, nominal, others)]


@pytest.mark.parametrize(
    ("drafts", "expected"),
    [
        pytest.param(
            [Draft(0, 0, 4, 1_100, 1_100, 1_900, 0, (0, 1, 2, 3))],
            [When(1_100, 1_100, 1_100)],
            id="there is quota and the pod is bound at once",
        ),
        pytest.param(
            [
                Draft(0, 0, 6, 1_100, 1_100, 1_500, 0, tuple(range(6))),
                Draft(1, 1, 4, 1_200, 1_500, 1_900, 0, (0, 1, 2, 3)),
                Draft(2, 2, 1, 1_300, 1_500, 1_900, 0, (4,)),
            ],
            [When(1_100, 1_100, 1_100), When(1_200, 1_500, 1_500), When(1_500, 1_500, 1_500)],
            id="who fits is not let past the first in line",
        ),
        pytest.param(
            [Draft(0, 0, 2, 1_100, 1_700, 1_900, 0, (0, 1))],
            [When(1_100, 1_100, 1_700)],
            id="with quota it is checked as long as nodes have room",
        ),
        pytest.param(
            [
                Draft(0, 0, 8, 1_100, 1_100, 1_900, 0, tuple(range(8))),
                Draft(1, 1, 2, 1_200, FOREVER, 1_600),
            ],
            [When(1_100, 1_100, 1_100), When(1_200, FOREVER, FOREVER)],
            id="one that gives up may never get quota",
        ),
        pytest.param(
            [Draft(0, 0, 2, 1_200, FOREVER, 1_600)],
            [When(1_200, 1_200, FOREVER)],
            id="one that gives up may do so while it is checked",
        ),
    ],
)
def test_pods_get_quota_in_their_order(drafts: list[Draft], expected: list[When]) -> None:
    assert when(drafts, 8) == expected


def test_a_pod_with_quota_is_let_go_when_no_node_has_room_any_more() -> None:
    others = [*on_nodes(7, range(6), 1_800)]
    mine = [
        Draft(0, 0, 2, 1_200, 1_800, 1_900, 0, (0, 1)),
        Draft(1, 1, 1, 1_300, 1_800, 1_900, 1, (0,)),
    ]

    assert when(mine, 8, others) == [When(1_200, 1_200, 1_200), When(1_300, 1_300, 1_800)]


def test_room_ends_with_the_last_pod_that_takes_it() -> None:
    filler = [
        Draft(node, node, 8, START, START + 100 * node, 1_900, node, tuple(range(8)))
        for node in range(6)
    ]
    room = FreeSpace(POOL, [filler], START)

    assert room.ends(1, START, 1_900) == START + 500
    assert room.ends(1, START, 1_400) == 1_400
    assert room.ends(9, START, 1_900) == START


def test_workloads_made_together_have_uids_in_the_order_of_the_line() -> None:
    drafts = [Draft(n, n, 1, 1_200, 1_900 - 100 * n, 2_000, n, (0,)) for n in range(5)]

    uids = [one.workload for one in let(drafts, 8)]

    assert uids == sorted(uids, reverse=True)


def test_pods_that_ask_by_claim_are_held_by_another_gate() -> None:
    pool: Pool = next(pool for pool in make_pools(NODES) if pool.tag == "claim-h100")
    draft = Draft(0, 0, 1, 1_200, 1_700, 1_900, 0, (0,))
    (found,) = admissions([draft], pool, None, FreeSpace(pool, [[draft]], START), "seed")

    assert (found.gate, found.at, found.queue) == (CLAIM_GATE, 1_700, "")
    assert found.gate != GATE


def test_the_scheduler_looks_again_when_a_node_is_cordoned() -> None:
    verdicts = Verdicts(NODES)
    cordoned = next(node for node in NODES if node.name == "h100-06").states[0].since
    selector = POOL.tier.node_selector

    first, *later = verdicts.attempts(POOL, selector, cordoned - 60, cordoned + 60)

    # The nodes that give out the same GPUs by claim have the label, too.
    assert first[1].startswith("0/40 nodes are available: 28 node(s) didn't match ")
    assert "8 Insufficient nvidia.com/gpu" in first[1]
    assert [at for at, _ in later] == [cordoned]
    assert "1 node(s) were unschedulable" in later[0][1]
    assert "7 Insufficient nvidia.com/gpu" in later[0][1]
