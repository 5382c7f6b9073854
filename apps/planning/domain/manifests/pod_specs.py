"""Pod specs of manifests: their amounts and placement are checked."""

from collections.abc import Iterator

from apps.clusters.domain.kube_json import JsonObject
from apps.clusters.domain.resources import parse_quantity
from apps.planning.domain.manifests.submissions import PodTemplate, Reader

_LISTS = ("containers", "initContainers")
_LARGEST = 2.0**63
"""Quantities are whole numbers of 64 bits."""
_OBJECT_LISTS = ("tolerations", "resourceClaims", "schedulingGates", "volumes")
_NODE_TERMS = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")


def pod_template(
    template: Reader, *, count: int | None = 1, role: str = "", gang: int = 1, step: int = 1
) -> PodTemplate:
    """Return the pods of a PodTemplateSpec. Raises ManifestError."""
    spec = template.required("spec")
    check_spec(spec)
    metadata = template.maybe("metadata")
    if metadata is not None:
        check_texts(metadata)
    return PodTemplate(
        spec.body,
        {} if metadata is None else metadata.body,
        count=count,
        role=role,
        gang=gang,
        step=step,
    )


def check_spec(spec: Reader) -> None:
    """Raise ManifestError for what in a pod spec cannot be what Kubernetes takes."""
    if not spec.objects("containers"):
        raise spec.error("at least one container is expected", "containers")
    for container in _containers(spec):
        check_resources(container)
    check_resources(spec)
    _check_of_pod(spec)
    check_placement(spec)
    for key in _OBJECT_LISTS:
        spec.objects(key)
    for key in ("schedulerName", "priorityClassName", "nodeName"):
        spec.text(key)
    overhead = spec.maybe("overhead")
    if overhead is not None:
        _check_amounts(overhead)


def check_texts(metadata: Reader) -> None:
    """Raise ManifestError for labels and annotations that are no texts."""
    for key in ("labels", "annotations"):
        found = metadata.maybe(key)
        if found is not None:
            _check_texts(found)


def _check_texts(found: Reader) -> None:
    for key, value in found.body.items():
        # Kubernetes takes null for an empty text.
        if value is not None and not isinstance(value, str):
            raise found.error("text is expected; put quotes around it", key)


def check_placement(spec: Reader) -> None:
    """Raise ManifestError for a node selector or affinity that is none."""
    selector = spec.maybe("nodeSelector")
    if selector is not None:
        _check_texts(selector)
    required = spec.maybe(*_NODE_TERMS)
    if required is not None:
        for term in required.objects("nodeSelectorTerms"):
            for key in ("matchExpressions", "matchFields"):
                term.objects(key)


def check_resources(holder: Reader, key: str = "resources") -> None:
    """Raise ManifestError for amounts that are no quantities, or that the API server refuses.

    `key` is what the object calls its resources.
    """
    found = check_amounts(holder, key)
    resources = holder.maybe(key)
    if resources is None:
        return
    resources.objects("claims")
    for resource, units in found["requests"].items():
        limit = found["limits"].get(resource)
        # The API server refuses to overcommit what is not its own, as GPUs.
        if "/" in resource and limit != units:
            raise resources.error("must equal its limit", "requests", resource)


def _check_of_pod(spec: Reader) -> None:
    """Raise ManifestError for GPUs of a pod as a whole, which the API server refuses."""
    for kind, amounts in check_amounts(spec).items():
        for resource in amounts:
            if "/" in resource:
                problem = "is of a container, not of the pod as a whole"
                raise spec.error(problem, "resources", kind, resource)


def check_amounts(holder: Reader, key: str = "resources") -> dict[str, dict[str, float]]:
    """Return limits and requests. Raises ManifestError for amounts that are no quantities."""
    resources = holder.maybe(key)
    found: dict[str, dict[str, float]] = {"limits": {}, "requests": {}}
    for kind in found:
        amounts = None if resources is None else resources.maybe(kind)
        if amounts is not None:
            found[kind] = _check_amounts(amounts)
    return found


def _check_amounts(amounts: Reader) -> dict[str, float]:
    found = {}
    for resource, amount in amounts.body.items():
        units = _quantity(amount)
        if units is None or units < 0:
            raise amounts.error("a quantity is expected, as 2 or 16Gi", resource)
        if units > _LARGEST:
            raise amounts.error("is larger than what Kubernetes counts", resource)
        # Extended resources are whole; CPU may be 500m.
        if "/" in resource and units != int(units):
            raise amounts.error("a whole number is expected: GPUs cannot be divided", resource)
        found[resource] = units
    return found


def _quantity(amount: object) -> float | None:
    # True is an int in Python, but no quantity.
    if isinstance(amount, bool) or not isinstance(amount, str | int | float):
        return None
    try:
        return parse_quantity(amount)
    except ValueError:
        return None


def _containers(spec: Reader) -> Iterator[Reader]:
    for key in _LISTS:
        yield from spec.objects(key)


def step_spec(containers: list[JsonObject], *places: JsonObject) -> JsonObject:
    """Return the spec of a pod of these containers, placed as the first of `places` that tells."""
    keys = ("nodeSelector", "tolerations", "affinity", "schedulerName", "priorityClassName")
    spec: dict[str, object] = {"containers": containers}
    for key in keys:
        found = next((one[key] for one in places if one.get(key)), None)
        if found is not None:
            spec[key] = found
    return spec
