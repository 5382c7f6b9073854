"""Failures of nodes and GPUs over the last weeks, judged from the pod ledger."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from django.db.models import Count, Max, Q
from msgspec.structs import asdict

from apps.accounts.services import leases
from apps.clusters.domain.devices.resource_claims import CLAIM_KIND
from apps.clusters.domain.names import family_of
from apps.clusters.domain.window import Window, utc_midnight
from apps.clusters.models import ClaimInterval, Pod
from apps.clusters.selectors import active_clusters
from apps.goodput.domain.ledger import pod_runs
from apps.goodput.domain.reliability import gpu_failures, interruptions_by_size, node_failures
from apps.goodput.domain.runs import PodRun
from apps.goodput.models import RELIABILITY_DAYS, ReliabilityReport
from apps.goodput.selectors.lost_work import HISTORY_COLUMNS, pod_history
from apps.usage.models import CollectionWindow

_COLUMNS = (
    *("pk", "node_name", "workload_id", "gpu_equivalents", "on_devices__uuids", "claims"),
    *("workload__namespace_id", "workload__kind", "workload__name"),
)


def judge_nodes(*, now: datetime) -> int:
    """Judge the nodes of each active cluster whose last report is due; return how many were.

    It is due on another day, and when hours of its days were collected since, as by a backfill.
    """
    return sum(_judge(one.pk, now) for one in active_clusters())


def _judge(cluster_id: int, now: datetime) -> int:
    midnight = utc_midnight(now)
    # Whole days: the report of a day says the same whenever it is computed, after a crash too.
    window = Window(midnight - timedelta(days=RELIABILITY_DAYS), midnight)
    # Read before the pods: what is collected meanwhile makes it due again.
    facts = CollectionWindow.objects.filter(
        cluster_id=cluster_id, hour__gte=window.start, hour__lt=window.end
    ).aggregate(hours=Count("collected_at"), facts_at=Max("collected_at"))
    rests = Q(facts_at=facts["facts_at"]) if facts["hours"] else Q(facts_at__isnull=True)
    computed = Q(end=window.end, hours=facts["hours"]) & rests
    held = leases.take_figure(ReliabilityReport, now, computed=computed, cluster_id=cluster_id)
    if held is None:
        return 0
    runs = list(_runs(cluster_id, window))
    gpus = gpu_failures(runs)
    accused = [one.uuid for one in gpus if one.is_unreliable]
    ReliabilityReport.objects.filter(pk=held.pk).update(
        # Facts may begin within the window: the report does not speak of the days before.
        start=datetime.fromtimestamp(
            min((run.start for run in runs), default=window.start_seconds), UTC
        ),
        end=window.end,
        computed_at=now,
        nodes=[asdict(one) for one in node_failures(runs, accused_gpus=accused)],
        # Of ten thousand GPUs most had no failure, of which nothing is to be said.
        gpus=[asdict(one) for one in gpus if one.incidents],
        gpus_judged=len(gpus),
        sizes=[asdict(one) for one in interruptions_by_size(runs)],
        lease_until=None,
        **facts,
    )
    return 1


def _runs(cluster_id: int, window: Window) -> Iterator[PodRun]:
    """Yield the runs of pods on GPUs in the window. Two queries, the larger read in parts.

    Claims have rows of their own in the ledger: the pods that use them are what fails.
    """
    pods = Pod.objects.filter(
        Q(ended_at__isnull=True) | Q(ended_at__gte=window.start),
        cluster_id=cluster_id,
        bound_at__lt=window.end,
    ).exclude(workload__kind=CLAIM_KIND)
    claimed = _claimed(cluster_id, window)
    start, end = window.start_seconds, window.end_seconds
    rows = pods.values_list(*_COLUMNS, *HISTORY_COLUMNS).iterator()
    for pk, node, workload, size, uuids, claims, namespace, kind, name, *of_pod in rows:
        # Series may tell that a pod was bound, and not where.
        if not node:
            continue
        gpus = set((uuids or "").split()).union(*(claimed.get(uid, ()) for uid in claims))
        family = f"{namespace}/{kind}/{family_of(kind, name)}"
        history = pod_history(of_pod, end)
        life = PodRun(
            *(node, workload, *history.life, size, history.reason),
            *(pk, family, tuple(sorted(gpus))),
        )
        yield from pod_runs(life, history, start=start, end=end)


def _claimed(cluster_id: int, window: Window) -> dict[str, set[str]]:
    """Return by uid the GPUs that ResourceClaims were given, which no series need to tell."""
    claims = ClaimInterval.objects.filter(cluster_id=cluster_id, allocated_at__lt=window.end)
    rows = claims.exclude(released_at__lt=window.start).order_by().values_list("uid", "devices")
    found: defaultdict[str, set[str]] = defaultdict(set)
    for uid, devices in rows:
        found[uid].update(str(one["card"]) for one in devices)
    return found
