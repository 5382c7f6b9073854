"""What a preflight does not check, as sentences."""

from collections.abc import Iterator

from apps.clusters.domain.kube_json import JsonObject, mapping, words
from apps.pending.domain.diagnosis import Cause
from apps.pending.domain.planned_pods import PlannedPods
from apps.pending.domain.pods import NO_SCHEDULER
from apps.pending.domain.queues import kai
from apps.pending.domain.submission import PlannedStart
from apps.planning.domain.manifests.submissions import Submission
from apps.planning.domain.planned import ManifestPods

_RULES = ("podAffinity", "podAntiAffinity")
_TOPOLOGY = ("kueue.x-k8s.io/podset-", "-topology")
"""How annotations begin and end by which Kueue is told the racks or hosts of pods."""
_PARTIAL = "kueue.x-k8s.io/job-min-parallelism"
_KUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"
_OF_NODES = frozenset({Cause.CAPACITY, Cause.GANG, Cause.AFFINITY, Cause.TAINT})


def unchecked_of(one: Submission, at: int, part: PlannedPods, asked: ManifestPods) -> Iterator[str]:
    """Yield what the recorded state does not tell, of what the pods ask for."""
    yield from one.templates[at].notes
    spec = one.templates[at].spec
    yield from _of_placement(spec)
    yield from _of_kueue(one, at)
    # Pods of a group of Kueue are read together; of others the manifest need not have all.
    if part.pod.group and part.gang == 1 and not _is_group_of_kueue(one):
        yield "Its pod group is not checked: it may start only together with its other pods."
    if one.kind == "TrainJob" and not spec["containers"][0].get("resources"):
        yield "The runtime of a TrainJob is not in the manifest; its requests are not counted."
    if part.pod.placement.volumes:
        yield "Volumes are not checked."
    if asked.unknown_templates.get(one.name):
        yield "A ResourceClaimTemplate is not in the manifest; its devices are not counted."
    elif part.pod.claims:
        yield "Device selectors are not checked."
    if part.pod.scheduler in kai.SCHEDULERS:
        yield "KAI's shares, and its quota for work that is never preempted, are not checked."
    if one.priority_class:
        yield "Preemption is not assumed."
        # Of Kueue's own priority classes no value is seen.
        if "priority" not in spec and one.priority_class not in asked.priorities:
            yield "The value of the priority class is not known; 0 is assumed."


def _of_placement(spec: JsonObject) -> Iterator[str]:
    affinity = spec.get("affinity")
    if isinstance(affinity, dict) and any(affinity.get(key) for key in _RULES):
        yield "Affinity between pods is not checked."
    if spec.get("topologySpreadConstraints"):
        yield "Topology spread is not checked."


def _of_kueue(one: Submission, at: int) -> Iterator[str]:
    own = words(one.templates[at].metadata.get("annotations"))
    whole = words(mapping(one.metadata, "annotations"))
    begin, end = _TOPOLOGY
    if any(key.startswith(begin) and key.endswith(end) for key in own):
        yield "Kueue's placement by topology is not checked."
    if _PARTIAL in whole:
        yield "Partial admission by Kueue is not assumed."


def _is_group_of_kueue(one: Submission) -> bool:
    return bool(mapping(one.metadata, "labels").get(_KUEUE_GROUP))


def unchecked_of_start(start: PlannedStart, *, nodes_are_added: bool) -> Iterator[str]:
    """Yield what is not known of the cause for which pods do not start."""
    if start.why is None:
        return
    if start.why.cause in _OF_NODES and nodes_are_added:
        yield "Nodes that an autoscaler may add are not counted."
    if start.why.detail == NO_SCHEDULER:
        yield "Which scheduler placed the running pods is not recorded."
