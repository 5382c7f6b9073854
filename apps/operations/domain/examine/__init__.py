"""The doctor's checks: pure functions from what was seen of a cluster to findings."""

from collections.abc import Callable, Iterator, Sequence

from apps.accounts.domain.structs import replace
from apps.operations.domain.examine import (
    catalog,
    connection,
    exporters,
    hardware,
    sharing,
    topology,
    usage,
)
from apps.operations.domain.findings import Finding, worst_first
from apps.operations.domain.observations import ClusterObservations

CHECKS: tuple[Callable[[ClusterObservations], Iterator[Finding]], ...] = (
    connection.check_connection,
    usage.check_hours,
    exporters.check_exporters,
    exporters.check_kube_state,
    catalog.check_catalog,
    catalog.check_quotas,
    sharing.check_sharing,
    sharing.check_mig,
    usage.check_usage,
    topology.check_topology,
    hardware.check_hardware,
)


def examine(observed_clusters: Sequence[ClusterObservations]) -> list[Finding]:
    """Return everything that is found in these clusters, the worst first."""
    matched = [catalog.matched_tiers(observed) for observed in observed_clusters]
    found: list[Finding] = []
    for number, observed in enumerate(observed_clusters):
        # A tier may be for another cluster: its nodes there match it.
        others = observed.tiers_elsewhere.union(*matched[:number], *matched[number + 1 :])
        whole = replace(observed, tiers_elsewhere=others)
        found += [finding for check in CHECKS for finding in check(whole)]
    return worst_first(found)
