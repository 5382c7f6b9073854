"""How long pods waited, by tier."""

from datetime import UTC, datetime, timedelta

import pytest
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window
from apps.usage.domain.usage_query import Filters
from apps.usage.selectors.pending import TierQueueTimes, queue_time_counts, tier_queue_times
from tests.factories import NodeGpus, make_cluster, make_gpus, make_pod, make_tier, make_workload

NOW = datetime(2026, 1, 10, tzinfo=UTC)
WEEK = Window(NOW - timedelta(days=7), NOW)
NOBODY = Visibility(everything=False)


@pytest.fixture
def node_gpus(db: None) -> NodeGpus:
    return make_gpus(make_cluster(), "west-1", make_tier("gold"))


def wait(node_gpus: NodeGpus, *seconds: float, until: datetime = NOW - timedelta(hours=1)) -> None:
    """Make pods that were bound at `until` after so many seconds."""
    workload = make_workload(node_gpus.node.cluster, "vision", "train")
    for waited in seconds:
        created = until - timedelta(seconds=waited)
        make_pod(workload, created_at=created, node_gpus=node_gpus, bound_at=until)


def times(filters: Filters = Filters()) -> dict[str, TierQueueTimes]:  # noqa: B008 - frozen
    return tier_queue_times(WEEK, filters=filters, visibility=NOBODY)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        pytest.param([30], (1, 30, 30), id="one pod"),
        pytest.param([10, 20], (2, 10, 20), id="two"),
        pytest.param([30, 10, 20], (3, 20, 30), id="three"),
        pytest.param(list(range(1, 101)), (100, 50, 95), id="a hundred"),
        pytest.param([5, 5, 5, 5], (4, 5, 5), id="all alike"),
        pytest.param([-1], (1, 0, 0), id="clocks that differ"),
    ],
)
def test_percentiles_are_waits_that_there_were(
    seconds: list[float], expected: tuple[int, float, float], node_gpus: NodeGpus
) -> None:
    wait(node_gpus, *seconds)
    assert times() == {"gold": TierQueueTimes("gold", *expected)}
    of_each = queue_time_counts(WEEK, tier="gold", filters=Filters())
    assert sorted(of_each) == sorted({float(max(0, one)) for one in seconds})
    assert sum(of_each.values()) == len(seconds)


def test_only_waits_that_ended_in_the_window_count(node_gpus: NodeGpus) -> None:
    wait(node_gpus, 50, until=WEEK.start)
    wait(node_gpus, 70, until=WEEK.start - timedelta(seconds=1))
    wait(node_gpus, 90, until=WEEK.end)
    assert times()["gold"].pods == 1
    assert times(Filters(cluster=("east",))) == {}
    assert times(Filters(cluster=("west",)))["gold"].p50_seconds == 50


def test_every_tier_comes_with_two_queries(
    node_gpus: NodeGpus, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    wait(node_gpus, 10)
    wait(make_gpus(node_gpus.node.cluster, "west-2", make_tier("silver")), 40)
    with django_assert_num_queries(2):
        assert {name: row.p95_seconds for name, row in times().items()} == {
            "gold": 10,
            "silver": 40,
        }
