"""Series of inference servers as each engine, version and scrape configuration shows them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from math import inf, nan

import pytest

from apps.clusters.adapters.prometheus.client import PrometheusApi
from apps.clusters.adapters.prometheus.http_api import PrometheusConfig
from apps.clusters.adapters.prometheus.source import PrometheusSource
from apps.clusters.domain.pods.ledger import Owner
from apps.clusters.domain.serving_objectives import TtftObjectives, TtftRule
from apps.clusters.domain.window import Window
from apps.clusters.ports import ServingPodHour
from simulator.clock import PinnedClock
from simulator.prometheus.api import PrometheusApi as LabApi
from simulator.prometheus.exporters.device_values import Metric
from simulator.prometheus.openmetrics import sample_rows
from simulator.prometheus.series import Segment, Series
from simulator.prometheus.signals import Signals
from tests.clusters.scripted_prometheus import Answer, Asked, ScriptedPrometheus, scripted
from tests.real_prometheus import RealPrometheus
from tests.simulator.small import Small

START = datetime(2026, 10, 1, 9, tzinfo=UTC)
WINDOW = Window(START, START + timedelta(hours=1))
LOW = int(START.timestamp() * 1000)
HOUR_MS = 3_600_000
POD = {"namespace": "ml", "pod": "llm-0", "job": "llm"}


class GivenSignals(Signals):
    """The series that a test gives."""

    def __init__(self, given: Sequence[Series]) -> None:
        super().__init__(Small([]))
        self._given = given
        self.metrics = {one.labels["__name__"]: Metric("counter", "") for one in given}

    def series(self, metric: str, low_ms: int, high_ms: int, **_: object) -> Iterator[Series]:
        return (one for one in self._given if one.labels["__name__"] == metric)


@contextmanager
def served(given: Sequence[Series]) -> Iterator[ScriptedPrometheus]:
    api = LabApi(GivenSignals(given), PinnedClock(LOW + 48 * HOUR_MS))

    def script(asked: Asked) -> Answer:
        found = api.answer(asked.path, {key: [value] for key, value in asked.form.items()})
        assert found is not None
        return Answer(found.body, found.status)

    with scripted(script) as server:
        yield server


HALF_SECOND = TtftObjectives(500)


def read(
    given: Sequence[Series], window: Window = WINDOW, objectives: TtftObjectives = HALF_SECOND
) -> list[ServingPodHour]:
    with served(given) as server:
        source = PrometheusSource(PrometheusApi(PrometheusConfig.from_catalog({"url": server.url})))
        rows = source.serving(window, objectives=objectives).rows
        source.close()
    return list(rows)


def counter(
    name: str,
    per_second: float,
    labels: Mapping[str, str] = POD,
    *,
    spans: Sequence[tuple[float, float]] = ((-2.0, 26.0),),
    reset: bool = False,
    before: float = 500.0,
) -> Series:
    """Return a counter that is there in these spans (hours after the start)."""
    segments: list[Segment] = []
    reached = before
    for begin, end in spans:
        start, stop = LOW + round(begin * HOUR_MS), LOW + round(end * HOUR_MS)
        reached = 0.0 if reset and segments else reached
        segments.append(Segment(start, stop, reached, per_second / 1000))
        reached += per_second * (stop - start) / 1000
    return Series({"__name__": name, **labels}, 7_000, segments)


def gauge(name: str, value: float, labels: Mapping[str, str] = POD) -> Series:
    whole = Segment(LOW - 2 * HOUR_MS, LOW + 26 * HOUR_MS, value)
    return Series({"__name__": name, **labels}, 7_000, [whole])


def engine(
    prefix: str, names: Sequence[str], le: str = "0.5", *, model: str = "model_name"
) -> list[Series]:
    """Return the series of a pod: tokens in, out, requests, TTFT, running, waiting, cache."""
    labels = {**POD, model: "llama"}
    read_, written, requests, ttft, running, waiting, cache = (
        prefix + name if name else "" for name in names
    )
    found = [counter(read_, 20, labels), counter(written, 5, labels), counter(requests, 2, labels)]
    if ttft:
        found += [
            counter(f"{ttft}_count", 2, labels),
            counter(f"{ttft}_bucket", 1.5, {**labels, "le": le}),
            counter(f"{ttft}_bucket", 2, {**labels, "le": "+Inf"}),
        ]
    found += [gauge(running, 3.0, labels), gauge(waiting, 1.0, labels)]
    return [*found, *([gauge(cache, 0.4, labels)] if cache else ())]


VLLM = (
    *("prompt_tokens_total", "generation_tokens_total", "request_success_total"),
    *("time_to_first_token_seconds", "num_requests_running", "num_requests_waiting"),
)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        pytest.param("vLLM", engine("vllm:", (*VLLM, "kv_cache_usage_perc")), id="vLLM of today"),
        pytest.param("vLLM", engine("vllm:", (*VLLM, "gpu_cache_usage_perc")), id="vLLM to 0.9"),
        pytest.param("vLLM", engine("ray_vllm:", (*VLLM, "gpu_cache_usage_perc")), id="Ray, older"),
        pytest.param("vLLM", engine("ray_vllm_", (*VLLM, "kv_cache_usage_perc")), id="Ray"),
        pytest.param("vLLM", engine("", (*VLLM, "gpu_cache_usage_perc")), id="NIM"),
        pytest.param(
            "SGLang",
            engine(
                "sglang:",
                (
                    *("prompt_tokens_total", "generation_tokens_total", "num_requests_total"),
                    *("time_to_first_token_seconds", "num_running_reqs", "num_queue_reqs"),
                    "token_usage",
                ),
            ),
            id="SGLang",
        ),
    ],
)
def test_every_name_of_a_quantity_gives_the_same(name: str, given: list[Series]) -> None:
    (row,) = read(given)
    assert row._asdict() == {
        "hour": LOW // 1000,
        "namespace": "ml",
        "pod": "llm-0",
        "model": "llama",
        "engine": name,
        "measured_seconds": 3600.0,
        "tokens_in": pytest.approx(72_000),
        "tokens_out": pytest.approx(18_000),
        "requests": pytest.approx(7200),
        "first_tokens": pytest.approx(7200),
        "first_tokens_in_time": pytest.approx(5400),
        "ttft_objective_ms": 500,
        "running": pytest.approx(3.0),
        "waiting": pytest.approx(1.0),
        "kv_cache": pytest.approx(0.4),
    }


def test_triton_counts_first_responses_in_milliseconds() -> None:
    names = (
        *("llm_input_token_len_sum", "llm_output_token_len_sum", "inference_request_success"),
        *("inference_first_response_histogram_ms", "", "inference_pending_request_count", ""),
    )
    cache = {**POD, "model": "llama", "kv_cache_block_type": "fraction"}
    given = [one for one in engine("nv_", names, "500", model="model") if one.labels["__name__"]]
    given += [
        gauge("nv_trt_llm_kv_cache_block_metrics", 0.3, cache),
        gauge("nv_trt_llm_kv_cache_block_metrics", 900, {**cache, "kv_cache_block_type": "max"}),
    ]
    (row,) = read(given)
    assert (row.engine, row.model, row.kv_cache) == ("Triton", "llama", 0.3)
    assert row.tokens_out == pytest.approx(18_000)
    assert row.first_tokens_in_time == pytest.approx(5400)
    assert row.running is None


def test_what_a_server_does_not_export_is_no_data() -> None:
    names = (
        *("request_input_length_sum", "request_generated_tokens_sum", "request_success"),
        *("", "batch_current_size", "queue_size", ""),
    )
    (row,) = read(engine("tgi_", names))
    assert row.engine == "TGI"
    assert row.tokens_in == pytest.approx(72_000)
    assert (row.first_tokens, row.first_tokens_in_time, row.kv_cache) == (None, None, None)


def test_an_objective_that_ends_no_bucket_has_no_attainment() -> None:
    given = engine("vllm:", (*VLLM, "kv_cache_usage_perc"))
    (row,) = read(given, objectives=TtftObjectives(700))
    assert row.first_tokens == pytest.approx(7200)
    assert row.first_tokens_in_time is None
    # The objective is told all the same: it says why nothing is known.
    assert row.ttft_objective_ms == 700


FIRST_TOKENS = "vllm:time_to_first_token_seconds"


def first_tokens(pod: str, model: str) -> list[Series]:
    """Return the histogram of a pod: of 10 a second 1 is within 0.25 s, 5 in 0.5, 9 in 1."""
    labels = {**POD, "pod": pod, "model_name": model}
    buckets = {"0.25": 1.0, "0.5": 5.0, "1.0": 9.0, "+Inf": 10.0}
    return [
        counter(f"{FIRST_TOKENS}_count", 10, labels),
        counter("vllm:generation_tokens_total", 5, labels),
        *(
            counter(f"{FIRST_TOKENS}_bucket", rate, {**labels, "le": le})
            for le, rate in buckets.items()
        ),
    ]


ALWAYS = LOW / 1000 - 86_400
CHAT, BATCH = Owner("Deployment", "chat"), Owner("StatefulSet", "batch")
OWNERS = {("ml", "chat-0"): CHAT, ("ml", "batch-0"): BATCH}


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        pytest.param([], {"chat-0": (500, 0.5), "batch-0": (500, 0.5)}, id="the default"),
        pytest.param(
            [TtftRule(250, ALWAYS, workload="ch*"), TtftRule(1000, ALWAYS, namespace="ml")],
            {"chat-0": (250, 0.1), "batch-0": (1000, 0.9)},
            id="the first that fits",
        ),
        pytest.param(
            [TtftRule(1000, ALWAYS, workload="StatefulSet/*")],
            {"chat-0": (500, 0.5), "batch-0": (1000, 0.9)},
            id="by kind",
        ),
        pytest.param(
            [TtftRule(1000, ALWAYS, model="qwen?", namespace="m*")],
            {"chat-0": (500, 0.5), "batch-0": (1000, 0.9)},
            id="by model",
        ),
        pytest.param(
            [
                TtftRule(250, ALWAYS, end=LOW / 1000, namespace="ml"),
                TtftRule(1000, LOW / 1000 + 60, namespace="ml"),
            ],
            {"chat-0": (500, 0.5), "batch-0": (500, 0.5)},
            id="none in force when the hour begins",
        ),
        pytest.param(
            [TtftRule(300, ALWAYS, workload="chat")],
            {"chat-0": (300, None), "batch-0": (500, 0.5)},
            id="one without a bucket",
        ),
    ],
)
def test_each_service_is_held_against_its_own_objective(
    rules: Sequence[TtftRule], expected: Mapping[str, tuple[int, float | None]]
) -> None:
    given = [*first_tokens("chat-0", "llama3"), *first_tokens("batch-0", "qwen2")]
    rows = read(given, objectives=TtftObjectives(500, rules, OWNERS))
    assert {row.pod: row.ttft_objective_ms for row in rows} == {
        pod: objective for pod, (objective, _) in expected.items()
    }
    for row in rows:
        ratio = expected[row.pod][1]
        if ratio is None:
            assert row.first_tokens_in_time is None
        else:
            assert row.first_tokens
            assert row.first_tokens_in_time is not None
            assert row.first_tokens_in_time / row.first_tokens == pytest.approx(ratio)


def test_an_objective_by_workload_is_for_no_pod_of_an_unknown_owner() -> None:
    rules = [TtftRule(250, ALWAYS, workload="*")]
    (row,) = read(first_tokens("chat-0", "llama3"), objectives=TtftObjectives(500, rules))
    assert row.ttft_objective_ms == 500


def test_a_restart_loses_at_most_what_no_scrape_saw() -> None:
    spans = ((-2.0, 0.4), (0.43, 26.0))
    (row,) = read([counter("vllm:generation_tokens_total", 5, spans=spans, reset=True)])
    assert row.tokens_out is not None
    served_tokens = 5 * (3600 - 0.03 * 3600)
    assert served_tokens - 5 * 30 <= row.tokens_out <= served_tokens + 1e-6


def test_an_outage_is_neither_zero_nor_negative_and_says_how_long_was_measured() -> None:
    spans = ((-2.0, 0.25), (0.75, 3.1), (5.5, 26.0))
    day = Window(START, START + timedelta(hours=24))
    rows = {
        (row.hour * 1000 - LOW) // HOUR_MS: row
        for row in read([counter("vllm:generation_tokens_total", 5, spans=spans)], day)
    }
    # An hour without a single sample has no row at all.
    assert set(rows) == set(range(24)) - {4}
    for row in rows.values():
        assert row.tokens_out is not None
        assert row.tokens_out == pytest.approx(5 * row.measured_seconds)
    assert rows[0].measured_seconds == pytest.approx(1800, abs=60)
    assert rows[3].measured_seconds == pytest.approx(360, abs=60)
    assert rows[1].measured_seconds == 3600.0


@pytest.mark.parametrize("ends", [-0.01, -0.05])
def test_what_was_there_before_the_hour_alone_is_no_zero_of_it(ends: float) -> None:
    gone = counter("vllm:generation_tokens_total", 5, spans=((-2.0, ends),))
    assert read([gone]) == []
    (row,) = read([gone, counter("vllm:prompt_tokens_total", 20)])
    assert row.tokens_in == pytest.approx(72_000)
    assert row.tokens_out is None


@pytest.mark.parametrize("odd", [nan, inf, -1.0, 1e300, 2.0**63])
@pytest.mark.parametrize("begin", [-2.0, 0.0, 0.25])
def test_what_no_counter_can_have_is_no_zero(odd: float, begin: float) -> None:
    start = LOW + round(begin * HOUR_MS)
    labels = {"__name__": "vllm:generation_tokens_total", **POD}
    odd_one = Series(labels, 7_000, [Segment(start, LOW + 26 * HOUR_MS, odd)])
    (row,) = read([odd_one, counter("vllm:prompt_tokens_total", 20)])
    assert row.tokens_in == pytest.approx(72_000)
    assert row.tokens_out is None


@pytest.mark.parametrize(
    ("cache", "told"), [(1.0, 1.0), (1.02, 1.0), (87.0, None), (-0.5, None), (nan, None)]
)
def test_a_cache_is_no_more_than_full(cache: float, told: float | None) -> None:
    given = [
        counter("vllm:generation_tokens_total", 5),
        gauge("vllm:kv_cache_usage_perc", cache),
        gauge("vllm:num_requests_waiting", 1e300 if cache > 1.5 else 4.0),
    ]
    (row,) = read(given)
    assert row.kv_cache == told
    assert row.waiting == (None if cache > 1.5 else 4.0)


def test_no_more_first_tokens_are_in_time_than_there_are() -> None:
    """A recording rule that left the count out for half an hour, and not the bucket."""
    name = "vllm:time_to_first_token_seconds"
    (row,) = read(
        [
            counter("vllm:generation_tokens_total", 5),
            counter(f"{name}_count", 2, spans=((-2.0, 0.25), (0.75, 26.0))),
            counter(f"{name}_bucket", 2, {**POD, "le": "0.5"}),
        ]
    )
    assert row.first_tokens is not None
    assert row.first_tokens < 7_200
    assert row.first_tokens_in_time == row.first_tokens


@pytest.mark.parametrize("odd", [inf, 1e300, 2.0**63])
def test_a_counter_that_jumps_to_what_cannot_be_grew_by_the_rest(odd: float) -> None:
    """No table holds such a number: writing the hour would fail."""
    at = LOW + HOUR_MS // 2
    labels = {"__name__": "vllm:generation_tokens_total", **POD}
    parts = [
        Segment(LOW - 2 * HOUR_MS, at, 500.0, 0.005),
        Segment(at, at + 60_000, odd),
        Segment(at + 60_000, LOW + 26 * HOUR_MS, 500.0 + 5 * 2.5 * 3600 + 300, 0.005),
    ]
    (row,) = read([Series(labels, 7_000, parts)])
    assert row.tokens_out == pytest.approx(18_000)


def test_a_single_scrape_in_an_hour_tells_nothing_of_it() -> None:
    spans = ((-2.0, -0.5), (0.995, 1.0))
    assert read([counter("vllm:generation_tokens_total", 5, spans=spans)]) == []


@pytest.mark.parametrize("before", [7e6, 0.0])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("vllm:generation_tokens_total", "vllm_generation_tokens_total"),
        ("sglang:generation_tokens_total", "sglang_generation_tokens_total"),
    ],
)
def test_a_counter_that_is_renamed_goes_on(old: str, new: str, before: float) -> None:
    reached = before + 5 * 2.5 * 3600
    earlier = counter(old, 5, spans=((-2.0, 0.5),), before=before)
    later = counter(new, 5, spans=((0.5, 26.0),), before=reached)
    (row,) = read([earlier, later])
    assert row.tokens_out == pytest.approx(18_000)
    # With a restart it begins again, and loses no more than what no scrape saw.
    (row,) = read([earlier, counter(new, 5, spans=((0.5, 26.0),), before=0.0)])
    assert 18_000 - 5 * 30 <= (row.tokens_out or 0) <= 18_000


def test_names_that_are_shown_beside_each_other_are_counted_once() -> None:
    both = ("vllm:generation_tokens_total", "vllm_generation_tokens_total")
    (row,) = read([counter(name, 5) for name in both])
    assert row.tokens_out == pytest.approx(18_000)
    # The second begins while the first is there, and outlives it.
    first = counter(both[0], 5, spans=((-2.0, 0.6),))
    second = counter(both[1], 5, spans=((0.3, 26.0),), before=500 + 5 * 2.3 * 3600)
    (row,) = read([first, second])
    assert row.tokens_out == pytest.approx(18_000)
    kserve = ("request_predict_seconds_count", "revision_app_request_count")
    (row,) = read([counter(name, 2) for name in kserve])
    assert row.engine == "KServe"
    assert row.requests == pytest.approx(7200)


def test_a_pod_that_two_jobs_scrape_is_counted_once() -> None:
    again = {**POD, "job": "podmonitor"}
    (row,) = read(
        [
            counter("vllm:generation_tokens_total", 5),
            counter("vllm:generation_tokens_total", 5, again, spans=((0.5, 26.0),)),
        ]
    )
    assert row.tokens_out == pytest.approx(18_000)


def test_several_engines_of_a_pod_add_up() -> None:
    given = [
        counter("vllm:generation_tokens_total", 5, {**POD, "engine": number})
        for number in ("0", "1")
    ]
    given += [gauge("vllm:num_requests_running", 2, {**POD, "engine": n}) for n in ("0", "1")]
    (row,) = read(given)
    assert row.tokens_out == pytest.approx(36_000)
    assert row.running == pytest.approx(4)


def test_a_counter_that_begins_with_its_first_event_counts_from_zero() -> None:
    begun = counter("sglang:generation_tokens_total", 5, spans=((0.5, 26.0),), before=40.0)
    (row,) = read([counter("sglang:num_requests_total", 0.0), begun])
    assert row.requests == 0.0
    assert row.tokens_out == pytest.approx(40 + 5 * 1800, abs=5 * 30)
    assert row.measured_seconds == 3600.0


def test_a_server_within_another_is_counted_once() -> None:
    inner = {**POD, "model_name": "llama"}
    outer = {**POD, "deployment": "LLMServer"}
    (row,) = read(
        [
            counter("ray_vllm_generation_tokens_total", 5, inner),
            counter("ray_serve_deployment_request_counter_total", 2, outer),
            gauge("ray_serve_deployment_queued_queries", 1, outer),
        ]
    )
    assert (row.model, row.engine) == ("llama", "vLLM")
    assert row.requests == pytest.approx(7200)
    assert row.waiting == pytest.approx(1)


@pytest.mark.parametrize(
    "labels",
    [
        {"kubernetes_namespace": "ml", "kubernetes_pod_name": "llm-0"},
        {"k8s_namespace_name": "ml", "k8s_pod_name": "llm-0"},
        {"exported_namespace": "ml", "exported_pod": "llm-0", "namespace": "x", "pod": "agent"},
    ],
)
def test_pods_are_found_by_the_labels_of_each_set_up(labels: dict[str, str]) -> None:
    (row,) = read([counter("vllm:generation_tokens_total", 5, labels)])
    assert (row.namespace, row.pod) == ("ml", "llm-0")


def test_series_without_a_pod_are_one_row_without_one() -> None:
    (row,) = read([counter("vllm:generation_tokens_total", 5, {"instance": "10.0.0.1:8000"})])
    assert row.pod == ""


def test_where_there_are_none_one_query_is_asked() -> None:
    day = Window(START, START + timedelta(hours=24))
    with served([counter("DCGM_FI_DEV_GPU_UTIL", 5)]) as server:
        source = PrometheusSource(PrometheusApi(PrometheusConfig.from_catalog({"url": server.url})))
        shown = source.shown_metrics(day).rows
        assert source.serving(day, objectives=HALF_SECOND, shown=shown).rows == []
        assert source.device_health(day, shown=shown).exported == {}
        source.close()
        assert len(server.asked) == 1


def test_names_that_were_asked_for_already_are_not_asked_for_again() -> None:
    given = [counter("vllm:generation_tokens_total", 5), counter("DCGM_FI_DEV_XID_ERRORS", 0)]
    with served(given) as server:
        source = PrometheusSource(PrometheusApi(PrometheusConfig.from_catalog({"url": server.url})))
        shown = source.shown_metrics(WINDOW).rows
        before = len(server.asked)
        rows = source.serving(WINDOW, objectives=HALF_SECOND, shown=shown).rows
        health = source.device_health(WINDOW, shown=shown)
        after = [one.form["query"] for one in server.asked[before:]]
        assert rows == source.serving(WINDOW, objectives=HALF_SECOND).rows
        assert health == source.device_health(WINDOW)
        source.close()
    assert rows
    assert health.exported
    assert not any("count by (__name__)" in query for query in after)


# ---------------------------------------------------------------- as Prometheus itself stores them

KUBERNETES = {"kubernetes_namespace": "ml", "kubernetes_pod_name": "sglang-1"}
EXPORTED = {"exported_namespace": "ml", "exported_pod": "triton-0", "namespace": "x", "pod": "y"}
COLLECTED = {"k8s_namespace_name": "ml", "k8s_pod_name": "tgi-0"}


def pod(name: str) -> dict[str, str]:
    return {"namespace": "ml", "pod": name, "job": name}


def every_engine() -> list[Series]:
    """Return a pod of each engine and version, with 5 tokens or 2 requests a second."""
    out, went_on = "generation_tokens_total", 500 + 5 * 2.5 * 3600
    restart = ((-2.0, 0.4), (0.43, 26.0))
    outage = ((-2.0, 0.25), (0.75, 26.0))
    return [
        counter(f"vllm:{out}", 5, pod("vllm-new")),
        gauge("vllm:kv_cache_usage_perc", 0.4, pod("vllm-new")),
        counter(f"vllm:{out}", 5, pod("vllm-old")),
        gauge("vllm:gpu_cache_usage_perc", 0.4, pod("vllm-old")),
        counter(f"ray_vllm:{out}", 5, pod("ray-0")),
        counter(out, 5, pod("nim-0")),
        counter(f"sglang:{out}", 5, pod("sglang-0")),
        counter(f"sglang_{out}", 5, KUBERNETES),
        counter("tgi_request_generated_tokens_sum", 5, COLLECTED),
        counter("nv_llm_output_token_len_sum", 5, EXPORTED),
        counter("request_predict_seconds_count", 2, pod("kserve-0")),
        counter("ray_serve_deployment_request_counter_total", 2, pod("rayserve-0")),
        counter(f"vllm:{out}", 5, pod("restarted"), spans=restart, reset=True),
        counter(f"vllm:{out}", 5, pod("lost"), spans=outage),
        counter(f"vllm:{out}", 5, pod("renamed"), spans=((-2.0, 0.5),)),
        counter(f"vllm_{out}", 5, pod("renamed"), spans=((0.5, 26.0),), before=went_on),
        counter(f"vllm:{out}", 5, pod("gone"), spans=((-2.0, -0.02),)),
    ]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ServingPodHour]]:
    """Yield what the portal reads of these from a Prometheus that stored them."""
    path = tmp_path_factory.mktemp("serving") / "serving.om"
    with path.open("w", encoding="utf-8") as file:
        signals = GivenSignals(every_engine())
        file.writelines(sample_rows(signals, LOW - HOUR_MS, LOW + HOUR_MS))
    with RealPrometheus.loaded(path) as real:
        source = PrometheusSource(PrometheusApi(PrometheusConfig.from_catalog({"url": real.url})))
        rows = source.serving(WINDOW, objectives=HALF_SECOND).rows
        source.close()
        yield {row.pod: row for row in rows}


@pytest.mark.prometheus
def test_every_engine_and_set_up_of_labels_is_found_in_a_real_prometheus(
    stored: dict[str, ServingPodHour],
) -> None:
    expected = {
        "vllm-new": "vLLM",
        "vllm-old": "vLLM",
        "ray-0": "vLLM",
        "nim-0": "vLLM",
        "sglang-0": "SGLang",
        "sglang-1": "SGLang",
        "tgi-0": "TGI",
        "triton-0": "Triton",
        "kserve-0": "KServe",
        "rayserve-0": "Ray Serve",
        **dict.fromkeys(("restarted", "lost", "renamed"), "vLLM"),
    }
    assert {name: row.engine for name, row in stored.items()} == expected
    assert {row.namespace for row in stored.values()} == {"ml"}
    whole = [name for name in expected if name not in ("restarted", "lost")]
    for name in whole:
        row = stored[name]
        of_requests = row.engine in ("KServe", "Ray Serve")
        assert row.tokens_out == (None if of_requests else pytest.approx(18_000)), name
        assert row.requests == (pytest.approx(7200) if of_requests else None), name
    assert stored["vllm-new"].kv_cache == stored["vllm-old"].kv_cache == pytest.approx(0.4)


@pytest.mark.prometheus
def test_restarts_outages_and_what_is_gone_are_no_zeros_in_a_real_prometheus(
    stored: dict[str, ServingPodHour],
) -> None:
    lost = stored["lost"]
    assert lost.tokens_out == pytest.approx(5 * lost.measured_seconds)
    assert lost.measured_seconds == pytest.approx(1800, abs=60)
    served_tokens = 5 * 0.97 * 3600
    assert served_tokens - 150 <= (stored["restarted"].tokens_out or 0) <= served_tokens + 1e-6
    assert "gone" not in stored
