"""Days of costs in the database: jobs that run once, as a large cluster has them.

python -m tests.bench.worker exports_data ROWS [DAYS]
"""

from datetime import UTC, date, datetime, timedelta
from typing import Any

from apps.accounts.models import Team
from apps.clusters.domain.tiers import GpuSharing
from apps.clusters.models import (
    Cluster,
    GpuModel,
    Namespace,
    ReportSettings,
    Tier,
    TierRule,
    Workload,
)
from apps.costs.models import WorkloadCostDay
from apps.usage.models import Day

BEGINNING = datetime(2024, 1, 1, tzinfo=UTC)
FIRST = date(2025, 1, 1)
DAYS = 360
CAUSES = ("busy", "idle", "underused", "not_running")
_SOME = 10**9
_PRICE = 306_000_000


def measure(rows: str, days: str = str(DAYS)) -> dict[str, Any]:
    """Fill the database so that a file of all days has about so many rows."""
    fill(int(rows) // len(CAUSES), int(days))
    return {"workload_days": WorkloadCostDay.objects.count(), "days": Day.objects.count()}


def fill(workload_days: int, days: int = DAYS) -> None:
    """Make so many days of workloads, each workload of one day alone, on GPUs that they share."""
    ReportSettings.objects.all().delete()
    ReportSettings.objects.create(time_zone="UTC", currency="USD")
    cluster = Cluster.objects.create(name="west", prometheus={"url": "http://west.example:9090"})
    tier = Tier.objects.create(name="gold", position=0)
    shared = {"sharing": GpuSharing.TIME_SLICED.value, "resources": ["gpu"]}
    TierRule.objects.create(tier=tier, position=0, valid_from=BEGINNING, **shared)
    model = GpuModel.objects.create(key="a100", name="NVIDIA-A100-SXM4-80GB")
    team = Team.objects.create(name="vision")
    namespace = Namespace.objects.create(cluster=cluster, name="vision")
    same = {
        "cluster_id": cluster.pk,
        "tier_id": tier.pk,
        "gpu_model_id": model.pk,
        "capacity_type": "on-demand",
        "team_id": team.pk,
        "namespace_id": namespace.pk,
        "currency": "USD",
        "price": _PRICE,
        "list_price": _PRICE,
    }
    amounts = dict.fromkeys(CAUSES, _SOME) | {f"cost_{name}": _PRICE for name in CAUSES}
    each = -(-workload_days // days)
    for number in range(days):
        day = FIRST + timedelta(days=number)
        made = Workload.objects.bulk_create(
            Workload(namespace=namespace, kind="Job", name=f"train-{number}-{one}-of-one-run")
            for one in range(each)
        )
        WorkloadCostDay.objects.bulk_create(
            WorkloadCostDay(day=day, workload_id=job.pk, **same, **amounts) for job in made
        )
        start = datetime(day.year, day.month, day.day, tzinfo=UTC)
        Day.objects.create(
            cluster=cluster, day=day, start=start, end=start + timedelta(days=1), rolled=True
        )
