"""Names and amounts of GPU resources as Kubernetes and kube-state-metrics write them."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

PREFIXES = ("nvidia.com/gpu", "nvidia.com/mig-", "amd.com/gpu", "gpu.intel.com/")
_MONITORING = "_monitoring"
_MIG_SANITISED = re.compile(r"^nvidia_com_mig_(\dg)_(\d+gb)((?:_me)?(?:_all)?)(_shared)?$")
_KNOWN = (
    "nvidia.com/gpu",
    "nvidia.com/gpu.shared",
    "amd.com/gpu",
    "gpu.intel.com/i915",
    "gpu.intel.com/xe",
)
_SUFFIXES = {
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
}
_QUANTITY = re.compile(r"^([0-9.]+(?:[eE][+-]?[0-9]+)?)(m|k|M|G|Ki|Mi|Gi)?$")


def is_gpu(resource: str, named: Collection[str] = ()) -> bool:
    """Say whether `resource` is a GPU resource: by its prefix, or because a tier names it."""
    return resource in named or (
        resource.startswith(PREFIXES) and not resource.endswith(_MONITORING)
    )


def quantity(text: object) -> float:
    """Return the number that a Kubernetes quantity such as `2`, `1500m` or `1Gi` stands for.

    Raises ValueError for anything else.
    """
    match = _QUANTITY.match(str(text))
    if match is None:
        raise ValueError(f"not a quantity: {text!r}")
    return float(match[1]) * _SUFFIXES.get(match[2] or "", 1.0)


def gpu_amounts(amounts: Mapping[str, object], named: Collection[str] = ()) -> dict[str, float]:
    """Return the GPU resources of a capacity, allocatable or request map, with their units.

    An amount that cannot be read counts as absent: one strange node must not hide the others.
    """
    found = {}
    for resource, amount in amounts.items():
        if not is_gpu(resource, named):
            continue
        try:
            found[resource] = quantity(amount)
        except ValueError:
            continue
    return found


def effective_request(
    containers: Sequence[Mapping[str, Any]],
    init_containers: Sequence[Mapping[str, Any]] = (),
    named: Collection[str] = (),
) -> dict[str, float]:
    """Return resource → units that a pod holds: max(sum of containers, each init step).

    A sidecar (an init container with restartPolicy Always) keeps running: it adds to the
    containers and to every init step after it (facts, section 3.1). Zero units are left out.
    """
    total = _sum(_container_request(c, named) for c in containers)
    sidecars: dict[str, float] = {}
    peak: dict[str, float] = {}
    for container in init_containers:
        request = _container_request(container, named)
        step = _sum((sidecars, request))
        peak = {r: max(peak.get(r, 0.0), step.get(r, 0.0)) for r in peak.keys() | step.keys()}
        if container.get("restartPolicy") == "Always":
            sidecars = step
    running = _sum((total, sidecars))
    both = {r: max(running.get(r, 0.0), peak.get(r, 0.0)) for r in running.keys() | peak.keys()}
    return {r: units for r, units in sorted(both.items()) if units > 0}


def _container_request(container: Mapping[str, Any], named: Collection[str]) -> dict[str, float]:
    resources = container.get("resources") or {}
    return gpu_amounts(
        {**(resources.get("limits") or {}), **(resources.get("requests") or {})}, named
    )


def _sum(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for resource, units in part.items():
            total[resource] = total.get(resource, 0.0) + units
    return total


def sanitise(name: str) -> str:
    """Return `name` as kube-state-metrics writes it: all but letters, digits and _ become _."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def desanitise(name: str, named: Collection[str] = ()) -> str:
    """Return the resource that kube-state-metrics wrote as `name`.

    The mapping is not reversible in general, so known names and those that tiers use are tried
    first, then the shape of MIG names. What stays unknown comes back unchanged.
    """
    for known in (*named, *_KNOWN):
        if sanitise(known) == name:
            return known
    match = _MIG_SANITISED.match(name)
    if match is None:
        return name
    extra = match[3].replace("_", ".")
    return f"nvidia.com/mig-{match[1]}.{match[2]}{extra}{'.shared' if match[4] else ''}"
