"""Every sentence about pending work: what is stored are its name and its particulars.

A sentence is worded anew whenever it is read, so that to reword it is to change its line here and
no data. In a template `{name:spec}` is a particular of that name, written as `_Words` explains.
"""

from collections.abc import Callable, Mapping, Sequence
from string import Formatter
from typing import Any

from apps.clusters.domain.resources import quantity

ALSO = "Also needed: "
_BYTES = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))
_IN_BYTES = ("memory", "ephemeral-storage", "hugepages-", "storage")
GATE_REMOVERS = {
    "kueue.x-k8s.io/admission": "Kueue removes it once the Workload is admitted",
    "kueue.x-k8s.io/topology": "Kueue removes it once it has chosen a place",
}
"""Who removes a scheduling gate."""

_ASKS = "Requests {requests}"
_HOLDS = "it holds its GPUs meanwhile."
_COULD_HOLD = (
    "{nodes:count node} ({nodes}) could hold {gpus_only:?its GPUs|it}; the most free on one is "
)
_REFUSED = "{missing} of {wanted:count pod} refused"
_CONTAINER = "{init:?init }container {container}"
_GANG_ROOM = "Make room for {missing:count more pod}"
_EACH = "{amount:amount} more, {each} on one node each."
_QUOTA = "Raise {key} of quota {quota} from {from} to {to}"
_NOMINAL = (
    "Raise the nominal quota of {cluster_queue} for {resource} in flavor {flavor}"
    " from {from} to {to}"
)

SENTENCES: Mapping[str, str] = {
    "text": "{text}",
    # Why it is pending. A pod and the nodes:
    "asks": _ASKS + ".",
    "none_offered": "No node that it may go to has {most:?that many: the most on one is %|any}.",
    "too_little_free": _COULD_HOLD + "{most}, {total} in all: {detail}.",
    "too_little_else": _COULD_HOLD + "{most:amount} of the {wanted:amount},"
    " {total:amount} in all: {detail}.",
    "no_node_matches": "No node matches its node selector or affinity;"
    " {nodes} would be large enough.",
    "kept_away": "{nodes:count node} would be large enough and match its selector,"
    " but {nodes} {nodes:1 is/are} {state}.",
    "refused_otherwise": "{nodes} {nodes:1 fits/fit} as far as is known,"
    " but the scheduler refuses: {reason}.",
    "unknown_text": "The portal does not know this message of the scheduler.",
    "scheduler_says": "The scheduler says: {reasons}.",
    "finds_too_little": "The scheduler finds too little of {resources}.",
    "room_by_now": "{nodes:count node} {nodes:1 has/has} room now: the message is older.",
    "room_otherwise": "{nodes} {nodes:1 has/have} room otherwise.",
    "has_preempted": "Preempted other pods{node:? on %}; it starts when they have ended.",
    "volume_missing": "Its PersistentVolumeClaim {name} does not exist.",
    "scheduler_failed": "The scheduler failed on it and will try again.",
    "no_scheduler": "Is for the scheduler {scheduler}, which has tried no pod.",
    "scheduler_silent": "The scheduler {scheduler} has reported nothing about it.",
    "gated": "Blocked by {gates}.{group:? Its group % has no Workload yet.}",
    # Claims:
    "claim_missing": "Names the ResourceClaim {claim}, which does not exist.",
    "claim_not_made": "Its ResourceClaim is not made from the template {template}"
    "{quota:?: quota % is full}.",
    "class_missing": "Requests devices of the class {device_class}, which does not exist.",
    "no_device": "No device meets the request of the ResourceClaim {claims} ({selectors}); "
    "{free:count device} of its class are free.",
    "not_allocated": "The scheduler cannot allocate the ResourceClaim {claims:?%|of the pod}.",
    "its_pod_waits": _ASKS + "; its pod is pending:",
    # Bound, not running:
    "no_image": "Bound to {node}; " + _CONTAINER + ": its image cannot be pulled ({reason})."
    " It holds its GPUs meanwhile.",
    "container_down": "Bound to {node}; " + _CONTAINER + ": it keeps failing ({reason})."
    " It holds its GPUs meanwhile.",
    "bound_but": "Bound to {node}, but {problem}; " + _HOLDS,
    "bound_and": "Bound to {node} and {state}; " + _HOLDS,
    # Refused before a pod existed, or by a kubelet:
    "suspended": "Wants {wanted:count pod} of {requests}; suspended, so none is made.",
    "quota_full": _REFUSED + ", {requests} each: {shortfalls:shortfalls}.",
    "not_admitted": _REFUSED + ".",
    "quota_has_room": _REFUSED + "; quota {quota} has room.",
    "turned_away": "{times:count pod} rejected by the kubelet, last {pod} on {node}: {reason}."
    " A new pod is needed for another try.",
    # Queues:
    "workload_unseen": "Suspended until the queue {queue} admits it; its Workload is not seen.",
    "queue_stopped": _ASKS + "; the queue {queue} is stopped.",
    "queue_broken": _ASKS + "; the queue {queue} leads to nothing that can admit it.",
    "deactivated": _ASKS + "; the Workload was deactivated.",
    "being_checked": _ASKS + "; has its quota; the checks of its queue are pending.",
    "in_line": _ASKS + "; position {place} of {of} in {queue}{rooms:rooms}"
    "{again:?; it was admitted before and lost its quota}.",
    "queue_closed": _ASKS + "; its queue {queue} is {state}.",
    "cluster_overused": _ASKS + "; Volcano admits nothing while the cluster is overused.",
    "over_capability": _ASKS + "; that is more than the queue {queue} has left of its capability.",
    "not_enqueued": _ASKS + "; not admitted to the queue {queue} yet.",
    "kai_over_limit": _ASKS + "; the queue {queue} has {used:amount} allocated"
    " of its limit of {limit:amount}.",
    "kai_over_quota": _ASKS + "; not preemptible, and the queue {queue} has {used:amount}"
    " allocated to such work of its quota of {limit:amount}.",
    "kai_no_queue": _ASKS + "; the queue that it names does not exist, or has no parent.",
    "kai_gang": "Starts only when {needed} pods can start together: {could:count pod} could"
    " start now.",
    "too_few_pods": "Starts only with {needed} pods; {there} are there.",
    "gang_starts": "Starts only when {needed} pods can start together: requests {requests}, "
    "{could:count pod} could start now.",
    # How to fix it. Suggestions without a sentence of their own have that of their action:
    "free": "Free {amount:amount} on {nodes:any}.",
    "free_quota": "Free {amount:amount} of flavor {flavor} in the"
    " {cohort:?cohort %}{queue:?queue %}.",
    "request": "Request at most {to:amount}: that is what {node}{now:? (free now)} has.",
    "request_each": "Request at most {to:amount} a pod: more neither its queue"
    " nor the nodes of its flavor can give.",
    "request_instead": "Request 1 {instead} instead: {free} free on {node}.",
    "select": "{nodes:any} does not match {remove}:{add:? choose % instead| drop it}.",
    "select_flavor": "The flavor {flavor} is not for {remove}: choose {add} instead.",
    "tolerate": "Tolerate the taint {key}{value:?=%}:{effect} of {nodes}.",
    "uncordon": "Uncordon {nodes}.",
    "look_at_node": "Look at {nodes}: {reason}.",
    "look_at_problem": "Look at {nodes}: {problem}.",
    "look_at_numa": "Look at {nodes}: its CPUs and GPUs do not lie on one NUMA node;"
    " request fewer, or another node.",
    "look_at_devices": "Look at {nodes}: see its device plugin and the health of its GPUs.",
    "look_at_refusal": "Find what refuses {nodes}: {reason}.",
    "add_node": "Add a node that it may go to with {amount:amount}:"
    " {own:?its own pods hold what there is|there is none}.",
    "add_offering": "Add a node that offers {amount:amount}: {node} offers none.",
    "add_of_flavor": "Add {count:1 a node/% nodes} of its flavor with {amount:amount}:"
    " there is none.",
    "raise_quota": _QUOTA + " ({more:amount} more{others:?, % of it for others that it refused}).",
    "raise_claim_quota": "Raise {key} of quota {quota} from {from:g} to {to:g}.",
    "raise_queue_quota": _NOMINAL + ".",
    "raise_for_all": _NOMINAL + ": +{more} admits all {of} pending.",
    "raise_capability": "Raise the capability of queue {cluster_queue} for {resource}"
    " from {from} to {to}.",
    "raise_limit": "Raise the limit of queue {cluster_queue} for {resource} from {from} to {to}.",
    "raise_deserved": "Raise the quota of queue {cluster_queue} for {resource}"
    " from {from} to {to}, or make the work preemptible.",
    "resume_queue": "Resume {local_queue:?the LocalQueue %|the ClusterQueue }{cluster_queue}.",
    "resume_its_queue": "Resume its queue.",
    "open_queue": "Open the queue {cluster_queue}.",
    "create_queue": "Create the LocalQueue {namespace}/{name}, or name one that exists.",
    "create_cluster_queue": "Create the ClusterQueue {cluster_queue}, which {name} leads to.",
    "create_flavor": "Create the ResourceFlavor {flavor},"
    " which the ClusterQueue {cluster_queue} names.",
    "add_flavor": "{flavor:?Add the flavor %|Create a ResourceFlavor for }{labels:?%}"
    "{flavor:?|, add it} to the ClusterQueue {cluster_queue}: its flavors are for other GPUs.",
    "allow_namespace": "Let the ClusterQueue {cluster_queue} take the namespace {namespace}.",
    "activate": "Activate the Workload {namespace}/{name} again.",
    "unsuspend": "Resume the {kind} {namespace}/{name}.",
    "submit_running": "Submit the {kind} with suspend: false.",
    "ungate": "Remove the gate {gate}; {gate:remover}.",
    "specify": "State {keys} in every container: quota {quota} requires it.",
    "create_claim": "Create the ResourceClaim {namespace}/{name}.",
    "look_at_claim": "See why no ResourceClaim is made from {name:?%|its claim}.",
    "change_claim": "Change the {selectors:?selector of the }ResourceClaim"
    " {name}{selectors:? (%)}: no device meets it.",
    "create_class": "Create the DeviceClass {device_class}, or request one that exists.",
    "create_volume": "Create the PersistentVolumeClaim {namespace}/{name}.",
    "provide_volume": "Provide a volume for {namespace}/{name} where the pod may run.",
    "mend_volume": "Fix the volume {volume}, or its driver on {node}: {why}.",
    "mend_driver": "See that the driver {driver} runs on {node}: {why}.",
    "mend_image": f"Fix the image of {_CONTAINER}: {{reason}}.",
    "look_at_container": f"Look at the log and settings of {_CONTAINER}: {{reason}}.",
    "set_scheduler": "Set schedulerName to {to}, or start the scheduler {from}.",
    "relax": "Relax the {what} rule{nodes:?: % }{nodes:1 has room/have room}.",
    "complete_gang": "Create the {missing:count missing pod} of the gang {group}.",
    "gang_room": _GANG_ROOM + " of the gang: " + _EACH,
    "gang_room_unsized": _GANG_ROOM + " of the gang.",
    "flavor_room": _GANG_ROOM + " on nodes of its flavor: " + _EACH,
    "wait_for_claim": "Wait for the ResourceClaim from {template:?%|its claim} to be made.",
    "wait_for_binding": "Wait: {nodes} has room by now, the scheduler will try again.",
    "wait_for_victims": "Wait until the pods that it preempts{on:? on %} have ended.",
    "wait_for_start": "Wait: {node} is starting it.",
    "wait_for_scheduler": "Wait until {on} tries it.",
    "wait_for_controller": "Wait: its controller will try again.",
    "wait_for_kueue": "Wait: its queue has room, Kueue will try it again.",
    "wait_for_checks": "Wait for the admission checks of the queue.",
    "wait_for_volcano": "Wait until Volcano admits it to the queue {queue}.",
}


class _Words(Formatter):
    """Writes the particulars of a sentence: each by its type, or as its spec says.

    Specs: `amount`: of the resource (or key of a quota) that the sentence is about; `count pod`:
    1 pod, 3 pods; `any`: any one of these; `?yes|no`: `yes` where there is such a particular, with
    it in place of %, else `no`; `1 one/many`: by how many there are, nothing where there are none.
    """

    def __init__(self, particulars: Mapping[str, Any]) -> None:
        self._resource = str(particulars.get("resource") or particulars.get("key") or "")

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return kwargs.get(str(key), "")

    def format_field(self, value: Any, spec: str) -> str:
        word, _, rest = spec.partition(" ")
        if word.startswith("?"):
            yes, _, no = spec[1:].partition("|")
            return yes.replace("%", _plain(value)) if value else no
        match word:
            case "1":
                one, _, many = rest.partition("/")
                n = _number(value)
                return (one if n == 1 else many if n else "").replace("%", str(n))
            case "count":
                return count(_number(value), rest)
            case "amount":
                return amount(self._resource, value)
            case "any":
                return value[0] if len(value) == 1 else f"any one of {listed(value)}"
            case "g":
                return f"{value:g}"
        return _SPECS[word](value) if word else _plain(value)


def sentence(key: str, particulars: Mapping[str, Any]) -> str:
    """Return a sentence in words; empty for one that another version of the portal stored."""
    try:
        return _Words(particulars).vformat(SENTENCES.get(key, ""), (), particulars)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError):
        return ""


def also(text: str, lead: str = ALSO) -> str:
    """Return a suggestion as one that belongs to, or stands for, the one before it."""
    return f"{lead}{text[:1].lower()}{text[1:]}"


def held_by(text: str, named: Sequence[str], of: int) -> str:
    """Return a suggestion to free GPUs with those of `of` holders that a reader may see."""
    if not named:
        return text
    part = "held by" if len(named) == of else "held in part by"
    return f"{text.removesuffix('.')}, {part} {listed(named)}."


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return quantity(value)
    if isinstance(value, Mapping):
        if "names" in value:
            more = value["count"] - len(value["names"])
            names = list(value["names"])
            return f"{', '.join(names)} and {more} more" if more else listed(names)
        # In the order of their names, for a database may keep them in another.
        items = sorted(value.items())
        if any(isinstance(one, str) for one in value.values()):
            return listed([f"{key}={one}" for key, one in items])
        return amounts(items)
    return listed(value) if isinstance(value, list | tuple) else str(value)


def _number(value: Any) -> int:
    if isinstance(value, Mapping):
        return int(value["count"])
    return len(value) if isinstance(value, list | tuple) else int(value)


def _shortfalls(found: Sequence[Mapping[str, Any]]) -> str:
    full = [
        f"{one['quota']} ({one['key']}: {quantity(one['used'])} of {quantity(one['limit'])} used)"
        for one in found
    ]
    return f"quota {listed(full)}" if full else "a quota"


def used_of(used: float, nominal: float, most: float, noun: str = "") -> str:
    """Return `17 of 17 in use`; where a queue may borrow, with the most that it may take."""
    limit = f"{quantity(nominal)} {noun}".rstrip()
    borrowing = f" ({quantity(most)} with borrowing)" if most > nominal else ""
    return f"{quantity(used)} of {limit} in use{borrowing}"


def _rooms(found: Sequence[Mapping[str, Any]]) -> str:
    return "".join(f"; {one['flavor']}: {_room(one)}" for one in found)


def _room(one: Mapping[str, Any]) -> str:
    most = one["most"]
    if "nominal" not in one:  # stored by an older version of the portal
        return used_of(max(0.0, most - one["free"]), most, most, one["resource"])
    return used_of(one["used"], one["nominal"], most, one["resource"])


_SPECS: Mapping[str, Callable[[Any], str]] = {
    "shortfalls": _shortfalls,
    "rooms": _rooms,
    "remover": lambda gate: GATE_REMOVERS.get(gate, "its owner removes it"),
}


def amount(resource: str, value: float) -> str:
    """Return an amount of a resource, as `8 nvidia.com/gpu`, `500 CPU` or `4 Ti memory`."""
    name = resource.removeprefix("requests.").removeprefix("limits.")
    if name.startswith(_IN_BYTES):
        for unit, size in _BYTES:
            if value >= size:
                return f"{quantity(value / size)} {unit} {name}"
        return f"{quantity(value)} bytes of {name}"
    return f"{quantity(value)} {'CPU' if name == 'cpu' else name}"


def amounts(requests: Sequence[tuple[str, float]]) -> str:
    """Return several amounts as one list."""
    return listed([amount(resource, value) for resource, value in requests]) or "nothing"


def listed(names: Sequence[str], most: int = 3) -> str:
    """Return `a, b and c`; of more than `most` the rest as a number."""
    shown = list(names[:most])
    if len(names) > most:
        shown.append(f"{len(names) - most} more")
    if len(shown) < 2:
        return "".join(shown)
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def count(n: int, noun: str) -> str:
    """Return `1 node`, `3 nodes`."""
    return f"{n} {noun}{'' if n == 1 else 's'}"
