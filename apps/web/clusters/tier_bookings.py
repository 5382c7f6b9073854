"""The calendar of a tier: raises with an end by day, beside what is promised and what was used."""

from collections.abc import Sequence
from datetime import date, datetime, timedelta

from msgspec import Struct

from apps.clusters.domain.window import Window, day_start
from apps.quota_requests.domain.bookings import BookedSpan
from apps.quota_requests.permissions import Actor
from apps.quota_requests.selectors import BookingRow, team_bookings, tier_bookings
from apps.usage.domain.usage_query import Filters, TimeStep, UsageQuery
from apps.usage.selectors import usage_rows
from apps.web.components import formats
from apps.web.components.formats import Format, gpus_text, gpus_words
from apps.web.components.page_query import href
from apps.web.components.tables import Column, Table, TableRow
from apps.web.query_session import QuerySession

_BACK, _AHEAD = 7, 28


class BookingDay(Struct, frozen=True):
    """A day: what was allocated of the tier then, and the most that is booked in it.

    `state` is clash, over or empty; `title` tells it in words.
    """

    label: str
    today: bool
    used: str
    booked: str
    state: str
    title: str


class BookingBar(Struct, frozen=True):
    """A booking in the grid, from column `first` up to, without, `last`."""

    row: BookingRow
    label: str
    href: str
    first: int
    last: int
    title: str


class BookingCalendar(Struct, frozen=True):
    """The days, and a bar for each booking."""

    days: Sequence[BookingDay]
    bars: Sequence[BookingBar]


def booking_calendar(
    name: str, actor: Actor, reading: QuerySession
) -> tuple[BookingCalendar, Table]:
    """Return the calendar of a tier over a week back and four ahead, and its table."""
    zone = reading.choice.zone
    today = reading.now.astimezone(zone).date()
    days = [today + timedelta(days=n) for n in range(-_BACK, _AHEAD)]
    # The day after the last one closes it: days with a clock change are not 24 hours long.
    starts = [day_start(day, zone) for day in (*days, days[-1] + timedelta(days=1))]
    window = Window(starts[0], starts[-1])
    found = tier_bookings(name, window, actor=actor, now=reading.now)
    # Up to midnight: the day that runs has no share yet that compares with others.
    used = _used(name, Window(starts[0], starts[_BACK]), reading)
    shown = [
        _day(
            day,
            today,
            used.get(day),
            _most(found.spans, start, end),
            names_month=day == days[0],
        )
        for day, start, end in zip(days, starts, starts[1:], strict=False)
    ]
    bars = [_bar(row, starts, reading) for row in found.rows]
    return BookingCalendar(shown, bars), _table(found.rows, Column("team", "Team"), reading)


def _used(name: str, window: Window, reading: QuerySession) -> dict[date, float]:
    """Return the share of the capacity that was allocated, by day; days without data are none."""
    asked = UsageQuery(window, TimeStep.DAY, (), Filters(tier=(name,)))
    return {
        row.period.date(): row.amounts.allocation_ratio
        for row in usage_rows(asked, visibility=reading.visibility)
        if row.period is not None and row.amounts.allocation_ratio is not None
    }


def _most(spans: Sequence[BookedSpan], start: datetime, end: datetime) -> BookedSpan:
    """Return the span of a day in which most is booked."""
    return max((one for one in spans if one.start < end and one.end > start), key=_booked)


def _booked(span: BookedSpan) -> float:
    return span.booked


def _day(
    day: date, today: date, used: float | None, span: BookedSpan, *, names_month: bool
) -> BookingDay:
    state = "clash" if span.clashes else "over" if span.overcommitted and span.booked else ""
    words = {"clash": "Clash. ", "over": "Overcommitted. "}.get(state, "")
    capacity = "not known" if span.capacity is None else gpus_text(span.capacity)
    limits = "" if span.limits is None else f", limits {gpus_text(span.limits)}"
    return BookingDay(
        # The month is told where it or the calendar begins: a day has room for a number alone.
        label=f"{day.day} {day:%b}" if day.day == 1 or names_month else f"{day.day}",
        today=day == today,
        used="" if used is None else formats.percent(used, digits=0).removesuffix(" %"),
        booked=gpus_text(span.booked) if span.booked else "",
        state=state,
        title=(
            f"{day.day} {day:%b}: {words}Booked {gpus_words(span.booked)}, entitlements "
            f"{gpus_text(span.entitled)}{limits}, capacity {capacity}."
        ),
    )


def _bar(row: BookingRow, starts: Sequence[datetime], reading: QuerySession) -> BookingBar:
    zone = reading.choice.zone
    # Columns count from 1; a booking from before the first day starts with it.
    first = max(1, sum(start <= row.start for start in starts))
    # However short it is, a booking fills a column, or it would not be seen.
    last = max(first + 1, 1 + sum(start < row.end for start in starts[:-1]))
    who = row.team or "another team"
    span = formats.span_text(row.start, row.end, zone)
    return BookingBar(
        row=row,
        label=f"{who} +{gpus_text(row.gpus)}",
        # Requests of other teams come without an id: they are no page that the reader may open.
        href=href("request", pk=str(row.id)) or "" if row.id else "",
        first=first,
        last=last,
        title=f"{who}: {gpus_words(row.gpus)}, {span}, {row.state}",
    )


def team_booking_table(team: str, actor: Actor, reading: QuerySession) -> Table:
    """Return the bookings of a team that run now or begin within four weeks."""
    window = Window(reading.now, reading.now + timedelta(days=_AHEAD))
    rows = team_bookings([team], window, actor=actor)
    return _table(rows, Column("tiers", "Tier"), reading, title="Upcoming bookings")


def _table(
    rows: Sequence[BookingRow], lead: Column, reading: QuerySession, *, title: str = "Bookings"
) -> Table:
    """Return bookings as a table; `lead` leads to the request, whose page few may open."""
    return Table(
        id="bookings",
        title=title,
        columns=[
            # On a phone the first columns are seen at once.
            lead,
            Column("gpus", "Raise", Format.NUMBER, "GPUs"),
            Column("start", "Starts", Format.TIME),
            Column("end", "Ends", Format.TIME),
            Column("state", "State"),
            Column("key", "Quota key", wraps=True),
        ],
        rows=[
            TableRow(
                {
                    "team": row.team or "another team",
                    "tiers": ", ".join(row.tiers),
                    "key": row.key,
                    "gpus": row.gpus,
                    "start": row.start,
                    "end": row.end,
                    "state": row.state,
                },
                links={lead.key: href("request", pk=str(row.id)) or ""} if row.id else {},
            )
            for row in rows
        ],
        zone=reading.choice.zone,
        empty="No bookings in these weeks. A quota request with a start and an end is a booking.",
        ordered=True,
    )
