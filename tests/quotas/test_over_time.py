"""How full quotas were, and what was held for nothing, to each reader what the reader may see."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from apps.accounts.models import Team
from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.domain.observed.objects import FlavorSnapshot, ObservedKind, QuotaScope
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster
from apps.quotas.domain.keys import QuotaRef
from apps.quotas.models import QuotaKey, QuotaKeyHour
from apps.quotas.selectors import (
    QuotaFilters,
    QuotaPoint,
    held_but_unused,
    quota_history,
)
from apps.usage.domain.usage_query import TimeStep
from tests.factories import H100, Portal, make_portal
from tests.quotas.quota_rows import GPU, KEY, see, see_quota
from tests.shared_rows import copy_of, shared

pytestmark = pytest.mark.django_db

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
TODAY = Window(START, START + 24 * HOUR)


_portal = shared(lambda: make_portal("UTC", since=START))
portal = copy_of("_portal")


def note(
    cluster: Cluster,
    namespace: str,
    team: Team | None,
    amounts: Sequence[tuple[float, float | None]],
    *,
    source: str = "ResourceQuota",
    key: str = KEY,
    start: datetime = START,
    seconds: float = 3600,
) -> None:
    """Note an hour for each (hard, used)."""
    of = QuotaKey.objects.get_or_create(
        cluster=cluster, source=source, namespace=namespace, name="gpus", key=key
    )[0]
    for n, (hard, used) in enumerate(amounts):
        known: dict[str, Any] = {"held": used, "pending": 0.0, "suppressed": 1.0}
        if used is None:
            known = {}
        QuotaKeyHour.objects.create(
            key=of, cluster=cluster, team=team, hour=start + n * HOUR, seconds=seconds,
            hard=hard, used=used, **known,
        )  # fmt: skip


def history(visibility: Visibility = EVERYTHING, **values: Any) -> list[QuotaPoint]:
    ref = QuotaRef("ResourceQuota", "vision", "gpus", KEY, "west")
    return quota_history(TODAY, ref, visibility=visibility, **values)


def test_an_hour_is_a_point_of_means(portal: Portal) -> None:
    note(portal.clusters[0], "vision", portal.vision, [(8, 4), (2, 0.5)])
    note(
        portal.clusters[0], "vision", portal.vision, [(2, 0.5)], start=START + 5 * HOUR, seconds=900
    )
    points = history()
    assert [point.period for point in points] == [START, START + HOUR, START + 5 * HOUR]
    assert [(p.hard, p.used, p.saturation_ratio) for p in points] == [
        (8, 4, 0.5), (2, 0.5, 0.25), (8, 2, 0.25),
    ]  # fmt: skip


def test_days_are_sums_of_hours_over_the_time_it_was_there(portal: Portal) -> None:
    note(portal.clusters[0], "vision", portal.vision, [(8, 4), (4, 4), (6, None)])
    (point,) = history(interval=TimeStep.DAY)
    assert (point.hard, point.used, point.suppressed, point.seconds) == (6, 4, 1, 3 * 3600)


def test_what_is_not_known_is_no_zero(portal: Portal) -> None:
    note(portal.clusters[0], "vision", portal.vision, [(8, None)])
    (point,) = history()
    assert (point.used, point.saturation_ratio) == (None, None)


def test_a_namespace_that_moved_shows_each_team_its_own_hours(portal: Portal) -> None:
    note(portal.clusters[0], "vision", portal.vision, [(8, 4)])
    note(portal.clusters[0], "vision", portal.speech, [(6, 1)], start=START + HOUR)
    own = Visibility(everything=False, team_ids=frozenset([portal.speech.pk]))
    assert [(p.team, p.hard) for p in history()] == [("vision", 8), ("speech", 6)]
    assert [(p.team, p.hard) for p in history(own)] == [("speech", 6)]
    assert history(Visibility(everything=False)) == []


def test_hours_of_no_one_team_are_for_those_who_see_the_key_now(portal: Portal) -> None:
    note(portal.clusters[0], "vision", None, [(8, 4)])
    note(portal.clusters[0], "vision", portal.vision, [(8, 4)], start=START + HOUR)
    note(portal.clusters[0], "vision", portal.speech, [(6, 1)], start=START + 2 * HOUR)
    own = Visibility(everything=False, team_ids=frozenset([portal.vision.pk]))
    assert [p.team for p in history(own)] == ["vision"]
    assert [p.team for p in history(own, teamless=True)] == [None, "vision"]


def test_a_history_takes_three_queries(
    portal: Portal, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    note(portal.clusters[0], "vision", portal.vision, [(8, 4)] * 24)
    with django_assert_num_queries(3):
        assert len(history()) == 24


def test_what_was_allowed_and_not_asked_for_and_what_was_idle(portal: Portal) -> None:
    portal.collect(TODAY)
    west = portal.clusters[0]
    note(west, "vision", portal.vision, [(8, 6), (8, 10), (8, None)])
    note(west, "speech", portal.speech, [(4, 0)])
    note(west, "", portal.vision, [(9, 9)], source="ClusterQueue", key=f"a100/{GPU}")
    note(west, "vision", portal.vision, [(8, 0)], key=GPU)
    rows = held_but_unused(TODAY, visibility=EVERYTHING)
    assert [(r.namespace, r.team, r.hard, r.used, r.unused) for r in rows] == [
        ("speech", "speech", 4, 0, 4),
        ("vision", "vision", 16, 16, 2),
        ("", "vision", 9, 9, 0),
    ]
    assert [row.idle_gpu_hours for row in rows] == [0, 0, None]
    assert [row.tiers for row in rows] == [("gold", "silver")] * 3


def test_unused_quota_is_told_of_teams_that_the_reader_sees(portal: Portal) -> None:
    portal.collect(TODAY)
    west = portal.clusters[0]
    note(west, "vision", portal.vision, [(8, 6)])
    note(west, "speech", portal.speech, [(4, 0)])
    own = Visibility(everything=False, team_ids=frozenset([portal.vision.pk]))
    assert [row.namespace for row in held_but_unused(TODAY, visibility=own)] == ["vision"]


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        (QuotaFilters(cluster=("west",)), 1),
        (QuotaFilters(cluster=("east",)), 0),
        (QuotaFilters(team=("speech",)), 0),
        (QuotaFilters(namespace=("vision",)), 1),
        (QuotaFilters(source=("Queue",)), 0),
        (QuotaFilters(tier=("gold",)), 1),
        (QuotaFilters(tier=("bronze",)), 0),
    ],
    ids=str,
)
def test_filters_narrow_what_is_unused(portal: Portal, filters: QuotaFilters, count: int) -> None:
    note(portal.clusters[0], "vision", portal.vision, [(8, 6)])
    assert len(held_but_unused(TODAY, filters=filters, visibility=EVERYTHING)) == count


def test_claims_that_a_quota_with_scopes_does_not_count_are_not_unused(portal: Portal) -> None:
    """Hours alone do not say that a quota has scopes; what was set then does."""
    west = portal.clusters[0]
    key = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
    note(west, "vision", portal.vision, [(8, 0)], key=key)
    assert len(held_but_unused(TODAY, visibility=EVERYTHING)) == 1
    scopes = (QuotaScope("PriorityClass", "In", ("high",)),)
    see_quota(west, "vision", 8, key=key, scopes=scopes, since=START)
    assert held_but_unused(TODAY, visibility=EVERYTHING) == []


def test_an_unused_queue_reaches_the_tiers_of_its_flavor(portal: Portal) -> None:
    west = portal.clusters[0]
    see(
        west,
        ObservedKind.RESOURCE_FLAVOR,
        FlavorSnapshot({"nvidia.com/gpu.product": H100}),
        name="big",
    )
    for flavor in ("big", "any"):
        key = f"{flavor}/{GPU}"
        note(west, "", portal.vision, [(8, 0)], source="ClusterQueue", key=key)
    rows = {row.key: row.tiers for row in held_but_unused(TODAY, visibility=EVERYTHING)}
    assert rows == {f"any/{GPU}": ("gold", "silver"), f"big/{GPU}": ("gold",)}
