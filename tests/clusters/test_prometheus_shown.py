"""The queries that people are shown are those that facts rest on, and can be put to a server."""

import pytest

from apps.clusters.gateways import explain_queries, known_by
from simulator.prometheus.promql import parse
from tests.factories import make_cluster

ABOUT = ("activity", "holding", "capacity")


@pytest.mark.parametrize("about", ABOUT)
@pytest.mark.parametrize(
    ("namespace", "pods"),
    [("", ()), ("vision", ()), ('a"b\\', ("train-0", "p.(x)|y"))],
    ids=["everything", "a namespace", "hostile names"],
)
def test_a_shown_query_is_promql(about: str, namespace: str, pods: tuple[str, ...]) -> None:
    queries = explain_queries(
        about=about, matchers={"cluster": "west"}, namespace=namespace, pods=pods
    )
    assert queries
    for query in queries:
        assert query.purpose
        assert 'cluster="west"' in query.text
        parse(query.text)


def test_activity_is_narrowed_by_the_labels_of_the_workload() -> None:
    first, second, _ = explain_queries(
        about="activity", matchers={}, namespace="vision", pods=("train-1", "train-0")
    )
    chosen = '{exported_namespace="vision",exported_pod=~"train-0|train-1"}[30m]'
    labels = "UUID,GPU_I_ID,exported_namespace,exported_pod,exported_container"
    metric = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
    assert first.text == f"sum by ({labels}) (sum_over_time({metric}{chosen}))"
    assert second.text == f"sum by ({labels}) (count_over_time({metric}{chosen}))"


def test_the_gpus_of_nodes_are_nobodys_namespace() -> None:
    queries = explain_queries(about="capacity", matchers={}, namespace="vision", pods=("train-0",))
    assert not any("vision" in query.text or "train-0" in query.text for query in queries)


@pytest.mark.django_db
def test_matchers_are_those_of_the_catalog() -> None:
    make_cluster("west", prometheus={"url": "http://p:9090", "matchers": {"cluster": "w"}})
    make_cluster("east", prometheus={"url": "http://p:9090"})
    make_cluster("gone", prometheus={"url": "http://p:9090"}, active=False)
    assert known_by().matchers == {"east": {}, "west": {"cluster": "w"}}
