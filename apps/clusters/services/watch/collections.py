"""The collections that a watch follows: which a server has, and the versions of their objects."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from apps.clusters.domain.kube_json import items, mapping, text
from apps.clusters.domain.observed.objects import ObservedKind
from apps.clusters.ports import ClusterSource, ObjectChange, SourceRejected

NODES = "/api/v1/nodes"
NAMESPACES = "/api/v1/namespaces"
PODS = "/api/v1/pods"
COLLECTIONS = (NODES, NAMESPACES, PODS)
CHANGE_TYPES = frozenset({"ADDED", "MODIFIED", "DELETED"})
EVENTS = "/api/v1/events"
TEMPLATES = "resourceclaimtemplates"
AUTOSCALER_STATUS = (
    "/api/v1/namespaces/kube-system/configmaps"
    "?fieldSelector=metadata.name=cluster-autoscaler-status"
)
"""The one ConfigMap that is read: the right to it is given by its name."""
EVERYWHERE: Mapping[str, ObservedKind] = {
    EVENTS: ObservedKind.EVENT,
    "/api/v1/resourcequotas": ObservedKind.RESOURCE_QUOTA,
    "/apis/apps/v1/replicasets": ObservedKind.REPLICA_SET,
    "/apis/apps/v1/statefulsets": ObservedKind.STATEFUL_SET,
    "/apis/batch/v1/jobs": ObservedKind.JOB,
    AUTOSCALER_STATUS: ObservedKind.AUTOSCALER_STATUS,
}
"""What every server has."""

_MISSING: Mapping[ObservedKind, str] = {
    ObservedKind.EVENT: "what autoscalers, kubelets and refused controllers say is not shown",
    ObservedKind.RESOURCE_QUOTA: "which quota blocks pending pods is not known",
    ObservedKind.REPLICA_SET: "pods that a quota refuses to Deployments are not seen",
    ObservedKind.STATEFUL_SET: "pods that a quota refuses to StatefulSets are not seen",
    ObservedKind.JOB: "pods that a quota refuses to Jobs, and suspended Jobs, are not seen",
    ObservedKind.KAI_QUEUE: "quotas and limits of these queues are not known",
    ObservedKind.TOPOLOGY: "levels of the topology with labels of your own are not known",
    ObservedKind.NODE_POOL: "how many GPUs Karpenter may add is not known",
    ObservedKind.AUTOSCALER_STATUS: "how many nodes cluster-autoscaler may add is not known",
    ObservedKind.PROVISIONING_REQUEST: "which capacity is requested of autoscalers is not known",
    ObservedKind.NODE_RESOURCE_TOPOLOGY: "NUMA nodes and the Topology Manager are not checked",
}
_QUEUES = "pending work of these queues, and its causes, are not known"
# Objects that are gone and still remembered: an older line about them may come late.
MOST_GONE = 10_000


class _ApiGroup(Struct, frozen=True):
    """An API group that a server may have; its versions, the best first, and plurals."""

    name: str
    versions: tuple[str, ...]
    kinds: Mapping[str, ObservedKind]


# A server that is upgraded serves several versions at once. The best one is followed: two
# would show every object twice. A kind that it lacks is followed in an older version.
_GROUPS = (
    _ApiGroup(
        "kueue.x-k8s.io",
        ("v1beta2", "v1beta1", "v1alpha1"),
        {
            "workloads": ObservedKind.KUEUE_WORKLOAD,
            "clusterqueues": ObservedKind.CLUSTER_QUEUE,
            "localqueues": ObservedKind.LOCAL_QUEUE,
            "cohorts": ObservedKind.COHORT,
            "resourceflavors": ObservedKind.RESOURCE_FLAVOR,
            "topologies": ObservedKind.TOPOLOGY,
        },
    ),
    _ApiGroup(
        "scheduling.volcano.sh",
        ("v1beta1",),
        {"podgroups": ObservedKind.VOLCANO_POD_GROUP, "queues": ObservedKind.VOLCANO_QUEUE},
    ),
    _ApiGroup("scheduling.run.ai", ("v2",), {"queues": ObservedKind.KAI_QUEUE}),
    _ApiGroup(
        "scheduling.x-k8s.io", ("v1alpha1",), {"podgroups": ObservedKind.COSCHEDULING_POD_GROUP}
    ),
    _ApiGroup(
        "scheduling.k8s.io",
        ("v1beta1", "v1alpha3", "v1alpha2"),
        {"podgroups": ObservedKind.GANG_POD_GROUP},
    ),
    _ApiGroup(
        "topology.node.k8s.io",
        ("v1alpha2", "v1alpha1"),
        {"noderesourcetopologies": ObservedKind.NODE_RESOURCE_TOPOLOGY},
    ),
    _ApiGroup("karpenter.sh", ("v1", "v1beta1"), {"nodepools": ObservedKind.NODE_POOL}),
    _ApiGroup(
        "autoscaling.x-k8s.io",
        ("v1", "v1beta1"),
        {"provisioningrequests": ObservedKind.PROVISIONING_REQUEST},
    ),
    # Before there was a PodGroup, a Workload had them inside.
    _ApiGroup("scheduling.k8s.io", ("v1alpha1",), {"workloads": ObservedKind.GANG_POD_GROUP}),
)


class Sources(Struct, frozen=True):
    """Collections by path with what they hold, and why others could not be asked for."""

    kinds: Mapping[str, ObservedKind]
    templates: str = ""
    refusals: Mapping[str, str] | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """The collections in the order in which they are taken in."""
        return tuple([self.templates] if self.templates else []) + tuple(self.kinds)


NO_SOURCES = Sources({})


def discovered_sources(source: ClusterSource, claims: Sequence[str]) -> Sources:
    """Ask a server which of these collections it has; `claims` are those of DRA that it has.

    Raises SourceUnavailable. A group that may not be asked for is left out, with the reason.
    """
    kinds = dict(EVERYWHERE)
    refusals: dict[str, str] = {}
    for group in _GROUPS:
        try:
            kinds |= _served(source, group, set(kinds.values()))
        except SourceRejected as error:
            # Discovery may be forbidden where the collections are not needed: the others go on.
            missing = _missing(next(iter(group.kinds.values())))
            refusals[group.name] = f"{error} Until then {missing}."
    bases = {path.rpartition("/")[0] for path in claims}
    templates = [f"{base}/{TEMPLATES}" for base in sorted(bases) if _has_templates(source, base)]
    return Sources(kinds, templates[0] if templates else "", refusals)


def _has_templates(source: ClusterSource, base: str) -> bool:
    """Say whether a version of resource.k8s.io has templates; yes where it does not tell."""
    try:
        listed = source.get(base)
    except SourceRejected:
        return True
    names = {text(one.get("name")) for one in items(mapping(listed).get("resources"))}
    return listed is None or TEMPLATES in names


def _served(
    source: ClusterSource, group: _ApiGroup, known: set[ObservedKind]
) -> dict[str, ObservedKind]:
    document = source.get(f"/apis/{group.name}")
    served = {text(one.get("version")) for one in items(mapping(document).get("versions"))}
    found: dict[str, ObservedKind] = {}
    for version in (version for version in group.versions if version in served):
        base = f"/apis/{group.name}/{version}"
        listed = source.get(base)
        names = {text(one.get("name")) for one in items(mapping(listed).get("resources"))}
        for plural, kind in group.kinds.items():
            # A version without a list of resources is believed: its collection will tell.
            there = listed is None or plural in names
            if there and kind not in known and kind not in found.values():
                found[f"{base}/{plural}"] = kind
    return found


def plural_of(path: str) -> str:
    """Return the plural of a collection's objects, also of one that names an object."""
    return path.partition("?")[0].rpartition("/")[2]


def refusal_text(path: str, kind: ObservedKind | None, why: str) -> str:
    """Return in words that a collection may not be read, and what is not known for it."""
    plural = plural_of(path)
    return f"{why} Until the right to list and watch {plural} is given, {_missing(kind)}."


def silence_text(path: str, kind: ObservedKind | None, why: str) -> str:
    """Return in words that nothing is heard of a collection, and what is not known for it."""
    plural = plural_of(path)
    return f"{why} Until the API server answers for {plural} again, {_missing(kind)}."


def _missing(kind: ObservedKind | None) -> str:
    if kind is None:
        return "which GPUs pods ask for whose claims are not made yet is not known"
    return _MISSING.get(kind, _QUEUES)


class Versions:
    """The versions of the objects that are there, and of the `most_gone` that went last."""

    # A watch that is taken up again tells what was told. An older line must not undo a newer one,
    # nor bring back an object that is gone.

    def __init__(self, most_gone: int = MOST_GONE) -> None:
        self._most_gone = most_gone
        self._there: dict[str, int] = {}
        self._gone: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._there) + len(self._gone)

    def listed(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Take in a whole list."""
        # The watch goes on from the version of this list: no older line about them can follow.
        self._gone.clear()
        self._there = {
            uid_of(item): version for item in items if (version := _version(item)) is not None
        }

    def is_stale(self, item: Mapping[str, Any], *, gone: bool) -> bool:
        """Say whether a newer version was taken in already; if not, take in this one."""
        version, uid = _version(item), uid_of(item)
        if version is None:
            return False
        if version < self._there.get(uid, self._gone.get(uid, version)):
            return True
        if not gone and uid not in self._gone:
            self._there[uid] = version
            return False
        self._there.pop(uid, None)
        self._gone[uid] = version
        if len(self._gone) > self._most_gone:
            del self._gone[next(iter(self._gone))]
        return False


def uid_of(item: Mapping[str, Any]) -> str:
    """Return an object's uid; empty where it has none."""
    return str(item["metadata"].get("uid", ""))


def _version(item: Mapping[str, Any]) -> int | None:
    """Return an object's resourceVersion as a number; they grow (KEP-5504)."""
    text = str(item["metadata"].get("resourceVersion", ""))
    # Clients were long told that versions cannot be compared, so some server may not count.
    return int(text) if text.isdecimal() else None


class Relisted(Struct, frozen=True):
    """A whole collection, asked for at `at` (Unix seconds)."""

    path: str
    items: Sequence[Mapping[str, Any]]
    at: float


class WatchEvent(Struct, frozen=True):
    """One line of a collection's watch, when it arrived and when that watch was asked for."""

    path: str
    change: ObjectChange
    at: float
    requested_at: float | None = None


class WatchClosed(Struct, frozen=True):
    """A collection's watch ended in order: every change until `at` has arrived."""

    path: str
    at: float
    requested_at: float | None = None


class WatchForbidden(Struct, frozen=True):
    """A collection that may not be read, and why, in words for who can change that."""

    path: str
    at: float
    why: str


class WatchSilent(Struct, frozen=True):
    """A collection about which the server has said nothing for a while, and how it failed."""

    path: str
    at: float
    why: str


Item = Relisted | WatchEvent | WatchClosed | WatchForbidden | WatchSilent
