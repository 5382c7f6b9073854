"""Data quality of each cluster: its hours, what is wrong, and tables of both."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.domain.resources import counted
from apps.clusters.domain.window import Window, days_in, hour_floor
from apps.clusters.selectors import ClusterRow
from apps.operations.selectors import ClusterProgress, DoctorVerdict, FindingRow
from apps.usage.domain.collection import CollectionState, finding_text
from apps.usage.domain.usage_query import CollectionRow, day_end, day_start
from apps.web.components import tables
from apps.web.components.drawings import calendar
from apps.web.components.drawings.calendar import Calendar
from apps.web.components.formats import Format, span_text
from apps.web.components.page_query import Query, href
from apps.web.components.tables import Column, Table, TableRow
from apps.web.query_session import QuerySession

HOUR = timedelta(hours=1)
COMPLETE, MISSING = "complete", "missing"
TierGaps = Mapping[tuple[str, str], int]
"""Hours by cluster and tier."""
TierHours = Mapping[str, tuple[int, int]]
"""Hours collected and due, by tier."""


class HourStatus(Struct, frozen=True):
    """One due hour; `row` is None for one that was never tried."""

    hour: datetime
    state: str
    row: CollectionRow | None


class HourRun(Struct, frozen=True):
    """Neighbouring hours in one state and for one reason, from `start` to, not including, `end`.

    `newest` is the row of the last of them that has one.
    """

    cluster: str
    state: str
    start: datetime
    end: datetime
    hours: int
    newest: CollectionRow | None


def due_hours(
    window: Window, progress: ClusterProgress, *, closed: datetime, zone: ZoneInfo
) -> Iterator[datetime]:
    """Yield the starts of the hours of the window that should have facts, oldest first.

    From the first hour ever asked for, or from when on the catalog wants hours; up to `closed`,
    the newest hour that should be collected by now, or to the newest one asked for.
    """
    beginnings = [at for at in (progress.first_hour, progress.collect_from) if at is not None]
    if not beginnings:
        return
    start = max(window.start, min(beginnings))
    at = hour_floor(start, zone)
    # An hour that the window cuts is not due in it.
    at += HOUR if at < start else timedelta(0)
    # A backfill may have asked for hours before they settled: those count as due too.
    last = max(closed, progress.last_hour or closed)
    while at < window.end and at <= last:
        yield at
        at += HOUR


def hour_states(due: Iterable[datetime], rows: Iterable[CollectionRow]) -> list[HourStatus]:
    """Return the state of each due hour of a cluster; `rows` are its own, in any order.

    An hour without a first attempt is missing, with or without a row.
    """
    by_hour = {row.hour: row for row in rows}
    return [HourStatus(hour, _state(by_hour.get(hour)), by_hour.get(hour)) for hour in due]


def _state(row: CollectionRow | None) -> str:
    if row is None or row.state == CollectionState.WAITING.value:
        return MISSING
    return row.state


def runs(cluster: str, states: Sequence[HourStatus]) -> list[HourRun]:
    """Join neighbouring hours, given oldest first, that are alike; newest run first.

    Complete hours are alike whatever was found in them, others when error and kinds of findings
    are the same.
    """
    joined: list[HourRun] = []
    before: tuple[object, ...] | None = None
    for of_hour in states:
        alike = _likeness(of_hour)
        last = joined[-1] if joined else None
        # Hours that lie between two runs were not due, so the runs are not joined over them.
        if last is not None and alike == before and last.end == of_hour.hour:
            joined[-1] = _longer(last, of_hour)
        else:
            hour = of_hour.hour
            joined.append(HourRun(cluster, of_hour.state, hour, hour + HOUR, 1, of_hour.row))
        before = alike
    return joined[::-1]


def _longer(run: HourRun, by: HourStatus) -> HourRun:
    newest = by.row or run.newest
    return HourRun(run.cluster, run.state, run.start, by.hour + HOUR, run.hours + 1, newest)


def _likeness(of_hour: HourStatus) -> tuple[object, ...]:
    if of_hour.row is None or of_hour.state == COMPLETE:
        return (of_hour.state,)
    return (of_hour.state, of_hour.row.error, frozenset(of_hour.row.findings))


LONGEST_CALENDAR_DAYS = 62
SIGNS = {"complete": "", "partial": "◐", "failed": "×", "missing": "?"}


class RunLine(Struct, frozen=True):
    """Neighbouring hours that are alike, as one line; `href` leads to the hours themselves."""

    cluster: str
    state: str
    words: str
    sign: str
    hours: int
    span: str
    remarks: str
    href: str


class ClusterHealth(Struct, frozen=True):
    """A cluster's hours in the window: `due` of them should have facts, `complete` have all.

    There is no `calendar`, and `runs` leave complete hours out, where the window is too long.
    """

    name: str
    due: int
    complete: int
    runs: Sequence[RunLine]
    calendar: Calendar | None

    @property
    def lacking(self) -> int:
        return self.due - self.complete


def has_calendar(reading: QuerySession) -> bool:
    """Say whether the window is short enough to draw its hours."""
    return len(list(days_in(reading.window, reading.choice.zone))) <= LONGEST_CALENDAR_DAYS


def cluster_healths(
    progress: Sequence[ClusterProgress],
    rows: Iterable[CollectionRow],
    reading: QuerySession,
    *,
    closed: datetime,
) -> list[ClusterHealth]:
    """Return the health of each cluster of the page, the least complete first.

    `rows` are all of the window; `closed` is the newest hour that should be collected by now.
    """
    by_cluster: dict[str, list[CollectionRow]] = {}
    for row in rows:
        by_cluster.setdefault(row.cluster, []).append(row)
    wanted = [p for p in progress if p.cluster in (reading.filters.cluster or (p.cluster,))]
    healths = []
    for number, own in enumerate(wanted, start=1):
        due = due_hours(reading.window, own, closed=closed, zone=reading.choice.zone)
        states = hour_states(due, by_cluster.get(own.cluster, ()))
        healths.append(_health(own.cluster, f"cluster-{number}", states, reading))
    return sorted(healths, key=lambda health: (-health.lacking, health.name))


def _health(
    cluster: str, anchor: str, states: Sequence[HourStatus], reading: QuerySession
) -> ClusterHealth:
    complete = sum(state.state == COMPLETE for state in states)
    drawn = has_calendar(reading)
    joined = [run for run in runs(cluster, states) if drawn or run.state != COMPLETE]
    return ClusterHealth(
        name=cluster,
        due=len(states),
        complete=complete,
        runs=[_line(run, reading) for run in joined],
        calendar=_calendar(cluster, anchor, states, reading) if drawn else None,
    )


_MANY_HOURS = 3
"""Hours that wait at a time: fewer are the everyday of an hour that has just closed."""


def under_way(progress: Sequence[ClusterProgress]) -> list[ClusterProgress]:
    """Return the clusters whose collection is long work at the moment: a backfill, or a gap."""
    return [row for row in progress if row.pending_hours >= _MANY_HOURS]


def troubles(healths: Sequence[ClusterHealth]) -> list[RunLine]:
    """Return the lines of all clusters that lack something, each cluster's newest first."""
    return [line for health in healths for line in health.runs if line.state != COMPLETE]


def _line(run: HourRun, reading: QuerySession) -> RunLine:
    return RunLine(
        cluster=run.cluster,
        state=run.state,
        words=_WORDS[run.state],
        sign=SIGNS[run.state],
        hours=run.hours,
        span=span_text(run.start, run.end, reading.choice.zone),
        remarks=remarks(run.newest) if run.newest and run.state != COMPLETE else "",
        href=_hours_href(run.cluster, run.start, run.end),
    )


def _hours_href(cluster: str, start: datetime, end: datetime) -> str:
    """Return the address of the list of these hours of a cluster."""
    query: Query = (
        ("start", _instant(start)),
        ("end", _instant(end)),
        ("cluster", cluster),
        ("tab", "calendar"),
    )
    return f"{href('data-quality', query)}#collections"


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _calendar(
    cluster: str, anchor: str, states: Sequence[HourStatus], reading: QuerySession
) -> Calendar:
    """Return the cluster's hours, coloured by their metrics coverage."""
    zone = reading.choice.zone
    by_state: dict[str, list[datetime]] = {}
    for one in states:
        by_state.setdefault(one.state, []).append(one.hour)
    complete = len(by_state.get(COMPLETE, ()))
    drawn = calendar(
        anchor,
        cluster,
        {one.hour: _coverage(one.row) for one in states if one.row},
        window=reading.window,
        zone=zone,
        missing=by_state.get(MISSING, ()),
        failed=by_state.get(CollectionState.FAILED.value, ()),
        partial=by_state.get(CollectionState.PARTIAL.value, ()),
        day_href=lambda day: _hours_href(cluster, day_start(day, zone), day_end(day, zone)),
        hue="of-coverage",
        empty="No hour is due in this window.",
    )
    caption = f"{complete:,} of {len(states):,} hours complete. Colour: metrics coverage."
    # The hourly log has these hours line by line.
    return replace(drawn, caption=caption, table=None)


def _coverage(row: CollectionRow) -> float:
    # Where nothing ran there is nothing that could lack metrics.
    return 1.0 if row.coverage_ratio is None else row.coverage_ratio


_WORDS = {
    "complete": "complete",
    "partial": "partial",
    "failed": "failed",
    "missing": "not collected",
}


class HealthSummary(Struct, frozen=True):
    """What data quality leads with: the issues in numbers; none, or not checked yet.

    `has_errors`: figures lack something, be it hours or what an error hides.
    """

    title: str
    troubled: bool
    has_errors: bool
    checked_at: datetime | None


def summary(
    lines: Sequence[RunLine],
    verdicts: Sequence[DoctorVerdict],
    of_portal: Sequence[FindingRow] = (),
) -> HealthSummary:
    """Return the one verdict on all that the page shows: hours, and what the doctor found.

    `of_portal` are the findings that are of no cluster.
    """
    own = Counter(row.severity for row in of_portal)
    times = [one.checked_at for one in verdicts]
    known = [at for at in times if at is not None]
    # A verdict is as old as its oldest part, and unknown while a part is unknown.
    oldest = min(known) if known and len(known) == len(times) else None
    # The findings of a cluster have those of its tiers among them.
    clusters = [one for one in verdicts if one.scope == "cluster"]
    # The bar above counts each hour once; here an hour counts in each cluster that lacks it.
    lacking = len({line.cluster for line in lines})
    of = f"of {lacking} clusters " if lacking > 1 else ""
    counts = (
        ("hour", f"{of}incomplete", sum(line.hours for line in lines)),
        ("error", "", own["error"] + sum(one.errors for one in clusters)),
        ("warning", "", own["warning"] + sum(one.warnings for one in clusters)),
    )
    notes = own["note"] + sum(one.notes for one in clusters)
    said = [f"{counted(number, noun)} {state}".strip() for noun, state, number in counts if number]
    sound = "Not checked yet" if oldest is None else "No issues"
    return HealthSummary(
        ", ".join([*(said or [sound]), *([counted(notes, "note")] if notes else [])]),
        troubled=bool(said),
        has_errors=any(number for noun, _, number in counts if noun != "warning"),
        checked_at=oldest,
    )


class ClusterVerdict(Struct, frozen=True):
    """The verdict on a cluster in words: `state` colours it, `counts` say what was found."""

    name: str
    words: str
    state: str
    counts: str
    checked_at: datetime | None
    unread: Sequence[str]


def cluster_verdicts(
    verdicts: Sequence[DoctorVerdict], healths: Sequence[ClusterHealth]
) -> list[ClusterVerdict]:
    """Return the verdict on each cluster, with its hours of the window."""
    by_name = {health.name: health for health in healths}
    found = []
    for one in verdicts:
        if one.scope != "cluster":
            continue
        health = by_name.get(one.name)
        words, state = _verdict_words(one, health.lacking if health else 0)
        counts = [
            f"{health.complete:,} of {health.due:,} hours collected"
            if health and health.due
            else "no hour is due in this window",
            *(counted(number, noun) for number, noun in _found(one) if number),
            *([counted(one.notes, "note")] if one.notes else []),
        ]
        found.append(
            ClusterVerdict(one.name, words, state, " · ".join(counts), one.checked_at, one.unread)
        )
    return found


def tier_verdict(verdicts: Sequence[DoctorVerdict], gaps: TierGaps) -> str:
    """Return how many tiers have issues or lack hours; empty without tiers."""
    tiers = [one for one in verdicts if one.scope == "tier"]
    if not tiers:
        return ""
    if any(one.checked_at is None for one in tiers):
        return f"{counted(len(tiers), 'tier')}: not checked yet"
    lacking = {tier for _, tier in gaps}
    found = [one for one in tiers if one.errors or one.warnings or one.name in lacking]
    named = ", ".join(one.name for one in found)
    return f"{counted(len(tiers), 'tier')}: {f'issues in {named}' if named else 'no issues'}"


def withheld(verdicts: Sequence[DoctorVerdict], listed: int) -> int:
    """Return how many errors and warnings the reader is not shown, of which `listed` are."""
    found = sum(sum(n for n, _ in _found(one)) for one in verdicts if one.scope == "cluster")
    return max(0, found - listed)


def _found(one: DoctorVerdict) -> Sequence[tuple[int, str]]:
    return (one.errors, "error"), (one.warnings, "warning")


def tier_hours(
    places: Iterable[tuple[str, str]], gaps: TierGaps, healths: Sequence[ClusterHealth]
) -> TierHours:
    """Return how many hours tell of each tier, and how many should, on the clusters that have it.

    `places` are the clusters and tiers with capacity, `gaps` the hours that tell nothing of a tier.
    """
    by_name = {health.name: health for health in healths}
    found: dict[str, tuple[int, int]] = {}
    for cluster, tier in {*places, *gaps}:
        if health := by_name.get(cluster):
            complete, due = found.get(tier, (0, 0))
            known = max(0, health.complete - gaps.get((cluster, tier), 0))
            found[tier] = (complete + known, due + health.due)
    return found


def verdicts_table(
    verdicts: Sequence[DoctorVerdict],
    healths: Sequence[ClusterHealth],
    tiers: TierHours,
    reading: QuerySession,
) -> Table:
    """Return a line for each cluster and tier: hours collected, findings, and the last check."""
    hours = {("cluster", one.name): (one.complete, one.due) for one in healths}
    hours |= {("tier", name): own for name, own in tiers.items()}
    return Table(
        id="verdicts",
        title="Verdict",
        columns=[
            Column("scope", "Scope"),
            Column("name", "Name"),
            Column("verdict", "Verdict"),
            Column("complete", "Hours collected", Format.COUNT, "", "complete ones of the window"),
            Column("due", "Hours due", Format.COUNT),
            Column("errors", "Errors", Format.COUNT),
            Column("warnings", "Warnings", Format.COUNT),
            Column("notes", "Notes", Format.COUNT),
            Column("checked_at", "Checked", Format.TIME),
            Column("unread", "Not examined", wraps=True),
        ],
        rows=[_verdict_line(one, *hours.get((one.scope, one.name), (0, 0))) for one in verdicts],
        zone=reading.choice.zone,
        empty="No cluster is known yet. Load a catalog with `manage.py load_catalog`.",
        ordered=True,
    )


def _verdict_line(one: DoctorVerdict, complete: int, due: int) -> TableRow:
    words, state = _verdict_words(one, due - complete)
    values: dict[str, Any] = {
        "scope": one.scope,
        "name": one.name,
        "verdict": words,
        # Where nothing is due, 0 of 0 would read as a lack.
        "complete": complete if due else None,
        "due": due or None,
        "errors": None if one.checked_at is None else one.errors,
        "warnings": None if one.checked_at is None else one.warnings,
        "notes": None if one.checked_at is None else one.notes,
        "checked_at": one.checked_at,
        "unread": ", ".join(one.unread),
    }
    return TableRow(values, badges={"verdict": state})


def _verdict_words(one: DoctorVerdict, lacking: int) -> tuple[str, str]:
    """Return the verdict in words, and the state that colours it."""
    if one.errors:
        return "errors", "failed"
    if one.warnings:
        return "warnings", "partial"
    if lacking:
        return "hours missing", "partial"
    return ("not checked yet", "waiting") if one.checked_at is None else ("no issues", "complete")


def clusters_table(rows: Sequence[ClusterRow], reading: QuerySession) -> Table:
    """Return the clusters as loaded; addresses only for who sees how the portal runs."""
    declared = tables.declared_columns(ClusterRow, admin=reading.visibility.operations)
    return Table(
        id="clusters",
        title="Clusters",
        columns=[Column("cluster", "Cluster"), *declared],
        rows=[TableRow({"cluster": row.name, **tables.declared_values(row)}) for row in rows],
        zone=reading.choice.zone,
        empty="No cluster is known yet. Load a catalog with `manage.py load_catalog`.",
    )


def collections_table(
    rows: Sequence[CollectionRow],
    reading: QuerySession,
    *,
    next_href: str | None,
    every: Callable[[], Iterable[CollectionRow]],
) -> Table:
    """Return a line per cluster and hour, with what a person can act on; `every` for the file."""
    return Table(
        id="collections",
        title="Collected hours",
        columns=tables.declared_columns(
            CollectionRow, Column("remarks", "Errors and warnings", wraps=True)
        ),
        rows=[_collection_line(row) for row in rows],
        zone=reading.choice.zone,
        empty="No hour of this window was asked for yet. `manage.py backfill` fills the past.",
        next_href=next_href,
        every=lambda: map(_collection_line, every()),
    )


def _collection_line(row: CollectionRow) -> TableRow:
    values = tables.declared_values(row) | {"remarks": remarks(row)}
    return TableRow(values, badges={"state": row.state})


def remarks(row: CollectionRow) -> str:
    """Return error, findings and warnings of an hour in one line, the error first."""
    findings = [finding_text(code, count) for code, count in sorted(row.findings.items())]
    return "; ".join([*([row.error] if row.error else []), *findings, *row.warnings])
