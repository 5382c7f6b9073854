"""Waiting over time: sums of days are those of the intervals, whatever was rolled and when."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.db import DataError, connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from apps.accounts.models import Team
from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.domain.window import Window, day_of
from apps.clusters.models import NamespaceTeam
from apps.pending.domain.diagnosis import Cause, Counts
from apps.pending.models import CauseInterval, Episode, PendingDay, RefreshState
from apps.pending.selectors import HistoryRow, PendingFilters, PendingGrouping, pending_history
from apps.pending.services import prune, refresh, roll_days
from apps.pending.services.days import roll_day
from apps.usage.domain.amounts import NANO
from tests.factories import Portal, make_pod, make_portal, make_workload
from tests.pending.rows import Script, make_episode, make_eviction, make_looked, waits
from tests.shared_rows import copy_of, shared

# Midnight in Berlin.
MONDAY = datetime(2026, 11, 15, 23, tzinfo=UTC)
HOUR = timedelta(hours=1)
NOW = MONDAY + 60 * HOUR
WEEK = Window(MONDAY, MONDAY + 168 * HOUR)
OUTSIDER = Visibility(everything=False)


def fill() -> Portal:
    """Return a portal in which vision waited over a midnight and speech was refused pods."""
    portal = make_portal(since=MONDAY - 100 * HOUR)
    west = portal.clusters[0]
    for cluster in portal.clusters:
        make_looked(cluster, NOW)
    train, notes = make_workload(west, "vision", "train"), make_workload(west, "speech", "notes")
    make_episode(
        train,
        since=MONDAY + 22 * HOUR,
        until=MONDAY + 27 * HOUR,
        tier=portal.tiers[0],
        units=2.0,
        intervals=[
            (MONDAY + 22 * HOUR, "capacity", "pending"),
            (MONDAY + 25 * HOUR, "starting", "starting"),
        ],
    )
    make_episode(
        notes, since=MONDAY + 50 * HOUR, cause="quota", counts="suppressed", kind="StatefulSet"
    )
    make_episode(notes, since=MONDAY, cause="claim", counts="nothing", kind="ResourceClaim")
    return portal


_portal = shared(fill)
portal = copy_of("_portal")


def told(rows: list[HistoryRow]) -> list[tuple[object, ...]]:
    return [
        (
            *([] if row.day is None else [row.day.day]),
            *row.names.values(),
            round(row.sums.waited / NANO, 9),
            round(row.sums.suppressed / NANO, 9),
            round(row.sums.starting / NANO, 9),
            row.sums.began,
            row.sums.ended,
        )
        for row in rows
    ]


BY_DAY_AND_CAUSE = [
    (16, "capacity", 4.0, 0.0, 0.0, 1, 0),
    (17, "capacity", 2.0, 0.0, 0.0, 0, 1),
    (17, "starting", 0.0, 0.0, 4.0, 0, 0),
    (18, "quota", 0.0, 10.0, 0.0, 1, 0),
]


@pytest.mark.parametrize("rolled", [False, True], ids=["from intervals", "from sums of days"])
def test_past_pending_work_is_told_by_day_and_cause(portal: Portal, rolled: bool) -> None:
    if rolled:
        roll_days(now=NOW)
        CauseInterval.objects.filter(end__lt=MONDAY + 48 * HOUR).delete()
    rows = pending_history(WEEK, now=NOW, visibility=OUTSIDER)
    assert told(rows) == BY_DAY_AND_CAUSE


@pytest.mark.parametrize(
    ("by", "filters", "found"),
    [
        pytest.param(
            (PendingGrouping.TEAM,),
            PendingFilters(),
            [("speech", 0.0, 10.0, 0.0, 1, 0), ("vision", 6.0, 0.0, 4.0, 1, 1)],
            id="by team",
        ),
        pytest.param(
            (PendingGrouping.TIER, PendingGrouping.CLUSTER),
            PendingFilters(team=("vision",)),
            [("gold", "west", 6.0, 0.0, 4.0, 1, 1)],
            id="by tier, of a team",
        ),
        pytest.param(
            (PendingGrouping.CAUSE,),
            PendingFilters(cause=("quota",), cluster=("west",)),
            [("quota", 0.0, 10.0, 0.0, 1, 0)],
            id="of a cause",
        ),
        pytest.param(
            (PendingGrouping.CAUSE,), PendingFilters(cluster=("east",)), [], id="elsewhere"
        ),
        pytest.param(
            (PendingGrouping.TEAM,),
            PendingFilters(tier=("undetermined",)),
            [("speech", 0.0, 10.0, 0.0, 1, 0)],
            id="in no tier yet",
        ),
        pytest.param(
            (PendingGrouping.NAMESPACE,), PendingFilters(), [], id="namespaces, to an outsider"
        ),
    ],
)
@pytest.mark.parametrize("rolled", [False, True], ids=["live", "rolled"])
def test_past_pending_work_is_told_by_other_groups(
    portal: Portal,
    rolled: bool,
    by: tuple[PendingGrouping, ...],
    filters: PendingFilters,
    found: list[object],
) -> None:
    if rolled:
        roll_days(now=NOW)
    rows = pending_history(WEEK, now=NOW, visibility=OUTSIDER, by=by, filters=filters)
    assert told(rows) == found


def test_namespaces_are_told_to_who_sees_their_team(portal: Portal) -> None:
    mine = Visibility(everything=False, team_ids=frozenset({portal.vision.pk}))
    rows = pending_history(WEEK, now=NOW, visibility=mine, by=(PendingGrouping.NAMESPACE,))
    assert [row.groups for row in rows] == [{"namespace": "vision"}]


def test_parts_of_days_are_cut_from_intervals(portal: Portal) -> None:
    roll_days(now=NOW)
    window = Window(MONDAY + 23 * HOUR, MONDAY + 26 * HOUR)
    rows = pending_history(window, now=NOW, visibility=EVERYTHING)
    assert told(rows) == [
        (16, "capacity", 2.0, 0.0, 0.0, 0, 0),
        (17, "capacity", 2.0, 0.0, 0.0, 0, 0),
        (17, "starting", 0.0, 0.0, 2.0, 0, 0),
    ]


def test_a_namespace_that_changes_hands_divides_the_day(portal: Portal) -> None:
    at = MONDAY + 24 * HOUR
    NamespaceTeam.objects.filter(team=portal.vision, pattern="vision").update(valid_to=at)
    NamespaceTeam.objects.create(team=portal.speech, pattern="vision", valid_from=at)
    NamespaceTeam.objects.filter(pattern="vision-*").update(valid_to=at)
    rows = pending_history(
        WEEK, now=NOW, visibility=EVERYTHING, by=(PendingGrouping.DAY, PendingGrouping.TEAM)
    )
    assert [(row.day, *row.names.values(), row.sums.waited / NANO) for row in rows][:2] == [
        (date(2026, 11, 16), "vision", 4.0),
        (date(2026, 11, 17), "speech", 2.0),
    ]


def test_rolling_again_changes_nothing(portal: Portal) -> None:
    roll_days(now=NOW)
    keys = ("day", "namespace", "team", "tier", "cause", "waited", "suppressed", "starting")
    before = set(PendingDay.objects.values_list(*keys))
    RefreshState.objects.update(rolled_to=MONDAY)
    assert roll_days(now=NOW) == 2 * 3
    assert set(PendingDay.objects.values_list(*keys)) == before
    assert {team for _, _, team, *_ in before} <= set(Team.objects.values_list("pk", flat=True))


def test_only_days_since_the_last_time_are_rolled(portal: Portal) -> None:
    roll_days(now=NOW)
    assert roll_days(now=NOW + timedelta(minutes=5)) == 2


@pytest.mark.parametrize("rolled", [False, True], ids=["live", "rolled"])
def test_the_number_of_queries_is_fixed(portal: Portal, rolled: bool) -> None:
    if rolled:
        roll_days(now=NOW)
    for number in range(20):
        make_episode(
            make_workload(portal.clusters[0], f"vision-{number}", "w"), since=MONDAY + HOUR
        )
    window = Window(MONDAY + HOUR, NOW + HOUR)
    with CaptureQueriesContext(connection) as queries:
        pending_history(window, now=NOW, visibility=EVERYTHING)
    assert len(queries) <= 18


def test_what_is_past_its_retention_is_forgotten(portal: Portal) -> None:
    old = datetime(2025, 1, 1, tzinfo=UTC)
    train = make_workload(portal.clusters[0], "vision", "train")
    make_episode(train, "old", since=old, until=old + HOUR)
    make_episode(train, "lasts", since=old)
    make_eviction(train, "uid-old", at=old)
    roll_days(now=NOW)
    sums = PendingDay.objects.count()
    assert prune(now=NOW) == 2
    assert not Episode.objects.filter(name="old").exists()
    assert Episode.objects.filter(name="lasts").exists()
    assert PendingDay.objects.count() == sums


def total(**where: Any) -> float:
    return sum(PendingDay.objects.filter(**where).values_list("waited", flat=True)) / NANO


def test_what_is_seen_to_wait_since_before_the_retention_leaves_old_sums_alone(
    portal: Portal, settings: Settings
) -> None:
    settings.LEDGER_RETENTION_DAYS = 20
    old = NOW - timedelta(days=25)
    west = portal.clusters[0]
    make_episode(make_workload(west, "vision", "train"), since=old, until=old + 5 * HOUR)
    RefreshState.objects.update(rolled_to=None)
    for pk in RefreshState.objects.values_list("cluster_id", flat=True):
        roll_day(pk, day_of(old, portal.zone), now=NOW, zone=portal.zone)
    roll_days(now=NOW)
    day = day_of(old, portal.zone)
    assert total(day=day) == 5.0
    prune(now=NOW)
    job = waits(
        "uid-job",
        kind="Job",
        since=(NOW - timedelta(days=30)).timestamp(),
        counts=Counts.SUPPRESSED,
        cause=Cause.ADMISSION,
    )
    later = NOW + timedelta(minutes=1)
    make_looked(west, NOW)
    assert refresh(west.pk, now=later, diagnose=Script([job])) >= 1
    mark = RefreshState.objects.get(cluster=west).rolled_to
    assert mark is not None
    assert mark > old + timedelta(days=2)
    roll_days(now=later)
    assert total(day=day) == 5.0


def test_a_request_for_more_than_a_sum_can_hold_is_kept_as_the_most(portal: Portal) -> None:
    west, east = portal.clusters
    make_episode(make_workload(west, "vision", "huge"), since=NOW - 2 * HOUR, units=9e18, tier=None)
    make_episode(make_workload(east, "speech", "notes"), since=NOW - 2 * HOUR)
    assert roll_days(now=NOW) > 0
    assert PendingDay.objects.filter(cluster=west, waited=2**63 - 1).exists()
    assert PendingDay.objects.filter(cluster=east, waited=2 * NANO).exists()


def test_a_cluster_whose_days_cannot_be_summed_keeps_no_other_from_it(portal: Portal) -> None:
    west, east = portal.clusters
    make_episode(make_workload(east, "speech", "notes"), since=NOW - 2 * HOUR)

    def refused(execute: Any, sql: str, params: Any, *rest: Any) -> Any:
        if sql.startswith("DELETE") and "pendingday" in sql and west.pk in params:
            raise DataError("out of range")
        return execute(sql, params, *rest)

    with connection.execute_wrapper(refused):
        roll_days(now=NOW)
    assert set(PendingDay.objects.values_list("cluster__name", flat=True)) == {"east"}


def test_what_is_written_into_a_day_just_summed_is_summed_the_next_time(portal: Portal) -> None:
    west = portal.clusters[0]
    train = make_workload(west, "vision", "train")
    refresh(west.pk, now=NOW, diagnose=Script())
    roll_days(now=NOW)
    RefreshState.objects.update(rolled_to=MONDAY)
    before = total(cluster=west, day=day_of(MONDAY, portal.zone))
    written: list[str] = []

    def meanwhile(execute: Any, sql: str, params: Any, *rest: Any) -> Any:
        # While the second day is summed, a gap of the ledger of the first day is filled.
        result = execute(sql, params, *rest)
        if sql.startswith("SELECT") and "pendingday" in sql and west.pk in params:
            written.append(sql)
            if len(written) == 2:
                at = MONDAY + 3 * HOUR
                make_pod(train, "late", created_at=at, bound_at=at + HOUR, started_at=at + HOUR)
                refresh(west.pk, now=NOW, diagnose=Script())
        return result

    with connection.execute_wrapper(meanwhile):
        roll_days(now=NOW)
    assert len(written) >= 2
    roll_days(now=NOW + timedelta(minutes=5))
    after = total(cluster=west, day=day_of(MONDAY, portal.zone))
    assert after == pytest.approx(before + 1.0)
