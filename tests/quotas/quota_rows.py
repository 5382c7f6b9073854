"""A cluster with quotas, for the tests of what is summed and read of them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from apps.clusters.domain.observed.objects import Body, ObservedKind, QuotaScope, QuotaSnapshot
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, WatchCoverage
from apps.clusters.models import ObservedObject as ObservedObjectRow
from apps.clusters.ports import Answered, QueueSlot, QuotaSlot
from apps.pending.models import CauseInterval, Episode
from apps.quotas.services import roll_window
from tests.factories import make_workload, note_collection

GPU = "nvidia.com/gpu"
KEY = f"requests.{GPU}"
HOUR = timedelta(hours=1)
NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
NOW = NOON + 2 * HOUR


def see(
    cluster: Cluster,
    kind: ObservedKind,
    body: Body,
    *,
    name: str = "gpus",
    namespace: str = "",
    since: datetime = NOON - 48 * HOUR,
    gone: datetime | None = None,
    uid: str = "",
) -> None:
    """Note an object as `watch` would."""
    ObservedObjectRow.objects.create(
        cluster=cluster,
        kind=kind.value,
        uid=uid or f"{kind.value}/{namespace}/{name}",
        namespace=namespace,
        name=name,
        first_at=since,
        changed_at=since,
        gone_at=gone,
        body=msgspec.to_builtins(body),
    )


def see_quota(
    cluster: Cluster,
    namespace: str,
    hard: float,
    *,
    used: float = 0.0,
    key: str = KEY,
    scopes: tuple[QuotaScope, ...] = (),
    **values: Any,
) -> None:
    amounts = {key: hard}
    body = QuotaSnapshot(hard=amounts, observed_hard=amounts, used={key: used}, scopes=scopes)
    see(cluster, ObservedKind.RESOURCE_QUOTA, body, namespace=namespace, **values)


def watch(cluster: Cluster, start: datetime = NOON - 48 * HOUR, end: datetime = NOW) -> None:
    WatchCoverage.objects.create(cluster=cluster, start=start, end=end)


def collected(cluster: Cluster, *hours: datetime, at: datetime = NOW) -> None:
    for hour in hours:
        note_collection(cluster, hour, collected_at=at)


def refuse(
    cluster: Cluster,
    namespace: str,
    units: float,
    *,
    since: datetime,
    until: datetime | None = None,
    **values: Any,
) -> None:
    """Note work that a quota refused, or (by `cause` and `queue`) that waits for a queue."""
    interval = {"cause": values.pop("cause", "quota"), "counts": values.pop("counts", "suppressed")}
    episode = Episode.objects.create(
        cluster=cluster,
        kind=values.pop("kind", "Job"),
        uid=f"{namespace}-{since}-{units}-{interval['cause']}",
        name="job",
        workload=make_workload(cluster, namespace, "job"),
        resource=GPU,
        units=units,
        gpu_equivalents=units,
        counted=units,
        since=since,
        until=until,
        **interval,
        **values,
    )
    detail = values.get("detail", "")
    CauseInterval.objects.create(
        episode=episode, start=since, end=until, counted=units, detail=detail, **interval
    )


def roll_hour(cluster_id: int, hour: datetime, **values: Any) -> int:
    return roll_window(cluster_id, Window.hour(hour), **values)


class ScriptedMetrics:
    """A metrics source of which only quotas are asked; it counts how often."""

    def __init__(
        self,
        slots: Sequence[QuotaSlot] = (),
        error: Exception | None = None,
        *,
        queues: Sequence[QueueSlot] = (),
        incomplete: tuple[str, ...] = (),
    ) -> None:
        self.slots = list(slots)
        self.queue_slots = list(queues)
        self.error = error
        self.incomplete = incomplete
        self.asked = 0

    def quotas(self, window: Window) -> Answered[QuotaSlot]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        inside = range(int(window.start_seconds), int(window.end_seconds))
        return Answered([slot for slot in self.slots if slot.slot in inside], self.incomplete)

    def queues(self, window: Window) -> Answered[QueueSlot]:
        inside = range(int(window.start_seconds), int(window.end_seconds))
        return Answered([slot for slot in self.queue_slots if slot.slot in inside])

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} is not asked for quotas")
