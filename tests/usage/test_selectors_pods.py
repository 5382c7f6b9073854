"""Pods of the ledger with what they held."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from apps.accounts.permissions import EVERYTHING, Visibility, visibility_of
from apps.clusters.domain.window import Window
from apps.clusters.models import Namespace, NamespaceTeam
from apps.usage import selectors
from apps.usage.domain.usage_query import Filters, PodRow
from apps.usage.selectors import GroupingRefused
from tests import factories
from tests.factories import PodFact, Portal, held, make_pod, make_portal, make_workload
from tests.shared_rows import copy_of, shared

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
BERLIN = ZoneInfo("Europe/Berlin")
AT = datetime(2026, 3, 10, 12, tzinfo=UTC)
WINDOW = Window(AT, AT + 2 * HOUR)


_portal = shared(make_portal)
portal = copy_of("_portal")


def names(
    window: Window = WINDOW,
    *,
    filters: Filters | None = None,
    visibility: Visibility = EVERYTHING,
) -> list[str]:
    return [row.pod for row in read(window, filters=filters, visibility=visibility)]


def read(
    window: Window = WINDOW,
    *,
    filters: Filters | None = None,
    visibility: Visibility = EVERYTHING,
) -> list[PodRow]:
    page = selectors.pod_page(
        window,
        filters=filters or Filters(),
        visibility=visibility,
        cursor=None,
        page_size=500,
    )
    assert page.next_cursor is None
    return list(page.rows)


@pytest.mark.parametrize(
    ("created", "ended", "there"),
    [
        (WINDOW.start - HOUR, None, True),
        (WINDOW.end - SECOND, None, True),
        (WINDOW.end, None, False),
        (WINDOW.start - HOUR, WINDOW.start, False),
        (WINDOW.start - HOUR, WINDOW.start + SECOND, True),
        (WINDOW.start + HOUR, WINDOW.start + HOUR + SECOND, True),
    ],
    ids=["runs on", "last second", "after", "ended before", "first second", "one second long"],
)
def test_pods_that_lived_in_the_window_are_there(
    portal: Portal, created: datetime, ended: datetime | None, *, there: bool
) -> None:
    work = make_workload(portal.clusters[0], "vision", "one")
    make_pod(work, "one", created_at=created, finished_at=ended)
    assert ("one" in names()) is there


def test_newest_created_are_first_and_then_in_the_order_they_were_noted(portal: Portal) -> None:
    work = make_workload(portal.clusters[0], "vision", "some")
    for name, minutes in (("a", 10), ("b", 30), ("c", 10)):
        make_pod(work, name, created_at=AT + timedelta(minutes=minutes))
    assert names()[:3] == ["b", "a", "c"]


def test_amounts_are_the_sums_of_the_windows_hours(portal: Portal) -> None:
    factories.collect(
        [AT - HOUR, AT, AT + HOUR, AT + 2 * HOUR], portal.node_gpus, portal.facts_of, zone=BERLIN
    )
    (row,) = read(filters=Filters(node=("west-2",)))
    assert row.pod == "train-1"
    assert row.amounts.allocated == 2 * 2 * 10**9
    assert row.amounts.capacity is None
    assert row.amounts.memory_peak_mib == 101.0


def test_a_filter_on_capacity_type_is_refused_with_what_to_do(portal: Portal) -> None:
    with pytest.raises(GroupingRefused, match="narrow them by node"):
        read(filters=Filters(capacity_type=("spot",)))


# ---------------------------------------------------------------- namespaces that change hands


@pytest.fixture
def moved(portal: Portal) -> Portal:
    """`speech` goes from team speech to team vision in the middle of the window."""
    NamespaceTeam.objects.filter(team=portal.speech).update(valid_to=AT + HOUR)
    NamespaceTeam.objects.create(team=portal.vision, pattern="speech", valid_from=AT + HOUR)
    notes = portal.pods[3]

    def facts(hour: datetime) -> list[PodFact]:
        team = portal.speech if hour < AT + HOUR else portal.vision
        return [PodFact(notes, portal.node_gpus[0], team, held(1.0))]

    factories.collect([AT, AT + HOUR], portal.node_gpus, facts, zone=BERLIN)
    return portal


@pytest.mark.parametrize(
    ("person", "team", "gpu_hours"),
    [("cleo", "vision", 2), ("ada", "vision", 1), ("dan", "speech", 1)],
)
def test_each_team_sees_of_a_pod_what_it_held_while_it_was_theirs(
    moved: Portal, person: str, team: str, gpu_hours: int
) -> None:
    rows = read(visibility=visibility_of(getattr(moved, person)))
    (row,) = [row for row in rows if row.pod == "notes-0"]
    assert (row.team, row.amounts.allocated) == (team, gpu_hours * 10**9)


def test_a_pod_that_ended_before_its_namespace_moved_stays_with_the_old_team(
    moved: Portal,
) -> None:
    work = make_workload(moved.clusters[0], "speech", "old")
    make_pod(work, "old", created_at=AT, finished_at=AT + HOUR)
    assert "old" in names(visibility=visibility_of(moved.dan))
    assert "old" not in names(visibility=visibility_of(moved.ada))
    assert {row.pod: row.team for row in read()}["old"] == "speech"


def test_a_team_filter_follows_the_namespace_too(moved: Portal) -> None:
    (row,) = [r for r in read(filters=Filters(team=("speech",))) if r.pod == "notes-0"]
    assert (row.team, row.amounts.allocated) == ("speech", 10**9)


def test_hundreds_of_namespaces_that_moved_are_read_at_once(portal: Portal) -> None:
    west = portal.clusters[0]
    Namespace.objects.bulk_create(Namespace(cluster=west, name=f"sp-{n}") for n in range(1500))
    NamespaceTeam.objects.create(
        team=portal.speech, pattern="sp-*", position=9, valid_from=AT + HOUR
    )
    work = make_workload(west, "sp-1499", "moved")
    make_pod(work, "moved", created_at=AT)
    make_pod(work, "too early", created_at=AT, finished_at=AT + HOUR)
    assert "moved" in names(visibility=visibility_of(portal.dan))
    assert "too early" not in names(visibility=visibility_of(portal.dan))


def test_hundreds_of_namespaces_that_each_moved_at_their_own_time_are_read_too(
    portal: Portal,
) -> None:
    west = portal.clusters[0]
    Namespace.objects.bulk_create(Namespace(cluster=west, name=f"sp-{n}") for n in range(450))
    NamespaceTeam.objects.bulk_create(
        NamespaceTeam(
            team=portal.speech, pattern=f"sp-{n}", position=9 + n, valid_from=AT + (n + 1) * SECOND
        )
        for n in range(450)
    )
    work = make_workload(west, "sp-449", "moved")
    make_pod(work, "moved", created_at=AT)
    assert "moved" in names(visibility=visibility_of(portal.dan))


# ---------------------------------------------------------------- one pod


def test_a_pod_that_was_deleted_while_it_waited_has_an_end(portal: Portal) -> None:
    work = make_workload(portal.clusters[0], "vision", "gave-up")
    make_pod(work, "gave-up", created_at=AT, ended_at=AT + HOUR)
    row = selectors.pod_row("west", "uid-gave-up", window=WINDOW, visibility=EVERYTHING)
    assert row is not None
    assert (row.bound_at, row.finished_at, row.end) == (None, None, AT + HOUR)
    assert row.pending_until == AT + HOUR


def test_one_pod_is_found_by_cluster_and_uid_whatever_the_window(portal: Portal) -> None:
    later = Window(AT + 1000 * HOUR, AT + 1001 * HOUR)
    row = selectors.pod_row("west", "uid-train-0", window=later, visibility=EVERYTHING)
    assert row is not None
    assert (row.pod, row.team, row.amounts.allocated) == ("train-0", "vision", 0)
    earlier = Window(AT - 9000 * HOUR, AT - 8999 * HOUR)
    assert selectors.pod_row("west", "uid-train-0", window=earlier, visibility=EVERYTHING)


@pytest.mark.parametrize(
    ("cluster", "uid"), [("east", "uid-train-0"), ("west", "uid-nobody"), ("", "")]
)
def test_a_pod_that_is_not_there_is_none(portal: Portal, cluster: str, uid: str) -> None:
    assert selectors.pod_row(cluster, uid, window=WINDOW, visibility=EVERYTHING) is None


@pytest.mark.parametrize(("person", "seen"), [("ada", True), ("ben", True), ("dan", False)])
def test_one_pod_is_for_the_people_of_its_team(portal: Portal, person: str, *, seen: bool) -> None:
    visibility = visibility_of(getattr(portal, person))
    row = selectors.pod_row("west", "uid-train-0", window=WINDOW, visibility=visibility)
    assert (row is not None) is seen
