"""Beat: its schedule outlives it, and of several beats one sends."""

import logging
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.app.log import Logging
from celery.schedules import maybe_schedule
from django.db import DatabaseError

from apps.accounts.services.process_leases import LEASE_SECONDS, ProcessLeases
from apps.operations.beat import CHECK_SECONDS, DatabaseScheduler
from apps.operations.models import ScheduledRun
from gpuportal.celery import app

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)


class Clock:
    """The time of the machine, in the test's hands."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = datetime.now(UTC)
        begun, begun_at = time.monotonic(), self.at
        monkeypatch.setattr(time, "monotonic", lambda: begun + (self.at - begun_at).total_seconds())

    def __call__(self) -> datetime:
        return self.at


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path) -> Clock:
    settings.BEAT_ALIVE_FILE = tmp_path / "beat-alive"
    return Clock(monkeypatch)


class Beat(DatabaseScheduler):
    """A beat that notes what it sends, by the test's clock."""

    def __init__(self, clock: Clock, holder: str) -> None:
        app = Celery(set_as_current=False, broker="memory://")
        app.conf.timezone = "UTC"
        app.conf.beat_schedule = {"daily": {"task": "tests.daily", "schedule": DAY}}
        app.now = clock
        self.clock, self.sent = clock, []  # type: ignore[var-annotated]
        super().__init__(app, leases=ProcessLeases(clock, holder=holder))

    def send_task(self, *args: object, **kwargs: object) -> None:
        self.sent.append(self.clock.at)

    def run(self, seconds: float) -> None:
        """Tick as Celery's loop would for so long."""
        until = self.clock.at + timedelta(seconds=seconds)
        while self.clock.at < until:
            pause = self.tick()
            if self.should_sync():
                self._do_sync()
            self.clock.at += timedelta(seconds=max(pause, 0.1))


def test_each_start_of_a_task_is_in_the_log(
    clock: Clock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    # As the process `celery beat` does, for which no --loglevel means WARNING.
    monkeypatch.setattr(Logging, "already_setup", False)
    app.log.setup_logging_subsystem(loglevel=logging.WARNING)
    assert (root.level, root.handlers) == (level, handlers)
    with caplog.at_level(logging.INFO):
        beat = Beat(clock, "first")
        beat.run(1)
        ScheduledRun.objects.update(last_run_at=clock.at - DAY)
        beat._read()
        beat.run(5)
    assert "Sending due task daily (tests.daily)" in caplog.text


def test_a_task_of_once_a_day_keeps_its_turn_over_restarts(clock: Clock) -> None:
    Beat(clock, "first").run(60)
    ScheduledRun.objects.update(last_run_at=clock.at - DAY + timedelta(seconds=200))
    for number in range(5):
        beat = Beat(clock, f"again-{number}")
        # Killed: its lease runs out.
        clock.at += timedelta(seconds=LEASE_SECONDS)
        beat.run(20)
        if beat.sent:
            break
    assert len(beat.sent) == 1
    assert 3 <= number <= 4
    clock.at += timedelta(seconds=LEASE_SECONDS)
    later = Beat(clock, "later")
    later.run(60)
    assert not later.sent


def test_a_clock_that_is_set_back_by_an_hour_holds_no_task_up(clock: Clock) -> None:
    beat = Beat(clock, "first")
    beat.run(60)
    minutely = beat.schedule["daily"]
    minutely.schedule = maybe_schedule(timedelta(minutes=1), app=beat.app)
    beat.app.now = lambda: clock() - timedelta(hours=1)  # the machine's; not that of the database
    beat.run(300)
    assert len(beat.sent) in {4, 5}


def test_one_beat_sends_and_another_takes_over_when_it_is_killed(clock: Clock) -> None:
    first, second = Beat(clock, "first"), Beat(clock, "second")
    first.run(1)
    ScheduledRun.objects.update(last_run_at=clock.at - DAY)
    first._read()
    for _ in range(10):
        first.run(5)
        second.run(5)
    assert (len(first.sent), len(second.sent)) == (1, 0)
    ScheduledRun.objects.update(last_run_at=clock.at - DAY)
    begun = clock.at
    second.run(LEASE_SECONDS + 2 * CHECK_SECONDS)
    assert len(second.sent) == 1
    assert (second.sent[0] - begun).total_seconds() <= LEASE_SECONDS + CHECK_SECONDS


def test_a_beat_that_ends_lets_another_go_on_at_once(clock: Clock) -> None:
    first, second = Beat(clock, "first"), Beat(clock, "second")
    first.run(1)
    second.run(1)
    first.close()
    second.run(CHECK_SECONDS + 1)
    assert second._leases.holds("beat")


@pytest.mark.django_db(transaction=True)
def test_a_database_that_is_away_ends_no_beat(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat = Beat(clock, "first")
    beat.run(1)

    def away() -> None:
        raise DatabaseError("away")

    with monkeypatch.context() as patch:
        patch.setattr(ProcessLeases, "renew", lambda self: away())
        beat.run(LEASE_SECONDS + CHECK_SECONDS)
        # Another may have taken over meanwhile.
        assert not beat._leases.holds("beat")
    beat.run(CHECK_SECONDS + 1)
    assert beat._leases.holds("beat")


def test_a_task_that_is_no_more_is_forgotten(clock: Clock) -> None:
    ScheduledRun.objects.create(name="retired", last_run_at=clock.at)
    Beat(clock, "first").run(30)
    assert list(ScheduledRun.objects.values_list("name", flat=True)) == ["daily"]
