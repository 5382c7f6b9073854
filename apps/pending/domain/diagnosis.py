"""What is found out about something that waits: its cause, in words, and what would help."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from apps.pending.domain.causes import Cause


class Action(StrEnum):
    """What a suggestion asks somebody to do; `Suggestion.change` has its particulars.

    The keys of `change`, all there unless marked with ?:
    free: resource, amount, nodes (any one of them), holders? (pods as namespace/name, of any
    team: a reader may be shown only those of namespaces that are open to them)
    raise_quota: namespace, quota, key, from, to
    raise_queue_quota: cluster_queue, flavor, resource, from, to
    resume_queue: cluster_queue?, local_queue? (namespace/name), ; create_queue: namespace, name,
    cluster_queue?
    tolerate: key, value, effect, nodes
    select: remove (label → value, or expressions as text), add? (label → value), nodes
    uncordon: nodes
    request: resource, from, to, instead? (another resource)
    ungate: gate
    create_claim: namespace, name ; change_claim: namespace, name, device_class
    create_class: device_class
    create_volume: namespace, name ; mend_volume: node, what (words), volume?, driver?
    mend_image: container, reason ; look_at_container: container, reason
    set_scheduler: from, to
    relax: what (anti-affinity, pod-affinity, topology-spread, host-port), nodes
    complete_gang: group, missing (pods), amount?, resource?
    wait: what (as preemption, start, binding), on?
    look_at_node: nodes, reason
    add_node: resource, amount (on one node), count? (nodes, 1 where it is not there)
    create_flavor: cluster_queue, flavor (empty: one is still to be made)
    allow_namespace: cluster_queue, namespace
    activate: namespace, name (a Kueue Workload) ; unsuspend: kind, namespace, name
    specify: keys (requests or limits that a quota asks every pod to state)

    A suggestion whose text starts with `Also needed:` goes with the one before it.
    """

    FREE = "free"
    RAISE_QUOTA = "raise_quota"
    RAISE_QUEUE_QUOTA = "raise_queue_quota"
    RESUME_QUEUE = "resume_queue"
    CREATE_QUEUE = "create_queue"
    TOLERATE = "tolerate"
    SELECT = "select"
    UNCORDON = "uncordon"
    REQUEST = "request"
    UNGATE = "ungate"
    CREATE_CLAIM = "create_claim"
    CHANGE_CLAIM = "change_claim"
    CREATE_CLASS = "create_class"
    CREATE_VOLUME = "create_volume"
    MEND_VOLUME = "mend_volume"
    MEND_IMAGE = "mend_image"
    LOOK_AT_CONTAINER = "look_at_container"
    SET_SCHEDULER = "set_scheduler"
    RELAX = "relax"
    COMPLETE_GANG = "complete_gang"
    WAIT = "wait"
    LOOK_AT_NODE = "look_at_node"
    ADD_NODE = "add_node"
    CREATE_FLAVOR = "create_flavor"
    ALLOW_NAMESPACE = "allow_namespace"
    ACTIVATE = "activate"
    UNSUSPEND = "unsuspend"
    SPECIFY = "specify"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """The smallest change that would unblock it: `text` for people, `change` for machines."""

    action: Action
    text: str
    change: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why something waits.

    `detail` is a short name of what exactly (`none free`, `fragmented`, `waiting-for-quota`),
    `explanation` one or two sentences with its figures. `message` is the raw text it was read
    from, `node_reasons` what the scheduler counted, by reason. `context` holds what others said,
    as an autoscaler. `suggestions` come best first; `in_front` names the nodes or the queue whose
    holders are in front (`node:<name>`, `cluster_queue:<name>`).
    """

    cause: Cause
    detail: str = ""
    explanation: str = ""
    message: str = ""
    node_reasons: Mapping[str, int] = field(default_factory=dict)
    context: tuple[str, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
    in_front: tuple[str, ...] = ()
