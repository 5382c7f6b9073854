"""The monthly report for people who never sign in: one page for all, and one for each team."""

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal

from msgspec import Struct

from apps.usage.domain.explained import FigureUnit

FigureValue = int | float | Decimal | None


class MonthFigure(Struct, frozen=True):
    """A figure of a month and of the month before; None where there is no data.

    GPU-hours are whole nano-GPU-hours, ratios 0..1, money in `currency`.
    """

    key: str
    label: str
    unit: FigureUnit
    value: FigureValue
    before: FigureValue
    currency: str = ""


class TierQueueTime(Struct, frozen=True):
    """Queue times of a tier in seconds: of this month and of the month before.

    `objective` is that of the tier in seconds, `attainment` the share (0..1) of the month's work of
    all teams that was within it; None without an objective, or without work.
    """

    tier: str
    p50: float | None
    p95: float | None
    p50_before: float | None
    p95_before: float | None
    objective: int | None = None
    attainment: float | None = None


class TeamLine(Struct, frozen=True):
    """One team on the page of all; `figures` in the order of the teams' own pages."""

    team: str
    figures: Sequence[MonthFigure]


class DayGpus(Struct, frozen=True):
    """Average GPUs of a local day; None where no hour of it has facts, or without capacity."""

    day: date
    active: float | None
    unused: float | None
    no_metrics: float | None
    unallocated: float | None
    unavailable: float | None
    planned_outage: float | None
    capacity: float | None
    partial: bool = False


class MonthPage(Struct, frozen=True):
    """The page of a team, or of all teams where `team` is empty."""

    team: str
    figures: Sequence[MonthFigure]
    queue_times: Sequence[TierQueueTime]
    days: Sequence[DayGpus]
    teams: Sequence[TeamLine] = ()

    @property
    def has_before(self) -> bool:
        """Whether anything is known of the month before."""
        # Queue times too: a month without facts may still have pods that were bound.
        figures = any(figure.before is not None for figure in self.figures)
        return figures or any(row.p95_before is not None for row in self.queue_times)

    @property
    def has_objectives(self) -> bool:
        """Whether any of the tiers has a queue-time objective."""
        return any(row.objective is not None for row in self.queue_times)


class MonthReport(Struct, frozen=True):
    """A month's pages, that of all first; `until` is where the facts end, None without any.

    `runs`: the month is not over. `notes` say what totals exclude.
    """

    month: date
    before: date
    time_zone: str
    state: str
    runs: bool
    until: datetime | None
    notes: Sequence[str]
    pages: Sequence[MonthPage]
