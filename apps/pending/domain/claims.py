"""ResourceClaims that a pod waits for: missing, of no class, or of no device that would do."""

from collections.abc import Mapping
from dataclasses import dataclass

from apps.clusters.domain.observed.objects import (
    ClaimSnapshot,
    EventSnapshot,
    ObservedKind,
    ObservedObject,
    PodSnapshot,
)
from apps.pending.domain.causes import Cause
from apps.pending.domain.cluster_index import ClusterIndex, bodies, plain
from apps.pending.domain.diagnosis import Action, Diagnosis, Suggestion
from apps.pending.domain.placement.refusals import refusal
from apps.pending.domain.wording import count, listed

MISSING = "missing"
TEMPLATE = "not made from its template"
NO_CLASS = "class missing"
NOT_ALLOCATABLE = "not allocatable"
IN_USE = "in use"
_NO_CLASS = "device class "


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a cluster by namespace and name."""

    by_name: Mapping[tuple[str, str], tuple[ObservedObject, ClaimSnapshot]]

    def of(self, namespace: str, pod: PodSnapshot) -> list[tuple[ObservedObject, ClaimSnapshot]]:
        """Return the claims that a pod names and that are there."""
        keys = [(namespace, use.claim) for use in pod.claims if use.claim]
        return [self.by_name[key] for key in keys if key in self.by_name]


def claims_of(index: ClusterIndex) -> Claims:
    """Return the claims seen of a cluster."""
    seen = bodies(index.state.of(ObservedKind.RESOURCE_CLAIM), ClaimSnapshot)
    return Claims({(one.namespace, one.name): (one, claim) for one, claim in seen})


def unmade(
    namespace: str, pod: PodSnapshot, claims: Claims, events: list[EventSnapshot]
) -> Diagnosis | None:
    """Return what is the matter when a claim of the pod is not there; None when all are."""
    failed = next((e for e in events if e.reason == "FailedResourceClaimCreation"), None)
    for use in pod.claims:
        if not use.claim:
            return _not_made(namespace, use.template, failed)
        if (namespace, use.claim) not in claims.by_name:
            return Diagnosis(
                Cause.CLAIM,
                MISSING,
                f"Names the ResourceClaim {use.claim}, which does not exist.",
                suggestions=(
                    Suggestion(
                        Action.CREATE_CLAIM,
                        f"Create the ResourceClaim {namespace}/{use.claim}.",
                        {"namespace": namespace, "name": use.claim},
                    ),
                ),
            )
    return None


def _not_made(namespace: str, template: str, failed: EventSnapshot | None) -> Diagnosis:
    said = plain(failed.message) if failed is not None else ""
    why = refusal(said) if said else None
    steps = []
    if why is not None and why.cause is Cause.QUOTA and why.quota:
        for key, limit in sorted(why.limited.items()):
            to = why.used.get(key, 0.0) + why.requested.get(key, 0.0)
            if to <= limit:
                continue
            steps.append(
                Suggestion(
                    Action.RAISE_QUOTA,
                    f"Raise {key} of quota {why.quota} from {limit:g} to {to:g}.",
                    {
                        "namespace": namespace,
                        "quota": why.quota,
                        "key": key,
                        "from": limit,
                        "to": to,
                    },
                )
            )
    else:
        name = template or "its claim"
        steps.append(
            Suggestion(
                Action.WAIT if why is None else Action.CREATE_CLAIM,
                f"See why no ResourceClaim is made from {name}."
                if why
                else f"Wait for the ResourceClaim from {name} to be made.",
                {"namespace": namespace, "name": template} if why else {"what": "claim"},
            )
        )
    held = f": quota {why.quota} is full" if why is not None and why.quota else ""
    return Diagnosis(
        Cause.CLAIM,
        TEMPLATE,
        f"Its ResourceClaim is not made from the template {template}{held}.",
        said,
        suggestions=tuple(steps),
    )


def unallocated(
    namespace: str, pod: PodSnapshot, claims: Claims, texts: list[str], free_devices: int
) -> Diagnosis:
    """Return why the scheduler could not allocate the claims of a pod.

    `texts` are its reasons about claims, `free_devices` how many of the classes are free.
    """
    missing = next((t for t in texts if _NO_CLASS in t and "not exist" in t), "")
    if missing:
        name = missing.partition(_NO_CLASS)[2].partition(" ")[0]
        return Diagnosis(
            Cause.CLAIM,
            NO_CLASS,
            f"Asks for devices of the class {name}, which does not exist.",
            suggestions=(
                Suggestion(
                    Action.CREATE_CLASS,
                    f"Create the DeviceClass {name}, or ask for one that exists.",
                    {"device_class": name},
                ),
            ),
        )
    there = claims.of(namespace, pod)
    waiting = [(s, c) for s, c in there if c.allocated is None] or there
    return Diagnosis(
        Cause.CLAIM,
        IN_USE if any("in use" in t or "being allocated" in t for t in texts) else NOT_ALLOCATABLE,
        _why(waiting, free_devices),
        suggestions=tuple(_change(seen, claim) for seen, claim in waiting[:3]),
    )


def _why(waiting: list[tuple[ObservedObject, ClaimSnapshot]], free_devices: int) -> str:
    selectors = [text for _, claim in waiting for one in claim.requests for text in one.selectors]
    names = listed([seen.name for seen, _ in waiting]) or "of the pod"
    if selectors:
        return (
            f"No device meets what the ResourceClaim {names} asks for ({listed(selectors)});"
            f" {count(free_devices, 'device')} of its class are free."
        )
    return f"The scheduler cannot allocate the ResourceClaim {names}."


def _change(seen: ObservedObject, claim: ClaimSnapshot) -> Suggestion:
    name = claim.requests[0].device_class if claim.requests else ""
    selectors = [text for one in claim.requests for text in one.selectors]
    what = f"Change the selector of the ResourceClaim {seen.name} ({listed(selectors)})"
    return Suggestion(
        Action.CHANGE_CLAIM,
        f"{what if selectors else f'Change the ResourceClaim {seen.name}'}: no device meets it.",
        {"namespace": seen.namespace, "name": seen.name, "device_class": name},
    )
