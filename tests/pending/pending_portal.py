"""A portal in which pods pend, and what is read of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.accounts.permissions import Visibility
from tests.factories import Portal, make_portal, make_workload, note_collection
from tests.pending.rows import findings, make_episode, make_looked

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def make_waiting_portal() -> Portal:
    """Return a portal where vision waits twice, speech is refused pods and one thing is over."""
    portal = make_portal(since=NOW - 48 * HOUR)
    west, east = portal.clusters
    for cluster in portal.clusters:
        make_looked(cluster, NOW)
    note_collection(east, NOW - HOUR)
    train = make_workload(west, "vision", "train")
    make_episode(
        train,
        "train-2",
        since=NOW - 2 * HOUR,
        units=4.0,
        tier=portal.tiers[0],
        detail="none free",
        findings=findings(
            blockers=["node:west-1"],
            suggestions=[{"action": "free", "text": "Free 4 GPUs.", "change": {"amount": 4}}],
        ),
    )
    make_episode(train, "late", since=NOW - HOUR, tier=portal.tiers[1], cause="taint")
    notes = make_workload(east, "speech", "notes", "StatefulSet")
    make_episode(
        notes,
        since=NOW - 3 * HOUR,
        kind="StatefulSet",
        cause="quota",
        counts="suppressed",
        units=2.0,
    )
    make_episode(train, "over", since=NOW - 5 * HOUR, until=NOW - 4 * HOUR)
    return portal


def of(*teams: object) -> Visibility:
    return Visibility(everything=False, team_ids=frozenset(team.pk for team in teams))  # type: ignore[attr-defined]


@contextmanager
def at_most(queries: int) -> Iterator[None]:
    with CaptureQueriesContext(connection) as captured:
        yield
    assert len(captured) <= queries, [q["sql"][:200] for q in captured]
