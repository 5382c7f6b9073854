"""Keeping what the doctor found for the pages: what is there, and what is gone."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from apps.clusters.models import Cluster
from apps.operations.domain.findings import Finding
from apps.operations.models import DoctorCheck, DoctorFinding

POLICY_UNCHECKED = "whether a policy limits the account that changes quotas"
"""What stands among the unread where only another process can tell it."""

Judge = Callable[[str, str], bool]
"""Says of a finding's code and subject whether it is gone when it was not found again."""


def store_findings(
    found: Iterable[Finding], judges: Mapping[Cluster | None, Judge], now: datetime
) -> None:
    """Write what was found of these clusters (None: of the portal); resolve what is gone.

    To be called in a transaction.
    """
    by_name = {cluster.name if cluster else "": cluster for cluster in judges}
    by_id = {cluster.pk if cluster else None: judge for cluster, judge in judges.items()}
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
        for (cluster_id, code, subject), row in present.items()
        if cluster_id in by_id and by_id[cluster_id](code, subject)
    ]
    DoctorFinding.objects.filter(pk__in=gone).update(resolved_at=now)


def store_checks(unread: Mapping[Cluster, Sequence[str]], now: datetime) -> None:
    """Write when clusters were examined, and what could not be read of each."""
    DoctorCheck.objects.bulk_create(
        [DoctorCheck(cluster=one, at=now, unread=list(words)) for one, words in unread.items()],
        update_conflicts=True,
        unique_fields=["cluster"],
        update_fields=["at", "unread"],
    )


def unchecked_policies(clusters: Iterable[Cluster]) -> set[int]:
    """Return the clusters, by id, of which the last check could not tell the writer's policy."""
    checks = DoctorCheck.objects.filter(cluster__in=[one.pk for one in clusters])
    return {c for c, words in checks.values_list("cluster", "unread") if POLICY_UNCHECKED in words}


def note_policies(unchecked: Mapping[Cluster, bool]) -> None:
    """Write of which clusters the writer's policy could not be checked, beside what is unread."""
    known = {one.cluster_id: one for one in DoctorCheck.objects.filter(cluster__in=unchecked)}
    for cluster, missing in unchecked.items():
        if (row := known.get(cluster.pk)) is not None:
            rest = [words for words in row.unread if words != POLICY_UNCHECKED]
            row.unread = [*rest, POLICY_UNCHECKED] if missing else rest
            row.save(update_fields=["unread"])


def _keep(
    row: DoctorFinding | None, cluster: Cluster | None, finding: Finding, now: datetime
) -> None:
    row = row or DoctorFinding(
        cluster=cluster,
        code=finding.code,
        subject=finding.subject,
        # A source's clock may be ahead, and the table takes no row that ends before it begins.
        first_seen=min(finding.since or now, now),
    )
    row.severity = finding.severity.value
    row.body = finding.document()
    row.last_seen = now
    row.save()
