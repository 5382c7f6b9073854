"""Objectives of inference services as catalogs load them, and those in force in a window."""

from collections.abc import Collection, Iterable, Sequence

from django.conf import settings
from django.db.models import Q

from apps.accounts.domain.rows import DatedRecord, row_from
from apps.clusters.domain.pods.ledger import PodRecord
from apps.clusters.domain.serving_objectives import TtftObjectives, TtftRule
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster
from apps.clusters.services import cluster_ids, write_valid
from apps.usage.models import ServingObjective

_MATCHES = ("namespace", "workload", "model")


class ServingObjectiveRecord(DatedRecord, frozen=True):
    """A time to first token while it is the objective of what it matches; empty matches all.

    Those of lower `position` are tried first.
    """

    ttft_ms: int
    position: int
    cluster: str = ""
    namespace: str = ""
    workload: str = ""
    model: str = ""

    @property
    def match(self) -> str:
        """What it is for, in words that no other objective has at the same time."""
        named = ((name, getattr(self, name)) for name in ("cluster", *_MATCHES))
        return ", ".join(f"{name} {value}" for name, value in named if value) or "all services"


def loaded_serving_objectives() -> list[ServingObjectiveRecord]:
    """Return all objectives there ever were. One query."""
    rows = ServingObjective.objects.select_related("cluster").order_by("valid_from", "position")
    return [
        row_from(ServingObjectiveRecord, row, cluster=row.cluster.name if row.cluster else "")
        for row in rows
    ]


def write_serving_objectives(
    records: Sequence[ServingObjectiveRecord], *, withdrawn: Collection[int]
) -> None:
    """Delete the withdrawn, update the records with a pk and insert the others."""
    columns, names = ("ttft_ms", "position", *_MATCHES), {"cluster": cluster_ids}
    write_valid(ServingObjective, records, columns=columns, names=names, withdrawn=withdrawn)


def ttft_objectives(cluster: Cluster, window: Window, pods: Iterable[PodRecord]) -> TtftObjectives:
    """Return the objectives of a cluster's services that hold at any time of a window. One query.

    `pods` tell which controller a pod belongs to.
    """
    rows = ServingObjective.objects.filter(
        Q(cluster=cluster) | Q(cluster=None),
        Q(valid_to=None) | Q(valid_to__gt=window.start),
        valid_from__lt=window.end,
    )
    rules = [_rule(row) for row in rows.order_by("position", "valid_from")]
    # Most sites have none, and the pods of an hour are many.
    names_workloads = any(rule.workload for rule in rules)
    owners = {(pod.namespace, pod.name): pod.owner for pod in pods} if names_workloads else {}
    return TtftObjectives(settings.TTFT_OBJECTIVE_MS, rules, owners)


def _rule(row: ServingObjective) -> TtftRule:
    return TtftRule(
        ttft_ms=row.ttft_ms,
        start=row.valid_from.timestamp(),
        end=None if row.valid_to is None else row.valid_to.timestamp(),
        **{name: getattr(row, name) for name in _MATCHES},
    )
