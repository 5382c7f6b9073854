"""What the first pages read beside the ledger: the last month, the largest waste, the waits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from apps.usage import selectors as usage
from apps.usage.domain.rows import Filters, Grouping, Interval
from apps.usage.selectors import WaitingPod, WasteRow
from apps.web.cards import rows_by
from apps.web.formats import duration
from apps.web.ledger import IDLE, NOT_RUNNING, UNDERUSED, LedgerClass
from apps.web.links import href
from apps.web.reading import Reading, usage_of
from apps.web.sparkline import Sparkline, days_until, sparkline

TOP = 5
_CAUSES = (IDLE, UNDERUSED, NOT_RUNNING)


@dataclass(frozen=True, slots=True)
class Part:
    """One cause of a workload's waste; `percent` of the largest waste shown, 0..100."""

    cls: LedgerClass
    gpu_hours: int
    percent: float


@dataclass(frozen=True, slots=True)
class WasteLine:
    """One workload with its link; `share` is of what it held, 0..1."""

    row: WasteRow
    kind: str
    name: str
    href: str | None
    tier_href: str | None
    share: float
    parts: Sequence[Part]


@dataclass(frozen=True, slots=True)
class WaitLine:
    """One pod that waits, for how long in words, and its link."""

    row: WaitingPod
    age: str
    href: str | None
    team_href: str | None
    tier_href: str | None


def sparklines(reading: Reading, *, tier: str = "") -> dict[str, Sparkline | None]:
    """Return by tier its days up to the end of the reading's window. Five queries."""
    choice = reading.choice
    days = days_until(choice.last, choice.zone, reading.window.end)
    rows = usage_of(reading, by=[Grouping.TIER], interval=Interval.DAY, tier=tier, window=days)
    return {
        name: sparkline(own, choice.last, choice.zone)
        for name, own in rows_by(rows, Grouping.TIER).items()
    }


def waste_lines(reading: Reading, *, team: str = "", limit: int = TOP) -> list[WasteLine]:
    """Return the workloads of the reading's window that held most without using it."""
    rows = usage.largest_waste(
        reading.window,
        filters=_narrowed(reading, team=team),
        visibility=reading.visibility,
        limit=limit,
        zone=reading.choice.zone,
    )
    most = max((row.not_used for row in rows), default=0)
    return [_waste_line(row, most, reading) for row in rows]


def wait_lines(
    reading: Reading, *, tier: str = "", team: str = "", limit: int = TOP
) -> list[WaitLine]:
    """Return the pods that wait now and have waited longest, of those the reader sees."""
    rows = usage.oldest_waits(
        reading.now,
        filters=_narrowed(reading, tier=tier, team=team),
        visibility=reading.visibility,
        limit=limit,
    )
    return [_wait_line(row, reading) for row in rows]


def _narrowed(reading: Reading, *, tier: str = "", team: str = "") -> Filters:
    return replace(reading.filters, tier=(tier,) if tier else (), team=(team,) if team else ())


def _waste_line(row: WasteRow, most: int, reading: Reading) -> WasteLine:
    kind, _, name = row.workload.partition("/")
    parts = ((cls, getattr(row, cls.key)) for cls in _CAUSES)
    return WasteLine(
        row=row,
        kind=kind,
        name=name,
        href=href(
            "workload",
            reading.query,
            cluster=row.cluster,
            namespace=row.namespace,
            kind=kind,
            name=name,
        ),
        tier_href=href("tier", reading.query, name=row.tier),
        share=row.not_used / row.allocated if row.allocated else 0.0,
        parts=[Part(cls, hours, round(100 * hours / most, 2)) for cls, hours in parts if hours],
    )


def _wait_line(row: WaitingPod, reading: Reading) -> WaitLine:
    return WaitLine(
        row=row,
        age=duration((reading.now - row.since).total_seconds()),
        href=href("pod", reading.query, cluster=row.cluster, uid=row.uid),
        team_href=href("team", reading.query, name=row.team),
        tier_href=href("tier", reading.query, name=row.tier),
    )
