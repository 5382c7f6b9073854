"""What all quotas of a team promise it in the tiers that a key reaches."""

from collections.abc import Collection, Mapping
from datetime import datetime
from math import fsum

from apps.accounts.permissions import Visibility
from apps.quota_requests.domain.quantities import Quantity
from apps.quotas.selectors import QuotaFilters, QuotaRow, quota_rows

_EVERYTHING = Visibility(everything=True)
_MOST = 100_000


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
    queries as `quota_rows` takes.
    """
    if own is None or own.team != team or not weights:
        return None
    filters = QuotaFilters(team=(team,), tier=tuple(weights), effective=True)
    page = quota_rows(at, filters=filters, visibility=_EVERYTHING, page_size=_MOST)
    kinds: dict[str, dict[str, dict[tuple[str, str, str], float]]] = {}
    for row in page.rows:
        hard = float(after.units) if _is_same(row, own) else row.hard
        gpus = hard * _weight(row.tiers, weights)
        places = kinds.setdefault(row.cluster, {}).setdefault(row.source, {})
        places[_place(row)] = max(gpus, places.get(_place(row), 0.0))
    if not any(_is_same(row, own) for row in page.rows):
        return None
    return fsum(
        max(fsum(places.values()) for places in of_cluster.values())
        for of_cluster in kinds.values()
    )


def _is_same(row: QuotaRow, own: QuotaRow) -> bool:
    return (row.cluster, row.source, row.namespace, row.name, row.key) == (
        *(own.cluster, own.source, own.namespace, own.name, own.key),
    )


def _place(row: QuotaRow) -> tuple[str, str, str]:
    """Return whose limit it is: of a namespace by resource, of a queue by flavor and resource."""
    if row.namespace:
        return (row.cluster, row.namespace, row.resource)
    flavor = row.key if row.source == "ClusterQueue" else row.resource
    return (row.cluster, row.name, flavor)


def _weight(tiers: Collection[str], weights: Mapping[str, float]) -> float:
    return max((weights[tier] for tier in tiers if tier in weights), default=0.0)
