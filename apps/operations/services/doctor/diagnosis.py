"""The doctor: look at every cluster, find what is wrong, and keep it for the pages."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain

from django.db import transaction
from django.db.models import Max
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.exporter_profile import ExporterProfile, differences, with_earlier
from apps.clusters.domain.resources import counted
from apps.clusters.domain.tiers import TierRule
from apps.clusters.gateways import ClusterClients
from apps.clusters.models import Cluster
from apps.clusters.selectors import DEFAULT_SCRAPE_INTERVAL_SECONDS
from apps.clusters.services import tier_rules_at
from apps.operations.adapters.task_queues import BrokerUnavailable, queue_depths
from apps.operations.domain.examine import examine
from apps.operations.domain.examine.connection import of_writer
from apps.operations.domain.examine.topology import without_policy
from apps.operations.domain.findings import Finding, Severity, worst_first
from apps.operations.domain.observations import ClusterObservations, MetricsObservations
from apps.operations.models import SeenExporters
from apps.operations.services.doctor.findings_store import (
    POLICY_UNCHECKED,
    Judge,
    store_checks,
    store_findings,
    unchecked_policies,
)
from apps.operations.services.doctor.history import allowed_teams, history_of, tiers_of_others
from apps.operations.services.doctor.job_logs import UNAVAILABLE, job_log_findings
from apps.operations.services.doctor.replica import replica_findings
from apps.operations.services.doctor.source_checks import (
    DEADLINE_SECONDS,
    SourceAnswers,
    WriterCheck,
    check_sources,
)
from apps.operations.services.doctor.writers import quota_paths
from apps.operations.services.heartbeats import overdue_work, silent_queues
from apps.quota_requests.permissions import portal
from apps.quota_requests.selectors import last_audit_check

logger = logging.getLogger(__name__)

CHANGE_SHOWN = timedelta(days=7)
# What can be said while Prometheus does not answer. Other findings stay as they were last seen.
_WITHOUT_METRICS = (
    *("prometheus-", "api-", "rbac-", "owners-", "slices-", "watch-", "hours-"),
    *("writer-", "rights-"),
)


class UnknownCluster(Exception):
    """No active cluster of that name is in the catalog."""


class ExaminedCluster(Struct, frozen=True):
    """A cluster that was looked at; versions are empty where a source did not answer."""

    cluster: str
    prometheus: str
    kubernetes: str | None
    devices: int
    unasked: tuple[str, ...]


class Diagnosis(Struct, frozen=True):
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
    chosen_clients = clients or ClusterClients()
    there = list(chosen.annotate(watched=Max("watchcoverage__end")))
    # A job log has neither exporters nor an API: it is looked at by itself.
    logs: dict[Cluster, Sequence[Finding]] = {
        one: job_log_findings(one, chosen_clients, now) for one in there if one.slurm
    }
    clusters = [one for one in there if not one.slurm]
    rules = tier_rules_at(now)
    quotas = quota_paths(clusters)
    seen = check_sources(
        [(WriterCheck(one, quotas.get(one.pk, "")), rules) for one in clusters],
        clients=chosen_clients,
        now=now,
        deadline_seconds=deadline_seconds,
    )
    allowed = allowed_teams(now)
    # Clusters examined together know each other's tiers; of one alone the database tells.
    elsewhere = frozenset() if cluster is None else tiers_of_others(cluster, now)
    observed_clusters = [
        replace(_observations(one, of, rules, now), allowed=allowed, tiers_elsewhere=elsewhere)
        for one, of in zip(clusters, seen, strict=True)
    ]
    found = worst_first([*examine(observed_clusters), *chain.from_iterable(logs.values())])
    if cluster is None and not there:
        found = worst_first([*found, _nothing_loaded()])
    if cluster is None:
        # What is of no cluster is judged only when all of them are examined.
        of_portal = (*_audit(), *overdue_work(now), *_silent(now), *replica_findings(now))
        found = worst_first([*found, *of_portal])
    _store(clusters, observed_clusters, found, now, logs=logs, everything=cluster is None)
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


def _silent(now: datetime) -> Iterator[Finding]:
    """Yield the queues that no worker takes from; nothing where the broker does not answer."""
    try:
        depths = queue_depths()
    except BrokerUnavailable as error:
        logger.warning("the broker does not tell of its queues: %s", error)
        return
    yield from silent_queues(depths, now)


def _examined(observed: ClusterObservations) -> ExaminedCluster:
    return ExaminedCluster(
        cluster=observed.cluster,
        prometheus=observed.metrics.version,
        kubernetes=None if observed.api is None else observed.api.version,
        devices=len(observed.metrics.devices),
        unasked=(*observed.metrics.unasked, *_unread(observed), *_elsewhere(observed)),
    )


def _unread(observed: ClusterObservations) -> tuple[str, ...]:
    """Return the unreadable collections: where quotas cannot be read, none counts as missing."""
    found = []
    if observed.measured and observed.quotas is None:
        found.append("quotas of namespaces")
    if nodes := without_policy(observed):
        count = counted(len(nodes), "multi-GPU node")
        found.append(f"Topology Manager of {count} (no NodeResourceTopology names its policy)")
    writer = observed.api.writer if observed.api else None
    if writer and not writer.trouble and writer.limited is None:
        found.append(POLICY_UNCHECKED)
    return tuple(found)


def _elsewhere(observed: ClusterObservations) -> tuple[str, ...]:
    """Return the accounts that this process does not have; others look at them."""
    named = sorted(observed.api.elsewhere) if observed.api else ()
    return tuple(f"the {one} account (this process has no credentials of it)" for one in named)


def _store(
    clusters: Sequence[Cluster],
    observed_clusters: Sequence[ClusterObservations],
    found: Sequence[Finding],
    now: datetime,
    *,
    logs: Mapping[Cluster, Sequence[Finding]],
    everything: bool,
) -> None:
    """Write what was found; what is not found any more is resolved, where that can be told."""
    pairs = list(zip(clusters, observed_clusters, strict=True))
    judges: dict[Cluster | None, Judge] = {one: _judges(observed) for one, observed in pairs}
    for one, of in logs.items():
        judges[one] = _judges_of_log(is_told=all(f.code != UNAVAILABLE for f in of))
    if everything:
        judges[None] = lambda _code, _subject: True
    with transaction.atomic():
        told = unchecked_policies(
            one for one, of in pairs if of.api and "writer" in of.api.elsewhere
        )
        unread = {
            one: [
                *(*observed.metrics.unasked, *_unread(observed)),
                *([POLICY_UNCHECKED] if one.pk in told else ()),
            ]
            for one, observed in pairs
        }
        store_checks(unread | {one: [] for one in logs}, now)
        store_findings(found, judges, now)


def _judges_of_log(*, is_told: bool) -> Judge:
    """Return a test of which findings are gone; of a log that tells nothing, all others stay."""
    return lambda code, _subject: is_told or code == UNAVAILABLE


def _judges(observed: ClusterObservations) -> Judge:
    """Return a test of which findings are gone, as far as the sources answered."""
    elsewhere = observed.api.elsewhere if observed.api else frozenset()

    def gone(code: str, subject: str) -> bool:
        if "writer" in elsewhere and of_writer(code, subject):
            return False
        # Not told by a process that does not have the account: others judge these.
        if "reader" in elsewhere and code in {"rights-too-many", "credentials-ending"}:
            return False
        return observed.measured or code.startswith(_WITHOUT_METRICS)

    return gone
