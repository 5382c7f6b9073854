"""What waits on the filled portal, as a refresh would have kept it."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from apps.clusters.models import Cluster, Tier, WatchCoverage, Workload
from apps.pending.models import CauseInterval, Episode, RefreshState
from tests.factories import Portal, make_workload, note_collection
from tests.pending.rows import findings

MESSAGE = (
    "0/12 nodes are available: 3 node(s) had untolerated taint {dedicated: vision}, "
    "9 Insufficient nvidia.com/gpu. preemption: 0/12 nodes are available: 12 No preemption "
    "victims found for incoming pod."
)
HOUR = timedelta(hours=1)


def make_episode(
    workload: Workload, name: str, *, since: datetime, tier: Tier | None = None, **values: Any
) -> Episode:
    """Make an episode with one interval of its cause; it lasts unless `until` is given."""
    given: dict[str, Any] = {
        "kind": "Pod",
        "uid": f"uid-{name}",
        "resource": "nvidia.com/gpu",
        "units": 1.0,
        "counts": "pending",
        "cause": "capacity",
        "detail": "none free",
    } | values
    given.setdefault("gpu_equivalents", given["units"])
    given.setdefault("counted", given["gpu_equivalents"])
    cluster = workload.namespace.cluster
    episode = Episode.objects.create(
        cluster=cluster, workload=workload, name=name, since=since, tier=tier, **given
    )
    CauseInterval.objects.create(
        episode=episode,
        start=since,
        end=episode.until,
        cause=episode.cause,
        detail=episode.detail,
        message=episode.message,
        counts=episode.counts,
        counted=episode.counted,
    )
    return episode


def look(clusters: Iterable[Cluster], at: datetime, *, error: str = "") -> None:
    """Keep that the clusters were watched and looked at until `at`."""
    for cluster in clusters:
        WatchCoverage.objects.filter(cluster=cluster).delete()
        if cluster.kubernetes is not None:
            WatchCoverage.objects.create(cluster=cluster, start=at - HOUR, end=at)
        RefreshState.objects.update_or_create(cluster=cluster, defaults={"at": at, "error": error})


def look_now(portal: Portal) -> datetime:
    """Keep that all clusters were looked at just now; return when that was."""
    now = timezone.now().replace(microsecond=0)  # as pages read the clock
    look(portal.clusters, now)
    for cluster in portal.clusters:
        if cluster.kubernetes is None:
            note_collection(cluster, now.replace(minute=0, second=0) - HOUR)
    return now


def suggestion(action: str, text: str, **change: Any) -> dict[str, Any]:
    return {"action": action, "text": text, "change": change}


def make_waiting(portal: Portal, at: datetime) -> dict[str, Episode]:
    """Make what waits at `at`: of vision three things, of speech two, and what is over."""
    west, east = portal.clusters
    gold, silver = portal.tiers
    train = make_workload(west, "vision", "train")
    serve = make_workload(west, "vision-prod", "serve", "Deployment")
    notes = make_workload(east, "speech", "notes", "StatefulSet")
    return {
        "train-2": make_episode(
            train,
            "train-2",
            since=portal.pods[-1].created_at,
            tier=gold,
            units=4.0,
            message=MESSAGE,
            findings=findings(
                "12 nodes offer nvidia.com/gpu and none has 4 free; the most is 2.",
                node_reasons={
                    "node(s) had untolerated taint {dedicated: vision}": 3,
                    "Insufficient nvidia.com/gpu": 9,
                },
                context=["cluster-autoscaler: 2 max node group size reached"],
                suggestions=[
                    suggestion(
                        "free",
                        "Free 2 nvidia.com/gpu on west-1.",
                        resource="nvidia.com/gpu",
                        amount=2.0,
                        nodes=["west-1"],
                    ),
                    suggestion(
                        "tolerate",
                        "Also needed: tolerate the taint dedicated=vision:NoSchedule of west-1.",
                        key="dedicated",
                        value="vision",
                        effect="NoSchedule",
                        nodes=["west-1"],
                    ),
                ],
                blockers=["node:west-1"],
            ),
        ),
        "serve": make_episode(
            serve,
            "serve",
            since=at - 2 * HOUR,
            kind="ReplicaSet",
            tier=silver,
            units=2.0,
            counts="suppressed",
            cause="quota",
            detail="gpu-quota",
            message='pods "serve-1" is forbidden: exceeded quota: gpu-quota',
            findings=findings(
                "Quota gpu-quota has 0 of 4 left of requests.nvidia.com/gpu.",
                suggestions=[
                    suggestion(
                        "raise_quota",
                        "Raise requests.nvidia.com/gpu of quota gpu-quota from 4 to 6 (2 more).",
                        namespace="vision-prod",
                        quota="gpu-quota",
                        key="requests.nvidia.com/gpu",
                        **{"from": 4.0, "to": 6.0},
                    )
                ],
            ),
        ),
        "pull": make_episode(
            serve,
            "serve-pull",
            since=at - 3 * HOUR,
            bound_at=at - 2 * HOUR,
            tier=silver,
            counts="starting",
            cause="starting",
            detail="ImagePullBackOff",
        ),
        "notes-1": make_episode(
            notes,
            "notes-1",
            since=at - HOUR,
            tier=silver,
            cause="affinity",
            detail="no node matches",
            findings=findings("No node has the label zone=c."),
        ),
        "notes": make_episode(
            notes,
            "notes-gang",
            since=at - HOUR,
            kind="PodGroup",
            units=8.0,
            cause="gang",
            detail="",
        ),
        "over": make_episode(
            train,
            "train-2",
            since=portal.pods[-1].created_at - 5 * HOUR,
            until=portal.pods[-1].created_at - 4 * HOUR,
            outcome="gave_up",
            tier=gold,
        ),
    }
