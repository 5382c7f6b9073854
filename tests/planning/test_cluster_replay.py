"""The cluster replay: who starts when and where, gangs, nodes, preemption and policies."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.planning.domain.cluster_replay.inputs import (
    ClosedSpan,
    ClusterReplay,
    FlavorQuota,
    MissingUnits,
    Packing,
    PendingOrder,
    Reclaim,
    RecordedWork,
    ReplayAssumption,
    ReplayCluster,
    ReplayDevice,
    ReplayNode,
    ReplayPolicy,
    ReplayQueue,
)
from apps.planning.domain.cluster_replay.node_space import TierSpace
from apps.planning.domain.cluster_replay.wording import assumption_text
from tests.planning.clusters import (
    END,
    TIER,
    node,
    pool,
    preemptions,
    queue,
    run,
    run_spans,
    starts,
    work,
)

STRICT = ReplayPolicy(strict=True)
MIG = ReplayNode(
    "mig",
    (
        *(ReplayDevice("3g.40gb", weight=3 / 7, gpu=0, profile="3g.40gb") for _ in range(2)),
        *(ReplayDevice("1g.10gb", weight=1 / 7, gpu=1, profile="1g.10gb") for _ in range(7)),
    ),
)
SHARED = ReplayNode("l4", tuple(ReplayDevice("l4", units=4, weight=0.25, gpu=g) for g in range(2)))
ZONES = ReplayCluster((node("a", labels={"zone": "a"}), node("b", labels={"zone": "b"})))

CASES = [
    pytest.param([work(0, 8), work(5)], pool(8), {}, [0, 100], id="what-does-not-fit-is-pending"),
    pytest.param([work(0, 6), work(5, 4), work(6, 2)], pool(8), {}, [0, 100, 6], id="small-passes"),
    pytest.param(
        [work(0, 6), work(5, 4), work(6, 2)], pool(8), {"strict": True}, [0, 100, 100],
        id="strict-order-lets-nobody-pass",
    ),
    pytest.param(
        [work(0, 9), work(5)], pool(8), {"strict": True}, [None, 5],
        id="what-never-fits-holds-nobody-up",
    ),
    pytest.param([work(0, 6), work(1, 4)], pool(4, 4), {}, [None, 1], id="a-pod-is-on-one-node"),
    pytest.param(
        [work(0, 4, pods=2), work(0, 4, pods=3)], pool(4, 4), {}, [0, None],
        id="gangs-start-whole-or-not-at-all",
    ),
    pytest.param(
        [work(0, 8, requires=(("zone", "a"),)), work(1, 1, requires=(("zone", "a"),)), work(2)],
        ZONES, {}, [0, 100, 2], id="labels-are-kept-to",
    ),
    pytest.param(
        [work(0, 1, tier="3g.40gb") for _ in range(3)], ReplayCluster((MIG,)), {}, [0, 0, 100],
        id="mig-devices-are-of-their-profile",
    ),
    pytest.param(
        [work(0, units, tier="l4") for units in (3, 3, 2, 1)],
        ReplayCluster((SHARED,)), {}, [0, 0, 0, 100], id="replicas-are-shared",
    ),
    pytest.param([work(0, 1, tier="none")], pool(8), {}, [None], id="no-node-has-the-tier"),
    pytest.param([work(0, 8), work(1), work(2, priority=5)], pool(8), {}, [0, 100, 100],
        id="ends-at-once"),
    pytest.param(
        [work(0, 8), work(1, 8), work(2, 8, priority=5)], pool(8), {}, [0, 200, 100],
        id="priority-first",
    ),
    pytest.param([work(0, 1, delay_seconds=30)], pool(8), {}, [30], id="a-delay-comes-first"),
    pytest.param(
        [work(0, 8), work(5, leaves_at=50), work(6, leaves_at=400)], pool(8), {}, [0, None, 100],
        id="who-is-canceled-goes-unless-it-runs",
    ),
    pytest.param(
        [work(0, 8, None), work(2)], pool(8), {}, [0, None], id="without-an-end-it-holds-on"
    ),
    pytest.param(
        [work(0, 8, 300, idle_seconds=200), work(2)], pool(8), {"idle_limit": 50.0}, [0, 150],
        id="idle-work-is-ended",
    ),
    pytest.param(
        [work(-9, 8, running=True, nodes=("n1",)), work(0, 8)], pool(8, 8), {}, [0, 0],
        id="what-ran-keeps-its-node",
    ),
    pytest.param(
        [work(-9, 8, running=True), work(-8, 8, running=True), work(-7, 1, tier="x", running=True)],
        pool(8), {}, [0, 100, None], id="what-ran-and-has-no-room-is-pending",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("works", "cluster", "policy", "expected"), CASES)
def test_work_starts_when_it_has_room(
    works: list[RecordedWork],
    cluster: ReplayCluster,
    policy: dict[str, Any],
    expected: list[float | None],
) -> None:
    assert starts(run(works, cluster, ReplayPolicy(**policy))) == expected


def test_a_closed_node_takes_nothing_new_and_keeps_what_runs() -> None:
    cluster = ReplayCluster((node("n", closed=(ClosedSpan(-9, -1), ClosedSpan(50, 300))),))
    found = run([work(0, 4, 150), work(60, 4), work(70, 4)], cluster)
    assert run_spans(found) == [[(0, 150)], [(300, 400)], [(300, 400)]]


def test_a_closed_node_of_another_tier_hinders_nobody() -> None:
    cluster = ReplayCluster((node("n", closed=(ClosedSpan(0, 20),)), SHARED))
    assert starts(run([work(0), work(0, 1, tier="l4")], cluster)) == [20, 0]


def test_what_ran_on_one_node_goes_elsewhere_where_that_is_full() -> None:
    works = [work(-9, 8, running=True, nodes=("n0",)), work(-8, 8, running=True, nodes=("n0",))]
    nodes = [{part.node for part in one.runs[0].parts} for one in run(works, pool(8, 8)).played]
    assert nodes == [{0}, {1}]


def test_a_delay_may_last_until_it_is_canceled_or_all_ends() -> None:
    found = run([work(0, delay_seconds=50, leaves_at=20), work(900, delay_seconds=100)], pool(8))
    assert [(one.started_at, one.ended_at) for one in found.played] == [(None, 20), (None, None)]


CHECKED: Any = {"queue": "q", "check_seconds": 50.0}
CHECKS = [
    pytest.param([work(0, 8, **CHECKED), work(1, 8, queue="q")], [50, 150], id="holds-its-quota"),
    pytest.param(
        [work(0, 8, leaves_at=20, **CHECKED), work(1, 8, queue="q")], [None, 20],
        id="gives-it-back-where-it-is-canceled",
    ),
    pytest.param(
        [work(0, 8, **CHECKED), work(10, 8, queue="q", priority=5)], [160, 10],
        id="loses-it-to-a-higher-priority-and-is-checked-again",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("works", "expected"), CHECKS)
def test_work_under_admission_checks(works: list[RecordedWork], expected: list[float]) -> None:
    found = run(works, pool(8, queues=(queue("q", 8, preempts_own=True),)))
    assert starts(found) == expected
    assert found.played[0].runs == [] or ReplayAssumption.START_DELAYS in found.assumptions


def test_no_more_goes_than_has_to() -> None:
    works = [work(0, 4), work(1, 4), work(5, 4, priority=1)]
    found = run(works, pool(8), ReplayPolicy(preemption=True))
    assert preemptions(found) == [0, 1, 0]


def test_who_goes_at_the_end_has_gone_and_nobody_starts() -> None:
    found = run([work(900, 8), work(950), work(960, leaves_at=END), work(END)], pool(8))
    assert [(one.started_at, one.ended_at) for one in found.played] == [
        (900, END), (None, None), (None, END),
    ]  # fmt: skip


def test_work_must_ask_for_something() -> None:
    with pytest.raises(ValueError, match="requests nothing: 0 × 1"):
        run([work(0, 0)], pool(8))


@pytest.mark.parametrize("resumes", [True, False])
def test_lower_priority_makes_room_on_the_node_where_least_is_lost(resumes: bool) -> None:
    policy = ReplayPolicy(preemption=True, resumes=resumes)
    works = [work(0, 8, priority=1), work(0, 8), work(40, 2, priority=2), work(41, 9, priority=9)]
    found = run(works, pool(8, 8), policy)
    again = 60.0 if resumes else 100.0
    assert run_spans(found) == [[(0, 100)], [(0, 40), (100, 100 + again)], [(40, 140)], []]
    assert preemptions(found) == [0, 1, 0, 0]


# Two of priority 0 run on a node that lacks GPUs from 10 on; at 20 comes one of priority 1.
LACKS = [
    pytest.param(2, 1, [1, 1, 0], 20, id="one-more-goes-for-the-gpu-that-failed"),
    pytest.param(2, 2, [0, 0, 0], None, id="nobody-goes-where-that-makes-no-room"),
    pytest.param(3, 1, [1, 0, 0], 20, id="what-is-free-is-lost-first"),
]


@pytest.mark.parametrize(("gpus", "missing", "gone", "start"), LACKS)
def test_nobody_goes_for_gpus_that_vanish_with_who_holds_them(
    gpus: int, missing: int, gone: list[int], start: float | None
) -> None:
    lacking = (MissingUnits(10, END, TIER, missing),)
    cluster = ReplayCluster((node("n", gpus, missing=lacking),))
    works = [work(0, 1, None), work(0, 1, None), work(20, 1, None, priority=1)]
    found = run(works, cluster, ReplayPolicy(preemption=True))
    assert preemptions(found) == gone
    assert found.played[2].started_at == start


def test_equal_priority_preempts_nothing() -> None:
    assert starts(run([work(0, 8), work(1)], pool(8), ReplayPolicy(preemption=True))) == [0, 100]


def test_a_team_of_whom_work_was_preempted_has_its_turn_sooner() -> None:
    a, b = {"requires": (("zone", "a"),)}, {"requires": (("zone", "b"),)}
    weights = {(team, TIER): 1.0 for team in ("low", "mid", "high")}
    policy = ReplayPolicy(preemption=True, order=PendingOrder.FAIR, weights=weights)
    works = [
        *(work(0, 2, None, team="low", **a) for _ in range(2)),
        work(0, 3, None, team="mid", **b),
        work(10, 2, None, team="high", priority=1, **a),
        work(10, 1, None, team="mid"),
        work(10, 1, None, team="low"),
    ]
    cluster = ReplayCluster(
        (node("n0", 4, labels={"zone": "a"}), node("n1", 4, labels={"zone": "b"}))
    )
    # Of 4 GPUs two are left to the team, fewer than the other's 3: it gets the free one.
    assert starts(run(works, cluster, policy)) == [0, 0, 0, 10, None, 10]


def test_teams_below_their_entitlement_come_first() -> None:
    policy = ReplayPolicy(order=PendingOrder.FAIR, entitlements={("a", TIER): 2, ("b", TIER): 2})
    works = [work(0, 4, team="a"), work(1, 2, team="a"), work(2, 2, team="a"), work(9, 2, team="b")]
    assert starts(run(works, pool(4), policy)) == [0, 100, 200, 100]


def test_what_a_team_held_counts_half_after_the_half_life() -> None:
    weights = {("a", TIER): 1.0, ("b", TIER): 1.0}
    works = [
        work(0, 4, 100, team="a"), work(100, 4, 100, team="c"),
        work(150, 4, 50, team="a"), work(160, 4, 50, team="b"),
    ]  # fmt: skip
    now = ReplayPolicy(order=PendingOrder.FAIR, weights=weights)
    past = ReplayPolicy(order=PendingOrder.FAIR, weights=weights, half_life=500.0)
    assert starts(run(works, pool(4), now))[2:] == [200, 250]
    assert starts(run(works, pool(4), past))[2:] == [250, 200]


def test_assumptions_are_those_of_the_case() -> None:
    plain = run([work(0)], pool(8)).assumptions
    assert ReplayAssumption.SMALL_PASSES in plain
    assert ReplayAssumption.NO_PREEMPTION in plain
    cluster = pool(8, queues=(queue("a", 8, reclaim=Reclaim.ANY),))
    works = [work(0, 1, None, pods=2, delay_seconds=1), work(-1, running=True)]
    policy = ReplayPolicy(strict=True, idle_limit=9.0, recorded_nodes=True)
    every = run(works, cluster, policy).assumptions
    shared = run(works, cluster, ReplayPolicy(fair_sharing=True)).assumptions
    assert ReplayAssumption.KUEUE_ORDER not in shared
    # What is assumed of recorded days and queues is that of the reading: see test_nodes_from_series
    # and test_recorded_works. Circles are in test_kueue_quota.
    elsewhere = {
        ReplayAssumption.BORROWERS_WAIT,
        ReplayAssumption.EQUALS_STAY,
        ReplayAssumption.FLAVORS_FIRST,
        ReplayAssumption.NO_FAIR_SHARING,
        ReplayAssumption.PREEMPTION_CIRCLES,
        ReplayAssumption.NODES_FROM_SERIES,
        ReplayAssumption.LABELS_UNKNOWN,
        ReplayAssumption.PENDING_FROM_SERIES,
        ReplayAssumption.DELAYS_FROM_SERIES,
        ReplayAssumption.LIMITS_UNKNOWN,
        ReplayAssumption.LIMITS_AS_WATCHED,
    }
    assert {*plain, *every, *shared} == set(ReplayAssumption) - elsewhere
    assert all(assumption_text(one).endswith(".") for one in ReplayAssumption)


def test_work_takes_the_nodes_that_it_ran_on_where_these_have_room() -> None:
    policy = ReplayPolicy(packing=Packing.PACK, recorded_nodes=True)
    works = [
        work(0, 2, nodes=("n1",)),
        work(1, 8, nodes=("n1",)),
        work(2, 2, nodes=("gone",)),
        work(3, 1, pods=2, nodes=("n1", "n2")),
        work(4, 1, nodes=("n3",)),
    ]
    closed = node("n3", closed=(ClosedSpan(0.0, 500.0),))
    cluster = ReplayCluster((*pool(8, 8, 8).nodes, closed))

    def taken(policy: ReplayPolicy) -> list[set[int]]:
        found = run(works, cluster, policy).played
        return [{part.node for part in one.runs[0].parts} for one in found]

    # Where it was there is too little room, the node is gone, or takes no pods: the best one.
    assert taken(policy) == [{1}, {0}, {1}, {1, 2}, {1}]
    assert taken(ReplayPolicy(packing=Packing.PACK))[0] == {0}


# ------------------------------------------------------------ properties

WORKS = st.lists(
    st.builds(
        work,
        st.integers(0, 500).map(float),
        st.sampled_from([1.0, 2.0, 4.0]),
        st.sampled_from([10.0, 90.0, 400.0, None]),
        pods=st.sampled_from([1, 1, 1, 2, 3]),
        priority=st.sampled_from([0, 0, 1]),
        queue=st.sampled_from(["", "a", "b"]),
        team=st.sampled_from(["x", "y"]),
        leaves_at=st.sampled_from([None, None, 600.0]),
    ),
    max_size=25,
)
POLICIES = st.builds(
    ReplayPolicy,
    order=st.sampled_from(PendingOrder),
    packing=st.sampled_from(Packing),
    strict=st.booleans(),
    preemption=st.booleans(),
    borrowing=st.booleans(),
    fair_sharing=st.booleans(),
    resumes=st.booleans(),
)
QUEUES = st.tuples(
    *(
        st.builds(
            queue,
            st.just(name),
            st.sampled_from([4.0, 6.0]),
            borrowing_limit=st.sampled_from([None, 2.0]),
            lending_limit=st.sampled_from([None, 3.0]),
            strict=st.booleans(),
            preempts_own=st.booleans(),
            reclaim=st.sampled_from(Reclaim),
        )
        for name in "ab"
    )
)


@given(WORKS, POLICIES, QUEUES)
def test_no_gpu_in_two_places_and_no_pod_before_its_arrival(
    works: list[RecordedWork], policy: ReplayPolicy, queues: tuple[ReplayQueue, ...]
) -> None:
    found = run(works, pool(4, 4, 2, queues=queues), policy)
    assert found == run(works, pool(4, 4, 2, queues=queues), policy)
    held: list[tuple[float, float, int, int]] = []
    for one in found.played:
        assert one.started_at is None or one.started_at >= one.work.asked_at
        for span in one.runs:
            assert sum(part.units for part in span.parts) == one.work.total_units
            assert len(span.parts) == len({(p.node, p.device) for p in span.parts})
            until = END if span.end is None else span.end
            held += [(span.start, until, part.node, part.device) for part in span.parts]
    for start, until, device, number in held:
        assert sum(s <= start < e and (n, d) == (device, number) for s, e, n, d in held) <= 1 or (
            start == until
        )
    _check_quota(found, {one.name: one for one in queues}, policy)


def _check_quota(
    found: ClusterReplay, queues: dict[str, ReplayQueue], policy: ReplayPolicy
) -> None:
    """No queue runs more than it may have, and both no more than all of them have."""
    for at in sorted({span.start for one in found.played for span in one.runs}):
        used = dict.fromkeys(queues, 0.0)
        for one in found.played:
            for span in one.runs:
                if one.work.queue in used and span.start <= at < (span.end or END):
                    used[one.work.queue] += one.work.total_units
        quotas = {name: next(iter(own.quotas.values())) for name, own in queues.items()}
        assert sum(used.values()) <= sum(quota.nominal for quota in quotas.values())
        for name, quota in quotas.items():
            limit = quota.borrowing_limit if policy.borrowing else 0.0
            if limit is not None:
                assert used[name] <= quota.nominal + limit


ONE_POOL = st.lists(
    st.builds(
        work,
        st.integers(0, 400).map(float),
        st.sampled_from([1.0, 2.0, 3.0, 4.0]),
        st.integers(1, 80).map(float),
    ),
    min_size=1,
    max_size=30,
)


@given(ONE_POOL, st.integers(4, 9), st.integers(1, 5))
def test_more_capacity_never_lengthens_queue_times_in_strict_order(
    works: list[RecordedWork], gpus: int, more: int
) -> None:
    def waited(capacity: int) -> float:
        found = run(works, pool(capacity), STRICT, end=10_000.0)
        return sum((one.started_at or 0.0) - one.work.asked_at for one in found.played)

    assert waited(gpus + more) <= waited(gpus)


@given(
    st.lists(
        st.tuples(st.integers(1, 6), st.integers(0, 6), st.booleans()), min_size=1, max_size=5
    ),
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from(Packing),
    st.booleans(),
)
def test_room_and_the_chosen_node_are_those_of_an_exhaustive_search(
    sizes: list[tuple[int, int, bool]], units: int, pods: int, packing: Packing, zoned: bool
) -> None:
    nodes = [
        node(f"n{i}", size, labels={"zone": "a" if zone else "b"})
        for i, (size, _, zone) in enumerate(sizes)
    ]
    space = TierSpace(TIER, nodes, packing)
    free = []
    for place, (size, used, _) in enumerate(sizes):
        assert space.place_on(1, [place] * min(size, used)) is not None
        free.append(size - min(size, used))
    requires = (("zone", "a"),) if zoned else ()
    allowed = [i for i, (_, _, zone) in enumerate(sizes) if zone or not zoned]
    sign = {Packing.PACK: 1, Packing.SPREAD: -1, Packing.FIRST: 0}[packing]
    ranked = sorted(
        (sign * round((free[i] - units) / sizes[i][0], 9), i) for i in allowed if free[i] >= units
    )
    assert space.best(units, requires) == (ranked[0][1] if ranked else None)
    whole = any(
        all(free[i] >= units * chosen.count(i) for i in allowed)
        for chosen in product(allowed, repeat=pods)
    )
    before = [space.free(i) for i in range(len(sizes))]
    taken = space.place(units, pods, requires)
    assert (taken is not None) == whole
    space.release(taken or ())
    assert [space.free(i) for i in range(len(sizes))] == before


def test_flavors_are_tried_in_their_order() -> None:
    quotas = {("spot", TIER): FlavorQuota(4.0), ("own", TIER): FlavorQuota(4.0)}
    cluster = ReplayCluster(
        (node("s", 4, labels={"kind": "spot"}), node("o", 4, labels={"kind": "own"})),
        (ReplayQueue("a", quotas),),
        flavors={"spot": (("kind", "spot"),), "own": (("kind", "own"),)},
    )
    works = [work(0, 3, queue="a"), work(1, 3, queue="a"), work(2, 1, queue="a")]
    works.append(work(3, 1, queue="a", requires=(("kind", "own"),)))
    works.append(work(4, 1, queue="a", requires=(("kind", "none"),)))
    found = run(works, cluster)
    assert [one.flavor for one in found.played] == ["spot", "own", "spot", "own", ""]
