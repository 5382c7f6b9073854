"""Kueue's documented borrowing, lending and reclaim, as tables (concepts/cluster_queue)."""

from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.accounts.domain.structs import replace
from apps.planning.domain.cluster_replay.engine import replay_cluster
from apps.planning.domain.cluster_replay.inputs import (
    FlavorQuota,
    Reclaim,
    RecordedWork,
    ReplayAssumption,
    ReplayCohort,
    ReplayPolicy,
    ReplayQueue,
)
from apps.planning.domain.cluster_replay.quota_tree import QuotaTree
from tests.planning.clusters import (
    END,
    FLAVOR,
    KEY,
    TIER,
    pool,
    preemptions,
    queue,
    run,
    run_spans,
    starts,
    work,
)


def of(name: str, asked_at: float, units: float, **more: Any) -> Any:
    return work(asked_at, units, more.pop("runs", 100.0), queue=name, **more)


# Two queues of a cohort with nominal quotas of 9 and 12: what the first may use while the second
# uses nothing, or `used`.
ROOM = [
    pytest.param({}, {}, 0, 21, id="no-limit-takes-the-whole-cohort"),
    pytest.param({"borrowing_limit": 1}, {}, 0, 10, id="borrowing-limit"),
    pytest.param({"borrowing_limit": 0}, {}, 0, 9, id="borrowing-limit-of-none"),
    pytest.param({}, {"lending_limit": 1}, 0, 10, id="lending-limit-of-the-other"),
    pytest.param({}, {"lending_limit": 0}, 0, 9, id="the-other-lends-nothing"),
    pytest.param({"lending_limit": 2}, {}, 12, 9, id="own-quota-that-is-not-lent"),
    pytest.param({}, {}, 12, 9, id="the-other-uses-its-own"),
    pytest.param({}, {}, 15, 6, id="the-other-borrows"),
    pytest.param({"lending_limit": 2}, {}, 14, 7, id="the-other-borrows-what-is-lent"),
]


@pytest.mark.parametrize(("own", "other", "used", "expected"), ROOM)
def test_a_queue_may_use_what_its_cohort_lends(
    own: dict[str, Any], other: dict[str, Any], used: float, expected: float
) -> None:
    tree = QuotaTree([queue("team-a", 9, **own), queue("team-b", 12, **other)])
    tree.use("team-b", KEY, used)
    assert tree.available("team-a", KEY) == expected


@pytest.mark.parametrize(("own", "other", "used", "expected"), ROOM)
def test_as_much_starts_as_a_queue_may_use(
    own: dict[str, Any], other: dict[str, Any], used: int, expected: int
) -> None:
    queues = (queue("team-a", 9, **own), queue("team-b", 12, **other))
    works = [of("team-b", 0, 1, runs=None) for _ in range(used)]
    works += [of("team-a", 1, 1, runs=None) for _ in range(25)]
    found = run(works, pool(8, 8, 8, 8, queues=queues))
    assert starts(found) == [0] * used + [1] * expected + [None] * (25 - expected)


def test_what_is_lent_is_back_when_who_borrowed_it_ends_or_loses_it() -> None:
    works = [of("a", 0, 4), of("b", 50, 3)]
    for reclaim, runs in (
        (Reclaim.NEVER, [[(0, 100)], [(100, 200)]]),
        (Reclaim.ANY, [[(0, 50), (150, 250)], [(50, 150)]]),
    ):
        queues = (queue("a", 1), queue("b", 4, lending_limit=3, reclaim=reclaim))
        assert run_spans(run(works, pool(8, queues=queues))) == runs


def test_without_a_cohort_nothing_is_borrowed() -> None:
    tree = QuotaTree([queue("a", 9, cohort=""), queue("b", 12)])
    assert (tree.available("a", KEY), tree.available("b", KEY)) == (9, 12)


def test_cohorts_have_quota_of_their_own_and_lend_upwards() -> None:
    cohorts = [
        ReplayCohort("left", "top", {KEY: FlavorQuota(5, lending_limit=2)}),
        ReplayCohort("right", "top"),
    ]
    tree = QuotaTree([queue("a", 1, cohort="left"), queue("b", 4, cohort="right")], cohorts)
    assert (tree.available("a", KEY), tree.available("b", KEY)) == (10, 6)
    tree.use("a", KEY, 10)
    assert tree.available("b", KEY) == 0
    assert tree.borrows("a", KEY)
    assert not tree.borrows("b", KEY, 4)


@pytest.mark.parametrize(
    ("weight", "used", "expected"), [(1, 9, 0), (1, 12, 1 / 7), (3, 12, 1 / 21), (0, 12, inf)]
)
def test_the_share_is_what_is_borrowed_of_what_can_be_lent(
    weight: float, used: float, expected: float
) -> None:
    tree = QuotaTree([queue("a", 9, weight=weight), queue("b", 12)])
    tree.use("a", KEY, used)
    assert tree.share("a") == pytest.approx(expected)
    assert QuotaTree([queue("a", 9, cohort="")]).share("a") == 0


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9)), max_size=30),
    st.sampled_from([None, 0, 2]),
)
def test_what_is_used_and_given_back_leaves_all_as_it_was(
    uses: list[tuple[str, int]], lending: float | None
) -> None:
    tree = QuotaTree([queue(name, 5, lending_limit=lending) for name in "abc"])
    before = [tree.available(name, KEY) for name in "abc"]
    for name, units in uses:
        tree.use(name, KEY, units)
    assert sum(tree.used(name, KEY) for name in "abc") == sum(units for _, units in uses)
    for name, units in uses:
        tree.use(name, KEY, -units)
    assert [tree.available(name, KEY) for name in "abc"] == before


QUEUED = st.lists(
    st.builds(
        lambda name, at, units, runs: of(name, at, units, runs=runs),
        st.sampled_from("ab"),
        st.integers(0, 60).map(float),
        st.integers(1, 6).map(float),
        st.integers(5, 90).map(float),
    ),
    max_size=20,
)


@given(QUEUED, st.integers(0, 90), st.sampled_from([None, 0, 2]), st.booleans())
def test_a_replay_that_goes_on_from_a_recorded_moment_changes_nothing(
    works: list[RecordedWork], second: int, limit: float | None, strict: bool
) -> None:
    """What runs then takes the same quota, so what is pending is admitted as it was."""
    limits = {"borrowing_limit": limit, "lending_limit": limit}
    queues = (queue("a", 4, strict=strict, **limits), queue("b", 6, **limits))
    cluster, moment = pool(10, queues=queues), second + 0.5
    whole = run(works, cluster).played
    left = []
    for one in whole:
        began, over = one.started_at, one.ended_at
        ahead = began is None or began > moment
        if ahead or over is None or over > moment:
            runs = one.work.runs_seconds if ahead or over is None else over - moment
            more = replace(one.work, runs_seconds=runs, running=not ahead)
            left.append((one, more))
    again = replay_cluster(
        [more for _, more in left], cluster, ReplayPolicy(), start=moment, end=END
    )
    for (one, more), played in zip(left, again.played, strict=True):
        began = moment if more.running else one.started_at
        assert (played.started_at, played.ended_at) == (began, one.ended_at)


# ------------------------------------------------------------ admission and reclaim


def test_work_within_nominal_quota_comes_before_work_that_borrows() -> None:
    cluster = pool(8, 8, 8, queues=(queue("a", 9), queue("b", 12)))
    works = [of("a", 0, 7, pods=3, runs=50), of("a", 10, 5, pods=2), of("b", 20, 6, pods=2)]
    assert starts(run(works, cluster)) == [0, 150, 50]


@pytest.mark.parametrize(
    ("reclaim", "priority", "runs"),
    [
        pytest.param(Reclaim.ANY, 0, [[(0, 5), (105, 205)], [(5, 105)]], id="any"),
        pytest.param(Reclaim.NEVER, 0, [[(0, 100)], [(100, 200)]], id="never"),
        pytest.param(Reclaim.LOWER_PRIORITY, 0, [[(0, 100)], [(100, 200)]], id="not-lower"),
        pytest.param(
            Reclaim.LOWER_PRIORITY, 1, [[(0, 5), (105, 205)], [(5, 105)]], id="lower-priority"
        ),
    ],
)
def test_a_queue_reclaims_its_nominal_quota(
    reclaim: Reclaim, priority: int, runs: list[list[tuple[float, float]]]
) -> None:
    cluster = pool(8, 8, queues=(queue("a", 4), queue("b", 4, reclaim=reclaim)))
    found = run([of("a", 0, 6), of("b", 5, 4, priority=priority)], cluster)
    assert run_spans(found) == runs


def test_no_queue_reclaims_beyond_its_nominal_quota() -> None:
    cluster = pool(8, queues=(queue("a", 4), queue("b", 4, reclaim=Reclaim.ANY)))
    assert starts(run([of("a", 0, 6), of("b", 5, 5)], cluster)) == [0, 100]


def test_as_few_as_possible_go_the_least_priority_and_the_newest_first() -> None:
    cluster = pool(8, queues=(queue("a", 2), queue("b", 6, reclaim=Reclaim.ANY)))
    works = [of("a", at, 2, priority=at == 3) for at in range(4)]
    found = run([*works, of("b", 9, 2)], cluster)
    assert preemptions(found) == [0, 0, 1, 0, 0]


def test_who_need_not_go_after_all_stays() -> None:
    cluster = pool(8, queues=(queue("a", 2), queue("b", 6, reclaim=Reclaim.ANY)))
    found = run([of("a", 0, 4), of("a", 1, 1), of("b", 9, 6)], cluster)
    assert preemptions(found) == [1, 0, 0]


def test_nobody_goes_where_that_is_not_enough() -> None:
    lower = Reclaim.LOWER_PRIORITY
    cluster = pool(8, queues=(queue("a", 2), queue("b", 4, reclaim=lower), queue("c", 2)))
    works = [of("a", 0, 2), of("a", 1, 1), of("c", 2, 5, priority=5), of("b", 9, 4, priority=1)]
    assert starts(run(works, cluster)) == [0, 1, 2, 102]
    assert not any(preemptions(run(works, cluster)))


def test_a_queue_preempts_lower_priority_of_its_own() -> None:
    cluster = pool(8, queues=(queue("a", 4, preempts_own=True),))
    works = [of("a", 0, 4), of("a", 5, 4, priority=1), of("a", 6, 4, priority=1)]
    assert run_spans(run(works, cluster)) == [[(0, 5), (205, 305)], [(5, 105)], [(105, 205)]]


@pytest.mark.parametrize(("reclaim", "last"), [(Reclaim.ANY, None), (Reclaim.NEVER, 3)])
def test_what_has_quota_and_no_room_loses_it_too(reclaim: Reclaim, last: float | None) -> None:
    """The fourth has room at once, and no quota only where the third took that of the second."""
    cluster = pool(5, queues=(queue("a", 0), queue("b", 8, reclaim=reclaim)))
    works = [work(0, 4), of("a", 1, 4), of("b", 2, 8, leaves_at=50), of("a", 3, 1, leaves_at=40)]
    assert starts(run(works, cluster)) == [0, 100, None, last]


@pytest.mark.parametrize(("strict", "expected"), [(True, [0, 100, 100]), (False, [0, 100, 2])])
def test_a_strict_queue_lets_nobody_pass(strict: bool, expected: list[float]) -> None:
    cluster = pool(8, queues=(queue("a", 4, strict=strict),))
    assert starts(run([of("a", 0, 3), of("a", 1, 2), of("a", 2, 1)], cluster)) == expected


def test_no_borrowing_keeps_queues_to_their_nominal_quota() -> None:
    cluster = pool(8, queues=(queue("a", 4), queue("b", 4)))
    works = [of("a", 0, 4), of("a", 1, 4)]
    assert starts(run(works, cluster)) == [0, 1]
    assert starts(run(works, cluster, ReplayPolicy(borrowing=False))) == [0, 100]


def test_the_queue_with_the_least_share_is_admitted_first() -> None:
    cluster = pool(12, queues=(queue("a", 0), queue("b", 0), queue("c", 12)))
    works = [of("c", 0, 4, runs=500), of("c", 0, 4), of("a", 0, 4, runs=300)]
    works += [of("a", 1, 4), of("b", 2, 4)]
    fair = ReplayPolicy(fair_sharing=True)
    assert starts(run(works, cluster)) == [0, 0, 0, 100, 200]
    assert starts(run(works, cluster, fair)) == [0, 0, 0, 200, 100]


@pytest.mark.parametrize(("later", "flavor"), [(True, "second"), (False, "first")])
def test_a_later_flavor_may_come_before_borrowing(later: bool, flavor: str) -> None:
    first, second = ("first", TIER), ("second", TIER)
    own = ReplayQueue(
        "a", {first: FlavorQuota(1), second: FlavorQuota(4)}, "all", next_before_borrowing=later
    )
    other = ReplayQueue("b", {first: FlavorQuota(8)}, "all")
    found = run([of("a", 0, 4), of("a", 1, 4, tier=FLAVOR)], pool(8, 8, queues=(own, other)))
    assert found.played[0].flavor == flavor
    assert found.played[1].started_at == 1


def test_what_ran_counts_even_beyond_the_quota() -> None:
    cluster = pool(8, queues=(queue("a", 2, cohort=""),))
    works = [of("a", -5, 4, running=True), of("a", 0, 1), of("a", -4, 1, tier="x", running=True)]
    assert starts(run(works, cluster)) == [0, 100, None]


def test_queues_that_preempt_one_another_in_a_circle_come_to_an_end() -> None:
    # Each queue takes back its quota, and preempts its own lower priority to borrow again.
    requested = (
        ("q2", 6, 0), ("q2", 2, 2), ("q2", 8, 2), ("q1", 8, 2), ("q0", 1, 2), ("q0", 1, 0),
        ("q1", 6, 1), ("q1", 2, 0), ("q0", 4, 0), ("q1", 1, 0), ("q2", 4, 0),
    )  # fmt: skip
    works = [
        of(name, number, units, runs=None, priority=priority)
        for number, (name, units, priority) in enumerate(requested)
    ]
    queues = [queue(f"q{n}", 6, preempts_own=True, reclaim=Reclaim.ANY) for n in range(3)]
    found = run(works, pool(18, queues=tuple(queues)))
    assert ReplayAssumption.PREEMPTION_CIRCLES in found.assumptions
    assert max(preemptions(found)) < len(works) * 3
    held = sum(one.work.units for one in found.played if one.runs and one.runs[-1].end is None)
    assert 0 < held <= 18
    own = tuple(replace(one, preempts_own=False) for one in queues)
    alone = run(works, pool(18, queues=own))
    assert ReplayAssumption.PREEMPTION_CIRCLES not in alone.assumptions
