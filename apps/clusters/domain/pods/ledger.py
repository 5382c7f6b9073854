"""The pod ledger and the node intervals: what existed, held GPUs and ran, to the second.

Times are Unix seconds. `None` for a time means: did not happen yet, as far as is known.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Any, NamedTuple

from msgspec import Struct, field

from apps.accounts.domain.structs import replace
from apps.clusters.domain.kube_json import KubePod, items, mapping, text
from apps.clusters.domain.window import TimeSpan, clip, union

HASH_LABEL = "pod-template-hash"
CHECKPOINT_ANNOTATION = "gpuportal.io/last-checkpoint"
"""By which work tells when it last saved its state, RFC 3339."""
# Kinds whose plural need not be asked of the server.
PLURALS = {
    "ReplicaSet": "replicasets",
    "Deployment": "deployments",
    "StatefulSet": "statefulsets",
    "DaemonSet": "daemonsets",
    "ReplicationController": "replicationcontrollers",
    "Job": "jobs",
    "CronJob": "cronjobs",
}


class PodSource(StrEnum):
    """The source of a row: the Kubernetes API, or kube-state-metrics series (`inferred`)."""

    API = "api"
    METRICS = "metrics"


class Owner(Struct, frozen=True):
    """The top controller of a pod; a bare pod is its own (`Pod`, its name)."""

    kind: str
    name: str


class OfferedDevice(NamedTuple):
    """A device that a ResourceSlice offers on a node.

    `card` is the UUID of the physical GPU: its own, of a MIG device its parent's, and the device's
    name where neither is published. `profile` is empty for a whole GPU. `classes` are the device
    classes whose selectors it satisfies; `allocatable` is False while a taint keeps pods off it.
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


class ClaimAllocationRecord(Struct, frozen=True):
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


class ContainerExit(NamedTuple):
    """When a container that requests GPU ended, and why: the kubelet's reason, or `Error`."""

    at: float
    reason: str


class LastSeen(NamedTuple):
    """Until when series showed a pod; `gone`: they were there afterwards, or should have been.

    The larger of two is the later knowledge.
    """

    at: float
    gone: bool


class PodRecord(Struct, frozen=True):
    """One pod that asked for GPU.

    `requests` is the effective request: resource → units; what ResourceClaims serve stands under
    their device classes, and `claims` are the uids of these claims. `finished` is the latest
    finish of a container; `deleted` when the object was seen to go. `runs` are the disjoint spans
    in which a container that requests GPU ran; the end of one that still runs is None.
    `last_seen` is set for pods known from series alone, and `estimated` names those of `created`,
    `bound` and `finished` that are estimates, because the series that tell them were missing.
    `unschedulable`: series showed that a scheduler refused it, or that it was gated. `queue` is
    the queue that it names, `gang` its group of pods; series tell neither, nor its `priority`, nor
    `kept_for_latency`: it is marked to stay for quick answers.
    `exits` are of its containers that request GPU, in order, and `checkpoints` the last one of
    each run of which one is known. `gpus` are the UUIDs of those of which it has a part, where the
    scheduler tells them.
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
    queue: str = ""
    gang: str = ""
    priority: int | None = None
    claims: tuple[str, ...] = ()
    last_seen: LastSeen | None = None
    estimated: frozenset[str] = frozenset()
    unschedulable: bool = False
    exits: tuple[ContainerExit, ...] = ()
    checkpoints: tuple[float, ...] = ()
    kept_for_latency: bool = False
    gpus: tuple[str, ...] = ()

    @property
    def ended(self) -> float | None:
        """When it stopped holding its GPUs: the latest container finish, else its deletion."""
        return self.finished if self.finished is not None else self.deleted

    def held(self, until: float) -> TimeSpan | None:
        """Return the span in which it held GPUs, cut at `until`; None when it never did."""
        if self.bound is None or self.bound >= until:
            return None
        end = until if self.ended is None else min(self.ended, until)
        return (self.bound, end) if end > self.bound else None

    def ran(self, until: float) -> tuple[TimeSpan, ...]:
        """Return the spans in which it ran while it held its GPUs, cut at `until`."""
        held = self.held(until)
        if held is None:
            return ()
        spans = ((start, held[1] if end is None else end) for start, end in self.runs)
        return union((max(a, held[0]), min(b, held[1])) for a, b in spans)


class NodeInterval(Struct, frozen=True):
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


class OwnerReference(Struct, frozen=True):
    """The controller that an object names in its metadata."""

    api_version: str
    kind: str
    name: str
    uid: str

    @property
    def group_path(self) -> str:
        """Path of its API group and version, as `/apis/batch/v1`."""
        return "/api/v1" if self.api_version == "v1" else f"/apis/{self.api_version}"


def controller_of(item: Mapping[str, Any]) -> OwnerReference | None:
    """Return the owner that controls an object; None when it stands alone.

    A static pod is controlled by its Node, which is a place and no workload: it stands alone too.
    """
    if not isinstance(item, KubePod):
        return _controller(item)
    # Kept with the pod, as what is decoded of it is: each part of the watch reads it.
    known = vars(item)
    if "controller" not in known:
        known["controller"] = _controller(item)
    found: OwnerReference | None = known["controller"]
    return found


def _controller(item: Mapping[str, Any]) -> OwnerReference | None:
    for owner in items(mapping(item, "metadata").get("ownerReferences")):
        if owner.get("controller") and owner.get("kind") != "Node":
            return OwnerReference(
                api_version=text(owner.get("apiVersion")),
                kind=text(owner.get("kind")),
                name=text(owner.get("name")),
                uid=text(owner.get("uid")),
            )
    return None


def nearest_owner(pod: Mapping[str, Any]) -> Owner:
    """Return the top controller as far as the pod itself tells it."""
    reference = controller_of(pod)
    if reference is None:
        return Owner("Pod", text(mapping(pod, "metadata").get("name")))
    return named_by(reference, mapping(pod, "metadata", "labels"))


def named_by(reference: OwnerReference, labels: Mapping[str, str]) -> Owner:
    """Return the owner that a reference names, a Deployment for the ReplicaSets it makes.

    A Deployment names its ReplicaSets `<deployment>-<pod-template-hash>` and labels the pods
    with that hash, so the Deployment is known even where its ReplicaSet cannot be read.
    """
    ending = f"-{labels.get(HASH_LABEL, '')}"
    if reference.kind == "ReplicaSet" and len(ending) > 1 and reference.name.endswith(ending):
        return Owner("Deployment", reference.name.removesuffix(ending))
    return Owner(reference.kind, reference.name)


def gaps(
    watched: Iterable[TimeSpan], start: float, end: float, *, tolerance: float
) -> list[TimeSpan]:
    """Return the spans of start..end longer than `tolerance` seconds that were not watched."""
    found = []
    at = start
    for a, b in union(clip(watched, start, end)):
        if a - at > tolerance:
            found.append((at, a))
        at = max(at, b)
    if end - at > tolerance:
        found.append((at, end))
    return found


def merge_pods(recorded: Iterable[PodRecord], inferred: Iterable[PodRecord]) -> list[PodRecord]:
    """Return every pod once, by uid; what the API said wins.

    A pod that the API showed, and whose start or end was not watched, takes those of the series.
    """
    seen = {pod.uid: pod for pod in inferred}
    merged = []
    for pod in recorded:
        other = seen.pop(pod.uid, None)
        # The API's record wins, but it cannot know an end in a gap of the watch.
        merged.append(_with_end(pod, other) if other is not None else pod)
    merged.extend(seen.values())
    return sorted(merged, key=lambda pod: pod.uid)


def _with_end(pod: PodRecord, other: PodRecord) -> PodRecord:
    if pod.bound is None and other.bound is not None:
        # Series know nothing of claims.
        requests = pod.requests if pod.claims else other.requests
        return replace(other, owner=pod.owner, requests=requests, claims=pod.claims)
    if pod.ended is None and pod.started is None and other.started is not None:
        # It was bound when it was seen last, and started in the gap.
        pod = replace(pod, started=other.started, runs=other.runs)
    if pod.ended is None and other.ended is not None:
        return replace(pod, finished=other.finished, deleted=other.deleted)
    return pod


def merge_intervals(
    recorded: Iterable[NodeInterval],
    inferred: Iterable[NodeInterval],
    unwatched: Sequence[TimeSpan],
    *,
    tolerance: float,
) -> list[NodeInterval]:
    """Return the API's intervals where somebody watched, the series' intervals in the gaps.

    A hole of at most `tolerance` seconds between two intervals of a node belongs to the first: a
    watch that was taken up again did not see in it. Series that carry no node labels borrow
    those that the API showed, and always the devices of ResourceSlices, which no series has.
    """
    merged = []
    labels, devices = {}, {}
    for interval in recorded:
        labels[interval.node], devices[interval.node] = interval.labels, interval.devices
        at = interval.start
        # The empty span at the end keeps what follows the last gap.
        for a, b in (*clip(unwatched, interval.start, interval.end), (interval.end, interval.end)):
            if a > at:
                merged.append(replace(interval, start=at, end=a))
            at = max(at, b)
    for interval in inferred:
        known = {**labels.get(interval.node, {}), **interval.labels}
        offered = devices.get(interval.node, ())
        merged.extend(
            replace(interval, start=a, end=b, labels=known, devices=offered)
            for a, b in clip(unwatched, interval.start, interval.end)
        )
    merged.sort(key=lambda interval: (interval.node, interval.start))
    return _bridged(merged, tolerance)


def _bridged(intervals: list[NodeInterval], tolerance: float) -> list[NodeInterval]:
    for place, (one, other) in enumerate(pairwise(intervals)):
        if one.node == other.node and 0 < other.start - one.end <= tolerance:
            intervals[place] = replace(one, end=other.start)
    return intervals
