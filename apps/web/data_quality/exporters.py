"""How exporters show themselves, what changed, and what their families cannot tell."""

from collections.abc import Sequence
from dataclasses import dataclass

from apps.clusters.domain.devices.exporter_profile import VENDOR_LIMITS, JobProfile, VirtualGpus
from apps.usage.selectors import ExporterHistory
from apps.web.components.formats import Format, Value, shown
from apps.web.components.tables import Column, Table, TableRow
from apps.web.query_session import QuerySession


@dataclass(frozen=True, slots=True)
class ExporterNote:
    """A change of a cluster's exporters, or what those of a family cannot tell."""

    cluster: str
    at: str
    lines: tuple[str, ...]


def exporters_table(histories: Sequence[ExporterHistory], reading: QuerySession) -> Table:
    """Return one line for each scrape job that exports devices, as it was last seen."""
    return Table(
        id="exporters",
        title="GPU exporters",
        columns=[
            Column("cluster", "Cluster"),
            Column("job", "Scrape job"),
            Column("family", "Family"),
            Column("generation", "Release"),
            Column("workload_labels", "Pods named by", hint="the label that names the pod"),
            Column("node_labels", "Nodes named by"),
            Column("shared_cards", "Shared GPUs", wraps=True),
            Column("activity_metrics", "Activity from", wraps=True),
            Column("also", "Also", wraps=True),
            Column("seen_at", "Last seen", Format.TIME),
        ],
        rows=[
            TableRow(_line(history, job)) for history in histories for job in history.profile.jobs
        ],
        zone=reading.choice.zone,
        empty="No exporter was seen yet: hours say here how their devices were exported.",
    )


def _line(history: ExporterHistory, job: JobProfile) -> dict[str, Value]:
    metrics = dict.fromkeys(metric for _, some in job.activity_metrics for metric in some)
    return {
        "cluster": history.cluster,
        "job": job.job,
        "family": job.family.value,
        "generation": job.generation.value,
        "workload_labels": job.workload_labels.value,
        "node_labels": ", ".join(job.node_labels) or "–",
        "shared_cards": "" if job.virtual_gpus is VirtualGpus.NONE else job.virtual_gpus.value,
        "activity_metrics": ", ".join(metrics) or "none",
        "also": ", ".join(_also(job)),
        "seen_at": history.seen,
    }


def _also(job: JobProfile) -> list[str]:
    found = []
    if job.mig:
        found.append("MIG devices")
    if job.dra_labels:
        found.append("claims of DRA")
    if job.pod_uid:
        found.append("pods' uids")
    found += [f"{metric} in another unit" for metric in job.rescaled]
    if not job.memory_metric:
        found.append("no memory")
    if not job.energy_metric:
        found.append("no energy")
    return found


def exporter_changes(
    histories: Sequence[ExporterHistory], reading: QuerySession
) -> list[ExporterNote]:
    """Return what changed within the reading's window, newest first."""
    return [
        ExporterNote(
            history.cluster, str(shown(change.hour, Format.TIME, reading.choice.zone)), change.what
        )
        for history in histories
        for change in history.changes
        if reading.window.start <= change.hour < reading.window.end
    ]


def exporter_limits(histories: Sequence[ExporterHistory]) -> list[ExporterNote]:
    """Return what cannot be told of the exporters there are, by family."""
    families = dict.fromkeys(family for one in histories for family in one.profile.families)
    return [
        ExporterNote("", family.value, VENDOR_LIMITS[family])
        for family in families
        if VENDOR_LIMITS.get(family)
    ]
