"""Series of one process: requests, tasks, sources, watches; docs/how-to/monitor.md lists them.

Web servers and workers fork. Their processes write to files of `PROMETHEUS_MULTIPROC_DIR`, which
gunicorn.conf.py and gpuportal/celery.py set before this module is loaded: each answers for all.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from prometheus_client import REGISTRY as OWN
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, multiprocess
from prometheus_client.registry import Collector

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_LONG_SECONDS = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600)
MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"

REQUEST_SECONDS = Histogram(
    "gpuportal_http_request_seconds",
    "Time from request to the first byte of the answer, by route.",
    ("method", "route"),
    buckets=_SECONDS,
)
REQUESTS = Counter(
    "gpuportal_http_requests", "Answers, by route and status.", ("method", "route", "status")
)
REPLICA_FALLBACKS = Counter(
    "gpuportal_replica_fallbacks",
    "Answers read from the primary, as the replica failed, is away or is behind, by that cause.",
    ("cause",),
)
TASK_SECONDS = Histogram(
    "gpuportal_task_seconds",
    "Time that tasks ran, by outcome: success, retry or failure.",
    ("task", "outcome"),
    buckets=_LONG_SECONDS,
)
TASK_QUEUE_SECONDS = Histogram(
    "gpuportal_task_queue_seconds",
    "Time that tasks were in their queue.",
    ("task",),
    buckets=_LONG_SECONDS,
)
# With a label, so that processes which are no beat have no such series in place of a 0.
BEAT_TICK = Gauge(
    "gpuportal_beat_tick_timestamp_seconds",
    "When beat last looked what is due; leads is yes where it sends, no where another does.",
    ("leads",),
)
SOURCE_SECONDS = Histogram(
    "gpuportal_source_request_seconds",
    "Time of requests to Prometheus and Kubernetes, by outcome: answered or failed.",
    ("source", "server", "outcome"),
    buckets=_SECONDS,
)
SOURCE_BYTES = Counter(
    "gpuportal_source_received_bytes",
    "Bytes of answers and watch lines, before JSON is read.",
    ("source", "server"),
)
WATCH_CONNECTED = Gauge(
    "gpuportal_watch_connected_since_timestamp_seconds",
    "Since when a collection is followed without an error; absent while it is not.",
    ("cluster", "collection"),
)
WATCH_EVENT = Gauge(
    "gpuportal_watch_last_event_timestamp_seconds",
    "When the last line of a collection's watch came, bookmarks too.",
    ("cluster", "collection"),
)
WATCH_RELISTS = Counter(
    "gpuportal_watch_relists", "How often a collection was listed anew.", ("cluster", "collection")
)


def process_registry() -> Collector:
    """Return what collects the series of this process, or of all that count together."""
    if MULTIPROCESS not in os.environ:
        return OWN
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return registry


class SourceRequest:
    """A request to a source under way; `received` counts the bytes of its answer."""

    def __init__(self, source: str, server: str) -> None:
        self._bytes = SOURCE_BYTES.labels(source, server)

    def received(self, count: int) -> None:
        self._bytes.inc(count)


@contextmanager
def source_request(source: str, url: str) -> Iterator[SourceRequest]:
    """Measure a request to `url`, of which only host and port are told."""
    server = urlsplit(url).netloc.rpartition("@")[2]
    began = time.perf_counter()
    outcome = "failed"
    try:
        yield SourceRequest(source, server)
        outcome = "answered"
    finally:
        SOURCE_SECONDS.labels(source, server, outcome).observe(time.perf_counter() - began)
