"""Worker: a large cluster in which much waits, looked at, and its page read.

python -m tests.bench.pending NODES WAITING
"""

import time
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from django.db import connection
from django.test import Client

from apps.accounts.domain.identity import Role
from apps.accounts.models import User
from apps.clusters.models import Cluster, Pod, WatchCoverage
from apps.clusters.services.watch.follow import snapshot
from apps.pending.domain.diagnose import diagnose_cluster
from apps.pending.domain.diagnosis import ClusterState, PendingItem
from apps.pending.models import Episode
from apps.pending.services import refresh
from tests.bench.measuring import REPETITIONS, percentile95, timed, wall
from tests.bench.pages import seconds
from tests.bench.pending_fleet import NOW, waiting_fleet
from tests.clusters.fakes.fake_cluster import FakeCluster

_STEP = timedelta(seconds=15)
_STARTED = 500
_ROUNDS = 4 * REPETITIONS
# Days that no night has summed yet: all of it is read from intervals.
_WEEK = f"first={NOW - timedelta(days=6):%Y-%m-%d}&last={NOW:%Y-%m-%d}"


class Watched:
    """A look that notes how long it took."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__(self, state: ClusterState) -> Sequence[PendingItem]:
        began = time.perf_counter()
        found = diagnose_cluster(state)
        self.seconds.append(time.perf_counter() - began)
        return found


def fill(nodes: int, waiting: int) -> Cluster:
    """Write the cluster as `watch` would on its first look, and return it."""
    source = FakeCluster()
    for path, items in waiting_fleet(nodes=nodes, waiting=waiting).objects.items():
        for item in items:
            source.put(path, item)
    address = {"api_server": "https://127.0.0.1:1"}
    cluster = Cluster.objects.create(name="bench-waiting", kubernetes=address)
    snapshot(cluster, source, NOW)
    span = {"end": NOW + timedelta(hours=1)}
    WatchCoverage.objects.update_or_create(cluster=cluster, start=NOW - _STEP, defaults=span)
    return cluster


def measure(nodes: str, waiting: str) -> dict[str, Any]:
    """Return seconds of the looks, of the refreshes around them, and of the page.

    `first` is the refresh that knows of nothing yet, `same` one after which nothing changed, and
    `started` one after 500 pods started.
    """
    cluster = fill(int(nodes), int(waiting))
    watched = Watched()
    times = iter(NOW + n * _STEP for n in range(1000))

    def again() -> float:
        return timed(partial(refresh, cluster.pk, now=next(times), diagnose=watched)).wall

    first = again()
    same = [timed(again) for _ in range(REPETITIONS)]
    _start(cluster, _STARTED)
    started = again()
    return {
        "database": connection.vendor,
        "waiting": Episode.objects.filter(until__isnull=True).count(),
        "look_seconds": sorted(watched.seconds)[len(watched.seconds) // 2],
        "first_seconds": first,
        "same_seconds": wall(same),
        "started_seconds": started,
        "page_seconds": _page(),
    }


def _start(cluster: Cluster, most: int) -> None:
    """Have the pods that waited longest run; their objects stay, as of those bound just now."""
    waiting = Pod.objects.filter(cluster=cluster, bound_at__isnull=True).order_by("created_at")
    chosen = list(waiting.values_list("pk", flat=True)[:most])
    at = NOW + _STEP
    Pod.objects.filter(pk__in=chosen).update(bound_at=at, started_at=at, node_name="node-0000")


def _page() -> float:
    """Return the p95 of the list of what waits, over a week of which no day is summed."""
    user = User.objects.create(username="bench-waiting", role=Role.ADMIN.value)
    client = Client(headers={"Host": "127.0.0.1"})
    client.force_login(user)
    address = f"/pending/?{_WEEK}"
    seconds(client, address)
    return percentile95([seconds(client, address) for _ in range(_ROUNDS)])
