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
from apps.clusters.models.claims import ClaimSpell
from apps.clusters.models.devices import Device
from apps.clusters.models.ledger import (
    SOURCES,
    GpuModel,
    Namespace,
    Node,
    NodeSpell,
    Pod,
    PodRevision,
    WatchNote,
    WatchSpan,
    Workload,
)
from apps.clusters.models.sightings import Sighting

__all__ = [
    "CAPACITY_TYPES",
    "SOURCES",
    "ClaimSpell",
    "Cluster",
    "Device",
    "GpuModel",
    "Namespace",
    "NamespaceClaim",
    "Node",
    "NodeSpell",
    "Pod",
    "PodRevision",
    "ReportSettings",
    "Sighting",
    "Tier",
    "TierRule",
    "Valid",
    "WatchNote",
    "WatchSpan",
    "Workload",
]
