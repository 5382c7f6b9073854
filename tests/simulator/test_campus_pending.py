"""`campus`: what waits there waits for a reason, and everything that shows it agrees."""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import pytest

from apps.pending.domain.diagnose import diagnose_cluster
from apps.pending.domain.diagnosis import Action, Cause, ClusterState, PendingItem
from apps.pending.domain.pods import GATED
from apps.pending.domain.queues.kueue import CHECKS
from apps.pending.services import refresh
from simulator.clock import PinnedClock
from simulator.fault_scenarios import site
from simulator.fault_scenarios.scenario import faults_of
from simulator.fleet import DAY, Pod
from simulator.kubernetes.api import KubernetesApi
from simulator.kubernetes.entities import collections
from simulator.kubernetes.objects import rfc3339
from simulator.prometheus.api import PrometheusApi
from simulator.prometheus.signals import Signals
from simulator.responses import Response
from simulator.scenarios.base import Scenario
from simulator.scheduler.amounts import quantity, requests_of
from simulator.scheduler.filters import NOT_SELECTED, UNSCHEDULABLE, Machine, refusals
from simulator.scheduler.kueue import GATE
from tests.pending.watched_lab import watched_lab
from tests.planning.recorded_pending import pending_causes
from tests.simulator.conftest import NOW

pytestmark = pytest.mark.long

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
MIDNIGHT = NOW // DAY * DAY
TIMES = [
    pytest.param(NOW, id="now"),
    pytest.param(NOW - 3 * DAY, id="pools are full"),
    pytest.param(NOW + 2 * DAY, id="in two days", marks=pytest.mark.exhaustive),
    pytest.param(NOW + 66 * 3600, id="many are checked"),
]
Item = dict[str, Any]


@lru_cache(maxsize=16)
def every(scenario: Scenario, path: str, at: int) -> Sequence[Item]:
    """Return a list of the cluster at a time, for all tests that read it: nobody changes it."""
    answer = KubernetesApi(scenario, PinnedClock(at * 1000)).answer(path, {})
    assert isinstance(answer, Response)
    found: list[Item] = json.loads(answer.body)["items"]
    return found


def items(scenario: Scenario, path: str, at: int) -> list[Item]:
    """Return those of campus itself, without those of the faults."""
    faults = faults_of(scenario)
    spaces = faults.namespaces if faults else frozenset()
    found = every(scenario, path, at)
    return [one for one in found if one["metadata"].get("namespace") not in spaces]


def waiting(scenario: Scenario, at: int) -> list[Item]:
    """Return the pods of campus itself that are on no node."""
    pods = items(scenario, "/api/v1/pods", at)
    return [pod for pod in pods if not pod["spec"].get("nodeName")]


def name_of(item: Item) -> tuple[str, str]:
    return item["metadata"]["namespace"], item["metadata"]["name"]


def condition(item: Item, kind: str) -> Item:
    found = (c for c in item["status"].get("conditions", []) if c["type"] == kind)
    return next(found, {"status": "", "reason": "", "message": ""})


def of_gpu(spec: Item) -> tuple[str, float]:
    return next((n, a) for n, a in requests_of(spec).items() if n.startswith("nvidia.com/"))


def machines(scenario: Scenario, at: int) -> list[Machine]:
    """Return all nodes with the pods that hold something there, those of the faults too."""
    found = {
        node["metadata"]["name"]: Machine(
            node, {n: quantity(a) for n, a in node["status"]["allocatable"].items()}
        )
        for node in every(scenario, "/api/v1/nodes", at)
    }
    for pod in every(scenario, "/api/v1/pods", at):
        if pod["spec"].get("nodeName") and pod["status"]["phase"] in {"Running", "Pending"}:
            found[pod["spec"]["nodeName"]].hold(pod)
    return list(found.values())


# ---------------------------------------------------------------- pods and nodes


@pytest.mark.parametrize("at", TIMES)
def test_a_pod_that_no_queue_holds_back_has_room_on_no_node(campus: Scenario, at: int) -> None:
    nodes = machines(campus, at)
    let = [pod for pod in waiting(campus, at) if "schedulingGates" not in pod["spec"]]

    for pod in let:
        if "resourceClaims" not in pod["spec"]:
            assert all(refusals(pod, machine, nodes) for machine in nodes), name_of(pod)


def test_the_scheduler_s_text_is_what_its_filters_say(campus: Scenario) -> None:
    at = NOW - 3 * DAY
    nodes = machines(campus, at)
    let = [
        pod
        for pod in waiting(campus, at)
        if "schedulingGates" not in pod["spec"] and "resourceClaims" not in pod["spec"]
    ]

    assert len(let) > 10
    steady = [machine for machine in nodes if machine.name != site.CORDONED]
    for pod in let:
        scheduled = condition(pod, "PodScheduled")
        assert scheduled["reason"] == "Unschedulable"
        texts = Counter(text for machine in steady for text in refusals(pod, machine, nodes))
        # A cordon of each cycle makes nothing schedulable: no pod is looked at again for it.
        either = [texts + Counter([text]) for text in (UNSCHEDULABLE, NOT_SELECTED)]
        said = [", ".join(sorted(f"{count} {text}" for text, count in e.items())) for e in either]
        heads = tuple(f"0/{len(nodes)} nodes are available: {one}. " for one in said)
        assert scheduled["message"].startswith(heads)


@pytest.mark.parametrize("at", TIMES)
def test_a_gated_pod_says_so_and_is_unscheduled_to_kube_state_metrics(
    campus: Scenario, at: int
) -> None:
    gated = [pod for pod in waiting(campus, at) if "schedulingGates" in pod["spec"]]
    prometheus = PrometheusApi(Signals(campus), PinnedClock(at * 1000 + 60_000))
    query = {"query": ['kube_pod_status_phase{phase="Pending"}'], "time": [str(at)]}
    answer = prometheus.answer("/api/v1/query", query)
    assert answer is not None
    rows = json.loads(answer.body)["data"]["result"]
    pending = {
        (row["metric"]["namespace"], row["metric"]["pod"]) for row in rows if row["value"][1] == "1"
    }

    assert gated
    for pod in gated:
        assert condition(pod, "PodScheduled")["reason"] == "SchedulingGated"
        # A pod of the last moments is not scraped yet.
        old = pod["metadata"]["creationTimestamp"] < rfc3339(at - 60)
        assert not old or name_of(pod) in pending


# ---------------------------------------------------------------- queues


@pytest.mark.parametrize("at", TIMES)
def test_a_queue_counts_what_the_pods_of_its_team_hold_and_wait_for(
    campus: Scenario, at: int
) -> None:
    held: dict[tuple[str, str], float] = defaultdict(float)
    gated: Counter[tuple[str, str]] = Counter()
    for pod in items(campus, "/api/v1/pods", at):
        local = pod["metadata"]["labels"].get("kueue.x-k8s.io/queue-name")
        if not local or pod["status"]["phase"] == "Succeeded":
            continue
        key = (pod["metadata"]["namespace"], local)
        if "schedulingGates" in pod["spec"]:
            gated[key] += 1
        else:
            held[key] += of_gpu(pod["spec"])[1]
    for job in items(campus, "/apis/batch/v1/jobs", at):
        if job["spec"]["suspend"]:
            local = job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
            gated[job["metadata"]["namespace"], local] += 1
    targets = {
        name_of(one): one["spec"]["clusterQueue"]
        for one in items(campus, f"{KUEUE}/localqueues", at)
    }
    queues = {one["metadata"]["name"]: one for one in items(campus, f"{KUEUE}/clusterqueues", at)}

    assert len(targets) == 52
    for key, target in targets.items():
        queue = queues[target]
        status, spec = queue["status"], queue["spec"]
        (use,) = status["flavorsUsage"][0]["resources"]
        (reserved,) = status["flavorsReservation"][0]["resources"]
        (quota,) = spec["resourceGroups"][0]["flavors"][0]["resources"]
        assert float(use["total"]) == held[key]
        held_back = status["reservingWorkloads"] - status["admittedWorkloads"]
        assert status["pendingWorkloads"] + held_back == gated[key]
        most = float(quota["nominalQuota"]) + float(quota["borrowingLimit"])
        assert float(use["total"]) <= float(reserved["total"]) <= most
        beyond = max(0.0, float(use["total"]) - float(quota["nominalQuota"]))
        assert float(use["borrowed"]) == beyond
        assert spec["cohortName"] == "campus"


@pytest.mark.parametrize("at", TIMES)
def test_a_workload_tells_exactly_what_its_queue_is_short_of(campus: Scenario, at: int) -> None:
    pods = {name_of(pod): pod for pod in items(campus, "/api/v1/pods", at)}
    queues = {one["metadata"]["name"]: one for one in items(campus, f"{KUEUE}/clusterqueues", at)}
    targets = {
        name_of(one): one["spec"]["clusterQueue"]
        for one in items(campus, f"{KUEUE}/localqueues", at)
    }
    jobs = {name_of(job): job for job in items(campus, "/apis/batch/v1/jobs", at)}
    short = suspended = 0
    for one in items(campus, f"{KUEUE}/workloads", at):
        namespace, (owner,) = one["metadata"]["namespace"], one["metadata"]["ownerReferences"]
        if owner["kind"] == "Job":
            spec = jobs[namespace, owner["name"]]["spec"]
            assert spec["suspend"]
            assert condition(one, "QuotaReserved")["status"] == "False"
            assert not any(
                pod["metadata"]["ownerReferences"][0]["name"] == owner["name"]
                for pod in pods.values()
                if pod["metadata"]["namespace"] == namespace
            )
            resource, each = of_gpu(spec["template"]["spec"])
            asked, suspended = each * spec["parallelism"], suspended + 1
        else:
            pod = pods[namespace, owner["name"]]
            group = pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"]
            assert group == one["metadata"]["name"]
            held_back = {"name": GATE} in pod["spec"].get("schedulingGates", [])
            assert held_back == (condition(one, "Admitted")["status"] != "True")
            resource, asked = of_gpu(pod["spec"])
        why = condition(one, "QuotaReserved")
        if why["reason"] != "WaitingForQuota":
            continue
        short += 1
        queue = queues[targets[namespace, one["spec"]["queueName"]]]
        flavor = queue["status"]["flavorsReservation"][0]
        (quota,) = queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
        most = float(quota["nominalQuota"]) + float(quota["borrowingLimit"])
        missing = float(flavor["resources"][0]["total"]) + asked - most
        assert missing > 0
        assert why["message"] == (
            f"couldn't assign flavors to pod set main: insufficient unused quota for {resource} "
            f"in flavor {flavor['name']}, {missing:.0f} more needed"
        )
    assert short > 5
    assert suspended


def test_nobody_who_is_first_in_line_waits_while_there_is_quota(campus: Scenario) -> None:
    epoch = campus.epoch_at(NOW)
    assert epoch is not None
    most = {queue.name: queue.most for queue in campus.queues}
    pods: dict[str, list[Pod]] = defaultdict(list)
    for pod in epoch.pods:
        if pod.admission is not None and pod.admission.queue:
            pods[pod.admission.queue].append(pod)

    for name, mine in pods.items():
        units = epoch.queues[name].reserved_units
        assert max(units.values) <= most[name], name
        for pod in mine:
            assert pod.admission is not None
            looked, until = pod.admission.evaluated_at, min(pod.admission.reserved, pod.released)
            for at in (looked, *units.between(looked, until - 1)) if looked < until else ():
                assert units.at(at) + pod.units > most[name], (name, pod.name, at)


def test_what_a_queue_borrows_another_lends(campus: Scenario) -> None:
    epoch = campus.epoch_at(NOW)
    assert epoch is not None
    borrower = next(queue for queue in campus.queues if queue.borrowing)
    lenders = [q for q in campus.queues if q.lending and q.flavor == borrower.flavor]
    used = epoch.queues[borrower.name].used_units

    assert max(used.values) == borrower.most
    assert sum(queue.lending for queue in lenders) >= borrower.borrowing
    for queue in lenders:
        reserved = epoch.queues[queue.name].reserved_units
        assert max(reserved.values) <= queue.nominal - queue.lending


@pytest.mark.parametrize("plural", ["pods", "workloads", "clusterqueues", "localqueues"])
def test_nothing_becomes_another_without_a_watch_telling(campus: Scenario, plural: str) -> None:
    start, end = NOW - 3 * DAY, NOW - 3 * DAY + 3600
    (source,) = (one.source for one in collections(campus) if one.plural == plural)
    compared = 0

    for entity in source(campus, start, end):
        if entity.of_faults:
            continue
        times = range(max(start, entity.created), min(end, entity.deleted), 61)
        for before, now in pairwise(times):
            if entity.render(before) != entity.render(now):
                compared += 1
                assert any(before < at <= now for at in entity.changes), entity.key
    assert compared


# ---------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("namespace", "hour", "there"),
    [
        pytest.param("medicine", 6, False, id="before"),
        pytest.param("medicine", 9, True, id="in the morning"),
        pytest.param("medicine", 14, False, id="given up"),
        pytest.param("economics", 19, True, id="in the evening"),
    ],
)
def test_a_quota_refuses_a_deployment_for_some_hours_a_day(
    campus: Scenario,
    namespace: str,
    hour: int,
    there: bool,
) -> None:
    at = MIDNIGHT + hour * 3600
    sets = {
        name_of(one): one
        for one in items(campus, "/apis/apps/v1/replicasets", at)
        if one["metadata"]["namespace"] == namespace
    }
    failed = [one for one in sets.values() if condition(one, "ReplicaFailure")["status"] == "True"]

    assert len(failed) == there
    for one in failed:
        message = condition(one, "ReplicaFailure")["message"]
        assert "is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=" in message
        asked, used, limit = (int(part.split("=")[1]) for part in message.split(", ")[1:])
        assert asked + used > limit
        assert one["status"]["replicas"] == 0 < one["spec"]["replicas"]


# ---------------------------------------------------------------- as a portal sees it


def _recorded_details(scenario: Scenario, at: int, uids: set[str]) -> dict[str, str]:
    """Return what the backtest's recording of the scenario has as detail at a time, by pod."""
    pods = {pod.uid: pod for one in scenario.epochs(at, at + 1) for pod in one.pods}
    return {
        uid: one.detail
        for uid in uids & pods.keys()
        for one in pending_causes(pods[uid])
        if one.start <= at < one.end
    }


def _held_up(details: dict[str, str]) -> dict[str, str]:
    """Return what neither quota nor room holds up."""
    return {uid: one for uid, one in details.items() if one in {CHECKS, GATED}}


@pytest.mark.django_db
def test_a_portal_finds_no_room_for_pending_work_and_both_causes(campus: Scenario) -> None:
    faults = faults_of(campus)
    assert faults is not None
    found: list[PendingItem] = []

    def kept(state: ClusterState) -> list[PendingItem]:
        waits = diagnose_cluster(state)
        found.extend(one for one in waits if one.namespace not in faults.namespaces)
        return waits

    for at in (NOW - 3 * DAY, NOW + 66 * 3600):
        first = len(found)
        with watched_lab(campus, at) as lab:
            lab.look()
            refresh(lab.cluster.pk, now=lab.now(), diagnose=kept)
        held = {one.uid: one.diagnosis.detail for one in found[first:] if one.kind == "Pod"}
        assert _held_up(held) == _held_up(_recorded_details(campus, at, set(held)))
    causes = {one.diagnosis.cause for one in found}

    assert {Cause.CAPACITY, Cause.QUEUE, Cause.QUOTA} <= causes
    assert not [one for one in found if one.diagnosis.cause is Cause.OTHER]
    for one in found:
        said = [one.diagnosis.explanation, *(s.text for s in one.diagnosis.suggestions)]
        assert not any("has room" in text for text in said), (one.name, said)
        assert one.diagnosis.suggestions, one.name
    waits = [
        s.change for one in found for s in one.diagnosis.suggestions if s.action is Action.WAIT
    ]
    assert {change["what"] for change in waits} <= {"admission checks"}
