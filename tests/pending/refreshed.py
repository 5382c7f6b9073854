"""A watched cluster whose pending pods are looked at again and again."""

from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct, field

from apps.clusters.models import Cluster, Pod, WatchCoverage, Workload
from apps.pending.domain.diagnosis import PendingItem
from apps.pending.models import Episode
from apps.pending.services import refresh
from tests.factories import ensure_builtin, make_cluster, make_pod, make_tier, make_workload
from tests.pending.rows import Script, waits

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
WATCHED_FROM = NOW - timedelta(days=10)


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


class World(Struct):
    """A cluster that is watched, looked at every 15 seconds by a script."""

    cluster: Cluster
    train: Workload
    now: datetime = NOW
    script: Script = field(default_factory=Script)

    def look(self, *found: PendingItem, after: float = 15.0, watched: bool = True) -> int:
        self.now += seconds(after)
        if watched:
            WatchCoverage.objects.update_or_create(
                cluster=self.cluster, start=WATCHED_FROM, defaults={"end": self.now}
            )
        self.script.found = found
        return refresh(self.cluster.pk, now=self.now, diagnose=self.script)

    def pod(self, uid: str = "uid-a", **values: Any) -> Pod:
        given = {"created_at": self.now, "uid": uid, **values}
        return make_pod(self.train, uid.removeprefix("uid-"), **given)


def make_world() -> World:
    ensure_builtin()
    make_tier("gold")
    cluster = make_cluster("west", kubernetes={"in_cluster": True})
    return World(cluster, make_workload(cluster, "vision", "train"))


def intervals(episode: Episode) -> list[tuple[float, float | None, str, str]]:
    """Return the intervals as seconds after NOW, with what they say."""
    return [
        (
            (row.start - NOW).total_seconds(),
            None if row.end is None else (row.end - NOW).total_seconds(),
            row.counts,
            f"{row.cause} {row.detail}".strip(),
        )
        for row in episode.intervals.order_by("start", "pk")
    ]


def waiting_since(world: World, **values: Any) -> PendingItem:
    return waits(since=world.now.timestamp(), **values)
