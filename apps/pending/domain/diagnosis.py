"""The diagnosis of a pending item: its cause, what was found, and the state of its cluster."""

import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct, field

from apps.clusters.domain.observed.objects import ObservedKind, ObservedObject
from apps.pending.domain import wording

BLOCKING_QUOTA = "resource_quota:"
# As JSON writes it: PostgreSQL refuses it in text and in jsonb.
_NUL = rb"\u0000"
DIAGNOSED = ("cause", "detail", "message", "findings")
"""The columns of an episode that a diagnosis fills."""


class Cause(StrEnum):
    """The causes that the portal distinguishes; `Diagnosis.detail` has the particulars."""

    CAPACITY = "capacity"
    QUOTA = "quota"
    QUEUE = "queue"
    AFFINITY = "affinity"
    TAINT = "taint"
    CORDON = "cordon"
    SPREAD = "spread"
    TOPOLOGY = "topology"
    GANG = "gang"
    CLAIM = "claim"
    VOLUME = "volume"
    PREEMPTION = "preemption"
    SCHEDULER = "scheduler"
    ADMISSION = "admission"
    STARTING = "starting"
    OTHER = "other"
    UNSCHEDULABLE = "unschedulable"
    UNRECORDED = "unrecorded"


FROM_SERIES = frozenset({Cause.UNSCHEDULABLE, Cause.UNRECORDED})
"""Causes of pods whose pending time was not watched: series tell at most that a scheduler refused
them.
"""
OF_DEMAND = FROM_SERIES | {
    *(Cause.CAPACITY, Cause.QUOTA, Cause.QUEUE, Cause.GANG, Cause.PREEMPTION),
}
"""Causes that count as demand for fairness; of the others the workload's owner is the cause."""


BLOCKED_BY_QUOTA = frozenset({Cause.QUOTA, Cause.QUEUE})
"""Causes of work that a quota or a queue holds, whether its pods exist already or not."""


class Counts(StrEnum):
    """What an episode's GPUs add to; a gang and its pods are counted once (by top owner).

    `pending`: pods that are not bound. `suppressed`: work blocked before a pod existed. `starting`:
    bound and not running yet, which the ledger counts as allocated. `nothing`: items that others
    count, as a claim with its pod, or that request no GPU any more.
    """

    PENDING = "pending"
    SUPPRESSED = "suppressed"
    STARTING = "starting"
    NOTHING = "nothing"


PENDING_COUNTS = (Counts.PENDING.value, Counts.SUPPRESSED.value)
"""What is pending: without a node, or blocked before a pod existed."""


class Outcome(StrEnum):
    """How an episode ended; empty while it lasts. `gave_up` went without ever having started."""

    STARTED = "started"
    GAVE_UP = "gave_up"
    REFUSED = "refused"
    SETTLED = "settled"


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
    FIX_VOLUME = "mend_volume"
    FIX_IMAGE = "mend_image"
    CHECK_CONTAINER = "look_at_container"
    SET_SCHEDULER = "set_scheduler"
    RELAX = "relax"
    COMPLETE_GANG = "complete_gang"
    WAIT = "wait"
    CHECK_NODE = "look_at_node"
    ADD_NODE = "add_node"
    CREATE_FLAVOR = "create_flavor"
    ALLOW_NAMESPACE = "allow_namespace"
    ACTIVATE = "activate"
    UNSUSPEND = "unsuspend"
    SPECIFY = "specify"


class Sentence(msgspec.Struct, frozen=True, array_like=True):
    """A sentence as data: its name in `wording.SENTENCES`, and the particulars that it tells."""

    name: str
    particulars: Mapping[str, Any] = {}


def says(name: str, /, **particulars: Any) -> Sentence:
    """Return a sentence of these particulars."""
    return Sentence(name, particulars)


class Relation(StrEnum):
    """How a suggestion stands to the one before it: by itself, needed too, or in its place."""

    ALONE = ""
    ALSO = "also"
    OR = "or"


class Suggestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """The smallest change that would unblock it; `change` has what carries it out.

    `sentence` is what it is put in words with, beside `change`; None: with that of its action.
    """

    action: Action
    change: Mapping[str, Any] = {}
    sentence: Sentence | None = None
    relation: Relation = Relation.ALONE

    @property
    def text(self) -> str:
        """The suggestion in words; who holds what is to be freed is not among them."""
        name, own = self.action.value, dict[str, Any]()
        if self.sentence is not None:
            name, own = self.sentence.name, dict(self.sentence.particulars)
        text = wording.sentence(name, {**self.change, **own})
        match self.relation:
            case Relation.ALSO:
                return wording.also(text)
            case Relation.OR:
                return wording.also(text, "Or ")
        return text


class Findings(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a diagnosis found apart from its cause: stored as one JSON value with an episode.

    `sentences` explain it with its figures. `node_reasons` is what the scheduler counted, by
    reason, `context` what others said, as an autoscaler. `suggestions` come best first; `blockers`
    names the nodes, queues or quotas that others hold (`node:<name>`, `cluster_queue:<name>`,
    `volcano_queue:<name>`, `kai_queue:<name>`, `resource_quota:<name>`).
    """

    sentences: tuple[Sentence, ...] = ()
    node_reasons: Mapping[str, int] = {}
    context: tuple[str, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
    blockers: tuple[str, ...] = ()

    @property
    def explanation(self) -> str:
        """One or two sentences with its figures; empty where nothing more is known."""
        words = (wording.sentence(one.name, one.particulars) for one in self.sentences)
        return " ".join(text for text in words if text)


class Diagnosis(Findings, frozen=True, omit_defaults=True):
    """Why something is pending.

    `detail` is a short name of what exactly (`none free`, `fragmented`, `waiting-for-quota`),
    `message` the raw text that it was read from.
    """

    cause: Cause
    detail: str = ""
    message: str = ""


def columns_of(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis as an episode stores it: each value equals what is read back."""
    found = Findings(**{name: getattr(diagnosis, name) for name in Findings.__struct_fields__})
    return {
        "cause": diagnosis.cause.value,
        "detail": named(diagnosis.detail, 120),
        "message": clean(diagnosis.message),
        "findings": _storable(found),
    }


def findings_of(stored: Any) -> Findings:
    """Return the findings that an episode has stored; empty where it is not of this version.

    The cause and the scheduler's message are columns of their own, so they are never lost.
    """
    try:
        return msgspec.convert(stored, Findings)
    except msgspec.ValidationError:
        return Findings()


def _storable(found: Findings) -> Any:
    # Through JSON, which is ten times as fast as a walk in Python: a refresh does it for each item.
    try:
        text = msgspec.json.encode(found, enc_hook=dict)
    except UnicodeEncodeError:
        text = _NUL
    if _NUL not in text:
        return msgspec.json.decode(text)
    return _plain(msgspec.to_builtins(found, enc_hook=dict))


def _plain(value: Any) -> Any:
    """Return a value without what no JSON of PostgreSQL keeps: NUL, infinite numbers, tuples."""
    if isinstance(value, Mapping):
        return {clean(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    # No JSON has infinite numbers; some come from amounts without a limit.
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return clean(value) if isinstance(value, str) else value


def clean(text: str) -> str:
    """Return a text as PostgreSQL takes it: it keeps no NUL."""
    return text.replace("\0", "") if "\0" in text else text


def named(text: str, most: int = 253) -> str:
    """Return a name as its column takes it."""
    return clean(text)[:most]


class BoundPod(Struct, frozen=True):
    """A pod that is bound and not over; `requests` of GPU resources and device classes only."""

    uid: str
    namespace: str
    name: str
    owner_kind: str
    owner: str
    node: str
    requests: Mapping[str, float]
    priority_class: str = ""
    group: str = ""
    running: bool = True
    bound: float = 0.0


class ClusterState(Struct, frozen=True):
    """Everything seen of a cluster at `at` (Unix seconds) that can explain pending work.

    `objects` are by kind, of what is there; pods and controllers that went less than a while
    ago are in `gone`. `is_gpu` says whether a resource or device class is one of GPUs.
    """

    at: float
    objects: Mapping[ObservedKind, Sequence[ObservedObject]]
    holders: Sequence[BoundPod] = ()
    gone: Sequence[ObservedObject] = ()
    is_gpu: Callable[[str], bool] = field(default=lambda resource: "gpu" in resource)

    def of(self, *kinds: ObservedKind) -> list[ObservedObject]:
        """Return what is there of these kinds, in the order given."""
        return [one for kind in kinds for one in self.objects.get(kind, ())]


class PendingItem(Struct, frozen=True):
    """One pending item and its cause.

    `uid` identifies it: of pods turned away by a kubelet and of refused pods it is that of their
    controller, and `name` its name. `requests` is that of the whole item, of GPU resources and
    device classes; `share` (0..1) the part of it that counts in sums, so that a gang and its pods
    count once. `since` and `bound` are Unix seconds; `node_selector` is what may settle its tier.
    `again`: it had run and lost its GPUs (preempted, evicted, requeued).
    """

    kind: str
    uid: str
    namespace: str
    name: str
    owner_kind: str
    owner: str
    since: float
    requests: Mapping[str, float]
    counts: Counts
    diagnosis: Diagnosis
    share: float = 1.0
    bound: float | None = None
    node: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    queue: str = ""
    priority: int = 0
    again: bool = False
