"""How much of quotas was free in hours in which other namespaces waited for GPUs of the tier."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from apps.costs.domain.recommendations.hours import LendingEvidence
from apps.costs.domain.recommendations.recommendation import Subject
from apps.costs.services.evidence.pending import PendingHours
from apps.costs.services.evidence.span import EvidenceSpan
from apps.quotas.models import QuotaKeyHour

MOST_KEYS = 200
"""Looked at hour by hour are the keys that allow most."""
USUAL = 0.9
_ROWS_AT_A_TIME = 2000


class LendingKey(NamedTuple):
    """A key of a quota of one tier: what it allows and what a unit of it is worth."""

    id: int
    subject: Subject
    key: str
    hard: float
    weight: float
    days: float
    coverage: float | None
    price: Decimal | None
    currency: str


def lending_evidence(
    span: EvidenceSpan, keys: Sequence[LendingKey], pending: Mapping[str, PendingHours]
) -> Iterator[tuple[int, LendingEvidence]]:
    """Yield the id of each key with its evidence; `pending` is by tier. One query."""
    chosen = sorted(keys, key=lambda key: (-key.hard * key.weight, key.id))[:MOST_KEYS]
    used = _used(span, [key.id for key in chosen]) if chosen else {}
    for key in chosen:
        waits = pending.get(key.subject.tier)
        hours = used.get(key.id, {})
        if waits is None or not hours:
            continue
        free = waited = 0.0
        for hour, amount in hours.items():
            others = waits.of_others(int(hour.timestamp()), key.subject.namespace)
            if others > 0:
                free += max(0.0, key.hard - amount)
                waited += others / key.weight
        ordered = sorted(hours.values())
        yield (
            key.id,
            LendingEvidence(
                subject=key.subject,
                key=key.key,
                hard=key.hard,
                usual_used=ordered[min(len(ordered) - 1, int(len(ordered) * USUAL))],
                free_unit_hours=free,
                waited_unit_hours=waited,
                days=key.days,
                coverage=key.coverage,
                weight=key.weight,
                price_per_gpu_hour=key.price,
                currency=key.currency,
            ),
        )


def _used(span: EvidenceSpan, keys: Sequence[int]) -> dict[int, dict[datetime, float]]:
    """Return the mean that was used of each key by hour."""
    rows = QuotaKeyHour.objects.filter(
        cluster=span.cluster,
        key__in=keys,
        hour__gte=span.window.start,
        hour__lt=span.window.end,
        seconds__gt=0,
        used__isnull=False,
    ).order_by("key_id", "hour")
    found: dict[int, dict[datetime, float]] = defaultdict(dict)
    columns = ("key_id", "hour", "used", "seconds")
    for key, hour, used, seconds in rows.values_list(*columns).iterator(_ROWS_AT_A_TIME):
        found[key][hour] = max(found[key].get(hour, 0.0), used * 3600.0 / seconds)
    return found
