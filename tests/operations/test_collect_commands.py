"""`collect` and `backfill`: what they accept, what they say, and how they end."""

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import OperationalError

from apps.clusters.domain.window import Window
from apps.operations.management import outcomes
from apps.operations.management.collectors import Collected, HourBatch, collect_here
from apps.operations.management.commands.backfill import collect_all, whole_days
from apps.operations.management.commands.collect import parts, window_of
from apps.usage import services
from apps.usage.domain.collection import CollectionState
from apps.usage.services import HourOutcome

BERLIN = ZoneInfo("Europe/Berlin")
KOLKATA = ZoneInfo("Asia/Kolkata")
NOW = datetime(2026, 11, 20, 12, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    "command",
    [
        "backfill --days 1",
        pytest.param("collect --start 2026-11-01 --end 2026-11-02", marks=pytest.mark.exhaustive),
    ],
)
def test_a_database_that_is_away_is_one_sentence(command: str, tmp_path: Path) -> None:
    away = {
        "DATABASE_URL": "postgres://portal@127.0.0.1:1/portal",
        "GPUPORTAL_VAR_DIR": str(tmp_path),
    }
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "manage.py", *command.split(), "--cluster", "west"],
        capture_output=True,
        check=False,
        cwd=settings.BASE_DIR,
        env={**os.environ, **away},
        text=True,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("The database does not answer: ")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


@pytest.mark.parametrize(
    ("start", "end", "zone", "expected"),
    [
        pytest.param(
            "2026-11-20T10:00:00Z",
            "2026-11-20T12:00:00+00:00",
            BERLIN,
            ("2026-11-20T10:00+00:00", "2026-11-20T12:00+00:00"),
            id="rfc-3339",
        ),
        pytest.param(
            "2026-11-18",
            "2026-11-19",
            BERLIN,
            ("2026-11-17T23:00+00:00", "2026-11-18T23:00+00:00"),
            id="dates-are-local-midnights",
        ),
        pytest.param(
            "2026-10-25",
            "2026-10-26",
            BERLIN,
            ("2026-10-24T22:00+00:00", "2026-10-25T23:00+00:00"),
            id="a-day-of-25-hours",
        ),
        pytest.param(
            "2026-11-19T10:30:00Z",
            "2026-11-19T11:30:00Z",
            KOLKATA,
            ("2026-11-19T10:30+00:00", "2026-11-19T11:30+00:00"),
            id="a-zone-at-half-past",
        ),
    ],
)
def test_windows_that_are_understood(
    start: str, end: str, zone: ZoneInfo, expected: tuple[str, str]
) -> None:
    window = window_of(start, end, zone=zone, now=NOW)
    assert (window.start, window.end) == (at(expected[0]), at(expected[1]))


@pytest.mark.parametrize(
    ("start", "end", "zone", "says"),
    [
        pytest.param("yesterday", "2026-11-20", BERLIN, "--start 'yesterday' is no", id="words"),
        pytest.param(
            "2026-11-18T10:00", "2026-11-20", BERLIN, "has no offset: add Z", id="no-offset"
        ),
        pytest.param(
            "0001-01-01", "2026-11-20", BERLIN, "--start '0001-01-01' lies outside", id="year-1"
        ),
        pytest.param(
            "2026-11-18", "9999-12-31", BERLIN, "--end '9999-12-31' lies outside", id="year-9999"
        ),
        pytest.param(
            "0001-01-01T00:00:00+14:00", "2026-11-20", BERLIN, "outside of the years", id="first"
        ),
        pytest.param(
            "2026-11-18", "9999-12-31T23:00:00-01:00", BERLIN, "outside of the years", id="last"
        ),
        pytest.param("2026-11-19", "2026-11-18", BERLIN, "must lie after", id="backwards"),
        pytest.param("2026-11-19", "2026-11-19", BERLIN, "must lie after", id="empty"),
        pytest.param(
            "2026-11-18T10:15:00Z",
            "2026-11-18T12:00:00Z",
            BERLIN,
            "say 2026-11-18T10:00:00+00:00 or 2026-11-18T11:00:00+00:00",
            id="not-a-slot",
        ),
        pytest.param(
            "2026-11-18T10:30:00Z",
            "2026-11-18T12:00:00Z",
            BERLIN,
            "is not the start of an hour of facts in Europe/Berlin",
            id="a-slot-but-not-an-hour",
        ),
        pytest.param(
            "2026-11-18T10:00:00Z",
            "2026-11-18T11:30:00Z",
            KOLKATA,
            "is not the start of an hour of facts in Asia/Kolkata",
            id="an-hour-of-another-zone",
        ),
        pytest.param(
            "2026-11-20T12:00:00Z", "2026-11-20T13:00:00Z", BERLIN, "in the future", id="not-over"
        ),
        pytest.param("2026-02-30", "2026-03-02", BERLIN, "is no time", id="no-such-day"),
    ],
)
def test_windows_that_are_refused(start: str, end: str, zone: ZoneInfo, says: str) -> None:
    with pytest.raises(CommandError) as refused:
        window_of(start, end, zone=zone, now=NOW)
    assert says in str(refused.value)


def test_a_long_window_is_cut_into_days_without_gap_or_overlap() -> None:
    window = Window(at("2026-10-24T22:00Z"), at("2026-10-27T05:00Z"))
    cut = list(parts(window))
    assert cut[0].start == window.start
    assert cut[-1].end == window.end
    assert all(one.end == two.start for one, two in pairwise(cut))
    assert all(part.end - part.start <= timedelta(hours=24) for part in cut)


@pytest.mark.parametrize("text", ["0", "-3", "1.5", "many", "", "4001", "²"])
def test_days_that_are_refused(text: str) -> None:
    with pytest.raises(Exception, match="a whole number of days, 1 to 4000"):
        whole_days(text)


def outcome(
    hour: str, state: CollectionState = CollectionState.COMPLETE, error: str = ""
) -> HourOutcome:
    return HourOutcome(at(f"2026-11-18T{hour}:00Z"), state, error)


@pytest.mark.django_db
def test_what_follows_is_computed_when_all_clusters_of_a_day_are_done() -> None:
    newest, older = Window.hour(at("2026-11-18T12:00Z")), Window.hour(at("2026-11-17T12:00Z"))
    west, east = HourBatch("west", newest), HourBatch("east", newest)
    plan = [west, east, HourBatch("west", older)]
    said: list[str] = []

    def collected() -> Iterator[Collected]:
        # In processes of their own they do not end in the plan's order.
        for stretch in (west, plan[2], east):
            state = CollectionState.FAILED if stretch is west else CollectionState.COMPLETE
            yield Collected(stretch, [HourOutcome(stretch.window.start, state, "")], 1.0)

    def tell(done: Collected) -> None:
        said.append(f"{done.stretch.cluster} {done.stretch.window.start:%d}")

    ended = collect_all(plan, collected(), tell, lambda: said.append("derive"))
    assert said == ["west 18", "west 17", "derive", "east 18", "derive"]
    assert [one.state.value for one in ended] == ["failed", "complete", "complete"]


def test_hours_are_counted_by_how_they_ended() -> None:
    ended = [
        outcome("10"),
        outcome("11"),
        outcome("12", CollectionState.PARTIAL, "no samples of n1"),
        outcome("13", CollectionState.FAILED, "cannot connect"),
    ]
    assert outcomes.outcome_counts(ended) == "4 hours: 2 complete, 1 partial, 1 failed"
    assert outcomes.outcome_counts(ended[:1]) == "1 hour: 1 complete"
    assert outcomes.outcome_counts([]) == "0 hours"


def test_the_same_error_is_told_once_with_its_first_hour() -> None:
    ended = [outcome(f"{hour}", CollectionState.FAILED, "cannot connect") for hour in (14, 13, 12)]
    ended.append(outcome("11", CollectionState.FAILED, "HTTP 500"))
    assert outcomes.outcome_failures(ended).splitlines() == [
        "3 of them, the first 2026-11-18T12:00:00+00:00: cannot connect",
        "1 of them, the first 2026-11-18T11:00:00+00:00: HTTP 500",
    ]


def test_many_different_errors_are_cut_short() -> None:
    ended = [outcome(f"{hour}", CollectionState.FAILED, f"error {hour}") for hour in range(10, 18)]
    lines = outcomes.outcome_failures(ended).splitlines()
    assert len(lines) == 6
    assert lines[-1].startswith("and 3 other errors")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("backfill", "--cluster", "nowhere", "--days", "2"), id="backfill"),
        pytest.param(
            ("collect", "--cluster", "nowhere", "--start", "2026-01-01", "--end", "2026-01-02"),
            id="collect",
        ),
    ],
)
def test_an_unknown_cluster_is_named(words: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match=r"no cluster 'nowhere' in the catalog.*load_catalog"):
        call_command(*words, stdout=StringIO())


def test_a_stretch_is_tried_again_while_the_database_is_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    busy = iter([True, True, False])

    def collect(cluster: str, window: Window, *, now: datetime) -> list[HourOutcome]:
        if next(busy, True):
            raise OperationalError("database is locked")
        return []

    monkeypatch.setattr(services, "collect_window", collect)
    stretch = HourBatch("gpu-a", Window(at("2026-11-20T10:00:00Z"), at("2026-11-20T12:00:00Z")))
    assert [done.stretch for done in collect_here([stretch])] == [stretch]
    with pytest.raises(OperationalError, match="locked"):
        list(collect_here([stretch]))
