"""Changes of policies replayed on small clusters: who waits less, who more, and what is freed."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.accounts.domain.structs import replace
from apps.planning.domain.cluster_replay.backtest import WorkTimes
from apps.planning.domain.cluster_replay.inputs import (
    Packing,
    Reclaim,
    RecordedWork,
    ReplayAssumption,
    ReplayCluster,
    ReplayPolicy,
)
from apps.planning.domain.policy_change import (
    LimitChange,
    PolicyChange,
    PolicyRefused,
    ShareChange,
    TeamShare,
    check_change,
    cluster_with,
)
from apps.planning.domain.policy_effects import (
    PolicyEffects,
    QueueTimeChange,
    RecordedWeeks,
    TeamEffect,
    policy_effects,
)
from apps.planning.domain.policy_wording import (
    assumed_keys,
    assumed_text,
    change_texts,
    unrequestable_texts,
)
from apps.quotas.domain.keys import QuotaSource
from tests.planning.clusters import END, FLAVOR, TIER, pool, queue, run, starts, work

HOUR = 3600.0
CELL = f"{FLAVOR}/{TIER}"


def weeks(
    works: Sequence[RecordedWork],
    cluster: ReplayCluster,
    *,
    idle: Sequence[float] = (),
    end: float = END,
    **more: Any,
) -> RecordedWeeks:
    more.setdefault("shares", {})
    return RecordedWeeks(
        works=works,
        happened=[WorkTimes(one.tier, one.total_units, one.asked_at, None, None) for one in works],
        idle_seconds=idle or [0.0] * len(works),
        cluster=cluster,
        policy=ReplayPolicy(),
        start=0.0,
        end=end,
        **more,
    )


def effect(found: PolicyEffects, team: str) -> TeamEffect:
    return next(row for row in found.rows if (row.team, row.tier) == (team, TIER))


def limit(name: str, before: float, after: float, **more: Any) -> LimitChange:
    more.setdefault("source", "ClusterQueue")
    more.setdefault("namespace", "")
    more.setdefault("key", CELL)
    return LimitChange(name=name, before=before, after=after, **more)


WORKS = st.lists(
    st.builds(
        work,
        asked_at=st.floats(0, 500).map(round),
        runs=st.floats(1, 300).map(round),
        team=st.sampled_from(["vision", "speech"]),
    ).map(lambda one: replace(one, queue=one.team)),
    min_size=1,
    max_size=25,
)


@given(WORKS, st.integers(1, 4), st.integers(1, 4))
def test_without_a_change_both_replays_are_the_same(
    works: list[RecordedWork], nodes: int, nominal: int
) -> None:
    cluster = pool(*[2] * nodes, queues=(queue("vision", nominal), queue("speech", 1)))
    same = limit("vision", nominal, nominal)
    for change in (PolicyChange(), PolicyChange(limits=(same,)), PolicyChange(idle_minutes=1e6)):
        found = policy_effects(weeks(works, cluster), change)
        assert all(row.before == row.after and not row.freed_gpu_hours for row in found.rows)


@given(WORKS, st.integers(1, 3), st.integers(1, 3))
def test_a_higher_limit_delays_no_work_of_its_team_and_none_of_others_while_gpus_are_free(
    works: list[RecordedWork], nominal: int, more: int
) -> None:
    """True of work of one size with GPUs for all, and queues that lend nothing to each other."""
    queues = (queue("vision", nominal, cohort=""), queue("speech", 1, cohort=""))
    change = PolicyChange(limits=(limit("vision", nominal, nominal + more),))
    found = policy_effects(weeks(works, pool(32, queues=queues)), change)
    for row in found.rows:
        if row.team == "speech":
            assert row.before == row.after
        else:
            assert row.after.unmet_gpu_hours <= row.before.unmet_gpu_hours + 1e-9


def lent(name: str, lends: float, **more: Any) -> PolicyChange:
    return PolicyChange(limits=(limit(name, 4, 4, lends=lends, **more),))


# Of the 4 GPUs of `a` nobody uses any until 50; `b` has 1 and asks for 3.
LENDING = [(0, [0, 100, 200, 50]), (1, [0, 0, 100, 50]), (2, [0, 0, 0, 100]), (4, [0, 0, 0, 100])]


@pytest.mark.parametrize("source", [QuotaSource.RESOURCE_QUOTA, QuotaSource.CLUSTER_QUEUE])
@pytest.mark.parametrize(("lends", "expected"), LENDING)
def test_lent_quota_lets_others_start_and_is_back_when_they_end(
    source: QuotaSource, lends: float, expected: list[float]
) -> None:
    works = [work(0, team="b", namespace="b", queue="b") for _ in range(3)]
    works.append(work(50, 3, team="a", namespace="a", queue="a"))
    if source == QuotaSource.CLUSTER_QUEUE:
        own = queue("a", 4, lending_limit=0)
        cluster = pool(8, queues=(own, queue("b", 1, lending_limit=0)))
        change = lent("a", lends)
    else:
        cluster = replace(pool(8), namespace_quotas={"a": {TIER: 4.0}, "b": {TIER: 1.0}})
        change = lent("gpus", lends, source=source, namespace="a", key=f"requests.{TIER}")
    after = cluster_with(cluster, change, after=True)
    assert starts(run(works, after)) == expected
    assert starts(run(works, cluster_with(cluster, change, after=False))) == [0, 100, 200, 50]
    found = policy_effects(weeks(works, cluster), change)
    assert effect(found, "b").pending_change == pytest.approx(sum(expected[:3]) / HOUR - 300 / HOUR)


def test_only_a_queue_of_a_cohort_lends() -> None:
    cluster = pool(8, queues=(queue("a", 4, cohort=""),))
    with pytest.raises(PolicyRefused, match="ClusterQueue a is in no cohort"):
        cluster_with(cluster, lent("a", 2), after=True)
    with pytest.raises(PolicyRefused, match="cannot be negative"):
        check_change(lent("a", -1))
    assert list(change_texts(lent("a", 2))) == [f"{CELL} of ClusterQueue a: lends 2"]


def test_limits_that_change_places_change_who_queues() -> None:
    works = [work(asked_at=t, team=team, queue=team) for t in (0, 1) for team in ("a", "b")]
    queues = (queue("a", 1, cohort=""), queue("b", 2, cohort=""))
    change = PolicyChange(limits=(limit("a", 1, 2), limit("b", 2, 1)))
    found = policy_effects(weeks(works, pool(8, queues=queues)), change)
    assert effect(found, "a").queue_time is QueueTimeChange.SHORTER
    assert effect(found, "b").queue_time is QueueTimeChange.LONGER
    assert effect(found, "a").pending_change == pytest.approx(-99 / HOUR)


def test_the_lowest_quota_of_a_namespace_holds() -> None:
    works = [work(asked_at=0, namespace="ns", resource="gpu") for _ in range(3)]
    cluster = pool(8, namespace_quotas={"ns": {"gpu": 1.0}})
    own = {"source": "ResourceQuota", "namespace": "ns", "key": "requests.gpu"}
    for others, pending in ((None, 0.0), (1.0, 300.0)):
        change = PolicyChange(limits=(limit("q", 1, 3, others=others, **own),))
        after = effect(policy_effects(weeks(works, cluster), change), "vision").after
        assert after.unmet_gpu_hours == pytest.approx(pending / HOUR)


def test_an_idle_limit_ends_idle_work_and_frees_its_gpus_for_others() -> None:
    works = [
        work(asked_at=0, units=8, runs=800, team="idles"),
        work(asked_at=1, units=8, runs=100, team="waits"),
    ]
    found = policy_effects(weeks(works, pool(8), idle=[600, 0]), PolicyChange(idle_minutes=5))
    idles, waits = effect(found, "idles"), effect(found, "waits")
    assert idles.freed_gpu_hours == pytest.approx(8 * 300 / HOUR)
    assert idles.before.allocated_gpu_hours - idles.after.allocated_gpu_hours == pytest.approx(
        idles.freed_gpu_hours
    )
    assert waits.pending_change == pytest.approx(-8 * 300 / HOUR)
    narrow = PolicyChange(idle_minutes=5, idle_of=("waits", TIER))
    assert effect(policy_effects(weeks(works, pool(8), idle=[600, 0]), narrow), "idles") == replace(
        idles, after=idles.before, freed_gpu_hours=0.0
    )


def test_work_that_is_idle_and_still_runs_at_the_end_is_ended_too() -> None:
    works = [work(asked_at=0, units=8, runs=None)]
    found = policy_effects(weeks(works, pool(8), idle=[700]), PolicyChange(idle_minutes=5))
    assert effect(found, "vision").freed_gpu_hours == pytest.approx(8 * 400 / HOUR)


def test_fair_order_lets_the_team_below_its_entitlement_go_first() -> None:
    works = [
        work(asked_at=0, units=1, runs=100, team="big"),
        work(asked_at=0, units=1, runs=50, team="big"),
        work(asked_at=1, units=1, runs=100, team="big"),
        work(asked_at=2, units=1, runs=100, team="small"),
    ]
    shares = {("big", TIER): TeamShare(1, 1), ("small", TIER): TeamShare(0, 0)}
    entitled = (ShareChange("small", TIER, gpus=1.0),)
    change = PolicyChange(fair_order=True, shares=entitled, half_life_days=7)
    found = policy_effects(weeks(works, pool(2), shares=shares), change)
    assert effect(found, "small").queue_time is QueueTimeChange.SHORTER
    assert effect(found, "big").queue_time is QueueTimeChange.LONGER
    assert effect(found, "small").after.p95_seconds == 48.0


def test_without_borrowing_a_queue_keeps_to_its_own() -> None:
    works = [work(asked_at=0, team="a", queue="a") for _ in range(4)]
    cluster = pool(8, queues=(queue("a", 2), queue("b", 2)))
    found = policy_effects(weeks(works, cluster), PolicyChange(no_borrowing=True))
    assert effect(found, "a").before.unmet_gpu_hours == 0
    assert effect(found, "a").after.unmet_gpu_hours == pytest.approx(200 / HOUR)


def test_strict_order_lets_no_small_work_pass() -> None:
    works = [work(0, 6), work(1, 4, team="large"), work(2, 2, team="small")]
    found = policy_effects(weeks(works, pool(8)), PolicyChange(strict_order=True))
    assert effect(found, "small").pending_change == pytest.approx(2 * 98 / HOUR)
    assert ReplayAssumption.SMALL_PASSES in found.assumed_before
    assert ReplayAssumption.STRICT_ORDER in found.assumed_after


def test_packed_nodes_leave_room_for_large_work_though_work_ran_elsewhere() -> None:
    works = [work(0, 1, nodes=("n0",)), work(0, 1, nodes=("n1",)), work(1, 8, team="large")]
    recorded = replace(weeks(works, pool(8, 8)), policy=ReplayPolicy(recorded_nodes=True))
    found = policy_effects(recorded, PolicyChange(placement=Packing.PACK))
    assert effect(found, "large").pending_change == pytest.approx(-8 * 99 / HOUR)
    # The replay without the change must not keep recorded nodes either: it would differ by both.
    assert ReplayAssumption.RECORDED_NODES not in {*found.assumed_before, *found.assumed_after}


def test_priority_preempts_on_nodes() -> None:
    works = [work(0, 8, team="low"), work(10, 8, team="high", priority=1)]
    found = policy_effects(weeks(works, pool(8)), PolicyChange(node_preemption=True))
    assert effect(found, "high").pending_change == pytest.approx(-8 * 90 / HOUR)


def test_queues_reclaim_and_preempt_as_the_change_says() -> None:
    works = [
        work(0, 4, queue="a", team="a"),
        work(0, 4, queue="a", team="a"),
        work(10, 4, queue="b", team="b"),
        work(20, 4, queue="a", team="first", priority=1),
    ]
    reclaiming = pool(8, queues=(queue("a", 4, reclaim=Reclaim.ANY), queue("b", 4)))
    reclaims = policy_effects(weeks(works, reclaiming), PolicyChange(reclaim=Reclaim.ANY))
    assert effect(reclaims, "b").pending_change == pytest.approx(-4 * 90 / HOUR)
    preempts = policy_effects(weeks(works, reclaiming), PolicyChange(queue_preemption=True))
    assert effect(preempts, "first").pending_change == pytest.approx(-4 * 80 / HOUR)
    never = pool(8, queues=(queue("a", 4), queue("b", 4, reclaim=Reclaim.ANY)))
    kept = policy_effects(weeks(works, never), PolicyChange(reclaim=Reclaim.NEVER))
    assert effect(kept, "b").pending_change == pytest.approx(4 * 90 / HOUR)


def test_fair_sharing_lets_the_queue_with_the_least_share_borrow_first() -> None:
    queues = (queue("a", 0), queue("b", 0), queue("c", 12))
    works = [
        work(0, 4, 500, queue="c", team="c"),
        work(0, 4, queue="c", team="c"),
        work(0, 4, 300, queue="a", team="a"),
        work(1, 4, queue="a", team="a"),
        work(2, 4, queue="b", team="b"),
    ]
    found = policy_effects(weeks(works, pool(12, queues=queues)), PolicyChange(fair_sharing=True))
    assert effect(found, "b").queue_time is QueueTimeChange.SHORTER
    assert effect(found, "a").queue_time is QueueTimeChange.LONGER
    keys = assumed_keys(found.assumed_before, found.assumed_after)
    assert {"without:kueue-order", "with:fair-sharing"} <= set(keys)
    texts = [assumed_text(key) for key in keys]
    assert any(one.startswith("Only without the change: Queues admit as Kueue") for one in texts)
    assert any(one.startswith("Only with the change: Queues admit as Kueue") for one in texts)
    assert assumed_text("same-demand") in texts


def test_policies_of_queues_need_a_queue() -> None:
    for change in (
        PolicyChange(fair_sharing=True),
        PolicyChange(queue_preemption=False),
        PolicyChange(reclaim=Reclaim.ANY),
    ):
        with pytest.raises(PolicyRefused, match="No ClusterQueue is recorded"):
            policy_effects(weeks([work()], pool(8)), change)


REFUSED = [
    pytest.param(PolicyChange(), "Nothing is changed", id="nothing"),
    pytest.param(PolicyChange(half_life_days=3), "fair order", id="half-life-alone"),
    pytest.param(PolicyChange(shares=(ShareChange("a", TIER, 1),)), "fair order", id="share"),
    pytest.param(PolicyChange(limits=(limit("a", 1, -1),)), "negative", id="negative"),
    pytest.param(PolicyChange(idle_minutes=0), "longer than 0", id="no-time"),
    pytest.param(
        PolicyChange(no_borrowing=True, fair_sharing=True), "Without borrowing", id="fair-sharing"
    ),
    pytest.param(
        PolicyChange(no_borrowing=True, reclaim=Reclaim.ANY), "Without borrowing", id="reclaim"
    ),
    pytest.param(
        PolicyChange(no_borrowing=True, limits=(replace(limit("a", 1, 1), lends=1.0),)),
        "Without borrowing",
        id="loan",
    ),
]


@pytest.mark.parametrize(("change", "text"), REFUSED)
def test_what_has_no_effect_is_refused(change: PolicyChange, text: str) -> None:
    with pytest.raises(PolicyRefused, match=text):
        check_change(change)


def test_a_queue_that_was_not_there_is_refused() -> None:
    with pytest.raises(PolicyRefused, match="ClusterQueue gone is not recorded"):
        policy_effects(weeks([work()], pool(8)), PolicyChange(limits=(limit("gone", 1, 2),)))


def test_a_change_in_words() -> None:
    change = PolicyChange(
        limits=(
            limit("a", 1, 2),
            limit("q", 4, 8, source="ResourceQuota", namespace="ns", key="requests.gpu"),
        ),
        shares=(ShareChange("a", TIER, 2, 3),),
        fair_order=True,
        half_life_days=1,
        no_borrowing=True,
        idle_minutes=30,
        idle_of=("a", TIER),
        strict_order=True,
        placement=Packing.PACK,
        node_preemption=True,
        fair_sharing=True,
        queue_preemption=True,
        reclaim=Reclaim.LOWER_PRIORITY,
    )
    check_change(replace(change, no_borrowing=False))
    assert list(change_texts(change)) == [
        "a100/a100 of ClusterQueue a: 1 → 2",
        "requests.gpu of ResourceQuota ns/q: 4 → 8",
        "Fair order of pending work",
        "Strict order of pending work",
        "a in a100: entitlement 2, weight 3",
        "Half-life 1 day",
        "No borrowing",
        "Fair sharing of queues",
        "Queues reclaim quota from work of lower priority",
        "Queues preempt lower priority of their own",
        "Lower priority is preempted on nodes",
        "Placement: work goes to the fullest node with room",
        "Idle limit 30 minutes for a in a100",
    ]
    kept = [*change_texts(change)]
    assert list(unrequestable_texts(change)) == [*kept[2:4], *kept[5:]]
