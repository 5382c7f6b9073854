"""Recorded pods, nodes and queues as the input of a replay."""

from typing import Any

import pytest

from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    CohortSnapshot,
    FlavorSnapshot,
    LocalQueueSnapshot,
    NodeSnapshot,
    ObservedKind,
    ObservedObject,
    QuotaScope,
    QuotaSnapshot,
    Taint,
)
from apps.clusters.domain.observed.objects import FlavorQuota as ObservedQuota
from apps.clusters.domain.pods.ledger import NodeInterval, OfferedDevice
from apps.clusters.domain.tiers import GpuSharing, TierRule
from apps.planning.domain.cluster_replay.inputs import (
    ClosedSpan,
    FlavorQuota,
    MissingUnits,
    Reclaim,
    ReplayAssumption,
    ReplayCluster,
    ReplayDevice,
    ReplayNode,
    ReplayPolicy,
    ReplayQueue,
)
from apps.planning.domain.cluster_replay.wording import assumption_text
from apps.planning.domain.recorded.constraints import (
    TAINTS,
    NodeLabels,
    constrained,
    with_observed,
)
from apps.planning.domain.recorded.nodes import largest_nodes, replay_nodes
from apps.planning.domain.recorded.queues import recorded_queues
from apps.planning.domain.recorded.works import (
    NO_DEMAND,
    NO_TIER,
    BlockedWork,
    LedgerPod,
    family_of,
    recorded_works,
)
from tests.planning.clusters import TIER, node, queue, run, run_spans, starts, work

GPU = "nvidia.com/gpu"
HOUR = 3600.0
START, END = 10 * HOUR, 34 * HOUR
OWNER = ("vision", "Job", "train-7")
TIERS = {"whole": 8.0}
PRODUCT = "nvidia.com/gpu.product"
A100 = "NVIDIA-A100-SXM4-80GB"
RULES = [
    TierRule("whole", GpuSharing.EXCLUSIVE, (GPU,), (), {PRODUCT: A100}),
    TierRule("slices", GpuSharing.MIG, ("nvidia.com/mig-1g.10gb",)),
    TierRule("turns", GpuSharing.TIME_SLICED, ("nvidia.com/gpu.shared",)),
    TierRule("claims", GpuSharing.DRA, (), ("gpu.nvidia.com",)),
]


def pod(uid: str, created: float = START, **more: Any) -> LedgerPod:
    values: dict[str, Any] = {
        "owner": OWNER, "team": "vision", "tier": "whole", "resource": GPU, "units": 2.0,
        "gpus": 2.0,
    }  # fmt: skip
    return LedgerPod(uid=uid, created=created, **(values | more))


def blocked(uid: str, since: float = START, **more: Any) -> BlockedWork:
    values: dict[str, Any] = {
        "owner": OWNER, "team": "vision", "tier": "whole", "resource": GPU, "units": 4.0,
        "gpus": 4.0,
    }  # fmt: skip
    return BlockedWork(uid=uid, since=since, **(values | more))


def test_works_have_the_times_of_their_pods() -> None:
    pods = [
        pod("ran", START + HOUR, bound=START + 2 * HOUR, ended=START + 5 * HOUR, delay=60.0),
        pod("before", START - HOUR, bound=START - HOUR, ended=START + HOUR, node="n1"),
        pod("still", START + 6 * HOUR, bound=START + 6 * HOUR),
        pod("left", START + 7 * HOUR, ended=START + 8 * HOUR),
    ]
    found = recorded_works(pods, (), TIERS, start=START, end=END)
    rows = {
        life.uid: (one.asked_at, one.runs_seconds, one.leaves_at, one.running, one.nodes)
        for one, life in zip(found.works, found.lives, strict=True)
    }
    assert rows == {
        "before": (START - HOUR, HOUR, None, True, ("n1",)),
        "ran": (START + HOUR, 3 * HOUR, None, False, ()),
        "still": (START + 6 * HOUR, None, None, False, ()),
        # Work that never ran would have run as long as half of the others: 2 or 3 hours.
        "left": (START + 7 * HOUR, 2 * HOUR, START + 8 * HOUR, False, ()),
    }
    assert [life.guessed for life in found.lives] == [False, False, False, True]
    assert [one.delay_seconds for one in found.works] == [0.0, 60.0, 0.0, 0.0]
    assert {one.resource for one in found.works} == {GPU}
    ran = found.lives[1].times
    assert (ran.gpus, ran.started_at, ran.ended_at) == (2.0, START + 2 * HOUR, START + 5 * HOUR)


def test_checks_are_those_of_pods_and_of_what_was_blocked_before() -> None:
    pods = [pod("a", START + HOUR, bound=START + 3 * HOUR, checks=50.0)]
    before = blocked("w", until=START + HOUR, started=True, checks=20.0)
    never = blocked("x", START + 2 * HOUR, owner=("vision", "Job", "never"), checks=30.0)
    found = recorded_works(pods, [before, never], TIERS, start=START, end=END)
    assert [one.check_seconds for one in found.works] == [70.0, 30.0]


def test_of_one_second_the_first_to_start_was_first_in_line() -> None:
    started = {"a": None, "b": START + 2 * HOUR, "c": START + HOUR}
    pods = [pod(uid, bound=at) for uid, at in started.items()]
    found = recorded_works(pods, (), TIERS, start=START, end=END)
    assert [life.uid for life in found.lives] == ["c", "b", "a"]


def test_what_cannot_be_replayed_is_counted() -> None:
    pods = [pod("a", tier="undetermined"), pod("b", is_demand=False)]
    found = recorded_works(pods, [blocked("c", tier="x")], TIERS, start=START, end=END)
    assert (found.works, found.left_out) == ([], {NO_TIER: 2, NO_DEMAND: 1})


GANGS = [
    pytest.param([(0, 10), (60, 20)], [2], id="came-and-started-together"),
    pytest.param([(0, 10), (60, 900)], [1, 1], id="started-apart"),
    pytest.param([(0, 10), (300, 310)], [1, 1], id="another-attempt"),
    pytest.param([(0, None), (1, None)], [2], id="none-started"),
    pytest.param([(0, 10), (1, None)], [1, 1], id="one-did-not-start"),
]


@pytest.mark.parametrize(("times", "sizes"), GANGS)
def test_pods_of_a_gang_are_one_work_where_they_start_together(
    times: list[tuple[float, float | None]], sizes: list[int]
) -> None:
    pods = [
        pod(
            f"p{number}",
            START + created,
            gang="g",
            bound=None if bound is None else START + bound,
            ended=START + HOUR * (number + 1),
        )
        for number, (created, bound) in enumerate(times)
    ]
    found = recorded_works(pods, (), TIERS, start=START, end=END)
    assert [one.pods for one in found.works] == sizes
    if sizes == [2]:
        assert found.lives[0].times.ended_at == START + 1.5 * HOUR


def test_pods_arrive_when_their_controller_was_blocked() -> None:
    until = START + HOUR
    pods = [pod("a", until + 5, bound=until + 6), pod("b", until + 5), pod("c", until + 5)]
    one = blocked("job", START, until=until, started=True)
    found = recorded_works(pods, [one], TIERS, start=START, end=END)
    arrived = {life.uid: own.asked_at for own, life in zip(found.works, found.lives, strict=True)}
    # Four units were blocked: the first two pods.
    assert arrived == {"a": START, "b": START, "c": until + 5}


def test_work_that_never_had_pods_is_work_too() -> None:
    waits = [
        blocked("open", units=16.0, gpus=16.0, owner=("vision", "Job", "big")),
        blocked("gone", until=START + HOUR, owner=("vision", "Job", "small")),
        blocked("like", owner=OWNER, until=START + 9 * HOUR),
        blocked("began", owner=("vision", "Job", "began"), until=START + HOUR, started=True),
    ]
    found = recorded_works([pod("a", bound=START)], waits, TIERS, start=START, end=END)
    sizes = {
        life.uid: (one.pods, one.units, one.leaves_at)
        for one, life in zip(found.works, found.lives, strict=True)
    }
    assert sizes == {
        "a": (1, 2.0, None),
        "open": (2, 8.0, None),
        "gone": (1, 4.0, START + HOUR),
        "like": (2, 2.0, START + 9 * HOUR),
    }


def test_families_are_called_alike_but_for_a_unique_end() -> None:
    assert family_of(("vision", "Job", "train-29012345")) == "vision/Job/train-*"


def interval(at: float, until: float, gpus: float = 8.0, **more: Any) -> NodeInterval:
    values: dict[str, Any] = {"labels": {PRODUCT: A100}}
    offers = {GPU: gpus}
    return NodeInterval("n1", at, until, offers, offers, **(values | more))


INTERVALS = [
    pytest.param([interval(START, END)], (), (), id="always-there"),
    pytest.param(
        [interval(START, START + HOUR), interval(START + 2 * HOUR, END)],
        (ClosedSpan(START + HOUR, START + 2 * HOUR),), (), id="away-for-an-hour",
    ),
    pytest.param(
        [interval(START + HOUR, END - HOUR)],
        (ClosedSpan(START, START + HOUR), ClosedSpan(END - HOUR, END)), (), id="came-and-went",
    ),
    pytest.param(
        [interval(START, START + HOUR, ready=False), interval(START + HOUR, END)],
        (ClosedSpan(START, START + HOUR),), (), id="not-ready",
    ),
    pytest.param(
        [interval(START, START + HOUR), interval(START + HOUR, END, schedulable=False)],
        (ClosedSpan(START + HOUR, END),), (), id="cordoned",
    ),
    pytest.param(
        [
            interval(START, START + HOUR),
            interval(START + HOUR, START + 2 * HOUR, gpus=7.0),
            interval(START + 2 * HOUR, START + 3 * HOUR, gpus=7.0),
            interval(START + 3 * HOUR, END),
        ],
        (), (MissingUnits(START + HOUR, START + 3 * HOUR, "whole", 1.0),), id="unhealthy-gpu",
    ),
    pytest.param(
        [interval(START, START + HOUR), interval(START + HOUR, END, gpus=0.0)],
        (), (MissingUnits(START + HOUR, END, "whole", 8.0),), id="cut-anew",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("intervals", "closed", "missing"), INTERVALS)
def test_nodes_have_their_capacity_over_time(
    intervals: list[NodeInterval],
    closed: tuple[ClosedSpan, ...],
    missing: tuple[MissingUnits, ...],
) -> None:
    (found,) = replay_nodes(intervals, RULES, start=START, end=END, watched_from=START)
    assert (len(found.devices), found.closed, found.missing) == (8, closed, missing)
    assert largest_nodes([found]) == {"whole": 8.0}


def test_nodes_before_the_watch_are_as_it_found_them() -> None:
    late = [interval(START + 5 * HOUR, END)]
    (found,) = replay_nodes(late, RULES, start=START, end=END, watched_from=START + 5 * HOUR)
    assert found.closed == ()


def test_each_way_to_share_a_gpu_has_its_devices() -> None:
    shares = {PRODUCT: "NVIDIA-L4-SHARED", "nvidia.com/gpu.replicas": "4"}
    offered = (
        OfferedDevice("gpu.nvidia.com", "p", "gpu-0", "u0", "", "H100", ("gpu.nvidia.com",)),
        OfferedDevice("gpu.nvidia.com", "p", "gpu-1", "u1", "", "H100", ("gpu.nvidia.com",), False),
        OfferedDevice("nic.example", "p", "nic-0", "u2", "", "", ("nic.example",)),
    )
    intervals = [
        NodeInterval("mig", START, END, {}, {"nvidia.com/mig-1g.10gb": 2.0}, {PRODUCT: A100}),
        NodeInterval("turns", START, END, {}, {"nvidia.com/gpu.shared": 6.0}, shares),
        NodeInterval("dra", START, END, {}, {}, {}, devices=offered),
        NodeInterval("other", START, END, {}, {"amd.com/gpu": 2.0}, {}),
    ]
    found = replay_nodes(intervals, RULES, start=START, end=END, watched_from=START)
    devices = {one.name: one.devices for one in found}
    assert devices == {
        "dra": (ReplayDevice("claims", 1.0, 1.0, 0),),
        "mig": tuple(ReplayDevice("slices", 1.0, 1 / 7, gpu, "1g.10gb") for gpu in (0, 1)),
        "turns": (ReplayDevice("turns", 4.0, 0.25, 0), ReplayDevice("turns", 2.0, 0.25, 1)),
    }


def seen(kind: ObservedKind, name: str, body: Any, **more: Any) -> ObservedObject:
    values: dict[str, Any] = {"namespace": "", "first": 0.0, "changed": 0.0, "gone": None}
    values |= more
    return ObservedObject(kind=kind, uid=f"{kind}-{name}", name=name, body=body, **values)


def test_queues_are_as_they_were_for_most_of_the_window() -> None:
    def queue(nominal: float) -> ClusterQueueSnapshot:
        quotas = (ObservedQuota("a100", GPU, nominal, 2.0, 1.0), ObservedQuota("a100", "cpu", 9.0))
        preemption = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
        return ClusterQueueSnapshot("all", quotas, "StrictFIFO", "", None, preemption)

    kind = ObservedKind.CLUSTER_QUEUE
    objects = [
        seen(kind, "vision", queue(4.0), first=0.0, gone=START + HOUR),
        seen(kind, "vision", queue(6.0), first=START + HOUR),
        seen(kind, "vision", queue(1.0), first=0.0, gone=START),
        seen(
            ObservedKind.COHORT, "all", CohortSnapshot("root", (ObservedQuota("a100", GPU, 3.0),))
        ),
        seen(ObservedKind.RESOURCE_FLAVOR, "a100", FlavorSnapshot({PRODUCT: A100})),
        seen(
            ObservedKind.LOCAL_QUEUE, "main", LocalQueueSnapshot("vision"), namespace="vision-prod"
        ),
        seen(ObservedKind.NODE, "n1", NodeSnapshot()),
    ]  # fmt: skip
    found = recorded_queues(objects, lambda name: name == GPU, start=START, end=END)
    (own,), (cohort,) = found.queues, found.cohorts
    assert own.quotas == {("a100", GPU): FlavorQuota(6.0, 2.0, 1.0)}
    assert (own.cohort, own.strict, own.preempts_own) == ("all", True, True)
    assert (own.reclaim, own.weight) == (Reclaim.ANY, 1.0)
    assert (cohort.parent, cohort.quotas[("a100", GPU)].nominal) == ("root", 3.0)
    assert found.flavors == {"a100": ((PRODUCT, A100),)}
    assert found.links == {("vision-prod", "main"): "vision"}


@pytest.mark.parametrize(
    ("settings", "next_flavor", "assumed"),
    [
        pytest.param({}, False, [], id="as Kueue has it by itself"),
        pytest.param({"fungibility": {"whenCanBorrow": "MayStopSearch"}}, False, [], id="borrows"),
        pytest.param(
            {"fungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"}},
            True,
            [],
            id="another flavor before it borrows",
        ),
        pytest.param(
            {"fungibility": {"whenCanPreempt": "MayStopSearch"}},
            False,
            [ReplayAssumption.FLAVORS_FIRST],
            id="preempts before another flavor",
        ),
        pytest.param(
            {"preemption": {"borrowWithinCohort": "Never", "withinClusterQueue": "LowerPriority"}},
            False,
            [],
            id="preempts lower priority",
        ),
        pytest.param(
            {"preemption": {"borrowWithinCohort": "LowerPriority"}},
            False,
            [ReplayAssumption.BORROWERS_WAIT],
            id="preempts while it borrows",
        ),
        pytest.param(
            {"preemption": {"withinClusterQueue": "LowerOrNewerEqualPriority"}},
            False,
            [ReplayAssumption.EQUALS_STAY],
            id="preempts newer work of equal priority",
        ),
        pytest.param({"weight": 2.0}, False, [ReplayAssumption.NO_FAIR_SHARING], id="a weight"),
    ],
)
def test_settings_of_a_queue_are_followed_or_an_assumption(
    settings: dict[str, Any], next_flavor: bool, assumed: list[ReplayAssumption]
) -> None:
    queue = ClusterQueueSnapshot(quotas=(ObservedQuota("a100", GPU, 4.0),), **settings)
    objects = [seen(ObservedKind.CLUSTER_QUEUE, "vision", queue)]
    found = recorded_queues(objects, lambda name: name == GPU, start=START, end=END)
    assert [*found.assumptions] == assumed
    assert all(assumption_text(one) for one in assumed)
    (own,) = found.queues
    assert own.next_before_borrowing is next_flavor


def test_of_several_resource_quotas_the_lowest_limits() -> None:
    kind, device = ObservedKind.RESOURCE_QUOTA, "gpu.nvidia.com"
    objects = [
        seen(kind, "one", QuotaSnapshot({f"requests.{GPU}": 8.0, "pods": 3.0}), namespace="vision"),
        seen(kind, "two", QuotaSnapshot({f"requests.{GPU}": 6.0}), namespace="vision"),
        seen(
            kind,
            "classes",
            QuotaSnapshot({f"{device}.deviceclass.resource.k8s.io/devices": 2.0}),
            namespace="vision",
        ),
        seen(
            kind,
            "scoped",
            QuotaSnapshot({f"requests.{GPU}": 1.0}, scopes=(QuotaScope("PriorityClass"),)),
            namespace="vision",
        ),
        seen(kind, "cpu", QuotaSnapshot({"requests.cpu": 1.0}), namespace="speech"),
    ]
    found = recorded_queues(objects, lambda name: name in {GPU, device}, start=START, end=END)
    assert found.namespace_quotas == {"vision": {GPU: 6.0, device: 2.0}}


def test_the_highest_limit_of_a_changed_quota_holds() -> None:
    def quota(hard: float, **more: Any) -> ObservedObject:
        body = QuotaSnapshot({f"requests.{GPU}": hard})
        return seen(ObservedKind.RESOURCE_QUOTA, "one", body, namespace="vision", **more)

    objects = [quota(9.0, gone=START), quota(8.0, gone=END - HOUR), quota(2.0, first=END - HOUR)]
    found = recorded_queues(objects, lambda name: name == GPU, start=START, end=END)
    assert found.namespace_quotas == {"vision": {GPU: 8.0}}


def test_services_end_at_a_time_and_jobs_after_a_run() -> None:
    times = {"bound": START + HOUR, "ended": START + 3 * HOUR}
    pods = [pod("job", **times), pod("api", owner=("vision", "Deployment", "api"), **times)]
    found = recorded_works(pods, (), TIERS, start=START, end=END)
    ends = {life.uid: one.ends_at for one, life in zip(found.works, found.lives, strict=True)}
    assert ends == {"job": None, "api": START + 3 * HOUR}


def snapshot(*taints: str, **labels: str) -> NodeSnapshot:
    effects = {"soft": "PreferNoSchedule"}
    own = tuple(Taint(name, "x", effects.get(name, "NoSchedule")) for name in taints)
    return NodeSnapshot(labels=labels, taints=own)


def test_work_goes_where_its_family_bore_the_taints() -> None:
    nodes = with_observed(
        [node("a"), node("b"), node("c"), node("d", tier="other")],
        {"a": snapshot("soft", rack="r1"), "b": snapshot(), "c": snapshot("apps")},
    )
    taints = {one.name: one.labels[TAINTS] for one in nodes}
    assert taints == {"a": "", "b": "", "c": "apps=x", "d": ""}
    labels = NodeLabels.of(nodes)
    apps, both = ("vision", "Job", "apps-1234567"), ("vision", "Deployment", "both")
    pods = [
        pod("ran", owner=apps, tier=TIER, node="c"),
        pod("same", owner=("vision", "Job", "apps-7654321"), tier=TIER),
        pod("never", owner=("vision", "Job", "new"), tier=TIER, requires=(("rack", "r1"),)),
        pod("left", owner=both, tier=TIER, node="a"),
        pod("right", owner=both, tier=TIER, node="c"),
        pod("alone", tier="other", requires=(("unknown", "x"),)),
        pod("gone", tier="none"),
    ]
    found = {one.uid: one.requires for one in constrained(pods, labels)}
    assert found == {
        "ran": ((TAINTS, "apps=x"),),
        "same": ((TAINTS, "apps=x"),),
        "never": (("rack", "r1"), (TAINTS, "")),
        "left": (),
        "right": (),
        "alone": (),
        "gone": (),
    }


# ---------------------------------------------------------------- what the engine makes of it


def test_a_service_goes_at_its_time_even_where_it_never_started() -> None:
    works = [
        work(0, 8, runs=300.0, ends_at=150.0, idle_seconds=40.0),
        work(10, 8, runs=300.0, ends_at=120.0),
        work(20, 8, runs=300.0, ends_at=400.0),
    ]
    found = run(works, ReplayCluster((node("n"),)))
    assert run_spans(found) == [[(0, 150)], [], [(150, 400)]]
    assert found.played[1].ended_at == 120.0
    cut = run(works, ReplayCluster((node("n"),)), ReplayPolicy(idle_limit=10.0))
    assert run_spans(cut)[0] == [(0, 120)]


def test_quota_that_comes_back_while_nobody_is_pending_is_there_for_who_comes_next() -> None:
    cluster = ReplayCluster((node("n"),), (queue("q", 4.0),))
    found = run([work(0, 4, queue="q"), work(200, 4, queue="q")], cluster)
    assert starts(found) == [0.0, 200.0]


def test_a_resource_quota_keeps_work_from_being_created() -> None:
    cluster = ReplayCluster((node("n"),), namespace_quotas={"dev": {TIER: 4.0}})
    works = [
        work(0, 3, namespace="dev"),
        work(1, 2, namespace="dev"),
        work(2, 1, namespace="dev"),
        work(3, 4, namespace="prod"),
        work(4, 2, namespace="dev", leaves_at=50.0),
        work(5, 2, running=True, namespace="dev", runs=20.0),
    ]
    found = run(works, cluster)
    # Two of four are held: what fits passes what does not, and another namespace has no limit.
    assert starts(found) == [101.0, 1.0, 20.0, 3.0, None, 0.0]
    # A quota limits what it names, and nothing else.
    assert starts(run([work(0, 8, namespace="dev", resource="other")], cluster)) == [0.0]


def test_units_that_are_missing_take_no_work_and_come_back() -> None:
    gone = (MissingUnits(50.0, 150.0, TIER, 2.0), MissingUnits(300.0, 320.0, TIER, 1.0))
    own = ReplayNode("n", (ReplayDevice(TIER), ReplayDevice(TIER, gpu=1)), missing=gone)
    works = [work(0, runs=100.0), work(60, runs=10.0), work(290, 2, runs=5.0), work(310, 2)]
    found = run(works, ReplayCluster((own,)))
    # What runs on a device that fails goes on; what comes has to wait until the device is back.
    assert run_spans(found) == [[(0, 100)], [(150, 160)], [(290, 295)], [(320, 420)]]


def test_units_that_come_back_before_they_are_free_change_nothing() -> None:
    gone = (MissingUnits(-9.0, 0.0, TIER, 1.0), MissingUnits(10.0, 20.0, TIER, 1.0))
    own = ReplayNode("n", (ReplayDevice(TIER),), missing=gone)
    found = run([work(0), work(5)], ReplayCluster((own,)))
    assert run_spans(found) == [[(0, 100)], [(100, 200)]]


def test_a_flavor_serves_only_tiers_of_its_nodes() -> None:
    nodes = (node("a", labels={"m": "a"}), node("h", tier="h100", labels={"m": "h"}))
    flavors = {"fa": (("m", "a"),), "fh": (("m", "h"),)}
    quotas = {("fa", GPU): FlavorQuota(8.0), ("fh", GPU): FlavorQuota(8.0)}
    cluster = ReplayCluster(nodes, (ReplayQueue("q", quotas),), (), flavors)
    found = run([work(0, 2, tier="h100", queue="q", resource=GPU)] * 2, cluster)
    assert ([one.flavor for one in found.played], starts(found)) == (["fh", "fh"], [0.0, 0.0])
