"""Which collections tell why things wait, and which of them a server has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from apps.clusters.domain.json_fields import items, mapping, text
from apps.clusters.domain.observed.objects import ObservedKind
from apps.clusters.ports import ClusterSource, SourceRejected

EVENTS = "/api/v1/events"
TEMPLATES = "resourceclaimtemplates"
EVERYWHERE: Mapping[str, ObservedKind] = {
    EVENTS: ObservedKind.EVENT,
    "/api/v1/resourcequotas": ObservedKind.RESOURCE_QUOTA,
    "/apis/apps/v1/replicasets": ObservedKind.REPLICA_SET,
    "/apis/apps/v1/statefulsets": ObservedKind.STATEFUL_SET,
    "/apis/batch/v1/jobs": ObservedKind.JOB,
}
"""What every server has."""


@dataclass(frozen=True, slots=True)
class _Group:
    """An API group that a server may have; its versions, the best first, and plurals."""

    name: str
    versions: tuple[str, ...]
    kinds: Mapping[str, ObservedKind]


_GROUPS = (
    _Group(
        "kueue.x-k8s.io",
        ("v1beta2", "v1beta1", "v1alpha1"),
        {
            "workloads": ObservedKind.KUEUE_WORKLOAD,
            "clusterqueues": ObservedKind.CLUSTER_QUEUE,
            "localqueues": ObservedKind.LOCAL_QUEUE,
            "cohorts": ObservedKind.COHORT,
            "resourceflavors": ObservedKind.RESOURCE_FLAVOR,
        },
    ),
    _Group(
        "scheduling.volcano.sh",
        ("v1beta1",),
        {"podgroups": ObservedKind.VOLCANO_POD_GROUP, "queues": ObservedKind.VOLCANO_QUEUE},
    ),
    _Group(
        "scheduling.x-k8s.io", ("v1alpha1",), {"podgroups": ObservedKind.COSCHEDULING_POD_GROUP}
    ),
    _Group(
        "scheduling.k8s.io",
        ("v1beta1", "v1alpha3", "v1alpha2"),
        {"podgroups": ObservedKind.GANG_POD_GROUP},
    ),
    # Before there was a PodGroup, a Workload had them inside.
    _Group("scheduling.k8s.io", ("v1alpha1",), {"workloads": ObservedKind.GANG_POD_GROUP}),
)

_MISSING: Mapping[ObservedKind, str] = {
    ObservedKind.EVENT: "what autoscalers, kubelets and refused controllers say is not shown",
    ObservedKind.RESOURCE_QUOTA: "which quota holds what waits back is not known",
    ObservedKind.REPLICA_SET: "pods that a quota refuses to Deployments are not seen",
    ObservedKind.STATEFUL_SET: "pods that a quota refuses to StatefulSets are not seen",
    ObservedKind.JOB: "pods that a quota refuses to Jobs, and suspended Jobs, are not seen",
}
_QUEUES = "what waits in these queues, and why, is not known"


@dataclass(frozen=True, slots=True)
class Sources:
    """Collections by path with what they hold, and why others could not be asked for."""

    kinds: Mapping[str, ObservedKind]
    templates: str = ""
    refusals: Mapping[str, str] | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """The collections in the order in which they are taken in."""
        return tuple([self.templates] if self.templates else []) + tuple(self.kinds)


NO_SOURCES = Sources({})


def discovered(source: ClusterSource, claims: Sequence[str]) -> Sources:
    """Ask a server which of these collections it has; `claims` are those of DRA that it has.

    Raises SourceUnavailable. A group that may not be asked for is left out, with the reason.
    """
    kinds = dict(EVERYWHERE)
    refusals: dict[str, str] = {}
    for group in _GROUPS:
        try:
            kinds |= _served(source, group, set(kinds.values()))
        except SourceRejected as error:
            refusals[group.name] = f"{error} Until then {_QUEUES}."
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
    source: ClusterSource, group: _Group, known: set[ObservedKind]
) -> dict[str, ObservedKind]:
    document = source.get(f"/apis/{group.name}")
    served = {text(one.get("version")) for one in items(mapping(document).get("versions"))}
    found: dict[str, ObservedKind] = {}
    for version in (version for version in group.versions if version in served):
        base = f"/apis/{group.name}/{version}"
        listed = source.get(base)
        names = {text(one.get("name")) for one in items(mapping(listed).get("resources"))}
        for plural, kind in group.kinds.items():
            there = listed is None or plural in names
            if there and kind not in known and kind not in found.values():
                found[f"{base}/{plural}"] = kind
    return found


def refusal(path: str, kind: ObservedKind | None, why: str) -> str:
    """Return in words that a collection may not be read, and what is not known for it."""
    plural = path.rpartition("/")[2]
    return f"{why} Until the right to list and watch {plural} is given, {_missing(kind)}."


def silence(path: str, kind: ObservedKind | None, why: str) -> str:
    """Return in words that nothing is heard of a collection, and what is not known for it."""
    plural = path.rpartition("/")[2]
    return f"{why} Until the API server answers for {plural} again, {_missing(kind)}."


def _missing(kind: ObservedKind | None) -> str:
    if kind is None:
        return "which GPUs pods ask for whose claims are not made yet is not known"
    return _MISSING.get(kind, _QUEUES)
