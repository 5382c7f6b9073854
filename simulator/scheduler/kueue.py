"""Kueue (v1beta2): Workloads for Jobs and gated pods, admitted in order as quota allows.

One flavor of a queue is tried after the other; queues do not borrow from each other here.
"""

from simulator import identity
from simulator.scheduler.amounts import is_over, written
from simulator.scheduler.conditions import condition, drop_condition, holds, set_condition
from simulator.scheduler.controllers import owner_reference
from simulator.scheduler.events import noted
from simulator.scheduler.kueue_queues import (
    Queues,
    count,
    finished,
    flavors,
    reserved,
    workload_requests,
)
from simulator.scheduler.store import Object, Store, copied

QUEUE = "kueue.x-k8s.io/queue-name"
GATE = "kueue.x-k8s.io/admission"
PRIORITY = "kueue.x-k8s.io/priority-class"
POD_GROUP = "kueue.x-k8s.io/pod-group-name"
POD_GROUP_SIZE = "kueue.x-k8s.io/pod-group-total-count"
MANAGED = "kueue.x-k8s.io/managed"
API_VERSION = "kueue.x-k8s.io/v1beta2"
_BY = "kueue-admission"


class Kueue:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._queues = Queues(store)

    def run(self) -> None:
        self._make_workloads()
        self._follow_owners()
        self._queues.tell()
        for workload in self._store.all("workloads"):
            if not finished(workload) and not reserved(workload):
                self._without_queue(workload)
        for queue in self._store.all("clusterqueues"):
            if holds(queue, "Active"):
                self._admit(queue)
        self._queues.tell()

    # ------------------------------------------------------------ workloads

    def _make_workloads(self) -> None:
        for plural in ("jobs", "pods"):
            for owner in self._store.all(plural):
                queue = owner["metadata"].get("labels", {}).get(QUEUE)
                if queue and self._workload_of(owner) is None and _asks(plural, owner):
                    self._store.create("workloads", self._new(plural, owner, queue))

    def _new(self, plural: str, owner: Object, queue: str) -> Object:
        meta = owner["metadata"]
        kind, version = ("Job", "batch/v1") if plural == "jobs" else ("Pod", "v1")
        template = owner["spec"]["template"] if plural == "jobs" else {
            "metadata": {"labels": dict(meta.get("labels", {}))},
            "spec": copied(owner["spec"]),
        }  # fmt: skip
        chosen = self._store.get(
            "workloadpriorityclasses", "", meta.get("labels", {}).get(PRIORITY, "")
        )
        stem = f"{kind.lower()}-{meta['name']}"
        spec: Object = {
            "active": True,
            "priority": chosen["value"] if chosen else 0,
            "queueName": queue,
            "podSets": [
                {
                    "name": "main",
                    "count": owner["spec"].get("parallelism", 1),
                    "template": copied(template),
                }
            ],
        }
        if chosen:
            spec["priorityClassRef"] = {
                "group": "kueue.x-k8s.io",
                "kind": "WorkloadPriorityClass",
                "name": chosen["metadata"]["name"],
            }
        return {
            "kind": "Workload",
            "apiVersion": API_VERSION,
            "metadata": {
                "name": f"{stem}-{identity.uid('workload', meta['uid'])[:5]}",
                "namespace": meta["namespace"],
                "labels": {"kueue.x-k8s.io/job-uid": meta["uid"]},
                "ownerReferences": [owner_reference(version, kind, meta)],
            },
            "spec": spec,
            "status": {},
        }

    def _workload_of(self, owner: Object) -> Object | None:
        uid = owner["metadata"]["uid"]
        return next(
            (
                one
                for one in self._store.all("workloads", owner["metadata"]["namespace"])
                if one["metadata"]["labels"]["kueue.x-k8s.io/job-uid"] == uid
            ),
            None,
        )

    def _owner(self, workload: Object) -> tuple[str, Object | None]:
        reference = workload["metadata"]["ownerReferences"][0]
        plural = "jobs" if reference["kind"] == "Job" else "pods"
        found = self._store.get(plural, workload["metadata"]["namespace"], reference["name"])
        same = found is not None and found["metadata"]["uid"] == reference["uid"]
        return plural, found if same else None

    def _follow_owners(self) -> None:
        """End the workloads of what has ended; drop those of what is gone."""
        for workload in self._store.all("workloads"):
            plural, owner = self._owner(workload)
            if owner is None:
                self._store.remove("workloads", workload)
                continue
            over = holds(owner, "Complete") if plural == "jobs" else is_over(owner)
            if over and not finished(workload):
                text = "Reached expected number of succeeded pods"
                self._set(workload, "Finished", true=True, reason="Succeeded", message=text)
            elif holds(workload, "Admitted") and not finished(workload):
                running = _ready(self._store, plural, owner) >= count(workload)
                text = (
                    "All pods reached readiness and the workload is running"
                    if running
                    else "Not all pods are ready or succeeded"
                )
                reason = "Started" if running else "WaitForStart"
                self._set(workload, "PodsReady", true=running, reason=reason, message=text)

    def _set(self, workload: Object, kind: str, *, true: bool, reason: str, message: str) -> Object:
        return self._store.change(
            "workloads",
            workload,
            lambda item: set_condition(
                item, kind, true=true, at=self._store.now, reason=reason, message=message
            ),
        )

    # ------------------------------------------------------------ admission

    def _without_queue(self, workload: Object) -> None:
        """Say so when the queues that a workload names are not there or stopped."""
        meta, name = workload["metadata"], workload["spec"]["queueName"]
        local = self._store.get("localqueues", meta["namespace"], name)
        if local is None:
            self._pending(workload, "Misconfigured", f"LocalQueue {name} doesn't exist")
            return
        if local["spec"].get("stopPolicy", "None") != "None":
            self._pending(workload, "Suspended", f"LocalQueue {name} is inactive")
            return
        queue_name = local["spec"]["clusterQueue"]
        queue = self._store.get("clusterqueues", "", queue_name)
        if queue is None:
            self._pending(workload, "Misconfigured", f"ClusterQueue {queue_name} doesn't exist")
        elif not holds(queue, "Active"):
            stopped = queue["spec"].get("stopPolicy", "None") != "None"
            reason = "Suspended" if stopped else "Misconfigured"
            self._pending(workload, reason, f"ClusterQueue {queue_name} is inactive")

    def _admit(self, queue: Object) -> None:
        strict = queue["spec"].get("queueingStrategy") == "StrictFIFO"
        for workload in self._pending_of(queue):
            if self._reserve(queue, workload):
                continue
            if strict:
                return

    def _pending_of(self, queue: Object) -> list[Object]:
        found = [
            one
            for one in self._store.all("workloads")
            if not reserved(one) and not finished(one) and self._queues.goes_to(one, queue)
        ]
        return sorted(found, key=lambda one: -one["spec"]["priority"])

    def _reserve(self, queue: Object, workload: Object) -> bool:
        """Reserve quota for a workload; says what is missing and returns False when it cannot."""
        used = self._queues.used(queue)
        wanted = workload_requests(workload)
        texts, never = [], True
        for flavor, quotas in flavors(queue):
            lacking = [
                self._lacking(flavor, name, amount, used.get((flavor, name), 0.0), quotas[name])
                for name, amount in sorted(wanted.items())
                if name in quotas
            ]
            lacking = [one for one in lacking if one[0]]
            if not lacking:
                self._grant(queue, workload, flavor, quotas)
                return True
            texts += [text for text, _ in lacking]
            never = never and any(ever for _, ever in lacking)
        if not never and self._preempt(queue, workload):
            return True
        reason = "ExceedsMaxQuota" if never else "WaitingForQuota"
        text = f"couldn't assign flavors to pod set main: {', '.join(sorted(texts))}"
        self._pending(workload, reason, text)
        return False

    def _lacking(
        self, flavor: str, name: str, amount: float, used: float, nominal: float
    ) -> tuple[str, bool]:
        """Return what is said when there is too little ("" when not), and whether ever."""
        if amount > nominal:
            return (
                f"insufficient quota for {name} in flavor {flavor}, previously considered podsets "
                f"requests (0) + current podset request ({written(amount)}) > maximum capacity "
                f"({written(nominal)})",
                True,
            )
        missing = used + amount - nominal
        if missing <= 0:
            return "", False
        text = f"insufficient unused quota for {name} in flavor {flavor}"
        return f"{text}, {written(missing)} more needed", False

    def _grant(
        self, queue: Object, workload: Object, flavor: str, quotas: dict[str, float]
    ) -> None:
        name, wanted = queue["metadata"]["name"], workload_requests(workload)

        def edit(item: Object) -> None:
            covered = {key: amount for key, amount in wanted.items() if key in quotas}
            item["status"]["admission"] = {
                "clusterQueue": name,
                "podSetAssignments": [
                    {
                        "name": "main",
                        "count": count(item),
                        "flavors": dict.fromkeys(covered, flavor),
                        "resourceUsage": {key: written(n) for key, n in covered.items()},
                    }
                ],
            }
            for kind in ("Evicted", "Preempted", "Requeued"):
                drop_condition(item, kind)
            at = self._store.now
            set_condition(item, "QuotaReserved", true=True, at=at, reason="QuotaReserved",
                          message=f"Quota reserved in ClusterQueue {name}")  # fmt: skip
            set_condition(item, "Admitted", true=True, at=at, reason="Admitted",
                          message="The workload is admitted")  # fmt: skip

        admitted = self._store.change("workloads", workload, edit)
        text = f"Quota reserved in ClusterQueue {name}, wait time since queued was 0s"
        noted(self._store, "workloads", admitted, "QuotaReserved", text,
              by=_BY, warning=False, action="QuotaReserved")  # fmt: skip
        self._start(admitted, flavor)

    def _start(self, workload: Object, flavor: str) -> None:
        plural, owner = self._owner(workload)
        if owner is None:
            return
        found = self._store.get("resourceflavors", "", flavor) or {"spec": {}}
        labels = found["spec"].get("nodeLabels", {})

        def edit(item: Object) -> None:
            spec = item["spec"]
            if plural == "jobs":
                spec["suspend"] = False
                spec = spec["template"]["spec"]
            else:
                spec["schedulingGates"] = [
                    gate for gate in spec.get("schedulingGates", []) if gate["name"] != GATE
                ]
                if not spec["schedulingGates"]:
                    del spec["schedulingGates"]
            spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **labels}

        self._store.change(plural, owner, edit)

    def _preempt(self, queue: Object, workload: Object) -> bool:
        """Requeue less important workloads of the queue when that makes room."""
        policy = queue["spec"].get("preemption", {}).get("withinClusterQueue", "Never")
        if policy == "Never":
            return False
        mine = workload["spec"]["priority"]
        lower = [
            one
            for one in self._store.all("workloads")
            if reserved(one)
            and not finished(one)
            and one["status"]["admission"]["clusterQueue"] == queue["metadata"]["name"]
            and one["spec"]["priority"] < mine
        ]
        for victim in sorted(lower, key=lambda one: one["spec"]["priority"]):
            self._evict(queue, victim, workload)
            if self._room(queue, workload):
                return self._reserve(queue, workload)
        return False

    def _room(self, queue: Object, workload: Object) -> bool:
        used, wanted = self._queues.used(queue), workload_requests(workload)
        return any(
            all(
                used.get((flavor, name), 0.0) + amount <= quotas[name]
                for name, amount in wanted.items()
                if name in quotas
            )
            for flavor, quotas in flavors(queue)
        )

    def _evict(self, queue: Object, victim: Object, workload: Object) -> None:
        path = f"/{queue['metadata']['name']}"
        job = workload["metadata"]["labels"]["kueue.x-k8s.io/job-uid"]
        text = (
            f"Preempted to accommodate a workload (UID: {workload['metadata']['uid']}, "
            f"JobUID: {job}) due to prioritization in the ClusterQueue; "
            f"preemptor path: {path}; preemptee path: {path}"
        )

        def edit(item: Object) -> None:
            del item["status"]["admission"]
            drop_condition(item, "PodsReady")
            at = self._store.now
            for kind, true, reason in (
                ("QuotaReserved", False, "Pending"),
                ("Evicted", True, "Preempted"),
                ("Admitted", False, "NoReservation"),
                ("Preempted", True, "InClusterQueue"),
                ("Requeued", True, "Preempted"),
            ):
                message = "The workload has no reservation" if kind == "Admitted" else text
                set_condition(item, kind, true=true, at=at, reason=reason, message=message)

        evicted = self._store.change("workloads", victim, edit)
        noted(self._store, "workloads", evicted, "Preempted", text,
              by=_BY, warning=False, action="Preempted")  # fmt: skip
        plural, owner = self._owner(evicted)
        if owner is not None and plural == "jobs":
            self._store.change("jobs", owner, lambda item: item["spec"].update(suspend=True))

    def _pending(self, workload: Object, reason: str, message: str) -> None:
        old = condition(workload, "QuotaReserved")
        if old and (old.get("reason"), old.get("message")) == (reason, message):
            return
        at = self._store.now

        def edit(item: Object) -> None:
            set_condition(item, "QuotaReserved", true=False, at=at, reason=reason, message=message)
            text = "The workload has no reservation"
            set_condition(item, "Admitted", true=False, at=at, reason="NoReservation", message=text)
            wanted = {name: written(amount) for name, amount in workload_requests(item).items()}
            item["status"]["resourceRequests"] = [{"name": "main", "resources": wanted}]

        said = self._store.change("workloads", workload, edit)
        noted(self._store, "workloads", said, reason, message, by=_BY, warning=True, action=reason)


def _asks(plural: str, owner: Object) -> bool:
    if plural == "jobs":
        return bool(owner["spec"].get("suspend"))
    return any(gate["name"] == GATE for gate in owner["spec"].get("schedulingGates", []))


def _ready(store: Store, plural: str, owner: Object) -> int:
    if plural == "pods":
        return int(owner["status"].get("phase") == "Running")
    return int(owner.get("status", {}).get("ready", 0)) + int(
        owner.get("status", {}).get("succeeded", 0)
    )
