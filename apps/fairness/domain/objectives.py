"""Queue-time objectives: attainment, error budget and burn rates.

An objective is met where at least TARGET of the work stays within its queue time. Alerts are
multi-window and multi-burn-rate: The Site Reliability Workbook, chapter 5, "Alerting on SLOs",
method 6 (https://sre.google/workbook/alerting-on-slos/). The burn rates come from the share of the
error budget that a window may spend (its table 5-8), so they fit an objective over any time.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Final

from msgspec import Struct

from apps.pending.domain.day_sums import nearest_rank

TARGET: Final = 0.95
# Written out: 1 − 0.95 is more than 0.05 in floats, and a miss of 5 % is to burn at exactly 1.
_ALLOWED: Final = 0.05
FEWEST_MISSED: Final = 3
"""A rate of fewer pieces of work is chance: the workbook's advice for services with low traffic."""


class Burn(StrEnum):
    """How fast the error budget is spent; NONE: no faster than it may."""

    NONE = ""
    SLOW = "slow"
    FAST = "fast"


class BurnRule(Struct, frozen=True):
    """An alert: both windows burn so fast that the long one spends `budget` of the whole budget.

    The short window, a twelfth of the long one, ends the alert soon after the trouble has ended.
    """

    burn: Burn
    long: timedelta
    short: timedelta
    budget: float

    def threshold(self, over: timedelta) -> float:
        """Return the burn rate for an objective over that time; at least that of a linear pace."""
        # Over few days the formula falls below 1, at which the budget lasts to its end.
        return max(1.0, self.budget * (over / self.long))


RULES: Final = (
    BurnRule(Burn.FAST, timedelta(hours=1), timedelta(minutes=5), 0.02),
    BurnRule(Burn.FAST, timedelta(hours=6), timedelta(minutes=30), 0.05),
    BurnRule(Burn.SLOW, timedelta(days=3), timedelta(hours=6), 0.10),
)
SPANS: Final = tuple(sorted({span for rule in RULES for span in (rule.long, rule.short)}))
"""The windows of all rules, the shortest first."""


class WorkCounts(Struct, frozen=True):
    """Pieces of work of a span, and those of them that missed their objective."""

    total: int = 0
    missed: int = 0

    def __add__(self, other: "WorkCounts") -> "WorkCounts":
        return WorkCounts(self.total + other.total, self.missed + other.missed)

    @property
    def attainment(self) -> float | None:
        """The share within the objective, 0..1; None without any work."""
        return (self.total - self.missed) / self.total if self.total else None

    @property
    def burn_rate(self) -> float | None:
        """The missed share ÷ the share that may be missed; 1 spends the budget exactly."""
        return self.missed / self.total / _ALLOWED if self.total else None

    @property
    def budget_left(self) -> float | None:
        """The share of the error budget that is left; below 0 where more was missed than may be."""
        rate = self.burn_rate
        return None if rate is None else 1.0 - rate


def burn_of(spans: Mapping[timedelta, WorkCounts], over: timedelta) -> Burn:
    """Return the most urgent burn whose rule holds; `spans` has the counts of each of SPANS."""
    found = {
        rule.burn
        for rule in RULES
        if spans[rule.long].missed >= FEWEST_MISSED
        and _burns(spans[rule.long], rule, over)
        # The long window stays above its threshold for hours after the trouble has ended.
        and _burns(spans[rule.short], rule, over)
    }
    return next((burn for burn in (Burn.FAST, Burn.SLOW) if burn in found), Burn.NONE)


def _burns(counts: WorkCounts, rule: BurnRule, over: timedelta) -> bool:
    rate = counts.burn_rate
    return rate is not None and rate >= rule.threshold(over)


def summed_spans(bands: Iterable[tuple[timedelta, WorkCounts]]) -> dict[timedelta, WorkCounts]:
    """Return the counts of each of SPANS from those of bands.

    A band is named by the shortest span that its work ended in; it counts in all longer spans too.
    """
    found = dict.fromkeys(SPANS, WorkCounts())
    for band, counts in bands:
        for span in SPANS:
            # All windows end at the same time, so what ended in one ended in each longer one.
            if band <= span:
                found[span] += counts
    return found


RISEN_SECONDS: Final = 1800.0
RISEN_TIMES: Final = 2.0
"""Queue times that are this many times as long as before are rising."""
_FEWEST_TIMES: Final = 10


def rise_of(now: Mapping[float, int], before: Mapping[float, int]) -> float | None:
    """Return p95 queue time ÷ that of before; both are counts by seconds.

    0 where it is within half an hour, whatever it was; None where either is of too little work.
    """
    if min(sum(now.values()), sum(before.values())) < _FEWEST_TIMES:
        return None
    recent, earlier = _p95(now), _p95(before)
    if recent <= RISEN_SECONDS:
        return 0.0
    return recent / max(earlier, 1.0)


def _p95(times: Mapping[float, int]) -> float:
    return nearest_rank(times, (TARGET,))[0]
