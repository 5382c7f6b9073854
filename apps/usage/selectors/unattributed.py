"""Activity that no pod explains, by node."""

from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Q, Sum

from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window
from apps.usage.domain.rows import Filters
from apps.usage.models import NodeHour
from apps.usage.selectors.ledger import HOURLY_DAYS
from apps.usage.selectors.refusals import GroupingRefused
from apps.usage.selectors.sources import models_named

_LONGEST = timedelta(days=HOURLY_DAYS, hours=1)


@dataclass(frozen=True, slots=True)
class UnattributedRow:
    """What the devices of a node did in a window that no pod explains, in nano-GPU-hours."""

    cluster: str
    node: str
    unattributed: int
    capacity: int


def unattributed_by_node(
    window: Window, *, filters: Filters, visibility: Visibility, limit: int
) -> list[UnattributedRow]:
    """Return the nodes with unattributed activity in the window, the largest first. One query.

    Of `filters` cluster, tier, GPU model, capacity type and node count. For who sees everything;
    nothing for others: it is on nobody's account. Raises GroupingRefused for a window that is
    longer than hourly rows can be had for.
    """
    if not visibility.everything:
        return []
    if window.end - window.start > _LONGEST:
        raise GroupingRefused(
            f"nodes are kept by the hour and can be had for at most {HOURLY_DAYS} days at a time"
        )
    rows = NodeHour.objects.filter(
        cluster__active=True, hour__gte=window.start, hour__lt=window.end
    )
    for name, path in (
        ("cluster", "cluster__name"),
        ("tier", "tier__name"),
        ("capacity_type", "capacity_type"),
        ("node", "node__name"),
    ):
        if wanted := getattr(filters, name):
            rows = rows.filter(**{f"{path}__in": wanted})
    if filters.gpu_model:
        rows = rows.filter(Q(gpu_model_id__in=models_named(filters.gpu_model)))
    sums = (
        rows.order_by()
        .values("cluster__name", "node__name")
        .annotate(lost=Sum("unattributed"), there=Sum("capacity"))
        .filter(lost__gt=0)
        .order_by("-lost", "cluster__name", "node__name")
    )
    return [
        UnattributedRow(cluster, node, int(lost), int(there))
        for cluster, node, lost, there in sums.values_list(
            "cluster__name", "node__name", "lost", "there"
        )[:limit]
    ]
