"""What pages can be narrowed by, and what waits where they are."""

from datetime import UTC, datetime, timedelta

import pytest
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import EVERYTHING, Visibility, visibility_of
from apps.clusters.models import NamespaceTeam
from apps.usage.domain.usage_query import Filters
from apps.usage.selectors import PendingGpus
from apps.usage.selectors.names import filter_names, namespaces_seen
from apps.usage.selectors.pending import pending_of_teams
from tests.factories import Portal, make_pod, make_portal, make_workload
from tests.shared_rows import copy_of, shared

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
SINCE = datetime(2026, 1, 1, tzinfo=UTC)
AT = datetime(2026, 3, 10, 12, tzinfo=UTC)
EVERY = ["nowhere", "speech", "stray", "vision", "vision-prod"]


_portal = shared(lambda: make_portal(since=SINCE))
portal = copy_of("_portal")


def test_names_are_those_there_ever_were(
    portal: Portal, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    portal.tiers[0].active = False
    portal.tiers[0].save()
    with django_assert_num_queries(1):
        names = filter_names(visibility=visibility_of(portal.cleo))
    assert names["tier"] == ["gold", "silver", "undetermined", "unmatched"]
    assert names["team"] == ["speech", "unassigned", "vision"]
    assert len(names["gpu_model"]) == 2
    assert names["capacity_type"] == ["on-demand", "spot", "reserved", "unknown"]


@pytest.mark.parametrize(
    ("person", "seen"),
    [
        ("cleo", ("speech", "stray", "vision", "vision-prod")),
        ("ben", ("vision", "vision-prod")),
        ("dan", ("speech",)),
    ],
)
def test_namespaces_are_there_for_who_sees_their_team(
    person: str, seen: tuple[str, ...], portal: Portal
) -> None:
    visibility = visibility_of(getattr(portal, person))
    assert namespaces_seen(EVERY, visibility=visibility, now=AT) == seen


def test_a_namespace_that_was_a_teams_is_still_seen_by_it(portal: Portal) -> None:
    NamespaceTeam.objects.filter(team=portal.vision).update(valid_to=AT - 24 * HOUR)
    own = Visibility(everything=False, team_ids=frozenset({portal.vision.pk}))
    assert namespaces_seen(["vision"], visibility=own, now=AT) == ("vision",)
    later = AT + timedelta(days=500)
    assert namespaces_seen(["vision"], visibility=own, now=later) == ()


def test_no_names_need_no_query(
    portal: Portal, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(0):
        assert namespaces_seen((), visibility=EVERYTHING, now=AT) == ()


WAITS = [PendingGpus("gold", 1, 4.0, SINCE)]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (Filters(team=("vision",)), WAITS),
        (Filters(team=("speech",)), [PendingGpus("silver", 2, 3.0, AT - 2 * HOUR)]),
        (
            Filters(team=("speech", "vision")),
            [*WAITS, PendingGpus("silver", 2, 3.0, AT - 2 * HOUR)],
        ),
        (Filters(team=("vision",), tier=("silver",)), []),
        (Filters(team=("vision",), cluster=("east",)), []),
        (Filters(namespace=("vision",)), WAITS),
        (Filters(namespace=("vision-prod",)), []),
        (Filters(team=("vision",), gpu_model=("any",), capacity_type=("spot",)), WAITS),
        (Filters(team=("unassigned",)), [PendingGpus("undetermined", 1, 1.0, AT - HOUR)]),
        (
            Filters(team=("unassigned",), tier=("undetermined",)),
            [PendingGpus("undetermined", 1, 1.0, AT - HOUR)],
        ),
        (Filters(team=("unassigned",), tier=("gold",)), []),
    ],
)
def test_pending_work_is_of_the_teams_and_namespaces_asked_for(
    filters: Filters,
    found: list[PendingGpus],
    portal: Portal,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    queue = make_workload(portal.clusters[0], "speech", "queue")
    stray = make_workload(portal.clusters[0], "stray", "stray")
    make_pod(queue, "w1", created_at=AT - 2 * HOUR, tier=portal.tiers[1], units=2.0)
    make_pod(queue, "w2", created_at=AT - HOUR, tier=portal.tiers[1])
    make_pod(queue, "bound", created_at=AT - HOUR, bound_at=AT, tier=portal.tiers[1])
    make_pod(queue, "gone", created_at=AT - HOUR, ended_at=AT, tier=portal.tiers[1])
    make_pod(stray, "nobody knows", created_at=AT - HOUR)
    with django_assert_max_num_queries(3):
        assert pending_of_teams(AT, filters=filters, visibility=EVERYTHING) == found


def test_sums_of_a_team_are_for_all_and_those_of_a_namespace_are_not(portal: Portal) -> None:
    dan = visibility_of(portal.dan)
    assert pending_of_teams(AT, filters=Filters(team=("vision",)), visibility=dan) == WAITS
    assert pending_of_teams(AT, filters=Filters(namespace=("vision",)), visibility=dan) == []
