"""Watches that die or cannot reach the API server, and what the closed hours make of it."""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import Struct
from pytest_django import DjangoDbBlocker

from apps.clusters.domain.window import Window
from apps.clusters.models import Pod
from apps.pending.models import CauseInterval, Episode
from apps.usage.domain.collection import CollectionState
from apps.usage.models import CollectionWindow
from tests.faults.collecting import HOURS, START, Collecting, collecting
from tests.faults.facts import Facts, differences, facts
from tests.faults.page_texts import PageTexts
from tests.faults.proxy import Fault, Proxy, undisturbed
from tests.faults.watching import Watch, changes, killed_at, watching, without_api_server
from tests.simulator.only_faults import faults_once

pytestmark = [pytest.mark.django_db, pytest.mark.long]

EVERY, BACK = 17.0, 4.0
"""Seconds from one kill of the watch to the next, and until it is started again."""
SCRAPES = 30.0
"""Seconds between two samples: series tell the end of what they show no longer to so much."""
LOOKS = 4 * EVERY
"""Seconds between two looks at what is pending: the watch is there at each."""
HELD = ("usage_podhour", "usage_teamhour", "usage_teamday", "usage_workloadday")
UNSEEN = "not seen pending"

Row = Mapping[str, Any]


class Told(Struct, frozen=True):
    """Pods of the API by uid, what was pending by uid, and all facts, of a run."""

    pods: Mapping[str, Row]
    pending: Mapping[tuple[str, datetime], Mapping[tuple[str, str], float]]
    facts: Facts


def _close(portal: Collecting, hours: tuple[Window, ...]) -> Told:
    portal.collect_all(hours)
    portal.move_to(START + timedelta(days=1))
    assert portal.derive()
    return Told(_pods(), _pending(), facts())


def _pods() -> Mapping[str, Row]:
    columns = ("uid", "name", "created_at", "bound_at", "started_at", "finished_at", "deleted_at")
    rows = Pod.objects.filter(source="api").order_by("uid")
    return {row["uid"]: row for row in rows.values(*columns, "ended_at", "lost", "end_reason")}


def _pending() -> Mapping[tuple[str, datetime], Mapping[tuple[str, str], float]]:
    """Return the seconds of each cause, by what was pending and since when."""
    found: dict[tuple[str, datetime], Counter[tuple[str, str]]] = {
        (one.uid, one.since): Counter() for one in Episode.objects.all()
    }
    for span in CauseInterval.objects.select_related("episode"):
        if span.end is not None:
            seconds = (span.end - span.start).total_seconds()
            of = found[span.episode.uid, span.episode.since]
            of[span.cause, span.detail] += seconds  # type: ignore[assignment]
    return found


def _go(portal: Collecting, at: float) -> None:
    portal.clock.advance(at - portal.now().timestamp())


def _looks(start: float, end: float) -> set[float]:
    """Return when pending work is looked at between two times, not included."""
    first = START.timestamp() + BACK + 6.0
    return {at for n in range(400) if start < (at := first + n * LOOKS) < end}


def _live(portal: Collecting, watch: Watch, until: float) -> None:
    """Let a watch see each change when it happens, and what is pending be looked at."""
    start = portal.now().timestamp()
    looks = _looks(start, until)
    for at in sorted({*changes(start, until), *looks}):
        _go(portal, at)
        watch.turn()
        if at in looks:
            watch.refresh()
    _go(portal, until)


def _watched(portal: Collecting, until: datetime) -> None:
    """Watch from now until a time without a pause."""
    with watching(portal) as watch:
        watch.turn()
        _live(portal, watch, until.timestamp())
        watch.turn()


# ---------------------------------------------------------------- killed and started again


@pytest.fixture(scope="module")
def quiet(door: Proxy, django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Told:
    """Return what a watch of an hour tells that nothing disturbs."""
    with django_db_blocker.unblock(), collecting(door) as portal:
        _watched(portal, HOURS[0].end)
        return _close(portal, HOURS)


def _watch_and_kill(portal: Collecting) -> None:
    """Watch the first hour by processes that are killed in the middle of what they write."""
    number, begins, end = 0, START.timestamp(), HOURS[0].end.timestamp()
    while begins < end:
        _go(portal, min(begins + (BACK if number else 0.0), end))
        with watching(portal) as watch:
            watch.turn()
            _live(portal, watch, min(begins + EVERY, end))
            with killed_at(1 + number % 7):
                watch.turn()
        number, begins = number + 1, begins + EVERY
    # The next one stays.
    with watching(portal) as watch:
        watch.turn()


@pytest.mark.exhaustive
def test_a_watch_that_is_killed_every_17_seconds_tells_the_same_lives(
    door: Proxy, quiet: Told
) -> None:
    with collecting(door) as portal:
        _watch_and_kill(portal)
        seen = _pods()
        found = _close(portal, HOURS)
    assert found.pods.keys() == quiet.pods.keys()
    lost = {uid for uid, row in found.pods.items() if row["lost"]}
    early = [_late(quiet.pods[uid], seen[uid]) for uid in lost]
    assert min(early) < -5.0, "some went unseen, and the watch took them for gone too early"
    assert min(early) >= -(EVERY + BACK)
    _assert_same_lives(quiet, found)
    assert [one for one in differences(quiet.facts, found.facts) if one.startswith(HELD)] == []
    _assert_same_causes(quiet, found)


def test_a_pod_that_goes_while_the_watch_is_started_again_ends_when_series_say(
    door: Proxy,
) -> None:
    """The pause is too short to make the hour one that nobody watched."""
    went = START + timedelta(minutes=80.5)
    with collecting(door) as portal:
        portal.move_to(HOURS[1].start - timedelta(minutes=1))
        _watched_loosely(portal, went - timedelta(seconds=21))
        portal.move_to(went + timedelta(seconds=BACK))
        _watched_loosely(portal, HOURS[1].end)
        (lost,) = {row["ended_at"] for row in _pods().values() if row["lost"]}
        portal.collect_all(HOURS[1:])
        ended = [(row["name"], row["ended_at"]) for row in _pods().values() if row["lost"]]
        hour = CollectionWindow.objects.get(hour=HOURS[1].start)
        late = {name: (at - went).total_seconds() for name, at in ended}
    assert hour.ledger_source == "api"
    assert (lost - went).total_seconds() == -21.0
    assert len(late) == 3
    assert all(0.0 <= seconds <= SCRAPES for seconds in late.values())


def _watched_loosely(portal: Collecting, until: datetime) -> None:
    """Watch from now until a time, turn by turn."""
    with watching(portal) as watch:
        _every(portal, watch, until, seconds=60)


def _late(true: Row, row: Row) -> float:
    """Return how many seconds later than it was a pod is said to have ended."""
    seconds: float = (row["ended_at"] - true["ended_at"]).total_seconds()
    return seconds


def _assert_same_lives(quiet: Told, found: Told) -> None:
    """Assert that pods are told the same, but for the ends of those that nobody saw go."""
    unseen = {"deleted_at", "ended_at", "lost", "end_reason"}
    for uid, true in quiet.pods.items():
        row = found.pods[uid]
        assert {k: row[k] for k in row.keys() - unseen} == {k: true[k] for k in row.keys() - unseen}
        if row["lost"]:
            assert 0.0 <= _late(true, row) <= SCRAPES, true["name"]
        else:
            assert row["ended_at"] == true["ended_at"], true["name"]


def _assert_same_causes(quiet: Told, found: Told) -> None:
    """Assert that what was pending has the same causes, but while it was not seen."""
    assert found.pending.keys() == quiet.pending.keys()
    for key, true in quiet.pending.items():
        causes = found.pending[key]
        unseen = sum(seconds for (_, detail), seconds in causes.items() if detail == UNSEEN)
        assert unseen <= 3 * (EVERY + BACK), key
        for cause, seconds in true.items():
            # A change that was not seen when it came is seen at the next look.
            assert abs(causes[cause] - seconds) <= unseen + LOOKS, key


# ---------------------------------------------------------------- an API server that is away

AWAY, THERE = START + timedelta(minutes=20), START + timedelta(minutes=140)
THREE = tuple(Window.hour(START + timedelta(hours=n)) for n in range(3))


def test_what_an_api_server_does_not_tell_for_two_hours_series_tell(
    door: Proxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with collecting(door) as portal, watching(portal) as watch:
        _every(portal, watch, AWAY, seconds=120)
        watch.refresh()
        door.script = without_api_server
        for hour in THREE[:2]:
            _every(portal, watch, hour.end + timedelta(minutes=5), seconds=1500)
            assert portal.collect(hour).state is CollectionState.COMPLETE
            portal.derive()
        _assert_pages_tell_the_outage(PageTexts(portal, monkeypatch))
        meanwhile = facts()
        door.script = undisturbed
        with caplog.at_level("INFO"):
            _every(portal, watch, THERE + timedelta(minutes=1), seconds=60)
        assert "too old resource version" in caplog.text
        _every(portal, watch, THREE[-1].end, seconds=120)
        found = _close(portal, THREE)
        _assert_true_lives()
    hours = [one.start for one in THREE[:2]]
    before, after = (_of_hours(told, hours) for told in (meanwhile, found.facts))
    assert differences(before, after) == []
    assert len(before["usage_podhour"]) > 20


def _of_hours(told: Facts, hours: Collection[datetime]) -> Facts:
    """Return who held what in some hours."""
    # SQLite gives times as they are stored: in UTC, without saying so.
    return {
        table: [row for row in told[table] if dict(row)["hour"].replace(tzinfo=UTC) in hours]
        for table in ("usage_podhour", "usage_teamhour")
    }


def _assert_true_lives() -> None:
    """Assert that pods lived as in the scenario, but for the ends that nobody saw."""
    epochs = faults_once().epochs(int(START.timestamp()), int(THREE[-1].end.timestamp()))
    truth = {pod.uid: pod for epoch in epochs for pod in epoch.pods if not pod.claim}
    rows = Pod.objects.filter(uid__in=truth, bound_at__isnull=False)
    assert rows.filter(source="api", lost=True).exists()
    assert rows.filter(source="metrics").exists()
    for row in rows:
        true = truth[row.uid]
        assert row.created_at == _at(true.created), row.name
        assert row.bound_at == _at(true.bound), row.name
        if row.ended_at is not None:
            late = row.ended_at.timestamp() - min(true.finished, true.deleted)
            assert 0.0 <= late <= SCRAPES, row.name


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


_ALLOCATED = r"Allocated average (\d+) %"


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found is not None, text
    return found.group(1)


def _assert_pages_tell_the_outage(pages: PageTexts) -> None:
    """Assert what pages say at 04:05, after the API server was heard last at 02:20."""
    day = "?first=2026-10-01&last=2026-10-01"
    for address in (f"/{day}", f"/capacity/teams/vision/{day}"):
        text = pages.text(address)
        assert "data through 04:00" in text
        assert 0 < int(_found(r"Source of pods (\d+) % API, \d+ % from series", text)) < 100
    assert int(_found(_ALLOCATED, pages.text(f"/{day}"))) > 20
    pending = pages.text("/pending/")
    assert "are shown as of 1h 45m ago ( 1 Oct 02:20 ): the watch has stopped" in pending
    assert "not watched now" in pending
    assert "api-unavailable" in pages.text(f"/admin/data-quality/{day}")


def test_an_hour_that_no_source_tells_is_not_collected_and_not_zero(
    door: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = "?first=2026-10-01&last=2026-10-01"
    with collecting(door) as portal:
        portal.move_to(HOURS[0].end + timedelta(minutes=10))
        portal.collect(HOURS[0])
        portal.derive()
        pages = PageTexts(portal, monkeypatch)
        before = _found(_ALLOCATED, pages.text(f"/{day}"))
        door.script = lambda _: Fault.REFUSED
        portal.move_to(HOURS[1].end + timedelta(minutes=40))
        assert portal.collect(HOURS[1]).state is CollectionState.FAILED
        portal.derive()
        home = pages.text(f"/{day}")
    assert int(_found(_ALLOCATED, home)) == int(before) > 20
    assert "1 hour not collected" in home


def _every(portal: Collecting, watch: Watch, until: datetime, *, seconds: int) -> None:
    """Let a watch take a turn now and then, and at the end."""
    while portal.now() < until:
        watch.turn()
        portal.move_to(min(portal.now() + timedelta(seconds=seconds), until))
    watch.turn()
