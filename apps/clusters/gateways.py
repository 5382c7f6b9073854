"""Choosing the sources of a cluster: the one place where ports meet their adapters."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings
from msgspec import Struct

from apps.clusters.adapters.prometheus.client import PrometheusApi
from apps.clusters.adapters.prometheus.http_api import PrometheusConfig
from apps.clusters.adapters.prometheus.source import (
    PrometheusSource,
    activity_queries,
    capacity_queries,
    holding_queries,
)
from apps.clusters.adapters.slurm.source import COLUMNS_BEHIND, SlurmSource
from apps.clusters.models import Cluster
from apps.clusters.ports import (
    ClusterSource,
    MetricsSource,
    QuotaWriter,
    ShownColumn,
    ShownQuery,
    SourceRejected,
)
from gpuportal import env

WRITER_TOKEN_FOLDER = "/var/run/secrets/gpuportal/quota-writer"  # noqa: S105 - where it is mounted
"""Where pods under the account that changes quotas have its token, and the server's CA."""


def metrics_source(cluster: Cluster) -> MetricsSource:
    """Return the metrics source that the catalog names for a cluster.

    One source, with its pooled connections, serves all calls of a process for as long as the
    catalog's entry stays the same. Raises SourceRejected where the entry cannot be used.
    """
    if cluster.slurm:
        return _slurm(json.dumps(cluster.slurm, sort_keys=True))
    return _prometheus(
        json.dumps(cluster.prometheus, sort_keys=True),
        float(settings.PROMETHEUS_TIMEOUT_SECONDS),
        int(settings.PROMETHEUS_IN_FLIGHT),
    )


def cluster_source(cluster: Cluster) -> ClusterSource | None:
    """Return the Kubernetes API of a cluster; None where the catalog gives metrics only.

    Raises SourceRejected where the entry cannot be used.
    """
    return _kubernetes_api(cluster.kubernetes)


def quota_writer(cluster: Cluster) -> QuotaWriter | None:
    """Return the way to change quotas of a cluster, under an account of its own.

    None where the catalog's `kubernetes` entry has no `writer`: what watches may only read, and
    changes are made by GitOps. Raises SourceRejected where the entry cannot be used.
    """
    entry = _writer_entry(cluster)
    if not entry:
        return None
    from apps.clusters.adapters.kubernetes.writer import KubernetesWriter  # as below

    return KubernetesWriter.from_config(entry)


def writer_account(cluster: Cluster) -> ClusterSource | None:
    """Return a way to ask what the account that changes quotas may do; None where there is none.

    It reads alone. Raises SourceRejected where the entry cannot be used.
    """
    return _kubernetes_api(_writer_entry(cluster))


def accounts_elsewhere(cluster: Cluster) -> frozenset[str]:
    """Return which accounts of a cluster, `reader` or `writer`, only other processes can use.

    In Kubernetes the pods of each account have its token alone, and a pod of the writer reads
    under that account too.
    """
    entry = cluster.kubernetes or {}
    found = set()
    if entry.get("in_cluster") and (Path(WRITER_TOKEN_FOLDER) / "token").is_file():
        found.add("reader")
    writer = _writer_entry(cluster)
    if writer and not _has_credentials(writer):
        found.add("writer")
    return frozenset(found)


def _has_credentials(entry: Mapping[str, Any]) -> bool:
    if entry.get("token_folder"):
        return (Path(entry["token_folder"]) / "token").is_file()
    if entry.get("kubeconfig"):
        return Path(entry["kubeconfig"]).is_file()
    name = entry.get("bearer_token_env")
    return not name or bool(env.text(name, ""))


def explain_queries(
    *, about: str, matchers: Mapping[str, str], namespace: str = "", pods: Collection[str] = ()
) -> list[ShownQuery]:
    """Return the queries that facts rest on, as text: none is asked, no cluster is needed.

    `about` is activity, holding or capacity (of nodes, which `namespace` and `pods` do not
    narrow); `matchers` are those that the catalog gives the cluster's series.
    """
    if about == "capacity":
        return capacity_queries(matchers)
    asked = activity_queries if about == "activity" else holding_queries
    return asked(matchers, namespace=namespace, pods=pods)


def log_columns(about: str) -> Sequence[ShownColumn]:
    """Return the columns of a job log that facts rest on, `about` as in `explain_queries`.

    Of activity no log has a column.
    """
    return COLUMNS_BEHIND.get(about, ())


class KnownBy(Struct, frozen=True):
    """By what clusters are known, by their names.

    `matchers` are those that choose a cluster's series on its server, `job_logs` the files of
    those that have no series.
    """

    matchers: Mapping[str, Mapping[str, str]]
    job_logs: Mapping[str, str]


def known_by() -> KnownBy:
    """Return by what the clusters of the catalog are known. One query."""
    entries = Cluster.objects.filter(active=True).order_by("name")
    found = list(entries.values_list("name", "prometheus", "slurm"))
    return KnownBy(
        matchers={
            name: {str(k): str(v) for k, v in (prometheus.get("matchers") or {}).items()}
            for name, prometheus, slurm in found
            if not slurm
        },
        job_logs={name: str(slurm["jobs"]) for name, _, slurm in found if slurm},
    )


class ClusterClients(Struct, frozen=True):
    """How sources are chosen; services take one as argument, tests pass their own."""

    metrics: Callable[[Cluster], MetricsSource] = metrics_source
    kubernetes: Callable[[Cluster], ClusterSource | None] = cluster_source
    writer: Callable[[Cluster], QuotaWriter | None] = quota_writer
    writer_account: Callable[[Cluster], ClusterSource | None] = writer_account
    accounts_elsewhere: Callable[[Cluster], frozenset[str]] = accounts_elsewhere


def _writer_entry(cluster: Cluster) -> dict[str, Any] | None:
    """Return how quotas are written; in the portal's own cluster with the token of that account.

    Only pods of the account have the token, so that a pod of the other one has no writer at all.
    """
    entry = (cluster.kubernetes or {}).get("writer")
    if entry and entry.get("in_cluster"):
        return {**entry, "token_folder": WRITER_TOKEN_FOLDER}
    return entry or None


def _kubernetes_api(entry: dict[str, Any] | None) -> ClusterSource | None:
    if not entry:
        return None
    # The client's 700 modules cost time and memory, and web, beat and most commands need none.
    from apps.clusters.adapters.kubernetes.api import KubernetesApi

    sources = settings.PEOPLE.sources if settings.PEOPLE else ()
    # Annotations are long: they are decoded only where one of them names a person.
    return KubernetesApi.from_config(entry, annotated=any(one.is_annotation for one in sources))


@lru_cache(maxsize=64)
def _prometheus(entry: str, timeout_seconds: float, in_flight: int) -> PrometheusSource:
    return PrometheusSource(
        PrometheusApi(
            PrometheusConfig.from_catalog(json.loads(entry)),
            timeout_seconds=timeout_seconds,
            in_flight=in_flight,
            secret=_secret,
        )
    )


@lru_cache(maxsize=64)
def _slurm(entry: str) -> SlurmSource:
    return SlurmSource.from_config(json.loads(entry))


def _secret(name: str) -> str:
    """Return the value of a variable that the catalog names, or of the file in `NAME_FILE`."""
    try:
        return env.text(name, "")
    except env.EnvironmentValueError as error:
        raise SourceRejected(str(error)) from error
