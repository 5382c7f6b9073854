"""ResourceClaims: what they ask for, what they were given, and which pods use them.

Pure, and lenient as `dra` is. Times are Unix seconds.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Struct, field

from apps.clusters.domain.devices.dra import PublishedDevice, amounts
from apps.clusters.domain.kube_json import KubePod, items, mapping, number, seconds, text
from apps.clusters.domain.observed.objects import ClaimRequest
from apps.clusters.domain.pods.ledger import ClaimAllocationRecord, ClaimedDevice, Owner, PodRecord
from apps.clusters.domain.resources import GPU_DRIVERS

CLAIM_KIND = "ResourceClaim"
"""Kind of the workload that stands for a claim itself in the pod ledger."""

_INSTANT = 1e-3

FindDevice = Callable[[str, str, str], PublishedDevice | None]
"""Finds a device by (driver, pool, name); None while nothing publishes it."""

IsGpuClass = Callable[[str], bool]


class DeviceAllocation(Struct, frozen=True):
    """A device that a claim was given; `consumed` is by capacity name, empty: all of it."""

    request: str
    driver: str
    pool: str
    device: str
    consumed: tuple[tuple[str, float], ...] = ()
    admin: bool = False


class AllocationResult(Struct, frozen=True):
    """What a claim was given; `at` is None where the object does not tell when.

    `written` is when who allocated it last wrote to it: no sooner than the allocation, and the
    nearest to it that servers before 1.34 tell.
    """

    results: tuple[DeviceAllocation, ...]
    node: str = ""
    at: float | None = None
    written: float | None = None


class ClaimState(Struct, frozen=True):
    """A ResourceClaim as it was seen once; `allocation` is None while it has none."""

    uid: str
    namespace: str
    name: str
    requests: tuple[ClaimRequest, ...] = ()
    allocation: AllocationResult | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What pods name it by: (namespace, name)."""
        return (self.namespace, self.name)


def claim_state(item: object) -> ClaimState | None:
    """Return what a ResourceClaim says; None for what is none."""
    metadata = mapping(item, "metadata")
    uid, name = text(metadata.get("uid")), text(metadata.get("name"))
    if not uid or not name:
        return None
    requests = items(mapping(item, "spec", "devices").get("requests"))
    return ClaimState(
        uid=uid,
        namespace=text(metadata.get("namespace")),
        name=name,
        requests=tuple(one for request in requests for one in _requests(request)),
        allocation=_allocation(item),
    )


def _requests(request: Mapping[str, Any]) -> Iterator[ClaimRequest]:
    """Yield a request: of v1 and v1beta2 under `exactly`, of v1beta1 flat; or its alternatives."""
    name = text(request.get("name"))
    alternatives = items(request.get("firstAvailable"))
    for other in alternatives:
        yield _request(other, f"{name}/{text(other.get('name'))}", of=name)
    if not alternatives:
        yield _request(mapping(request, "exactly") or request, name, of=name)


def _request(body: Mapping[str, Any], name: str, *, of: str) -> ClaimRequest:
    every = body.get("allocationMode") == "All"
    return ClaimRequest(
        name=name,
        device_class=text(body.get("deviceClassName")),
        count=None if every else max(1, number(body.get("count"), 1)),
        admin=body.get("adminAccess") is True,
        of=of,
        selectors=tuple(
            text(mapping(one, "cel").get("expression")) for one in items(body.get("selectors"))
        ),
    )


def _allocation(item: object) -> AllocationResult | None:
    found = mapping(item, "status", "allocation")
    results = tuple(_results(items(mapping(found, "devices").get("results"))))
    if not results:
        return None
    at = seconds(found.get("allocationTimestamp"))
    return AllocationResult(results, _node(found), at, _written(item))


def _results(results: Iterable[Mapping[str, Any]]) -> Iterator[DeviceAllocation]:
    for result in results:
        driver = text(result.get("driver"))
        consumed = amounts(mapping(result, "consumedCapacity"), driver)
        yield DeviceAllocation(
            request=text(result.get("request")),
            driver=driver,
            pool=text(result.get("pool")),
            device=text(result.get("device")),
            consumed=tuple(sorted(consumed.items())),
            admin=result.get("adminAccess") is True,
        )


def _written(item: object) -> float | None:
    # Managed fields name who wrote which part of an object, and when, to the second.
    for entry in items(mapping(item, "metadata").get("managedFields")):
        if "f:allocation" in mapping(entry, "fieldsV1", "f:status"):
            return seconds(entry.get("time"))
    return None


def _node(allocation: Mapping[str, Any]) -> str:
    """Return the one node that an allocation is for; empty where it is not for one."""
    named = set()
    for term in items(mapping(allocation, "nodeSelector").get("nodeSelectorTerms")):
        wishes = [*items(term.get("matchFields")), *items(term.get("matchExpressions"))]
        for wish in wishes:
            values = wish.get("values")
            if wish.get("key") in {"metadata.name", "kubernetes.io/hostname"} and (
                isinstance(values, list) and len(values) == 1
            ):
                named.add(text(values[0]))
    return named.pop() if len(named) == 1 else ""


# ---------------------------------------------------------------- in GPUs


def claimed_devices(
    claim: ClaimState, find: FindDevice, is_gpu_class: IsGpuClass
) -> tuple[ClaimedDevice, ...]:
    """Return the GPUs and parts of GPUs that a claim was given, in the order of its results.

    What is given for administration consumes nothing and is left out (facts, section 6.5). A
    device that nothing publishes is a GPU by its driver or class; its model is empty then.
    """
    if claim.allocation is None:
        return ()
    found = (_claimed(claim, result, find, is_gpu_class) for result in claim.allocation.results)
    return tuple(device for device in found if device is not None)


def _claimed(
    claim: ClaimState, result: DeviceAllocation, find: FindDevice, is_gpu_class: IsGpuClass
) -> ClaimedDevice | None:
    request = _asked_by(claim, result.request)
    if result.admin or (request is not None and request.admin):
        return None
    name = request.device_class if request is not None else ""
    device = find(result.driver, result.pool, result.device)
    if device is None:
        # A slice may be gone before its claim is: driver and class still tell that it was a GPU.
        if result.driver not in GPU_DRIVERS and not is_gpu_class(name):
            return None
        return ClaimedDevice(name or result.driver, f"{result.pool}/{result.device}", "", "")
    if not device.is_gpu:
        return None
    return ClaimedDevice(
        device_class=name or result.driver,
        card=device.gpu,
        profile=device.profile,
        model=device.model,
        share=_share(result, device),
    )


def _asked_by(claim: ClaimState, name: str) -> ClaimRequest | None:
    return next((request for request in claim.requests if request.name == name), None)


def _share(result: DeviceAllocation, device: PublishedDevice) -> float:
    """Return what part of a device is consumed, by the capacity of which most is; 1 if untold."""
    parts = [
        used / device.capacity[name]
        for name, used in result.consumed
        if device.capacity.get(name, 0.0) > 0
    ]
    return min(1.0, max(parts)) if parts else 1.0


def requested_devices(
    claim: ClaimState, find: FindDevice, is_gpu_class: IsGpuClass
) -> dict[str, float]:
    """Return device class → devices that a claim requests, of GPU classes alone.

    Of alternatives the allocated one counts, before allocation the first. A request for all devices
    counts what it was given, and one until then.
    """
    units: dict[str, float] = {}
    for request in _chosen(claim):
        given = _given(claim, request)
        gpus = _gpus(claim, given, find, is_gpu_class)
        # What was given is certain. Until then the class alone says whether these are GPUs.
        if request.admin or not (gpus if given else is_gpu_class(request.device_class)):
            continue
        count = request.count if request.count is not None else max(1, gpus)
        units[request.device_class] = units.get(request.device_class, 0.0) + count
    return units


def _gpus(
    claim: ClaimState,
    results: Iterable[DeviceAllocation],
    find: FindDevice,
    is_gpu_class: IsGpuClass,
) -> int:
    return sum(_claimed(claim, result, find, is_gpu_class) is not None for result in results)


def _chosen(claim: ClaimState) -> Iterator[ClaimRequest]:
    """Yield one of the alternatives of each request."""
    by_request: dict[str, list[ClaimRequest]] = {}
    for request in claim.requests:
        by_request.setdefault(request.of, []).append(request)
    for alternatives in by_request.values():
        served = [request for request in alternatives if _given(claim, request)]
        yield (served or alternatives)[0]


def _given(claim: ClaimState, request: ClaimRequest) -> list[DeviceAllocation]:
    results = () if claim.allocation is None else claim.allocation.results
    return [result for result in results if result.request == request.name]


# ---------------------------------------------------------------- over time


def claim_record(
    claim: ClaimState, devices: tuple[ClaimedDevice, ...], *, node: str, seen: float
) -> ClaimAllocationRecord:
    """Return the record of an allocation first seen at `seen`.

    It began when it says, by the server's clock as all times of pods; else no later than seen.
    """
    allocation = claim.allocation
    at, written = (allocation.at, allocation.written) if allocation else (None, None)
    first = seen if written is None else min(written, seen)
    return ClaimAllocationRecord(
        uid=claim.uid,
        namespace=claim.namespace,
        name=claim.name,
        node=node,
        allocated=first if at is None else at,
        released=None,
        devices=devices,
    )


def is_same(
    record: ClaimAllocationRecord, allocation: AllocationResult, devices: tuple[ClaimedDevice, ...]
) -> bool:
    """Say whether a record is of this allocation, by its time, else by the devices given."""
    if allocation.at is not None:
        return abs(allocation.at - record.allocated) < _INSTANT
    # Before slices come devices have no model, so that equal ones look different.
    if not (is_resolved(devices) and is_resolved(record.devices)):
        return True
    return devices == record.devices


def is_resolved(devices: Iterable[ClaimedDevice]) -> bool:
    """Say whether all of these devices were found in slices."""
    return all(device.model for device in devices)


def holder(record: ClaimAllocationRecord, *, since: float | None = None) -> PodRecord:
    """Return the row by which a claim itself stands in the pod ledger: it never runs.

    `since` is when it was first allocated, where it was freed and allocated again.
    """
    requests: dict[str, float] = {}
    for device in record.devices:
        requests[device.device_class] = requests.get(device.device_class, 0.0) + 1.0
    bound = record.allocated if since is None else min(since, record.allocated)
    return PodRecord(
        uid=record.uid,
        namespace=record.namespace,
        name=record.name,
        owner=Owner(CLAIM_KIND, record.name),
        requests=requests,
        created=bound,
        node=record.node,
        bound=bound,
        deleted=record.released,
        end_reason="Released" if record.released is not None else "",
    )


class ClaimUnits(NamedTuple):
    """A claim that a pod names: its uid and device class → units, of GPU classes alone."""

    uid: str
    requests: Mapping[str, float]


class PodClaims(Struct, frozen=True):
    """What a pod requests by claims.

    `containers` are those that use a claim of GPUs, `served` the (container, resource) that an
    extended resource's claim serves, so that they are no request of their own. `unknown` are the
    names of claims that were never observed.
    """

    requests: Mapping[str, float] = field(default_factory=dict)
    uids: tuple[str, ...] = ()
    containers: frozenset[str] = frozenset()
    served: frozenset[tuple[str, str]] = frozenset()
    unknown: frozenset[str] = frozenset()


NO_CLAIMS = PodClaims()


def claim_names(item: Mapping[str, Any]) -> frozenset[str]:
    """Return the names, in the pod's namespace, of the claims that it is to use.

    One that is yet to be made from a template has none.
    """
    return frozenset(use.claim for use in KubePod.of(item).claim_uses if use.claim)


def names_claims(pod: Mapping[str, Any]) -> bool:
    """Say whether a pod requests anything by claims."""
    # Asked of every pod of a cluster, of which few do.
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    return bool(spec.get("resourceClaims") or status.get("extendedResourceClaimStatus"))


def pod_claims(
    item: Mapping[str, Any],
    find: Callable[[str], ClaimUnits | None],
    *,
    remembered: PodRecord | None = None,
) -> PodClaims:
    """Return what a pod requests by its claims; `find` looks one up by name.

    Claims go when their pod is over: one that is not found counts as `remembered` has the pod.
    """
    requests: dict[str, float] = {}
    uids, unknown, used = set[str](), set[str](), set[str]()
    served: frozenset[tuple[str, str]] = frozenset()
    pod = KubePod.of(item)
    entries = {use.name: use.claim for use in pod.claim_uses if use.claim and use.name}
    extended = text(_extended(pod).get("resourceClaimName"))
    asks = {name: find(name) for name in claim_names(pod)}
    for name, ask in asks.items():
        if ask is None:
            unknown.add(name)
        elif ask.requests:
            uids.add(ask.uid)
            for device_class, units in ask.requests.items():
                requests[device_class] = requests.get(device_class, 0.0) + units
    missing = set[str]()
    if unknown and remembered is not None and remembered.claims:
        missing = unknown
        uids.update(remembered.claims)
        for resource, units in remembered.requests.items():
            # What was known of all claims together: parts of it may be found again, never more.
            requests[resource] = max(units, requests.get(resource, 0.0))
    gpus = {name for name, ask in asks.items() if ask is not None and ask.requests} | missing
    used.update(_users(pod, {entry for entry, name in entries.items() if name in gpus}))
    if extended in gpus:
        served = frozenset(_mapped(pod))
        used.update(container for container, _ in served)
    return PodClaims(requests, tuple(sorted(uids)), frozenset(used), served, frozenset(unknown))


def _extended(pod: KubePod) -> Mapping[str, Any]:
    return mapping(pod.status, "extendedResourceClaimStatus")


def _mapped(pod: KubePod) -> Iterator[tuple[str, str]]:
    for entry in items(_extended(pod).get("requestMappings")):
        yield text(entry.get("containerName")), text(entry.get("resourceName"))


def _users(pod: KubePod, words: Collection[str]) -> Iterator[str]:
    """Yield the containers that use a claim of these words of the pod."""
    for container in pod.containers:
        claims = items(mapping(container, "resources").get("claims"))
        if any(text(claim.get("name")) in words for claim in claims):
            yield text(container.get("name"))
