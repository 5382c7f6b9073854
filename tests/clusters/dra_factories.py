"""Small objects of resource.k8s.io for tests, in the form of each served version."""

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from tests.clusters.kube_factories import T0, rfc3339

GPUS = "gpu.nvidia.com"
MODEL = "NVIDIA GB200"
GPU_UUID = "GPU-0b200000-0000-4000-8000-00000000000{}"

Object = dict[str, Any]


def gpu(index: int = 0, **more: Any) -> Object:
    """Return a whole GPU; `more` are fields of the device."""
    attributes = {"type": "gpu", "uuid": GPU_UUID.format(index), "productName": MODEL}
    return device(f"gpu-{index}", attributes, capacity={"memory": "189471Mi"}, **more)


def mig(index: int = 0, place: int = 0, *, profile: str = "1g.23gb", **more: Any) -> Object:
    """Return a MIG device of that GPU, with a UUID of its own."""
    attributes = {
        "type": "mig",
        "uuid": f"MIG-{index}-{place}-{profile}",
        "parentUUID": GPU_UUID.format(index),
        "profile": profile,
        "productName": MODEL,
    }
    return device(f"gpu-{index}-mig-{profile}-{place}", attributes, **more)


def device(
    name: str,
    attributes: Mapping[str, Any],
    *,
    capacity: Mapping[str, str] | None = None,
    **more: Any,
) -> Object:
    """Return a device of v1; values of attributes are texts, numbers or truths."""
    kinds: dict[type, str] = {str: "string", int: "int", bool: "bool"}
    return {
        "name": name,
        "attributes": {key: {kinds[type(v)]: v} for key, v in attributes.items()},
        "capacity": {key: {"value": v} for key, v in (capacity or {}).items()},
        **more,
    }


def slice_of(
    *devices: Object,
    node: str | None = "node-a",
    driver: str = GPUS,
    pool: str = "",
    generation: int = 1,
    count: int = 1,
    uid: str = "",
    version: str = "v1",
    **spec: Any,
) -> Object:
    """Return a ResourceSlice."""
    name = pool or node or "pool"
    if version == "v1beta1":
        devices = tuple(
            {"name": d["name"], "basic": {k: v for k, v in d.items() if k != "name"}}
            for d in devices
        )
    return {
        "metadata": {"uid": uid or f"uid-slice-{driver}-{name}", "name": f"{name}-{driver}"},
        "spec": {
            "driver": driver,
            "pool": {"name": name, "generation": generation, "resourceSliceCount": count},
            **({"nodeName": node} if node else {"allNodes": True}),
            "devices": list(devices),
            **spec,
        },
    }


def class_of(name: str = GPUS, *expressions: str, kind: str = "gpu", **spec: Any) -> Object:
    """Return a DeviceClass; without expressions, of the NVIDIA devices of a kind."""
    texts = expressions or (
        f"device.driver == '{GPUS}' && device.attributes['{GPUS}'].type == '{kind}'",
    )
    selectors = [{"cel": {"expression": text}} for text in texts]
    return {
        "metadata": {"uid": f"uid-class-{name}", "name": name},
        "spec": {"selectors": selectors, **spec},
    }


def request(
    name: str = "gpu",
    *,
    device_class: str = GPUS,
    count: int | None = 1,
    version: str = "v1",
    **body: Any,
) -> Object:
    """Return a request of a claim; `count` None asks for all there are."""
    mode = {"allocationMode": "All"} if count is None else {"count": count}
    asked = {"deviceClassName": device_class, **mode, **body}
    return {"name": name, **asked} if version == "v1beta1" else {"name": name, "exactly": asked}


def result(device: str = "gpu-0", request: str = "gpu", *, pool: str = "", **more: Any) -> Object:
    """Return a device that was given."""
    return {
        "request": request,
        "driver": GPUS,
        "pool": pool or "node-a",
        "device": device,
        **more,
    }


def claim(
    name: str = "one",
    *results: Object,
    uid: str = "",
    namespace: str = "vision",
    requests: Sequence[Object] | None = None,
    at: float | None = 5,
    written: float | None = None,
    node: str = "node-a",
) -> Object:
    """Return a ResourceClaim, allocated at T0 + `at` where it has results."""
    allocation: Object = {"devices": {"results": list(results)}}
    if node:
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    if at is not None:
        allocation["allocationTimestamp"] = rfc3339(T0 + at)
    metadata: Object = {"uid": uid or f"uid-claim-{name}", "name": name, "namespace": namespace}
    if written is not None:
        fields: Object = {"f:status": {"f:allocation": {}}}
        metadata["managedFields"] = [
            {"time": rfc3339(T0), "fieldsV1": {"f:spec": {}}},
            {"time": rfc3339(T0 + written), "fieldsV1": fields},
        ]
    return {
        "metadata": metadata,
        "spec": {"devices": {"requests": list(requests or [request()])}},
        "status": {"allocation": allocation} if results else {},
    }


def using(*claims: str, template: bool = False) -> dict[str, Any]:
    """Return the fields of a pod that uses claims of these names, its words for them the same."""
    source = "resourceClaimTemplateName" if template else "resourceClaimName"
    uses = [{"name": name} for name in claims]
    return {
        "containers": [{"name": "main", "resources": {"claims": uses}}],
        "spec": {"resourceClaims": [{"name": name, source: name} for name in claims]},
    }


def group(*versions: str) -> Object:
    """Return the discovery document of resource.k8s.io."""
    return {
        "metadata": {"uid": "uid-group", "name": "resource.k8s.io"},
        "versions": [{"version": version} for version in versions],
    }


def odd_objects(words: st.SearchStrategy[str]) -> st.SearchStrategy[object]:
    """Return what a server could send in place of an object: of any shape, by known names."""
    return st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=5),
        max_leaves=30,
    )
