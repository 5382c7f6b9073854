"""Are the hours collected, and how much of what ran is measured."""

from collections.abc import Iterator
from datetime import timedelta

from apps.clusters.domain.quantities import counted
from apps.operations.domain.findings import Finding, some
from apps.operations.domain.observations import ClusterLook

MAY_LAG = timedelta(hours=3)
LOW_COVERAGE = 0.9
_LEAST_GPU_HOURS = 1.0
_INTERVAL_DIFFERS = 0.2
_LEAST_UNATTRIBUTED_GPU_HOURS = 24.0


def check(look: ClusterLook) -> Iterator[Finding]:
    """Yield what is wrong with the hours of the last day."""
    yield from _states(look)
    yield from _lag(look)
    yield from _coverage(look)
    yield from _interval(look)
    yield from _unattributed(look)


def _states(look: ClusterLook) -> Iterator[Finding]:
    hours = look.past.hours
    if hours.failed:
        said = f" The newest error: {hours.error.rstrip('.')}." if hours.error else ""
        yield Finding(
            "hours-failed",
            look.cluster,
            "",
            f"{counted(hours.failed, 'hour')} of the last 24 failed and "
            f"{'has' if hours.failed == 1 else 'have'} no facts.{said}",
            "# put the cause right; they are tried again by themselves, or now:\n"
            f"python manage.py backfill --cluster {look.cluster} --days 1",
        )
    if hours.partial:
        noticed = ", ".join(f"{name} × {n}" for name, n in sorted(hours.remarks.items()))
        yield Finding(
            "hours-partial",
            look.cluster,
            "",
            f"{counted(hours.partial, 'hour')} of the last 24 lack samples or a part of the pod "
            f"ledger.{f' Noticed: {noticed}.' if noticed else ''}",
            "# Data quality says for each hour what was missing; once that is mended:\n"
            f"python manage.py backfill --cluster {look.cluster} --days 1",
        )


def _lag(look: ClusterLook) -> Iterator[Finding]:
    newest, due = look.past.hours.newest, look.past.hours.due
    if newest is None or due is None or due - newest <= MAY_LAG:
        return
    # Where the source is away, that is the cause, and it is said.
    if not look.measured:
        return
    behind = (due - newest).total_seconds() / 3600
    yield Finding(
        "collection-behind",
        look.cluster,
        "",
        f"The newest facts are {behind:.0f} hours older than they should be.",
        "celery --app gpuportal worker    # both must run: see docs/operations.md\n"
        "celery --app gpuportal beat",
        since=newest,
    )


def _coverage(look: ClusterLook) -> Iterator[Finding]:
    """Yield one finding of the nodes whose running pods are measured too little."""
    low, lost = [], 0.0
    for row in look.past.node_days:
        ran = row.allocated - row.not_running
        if ran >= _LEAST_GPU_HOURS and ran - row.unmeasured < LOW_COVERAGE * ran:
            low.append(row.node)
            lost += row.unmeasured
    if not low:
        return
    nodes = len(set(low))
    held = [tenant for tenant in look.past.tenants if tenant.node in set(low) and tenant.running]
    yield Finding(
        "coverage-low",
        look.cluster,
        "",
        f"On {counted(nodes, 'node')} less than {LOW_COVERAGE:.0%} of what pods ran in the last "
        f"day was measured: {lost:.1f} GPU-hours are neither busy nor waste.",
        "# does the exporter run there, and does Prometheus scrape it?\n"
        "kubectl get pods --all-namespaces --output wide | grep dcgm-exporter\n"
        'up{job=~".*dcgm.*"} == 0    # in Prometheus',
        pods=len(held),
        gpu_hours=lost,
        places=some(low),
    )


def _interval(look: ClusterLook) -> Iterator[Finding]:
    seen, said = look.metrics.interval_seconds, look.catalog_interval_seconds
    if seen is None or abs(seen - said) <= _INTERVAL_DIFFERS * said:
        return
    yield Finding(
        "interval-differs",
        look.cluster,
        "",
        f"GPUs are sampled every {seen:g} seconds, the catalog says {said:g}. Facts use what is "
        "seen; the catalog's value is used where too few samples tell.",
        "# in the catalog:\n"
        f"clusters:\n  - name: {look.cluster}\n"
        f"    prometheus: {{scrape_interval_seconds: {seen:g}}}",
    )


def _unattributed(look: ClusterLook) -> Iterator[Finding]:
    for row in look.past.tiers:
        if row.unattributed < _LEAST_UNATTRIBUTED_GPU_HOURS:
            continue
        yield Finding(
            "activity-unattributed",
            look.cluster,
            row.tier,
            f"GPUs of tier {row.tier} were busy for {row.unattributed:.1f} GPU-hours of the last "
            "30 days while no pod held them: programs beside Kubernetes, or pods that the "
            "ledger does not know.",
            "# on the node: whose processes are these?\n"
            "nvidia-smi --query-compute-apps=pid,process_name,gpu_uuid --format=csv\n"
            "ps -o pid,user,cgroup,args -p PID    # no kubepods in its cgroup: not of a pod",
            gpu_hours=row.unattributed,
        )
