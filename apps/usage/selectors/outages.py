"""Reads of planned outages: those announced, and what they took of capacity."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

from django.db.models import F, Q
from msgspec import Struct

from apps.accounts.domain.rows import row_from
from apps.accounts.permissions import Visibility
from apps.clusters.domain.columns import Column
from apps.usage.domain.amounts import NANO
from apps.usage.models import HAS_FACTS, CollectionWindow, OutageHour, PlannedOutage
from gpuportal.database_functions import WholeSum

SHOWN_FOR = timedelta(days=92)
"""Outages that ended longer ago are not listed any more."""
_MOST = 2000
_HOUR = timedelta(hours=1)


class OutageState(StrEnum):
    PLANNED = "planned"
    RUNNING = "running"
    OVER = "over"
    CANCELED = "canceled"


class OutageRow(Struct, frozen=True):
    """An announced outage of a node; `gpu_hours` is what it took so far, None before any hour."""

    number: Annotated[int, Column("Number")]
    cluster: Annotated[str, Column("Cluster")]
    node: Annotated[str | None, Column("Node", admin=True)]
    start: Annotated[datetime, Column("Start")]
    end: Annotated[datetime, Column("End")]
    state: Annotated[OutageState, Column("State", values=OutageState)]
    purpose: Annotated[str, Column("Purpose", help="What it was announced for.")]
    gpu_hours: Annotated[
        float | None,
        Column(
            *(
                "Capacity away",
                "GPU-h",
                "Not allocated in its hours, as far as they are collected.",
            ),
            api_note="Null before an hour of it is collected.",
        ),
    ]
    author: Annotated[str | None, Column("Announced by", admin=True)]


def outage_rows(
    *, now: datetime, visibility: Visibility, clusters: Sequence[str] = ()
) -> list[OutageRow]:
    """Return the outages that are announced and those of the last 92 days, the latest start first.

    Everybody sees when capacity is away; nodes are for who sees how the clusters run. Three
    queries.
    """
    rows = PlannedOutage.objects.filter(cluster__active=True, end__gt=now - SHOWN_FOR)
    if clusters:
        rows = rows.filter(cluster__name__in=clusters)
    found = list(rows.select_related("cluster").order_by("-start", "cluster__name", "pk")[:_MOST])
    taken = _taken(found)
    return [
        row_from(
            OutageRow,
            row,
            number=row.pk,
            cluster=row.cluster.name,
            node=row.node_name if visibility.operations else None,
            state=_state(row, now),
            gpu_hours=taken.get(row.pk),
            author=row.author if visibility.operations else None,
        )
        for row in found
    ]


def _state(row: PlannedOutage, now: datetime) -> OutageState:
    if row.canceled:
        return OutageState.CANCELED
    if row.end <= now:
        return OutageState.OVER
    return OutageState.RUNNING if row.start <= now else OutageState.PLANNED


def _taken(rows: Sequence[PlannedOutage]) -> dict[int, float]:
    """Return the GPU-hours that each outage took; an hour that two share counts for both."""
    counted = [row for row in rows if not row.canceled]
    if not counted:
        return {}
    span = Q(
        cluster__in={row.cluster_id for row in counted},
        hour__gt=min(row.start for row in counted) - _HOUR,
        hour__lt=max(row.end for row in counted),
    )
    collected: dict[int, list[datetime]] = defaultdict(list)
    windows = CollectionWindow.objects.filter(HAS_FACTS, span).order_by()
    for cluster, hour in windows.values_list("cluster_id", "hour"):
        collected[cluster].append(hour)
    taken: dict[tuple[int, str], dict[datetime, int]] = defaultdict(dict)
    sums = OutageHour.objects.filter(span).order_by().values("cluster_id", "node__name", "hour")
    for cluster, node, hour, amount in sums.annotate(
        amount=WholeSum(F("unhealthy") + F("unallocated"))
    ).values_list("cluster_id", "node__name", "hour", "amount"):
        taken[cluster, node][hour] = amount
    found = {}
    for row in counted:
        own = taken[row.cluster_id, row.node_name]
        # Fact hours may begin at :30, so that an outage touches those from an hour before it on.
        hours = [at for at in collected[row.cluster_id] if row.start - _HOUR < at < row.end]
        if hours:
            found[row.pk] = sum(own.get(at, 0) for at in hours) / NANO
    return found
