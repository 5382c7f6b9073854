"""The metrics source over the Prometheus HTTP API (also of Thanos, Mimir, VictoriaMetrics)."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from apps.clusters.adapters.prometheus.checkpoints import read_checkpoints
from apps.clusters.adapters.prometheus.client import PrometheusApi, Request
from apps.clusters.adapters.prometheus.dcgm.device_states import read_states
from apps.clusters.adapters.prometheus.dcgm.devices import (
    DividedWindow,
    divided_window,
    read_devices,
)
from apps.clusters.adapters.prometheus.dcgm.exporters import ACTIVITY, EXPORTED, UTILIZATION
from apps.clusters.adapters.prometheus.dcgm.health import HEALTH_METRICS, read_health
from apps.clusters.adapters.prometheus.dcgm.samples import read_samples, slots_touched
from apps.clusters.adapters.prometheus.http_api import (
    Envelope,
    Matcher,
    by,
    decode_instant,
    equal,
    one_of,
    over,
)
from apps.clusters.adapters.prometheus.kube_state.ledger import read_ledger
from apps.clusters.adapters.prometheus.kube_state.metrics import (
    COMPLETED,
    CONTAINER_RUNNING,
    CREATED,
    LARGEST,
    MEAN,
    NODE_ALLOCATABLE,
    NODE_CAPACITY,
    NODE_CONDITION,
    NODE_CORDONED,
    REQUESTS,
    SCHEDULED,
    STARTED,
    TOTAL,
    Aggregated,
    gpu_matcher,
)
from apps.clusters.adapters.prometheus.kube_state.people import read_people
from apps.clusters.adapters.prometheus.quotas import read_queue_pending, read_queues, read_quotas
from apps.clusters.adapters.prometheus.serving import SERVING_METRICS, read_serving
from apps.clusters.adapters.prometheus.window_reader import WindowReader
from apps.clusters.domain.credentials import Credential
from apps.clusters.domain.devices.errors import HealthAnswer
from apps.clusters.domain.devices.state import ActivitySample, DeviceState
from apps.clusters.domain.pods.people import PersonSource
from apps.clusters.domain.serving_objectives import TtftObjectives
from apps.clusters.domain.window import Window
from apps.clusters.ports import (
    Answered,
    DeviceAnswer,
    Item,
    LedgerAnswer,
    PodCheckpoints,
    QueuePendingSlot,
    QueueSlot,
    QuotaSlot,
    ServingPodHour,
    ShownMetric,
    ShownQuery,
    SourceHealth,
    SourceRejected,
    SourceUnavailable,
)

_POD = ("namespace", "pod", "uid")
_NODE = ("node",)

_DURATION = re.compile(r"(\d+)(ms|[smhdwy])")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}


def activity_queries(
    matchers: Mapping[str, str], *, namespace: str, pods: Collection[str]
) -> list[ShownQuery]:
    """Return the queries of what devices did; empty `namespace` and `pods` narrow nothing.

    They have the labels of an exporter whose own ones were renamed, `exported_*`, the commonest.
    """
    chosen = (*equal(matchers), *_named("exported_namespace", "exported_pod", namespace, pods))
    labels = EXPORTED.holder_labels
    return [
        ShownQuery(
            "Sum of the activity samples of each device and pod",
            by("sum", labels, over("sum_over_time", ACTIVITY, chosen)),
        ),
        ShownQuery(
            "How many samples these are; times the scrape interval, the measured time",
            by("sum", labels, over("count_over_time", ACTIVITY, chosen)),
        ),
        ShownQuery(
            "Where that metric is missing: the same in per cent",
            by("sum", labels, over("sum_over_time", UTILIZATION, chosen)),
        ),
    ]


def holding_queries(
    matchers: Mapping[str, str], *, namespace: str, pods: Collection[str]
) -> list[ShownQuery]:
    """Return the queries of kube-state-metrics for what pods asked for, and from when to when."""
    every = (*equal(matchers), *_named("namespace", "pod", namespace, pods))
    asked = (*every, gpu_matcher(()))
    return [
        _shown("GPUs asked for", (*_POD, "resource"), LARGEST, REQUESTS, asked),
        _shown("When a pod was created", _POD, LARGEST, CREATED, every),
        _shown("When it was bound: it holds from then on", _POD, LARGEST, SCHEDULED, every),
        _shown("When it was started", _POD, LARGEST, STARTED, every),
        _shown("When it was completed", _POD, LARGEST, COMPLETED, every),
        _shown("Samples in which a container ran", _POD, TOTAL, CONTAINER_RUNNING, every),
    ]


def capacity_queries(matchers: Mapping[str, str]) -> list[ShownQuery]:
    """Return the queries of kube-state-metrics for the GPUs of nodes and their health."""
    every = equal(matchers)
    gpu = (*every, gpu_matcher(()))
    ready = (*every, Matcher("condition", "=", "Ready"), Matcher("status", "=", "true"))
    labels = (*_NODE, "resource")
    return [
        _shown("GPUs of each node", labels, LARGEST, NODE_CAPACITY, gpu),
        _shown("How many of them can be allocated", labels, MEAN, NODE_ALLOCATABLE, gpu),
        _shown("Share of the time in which the node was ready", _NODE, MEAN, NODE_CONDITION, ready),
        _shown("Share in which it took no pods", _NODE, MEAN, NODE_CORDONED, every),
    ]


def _shown(
    purpose: str,
    labels: tuple[str, ...],
    how: Aggregated,
    metric: str,
    matchers: tuple[Matcher, ...],
) -> ShownQuery:
    aggregation, function = how
    return ShownQuery(purpose, by(aggregation, labels, over(function, metric, matchers)))


def _named(
    namespace_label: str, pod_label: str, namespace: str, pods: Collection[str]
) -> tuple[Matcher, ...]:
    named = (Matcher(namespace_label, "=", namespace),) if namespace else ()
    return (*named, one_of(pod_label, sorted(pods))) if pods else named


class _BuildInfo(msgspec.Struct):
    version: str = ""


class _RuntimeInfo(msgspec.Struct, rename="camel"):
    storage_retention: str = ""


def retention_of(text: str) -> timedelta | None:
    """Return the time in Prometheus' `storageRetention` (`15d`, `1y or 10GiB`); None without."""
    # `15d or 10GiB`: only the time is of use, the size says nothing of how far back data go.
    word = text.partition(" or ")[0].replace(" ", "")
    parts = _DURATION.findall(word)
    if not parts or "".join(map("".join, parts)) != word:
        return None
    seconds = sum(int(count) * _SECONDS[unit] for count, unit in parts)
    return timedelta(seconds=seconds) if seconds else None


def _answered(reading: WindowReader, rows: Iterable[Item]) -> Answered[Item]:
    # The rows first: only when all are read is it known what they lack.
    found = list(rows)
    return Answered(found, reading.incomplete)


class PrometheusSource:
    """Implements `apps.clusters.ports.MetricsSource`; safe to use from several threads."""

    def __init__(self, api: PrometheusApi) -> None:
        self._api = api
        # What the newest window of devices was read in: raw samples are asked for hour by hour
        # right after it, and which exporters there are need not be found out for each.
        self._divided = DividedWindow()

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def devices(self, window: Window) -> DeviceAnswer:
        reading = WindowReader(self._api)
        divided = divided_window(reading, window)
        answer = read_devices(reading, divided)
        self._divided = divided
        return answer

    def activity_samples(self, uuids: Sequence[str], window: Window) -> Answered[ActivitySample]:
        divided = self._divided
        # One source serves several threads: another window may have been read meanwhile.
        known = divided.parts if divided.slots.issuperset(slots_touched(window)) else None
        # Nor may a page that is answered for what is asked before them be taken for a refusal.
        reading = WindowReader(self._api, foreign=SourceUnavailable)
        return _answered(reading, read_samples(reading, uuids, window, known))

    def ledger(
        self,
        window: Window,
        *,
        gpu_resources: Sequence[str] = (),
        label_keys: Sequence[str] = (),
    ) -> LedgerAnswer:
        return read_ledger(
            WindowReader(self._api), window, gpu_resources=gpu_resources, label_keys=label_keys
        )

    def people(self, window: Window, sources: Sequence[PersonSource]) -> Mapping[str, str]:
        return read_people(WindowReader(self._api), window, sources)

    def quotas(self, window: Window) -> Answered[QuotaSlot]:
        # They bear witness for an hour, and one whose quotas are refused is judged without them.
        reading = WindowReader(self._api, foreign=SourceUnavailable)
        return _answered(reading, read_quotas(reading, window))

    def queues(self, window: Window) -> Answered[QueueSlot]:
        reading = WindowReader(self._api)
        return _answered(reading, read_queues(reading, window))

    def queue_pending(
        self, window: Window, *, gpu_resources: Sequence[str] = ()
    ) -> Answered[QueuePendingSlot]:
        reading = WindowReader(self._api)
        return _answered(reading, read_queue_pending(reading, window, gpu_resources))

    def shown_metrics(self, window: Window) -> Answered[ShownMetric]:
        reading = WindowReader(self._api, foreign=SourceUnavailable)
        return _answered(reading, reading.shown(window, SERVING_METRICS | HEALTH_METRICS))

    def serving(
        self,
        window: Window,
        *,
        objectives: TtftObjectives,
        shown: Collection[ShownMetric] | None = None,
    ) -> Answered[ServingPodHour]:
        # Hours do without it where a server refuses raw samples: a page is no such refusal.
        reading = WindowReader(self._api, foreign=SourceUnavailable)
        there = reading.shown(window, SERVING_METRICS) if shown is None else shown
        return _answered(reading, read_serving(reading, window, objectives, there))

    def checkpoints(self, window: Window) -> Answered[PodCheckpoints]:
        # As with serving: a page is no refusal of raw samples.
        reading = WindowReader(self._api, foreign=SourceUnavailable)
        metrics = tuple(self._api.config.checkpoint_metrics)
        found = _answered(reading, read_checkpoints(reading, window, metrics))
        # What is left out of the gauges is for who named them, who would look for it in vain.
        return Answered(found.rows, reading.warnings)

    def device_health(
        self, window: Window, *, shown: Collection[ShownMetric] | None = None
    ) -> HealthAnswer:
        # As with serving.
        reading = WindowReader(self._api, foreign=SourceUnavailable)
        there = reading.shown(window, HEALTH_METRICS) if shown is None else shown
        return read_health(reading, window, there)

    def device_states(self, at: datetime) -> Answered[DeviceState]:
        reading = WindowReader(self._api)
        return _answered(reading, read_states(reading, at))

    def retention(self) -> timedelta | None:
        try:
            body = self._api.get("/api/v1/status/runtimeinfo")
            info = msgspec.json.decode(body, type=Envelope[_RuntimeInfo])
        except (SourceRejected, SourceUnavailable, msgspec.DecodeError):
            return None
        return retention_of(info.data.storage_retention) if info.data is not None else None

    def ask(self, question: str) -> list[tuple[Mapping[str, str], float]]:
        """Return labels and value of each series of an instant query, as of the server's now.

        `$matchers` in the question stands for the cluster's own matchers, each with a comma.
        """
        chosen = "".join(f"{matcher}," for matcher in equal(self._api.config.matchers))
        query = {"query": question.replace("$matchers", chosen)}
        body = self._api.post(Request("/api/v1/query", query))
        series, _ = decode_instant(body, dict[str, str])
        return [(one.metric, one.value[1]) for one in series]

    def credentials(self) -> Sequence[Credential]:
        """Return what requests are signed with, where its end can be read."""
        return self._api.credentials()

    def health(self) -> SourceHealth:
        """Return the version; servers that only speak the query API may tell none."""
        body = self._api.get("/api/v1/status/buildinfo")
        try:
            envelope = msgspec.json.decode(body, type=Envelope[_BuildInfo])
        except msgspec.DecodeError as error:
            raise SourceRejected(
                f"Prometheus at {self._api.config.shown_url} answers /api/v1/status/buildinfo "
                f"with something else than Prometheus does ({error}); check the URL"
            ) from error
        return SourceHealth((envelope.data or _BuildInfo()).version)
