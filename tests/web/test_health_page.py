"""Data health: the calendar of hours and the list of collections."""

import html
import re

import pytest
from django.test import Client

from tests.web.conftest import DAILY, HOURLY
from tests.web.pages import text_of
from tests.web.shown import tables_of


def test_the_calendar_of_data_health_marks_each_hour(admin: Client) -> None:
    page = text_of(admin, f"/health/data/?{HOURLY}")
    marks = re.findall(r'<td><span class="hour-mark hour-(\w+)"[^>]*title="([^"]+)"', page)
    assert len(marks) == 73
    states = {title.split(": ")[0]: state for state, title in marks}
    assert states["Sat 25 Oct 02:00 CEST"] == "failed"
    assert states["Sat 25 Oct 03:00 CEST"] == "missing"
    assert states["Sun 26 Oct 02:00 CET"] == "complete"


@pytest.mark.parametrize(
    ("window", "above"),
    [
        pytest.param("first=2025-10-24&last=2025-10-25", ["00", "03", "06"], id="24 hours each"),
        pytest.param(HOURLY, [], id="one day has 25"),
    ],
)
def test_hours_stand_above_the_calendar_where_they_hold_for_every_day(
    window: str, above: list[str], admin: Client
) -> None:
    page = text_of(admin, f"/health/data/?{window}")
    heads = [clock for clock in re.findall(r'<th scope="col">(\d*)</th>', page) if clock]
    assert heads[:3] == above


def test_data_health_narrows_to_states(admin: Client) -> None:
    rows = tables_of(text_of(admin, f"/health/data/?{HOURLY}&state=failed"))["collections"].rows
    assert {row[2].text for row in rows[1:]} == {"failed"}
    assert len(rows) == 3
    assert "answered 503" in rows[1][-1].text


def test_collections_are_paged_without_losing_a_row(admin: Client) -> None:
    address, seen = f"/health/data/?{DAILY}", []
    for _ in range(10):
        page = text_of(admin, address)
        seen += [(r[0].text, r[1].text) for r in tables_of(page)["collections"].rows[1:]]
        found = re.search(r'href="([^"]+)#collections" rel="next"', page)
        if found is None:
            break
        address = html.unescape(found[1])
    assert len(seen) == len(set(seen)) == 2 * 97 - 2
