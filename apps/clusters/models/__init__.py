"""Tables of what exists and existed."""

from apps.clusters.models.catalog import (
    CAPACITY_TYPES,
    Cluster,
    NamespaceClaim,
    ReportSettings,
    Tier,
    TierRule,
    Valid,
)
from apps.clusters.models.ledger import (
    SOURCES,
    GpuModel,
    Namespace,
    Node,
    NodeSpell,
    Pod,
    WatchSpan,
    Workload,
)

__all__ = [
    "CAPACITY_TYPES",
    "SOURCES",
    "Cluster",
    "GpuModel",
    "Namespace",
    "NamespaceClaim",
    "Node",
    "NodeSpell",
    "Pod",
    "ReportSettings",
    "Tier",
    "TierRule",
    "Valid",
    "WatchSpan",
    "Workload",
]
