"""Reading the series of inference servers: vLLM, NIM, SGLang, TGI, Triton, KServe, Ray Serve.

Versions name the same quantity differently: each has all its names here, with and without the
prefixes that Ray and collectors put before them. docs/serving.md has the same table.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import inf
from typing import NamedTuple

import msgspec
from msgspec import Struct, field

from apps.clusters.adapters.prometheus.dcgm.device_rows import LARGEST_FRACTION
from apps.clusters.adapters.prometheus.http_api import (
    END_MARGIN_SECONDS,
    Matcher,
    Matrix,
    by,
    literally,
    one_of,
    over,
    raw,
)
from apps.clusters.adapters.prometheus.kube_state.metrics import labels_of
from apps.clusters.adapters.prometheus.window_reader import WindowReader
from apps.clusters.domain.counters import (
    LONGEST_GAP_SECONDS,
    Sample,
    growth,
    is_count,
    measured_seconds,
    was_seen_to_begin,
)
from apps.clusters.domain.serving_objectives import TtftObjectives
from apps.clusters.domain.window import Window
from apps.clusters.ports import ServingPodHour, ShownMetric

_Alternatives = tuple[str, ...]


class Engine(Struct, frozen=True):
    """An inference server and the names of its series, one after another where versions differ.

    All have one of the `prefixes`. Counters are tokens, requests and the histogram of the time to
    first token, whose buckets count `ttft_scale` to a second; the others are gauges. A gauge
    written `name{label=value}` has further series, which mean something else.
    """

    name: str
    prefixes: _Alternatives
    tokens_in: _Alternatives = ()
    tokens_out: _Alternatives = ()
    requests: _Alternatives = ()
    ttft: _Alternatives = ()
    running: _Alternatives = ()
    waiting: _Alternatives = ()
    kv_cache: _Alternatives = ()
    ttft_scale: float = 1.0


# In the order in which they are believed: a server within another exports the series of both.
ENGINES: Sequence[Engine] = (
    Engine(
        "vLLM",
        # NIM has the names of vLLM without any prefix in its first versions.
        ("vllm:", "vllm_", "ray_vllm:", "ray_vllm_", ""),
        tokens_in=("prompt_tokens_total",),
        tokens_out=("generation_tokens_total",),
        requests=("request_success_total", "request_finish_total"),
        ttft=("time_to_first_token_seconds",),
        running=("num_requests_running",),
        waiting=("num_requests_waiting",),
        # Renamed in vLLM 0.10, which shows both; gone in 0.13.
        kv_cache=("kv_cache_usage_perc", "gpu_cache_usage_perc"),
    ),
    Engine(
        "SGLang",
        ("sglang:", "sglang_", "ray_sglang:", "ray_sglang_"),
        tokens_in=("prompt_tokens_total",),
        tokens_out=("generation_tokens_total",),
        requests=("num_requests_total",),
        ttft=("time_to_first_token_seconds",),
        running=("num_running_reqs",),
        waiting=("num_queue_reqs",),
        kv_cache=("token_usage",),
    ),
    Engine(
        "TGI",
        ("tgi_",),
        tokens_in=("request_input_length_sum",),
        tokens_out=("request_generated_tokens_sum",),
        requests=("request_success", "request_success_total"),
        running=("batch_current_size",),
        waiting=("queue_size",),
    ),
    Engine(
        "Triton",
        ("nv_",),
        tokens_in=("llm_input_token_len_sum",),
        tokens_out=("llm_output_token_len_sum",),
        requests=("inference_request_success",),
        # To the first response, which is the whole one where a model does not stream.
        ttft=("inference_first_response_histogram_ms",),
        ttft_scale=1000.0,
        running=("trt_llm_request_metrics{request_type=scheduled}",),
        waiting=("inference_pending_request_count",),
        kv_cache=("trt_llm_kv_cache_block_metrics{kv_cache_block_type=fraction}",),
    ),
    Engine(
        "KServe",
        ("",),
        requests=("request_predict_seconds_count", "revision_app_request_count"),
    ),
    Engine(
        "Ray Serve",
        ("ray_serve_",),
        requests=("deployment_request_counter_total", "deployment_request_counter"),
        running=("replica_processing_queries",),
        waiting=("deployment_queued_queries",),
    ),
)
_COUNTERS = ("tokens_in", "tokens_out", "requests")
_GAUGES = ("running", "waiting", "kv_cache")
_FIRST, _IN_TIME, _OBJECTIVE = "first_tokens", "first_tokens_in_time", "ttft_objective_ms"
_MS = 1000
# No server has as many at once: such a value is a blank.
_MOST_REQUESTS = 1e9


class _Meaning(NamedTuple):
    """What a metric of an engine (its place in ENGINES) counts; `only` narrows its series."""

    engine: int
    quantity: str
    only: tuple[str, str] | None = None


def _meanings(quantities: Iterable[str], endings: Mapping[str, str]) -> dict[str, _Meaning]:
    """Return metric → meaning; `endings` are put behind the names of a quantity."""
    found: dict[str, _Meaning] = {}
    for place, engine in enumerate(ENGINES):
        for quantity in quantities:
            for ending, meant in endings.items():
                for alias in getattr(engine, quantity):
                    name, _, label = alias.rstrip("}").partition("{")
                    key, _, value = label.partition("=")
                    meaning = _Meaning(place, meant or quantity, (key, value) if key else None)
                    found |= {f"{prefix}{name}{ending}": meaning for prefix in engine.prefixes}
    return found


_COUNTER_NAMES = _meanings(_COUNTERS, {"": ""})
_TTFT_NAMES = _meanings(("ttft",), {"_count": _FIRST, "_bucket": _IN_TIME})
_GAUGE_NAMES = _meanings(_GAUGES, {"": ""})
SERVING_METRICS = frozenset(_COUNTER_NAMES | _GAUGE_NAMES)


class ServingLabels(msgspec.Struct, frozen=True, gc=False):
    """Who a series is of, as scrape configurations label it, and which model it counts.

    Exporters outside of a pod keep their own labels as `exported_*`; annotations of pods and
    collectors have names of their own; Knative's queue proxy tells pod and namespace itself.
    """

    name: str = msgspec.field(name="__name__", default="")
    job: str = ""
    prometheus: str = ""
    prometheus_replica: str = ""
    exported_namespace: str = ""
    exported_pod: str = ""
    namespace: str = ""
    pod: str = ""
    kubernetes_namespace: str = ""
    kubernetes_pod_name: str = ""
    k8s_namespace_name: str = ""
    k8s_pod_name: str = ""
    namespace_name: str = ""
    pod_name: str = ""
    model_name: str = ""
    model: str = ""
    model_id: str = ""
    configuration_name: str = ""
    deployment: str = ""
    request_type: str = ""
    kv_cache_block_type: str = ""
    le: str = ""

    @property
    def holder(self) -> tuple[str, str]:
        """Namespace and pod; the pod is empty where no label tells it."""
        pairs = (
            (self.exported_namespace, self.exported_pod),
            (self.namespace, self.pod),
            (self.kubernetes_namespace, self.kubernetes_pod_name),
            (self.k8s_namespace_name, self.k8s_pod_name),
            (self.namespace_name, self.pod_name),
        )
        return next((pair for pair in pairs if pair[1]), ("", ""))

    @property
    def served(self) -> str:
        """The model, or what stands for it; empty where the server tells none."""
        named = (self.model_name, self.model, self.model_id, self.configuration_name)
        return next(filter(None, named), self.deployment)

    def is_of(self, only: tuple[str, str] | None) -> bool:
        """Say whether it is the series of a gauge that is meant."""
        kinds = {
            "request_type": self.request_type,
            "kv_cache_block_type": self.kv_cache_block_type,
        }
        return only is None or kinds[only[0]] == only[1]

    @property
    def source(self) -> tuple[str, str, str]:
        """Who scraped it: a pod that two jobs scrape has every series twice."""
        return self.job, self.prometheus, self.prometheus_replica


_BY_LABELS = tuple(name for name in labels_of(ServingLabels) if name not in {"__name__", "le"})


_Sums = dict[tuple[int, str], dict[str, float]]
"""Engine and model → quantity → amount."""


_ByName = dict[str, list[list[Sample]]]
"""The samples of each series of a quantity, by the name that it has."""


class _ScrapedPod(Struct):
    """The series of a pod as one job scraped them, by meaning and model, and when.

    `objectives` are those, in milliseconds, of the times to first token, by engine and model.
    """

    series: dict[tuple[_Meaning, str], _ByName] = field(default_factory=dict)
    times: set[float] = field(default_factory=set)
    objectives: dict[tuple[int, str], int] = field(default_factory=dict)


def read_serving(
    reading: WindowReader,
    window: Window,
    objectives: TtftObjectives,
    shown: Iterable[ShownMetric],
) -> Iterator[ServingPodHour]:
    """Yield what inference servers did in each whole hour; raises as the port says.

    No query where none of their metrics is `shown`. Else one for the counters of each hour, as raw
    samples, and one for each gauge: none is about a single pod. Series without a label of their
    pod are together one row without a pod.
    """
    names = SERVING_METRICS.intersection(one.name for one in shown)
    if names:
        for hour in window.hours():
            # As all rules of the catalog: what holds when an hour begins is for the whole of it.
            yield from _read_hour(reading, hour, names, objectives.at(hour.start_seconds))


def _read_hour(
    reading: WindowReader, hour: Window, names: frozenset[str], objectives: TtftObjectives
) -> Iterator[ServingPodHour]:
    targets = _targets(reading, hour, names, objectives)
    if not targets:
        return
    chosen = {
        holder: _chosen(by_source, hour.start_seconds) for holder, by_source in targets.items()
    }
    means = _means(reading, hour, names & _GAUGE_NAMES.keys())
    for (namespace, pod), (source, target) in sorted(chosen.items()):
        sums: _Sums = defaultdict(dict)
        _add_growth(sums, target, hour.start_seconds)
        for place, values in means.get((namespace, pod, *source), {}).items():
            sums[place].update(values)
        seconds = measured_seconds(sorted(target.times), hour.start_seconds)
        if not seconds:
            # Scraped before the hour, or once in it: nothing is known of it, which is no zero.
            continue
        for model, (engine, values) in sorted(_by_model(sums).items()):
            yield ServingPodHour(
                int(hour.start_seconds), namespace, pod, model, engine, seconds, **values
            )


def _targets(
    reading: WindowReader, hour: Window, names: frozenset[str], objectives: TtftObjectives
) -> dict[tuple[str, str], dict[tuple[str, str, str], _ScrapedPod]]:
    """Return the counters of an hour and of five minutes before it, by pod and who scraped it."""
    counters = {name: _COUNTER_NAMES[name] for name in names & _COUNTER_NAMES.keys()}
    engines = {_GAUGE_NAMES[name].engine for name in names & _GAUGE_NAMES.keys()}
    engines.update(meaning.engine for meaning in counters.values())
    counters |= {name: one for name, one in _TTFT_NAMES.items() if one.engine in engines}
    edges = {
        (engine, ms): _edge_texts(ms * ENGINES[engine].ttft_scale / _MS)
        for engine in engines
        for ms in objectives.all_ms
    }
    # The buckets that end at an objective; what is no bucket has no `le`.
    wanted = sorted({"", *chain.from_iterable(edges.values())})
    chosen = (one_of("__name__", sorted(counters)), Matcher("le", "=~", literally(wanted)))
    query = raw("", (*chosen, *reading.matchers), seconds=hour.seconds + LONGEST_GAP_SECONDS)
    found: dict[tuple[str, str], dict[tuple[str, str, str], _ScrapedPod]] = defaultdict(dict)
    for one in reading.raw(query, hour.end_seconds - END_MARGIN_SECONDS, ServingLabels):
        meaning = counters[one.metric.name]
        own = objectives.of(*one.metric.holder, one.metric.served)
        # A bucket of another service's objective is there, too, and means nothing here.
        if one.metric.le and one.metric.le not in edges[meaning.engine, own]:
            continue
        target = found[one.metric.holder].setdefault(one.metric.source, _ScrapedPod())
        _add_series(target, meaning, one)
        if one.metric.name in _TTFT_NAMES:
            target.objectives[meaning.engine, one.metric.served] = own
    return found


def _edge_texts(edge: float) -> frozenset[str]:
    """Return how exporters write the end of a bucket: 1 and 1.0."""
    return frozenset({f"{edge:g}", str(float(edge))})


def _add_series(target: _ScrapedPod, meaning: _Meaning, one: Matrix[ServingLabels]) -> None:
    samples = [Sample(*point) for point in one.values]
    by_name = target.series.setdefault((meaning, one.metric.served), {})
    by_name.setdefault(one.metric.name, []).append(samples)
    target.times.update(sample.at for sample in samples)


def _chosen(
    by_source: Mapping[tuple[str, str, str], _ScrapedPod], start: float
) -> tuple[tuple[str, str, str], _ScrapedPod]:
    """Return the job that scraped a pod for the longest time: others have the same series."""
    return max(
        by_source.items(),
        key=lambda item: (measured_seconds(sorted(item[1].times), start), item[0]),
    )


def _add_growth(sums: _Sums, target: _ScrapedPod, start: float) -> None:
    for (meaning, model), by_name in target.series.items():
        grown = _grown(by_name, target.times, start)
        own = sums[meaning.engine, model]
        if grown is not None:
            own[meaning.quantity] = own.get(meaning.quantity, 0.0) + grown
    for own in sums.values():
        if _FIRST in own and _IN_TIME in own:
            # A bucket that was scraped where its count was not would make it more than all.
            own[_IN_TIME] = min(own[_IN_TIME], own[_FIRST])
    for place, objective in target.objectives.items():
        # Beside what was counted, so that both are of one engine where several are in a pod.
        if _FIRST in sums[place]:
            sums[place][_OBJECTIVE] = objective


def _grown(by_name: _ByName, times: set[float], start: float) -> float | None:
    """Return how much a quantity grew under all the names that it had, one after another.

    A name that is shown beside an earlier one counts from the end of that one. None where no
    series was there for any time of the hour.
    """
    total, is_known = 0.0, False
    end, reached = -inf, 0.0
    for series in sorted(by_name.values(), key=lambda some: min(one[0].at for one in some)):
        first = min(one[0].at for one in series)
        is_renamed = -inf < end < first
        if is_renamed and first >= start and first - end <= LONGEST_GAP_SECONDS:
            now = _whole([one[0] for one in series], first)
            # The process goes on, or it started again with the new name.
            total += now - reached if now >= reached else now
            is_known = True
        for samples in series:
            own = _after(samples, end)
            goes_on = (is_renamed and own[:1] and own[0].at == first) or len(own) < len(samples)
            begins = bool(own) and not goes_on and was_seen_to_begin(own[0].at, times)
            total += growth(own, start, from_zero=begins)
            # Of NaN alone nothing grows: that would be a zero of which nothing is known.
            told = [one.at for one in own if is_count(one.value)]
            is_known = is_known or measured_seconds(told, start) > 0
            is_known = is_known or (begins and bool(told) and own[0].at >= start)
        last = max(one[-1].at for one in series)
        if last > end:
            end = last
            reached = _whole([one[-1] for one in series], last)
    return total if is_known else None


def _whole(samples: Iterable[Sample], at: float) -> float:
    # NaN and what else no counter has would spoil every comparison after it.
    return sum(one.value for one in samples if one.at == at and is_count(one.value))


def _after(samples: list[Sample], end: float) -> list[Sample]:
    """Return the samples after a time, behind the last one up to it, from which they grew."""
    before = sum(one.at <= end for one in samples)
    return samples[max(0, before - 1) :]


def _means(
    reading: WindowReader, hour: Window, names: frozenset[str]
) -> dict[tuple[str, ...], _Sums]:
    """Return the means of gauges by namespace, pod and who scraped it."""
    found: dict[tuple[str, ...], _Sums] = defaultdict(lambda: defaultdict(dict))
    # Newer names first: where a version shows the old one too, it is the same again.
    ordered = [name for name in _GAUGE_NAMES if name in names]
    wanted = []
    for name in ordered:
        # One engine of several in a pod is full or not, but its requests add to theirs.
        how = "avg" if _GAUGE_NAMES[name].quantity == "kv_cache" else "sum"
        inner = over("avg_over_time", name, reading.matchers, seconds=hour.seconds)
        wanted.append((by(how, _BY_LABELS, inner), ServingLabels))
    answers = reading.instants(wanted, hour.end_seconds - END_MARGIN_SECONDS)
    for name, answer in zip(ordered, answers, strict=True):
        meaning = _GAUGE_NAMES[name]
        for one in answer:
            labels, value = one.metric, one.value[1]
            # A cache is no more than full: with per cent in it a page would show 8,700 %.
            most = LARGEST_FRACTION if meaning.quantity == "kv_cache" else _MOST_REQUESTS
            if labels.is_of(meaning.only) and 0.0 <= value <= most:
                value = min(value, 1.0) if meaning.quantity == "kv_cache" else value
                own = found[*labels.holder, *labels.source][meaning.engine, labels.served]
                own.setdefault(meaning.quantity, value)
    return found


def _by_model(sums: _Sums) -> dict[str, tuple[str, dict[str, float]]]:
    """Return engine and quantities by model, each quantity of the first engine that has it.

    A server within another names its model by another label: where it serves one alone, what the
    outer one counts is of that.
    """
    found: dict[str, tuple[str, dict[str, float]]] = {}
    taken: dict[str, int] = {}
    for (place, model), values in sorted(sums.items()):
        named = next(iter(found)) if len(found) == 1 and model not in found else model
        own = {key: value for key, value in values.items() if taken.setdefault(key, place) == place}
        inner = found and next(iter(found.values()))[0] != ENGINES[place].name
        if not own and inner:
            continue
        known = found.setdefault(named if inner else model, (ENGINES[place].name, {}))
        known[1].update(own)
    return {model: one for model, one in found.items() if one[1].keys() - set(_GAUGES)}
