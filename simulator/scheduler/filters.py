"""Why a pod cannot go to a node: the scheduler's filters in their order, the first that refuses.

Each node is refused with the texts of one filter; `Insufficient` may name several resources.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from simulator.scheduler.amounts import is_bound, is_over, quantity, requests_of
from simulator.scheduler.store import Object, Store

UNSCHEDULABLE = "node(s) were unschedulable"
TAINTED = "node(s) had untolerated taint(s)"
NOT_SELECTED = "node(s) didn't match Pod's node affinity/selector"
NO_PORTS = "node(s) didn't have free ports for the requested pod ports"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"
POD_AFFINITY = "node(s) didn't match pod affinity rules"
SPREAD = "node(s) didn't match pod topology spread constraints"
SPREAD_LABEL = f"{SPREAD} (missing required label)"
NO_DEVICES = "cannot allocate all claims"
OPINION = "node(s) were vetoed by policy engine shim-7 (verdict 0x2f)"
"""What an unknown plug-in says; nodes with the annotation `lab.example/veto` have it."""
VETO = "lab.example/veto"
_CORDON = "node.kubernetes.io/unschedulable"
RESOLVABLE = ("Insufficient ", NO_PORTS, ANTI_AFFINITY, EXISTING_ANTI_AFFINITY, SPREAD)
"""Refusals that go away when other pods do."""


class Machine(Struct):
    """A node and the pods on it; `closed` ones take part only by refusing."""

    item: Object
    allocatable: Mapping[str, float]
    closed: bool = False
    pods: list[Object] = field(default_factory=list)
    _room: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Each pending pod asks each node for its room: it is kept, not summed again.
        self._room = dict(self.allocatable)
        for pod in self.pods:
            self._take(pod)

    @property
    def name(self) -> str:
        return str(self.item["metadata"]["name"])

    @property
    def labels(self) -> Mapping[str, str]:
        labels: Mapping[str, str] = self.item["metadata"].get("labels", {})
        return labels

    def free(self, resource: str) -> float:
        if self.closed and resource.startswith("nvidia.com/"):
            return 0.0
        return self._room.get(resource, 0.0)

    def hold(self, pod: Object) -> None:
        self.pods.append(pod)
        self._take(pod)

    def without(self, gone: Sequence[Object]) -> "Machine":
        """Return the node as it is when these pods have left it."""
        left = [pod for pod in self.pods if not any(pod is one for one in gone)]
        return Machine(self.item, self.allocatable, self.closed, left)

    def _take(self, pod: Object) -> None:
        for resource, amount in requests_of(pod["spec"]).items():
            if self.allocatable.get(resource):
                self._room[resource] -= amount


def machines_of(store: Store) -> list[Machine]:
    """Return the nodes with the pods that hold something on them."""
    found = {
        node["metadata"]["name"]: Machine(
            node, {k: quantity(v) for k, v in node["status"]["allocatable"].items()}
        )
        for node in store.all("nodes")
    }
    for pod in store.all("pods"):
        if is_bound(pod) and not is_over(pod) and pod["spec"]["nodeName"] in found:
            found[pod["spec"]["nodeName"]].hold(pod)
    return list(found.values())


def refusals(pod: Object, machine: Machine, machines: Sequence[Machine]) -> list[str]:
    """Return why a pod cannot go to a node, [] when it can; claims are not looked at."""
    for reason in (_unschedulable, _tainted, _not_selected, _vetoed, _ports):
        text = reason(pod, machine)
        if text:
            return [text]
    lacking = insufficient(pod, machine)
    if lacking:
        return lacking
    text = _spread(pod, machine, machines) or _between_pods(pod, machine, machines)
    return [text] if text else []


def insufficient(pod: Object, machine: Machine) -> list[str]:
    asked = requests_of(pod["spec"])
    return [
        f"Insufficient {name}" for name, n in sorted(asked.items()) if n and n > machine.free(name)
    ]


# ---------------------------------------------------------------- by the node alone


def _unschedulable(pod: Object, machine: Machine) -> str:
    cordoned = machine.item["spec"].get("unschedulable", False)
    taint = {"key": _CORDON, "effect": "NoSchedule"}
    return UNSCHEDULABLE if cordoned and not tolerates(pod, taint) else ""


def _tainted(pod: Object, machine: Machine) -> str:
    for taint in machine.item["spec"].get("taints", []):
        hard = taint["effect"] in {"NoSchedule", "NoExecute"}
        if hard and taint["key"] != _CORDON and not tolerates(pod, taint):
            return TAINTED
    return ""


def tolerates(pod: Object, taint: Mapping[str, str]) -> bool:
    for toleration in pod["spec"].get("tolerations", []):
        key, effect = toleration.get("key", ""), toleration.get("effect", "")
        if effect not in {"", taint["effect"]} or key not in {"", taint["key"]}:
            continue
        if toleration.get("operator", "Equal") == "Exists":
            return True
        if key and toleration.get("value", "") == taint.get("value", ""):
            return True
    return False


def _not_selected(pod: Object, machine: Machine) -> str:
    spec = pod["spec"]
    wanted = spec.get("nodeSelector", {})
    if any(machine.labels.get(key) != value for key, value in wanted.items()):
        return NOT_SELECTED
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return ""
    terms = required["nodeSelectorTerms"]
    return "" if any(_term(term, machine) for term in terms) else NOT_SELECTED


def _term(term: Object, machine: Machine) -> bool:
    names = {"metadata.name": machine.name}
    return all(holds(one, machine.labels) for one in term.get("matchExpressions", [])) and all(
        holds(one, names) for one in term.get("matchFields", [])
    )


def holds(expression: Object, labels: Mapping[str, str]) -> bool:
    """Say whether an expression of a selector holds for labels."""
    operator, values = expression["operator"], expression.get("values") or []
    value = labels.get(expression["key"])
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if operator == "NotIn":
        return value not in values
    if value is None:
        return False
    if operator == "In":
        return value in values
    if not value.lstrip("-").isdecimal():
        return False
    return int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0])


def _vetoed(pod: Object, machine: Machine) -> str:
    veto = machine.item["metadata"].get("annotations", {}).get(VETO)
    return OPINION if veto else ""


def _ports(pod: Object, machine: Machine) -> str:
    wanted = host_ports(pod)
    taken = wanted and {port for other in machine.pods for port in host_ports(other)}
    return NO_PORTS if taken & wanted else ""


def host_ports(pod: Object) -> set[int]:
    return {
        port["hostPort"]
        for container in pod["spec"].get("containers", [])
        for port in container.get("ports", [])
        if port.get("hostPort")
    }


# ---------------------------------------------------------------- by the other pods


def _spread(pod: Object, machine: Machine, machines: Sequence[Machine]) -> str:
    for constraint in pod["spec"].get("topologySpreadConstraints", []):
        if constraint.get("whenUnsatisfiable") != "DoNotSchedule":
            continue
        key = constraint["topologyKey"]
        if key not in machine.labels:
            return SPREAD_LABEL
        counts: dict[str, int] = defaultdict(int)
        for other in machines:
            # Nodes that the pod could not choose anyway do not count as domains.
            if key in other.labels and not _not_selected(pod, other):
                counts[other.labels[key]] += sum(
                    _selects(constraint["labelSelector"], one) for one in other.pods
                )
        if counts[machine.labels[key]] + 1 - min(counts.values()) > constraint["maxSkew"]:
            return SPREAD
    return ""


def _between_pods(pod: Object, machine: Machine, machines: Sequence[Machine]) -> str:
    affinity = pod["spec"].get("affinity") or {}
    for term in _terms(affinity.get("podAffinity")):
        if not _near(pod, term, machine, machines):
            return POD_AFFINITY
    for term in _terms(affinity.get("podAntiAffinity")):
        if _near(pod, term, machine, machines):
            return ANTI_AFFINITY
    for other in machines:
        for one in other.pods:
            for term in _terms((one["spec"].get("affinity") or {}).get("podAntiAffinity")):
                same = other.labels.get(term["topologyKey"]) == machine.labels.get(
                    term["topologyKey"]
                )
                if same and _of(one, pod) and _selects(term.get("labelSelector"), pod):
                    return EXISTING_ANTI_AFFINITY
    return ""


def _terms(affinity: Object | None) -> list[Object]:
    terms: list[Object] = (affinity or {}).get("requiredDuringSchedulingIgnoredDuringExecution", [])
    return terms


def _near(pod: Object, term: Object, machine: Machine, machines: Sequence[Machine]) -> bool:
    key = term["topologyKey"]
    return any(
        _of(pod, one) and _selects(term.get("labelSelector"), one)
        for other in machines
        if key in machine.labels and other.labels.get(key) == machine.labels[key]
        for one in other.pods
    )


def _of(pod: Object, other: Object) -> bool:
    return bool(pod["metadata"]["namespace"] == other["metadata"]["namespace"])


def _selects(selector: Object | None, pod: Object) -> bool:
    labels = pod["metadata"].get("labels", {})
    wanted = (selector or {}).get("matchLabels", {})
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        holds(one, labels) for one in (selector or {}).get("matchExpressions", [])
    )
