"""A small cluster of which capacity is recommended: one node held in part, one empty."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from msgspec import Struct

from apps.clusters.domain.window import Window, day_start
from apps.clusters.models import Cluster, NodeInterval
from apps.costs.domain.recommendations.recommendation import RecommendationKind
from apps.costs.models import Recommendation
from apps.costs.services.recommendation_run import store_recommendations
from tests.costs.portal import make_price
from tests.factories import (
    A100,
    BEGINNING,
    NodeGpus,
    PodFact,
    collect,
    ensure_builtin,
    held,
    hours_of,
    make_cluster,
    make_gpus,
    make_pod,
    make_report,
    make_team,
    make_tier,
    make_workload,
)
from tests.shared_rows import remembered

FIRST = date(2026, 10, 5)
WEEKS = 3
LAST = FIRST + timedelta(days=7 * WEEKS - 1)
NOW = datetime(2026, 10, 26, 1, tzinfo=UTC)
PRICE = Decimal("3.06")
MIG = "nvidia.com/mig-3g.40gb"
MONTH = 730
LABELS = {"nvidia.com/gpu.product": A100}


class World(Struct, frozen=True):
    """Two nodes of eight GPUs: a job holds four of the first, nobody anything of the second."""

    cluster: Cluster
    node_gpus: Sequence[NodeGpus]
    hours: Sequence[datetime]


@remembered
def make_world(**job: Any) -> World:
    zone = make_report()
    ensure_builtin()
    cluster, gold = make_cluster(), make_tier("gold")
    team = make_team("vision", "vision")
    node_gpus = [make_gpus(cluster, name, gold) for name in ("n1", "n2")]
    for of_node in node_gpus:
        make_interval(of_node, {"nvidia.com/gpu": 8})
    workload = make_workload(cluster, "vision", job.pop("name", "train"), job.pop("kind", "Job"))
    pod = make_pod(workload, created_at=BEGINNING, node_gpus=node_gpus[0], units=4.0)
    make_price(A100, "on-demand", str(PRICE))
    window = Window(day_start(FIRST, zone), day_start(LAST + timedelta(days=1), zone))
    hours = hours_of(window)
    fact = PodFact(pod, node_gpus[0], team, held(4.0, busy=3.0, **job))
    collect(hours, node_gpus, lambda _: [fact], zone=zone)
    return World(cluster, node_gpus, hours)


def make_interval(node_gpus: NodeGpus, capacity: dict[str, float], **labels: str) -> NodeInterval:
    return NodeInterval.objects.create(
        node=node_gpus.node,
        start=BEGINNING,
        ready=True,
        schedulable=True,
        capacity=capacity,
        allocatable=capacity,
        labels=LABELS | labels | {"karpenter.sh/capacity-type": "on-demand"},
    )


def found(kind: RecommendationKind) -> Recommendation | None:
    store_recommendations(now=NOW)
    return Recommendation.objects.filter(kind=kind.value).first()


def a_month(gpus: Decimal | int, price: Decimal = PRICE) -> Decimal:
    return (gpus * MONTH * price).quantize(Decimal("0.01"))


def make_nightly(world: World, gpus: float, *, day: date = FIRST, **values: Any) -> None:
    """Let a job hold so many GPUs for ten minutes at three in the night."""
    start = datetime.combine(day, time(3), tzinfo=UTC)
    workload = make_workload(world.cluster, "vision", "nightly")
    times = {"created_at": start, "finished_at": start + timedelta(minutes=10)}
    make_pod(workload, node_gpus=world.node_gpus[1], units=gpus, **(times | values))
