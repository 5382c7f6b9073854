"""Sums of a page's window tier by tier, compared with the period before it."""

from collections.abc import Mapping, Sequence
from zoneinfo import ZoneInfo

from msgspec import Struct, field

from apps.clusters.domain.window import Window
from apps.usage import selectors as usage
from apps.usage.domain.amounts import NANO, Amounts
from apps.usage.domain.usage_query import Filters, Grouping, TimeStep, UsageRow
from apps.usage.selectors import Freshness
from apps.web.components import tables, window_picker
from apps.web.components.figure_row import PeriodChange, Verdict
from apps.web.components.formats import Format, growth, points, shown
from apps.web.components.page_query import HOUR
from apps.web.query_session import QuerySession, freshness_of, of_page, usage_of

_SAME = 0.005  # as fractions: half a percent, or half a point, is no change to speak of
NO_CHANGE = "no change"


class AverageGpus(Struct, frozen=True):
    """Averages over the hours that have data, in GPUs; `capacity` is None where there is none."""

    capacity: float | None
    allocated: float
    busy: float
    not_used: float


class WindowSums(Struct, frozen=True):
    """What a window adds up to, and the same as averages."""

    amounts: Amounts
    gpus: AverageGpus


class Difference(Struct, frozen=True):
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

    # What some teams hold has no capacity: an average of it would read as zero.
    capacity = average("capacity") if total.capacity is not None else None
    return WindowSums(
        total, AverageGpus(capacity, *map(average, ("allocated", "busy", "not_used")))
    )


def known_hours(
    row: UsageRow, hours: Mapping[str, int], gaps: Mapping[tuple[str, str], int]
) -> int:
    """Return how many of a cluster's hours tell of the tier of a row by cluster and tier."""
    cluster = row.groups[Grouping.CLUSTER]
    return hours.get(cluster, 0) - gaps.get((cluster, row.groups[Grouping.TIER]), 0)


def amount_change(now: float, before: float) -> Difference | None:
    """Return how an amount differs: in percent, or as a multiple; None where it was nothing."""
    # No percentage says how much more than nothing something is.
    if before <= 0:
        return None
    ratio = now / before
    if abs(ratio - 1) < _SAME:
        return Difference(0, NO_CHANGE)
    return Difference(1 if ratio > 1 else -1, growth(ratio - 1))


def ratio_change(now: float | None, before: float | None) -> Difference | None:
    """Return how a ratio differs, in percentage points; None where one of them is not known."""
    if now is None or before is None:
        return None
    if abs(now - before) < _SAME:
        return Difference(0, NO_CHANGE)
    return Difference(1 if now > before else -1, points(now - before))


def change_of(
    difference: Difference | None, comparison: "Comparison", *, better: int = 0
) -> PeriodChange | None:
    """Return a difference as a figure shows it: `+4.1 pp`; None where there is none.

    `better` is the sign of a change for the better, 0 where none is.
    """
    # No change gets no arrow: a figure that says nothing new stays short.
    if difference is None or not difference.sign:
        return None
    verdict = Verdict.BETTER if difference.sign == better else Verdict.WORSE
    return PeriodChange(
        difference.text,
        verdict if better else Verdict.NEUTRAL,
        f"Compared with {comparison.words}",
    )


def gpu_hours_text(amount: int) -> str:
    """Write nano-GPU-hours as a sentence would: whole ones from a hundred up."""
    hours = amount / NANO
    return f"{hours:,.0f}" if hours >= 100 else shown(amount, Format.GPU_HOURS, ZoneInfo("UTC"))


_ENOUGH = 0.5  # of the period's hours; a comparison with less would tell of the gap alone
Rows = Sequence[UsageRow]
GapHours = Mapping[tuple[str, str], int]


class Differences(Struct, frozen=True):
    """The differences of a tier's figures; None where one cannot be compared.

    `allocated` is a difference of ratios where there is a capacity, else one of amounts.
    """

    capacity: Difference | None
    allocated: Difference | None
    busy: Difference | None
    not_used: Difference | None


class Comparison(Struct, frozen=True):
    """Rows by cluster and tier with the hours they stand for, of both windows.

    `gaps` counts the hours of a cluster that tell nothing of a tier, by (cluster, tier).

    `words` name the window before (`the previous 7 days`); `problem` says why there is no
    comparison although one was asked for, and is empty otherwise.
    """

    rows: Rows
    hours: Mapping[str, int]
    words: str = ""
    problem: str = ""
    rows_before: Rows = ()
    hours_before: Mapping[str, int] = field(default_factory=dict)
    gaps: GapHours = field(default_factory=dict)
    gaps_before: GapHours = field(default_factory=dict)

    def sums(self, tier: str = "") -> WindowSums | None:
        """Return what the window adds up to, of one tier or of all."""
        return sums(_of(self.rows, tier), self.hours, self.gaps)

    def averages(self, names: Sequence[str]) -> dict[str, float]:
        """Return average GPUs by these fields of `Amounts`, each row over its own known hours."""
        known = [
            (row.amounts, count)
            for row in self.rows
            if (count := known_hours(row, self.hours, self.gaps)) > 0
        ]
        return {
            name: sum((getattr(amounts, name) or 0) / NANO / count for amounts, count in known)
            for name in names
        }

    def sums_before(self) -> WindowSums | None:
        """Return what the window before adds up to; None where nothing is compared."""
        return sums(self.rows_before, self.hours_before, self.gaps_before)

    def changes(self, tier: str = "") -> Differences | None:
        """Return the differences from the window before; None where it has nothing.

        Of tiers and clusters that both windows know: what only one tells of is no change.
        """
        rows, rows_before = self._in_both(self.rows), self._in_both(self.rows_before)
        now = sums(_of(rows, tier), self.hours, self.gaps)
        before = sums(_of(rows_before, tier), self.hours_before, self.gaps_before)
        if now is None or before is None:
            return None
        # Capacity that only one of the windows knows would read as growth or loss.
        capacity = None
        if now.gpus.capacity is not None and before.gpus.capacity is not None:
            capacity = amount_change(now.gpus.capacity, before.gpus.capacity)
        return Differences(
            capacity=capacity,
            allocated=_allocated_change(now, before),
            busy=ratio_change(now.amounts.utilization_ratio, before.amounts.utilization_ratio),
            not_used=amount_change(now.gpus.not_used, before.gpus.not_used),
        )

    def _in_both(self, rows: Rows) -> Rows:
        return [
            row
            for row in rows
            if known_hours(row, self.hours, self.gaps) > 0
            and known_hours(row, self.hours_before, self.gaps_before) > 0
        ]


def freshness_compared(reading: QuerySession) -> Freshness:
    """Return the freshness of a page that compares, read with the hours that `compared` needs."""
    window = window_picker.before(reading.choice) if reading.compares else None
    return freshness_of(reading, before=window)


def compared(
    reading: QuerySession, *, tier: str = "", team: str = "", narrowed: Filters | None = None
) -> Comparison:
    """Return the sums of the reading's window and, unless the reader said no, of the one before.

    `tier`, `team` and `narrowed` are as for `reading.usage_of`. Six queries for each
    window and one for both, and four more for each where claims alone give out a tier.
    """
    narrowed = narrowed or of_page(reading, tier=tier, team=team)
    rows = _rows(reading, narrowed, reading.window)
    if not reading.compares:
        hours, _ = usage.collected_hours(
            reading.window, filters=narrowed, visibility=reading.visibility
        )
        (gaps,) = usage.gap_hours([reading.window], visibility=reading.visibility)
        return Comparison(rows, hours, gaps=gaps)
    window, words = (
        window_picker.before(reading.choice),
        window_picker.before_words(reading.choice),
    )
    both = [reading.window, window]
    gaps, gaps_before = usage.gap_hours(both, visibility=reading.visibility)
    hours, hours_before = usage.collected_hours(
        reading.window, filters=narrowed, visibility=reading.visibility, before=window
    )
    # By the cluster with most hours: one that came recently does not hide the others.
    there = max(hours_before.values(), default=0)
    every = round((window.end - window.start) / HOUR)
    if there < _ENOUGH * every:
        problem = f"No comparison: only {there} of {every} hours of {words} have data."
        return Comparison(rows, hours, words, problem, gaps=gaps)
    rows_before = _rows(reading, narrowed, window)
    return Comparison(rows, hours, words, "", rows_before, hours_before, gaps, gaps_before)


def _allocated_change(now: WindowSums, before: WindowSums) -> Difference | None:
    if now.gpus.capacity is None:
        # What some teams hold has no capacity, so only amounts can be compared.
        return amount_change(now.gpus.allocated, before.gpus.allocated)
    return ratio_change(now.amounts.allocation_ratio, before.amounts.allocation_ratio)


def _rows(reading: QuerySession, narrowed: Filters, window: Window) -> Rows:
    by = (Grouping.CLUSTER, Grouping.TIER)
    return usage_of(reading, by=by, interval=TimeStep.TOTAL, narrowed=narrowed, window=window)


def _of(rows: Rows, tier: str) -> Rows:
    return [row for row in rows if not tier or row.groups[Grouping.TIER] == tier]
