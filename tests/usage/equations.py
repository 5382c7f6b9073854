"""The two equations of the ledger (docs/definitions.md#ledger)."""

from collections.abc import Iterator

from apps.usage.domain.amounts import Amounts

ALLOCATED_PARTS = ("not_running", "unmeasured", "idle", "underused", "busy")
CAPACITY_PARTS = ("planned_outage", "unhealthy", "unallocated", "allocated")


def broken_equations(row: Amounts) -> Iterator[str]:
    """Yield what is wrong with a row: an equation that does not hold, an amount below zero."""
    held = {name: getattr(row, name) for name in ALLOCATED_PARTS}
    if row.allocated != sum(held.values()):
        yield f"allocated {row.allocated} is not the sum of its parts {held}"
    for name in (*ALLOCATED_PARTS, "allocated", "burst"):
        if getattr(row, name) < 0:
            yield f"{name} is negative: {getattr(row, name)}"
    if row.capacity is None:
        return
    parts = {name: getattr(row, name) or 0 for name in CAPACITY_PARTS}
    if row.capacity != sum(parts.values()):
        yield f"capacity {row.capacity} is not the sum of its parts {parts}"
    for name, amount in parts.items():
        if amount < 0:
            yield f"{name} is negative: {amount}"
