"""The doctor: look at every cluster, find what is wrong, and keep it for the pages."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Max

from apps.clusters.domain.devices.exporter_profile import ExporterProfile, differences, with_earlier
from apps.clusters.domain.tiers import TierRule
from apps.clusters.gateways import ClusterClients
from apps.clusters.models import Cluster
from apps.clusters.selectors import DEFAULT_SCRAPE_INTERVAL_SECONDS
from apps.clusters.services import tier_rules_at
from apps.operations.domain.examine import examine
from apps.operations.domain.findings import Finding, Severity, worst_first
from apps.operations.domain.observations import ClusterObservations, MetricsObservations
from apps.operations.models import DoctorCheck, DoctorFinding, SeenExporters
from apps.operations.services.doctor.history import allowed_teams, history_of, tiers_of_others
from apps.operations.services.doctor.source_checks import (
    DEADLINE_SECONDS,
    SourceAnswers,
    check_sources,
)
from apps.operations.services.heartbeats import overdue_work
from apps.quota_requests.permissions import portal
from apps.quota_requests.selectors import last_audit_check

CHANGE_SHOWN = timedelta(days=7)
# What can be said while Prometheus does not answer. Other findings stay as they were last seen.
_WITHOUT_METRICS = (
    *("prometheus-", "api-", "rbac-", "owners-", "slices-", "watch-", "hours-"),
    *("writer-", "rights-"),
)


class UnknownCluster(Exception):
    """No active cluster of that name is in the catalog."""


@dataclass(frozen=True, slots=True)
class ExaminedCluster:
    """A cluster that was looked at; versions are empty where a source did not answer."""

    cluster: str
    prometheus: str
    kubernetes: str | None
    devices: int
    unasked: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the doctor found, the worst first, and what it looked at."""

    at: datetime
    clusters: tuple[ExaminedCluster, ...]
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> int:
        return sum(finding.severity is Severity.ERROR for finding in self.findings)


def run_doctor(
    now: datetime,
    *,
    cluster: str | None = None,
    clients: ClusterClients | None = None,
    deadline_seconds: float = DEADLINE_SECONDS,
) -> Diagnosis:
    """Examine the clusters of the catalog, or one of them, and store what was found.

    Sources are asked without a transaction; what is found is stored in one. Raises UnknownCluster.
    """
    chosen = Cluster.objects.filter(active=True).order_by("name")
    if cluster is not None:
        chosen = chosen.filter(name=cluster)
        if not chosen.exists():
            raise UnknownCluster(f"no cluster {cluster!r} in the catalog")
    clusters = list(chosen.annotate(watched=Max("watchcoverage__end")))
    rules = tier_rules_at(now)
    seen = check_sources(
        [(one, rules) for one in clusters],
        clients=clients or ClusterClients(),
        now=now,
        deadline_seconds=deadline_seconds,
    )
    allowed = allowed_teams(now)
    elsewhere = frozenset() if cluster is None else tiers_of_others(cluster, now)
    observed_clusters = [
        replace(_observations(one, of, rules, now), allowed=allowed, tiers_elsewhere=elsewhere)
        for one, of in zip(clusters, seen, strict=True)
    ]
    found = examine(observed_clusters)
    if cluster is None and not clusters:
        found = worst_first([*found, _nothing_loaded()])
    if cluster is None:
        found = worst_first([*found, *_audit(), *overdue_work(now)])
    _store(clusters, observed_clusters, found, now, everything=cluster is None)
    return Diagnosis(
        now, tuple(_examined(observed) for observed in observed_clusters), tuple(found)
    )


def _observations(
    cluster: Cluster, seen: SourceAnswers, rules: Sequence[TierRule], now: datetime
) -> ClusterObservations:
    api = seen.api and replace(seen.api, watched_until=cluster.watched)  # type: ignore[attr-defined]
    return ClusterObservations(
        cluster=cluster.name,
        now=now,
        metrics=_with_changes(cluster, seen.metrics, now),
        api=api,
        past=history_of(cluster, now, rules, seen.pods, seen.metrics.nodes),
        rules=rules,
        catalog_interval_seconds=float(
            cluster.prometheus.get("scrape_interval_seconds") or DEFAULT_SCRAPE_INTERVAL_SECONDS
        ),
    )


def _with_changes(
    cluster: Cluster, metrics: MetricsObservations, now: datetime
) -> MetricsObservations:
    """Hold the exporters against how they showed themselves before; note what is different."""
    known = SeenExporters.objects.filter(cluster=cluster).first()
    # A profile without jobs is an outage, not a change of exporters.
    if metrics.profile.jobs:
        before = ExporterProfile.from_json(known.profile) if known else metrics.profile
        after = with_earlier(before, metrics.profile)
        changes = differences(before, after)
        values: dict[str, object] = {"profile": after.as_json()}
        if changes:
            values |= {"changes": changes, "changed_at": now}
        if known is None or changes or known.profile != values["profile"]:
            known, _ = SeenExporters.objects.update_or_create(cluster=cluster, defaults=values)
    if known is None or known.changed_at is None or now - known.changed_at > CHANGE_SHOWN:
        return metrics
    return replace(metrics, changes=tuple(known.changes), changed_at=known.changed_at)


def _nothing_loaded() -> Finding:
    return Finding(
        "catalog-empty",
        "",
        "",
        "No cluster is in the catalog: there is nothing to show and nothing to examine.",
        "python manage.py load_catalog catalog.yaml    # docs/catalog.md has an example",
    )


def _audit() -> Iterator[Finding]:
    """Yield that the audit does not hold, as its last check found."""
    last = last_audit_check(portal())
    if last is None or last.holds:
        return
    yield Finding(
        "audit-broken",
        "",
        "",
        last.words,
        "python manage.py verify_audit    # then docs/how-to/doctor.md#audit-broken",
        since=last.at,
    )


def _examined(observed: ClusterObservations) -> ExaminedCluster:
    return ExaminedCluster(
        cluster=observed.cluster,
        prometheus=observed.metrics.version,
        kubernetes=None if observed.api is None else observed.api.version,
        devices=len(observed.metrics.cards),
        unasked=(*observed.metrics.unasked, *_unread(observed)),
    )


def _unread(observed: ClusterObservations) -> tuple[str, ...]:
    """Return the unreadable collections: where quotas cannot be read, none counts as missing."""
    return ("quotas of namespaces",) if observed.measured and observed.quotas is None else ()


# ---------------------------------------------------------------- storing


def _store(
    clusters: Sequence[Cluster],
    observed_clusters: Sequence[ClusterObservations],
    found: Sequence[Finding],
    now: datetime,
    *,
    everything: bool,
) -> None:
    """Write what was found; what is not found any more is resolved, where that can be told."""
    by_name: dict[str, Cluster | None] = {one.name: one for one in clusters}
    judged: dict[int | None, Callable[[str], bool]] = {
        one.pk: _judges(observed) for one, observed in zip(clusters, observed_clusters, strict=True)
    }
    if everything:
        by_name[""] = None
        judged[None] = lambda _code: True
    checks = [
        DoctorCheck(cluster=one, at=now, unread=list(_examined(observed).unasked))
        for one, observed in zip(clusters, observed_clusters, strict=True)
    ]
    with transaction.atomic():
        if checks:
            DoctorCheck.objects.bulk_create(
                checks,
                update_conflicts=True,
                unique_fields=["cluster"],
                update_fields=["at", "unread"],
            )
        # Locked: beat and a command may examine at once, and must not open one finding twice.
        present = {
            (row.cluster_id, row.code, row.subject): row
            for row in DoctorFinding.objects.select_for_update()
            .filter(resolved_at__isnull=True)
            .order_by("pk")
        }
        for finding in found:
            cluster = by_name[finding.cluster]
            key = (cluster.pk if cluster else None, finding.code, finding.subject)
            _keep(present.pop(key, None), cluster, finding, now)
        gone = [
            row.pk
            for (cluster_id, code, _), row in present.items()
            if cluster_id in judged and judged[cluster_id](code)
        ]
        DoctorFinding.objects.filter(pk__in=gone).update(resolved_at=now)


def _judges(observed: ClusterObservations) -> Callable[[str], bool]:
    """Return a test of which kinds of finding are gone, as far as the sources answered."""
    if observed.measured:
        return lambda _code: True
    return lambda code: code.startswith(_WITHOUT_METRICS)


def _keep(
    row: DoctorFinding | None, cluster: Cluster | None, finding: Finding, now: datetime
) -> None:
    row = row or DoctorFinding(
        cluster=cluster,
        code=finding.code,
        subject=finding.subject,
        first_seen=min(finding.since or now, now),
    )
    row.severity = finding.severity.value
    row.body = finding.document()
    row.last_seen = now
    row.save()
