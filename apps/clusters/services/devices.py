"""Looking at a cluster's devices: what they say now, kept as one row for each."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Q
from msgspec.structs import asdict

from apps.clusters.domain.devices.resource_claims import CLAIM_KIND
from apps.clusters.domain.devices.state import (
    DeviceHolder,
    DeviceState,
    Health,
    HealthVerdict,
    NodeNow,
    judged,
    missing_devices,
    with_claims,
)
from apps.clusters.gateways import ClusterClients
from apps.clusters.models import ClaimInterval, Cluster, Device, NodeInterval, Pod

_UPDATED = (
    *("node_name", "place", "profile", "model", "first_seen", "last_seen", "looked_at"),
    *("state", "health", "health_since", "reasons"),
)
_GONE = "no exporter shows it any more"


def active_clusters() -> list[int]:
    """Return the ids of the clusters whose devices are looked at. One query."""
    return list(Cluster.objects.filter(active=True).order_by("name").values_list("pk", flat=True))


def store_device_states(
    cluster_id: int, now: datetime, *, clients: ClusterClients | None = None
) -> int:
    """Keep what every device of a cluster says at `now`; return how many are shown.

    An older look never overwrites a newer one, whatever the order they are kept in. A device that
    is no longer shown keeps its row and becomes `unseen`, since it was last seen. Raises as the
    port says, and keeps nothing then: the rows tell how old they are.
    """
    cluster = Cluster.objects.get(pk=cluster_id)
    answer = (clients or ClusterClients()).metrics(cluster).device_states(now)
    keep_states(cluster, answer.rows, now, whole=not answer.incomplete)
    return len(answer.rows)


def keep_states(
    cluster: Cluster, states: Iterable[DeviceState], at: datetime, *, whole: bool = True
) -> None:
    """Keep the states of the devices that a cluster showed at a time, in one bulk write.

    The others have gone only where what it showed is `whole`.
    """
    named = with_claims(states, _claimed(cluster, at))
    shown = {state.key: state for state in named if state.uuid}
    with transaction.atomic():
        # Looks of a cluster follow each other: without a row to lock, two could both be first.
        Cluster.objects.select_for_update().get(pk=cluster.pk)
        known = {(row.uuid, row.gpu_instance): row for row in _rows(cluster)}
        verdicts = judged(list(shown.values()), nodes_now(cluster, at))
        # A reading that comes late must not bring back a device that a newer one lacks.
        newest = max((at, *(row.looked_at for row in known.values())))
        rows = [
            _seen(known.get(key), cluster, state, verdicts[key], (at, newest))
            for key, state in shown.items()
        ]
        if whole:
            rows += [_unseen(row, at) for key, row in known.items() if key not in shown]
        Device.objects.bulk_create(
            rows,
            batch_size=500,
            update_conflicts=True,
            unique_fields=["cluster", "uuid", "gpu_instance"],
            update_fields=_UPDATED,
        )


def _claimed(cluster: Cluster, at: datetime) -> dict[tuple[str, str], list[DeviceHolder]]:
    """Return the pods on claimed devices by (GPU, profile). Two queries, one without claims."""
    claims = (
        ClaimInterval.objects.filter(cluster=cluster, allocated_at__lte=at)
        .exclude(released_at__lte=at)
        .order_by("pk")
    )
    given = list(claims.values_list("uid", "devices"))
    if not given:
        return {}
    pods = (
        Pod.objects.filter(Q(ended_at__isnull=True) | Q(ended_at__gt=at), cluster=cluster)
        .filter(bound_at__lte=at)
        .exclude(claims=[])
        .exclude(workload__kind=CLAIM_KIND)
        .order_by("pk")
    )
    users: dict[str, list[DeviceHolder]] = defaultdict(list)
    for namespace, name, uids in pods.values_list("workload__namespace__name", "name", "claims"):
        for uid in uids:
            users[uid].append(DeviceHolder(namespace, name))
    found: dict[tuple[str, str], list[DeviceHolder]] = defaultdict(list)
    for uid, devices in given:
        for device in devices:
            found[str(device["card"]), str(device.get("profile", ""))] += users.get(uid, ())
    return found


def _rows(cluster: Cluster) -> Iterable[Device]:
    return Device.objects.filter(cluster=cluster).order_by("pk")


def _seen(
    row: Device | None,
    cluster: Cluster,
    state: DeviceState,
    verdict: HealthVerdict,
    times: tuple[datetime, datetime],
) -> Device:
    """Return the row of a device that is shown at the first of `times`; the second is that of the
    newest look at the cluster, which did not show it where it is later."""
    at, newest = times
    # Kept in any order: an older reading tells only that the device was there earlier.
    if row is not None and row.last_seen >= at:
        row.first_seen = min(row.first_seen, at)
        return row
    gone = newest > at
    health = Health.UNSEEN if gone else verdict.health
    lasts = row is not None and row.health == health.value and not gone
    return Device(
        cluster=cluster,
        uuid=state.uuid,
        gpu_instance=state.gpu_instance,
        node_name=state.node,
        place=place_of(state),
        profile=state.profile,
        model=state.model,
        first_seen=min(row.first_seen, at) if row else at,
        last_seen=at,
        looked_at=newest,
        state=asdict(state),
        health=health.value,
        health_since=row.health_since if row and lasts else at,
        reasons=[_GONE] if gone else list(verdict.reasons),
    )


def place_of(state: DeviceState) -> str:
    """Return what sorts devices within their node: by number, then by MIG instance."""
    return f"{state.index:>04}/{state.gpu_instance:>04}"[:40]


def _unseen(row: Device, at: datetime) -> Device:
    """Return the row of a device that is not shown at a time."""
    if row.looked_at >= at:
        return row
    row.looked_at = at
    if row.health != Health.UNSEEN.value:
        row.health = Health.UNSEEN.value
        # It went after it was seen last, not when that was noticed.
        row.health_since = row.last_seen
        row.reasons = [_GONE]
    return row


def nodes_now(cluster: Cluster, at: datetime) -> dict[str, NodeNow]:
    """Return by name what is known of the cluster's nodes at a time. One query."""
    intervals = (
        NodeInterval.objects.filter(node__cluster=cluster, start__lte=at)
        .exclude(end__lte=at)
        .order_by("node__name", "start", "pk")
    )
    rows = intervals.values_list(
        *("node__name", "ready", "schedulable", "capacity", "allocatable", "labels", "devices")
    )
    return {name: _node_now(*rest) for name, *rest in rows}


def _node_now(
    ready: bool,  # noqa: FBT001 - columns in their order
    schedulable: bool,  # noqa: FBT001
    capacity: Mapping[str, float],
    allocatable: Mapping[str, float],
    labels: Mapping[str, str],
    devices: Iterable[Mapping[str, Any]],
) -> NodeNow:
    return NodeNow(
        ready=ready,
        schedulable=schedulable,
        missing=missing_devices(capacity, allocatable, labels),
        withheld=frozenset(
            (str(one["card"]), str(one.get("profile", "")))
            for one in devices
            if not one.get("allocatable", True)
        ),
    )
