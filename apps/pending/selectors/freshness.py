"""How fresh is what the portal knows of waiting, by cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Max

from apps.accounts.permissions import Visibility
from apps.clusters.models import Cluster
from apps.pending.selectors.known import STALE, newest_hour
from apps.pending.selectors.rows import RefreshRow

_HOUR = timedelta(hours=1)
_COLLECTED_LATE = 3 * _HOUR
"""After an hour ends its series are collected within the next: so long is too long."""
_LATE = timedelta(minutes=2)
"""A refresh comes every 15 seconds: so long without one is too long."""

_FROZEN_BY = {
    "waiting:jobs": "Job",
    "waiting:replicasets": "ReplicaSet",
    "waiting:statefulsets": "StatefulSet",
    "waiting:workloads": "Workload",
    "waiting:podgroups": "PodGroup",
}
"""Subjects of the watch's notes on collections it may not read, and what those hold."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """Until when a cluster's waiting is known; None: never was.

    `refreshed_at` is when the last refresh worked, None before one did; `waiting` how many items
    pended then; `error` what the refresh after that failed with. `tried`: anything was ever noted.
    `frozen`: kinds that may not be read any more, so that they stay as they were, since when.
    """

    as_of: datetime | None
    stale: bool
    cluster: str = ""
    refreshed_at: datetime | None = None
    waiting: int = 0
    error: str = ""
    tried: bool = False
    frozen: Mapping[str, datetime] = field(default_factory=dict)

    def is_stale(self, kind: str) -> bool:
        """Say whether what is known of things of a kind may be over."""
        return self.stale or kind in self.frozen

    def until(self, kind: str) -> datetime | None:
        """Return until when things of a kind are known; None: never were."""
        since = self.frozen.get(kind)
        return self.as_of if since is None or self.as_of is None else min(since, self.as_of)


def freshness(at: datetime) -> dict[int, Freshness]:
    """Return how fresh waiting is at `at`, by id of active clusters in order of name. One query.

    What is known of a cluster without API access comes from its metrics: as of the end of its
    last collected hour.
    """
    rows = Cluster.objects.filter(active=True).annotate(
        watched=Max("watchcoverage__end"), collected=newest_hour()
    )
    columns = ("pk", "name", "kubernetes", "watched", "collected", "refreshstate__pk")
    own = ("refreshstate__at", "refreshstate__waiting", "refreshstate__error")
    note = ("watchissue__subject", "watchissue__since")
    ordered = rows.order_by("name", "pk", "watchissue__subject")
    found: dict[int, Freshness] = {}
    # A row for each note of a cluster, and one for a cluster without any.
    for row in ordered.values_list(*columns, *own, *note, named=True):
        known = found.setdefault(row.pk, _freshness(at, row))
        kind = _FROZEN_BY.get(row.watchissue__subject)
        if kind is not None:
            frozen = {**known.frozen, kind: row.watchissue__since}
            found[row.pk] = replace(known, frozen=frozen)
    return found


def _freshness(at: datetime, row: Any) -> Freshness:
    if row.kubernetes is None:
        collected = row.collected
        proven, most = None if collected is None else collected + _HOUR, _COLLECTED_LATE
    else:
        proven, most = row.watched, STALE
    refreshed = row.refreshstate__at
    late = refreshed is None or at - refreshed > _LATE
    return Freshness(
        as_of=None if refreshed is None or proven is None else min(refreshed, proven),
        stale=late or proven is None or at - proven > most,
        cluster=row.name,
        refreshed_at=refreshed,
        waiting=row.refreshstate__waiting or 0,
        error=row.refreshstate__error or "",
        tried=row.refreshstate__pk is not None,
    )


def refresh_rows(known: Mapping[int, Freshness], *, visibility: Visibility) -> list[RefreshRow]:
    """Return how fresh waiting is of the clusters that were ever looked at, or tried to be.

    `error` is empty but for who sees how the portal runs. Adds no query.
    """
    return [
        RefreshRow(
            cluster=one.cluster,
            at=one.refreshed_at,
            as_of=one.as_of,
            stale=one.stale or bool(one.error),
            waiting=one.waiting,
            error=one.error if visibility.operations else "",
        )
        for one in known.values()
        if one.tried
    ]
