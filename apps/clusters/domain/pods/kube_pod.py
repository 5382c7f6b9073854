"""A pod as the API server wrote it, decoded once for all who read it: ledger, claims, pending."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

from apps.clusters.domain.json_fields import items, mapping, seconds, text
from apps.clusters.domain.observed.fields import Fields, claim_uses, conditions, created, number
from apps.clusters.domain.observed.objects import ClaimUse, Condition

_TERMINAL = frozenset({"Succeeded", "Failed"})


class ContainerState(NamedTuple):
    """What a container does or did: `kind` is running, terminated, waiting or empty."""

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
        if self.started is None or (over and self.finished is None):
            return None
        return (self.started, self.finished if over else None)


class ContainerStatus(NamedTuple):
    """What the kubelet tells of a container: the current state and the one before a restart."""

    name: str
    init: bool
    state: ContainerState
    last: ContainerState
    restarts: int


class KubePod(dict[str, Any]):
    """The pod's own JSON, and beside it the parts that are read, each decoded at first use.

    What is odd counts as absent, so that a strange pod hides no other. Of 20,000 pods most run
    and ask for no GPU: what nobody asks for is never decoded.
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

    @cached_property
    def created(self) -> float:
        """When it was made, in Unix seconds; 0 where it does not say."""
        return created(self)

    @cached_property
    def node(self) -> str:
        """The node it is bound to; empty before."""
        return text(self.spec.get("nodeName"))

    @cached_property
    def phase(self) -> str:
        return text(self.status.get("phase"))

    @property
    def is_terminal(self) -> bool:
        """Whether it is over by its own word."""
        return self.phase in _TERMINAL

    @cached_property
    def containers(self) -> list[Fields]:
        """Its containers, those of its initialization last."""
        return [*items(self.spec.get("containers")), *items(self.spec.get("initContainers"))]

    @cached_property
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

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        return conditions(self.status)

    def condition(self, kind: str) -> Condition | None:
        """Return its condition of a type; None where it has none."""
        return next((one for one in self.conditions if one.type == kind), None)

    @cached_property
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

    @cached_property
    def claim_uses(self) -> tuple[ClaimUse, ...]:
        """How it names ResourceClaims, the one that serves its extended resources last."""
        return claim_uses(self)


def _state(state: Fields) -> ContainerState:
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
    return ContainerState()
