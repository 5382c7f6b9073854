"""Activity that no pod explains, beside the capacity that is known."""

from datetime import UTC, datetime, timedelta

import pytest
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, Node, TierRule, WatchCoverage
from apps.usage.domain.amounts import nano
from apps.usage.domain.usage_query import Filters
from apps.usage.models import NodeHour
from apps.usage.selectors.devices import UnattributedRow, unattributed_by_node
from tests.factories import make_cluster, make_model, make_tier

START = datetime(2026, 11, 16, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = Window(START, START + 24 * HOUR)

pytestmark = pytest.mark.django_db


@pytest.fixture
def _hours() -> None:
    """Two hours before anybody watched, one that was watched for half, and a whole one.

    In the first there is activity alone, of no tier that is known; later the node has 8 GPUs.
    """
    node = Node.objects.create(cluster=make_cluster("west"), name="dra-1")
    tier, nobody = make_tier("dra"), make_tier("unmatched")
    told = {"cluster": node.cluster, "gpu_model": make_model(), "capacity_type": "on-demand"}
    for number, (lost, there) in enumerate(((8, 0), (8, 0), (6, 4), (2, 8))):
        at = {"hour": START + number * HOUR, "node": node, **told}
        if there:
            NodeHour.objects.create(tier=tier, capacity=nano(there), **at)
        NodeHour.objects.create(tier=nobody, unattributed=nano(lost), **at)


def read(visibility: Visibility = EVERYTHING) -> list[UnattributedRow]:
    return unattributed_by_node(DAY, filters=Filters(), visibility=visibility, limit=20)


@pytest.mark.usefixtures("_hours")
def test_the_share_is_of_hours_whose_capacity_is_known_and_never_above_it() -> None:
    (row,) = read()
    assert (row.cluster, row.node, row.unattributed) == ("west", "dra-1", nano(24))
    assert (row.within, row.capacity) == (nano(4 + 2), nano(4 + 8))


@pytest.mark.usefixtures("_hours")
def test_without_any_capacity_there_is_no_share() -> None:
    NodeHour.objects.update(capacity=0)
    (row,) = read()
    assert (row.within, row.capacity) == (0, 0)


@pytest.mark.usefixtures("_hours")
def test_activity_before_the_watch_of_what_only_claims_give_out_is_said_to_be_so() -> None:
    assert read()[0].before_watch == 0, "no tier is given out by claims"
    TierRule.objects.filter(tier__name="dra").update(
        sharing="dra", resources=[], device_classes=["gpu.nvidia.com"]
    )
    assert read()[0].before_watch == nano(24), "nobody ever watched"
    cluster = Cluster.objects.get()
    WatchCoverage.objects.create(cluster=cluster, start=START + 2.5 * HOUR, end=START + 9 * HOUR)
    assert read()[0].before_watch == nano(8 + 8 + 6)


@pytest.mark.usefixtures("_hours")
def test_it_takes_three_queries_and_none_for_who_does_not_see_everything(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    with django_assert_num_queries(3):
        read()
    with django_assert_num_queries(0):
        assert read(Visibility(everything=False, team_ids=frozenset({1}))) == []
