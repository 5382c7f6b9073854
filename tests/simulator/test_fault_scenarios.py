"""The fault scenarios: everything waits once in a cycle, and its time comes."""

import json
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Barrier
from typing import Any

import pytest

from simulator.clock import PinnedClock
from simulator.fault_scenarios import site
from simulator.fault_scenarios.cycle import FaultCycle
from simulator.fault_scenarios.scenario import FaultScenario
from simulator.fleet import FOREVER
from simulator.kubernetes.api import KubernetesApi
from simulator.prometheus.signals import Signals
from simulator.responses import Response
from simulator.scenarios.base import Scenario
from simulator.scheduler.plane import ControlPlane
from simulator.scheduler.store import ObjectLife
from tests.simulator.conftest import NOW
from tests.simulator.only_faults import ORIGIN, OnlyFaults, at_minute, faults_once
from tests.simulator.scenario_truth import holdings

Object = dict[str, Any]
KUEUE, VOLCANO = "/apis/kueue.x-k8s.io/v1beta2", "/apis/scheduling.volcano.sh/v1beta1"


@pytest.fixture(scope="module")
def only_faults() -> OnlyFaults:
    return faults_once()


def items(scenario: Scenario, path: str, at: int) -> list[Object]:
    answer = KubernetesApi(scenario, PinnedClock(at * 1000)).answer(path, {})
    assert isinstance(answer, Response)
    assert answer.status == 200
    found: list[Object] = json.loads(answer.body)["items"]
    return found


def named(scenario: Scenario, path: str, at: int, stem: str) -> Object:
    return next(i for i in items(scenario, path, at) if i["metadata"]["name"].startswith(stem))


def condition(item: Object, kind: str) -> Object:
    found: Object = next(c for c in item["status"]["conditions"] if c["type"] == kind)
    return found


@pytest.mark.parametrize(
    ("minute", "pod", "says"),
    [
        pytest.param(6, "mig-wish", "11 Insufficient nvidia.com/mig-7g.80gb", id="none offered"),
        pytest.param(16, "notebook-ben", "2 Insufficient nvidia.com/gpu", id="none free"),
        pytest.param(46, "two-cards", "2 Insufficient nvidia.com/gpu", id="fragmented"),
        pytest.param(12, "simulate", "1 Insufficient cpu", id="CPU"),
        pytest.param(42, "big-batch", "1 Insufficient memory", id="memory"),
        pytest.param(12, "wrong-rack", "11 node(s) didn't match Pod's node affinity/selector",
                     id="selector"),
        pytest.param(62, "large-memory", "11 node(s) didn't match Pod's node affinity/selector",
                     id="affinity"),
        pytest.param(16, "intolerant", "2 node(s) had untolerated taint(s)", id="taint"),
        pytest.param(28, "after-maintenance", "1 node(s) were unschedulable", id="cordon"),
        pytest.param(10, "apart-2", "2 node(s) didn't match pod anti-affinity rules", id="apart"),
        pytest.param(68, "zoned", "2 node(s) didn't match pod topology spread constraints "
                     "(missing required label)", id="spread"),
        pytest.param(65, "port-second", "1 node(s) didn't have free ports for the requested pod "
                     "ports", id="host port"),
        pytest.param(14, "reader", 'persistentvolumeclaim "datasets" not found. not found',
                     id="volume"),
        pytest.param(48, "with-vast", "12 cannot allocate all claims", id="not allocatable"),
        pytest.param(80, "with-fast", "device class fast.nvidia.com does not exist", id="class"),
        pytest.param(68, "vetoed", "1 node(s) were vetoed by policy engine", id="unknown"),
        pytest.param(88, "ocean", "pod group is not ready, 4 Pending, 4 minAvailable", id="gang"),
        pytest.param(83, "ddp-loose", "2 Insufficient nvidia.com/gpu", id="part of a job"),
        pytest.param(85, "scavenger", "1 Insufficient nvidia.com/gpu", id="a victim again"),
    ],
)  # fmt: skip
def test_pending_pods_say_why(only_faults: OnlyFaults, minute: float, pod: str, says: str) -> None:
    waiting = [
        one
        for one in items(only_faults, "/api/v1/pods", at_minute(minute))
        if one["metadata"]["name"].startswith(pod) and "nodeName" not in one["spec"]
    ]

    assert waiting
    said = condition(waiting[0], "PodScheduled")
    assert (said["status"], said["reason"]) == ("False", "Unschedulable")
    assert says in said["message"]


@pytest.mark.parametrize("pod", ["with-late", "other-scheduler"])
def test_some_wait_without_a_word(only_faults: OnlyFaults, pod: str) -> None:
    minute = {"with-late": 20, "other-scheduler": 32}[pod]
    found = named(only_faults, "/api/v1/pods", at_minute(minute), pod)
    events = items(only_faults, "/api/v1/events", at_minute(minute))

    assert found["status"] == {"phase": "Pending", "qosClass": "Burstable"}
    assert not [e for e in events if e["involvedObject"]["name"] == pod]


def test_a_gated_pod_is_held_without_an_event(only_faults: OnlyFaults) -> None:
    at = at_minute(8)
    found = named(only_faults, "/api/v1/pods", at, "approved-soon")
    said = condition(found, "PodScheduled")

    assert said["reason"] == "SchedulingGated"
    assert said["message"] == "Scheduling is blocked due to non-empty scheduling gates"
    events = items(only_faults, "/api/v1/events", at)
    assert not [e for e in events if e["involvedObject"]["name"] == "approved-soon"]


def test_a_nominated_pod_waits_for_its_victim(only_faults: OnlyFaults) -> None:
    at = at_minute(77)
    preemptor = named(only_faults, "/api/v1/pods", at, "demo-day")
    victim = named(only_faults, "/api/v1/pods", at, "scavenger")
    told = [e for e in items(only_faults, "/api/v1/events", at) if e["reason"] == "Preempted"]

    assert preemptor["status"]["nominatedNodeName"] == victim["spec"]["nodeName"] == "a10-05"
    assert condition(victim, "DisruptionTarget")["reason"] == "PreemptionByScheduler"
    assert "deletionTimestamp" in victim["metadata"]
    assert preemptor["metadata"]["uid"] in next(
        e["message"] for e in told if e["involvedObject"]["uid"] == victim["metadata"]["uid"]
    )


@pytest.mark.parametrize(
    ("minute", "pod", "phase", "reason"),
    [
        pytest.param(10, "pull", "Pending", "ImagePullBackOff", id="image"),
        pytest.param(40, "crash", "Running", "CrashLoopBackOff", id="crash"),
        pytest.param(70, "slow-volume", "Pending", "ContainerCreating", id="mount"),
    ],
)
def test_bound_pods_say_why_they_do_not_run(
    only_faults: OnlyFaults, minute: float, pod: str, phase: str, reason: str
) -> None:
    found = named(only_faults, "/api/v1/pods", at_minute(minute), pod)

    assert found["spec"]["nodeName"]
    assert found["status"]["phase"] == phase
    assert found["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == reason


@pytest.mark.parametrize(
    ("minute", "stem", "reason"),
    [(50, "numa-pair", "TopologyAffinityError"), (100, "worn-card", "UnexpectedAdmissionError")],
)
def test_kubelets_turn_away_one_after_the_other(
    only_faults: OnlyFaults, minute: float, stem: str, reason: str
) -> None:
    pods = items(only_faults, "/api/v1/pods", at_minute(minute))
    failed = [p for p in pods if p["metadata"]["name"].startswith(stem)]

    assert len(failed) >= 3
    assert {(p["status"]["phase"], p["status"]["reason"]) for p in failed} == {("Failed", reason)}
    assert all(p["status"]["message"].startswith("Pod was rejected: ") for p in failed)
    assert len({p["metadata"]["ownerReferences"][0]["uid"] for p in failed}) == 1


@pytest.mark.parametrize(
    ("path", "minute", "name", "namespace"),
    [
        pytest.param("/apis/apps/v1/replicasets", 40, "voice-serve", "speech-lab", id="ReplicaSet"),
        pytest.param("/apis/batch/v1/jobs", 36, "sweep", "language-lab", id="Job"),
        pytest.param("/apis/apps/v1/statefulsets", 70, "notebooks", "physics-lab",
                     id="StatefulSet"),
    ],
)  # fmt: skip
def test_refused_controllers_have_events_and_no_pod(
    only_faults: OnlyFaults, path: str, minute: float, name: str, namespace: str
) -> None:
    at = at_minute(minute)
    found = named(only_faults, path, at, name)
    told = [
        e
        for e in items(only_faults, "/api/v1/events", at)
        if e["involvedObject"]["uid"] == found["metadata"]["uid"] and e["reason"] == "FailedCreate"
    ]
    quota = next(
        q
        for q in items(only_faults, "/api/v1/resourcequotas", at)
        if q["metadata"]["namespace"] == namespace
    )

    assert told
    assert all("is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1" in
               e["message"] for e in told)  # fmt: skip
    assert quota["status"]["used"] == quota["status"]["hard"]
    if found["metadata"]["name"].startswith("voice"):
        assert condition(found, "ReplicaFailure")["reason"] == "FailedCreate"
        assert any(e["message"].startswith("(combined from similar events): ") for e in told)


@pytest.mark.parametrize(
    ("minute", "workload", "reason", "says"),
    [
        pytest.param(16, "align-more", "WaitingForQuota", "2 more needed", id="waiting"),
        pytest.param(22, "align-world", "ExceedsMaxQuota", "> maximum capacity (4)", id="never"),
        pytest.param(14, "held-back", "Suspended", "ClusterQueue lab-held is inactive", id="held"),
        pytest.param(24, "lost", "Misconfigured", "ClusterQueue lab-planned doesn't exist",
                     id="misconfigured"),
        pytest.param(80, "overnight", "WaitingForQuota", "4 more needed", id="preempted"),
    ],
)  # fmt: skip
def test_queued_workloads_say_why(
    only_faults: OnlyFaults, minute: float, workload: str, reason: str, says: str
) -> None:
    found = named(only_faults, f"{KUEUE}/workloads", at_minute(minute), f"job-{workload}")
    said = condition(found, "QuotaReserved")

    assert (said["status"], said["reason"]) == ("False", reason)
    assert says in said["message"]


def test_behind_the_head_of_a_strict_queue_nothing_is_said(only_faults: OnlyFaults) -> None:
    found = named(only_faults, f"{KUEUE}/workloads", at_minute(15), "job-strict-behind")

    assert found["status"] == {}


def test_a_partial_gang_holds_gpus_for_nothing(only_faults: OnlyFaults) -> None:
    pods = [p for p in items(only_faults, "/api/v1/pods", at_minute(90))
            if p["metadata"]["name"].startswith("ddp-loose")]  # fmt: skip
    held = [h for h in holdings(only_faults, at_minute(90), at_minute(91))
            if h.pod.name.startswith("ddp-loose")]  # fmt: skip

    assert Counter(p["status"]["phase"] for p in pods) == {"Running": 2, "Pending": 2}
    assert len(held) == 2
    assert all(h.pod.activity == 0.0 for h in held)


# ---------------------------------------------------------------- from cycle to cycle


def test_nothing_is_left_at_the_end_of_a_cycle(only_faults: OnlyFaults) -> None:
    last = at_minute(119.9)
    for path in ("/api/v1/pods", "/apis/batch/v1/jobs", "/apis/apps/v1/deployments",
                 f"{KUEUE}/workloads", f"{VOLCANO}/podgroups",
                 "/apis/resource.k8s.io/v1/resourceclaims"):  # fmt: skip
        assert items(only_faults, path, last) == []
    limits = {q["metadata"]["namespace"]: q["spec"]["hard"]["requests.nvidia.com/gpu"]
              for q in items(only_faults, "/api/v1/resourcequotas", last)}  # fmt: skip
    assert limits == {space: str(limit) for space, limit in site.QUOTAS.items()}


@pytest.mark.parametrize("cycle", [0, 1, 7])
def test_metrics_know_the_same_pods_as_the_api(only_faults: OnlyFaults, cycle: int) -> None:
    for minute in range(3, 119, 4):
        at = at_minute(minute, cycle)
        shown = {
            p["metadata"]["uid"]: (p["metadata"]["name"], p["spec"].get("nodeName", ""))
            for p in items(only_faults, "/api/v1/pods", at)
            if "nvidia.com/" in json.dumps(p["spec"]["containers"][0]["resources"])
            or ("resourceClaims" in p["spec"] and p["metadata"]["name"] != "with-late")
        }
        epoch = only_faults.epoch_at(at)
        assert epoch is not None
        known = {
            p.uid: (p.name, p.node if p.bound <= at else "")
            for p in epoch.pods_between(at, at)
            if p.name != "with-late"
        }
        assert known == shown


def test_no_gpu_is_held_twice(only_faults: OnlyFaults) -> None:
    changes: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for one in holdings(only_faults, ORIGIN, ORIGIN + 3 * site.CYCLE_SECONDS):
        changes[one.device.uuid] += [(one.start, one.gpus), (one.end, -one.gpus)]

    assert len(changes) > 20
    for steps in changes.values():
        held = 0.0
        for _, step in sorted(steps):
            held += step
            assert 0.0 <= held <= 1.0


def test_a_gpu_has_one_series_of_a_pods_name_and_one_tenant_at_a_time(
    only_faults: OnlyFaults,
) -> None:
    start, end = at_minute(0) * 1000, at_minute(0, 4) * 1000
    metric = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    labelled: Counter[str] = Counter()
    for series in Signals(only_faults).series(metric, start, end):
        labelled[json.dumps(series.labels, sort_keys=True)] += 1
        spans[series.labels["UUID"]] += [(s.start_ms, s.end_ms) for s in series.segments]

    assert set(labelled.values()) == {1}
    for found in spans.values():
        ordered = sorted(found)
        assert all(one[1] <= other[0] for one, other in pairwise(ordered))


def test_the_metrics_of_a_quota_agree_with_the_api(only_faults: OnlyFaults) -> None:
    for minute in range(2, 119, 3):
        at = at_minute(minute, 3)
        epoch = only_faults.epoch_at(at)
        shown = {q["metadata"]["namespace"]: q["status"]
                 for q in items(only_faults, "/api/v1/resourcequotas", at)}  # fmt: skip
        for quota in only_faults.quotas:
            counts = {k: s.at(at) for k, s in quota.counts(epoch, "requests.nvidia.com/gpu")}
            status = shown[quota.namespace]
            assert {k: int(status[k]["requests.nvidia.com/gpu"]) for k in counts} == counts


def test_a_cordon_is_the_same_in_both(only_faults: OnlyFaults) -> None:
    node = next(n for n in only_faults.nodes if n.name == site.CORDONED)
    for minute in range(1, 119, 7):
        at = at_minute(minute, 2)
        shown = named(only_faults, "/api/v1/nodes", at, site.CORDONED)
        assert shown["spec"].get("unschedulable", False) == node.state(at).cordoned


def test_before_the_faults_begin_nothing_of_them_is_shown(only_faults: OnlyFaults) -> None:
    day = range((ORIGIN - 7200) * 1000, (ORIGIN - 60) * 1000)
    shown = Signals(only_faults).select(
        ["kube_node_spec_unschedulable", "kube_node_status_condition"],
        lambda labels: True,
        day.start,
        day.stop,
    )
    assert list(shown) == []


def test_events_go_after_an_hour(only_faults: OnlyFaults) -> None:
    then, uid = at_minute(12), ""
    for event in items(only_faults, "/api/v1/events", then):
        if event["involvedObject"]["name"] == "simulate":
            uid = event["metadata"]["uid"]
    gone = items(only_faults, "/api/v1/events", at_minute(12 + 60 + 45))

    assert uid
    assert uid not in {e["metadata"]["uid"] for e in gone}
    assert all(p.deleted < FOREVER for epoch in only_faults.epochs(then, then) for p in epoch.pods)


def test_the_campus_has_the_faults(campus: Scenario) -> None:
    assert isinstance(campus, FaultScenario)
    base = campus.faults.base(campus.faults.number(NOW))
    found = named(campus, "/api/v1/pods", base + 16 * 60, "notebook-ben")

    assert "0/53 nodes are available: " in condition(found, "PodScheduled")["message"]


def test_a_plane_that_goes_on_from_a_kept_one_is_as_if_played_from_the_start() -> None:
    faults = faults_once().faults
    faults.plane_at(at_minute(40))
    went_on, whole = faults.plane_at(at_minute(47)), faults.plane(1)
    went_on.advance(at_minute(62))
    whole.advance(at_minute(62))
    assert went_on.store.lives == whole.store.lives
    # What goes on leaves the one that is kept as it was.
    whole = faults.plane(1)
    whole.advance(at_minute(40))
    assert faults.plane_at(at_minute(40)).store.lives == whole.store.lives


def test_what_many_ask_for_at_once_is_played_once() -> None:
    class Counted(FaultCycle):
        plays = 0

        def plane(self, number: int) -> ControlPlane:
            self.plays += 1
            return super().plane(number)

    nodes = faults_once().nodes
    faults = Counted(seed="at-once", begins=ORIGIN, ground=nodes, others=lambda at: [])
    ready = Barrier(4)

    def ask() -> list[ObjectLife]:
        ready.wait()
        return faults.lives(0)

    with ThreadPoolExecutor(4) as watches:
        first, *others = [one.result() for one in [watches.submit(ask) for _ in range(4)]]
    assert faults.plays == 1
    assert first
    assert all(found is first for found in others)
