"""What teams hold and wait for at a moment."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q, Sum

from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window
from apps.clusters.models import Pod
from apps.clusters.selectors import team_spans
from apps.usage.selectors.current.pending import there

_INSTANT = timedelta(seconds=1)


@dataclass(slots=True)
class AllocatedGpus:
    """GPU-equivalents of the pods of a team on a tier: bound, and not bound yet."""

    held: float = 0.0
    waiting: float = 0.0


def held_now(at: datetime, *, visibility: Visibility) -> dict[tuple[str, str], AllocatedGpus]:
    """Return what is held and waited for at `at` by (team, tier), on all clusters together.

    Sums of GPUs at the level of a team, which everybody may see: `visibility` narrows nothing.
    Pods whose tier is not known are left out. Three queries.
    """
    rows = _pods_by_namespace(at)
    spans = team_spans(Window(at, at + _INSTANT), {row[0] for row in rows})
    found: dict[tuple[str, str], AllocatedGpus] = defaultdict(AllocatedGpus)
    for namespace, tier, held, waiting in rows:
        sums = found[spans[namespace][0].team, tier]
        sums.held += held or 0.0
        sums.waiting += waiting or 0.0
    return dict(found)


def _pods_by_namespace(at: datetime) -> list[Any]:
    """Return (namespace, tier, held, waiting) of the pods that are there at `at`.

    What ResourceClaims hold is counted by their own rows, once for all pods that use one.
    """
    pods = Pod.objects.filter(there(at), tier__isnull=False)
    bound = Q(bound_at__lte=at, claims=[])
    waits = Q(bound_at__isnull=True) | Q(bound_at__gt=at)
    grouped = pods.order_by().values("workload__namespace__name", "tier__name")
    sums = grouped.annotate(
        held=Sum("gpu_equivalents", filter=bound), waiting=Sum("gpu_equivalents", filter=waits)
    )
    return list(sums.values_list("workload__namespace__name", "tier__name", "held", "waiting"))
