"""The queries of one call of the port: an instant, or some consecutive half-hour slots."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, TypeVar

import msgspec

from apps.clusters.adapters.prometheus.client import (
    PrometheusApi,
    Request,
    instant_request,
    slot_end,
    slots_request,
)
from apps.clusters.adapters.prometheus.http_api import (
    MAX_STEPS,
    Envelope,
    Instant,
    Matcher,
    Matrix,
    by,
    check_counts,
    check_times,
    decode_instant,
    decode_matrix,
    equal,
    flat,
    one_of,
    over,
    range_seconds,
)
from apps.clusters.domain.window import HOUR_SECONDS, SLOT_SECONDS, Window, from_seconds
from apps.clusters.ports import ShownMetric, SourceRejected, SourceUnavailable

logger = logging.getLogger(__name__)

_ODD = (b'"NaN"', b'Inf"', b'"-', b"e+")
"""Parts of an answer without which every count in it is one that samples can have."""


_COUNTS = "count_over_time("
_metric, _value, _second = attrgetter("metric"), attrgetter("value"), itemgetter(1)


Labels = TypeVar("Labels")


Answer = TypeVar("Answer")


Points = Iterator[tuple[int, Any, float]]
"""(slot, labels, value), series by series."""


class SlotQuery(NamedTuple):
    """A query to be evaluated for each of some consecutive slots, at most 48."""

    query: str
    labels: Any
    slots: Sequence[int]

    @property
    def request(self) -> Request:
        if len(self.slots) == 1:
            return instant_request(self.query, slot_end(self.slots[0]))
        return slots_request(self.query, self.slots[0], self.slots[-1])


class _MetricName(msgspec.Struct, frozen=True, gc=False):
    metric: str = msgspec.field(name="__name__", default="")


class _TimedQuery(NamedTuple):
    """A query, and the Unix seconds between which its answer has to be."""

    query: str
    first: float
    last: float


def slot_chunks(window: Window) -> list[list[int]]:
    """Return the window's slots as they are read together.

    Up to an hour each slot has its own instant query, which keeps answers small on the largest
    clusters; a longer window is read by range queries of at most a day.
    """
    slots = window.slots()
    size = 1 if window.seconds <= HOUR_SECONDS else MAX_STEPS
    return [slots[n : n + size] for n in range(0, len(slots), size)]


def consecutive(slots: Sequence[int], most: int) -> Iterator[list[int]]:
    """Yield slots that follow each other, at most as many as are read together."""
    row: list[int] = []
    for slot in slots:
        if row and (slot != row[-1] + SLOT_SECONDS or len(row) == most):
            yield row
            row = []
        row.append(slot)
    if row:
        yield row


def day_windows(window: Window) -> list[Window]:
    """Return the window in pieces of at most a day."""
    slots = window.slots()
    return [
        Window(from_seconds(part[0]), from_seconds(part[-1] + SLOT_SECONDS))
        for part in (slots[n : n + MAX_STEPS] for n in range(0, len(slots), MAX_STEPS))
    ]


class WindowReader:
    """The queries of one call of the port, and the remarks of the server on their answers.

    `foreign` is raised for an answer that is none of Prometheus, such as a proxy's page. Callers
    that do without what a server refuses give SourceUnavailable: a page is no refusal, and may be
    gone a minute later.
    """

    def __init__(self, api: PrometheusApi, *, foreign: type[Exception] = SourceRejected) -> None:
        self._api = api
        self._foreign = foreign
        self._remarks: dict[str, None] = {}
        self._incomplete: dict[str, None] = {}
        self.matchers: tuple[Matcher, ...] = equal(api.config.matchers)
        self.interval_seconds = api.config.scrape_interval_seconds

    @property
    def warnings(self) -> tuple[str, ...]:
        """The remarks of the server and the findings on its answers, each once, in order."""
        return tuple(self._remarks)

    @property
    def incomplete(self) -> tuple[str, ...]:
        """The server's own warnings that an answer lacks something, each once, in order."""
        return tuple(self._incomplete)

    def remark(self, text: str) -> None:
        """Add a finding."""
        self._remarks.setdefault(text)

    def instant(self, query: str, at: float, labels: type[Labels]) -> list[Instant[Labels]]:
        """Return the instant vector of `query` at `at`, Unix seconds."""
        body = self._api.post(instant_request(query, at))
        return self._decoded(decode_instant, body, labels, _TimedQuery(query, at, at))

    def raw(self, query: str, at: float, labels: type[Labels]) -> list[Matrix[Labels]]:
        """Return the raw samples that a range selector gives at `at`.

        Raises SourceRejected only where the server itself refuses them.
        """
        (series,) = self.raws([query], at, labels)
        return series

    def raws(
        self, queries: Sequence[str], at: float, labels: type[Labels]
    ) -> Iterator[list[Matrix[Labels]]]:
        """Yield the raw samples of several range selectors, in order; raises as `raw`."""
        bodies = self._api.many(instant_request(query, at) for query in queries)
        for query, body in zip(queries, bodies, strict=True):
            try:
                timed = _TimedQuery(query, at - range_seconds(query), at)
                series = self._decoded(decode_matrix, body, labels, timed)
            except SourceRejected as error:
                # A refusal was raised before: callers do without raw samples then, for good.
                raise SourceUnavailable(str(error)) from error
            yield series

    def instants(
        self, wanted: Sequence[tuple[str, type[Any]]], at: float
    ) -> Iterator[list[Instant[Any]]]:
        """Yield the instant vectors of several (query, labels), in order."""
        bodies = self._api.many(instant_request(query, at) for query, _ in wanted)
        for (query, labels), body in zip(wanted, bodies, strict=True):
            yield self._decoded(decode_instant, body, labels, _TimedQuery(query, at, at))

    def label_names(self, selector: str, start: float, end: float) -> tuple[str, ...] | None:
        """Return the names of the labels of the series in start..end; None where not told.

        Nothing but the description of exporters hangs on it, so that a server without this
        endpoint does no harm.
        """
        form = {"match[]": selector, "start": f"{start:.3f}", "end": f"{end:.3f}"}
        try:
            body = self._api.post(Request("/api/v1/labels", form))
            found = msgspec.json.decode(body, type=Envelope[list[str]])
        except (SourceRejected, SourceUnavailable, msgspec.DecodeError) as error:
            logger.info("Label names are not told: %s", error)
            return None
        return None if found.data is None else tuple(sorted(found.data))

    def shown(self, window: Window, metrics: Iterable[str]) -> Iterator[ShownMetric]:
        """Yield which of these metrics have samples in which slots; one query for a day."""
        known = (one_of("__name__", sorted(metrics)), *self.matchers)
        query = by("count", ("__name__",), over("last_over_time", "", known))
        # An hour's slots together, too: an answer has a name or none, however large the cluster.
        days = [SlotQuery(query, _MetricName, day.slots()) for day in day_windows(window)]
        for points in self.slots(days):
            for slot, one, _ in points:
                yield ShownMetric(slot, one.metric)

    def slots(self, wanted: Sequence[SlotQuery]) -> Iterator[Points]:
        """Yield the points of several queries over slots, in order."""
        # Sent ahead: the server works on the next answers while one is decoded.
        bodies = self._api.many(query.request for query in wanted)
        for query, body in zip(wanted, bodies, strict=True):
            yield self._points(query, body)

    def one(self, wanted: SlotQuery) -> Points:
        """Return the points of a single query over slots."""
        return self._points(wanted, self._api.post(wanted.request))

    def _points(self, query: SlotQuery, body: bytes) -> Points:
        slot = query.slots[0]
        timed = _TimedQuery(query.query, slot_end(slot), slot_end(query.slots[-1]))
        if len(query.slots) > 1:
            return flat(self._decoded(decode_matrix, body, query.labels, timed))
        vector = self._decoded(decode_instant, body, query.labels, timed)
        values = map(_second, map(_value, vector))
        return zip(repeat(slot), map(_metric, vector), values, strict=False)

    def _decoded(
        self,
        decode: Callable[[bytes, type[Labels]], tuple[list[Answer], list[str]]],
        body: bytes,
        labels: type[Labels],
        query: _TimedQuery,
    ) -> list[Answer]:
        try:
            series, remarks = decode(body, labels)
            check_times(series, query.first, query.last)
            # To search the bytes takes less time than to check every number of a large answer.
            if _COUNTS in query.query and any(odd in body for odd in _ODD):
                check_counts(query.query, series)
        except (SourceUnavailable, SourceRejected) as error:
            kind = self._foreign if isinstance(error, SourceRejected) else type(error)
            raise kind(f"Prometheus at {self._api.config.shown_url} {error}") from error
        for remark in remarks:
            if remark not in self._remarks:
                logger.info("Prometheus at %s remarks: %s", self._api.config.shown_url, remark)
            self.remark(remark)
            # What starts so is about the query. Everything else is about the data: a store of
            # Thanos that is away, a remote read that failed.
            if not remark.startswith("PromQL "):
                self._incomplete.setdefault(remark)
        return series
