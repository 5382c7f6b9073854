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
from apps.pending.domain.diagnosis import Action, Diagnosis, Sentence, Suggestion, says
from apps.pending.domain.placement.refusals import refusal

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
            missing = says("claim_missing", claim=use.claim)
            change = {"namespace": namespace, "name": use.claim}
            step = Suggestion(Action.CREATE_CLAIM, change)
            return Diagnosis(Cause.CLAIM, MISSING, sentences=(missing,), suggestions=(step,))
    return None


def _not_made(namespace: str, template: str, failed: EventSnapshot | None) -> Diagnosis:
    message = plain(failed.message) if failed is not None else ""
    why = refusal(message) if message else None
    quota = "" if why is None else why.quota
    steps = []
    if why is not None and why.cause is Cause.QUOTA and quota:
        for key, limit in sorted(why.limited.items()):
            to = why.used.get(key, 0.0) + why.requested.get(key, 0.0)
            if to > limit:
                change = {
                    "namespace": namespace,
                    "quota": quota,
                    "key": key,
                    "from": limit,
                    "to": to,
                }
                steps.append(Suggestion(Action.RAISE_QUOTA, change, says("raise_claim_quota")))
    elif why is not None:
        change = {"namespace": namespace, "name": template}
        steps.append(Suggestion(Action.CREATE_CLAIM, change, says("look_at_claim")))
    else:
        wait = says("wait_for_claim", template=template)
        steps.append(Suggestion(Action.WAIT, {"what": "claim"}, wait))
    return Diagnosis(
        Cause.CLAIM,
        TEMPLATE,
        message,
        sentences=(says("claim_not_made", template=template, quota=quota),),
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
        step = Suggestion(Action.CREATE_CLASS, {"device_class": name})
        no_class = says("class_missing", device_class=name)
        return Diagnosis(Cause.CLAIM, NO_CLASS, sentences=(no_class,), suggestions=(step,))
    there = claims.of(namespace, pod)
    waiting = [(s, c) for s, c in there if c.allocated is None] or there
    return Diagnosis(
        Cause.CLAIM,
        IN_USE if any("in use" in t or "being allocated" in t for t in texts) else NOT_ALLOCATABLE,
        sentences=(_why(waiting, free_devices),),
        suggestions=tuple(_change(seen, claim) for seen, claim in waiting[:3]),
    )


def _why(waiting: list[tuple[ObservedObject, ClaimSnapshot]], free_devices: int) -> Sentence:
    selectors = [text for _, claim in waiting for one in claim.requests for text in one.selectors]
    names = [seen.name for seen, _ in waiting]
    if selectors:
        return says("no_device", claims=names, selectors=selectors, free=free_devices)
    return says("not_allocated", claims=names)


def _change(seen: ObservedObject, claim: ClaimSnapshot) -> Suggestion:
    name = claim.requests[0].device_class if claim.requests else ""
    selectors = [text for one in claim.requests for text in one.selectors]
    change = {"namespace": seen.namespace, "name": seen.name, "device_class": name}
    return Suggestion(Action.CHANGE_CLAIM, change, says("change_claim", selectors=selectors))
