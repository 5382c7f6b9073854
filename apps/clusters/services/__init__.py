"""Writes of what exists and existed, and the pod ledger read back; each module is one concern.

What needs a connection to a cluster by name is in `watch.follow`, which alone loads the
clients of Prometheus and Kubernetes.
"""

from apps.clusters.services.catalog import (
    ClusterRecord,
    NamespaceTeamRecord,
    ReportRecord,
    RuleRecord,
    TierHistory,
    TierRecord,
    cluster_ids,
    ensure_builtin,
    loaded_clusters,
    loaded_namespace_teams,
    loaded_report,
    loaded_rules,
    loaded_tiers,
    team_finder_at,
    tier_ids,
    tier_rules_at,
    write_clusters,
    write_namespace_teams,
    write_report,
    write_rules,
    write_tiers,
    write_valid,
)
from apps.clusters.services.devices import active_clusters, store_device_states
from apps.clusters.services.pods.inferred_pods import revision_of_hour, store_inferred_pods
from apps.clusters.services.pods.ledger_rows import (
    NameRegistry,
    RecordedPod,
    chunks,
    lost_pods,
    recorded_claims,
    recorded_intervals,
    recorded_pod_rows,
    watched_spans,
)
from apps.clusters.services.pods.pod_store import last_watched, write_people
from apps.clusters.services.retention import (
    OBJECT_RETENTION,
    end_inferred,
    end_ledger,
    end_names,
    forget_ledger,
    forget_objects,
    forget_people,
    lock_retired,
    retired_clusters,
)
from apps.clusters.services.watch.collections import discovered_sources
from apps.clusters.services.watch.follow import (
    UnknownWatchCluster,
    WatchedCluster,
    WatchRun,
    clusters_to_watch,
    snapshot_cluster,
    watch_cluster,
)
from apps.clusters.services.watch.object_rows import observed_in, observed_objects
from apps.clusters.services.watch.shares import ClusterShare
from apps.clusters.services.watch.streams import GAP_SECONDS, SILENT_SECONDS
from apps.clusters.services.watch.watchers import Watchers
