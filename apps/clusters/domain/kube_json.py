"""Objects of the Kubernetes API as decoded JSON, read leniently: what is odd counts as absent."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

from apps.clusters.domain.observed.objects import (
    ClaimUse,
    Condition,
    Expression,
    Placement,
    Taint,
    Toleration,
)
from apps.clusters.domain.resources import all_amounts, parse_quantity, whole_request

_MOST = 2**53
"""The largest whole number that every reader of JSON takes for what it is."""
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
JsonObject = Mapping[str, Any]
_TERMINAL = frozenset({"Succeeded", "Failed"})
T = TypeVar("T")

# Decoded JSON has plain dictionaries, and asking for a Mapping takes several times as long.


def mapping(item: object, *path: str) -> Mapping[str, Any]:
    """Return the object at a path of keys; an empty one where there is none."""
    for key in path:
        item = item.get(key) if isinstance(item, dict) else None
    return item if isinstance(item, dict) else {}


def items(value: object) -> list[Mapping[str, Any]]:
    """Return the objects of a list."""
    return [i for i in value if isinstance(i, dict)] if isinstance(value, list | tuple) else []


def text(value: object) -> str:
    """Return a string, without the NUL that PostgreSQL takes in none; empty for anything else."""
    if not isinstance(value, str):
        return ""
    return value.replace("\0", "") if "\0" in value else value


def seconds(text: object) -> float | None:
    """Return an RFC 3339 time as Unix seconds; None for null, rubbish and Go's zero time."""
    if not isinstance(text, str):
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    # Go writes the zero time as the year 1.
    if at.tzinfo is None or at.year < 1970:
        return None
    return at.timestamp()


def number(value: object, default: int = 0) -> int:
    """Return a whole number of a size that can be stored, else the default."""
    if not isinstance(value, int) or isinstance(value, bool):
        return default
    return max(-_MOST, min(_MOST, value))


def amount(value: object) -> float | None:
    """Return a quantity as a number; None where there is none or it cannot be read."""
    try:
        return None if value is None else parse_quantity(value)
    except ValueError:
        return None


def amounts(value: object) -> dict[str, float]:
    """Return resource → amount of what can be read."""
    found = all_amounts(mapping(value))
    return {name: units for resource, units in found.items() if (name := text(resource))}


def words(value: object) -> dict[str, str]:
    """Return texts by text, as labels are."""
    found = mapping(value)
    return {key: text(v) for k, v in found.items() if isinstance(v, str) and (key := text(k))}


def texts(value: object) -> tuple[str, ...]:
    """Return the texts of a list."""
    return tuple(filter(None, map(text, value))) if isinstance(value, list | tuple) else ()


def conditions(status: object) -> tuple[Condition, ...]:
    """Return the conditions of a status, in its order."""
    found = items(mapping(status).get("conditions"))
    return tuple(_condition(one) for one in found if text(one.get("type")))


def condition(status: object, kind: str) -> Condition | None:
    """Return the condition of a type; None where the status has none."""
    for one in items(mapping(status).get("conditions")):
        if one.get("type") == kind:
            return _condition(one)
    return None


def _condition(one: JsonObject) -> Condition:
    kind, state = text(one.get("type")), text(one.get("status"))
    reason, message = text(one.get("reason")), text(one.get("message"))
    return Condition(kind, state, reason, message, seconds(one.get("lastTransitionTime")))


def created(item: object) -> float:
    """Return when an object was made, 0 where it does not say."""
    return seconds(mapping(item, "metadata").get("creationTimestamp")) or 0.0


def taints(value: object) -> tuple[Taint, ...]:
    """Return taints, as of a node or a flavor."""
    found = (
        Taint(text(one.get("key")), text(one.get("value")), text(one.get("effect")))
        for one in items(value)
    )
    return tuple(taint for taint in found if taint.key)


def tolerations(value: object) -> tuple[Toleration, ...]:
    """Return tolerations, as of a pod or a flavor."""
    return tuple(
        Toleration(
            key=text(one.get("key")),
            operator=text(one.get("operator")) or "Equal",
            value=text(one.get("value")),
            effect=text(one.get("effect")),
        )
        for one in items(value)
    )


# ---------------------------------------------------------------- what a pod, or a template, asks


def request(spec: object) -> dict[str, float]:
    """Return resource → amount that a pod of this spec holds, CPU (cores) and memory (bytes) too.

    The spec may be unchecked, as that of a custom resource.
    """
    checked: dict[str, Any] = {
        key: [_container(one) for one in items(mapping(spec).get(key))]
        for key in ("containers", "initContainers")
    }
    checked["resources"] = _resources(spec)
    checked["overhead"] = mapping(spec, "overhead")
    found = whole_request(checked)
    return {text(r): units for r, units in found.items() if isinstance(r, str) and text(r)}


def _container(container: JsonObject) -> JsonObject:
    return {
        "restartPolicy": text(container.get("restartPolicy")),
        "resources": _resources(container),
    }


def _resources(item: object) -> JsonObject:
    kinds = ("limits", "requests")
    found = {kind: mapping(item, "resources", kind) for kind in kinds}
    return found if any(found.values()) else {}


def placement(spec: object, *, pod: str = "") -> Placement:
    """Return where a pod of this spec may go; `pod` is its name, which some volumes are named by.

    A toleration of a time only (`tolerationSeconds`) counts as one for good.
    """
    found = mapping(spec)
    affinity = mapping(found, "affinity")
    return Placement(
        node_selector=words(found.get("nodeSelector")),
        affinity=_terms(mapping(affinity, "nodeAffinity", _REQUIRED)),
        tolerations=tolerations(found.get("tolerations")),
        volumes=tuple(_volume_claims(found, pod)),
    )


def required_labels(spec: object) -> dict[str, str]:
    """Return the labels a node must have, by a selector or a required affinity of one value."""
    found = placement(spec)
    wishes = found.affinity[0] if len(found.affinity) == 1 else ()
    wanted = {
        one.key: one.values[0] for one in wishes if one.operator == "In" and len(one.values) == 1
    }
    return {**wanted, **found.node_selector}


def _terms(required: JsonObject) -> tuple[tuple[Expression, ...], ...]:
    terms = items(required.get("nodeSelectorTerms"))
    # A term without a wish fits no node: it is as if it were not there.
    return tuple(wishes for wishes in map(_constraints, terms) if wishes)


def _constraints(term: JsonObject) -> tuple[Expression, ...]:
    return tuple(
        Expression(
            key=text(one.get("key")),
            operator=text(one.get("operator")),
            values=texts(one.get("values")),
            field=of_field,
        )
        for key, of_field in (("matchExpressions", False), ("matchFields", True))
        for one in items(term.get(key))
        if text(one.get("key"))
    )


def label_selector(selector: object) -> tuple[Expression, ...]:
    """Return what a LabelSelector wants of labels; () selects all."""
    wanted = words(mapping(selector, "matchLabels"))
    named = (Expression(key, "In", (value,)) for key, value in sorted(wanted.items()))
    return (*named, *_constraints(mapping(selector)))


def _volume_claims(spec: JsonObject, pod: str) -> Iterator[str]:
    """Yield the PersistentVolumeClaims of a pod; one made for it alone is named after it."""
    for volume in items(spec.get("volumes")):
        name = text(mapping(volume, "persistentVolumeClaim").get("claimName"))
        if name:
            yield name
        elif pod and mapping(volume, "ephemeral"):
            # The ephemeral volume controller names the claim so.
            yield f"{pod}-{text(volume.get('name'))}"


def claim_uses(pod: object) -> tuple[ClaimUse, ...]:
    """Return how a pod names ResourceClaims, the one that serves its resources last.

    One that was found to need no claim (a status without a name) still counts as not made.
    """
    made = {
        text(one.get("name")): text(one.get("resourceClaimName"))
        for one in items(mapping(pod, "status").get("resourceClaimStatuses"))
    }
    uses = [
        ClaimUse(
            name=text(one.get("name")),
            # A claim of a template gets a generated name, which only the pod's status tells.
            claim=text(one.get("resourceClaimName")) or made.get(text(one.get("name")), ""),
            template=text(one.get("resourceClaimTemplateName")),
        )
        for one in items(mapping(pod, "spec").get("resourceClaims"))
    ]
    extended = mapping(pod, "status", "extendedResourceClaimStatus")
    serving = text(extended.get("resourceClaimName"))
    if serving:
        uses.append(ClaimUse(name="", claim=serving))
    return tuple(uses)


class ContainerState(msgspec.Struct, frozen=True):
    """A container's state, present or last; `kind` is running, terminated, `waiting` or empty."""

    kind: str = ""
    started: float | None = None
    finished: float | None = None
    reason: str = ""
    message: str = ""
    exit_code: int = 0

    @property
    def run(self) -> tuple[float, float | None] | None:
        """The span in which it ran; None while it did not, or where its times are not told."""
        over = self.kind == "terminated"
        # ContainerStatusUnknown has no times: to guess a run would invent GPU-hours.
        if self.started is None or (over and self.finished is None):
            return None
        return (self.started, self.finished if over else None)


_NO_STATE = ContainerState()


class ContainerStatus(msgspec.Struct, frozen=True):
    """What the kubelet tells of a container: the current state and the one before a restart."""

    name: str
    init: bool
    state: ContainerState
    last: ContainerState
    restarts: int


class _Once(Generic[T]):
    """A property of a pod that is read at first use; functools locks at each of them."""

    def __init__(self, read: Callable[[Any], T]) -> None:
        self._read, self._name = read, read.__name__

    def __get__(self, pod: Any, _: object) -> T:
        # Found before this from then on, as it is no data descriptor.
        found = vars(pod)[self._name] = self._read(pod)
        return found


class KubePod(dict[str, Any]):
    """The pod's own JSON, and beside it the parts that are read, each decoded at first use.

    Odd values count as absent, so that a strange pod hides no other. Of 20,000 pods most run and
    request no GPU: fields that are never read are never decoded.
    """

    def __init__(self, item: Mapping[str, Any]) -> None:
        super().__init__(item)
        self.metadata = mapping(self, "metadata")
        self.spec = mapping(self, "spec")
        self.status = mapping(self, "status")

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> "KubePod":
        """Return a pod decoded; one that is already, as it is."""
        return item if isinstance(item, cls) else cls(item)

    @_Once
    def created(self) -> float:
        """When it was made, in Unix seconds; 0 where it does not say."""
        return created(self)

    @_Once
    def node(self) -> str:
        """The node it is bound to; empty before."""
        return text(self.spec.get("nodeName"))

    @_Once
    def phase(self) -> str:
        return text(self.status.get("phase"))

    @property
    def is_terminal(self) -> bool:
        """Whether it is over by its own word."""
        return self.phase in _TERMINAL

    @_Once
    def containers(self) -> list[JsonObject]:
        """Its containers, those of its initialization last."""
        return [*items(self.spec.get("containers")), *items(self.spec.get("initContainers"))]

    @_Once
    def statuses(self) -> list[ContainerStatus]:
        """What is told of its containers, those of its initialization first."""
        return [
            ContainerStatus(
                name=text(one.get("name")),
                init=init,
                state=_state(mapping(one, "state")),
                last=_state(mapping(one, "lastState")),
                restarts=number(one.get("restartCount")),
            )
            for key, init in (("initContainerStatuses", True), ("containerStatuses", False))
            for one in items(self.status.get(key))
        ]

    @_Once
    def conditions(self) -> tuple[Condition, ...]:
        return conditions(self.status)

    def condition(self, kind: str) -> Condition | None:
        """Return its condition of a type; None where it has none."""
        return condition(self.status, kind)

    @_Once
    def bound(self) -> float | None:
        """When it was bound; a pod made with its node already written was bound when created."""
        scheduled = self.condition("PodScheduled")
        if scheduled is not None and scheduled.status == "True":
            return self.created if scheduled.since is None else scheduled.since
        return self.created if self.node else None

    @property
    def disrupted(self) -> str:
        """The reason for which it was disrupted; empty where it was not."""
        found = self.condition("DisruptionTarget")
        return found.reason if found is not None and found.status == "True" else ""

    @_Once
    def claim_uses(self) -> tuple[ClaimUse, ...]:
        """How it names ResourceClaims, the one that serves its extended resources last."""
        return claim_uses(self)


def _state(state: JsonObject) -> ContainerState:
    if not state:
        return _NO_STATE
    for kind in ("terminated", "running", "waiting"):
        found = state.get(kind)
        if isinstance(found, dict):
            return ContainerState(
                kind,
                seconds(found.get("startedAt")),
                seconds(found.get("finishedAt")),
                text(found.get("reason")),
                text(found.get("message")),
                number(found.get("exitCode")),
            )
    return _NO_STATE
