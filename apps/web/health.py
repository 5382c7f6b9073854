"""Data health as pages show it: a calendar of hours, and tables of clusters and collections."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from apps.clusters.domain.calendar import day_window, days_in
from apps.clusters.selectors import ClusterRow
from apps.usage.domain.periods import day_end, day_start
from apps.usage.domain.rows import CollectionRow
from apps.usage.selectors import Freshness
from apps.web import tables
from apps.web.formats import Format, shown
from apps.web.links import with_query
from apps.web.reading import Reading
from apps.web.tables import Column, Row, Table

HOUR = timedelta(hours=1)
LONGEST_CALENDAR_DAYS = 62
SIGNS = {"complete": "", "partial": "◐", "failed": "×", "missing": "?", "none": ""}


@dataclass(frozen=True, slots=True)
class HourMark:
    """One hour of the calendar; `state` is a key of SIGNS, `none` where no facts are due."""

    state: str
    sign: str
    title: str


@dataclass(frozen=True, slots=True)
class CalendarDay:
    """One local day of 23 to 25 hours."""

    label: str
    hours: Sequence[HourMark]


def calendar(reading: Reading, freshness: Freshness) -> list[CalendarDay]:
    """Return the days of the window, newest first; empty where the window is too long to draw."""
    zone = reading.choice.zone
    # A zone that crossed the date line left a day out: it has no hours.
    days = [d for d in days_in(reading.window, zone) if day_start(d, zone) < day_end(d, zone)]
    if len(days) > LONGEST_CALENDAR_DAYS:
        return []
    states = dict.fromkeys(freshness.partial, "partial")
    states |= dict.fromkeys(freshness.missing, "missing")
    states |= dict.fromkeys(freshness.failed, "failed")
    return [_day(day, states, reading, freshness) for day in reversed(days)]


def calendar_hours(days: Sequence[CalendarDay]) -> list[str]:
    """Return what stands above the hours: every third; empty where a day has not 24 of them.

    There a column would be two different hours of the clock.
    """
    if any(len(day.hours) != 24 for day in days):
        return []
    return [f"{hour:02}" if hour % 3 == 0 else "" for hour in range(24)]


def _day(
    day: date, states: dict[datetime, str], reading: Reading, freshness: Freshness
) -> CalendarDay:
    zone = reading.choice.zone
    marks = []
    for hour in day_window(day, zone).hours():
        state = states.get(hour.start) or _assumed(hour.start, freshness)
        if not reading.window.start <= hour.start < reading.window.end:
            state = "none"
        at = shown(hour.start, Format.HOUR, zone)
        marks.append(HourMark(state, SIGNS[state], f"{at}: {_WORDS[state]}"))
    return CalendarDay(f"{day:%a} {day.day} {day:%b}", marks)


_WORDS = {
    "complete": "complete",
    "partial": "partial",
    "failed": "failed",
    "missing": "not collected",
    "none": "nothing due",
}


def _assumed(hour: datetime, freshness: Freshness) -> str:
    """Return the state of an hour that is on no list: complete between the first and last."""
    first, end = freshness.first_hour, freshness.last_hour_end
    return "complete" if first and end and first <= hour < end else "none"


def clusters_table(rows: Sequence[ClusterRow], reading: Reading) -> Table:
    """Return the clusters as loaded; addresses only for who sees how the portal runs."""
    return Table(
        id="clusters",
        title="Clusters",
        columns=[
            Column("cluster", "Cluster"),
            Column("ledger_source", "Pods known from"),
            Column("watched_until", "Watched until", Format.TIME),
            Column("scrape_interval_seconds", "Scrape interval", Format.NUMBER, "s"),
            Column("prometheus_url", "Prometheus"),
        ],
        rows=[_cluster_line(row, reading) for row in rows],
        zone=reading.choice.zone,
        empty="No cluster is known yet. Load a catalog with `manage.py load_catalog`.",
    )


def _cluster_line(row: ClusterRow, reading: Reading) -> Row:
    source = "Kubernetes API" if row.has_kubernetes_api else "metrics"
    return Row(
        {
            "cluster": row.name,
            "ledger_source": source,
            "watched_until": row.watched_until,
            "scrape_interval_seconds": row.scrape_interval_seconds,
            "prometheus_url": row.prometheus_url if reading.visibility.operations else "",
        }
    )


def collections_table(
    rows: Sequence[CollectionRow],
    reading: Reading,
    *,
    path: str,
    more: Sequence[tuple[str, str]],
    every: Callable[[], Iterable[CollectionRow]],
) -> Table:
    """Return a line per cluster and hour, with what a person can act on; `every` for the file."""
    query = (*reading.query, *more)
    return Table(
        id="collections",
        title="Collected hours",
        columns=[
            Column("hour", "Hour", Format.HOUR),
            Column("cluster", "Cluster"),
            Column("state", "State"),
            tables.COVERAGE,
            Column("samples", "Samples", Format.COUNT),
            Column("attempts", "Attempts", Format.COUNT),
            Column("duration_seconds", "Took", Format.DECIMAL, "s"),
            Column("ledger_source", "Pods from"),
            Column("activity_metric", "Activity metric"),
            Column("remarks", "Error, findings and warnings", wraps=True),
        ],
        rows=[_collection_line(row) for row in rows],
        zone=reading.choice.zone,
        empty="No hour of this window was asked for yet. `manage.py backfill` fills the past.",
        next_href=f"{with_query(path, query)}#collections" if more else None,
        every=lambda: map(_collection_line, every()),
    )


def _collection_line(row: CollectionRow) -> Row:
    own: dict[str, Any] = {
        name: getattr(row, name)
        for name in (
            *("hour", "cluster", "state", "coverage_ratio", "samples", "attempts"),
            *("duration_seconds", "ledger_source", "activity_metric"),
        )
    }
    return Row({**own, "remarks": remarks(row)}, badges={"state": row.state})


def remarks(row: CollectionRow) -> str:
    """Return error, findings and warnings of an hour in one line, the error first."""
    findings = [f"{name} × {count}" for name, count in sorted(row.findings.items())]
    return "; ".join([*([row.error] if row.error else []), *findings, *row.warnings])
