"""What a policy simulation begins with: limits that may be changed, entitlements, idle ends."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from math import isfinite

from django.db.models import Count, ExpressionWrapper, F, FloatField, Max, Min, Q

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.domain.window import HOUR_SECONDS, Window
from apps.clusters.models import Cluster, holds_at
from apps.planning.domain.policy_change import LimitChange, Shares, TeamShare
from apps.planning.selectors.demand import RecordedDemand
from apps.quotas.domain.keys import QuotaSource
from apps.quotas.models import Entitlement
from apps.quotas.selectors import QuotaFilters, QuotaRow, every_quota_row
from apps.usage.domain.activity import QUIET_BELOW
from apps.usage.models import PodHour

OtherLimits = Mapping[tuple[str, str], Sequence[tuple[str, str, float]]]
"""By namespace and resource the name, key and amount of each limit on it."""
_REPLAYED = (QuotaSource.RESOURCE_QUOTA, QuotaSource.CLUSTER_QUEUE)


def limits_to_change(
    cluster: str, at: datetime, *, visibility: Visibility, tier: str = ""
) -> list[QuotaRow]:
    """Return the limits that a simulation can change, of what the reader sees, by team and name.

    ResourceQuotas without scopes and ClusterQueues, where they limit anything. Queries as of
    `quota_rows`.
    """
    filters = QuotaFilters(cluster=(cluster,), tier=(tier,) if tier else (), effective=True)
    rows = every_quota_row(at, filters=filters, visibility=visibility)
    found = [
        # Infinite limits hold nothing back, and scopes limit only some pods.
        row
        for row in rows
        if row.source in _REPLAYED and not row.scopes and isfinite(row.hard)
    ]
    return sorted(found, key=lambda row: (row.team or "", *row.ref))


def least_other_limits(cluster: str, at: datetime) -> OtherLimits:
    """Return the limits of namespaces that a change of one of them lies beside."""
    found: dict[tuple[str, str], list[tuple[str, str, float]]] = {}
    for row in limits_to_change(cluster, at, visibility=EVERYTHING):
        if row.namespace:
            own = found.setdefault((row.namespace, row.resource), [])
            own.append((row.name, row.key, row.hard))
    return found


def with_others(change: LimitChange, others: OtherLimits) -> LimitChange:
    """Return the change of a limit told the least of the others on the resource, if any."""
    beside = [
        amount
        for name, key, amount in others.get((change.namespace, change.resource), ())
        if (name, key) != (change.name, change.key)
    ]
    return replace(change, others=min(beside, default=None))


def team_shares(at: datetime, *, visibility: Visibility) -> Shares:
    """Return entitlement and weight by team and tier, which everybody may see. One query."""
    rows = Entitlement.objects.filter(holds_at(at), team__active=True)
    columns = ("team__name", "tier__name", "gpus", "weight")
    return {
        (team, tier): TeamShare(gpus, weight)
        for team, tier, gpus, weight in rows.order_by("pk").values_list(*columns)
    }


def idle_before_end(demand: RecordedDemand, cluster: str) -> list[float]:
    """Return for how many seconds each work did nothing until it ended, or until now. One query.

    0.0 where it was active in its last hour, or where any hour of it has no metrics.
    """
    window = demand.window
    idle_since = _idle_since(cluster, window)
    found = []
    for life in demand.lives:
        times = life.times
        ended = window.end_seconds if times.ended_at is None else times.ended_at
        since, until = idle_since.get(life.uid, (0.0, 0.0))
        # Without metrics up to its end nothing is said: it may have worked again.
        if times.started_at is None or until < min(ended, window.end_seconds):
            found.append(0.0)
        else:
            found.append(max(0.0, ended - max(since, times.started_at, window.start_seconds)))
    return found


def _idle_since(cluster: str, window: Window) -> dict[str, tuple[float, float]]:
    """Return by pod the end of its last hour that was not quiet, and that of its newest hour.

    Pods with a gap among their hours are left out: whether they were idle then is not known.
    """
    ids = Cluster.objects.filter(name=cluster).values("pk")
    ran = ExpressionWrapper(
        QUIET_BELOW * (F("idle") + F("underused") + F("busy")), output_field=FloatField()
    )
    rows = (
        PodHour.objects.filter(cluster__in=ids, hour__gte=window.start, hour__lt=window.end)
        .order_by()
        .annotate(least=ran)
        .values("pod__uid")
        .annotate(
            active=Max("hour", filter=Q(unmeasured__gt=0) | Q(busy__gt=F("least"))),
            first=Min("hour"),
            newest=Max("hour"),
            hours=Count("hour", distinct=True),
        )
    )
    found = {}
    columns = ("pod__uid", "active", "first", "newest", "hours")
    for uid, active, first, newest, hours in rows.values_list(*columns):
        # As many hours as there are from the first to the newest: then none is missing.
        if hours * HOUR_SECONDS != (newest - first).total_seconds() + HOUR_SECONDS:
            continue
        # Never active: it was idle from its first hour on.
        since = first.timestamp() if active is None else active.timestamp() + HOUR_SECONDS
        found[uid] = (since, newest.timestamp() + HOUR_SECONDS)
    return found
