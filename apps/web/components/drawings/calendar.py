"""A calendar of hours: one line for each day, one cell for each hour.

    calendar(
        "hours", "Allocation by hour", {hour_in_utc: 0.96, …}, window=reading.window, zone=zone,
        missing=freshness.missing, partial=freshness.partial, day_href=lambda day: …,
    )

Ratios are fractions by the start of the hour in UTC. An hour without a value is blank where it has
yet to come or nothing was there, hatched where it is `missing`, crossed where it `failed`; a
`partial` one has a mark.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import ClassVar
from zoneinfo import ZoneInfo

from msgspec import Struct

from apps.clusters.domain.window import Window
from apps.web.components.drawings.base import Drawing, LegendKey, percent_text, table_of
from apps.web.components.drawings.heat_map import heat_css
from apps.web.components.formats import Format, tick_text
from apps.web.components.tables import Column, Table, TableRow

_OPEN_DAYS = 31
_HOUR = timedelta(hours=1)
_WITHOUT_VALUE = {"missing": "heat-no-data", "failed": "heat-failed"}
Slot = tuple[int, int]
"""An hour of the clock, and 1 for the second of that name at the end of summer time."""


class HourCell(Struct, frozen=True):
    """An hour: `css` has its colour and marks, `title` its clock and value."""

    css: str
    title: str


class CalendarDay(Struct, frozen=True):
    """A day with a cell for each hour of the calendar; `text` sums it up."""

    label: str
    href: str
    cells: Sequence[HourCell]
    text: str


class Calendar(Drawing, frozen=True, kw_only=True):
    """The newest days first; `more` are older ones, which unfold. `hours` head every sixth."""

    template: ClassVar[str] = "components/drawings/_calendar.html"

    days: Sequence[CalendarDay]
    more: Sequence[CalendarDay]
    hours: Sequence[str]


def calendar(
    drawing_id: str,
    title: str,
    ratios: Mapping[datetime, float | None],
    *,
    window: Window,
    zone: ZoneInfo,
    missing: Collection[datetime] = (),
    failed: Collection[datetime] = (),
    partial: Collection[datetime] = (),
    day_href: Callable[[date], str] | None = None,
    hue: str = "of-allocated",
    empty: str = "",
) -> Calendar:
    """Return the calendar of the window's hours, days local to `zone`."""
    hours = _hours_of(window)
    # Later ones win: an hour that failed is not merely missing.
    marked = {
        **dict.fromkeys(partial, "partial"),
        **dict.fromkeys(missing, "missing"),
        **dict.fromkeys(failed, "failed"),
    }
    by_day: dict[date, dict[Slot, datetime]] = {}
    for hour in hours:
        local = hour.astimezone(zone)
        # With its fold: at the end of summer time two hours have one name.
        by_day.setdefault(local.date(), {})[local.hour, local.fold] = hour
    # All days have the same columns; only a window with that night gets the second 02:00.
    slots = sorted({(n, 0) for n in range(24)} | {s for day in by_day.values() for s in day})
    days = [
        CalendarDay(
            label=f"{day:%a} {tick_text(day)}",
            href=day_href(day) if day_href else "",
            cells=[_cell(slot, own.get(slot), ratios, marked, hue) for slot in slots],
            text=_text([ratios.get(hour) for hour in own.values()], map(marked.get, own.values())),
        )
        for day, own in sorted(by_day.items(), reverse=True)
    ]
    states = {hour: _state(hour, ratios, marked) for hour in hours}
    return Calendar(
        id=drawing_id,
        title=title,
        days=days[:_OPEN_DAYS],
        more=days[_OPEN_DAYS:],
        hours=[f"{n:02}" if n % 6 == 0 and not fold else "" for n, fold in slots],
        legend=_legend(set(states.values()), hue),
        table=_table(drawing_id, title, states, ratios, zone),
        empty="" if any(states.values()) else empty or "No data in this window.",
    )


def _table(
    drawing_id: str,
    title: str,
    states: Mapping[datetime, str],
    ratios: Mapping[datetime, float | None],
    zone: ZoneInfo,
) -> Table:
    columns = [
        Column("hour", "Hour", Format.HOUR),
        Column("ratio", "Ratio", Format.RATIO),
        Column("state", "State"),
    ]
    rows = [
        TableRow({"hour": hour, "ratio": ratios.get(hour), "state": state})
        for hour, state in states.items()
        if state
    ]
    return table_of(drawing_id, title, columns, rows, zone=zone, by_time=True)


def _hours_of(window: Window) -> list[datetime]:
    # Rounded up: a window may end within an hour.
    count = -(-(window.end - window.start) // _HOUR)
    return [window.start.astimezone(UTC) + n * _HOUR for n in range(count)]


def _state(
    hour: datetime, ratios: Mapping[datetime, float | None], marked: Mapping[datetime, str]
) -> str:
    state = marked.get(hour, "complete")
    if state in _WITHOUT_VALUE:
        return state
    return "" if ratios.get(hour) is None else state


def _cell(
    slot: Slot,
    hour: datetime | None,
    ratios: Mapping[datetime, float | None],
    marked: Mapping[datetime, str],
    hue: str,
) -> HourCell:
    clock = f"{slot[0]:02}:00"
    state = _state(hour, ratios, marked) if hour else ""
    if hour is None or not state:
        return HourCell("heat-blank", "")
    if state in _WITHOUT_VALUE:
        return HourCell(_WITHOUT_VALUE[state], f"{clock} {state}")
    ratio = ratios[hour]
    mark = " heat-partial" if state == "partial" else ""
    words = " partial" if mark else ""
    return HourCell(
        f"{heat_css(ratio, hue=hue, over='')}{mark}", f"{clock} {percent_text(ratio)}{words}"
    )


def _text(ratios: Sequence[float | None], states: Iterable[str | None]) -> str:
    known = [ratio for ratio in ratios if ratio is not None]
    words = [f"average {percent_text(sum(known) / len(known))}"] if known else ["no data"]
    counts = Counter(states)
    return ", ".join([*words, *(f"{counts[s]} h {s}" for s in _WITHOUT_VALUE if counts[s])])


def _legend(states: Collection[str], hue: str) -> list[LegendKey]:
    keys = [
        (True, LegendKey("0 %", f"{hue} heat-0")),
        (True, LegendKey("50 %", f"{hue} heat-5")),
        (True, LegendKey("100 %", f"{hue} heat-10")),
        ("partial" in states, LegendKey("Partial hour", f"{hue} heat-5 heat-partial")),
        ("missing" in states, LegendKey("Missing hour", "heat-no-data")),
        ("failed" in states, LegendKey("Failed hour", "heat-failed")),
    ]
    return [key for there, key in keys if there]
