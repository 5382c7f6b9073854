"""The rows that an hour's facts point to: one team, two pods on one node, one tier."""

from datetime import datetime

from apps.accounts.models import Team
from apps.clusters.domain.tiers import model_key
from apps.clusters.models import Cluster, GpuModel, Namespace, Node, Pod, Tier, Workload
from apps.usage.services.facts import Dimensions, PodIds
from tests.factories import A100


def make_dimensions(*, units: float, created_at: datetime) -> Dimensions:
    """Make two pods of so many GPUs each, `p1` and `p2` of `ml`, and all that they belong to."""
    cluster = Cluster.objects.create(name="west")
    team = Team.objects.create(name="vision")
    namespace = Namespace.objects.create(cluster=cluster, name="ml")
    workload = Workload.objects.create(namespace=namespace, kind="Job", name="train")
    pods = {}
    for name in ("p1", "p2"):
        row = Pod.objects.create(
            cluster=cluster,
            uid=f"uid-{name}",
            workload=workload,
            name=name,
            resource="nvidia.com/gpu",
            units=units,
            created_at=created_at,
            source="api",
        )
        pods[row.uid] = PodIds(row.pk, workload.pk, namespace.pk, "ml")
    model = GpuModel.objects.create(name=A100, key=model_key(A100))
    return Dimensions(
        cluster=cluster.pk,
        pods=pods,
        nodes={"n1": Node.objects.create(cluster=cluster, name="n1").pk},
        models={model.key: model.pk},
        tiers={"gold": Tier.objects.create(name="gold").pk},
        team_of=lambda _: team.pk,
    )
