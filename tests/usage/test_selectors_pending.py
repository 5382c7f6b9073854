"""What waits: by tier, and the pods that have waited longest."""

from copy import deepcopy
from datetime import UTC, datetime, timedelta

import pytest
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import EVERYTHING, Visibility, visibility_of
from apps.clusters.models import NamespaceClaim
from apps.usage import selectors
from apps.usage.domain.usage_query import Filters
from apps.usage.selectors import PendingGpus
from tests.factories import Portal, make_pod, make_portal, make_workload
from tests.worlds import shared

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
SINCE = datetime(2026, 1, 1, tzinfo=UTC)
AT = datetime(2026, 3, 10, 12, tzinfo=UTC)


_portal = shared(lambda: make_portal(since=SINCE))


@pytest.fixture
def portal(_portal: Portal) -> Portal:
    return deepcopy(_portal)


def oldest(
    *, filters: Filters | None = None, visibility: Visibility = EVERYTHING, limit: int = 10
) -> list[str]:
    rows = selectors.longest_pending(
        AT, filters=filters or Filters(), visibility=visibility, limit=limit
    )
    return [row.pod for row in rows]


def test_pending_work_is_counted_by_tier_over_all_teams(portal: Portal) -> None:
    work = make_workload(portal.clusters[0], "speech", "queue")
    gold, silver = portal.tiers
    make_pod(work, "w1", created_at=AT - 2 * HOUR, tier=silver, units=2.0)
    make_pod(work, "w2", created_at=AT - HOUR, tier=silver, gpu_equivalents=0.5)
    make_pod(work, "bound later", created_at=AT - HOUR, bound_at=AT + SECOND, tier=gold)
    make_pod(work, "bound now", created_at=AT - HOUR, bound_at=AT, tier=gold)
    make_pod(work, "gone", created_at=AT - HOUR, ended_at=AT, tier=gold)
    make_pod(work, "to come", created_at=AT + SECOND, tier=gold)
    make_pod(work, "nowhere", created_at=AT - HOUR)
    assert selectors.pending_by_tier(AT, visibility=visibility_of(portal.dan)) == [
        PendingGpus("gold", 2, 5.0, SINCE),
        PendingGpus("silver", 2, 2.5, AT - 2 * HOUR),
        PendingGpus("undetermined", 1, 1.0, AT - HOUR),
    ]


def test_pending_work_can_be_narrowed_to_clusters(portal: Portal) -> None:
    def waiting(*clusters: str) -> list[PendingGpus]:
        filters = Filters(cluster=clusters)
        return selectors.pending_by_tier(AT, visibility=EVERYTHING, filters=filters)

    every = [PendingGpus("gold", 1, 4.0, SINCE)]
    assert waiting("west") == waiting("west", "east") == waiting() == every
    assert waiting("east") == []


def test_clusters_that_left_the_catalog_wait_for_nothing(portal: Portal) -> None:
    portal.clusters[0].active = False
    portal.clusters[0].save()
    assert selectors.pending_by_tier(AT, visibility=EVERYTHING) == []
    assert oldest() == []


# ---------------------------------------------------------------- the pods


@pytest.fixture
def queued(portal: Portal) -> Portal:
    """Speech waits with four pods beside the one of vision; one was bound, one went."""
    work = make_workload(portal.clusters[1], "speech", "queue")
    silver = portal.tiers[1]
    for name, hours in (("q1", 1), ("q3", 3), ("q2", 2)):
        make_pod(work, name, created_at=AT - hours * HOUR, tier=silver)
    make_pod(work, "no tier", created_at=AT - 4 * HOUR)
    make_pod(work, "bound", created_at=AT - 5 * HOUR, bound_at=AT, tier=silver)
    make_pod(work, "gone", created_at=AT - 5 * HOUR, ended_at=AT, tier=silver)
    return portal


def test_those_that_wait_longest_come_first(queued: Portal) -> None:
    assert oldest() == ["train-2", "no tier", "q3", "q2", "q1"]
    assert oldest(limit=2) == ["train-2", "no tier"]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        pytest.param(Filters(team=("vision",)), ["train-2"], id="team"),
        pytest.param(Filters(cluster=("west",)), ["train-2"], id="cluster"),
        pytest.param(Filters(tier=("silver",)), ["q3", "q2", "q1"], id="tier"),
        pytest.param(Filters(tier=("undetermined",)), ["no tier"], id="no tier"),
        pytest.param(
            Filters(tier=("undetermined",), cluster=("west",)), [], id="no tier elsewhere"
        ),
        pytest.param(Filters(tier=("gold", "undetermined")), ["train-2", "no tier"], id="both"),
    ],
)
def test_waits_can_be_narrowed(queued: Portal, filters: Filters, found: list[str]) -> None:
    assert oldest(filters=filters) == found


@pytest.mark.parametrize(
    ("person", "found"),
    [
        ("ben", ["train-2"]),
        ("dan", ["no tier", "q3", "q2", "q1"]),
        ("cleo", ["train-2", "no tier", "q3", "q2", "q1"]),
    ],
)
def test_pods_that_wait_are_named_to_the_people_of_their_team(
    queued: Portal, person: str, found: list[str]
) -> None:
    assert oldest(visibility=visibility_of(getattr(queued, person))) == found


def test_a_namespace_that_changed_hands_waits_for_its_team_of_now(queued: Portal) -> None:
    NamespaceClaim.objects.filter(team=queued.speech).update(valid_to=AT - HOUR)
    NamespaceClaim.objects.create(team=queued.vision, pattern="speech", valid_from=AT - HOUR)
    assert oldest(visibility=visibility_of(queued.dan)) == []
    rows = selectors.longest_pending(AT, filters=Filters(), visibility=EVERYTHING, limit=9)
    assert {row.team for row in rows} == {"vision"}


def test_a_row_says_what_is_asked_for_and_since_when(queued: Portal) -> None:
    (row,) = selectors.longest_pending(AT, filters=Filters(), visibility=EVERYTHING, limit=1)
    assert (row.cluster, row.namespace, row.owner_kind, row.owner) == (
        *("west", "vision", "Job", "train"),
    )
    assert (row.team, row.tier, row.units, row.since) == ("vision", "gold", 4.0, SINCE)


@pytest.mark.parametrize(("person", "most"), [("cleo", 3), ("dan", 6)])
def test_more_pods_need_no_more_queries(
    queued: Portal,
    person: str,
    most: int,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    visibility = visibility_of(getattr(queued, person))
    for n in range(20):
        work = make_workload(queued.clusters[1], f"speech-{n}", "queue")
        make_pod(work, f"more-{n}", created_at=AT - HOUR, tier=queued.tiers[0])
    with django_assert_max_num_queries(most):
        oldest(visibility=visibility, limit=50)
