"""Series of the whole portal, read when Prometheus asks and cached for some seconds."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from django.db import connection, transaction
from msgspec import Struct, field
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from apps.operations.adapters.task_queues import queue_depths
from apps.operations.domain.series import HEALTH, QUEUES, SCRAPE, Readings, Samples, Series
from apps.operations.selectors.portal_figures import (
    FIGURES,
    OBJECTIVES,
    QUEUE_TIMES,
    QUOTAS,
    objectives,
    portal_figures,
    queue_times,
    quota_figures,
)
from apps.operations.selectors.portal_health import portal_health

logger = logging.getLogger(__name__)
# Several Prometheus servers may scrape a process: within this time they share one reading.
_CACHE_SECONDS = 15.0
# Prometheus has a timeout of ten seconds by default, for everything that a process shows.
_QUERY_SECONDS = 5
MOST_SAMPLES = 10_000


class SeriesSource(Struct):
    """Where some series are read from; a failure leaves them out, and a series says so."""

    name: str
    series: Sequence[Series]
    read: Callable[[datetime], Readings]
    cache_seconds: float = _CACHE_SECONDS
    database: bool = True
    _at: float | None = None
    _took: float = 0.0
    _found: Readings | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def families(self) -> Iterator[Metric]:
        """Yield the series as they were read last; anew where that was too long ago."""
        # Two Prometheus servers often ask at once: one reading is enough for both.
        with self._lock:
            if self._at is None or time.monotonic() - self._at >= self.cache_seconds:
                self._read()
            found, took = self._found, self._took
        left_out = 0
        for one in self.series:
            samples = (found or {}).get(one.name, ())
            left_out += max(0, len(samples) - MOST_SAMPLES)
            if samples:
                yield _family(one, samples[:MOST_SAMPLES])
        values = (float(found is not None), float(left_out), took)
        for own, value in zip(SCRAPE, values, strict=True):
            yield _family(own, [((self.name,), value)])

    def _read(self) -> None:
        began = time.monotonic()
        try:
            self._found = self._bounded() if self.database else self.read(datetime.now(UTC))
        except Exception as error:
            # Whatever it is: the other series are worth reading, now more than ever.
            logger.warning("series of %s cannot be read: %s", self.name, error)
            self._found = None
        self._at = time.monotonic()
        self._took = self._at - began

    def _bounded(self) -> Readings:
        # A failed query would leave the connection unusable for those that follow.
        with transaction.atomic():
            if connection.vendor == "postgresql":
                with connection.cursor() as cursor:
                    cursor.execute(f"SET LOCAL statement_timeout = '{_QUERY_SECONDS}s'")
            return self.read(datetime.now(UTC))


def _family(series: Series, samples: Samples) -> Metric:
    family = GaugeMetricFamily(series.name, series.help, labels=series.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def _queues(_: datetime) -> Readings:
    depths = queue_depths()
    messages, oldest = QUEUES
    return {
        messages.name: [((name,), float(one.messages)) for name, one in depths.items()],
        oldest.name: [
            ((name,), one.oldest) for name, one in depths.items() if one.oldest is not None
        ],
    }


SOURCES = (
    SeriesSource("portal", HEALTH, portal_health),
    SeriesSource("queues", QUEUES, _queues, database=False),
    SeriesSource("figures", FIGURES, portal_figures, cache_seconds=60.0),
    SeriesSource("queue times", QUEUE_TIMES, queue_times, cache_seconds=60.0),
    SeriesSource("objectives", OBJECTIVES, objectives, cache_seconds=60.0),
    SeriesSource("quotas", QUOTAS, quota_figures, cache_seconds=60.0),
)


def portal_series() -> Iterator[Metric]:
    """Yield every series that is not of one process; those of a source that fails are absent."""
    merged: dict[str, Metric] = {}
    for source in SOURCES:
        for family in source.families():
            # Of several sources that tell the same of themselves one family is made.
            if family.name in merged:
                merged[family.name].samples.extend(family.samples)
            else:
                merged[family.name] = family
    yield from merged.values()
