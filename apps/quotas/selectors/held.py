"""What is asked for and held at a moment, of each resource, by namespace."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType

import msgspec
from django.db.models import Case, Count, Q, TextField, Value, When
from django.db.models.functions import Cast

from apps.clusters.domain.resource_claims import CLAIM_KIND
from apps.clusters.models import Pod
from apps.clusters.services.unix_seconds import UnixSeconds
from apps.quotas.domain.asked import PodLives
from apps.quotas.domain.keys import IMPLICIT, Counting
from apps.quotas.domain.saturation import Life
from apps.usage.selectors.waits import there

_NAMED = 500
"""More namespaces than this are not named in a query: then all are read."""
_COLUMNS = ("cluster_id", "workload__namespace__name", "priority_class", "requests_text")


@dataclass(slots=True)
class Asked:
    """Units that are there: bound, and not bound yet."""

    held: float = 0.0
    pending: float = 0.0


@dataclass(slots=True)
class OpenPods:
    """Open pods and allocated claims, summed by what quotas look at.

    By (cluster, namespace, resource, counting), then by priority class.
    """

    asked: dict[tuple[int, str, str, Counting], dict[str, Asked]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(Asked))
    )


def open_pods(at: datetime, namespaces: Collection[str]) -> OpenPods:
    """Return what pods of active clusters ask for and hold at `at` in these namespaces.

    What claims serve is counted by the claims themselves. One query, none for no namespace.
    """
    found = OpenPods()
    if not namespaces:
        return found
    rows = Pod.objects.filter(there(at))
    if len(namespaces) <= _NAMED:
        rows = rows.filter(workload__namespace__name__in=list(namespaces))
    pods = rows.annotate(
        requests_text=Cast("requests", TextField()),
        is_claim=Case(When(workload__kind=CLAIM_KIND, then=Value(1)), default=Value(0)),
        by_claim=Case(When(claims=[], then=Value(0)), default=Value(1)),
    )
    grouped = pods.order_by().values_list(*_COLUMNS, "is_claim", "by_claim")
    sums = grouped.annotate(pods=Count("pk"), bound=Count("pk", filter=Q(bound_at__lte=at)))
    for cluster, namespace, priority, text, is_claim, by_claim, count, bound in sums:
        counting = Counting.CLAIMS if is_claim else Counting.REQUESTS
        for resource, units in amounts(text).items():
            if by_claim and not is_claim and "/" not in resource:
                continue
            name = resource.removeprefix(IMPLICIT)
            asked = found.asked[cluster, namespace, name, counting][priority]
            asked.held += units * bound
            asked.pending += units * (count - bound)
    return found


def pod_lives(at: datetime, clusters: Collection[int]) -> dict[int, PodLives]:
    """Return the pods that hold something at `at`, by cluster. One query."""
    pods = Pod.objects.filter(there(at), cluster_id__in=clusters, bound_at__lte=at)
    times = pods.exclude(workload__kind=CLAIM_KIND).annotate(
        requests_text=Cast("requests", TextField()),
        created=UnixSeconds("created_at"),
        bound=UnixSeconds("bound_at"),
    )
    rows = times.order_by("pk").values_list(
        *("cluster_id", "workload__namespace__name", "workload__kind", "workload__name"),
        *("name", "requests_text", "created", "bound"),
    )
    found: dict[int, PodLives] = defaultdict(PodLives)
    for cluster, namespace, kind, owner, name, text, created, bound in rows:
        life = Life(amounts(text), created, None, ((bound, None),))
        found[cluster].add((namespace, kind, owner), name, life)
    return found


@lru_cache(maxsize=4096)
def amounts(text: str) -> Mapping[str, float]:
    """Return resource → units of a column's text."""
    return MappingProxyType(msgspec.json.decode(text, type=dict[str, float]))
