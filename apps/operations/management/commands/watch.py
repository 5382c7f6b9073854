"""`watch`: keep the pod ledger of the catalog's clusters, or look at them once."""

import logging
import signal
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.accounts.services.process_leases import ProcessLeases
from apps.clusters.ports import SourceRejected, SourceUnavailable
from apps.clusters.services import (
    ClusterShare,
    UnknownWatchCluster,
    WatchedCluster,
    Watchers,
    WatchRun,
    clusters_to_watch,
    snapshot_cluster,
    watch_cluster,
)
from apps.pending.services import PendingRefresher, clusters_to_diagnose
from gpuportal.telemetry.metrics_server import serve

logger = logging.getLogger(__name__)

_JOIN_SECONDS = 10.0


def _now() -> datetime:
    return datetime.now(UTC)


def _watch(name: str, stop: threading.Event, may_write: Callable[[], bool]) -> None:
    watch_cluster(name, WatchRun(_now, stop, may_write))


class Command(BaseCommand):
    """Write what the Kubernetes API servers show until told to end (SIGTERM, Ctrl-C)."""

    help = "Watch the clusters' Kubernetes API servers and keep the pod ledger."
    # These import every page, which a process that shows none would keep in memory for good.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--cluster", help="only this cluster; default: all of the catalog")
        parser.add_argument(
            "--once", action="store_true", help="take one consistent look at each and exit"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            chosen = clusters_to_watch(options["cluster"])
        except UnknownWatchCluster as error:
            raise CommandError(str(error)) from error
        for cluster in chosen:
            if not cluster.kubernetes:
                self.stdout.write(
                    f"{cluster.name}: no kubernetes entry in the catalog, nothing to watch; "
                    "its pod ledger comes from kube-state-metrics series"
                )
        if options["once"]:
            self._once([cluster for cluster in chosen if cluster.kubernetes])
        else:
            self._follow(options["cluster"])

    def _once(self, clusters: list[WatchedCluster]) -> None:
        failed = []
        for cluster in clusters:
            try:
                found = snapshot_cluster(cluster.name, now=datetime.now(UTC))
            except (SourceUnavailable, SourceRejected) as error:
                failed.append(f"{cluster.name}: {error}")
                continue
            self.stdout.write(
                f"{cluster.name}: {found.nodes} GPU nodes, {found.pods} pods that ask for GPU, "
                f"{found.rows} rows written"
            )
        if failed:
            raise CommandError("; ".join(failed))

    def _follow(self, name: str | None) -> None:
        stop = threading.Event()
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        for number in before:
            # Noted and not raised: what is being written is finished first.
            signal.signal(number, lambda *_: stop.set())
        serve()
        share = ClusterShare(ProcessLeases(), one_only=name is not None)
        ours = partial(clusters_to_diagnose, is_watched_here=share.may_write)
        looks = PendingRefresher(stop, name, ours).start()
        try:
            Watchers(_watch, stop, share, name).run()
        finally:
            stop.set()
            looks.join(_JOIN_SECONDS)
            # Put back, for a caller that runs this command within its own process.
            for number, handler in before.items():
                signal.signal(number, handler)
        logger.info("watch has ended")
