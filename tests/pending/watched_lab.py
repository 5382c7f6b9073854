"""A portal that watches a lab of the test: looks taken by hand, clock in hand."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from msgspec import Struct

from apps.clusters.gateways import cluster_source
from apps.clusters.models import Cluster, WatchCoverage
from apps.clusters.services.watch.follow import snapshot
from apps.pending.services import refresh
from simulator.scenarios.base import Scenario
from tests.factories import ensure_builtin, make_report, make_team, make_tier
from tests.simulator.client import Served, serving


class WatchedLab(Struct, frozen=True):
    """A served lab and its cluster in the portal."""

    served: Served
    cluster: Cluster
    began: float

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.served.clock.now_ms() / 1000, UTC)

    def look(self) -> datetime:
        """See everything there is as the watch does, and look at what waits; return when."""
        now = self.now()
        source = cluster_source(self.cluster)
        assert source is not None
        try:
            snapshot(self.cluster, source, now)
        finally:
            source.close()
        # One look after the other stands for a watch that never was away.
        WatchCoverage.objects.update_or_create(
            cluster=self.cluster,
            start=datetime.fromtimestamp(self.began, UTC),
            defaults={"end": now},
        )
        refresh(self.cluster.pk, now=now)
        return now


@contextmanager
def watched_lab(scenario: Scenario, at: float) -> Iterator[WatchedLab]:
    """Serve a scenario at a time, with a portal that has a tier of every kind for it."""
    if not Cluster.objects.exists():
        make_report("UTC")
        ensure_builtin()
        make_tier("whole", position=0, model="NVIDIA-A10")
        make_team("everybody", "*")
    with serving(scenario, at) as served:
        cluster, _ = Cluster.objects.update_or_create(
            name="lab", defaults={"kubernetes": {"api_server": served.url}}
        )
        yield WatchedLab(served, cluster, at)
