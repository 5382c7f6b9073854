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
from apps.clusters.models.claims import ClaimInterval
from apps.clusters.models.devices import Device
from apps.clusters.models.ledger import (
    SOURCES,
    GpuModel,
    Namespace,
    Node,
    NodeInterval,
    Pod,
    PodRevision,
    WatchCoverage,
    WatchIssue,
    Workload,
)
from apps.clusters.models.objects import ObservedObject
