"""The accounts that change quotas, looked at by the worker that has their credentials."""

from collections.abc import Iterable
from datetime import datetime
from urllib.parse import quote

from django.db import transaction

from apps.clusters.domain.observed.objects import ObservedKind
from apps.clusters.gateways import ClusterClients
from apps.clusters.models import Cluster, ObservedObject
from apps.operations.domain.examine.connection import check_writer, of_writer
from apps.operations.domain.observations import ClusterObservations, MetricsObservations
from apps.operations.services.doctor.findings_store import note_policies, store_findings
from apps.operations.services.doctor.source_checks import QUEUES, WriterCheck, check_writers

DEADLINE_SECONDS = 15.0
"""An approved change is behind this check in the queue: a cluster that is away may not hold it."""


def examine_writers(
    now: datetime,
    *,
    clients: ClusterClients | None = None,
    deadline_seconds: float = DEADLINE_SECONDS,
) -> int:
    """Examine the account that changes quotas of each cluster; return how many findings there are.

    Unlike `run_doctor`, this finds credentials that are missing: the worker that changes quotas
    must have them.
    """
    clusters = list(
        Cluster.objects.filter(active=True, kubernetes__writer__isnull=False).order_by("name")
    )
    quotas = quota_paths(clusters)
    checks = [WriterCheck(one, quotas.get(one.pk, "")) for one in clusters]
    seen = check_writers(
        checks, clients=clients or ClusterClients(), deadline_seconds=deadline_seconds
    )
    told = {check.cluster: rights for check, rights in zip(checks, seen, strict=True) if rights}
    found = [
        finding
        for cluster, rights in told.items()
        for finding in check_writer(
            ClusterObservations(cluster=cluster.name, now=now, metrics=MetricsObservations()),
            rights,
        )
    ]
    with transaction.atomic():
        # All other findings of the cluster are the doctor's to judge.
        store_findings(found, dict.fromkeys(told, of_writer), now)
        note_policies({one: rights.limited is None for one, rights in told.items()})
    return len(found)


def quota_paths(clusters: Iterable[Cluster]) -> dict[int, str]:
    """Return by cluster with a writer where one of its quotas is, as `WriterCheck` takes it.

    A watched ResourceQuota, else a ClusterQueue of Kueue. One query at most.
    """
    written = [one.pk for one in clusters if (one.kubernetes or {}).get("writer")]
    kinds = (ObservedKind.CLUSTER_QUEUE.value, ObservedKind.RESOURCE_QUOTA.value)
    # The last of a cluster is taken: of ResourceQuotas, which come after ClusterQueues.
    rows = ObservedObject.objects.filter(
        cluster__in=written, kind__in=kinds, gone_at=None
    ).order_by("kind", "-namespace", "-name", "-pk")
    return {
        cluster: f"/api/v1/namespaces/{quote(namespace)}/resourcequotas/{quote(name)}"
        if kind == ObservedKind.RESOURCE_QUOTA.value
        else f"{QUEUES}{quote(name)}"
        for cluster, kind, namespace, name in rows.values_list(
            "cluster", "kind", "namespace", "name"
        )
    }
