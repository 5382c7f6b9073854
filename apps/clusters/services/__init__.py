"""Writes of what exists and existed, and the pod ledger read back; each module is one concern.

What needs a connection to a cluster by name is in `watch_clusters`, which alone loads the
clients of Prometheus and Kubernetes.
"""

from apps.clusters.services.pods.inferred_pods import store_inferred_pods
from apps.clusters.services.pods.ledger_reader import (
    RecordedPod,
    recorded_claims,
    recorded_intervals,
    recorded_pod_rows,
    watched_spans,
)
from apps.clusters.services.watch.follow import Snapshot, follow, snapshot

__all__ = [
    "RecordedPod",
    "Snapshot",
    "follow",
    "recorded_claims",
    "recorded_intervals",
    "recorded_pod_rows",
    "snapshot",
    "store_inferred_pods",
    "watched_spans",
]
