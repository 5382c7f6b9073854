"""Alerts about the portal itself, which its own alerts cannot tell: these need beat and a worker.

All look at series of `domain.series` and `gpuportal.telemetry.metrics`. Several web pods tell the
same of the whole portal, so `max by` comes first.
"""

from typing import Any

from apps.operations.domain.alert_rule import alert

_HEARTBEAT = "gpuportal_beat_heartbeat_timestamp_seconds"
_EXCLUSIVE = 'gpuportal_tier_queue_time_seconds{sharing="exclusive",quantile="0.95"}'


def portal_group() -> dict[str, Any]:
    """Return the group of rules about the portal."""
    rules = [*_switches(), *_data(), *_tasks(), *_people(), _queue_time()]
    return {"name": "gpuportal-portal", "interval": "1m", "rules": rules}


def _switches() -> list[dict[str, Any]]:
    return [
        alert(
            "GpuportalWatchdog",
            "vector(1)",
            "0m",
            "none",
            "Prometheus and Alertmanager work",
            "This alert always goes off. Route it to a service that tells you when it stops.",
        ),
        alert(
            "GpuportalNotScraped",
            "absent(gpuportal_scrape_source_ok)",
            "5m",
            "critical",
            "Prometheus has no series of the portal",
            "No web process answers /metrics: the portal is down, or is not scraped.",
        ),
        alert(
            "GpuportalHeartbeatLost",
            f"(time() - max({_HEARTBEAT})) > 180 or absent({_HEARTBEAT})",
            "2m",
            "critical",
            "The portal's beat, broker or workers stand still",
            "No task of beat has been carried out for minutes: nothing is collected, applied or "
            "reported. See the processes beat and worker, and the broker.",
        ),
        alert(
            "GpuportalSourceUnread",
            "max by (source) (gpuportal_scrape_source_ok) == 0",
            "10m",
            "warning",
            "Series of the portal cannot be read",
            "The portal cannot read its series of {{ $labels.source }}: see the log of web. Other "
            "alerts about them are silent until then.",
        ),
    ]


def _data() -> list[dict[str, Any]]:
    return [
        alert(
            "GpuportalHoursLate",
            "max by (cluster) (gpuportal_cluster_lag_seconds) >= 7200",
            "10m",
            "warning",
            "The data of a cluster is late",
            "Facts of {{ $labels.cluster }} are {{ $value | humanizeDuration }} behind. Data "
            "quality and manage.py doctor say why.",
        ),
        alert(
            "GpuportalHoursFailed",
            'max by (cluster) (gpuportal_collection_hours{state="failed"}) > 0',
            "1h",
            "warning",
            "Hours of a cluster failed",
            "{{ $value }} hours of {{ $labels.cluster }} failed in the last 7 days.",
        ),
        alert(
            "GpuportalWatchBehind",
            "(time() - max by (cluster) (gpuportal_watch_observed_until_timestamp_seconds)) > 300",
            "5m",
            "warning",
            "A cluster is not watched",
            "The watch has not seen {{ $labels.cluster }} for {{ $value | humanizeDuration }}: "
            "times of pods become estimates.",
        ),
        alert(
            "GpuportalNeverWatched",
            # The first is there of each cluster that is to be watched, the second once it was.
            "max by (cluster) (gpuportal_watch_issues) unless on (cluster) "
            "max by (cluster) (gpuportal_watch_observed_until_timestamp_seconds)",
            "15m",
            "warning",
            "A cluster was never watched",
            "The watch has not seen {{ $labels.cluster }} since it is in the catalog: see the log "
            "of watch.",
        ),
        alert(
            "GpuportalAuditBroken",
            "min(gpuportal_audit_holds) == 0",
            "0m",
            "critical",
            "The audit of the portal does not hold",
            "A line of the audit was changed or is missing: run manage.py verify_audit.",
        ),
    ]


def _tasks() -> list[dict[str, Any]]:
    return [
        alert(
            "GpuportalQueueStands",
            # A backfill is behind everything else, and may take days.
            "(time() - max by (queue) "
            '(gpuportal_queue_oldest_message_timestamp_seconds{queue!="backfill"})) > 900',
            "5m",
            "warning",
            "Tasks of the portal stay in their queue",
            "The oldest task of {{ $labels.queue }} was sent {{ $value | humanizeDuration }} ago: "
            "no worker takes from this queue, or too few do.",
        ),
        alert(
            "GpuportalWorkerSilent",
            "max by (queue) (gpuportal_queue_messages) > 0 and "
            "max by (queue) (gpuportal_queue_workers) == 0",
            "5m",
            "critical",
            "No worker takes from a queue of the portal",
            "{{ $value }} tasks are in {{ $labels.queue }}, and no worker that takes from it has a "
            "heartbeat.",
        ),
        alert(
            "GpuportalTasksFail",
            'sum by (task) (increase(gpuportal_task_seconds_count{outcome="failure"}[30m])) > 3',
            "0m",
            "warning",
            "A task of the portal fails again and again",
            "{{ $labels.task }} failed {{ $value | humanize }} times in 30 minutes: see the log "
            "of worker.",
        ),
        alert(
            "GpuportalLeasesExpired",
            'max by (work) (gpuportal_leases{state="expired"}) > 0',
            "15m",
            "warning",
            "Work of a dead process is not taken up",
            "{{ $value }} of {{ $labels.work }} belonged to a process that is gone, and no other "
            "took them up.",
        ),
        alert(
            "GpuportalDoctorErrors",
            'max(gpuportal_doctor_findings{severity="error"}) > 0',
            "15m",
            "warning",
            "The doctor of the portal found errors",
            "{{ $value }} errors are open: run manage.py doctor, or see Data quality.",
        ),
    ]


def _people() -> list[dict[str, Any]]:
    requests = "gpuportal_http_requests_total"
    return [
        alert(
            "GpuportalAlertsUndelivered",
            'max(gpuportal_deliveries{state="given up"}) > 0 or '
            "(time() - max(gpuportal_delivery_oldest_due_timestamp_seconds)) > 1800",
            "5m",
            "warning",
            "Alerts of the portal do not reach their channel",
            "Alerts were given up, or have been due for half an hour: see Delivery log.",
        ),
        alert(
            "GpuportalErrors",
            f'sum(rate({requests}{{status=~"5.."}}[10m])) / sum(rate({requests}[10m])) > 0.05',
            "10m",
            "critical",
            "The portal answers with errors",
            "{{ $value | humanizePercentage }} of requests end with a status of 500 or more.",
        ),
    ]


def _queue_time() -> dict[str, Any]:
    """Warn of training on whole GPUs that is pending for longer than it was."""
    now = f"max by (tier) ({_EXCLUSIVE})"
    before = f"max by (tier) (avg_over_time({_EXCLUSIVE}[7d] offset 1d))"
    return alert(
        "GpuQueueTimeRising",
        f"({now} > 1800) and ({now} > 2 * {before})",
        "30m",
        "warning",
        "Work on whole GPUs is pending for longer than before",
        "The p95 queue time of {{ $labels.tier }} is {{ $value | humanizeDuration }}, more than "
        "twice the mean of the week before.",
    )
