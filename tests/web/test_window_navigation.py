"""The windows beside the one that is shown."""

from datetime import UTC, datetime
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

import hypothesis
import hypothesis.strategies as st
import pytest
from django.http import QueryDict

from apps.web.components import page_query, window_picker

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 18, 9, 20, tzinfo=UTC)  # a Wednesday, 10:20 in Berlin


def chosen(query: str) -> page_query.WindowChoice:
    return page_query.window_from(QueryDict(query), zone=BERLIN, now=NOW)


@pytest.mark.parametrize(
    ("query", "start", "end", "words"),
    [
        pytest.param(
            *("window=7d", "2026-11-04T23:00", "2026-11-11T10:00", "the previous 7 days"),
            id="a week that runs is held against a week until the same hour",
        ),
        pytest.param(
            *("window=today", "2026-11-16T23:00", "2026-11-17T10:00", "the previous day"),
            id="today until now against yesterday until now",
        ),
        pytest.param(
            *("window=24h", "2026-11-16T09:00", "2026-11-17T09:00", "the previous 24 hours"),
            id="hours",
        ),
        pytest.param(
            *("window=last-month", "2026-08-31T22:00", "2026-09-30T22:00", "the previous month"),
            id="a whole month against a whole month, of another length",
        ),
        pytest.param(
            *("window=month", "2026-09-30T22:00", "2026-10-18T09:00", "the previous month"),
            id="a month that runs",
        ),
        pytest.param(
            *("first=2026-10-26&last=2026-10-27", "2026-10-23T22:00", "2026-10-25T23:00"),
            "the previous 2 days",
            id="days, one of them of 25 hours",
        ),
        pytest.param(
            *("start=2026-11-02T06:00:00Z&end=2026-11-02T07:00:00Z", "2026-11-02T05:00"),
            *("2026-11-02T06:00", "the previous hour"),
            id="one hour",
        ),
    ],
)
def test_the_window_before_is_as_long_and_cut_alike(
    query: str, start: str, end: str, words: str
) -> None:
    choice = chosen(query)
    found = window_picker.before(choice)
    assert [f"{at:%Y-%m-%dT%H:%M}" for at in (found.start, found.end)] == [start, end]
    assert window_picker.before_words(choice) == words


@pytest.mark.parametrize(
    ("query", "earlier", "later"),
    [
        pytest.param("window=7d", "first=2026-11-05&last=2026-11-11", None, id="up to now"),
        pytest.param(
            "first=2026-11-05&last=2026-11-11",
            "first=2026-10-29&last=2026-11-04",
            "window=7d",
            id="a step to today follows time again",
        ),
        pytest.param("window=today", "window=yesterday", None, id="today"),
        pytest.param(
            "window=yesterday", "first=2026-11-16&last=2026-11-16", "window=today", id="yesterday"
        ),
        pytest.param("window=month", "window=last-month", None, id="this month"),
        pytest.param(
            "first=2026-09-01&last=2026-09-30",
            "first=2026-08-01&last=2026-08-31",
            "window=last-month",
            id="a calendar month steps by months",
        ),
        pytest.param(
            "window=24h",
            "start=2026-11-16T09%3A00%3A00Z&end=2026-11-17T09%3A00%3A00Z",
            None,
            id="24 hours",
        ),
        pytest.param(
            "start=2026-11-02T06:00:00Z&end=2026-11-02T08:00:00Z",
            "start=2026-11-02T04%3A00%3A00Z&end=2026-11-02T06%3A00%3A00Z",
            "start=2026-11-02T08%3A00%3A00Z&end=2026-11-02T10%3A00%3A00Z",
            id="hours",
        ),
        pytest.param(
            "start=2026-11-02&end=2026-11-04",
            "first=2026-10-31&last=2026-11-01",
            "first=2026-11-04&last=2026-11-05",
            id="days as in the API",
        ),
        pytest.param(
            "first=2000-01-01&last=2000-01-03",
            None,
            "first=2000-01-04&last=2000-01-06",
            id="the earliest",
        ),
    ],
)
def test_steps_lead_to_the_windows_beside(
    query: str, earlier: str | None, later: str | None
) -> None:
    choice = chosen(query)
    found = [step(choice, NOW) for step in (window_picker.earlier, window_picker.later)]
    assert [None if pairs is None else urlencode(list(pairs)) for pairs in found] == [
        earlier,
        later,
    ]


@hypothesis.given(
    st.dates(min_value=page_query.EARLIEST, max_value=NOW.date()),
    st.integers(min_value=0, max_value=99),
)
def test_a_step_back_and_one_forth_end_where_they_began(first: datetime, more: int) -> None:
    choice = chosen(f"first={first}&last={first + more * page_query.DAY}")
    pairs = window_picker.earlier(choice, NOW)
    if choice.problem or pairs is None or choice.last > NOW.date():
        return
    before = chosen(urlencode(list(pairs)))
    assert before.window.end == choice.window.start
    again = window_picker.later(before, NOW)
    assert again is not None
    assert chosen(urlencode(list(again))).window.start == choice.window.start
