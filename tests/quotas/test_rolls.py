"""Closed hours into rows: history stays right whatever changes, and whoever does it again."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.observed.objects import (
    ClaimRequest,
    ClaimSnapshot,
    ClusterQueueSnapshot,
    Condition,
    FlavorQuota,
    LocalQueueSnapshot,
    ObservedKind,
    PodGroupSnapshot,
    PodSet,
    VolcanoQueueSnapshot,
    WorkloadSnapshot,
)
from apps.clusters.domain.window import Window
from apps.clusters.models import ClaimInterval, Cluster, NamespaceTeam, Pod, WatchCoverage
from apps.clusters.models import ObservedObject as ObservedObjectRow
from apps.clusters.ports import QueueSlot, QuotaSlot, SourceUnavailable
from apps.quotas.domain.keys import QuotaRef
from apps.quotas.models import QuotaHour, QuotaKey, QuotaKeyHour
from apps.quotas.selectors import quota_history, quota_rows
from apps.quotas.services import due_windows, prune, roll_hours
from apps.usage.models import CollectionWindow
from tests.factories import ensure_builtin, make_cluster, make_pod, make_team, make_workload
from tests.quotas.quota_rows import (
    GPU,
    HOUR,
    KEY,
    NOON,
    NOW,
    ScriptedMetrics,
    collected,
    refuse,
    roll_hour,
    see,
    see_quota,
    watch,
)

pytestmark = pytest.mark.django_db

CLASS = "gpu.nvidia.com"
CLASS_KEY = f"{CLASS}.deviceclass.resource.k8s.io/devices"


@pytest.fixture
def cluster() -> Cluster:
    ensure_builtin()
    make_team("vision", "vision")
    return make_cluster("west")


def run(cluster: Cluster, units: float = 2.0, *, namespace: str = "vision", **values: Any) -> None:
    given: dict[str, Any] = {"created_at": NOON - HOUR, "bound_at": NOON - HOUR, "units": units}
    given |= {"requests": {GPU: units}}
    make_pod(make_workload(cluster, namespace, "train"), **(given | values))


def rows(cluster: Cluster) -> list[tuple[Any, ...]]:
    hours = QuotaKeyHour.objects.filter(cluster=cluster)
    found = hours.order_by("hour", "key__key", "key__name", "pk")
    return list(
        found.values_list(
            *("key__name", "key__key", "team__name", "seconds"),
            *("hard", "used", "held", "pending", "suppressed"),
        )
    )


def test_an_hour_has_what_was_allowed_used_waited_for_and_refused(cluster: Cluster) -> None:
    watch(cluster)
    see_quota(cluster, "vision", 8)
    run(cluster, 2)
    run(cluster, 4, bound_at=None, created_at=NOON + HOUR / 2)
    refuse(cluster, "vision", 3, since=NOON + HOUR / 4, until=NOON + HOUR / 2, detail="gpus")
    collected(cluster, NOON)
    assert roll_hour(cluster.pk, NOON, now=NOW) == 1
    assert rows(cluster) == [("gpus", KEY, "vision", 3600, 8, 4, 2, 2, 0.75)]


def test_a_limit_that_changes_in_mid_hour_keeps_the_hours_before_and_after(
    cluster: Cluster,
) -> None:
    watch(cluster)
    change = NOON + HOUR / 2
    see_quota(cluster, "vision", 4, gone=change, uid="q")
    see_quota(cluster, "vision", 8, since=change, uid="q")
    collected(cluster, NOON - HOUR, NOON, NOON + HOUR)
    assert roll_hours(now=NOW) == 3
    assert [row[4] for row in rows(cluster)] == [4, 6, 8]


def test_a_deleted_quota_stays_in_the_hours_it_was_there(cluster: Cluster) -> None:
    watch(cluster)
    see_quota(cluster, "vision", 8, gone=NOON + HOUR / 4)
    run(cluster, 2)
    collected(cluster, NOON - HOUR, NOON, NOON + HOUR)
    roll_hours(now=NOW)
    assert [row[3:6] for row in rows(cluster)] == [(3600, 8, 2), (900, 2, 0.5)]
    assert QuotaHour.objects.filter(cluster=cluster).count() == 3


def test_a_namespace_that_moves_keeps_its_hours_with_the_team_of_their_time(
    cluster: Cluster,
) -> None:
    watch(cluster)
    see_quota(cluster, "vision", 8)
    collected(cluster, NOON - HOUR, NOON)
    NamespaceTeam.objects.update(valid_to=NOON)
    speech = make_team("speech")
    NamespaceTeam.objects.create(team=speech, pattern="vision", valid_from=NOON)
    roll_hours(now=NOW)
    assert [row[2] for row in rows(cluster)] == ["vision", "speech"]


def move(cluster: Cluster, at: datetime) -> None:
    """Give the namespace to another team at a moment."""
    NamespaceTeam.objects.update(valid_to=at)
    speech = make_team("speech")
    NamespaceTeam.objects.create(team=speech, pattern="vision", valid_from=at)


def test_a_namespace_that_moves_within_an_hour_gives_each_team_its_part(
    cluster: Cluster,
) -> None:
    watch(cluster)
    see_quota(cluster, "vision", 8)
    run(cluster, 2)
    refuse(cluster, "vision", 4, since=NOON + HOUR / 4, detail="gpus")
    collected(cluster, NOON)
    move(cluster, NOON + HOUR / 4)
    assert roll_hour(cluster.pk, NOON, now=NOW) == 2
    roll_hour(cluster.pk, NOON, now=NOW)
    assert rows(cluster) == [
        ("gpus", KEY, "vision", 900, 2, 0.5, 0.5, 0, 0),
        ("gpus", KEY, "speech", 2700, 6, 1.5, 1.5, 0, 3),
    ]
    ref = QuotaRef("ResourceQuota", "vision", "gpus", KEY, "west")
    (point,) = quota_history(Window.hour(NOON), ref, visibility=EVERYTHING)
    assert (point.team, point.seconds, point.hard, point.used) == ("speech", 3600, 8, 2)


def come_back(until: datetime) -> None:
    """Take the namespace from its team for a quarter of an hour before `until`."""
    back = until - HOUR / 4
    own = NamespaceTeam.objects.get(pattern="vision")
    NamespaceTeam.objects.update(valid_to=back)
    NamespaceTeam.objects.create(team=own.team, pattern="vision", valid_from=until)


def test_a_namespace_that_leaves_and_comes_back_within_an_hour_is_one_row_of_its_team(
    cluster: Cluster,
) -> None:
    watch(cluster)
    see_quota(cluster, "vision", 8)
    run(cluster, 2)
    collected(cluster, NOON)
    come_back(NOON + HOUR / 2)
    assert roll_hour(cluster.pk, NOON, now=NOW) == 2
    assert sorted(row[2:8] for row in rows(cluster)) == [
        ("unassigned", 900, 2, 0.5, 0.5, 0),
        ("vision", 2700, 6, 1.5, 1.5, 0),
    ]


def test_a_part_of_which_nothing_is_known_makes_the_row_of_its_team_unknown(
    cluster: Cluster,
) -> None:
    slots = [slot(0 * HOUR, 8, 2, CLASS_KEY), slot(HOUR / 2, 8, None, CLASS_KEY)]
    collected(cluster, NOON)
    come_back(NOON + HOUR / 2)
    roll_hour(cluster.pk, NOON, now=NOW, source=ScriptedMetrics(slots))
    assert sorted(row[2:6] for row in rows(cluster)) == [
        ("unassigned", 900, 2, 0.5),
        ("vision", 2700, 6, None),
    ]


def test_a_cluster_that_cannot_be_summed_keeps_no_other_from_it(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    east = make_cluster("east")
    watch(east)
    for one in (cluster, east):
        collected(one, NOON)
    broken = ScriptedMetrics(error=RuntimeError("no such thing"))
    assert roll_hours(now=NOW, source=broken) == 1
    assert list(QuotaHour.objects.values_list("cluster", flat=True)) == [east.pk]
    assert "could not be summed" in caplog.text


def test_what_series_show_of_a_moved_namespace_is_split_at_the_moment_too(
    cluster: Cluster,
) -> None:
    source = ScriptedMetrics([slot(0 * HOUR, 8, 2, CLASS_KEY), slot(HOUR / 2, 8, 6, CLASS_KEY)])
    collected(cluster, NOON)
    move(cluster, NOON + HOUR / 4)
    roll_hour(cluster.pk, NOON, now=NOW, source=source)
    assert [row[2:6] for row in rows(cluster)] == [
        ("vision", 900, 2, 0.5),
        ("speech", 2700, 6, 3.5),
    ]


def test_a_moved_namespace_that_nobody_watches_is_one_row_as_it_is_now(cluster: Cluster) -> None:
    source = ScriptedMetrics([slot(0 * HOUR, 8), slot(HOUR / 2, 8)])
    run(cluster, 2)
    collected(cluster, NOON)
    move(cluster, NOON + HOUR / 4)
    roll_hour(cluster.pk, NOON, now=NOW, source=source)
    (row,) = quota_rows(NOW, visibility=EVERYTHING).rows
    assert (row.team, row.hard, row.used, row.held) == ("speech", 8, 2, 2)


def test_a_queue_that_nobody_watches_any_more_is_one_still(cluster: Cluster) -> None:
    """Of its last hour alone the key `flavor/resource` is known, which no quota has."""
    watch(cluster)
    kueue(cluster)
    collected(cluster, NOON)
    roll_hour(cluster.pk, NOON, now=NOW)
    ObservedObjectRow.objects.all().delete()
    WatchCoverage.objects.all().delete()
    (row,) = quota_rows(NOW, visibility=EVERYTHING).rows
    assert (row.resource, row.unit, row.hard, row.used) == (GPU, "GPUs", 8, 3)
    assert (row.team, row.team_count) == (None, 0)


def test_once_more_gives_the_same_rows(cluster: Cluster) -> None:
    watch(cluster)
    see_quota(cluster, "vision", 8)
    run(cluster)
    collected(cluster, NOON)
    roll_hour(cluster.pk, NOON, now=NOW)
    before = rows(cluster)
    roll_hour(cluster.pk, NOON, now=NOW)
    assert rows(cluster) == before
    assert QuotaKey.objects.count() == 1


def test_an_hour_is_due_until_it_is_summed_and_again_when_it_is_collected_again(
    cluster: Cluster,
) -> None:
    watch(cluster)
    see_quota(cluster, "vision", 8)
    collected(cluster, NOON - HOUR, NOON)
    assert [(w.start, w.end) for w in due_windows(cluster.pk)] == [(NOON - HOUR, NOON + HOUR)]
    assert roll_hours(now=NOW) == 2
    assert due_windows(cluster.pk) == []
    collected(cluster, NOON, at=NOW + HOUR)
    assert [window.start for window in due_windows(cluster.pk)] == [NOON]


def test_runs_of_hours_are_at_most_a_day_and_do_not_span_a_gap(cluster: Cluster) -> None:
    hours = [NOON - n * HOUR for n in range(30) if n != 3]
    collected(cluster, *hours)
    found = [(window.start, window.end) for window in due_windows(cluster.pk)]
    assert found == [
        (NOON - 2 * HOUR, NOON + HOUR),
        (NOON - 27 * HOUR, NOON - 3 * HOUR),
        (NOON - 29 * HOUR, NOON - 27 * HOUR),
    ]


def test_an_hour_without_facts_is_not_summed(cluster: Cluster) -> None:
    watch(cluster)
    see_quota(cluster, "vision", 8)
    assert roll_hour(cluster.pk, NOON, now=NOW) == 0
    assert not QuotaHour.objects.exists()


def slot(offset: timedelta, hard: float, used: float | None = 1.0, key: str = KEY) -> QuotaSlot:
    return QuotaSlot(int((NOON + offset).timestamp()), "vision", "gpus", key, hard, used)


def test_before_anybody_watched_limits_come_from_series(cluster: Cluster) -> None:
    run(cluster, 2, source="metrics")
    source = ScriptedMetrics([slot(0 * HOUR, 4), slot(HOUR / 2, 6)])
    collected(cluster, NOON)
    roll_hour(cluster.pk, NOON, now=NOW, source=source)
    assert rows(cluster) == [("gpus", KEY, "vision", 3600, 5, 2, 2, 0, None)]


def test_cluster_queues_that_nobody_watches_are_as_kueue_shows_them(cluster: Cluster) -> None:
    Cluster.objects.update(kubernetes={})
    shown = [
        QueueSlot(int((NOON + offset).timestamp()), "research", *values)
        for offset, used, pending in ((0 * HOUR, 6.0, 4.0), (HOUR / 2, 8.0, 8.0))
        for values in (("a100", GPU, 8.0, used), ("", GPU, None, None, pending))
    ]
    source = ScriptedMetrics(queues=shown)
    collected(cluster, NOON)
    roll_hour(cluster.pk, NOON, now=NOW, source=source)
    assert rows(cluster) == [("research", f"a100/{GPU}", None, 3600, 8, 7, None, None, 6)]
    (row,) = quota_rows(NOON + 2 * HOUR, visibility=EVERYTHING).rows
    assert (row.saturation_ratio, row.from_series, row.stale) == (7 / 8, True, False)
    # Half of an hour is not known for all of it.
    roll_hour(cluster.pk, NOON, now=NOW, source=ScriptedMetrics(queues=shown[:2]))
    assert rows(cluster) == [("research", f"a100/{GPU}", None, 1800, 4, None, None, None, None)]


def test_where_somebody_watched_no_series_are_asked(cluster: Cluster) -> None:
    watch(cluster)
    source = ScriptedMetrics()
    collected(cluster, NOON)
    roll_hour(cluster.pk, NOON, now=NOW, source=source)
    assert source.asked == 0


def test_a_source_that_does_not_answer_leaves_the_hour_for_later(cluster: Cluster) -> None:
    collected(cluster, NOON)
    assert roll_hours(now=NOW, source=ScriptedMetrics(error=SourceUnavailable("away"))) == 0
    assert [window.start for window in due_windows(cluster.pk)] == [NOON]
    assert roll_hours(now=NOW, source=ScriptedMetrics([slot(0 * HOUR, 4)])) == 1


def test_a_partial_answer_is_taken_for_a_partial_hour_alone(cluster: Cluster) -> None:
    collected(cluster, NOON)
    partial = ScriptedMetrics([slot(0 * HOUR, 4)], incomplete=("a store is away",))
    assert roll_hours(now=NOW, source=partial) == 0
    assert [window.start for window in due_windows(cluster.pk)] == [NOON]
    CollectionWindow.objects.update(state="partial")
    assert roll_hours(now=NOW, source=partial) == 1


def claim(cluster: Cluster, created: timedelta, allocated: timedelta | None) -> None:
    made = NOON + created
    body = ClaimSnapshot(made.timestamp(), (ClaimRequest("a", CLASS, 2),))
    see(
        cluster,
        ObservedKind.RESOURCE_CLAIM,
        body,
        namespace="vision",
        name="c",
        uid="c",
        since=made,
    )
    if allocated is not None:
        device = {"device_class": CLASS, "card": "GPU-1", "profile": "", "model": "A100"}
        ClaimInterval.objects.create(
            cluster=cluster, uid="c", namespace="vision", name="c", devices=[device] * 2,
            allocated_at=NOON + allocated,
        )  # fmt: skip


def test_devices_are_charged_when_a_claim_is_made_and_held_when_it_is_allocated(
    cluster: Cluster,
) -> None:
    watch(cluster)
    see_quota(cluster, "vision", 8, key=CLASS_KEY)
    claim(cluster, HOUR / 4, HOUR / 2)
    run(cluster, requests={CLASS: 2.0}, claims=["c"])
    collected(cluster, NOON)
    roll_hour(cluster.pk, NOON, now=NOW)
    assert rows(cluster) == [("gpus", CLASS_KEY, "vision", 3600, 8, 1.5, 1, 0.5, 0)]


def test_claims_that_nobody_watched_are_as_series_show_them(cluster: Cluster) -> None:
    source = ScriptedMetrics([slot(0 * HOUR, 8, 3, CLASS_KEY), slot(HOUR / 2, 8, 5, CLASS_KEY)])
    collected(cluster, NOON)
    roll_hour(cluster.pk, NOON, now=NOW, source=source)
    assert rows(cluster) == [("gpus", CLASS_KEY, "vision", 3600, 8, 4, None, None, None)]


def kueue(cluster: Cluster) -> None:
    quota = ClusterQueueSnapshot(
        quotas=(FlavorQuota("a100", GPU, 8), FlavorQuota("a100", "cpu", 8))
    )
    see(cluster, ObservedKind.CLUSTER_QUEUE, quota, name="shared")
    local = LocalQueueSnapshot(cluster_queue="shared")
    see(cluster, ObservedKind.LOCAL_QUEUE, local, name="local", namespace="vision")
    admitted = WorkloadSnapshot(
        created=(NOON - HOUR).timestamp(),
        queue="local",
        cluster_queue="shared",
        owner_kind="Job",
        owner="train",
        pod_sets=(PodSet("main", 2, {GPU: 2.0}, {GPU: "a100"}),),
        conditions=(Condition("QuotaReserved", "True", since=(NOON + HOUR / 4).timestamp()),),
    )
    see(cluster, ObservedKind.KUEUE_WORKLOAD, admitted, name="train", namespace="vision")
    run(cluster, 2, created_at=NOON + HOUR / 4, bound_at=NOON + HOUR / 2)
    refuse(
        cluster, "vision", 6, since=NOON, cause="queue", kind="Workload", queue="local",
        detail="waiting-for-quota",
    )  # fmt: skip


def test_a_cluster_queue_counts_what_it_admitted(cluster: Cluster) -> None:
    watch(cluster)
    kueue(cluster)
    collected(cluster, NOON)
    roll_hour(cluster.pk, NOON, now=NOW)
    assert rows(cluster) == [("shared", f"a100/{GPU}", "vision", 3600, 8, 3, 1, 2, 6)]


def test_a_cluster_queue_has_a_history_of_plain_pods_too(cluster: Cluster) -> None:
    """Kueue makes a Workload of each pod of a Deployment; the ledger keeps them under that."""
    watch(cluster)
    kueue(cluster)
    row = ObservedObjectRow.objects.get(kind=ObservedKind.KUEUE_WORKLOAD.value)
    own = {"owner_kind": "Pod", "owner": "api-7f9-x2", "pods": ["api-7f9-x2"]}
    row.body |= own | {"created": (NOON + HOUR / 4).timestamp()}
    row.save()
    deployment = make_workload(cluster, "vision", "api", kind="Deployment")
    Pod.objects.update(workload=deployment, name="api-7f9-x2", created_at=NOON)
    collected(cluster, NOON)
    roll_hour(cluster.pk, NOON, now=NOW)
    ref = QuotaRef("ClusterQueue", "", "shared", f"a100/{GPU}", "west")
    (point,) = quota_history(Window.hour(NOON), ref, visibility=EVERYTHING)
    assert (point.hard, point.used, point.held, point.suppressed) == (8, 3, 1, 6)


def test_a_queue_that_several_teams_use_is_of_none(cluster: Cluster) -> None:
    watch(cluster)
    kueue(cluster)
    make_team("speech", "speech")
    local = LocalQueueSnapshot(cluster_queue="shared")
    see(cluster, ObservedKind.LOCAL_QUEUE, local, name="local", namespace="speech")
    collected(cluster, NOON)
    roll_hour(cluster.pk, NOON, now=NOW)
    assert [row[2] for row in rows(cluster)] == [None]


def test_what_is_forgotten_of_an_old_hour_stays_as_it_was_summed(cluster: Cluster) -> None:
    watch(cluster)
    kueue(cluster)
    collected(cluster, NOON)
    roll_hour(cluster.pk, NOON, now=NOW)
    before = rows(cluster)
    ObservedObjectRow.objects.filter(kind=ObservedKind.KUEUE_WORKLOAD.value).delete()
    roll_hour(cluster.pk, NOON, now=NOW + timedelta(days=3))
    assert rows(cluster) == before


def test_a_queue_of_an_hour_that_nobody_watched_is_not_known(cluster: Cluster) -> None:
    watch(cluster)
    kueue(cluster)
    WatchCoverage.objects.update(end=NOON)
    collected(cluster, NOON)
    roll_hour(cluster.pk, NOON, now=NOW, source=ScriptedMetrics())
    assert rows(cluster) == [("shared", f"a100/{GPU}", "vision", 3600, 8, None, None, None, None)]


def test_a_volcano_queue_counts_the_pods_of_its_groups(cluster: Cluster) -> None:
    watch(cluster)
    queue = VolcanoQueueSnapshot(capability={GPU: 8}, deserved={GPU: 4})
    see(cluster, ObservedKind.VOLCANO_QUEUE, queue, name="batch")
    group = PodGroupSnapshot(created=0, queue="batch", owner_kind="Job", owner="train")
    see(cluster, ObservedKind.VOLCANO_POD_GROUP, group, name="g", namespace="vision")
    run(cluster, 2)
    refuse(cluster, "vision", 3, since=NOON, cause="capacity", counts="pending", queue="batch")
    collected(cluster, NOON)
    roll_hour(cluster.pk, NOON, now=NOW)
    assert rows(cluster) == [
        ("batch", f"capability/{GPU}", "vision", 3600, 8, 2, 2, 0, 3),
        ("batch", f"deserved/{GPU}", "vision", 3600, 4, 2, 2, 0, 3),
    ]


def test_hours_past_the_retention_are_forgotten_with_their_keys(cluster: Cluster) -> None:
    watch(cluster)
    see_quota(cluster, "vision", 8)
    collected(cluster, NOON)
    roll_hour(cluster.pk, NOON, now=NOW)
    assert prune(now=NOW) == 0
    assert prune(now=NOW + timedelta(days=500)) == 1
    assert not QuotaKey.objects.exists()
    assert not QuotaHour.objects.exists()
