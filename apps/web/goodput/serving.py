"""Serving: what inference services did with their GPU-hours, and which of them rest."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from django.http import HttpResponseBase

from apps.clusters.domain.window import Window
from apps.costs import selectors as costs
from apps.costs.domain.costing import money as in_money
from apps.costs.selectors import FORGOTTEN_DAYS, ServiceUse, ServingRow
from apps.usage import selectors as usage
from apps.usage.domain.serving import ServingState
from apps.usage.domain.usage_query import GroupingRefused
from apps.usage.selectors import ServingTime
from apps.web.components.drawings.base import part_of
from apps.web.components.figure_row import FigureRow, KeyFigure, Tone, figure_row
from apps.web.components.formats import NOTHING, Format, money
from apps.web.components.page_query import href, workload_href
from apps.web.components.plots import Plot, PlotLine, Scale
from apps.web.components.tables import Column, Table, TableRow, declared_columns
from apps.web.components.tabs import Tab, tab_bar
from apps.web.costs.money_format import UNPRICED, MoneyTable, money_row
from apps.web.pages import page, respond
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    freshness_of,
    quality_of,
    query_session,
)

_TABS: Mapping[Tab, tuple[str, ...]] = {
    Tab("services", "Services"): ("cluster", "namespace", "workload", "team", "tier"),
    Tab("models", "Models"): ("model",),
    Tab("teams", "Teams"): ("team",),
    Tab("tiers", "Tiers"): ("tier",),
}
_PHONE = dict(zip(_TABS.values(), ("workload", "model", "team", "tier"), strict=True))
_TITLES = {tab.key: tab.label for tab in _TABS}
_COST = "cost_per_million_tokens"
_WORDS = {one: one.value.replace("_", " ") for one in ServiceUse} | {ServiceUse.UNKNOWN: "no data"}
_HOURLY = {one.key: one for one in declared_columns(ServingTime)}
_HOUR = timedelta(hours=1)
_MOST_ROWS = 48
_MILLION = 1_000_000


@page
def serving(request: PageRequest) -> HttpResponseBase:
    """Show the services of the window by what the open tab names."""
    reading = query_session(request, takes=("team", "tier", "namespace"))
    tabs = tab_bar(request, tuple(_TABS), name="Serving")
    by = next(groups for tab, groups in _TABS.items() if tab.key == tabs.chosen)
    services: list[ServingRow] = []
    rows: list[ServingRow] = []
    try:
        services = _rows(reading, _TABS[Tab("services", "Services")])
        rows = services if tabs.chosen == "services" else _rows(reading, by) if services else []
        empty = "" if rows else _why_empty(reading)
    except GroupingRefused as refusal:
        empty = f"Over this window: {refusal}."
    plots = _plots(_times(reading) if services else [], reading)
    table = _table(rows, by, reading, title=_TITLES[tabs.chosen], empty=empty)
    return respond(
        request,
        reading,
        "serving",
        # With those of the plots: their links to files ask for them here.
        tables=[table, *(plot.table for plot in plots)],
        tabs=tabs,
        figures=_figures(services) if services else None,
        plots=plots,
        quality=quality_of(reading, freshness_of(reading), None),
    )


def _rows(reading: QuerySession, by: tuple[str, ...]) -> list[ServingRow]:
    return costs.serving_rows(
        reading.window,
        group_by=by,
        filters=reading.filters,
        visibility=reading.visibility,
        now=reading.now,
        zone=reading.choice.zone,
    )


def _why_empty(reading: QuerySession) -> str:
    """Return why there is nothing: not asked for, refused, or no such series."""
    states = usage.serving_states(reading.window, filters=reading.filters)
    if not sum(states.values()):
        return "No hour of this window is collected."
    if states[ServingState.READ]:
        return "No inference server ran on GPUs that you see."
    if states[ServingState.REFUSED]:
        return "No data: Prometheus refused the samples. Data quality has its words."
    if states[ServingState.ABSENT]:
        return "Prometheus has no series of an inference server in this window."
    return "Not checked yet: these hours were collected before the portal asked for such series."


def _figures(services: Sequence[ServingRow]) -> FigureRow:
    resting = [row for row in services if row.use is ServiceUse.FORGOTTEN]
    kept = [row for row in services if row.use is ServiceUse.KEPT_FOR_LATENCY]
    allocated = sum(row.allocated_gpu_hours for row in services)
    measured = sum(row.allocated_gpu_hours * (row.measured_ratio or 0.0) for row in services)

    def idle(rows: Sequence[ServingRow]) -> str:
        known = [row.idle_gpu_hours for row in rows if row.idle_gpu_hours is not None]
        # Without metrics of any of them a sum would be a zero that was never measured.
        if rows and not known:
            return "idle GPU-h: no metrics"
        part = f" of {len(known):,} with metrics" if len(known) < len(rows) else ""
        return f"{sum(known):,.0f} GPU-h idle{part}"

    return figure_row(
        KeyFigure("Services", f"{len(services):,}", basis="workloads with series"),
        KeyFigure("Allocated", f"{allocated:,.0f}", of="GPU-h", basis=f"{measured:,.0f} measured"),
        KeyFigure(
            "Kept for latency",
            f"{len(kept):,}",
            basis=f"{idle(kept)}, {sum(row.kept_for_latency for row in kept):,} marked",
        ),
        KeyFigure(
            "Forgotten",
            f"{len(resting):,}",
            basis=f"{idle(resting)}, no request in {FORGOTTEN_DAYS} days",
            tone=Tone.WARNING if resting else Tone.NONE,
        ),
    )


def _table(
    rows: Sequence[ServingRow],
    by: tuple[str, ...],
    reading: QuerySession,
    *,
    title: str,
    empty: str,
) -> Table:
    return MoneyTable(
        id="serving",
        title=title,
        columns=list(declared_columns(ServingRow, groups=by)),
        rows=[_line(row, reading) for row in rows],
        zone=reading.choice.zone,
        empty=empty,
        on_phone=(_PHONE[by], "tokens_per_gpu_hour", _COST, "use"),
    )


def _line(row: ServingRow, reading: QuerySession) -> TableRow:
    cost = row.cost_per_million_tokens
    has_tokens = row.tokens_per_gpu_hour is not None and row.tokens_in is not None
    if cost is not None and row.currency:
        # A small amount for so many tokens: here cents are what is compared.
        words = money(in_money(cost), row.currency, cents=True)
    else:
        # Without tokens there is nothing to divide by, whatever the price.
        words = UNPRICED if has_tokens and (row.tokens_in or row.tokens_out) else NOTHING
    return money_row(
        row,
        values={**row.groups, "use": _WORDS[row.use]},
        links=_links(row, reading),
        explains={},
        texts={_COST: words},
    )


def _links(row: ServingRow, reading: QuerySession) -> dict[str, str | None]:
    named = row.groups
    if "workload" in named:
        address = workload_href(
            named["cluster"], named["namespace"], named["workload"], reading.query
        )
        return {"workload": address}
    return {
        key: href(key, reading.query, name=named[key]) for key in ("team", "tier") if key in named
    }


# ---------------------------------------------------------------- replicas against load


def _times(reading: QuerySession) -> list[ServingTime]:
    return usage.serving_times(
        reading.window, filters=reading.filters, visibility=reading.visibility
    )


def _plots(times: Sequence[ServingTime], reading: QuerySession) -> list[Plot]:
    """Return replicas and their load by hour, side by side: tokens, or requests without these."""
    if not times:
        return []
    replicas: dict[datetime, float | None] = {one.hour: one.replicas for one in times}
    silent: dict[datetime, float | None] = {one.hour: one.silent for one in times}
    load = {one.hour: None if one.tokens is None else one.tokens / _MILLION for one in times}
    label = Column("million_tokens", "Million tokens", Format.DECIMAL)
    if not any(value is not None for value in load.values()):
        label = _HOURLY["requests"]
        load = {one.hour: one.requests for one in times}
    counted = [(_HOURLY["replicas"], "plot-used", replicas)]
    if any(silent.values()):
        counted.append((_HOURLY["replicas_without_metrics"], "plot-unmeasured", silent))
    return [_plot(counted, reading), _plot([(label, "plot-used", load)], reading)]


_Hours = Mapping[datetime, float | None]


def _plot(lines: Sequence[tuple[Column, str, _Hours]], reading: QuerySession) -> Plot:
    """Return a plot of lines over the same hours, the first of which gives it its name."""
    column, _, known = lines[0]
    window = Window(reading.window.start, reading.window.end)
    scale = Scale.up_to(window, max((value or 0 for value in known.values()), default=0))
    hours = [hour.start for hour in window.hours()]
    # An hour without a row is no data, and the line has a gap there.
    curves = [
        PlotLine(one.label, css, scale.steps((at, at + _HOUR, by_hour.get(at)) for at in hours))
        for one, css, by_hour in lines
    ]
    title = f"{column.label} by hour"
    empty = "No server of this range exports it."

    values = list(known)

    def rows(some: Sequence[datetime] = values) -> list[TableRow]:
        return [
            TableRow({"hour": at, **{one.key: by_hour[at] for one, _, by_hour in lines}})
            for at in some
        ]

    table = Table(
        id=f"{column.key}-hours",
        title=title,
        columns=(_HOURLY["hour"], *(one for one, _, _ in lines)),
        rows=rows(values[-_MOST_ROWS:]),
        zone=reading.choice.zone,
        empty=empty,
        ordered=True,
    )
    if len(values) > _MOST_ROWS:
        table = part_of(table, len(values), rows, which="last")
    return Plot(
        id=column.key,
        title=title,
        caption=f"{title}. {reading.choice.label}.",
        table=table,
        curves=curves if curves[0].path else (),
        across=scale.across(reading.choice.zone),
        upwards=scale.upwards(),
        empty=empty,
    )
