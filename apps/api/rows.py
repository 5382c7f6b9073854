"""Usage and pods as the API shows them.

Their records are built by plain functions instead of field by field: a page of 500 rows has 10,000
values.
"""

from collections.abc import Iterable, Sequence

from rest_framework import serializers

from apps.api.base.rows import RowSerializer, cells_of, record
from apps.clusters.domain.tiers import CapacityType
from apps.clusters.domain.window import Window
from apps.usage.domain.columns import (
    HeldFigures,
    LedgerFigures,
    Record,
    collected_amounts,
    flat,
    held_record,
    ledger_record,
)
from apps.usage.domain.rows import PodRow, UsageRow


class UsageSerializer(RowSerializer):
    """The ledger of one period and group; a group's column is there when it was asked for."""

    row = LedgerFigures
    period = serializers.DateTimeField(
        allow_null=True,
        help_text="Start of the period with the report zone's offset; null for a total.",
    )
    cluster = serializers.CharField(required=False)
    tier = serializers.CharField(required=False)
    team = serializers.CharField(required=False)
    namespace = serializers.CharField(required=False)
    workload = serializers.CharField(required=False, help_text="Kind/name of the top controller.")
    gpu_model = serializers.CharField(required=False)
    capacity_type = serializers.ChoiceField([c.value for c in CapacityType], required=False)
    node = serializers.CharField(required=False)


class PodSerializer(RowSerializer):
    """A pod of the ledger with what it held in the window.

    The ledger's columns are null where it held GPUs in the window and no hour of it was
    collected or is still kept: not known is not zero.
    """

    row = PodRow
    held = HeldFigures


def usage_records(
    rows: Iterable[UsageRow],
    effective: Sequence[float | None],
    hours_known: Sequence[int | None],
) -> list[Record]:
    """Return what UsageSerializer describes; rows of a period follow each other.

    `effective` are their effective utilizations and `hours_known` their known hours of claims, in
    the same order.
    """
    records: list[Record] = []
    period: object = None  # known by identity: the hour that autumn repeats equals itself
    text: str | None = None
    for row, ratio, known in zip(rows, effective, hours_known, strict=True):
        if row.period is not None and row.period is not period:
            period, text = row.period, row.period.isoformat()
        records.append({"period": text, **row.groups, **ledger_record(row.amounts, ratio, known)})
    return records


def pod_records(rows: Iterable[PodRow], *, window: Window) -> list[Record]:
    """Return what PodSerializer describes, of pods that were read over `window`."""
    return [record(row) | held_record(collected_amounts(row, window)) for row in rows]


def pod_cells() -> list[str]:
    """Return the columns of a file of pods."""
    return [*cells_of(PodRow), *flat(held_record(None))]
