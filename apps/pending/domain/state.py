"""What is known of a cluster when its waiting items are looked at, and what the look finds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from apps.clusters.domain.observed.objects import ObservedKind, ObservedObject
from apps.pending.domain.causes import Counts
from apps.pending.domain.diagnosis import Diagnosis


@dataclass(frozen=True, slots=True)
class BoundPod:
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


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Everything seen of a cluster at `at` (Unix seconds) that waiting can be explained by.

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


@dataclass(frozen=True, slots=True)
class PendingItem:
    """One item that waits, and why.

    `uid` identifies it: of pods turned away by a kubelet and of refused pods it is that of their
    controller, and `name` its name. `requests` is what the whole item asks for, of GPU resources
    and device classes; `share` (0..1) what part of that counts in sums, so that a gang and its
    pods count once. `since` and `bound` are Unix seconds; `node_selector` is what may settle its
    tier. `again`: it had run and lost its GPUs (preempted, evicted, requeued).
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
