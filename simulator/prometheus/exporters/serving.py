"""What inference servers in the scenario's pods show, each with the names of its engine.

A server is scraped from `LOADS_SECONDS` after its start on: until then it loads its model. When it
starts again its counters begin at zero. What it does follows the activity of its pod.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from simulator import identity
from simulator.fleet import DAY, Pod
from simulator.prometheus.exporters.dcgm import CLUSTER
from simulator.prometheus.exporters.device_values import Metric
from simulator.prometheus.series import SCRAPE_MS, Segment, Series
from simulator.scenarios.base import Scenario, Service

LOADS_SECONDS = 90
_QUICK, _SLOW = 0.99, 0.9
"""Which part of first tokens comes within half a second: of a server with little to do, with
much."""
_BUSY = 0.4


class Stretch(NamedTuple):
    """A time (seconds) of even activity of one process; `process` is when that was up."""

    process: int
    start: int
    end: int
    activity: float


_PerSecond = Callable[[Service, float], float]
"""What a counter grows by in a second, or the value of a gauge, at an activity."""


class _Shown(NamedTuple):
    value: _PerSecond
    is_counter: bool = True
    labels: Mapping[str, str] = {}


def _quick(service: Service, activity: float) -> float:
    return service.requests * activity * (_QUICK if activity < _BUSY else _SLOW)


def _requests(service: Service, activity: float) -> float:
    return service.requests * activity


def _buckets(name: str, within: str, edges: Sequence[str]) -> dict[str, tuple[_Shown, ...]]:
    """Return a histogram whose edge `within` is at half a second; above it are all."""
    place = edges.index(within)

    def of(number: int) -> _PerSecond:
        if number < place:
            return lambda service, activity: 0.5 * _quick(service, activity)
        return _quick if number == place else _requests

    return {
        f"{name}_bucket": tuple(
            _Shown(of(number), labels={"le": edge}) for number, edge in enumerate(edges)
        ),
        f"{name}_count": (_Shown(_requests),),
    }


def _running(service: Service, activity: float) -> float:
    return 3.0 * service.requests * activity


def _waiting(service: Service, activity: float) -> float:
    return service.requests * max(0.0, activity - _BUSY)


def _cache(_: Service, activity: float) -> float:
    return round(0.05 + 0.8 * activity, 4)


def _in(service: Service, activity: float) -> float:
    return service.tokens_in * activity


def _out(service: Service, activity: float) -> float:
    return service.tokens_out * activity


_SECONDS = ("0.1", "0.5", "1.0", "10.0", "+Inf")
_VLLM: Mapping[str, tuple[_Shown, ...]] = {
    "vllm:prompt_tokens_total": (_Shown(_in),),
    "vllm:generation_tokens_total": (_Shown(_out),),
    "vllm:request_success_total": (_Shown(_requests, labels={"finished_reason": "stop"}),),
    **_buckets("vllm:time_to_first_token_seconds", "0.5", _SECONDS),
    "vllm:num_requests_running": (_Shown(_running, is_counter=False),),
    "vllm:num_requests_waiting": (_Shown(_waiting, is_counter=False),),
}
_ENGINES: Mapping[str, Mapping[str, tuple[_Shown, ...]]] = {
    "vllm": {**_VLLM, "vllm:kv_cache_usage_perc": (_Shown(_cache, is_counter=False),)},
    "vllm-0.9": {**_VLLM, "vllm:gpu_cache_usage_perc": (_Shown(_cache, is_counter=False),)},
    "sglang": {
        "sglang:prompt_tokens_total": (_Shown(_in),),
        "sglang:generation_tokens_total": (_Shown(_out),),
        "sglang:num_requests_total": (_Shown(_requests),),
        **_buckets("sglang:time_to_first_token_seconds", "0.5", _SECONDS),
        "sglang:num_running_reqs": (_Shown(_running, is_counter=False),),
        "sglang:num_queue_reqs": (_Shown(_waiting, is_counter=False),),
        "sglang:token_usage": (_Shown(_cache, is_counter=False),),
    },
    "triton": {
        "nv_inference_request_success": (_Shown(_requests),),
        "nv_llm_input_token_len_sum": (_Shown(_in),),
        "nv_llm_output_token_len_sum": (_Shown(_out),),
        **_buckets("nv_inference_first_response_histogram_ms", "500", ("100", "500", "+Inf")),
        "nv_inference_pending_request_count": (_Shown(_waiting, is_counter=False),),
        "nv_trt_llm_kv_cache_block_metrics": (
            _Shown(_cache, is_counter=False, labels={"kv_cache_block_type": "fraction"}),
            _Shown(lambda *_: 64.0, is_counter=False, labels={"kv_cache_block_type": "tokens_per"}),
        ),
    },
}
_MODEL_LABEL = {"triton": "model"}
METRICS: Mapping[str, Metric] = {
    name: Metric("counter" if shown[0].is_counter else "gauge", "As its engine describes it.")
    for engine in _ENGINES.values()
    for name, shown in engine.items()
}


def exported(scenario: Scenario) -> Mapping[str, Metric]:
    """Return the metrics of the engines that the scenario's services have."""
    names = {name for service in scenario.services for name in _ENGINES[service.engine]}
    return {name: METRICS[name] for name in sorted(names)}


def pods_of(scenario: Scenario, service: Service, start: int, end: int) -> Iterator[Pod]:
    """Yield the pods of a service that exist at some time in start..end."""
    for epoch in scenario.epochs(start, end):
        for pod in epoch.pods_between(max(start, epoch.start), min(end, epoch.end)):
            top = pod.owner.parent or pod.owner
            if (pod.namespace, top.name) == (service.namespace, service.name):
                yield pod


def stretches(pod: Pod, service: Service, start: int, end: int) -> Iterator[Stretch]:
    """Yield what the servers of a pod do up to `end`, from the start of the one of `start` on."""
    ups = [pod.started]
    if pod.devices[:1] and pod.devices[0] in service.restarting:
        first = max(pod.started, start - DAY) // DAY
        days = range(first, min(pod.finished, end) // DAY + 1)
        restarts = [day * DAY + service.restarts_at for day in days]
        ups = [at for at in (pod.started, *restarts) if pod.started <= at < pod.finished]
    for up, down in zip(ups, [*ups[1:], pod.finished], strict=True):
        loaded = up + LOADS_SECONDS
        for one in pod.stretches:
            begin, stop = max(loaded, one.started), min(down, one.finished, end)
            if begin < stop and down > start:
                yield Stretch(up, begin, stop, one.activity)


def serving_series(scenario: Scenario, metric: str, low_ms: int, high_ms: int) -> Iterator[Series]:
    """Yield a metric's series with all their segments that touch low..high."""
    low, high = low_ms // 1000, high_ms // 1000 + 1
    for service in scenario.services:
        shown = _ENGINES[service.engine].get(metric, ())
        for pod in pods_of(scenario, service, low, high) if shown else ():
            if pod.devices and pod.devices[0] in service.silent:
                continue
            phase_ms = identity.below(SCRAPE_MS, scenario.seed, "scrape", pod.uid)
            times = list(stretches(pod, service, low, high))
            for one in shown:
                segments = [s for s in _segments(times, service, one) if s.end_ms > low_ms]
                if segments:
                    labels = _labels(metric, pod, service) | dict(one.labels)
                    yield Series(labels, phase_ms, segments)


def _segments(times: Sequence[Stretch], service: Service, shown: _Shown) -> Iterator[Segment]:
    process, reached = -1, 0.0
    for one in times:
        value = shown.value(service, one.activity)
        start_ms, end_ms = one.start * 1000, one.end * 1000
        if not shown.is_counter:
            yield Segment(start_ms, end_ms, value)
            continue
        reached = reached if one.process == process else 0.0
        process = one.process
        yield Segment(start_ms, end_ms, reached, value / 1000)
        reached += value * (one.end - one.start)


def _labels(metric: str, pod: Pod, service: Service) -> dict[str, str]:
    return {
        "__name__": metric,
        "cluster": CLUSTER,
        "container": "server",
        "endpoint": "http",
        "instance": f"{pod.name}:8000",
        "job": service.name,
        "namespace": pod.namespace,
        "pod": pod.name,
        _MODEL_LABEL.get(service.engine, "model_name"): service.model,
    }
