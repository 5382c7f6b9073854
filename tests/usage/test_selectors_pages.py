"""Pages of rows of usage walk the same rows, whatever their size."""

from datetime import date
from itertools import product

import pytest
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.domain.window import Window, day_window
from apps.usage import selectors
from apps.usage.domain.usage_query import Grouping, TimeStep, UsageQuery, UsageRow
from apps.usage.selectors import CursorRefused
from tests import factories
from tests.factories import Portal, make_portal
from tests.shared_rows import copy_of, shared
from tests.usage.three_days import BERLIN, days, make_three_days, read, utc

pytestmark = pytest.mark.django_db

_three_days = shared(make_three_days)
portal = copy_of("_three_days")


# ---------------------------------------------------------------- pages


def walk(
    window: Window,
    *groups: Grouping,
    page_size: int,
    interval: TimeStep = TimeStep.DAY,
    visibility: Visibility = EVERYTHING,
) -> list[UsageRow]:
    rows: list[UsageRow] = []
    cursor: str | None = None
    while True:
        page = selectors.usage_page(
            UsageQuery(window, interval, groups),
            visibility=visibility,
            cursor=cursor,
            page_size=page_size,
        )
        rows.extend(page.rows)
        if page.next_cursor is None:
            return rows
        assert len(page.rows) == page_size
        cursor = page.next_cursor


PAGED: list[tuple[Grouping, ...]] = [
    (),
    (Grouping.TIER,),
    (Grouping.TEAM, Grouping.CLUSTER),
    (Grouping.WORKLOAD,),
]


def test_pages_of_any_size_walk_the_same_rows(portal: Portal, subtests: pytest.Subtests) -> None:
    window = Window(utc(2026, 3, 29, 5), utc(2026, 3, 30, 5))
    for groups, interval in product(PAGED, TimeStep):
        whole = read(window, *groups, interval=interval)
        for page_size in (1, 2, 7, 500):
            with subtests.test(groups=groups, interval=interval, page_size=page_size):
                assert walk(window, *groups, interval=interval, page_size=page_size) == whole


def test_pages_leap_over_a_long_gap(
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    portal = make_portal()
    for at in (utc(2026, 1, 5), utc(2026, 4, 1)):
        factories.collect([at], portal.node_gpus, portal.facts_of, zone=BERLIN, rolled=False)
    window = Window(utc(2026, 1, 5), utc(2026, 4, 2))
    with django_assert_max_num_queries(20):
        page = selectors.usage_page(
            UsageQuery(window, TimeStep.HOUR, []), visibility=EVERYTHING, cursor=None, page_size=1
        )
    assert page.next_cursor is not None
    assert len(walk(window, interval=TimeStep.HOUR, page_size=1)) == 2


def test_a_walk_goes_on_where_it_was_while_hours_are_added(portal: Portal) -> None:
    window = days(date(2026, 3, 28), 10)
    page = selectors.usage_page(
        UsageQuery(window, TimeStep.HOUR, [Grouping.TIER]),
        visibility=EVERYTHING,
        cursor=None,
        page_size=50,
    )
    portal.collect(day_window(date(2026, 3, 31), BERLIN))
    rows = list(page.rows)
    cursor = page.next_cursor
    while cursor:
        page = selectors.usage_page(
            UsageQuery(window, TimeStep.HOUR, [Grouping.TIER]),
            visibility=EVERYTHING,
            cursor=cursor,
            page_size=50,
        )
        rows.extend(page.rows)
        cursor = page.next_cursor
    assert rows == read(window, Grouping.TIER, interval=TimeStep.HOUR)


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "nonsense",
        "é",
        "W10",
        "e30",
        "WyJwb2RzIiwiMjAyNiIsMV0",
        # Before the first day that a calendar has, in UTC.
        "WyJ1c2FnZS1kYXkiLCIwMDAxLTAxLTAxVDAwOjAwOjAwKzE0OjAwIiwxXQ",
        "W" * 5000,
    ],
)
def test_a_cursor_of_something_else_is_refused(portal: Portal, cursor: str) -> None:
    with pytest.raises(CursorRefused, match="start again"):
        selectors.usage_page(
            UsageQuery(days(date(2026, 3, 28), 1), TimeStep.DAY, []),
            visibility=EVERYTHING,
            cursor=cursor,
            page_size=10,
        )
