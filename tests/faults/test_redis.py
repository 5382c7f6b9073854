"""Redis that is killed or emptied under a real worker and beat: no hour waits for ever."""

import os
import re
import signal
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis
from django.core.cache import cache
from pytest_django import Settings

from apps.usage.selectors.fact_tables import cached
from tests.faults.collecting import HOURS, collecting
from tests.faults.page_texts import PageTexts
from tests.faults.pages import Pages
from tests.faults.proxy import Proxy
from tests.portal import Portal, counted
from tests.servers import accepts, free_port, temporary_redis
from tests.usage.test_worker import (
    BEAT,
    COMPLETE,
    WORKER,
    facts_are_those_of_the_reference,
    staged,
)

pytestmark = pytest.mark.django_db

SEND = "from celery import current_app; current_app.send_task('operations.note_heartbeat')"
SENT = "SELECT sent_at FROM operations_heartbeat"
REDIS_CACHE = "django.core.cache.backends.redis.RedisCache"
ALLOCATED = re.compile(r"Allocated average (\d+) %")
LEASED = "SELECT count(*) FROM usage_collectionwindow WHERE lease_until IS NOT NULL"


def kill(url: str) -> None:
    """End a Redis of the test's own without a word."""
    with redis.Redis.from_url(url) as client:
        info = client.info("server")
    assert isinstance(info, dict)
    os.kill(int(info["process_id"]), signal.SIGKILL)


def a_task_is_done(made: Portal) -> None:
    before = made.rows(SENT)
    made.manage("shell", "-c", SEND)
    made.wait_for(lambda: made.rows(SENT) != before, "a task")


@pytest.mark.redis
@pytest.mark.exhaustive
def test_hours_whose_messages_redis_lost_are_sent_again_and_complete(tmp_path: Path) -> None:
    with ExitStack() as servers:
        url = servers.enter_context(temporary_redis())
        port = urlsplit(url).port
        assert port is not None
        made, door = servers.enter_context(staged(tmp_path, url))
        beat = made.start(*BEAT, log="beat.log")
        lost = made.start(*WORKER, log="lost-worker.log")
        made.wait_for(door.knocked.is_set, "the worker's first query")
        assert counted(made.rows(LEASED)) > 0
        os.killpg(lost.pid, signal.SIGKILL)
        lost.wait()
        kill(url)
        made.wait_for(lambda: not accepts(port), "the end of Redis")
        assert counted(made.rows(COMPLETE)) == 0, "no hour is complete without its facts"
        servers.enter_context(temporary_redis(fixed_port=port))
        door.opened.set()
        worker = made.start(*WORKER, log="worker.log")
        made.wait_for(lambda: counted(made.rows(COMPLETE)) > 0, "the hour")
        facts_are_those_of_the_reference(made)
        a_task_is_done(made)
        with redis.Redis.from_url(url) as client:
            client.flushall()
        a_task_is_done(made)
        assert (beat.poll(), worker.poll()) == (None, None)


def test_what_is_remembered_in_redis_is_read_again_while_that_is_away(settings: Settings) -> None:
    away = f"redis://127.0.0.1:{free_port()}/0"
    settings.CACHES = {"default": {"BACKEND": REDIS_CACHE, "LOCATION": away}}
    with pytest.raises(redis.ConnectionError):
        cache.get("anything")
    sums = iter((1.5, 2.5))
    assert [cached("sums", "of a week", lambda: next(sums)) for _ in range(2)] == [1.5, 2.5]
    Pages().before_any_hour()


@pytest.mark.long
def test_hours_that_no_worker_heard_of_while_redis_is_away_lack_and_are_no_zero(
    door: Proxy, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    day = "?first=2026-10-01&last=2026-10-01"
    with collecting(door) as portal:
        portal.move_to(HOURS[0].end + timedelta(minutes=10))
        portal.collect(HOURS[0])
        portal.derive()
        pages = PageTexts(portal, monkeypatch)
        (before,) = ALLOCATED.findall(pages.text(f"/{day}"))
        away = f"redis://127.0.0.1:{free_port()}/0"
        settings.CACHES = {"default": {"BACKEND": REDIS_CACHE, "LOCATION": away}}
        portal.move_to(HOURS[0].end + timedelta(hours=4))
        home, quality = pages.text(f"/{day}"), pages.text(f"/admin/data-quality/{day}")
    for text in (home, quality):
        assert "3 hours of this window are missing: 1 Oct 03:00 – 06:00." in text
        assert "data through 03:00" in text
    assert ALLOCATED.findall(home) == [before]
    assert int(before) > 20
    assert "lab errors 1 of 4 hours collected" in quality
    assert "Error: 3 hours not collected" in quality
    assert "Totals exclude 3 hours." in quality
