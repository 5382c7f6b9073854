"""The collections of the Kubernetes API: what is in each, when it changes, how it looks then."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from apps.lab import kube_claims
from apps.lab.fleet import FOREVER, Claim, Controller, Pod
from apps.lab.kube_objects import (
    Object,
    controller_object,
    event_times,
    namespace_object,
    node_object,
    quota_object,
    scheduling_event,
)
from apps.lab.kube_pods import pod_object
from apps.lab.laps import NEVER, Lap
from apps.lab.scenarios.base import Quota, Scenario

EVENT_SECONDS = 3600
"""How long an event is kept (the API server's default)."""


@dataclass(frozen=True, slots=True)
class Entity:
    """One object over its life; `changes` are the times, in order, at which it is another.

    `render` returns it as of a time from `created` up to and including `deleted`.
    """

    namespace: str
    name: str
    created: int
    deleted: int
    changes: Sequence[int]
    render: Callable[[int], Object]

    @property
    def key(self) -> str:
        """The name by which lists are ordered and continued."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


Source = Callable[[Scenario, int, int], Iterator[Entity]]
"""Gives the entities that exist at some time in start..end (both included)."""


@dataclass(frozen=True, slots=True)
class Collection:
    group_version: str
    plural: str
    kind: str
    namespaced: bool
    source: Source

    @property
    def prefix(self) -> str:
        """The path under which it is served."""
        return "/api/v1" if self.group_version == "v1" else f"/apis/{self.group_version}"


def _pods(scenario: Scenario, start: int, end: int) -> Iterator[Entity]:
    for lap in scenario.laps(start, end):
        for pod in lap.pods_between(start, end):
            yield _pod(pod)


def _pod(pod: Pod) -> Entity:
    times = {pod.created, pod.bound, pod.started, pod.finished, pod.deleted} - {FOREVER}
    changes = sorted(at for at in times if at <= pod.deleted)
    return Entity(
        pod.namespace, pod.name, pod.created, pod.deleted, changes, partial(pod_object, pod)
    )


def _events(scenario: Scenario, start: int, end: int) -> Iterator[Entity]:
    for lap in scenario.laps(start - EVENT_SECONDS, end):
        for pod in lap.pods_between(start - EVENT_SECONDS, end):
            for at in event_times(pod):
                gone = at + EVENT_SECONDS
                if at <= end and gone > start:
                    event = scheduling_event(pod, at)
                    name = event["metadata"]["name"]
                    yield Entity(pod.namespace, name, at, gone, (at, gone), _always(event))


def _nodes(scenario: Scenario, start: int, end: int) -> Iterator[Entity]:
    for node in scenario.nodes:
        changes = sorted({node.created, *(state.since for state in node.states)})
        render = partial(node_object, node)
        yield Entity("", node.name, node.created, FOREVER, changes, render)


def _namespaces(scenario: Scenario, start: int, end: int) -> Iterator[Entity]:
    for namespace in scenario.namespaces:
        found = namespace_object(namespace)
        yield _lasting("", namespace.name, namespace.created, found)


def _quotas(scenario: Scenario, start: int, end: int) -> Iterator[Entity]:
    laps = list(scenario.laps(start, end))
    for quota in scenario.quotas:
        changes = sorted({quota.created, *_quota_changes(laps, quota, start, end)})
        yield Entity(
            quota.namespace,
            quota.name,
            quota.created,
            FOREVER,
            changes,
            partial(_quota_at, scenario, quota),
        )


def _quota_changes(laps: Iterable[Lap], quota: Quota, start: int, end: int) -> Iterator[int]:
    for lap in laps:
        for key in quota.keys:
            for _, steps in quota.counts(lap, key):
                yield from steps.between(start, end)


def _quota_at(scenario: Scenario, quota: Quota, at: int) -> Object:
    lap = scenario.lap_at(at)
    counts: dict[str, dict[str, int]] = {"hard": {}, "used": {}}
    changed = quota.created
    for key in quota.keys:
        for kind, steps in quota.counts(lap, key):
            counts[kind][key] = steps.at(at)
            changed = max(changed, steps.changed(at) or 0)
    return quota_object(quota, **counts, changed=changed)


def _controllers(kind: str) -> Source:
    def entities(scenario: Scenario, start: int, end: int) -> Iterator[Entity]:
        laps = list(scenario.laps(start, end))
        for controller in scenario.controllers_between(start, end):
            if controller.kind == kind:
                yield _controller(scenario, controller, laps, start, end)

    return entities


def _controller(
    scenario: Scenario, controller: Controller, laps: Iterable[Lap], start: int, end: int
) -> Entity:
    counted = scenario.counted(controller)
    changes = {controller.created, controller.deleted} - {FOREVER}
    for lap in laps:
        changes.update(lap.replicas.get(counted.uid, NEVER).between(start, end))
        changes.update(lap.succeeded.get(counted.uid, NEVER).between(start, end))
    return Entity(
        controller.namespace,
        controller.name,
        controller.created,
        controller.deleted,
        sorted(at for at in changes if at <= controller.deleted),
        partial(_controller_at, scenario, controller, counted.uid),
    )


def _controller_at(scenario: Scenario, controller: Controller, uid: str, at: int) -> Object:
    lap = scenario.lap_at(at)
    replicas = lap.replicas.get(uid, NEVER) if lap else NEVER
    succeeded = lap.succeeded.get(uid, NEVER) if lap else NEVER
    last = max(controller.created, replicas.changed(at) or 0, succeeded.changed(at) or 0)
    return controller_object(
        controller,
        replicas=replicas.at(at),
        succeeded=succeeded.at(at),
        changed=controller.deleted if at >= controller.deleted else last,
    )


def _device_classes(scenario: Scenario, start: int, end: int) -> Iterator[Entity]:
    if scenario.claims_served:
        for name in sorted(kube_claims.CLASSES):
            found = kube_claims.class_object(name, scenario.begins)
            yield _lasting("", name, scenario.begins, found)


def _resource_slices(scenario: Scenario, start: int, end: int) -> Iterator[Entity]:
    for node in kube_claims.offers(scenario.nodes):
        changes = sorted({node.created, *(state.since for state in node.states)})
        render = partial(kube_claims.slice_object, node)
        name = render(node.created)["metadata"]["name"]
        yield Entity("", name, node.created, FOREVER, changes, render)


def _resource_claims(scenario: Scenario, start: int, end: int) -> Iterator[Entity]:
    for lap in scenario.laps(start, end):
        for claim in lap.claims:
            if claim.created <= end and claim.deleted >= start:
                yield _claim(scenario, lap, claim)


def _claim(scenario: Scenario, lap: Lap, claim: Claim) -> Entity:
    pods = lap.claimants.get(claim.uid, ())
    node = next((node for node in scenario.nodes if node.name == claim.node), None)
    times = {claim.created, claim.allocated, claim.released, claim.deleted}
    times.update(at for pod in pods for at in (pod.bound, pod.released))
    return Entity(
        claim.namespace,
        claim.name,
        claim.created,
        claim.deleted,
        sorted(at for at in times - {FOREVER} if claim.created <= at <= claim.deleted),
        lambda at: kube_claims.claim_object(claim, node, pods, at),
    )


def _lasting(namespace: str, name: str, created: int, found: Object) -> Entity:
    return Entity(namespace, name, created, FOREVER, (created,), _always(found))


def _always(found: Object) -> Callable[[int], Object]:
    return lambda _: found


COLLECTIONS: Sequence[Collection] = (
    Collection("v1", "nodes", "Node", namespaced=False, source=_nodes),
    Collection("v1", "namespaces", "Namespace", namespaced=False, source=_namespaces),
    Collection("v1", "pods", "Pod", namespaced=True, source=_pods),
    Collection("v1", "resourcequotas", "ResourceQuota", namespaced=True, source=_quotas),
    Collection("v1", "events", "Event", namespaced=True, source=_events),
    *(
        Collection(version, f"{kind.lower()}s", kind, namespaced=True, source=_controllers(kind))
        for version, kind in (
            ("apps/v1", "ReplicaSet"),
            ("apps/v1", "Deployment"),
            ("apps/v1", "StatefulSet"),
            ("batch/v1", "Job"),
            ("batch/v1", "CronJob"),
        )
    ),
)
CLAIM_COLLECTIONS: Sequence[Collection] = tuple(
    Collection(kube_claims.API_VERSION, plural, kind, namespaced=namespaced, source=source)
    for plural, kind, namespaced, source in (
        ("deviceclasses", "DeviceClass", False, _device_classes),
        ("resourceclaims", "ResourceClaim", True, _resource_claims),
        ("resourceslices", "ResourceSlice", False, _resource_slices),
    )
)
"""Those that a cluster has whose nodes offer devices by claim."""


def collections(scenario: Scenario) -> Sequence[Collection]:
    """Return what the API server of a scenario serves."""
    return (*COLLECTIONS, *CLAIM_COLLECTIONS) if scenario.claims_served else COLLECTIONS
