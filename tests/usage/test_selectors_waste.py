"""What was held and not used, and the hours that averages divide by."""

from datetime import UTC, date, datetime, timedelta

import pytest
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import EVERYTHING, Visibility, visibility_of
from apps.clusters.domain.window import Window
from apps.usage import selectors
from apps.usage.domain.usage_query import Filters, Grouping, UsageQuery, whole_days
from apps.usage.selectors import WasteRow
from tests import factories
from tests.factories import Portal, make_portal
from tests.shared_rows import copy_of, shared

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
LAST = date(2026, 3, 10)
SINCE = datetime(2026, 3, 1, tzinfo=UTC)


def fill() -> Portal:
    """Three local days of facts, of which the last has no sums of workloads yet."""
    made = make_portal(since=SINCE)
    made.collect(whole_days(LAST - timedelta(days=1), 2, made.zone))
    made.collect(whole_days(LAST, 1, made.zone), rolled=False)
    return made


_portal = shared(fill)
portal = copy_of("_portal")


def window_of(portal: Portal, *, cut: timedelta = timedelta(0)) -> Window:
    whole = whole_days(LAST, 3, portal.zone)
    return Window(whole.start + cut, whole.end - cut)


def waste(
    window: Window,
    *,
    filters: Filters | None = None,
    visibility: Visibility = EVERYTHING,
    limit: int = 100,
) -> list[WasteRow]:
    return selectors.largest_waste(
        window, filters=filters or Filters(), visibility=visibility, limit=limit
    )


@pytest.mark.parametrize("cut", [timedelta(0), 5 * HOUR], ids=["whole days", "part of days"])
def test_waste_is_that_of_the_ledger_largest_first(portal: Portal, cut: timedelta) -> None:
    window = window_of(portal, cut=cut)
    ledger = selectors.usage_rows(
        UsageQuery(window, group_by=(Grouping.WORKLOAD, Grouping.TIER)), visibility=EVERYTHING
    )
    expected = {
        tuple(row.groups.values()): row.amounts.idle
        + row.amounts.underused
        + row.amounts.not_running
        for row in ledger
    }
    found = waste(window)
    assert [row.not_used for row in found] == sorted((r.not_used for r in found), reverse=True)
    by_group: dict[tuple[str, ...], int] = {}
    for row in found:
        key = (row.workload, row.tier)
        by_group[key] = by_group.get(key, 0) + row.not_used
    assert by_group == {key: amount for key, amount in expected.items() if amount}


def test_the_largest_alone_can_be_had(portal: Portal) -> None:
    every = waste(window_of(portal))
    assert waste(window_of(portal), limit=2) == every[:2]


@pytest.mark.parametrize(
    ("person", "teams"),
    [
        pytest.param("ben", {"vision"}, id="a team member"),
        pytest.param("dan", {"speech"}, id="another team"),
        pytest.param("finn", {"vision", "speech", "unassigned"}, id="finance"),
    ],
)
def test_workloads_are_named_to_the_people_of_their_team(
    portal: Portal, person: str, teams: set[str]
) -> None:
    rows = waste(window_of(portal), visibility=visibility_of(getattr(portal, person)))
    assert {row.team for row in rows} == teams


@pytest.mark.parametrize(
    "filters",
    [
        pytest.param(Filters(cluster=("east",)), id="cluster"),
        pytest.param(Filters(tier=("gold",)), id="tier"),
        pytest.param(Filters(team=("speech",)), id="team"),
    ],
)
def test_waste_can_be_narrowed(portal: Portal, filters: Filters) -> None:
    def fits(row: WasteRow) -> bool:
        return all(
            getattr(row, key) in getattr(filters, key)
            for key in ("cluster", "tier", "team")
            if getattr(filters, key)
        )

    every = waste(window_of(portal))
    assert waste(window_of(portal), filters=filters) == [row for row in every if fits(row)]
    assert 0 < len([row for row in every if fits(row)]) < len(every)


def test_a_window_without_facts_has_no_waste(portal: Portal) -> None:
    assert waste(Window(SINCE - 48 * HOUR, SINCE - 24 * HOUR)) == []


def test_waste_is_found_in_few_queries(
    portal: Portal, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_max_num_queries(8):
        waste(window_of(portal, cut=HOUR))


def test_only_hours_with_facts_are_counted(portal: Portal) -> None:
    window = window_of(portal)
    east = portal.clusters[1]
    factories.note_collection(east, window.start, state="failed")
    factories.note_collection(east, window.start + HOUR, state="partial")
    first = Window(window.start, window.start + HOUR)
    assert selectors.collected_hours(
        window, filters=Filters(), visibility=EVERYTHING, before=first
    ) == ({"east": 71, "west": 72}, {"west": 1})
    of_east = Filters(cluster=("east",))
    assert selectors.collected_hours(window, filters=of_east, visibility=EVERYTHING) == (
        {"east": 71},
        {},
    )
