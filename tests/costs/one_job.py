"""A cluster whose one workload holds GPUs for twenty days, priced: for tests of advice on it."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

from msgspec import Struct

from apps.accounts.models import Team
from apps.clusters.domain.window import Window, day_of, day_start
from apps.clusters.models import Cluster, NodeInterval, Pod, Tier
from apps.usage.domain.amounts import Amounts
from apps.usage.models import CollectionWindow
from tests.costs.portal import make_price
from tests.factories import (
    A100,
    BEGINNING,
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
DAYS = 20
LAST = FIRST + timedelta(days=DAYS - 1)
NOW = datetime(2026, 10, 25, 1, tzinfo=UTC)
PRICE = "3.06"


class OneJob(Struct, frozen=True):
    cluster: Cluster
    tier: Tier
    team: Team
    pod: Pod
    window: Window


def four(_: date) -> Amounts:
    """Hold four GPUs, three quarters of them busy."""
    return held(4.0, busy=3.0)


@remembered
def make_one_job(
    of_hour: Callable[[date], Amounts] = four, *, kind: str = "Job", **price: Any
) -> OneJob:
    """Make it; `of_hour` says what an hour of a day held, `price` changes what it costs."""
    zone = make_report()
    ensure_builtin()
    cluster, tier, team = make_cluster(), make_tier("gold"), make_team("vision", "vision")
    node_gpus = make_gpus(cluster, "n1", tier)
    NodeInterval.objects.create(
        node=node_gpus.node,
        start=BEGINNING,
        ready=True,
        schedulable=True,
        capacity={"nvidia.com/gpu": 8},
        allocatable={"nvidia.com/gpu": 8},
        labels={"nvidia.com/gpu.product": A100},
    )
    workload = make_workload(cluster, "vision", "train", kind)
    pod = make_pod(workload, created_at=BEGINNING, node_gpus=node_gpus, units=4.0)
    make_price(A100, "on-demand", PRICE, **price)
    window = Window(day_start(FIRST, zone), day_start(LAST + timedelta(days=1), zone))

    def facts(hour: datetime) -> list[PodFact]:
        return [PodFact(pod, node_gpus, team, of_hour(day_of(hour, zone)))]

    collect(hours_of(window), [node_gpus], facts, zone=zone)
    CollectionWindow.objects.update(collected_at=NOW)
    return OneJob(cluster, tier, team, pod, window)
