"""Writes of what exists and existed, and the pod ledger read back; each module is one concern.

What needs a connection to a cluster by name is in `watch_clusters`, which alone loads the
clients of Prometheus and Kubernetes.
"""

from apps.clusters.services.inferred_pods import store_inferred_pods
from apps.clusters.services.ledger_reader import (
    RecordedPod,
    recorded_claims,
    recorded_pod_rows,
    recorded_spells,
    watched_spans,
)
from apps.clusters.services.watch import Snapshot, follow, snapshot

__all__ = [
    "RecordedPod",
    "Snapshot",
    "follow",
    "recorded_claims",
    "recorded_pod_rows",
    "recorded_spells",
    "snapshot",
    "store_inferred_pods",
    "watched_spans",
]
