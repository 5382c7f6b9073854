"""Three days of usage and what is read of them."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.domain.window import Window, day_start
from apps.usage import selectors
from apps.usage.domain.usage_query import Filters, Grouping, TimeStep, UsageQuery, UsageRow
from tests.factories import Portal, make_portal

BERLIN = ZoneInfo("Europe/Berlin")


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]


def days(first: date, count: int, zone: ZoneInfo = BERLIN) -> Window:
    return Window(day_start(first, zone), day_start(first + timedelta(days=count), zone))


def read(
    window: Window,
    *groups: Grouping,
    interval: TimeStep = TimeStep.DAY,
    filters: Filters | None = None,
    visibility: Visibility = EVERYTHING,
) -> list[UsageRow]:
    return selectors.usage_rows(
        UsageQuery(window, interval, groups, filters or Filters()), visibility=visibility
    )


def make_three_days() -> Portal:
    """Three days around the spring change of clocks; the last one is not rolled."""
    portal = make_portal()
    portal.collect(days(date(2026, 3, 28), 2))
    portal.collect(days(date(2026, 3, 30), 1), rolled=False)
    return portal
