"""The page of one quota key: how it was used over time, and what was set when."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from django.http import Http404, HttpResponseBase

from apps.clusters.domain.columns import columns_of
from apps.clusters.domain.window import Window
from apps.pending.selectors import PendingFilters, QueueRow, queues_unwatched
from apps.quotas import selectors as quotas
from apps.quotas.domain.keys import QuotaRef, QuotaSource
from apps.quotas.selectors import QuotaPoint, QuotaRow
from apps.usage.domain.usage_query import TimeStep
from apps.web.components.formats import Format
from apps.web.components.page_query import href
from apps.web.components.plots import Plot, PlotLine, Scale
from apps.web.components.tables import Column, Table, TableRow, attributes
from apps.web.pages import page, respond
from apps.web.pending.history import queues_table
from apps.web.query_session import PageRequest, QuerySession, on_cluster, query_session
from apps.web.quota_requests.request_input import Asker
from apps.web.quotas import keys

_SAME = 1e-6
_NOT_KNOWN = (
    "Nothing is known of this key in this window: it was not there, its hours were not summed "
    "yet, or its namespace was another team's."
)
_POINT_COLUMNS = (
    Column("period", "Period", Format.DAY),
    Column("team", "Team", hint="whose it was at the end of the period"),
    Column("saturation_ratio", "Quota usage", Format.RATIO, "%", "used ÷ hard"),
    Column("hard", "Limit", Format.NUMBER),
    Column("used", "Used", Format.NUMBER),
    Column("held", "Allocated", Format.NUMBER),
    Column("pending", "Pending", Format.NUMBER),
    Column("suppressed", "Blocked", Format.NUMBER),
    Column("there_seconds", "There for", Format.SECONDS, "", "how long of it the key was there"),
)


def saturation_plot(points: Sequence[QuotaPoint], reading: QuerySession, unit: str) -> Plot:
    """Return what was used of a key and what it allowed, period by period."""
    choice = reading.choice
    highest = max((max(p.hard, p.used or 0.0) for p in points), default=0.0)
    scale = Scale.up_to(Window(choice.window.start, choice.window.end), highest)
    spans = [(point.period.astimezone(UTC), _end(point, reading), point) for point in points]
    lines = [
        PlotLine("hard", "plot-limit", scale.steps((s, e, p.hard) for s, e, p in spans)),
        PlotLine("used", "plot-used", scale.steps((s, e, p.used) for s, e, p in spans)),
        PlotLine("held", "plot-even", scale.steps((s, e, p.held) for s, e, p in spans)),
    ]
    title = "Usage over time"
    return Plot(
        id="saturation",
        title=title,
        caption=f"{title}, {unit}, means by {choice.interval.value}. {choice.label}.",
        table=_point_table(points, reading),
        lines=[line for line in lines if line.path] if points else (),
        gaps=[scale.gap(start, end) for start, end in _unknown(spans, scale.window)],
        across=scale.across(choice.zone),
        upwards=scale.upwards(),
        empty=_NOT_KNOWN,
    )


def _end(point: QuotaPoint, reading: QuerySession) -> datetime:
    """Return the end of a point's period: the start of the next, or of the window's end."""
    periods = [*reading.choice.periods, reading.window.end]
    start = point.period.astimezone(UTC)
    return next((at for at in periods if at > start), reading.window.end)


def _unknown(
    spans: Sequence[tuple[datetime, datetime, QuotaPoint]], window: Window
) -> list[tuple[datetime, datetime]]:
    """Return the stretches of the window without a point, or in which use is not known."""
    gaps, at = [], window.start
    for start, end, point in spans:
        if point.used is None:
            continue
        if start > at:
            gaps.append((at, start))
        at = max(at, end)
    return [*gaps, (at, window.end)] if at < window.end and spans else gaps


def _point_table(points: Sequence[QuotaPoint], reading: QuerySession) -> Table:
    kind = Format.HOUR if reading.choice.interval is TimeStep.HOUR else Format.DAY
    return Table(
        id="points",
        title="Usage over time",
        columns=(replace(_POINT_COLUMNS[0], kind=kind), *_POINT_COLUMNS[1:]),
        rows=[_point(point) for point in points],
        zone=reading.choice.zone,
        empty=_NOT_KNOWN,
        ordered=True,
    )


def _point(point: QuotaPoint) -> TableRow:
    own = (column.key for column in _POINT_COLUMNS if column.key != "there_seconds")
    return TableRow(attributes(point, *own, there_seconds="seconds"))


def _hour_after(point: QuotaPoint) -> datetime:
    return point.period.astimezone(UTC) + timedelta(hours=1)


def _runs(hours: Sequence[QuotaPoint]) -> list[list[QuotaPoint]]:
    """Return the hours that follow each other with the same team and the same limit."""
    runs: list[list[QuotaPoint]] = []
    for point in hours:
        before = runs[-1][-1] if runs else None
        goes_on = (
            before is not None
            and before.team == point.team
            and abs(before.hard - point.hard) < _SAME
            # In UTC: the hour that a clock change repeats equals no other in local time.
            and _hour_after(before) == point.period.astimezone(UTC)
        )
        if goes_on:
            runs[-1].append(point)
        else:
            runs.append([point])
    return runs


def owners_table(hours: Sequence[QuotaPoint], reading: QuerySession) -> Table:
    """Return who had how much of it when, from the key's hours: a line for each change."""
    rows = []
    for run in _runs(hours):
        team = run[0].team
        rows.append(
            TableRow(
                {
                    "start": run[0].period,
                    "end": _hour_after(run[-1]),
                    "team": team,
                    "hard": round(run[0].hard, 6),
                    "there_seconds": sum(point.seconds for point in run),
                },
                {"team": href("team", reading.query, name=team) if team else None},
            )
        )
    return Table(
        id="owners",
        title="Limit history",
        columns=_OWNER_COLUMNS,
        rows=rows,
        zone=reading.choice.zone,
        empty=_NOT_KNOWN,
        note="By closed hours; an hour in which it was changed has its mean." if rows else "",
    )


_OWNER_COLUMNS = (
    Column("start", "From", Format.HOUR),
    Column("end", "Until", Format.HOUR),
    Column("team", "Team"),
    Column("hard", "Limit", Format.NUMBER),
    Column("there_seconds", "Was there for", Format.SECONDS),
)


_AMOUNTS = (
    *("hard", "used", "held", "pending", "suppressed", "headroom", "observed_hard", "reserved"),
    *("borrowed", "borrowing_limit", "lending_limit", "ceiling", "guarantee", "weight"),
)


def amounts_of(row: QuotaRow, explains: Mapping[str, str]) -> list[tuple[str, Any, str, str]]:
    """Return (label, amount, help, address that explains it) of a key's amounts.

    Those of queues where it is one.
    """
    columns = {column.name: column for column in columns_of(QuotaRow)}
    return [
        (columns[name].label, getattr(row, name), columns[name].help, explains.get(name, ""))
        for name in _AMOUNTS
        if getattr(row, name) is not None or name == "used"
    ]


# ---------------------------------------------------------------- one key


@page
def quota(
    request: PageRequest, cluster: str, source: str, namespace: str, name: str, key: str
) -> HttpResponseBase:
    reading = on_cluster(query_session(request), cluster)
    space = "" if namespace == keys.NO_NAMESPACE else namespace
    ref = QuotaRef(source, space, name, key, cluster)
    row = quotas.quota_row(reading.now, ref, visibility=reading.visibility)
    points = _history(reading, ref, reading.choice.interval)
    hours = points
    if reading.choice.interval is not TimeStep.HOUR:
        hours = _history(reading, ref, TimeStep.HOUR)
    if row is None and not points:
        raise Http404("There is no such quota, or you may not see it, or not in this window.")
    plot = saturation_plot(points, reading, row.unit if row else "units")
    tables = [plot.table, owners_table(hours, reading)]
    if source == QuotaSource.CLUSTER_QUEUE and (queues := _unwatched(reading, cluster, name)):
        tables.append(queues_table(queues, reading))
    line = keys.key_line(row, reading, {}) if row else None
    return respond(
        request,
        reading,
        "quota",
        tables=tables,
        plot=plot,
        row=row,
        name=name,
        key=key,
        source=source,
        namespace=space,
        cluster=cluster,
        line=line,
        amounts=amounts_of(row, line.explains) if row and line else (),
        team_href=href("team", reading.query, name=row.team) if row and row.team else None,
        ask_href=Asker.of(request.user).ask_href(row, reading.query) if row else "",
    )


def _unwatched(reading: QuerySession, cluster: str, name: str) -> list[QueueRow]:
    """Return what Kueue's series show of a ClusterQueue; none where none do."""
    return queues_unwatched(
        reading.window,
        visibility=reading.visibility,
        filters=PendingFilters(cluster=(cluster,)),
        queue=name,
    )


def _history(reading: QuerySession, ref: QuotaRef, interval: TimeStep) -> list[QuotaPoint]:
    return quotas.quota_history(
        reading.window, ref, visibility=reading.visibility, interval=interval
    )
