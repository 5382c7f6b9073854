"""Gangs that were spread over more domains than they needed."""

import pytest

from apps.clusters.domain.topology import TopologyLevel
from apps.planning.domain.topology.gang_spread import (
    GangPod,
    GangSpread,
    domains_needed,
    spread_of,
    together,
)

RACK, HOST = TopologyLevel.RACK, TopologyLevel.HOST
DOMAINS = {RACK: [0, 0, 1, -1], HOST: [0, 1, 2, 3]}
CAPACITY = [8.0, 8.0, 8.0, 8.0]


def gang(*nodes: int, gpus: float = 4.0) -> list[GangPod]:
    return [GangPod(node, gpus, 0.0, 10.0) for node in nodes]


@pytest.mark.parametrize(
    ("pods", "spread"),
    [
        (gang(0, 0), GangSpread(HOST, 1, 1)),
        (gang(0, 1), GangSpread(HOST, 2, 1)),
        (gang(0, 2), GangSpread(RACK, 2, 1)),
        (gang(0, 1, gpus=8.0), GangSpread(HOST, 2, 2)),
        (gang(0, 1, 2, gpus=8.0), GangSpread(HOST, 3, 3)),
        (gang(0, 3), GangSpread(HOST, 2, 1)),
    ],
    ids=[
        "one host",
        "two hosts",
        "two racks",
        "two whole hosts",
        "two racks, as needed",
        "no rack",
    ],
)
def test_the_widest_level_at_which_it_is_spread_is_told(
    pods: list[GangPod], spread: GangSpread
) -> None:
    assert spread_of(pods, DOMAINS, CAPACITY) == spread


def test_nothing_is_told_where_no_level_is_known() -> None:
    assert spread_of(gang(3), {RACK: DOMAINS[RACK]}, CAPACITY) is None


@pytest.mark.parametrize(
    ("sizes", "gpus", "needed"),
    [([8, 4], 8, 1), ([4, 8], 9, 2), ([4, 8], 13, 3), ([], 1, 1), ([8], 0, 0)],
)
def test_the_largest_domains_are_filled_first(sizes: list[float], gpus: float, needed: int) -> None:
    assert domains_needed(sizes, gpus) == needed


def test_pods_that_followed_one_another_were_not_together() -> None:
    first, second = GangPod(0, 4, 0, 5), GangPod(1, 4, 5, 9)
    third = GangPod(2, 4, 6, 7)
    assert together([first, second, third]) == [second, third]
    assert together([]) == []
