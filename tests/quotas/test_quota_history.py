"""What quotas were set to, and when: from sightings, and from series where nobody watched."""

from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    FlavorQuota,
    LocalQueueSnapshot,
    ObservedKind,
    ObservedObject,
    QuotaScope,
    QuotaSnapshot,
    VolcanoQueueSnapshot,
)
from apps.clusters.ports import QuotaSlot
from apps.quotas.domain.keys import Counting, QuotaRef, QuotaSource
from apps.quotas.domain.limits import seen_intervals, with_shown
from apps.quotas.domain.saturation import LimitInterval

GPU = "nvidia.com/gpu"
KEY = f"requests.{GPU}"
ID = QuotaRef(QuotaSource.RESOURCE_QUOTA.value, "vision", "gpus", KEY)
HIGH = (QuotaScope("PriorityClass", "In", ("high",)),)


def quota(
    hard: float,
    first: float,
    gone: float | None = None,
    *,
    uid: str = "u",
    key: str = KEY,
    scopes: tuple[QuotaScope, ...] = (),
) -> ObservedObject:
    body = QuotaSnapshot(hard={key: hard, "requests.cpu": 4}, scopes=scopes)
    return ObservedObject(
        ObservedKind.RESOURCE_QUOTA, uid, "vision", "gpus", body, first, first, gone
    )


def shown(slot: int, hard: float | None, key: str = KEY) -> QuotaSlot:
    return QuotaSlot(slot, "vision", "gpus", key, hard, 1.0)


def test_every_setting_is_a_interval_cut_to_the_window() -> None:
    seen = [quota(8, 500), quota(4, 0, 500)]
    found = seen_intervals(seen, 100, 1000)
    assert list(found) == [ID]
    assert found[ID].intervals == [LimitInterval(100, 500, 4), LimitInterval(500, 1000, 8)]


def test_a_deleted_quota_ends_and_one_made_again_goes_on_under_its_name() -> None:
    seen = [quota(4, 0, 300, uid="a"), quota(6, 700, uid="b")]
    assert seen_intervals(seen, 0, 1000)[ID].intervals == [
        LimitInterval(0, 300, 4),
        LimitInterval(700, 1000, 6),
    ]


def test_a_quota_made_again_before_it_was_seen_to_go_holds_from_then() -> None:
    seen = [quota(4, 0, 800, uid="a"), quota(6, 700, 750, uid="b")]
    assert seen_intervals(seen, 0, 1000)[ID].intervals == [
        LimitInterval(0, 700, 4),
        LimitInterval(700, 800, 6),
    ]
    same = [quota(4, 0, uid="a"), quota(6, 0, uid="b")]
    assert seen_intervals(same, 0, 1000)[ID].intervals == [LimitInterval(0, 1000, 6)]


def test_what_is_outside_the_window_is_left_out() -> None:
    assert seen_intervals([quota(4, 0, 100), quota(4, 1000)], 100, 1000) == {}


def test_keys_that_limit_nothing_are_kept_as_such() -> None:
    found = seen_intervals([quota(4, 0, key=GPU)], 0, 10)
    assert [one.effective for one in found.values()] == [False]


def test_queues_have_intervals_of_their_gpu_cells() -> None:
    body = ClusterQueueSnapshot(
        quotas=(FlavorQuota("a100", GPU, 8), FlavorQuota("a100", "cpu", 64))
    )
    volcano = VolcanoQueueSnapshot(deserved={GPU: 4, "cpu": 9})
    seen = [
        ObservedObject(ObservedKind.CLUSTER_QUEUE, "q", "", "vision", body, 0, 0),
        ObservedObject(ObservedKind.VOLCANO_QUEUE, "v", "", "speech", volcano, 0, 0),
        ObservedObject(
            ObservedKind.LOCAL_QUEUE, "l", "vision", "local", LocalQueueSnapshot("vision"), 0, 0
        ),
    ]
    found = seen_intervals(seen, 0, 10)
    assert {(k.source, k.name, k.key): v.intervals for k, v in found.items()} == {
        ("ClusterQueue", "vision", "a100/nvidia.com/gpu"): [LimitInterval(0, 10, 8)],
        ("Queue", "speech", "deserved/nvidia.com/gpu"): [LimitInterval(0, 10, 4)],
    }


def test_before_anybody_watched_series_tell() -> None:
    found = with_shown({}, [shown(0, 4), shown(1800, 6), shown(3600, 8)], [0, 1800])
    assert found[ID].intervals == [LimitInterval(0, 1800, 4), LimitInterval(1800, 3600, 6)]
    assert (found[ID].resource, found[ID].counting) == (GPU, Counting.REQUESTS)


def test_series_stand_in_only_where_nobody_watched() -> None:
    seen = seen_intervals([quota(8, 900, 7200, scopes=HIGH)], 0, 7200)
    found = with_shown(seen, [shown(0, 4), shown(1800, 5), shown(3600, 6)], [0, 3600])
    assert found[ID].intervals == [
        LimitInterval(0, 1800, 4, HIGH),
        LimitInterval(1800, 3600, 8, HIGH),
        LimitInterval(3600, 5400, 6, HIGH),
        LimitInterval(5400, 7200, 8, HIGH),
    ]
    assert seen[ID].intervals == [LimitInterval(900, 7200, 8, HIGH)]


def test_series_without_a_limit_or_not_of_gpus_say_nothing() -> None:
    assert with_shown({}, [shown(0, None), shown(0, 4, "requests.cpu")], [0]) == {}


def test_a_slot_in_which_the_quota_began_before_the_series_is_cut_at_both_ends() -> None:
    seen = seen_intervals([quota(8, 0, 900), quota(9, 2000, 5400, uid="b")], 0, 7200)
    found = with_shown(seen, [shown(1800, 5)], [1800])
    assert found[ID].intervals == [
        LimitInterval(0, 900, 8),
        LimitInterval(1800, 3600, 5),
        LimitInterval(3600, 5400, 9),
    ]


def test_a_setting_of_a_few_minutes_gives_way_to_the_mean_of_its_slot() -> None:
    seen = seen_intervals([quota(8, 2000, 2400)], 0, 7200)
    found = with_shown(seen, [shown(1800, 5)], [1800])
    assert found[ID].intervals == [LimitInterval(1800, 3600, 5)]
