"""What the pod ledger knows of a pod by its name."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window
from apps.clusters.models import Pod
from apps.clusters.selectors import team_spans

_MOST = 10


@dataclass(frozen=True, slots=True)
class PodKnown:
    """A pod of the ledger; the times are None where it did not happen yet."""

    cluster: str
    namespace: str
    name: str
    created_at: datetime
    bound_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None


def pods_called(
    namespace: str, name: str, *, at: datetime, visibility: Visibility, cluster: str = ""
) -> list[PodKnown]:
    """Return the pods of this name, or of a controller of this name, newest first, at most 10.

    Only of namespaces whose team at `at` the reader sees. Three queries.
    """
    (span, *_) = team_spans(Window(at, at + timedelta(seconds=1)), {namespace})[namespace]
    if not visibility.sees(span.team_id):
        return []
    rows = Pod.objects.filter(
        Q(name=name) | Q(workload__name=name), workload__namespace__name=namespace
    )
    if cluster:
        rows = rows.filter(cluster__name=cluster)
    columns = ("cluster__name", "workload__namespace__name", "name")
    times = ("created_at", "bound_at", "started_at", "ended_at")
    return [
        PodKnown(*row)
        for row in rows.order_by("-created_at", "pk").values_list(*columns, *times)[:_MOST]
    ]
