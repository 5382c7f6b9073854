"""Parts that objects of several kinds share, read leniently: what is odd counts as absent."""

from collections.abc import Iterator, Mapping
from typing import Any

from apps.clusters.domain.json_fields import items, mapping, seconds, text
from apps.clusters.domain.observed.objects import (
    ClaimUse,
    Condition,
    Expression,
    Placement,
    Taint,
    Toleration,
)
from apps.clusters.domain.resources import all_amounts, quantity, whole_request

_MOST = 2**53
"""The largest whole number that every reader of JSON takes for what it is."""

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

Fields = Mapping[str, Any]


def number(value: object, default: int = 0) -> int:
    """Return a whole number of a size that can be stored, else the default."""
    if not isinstance(value, int) or isinstance(value, bool):
        return default
    return max(-_MOST, min(_MOST, value))


def amount(value: object) -> float | None:
    """Return a quantity as a number; None where there is none or it cannot be read."""
    try:
        return None if value is None else quantity(value)
    except ValueError:
        return None


def amounts(value: object) -> dict[str, float]:
    """Return resource → amount of what can be read."""
    found = all_amounts(mapping(value))
    return {text(resource): units for resource, units in found.items() if text(resource)}


def words(value: object) -> dict[str, str]:
    """Return texts by text, as labels are."""
    found = mapping(value)
    return {text(k): text(v) for k, v in found.items() if text(k) and isinstance(v, str)}


def texts(value: object) -> tuple[str, ...]:
    """Return the texts of a list."""
    return tuple(text(v) for v in value if text(v)) if isinstance(value, list | tuple) else ()


def conditions(status: object) -> tuple[Condition, ...]:
    """Return the conditions of a status, in its order."""
    return tuple(
        Condition(
            type=text(one.get("type")),
            status=text(one.get("status")),
            reason=text(one.get("reason")),
            message=text(one.get("message")),
            since=seconds(one.get("lastTransitionTime")),
        )
        for one in items(mapping(status).get("conditions"))
        if text(one.get("type"))
    )


def condition(status: object, kind: str) -> Condition | None:
    """Return the condition of a type; None where the status has none."""
    return next((one for one in conditions(status) if one.type == kind), None)


def created(item: object) -> float:
    """Return when an object was made, 0 where it does not say."""
    return seconds(mapping(item, "metadata").get("creationTimestamp")) or 0.0


def taints(value: object) -> tuple[Taint, ...]:
    """Return taints, as of a node or a flavor."""
    found = (
        Taint(text(one.get("key")), text(one.get("value")), text(one.get("effect")))
        for one in items(value)
    )
    return tuple(taint for taint in found if taint.key)


def tolerations(value: object) -> tuple[Toleration, ...]:
    """Return tolerations, as of a pod or a flavor."""
    return tuple(
        Toleration(
            key=text(one.get("key")),
            operator=text(one.get("operator")) or "Equal",
            value=text(one.get("value")),
            effect=text(one.get("effect")),
        )
        for one in items(value)
    )


# ---------------------------------------------------------------- what a pod, or a template, asks


def request(spec: object) -> dict[str, float]:
    """Return resource → amount that a pod of this spec holds, CPU (cores) and memory (bytes) too.

    The spec may be of an object that nobody has checked, as one of a CustomResourceDefinition.
    """
    checked: dict[str, Any] = {
        key: [_container(one) for one in items(mapping(spec).get(key))]
        for key in ("containers", "initContainers")
    }
    checked["resources"] = _resources(spec)
    checked["overhead"] = mapping(spec, "overhead")
    found = whole_request(checked)
    return {text(r): units for r, units in found.items() if isinstance(r, str) and text(r)}


def _container(container: Fields) -> Fields:
    return {
        "restartPolicy": text(container.get("restartPolicy")),
        "resources": _resources(container),
    }


def _resources(item: object) -> Fields:
    kinds = ("limits", "requests")
    found = {kind: mapping(item, "resources", kind) for kind in kinds}
    return found if any(found.values()) else {}


def placement(spec: object, *, pod: str = "") -> Placement:
    """Return where a pod of this spec may go; `pod` is its name, which some volumes are named by.

    A toleration of a time only (`tolerationSeconds`) counts as one for good.
    """
    found = mapping(spec)
    affinity = mapping(found, "affinity")
    return Placement(
        node_selector=words(found.get("nodeSelector")),
        affinity=_terms(mapping(affinity, "nodeAffinity", _REQUIRED)),
        tolerations=tolerations(found.get("tolerations")),
        volumes=tuple(_volume_claims(found, pod)),
    )


def _terms(required: Fields) -> tuple[tuple[Expression, ...], ...]:
    terms = items(required.get("nodeSelectorTerms"))
    # A term without a wish fits no node: it is as if it were not there.
    return tuple(wishes for wishes in map(_wishes, terms) if wishes)


def _wishes(term: Fields) -> tuple[Expression, ...]:
    return tuple(
        Expression(
            key=text(one.get("key")),
            operator=text(one.get("operator")),
            values=texts(one.get("values")),
            field=of_field,
        )
        for key, of_field in (("matchExpressions", False), ("matchFields", True))
        for one in items(term.get(key))
        if text(one.get("key"))
    )


def _volume_claims(spec: Fields, pod: str) -> Iterator[str]:
    """Yield the PersistentVolumeClaims of a pod; one made for it alone is named after it."""
    for volume in items(spec.get("volumes")):
        name = text(mapping(volume, "persistentVolumeClaim").get("claimName"))
        if name:
            yield name
        elif pod and mapping(volume, "ephemeral"):
            yield f"{pod}-{text(volume.get('name'))}"


def claim_uses(pod: object) -> tuple[ClaimUse, ...]:
    """Return how a pod names ResourceClaims, the one that serves its resources last.

    One that was found to need no claim (a status without a name) still counts as not made.
    """
    made = {
        text(one.get("name")): text(one.get("resourceClaimName"))
        for one in items(mapping(pod, "status").get("resourceClaimStatuses"))
    }
    uses = [
        ClaimUse(
            name=text(one.get("name")),
            claim=text(one.get("resourceClaimName")) or made.get(text(one.get("name")), ""),
            template=text(one.get("resourceClaimTemplateName")),
        )
        for one in items(mapping(pod, "spec").get("resourceClaims"))
    ]
    extended = mapping(pod, "status", "extendedResourceClaimStatus")
    serving = text(extended.get("resourceClaimName"))
    if serving:
        uses.append(ClaimUse(name="", claim=serving))
    return tuple(uses)
