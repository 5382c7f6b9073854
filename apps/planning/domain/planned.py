"""Submissions of a manifest as the pods that a cluster would see of them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct, field

from apps.accounts.domain.structs import replace
from apps.clusters.domain.accelerators import labelled_memory, least_memory
from apps.clusters.domain.devices.resource_claims import ClaimUnits, pod_claims
from apps.clusters.domain.gpu_shares import may_have_hami_parts
from apps.clusters.domain.kube_json import (
    JsonObject,
    mapping,
    placement,
    request,
    required_labels,
    text,
    words,
)
from apps.clusters.domain.observed.extract import (
    observed_object,
    requested_classes,
    template_classes,
)
from apps.clusters.domain.observed.objects import (
    ClaimSnapshot,
    NodeSnapshot,
    ObservedKind,
    ObservedObject,
    PodSnapshot,
)
from apps.clusters.domain.observed.pods import ExtractionContext, pod_snapshot
from apps.clusters.domain.resources import GPU_FRACTION, GPU_MEMORY
from apps.pending.domain.diagnosis import ClusterState
from apps.pending.domain.planned_pods import PlannedPods
from apps.pending.domain.submission import PlannedWork
from apps.planning.domain.manifests.kinds import QUEUED_BY_DEFAULT, QUEUED_ONE_BY_ONE
from apps.planning.domain.manifests.submissions import Manifest, PodTemplate, Submission

_UID = "not-submitted"
_DEFAULT_QUEUE = "default"


class ManifestPods(Struct, frozen=True):
    """What a manifest submits to a cluster: its work, and the state with its claims.

    `unknown_templates` are ResourceClaimTemplates that pods name and the manifest does not have:
    what they request is not known. `priorities` are the values of priority classes that are known.
    """

    state: ClusterState
    works: tuple[tuple[Submission, PlannedWork], ...]
    unknown_templates: Mapping[str, Collection[str]] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=dict)


class SubmissionReader:
    """Makes of submissions the pods that a cluster would see, in one namespace.

    `priorities` are values of priority classes, as admission would write them into a pod.
    """

    def __init__(
        self,
        manifest: Manifest,
        state: ClusterState,
        namespace: str,
        named: Collection[str],
        priorities: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._manifest = manifest
        self._priorities = priorities
        self._namespace = namespace
        self._named = named
        self._is_gpu = state.is_gpu
        self._templates = {
            (namespace, name): template_classes(_with_uid(one, namespace))
            for one in manifest.claim_templates
            if (name := _name(one))
        }
        self.state = self._with_claims(state)
        self._requested = _claims_requested(self.state)
        self._default_queue = _has_default_queue(state, namespace)
        nodes = (one.body for one in state.of(ObservedKind.NODE))
        self._gpu_memory = [
            (labelled_memory(n.labels), n.labels) for n in nodes if isinstance(n, NodeSnapshot)
        ]

    def pods(self) -> ManifestPods:
        """Return the work of every submission."""
        works = tuple((one, self._work(one)) for one in self._manifest.submissions)
        unknown = {
            work.name: names for one, work in works if (names := self._unknown_templates(one))
        }
        return ManifestPods(self.state, works, unknown, self._priorities)

    def _with_claims(self, state: ClusterState) -> ClusterState:
        context = ExtractionContext(self._named, is_gpu_class=self._is_gpu)
        kind, found = ObservedKind.RESOURCE_CLAIM, list[ObservedObject]()
        for one in self._manifest.claims:
            item = _with_uid(one, self._namespace)
            body = observed_object(kind, item, context)
            if isinstance(body, ClaimSnapshot):
                at = state.at
                name = _name(one)
                found.append(
                    ObservedObject(kind, f"{_UID}-{name}", self._namespace, name, body, at, at)
                )
        if not found:
            return state
        return replace(state, objects={**state.objects, kind: [*state.of(kind), *found]})

    def _work(self, one: Submission) -> PlannedWork:
        return PlannedWork(
            kind=one.kind,
            namespace=self._namespace,
            name=one.name,
            pods=tuple(self._planned(one, template) for template in one.templates),
            queue=one.queue or self._queue_by_default(one),
            suspended=one.suspended,
            parallel=one.parallel,
            together=one.together,
            one_by_one=one.kind in QUEUED_ONE_BY_ONE,
        )

    def _queue_by_default(self, one: Submission) -> str:
        """Return the queue that Kueue's webhooks write into a job that names none."""
        of_kueue = self._default_queue and one.kind in QUEUED_BY_DEFAULT
        # Work for Volcano may be in one of its queues, which it need not name.
        by_volcano = any(text(t.spec.get("schedulerName")) == "volcano" for t in one.templates)
        return _DEFAULT_QUEUE if of_kueue and not by_volcano else ""

    def _planned(self, one: Submission, template: PodTemplate) -> PlannedPods:
        metadata = {
            "name": one.name,
            "namespace": self._namespace,
            "uid": _UID,
            "labels": mapping(one.metadata, "labels"),
            "annotations": _annotations(one, template),
        }
        item = {"metadata": metadata, "spec": dict(template.spec), "status": {"phase": "Pending"}}
        # A pod that names its node passes by the scheduler: asked is whether it would be placed.
        item["spec"].pop("nodeName", None)
        value = self._priorities.get(text(template.spec.get("priorityClassName")))
        if value is not None:
            item["spec"].setdefault("priority", value)
        found = pod_claims(item, self._claim_units)
        memory = least_memory(self._gpu_memory, required_labels(template.spec))
        context = ExtractionContext(self._named, None, found, self._is_gpu, self._templates, memory)
        pod = pod_snapshot(item, context)
        if pod is None:
            # The watch keeps only pods with GPUs; one without is planned all the same.
            pod = PodSnapshot(
                created=self.state.at,
                requests=request(template.spec),
                placement=placement(template.spec, pod=one.name),
                scheduler=text(template.spec.get("schedulerName")) or "default-scheduler",
                phase="Pending",
            )
        templated = {
            name: units
            for use in pod.claims
            if not use.claim
            for name, units in self._templates.get((self._namespace, use.template), {}).items()
        }
        charged = request(template.spec) if may_have_hami_parts({}, template.spec) else None
        return PlannedPods(pod, template.count, template.gang, template.step, templated, charged)

    def _claim_units(self, name: str) -> ClaimUnits | None:
        return self._requested.get((self._namespace, name))

    def _unknown_templates(self, one: Submission) -> list[str]:
        named = {
            use.template
            for template in one.templates
            for use in self._planned(one, template).pod.claims
            if use.template
        }
        return sorted(name for name in named if (self._namespace, name) not in self._templates)


def _has_default_queue(state: ClusterState, namespace: str) -> bool:
    named = (namespace, _DEFAULT_QUEUE)
    return any((q.namespace, q.name) == named for q in state.of(ObservedKind.LOCAL_QUEUE))


def _annotations(one: Submission, template: PodTemplate) -> dict[str, str]:
    """Return the annotations of the pods of a template: those of its other pods are not theirs."""
    own = words(template.metadata.get("annotations"))
    others = {key for other in one.templates for key in mapping(other.metadata, "annotations")}
    whole = words(one.metadata.get("annotations"))
    return {key: value for key, value in whole.items() if key not in others} | own


def _claims_requested(state: ClusterState) -> dict[tuple[str, str], ClaimUnits]:
    """Return by namespace and name what claims request that have nothing yet."""
    found = {}
    for seen in state.of(ObservedKind.RESOURCE_CLAIM):
        if isinstance(seen.body, ClaimSnapshot):
            # Devices that a claim has already are held, and not requested again.
            held = seen.body.allocated is not None
            units = {} if held else requested_classes(seen.body.requests)
            # Nodes are known to have devices of GPU classes alone.
            units = {name: each for name, each in units.items() if state.is_gpu(name)}
            found[seen.namespace, seen.name] = ClaimUnits(seen.uid, units)
    return found


def _with_uid(claim: JsonObject, namespace: str) -> JsonObject:
    metadata = {**mapping(claim, "metadata"), "uid": f"{_UID}-{_name(claim)}"}
    return {**claim, "metadata": {**metadata, "namespace": namespace}}


def _name(claim: JsonObject) -> str:
    return text(mapping(claim, "metadata").get("name"))


def gpus_of(requests: Mapping[str, float], is_gpu: Callable[[str], bool]) -> dict[str, float]:
    """Return the GPU resources and device classes of a request."""
    return {r: units for r, units in sorted(requests.items()) if units > 0 and is_gpu(r)}


def with_gpus(work: PlannedWork, at: int, changed: Sequence[tuple[str, str, float]]) -> PlannedWork:
    """Return the work with other GPUs in its pods of position `at`: (resource, instead, units)."""
    part = work.pods[at]
    requests = dict(part.pod.requests)
    for resource, instead, units in changed:
        requests.pop(resource, None)
        requests[instead] = units
    pods = list(work.pods)
    # Whole GPUs are counted as they are held; of parts it stays the GPUs that they are of.
    shares = any(instead in (GPU_MEMORY, GPU_FRACTION) for _, instead, _ in changed)
    charged = part.charged if shares else None
    pods[at] = replace(part, pod=replace(part.pod, requests=requests), charged=charged)
    return replace(work, pods=tuple(pods))
