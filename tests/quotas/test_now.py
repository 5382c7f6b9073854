"""Quotas as they are, to each reader what the reader may see."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from apps.accounts.models import Team
from apps.accounts.permissions import Visibility
from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    Condition,
    FlavorQuota,
    FlavorSnapshot,
    FlavorUse,
    KaiQueueSnapshot,
    LocalQueueSnapshot,
    ObservedKind,
    PodGroupSnapshot,
    PodSet,
    QuotaScope,
    QuotaSnapshot,
    VolcanoQueueSnapshot,
    WorkloadSnapshot,
)
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, Pod, WatchCoverage, WatchIssue
from apps.quotas.models import QuotaHour, QuotaKey, QuotaKeyHour
from apps.quotas.selectors import (
    QuotaBand,
    QuotaFilters,
    QuotaOrder,
    QuotaRow,
    quota_rows,
    quotas_now,
    team_quotas,
)
from apps.quotas.selectors.explain import explain_quota
from apps.usage.domain.explained import Explained, evaluate
from apps.usage.selectors import CursorRefused
from tests.factories import (
    A100,
    H100,
    ensure_builtin,
    make_cluster,
    make_pod,
    make_team,
    make_tier,
    make_workload,
)
from tests.quotas.quota_rows import GPU, HOUR, KEY, NOON, NOW, refuse, see, see_quota, watch

pytestmark = pytest.mark.django_db

ALL = Visibility(everything=True)
DAY = timedelta(days=1)


@pytest.fixture
def cluster() -> Cluster:
    ensure_builtin()
    for team in ("vision", "speech"):
        make_team(team, team, f"{team}-*")
    make_tier("a100", position=0, model=A100)
    make_tier("h100", position=1, model=H100)
    west = make_cluster("west", kubernetes={"in_cluster": True})
    watch(west)
    return west


def team_of(name: str) -> Visibility:
    return Visibility(everything=False, team_ids=frozenset([Team.objects.get(name=name).pk]))


def read(**values: Any) -> list[QuotaRow]:
    return list(quota_rows(NOW, **{"visibility": ALL, **values}).rows)


def explained(figure: str, row: QuotaRow) -> Explained | None:
    return explain_quota(figure, Window(NOON, NOW), NOW, ref=row.ref, visibility=ALL)


def check_explained(rows: list[QuotaRow]) -> None:
    """Hold what explains the amounts of keys against what their rows say."""
    for row in rows:
        for figure, value in {
            "quota_allocated": row.held,
            "quota_pending": row.pending,
            "quota_blocked": row.suppressed,
            "quota_headroom": row.headroom,
            "quota_ceiling": row.ceiling,
            "quota_borrowed": row.borrowed,
        }.items():
            one = explained(figure, row)
            assert one is not None
            assert one.value == value, figure
            assert value is None or evaluate(one) == pytest.approx(value), figure


def run(cluster: Cluster, units: float, namespace: str = "vision", **values: Any) -> None:
    given: dict[str, Any] = {"created_at": NOON, "bound_at": NOON, "units": units}
    given |= {"requests": {GPU: units}}
    make_pod(make_workload(cluster, namespace, "train"), **(given | values))


def test_a_row_says_what_is_allowed_used_held_waited_for_and_refused(cluster: Cluster) -> None:
    see_quota(cluster, "vision", 8, used=6)
    run(cluster, 4)
    run(cluster, 2, bound_at=None)
    run(cluster, 9, ended_at=NOON + HOUR)
    run(cluster, 9, namespace="vision-prod")
    refuse(cluster, "vision", 3, since=NOON, detail="gpus")
    refuse(cluster, "vision", 3, since=NOON - HOUR, until=NOON, detail="gpus")
    (row,) = read()
    assert (row.cluster, row.namespace, row.source, row.name, row.key) == (
        "west", "vision", "ResourceQuota", "gpus", KEY,
    )  # fmt: skip
    assert (row.tiers, row.team, row.unit) == (("a100", "h100"), "vision", "GPUs")
    assert (row.hard, row.used, row.held, row.pending, row.suppressed) == (8, 6, 4, 2, 3)
    assert (row.saturation_ratio, row.effective, row.headroom) == (0.75, True, 2)
    assert row.exhausted_at is None
    check_explained(read())


def test_no_part_of_what_is_used_is_more_than_all_of_it(cluster: Cluster) -> None:
    """A pod is over, which its quota's status says already and the pods not yet."""
    see_quota(cluster, "vision", 32, used=31)
    run(cluster, 32)
    run(cluster, 4, bound_at=None)
    (row,) = read()
    assert (row.used, row.held, row.pending) == (31, 31, 0)
    (total,) = team_quotas(NOW)
    assert (total.used, total.held) == (31, 31)
    check_explained(read())


def test_a_key_that_limits_nothing_comes_with_its_fix(cluster: Cluster) -> None:
    see_quota(cluster, "vision", 8, key=GPU)
    (row,) = read()
    assert (row.effective, row.instead, row.used, row.saturation_ratio) == (False, KEY, None, None)
    assert "neither counts nor enforces" in row.finding
    assert row.headroom is None
    assert read(filters=QuotaFilters(effective=True)) == []
    check_explained(read())


def test_all_matching_quotas_are_listed_and_the_least_of_them_is_the_headroom(
    cluster: Cluster,
) -> None:
    high = (QuotaScope("PriorityClass", "In", ("high",)),)
    see_quota(cluster, "vision", 8, used=6, name="all")
    see_quota(cluster, "vision", 7, used=6, name="less")
    see_quota(cluster, "vision", 1, used=1, name="high", scopes=high)
    run(cluster, 1, priority_class="high")
    run(cluster, 5, priority_class="low")
    rows = {row.name: row for row in read()}
    assert {name: row.headroom for name, row in rows.items()} == {"all": 1, "less": 1, "high": 1}
    assert {name: row.held for name, row in rows.items()} == {"all": 6, "less": 6, "high": 1}
    assert rows["high"].scopes == ("PriorityClass In high",)
    check_explained(read())


def test_a_limit_that_was_lowered_below_its_use_is_told(cluster: Cluster) -> None:
    see_quota(cluster, "vision", 2, used=3, name="below")
    see_quota(cluster, "vision", 3, used=3, name="full")
    rows = {row.name: row.finding for row in read()}
    assert rows["below"].startswith("Limit lowered below use")
    assert rows["full"] == ""


def test_a_status_that_lags_behind_is_told(cluster: Cluster) -> None:
    body = QuotaSnapshot(hard={KEY: 8}, observed_hard={KEY: 4}, used={KEY: 2})
    see(cluster, ObservedKind.RESOURCE_QUOTA, body, namespace="vision")
    (row,) = read()
    assert (row.hard, row.observed_hard) == (8, 4)


def queues(cluster: Cluster) -> None:
    shared = ClusterQueueSnapshot(
        cohort="lab",
        quotas=(FlavorQuota("a100", GPU, 8, borrowing_limit=2),),
        used=(FlavorUse("a100", GPU, 9, 1),),
        reserved=(FlavorUse("a100", GPU, 10, 2),),
    )
    other = ClusterQueueSnapshot(cohort="lab", quotas=(FlavorQuota("a100", GPU, 4),))
    see(cluster, ObservedKind.CLUSTER_QUEUE, shared, name="shared")
    see(cluster, ObservedKind.CLUSTER_QUEUE, other, name="other")
    see(
        cluster,
        ObservedKind.RESOURCE_FLAVOR,
        FlavorSnapshot({"nvidia.com/gpu.product": A100}),
        name="a100",
    )
    local = LocalQueueSnapshot(cluster_queue="shared")
    see(cluster, ObservedKind.LOCAL_QUEUE, local, name="local", namespace="vision")
    body = WorkloadSnapshot(
        created=NOON.timestamp(), queue="local", cluster_queue="shared", owner_kind="Job",
        owner="train", pod_sets=(PodSet("main", 1, {GPU: 5.0}, {GPU: "a100"}),),
        conditions=(Condition("QuotaReserved", "True", since=NOON.timestamp()),),
    )  # fmt: skip
    see(cluster, ObservedKind.KUEUE_WORKLOAD, body, name="train", namespace="vision")
    run(cluster, 5)
    refuse(cluster, "vision", 6, since=NOON, cause="queue", kind="Workload", queue="local")


def test_a_cluster_queue_reaches_the_tiers_of_its_flavor(cluster: Cluster) -> None:
    queues(cluster)
    row = read(filters=QuotaFilters(source=("ClusterQueue",), team=("vision",)))[0]
    assert (row.name, row.key, row.tiers) == ("shared", f"a100/{GPU}", ("a100",))
    assert (row.hard, row.ceiling, row.borrowing_limit) == (8, 10, 2)
    assert (row.used, row.reserved, row.borrowed) == (9, 10, 1)
    assert (row.held, row.pending, row.suppressed) == (5, 4, 6)
    assert (row.namespace, row.team, row.cohort) == ("", "vision", "lab")
    check_explained(read())


def test_a_volcano_queue_has_its_three_amounts(cluster: Cluster) -> None:
    body = VolcanoQueueSnapshot(
        capability={GPU: 8}, deserved={GPU: 4}, guarantee={GPU: 1}, allocated={GPU: 5}
    )
    see(cluster, ObservedKind.VOLCANO_QUEUE, body, name="batch")
    group = PodGroupSnapshot(created=0, queue="batch", owner_kind="Job", owner="train")
    see(cluster, ObservedKind.VOLCANO_POD_GROUP, group, name="g", namespace="speech")
    run(cluster, 5, namespace="speech")
    capability, deserved = read()
    assert (capability.key, capability.hard) == (f"capability/{GPU}", 8)
    assert (deserved.key, deserved.hard, deserved.ceiling) == (f"deserved/{GPU}", 4, 8)
    assert (deserved.saturation_ratio, deserved.guarantee, deserved.held) == (1.25, 1, 5)
    assert deserved.team == "speech"
    check_explained(read())


def test_kai_queues_count_the_pods_that_name_them(cluster: Cluster) -> None:
    department = KaiQueueSnapshot(quota=8, allocated={GPU: 5})
    project = KaiQueueSnapshot(parent="research", quota=4, limit=6, allocated={GPU: 5})
    see(cluster, ObservedKind.KAI_QUEUE, department, name="research")
    see(cluster, ObservedKind.KAI_QUEUE, project, name="speech")
    run(cluster, 5, namespace="speech")
    Pod.objects.update(queue="speech")
    above, limit, quota = sorted(read(), key=lambda row: (row.name, row.key))
    assert (above.key, above.hard, above.used, above.held) == (f"quota/{GPU}", 8, 5, 5)
    assert (limit.key, limit.hard, limit.held, limit.team) == (f"limit/{GPU}", 6, 5, "speech")
    assert (quota.saturation_ratio, quota.ceiling, quota.guarantee) == (1.25, 6, 4)
    assert {row.source for row in (above, limit, quota)} == {"KaiQueue"}
    check_explained(read())


def test_readers_see_the_quotas_of_their_teams_alone(cluster: Cluster) -> None:
    for namespace in ("vision", "speech", "stray"):
        see_quota(cluster, namespace, 8)
    queues(cluster)
    seen = {(row.namespace, row.name) for row in read(visibility=team_of("vision"))}
    assert seen == {("vision", "gpus"), ("", "shared")}
    seen = {(row.namespace, row.name) for row in read(visibility=team_of("speech"))}
    assert seen == {("speech", "gpus")}
    assert read(visibility=Visibility(everything=False)) == []


def test_everybody_sees_the_sums_of_teams_and_no_namespace(cluster: Cluster) -> None:
    high = (QuotaScope("PriorityClass", "In", ("high",)),)
    see_quota(cluster, "vision", 8, used=4)
    see_quota(cluster, "vision", 6, used=4, name="less")
    see_quota(cluster, "vision", 1, used=1, name="high", scopes=high)
    see_quota(cluster, "vision-prod", 2, used=1)
    see_quota(cluster, "vision-dev", 9, key=GPU)
    see_quota(cluster, "stray", 3)
    run(cluster, 4)
    sums = team_quotas(NOW)
    assert [(s.team, s.unit, s.hard, s.used, s.held) for s in sums] == [
        ("unassigned", "GPUs", 3, 0, 0),
        ("vision", "GPUs", 8, 5, 4),
    ]
    assert sums[1].saturation_ratio == 5 / 8


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        (QuotaFilters(team=("speech",)), ["speech"]),
        (QuotaFilters(namespace=("vision",)), ["vision"]),
        (QuotaFilters(tier=("h100",)), ["speech", "vision"]),
        (QuotaFilters(tier=("none",)), []),
        (QuotaFilters(cluster=("east",)), []),
        (QuotaFilters(source=("Queue",)), []),
    ],
    ids=str,
)
def test_filters_narrow(cluster: Cluster, filters: QuotaFilters, names: list[str]) -> None:
    see_quota(cluster, "vision", 8)
    see_quota(cluster, "speech", 8)
    assert [row.namespace for row in read(filters=filters)] == names


def test_pages_follow_one_another_without_a_gap(cluster: Cluster) -> None:
    for number in range(5):
        see_quota(cluster, f"vision-{number}", 8, used=float(number % 3))
    see_quota(cluster, "vision", 8, key=GPU)
    for order in QuotaOrder:
        found, cursor = [], None
        for _ in range(3):
            page = quota_rows(NOW, visibility=ALL, order=order, cursor=cursor, page_size=2)
            found += [row.namespace for row in page.rows]
            cursor = page.next_cursor
        assert cursor is None
        assert found == [row.namespace for row in read(order=order)]
        assert len(set(found)) == 6
    fullest = [row.namespace for row in read(order=QuotaOrder.FULLEST)]
    assert fullest == ["vision-2", "vision-1", "vision-4", "vision-0", "vision-3", "vision"]


@pytest.mark.parametrize("cursor", ["nonsense", "WyJxdW90YXMtbmFtZSIsImEiLCIiLCIiLCIiLCIiLCIiXQ"])
def test_a_cursor_of_another_list_is_refused(cluster: Cluster, cursor: str) -> None:
    with pytest.raises(CursorRefused):
        read(cursor=cursor)


def test_the_trend_of_a_week_tells_when_a_quota_is_full(cluster: Cluster) -> None:
    see_quota(cluster, "vision", 8, used=4)
    see_quota(cluster, "speech", 8, used=8)
    key = QuotaKey.objects.create(
        cluster=cluster, source="ResourceQuota", namespace="vision", name="gpus", key=KEY
    )
    QuotaKeyHour.objects.bulk_create(
        QuotaKeyHour(
            key=key, cluster=cluster, hour=NOW - n * HOUR, seconds=1800, hard=4,
            used=(4 - 0.02 * n) / 2,
        )
        for n in range(1, 169)
    )  # fmt: skip
    speech, vision = read()
    assert vision.exhausted_at is not None
    assert abs(vision.exhausted_at - (NOW + 200 * HOUR)) < timedelta(seconds=5)
    assert speech.exhausted_at == NOW
    for row, hours in ((vision, 200), (speech, 0)):
        one = explained("quota_hours_left", row)
        assert one is not None
        assert one.value == pytest.approx(hours, abs=1e-3)
        assert evaluate(one) == pytest.approx(one.value, abs=1e-6)


def test_a_cluster_that_nobody_watches_shows_its_last_summed_hour(cluster: Cluster) -> None:
    WatchCoverage.objects.all().delete()
    key = QuotaKey.objects.create(
        cluster=cluster, source="ResourceQuota", namespace="vision", name="gpus", key=KEY
    )
    for hour, used in ((NOON - HOUR, 1.0), (NOON, 2.0)):
        QuotaHour.objects.create(cluster=cluster, hour=hour, collected_at=NOW, keys=1)
        QuotaKeyHour.objects.create(
            key=key, cluster=cluster, hour=hour, seconds=1800, hard=4, used=used, held=1,
            pending=0, suppressed=0,
        )  # fmt: skip
    (row,) = read()
    assert (row.hard, row.used, row.held, row.as_of) == (8, 4, 2, NOON + HOUR)
    assert row.team == "vision"
    check_explained(read())


def summed(cluster: Cluster, hour: datetime, used: float | None, *, hard: float = 4.0) -> None:
    """Note an hour of vision's quota as summed."""
    key = QuotaKey.objects.get_or_create(
        cluster=cluster, source="ResourceQuota", namespace="vision", name="gpus", key=KEY
    )[0]
    QuotaHour.objects.create(cluster=cluster, hour=hour, collected_at=NOW, keys=1)
    QuotaKeyHour.objects.create(
        key=key, cluster=cluster, hour=hour, seconds=3600, hard=hard, used=used, held=1,
        pending=0, suppressed=0,
    )  # fmt: skip


def test_a_sum_of_which_a_part_is_not_known_is_not_known(cluster: Cluster) -> None:
    WatchCoverage.objects.all().delete()
    summed(cluster, NOON, None)
    QuotaKeyHour.objects.update(held=None, suppressed=None)
    (row,) = team_quotas(NOW)
    assert (row.hard, row.used, row.held, row.suppressed) == (4, None, None, None)
    assert row.saturation_ratio is None
    east = make_cluster("east", kubernetes={"in_cluster": True})
    watch(east)
    see_quota(east, "vision", 8, used=4)
    (row,) = team_quotas(NOW)
    assert (row.hard, row.used, row.held, row.saturation_ratio) == (12, None, None, None)


def test_the_sums_of_what_nobody_watches_have_what_its_last_hour_refused(cluster: Cluster) -> None:
    WatchCoverage.objects.all().delete()
    summed(cluster, NOON, 2.0)
    QuotaKeyHour.objects.update(suppressed=3.0)
    (row,) = team_quotas(NOW)
    assert (row.used, row.held, row.suppressed) == (2, 1, 3)


def test_a_part_of_an_hour_that_is_not_known_makes_its_mean_unknown(cluster: Cluster) -> None:
    WatchCoverage.objects.all().delete()
    summed(cluster, NOON, 2.0)
    QuotaKeyHour.objects.update(seconds=1800, hard=2.0)
    key = QuotaKey.objects.get()
    speech = Team.objects.get(name="speech")
    QuotaKeyHour.objects.create(
        key=key, cluster=cluster, team=speech, hour=NOON, seconds=1800, hard=2.0, used=None,
        held=1, pending=0, suppressed=0,
    )  # fmt: skip
    (row,) = read()
    assert (row.hard, row.used, row.held, row.saturation_ratio) == (4, None, 2, None)


def test_what_is_watched_is_observed_for_until_now(cluster: Cluster) -> None:
    see_quota(cluster, "vision", 8, used=4)
    (row,) = read()
    assert (row.as_of, row.stale) == (NOW, False)
    assert not any(one.stale for one in team_quotas(NOW))


def test_a_quota_of_a_dead_watch_is_as_of_its_last_moment(cluster: Cluster) -> None:
    WatchCoverage.objects.update(end=NOON)
    see_quota(cluster, "vision", 8, used=8)
    (row,) = read()
    assert (row.as_of, row.stale, row.used) == (NOON, True, 8)
    assert row.exhausted_at == NOON
    (total,) = team_quotas(NOW)
    assert (total.as_of, total.stale) == (NOON, True)


def test_a_collection_that_is_refused_is_not_observed_for_by_the_others(cluster: Cluster) -> None:
    """Pods and nodes are followed still; quotas were last heard of before the note."""
    see_quota(cluster, "vision", 8)
    queues(cluster)
    WatchIssue.objects.create(
        cluster=cluster, subject="waiting:resourcequotas", text="may not", since=NOON
    )
    stale = {row.source: row.stale for row in read()}
    assert stale == {"ResourceQuota": True, "ClusterQueue": False}
    (row,) = read(filters=QuotaFilters(source=("ResourceQuota",)))
    assert row.as_of is not None
    assert NOON - timedelta(minutes=2) < row.as_of < NOON


def test_a_change_that_was_seen_vouches_for_its_time(cluster: Cluster) -> None:
    WatchCoverage.objects.update(end=NOON - 5 * HOUR)
    see_quota(cluster, "vision", 8, since=NOON)
    (row,) = read()
    assert (row.as_of, row.stale) == (NOON, True)


def test_what_metrics_show_after_a_watch_died_is_newer_than_what_it_saw(cluster: Cluster) -> None:
    WatchCoverage.objects.update(end=NOON - 5 * HOUR)
    see_quota(cluster, "vision", 8, used=8)
    summed(cluster, NOON, 2.0)
    (row,) = read()
    assert (row.hard, row.used, row.held, row.as_of) == (4, 2, 1, NOON + HOUR)
    assert (row.headroom, row.stale) == (2, True)


def test_the_headroom_of_each_key_of_a_quota_is_of_what_metrics_show_of_it(
    cluster: Cluster,
) -> None:
    WatchCoverage.objects.update(end=NOON - 5 * HOUR)
    mig = "requests.nvidia.com/mig-3g.40gb"
    full = {KEY: 8.0, mig: 8.0}
    see(cluster, ObservedKind.RESOURCE_QUOTA, QuotaSnapshot(full, full, full), namespace="vision")
    summed(cluster, NOON, 2.0)
    known = QuotaKeyHour.objects.get()
    known.pk, known.used = None, 3.0
    known.key = QuotaKey.objects.create(
        cluster=cluster, source="ResourceQuota", namespace="vision", name="gpus", key=mig
    )
    known.save()
    assert {row.key: row.headroom for row in read()} == {KEY: 2, mig: 1}


@pytest.mark.parametrize(
    ("hour", "used"), [(NOON - 9 * HOUR, 2.0), (NOON, None)], ids=["older", "not known"]
)
def test_what_was_seen_stands_unless_metrics_know_better(
    cluster: Cluster, hour: datetime, used: float | None
) -> None:
    WatchCoverage.objects.update(end=NOON - 5 * HOUR)
    see_quota(cluster, "vision", 8, used=8)
    summed(cluster, hour, used)
    (row,) = read()
    assert (row.hard, row.used, row.as_of) == (8, 8, NOON - 5 * HOUR)


def test_a_quota_made_while_nobody_watched_is_there_too(cluster: Cluster) -> None:
    WatchCoverage.objects.update(end=NOON - 5 * HOUR)
    see_quota(cluster, "speech", 8)
    summed(cluster, NOON, 2.0)
    assert [row.namespace for row in read()] == ["speech", "vision"]


def test_a_quota_that_a_watch_saw_to_go_does_not_come_back_from_an_old_hour(
    cluster: Cluster,
) -> None:
    see_quota(cluster, "vision", 8, gone=NOON + HOUR)
    summed(cluster, NOON, 2.0)
    assert read() == []


@pytest.mark.parametrize("count", [1, 20])
def test_a_longer_list_needs_no_more_queries(
    cluster: Cluster, django_assert_num_queries: DjangoAssertNumQueries, count: int
) -> None:
    for number in range(count):
        see_quota(cluster, f"vision-{number}", 8)
    key = QuotaKey.objects.create(
        cluster=cluster, source="ResourceQuota", namespace="vision-0", name="gpus", key=KEY
    )
    QuotaKeyHour.objects.create(key=key, cluster=cluster, hour=NOON, seconds=1, hard=1, used=1)
    own = team_of("vision")
    for visibility in (ALL, own):
        with django_assert_num_queries(9):
            assert len(read(visibility=visibility)) == count


def test_queues_cost_a_query_more(
    cluster: Cluster, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    queues(cluster)
    see_quota(cluster, "vision", 8)
    with django_assert_num_queries(10):
        assert len(read()) == 3


def test_rows_and_sums_of_one_read_are_those_of_two(cluster: Cluster) -> None:
    queues(cluster)
    east = make_cluster("east")
    for place, namespace, hard in ((cluster, "vision", 8), (cluster, "stray", 3), (east, "x", 5)):
        see_quota(place, namespace, hard, used=2)
    see_quota(cluster, "vision", 6, used=1, name="less")
    run(cluster, 4)
    refuse(cluster, "vision", 3, since=NOON, detail="gpus")
    own = team_of("vision")
    for filters in (
        QuotaFilters(),
        QuotaFilters(cluster=("west",)),
        QuotaFilters(team=("vision",)),
    ):
        for visibility in (ALL, own):
            asked: dict[str, Any] = {"filters": filters, "visibility": visibility}
            found = quotas_now(NOW, **asked)
            every = list(quota_rows(NOW, order=QuotaOrder.FULLEST, **asked).rows)
            blocking = [row for row in every if row.suppressed]
            rest = [row for row in every if not row.suppressed]
            assert found.rows(QuotaBand.ALL, slice(None)) == [*blocking, *rest]
            assert found.rows(QuotaBand.ALL, slice(1, 2)) == [*blocking, *rest][1:2]
            assert found.rows(QuotaBand.TIGHT, slice(None)) == blocking
            assert found.counts[QuotaBand.ALL] == len(every)
            assert found.blocking == len(blocking)


def test_a_limit_is_tight_from_80_percent_on_and_where_it_blocks_work(cluster: Cluster) -> None:
    for namespace, used in (("full", 10), ("tight", 8), ("loose", 7)):
        see_quota(cluster, namespace, 10, used=used)
    see_quota(cluster, "inert", 10, key=f"limits.{GPU}", name="inert")
    see_quota(cluster, "closed", 10, used=0)
    refuse(cluster, "closed", 3, since=NOON, detail="gpus")
    found = quotas_now(NOW, visibility=ALL)
    names = {
        band: [row.namespace for row in found.rows(band, slice(None))] for band in found.counts
    }
    assert names[QuotaBand.TIGHT] == ["closed", "full", "tight"]
    assert names[QuotaBand.ALL] == ["closed", "full", "tight", "loose", "inert"]
    assert names[QuotaBand.UNENFORCED] == ["inert"]
    assert found.blocking == 1


@pytest.mark.parametrize("count", [1, 20])
def test_rows_and_sums_of_one_read_need_no_more_queries(
    cluster: Cluster, django_assert_max_num_queries: DjangoAssertNumQueries, count: int
) -> None:
    for number in range(count):
        see_quota(cluster, f"vision-{number}", 8)
    for visibility in (ALL, team_of("vision")):
        with django_assert_max_num_queries(10):
            found = quotas_now(NOW, visibility=visibility)
            rows = found.rows(QuotaBand.ALL, slice(None))
        assert len(rows) == count
    with django_assert_max_num_queries(10):
        assert len(team_quotas(NOW)) == 1


def test_a_cluster_known_by_metrics_alone_is_as_full_as_its_newest_hour_says(
    cluster: Cluster,
) -> None:
    WatchCoverage.objects.all().delete()
    Cluster.objects.update(kubernetes={})
    summed(cluster, NOON, 3.0)
    at = NOON + 2 * HOUR
    (row,) = quota_rows(at, visibility=ALL).rows
    assert (row.saturation_ratio, row.as_of) == (0.75, NOON + HOUR)
    assert (row.from_series, row.stale) == (True, False)
    (total,) = team_quotas(at)
    assert (total.used, total.from_series, total.stale) == (3, True, False)
    (late,) = quota_rows(at + 3 * HOUR, visibility=ALL).rows
    assert (late.from_series, late.stale) == (True, True), "hours are missing"
    Cluster.objects.update(kubernetes={"in_cluster": True})
    (away,) = quota_rows(at, visibility=ALL).rows
    assert (away.from_series, away.stale) == (True, True), "its watch is away"
