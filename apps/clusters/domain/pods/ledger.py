"""The pod ledger and the node intervals: what existed, held GPUs and ran, to the second.

Times are Unix seconds. `None` for a time means: did not happen yet, as far as is known.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from apps.clusters.domain.time_spans import Span, union


class PodSource(StrEnum):
    """Where a row was learnt: the Kubernetes API, or kube-state-metrics series (inferred)."""

    API = "api"
    METRICS = "metrics"


@dataclass(frozen=True, slots=True)
class Owner:
    """The top controller of a pod; a bare pod is its own (`Pod`, its name)."""

    kind: str
    name: str


class OfferedDevice(NamedTuple):
    """A device that a ResourceSlice offers on a node.

    `card` is the UUID of the physical card: its own, of a MIG device its parent's, and the
    device's name where neither is published. `profile` is empty for a whole card. `classes` are
    the device classes whose selectors it satisfies; `allocatable` is False while a taint keeps
    pods off it.
    """

    driver: str
    pool: str
    name: str
    card: str
    profile: str
    model: str
    classes: tuple[str, ...] = ()
    allocatable: bool = True


class ClaimedDevice(NamedTuple):
    """A device that a ResourceClaim was given; `share` is the part of it, 0..1, that it takes.

    `device_class` is that of the request it was given for, the rest is as in OfferedDevice.
    """

    device_class: str
    card: str
    profile: str
    model: str
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class ClaimAllocationRecord:
    """One allocation of a ResourceClaim: who holds it are the pods that name it, else itself.

    A claim that is freed and allocated again has two. `devices` leaves out what is given for
    administration (`adminAccess`) and what is no GPU; `released` is None while it lasts.
    """

    uid: str
    namespace: str
    name: str
    node: str
    allocated: float
    released: float | None
    devices: tuple[ClaimedDevice, ...]


class LastSeen(NamedTuple):
    """Until when series showed a pod; `gone`: they were there afterwards, or should have been.

    The larger of two is the later knowledge.
    """

    at: float
    gone: bool


@dataclass(frozen=True, slots=True)
class PodRecord:
    """One pod that asked for GPU.

    `requests` is the effective request: resource → units; what ResourceClaims serve stands under
    their device classes, and `claims` are the uids of these claims. `finished` is the latest
    finish of a container; `deleted` when the object was seen to go. `runs` are the disjoint spans
    in which a container that requests GPU ran; the end of one that still runs is None.
    `last_seen` is set for pods known from series alone.
    `unschedulable`: series showed that a scheduler refused it, or that it was gated.
    """

    uid: str
    namespace: str
    name: str
    owner: Owner
    requests: Mapping[str, float]
    created: float
    node: str = ""
    bound: float | None = None
    started: float | None = None
    finished: float | None = None
    deleted: float | None = None
    runs: tuple[tuple[float, float | None], ...] = ()
    end_reason: str = ""
    priority_class: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    source: PodSource = PodSource.API
    claims: tuple[str, ...] = ()
    last_seen: LastSeen | None = None
    unschedulable: bool = False

    @property
    def ended(self) -> float | None:
        """When it stopped holding its GPUs: the latest container finish, else its deletion."""
        return self.finished if self.finished is not None else self.deleted

    def held(self, until: float) -> Span | None:
        """Return the span in which it held GPUs, cut at `until`; None when it never did."""
        if self.bound is None or self.bound >= until:
            return None
        end = until if self.ended is None else min(self.ended, until)
        return (self.bound, end) if end > self.bound else None

    def ran(self, until: float) -> tuple[Span, ...]:
        """Return the spans in which it ran while it held its GPUs, cut at `until`."""
        held = self.held(until)
        if held is None:
            return ()
        spans = ((start, held[1] if end is None else end) for start, end in self.runs)
        return union((max(a, held[0]), min(b, held[1])) for a, b in spans)


@dataclass(frozen=True, slots=True)
class NodeInterval:
    """A span in which a node's GPU capacity, health and labels did not change.

    `capacity` and `allocatable` hold GPU resources only: resource → units. `devices` are those
    that ResourceSlices offer, which no capacity shows.
    """

    node: str
    start: float
    end: float
    capacity: Mapping[str, float]
    allocatable: Mapping[str, float]
    labels: Mapping[str, str]
    ready: bool = True
    schedulable: bool = True
    source: PodSource = PodSource.API
    devices: tuple[OfferedDevice, ...] = ()
