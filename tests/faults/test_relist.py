"""A list of 20,000 pods after a server forgot what came before."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from apps.clusters.models import Cluster, Pod
from apps.clusters.services.watch.collections import PODS
from simulator.clock import PinnedClock
from tests.bench.api_server import pages
from tests.bench.fleet import LAST
from tests.faults.watching import Watch
from tests.recorded_api import Answer, Request, recorded, serving

pytestmark = [pytest.mark.django_db, pytest.mark.exhaustive]

MANY = 20_000
BEGAN = datetime.fromtimestamp(LAST, UTC)


def _forgetful(gone: set[str]) -> Callable[[Request], Answer]:
    """Return a server that lists all pods but some, and forgets each version at once."""
    found = pages(MANY)

    def answer(request: Request) -> Answer:
        if "watch" in request.query:
            return Answer(recorded("errors/410-watch-too-old.jsonl"), stream=True)
        chunks = found.get(request.path)
        if chunks is None:
            return Answer(b"404 page not found", 404)
        body = chunks[int(request.query.get("continue", "0"))]
        if request.path == PODS and gone:
            listed = msgspec.json.decode(body)
            listed["items"] = [one for one in listed["items"] if one["metadata"]["uid"] not in gone]
            body = msgspec.json.encode(listed)
        return Answer(body)

    return answer


def test_a_list_of_20000_pods_ends_those_that_went_and_no_others() -> None:
    gone: set[str] = set()
    clock = PinnedClock(round(BEGAN.timestamp() * 1000))

    def now() -> datetime:
        return datetime.fromtimestamp(clock.now_ms() / 1000, UTC)

    with serving(_forgetful(gone)) as server:
        Cluster.objects.create(name="west", kubernetes={"api_server": server.url})
        watch = Watch(now)
        watch.turn()
        before = _rows()
        there = sorted(uid for uid, row in before.items() if row["ended_at"] is None)
        gone.update(there[::10])
        clock.advance(timedelta(hours=2).total_seconds())
        watch.turn()
        watch.end()
    after = _rows()
    assert len(before) == len(after) == MANY
    assert len(gone) > 500
    changed = {uid for uid, row in after.items() if row != before[uid]}
    assert changed == gone
    ends = [row["ended_at"] for uid, row in after.items() if uid in gone]
    assert {row["lost"] for uid, row in after.items() if uid in gone} == {True}
    # When they were seen last: some pods of this list had started just before.
    assert all(BEGAN <= end < BEGAN + timedelta(minutes=1) for end in ends)


def _rows() -> dict[str, dict[str, Any]]:
    columns = ("uid", "created_at", "bound_at", "started_at", "ended_at", "runs", "lost")
    return {row["uid"]: row for row in Pod.objects.order_by("uid").values(*columns)}
