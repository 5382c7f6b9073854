"""Quantities, and what pods ask for."""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache

from simulator.scheduler.store import Object

Amounts = Mapping[str, float]
_QUANTITY = re.compile(r"([+-]?[0-9]+(?:\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i)?\Z")
_SUFFIXES: Mapping[str, Fraction | int] = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "k": 10**3,
    "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60,
}  # fmt: skip


def quantity(text: object) -> float:
    """Return a Kubernetes quantity as a number; raises ValueError for what is none."""
    return _read(str(text))


@lru_cache(maxsize=4096)
def _read(text: str) -> float:
    match = _QUANTITY.match(text)
    if not match:
        raise ValueError(f"not a quantity: {text!r}")
    return float(Fraction(match[1]) * Fraction(_SUFFIXES.get(match[2] or "", 1)))


def written(amount: float) -> str:
    """Return an amount as a quantity."""
    if amount == math.floor(amount):
        whole = int(amount)
        if whole >= 2**30 and whole % 2**30 == 0:
            return f"{whole // 2**30}Gi"
        return str(whole)
    return f"{round(amount * 1000)}m"


def total(parts: Iterable[Amounts]) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for part in parts:
        for name, amount in part.items():
            found[name] += amount
    return dict(found)


def requests_of(spec: Object) -> dict[str, float]:
    """Return what a pod of this spec requests: its containers together, or its largest start."""
    asked = [_container_requests(container) for container in spec.get("containers", [])]
    found = total(asked)
    for container in spec.get("initContainers", []):
        for name, amount in _container_requests(container).items():
            found[name] = max(found.get(name, 0.0), amount)
    return found


def _container_requests(container: Object) -> dict[str, float]:
    resources = container.get("resources") or {}
    merged = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: quantity(text) for name, text in merged.items()}


def is_over(pod: Object) -> bool:
    """Say whether a pod has ended, and holds nothing any more."""
    return pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}


def is_bound(pod: Object) -> bool:
    return bool(pod["spec"].get("nodeName"))
