"""The pages of GPUs: current metrics, who holds each one, and its health."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from django.http import Http404, HttpResponseBase

from apps.clusters.domain.devices.state import Health
from apps.clusters.domain.window import Window
from apps.usage import selectors as usage
from apps.usage.domain.usage_query import Filters, PodRow, RowPage
from apps.usage.selectors import (
    DeviceFilters,
    DeviceRow,
    device_healths,
    device_page,
    last_readings,
    node_rows,
)
from apps.web.clusters import device_tables
from apps.web.clusters.device_tables import unattributed_nodes
from apps.web.components import listings, page_query
from apps.web.components.page_query import (
    PER_PAGE,
    Query,
    next_href,
    option_links,
    path_of,
    with_query,
    without,
)
from apps.web.components.tables import Table
from apps.web.pages import page, respond
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    every_row,
    freshness_of,
    on_cluster,
    quality_of,
    query_session,
)

PER_FILE_READ = 2000
_TAKES = ("gpu_model",)
_HEALTHS = tuple(health.value for health in Health)
_HEALTHS_SHOWN = (Health.BROKEN, Health.WATCH, Health.OK, Health.UNSEEN)
_LONGEST_NAME = 253
_MOST_NAMES = 100
_DAY = timedelta(hours=24)
_ON_NODE = (
    "Who is on this device now stands above; which of the node's devices a pod had is not kept."
)


@dataclass(frozen=True, slots=True)
class _DeviceQuery:
    """What the address asks of the list beside window and filters; `query` holds it for links."""

    filters: DeviceFilters
    query: Query
    problem: str

    @property
    def narrows(self) -> bool:
        return bool(self.query or self.filters.cluster or self.filters.gpu_model)


@page
def device_list(request: PageRequest) -> HttpResponseBase:
    reading = query_session(request, takes=_TAKES)
    asked = _asked(request, reading)
    found = _page(reading, asked.filters, request.GET.get("cursor") or None)
    nodes = node_rows(
        ((row.cluster, row.node) for row in found.rows if row.node),
        visibility=reading.visibility,
        now=reading.now,
    )
    unattributed = unattributed_nodes(reading)
    tables = [
        device_tables.devices_table(
            found.rows,
            reading,
            next_href=next_href(
                path_of(request), (*reading.query, *asked.query), found.next_cursor, "#devices"
            ),
            every=lambda: every_row(lambda at: _page(reading, asked.filters, at, PER_FILE_READ)),
            narrowed=asked.narrows,
        ),
        device_tables.nodes_table(nodes, found.rows, reading),
        *([unattributed] if unattributed else []),
    ]
    looks = last_readings(visibility=reading.visibility, clusters=reading.filters.cluster)
    return respond(
        request,
        reading,
        "gpus",
        tables=tables,
        shown_columns=device_tables.SHOWN,
        stale=device_tables.stale(looks, reading.now),
        looked=[(name, at) for name, at in sorted(looks.items()) if at],
        health_links=_health_links(request, reading, asked),
        asked=asked.filters,
        node_chips=_node_chips(request, reading, asked),
        hidden=without((*reading.query, *asked.query), "uuid"),
        problem=asked.problem,
        quality=quality_of(reading, freshness_of(reading), None),
    )


@page
def device(request: PageRequest, cluster: str, uuid: str) -> HttpResponseBase:
    reading = on_cluster(query_session(request), cluster)
    wanted = DeviceFilters(cluster=(cluster,), uuid=uuid)
    rows = _page(reading, wanted, None).rows
    if not rows:
        raise Http404("There is no such device, or you may not see it.")
    first = rows[0]
    table = device_tables.devices_table(rows, reading)
    pods = _pods_of_node(first, reading)
    looks = last_readings(visibility=reading.visibility, clusters=(cluster,))
    return respond(
        request,
        reading,
        "gpu",
        tables=[table, _pods_table(pods, reading), _node_table(rows, reading)],
        shown_columns=device_tables.SHOWN,
        device=first,
        lines=table.rows,
        line=table.rows[0],
        title=f"GPU {first.state.index}" if first.state.index else first.uuid,
        stale=device_tables.stale(looks, reading.now),
    )


def _node_table(rows: Sequence[DeviceRow], reading: QuerySession) -> Table:
    """Return the one line of a device's node."""
    place = (rows[0].cluster, rows[0].node)
    nodes = node_rows([place], visibility=reading.visibility, now=reading.now)
    return replace(device_tables.nodes_table(nodes, rows, reading), title="Its node")


def _pods_table(pods: RowPage[PodRow], reading: QuerySession) -> Table:
    table = listings.pods(pods.rows, reading, next_query=None, every=lambda: pods.rows)
    cut = "" if pods.next_cursor is None else f" These are the {PER_PAGE} newest."
    return replace(
        table,
        title="Pods, last 24h",
        empty="No pod that you may see was on its node in the last 24 hours.",
        note=f"{_ON_NODE}{cut} {table.note}".strip(),
    )


def _pods_of_node(row: DeviceRow, reading: QuerySession) -> RowPage[PodRow]:
    """Return the pods that were on the device's node in the last day."""
    if not row.node:
        return RowPage((), None)
    return usage.pod_page(
        Window(reading.now - _DAY, reading.now),
        filters=Filters(cluster=(row.cluster,), node=(row.node,)),
        visibility=reading.visibility,
        cursor=None,
        page_size=PER_PAGE,
    )


def _asked(request: PageRequest, reading: QuerySession) -> _DeviceQuery:
    healths, problem = page_query.names_from(request.GET, "health", _HEALTHS)
    nodes = tuple(
        dict.fromkeys(
            name[:_LONGEST_NAME]
            for name in request.GET.getlist("node")
            if name and "\0" not in name
        )
    )[:_MOST_NAMES]
    text = request.GET.get("uuid", "").replace("\0", "").strip()[:_LONGEST_NAME]
    return _DeviceQuery(
        filters=DeviceFilters(
            cluster=reading.filters.cluster,
            gpu_model=reading.filters.gpu_model,
            node=nodes,
            health=healths,
            text=text,
        ),
        query=(
            *(("node", name) for name in nodes),
            *(("health", name) for name in healths),
            *((("uuid", text),) if text else ()),
        ),
        problem=problem,
    )


def _page(
    reading: QuerySession, filters: DeviceFilters, cursor: str | None, size: int = PER_PAGE
) -> RowPage[DeviceRow]:
    return device_page(
        filters,
        visibility=reading.visibility,
        now=reading.now,
        cursor=cursor,
        page_size=size,
    )


def _health_links(
    request: PageRequest, reading: QuerySession, asked: _DeviceQuery
) -> list[tuple[str, str, bool, int]]:
    """Return (label, address, chosen, devices) of each health to filter by, all of them first."""
    found = device_healths(asked.filters, visibility=reading.visibility, now=reading.now)
    counts = {health.value: found[health] for health in _HEALTHS_SHOWN}
    kept = [*reading.query, *without(asked.query, "health")]
    options = {"all": "", **{health: health for health in counts}}
    links = option_links(path_of(request), kept, "health", options, asked.filters.health)
    return [(*link, counts.get(link[0], sum(found.values()))) for link in links]


def _node_chips(
    request: PageRequest, reading: QuerySession, asked: _DeviceQuery
) -> Sequence[tuple[str, str, str]]:
    """Return (label, value, address without it) of what narrows the list by node and UUID."""
    query = (*reading.query, *asked.query)
    labels = {"node": "Node", "uuid": "UUID"}
    return [
        (labels[key], value, with_query(path_of(request), [p for p in query if p != (key, value)]))
        for key, value in asked.query
        if key in labels
    ]
