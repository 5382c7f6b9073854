"""The lab's Prometheus HTTP API: forms, times, errors and the paths it shares with Kubernetes."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from tests.simulator.client import Served, serving
from tests.simulator.small import ORIGIN, Small, pod

ACTIVITY = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
NOW = ORIGIN + 7200


@pytest.fixture(scope="module")
def lab() -> Iterator[Served]:
    with serving(Small([pod("a", bound=0, activity=0.25)]), NOW) as served:
        yield served


QUERY = f'sum by (exported_pod) (sum_over_time({ACTIVITY}{{exported_pod!=""}}[30m]))'


def test_an_instant_query_gives_a_vector(lab: Served) -> None:
    answer = lab.get("/api/v1/query", query=QUERY, time=f"{ORIGIN + 1799}.999")

    assert answer == {
        "status": "success",
        "data": {
            "resultType": "vector",
            "result": [{"metric": {"exported_pod": "a"}, "value": [ORIGIN + 1799.999, "15"]}],
        },
    }


def test_a_form_says_the_same_as_a_url(lab: Served) -> None:
    time = ORIGIN + 3600

    assert lab.post("/api/v1/query", query=QUERY, time=time) == lab.get(
        "/api/v1/query", query=QUERY, time=time
    )


@pytest.mark.parametrize(
    "time",
    [
        pytest.param("2026-10-01T01:00:00Z", id="RFC 3339"),
        pytest.param("2026-10-01T03:00:00+02:00", id="offset"),
        pytest.param(f"{ORIGIN + 3600}.0", id="decimals"),
        pytest.param(f"{ORIGIN + 3600}", id="seconds"),
    ],
)
def test_times_are_seconds_or_rfc_3339(lab: Served, time: str) -> None:
    answer = lab.get("/api/v1/query", query=ACTIVITY, time=time)

    assert answer["data"]["result"][0]["value"][0] == ORIGIN + 3600


def test_without_a_time_it_is_now(lab: Served) -> None:
    answer = lab.get("/api/v1/query", query=ACTIVITY)

    assert answer["data"]["result"][0]["value"][0] == NOW


def test_a_range_query_gives_a_value_for_each_slot(lab: Served) -> None:
    answer = lab.get(
        "/api/v1/query_range",
        query=QUERY,
        start=f"{ORIGIN + 1799}.999",
        end=f"{ORIGIN + 7199}.999",
        step=1800,
    )

    assert answer["data"] == {
        "resultType": "matrix",
        "result": [
            {
                "metric": {"exported_pod": "a"},
                "values": [[ORIGIN + 1800 * n - 0.001, "15"] for n in range(1, 5)],
            }
        ],
    }


def test_a_range_selector_gives_raw_samples(lab: Served) -> None:
    answer = lab.get("/api/v1/query", query=f'{ACTIVITY}{{gpu="0"}}[90s]', time=ORIGIN + 3600)

    (series,) = answer["data"]["result"]
    assert answer["data"]["resultType"] == "matrix"
    assert series["metric"]["__name__"] == ACTIVITY
    assert [value for _, value in series["values"]] == ["0.25"] * 3
    times = [at for at, _ in series["values"]]
    assert [b - a for a, b in pairwise(times)] == [30.0, 30.0]


def test_a_scrape_at_either_end_of_a_range_is_in_it(lab: Served) -> None:
    raw = lab.get("/api/v1/query", query=f'{ACTIVITY}{{gpu="0"}}[1m]', time=ORIGIN + 3600)
    scrape = raw["data"]["result"][0]["values"][0][0]

    answer = lab.get(
        "/api/v1/query", query=f'count_over_time({ACTIVITY}{{gpu="0"}}[1m])', time=scrape
    )

    assert answer["data"]["result"][0]["value"][1] == "3"


def test_a_device_has_the_labels_of_an_exporter_behind_a_service_monitor(lab: Served) -> None:
    answer = lab.get("/api/v1/query", query=f'{ACTIVITY}{{gpu="0"}}')

    labels = answer["data"]["result"][0]["metric"]
    assert labels["cluster"] == "lab"
    assert labels["modelName"] == "NVIDIA A100-SXM4-80GB"
    assert labels["Hostname"] == "one"
    assert (labels["namespace"], labels["container"]) == ("gpu-operator", "nvidia-dcgm-exporter")
    assert (labels["exported_namespace"], labels["exported_pod"], labels["exported_container"]) == (
        "vision",
        "a",
        "main",
    )


@pytest.mark.parametrize(
    ("path", "parameters", "status", "kind", "says"),
    [
        pytest.param("query", {}, 400, "bad_data", "query", id="no query"),
        pytest.param("query", {"query": "up{"}, 400, "bad_data", "parse error", id="syntax"),
        pytest.param("query", {"query": "up + 1"}, 422, "execution", "operators", id="operator"),
        pytest.param(
            "query", {"query": "up", "time": "noon"}, 400, "bad_data", "timestamp", id="time"
        ),
        pytest.param(
            "query",
            {"query": "up", "time": "2026-10-01T00:00:00"},
            400,
            "bad_data",
            "timestamp",
            id="time without zone",
        ),
        pytest.param(
            "query_range", {"query": "up"}, 400, "bad_data", "start", id="range without start"
        ),
        pytest.param(
            "query_range",
            {"query": "up", "start": 10, "end": 5, "step": 1},
            400,
            "bad_data",
            "before start",
            id="end before start",
        ),
        pytest.param(
            "query_range",
            {"query": "up", "start": 0, "end": 5, "step": 0},
            400,
            "bad_data",
            "zero or negative",
            id="no step",
        ),
        pytest.param(
            "query_range",
            {"query": "up", "start": 0, "end": 5, "step": "fast"},
            400,
            "bad_data",
            "duration",
            id="step without meaning",
        ),
        pytest.param(
            "query_range",
            {"query": "up", "start": 0, "end": 11000, "step": 1},
            400,
            "bad_data",
            "11,000 points",
            id="too many steps",
        ),
        pytest.param(
            "query_range",
            {"query": "up[5m]", "start": 0, "end": 5, "step": 1},
            400,
            "bad_data",
            "range vector",
            id="range of a range",
        ),
        pytest.param("series", {}, 400, "bad_data", "match[]", id="series without match"),
        pytest.param(
            "series", {"match[]": "sum(up)"}, 400, "bad_data", "selector", id="match of a sum"
        ),
    ],
)
def test_errors_have_the_form_of_prometheus(
    lab: Served, path: str, parameters: dict[str, object], status: int, kind: str, says: str
) -> None:
    got, _ = lab.raw(f"/api/v1/{path}", **parameters)
    answer = lab.get(f"/api/v1/{path}", **parameters)

    assert (got, answer["status"], answer["errorType"]) == (status, "error", kind)
    assert says in answer["error"]


def test_a_metric_that_is_not_there_is_an_empty_answer(lab: Served) -> None:
    assert lab.get("/api/v1/query", query="up")["data"]["result"] == []


def test_names_and_values_of_labels_are_listed(lab: Served) -> None:
    def data(path: str, **parameters: object) -> Any:
        return lab.get(f"/api/v1/{path}", **parameters)["data"]

    assert ACTIVITY in data("label/__name__/values")
    assert data("label/gpu/values") == ["0", "1", "2", "3"]
    assert data("label/gpu/values", **{"match[]": f'{ACTIVITY}{{exported_pod="a"}}'}) == ["0"]
    assert {"UUID", "exported_pod", "resource"} <= set(data("labels"))
    assert {s["gpu"] for s in data("series", **{"match[]": ACTIVITY})} == {"0", "1", "2", "3"}
    assert data("metadata")[ACTIVITY][0]["type"] == "gauge"


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/api/v1/status/buildinfo", "2.42.0"),
        ("/-/ready", "Ready"),
        ("/-/healthy", "Healthy"),
    ],
)
def test_the_server_says_what_it_is(lab: Served, path: str, says: str) -> None:
    status, body = lab.raw(path)

    assert (status, says in body.decode()) == (200, True)


def test_both_apis_live_under_one_prefix(lab: Served) -> None:
    assert lab.get("/api/v1/query", query=ACTIVITY)["status"] == "success"
    assert lab.get("/api/v1/pods")["kind"] == "PodList"
    assert lab.raw("/api/v1/queryx")[0] == 404
