"""What a suggestion says, done to the lab through its API: the thing that waited then runs."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.simulator.applying import Kube, NotApplied, apply
from tests.simulator.client import Served, serving
from tests.simulator.only_faults import OnlyFaults, at_minute, faults_once

GPU = "nvidia.com/gpu"
LATER_SECONDS = (1, 40, 120, 240)


@pytest.fixture(scope="module")
def only_faults() -> OnlyFaults:
    return faults_once()


def running(client: Served, namespace: str, stem: str) -> list[str]:
    """Return the names of the running pods of a thing."""
    return [
        pod["metadata"]["name"]
        for pod in Kube(client).items(f"/api/v1/namespaces/{namespace}/pods")
        if pod["metadata"]["name"].startswith(stem)
        and pod["status"]["phase"] == "Running"
        and "running" in pod["status"]["containerStatuses"][0]["state"]
    ]


def soon(client: Served, namespace: str, stem: str, least: int) -> Iterator[bool]:
    """Yield whether enough of a thing runs, a little later each time."""
    for seconds in LATER_SECONDS:
        client.clock.advance(seconds)
        yield len(running(client, namespace, stem)) >= least


R1 = ["a10-01", "a10-02"]
CASES: list[tuple[str, float, str, dict[str, Any], str, str, str, int]] = [
    ("none free", 16, "free", {"resource": GPU, "amount": 1, "nodes": R1},
     "Pod", "vision-lab", "notebook-ben", 1),
    ("none free, of one holder", 16, "free",
     {"resource": GPU, "amount": 1, "nodes": R1, "holders": ["vision-lab/pretrain-small-*"]},
     "Pod", "vision-lab", "notebook-ben", 1),
    ("fragmented", 46, "free", {"resource": GPU, "amount": 1, "nodes": R1},
     "Pod", "vision-lab", "two-cards-*", 1),
    ("too little CPU", 12, "free", {"resource": "cpu", "amount": 4, "nodes": ["a10-03"]},
     "Pod", "robotics-lab", "simulate", 1),
    ("too little memory", 42, "free",
     {"resource": "memory", "amount": 12 * 2**30, "nodes": ["a10-03"]},
     "Pod", "robotics-lab", "big-batch", 1),
    ("what nobody offers", 6, "request",
     {"resource": "nvidia.com/mig-7g.80gb", "from": 1, "to": 1, "instead": GPU},
     "Pod", "vision-lab", "mig-wish", 1),
    ("a node for it", 6, "add_node", {"resource": "nvidia.com/mig-7g.80gb", "amount": 1},
     "Pod", "vision-lab", "mig-wish", 1),
    ("quota of a Deployment", 22, "raise_quota",
     {"namespace": "speech-lab", "quota": "gpus", "key": f"requests.{GPU}", "from": 2, "to": 3},
     "ReplicaSet", "speech-lab", "voice-serve-*", 3),
    ("quota of a Job", 31, "raise_quota",
     {"namespace": "language-lab", "quota": "gpus", "key": f"requests.{GPU}", "from": 1, "to": 2},
     "Job", "language-lab", "sweep", 2),
    ("quota of a StatefulSet", 68, "raise_quota",
     {"namespace": "physics-lab", "quota": "gpus", "key": f"requests.{GPU}", "from": 1, "to": 2},
     "StatefulSet", "physics-lab", "notebooks", 2),
    ("a gate", 8, "ungate", {"gate": "example.com/budget-approved"},
     "Pod", "language-lab", "approved-soon", 1),
    ("quota of a queue", 16, "raise_queue_quota",
     {"cluster_queue": "lab", "flavor": "a10", "resource": GPU, "from": 4, "to": 6},
     "Job", "genomics-lab", "align-more", 1),
    ("a stopped queue", 14, "resume_queue", {"cluster_queue": "lab-held"},
     "Job", "genomics-lab", "held-back", 1),
    ("a queue that is not there", 24, "create_queue",
     {"namespace": "genomics-lab", "name": "orphan", "cluster_queue": "lab-planned"},
     "Job", "genomics-lab", "lost", 1),
    ("the head of a strict queue", 15, "raise_queue_quota",
     {"cluster_queue": "lab-strict", "flavor": "a10-strict", "resource": GPU, "from": 2, "to": 4},
     "Job", "genomics-lab", "strict-behind", 1),
    ("a selector", 12, "select",
     {"remove": {"example.com/rack": "r77"}, "add": {"example.com/rack": "r9"},
      "nodes": ["a10-12"]},
     "Pod", "robotics-lab", "wrong-rack", 1),
    ("an affinity", 46, "select",
     {"remove": ["nvidia.com/gpu.memory > 100000"], "nodes": ["a10-12"]},
     "Pod", "robotics-lab", "large-memory", 1),
    ("a taint", 16, "tolerate",
     {"key": "dedicated", "value": "robotics", "effect": "NoSchedule", "nodes": ["a10-04"]},
     "Pod", "robotics-lab", "intolerant", 1),
    ("a cordon", 28, "uncordon", {"nodes": ["a10-05"]},
     "Pod", "robotics-lab", "after-maintenance", 1),
    ("anti-affinity", 10, "relax", {"what": "anti-affinity", "nodes": ["a10-06"]},
     "Pod", "vision-lab", "apart-2", 1),
    ("a label that no node has", 68, "relax", {"what": "topology-spread", "nodes": ["a10-06"]},
     "Pod", "vision-lab", "zoned", 1),
    ("an uneven spread", 91, "relax", {"what": "topology-spread", "nodes": ["a10-07"]},
     "Pod", "vision-lab", "even-1", 1),
    ("a host port", 65, "relax", {"what": "host-port", "nodes": ["a10-12"]},
     "Pod", "vision-lab", "port-second", 1),
    ("alignment", 41, "look_at_node", {"nodes": ["a10-06"], "reason": "TopologyAffinityError"},
     "ReplicaSet", "vision-lab", "numa-pair-*", 1),
    ("a worn card", 94, "look_at_node",
     {"nodes": ["a10-12"], "reason": "UnexpectedAdmissionError"},
     "ReplicaSet", "vision-lab", "worn-card-*", 1),
    ("a gang", 88, "complete_gang",
     {"group": "ocean", "missing": 4, "amount": 2, "resource": GPU},
     "Job", "climate-lab", "ocean", 4),
    ("a claim that is not there", 20, "create_claim",
     {"namespace": "physics-lab", "name": "late"},
     "Pod", "physics-lab", "with-late", 1),
    ("a claim that nothing fits", 48, "change_claim",
     {"namespace": "physics-lab", "name": "vast", "device_class": "gpu.nvidia.com"},
     "Pod", "physics-lab", "with-vast", 1),
    ("a class that is not there", 80, "create_class", {"device_class": "fast.nvidia.com"},
     "Pod", "physics-lab", "with-fast", 1),
    ("a volume", 14, "create_volume", {"namespace": "vision-lab", "name": "datasets"},
     "Pod", "vision-lab", "reader", 1),
    ("victims on their way", 78, "wait", {"what": "preemption"},
     "Pod", "robotics-lab", "demo-day", 1),
    ("a scheduler nobody runs", 32, "set_scheduler",
     {"from": "yunikorn", "to": "default-scheduler"},
     "Pod", "robotics-lab", "other-scheduler", 1),
    ("an image", 8, "mend_image", {"container": "main", "reason": "ImagePullBackOff"},
     "Pod", "climate-lab", "pull-*", 1),
    ("a volume that is not mounted", 66, "mend_volume",
     {"node": "a10-10", "what": "volume not mounted", "volume": "data"},
     "Pod", "climate-lab", "slow-volume", 1),
    ("a crash", 36, "look_at_container", {"container": "main", "reason": "CrashLoopBackOff"},
     "Pod", "climate-lab", "crash", 1),
    ("a verdict nobody knows", 68, "look_at_node", {"nodes": ["a10-03"], "reason": "?"},
     "Pod", "robotics-lab", "vetoed", 1),
]  # fmt: skip


def resolved(client: Served, namespace: str, name: str, kind: str) -> str:
    """Return the full name of the youngest thing whose name begins so."""
    if not name.endswith("*"):
        return name
    plural = {"Pod": "/api/v1/{}/pods", "ReplicaSet": "/apis/apps/v1/{}/replicasets"}[kind]
    items = Kube(client).items(plural.format(f"namespaces/{namespace}"))
    names = [str(one["metadata"]["name"]) for one in items]
    return next(one for one in names if one.startswith(name.removesuffix("*")))


@pytest.mark.parametrize(
    ("minute", "action", "change", "kind", "namespace", "name", "least"),
    [pytest.param(*case[1:], id=case[0]) for case in CASES],
)
def test_pending_work_runs_once_the_suggestion_is_followed(
    only_faults: OnlyFaults, minute: float, action: str, change: dict[str, Any],
    kind: str, namespace: str, name: str, least: int,
) -> None:  # fmt: skip
    with serving(only_faults, at_minute(minute)) as client:
        full = resolved(client, namespace, name, kind)
        stem = name.removesuffix("*")
        before = len(running(client, namespace, stem))
        if "holders" in change:
            holders = [
                f"vision-lab/{resolved(client, 'vision-lab', one.partition('/')[2], 'Pod')}"
                for one in change["holders"]
            ]
            change = {**change, "holders": holders}

        assert before < least
        apply(client, action, change, kind=kind, namespace=namespace, name=full)

        assert any(soon(client, namespace, stem, least))


def test_nothing_of_them_would_have_run_so_soon_by_itself(only_faults: OnlyFaults) -> None:
    early = {}
    for name, minute, action, _, _, namespace, thing, least in CASES:
        if action == "wait":
            continue
        with serving(only_faults, at_minute(minute)) as client:
            if any(soon(client, namespace, thing.removesuffix("*"), least)):
                early[name] = minute

    assert early == {}


def test_a_quota_that_is_otherwise_by_now_is_not_raised(only_faults: OnlyFaults) -> None:
    change = {
        "namespace": "speech-lab", "quota": "gpus", "key": f"requests.{GPU}", "from": 9, "to": 10,
    }  # fmt: skip
    with serving(only_faults, at_minute(22)) as client, pytest.raises(NotApplied, match="not 9"):
        apply(client, "raise_quota", change, kind="Job", namespace="speech-lab", name="x")


def test_what_nobody_knows_how_to_do_is_said(only_faults: OnlyFaults) -> None:
    with serving(only_faults, at_minute(22)) as client, pytest.raises(NotApplied, match="nobody"):
        apply(client, "pray", {}, kind="Pod", namespace="speech-lab", name="x")
