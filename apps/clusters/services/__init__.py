"""Writes of what exists and existed, and the pod ledger read back; each module is one concern.

What needs a connection to a cluster by name is in `watch_clusters`, which alone loads the
clients of Prometheus and Kubernetes.
"""

from apps.clusters.services.catalog import (
    ClaimRecord,
    ClusterRecord,
    ReportRecord,
    RuleRecord,
    TierRecord,
    cluster_ids,
    ensure_builtin,
    loaded_claims,
    loaded_clusters,
    loaded_report,
    loaded_rules,
    loaded_tiers,
    span,
    team_finder_at,
    tier_ids,
    tier_rules_at,
    write_claims,
    write_clusters,
    write_report,
    write_rules,
    write_tiers,
    write_valid,
)
from apps.clusters.services.devices import active_clusters, store_device_states
from apps.clusters.services.names import NameRegistry, chunks
from apps.clusters.services.objects.collections import discovered
from apps.clusters.services.objects.reader import observed_objects
from apps.clusters.services.pods.inferred_pods import store_inferred_pods
from apps.clusters.services.pods.ledger_reader import (
    RecordedPod,
    recorded_claims,
    recorded_intervals,
    recorded_pod_rows,
    watched_spans,
)
from apps.clusters.services.pods.revisions import revision_of_hour
from apps.clusters.services.retention import OBJECTS_KEPT, forget_ledger, forget_objects
from apps.clusters.services.retirement import (
    end_inferred,
    end_ledger,
    lock_retired,
    retired_clusters,
)
from apps.clusters.services.tier_history import TierHistory
from apps.clusters.services.watch.clusters import (
    UnknownWatchCluster,
    WatchedCluster,
    Watchers,
    clusters_to_watch,
    snapshot_cluster,
    watch_cluster,
)
from apps.clusters.services.watch.coverage import GAP_SECONDS
from apps.clusters.services.watch.follow import Snapshot, follow, snapshot
from apps.clusters.services.watch.streams import SILENT_SECONDS
