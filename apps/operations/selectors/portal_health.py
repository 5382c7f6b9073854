"""How the portal itself is, for Prometheus: hours, watches, leases, deliveries, audit."""

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Count, F, Max, Min, Q, QuerySet, Value
from django.db.models.functions import Concat

from apps.accounts.models import ProcessLease
from apps.alerts.models import Delivery
from apps.clusters.domain.window import last_closed_hour
from apps.clusters.models import Cluster, WatchIssue
from apps.clusters.selectors import report
from apps.costs.models import Export, MonthlyMail
from apps.operations.domain.findings import SEVERITIES
from apps.operations.domain.series import Readings, Samples
from apps.operations.models import BEAT_LEASE, DoctorCheck, DoctorFinding, Heartbeat
from apps.operations.selectors.running import present_workers
from apps.pending.models import RefreshState
from apps.quota_requests.models import AuditCheck, Execution
from apps.usage.domain.collection import CollectionState
from apps.usage.models import HAS_FACTS, CollectionWindow

_HOUR = timedelta(hours=1)
_WEEK = timedelta(days=7)
_DAY = timedelta(days=1)


def portal_health(now: datetime) -> Readings:
    """Return the samples of the series of HEALTH. Fourteen queries."""
    # Without a check the audit is neither whole nor broken.
    checked = AuditCheck.objects.order_by("pk").first()
    heartbeat = Heartbeat.objects.aggregate(at=Max("at"))["at"]
    return {
        **_collections(now),
        **_watches(),
        **_deliveries(now),
        "gpuportal_leases": _leases(now),
        "gpuportal_queue_workers": [
            ((queue,), float(number)) for queue, number in present_workers(now).items()
        ],
        "gpuportal_doctor_findings": _findings(),
        "gpuportal_audit_holds": [((), float(checked.holds))] if checked else [],
        "gpuportal_audit_checked_timestamp_seconds": _at(checked.at if checked else None),
        "gpuportal_beat_heartbeat_timestamp_seconds": _at(heartbeat),
    }


def _at(when: datetime | None) -> Samples:
    return [] if when is None else [((), when.timestamp())]


def _collections(now: datetime) -> Readings:
    due = last_closed_hour(now, report().zone, timedelta(seconds=settings.SETTLING_SECONDS)) + _HOUR
    complete = Q(state=CollectionState.COMPLETE.value)
    recent = {
        state.value: Count("pk", filter=Q(state=state.value, hour__gte=now - _WEEK))
        for state in CollectionState
    }
    rows = (
        CollectionWindow.objects.filter(cluster__active=True)
        .order_by()
        .values(name=F("cluster__name"))
        .annotate(
            first=Min("hour"),
            facts=Max("hour", filter=HAS_FACTS),
            whole=Max("hour", filter=complete),
            **recent,
        )
    )
    found: dict[str, Any] = {row["name"]: row for row in rows}
    # A cluster of which nothing was ever asked for is late from its first due hour on.
    since = Cluster.objects.filter(active=True).order_by("name").values_list("name", "collect_from")
    lags = []
    for name, start in since:
        row = found.get(name, {})
        through = row["facts"] + _HOUR if row.get("facts") else row.get("first") or start
        if through is not None:
            lags.append(((name,), max(0.0, (due - through).total_seconds())))
    return {
        "gpuportal_cluster_last_complete_hour_timestamp_seconds": _ends(found, "whole"),
        "gpuportal_cluster_lag_seconds": lags,
        "gpuportal_collection_hours": [
            ((name, "due" if state == CollectionState.WAITING else state), float(row[state]))
            for name, row in found.items()
            for state in recent
        ],
    }


def _ends(found: dict[str, Any], of: str) -> Samples:
    return [((name,), (row[of] + _HOUR).timestamp()) for name, row in found.items() if row[of]]


def _watches() -> Readings:
    # Without an API there is nothing to watch, and no lag.
    followed = Cluster.objects.filter(active=True, kubernetes__isnull=False).order_by("name")
    until = followed.annotate(until=Max("watchcoverage__end")).values_list("name", "until")
    issues = dict(WatchIssue.objects.order_by().values_list("cluster__name").annotate(Count("pk")))
    spans = list(until)
    return {
        "gpuportal_watch_observed_until_timestamp_seconds": [
            ((name,), end.timestamp()) for name, end in spans if end is not None
        ],
        "gpuportal_watch_issues": [((name,), float(issues.get(name, 0))) for name, _ in spans],
    }


def _deliveries(now: datetime) -> Readings:
    states = Delivery.State
    recent = Q(due_at__gte=now - _DAY)
    counted = Delivery.objects.aggregate(
        queued=Count("pk", filter=Q(state=states.QUEUED)),
        given_up=Count("pk", filter=recent & Q(state=states.GIVEN_UP)),
        sent=Count("pk", filter=recent & Q(state=states.SENT)),
        oldest=Min("due_at", filter=Q(state=states.QUEUED, due_at__lte=now)),
    )
    return {
        "gpuportal_deliveries": [
            ((name.replace("_", " "),), float(counted[name]))
            for name in ("queued", "sent", "given_up")
        ],
        "gpuportal_delivery_oldest_due_timestamp_seconds": _at(counted["oldest"]),
    }


def _leases(now: datetime) -> Samples:
    # What is done may have its last lease still: only open rows can be lost.
    work: dict[str, QuerySet[Any]] = {
        "hours": CollectionWindow.objects.all(),
        "pending": RefreshState.objects.all(),
        "deliveries": Delivery.objects.filter(state=Delivery.State.QUEUED),
        "quota changes": Execution.objects.filter(end=""),
        "exports": Export.objects.filter(ended_at__isnull=True),
        "monthly mails": MonthlyMail.objects.filter(sent_at__isnull=True),
        "processes": _process_leases(),
    }
    found = []
    for name, rows in work.items():
        counted = rows.filter(lease_until__isnull=False).aggregate(
            held=Count("pk", filter=Q(lease_until__gt=now)),
            expired=Count("pk", filter=Q(lease_until__lte=now)),
        )
        found += [((name, state), float(counted[state])) for state in ("held", "expired")]
    return found


def _process_leases() -> QuerySet[ProcessLease]:
    """Return the leases of beat and of clusters that are to be watched.

    Those by which processes count each other are no work: they end with their process.
    """
    watched = Cluster.objects.filter(active=True).annotate(lease=Concat(Value("watch:"), "name"))
    return ProcessLease.objects.filter(Q(name=BEAT_LEASE) | Q(name__in=watched.values("lease")))


def _findings() -> Samples:
    """Return how many findings are open; nothing before the doctor's first visit."""
    if not DoctorCheck.objects.exists():
        return []
    rows = DoctorFinding.objects.filter(resolved_at__isnull=True).order_by()
    counts = dict(rows.values_list("severity").annotate(Count("pk")))
    return [((one.value,), float(counts.get(one.value, 0))) for one in SEVERITIES]
