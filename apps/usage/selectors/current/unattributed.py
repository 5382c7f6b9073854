"""Activity that no pod explains, by node."""

from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Q, QuerySet, Sum

from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window
from apps.usage.domain.refusals import GroupingRefused
from apps.usage.domain.rows import Filters
from apps.usage.models import NodeHour
from apps.usage.selectors.coverage_gaps import claims_before_the_watch
from apps.usage.selectors.ledger import HOURLY_DAYS
from apps.usage.selectors.sources import models_named

_LONGEST = timedelta(days=HOURLY_DAYS, hours=1)


@dataclass(frozen=True, slots=True)
class UnattributedRow:
    """What the devices of a node did in a window that no pod explains, in nano-GPU-hours.

    `within` is the part of it that lies within the node's `capacity` of the same hour: in hours of
    which nobody could tell a capacity (of devices that only claims give out, before somebody
    watched) there is nothing to take a share of. Never more than `capacity`. `before_watch` is the
    part in such hours.
    """

    cluster: str
    node: str
    unattributed: int
    capacity: int
    within: int
    before_watch: int = 0


def unattributed_by_node(
    window: Window, *, filters: Filters, visibility: Visibility, limit: int
) -> list[UnattributedRow]:
    """Return the nodes with unattributed activity in the window, the largest first. At most five
    queries.

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
        .values("cluster__name", "node__name", "node_id")
        .annotate(lost=Sum("unattributed"))
        .filter(lost__gt=0)
        .order_by("-lost", "cluster__name", "node__name")
    )
    columns = ("cluster__name", "node__name", "node_id", "lost")
    found = list(sums.values_list(*columns)[:limit])
    if not found:
        return []
    own = rows.filter(node__in=[node for _, _, node, _ in found])
    shares, untold = _shares(own), _before_the_watch(own, window)
    return [
        UnattributedRow(cluster, name, int(lost), *shares[node], untold.get(node, 0))
        for cluster, name, node, lost in found
    ]


def _before_the_watch(rows: QuerySet[NodeHour], window: Window) -> dict[int, int]:
    """Return of each node the part in hours in which only claims could tell. Three queries."""
    where = claims_before_the_watch(window)
    if where is None:
        return {}
    sums = rows.filter(where).order_by().values_list("node_id").annotate(Sum("unattributed"))
    return {node: int(lost) for node, lost in sums}


def _shares(rows: QuerySet[NodeHour]) -> dict[int, tuple[int, int]]:
    """Return of each node its capacity, and the unattributed part of it, hour by hour. One query.

    An hour of which a part of the capacity alone is told counts with that part.
    """
    by_hour = rows.order_by().values_list("node_id", "hour")
    found: dict[int, tuple[int, int]] = {}
    for node, _, lost, there in by_hour.annotate(Sum("unattributed"), Sum("capacity")):
        capacity, within = found.get(node, (0, 0))
        found[node] = (capacity + int(there), within + int(min(lost, there)))
    return found
