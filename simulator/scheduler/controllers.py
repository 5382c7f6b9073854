"""Deployments, ReplicaSets, StatefulSets and Jobs: they make pods, or are refused them."""

from collections import defaultdict
from collections.abc import Mapping

from simulator import identity
from simulator.scheduler.admission import TOLERATIONS, Forbidden, admit_pod
from simulator.scheduler.amounts import is_over
from simulator.scheduler.conditions import drop_condition, holds, set_condition
from simulator.scheduler.events import counted
from simulator.scheduler.placing import terminate
from simulator.scheduler.store import Object, Store, copied, rfc3339, seconds_of

PRIORITIES = "priorityclasses"
REPLACE_SECONDS = 180
"""How long after a kubelet turned a pod away its controller tries another."""
_MOST_BACK_OFF = 960
_BY = {
    "replicasets": "replicaset-controller",
    "statefulsets": "statefulset-controller",
    "jobs": "job-controller",
}
_KINDS = {"replicasets": "ReplicaSet", "statefulsets": "StatefulSet", "jobs": "Job"}


class Controllers:
    """The loops of the controller manager; one that was refused tries again after a while."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._retry: dict[str, tuple[int, int]] = {}
        self._index: dict[str, list[Object]] = {}
        self._indexed_at = -1

    def run(self) -> None:
        for deployment in self._store.all("deployments"):
            self._deployment(deployment)
        for replica_set in self._store.all("replicasets"):
            self._replica_set(replica_set)
        for stateful_set in self._store.all("statefulsets"):
            self._stateful_set(stateful_set)
        for job in self._store.all("jobs"):
            self._job(job)
        self._orphans()

    def next_time(self) -> int | None:
        times = [at for at, _ in self._retry.values()]
        times += [
            seconds_of(pod["status"]["startTime"]) + REPLACE_SECONDS
            for pod in self._store.all("pods")
            if pod["status"].get("phase") == "Failed" and "startTime" in pod["status"]
        ]
        return min((at for at in times if at > self._store.now), default=None)

    def wake(self) -> None:
        """Let everybody who was refused try at once: a quota has changed."""
        self._retry.clear()

    # ------------------------------------------------------------ one each

    def _deployment(self, item: Object) -> None:
        meta, spec = item["metadata"], item["spec"]
        name = f"{meta['name']}-{template_hash(spec['template'])}"
        mine = [one for one in self._store.all("replicasets", meta["namespace"]) if _by(one, item)]
        current = next((one for one in mine if one["metadata"]["name"] == name), None)
        if current is None:
            current = self._store.create("replicasets", replica_set_of(item))
        for one in mine:
            wanted = spec["replicas"] if one["metadata"]["name"] == name else 0
            if one["spec"]["replicas"] != wanted:
                self._store.change(
                    "replicasets",
                    one,
                    lambda rs, n=wanted: rs["spec"].update(replicas=n),  # type: ignore[misc]
                )
        current = self._store.get("replicasets", meta["namespace"], name) or current
        failure = list(current["status"].get("conditions", []))
        status = {
            "observedGeneration": meta["generation"],
            **{key: current["status"][key] for key in ("replicas", "readyReplicas")
               if key in current["status"]},
            **({"conditions": failure} if failure else {}),
        }  # fmt: skip
        self._store.change("deployments", item, lambda it: it.update(status=status))

    def _replica_set(self, item: Object) -> None:
        pods = self._pods(item)
        wanted = item["spec"]["replicas"]
        alive = [pod for pod in pods if not is_over(pod) and not _going(pod)]
        waits = sum(self._holds_back(pod) for pod in pods if is_over(pod))
        for pod in sorted(alive, key=_last_first)[: max(0, len(alive) - wanted)]:
            terminate(self._store, pod)
        refusal = self._make("replicasets", item, wanted - len(alive) - waits)
        self._status("replicasets", item, refusal)

    def _stateful_set(self, item: Object) -> None:
        pods = {pod["metadata"]["name"]: pod for pod in self._pods(item)}
        meta, wanted = item["metadata"], item["spec"]["replicas"]
        names = [f"{meta['name']}-{number}" for number in range(wanted)]
        for name in sorted(set(pods) - set(names), reverse=True):
            terminate(self._store, pods[name])
        refusal = ""
        for name in names:
            if name not in pods:
                refusal = self._make("statefulsets", item, 1, name=name)
                break
            if pods[name]["status"].get("phase") != "Running":
                break
        self._status("statefulsets", item, refusal)

    def _job(self, item: Object) -> None:
        if holds(item, "Complete"):
            return
        pods = self._pods(item)
        spec = item["spec"]
        done = sum(pod["status"].get("phase") == "Succeeded" for pod in pods)
        alive = [pod for pod in pods if not is_over(pod) and not _going(pod)]
        wanted = 0 if spec.get("suspend") else min(spec["parallelism"], spec["completions"] - done)
        going = sum(_going(pod) and not is_over(pod) for pod in pods)
        for pod in sorted(alive, key=_last_first)[: max(0, len(alive) - wanted)]:
            terminate(self._store, pod)
        waits = sum(self._holds_back(p) for p in pods if p["status"].get("phase") == "Failed")
        refusal = self._make("jobs", item, wanted - len(alive) - going - waits)
        self._job_status(item, done, refusal)

    def _holds_back(self, pod: Object) -> bool:
        """Say whether a pod was turned away so recently that it is not replaced yet."""
        started = pod["status"].get("startTime")
        return (
            pod["status"].get("phase") == "Failed"
            and started is not None
            and self._store.now < seconds_of(started) + REPLACE_SECONDS
        )

    # ------------------------------------------------------------ pods

    def _pods(self, item: Object) -> list[Object]:
        if self._indexed_at != self._store.changes:
            self._indexed_at = self._store.changes
            self._index = defaultdict(list)
            for pod in self._store.all("pods"):
                for owner in pod["metadata"].get("ownerReferences", []):
                    self._index[owner["uid"]].append(pod)
        return self._index.get(item["metadata"]["uid"], [])

    def _make(self, plural: str, item: Object, count: int, *, name: str = "") -> str:
        """Make pods; returns why one could not be, "" when all could or it is not time yet."""
        uid = item["metadata"]["uid"]
        at, tries = self._retry.get(uid, (0, 0))
        if count <= 0:
            self._retry.pop(uid, None)
            return ""
        if self._store.now < at:
            return _refused_before(item)
        for _ in range(count):
            try:
                self._make_one(plural, item, name)
            except Forbidden as refusal:
                self._refused(plural, item, refusal, name)
                self._retry[uid] = (
                    self._store.now + min(_MOST_BACK_OFF, 1 << min(tries, 10)), tries + 1,
                )  # fmt: skip
                return str(refusal)
        self._retry.pop(uid, None)
        return ""

    def _make_one(self, plural: str, item: Object, name: str) -> None:
        pod = pod_of(self._store, plural, item)
        meta = item["metadata"]
        trial = name or self._store.name_for(meta["namespace"], meta["name"])
        admit_pod(self._store, {**pod, "metadata": {**pod["metadata"], "name": trial}})
        if name:
            pod["metadata"]["name"] = name
            made = self._store.create("pods", pod)
        else:
            made = self._store.create("pods", pod, stem=meta["name"])
        text = f"Created pod: {made['metadata']['name']}"
        counted(self._store, plural, item, "SuccessfulCreate", text, by=_BY[plural], warning=False)

    def _refused(self, plural: str, item: Object, refusal: Forbidden, name: str) -> None:
        text = f"Error creating: {refusal}"
        if plural == "statefulsets":
            owner = item["metadata"]["name"]
            text = f"create Pod {name} in StatefulSet {owner} failed error: {refusal}"
        counted(self._store, plural, item, "FailedCreate", text, by=_BY[plural])

    def _orphans(self) -> None:
        """Let go what was made by something that is gone."""
        uids = {
            item["metadata"]["uid"]
            for plural in ("deployments", *_BY)
            for item in self._store.all(plural)
        }
        for plural in ("replicasets", "pods"):
            for item in self._store.all(plural):
                owners = item["metadata"].get("ownerReferences", [])
                if owners and owners[0]["uid"] not in uids:
                    if plural == "pods":
                        terminate(self._store, item)
                    else:
                        self._store.remove(plural, item)

    # ------------------------------------------------------------ statuses

    def _status(self, plural: str, item: Object, refusal: str) -> None:
        alive = [pod for pod in self._pods(item) if not is_over(pod) and not _going(pod)]
        ready = sum(pod["status"].get("phase") == "Running" for pod in alive)

        def edit(it: Object) -> None:
            status = it.setdefault("status", {})
            status |= {"replicas": len(alive), "observedGeneration": it["metadata"]["generation"]}
            status["readyReplicas"] = ready
            if plural == "replicasets" and refusal:
                set_condition(
                    it, "ReplicaFailure", true=True, at=self._store.now,
                    reason="FailedCreate", message=refusal,
                )  # fmt: skip
            elif plural == "replicasets":
                drop_condition(it, "ReplicaFailure")

        self._store.change(plural, item, edit)

    def _job_status(self, item: Object, done: int, refusal: str) -> None:
        pods = self._pods(item)
        active = sum(not is_over(pod) and not _going(pod) for pod in pods)
        ready = sum(pod["status"].get("phase") == "Running" for pod in pods)
        over = done >= item["spec"]["completions"]

        def edit(it: Object) -> None:
            status = it.setdefault("status", {})
            for key, count in (("active", active), ("succeeded", done)):
                status.pop(key, None)
                if count:
                    status[key] = count
            status |= {"ready": 0 if over else ready, "terminating": 0}
            suspended = bool(it["spec"].get("suspend"))
            if suspended:
                set_condition(it, "Suspended", true=True, at=self._store.now,
                              reason="JobSuspended", message="Job suspended")  # fmt: skip
            else:
                status.setdefault("startTime", rfc3339(self._store.now))
                if any(c["type"] == "Suspended" for c in status.get("conditions", [])):
                    set_condition(it, "Suspended", true=False, at=self._store.now,
                                  reason="JobResumed", message="Job resumed")  # fmt: skip
            if over and "completionTime" not in status:
                status["completionTime"] = rfc3339(self._store.now)
                for kind in ("SuccessCriteriaMet", "Complete"):
                    set_condition(
                        it, kind, true=True, at=self._store.now, reason="CompletionsReached",
                        message="Reached expected number of succeeded pods",
                    )  # fmt: skip

        self._store.change("jobs", item, edit)


def _by(item: Object, owner: Object) -> bool:
    owners = item["metadata"].get("ownerReferences", [])
    return bool(owners) and owners[0]["uid"] == owner["metadata"]["uid"]


def _going(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _last_first(pod: Object) -> tuple[bool, int]:
    """Order pods as controllers let go of them: those that wait first, then the youngest."""
    return bool(pod["spec"].get("nodeName")), -seconds_of(pod["metadata"]["creationTimestamp"])


def _refused_before(item: Object) -> str:
    found = item.get("status", {}).get("conditions", [])
    return next((str(c["message"]) for c in found if c["type"] == "ReplicaFailure"), "")


def template_hash(template: Object) -> str:
    return identity.suffix(10, "template", template)


def replica_set_of(deployment: Object) -> Object:
    """Return the ReplicaSet of a Deployment's template."""
    meta, spec = deployment["metadata"], deployment["spec"]
    mark = template_hash(spec["template"])
    template = copied(spec["template"])
    template["metadata"].setdefault("labels", {})["pod-template-hash"] = mark
    labels = dict(template["metadata"]["labels"])
    return {
        "kind": "ReplicaSet",
        "apiVersion": "apps/v1",
        "metadata": {
            "name": f"{meta['name']}-{mark}",
            "namespace": meta["namespace"],
            "labels": labels,
            "ownerReferences": [owner_reference("apps/v1", "Deployment", meta)],
        },
        "spec": {
            "replicas": spec["replicas"],
            "selector": {"matchLabels": labels},
            "template": template,
        },
        "status": {"replicas": 0},
    }


def pod_of(store: Store, plural: str, owner: Object) -> Object:
    """Return the pod that a controller makes, but for its name."""
    template, meta = copied(owner["spec"]["template"]), owner["metadata"]
    labels = dict(template["metadata"].get("labels", {}))
    version = "batch/v1" if plural == "jobs" else "apps/v1"
    metadata: Object = {
        "namespace": meta["namespace"],
        "labels": labels,
        "ownerReferences": [owner_reference(version, _KINDS[plural], meta)],
    }
    if plural == "jobs":
        labels |= {
            "batch.kubernetes.io/controller-uid": meta["uid"],
            "batch.kubernetes.io/job-name": meta["name"],
            "controller-uid": meta["uid"],
            "job-name": meta["name"],
        }
        metadata["finalizers"] = ["batch.kubernetes.io/job-tracking"]
    if annotations := template["metadata"].get("annotations"):
        metadata["annotations"] = dict(annotations)
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": metadata,
        "spec": admitted_spec(store, template["spec"]),
        "status": {"phase": "Pending", "qosClass": "Burstable"},
    }


def admitted_spec(store: Store, spec: Mapping[str, object]) -> Object:
    """Return a pod's spec with what the API server adds to it."""
    found: Object = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "enableServiceLinks": True,
        **copied(dict(spec)),
    }
    known = {one["key"] for one in found.get("tolerations", []) if one.get("key")}
    found["tolerations"] = [
        *found.get("tolerations", []),
        *(dict(one) for one in TOLERATIONS if one["key"] not in known),
    ]
    chosen = store.get(PRIORITIES, "", str(found.get("priorityClassName", ""))) or {}
    found.setdefault("priority", chosen.get("value", 0))
    found.setdefault("preemptionPolicy", chosen.get("preemptionPolicy", "PreemptLowerPriority"))
    return found


def owner_reference(version: str, kind: str, meta: Object) -> Object:
    """Return the reference to the controller whose metadata is `meta`."""
    return {
        "apiVersion": version,
        "kind": kind,
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
