"""The pages of pending workloads: the list with its sums and history, and one pending workload."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

from django.http import Http404, HttpResponseBase

from apps.clusters.domain.window import Window
from apps.pending.selectors import (
    Context,
    PendingGrouping,
    PendingPage,
    PendingRow,
    blocking_teams,
    episodes_of,
    partial_gangs,
    pending_now,
    pending_sums,
    queues_unwatched,
    refresh_rows,
    typical_wait,
)
from apps.usage import selectors as usage
from apps.usage.domain.usage_query import Filters, RowPage
from apps.web.components import listings
from apps.web.components.page_query import next_href, option_links, path_of, with_query, without
from apps.web.components.tables import Table
from apps.web.pages import page, respond
from apps.web.pending import pending_detail, suggestions
from apps.web.pending import pending_table as sums
from apps.web.pending.history import gangs_table, history_of, queues_table
from apps.web.pending.pending_table import (
    KINDS,
    TAKES,
    PendingFreshness,
    PendingPageQuery,
    asked_of,
    badge,
    of_asker,
    pending_table,
)
from apps.web.query_session import PageRequest, QuerySession, every_row, on_cluster, query_session
from apps.web.quota_requests.request_input import may_ask

PER_PAGE = 50
PER_FILE_READ = 1000
_MOST_PODS = 20
_RECENT = timedelta(days=7)
_MINUTE = timedelta(minutes=1)
_R = TypeVar("_R")


@page
def pending_list(request: PageRequest) -> HttpResponseBase:
    reading = query_session(request, takes=TAKES)
    asked = asked_of(request.GET)
    filters = asked.filters(reading)
    context = Context.over(reading.window, now=reading.now)
    everywhere = pending_sums(
        reading.now,
        by=PendingGrouping.CAUSE,
        visibility=reading.visibility,
        filters=asked.filters(reading, every=True),
        context=context,
    )
    shown = [one for one in everywhere if not asked.causes or one.name in asked.causes]
    fresh = refresh_rows(context.freshness(reading.now), visibility=reading.visibility)
    looked = sums.freshness_of(fresh, reading)
    gangs = partial_gangs(
        reading.now, visibility=reading.visibility, filters=filters, context=context
    )
    past = history_of(reading, filters, context)
    queues = queues_unwatched(reading.window, visibility=reading.visibility, filters=filters)
    table = _table(request, reading, asked, looked, context)
    return respond(
        request,
        reading,
        "pending",
        tables=[
            table,
            *_more(gangs_table, gangs, reading),
            *past.tables,
            *_more(queues_table, queues, reading),
        ],
        charts=past.charts,
        asked=asked,
        looked=looked,
        total=sums.total_of(shown, reading.now),
        causes=sums.cause_links(everywhere, path_of(request), reading, asked),
        orders=option_links(
            path_of(request),
            [*reading.query, *without(asked.query, "order")],
            "order",
            {"longest wait": "", "most GPUs": "most"},
            [value for key, value in asked.query if key == "order"],
            anchor="#waiting",
        ),
        kinds=KINDS,
        kind_chips=_kind_chips(request, reading, asked),
        hidden=[*reading.query, *without(asked.query, "kind")],
        explain_query=[*reading.query, *asked.query],
        classes=past.classes,
    )


def _more(
    table: Callable[[Sequence[_R], QuerySession], Table], rows: Sequence[_R], reading: QuerySession
) -> list[Table]:
    """Return the table of some rows; none without any."""
    return [table(rows, reading)] if rows else []


def _table(
    request: PageRequest,
    reading: QuerySession,
    asked: PendingPageQuery,
    looked: PendingFreshness,
    context: Context,
) -> Table:
    found = _page(reading, asked, request.GET.get("cursor") or None, context)
    return pending_table(
        found.rows,
        reading,
        empty=_nothing(reading, asked, looked),
        next_href=next_href(
            path_of(request), (*reading.query, *asked.query), found.next_cursor, "#waiting"
        ),
        every=lambda: every_row(lambda at: _page(reading, asked, at, context, PER_FILE_READ)),
    )


def _page(
    reading: QuerySession,
    asked: PendingPageQuery,
    cursor: str | None,
    context: Context,
    size: int = PER_PAGE,
) -> RowPage[PendingRow]:
    return pending_now(
        reading.now,
        filters=asked.filters(reading),
        visibility=reading.visibility,
        page=PendingPage(cursor, size, asked.order),
        context=context,
    )


def _nothing(reading: QuerySession, asked: PendingPageQuery, looked: PendingFreshness) -> str:
    """Return the text of an empty list; never “nothing pending” where that is not known."""
    own = reading.filters
    narrowed = asked.narrows or own.tier or own.team or own.namespace or own.cluster
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
    context = Context.at(reading.now)
    episodes = episodes_of(
        cluster, uid, at=reading.now, visibility=reading.visibility, context=context
    )
    if not episodes:
        raise Http404("No pending workload has this name, or you may not see it.")
    newest = episodes[0]
    row = newest.row
    front = []
    if not row.until:
        front = blocking_teams(row, reading.now, visibility=reading.visibility, context=context)
    tables = [pending_detail.timeline(newest, reading)]
    if front:
        tables += [
            pending_detail.teams_in_front(front, reading),
            pending_detail.pods_in_front(front, reading),
        ]
    if row.kind != "Pod":
        tables.append(_pods(row, reading))
    if len(episodes) > 1:
        tables.append(pending_detail.earlier(episodes[1:], reading))
    return respond(
        request,
        reading,
        "pending_detail",
        tables=tables,
        row=row,
        headline=pending_detail.headline(row, reading),
        badge=badge(row.cause, row.detail),
        of_asker=of_asker(row.cause),
        links=pending_detail.links_of(row, reading),
        helps=suggestions.help_of(row) if not row.until else (),
        may_ask=may_ask(request.user),
        reasons=pending_detail.reasons(row),
        front=front,
        typical=_typical(row, reading),
        address=request.build_absolute_uri(path_of(request)),
    )


def _typical(row: PendingRow, reading: QuerySession) -> str:
    """Return how long pods wait that ask for the same; empty where that says nothing."""
    if row.kind != "Pod" or not row.resource:
        return ""
    found = typical_wait(row.tier, row.resource, row.units, reading.now, cluster=row.cluster)
    return pending_detail.typical_words(found, row)


def _pods(row: PendingRow, reading: QuerySession) -> Table:
    """Return the pods of the last days of an item that is pending as a whole."""
    kind, _, name = row.workload.partition("/")
    own = Filters(cluster=(row.cluster,), namespace=(row.namespace,), workload=(f"{kind}/{name}",))
    window = Window(reading.now - _RECENT, reading.now + _MINUTE)
    found = usage.pod_page(
        window, filters=own, visibility=reading.visibility, cursor=None, page_size=_MOST_PODS
    )
    table = listings.pods(found.rows, reading, next_query=None, every=lambda: found.rows)
    title = f"Its pods of the last {_RECENT.days} days"
    return replace(table, title=title, empty="It has no pods yet.")
