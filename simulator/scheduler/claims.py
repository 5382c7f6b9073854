"""ResourceClaims: which devices a node could give to them, and giving them."""

import re
from collections.abc import Iterator

from simulator.scheduler.amounts import quantity
from simulator.scheduler.filters import Machine
from simulator.scheduler.store import Object, Store, rfc3339

_MEMORY = re.compile(
    r"device\.capacity\['([^']+)'\]\.memory\.compareTo\(quantity\('([^']+)'\)\) >= 0"
)
_TYPE = re.compile(r"device\.attributes\['([^']+)'\]\.type == '([^']+)'")
_DRIVER = re.compile(r"device\.driver == '([^']+)'")
Device = tuple[str, Object]
"""Name of the driver, and the device as its slice has it."""


def names_of(pod: Object) -> list[str]:
    """Return the names of the claims that a pod uses, "" for one that is not made yet."""
    made = {
        one["name"]: one.get("resourceClaimName", "")
        for one in pod.get("status", {}).get("resourceClaimStatuses", [])
    }
    return [
        one.get("resourceClaimName") or made.get(one["name"], "")
        for one in pod["spec"].get("resourceClaims", [])
    ]


def claims_of(store: Store, pod: Object) -> list[Object] | None:
    """Return the claims that a pod uses; None while one of them is not there."""
    found = [store.get("resourceclaims", pod["metadata"]["namespace"], n) for n in names_of(pod)]
    return None if any(one is None for one in found) else [one for one in found if one]


def missing_class(store: Store, claims: list[Object]) -> str:
    """Return what the scheduler says of a class that is not there, "" when all are."""
    for claim in claims:
        for request in claim["spec"]["devices"]["requests"]:
            name = request["exactly"]["deviceClassName"]
            if store.get("deviceclasses", "", name) is None:
                return f"request {request['name']}: device class {name} does not exist"
    return ""


def choose(store: Store, claims: list[Object], machine: Machine) -> list[list[Device]] | None:
    """Return devices of a node for each claim that has none yet; None when they do not suffice."""
    taken = set(_taken(store))
    chosen: list[list[Device]] = []
    for claim in claims:
        allocation = claim.get("status", {}).get("allocation")
        if allocation:
            results = allocation["devices"]["results"]
            if any(result["pool"] != machine.name for result in results):
                return None
            chosen.append([])
            continue
        found: list[Device] = []
        for request in claim["spec"]["devices"]["requests"]:
            exactly = request["exactly"]
            fitting = [
                one
                for one in _devices(store, machine)
                if (machine.name, one[1]["name"]) not in taken and _fits(store, exactly, one)
            ]
            count = exactly.get("count", 1)
            if len(fitting) < count:
                return None
            found += fitting[:count]
            taken.update((machine.name, device["name"]) for _, device in fitting[:count])
        chosen.append(found)
    return chosen


def give(store: Store, pod: Object, claim: Object, machine: Machine, devices: list[Device]) -> None:
    """Allocate devices to a claim, unless it has some, and reserve it for a pod."""
    requests = claim["spec"]["devices"]["requests"]
    user = {"resource": "pods", **{key: pod["metadata"][key] for key in ("name", "uid")}}

    def edit(item: Object) -> None:
        status = item.setdefault("status", {})
        if devices:
            results = [
                {
                    "request": requests[0]["name"],
                    "driver": driver,
                    "pool": machine.name,
                    "device": device["name"],
                }
                for driver, device in devices
            ]
            field = {"key": "metadata.name", "operator": "In", "values": [machine.name]}
            status["allocation"] = {
                "devices": {"results": results},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
                "allocationTimestamp": rfc3339(store.now),
            }
        status.setdefault("reservedFor", []).append(user)

    store.change("resourceclaims", claim, edit)


def release(store: Store, pod: Object) -> None:
    """Take an ended pod off its claims; what no pod uses any more is given back."""
    uid = pod["metadata"]["uid"]
    for claim in store.all("resourceclaims", pod["metadata"]["namespace"]):
        users = claim.get("status", {}).get("reservedFor", [])
        kept = [one for one in users if one["uid"] != uid]
        if len(kept) < len(users):
            status = {**claim["status"], "reservedFor": kept} if kept else {}
            store.change("resourceclaims", claim, lambda item, s=status: item.update(status=s))  # type: ignore[misc]


def _taken(store: Store) -> Iterator[tuple[str, str]]:
    for claim in store.all("resourceclaims"):
        allocation = claim.get("status", {}).get("allocation") or {"devices": {"results": []}}
        for result in allocation["devices"]["results"]:
            yield result["pool"], result["device"]


def _devices(store: Store, machine: Machine) -> Iterator[Device]:
    for one in store.all("resourceslices"):
        if one["spec"].get("nodeName") == machine.name:
            for device in one["spec"]["devices"]:
                yield one["spec"]["driver"], device


def _fits(store: Store, exactly: Object, device: Device) -> bool:
    chosen = store.get("deviceclasses", "", exactly["deviceClassName"])
    selectors = [*(chosen or {"spec": {}})["spec"].get("selectors", [])]
    selectors += exactly.get("selectors", [])
    return all(_selected(one["cel"]["expression"], device) for one in selectors)


def _selected(expression: str, device: Device) -> bool:
    """Evaluate the few forms of CEL that the lab's classes and claims are written in."""
    driver, item = device
    for wanted in _DRIVER.findall(expression):
        if wanted != driver:
            return False
    for _, kind in _TYPE.findall(expression):
        if item["attributes"]["type"]["string"] != kind:
            return False
    for _, amount in _MEMORY.findall(expression):
        if quantity(item["capacity"]["memory"]["value"]) < quantity(amount):
            return False
    return True
