"""What all quotas of a team promise it in the tiers that a key reaches."""

from collections.abc import Collection, Mapping
from datetime import datetime
from math import fsum

from apps.accounts.permissions import Visibility
from apps.quota_requests.domain.quantities import Quantity
from apps.quotas.selectors import QuotaFilters, QuotaRow, every_quota_row

_EVERYTHING = Visibility(everything=True)


def committed_gpus(
    own: QuotaRow | None,
    after: Quantity,
    *,
    weights: Mapping[str, float],
    team: str,
    at: datetime,
) -> float | None:
    """Return the team's promised GPU-equivalents with the change; None where it is not known.

    `weights` are by tier, of one unit. Several namespaces, queues and clusters add up: each of
    them raised a little is a large raise. Where a cluster has several kinds of limits on the same
    work, the kind that promises more there is taken, so that the sum is never too small. As many
    queries as `every_quota_row` takes.
    """
    if own is None or own.team != team or not weights:
        return None
    filters = QuotaFilters(team=(team,), tier=tuple(weights), effective=True)
    rows = every_quota_row(at, filters=filters, visibility=_EVERYTHING)
    kinds: dict[str, dict[str, dict[tuple[str, str, str], float]]] = {}
    for row in rows:
        hard = float(after.units) if row.ref == own.ref else row.hard
        gpus = hard * _weight(row.tiers, weights)
        places = kinds.setdefault(row.cluster, {}).setdefault(row.source, {})
        places[_place(row)] = max(gpus, places.get(_place(row), 0.0))
    if not any(row.ref == own.ref for row in rows):
        return None
    return fsum(
        max(fsum(places.values()) for places in of_cluster.values())
        for of_cluster in kinds.values()
    )


def _place(row: QuotaRow) -> tuple[str, str, str]:
    """Return whose limit it is: of a namespace by resource, of a queue by flavor and resource."""
    if row.namespace:
        return (row.cluster, row.namespace, row.resource)
    flavor = row.key if row.source == "ClusterQueue" else row.resource
    return (row.cluster, row.name, flavor)


def _weight(tiers: Collection[str], weights: Mapping[str, float]) -> float:
    return max((weights[tier] for tier in tiers if tier in weights), default=0.0)
