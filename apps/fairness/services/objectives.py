"""Queue-time objectives as catalogs load them."""

from collections.abc import Collection, Sequence

from apps.accounts.domain.rows import DatedRecord, row_from
from apps.clusters.services import tier_ids, write_valid
from apps.fairness.models import QueueTimeObjective


class ObjectiveRecord(DatedRecord, frozen=True):
    """An objective of a tier while it holds: 95 % of its work starts within `p95_seconds`."""

    tier: str
    p95_seconds: int
    days: int


def loaded_objectives() -> list[ObjectiveRecord]:
    """Return all objectives there ever were. One query."""
    rows = QueueTimeObjective.objects.select_related("tier")
    return [
        row_from(ObjectiveRecord, row, tier=row.tier.name)
        for row in rows.order_by("tier__name", "valid_from")
    ]


def write_objectives(records: Sequence[ObjectiveRecord], *, withdrawn: Collection[int]) -> None:
    """Delete the withdrawn, update the records with a pk and insert the others."""
    columns, names = ("p95_seconds", "days"), {"tier": tier_ids}
    write_valid(QueueTimeObjective, records, columns=columns, names=names, withdrawn=withdrawn)
