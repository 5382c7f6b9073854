"""What happens in a cycle: a workload of every cause is pending, then starts.

Times are minutes after the start of the cycle. What is made here is gone at its end.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from simulator.fault_scenarios import manifests as made
from simulator.fault_scenarios.manifests import (
    claim,
    deployment,
    job,
    pod,
    stateful_set,
    template,
    volume,
)
from simulator.fault_scenarios.site import (
    CORDON_MINUTES,
    CORDONED,
    CRAMPED,
    DEDICATED,
    NEXT,
    NUMA,
    QUOTAS,
    RAISED,
    RAISED_MINUTES,
    RAISED_TO,
    RESERVED,
    WORN,
)
from simulator.fleet import GPU
from simulator.scheduler.admission import admit_pod
from simulator.scheduler.controllers import admitted_spec
from simulator.scheduler.filters import VETO
from simulator.scheduler.kubelet import MOUNT, REFUSES
from simulator.scheduler.placing import terminate
from simulator.scheduler.plane import ControlPlane, Step
from simulator.scheduler.store import Object

_CLEAR_MINUTE = 118
_GATE = "example.com/budget-approved"
_Act = Callable[[ControlPlane], None]
_Timed = tuple[float, _Act]
_PLURALS = {
    "Pod": "pods", "Job": "jobs", "Deployment": "deployments", "StatefulSet": "statefulsets",
    "PodGroup": "podgroups", "PersistentVolumeClaim": "persistentvolumeclaims",
    "ResourceClaim": "resourceclaims",
}  # fmt: skip
_ROBOTICS = {"key": DEDICATED[0], "operator": "Equal", "value": DEDICATED[1],
             "effect": DEDICATED[2]}  # fmt: skip
_ON_CLAIMS = {"key": RESERVED[0], "operator": "Exists", "effect": RESERVED[2]}


def steps(base: int) -> list[Step]:
    """Return what happens in the cycle that starts at `base` (Unix seconds)."""
    timed: list[_Timed] = []
    for part in _FAULT_STEPS:
        timed += part()
    objects = {
        (act.keywords["plural"], act.keywords["item"]["metadata"]["namespace"],
         act.keywords["item"]["metadata"]["name"])
        for _, act in timed if isinstance(act, partial) and act.func is _create
    }  # fmt: skip
    # What controls goes before what it made, or that would be made again.
    order = sorted(objects, key=lambda place: (place[0] == "pods", place))
    timed.append((_CLEAR_MINUTE, partial(_clear, order)))
    return [(base + round(60 * minute), act) for minute, act in timed]


# ---------------------------------------------------------------- what can happen


def make(minute: float, item: Object) -> _Timed:
    return minute, partial(_create, plural=_PLURALS[item["kind"]], item=item)


def drop(minute: float, item: Object) -> _Timed:
    meta = item["metadata"]
    place = (_PLURALS[item["kind"]], meta["namespace"], meta["name"])
    return minute, partial(_clear, [place])


def alter(
    minute: float, plural: str, namespace: str, name: str, edit: Callable[[Object], Any]
) -> _Timed:
    return minute, partial(_alter, plural, namespace, name, edit)


def _create(plane: ControlPlane, *, plural: str, item: Object) -> None:
    meta = item["metadata"]
    if plane.store.get(plural, meta["namespace"], meta["name"]) is None:
        create(plane, plural, item)


def create(plane: ControlPlane, plural: str, item: Object) -> Object:
    """Add an object as the API server takes it in; raises Forbidden for a pod over quota."""
    if plural == "pods":
        item = {
            **item,
            "spec": admitted_spec(plane.store, item["spec"]),
            "status": {"phase": "Pending", "qosClass": "Burstable"},
        }
        admit_pod(plane.store, item)
    if plural == "persistentvolumeclaims":
        item = {**item, "status": {"phase": "Bound"}}
    return plane.store.create(plural, item)


def _clear(places: list[tuple[str, str, str]], plane: ControlPlane) -> None:
    for plural, namespace, name in places:
        found = plane.store.get(plural, namespace, name)
        if found is not None:
            remove(plane, plural, found)


def remove(plane: ControlPlane, plural: str, item: Object) -> None:
    if plural == "pods":
        terminate(plane.store, item)
    else:
        plane.store.remove(plural, item)


def _alter(
    plural: str, namespace: str, name: str, edit: Callable[[Object], Any], plane: ControlPlane
) -> None:
    found = plane.store.get(plural, namespace, name)
    if found is not None:
        plane.store.change(plural, found, edit)
        plane.controllers.wake()


# ---------------------------------------------------------------- capacity


def _capacity() -> Iterator[_Timed]:
    space = "vision-lab"
    wish = pod(space, "mig-wish", template("", resource="nvidia.com/mig-7g.80gb"))
    yield from (make(5, wish), drop(35, wish))
    yield make(10, job(space, "pretrain-large", template("r1", gpus=4, minutes=22)))
    yield make(10, job(space, "pretrain-small", template("r1", gpus=4, minutes=27)))
    yield make(15, pod(space, "notebook-ben", template("r1", minutes=10)))
    for name, minutes in (("tune-left", 30), ("tune-right", 20)):
        yield make(42, job(space, name, template("r1", gpus=3, minutes=minutes)))
    yield make(45, job(space, "two-cards", template("r1", gpus=2, minutes=8)))
    hog = pod("robotics-lab", "log-index", template("r2", gpus=0, cpu=12, gib=4))
    yield from (make(8, hog), drop(30, hog))
    yield make(10, pod("robotics-lab", "simulate", template("r2", cpu=8, gib=8, minutes=6)))
    cache = pod("robotics-lab", "feature-cache", template("r2", gpus=0, cpu=2, gib=52))
    yield from (make(38, cache), drop(58, cache))
    yield make(40, pod("robotics-lab", "big-batch", template("r2", gib=24, minutes=5)))


def _partial_gang() -> Iterator[_Timed]:
    space = "vision-lab"
    yield make(80, job(space, "backfill", template("r1", gpus=3, minutes=18), pods=2))
    # One GPU is left on each node: two of the four hold theirs and wait for the others.
    yield make(82, job(space, "ddp-loose", template("r1", minutes=18), pods=4))


# ---------------------------------------------------------------- quota


def _quota() -> Iterator[_Timed]:
    serve = deployment(RAISED, "voice-serve", template("r7"), replicas=3)
    start, end = RAISED_MINUTES
    yield from (make(20, serve), drop(80, serve))
    yield alter(start, "resourcequotas", RAISED, "gpus", _limit(QUOTAS[RAISED], RAISED_TO))
    yield alter(end, "resourcequotas", RAISED, "gpus", _limit(RAISED_TO, QUOTAS[RAISED]))
    yield make(30, job("language-lab", "sweep", template("r7", minutes=12), pods=2))
    books = stateful_set("physics-lab", "notebooks", template("r8"), replicas=2)
    yield from (make(66, books), drop(92, books))


def _limit(old: int, new: int) -> Callable[[Object], None]:
    """Return a change of a quota that leaves it alone once somebody else has set it."""

    def edit(item: Object) -> None:
        managers = item["metadata"].get("managedFields", [])
        theirs = any("f:spec" in manager["fieldsV1"] for manager in managers)
        if not theirs and item["spec"]["hard"].get(f"requests.{GPU}") == str(old):
            item["spec"]["hard"][f"requests.{GPU}"] = str(new)

    return edit


# ---------------------------------------------------------------- queues


def _queues() -> Iterator[_Timed]:
    space = "genomics-lab"
    gated = pod("language-lab", "approved-soon",
                template("r9", minutes=4, schedulingGates=[{"name": _GATE}]))  # fmt: skip
    yield make(6, gated)
    yield alter(26, "pods", "language-lab", "approved-soon",
                lambda item: item["spec"].pop("schedulingGates", None))  # fmt: skip

    def queued(name: str, gpus: int, minutes: int, queue: str, priority: str = "") -> Object:
        of = template("", gpus=gpus, minutes=minutes)
        return job(space, name, of, queue=queue, priority=priority)

    yield make(10, queued("align-all", 4, 30, "main"))
    yield make(14, queued("align-more", 2, 15, "main"))
    huge = queued("align-world", 16, 10, "main")
    yield from (make(20, huge), drop(52, huge))
    yield make(12, queued("held-back", 1, 10, "held"))
    yield alter(46, "clusterqueues", "", "lab-held", _stop_policy("Hold", "None"))
    yield alter(64, "clusterqueues", "", "lab-held", _stop_policy("None", "Hold"))
    lost = queued("lost", 1, 5, "orphan")
    yield from (make(22, lost), drop(54, lost))
    yield make(9, queued("strict-first", 1, 24, "strict"))
    yield make(11, queued("strict-head", 2, 12, "strict"))
    yield make(13, queued("strict-behind", 1, 6, "strict"))
    yield make(70, queued("overnight", 4, 12, "main", priority="lab-low"))
    yield make(76, queued("deadline", 4, 14, "main", priority="lab-urgent"))


def _stop_policy(old: str, new: str) -> Callable[[Object], None]:
    def edit(item: Object) -> None:
        if item["spec"].get("stopPolicy") == old:
            item["spec"]["stopPolicy"] = new

    return edit


# ---------------------------------------------------------------- which node


def _choice() -> Iterator[_Timed]:
    space = "robotics-lab"
    wrong = pod(space, "wrong-rack", template("r77", minutes=6))
    yield from (make(10, wrong), drop(40, wrong))
    yield make(41, pod(space, "right-rack", template("r9", minutes=4)))
    expression = {"key": "nvidia.com/gpu.memory", "operator": "Gt", "values": ["100000"]}
    term = {"matchExpressions": [expression]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    large = pod(space, "large-memory", template("r9", minutes=6,
                                                affinity={"nodeAffinity": required}))  # fmt: skip
    yield from (make(44, large), drop(64, large))
    shy = pod(space, "intolerant", template("r3"))
    yield from (make(14, shy), drop(44, shy))
    yield make(45, pod(space, "tolerant", template("r3", minutes=12, tolerate=[_ROBOTICS])))
    start, end = CORDON_MINUTES
    yield alter(start, "nodes", "", CORDONED, _cordon)
    yield alter(end, "nodes", "", CORDONED, _uncordon)
    yield make(25, pod(space, "after-maintenance", template("r4", gpus=2, minutes=6)))


def _cordon(node: Object) -> None:
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    taints = node["spec"].setdefault("taints", [])
    node["spec"]["unschedulable"] = True
    if taint not in taints:
        taints.append(taint)


def _uncordon(node: Object) -> None:
    node["spec"].pop("unschedulable", None)
    taints = node["spec"].get("taints", [])
    node["spec"]["taints"] = [t for t in taints if t["key"] != "node.kubernetes.io/unschedulable"]


def _spread() -> Iterator[_Timed]:
    apart = {"labelSelector": {"matchLabels": {"app": "apart"}},
             "topologyKey": "kubernetes.io/hostname"}  # fmt: skip
    alone = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    labels = {"app": "apart"}
    for number, (node, minutes) in enumerate(((NUMA, 24), (NEXT, 26))):
        neighbour = template("", minutes=minutes, labels=labels, select=_host(node))
        yield make(8 + number / 2, pod("vision-lab", f"apart-{number}", neighbour))
    shy = template("r5", minutes=5, labels=labels, affinity=alone)
    yield make(9, pod("vision-lab", "apart-2", shy))
    yield make(62, pod("vision-lab", "port-first", template("r9", minutes=16, port=9400)))
    yield make(64, pod("vision-lab", "port-second", template("r9", minutes=4, port=9400)))
    even = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "even"}},
    }
    # Both GPUs of one node are taken, so a second pod on the other would lean to one side.
    zoned = {**even, "topologyKey": "example.com/zone"}
    lonely = pod("vision-lab", "zoned", template("r5", minutes=5, labels={"app": "even"},
                                                 topologySpreadConstraints=[zoned]))  # fmt: skip
    yield from (make(66, lonely), drop(86, lonely))
    filler = pod("vision-lab", "filler", template("", gpus=2, select=_host(NUMA)))
    yield from (make(88, filler), drop(106, filler))
    for number in (0, 1):
        yield make(
            89 + number,
            pod("vision-lab", f"even-{number}",
                template("r5", minutes=22, labels={"app": "even"},
                         topologySpreadConstraints=[even])),
        )  # fmt: skip


def _host(name: str) -> dict[str, str]:
    return {"nvidia.com/gpu.product": made.PRODUCT, "kubernetes.io/hostname": name}


# ---------------------------------------------------------------- kubelets


def _kubelets() -> Iterator[_Timed]:
    pairs = (("numa-pair", NUMA, "TopologyAffinityError", 40, 54, "vision-lab"),
             ("worn-card", WORN, "UnexpectedAdmissionError", 93, 104, "vision-lab"))  # fmt: skip
    for name, node, reason, start, end, owner in pairs:
        found = deployment(owner, name, template("", gpus=2, select=_host(node)), replicas=1)
        yield alter(start - 0.5, "nodes", "", node, _note(REFUSES, reason))
        yield alter(end, "nodes", "", node, _note(REFUSES, ""))
        yield from (make(start, found), drop(end + 8, found))
    pulled = deployment(
        "climate-lab", "pull", template("r7", image="registry.example/ml/train:missing"),
        replicas=1,
    )  # fmt: skip
    yield from (make(5, pulled), drop(28, pulled))
    crash = pod("climate-lab", "crash", template("r8", command=["crash"]))
    yield from (make(34, crash), drop(58, crash))
    slow = template("r7", minutes=6, annotations={MOUNT: "900"})
    yield make(66, pod("climate-lab", "slow-volume", slow))
    yield alter(63, "nodes", "", CRAMPED, _note(VETO, "true"))
    yield alter(84, "nodes", "", CRAMPED, _note(VETO, ""))
    yield make(65, pod("robotics-lab", "vetoed", template("r2", minutes=4)))


def _note(key: str, value: str) -> Callable[[Object], None]:
    def edit(item: Object) -> None:
        annotations = item["metadata"].setdefault("annotations", {})
        annotations.pop(key, None)
        if value:
            annotations[key] = value

    return edit


# ---------------------------------------------------------------- gangs, claims, the rest


def _gang() -> Iterator[_Timed]:
    space = "climate-lab"
    group = made.gang(space, "ocean", members=4, queue="climate")
    yield from (make(86, group), drop(112, group))
    yield make(84, job(space, "tide", template("r7", gpus=2, minutes=14)))
    yield make(86.1, job(space, "ocean", made.in_gang("ocean", template("r7", minutes=8)), pods=4))


def _claims() -> Iterator[_Timed]:
    space = "physics-lab"

    def wants(name: str, minutes: int) -> Object:
        return pod(space, f"with-{name}",
                   template("", claim=name, minutes=minutes, tolerate=[_ON_CLAIMS]))  # fmt: skip

    yield make(18, wants("late", 8))
    late = claim(space, "late", "gpu.nvidia.com")
    yield from (make(38, late), drop(60, late))
    vast = claim(space, "vast", "gpu.nvidia.com", memory="300Gi")
    asks = wants("vast", 5)
    yield from (make(46, vast), make(46, asks), drop(74, asks), drop(74, vast))
    unknown, hopes = claim(space, "fast", "fast.nvidia.com"), wants("fast", 5)
    yield from (make(78, unknown), make(78, hopes), drop(100, hopes), drop(100, unknown))


def _others() -> Iterator[_Timed]:
    data = {"name": "data", "persistentVolumeClaim": {"claimName": "datasets"}}
    yield make(12, pod("vision-lab", "reader", template("r9", minutes=6, volumes=[data])))
    datasets = volume("vision-lab", "datasets")
    yield from (make(33, datasets), drop(60, datasets))
    lost = pod("robotics-lab", "other-scheduler", template("r9", schedulerName="yunikorn"))
    yield from (make(30, lost), drop(60, lost))
    low = template("r4", gpus=2, minutes=10, priorityClassName="lab-low",
                   terminationGracePeriodSeconds=480)  # fmt: skip
    yield make(72, job("robotics-lab", "scavenger", low))
    urgent = template("r4", gpus=2, minutes=8, priorityClassName="lab-urgent")
    yield make(76, pod("robotics-lab", "demo-day", urgent))


_FAULT_STEPS: tuple[Callable[[], Iterator[_Timed]], ...] = (
    _capacity, _partial_gang, _quota, _queues, _choice, _spread, _kubelets, _gang, _claims, _others,
)  # fmt: skip
