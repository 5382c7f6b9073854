"""Series that the portal exports about itself and its data: name, help and labels, each once."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

Samples = Sequence[tuple[tuple[str, ...], float]]
"""Values by the values of a series' labels. What is not known is not there: it is never 0."""
Readings = Mapping[str, Samples]
"""Samples by the name of their series."""


class Series(Struct, frozen=True):
    """A gauge; `help` is one sentence for Prometheus and for docs/how-to/monitor.md."""

    name: str
    help: str
    labels: tuple[str, ...] = ()


_CLUSTER = ("cluster",)
# The names are a contract with rules and dashboards, first of all those of `alert_rules`.
HEALTH = (
    Series(
        "gpuportal_cluster_last_complete_hour_timestamp_seconds",
        "End of the newest hour of a cluster that is complete.",
        _CLUSTER,
    ),
    Series(
        "gpuportal_cluster_lag_seconds",
        "By how much a cluster's facts are behind the newest hour that is due; 0 when they are not."
        " Before the first facts counted from the first hour asked for.",
        _CLUSTER,
    ),
    Series(
        "gpuportal_collection_hours",
        "Hours of the last 7 days by state: due, complete, partial, failed.",
        ("cluster", "state"),
    ),
    Series(
        "gpuportal_watch_observed_until_timestamp_seconds",
        "Until when the watch saw every change of a cluster's pods and nodes.",
        _CLUSTER,
    ),
    Series(
        "gpuportal_watch_issues",
        "Collections that the watch may not read or that do not answer.",
        _CLUSTER,
    ),
    Series(
        "gpuportal_leases",
        "Rows that a process works on: held, or expired because that process is gone.",
        ("work", "state"),
    ),
    Series(
        "gpuportal_queue_workers",
        "Workers that take from a queue, by their heartbeat of the last 90 seconds.",
        ("queue",),
    ),
    Series(
        "gpuportal_deliveries",
        "Alerts on their way to channels (queued), and those due in the last 24 hours by outcome.",
        ("state",),
    ),
    Series(
        "gpuportal_delivery_oldest_due_timestamp_seconds",
        "When the oldest alert that is not delivered yet was due; absent when none is late.",
    ),
    Series("gpuportal_audit_holds", "1 when the last check found the audit whole, else 0."),
    Series("gpuportal_audit_checked_timestamp_seconds", "When the audit was last checked."),
    Series("gpuportal_doctor_findings", "Open findings of the doctor, by severity.", ("severity",)),
    Series(
        "gpuportal_beat_heartbeat_timestamp_seconds",
        "When a worker carried out the newest task of beat: old when beat, broker or worker "
        "stand still.",
    ),
)
QUEUES = (
    Series("gpuportal_queue_messages", "Tasks in a Celery queue.", ("queue",)),
    Series(
        "gpuportal_queue_oldest_message_timestamp_seconds",
        "When the oldest task of a queue was sent; absent when the queue is empty.",
        ("queue",),
    ),
)
SCRAPE = (
    Series(
        "gpuportal_scrape_source_ok",
        "1 when what these series are read from answered, else 0 and they are absent.",
        ("source",),
    ),
    Series(
        "gpuportal_scrape_samples_left_out",
        "Samples beyond 10,000 of a series, which are left out: too many teams and tiers.",
        ("source",),
    ),
    Series("gpuportal_scrape_source_seconds", "How long the last reading took.", ("source",)),
)
