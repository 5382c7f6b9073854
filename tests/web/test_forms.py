"""Windows as readers ask for them, in the report's time zone."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import hypothesis
import hypothesis.strategies as st
import pytest
from django.http import QueryDict

from apps.usage.domain.usage_query import TimeStep
from apps.web.components import page_query

BERLIN = ZoneInfo("Europe/Berlin")
KOLKATA = ZoneInfo("Asia/Kolkata")
NOW = datetime(2026, 11, 18, 9, 20, tzinfo=UTC)  # a Wednesday, 10:20 in Berlin


def asked(
    query: str, zone: ZoneInfo = BERLIN, now: datetime = NOW
) -> tuple[str, str, TimeStep, str]:
    choice = page_query.window_from(QueryDict(query), zone=zone, now=now)
    start, end = (t.strftime("%Y-%m-%dT%H:%M") for t in (choice.window.start, choice.window.end))
    return start, end, choice.interval, choice.problem


@pytest.mark.parametrize(
    ("query", "start", "end", "interval"),
    [
        pytest.param("", "2026-11-11T23:00", "2026-11-18T10:00", "day", id="default: 7 days"),
        pytest.param("window=today", "2026-11-17T23:00", "2026-11-18T10:00", "hour", id="today"),
        pytest.param(
            "window=yesterday", "2026-11-16T23:00", "2026-11-17T23:00", "hour", id="yesterday"
        ),
        pytest.param("window=24h", "2026-11-17T09:00", "2026-11-18T09:00", "hour", id="24 hours"),
        pytest.param("window=30d", "2026-10-19T22:00", "2026-11-18T10:00", "day", id="30 days"),
        pytest.param("window=month", "2026-10-31T23:00", "2026-11-18T10:00", "day", id="month"),
        pytest.param(
            "window=last-month", "2026-09-30T22:00", "2026-10-31T23:00", "day", id="last month"
        ),
        pytest.param(
            "first=2026-10-25&last=2026-10-25",
            "2026-10-24T22:00",
            "2026-10-25T23:00",
            "hour",
            id="the day of 25 hours",
        ),
        pytest.param(
            "first=2026-03-29&last=2026-03-29",
            "2026-03-28T23:00",
            "2026-03-29T22:00",
            "hour",
            id="the day of 23 hours",
        ),
        pytest.param(
            "first=2026-10-24&last=2026-10-26",
            "2026-10-23T22:00",
            "2026-10-26T23:00",
            "hour",
            id="three days are hourly, 73 hours too",
        ),
        pytest.param(
            "first=2026-10-24&last=2026-10-27",
            "2026-10-23T22:00",
            "2026-10-27T23:00",
            "day",
            id="four days are daily",
        ),
        pytest.param(
            "first=2026-11-02", "2026-11-01T23:00", "2026-11-02T23:00", "hour", id="first alone"
        ),
        pytest.param(
            "last=2026-11-02", "2026-11-01T23:00", "2026-11-02T23:00", "hour", id="last alone"
        ),
        pytest.param(
            "first=2026-11-17&last=2026-12-24",
            "2026-11-16T23:00",
            "2026-11-18T10:00",
            "hour",
            id="cut at the end of this hour",
        ),
        pytest.param(
            "start=2026-11-01&end=2026-11-03",
            "2026-10-31T23:00",
            "2026-11-02T23:00",
            "hour",
            id="days as in the API: the end is not included",
        ),
        pytest.param(
            "start=2026-11-01T06:20:00Z&end=2026-11-01T07:01:00Z",
            "2026-11-01T06:00",
            "2026-11-01T08:00",
            "hour",
            id="times widen to whole hours",
        ),
        pytest.param(
            "start=2026-11-01T06:00:00+02:00&end=2026-11-01T08:00:00%2B02:00",
            "2026-11-01T04:00",
            "2026-11-01T06:00",
            "hour",
            id="a plus sign that was not escaped",
        ),
    ],
)
def test_a_window_is_read_in_the_report_zone(
    query: str, start: str, end: str, interval: str
) -> None:
    assert asked(query) == (start, end, TimeStep(interval), "")


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("window=fortnight", "There is no window “fortnight”; there are: today, yesterday"),
        ("first=yesterday", "The first day “yesterday” is not a day such as 2026-10-25."),
        ("first=2026-02-30", "“2026-02-30” is not a day"),
        ("first=2026-11-02&last=2026-11-01", "lies before the first"),
        ("first=2026-12-01", "That lies in the future."),
        ("first=9999-12-31", "That lies in the future."),
        ("first=1999-12-31&last=2026-01-01", "start on 2000-01-01 or later"),
        ("first=2024-01-01&last=2026-01-01", "400 days at most"),
        ("start=2026-11-01", "A start and an end are needed"),
        ("start=noon&end=2026-11-01", "“noon” is neither a day"),
        ("start=2026-11-02&end=2026-11-01", "does not lie after the start"),
        ("start=0001-01-01&end=2026-11-01", "too early or too late"),
        ("start=2026-11-01&end=9999-12-31T23:59:59Z", "too early or too late"),
    ],
)
def test_nonsense_says_what_is_allowed_and_shows_the_default(query: str, says: str) -> None:
    start, end, interval, problem = asked(query)
    assert (start, end, interval) == asked("")[:3]
    assert says in problem
    assert problem.endswith("The last 7 days are shown.")


@hypothesis.given(
    st.dictionaries(
        st.sampled_from(["window", "first", "last", "start", "end"]),
        st.text(max_size=40) | st.dates().map(str) | st.datetimes().map(lambda t: t.isoformat()),
    )
)
def test_no_query_breaks_a_page(params: dict[str, str]) -> None:
    query = QueryDict(mutable=True)
    query.update(params)
    choice = page_query.window_from(query, zone=BERLIN, now=NOW)
    assert choice.window.start < choice.window.end <= page_query.hour_end(NOW, BERLIN)
    assert choice.window.end - choice.window.start <= timedelta(days=401)
    assert choice.label
    assert 0 < len(choice.periods) <= 401


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("first=2026-10-25", 25),
        ("first=2026-03-29", 23),
        ("first=2026-10-24&last=2026-10-27", 4),
        ("window=today", 11),
    ],
)
def test_periods_are_the_hours_or_days_of_the_window(query: str, count: int) -> None:
    periods = page_query.window_from(QueryDict(query), zone=BERLIN, now=NOW).periods
    assert len(periods) == len(set(periods)) == count


def test_hours_of_a_zone_at_half_past_start_there_in_utc() -> None:
    start, end, *_ = asked("window=24h", KOLKATA)  # 14:50 in Kolkata
    assert (start, end) == ("2026-11-17T08:30", "2026-11-18T08:30")
    assert asked("first=2026-11-01", KOLKATA)[0] == "2026-10-31T18:30"


@pytest.mark.parametrize(
    ("query", "label"),
    [
        ("first=2026-10-25", "25 Oct (Europe/Berlin)"),
        ("first=2026-10-25&last=2026-10-26", "25 Oct – 26 Oct (Europe/Berlin)"),
        ("window=today", "18 Nov 00:00 – 11:00 (Europe/Berlin)"),
        ("window=24h", "17 Nov 10:00 – 18 Nov 10:00 (Europe/Berlin)"),
    ],
)
def test_the_label_says_the_window_in_words(
    query: str, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOW)
    assert page_query.window_from(QueryDict(query), zone=BERLIN, now=NOW).label == label


@pytest.mark.parametrize(
    ("query", "label"),
    [
        ("first=2026-10-25", "25 Oct"),
        ("first=2026-10-25&last=2026-11-02", "25 Oct – 2 Nov"),
        ("first=2025-12-30&last=2026-01-02", "30 Dec 2025 – 2 Jan"),
        ("first=2025-11-30&last=2025-12-02", "30 Nov – 2 Dec 2025"),
    ],
)
def test_a_narrow_page_gives_the_days_alone(
    query: str, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOW)
    assert page_query.window_from(QueryDict(query), zone=BERLIN, now=NOW).short_label == label


@pytest.mark.parametrize(
    "query", ["window=30d", "first=2026-10-01&last=2026-10-03", "start=2026-10-01&end=2026-10-03"]
)
def test_the_query_of_a_choice_gives_the_same_window_again(query: str) -> None:
    choice = page_query.window_from(QueryDict(query), zone=BERLIN, now=NOW)
    again = QueryDict("&".join(f"{key}={value}" for key, value in choice.query))
    assert page_query.window_from(again, zone=BERLIN, now=NOW).window == choice.window


@pytest.mark.parametrize(
    ("text", "page"),
    [("1", 1), ("3", 3), ("4", 3), ("0", 1), ("-1", 1), ("x", 1), ("9" * 30, 1), ("²", 1)],
)
def test_a_page_number_out_of_range_gives_the_nearest_page(text: str, page: int) -> None:
    query = QueryDict(mutable=True)
    query.update({"page": text, "per_page": "10"})
    pages = page_query.pages_from(query, count=21)
    assert (pages.number, pages.last) == (page, 3)
    assert pages.part == slice((page - 1) * 10, page * 10)


@pytest.mark.parametrize(
    ("text", "per_page"), [("", 25), ("50", 50), ("0", 1), ("99999", 1000), ("many", 25)]
)
def test_the_length_of_a_page_stays_within_reason(text: str, per_page: int) -> None:
    assert page_query.pages_from(QueryDict(f"per_page={text}"), count=5).per_page == per_page


def test_unknown_names_are_said_and_left_out() -> None:
    kept, problem = page_query.names_from(
        QueryDict("cluster=west&cluster=nope"), "cluster", ["west"]
    )
    assert kept == ("west",)
    assert problem == "There is no cluster “nope”; there are: west."
