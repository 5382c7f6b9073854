"""Choosing the sources of a cluster: the one place where ports meet their adapters."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from django.conf import settings

from apps.clusters.adapters.kubernetes import KubernetesApi
from apps.clusters.adapters.prometheus import PrometheusSource
from apps.clusters.adapters.prometheus_config import PrometheusConfig
from apps.clusters.models import Cluster
from apps.clusters.ports import ClusterSource, MetricsSource, SourceRejected
from gpuportal import env


def metrics_source(cluster: Cluster) -> MetricsSource:
    """Return the metrics source that the catalog names for a cluster.

    One source, with its pooled connections, serves all calls of a process for as long as the
    catalog's entry stays the same. Raises SourceRejected where the entry cannot be used.
    """
    return _prometheus(
        json.dumps(cluster.prometheus, sort_keys=True),
        float(settings.PROMETHEUS_TIMEOUT_SECONDS),
        int(settings.PROMETHEUS_IN_FLIGHT),
    )


def cluster_source(cluster: Cluster) -> ClusterSource | None:
    """Return the Kubernetes API of a cluster; None where the catalog gives metrics only.

    Raises SourceRejected where the entry cannot be used.
    """
    if not cluster.kubernetes:
        return None
    return KubernetesApi.from_config(cluster.kubernetes)


@dataclass(frozen=True, slots=True)
class Doorway:
    """How sources are chosen; services take one as argument, tests pass their own."""

    metrics: Callable[[Cluster], MetricsSource] = metrics_source
    kubernetes: Callable[[Cluster], ClusterSource | None] = cluster_source


@lru_cache(maxsize=64)
def _prometheus(entry: str, timeout_seconds: float, in_flight: int) -> PrometheusSource:
    return PrometheusSource(
        PrometheusConfig.from_catalog(json.loads(entry)),
        timeout_seconds=timeout_seconds,
        in_flight=in_flight,
        secret=_secret,
    )


def _secret(name: str) -> str:
    """Return the value of a variable that the catalog names, or of the file in `NAME_FILE`."""
    try:
        return env.text(name, "")
    except env.EnvironmentValueError as error:
        raise SourceRejected(str(error)) from error
