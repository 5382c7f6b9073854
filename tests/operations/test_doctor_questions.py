"""The doctor's own questions: Prometheus understands them, and they ask what they are said to."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from apps.operations.adapters import metric_queries
from apps.operations.domain.observations import NodeHeadroom
from tests.operations.doctor_portal import GIB, AskedMetrics, replies
from tests.programs import find

MATCHERS = ["", 'cluster="west",']


def run(folder: Path, *arguments: str) -> None:
    done = subprocess.run(  # noqa: S603 - our own words
        [find("promtool"), *arguments], capture_output=True, text=True, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stdout + done.stderr


def record(folder: Path, matchers: str) -> None:
    """Write every question as a recording rule, with the matchers of a cluster put in."""
    rules = [
        {"record": f"question:{n}", "expr": question.replace("$matchers", matchers)}
        for n, question in enumerate(every_question())
    ]
    made = {"groups": [{"name": "questions", "rules": rules}]}
    (folder / "rules.yaml").write_text(yaml.safe_dump(made), encoding="utf-8")


@pytest.mark.prometheus
@pytest.mark.parametrize("matchers", MATCHERS, ids=["no-matchers", "with-matchers"])
def test_prometheus_understands_every_question(tmp_path: Path, matchers: str) -> None:
    record(tmp_path, matchers)
    run(tmp_path, "check", "rules", "rules.yaml")


REQUESTS = "kube_pod_container_resource_requests"
SERIES = {
    'DCGM_FI_DEV_FB_USED{UUID="GPU-1",instance="a"}': 1,
    'DCGM_FI_DEV_FB_USED{UUID="GPU-1",instance="b"}': 1,
    'DCGM_FI_DEV_FB_USED{UUID="GPU-2",instance="a",GPU_I_ID="1"}': 1,
    'DCGM_FI_DEV_FB_USED{UUID="GPU-2",instance="a",GPU_I_ID="2"}': 1,
    'kube_node_info{node="n1",instance="a"}': 1,
    'kube_node_info{node="n1",instance="b"}': 1,
    'kube_node_spec_taint{node="n1",key="nvidia.com/gpu",effect="NoSchedule"}': 1,
    'kube_node_spec_taint{node="n2",key="node.kubernetes.io/not-ready",effect="NoExecute"}': 1,
    'kube_node_status_allocatable{node="n1",resource="cpu",unit="core"}': 64,
    'kube_node_status_allocatable{node="n1",resource="memory",unit="byte"}': 1000,
    f'{REQUESTS}{{namespace="a",pod="p",uid="1",container="c",node="n1",resource="cpu"}}': 8,
    f'{REQUESTS}{{namespace="a",pod="p",uid="1",container="d",node="n1",resource="cpu"}}': 4,
    f'{REQUESTS}{{namespace="a",pod="q",uid="2",container="c",node="n1",resource="cpu"}}': 16,
    f'{REQUESTS}{{namespace="a",pod="w",uid="3",container="c",node="",resource="cpu"}}': 16,
    f'{REQUESTS}{{namespace="a",pod="p",uid="1",container="c",node="n1",resource="memory"}}': 600,
    'kube_pod_status_phase{namespace="a",pod="p",uid="1",phase="Running"}': 1,
    'kube_pod_status_phase{namespace="a",pod="p",uid="1",phase="Succeeded"}': 0,
    'kube_pod_status_phase{namespace="a",pod="q",uid="2",phase="Succeeded"}': 1,
    'kube_pod_status_phase{namespace="a",pod="q",uid="2",phase="Running"}': 0,
    'kube_pod_status_phase{namespace="a",pod="w",uid="3",phase="Pending"}': 1,
}
ANSWERS = [
    pytest.param(metric_queries.TWICE, [("{}", 1)], id="one-gpu-by-two-targets"),
    pytest.param(metric_queries.KUBE_STATE_COPIES, [("{}", 2)], id="two-copies-of-a-node"),
    pytest.param(metric_queries.CLUSTERS, [("{}", 1)], id="one-cluster"),
    pytest.param(
        metric_queries.TAINTED, [('{node="n1"}', 1)], id="taints-of-kubernetes-do-not-count"
    ),
    pytest.param(metric_queries.ALLOCATABLE % "cpu", [('{node="n1"}', 64)], id="cpus-of-a-node"),
    pytest.param(
        metric_queries.REQUESTED % "cpu", [('{node="n1"}', 12)], id="pods-that-are-over-free-theirs"
    ),
    pytest.param(metric_queries.REQUESTED % "memory", [('{node="n1"}', 600)], id="bytes-asked-for"),
]


@pytest.mark.prometheus
@pytest.mark.parametrize(("question", "expected"), ANSWERS)
def test_a_question_is_answered_by_what_is_there(
    tmp_path: Path, question: str, expected: list[tuple[str, float]]
) -> None:
    samples: list[dict[str, Any]] = [{"labels": of, "value": value} for of, value in expected]
    asked = {
        "expr": question.replace("$matchers", ""),
        "eval_time": "1m",
        "exp_samples": samples,
    }
    rows = [{"series": name, "values": f"{value}x5"} for name, value in SERIES.items()]
    test = {"interval": "1m", "input_series": rows, "promql_expr_test": [asked]}
    record(tmp_path, "")
    written = {"rule_files": ["rules.yaml"], "tests": [test]}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(written), encoding="utf-8")
    run(tmp_path, "test", "rules", "tests.yaml")


def source(**changed: list[tuple[dict[str, str], float]]) -> AskedMetrics:
    made = AskedMetrics(replies=replies(["n1", "n2"]))
    made.replies[metric_queries.TIME] = [({}, 1000.0)]
    for name, series in changed.items():
        made.replies[getattr(metric_queries, name)] = series
    return made


def every_question() -> list[str]:
    asked = source()
    metric_queries.answers(asked, lambda: 1000.0)
    return asked.asked


def test_no_question_is_asked_twice() -> None:
    asked = every_question()
    assert len(set(asked)) == len(asked) == 9


def test_answers_are_read() -> None:
    found, unasked = metric_queries.answers(source(TWICE=[({}, 3.0)]), lambda: 1000.0)
    assert unasked == ()
    assert (found.scraped_twice, found.kube_state_copies) == (3, 1)
    assert found.tainted == frozenset({"n1", "n2"})
    assert found.room == {name: NodeHeadroom(32.0, 256.0 * GIB) for name in ("n1", "n2")}


@pytest.mark.parametrize(
    ("before", "after", "skew"),
    [
        pytest.param(999.0, 1001.0, 0.0, id="in-between-is-no-difference"),
        pytest.param(900.0, 901.0, 99.0, id="server-ahead"),
        pytest.param(1100.0, 1101.0, -100.0, id="server-behind"),
    ],
)
def test_a_clock_differs_only_by_what_the_answer_cannot_explain(
    before: float, after: float, skew: float
) -> None:
    times = iter((before, after))
    found, _ = metric_queries.answers(source(), lambda: next(times))
    assert found.skew_seconds == skew


def test_what_a_server_refuses_is_told_and_the_rest_is_still_asked() -> None:
    asked = source()
    del asked.replies[metric_queries.REQUESTED % "cpu"]
    found, unasked = metric_queries.answers(asked, lambda: 1000.0)
    assert unasked == ("CPU and memory left on nodes",)
    assert found.room is None
    assert found.tainted
