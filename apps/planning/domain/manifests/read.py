"""A manifest's text as what it submits."""

from collections.abc import Iterable, Iterator, Sequence

from apps.accounts.domain.structs import replace
from apps.clusters.domain.kube_json import JsonObject, mapping, text
from apps.clusters.domain.pods.kube_objects import queue_name
from apps.planning.domain.manifests.documents import Document, read_documents
from apps.planning.domain.manifests.kinds import ONE_AFTER_THE_OTHER, is_of_volcano, pods_of
from apps.planning.domain.manifests.pod_specs import check_texts
from apps.planning.domain.manifests.submissions import (
    MOST_PODS,
    Manifest,
    PodTemplate,
    Reader,
    Submission,
    of_labels,
)

_CLAIM, _CLAIM_TEMPLATE = "ResourceClaim", "ResourceClaimTemplate"
_PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
_GROUP_LABEL = "kueue.x-k8s.io/pod-group-name"
_GROUP_SIZE = "kueue.x-k8s.io/pod-group-total-count"
_MOST_NAMED = 20


def read_manifest(manifest: str) -> Manifest:
    """Return what a text of YAML or JSON submits. Raises ManifestError, and nothing else."""
    submissions: list[Submission] = []
    claims: list[JsonObject] = []
    templates: list[JsonObject] = []
    others: list[str] = []
    documents = read_documents(manifest)
    for item in (one for document in documents for one in _objects(document)):
        kind = item.text("kind")
        if not kind:
            raise item.error("is missing", "kind")
        if kind in (_CLAIM, _CLAIM_TEMPLATE):
            # A template has the spec of its claims within its own.
            inner = ("spec",) if kind == _CLAIM else ("spec", "spec")
            item.required(*inner).objects("devices", "requests")
            (claims if kind == _CLAIM else templates).append(item.body)
            continue
        pods = pods_of(kind, item)
        # One that names a template of another object makes pods, but which is not in the manifest.
        if pods:
            submissions.append(_submission(kind, item, pods))
        else:
            others.append(kind)
    if not submissions:
        # Claims alone are asked for by a pod that has nothing else.
        submissions = [_of_claim(one, _CLAIM) for one in claims]
        submissions += [_of_claim(one, _CLAIM_TEMPLATE) for one in templates]
    if not submissions:
        named = ", ".join(sorted(set(others))[:_MOST_NAMED]) or "none"
        raise documents[0].error(f"no object in it makes pods ({named[:200]})", "kind")
    kinds = tuple(dict.fromkeys(others))[:_MOST_NAMED]
    return Manifest(tuple(_pod_groups(submissions)), tuple(claims), tuple(templates), kinds)


def _objects(document: Document) -> Iterator[Reader]:
    """Yield the objects of a document: itself, or those of a List."""
    whole = Reader(document)
    if whole.text("kind").endswith("List") and "items" in document.body:
        yield from whole.objects("items")
    else:
        yield whole


def _submission(kind: str, item: Reader, pods: list[PodTemplate]) -> Submission:
    metadata = item.maybe("metadata")
    own: JsonObject = {} if metadata is None else metadata.body
    if metadata is not None:
        for key in ("name", "generateName", "namespace"):
            metadata.text(key)
        check_texts(metadata)
    # A CronJob names its queue on the Jobs that it makes.
    of_job = mapping(item.body, "spec", "jobTemplate", "metadata")
    labels = of_labels(own, of_job, *(one.metadata for one in pods))
    # Jobs of Kubeflow name a queue of Volcano here, and suspend here too.
    policy = mapping(item.body, "spec", "runPolicy", "schedulingPolicy")
    if is_of_volcano(item):
        policy = mapping(item.body, "spec")
    return Submission(
        kind=kind,
        name=text(own.get("name")) or text(own.get("generateName")) or "unnamed",
        namespace=text(own.get("namespace")),
        templates=tuple(pods),
        metadata=labels,
        queue=queue_name(labels) or text(policy.get("queue")),
        priority_class=text(mapping(labels, "labels").get(_PRIORITY_LABEL))
        or next((name for one in pods if (name := text(one.spec.get("priorityClassName")))), ""),
        parallel=kind not in ONE_AFTER_THE_OTHER,
        together=_together(policy, pods, whole=is_of_volcano(item)),
        suspended=any(
            mapping(item.body, *path).get("suspend") is True
            for path in (("spec",), ("spec", "runPolicy"))
        ),
    )


def _together(policy: JsonObject, pods: Sequence[PodTemplate], *, whole: bool) -> int:
    """Return how many pods have to start together; `whole`: all where the policy does not tell."""
    total = sum(one.count or 0 for one in pods)
    # Its kind has checked it.
    least = policy.get("minAvailable", total if whole else 0)
    return min(least, total) if isinstance(least, int) else 0


def _pod_groups(submissions: Iterable[Submission]) -> list[Submission]:
    """Return the submissions; pods of one group of Kueue as one, since it admits them together."""
    found: dict[tuple[str, ...], Submission] = {}
    for at, one in enumerate(submissions):
        group = text(mapping(one.metadata, "labels").get(_GROUP_LABEL)) if one.kind == "Pod" else ""
        key = (one.namespace, group) if group else (str(at),)
        before = found.get(key)
        templates = one.templates if before is None else (*before.templates, *one.templates)
        found[key] = one if not group else replace(before or one, name=group, templates=templates)
    return [_whole_group(one) if len(key) > 1 else one for key, one in found.items()]


def _whole_group(group: Submission) -> Submission:
    """Return a group with like pods as one template; pods that it lacks are as its last ones."""
    alike: list[PodTemplate] = []
    for one in group.templates:
        at = next((at for at, other in enumerate(alike) if other.spec == one.spec), None)
        if at is None:
            alike.append(one)
        else:
            alike[at] = replace(alike[at], count=(alike[at].count or 0) + 1)
    size = text(mapping(group.metadata, "annotations").get(_GROUP_SIZE))
    # Of a number with thousands of digits the first are enough to see that it is too large.
    wanted = min(int(size[:8]), MOST_PODS) if size.isascii() and size.isdigit() else 0
    missing = max(0, wanted - len(group.templates))
    alike[-1] = replace(alike[-1], count=(alike[-1].count or 0) + missing)
    templates = tuple(
        replace(one, gang=one.count or 1, role="" if len(alike) == 1 else f"pods {at}")
        for at, one in enumerate(alike, 1)
    )
    return replace(group, templates=templates)


def _of_claim(claim: JsonObject, kind: str) -> Submission:
    metadata = mapping(claim, "metadata")
    name = text(metadata.get("name")) or "unnamed"
    use = "resourceClaimName" if kind == _CLAIM else "resourceClaimTemplateName"
    pod: JsonObject = {"containers": [{}], "resourceClaims": [{"name": "claim", use: name}]}
    return Submission(kind, name, text(metadata.get("namespace")), (PodTemplate(pod),))
