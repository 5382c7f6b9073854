"""The doctor's checks: pure functions from what was seen of a cluster to findings."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from apps.operations.domain.examine import (
    catalog,
    connection,
    exporters,
    hours,
    kube_state,
    mig,
    quotas,
    sharing,
    usage,
)
from apps.operations.domain.findings import Finding, worst_first
from apps.operations.domain.observations import ClusterLook

CHECKS: tuple[Callable[[ClusterLook], Iterator[Finding]], ...] = (
    connection.check,
    hours.check,
    exporters.check,
    kube_state.check,
    catalog.check,
    quotas.check,
    sharing.check,
    mig.check,
    usage.check,
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
