"""The doctor's checks: pure functions from what was seen of a cluster to findings."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from apps.operations.domain.examine import catalog, connection, exporters, sharing, usage
from apps.operations.domain.examine import catalog as quotas
from apps.operations.domain.examine import exporters as kube_state
from apps.operations.domain.examine import sharing as mig
from apps.operations.domain.examine import usage as hours
from apps.operations.domain.findings import Finding, worst_first
from apps.operations.domain.observations import ClusterLook

CHECKS: tuple[Callable[[ClusterLook], Iterator[Finding]], ...] = (
    connection.check_connection,
    hours.check_hours,
    exporters.check_exporters,
    kube_state.check_kube_state,
    catalog.check_catalog,
    quotas.check_quotas,
    sharing.check_sharing,
    mig.check_mig,
    usage.check_usage,
)


def examine(looks: Sequence[ClusterLook]) -> list[Finding]:
    """Return everything that is found in these clusters, the worst first."""
    matched = [catalog.matched_tiers(look) for look in looks]
    found: list[Finding] = []
    for number, look in enumerate(looks):
        others = look.tiers_elsewhere.union(*matched[:number], *matched[number + 1 :])
        whole = replace(look, tiers_elsewhere=others)
        found += [finding for check in CHECKS for finding in check(whole)]
    return worst_first(found)
