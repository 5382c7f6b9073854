"""What claims are charged, and what queues gave."""

import pytest

from apps.accounts.domain.structs import replace
from apps.clusters.domain.observed.objects import (
    ClaimRequest,
    ClaimSnapshot,
    ClusterQueueSnapshot,
    Condition,
    FlavorQuota,
    KaiQueueSnapshot,
    ObservedKind,
    ObservedObject,
    PodGroupSnapshot,
    PodSet,
    WorkloadSnapshot,
)
from apps.clusters.domain.pods.ledger import ClaimAllocationRecord, ClaimedDevice
from apps.quotas.domain.allocations import (
    Owner,
    PodLives,
    UnitSpan,
    charged,
    claim_lives,
    kai_use,
    kueue_use,
    volcano_use,
)
from apps.quotas.domain.keys import Counting
from apps.quotas.domain.saturation import RequestLife

GPU, CLASS = "nvidia.com/gpu", "gpu.nvidia.com"
ONE_FLAVOR = ClusterQueueSnapshot(quotas=(FlavorQuota("a100", GPU, 8),))
TWO_FLAVORS = ClusterQueueSnapshot(
    quotas=(FlavorQuota("a100", GPU, 8), FlavorQuota("h100", GPU, 8))
)
TRAIN: Owner = ("vision", "Job", "train")


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ([ClaimRequest("a", CLASS, 2), ClaimRequest("b", CLASS, 1)], {CLASS: 3}),
        ([ClaimRequest("a", CLASS, None)], {CLASS: 32}),
        (
            [
                ClaimRequest("big", "h100", 1, of="a"),
                ClaimRequest("many", "a100", 2, of="a"),
                ClaimRequest("more", "a100", 4, of="a"),
            ],
            {"h100": 1, "a100": 4},
        ),
        ([ClaimRequest("a", CLASS, 1, admin=True)], {}),
    ],
    ids=["sum", "all devices", "the most of alternatives", "administration"],
)
def test_what_a_claim_is_charged(requests: list[ClaimRequest], expected: dict[str, float]) -> None:
    assert charged(requests) == expected


def allocation(uid: str, start: float, end: float | None) -> ClaimAllocationRecord:
    device = ClaimedDevice(CLASS, "GPU-1", "", "A100")
    return ClaimAllocationRecord(uid, "vision", uid, "node", start, end, (device, device))


def test_a_claim_is_charged_from_its_creation_and_held_while_it_is_allocated() -> None:
    body = ClaimSnapshot(10, (ClaimRequest("a", CLASS, 2),))
    seen = ObservedObject(ObservedKind.RESOURCE_CLAIM, "c", "vision", "c", body, 11, 11, 90)
    intervals = [allocation("c", 20, 40), allocation("c", 60, None)]
    assert claim_lives([seen], intervals) == [
        ("vision", RequestLife({CLASS: 2}, 10, 90, ((20, 40), (60, None)), "", Counting.CLAIMS))
    ]


def test_of_a_claim_that_nobody_remembers_the_allocations_tell() -> None:
    found = claim_lives([], [allocation("c", 20, 40), allocation("c", 60, 80)])
    assert found == [
        ("vision", RequestLife({CLASS: 2}, 20, 80, ((20, 40), (60, 80)), "", Counting.CLAIMS))
    ]


def workload(
    *, reserved: float | None, queue: str = "q", flavor: str = "a100", gone: float | None = None
) -> ObservedObject:
    waits = Condition("PodsReady", "False")
    conditions: tuple[Condition, ...] = (waits, Condition("QuotaReserved", "False"))
    if reserved is not None:
        conditions = (waits, Condition("QuotaReserved", "True", since=reserved))
    flavors = {} if reserved is None else {GPU: flavor}
    body = WorkloadSnapshot(
        created=10,
        queue="local",
        cluster_queue="" if reserved is None else queue,
        owner_kind="Job",
        owner="train",
        pod_sets=(PodSet("main", 2, {GPU: 2.0, "cpu": 1.0}, flavors),),
        conditions=conditions,
    )
    return ObservedObject(ObservedKind.KUEUE_WORKLOAD, "w", "vision", "train", body, 10, 10, gone)


def lives_of(*lives: RequestLife, owner: Owner = TRAIN, name: str = "train-x1x2x") -> PodLives:
    found = PodLives()
    for life in lives:
        found.add(owner, name, life)
    return found


def pods(*bound: tuple[float, float | None]) -> PodLives:
    return lives_of(
        *(RequestLife({GPU: 2.0}, start - 1, end, ((start, end),)) for start, end in bound)
    )


def test_an_admitted_workload_takes_its_quota_until_it_is_gone() -> None:
    local = {("vision", "local"): "q"}
    seen = [workload(reserved=20, gone=90)]
    use = kueue_use(seen, {"q": TWO_FLAVORS}, local, pods((25, 80), (30, 85)))
    assert dict(use.taken) == {("q", "a100", GPU): [(4, 20, 90)]}
    assert dict(use.held) == {("q", "a100", GPU): [(2, 25, 80), (2, 30, 85)]}


@pytest.mark.parametrize(
    ("per_pod", "held"),
    [
        ((1.0, 4.0), {"a100": [(1, 25, None)], "h100": [(4, 30, None)]}),
        ((2.0, 2.0), {f: [(0.5, 25, None), (2, 30, None)] for f in ("a100", "h100")}),
    ],
    ids=["told by what a pod asks for", "alike, and shared by their pods"],
)  # fmt: skip
def test_pod_sets_of_a_workload_take_each_from_its_flavor(
    per_pod: tuple[float, float], held: dict[str, list[UnitSpan]]
) -> None:
    first, second = per_pod
    one = workload(reserved=20)
    assert isinstance(one.body, WorkloadSnapshot)
    sets = (
        PodSet("main", 1, {GPU: first}, {GPU: "a100"}),
        PodSet("helpers", 1, {GPU: second}, {GPU: "h100"}),
    )
    seen = replace(one, body=replace(one.body, pod_sets=sets))
    bound = ((1.0, 25), (4.0, 30))
    lives = lives_of(
        *(RequestLife({GPU: units}, at - 1, None, ((at, None),)) for units, at in bound)
    )
    use = kueue_use([seen], {"q": TWO_FLAVORS}, {}, lives)
    assert dict(use.taken) == {
        ("q", "a100", GPU): [(first, 20, None)],
        ("q", "h100", GPU): [(second, 20, None)],
    }
    assert dict(use.held) == {("q", flavor, GPU): spans for flavor, spans in held.items()}


def test_a_pod_set_whose_flavor_is_not_told_takes_nothing() -> None:
    one = workload(reserved=20)
    assert isinstance(one.body, WorkloadSnapshot)
    sets = (PodSet("main", 1, {GPU: 1.0}, {GPU: "a100"}), PodSet("later", 1, {GPU: 1.0}))
    seen = replace(one, body=replace(one.body, pod_sets=sets))
    use = kueue_use([seen], {"q": TWO_FLAVORS}, {}, PodLives())
    assert dict(use.taken) == {("q", "a100", GPU): [(1, 20, None)]}


def test_what_it_held_before_it_was_evicted_is_known_by_its_pods() -> None:
    local = {("vision", "local"): "q"}
    again = kueue_use([workload(reserved=50)], {"q": ONE_FLAVOR}, local, pods((25, 40), (60, None)))
    assert dict(again.taken) == {("q", "a100", GPU): [(4, 50, None), (2, 25, 40)]}
    lost = kueue_use([workload(reserved=None)], {"q": ONE_FLAVOR}, local, pods((25, 40)))
    assert dict(lost.taken) == {("q", "a100", GPU): [(2, 25, 40)]}


def test_what_cannot_be_told_is_not_guessed() -> None:
    local = {("vision", "local"): "q"}
    several = kueue_use([workload(reserved=None)], {"q": TWO_FLAVORS}, local, pods((25, 40)))
    unknown = kueue_use(
        [workload(reserved=20, queue="other")], {"q": ONE_FLAVOR}, local, PodLives()
    )
    nowhere = kueue_use([workload(reserved=None)], {"q": ONE_FLAVOR}, {}, PodLives())
    assert not several.taken
    assert not unknown.taken
    assert not nowhere.taken


def test_a_volcano_queue_is_held_by_the_pods_of_its_groups_once() -> None:
    body = PodGroupSnapshot(created=0, queue="q", owner_kind="Job", owner="train")
    groups = [
        ObservedObject(ObservedKind.VOLCANO_POD_GROUP, uid, "vision", uid, body, 0, 0)
        for uid in ("a", "b")
    ]
    none = ObservedObject(
        ObservedKind.VOLCANO_POD_GROUP, "c", "vision", "c", PodGroupSnapshot(created=0), 0, 0
    )
    use = volcano_use([*groups, none], pods((25, None)))
    assert dict(use.taken) == {("q", "", GPU): [(2, 25, None)]}
    assert use.held == use.taken


def kai_queue(name: str, parent: str = "") -> ObservedObject:
    body = KaiQueueSnapshot(parent=parent, quota=4)
    return ObservedObject(ObservedKind.KAI_QUEUE, f"uid-{name}", "", name, body, 0, 0)


def test_pods_of_a_kai_queue_hold_of_the_queues_above_it_too() -> None:
    lives = PodLives()
    lives.add(TRAIN, "train-0", RequestLife({GPU: 2.0}, 20, None, ((25, None),)), "vision")
    lives.add(TRAIN, "train-1", RequestLife({"cpu": 2.0}, 20, None, ((25, None),)), "vision")
    lives.add(TRAIN, "train-2", RequestLife({GPU: 1.0}, 20, None, ((25, 30),)), "speech")
    lives.add(TRAIN, "train-3", RequestLife({GPU: 8.0}, 20, None, ((25, 30),)), "of-kueue")
    queues = [
        kai_queue("research"),
        kai_queue("vision", "research"),
        kai_queue("speech", "research"),
    ]
    use = kai_use(queues, lives)
    assert dict(use.held) == {
        ("vision", "", GPU): [(2.0, 25, None)],
        ("speech", "", GPU): [(1.0, 25, 30)],
        ("research", "", GPU): [(2.0, 25, None), (1.0, 25, 30)],
    }
    assert use.taken == use.held


def test_kai_queues_that_name_each_other_as_parent_count_once() -> None:
    lives = PodLives()
    lives.add(TRAIN, "train-0", RequestLife({GPU: 2.0}, 20, None, ((25, None),)), "a")
    use = kai_use([kai_queue("a", "b"), kai_queue("b", "a")], lives)
    assert dict(use.held) == {("a", "", GPU): [(2.0, 25, None)], ("b", "", GPU): [(2.0, 25, None)]}


def test_pods_that_ask_for_something_else_hold_nothing_of_the_queue() -> None:
    local = {("vision", "local"): "q"}
    other = lives_of(RequestLife({"cpu": 2.0}, 24, 40, ((25, 40),)))
    use = kueue_use([workload(reserved=20)], {"q": ONE_FLAVOR}, local, other)
    assert not use.held
    of_other_kind = ObservedObject(ObservedKind.CLUSTER_QUEUE, "q", "", "q", ONE_FLAVOR, 0, 0)
    assert claim_lives([of_other_kind], []) == []
    assert not kueue_use([of_other_kind], {"q": ONE_FLAVOR}, local, other).taken


def made_for(kind: str, owner: str, *names: str, gone: float | None = None) -> ObservedObject:
    one = workload(reserved=20, gone=gone)
    assert isinstance(one.body, WorkloadSnapshot)
    return replace(one, body=replace(one.body, owner_kind=kind, owner=owner, pods=names))


@pytest.mark.parametrize(
    ("one", "owner", "pod"),
    [
        (made_for("Pod", "api-7f9-x2"), ("vision", "Deployment", "api"), "api-7f9-x2"),
        (made_for("Pod", "g-0", "g-0", "g-1"), ("vision", "LeaderWorkerSet", "g"), "g-1"),
        (made_for("Pod", "alone"), ("vision", "Pod", "alone"), "alone"),
        (made_for("Job", "nightly-29"), ("vision", "CronJob", "nightly"), "nightly-29-x2x4y"),
        (made_for("Job", "set-w"), ("vision", "JobSet", "set"), "set-w-3-x2x4y"),
    ],
    ids=["of a Deployment", "of a group", "alone", "of a CronJob's Job", "of an indexed Job"],
)
def test_pods_hold_their_workloads_quota_whatever_stands_above_them(
    one: ObservedObject, owner: Owner, pod: str
) -> None:
    # Kueue makes a Workload after the plain pods that it holds back, and before a Job's.
    assert isinstance(one.body, WorkloadSnapshot)
    created = 5 if one.body.owner_kind == "Pod" else 12
    life = RequestLife({GPU: 2.0}, created, None, ((21, None),))
    use = kueue_use([one], {"q": TWO_FLAVORS}, {}, lives_of(life, owner=owner, name=pod))
    assert dict(use.held) == {("q", "a100", GPU): [(2, 21, None)]}


def test_a_pod_of_the_same_name_before_or_after_is_another_workloads() -> None:
    before = RequestLife({GPU: 2.0}, 1, 9, ((2, 9),))
    after = RequestLife({GPU: 2.0}, 95, None, ((96, None),))
    one = made_for("Pod", "web-0", gone=90)
    owner: Owner = ("vision", "StatefulSet", "web")
    use = kueue_use(
        [one], {"q": TWO_FLAVORS}, {}, lives_of(before, after, owner=owner, name="web-0")
    )
    assert not use.held
