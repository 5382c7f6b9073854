"""Choosing the sources of a cluster."""

from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from apps.clusters.gateways import ClusterClients, cluster_source, metrics_source
from apps.clusters.models import Cluster
from apps.clusters.ports import SourceRejected
from tests.clusters.fakes.fake_metrics import FakeMetrics
from tests.clusters.scripted_prometheus import Answer, in_turn, scripted

VERSION = b'{"status":"success","data":{"version":"3.0.0"}}'


def cluster(**prometheus: Any) -> Cluster:
    return Cluster(name="west", prometheus=prometheus)


def test_one_source_serves_a_process_until_the_catalog_changes() -> None:
    one = metrics_source(cluster(url="http://127.0.0.1:9"))
    assert metrics_source(cluster(url="http://127.0.0.1:9")) is one
    assert metrics_source(cluster(url="http://127.0.0.1:9", matchers={"a": "b"})) is not one
    with override_settings(PROMETHEUS_IN_FLIGHT=7):
        assert metrics_source(cluster(url="http://127.0.0.1:9")) is not one


def test_secrets_come_from_the_environment_at_the_time_of_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with scripted(in_turn(Answer(VERSION))) as server:
        source = metrics_source(cluster(url=server.url, bearer_token_env="WEST_TOKEN"))
        with pytest.raises(SourceRejected, match="WEST_TOKEN"):
            source.health()
        monkeypatch.setenv("WEST_TOKEN", "first")
        source.health()
        monkeypatch.delenv("WEST_TOKEN")
        (tmp_path / "token").write_text("second\n", encoding="ascii")
        monkeypatch.setenv("WEST_TOKEN_FILE", str(tmp_path / "token"))
        source.health()
        monkeypatch.setenv("WEST_TOKEN_FILE", str(tmp_path / "missing"))
        with pytest.raises(SourceRejected, match="cannot be read"):
            source.health()
    sent = [asked.headers["Authorization"] for asked in server.asked]
    assert sent == ["Bearer first", "Bearer second"]


def test_a_cluster_without_a_url_is_rejected() -> None:
    with pytest.raises(SourceRejected, match=r"prometheus\.url"):
        metrics_source(cluster())


@pytest.mark.parametrize("entry", [None, {}])
def test_a_cluster_of_metrics_alone_has_no_kubernetes_source(entry: dict[str, Any] | None) -> None:
    assert cluster_source(Cluster(name="west", kubernetes=entry)) is None


def test_a_cluster_with_an_api_server_has_one() -> None:
    source = cluster_source(Cluster(name="w", kubernetes={"api_server": "http://127.0.0.1:9"}))
    assert source is not None


def test_a_gateway_may_lead_elsewhere() -> None:
    fake = FakeMetrics()
    clients = ClusterClients(metrics=lambda _cluster: fake, kubernetes=lambda _cluster: None)
    assert clients.metrics(cluster()) is fake
    assert clients.kubernetes(cluster()) is None
    assert ClusterClients().metrics is metrics_source
