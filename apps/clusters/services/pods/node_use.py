"""What the pods of each node have been promised of it, kept in step as pods come and go."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from apps.clusters.domain.observed.store import ObservedStore
from apps.clusters.domain.resources import whole_request

PODS = "pods"
_OVER = frozenset({"Succeeded", "Failed"})

_Request = tuple[tuple[str, float], ...]


class BoundRequest(NamedTuple):
    """What a pod was promised of the node to which it is bound."""

    uid: str
    node: str
    request: _Request


class NodeUse(ObservedStore[BoundRequest]):
    """The request of every bound pod that is not over, by node; `dirty` are nodes that changed."""

    def __init__(self) -> None:
        super().__init__(lambda pod: pod.uid, indexes={"node": lambda pod: (pod.node,)})
        self.dirty: set[str] = set()
        # Many pods ask for the same: it is kept once.
        self._shared: dict[_Request, _Request] = {}

    def apply(self, pod: Mapping[str, Any]) -> None:
        """Apply a pod as it is."""
        uid, spec = str(pod["metadata"]["uid"]), pod.get("spec") or {}
        node = str(spec.get("nodeName") or "")
        if not node or (pod.get("status") or {}).get("phase") in _OVER:
            self.delete(uid)
            return
        # What a bound pod asks for is settled, but for a resize in place.
        found = tuple(whole_request(spec).items())
        bound = BoundRequest(uid, node, self._shared.setdefault(found, found))
        known = self.get(uid)
        if known != bound:
            self._touch(known, bound)
            self.put(bound)

    def delete(self, uid: str) -> None:
        """Drop a pod that is gone or over."""
        self._touch(self.drop(uid))

    def relist(self, uids: Collection[str]) -> None:
        """Drop all pods but these."""
        self._touch(*self.retain(set(uids)))

    def _touch(self, *pods: BoundRequest | None) -> None:
        self.dirty.update(pod.node for pod in pods if pod is not None)

    def used(self, node: str) -> dict[str, float]:
        """Return resource → amount promised to the pods of a node, `pods` being their number."""
        pods = self.by_index("node", node)
        total: dict[str, float] = {}
        for pod in pods:
            for resource, units in pod.request:
                total[resource] = total.get(resource, 0.0) + units
        # Sums in any order must come out alike, or nodes would seem to change.
        return {r: round(n, 6) for r, n in sorted(total.items())} | {PODS: float(len(pods))}
