"""The page of GPUs: the map of the fleet, its list and its nodes."""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import TypeVar

from django.http import HttpResponseBase, QueryDict
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.state import Health
from apps.usage.domain.amounts import NANO
from apps.usage.selectors import (
    DeviceFilters,
    FleetDevice,
    FleetState,
    fleet_state,
    last_readings,
)
from apps.web.clusters import device_tables
from apps.web.clusters.device_tables import unattributed_nodes, use_state
from apps.web.clusters.fleet_map import (
    MapChoice,
    MapColour,
    MapGrouping,
    MapLinks,
    fleet_map,
    has_racks,
)
from apps.web.components import page_query
from apps.web.components.drawings.fleet import STATES, Fleet
from apps.web.components.figure_row import FigureRow, KeyFigure, Tone, figure_row
from apps.web.components.formats import gpus_text
from apps.web.components.page_query import (
    FEW_ROWS,
    Query,
    option_links,
    pages_from,
    path_of,
    with_query,
)
from apps.web.components.tables import Table, paged
from apps.web.components.tabs import TAB_KEY, Tab, tab_bar
from apps.web.components.window_picker import PLACE_KEYS, remaining_query
from apps.web.pages import page, respond
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    freshness_of,
    quality_of,
    query_session,
)

_TAKES = ("tier", "team", "gpu_model")
_TABS = (Tab("map", "Map"), Tab("table", "Table"), Tab("nodes", "Nodes"))
_HEALTHS = tuple(health.value for health in Health)
_HEALTHS_SHOWN = (Health.BROKEN, Health.WATCH, Health.OK, Health.UNSEEN)
_SEVERITY = ("broken", "unattributed", "watch", "unseen", *STATES)
"""Health and states of devices in the order of the list; the first that fits counts."""
_CHIPS = {"node": "Node", "uuid": "UUID", "health": "Health", "state": "State"}
_NARROWING = ("cluster", "tier", "team", "gpu_model")
_LONGEST_NAME = 253
_MOST_NAMES = 100


class _DeviceQuery(Struct, frozen=True):
    """What the address asks of the page beside window and filters; `query` holds it for links."""

    filters: DeviceFilters
    healths: tuple[str, ...]
    states: tuple[str, ...]
    choice: MapChoice
    query: Query
    problem: str

    def shown(self, devices: Sequence[FleetDevice]) -> list[FleetDevice]:
        """Return the devices with the health and state asked for."""
        return [
            device
            for device in devices
            if (not self.healths or device.row.health.value in self.healths)
            and (not self.states or use_state(device) in self.states)
        ]


@page
def device_list(request: PageRequest) -> HttpResponseBase:
    reading = query_session(request, takes=_TAKES)
    asked = _query_of(request, reading)
    fleet = fleet_state(
        asked.filters,
        tiers=reading.filters.tier,
        teams=reading.filters.team,
        visibility=reading.visibility,
        now=reading.now,
    )
    # Health and state narrow map and lists alone: figures and counts are of all devices.
    shown = asked.shown(fleet.devices)
    narrowed = bool(asked.query or any(getattr(reading.filters, key) for key in _NARROWING))
    empty = device_tables.no_devices(reading, narrowed=narrowed)
    unattributed = unattributed_nodes(reading)
    looks = last_readings(visibility=reading.visibility, clusters=reading.filters.cluster)
    tabs = tab_bar(request, _TABS, name="GPUs")
    # Drawing thousands of cells for a hidden tab would cost most of the page.
    drawn = [_map(request, fleet, shown, asked, reading)] if tabs.chosen == "map" else []
    return respond(
        request,
        reading,
        "gpus",
        tables=[
            replace(_devices_table(request, shown, reading), empty=empty),
            device_tables.nodes_table(fleet, shown, reading),
            *([unattributed] if unattributed else []),
        ],
        drawings=[replace(one, empty=one.empty and empty) for one in drawn],
        figures=_figures(request, fleet.devices, unattributed, reading),
        tabs=tabs,
        stale=device_tables.stale(looks, reading.now),
        health_links=_health_links(request, asked, fleet.devices),
        groupings=_map_links(request, "group", _groupings(fleet), asked.choice.grouping),
        colours=_map_links(request, "colour", list(MapColour), asked.choice.colour),
        asked=asked.filters,
        chips=_chips(request, asked),
        hidden=_other_params(request, "uuid"),
        problem=asked.problem,
        quality=quality_of(reading, freshness_of(reading), None),
    )


def _devices_table(
    request: PageRequest, devices: Sequence[FleetDevice], reading: QuerySession
) -> Table:
    """Return one page of the list, what is broken first; its file has all."""
    ordered = sorted(devices, key=_severity)
    pages = pages_from(request.GET, count=len(ordered), usual=FEW_ROWS)
    table = replace(
        device_tables.devices_table(ordered[pages.part], reading),
        every=lambda: (device_tables.device_line(device, reading) for device in ordered),
    )
    return paged(table, path_of(request), _other_params(request), pages)


def _severity(device: FleetDevice) -> int:
    return min(
        _SEVERITY.index(name)
        for name in (device.row.health.value, use_state(device))
        if name in _SEVERITY
    )


# ---------------------------------------------------------------- map


def _map(
    request: PageRequest,
    fleet: FleetState,
    devices: Sequence[FleetDevice],
    asked: _DeviceQuery,
    reading: QuerySession,
) -> Fleet:
    path, opened = path_of(request), [("open", label) for label in asked.choice.opened]

    def open_href(label: str) -> str:
        return with_query(path, [*_other_params(request, "open"), *opened, ("open", label)])

    drawing = fleet_map(
        fleet,
        devices,
        asked.choice,
        reading,
        MapLinks(open_href, lambda state: _list_href(request, "state", state)),
    )
    # The list and the nodes say the same, in tabs of their own.
    return replace(drawing, table=None)


def _groupings(fleet: FleetState) -> list[MapGrouping]:
    return [one for one in MapGrouping if one is not MapGrouping.RACK or has_racks(fleet)]


def _map_links(
    request: PageRequest, key: str, options: Sequence[StrEnum], chosen: StrEnum
) -> list[tuple[str, str, bool]]:
    """Return (label, address, chosen) of what the map can be grouped or coloured by."""
    # The usual choice is not written to the address, so that both mean the same page.
    usual = options[0]
    return option_links(
        path_of(request),
        _other_params(request, key, "open"),
        key,
        {option.value: "" if option is usual else option.value for option in options},
        () if chosen is usual else (chosen.value,),
    )


def _list_href(request: PageRequest, key: str, value: str) -> str:
    """Return the address of the list of the GPUs with one health or state."""
    return with_query(
        path_of(request),
        [
            *_other_params(request, TAB_KEY, "health", "state", "open"),
            (TAB_KEY, "table"),
            (key, value),
        ],
    )


# ---------------------------------------------------------------- figures


def _figures(
    request: PageRequest,
    devices: Sequence[FleetDevice],
    unattributed: Table | None,
    reading: QuerySession,
) -> FigureRow:
    """Return how many GPUs there are, and what is wrong with them now.

    MIG devices count with their share of a GPU, so that the figures can be compared.
    """
    gpus = {device.gpu for device in devices}
    mig = sum(1 for device in devices if device.row.gpu_instance)
    amounts: Counter[str] = Counter()
    for device in devices:
        amounts[use_state(device)] += device.share  # type: ignore[assignment]
    watched = [device for device in devices if device.row.health is Health.WATCH]
    allocated = sum(device.share for device in devices if device.holders)
    found = [
        KeyFigure(
            "GPUs",
            f"{len(gpus):,}",
            f"on {len({device.node for device in devices}):,} nodes",
            basis="now",
            note=f"{mig:,} MIG devices" if mig else "",
        ),
        KeyFigure(
            "Unavailable",
            gpus_text(amounts["unavailable"]),
            _unit(amounts["unavailable"]),
            basis="now",
            href=_list_href(request, "health", Health.BROKEN.value),
            note=_watch_text(watched),
            tone=Tone.DANGER if amounts["unavailable"] else Tone.NONE,
        ),
        KeyFigure(
            "Idle",
            gpus_text(amounts["idle"]),
            f"of {gpus_text(allocated)} allocated GPUs",
            basis="now",
            href=_list_href(request, "state", "idle"),
        ),
    ]
    # Activity without a pod belongs to no team, so only who sees all sees it.
    if reading.visibility.everything:
        found.append(_unattributed(request, amounts["unattributed"], unattributed))
    return figure_row(*found)


def _watch_text(watched: Sequence[FleetDevice]) -> str:
    """Return how many GPUs are to be watched, and the rows that the list has of them."""
    gpus = len({device.gpu for device in watched})
    if not gpus:
        return ""
    # The list and the map have a row for each MIG device, so their count is another one.
    rows = f", {len(watched):,} devices" if len(watched) != gpus else ""
    return f"{gpus:,} {_unit(gpus)} to watch{rows}"


def _unit(gpus: float) -> str:
    return "GPU" if gpus == 1 else "GPUs"


def _unattributed(request: PageRequest, now: float, table: Table | None) -> KeyFigure:
    hours = (
        sum(int(str(row.values["unattributed_gpu_hours"])) for row in table.rows) if table else 0
    )
    return KeyFigure(
        "Unattributed activity",
        gpus_text(now),
        _unit(now),
        basis="now",
        href=_list_href(request, "state", "unattributed"),
        note=f"{gpus_text(hours / NANO)} GPU-h in this range" if hours else "",
        tone=Tone.WARNING if now else Tone.NONE,
    )


# ---------------------------------------------------------------- address


def _query_of(request: PageRequest, reading: QuerySession) -> _DeviceQuery:
    given = request.GET
    healths, problem = page_query.names_from(given, "health", _HEALTHS)
    states, unknown = page_query.names_from(given, "state", tuple(STATES))
    nodes = _names(given, "node")
    # PostgreSQL refuses NUL in text.
    text = given.get("uuid", "").replace("\0", "").strip()[:_LONGEST_NAME]
    return _DeviceQuery(
        filters=DeviceFilters(
            cluster=reading.filters.cluster,
            gpu_model=reading.filters.gpu_model,
            node=nodes,
            text=text,
        ),
        healths=healths,
        states=states,
        choice=MapChoice(
            _chosen(given, "group", MapGrouping.TIER),
            _chosen(given, "colour", MapColour.STATE),
            _names(given, "open"),
        ),
        query=(
            *(("node", name) for name in nodes),
            *((("uuid", text),) if text else ()),
            *(("health", name) for name in healths),
            *(("state", name) for name in states),
        ),
        problem=problem or unknown,
    )


def _names(given: QueryDict, key: str) -> tuple[str, ...]:
    names = (name[:_LONGEST_NAME] for name in given.getlist(key) if name and "\0" not in name)
    # An address may hold any number of names: a query with all of them would not end.
    return tuple(dict.fromkeys(names))[:_MOST_NAMES]


_Option = TypeVar("_Option", bound=StrEnum)


def _chosen(given: QueryDict, key: str, usual: _Option) -> _Option:
    """Return the option that the address names; the usual one where it names none."""
    asked = given.get(key, "")
    return next((option for option in type(usual) if option.value == asked), usual)


def _other_params(request: PageRequest, *drop: str) -> list[tuple[str, str]]:
    """Return the pairs of the address for links that stay on the page."""
    return remaining_query(request, drop=(*PLACE_KEYS, *drop))


def _health_links(
    request: PageRequest, asked: _DeviceQuery, devices: Sequence[FleetDevice]
) -> list[tuple[str, str, bool, int]]:
    """Return (label, address, chosen, devices) of each health to filter by, all of them first."""
    found = Counter(device.row.health.value for device in devices)
    options = {"all": "", **{health.value: health.value for health in _HEALTHS_SHOWN}}
    links = option_links(
        path_of(request), _other_params(request, "health"), "health", options, asked.healths
    )
    return [(*link, len(devices) if link[0] == "all" else found[link[0]]) for link in links]


def _chips(request: PageRequest, asked: _DeviceQuery) -> Sequence[tuple[str, str, str]]:
    """Return (label, value, address without it) of what narrows the devices."""
    query = _other_params(request)
    return [
        (
            _CHIPS[key],
            STATES[value].label if key == "state" else value,
            with_query(path_of(request), [pair for pair in query if pair != (key, value)]),
        )
        for key, value in asked.query
    ]
