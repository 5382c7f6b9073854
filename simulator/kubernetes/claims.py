"""Objects of dynamic resource allocation as a real API server writes them (resource.k8s.io/v1)."""

from collections.abc import Iterator, Sequence

from simulator import identity
from simulator.fleet import Claim, Device, Node, Pod, Sharing
from simulator.kubernetes.objects import Object, rfc3339, version
from simulator.prometheus.exporters.dcgm import dra_device_name

GROUP = "resource.k8s.io"
API_VERSION = f"{GROUP}/v1"
DRIVER = "gpu.nvidia.com"
CLASSES = {"gpu.nvidia.com": "gpu", "mig.nvidia.com": "mig"}
"""Device classes, each with the type of device that it selects."""


def class_object(name: str, created: int) -> Object:
    chosen = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == "
    return {
        "kind": "DeviceClass",
        "apiVersion": API_VERSION,
        "metadata": {
            "name": name,
            "uid": identity.uid("device class", name, created),
            "resourceVersion": version(created),
            "generation": 1,
            "creationTimestamp": rfc3339(created),
        },
        "spec": {"selectors": [{"cel": {"expression": f"{chosen}'{CLASSES[name]}'"}}]},
    }


def slice_object(node: Node, at: int) -> Object:
    """Return the ResourceSlice by which a node offers its GPUs and instances."""
    state = node.state(at)
    name = f"{node.name}-{DRIVER}-{identity.suffix(5, node.name, 'slice')}"
    return {
        "kind": "ResourceSlice",
        "apiVersion": API_VERSION,
        "metadata": {
            "name": name,
            "generateName": f"{node.name}-{DRIVER}-",
            "uid": identity.uid("resource slice", node.name, node.created),
            "resourceVersion": version(max(node.created, state.since)),
            "generation": 1,
            "creationTimestamp": rfc3339(node.created),
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "name": node.name,
                    "uid": identity.uid("node", node.name, node.devices[0].uuid),
                    "controller": True,
                }
            ],
        },
        "spec": {
            "driver": DRIVER,
            "nodeName": node.name,
            "pool": {"name": node.name, "generation": 1, "resourceSliceCount": 1},
            "devices": list(_devices(node, state.unhealthy, state.since)),
        },
    }


def _devices(node: Node, unhealthy: Sequence[int], since: int) -> Iterator[Object]:
    for device in node.devices:
        found = [_whole(node, device)]
        if device.instances:
            found = [_instance(node, device, place) for place in range(len(device.instances))]
        for one in found:
            if device.index in unhealthy:
                taint = {"key": f"{DRIVER}/unhealthy", "value": "xid", "effect": "NoSchedule"}
                one["taints"] = [{**taint, "timeAdded": rfc3339(since)}]
            yield one


def _whole(node: Node, device: Device) -> Object:
    return {
        "name": dra_device_name(device, -1),
        "attributes": {
            **_common(node, device),
            "type": {"string": "gpu"},
            "uuid": {"string": device.uuid},
        },
        "capacity": {"memory": {"value": f"{node.gpu.board_mib if node.gpu else 81_920}Mi"}},
    }


def _instance(node: Node, device: Device, place: int) -> Object:
    instance = device.instances[place]
    return {
        "name": dra_device_name(device, place),
        "attributes": {
            **_common(node, device),
            "parentUUID": {"string": device.uuid},
            "profile": {"string": instance.profile},
            "type": {"string": "mig"},
            "uuid": {"string": instance.uuid},
        },
        "capacity": {"memory": {"value": f"{instance.visible_mib}Mi"}},
    }


def _common(node: Node, device: Device) -> Object:
    gpu = node.gpu
    return {
        "architecture": {"string": gpu.family.capitalize() if gpu else "Ampere"},
        "brand": {"string": "Nvidia"},
        "cudaDriverVersion": {"version": "13.0.0"},
        "driverVersion": {"version": node.labels["nvidia.com/cuda.driver-version.full"]},
        "productName": {"string": node.model},
        "resource.kubernetes.io/pciBusID": {"string": device.pci_bus_id[4:].lower()},
    }


def claim_object(claim: Claim, node: Node | None, pods: Sequence[Pod], at: int) -> Object:
    """Return a claim as of `at`; `pods` are those that ever use it, `node` has its devices."""
    changes = [claim.created, claim.allocated, claim.released, claim.deleted]
    for pod in pods:
        changes += [pod.bound, pod.released]
    metadata: Object = {
        "name": claim.name,
        "namespace": claim.namespace,
        "uid": claim.uid,
        "resourceVersion": version(max(time for time in changes if time <= at)),
        "creationTimestamp": rfc3339(claim.created),
    }
    if claim.template and pods:
        metadata["annotations"] = {"resource.kubernetes.io/pod-claim-name": "gpu"}
        metadata["ownerReferences"] = [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": pods[0].name,
                "uid": pods[0].uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
    return {
        "kind": "ResourceClaim",
        "apiVersion": API_VERSION,
        "metadata": metadata,
        "spec": {"devices": {"requests": [_request(claim)]}},
        "status": _status(claim, node, pods, at),
    }


def _request(claim: Claim) -> Object:
    exactly: Object = {
        "deviceClassName": claim.device_class,
        "allocationMode": "ExactCount",
        "count": claim.count,
    }
    if claim.admin:
        exactly["adminAccess"] = True
    return {"name": "gpu", "exactly": exactly}


def _status(claim: Claim, node: Node | None, pods: Sequence[Pod], at: int) -> Object:
    if node is None or not claim.allocated <= at < claim.released:
        return {}
    status: Object = {
        "allocation": {
            "devices": {"results": [_result(claim, node, n) for n in range(len(claim.devices))]},
            "nodeSelector": {
                "nodeSelectorTerms": [
                    {
                        "matchFields": [
                            {"key": "metadata.name", "operator": "In", "values": [node.name]}
                        ]
                    }
                ]
            },
            "allocationTimestamp": rfc3339(claim.allocated),
        }
    }
    users = [
        {"resource": "pods", "name": pod.name, "uid": pod.uid}
        for pod in pods
        if pod.bound <= at < pod.released
    ]
    return {**status, "reservedFor": users} if users else status


def _result(claim: Claim, node: Node, number: int) -> Object:
    instance = claim.instances[number] if claim.instances else -1
    device = node.devices[claim.devices[number]]
    result: Object = {
        "request": "gpu",
        "driver": DRIVER,
        "pool": node.name,
        "device": dra_device_name(device, instance),
    }
    return {**result, "adminAccess": True} if claim.admin else result


def offers(nodes: Sequence[Node]) -> Iterator[Node]:
    """Yield the nodes that offer devices by ResourceSlices."""
    return (node for node in nodes if node.sharing is Sharing.DRA)
