"""The pages of pending workloads: the list with its sums and history, and one pending workload."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, timedelta
from typing import Any

from django.http import Http404, HttpResponseBase

from apps.accounts.domain.structs import replace
from apps.clusters.domain.resources import gpus, quantity
from apps.clusters.domain.window import Window, day_start
from apps.pending.selectors import (
    DayQueueTimes,
    NamespaceContext,
    PendingRow,
    PendingWorkloads,
    blocking_teams,
    episodes_of,
    partial_gangs,
    pending_workloads,
    queue_times_by_day,
    queues_unwatched,
    refresh_rows,
    typical_queue_time,
)
from apps.usage import selectors as usage
from apps.usage.domain.usage_query import Filters
from apps.web.components import listings
from apps.web.components.drawings import BarPart, stacked_bar
from apps.web.components.drawings.bars import StackedBar
from apps.web.components.figure_row import FigureRow, KeyFigure, figure_row, no_data
from apps.web.components.formats import duration
from apps.web.components.page_query import (
    Pages,
    Query,
    figure_href,
    option_links,
    pages_from,
    path_of,
    with_query,
    without,
)
from apps.web.components.tables import LedgerClass, Table, paged
from apps.web.components.tabs import Tab, tab_bar
from apps.web.pages import page, respond
from apps.web.pending import pending_detail, suggestions
from apps.web.pending.history import gangs_table, history_of, queue_time_plot, queues_table
from apps.web.pending.pending_groups import command_of, group_list, pending_file
from apps.web.pending.pending_table import (
    CLASSES,
    TAKES,
    PendingPageQuery,
    badge,
    cause_links,
    class_of,
    freshness_of,
    of_asker,
    query_of,
)
from apps.web.query_session import PageRequest, QuerySession, on_cluster, query_session
from apps.web.quota_requests.request_input import may_ask

TABS = (
    Tab("now", "Now"),
    Tab("partial", "Partially admitted"),
    Tab("history", "History"),
)
_DETAIL_TABS = (
    Tab("messages", "Messages"),
    Tab("ahead", "Blocking teams"),
    Tab("pods", "Pods"),
    Tab("history", "Status history"),
)
_TAB_OF_TABLE = {
    "front": "ahead",
    "holders": "ahead",
    "pods": "pods",
    "timeline": "history",
    "earlier": "history",
}
"""Addresses of files from before there were tabs name a table alone."""
_GROUPINGS = {
    "queue": "",
    "quota": "quota",
    "team": "team",
    "reason": "reason",
    "none": "none",
}
_AMOUNTS = ("blocked", "unscheduled", "starting")
_MOST_NAMES = 2
_MOST_PODS = 20
_RECENT = timedelta(days=7)
_MINUTE = timedelta(minutes=1)


@page
def pending_list(request: PageRequest) -> HttpResponseBase:
    reading = query_session(request, takes=TAKES)
    asked = query_of(request.GET)
    tabs = tab_bar(request, TABS, name="Pending")
    context = NamespaceContext.over(reading.window, now=reading.now)
    looked = freshness_of(
        refresh_rows(context.freshness(reading.now), visibility=reading.visibility), reading
    )
    of_tab = {"now": _now, "partial": _partial, "history": _history}[tabs.chosen]
    return respond(
        request,
        reading,
        "pending",
        asked=asked,
        tabs=tabs,
        looked=looked,
        is_live=looked.is_live(reading.now),
        **of_tab(request, reading, asked, context),
    )


def _now(
    request: PageRequest, reading: QuerySession, asked: PendingPageQuery, context: NamespaceContext
) -> dict[str, Any]:
    """Return what the tab Now shows: figures, causes to filter by, and a page of groups."""
    found = pending_workloads(
        reading.now,
        by=asked.group,
        filters=asked.filters(reading),
        visibility=reading.visibility,
        order=asked.order,
        context=context,
    )
    days = _queue_times(reading, asked, context, reading.window)
    today, whole = _today(reading), reading.window
    # The figure is of today whatever the window: most windows have it, and are read once.
    covered = whole.start <= today.start and today.end <= whole.end
    of_today = days if covered else _queue_times(reading, asked, context, today)
    path, query = path_of(request), (*reading.query, *asked.query)
    pages = pages_from(request.GET, count=found.count)
    table = paged(pending_file(found, reading), path, query, pages)
    plot = queue_time_plot(days, reading, of=_whose(reading))
    return {
        "tables": [table, plot.table],
        "figures": _figures(found, reading, asked, of_today),
        "queue_times": plot,
        "groups": group_list(found.page(pages.part), reading),
        "reasons": _reasons(found),
        "causes": cause_links(found.causes, path, reading, asked),
        "groupings": option_links(
            path,
            [*reading.query, *without(asked.query, "group")],
            "group",
            _GROUPINGS,
            [value for key, value in asked.query if key == "group"],
        ),
        "orders": option_links(
            path,
            [*reading.query, *without(asked.query, "order")],
            "order",
            {"longest pending": "", "most GPUs": "most"},
            [value for key, value in asked.query if key == "order"],
        ),
        "kind_chips": _kind_chips(request, reading, asked),
        "hidden": [*reading.query, *without(asked.query, "name")],
        "clear_href": with_query(path, [*reading.query, *without(asked.query, "name")]),
        "now_href": with_query(path, [*query, *_page_of(pages)]),
        # Read only where the list is empty: it takes queries of its own.
        "nothing": lambda: _nothing(reading, asked, context),
        "may_ask": may_ask(request.user),
    }


def _page_of(pages: Pages) -> Query:
    return (("page", str(pages.number)),) if pages.number > 1 else ()


def _figures(
    found: PendingWorkloads,
    reading: QuerySession,
    asked: PendingPageQuery,
    days: Sequence[DayQueueTimes],
) -> FigureRow:
    """Return the figures of what is pending now, and how long it took today to start."""
    amounts = {key: getattr(found.gpus, key) for key in _AMOUNTS}
    # What is narrowed by a name has no page that explains it.
    query = () if asked.text else (*reading.query, *asked.query)
    row = [
        KeyFigure(
            key.capitalize(),
            quantity(amounts[key]),
            "GPU" if amounts[key] == 1 else "GPUs",
            basis="now",
            href=figure_href(f"{key}_gpus", query) if query else "",
            note="by quota or queue" if key == "blocked" else "",
        )
        for key in _AMOUNTS
        if amounts[key] or key != "starting"
    ]
    oldest = duration((reading.now - found.since).total_seconds()) if found.since else ""
    return figure_row(
        KeyFigure(
            "Pending",
            f"{found.count:,}",
            "workload" if found.count == 1 else "workloads",
            basis="now",
            note=f"oldest {oldest}" if oldest else "",
        ),
        *row,
        _queue_time(reading, days),
        name="Pending now",
    )


def _queue_times(
    reading: QuerySession, asked: PendingPageQuery, context: NamespaceContext, window: Window
) -> list[DayQueueTimes]:
    """Return queue times by day of the teams that the list is of."""
    whole = context.window
    # A day that has just begun reaches beyond what the page knows of namespaces.
    is_known = whole.start <= window.start and window.end <= whole.end
    return queue_times_by_day(
        window,
        visibility=reading.visibility,
        zone=reading.choice.zone,
        filters=asked.filters(reading),
        context=context if is_known else None,
        own=True,
    )


def _today(reading: QuerySession) -> Window:
    zone = reading.choice.zone
    start = day_start(reading.now.astimezone(zone).date(), zone).astimezone(UTC)
    # At midnight the day has no length yet, and a window must have one.
    return Window(start, max(reading.now, start + _MINUTE))


def _whose(reading: QuerySession) -> str:
    """Return whose workloads the list shows, in a word or by their names."""
    teams = reading.filters.team
    if len(teams) > _MOST_NAMES:
        return f"{len(teams)} teams"
    if teams:
        return " and ".join(teams)
    return "all teams" if reading.visibility.everything else "your teams"


def _queue_time(reading: QuerySession, days: Sequence[DayQueueTimes]) -> KeyFigure:
    """Return the p95 queue time of today, of the teams that the list is of."""
    label, date = "p95 queue time", reading.now.astimezone(reading.choice.zone).date()
    today = next((one for one in days if one.day == date), None)
    if today is None:
        return no_data(label, "No pod has started today.", note="no start today")
    return KeyFigure(
        label,
        duration(today.p95_seconds),
        basis="today",
        note=f"p50 {duration(today.p50_seconds)}, {_whose(reading)}",
    )


def _reasons(found: PendingWorkloads) -> StackedBar:
    """Return the bar of pending GPUs by class of cause."""
    amounts: dict[LedgerClass, float] = defaultdict(float)
    for one in found.causes:
        amounts[class_of(one.cause)] += one.gpus
    parts = [
        BarPart(cls.label, amounts[cls], gpus(amounts[cls]), cls.css)
        for cls in CLASSES
        if amounts.get(cls)
    ]
    return stacked_bar("reasons", "Pending by reason", parts, unit="GPUs")


def _partial(
    request: PageRequest, reading: QuerySession, asked: PendingPageQuery, context: NamespaceContext
) -> dict[str, Any]:
    gangs = partial_gangs(
        reading.now,
        visibility=reading.visibility,
        filters=asked.filters(reading),
        context=context,
    )
    return {"tables": [gangs_table(gangs, reading)]}


def _history(
    request: PageRequest, reading: QuerySession, asked: PendingPageQuery, context: NamespaceContext
) -> dict[str, Any]:
    filters = asked.filters(reading)
    past = history_of(reading, filters, context)
    queues = queues_unwatched(reading.window, visibility=reading.visibility, filters=filters)
    return {
        "tables": [*past.tables, *([queues_table(queues, reading)] if queues else [])],
        "charts": past.charts,
        "classes": past.classes,
    }


def _nothing(reading: QuerySession, asked: PendingPageQuery, context: NamespaceContext) -> str:
    """Return the text of an empty list; never “nothing pending” where that is not known."""
    own = reading.filters
    narrowed = asked.narrows or own.tier or own.team or own.namespace or own.cluster
    looked = freshness_of(
        refresh_rows(context.freshness(reading.now), visibility=reading.visibility), reading
    )
    # Before the filters: a list that may be incomplete is never said to be empty.
    if not looked.is_known:
        return "No pending work is known, but the data is incomplete: see above."
    if narrowed:
        return "No pending workload that you may see matches. Remove a filter."
    if not reading.visibility.everything:
        return "Your teams have no pending workloads."
    return "No pending workloads."


def _kind_chips(
    request: PageRequest, reading: QuerySession, asked: PendingPageQuery
) -> list[tuple[str, str]]:
    """Return (kind, address without it) of the kinds that the list is narrowed to."""
    query = (*reading.query, *asked.query)
    return [
        (kind, with_query(path_of(request), [pair for pair in query if pair != ("kind", kind)]))
        for kind in asked.kinds
    ]


@page
def pending_item(request: PageRequest, cluster: str, uid: str) -> HttpResponseBase:
    reading = on_cluster(query_session(request), cluster)
    context = NamespaceContext.at(reading.now)
    episodes = episodes_of(
        cluster, uid, at=reading.now, visibility=reading.visibility, context=context
    )
    if not episodes:
        raise Http404("No pending workload has this name, or you may not see it.")
    newest = episodes[0]
    row = newest.row
    tabs = tab_bar(request, _tabs_of(row), name=row.name)
    chosen = _TAB_OF_TABLE.get(request.GET.get("table", ""), tabs.chosen)
    tables = []
    if chosen == "ahead":
        front = blocking_teams(row, reading.now, visibility=reading.visibility, context=context)
        tables.append(pending_detail.teams_in_front(front, reading))
        # Without teams in front the sentence of the first table says it all.
        if front:
            tables.append(pending_detail.pods_in_front(front, reading))
    elif chosen == "pods":
        tables.append(_pods(row, reading))
    elif chosen == "history":
        tables.append(pending_detail.timeline(newest, reading))
        if len(episodes) > 1:
            tables.append(pending_detail.earlier(episodes[1:], reading))
    return respond(
        request,
        reading,
        "pending_detail",
        tables=tables,
        row=row,
        run_by=_run_by(request, row, reading),
        headline=pending_detail.headline(row, reading),
        badge=badge(row.cause, row.detail),
        of_asker=of_asker(row.cause),
        links=pending_detail.links_of(row, reading),
        # What is over needs no help, and its object may be gone.
        helps=suggestions.help_of(row) if not row.until else (),
        command=command_of(row) if not row.until else "",
        may_ask=may_ask(request.user),
        reasons=pending_detail.reasons(row),
        tabs=tabs,
        tab=chosen,
        typical=_typical(row, reading),
        address=request.build_absolute_uri(path_of(request)),
    )


def _tabs_of(row: PendingRow) -> list[Tab]:
    """Return the tabs of a pending item: what is over has no queue ahead, a pod has no pods."""
    left_out = {*(("ahead",) if row.until else ()), *(("pods",) if row.kind == "Pod" else ())}
    return [tab for tab in _DETAIL_TABS if tab.key not in left_out]


def _run_by(request: PageRequest, row: PendingRow, reading: QuerySession) -> list[str]:
    """Return who is behind a pending item; where it names no user, who is behind its pods."""
    window = Window(row.since, max(row.until or reading.now, row.since + _MINUTE))
    place = Filters(cluster=(row.cluster,))
    sees = reading.visibility
    named = usage.run_by(request.user, window, filters=place, visibility=sees, uid=row.uid)
    # Labels of pods may come from a webhook, which leaves the object above them as it was.
    if named or row.kind == "Pod":
        return named
    own = replace(place, namespace=(row.namespace,), workload=(row.workload,))
    return usage.run_by(request.user, window, filters=own, visibility=sees)


def _typical(row: PendingRow, reading: QuerySession) -> tuple[str, str] | None:
    """Return how long pods wait that request the same; None where that says nothing."""
    # A Workload needs all of its pods, which times of single pods tell nothing of.
    if row.kind != "Pod" or not row.resource:
        return None
    found = typical_queue_time(row.tier, row.resource, row.units, reading.now, cluster=row.cluster)
    return pending_detail.typical_words(found, row)


def _pods(row: PendingRow, reading: QuerySession) -> Table:
    """Return the pods of the last days of an item that is pending as a whole."""
    kind, _, name = row.workload.partition("/")
    own = Filters(cluster=(row.cluster,), namespace=(row.namespace,), workload=(f"{kind}/{name}",))
    # Clocks of clusters may be ahead: a pod that was created just now is among them.
    window = Window(reading.now - _RECENT, reading.now + _MINUTE)
    found = usage.pod_page(
        window, filters=own, visibility=reading.visibility, cursor=None, page_size=_MOST_PODS
    )
    table = listings.pods(found.rows, reading, next_query=None, every=lambda: found.rows)
    title = f"Its pods of the last {_RECENT.days} days"
    return replace(table, title=title, empty="It has no pods yet.")
