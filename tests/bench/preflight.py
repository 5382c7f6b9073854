"""Worker: a large cluster: work is checked that is not submitted yet, and its map is drawn.

python -m tests.bench.worker preflight NODES PODS
"""

from typing import Any

from django.db import connection
from django.test import Client

from apps.accounts.domain.identity import Role
from apps.accounts.models import User
from apps.clusters.models import Namespace, Pod, Tier, TierRule
from tests.bench.measuring import percentile95
from tests.bench.pages import seconds
from tests.bench.pending import fill
from tests.bench.pending_fleet import GPU, NOW

_PENDING_PART = 10
_TIMES = 20


def measure(nodes: str, pods: str) -> dict[str, Any]:
    """Return the p95 of the page with the answer for pods that start, and for some that do not.

    `map_seconds` is that of the map of all nodes with what is free, by rack.
    """
    cluster = fill(int(nodes), int(pods) // _PENDING_PART)
    _add_pods(max(0, int(pods) - Pod.objects.count()))
    user = User.objects.create(username="bench-preflight", role=Role.ADMIN.value)
    client = Client(headers={"Host": "127.0.0.1"})
    client.force_login(user)
    where = Namespace.objects.order_by("pk").values_list("name", flat=True)[0]
    found = {}
    for name, gpus, count in (("one", 1, 1), ("many", 8, 200)):
        query = f"where={cluster.name}/{where}&resource={GPU}&gpus={gpus}&pods={count}"
        address = f"/preflight/?{query}"
        seconds(client, address)
        found[f"{name}_seconds"] = percentile95([seconds(client, address) for _ in range(_TIMES)])
    found["map_seconds"] = _map(client, int(nodes))
    return {"database": connection.vendor, "pods": Pod.objects.count(), **found}


def _map(client: Client, nodes: int) -> float:
    TierRule.objects.create(
        tier=Tier.objects.create(name="whole", position=0),
        position=0,
        sharing="exclusive",
        resources=[GPU],
        valid_from=NOW,
    )
    address = "/capacity/topology/?tab=map"
    seconds(client, address)
    if f"node-{nodes - 1:04d}" not in client.get(address).content.decode():
        raise RuntimeError(f"{address} does not show all nodes")
    return percentile95([seconds(client, address) for _ in range(_TIMES)])


def _add_pods(count: int) -> None:
    """Add bound pods like the first one until there are so many more."""
    like = Pod.objects.filter(bound_at__isnull=False).order_by("pk")[0]
    given = {
        field.attname: getattr(like, field.attname)
        for field in Pod._meta.concrete_fields
        if field.attname not in ("id", "uid", "name", "created_at")
    }
    Pod.objects.bulk_create(
        [
            Pod(uid=f"more-{number}", name=f"more-{number}", created_at=NOW, **given)
            for number in range(count)
        ],
        batch_size=1000,
    )
