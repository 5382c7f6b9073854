"""Does to a lab what a suggestion says: through its API, as the user or the admin would.

`apply` takes the action and the particulars of a suggestion (`apps.pending.domain.diagnosis`), and
the thing that waits. What users cannot change in a pod they make anew: so does this.
"""

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any

from simulator.scheduler.filters import VETO
from simulator.scheduler.gangs import GROUP
from simulator.scheduler.kubelet import MOUNT, REFUSES
from tests.simulator.client import Client

Object = dict[str, Any]
Change = Mapping[str, Any]
_MERGE = "application/merge-patch+json"
_JSON_PATCH = "application/json-patch+json"
_PATHS = {
    "Pod": "/api/v1/namespaces/{0}/pods/{1}",
    "Node": "/api/v1/nodes/{1}",
    "ResourceQuota": "/api/v1/namespaces/{0}/resourcequotas/{1}",
    "PersistentVolumeClaim": "/api/v1/namespaces/{0}/persistentvolumeclaims/{1}",
    "Job": "/apis/batch/v1/namespaces/{0}/jobs/{1}",
    "Deployment": "/apis/apps/v1/namespaces/{0}/deployments/{1}",
    "ReplicaSet": "/apis/apps/v1/namespaces/{0}/replicasets/{1}",
    "StatefulSet": "/apis/apps/v1/namespaces/{0}/statefulsets/{1}",
    "ResourceClaim": "/apis/resource.k8s.io/v1/namespaces/{0}/resourceclaims/{1}",
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses/{1}",
    "PodGroup": "/apis/scheduling.volcano.sh/v1beta1/namespaces/{0}/podgroups/{1}",
    "Workload": "/apis/kueue.x-k8s.io/v1beta2/namespaces/{0}/workloads/{1}",
    "ClusterQueue": "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/{1}",
    "LocalQueue": "/apis/kueue.x-k8s.io/v1beta2/namespaces/{0}/localqueues/{1}",
    "ResourceFlavor": "/apis/kueue.x-k8s.io/v1beta2/resourceflavors/{1}",
}
_OWN_METADATA = ("name", "namespace", "labels", "annotations")


class NotApplied(Exception):
    """The lab refused what a suggestion asked for, or nobody knows how to do it."""


class Kube:
    """The few calls of the Kubernetes API that are needed; raises NotApplied when refused."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def get(self, kind: str, namespace: str, name: str) -> Object:
        return self._ask("GET", _PATHS[kind].format(namespace, name))

    def find(self, kind: str, namespace: str, name: str) -> Object | None:
        status, found = self.send("GET", _PATHS[kind].format(namespace, name))
        return found if status == 200 else None

    def items(self, path: str) -> list[Object]:
        found = self._ask("GET", path)
        kind = {"kind": found["kind"].removesuffix("List"), "apiVersion": found["apiVersion"]}
        return [{**kind, **item} for item in found["items"]]

    def create(self, kind: str, item: Object) -> Object:
        meta = item["metadata"]
        path = _PATHS[kind].format(meta.get("namespace", ""), "").rstrip("/")
        return self._ask("POST", path, item)

    def merge(self, kind: str, namespace: str, name: str, patch: Object) -> Object:
        return self._ask("PATCH", _PATHS[kind].format(namespace, name), patch, _MERGE)

    def patch(self, kind: str, namespace: str, name: str, operations: list[Object]) -> Object:
        return self._ask("PATCH", _PATHS[kind].format(namespace, name), operations, _JSON_PATCH)

    def delete(self, kind: str, namespace: str, name: str, *, now: bool = True) -> None:
        path = _PATHS[kind].format(namespace, name)
        self._ask("DELETE", f"{path}?gracePeriodSeconds=0" if now else path)

    def send(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> tuple[int, Object]:
        """Return status and JSON of an answer of whatever status."""
        text = "" if body is None else json.dumps(body)
        with self._client.open(
            path, method=method, body=text, content_type=content_type
        ) as response:
            return response.status, json.loads(response.read())

    def _ask(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> Object:
        status, found = self.send(method, path, body, content_type)
        if status >= 300:
            raise NotApplied(f"{method} {path}: {status} {found.get('message')}")
        return found


def apply(
    client: Client, action: str, change: Change, *, kind: str, namespace: str, name: str
) -> None:
    """Carry out a suggestion for the thing of this kind and name; raises NotApplied."""
    act = _ACTS.get(str(action))
    if act is None:
        raise NotApplied(f"nobody knows how to {action}")
    act(Kube(client), change, (kind, namespace, name))


_Thing = tuple[str, str, str]


# ---------------------------------------------------------------- room


def _free(kube: Kube, change: Change, thing: _Thing) -> None:
    """Let go of holders until one of the nodes has as much free as is missing."""
    holders = [str(one).partition("/") for one in change.get("holders", ())]
    pods = {
        (pod["metadata"]["namespace"], pod["metadata"]["name"]): pod
        for pod in kube.items("/api/v1/pods")
        if pod["spec"].get("nodeName") in change["nodes"] and _held(pod, change["resource"])
    }
    wanted = [(space, name) for space, _, name in holders] or list(pods)
    for node in change["nodes"]:
        chosen, amount = [], 0.0
        for key in wanted:
            pod = pods.get(key)
            if pod is not None and pod["spec"]["nodeName"] == node and amount < change["amount"]:
                chosen.append(key)
                amount += _held(pod, change["resource"])
        if amount >= change["amount"]:
            for space, name in chosen:
                _let_go(kube, space, name)
            return
    raise NotApplied(f"no node has {change['amount']} of {change['resource']} to be freed")


def _let_go(kube: Kube, namespace: str, name: str) -> None:
    """End what a pod belongs to: alone, its controller would make another."""
    kind, name = _top(kube, namespace, name)
    kube.delete(kind, namespace, name)
    if kind != "Pod":
        for pod in kube.items(f"/api/v1/namespaces/{namespace}/pods"):
            if "deletionTimestamp" in pod["metadata"]:
                kube.delete("Pod", namespace, pod["metadata"]["name"])


def _held(pod: Object, resource: str) -> float:
    if pod["status"].get("phase") in {"Succeeded", "Failed"}:
        return 0.0
    asked = (one["resources"]["requests"] for one in pod["spec"]["containers"])
    return sum(_number(requests.get(resource, "0")) for requests in asked)


def _number(text: str) -> float:
    for suffix, factor in (("Gi", 2.0**30), ("Mi", 2.0**20), ("m", 0.001)):
        if text.endswith(suffix):
            return float(text.removesuffix(suffix)) * factor
    return float(text)


def _add_node(kube: Kube, change: Change, thing: _Thing) -> None:
    """Add a node that is like one that the thing may go to, large enough."""
    template = _template(kube, thing)
    wanted = template["spec"].get("nodeSelector", {})
    nodes = kube.items("/api/v1/nodes")
    alike = [
        n for n in nodes if all(n["metadata"]["labels"].get(k) == v for k, v in wanted.items())
    ]
    node = _own(copy.deepcopy((alike or nodes)[0]))
    node["metadata"]["labels"] = {**node["metadata"]["labels"], **wanted}
    node["status"]["allocatable"][change["resource"]] = str(change["amount"])
    node["status"]["capacity"][change["resource"]] = str(change["amount"])
    node["spec"].pop("unschedulable", None)
    node["spec"].pop("taints", None)
    for number in range(int(change.get("count", 1))):
        name = f"added-{len(nodes) + number}"
        kube.create("Node", {**node, "metadata": {**node["metadata"], "name": name}})


def _raise_quota(kube: Kube, change: Change, thing: _Thing) -> None:
    path = "/spec/hard/" + str(change["key"]).replace("~", "~0").replace("/", "~1")
    name = (str(change["namespace"]), str(change["quota"]))
    now = kube.get("ResourceQuota", *name)["spec"]["hard"][change["key"]]
    if _number(now) != _number(str(change["from"])):
        raise NotApplied(f"the quota is {now}, not {change['from']}")
    kube.patch(
        "ResourceQuota",
        *name,
        [
            {"op": "test", "path": path, "value": now},
            {"op": "replace", "path": path, "value": _plain(change["to"])},
        ],
    )


def _plain(amount: Any) -> str:
    number = float(amount)
    return str(int(number)) if number == int(number) else str(amount)


# ---------------------------------------------------------------- queues


def _raise_queue_quota(kube: Kube, change: Change, thing: _Thing) -> None:
    queue = kube.get("ClusterQueue", "", change["cluster_queue"])
    groups = copy.deepcopy(queue["spec"]["resourceGroups"])
    for group in groups:
        for flavor in group["flavors"]:
            for one in flavor["resources"]:
                if (flavor["name"], one["name"]) == (change["flavor"], change["resource"]):
                    one["nominalQuota"] = _plain(change["to"])
    kube.merge("ClusterQueue", "", change["cluster_queue"], {"spec": {"resourceGroups": groups}})


def _resume_queue(kube: Kube, change: Change, thing: _Thing) -> None:
    go = {"spec": {"stopPolicy": "None"}}
    if change.get("cluster_queue"):
        kube.merge("ClusterQueue", "", change["cluster_queue"], go)
    if change.get("local_queue"):
        namespace, _, name = str(change["local_queue"]).partition("/")
        kube.merge("LocalQueue", namespace, name, go)


def _create_queue(kube: Kube, change: Change, thing: _Thing) -> None:
    """Make the LocalQueue that is missing, and the ClusterQueue that it needs, after another."""
    path = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
    known = {one["metadata"]["name"]: one for one in kube.items(path)}
    wanted = str(change.get("cluster_queue") or next(iter(sorted(known))))
    if wanted not in known:
        running = [one for one in known.values() if one["spec"].get("stopPolicy") == "None"]
        made = _own(copy.deepcopy(running[0]))
        made["metadata"] = {"name": wanted}
        kube.create("ClusterQueue", {**made, "status": {}})
    namespace, name = change["namespace"], change["name"]
    if kube.find("LocalQueue", namespace, name) is None:
        spec = {"clusterQueue": wanted, "stopPolicy": "None"}
        meta = {"name": name, "namespace": namespace}
        kube.create("LocalQueue", {"metadata": meta, "spec": spec})


def _create_flavor(kube: Kube, change: Change, thing: _Thing) -> None:
    kube.create("ResourceFlavor", {"metadata": {"name": change["flavor"]}, "spec": {}})


def _ungate(kube: Kube, change: Change, thing: _Thing) -> None:
    _, namespace, name = thing
    gates = kube.get("Pod", namespace, name)["spec"].get("schedulingGates", [])
    kept = [gate for gate in gates if gate["name"] != change["gate"]]
    kube.merge("Pod", namespace, name, {"spec": {"schedulingGates": kept or None}})


def _unsuspend(kube: Kube, change: Change, thing: _Thing) -> None:
    where = (str(change["kind"]), str(change["namespace"]), str(change["name"]))
    kube.merge(*where, {"spec": {"suspend": False}})


# ---------------------------------------------------------------- the pod itself


def _tolerate(kube: Kube, change: Change, thing: _Thing) -> None:
    one = {"key": change["key"], "operator": "Exists", "effect": change["effect"]}
    if change.get("value"):
        one |= {"operator": "Equal", "value": change["value"]}
    _edit_template(kube, thing, lambda spec: spec.setdefault("tolerations", []).append(one))


def _select(kube: Kube, change: Change, thing: _Thing) -> None:
    def edit(spec: Object) -> None:
        selector = spec.get("nodeSelector", {})
        gone = change.get("remove") or {}
        for label in gone:
            if selector.pop(label, None) is None:
                spec.get("affinity", {}).pop("nodeAffinity", None)
        selector.update(change.get("add") or {})

    _edit_template(kube, thing, edit)


def _request(kube: Kube, change: Change, thing: _Thing) -> None:
    def edit(spec: Object) -> None:
        for container in spec["containers"]:
            for amounts in container["resources"].values():
                if isinstance(amounts, dict) and change["resource"] in amounts:
                    del amounts[change["resource"]]
                    name = change.get("instead") or change["resource"]
                    amounts[name] = _plain(change["to"])

    _edit_template(kube, thing, edit)


def _set_scheduler(kube: Kube, change: Change, thing: _Thing) -> None:
    _edit_template(kube, thing, lambda spec: spec.update(schedulerName=change["to"]))


def _relax(kube: Kube, change: Change, thing: _Thing) -> None:
    def edit(spec: Object) -> None:
        affinity = spec.get("affinity", {})
        if change["what"] == "anti-affinity":
            affinity.pop("podAntiAffinity", None)
        elif change["what"] == "pod-affinity":
            affinity.pop("podAffinity", None)
        elif change["what"] == "topology-spread":
            spec.pop("topologySpreadConstraints", None)
        else:
            for container in spec["containers"]:
                container.pop("ports", None)

    _edit_template(kube, thing, edit)


def _mend_image(kube: Kube, change: Change, thing: _Thing) -> None:
    def edit(spec: Object) -> None:
        for container in spec["containers"]:
            container["image"] = "registry.example/ml/train:1.0"

    _edit_template(kube, thing, edit)


def _look_at_container(kube: Kube, change: Change, thing: _Thing) -> None:
    def edit(spec: Object) -> None:
        for container in spec["containers"]:
            container["command"] = ["sleep", "infinity"]

    _edit_template(kube, thing, edit)


def _top(kube: Kube, namespace: str, pod: str) -> tuple[str, str]:
    """Return kind and name of what controls a pod in the end; itself when nothing does."""
    kind, name = "Pod", pod
    while owners := kube.get(kind, namespace, name)["metadata"].get("ownerReferences"):
        kind, name = owners[0]["kind"], owners[0]["name"]
    return kind, name


def _resolved(kube: Kube, thing: _Thing) -> _Thing:
    kind, namespace, name = thing
    if kind == "Pod":
        top, of = _top(kube, namespace, name)
        return top, namespace, of
    if kind == "Workload":
        owner = kube.get(kind, namespace, name)["metadata"]["ownerReferences"][0]
        return owner["kind"], namespace, owner["name"]
    if kind == "PodGroup":
        return "Job", namespace, _job_of(kube, namespace, name)
    if kind == "ReplicaSet":
        owners = kube.get(kind, namespace, name)["metadata"].get("ownerReferences")
        if owners:
            return owners[0]["kind"], namespace, owners[0]["name"]
    return thing


def _job_of(kube: Kube, namespace: str, group: str) -> str:
    """Return the name of the Job whose pods are of a group."""
    for job in kube.items(f"/apis/batch/v1/namespaces/{namespace}/jobs"):
        annotations = job["spec"]["template"]["metadata"].get("annotations", {})
        if annotations.get(GROUP) == group:
            return str(job["metadata"]["name"])
    raise NotApplied(f"no Job has pods of the group {group}")


def _template(kube: Kube, thing: _Thing) -> Object:
    item = kube.get(*_resolved(kube, thing))
    template: Object = item if item["kind"] == "Pod" else item["spec"]["template"]
    return template


def _edit_template(kube: Kube, thing: _Thing, edit: Callable[[Object], Any]) -> None:
    """Change what pods are made from; a pod or a Job is made anew, for it cannot be changed."""
    kind, namespace, name = _resolved(kube, thing)
    item = kube.get(kind, namespace, name)
    if kind in {"Deployment", "StatefulSet"}:
        template = copy.deepcopy(item["spec"]["template"])
        edit(template["spec"])
        kube.merge(kind, namespace, name, {"spec": {"template": template}})
        return
    made = _own(copy.deepcopy(item))
    edit(made["spec"] if kind == "Pod" else made["spec"]["template"]["spec"])
    kube.delete(kind, namespace, name)
    kube.create(kind, made)


def _own(item: Object) -> Object:
    """Return an object without what the server wrote into it."""
    item["metadata"] = {
        key: item["metadata"][key] for key in _OWN_METADATA if key in item["metadata"]
    }
    if item["kind"] != "Node":
        item["status"] = {}
    for key in ("nodeName", "priority"):
        item["spec"].pop(key, None)
    return item


# ---------------------------------------------------------------- what it needs


def _create_claim(kube: Kube, change: Change, thing: _Thing) -> None:
    _claim(kube, str(change["namespace"]), str(change["name"]), "gpu.nvidia.com")


def _change_claim(kube: Kube, change: Change, thing: _Thing) -> None:
    namespace, name = str(change["namespace"]), str(change["name"])
    kube.delete("ResourceClaim", namespace, name)
    _claim(kube, namespace, name, str(change["device_class"]))


def _claim(kube: Kube, namespace: str, name: str, device_class: str) -> None:
    exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": 1}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    meta = {"name": name, "namespace": namespace}
    kube.create("ResourceClaim", {"metadata": meta, "spec": spec})


def _create_class(kube: Kube, change: Change, thing: _Thing) -> None:
    text = "device.driver == 'gpu.nvidia.com'"
    meta = {"name": change["device_class"]}
    selectors = [{"cel": {"expression": text}}]
    kube.create("DeviceClass", {"metadata": meta, "spec": {"selectors": selectors}})


def _create_volume(kube: Kube, change: Change, thing: _Thing) -> None:
    meta = {"name": change["name"], "namespace": change["namespace"]}
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    kube.create("PersistentVolumeClaim", {"metadata": meta, "spec": spec})


def _mend_volume(kube: Kube, change: Change, thing: _Thing) -> None:
    """Mend what keeps the volume from being mounted."""
    _, namespace, name = thing
    text = kube.get("Pod", namespace, name)["spec"].get("nodeName")
    if text != change["node"]:
        raise NotApplied(f"the pod is on {text}, not on {change['node']}")
    kube.merge("Pod", namespace, name, {"metadata": {"annotations": {MOUNT: None}}})


def _uncordon(kube: Kube, change: Change, thing: _Thing) -> None:
    for name in change["nodes"]:
        taints = [
            taint
            for taint in kube.get("Node", "", name)["spec"].get("taints", [])
            if taint["key"] != "node.kubernetes.io/unschedulable"
        ]
        kube.merge("Node", "", name, {"spec": {"unschedulable": None, "taints": taints}})


def _look_at_node(kube: Kube, change: Change, thing: _Thing) -> None:
    for name in change["nodes"]:
        cured = {"annotations": {REFUSES: None, VETO: None}}
        kube.merge("Node", "", name, {"metadata": cured})


def _complete_gang(kube: Kube, change: Change, thing: _Thing) -> None:
    """Make room for the rest of a gang where its pods may go."""
    if not change.get("amount"):
        raise NotApplied("the pods that are missing are for their owner to make")
    selector = _template(kube, thing)["spec"].get("nodeSelector", {})
    nodes = [
        node["metadata"]["name"]
        for node in kube.items("/api/v1/nodes")
        if all(node["metadata"]["labels"].get(k) == v for k, v in selector.items())
    ]
    left = float(change["amount"])
    for pod in kube.items("/api/v1/pods"):
        held = _held(pod, change["resource"])
        meta = pod["metadata"]
        mine = meta["namespace"] == thing[1] and change["group"] in meta["name"]
        if left > 0 and held and pod["spec"].get("nodeName") in nodes and not mine:
            _let_go(kube, meta["namespace"], meta["name"])
            left -= held


def _wait(kube: Kube, change: Change, thing: _Thing) -> None:
    """Do nothing: time does."""


_ACTS: Mapping[str, Callable[[Kube, Change, _Thing], None]] = {
    "free": _free,
    "add_node": _add_node,
    "raise_quota": _raise_quota,
    "raise_queue_quota": _raise_queue_quota,
    "resume_queue": _resume_queue,
    "create_queue": _create_queue,
    "create_flavor": _create_flavor,
    "unsuspend": _unsuspend,
    "tolerate": _tolerate,
    "select": _select,
    "uncordon": _uncordon,
    "request": _request,
    "ungate": _ungate,
    "create_claim": _create_claim,
    "change_claim": _change_claim,
    "create_class": _create_class,
    "create_volume": _create_volume,
    "mend_volume": _mend_volume,
    "mend_image": _mend_image,
    "look_at_container": _look_at_container,
    "set_scheduler": _set_scheduler,
    "relax": _relax,
    "complete_gang": _complete_gang,
    "wait": _wait,
    "look_at_node": _look_at_node,
}
