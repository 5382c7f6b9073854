"""Sums of a window as numbers of GPUs, and how they differ from the period before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from apps.usage.domain.amounts import NANO, Amounts
from apps.usage.domain.rows import Grouping, UsageRow
from apps.web.components import tables
from apps.web.components.formats import Format, shown

_SAME = 0.005  # as fractions: half a percent, or half a point, is no change to speak of
_WHOLE_FROM = 10


@dataclass(frozen=True, slots=True)
class Gpus:
    """Averages over the hours that have facts, in GPUs; `capacity` is None where there is none."""

    capacity: float | None
    allocated: float
    busy: float
    not_used: float


@dataclass(frozen=True, slots=True)
class WindowSums:
    """What a window adds up to, and the same as averages."""

    amounts: Amounts
    gpus: Gpus


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference from the period before: `sign` is -1, 0 or 1, `text` says by how much."""

    sign: int
    text: str

    @property
    def arrow(self) -> str:
        return {-1: "▼", 0: "=", 1: "▲"}[self.sign]


def sums(
    rows: Sequence[UsageRow],
    hours: Mapping[str, int],
    gaps: Mapping[tuple[str, str], int] | None = None,
) -> WindowSums | None:
    """Return the sums of rows by cluster and tier; `hours` counts a cluster's hours with facts.

    A cluster's amounts are divided by its own hours, so that one that lacks some does not look
    smaller than it is; those of a tier without the hours that told nothing of it, which `gaps`
    counts by cluster and tier. None without rows that have hours.
    """
    lost = gaps or {}

    def hours_of(row: UsageRow) -> int:
        return known_hours(row, hours, lost)

    known = [row for row in rows if hours_of(row) > 0]
    if not known:
        return None
    total = tables.summed(known)

    def average(name: str) -> float:
        return sum((getattr(row.amounts, name) or 0) / NANO / hours_of(row) for row in known)

    capacity = average("capacity") if total.capacity is not None else None
    return WindowSums(total, Gpus(capacity, *map(average, ("allocated", "busy", "not_used"))))


def known_hours(
    row: UsageRow, hours: Mapping[str, int], gaps: Mapping[tuple[str, str], int]
) -> int:
    """Return how many of a cluster's hours tell of the tier of a row by cluster and tier."""
    cluster = row.groups[Grouping.CLUSTER]
    return hours.get(cluster, 0) - gaps.get((cluster, row.groups[Grouping.TIER]), 0)


def amount_change(now: float, before: float) -> Difference | None:
    """Return how an amount differs, in percent of what it was; None where that was nothing."""
    if before <= 0:
        return None
    ratio = now / before
    if abs(ratio - 1) < _SAME:
        return Difference(0, "about the same")
    share = abs(ratio - 1) * 100
    text = f"{share:,.0f} %" if share >= _WHOLE_FROM else f"{share:.1f} %"
    return Difference(1, f"{text} more") if ratio > 1 else Difference(-1, f"{text} less")


def ratio_change(now: float | None, before: float | None) -> Difference | None:
    """Return how a ratio differs, in percentage points; None where one of them is not known."""
    if now is None or before is None:
        return None
    points = (now - before) * 100
    if abs(points) < _SAME * 100:
        return Difference(0, "about the same")
    text = f"{abs(points):.1f} points"
    return Difference(1, f"{text} more") if points > 0 else Difference(-1, f"{text} less")


def gpus_text(number: float) -> str:
    """Write a number of GPUs with about three digits: `856`, `12.5`, `0.25`."""
    if number >= 100 or number == round(number):
        return f"{number:,.0f}"
    if number >= 10:
        return f"{number:.1f}".removesuffix(".0")
    if 0 < number < 0.01:
        return "<0.01"
    return f"{number:.2f}".rstrip("0").rstrip(".")


def gpu_hours_text(amount: int) -> str:
    """Write nano-GPU-hours as a sentence would: whole ones from a hundred up."""
    hours = amount / NANO
    return f"{hours:,.0f}" if hours >= 100 else shown(amount, Format.GPU_HOURS, ZoneInfo("UTC"))
