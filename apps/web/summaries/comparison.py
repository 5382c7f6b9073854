"""What a page's window adds up to, tier by tier, beside the period before it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from apps.clusters.domain.window import Window
from apps.usage import selectors as usage
from apps.usage.domain.rows import Filters, Grouping, TimeStep, UsageRow
from apps.web.components import window_navigation
from apps.web.forms import HOUR
from apps.web.query_session import QuerySession, of_page, usage_of
from apps.web.summaries.averages import (
    Difference,
    WindowSums,
    amount_change,
    known_hours,
    ratio_change,
    sums,
)

_ENOUGH = 0.5  # of the period's hours; a comparison with less would tell of the gap alone
Rows = Sequence[UsageRow]
GapHours = Mapping[tuple[str, str], int]


@dataclass(frozen=True, slots=True)
class Differences:
    """How the figures of a card differ; None where one cannot be compared.

    `allocated` is a difference of ratios where there is a capacity, else one of amounts.
    """

    capacity: Difference | None
    allocated: Difference | None
    busy: Difference | None
    not_used: Difference | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rows by cluster and tier with the hours they stand for, of both windows.

    `gaps` counts the hours of a cluster that tell nothing of a tier, by (cluster, tier).

    `words` name the window before (`the 7 days before`); `problem` says why there is no
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

    def changes(self, tier: str = "") -> Differences | None:
        """Return the differences from the window before; None where it has nothing.

        Of tiers and clusters that both windows know: what only one tells of is no change.
        """
        rows, rows_before = self._in_both(self.rows), self._in_both(self.rows_before)
        now = sums(_of(rows, tier), self.hours, self.gaps)
        before = sums(_of(rows_before, tier), self.hours_before, self.gaps_before)
        if now is None or before is None:
            return None
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


def compared(
    reading: QuerySession, *, tier: str = "", team: str = "", narrowed: Filters | None = None
) -> Comparison:
    """Return the sums of the reading's window and, unless the reader said no, of the one before.

    `tier`, `team` and `narrowed` are as for `reading.usage_of`. Six queries for each
    window and one for both, and four more for each where claims alone give out a tier.
    """
    narrowed = narrowed or of_page(reading, tier=tier, team=team)
    rows, hours = _read(reading, narrowed, reading.window)
    if not reading.compares:
        (gaps,) = usage.gap_hours([reading.window], visibility=reading.visibility)
        return Comparison(rows, hours, gaps=gaps)
    window, words = (
        window_navigation.before(reading.choice),
        window_navigation.before_words(reading.choice),
    )
    gaps, gaps_before = usage.gap_hours([reading.window, window], visibility=reading.visibility)
    rows_before, hours_before = _read(reading, narrowed, window)
    there = max(hours_before.values(), default=0)
    every = round((window.end - window.start) / HOUR)
    if there < _ENOUGH * every:
        problem = f"No comparison: only {there} of {every} hours of {words} have facts."
        return Comparison(rows, hours, words, problem, gaps=gaps)
    return Comparison(rows, hours, words, "", rows_before, hours_before, gaps, gaps_before)


def _allocated_change(now: WindowSums, before: WindowSums) -> Difference | None:
    if now.gpus.capacity is None:
        return amount_change(now.gpus.allocated, before.gpus.allocated)
    return ratio_change(now.amounts.allocation_ratio, before.amounts.allocation_ratio)


def _read(
    reading: QuerySession, narrowed: Filters, window: Window
) -> tuple[Rows, Mapping[str, int]]:
    by = (Grouping.CLUSTER, Grouping.TIER)
    rows = usage_of(reading, by=by, interval=TimeStep.TOTAL, narrowed=narrowed, window=window)
    hours = usage.collected_hours(window, filters=narrowed, visibility=reading.visibility)
    return rows, hours


def _of(rows: Rows, tier: str) -> Rows:
    return [row for row in rows if not tier or row.groups[Grouping.TIER] == tier]
