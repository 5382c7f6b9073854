"""What the pods of each node have been promised of it, kept in step as pods come and go."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from apps.clusters.domain.resources import whole_request

PODS = "pods"
_OVER = frozenset({"Succeeded", "Failed"})

_Request = tuple[tuple[str, float], ...]


class NodeUse:
    """The request of every bound pod that is not over, by node; `dirty` are nodes that changed."""

    def __init__(self) -> None:
        self.dirty: set[str] = set()
        self._pods: dict[str, tuple[str, _Request]] = {}
        self._of_node: dict[str, set[str]] = defaultdict(set)
        # Many pods ask for the same: it is kept once.
        self._shared: dict[_Request, _Request] = {}

    def seen(self, pod: Mapping[str, Any]) -> None:
        """Take in a pod as it is."""
        uid, spec = str(pod["metadata"]["uid"]), pod.get("spec") or {}
        node = str(spec.get("nodeName") or "")
        if not node or (pod.get("status") or {}).get("phase") in _OVER:
            self.gone(uid)
            return
        known = self._pods.get(uid)
        if known is not None and known[0] == node:
            # What a bound pod asks for is settled, but for a resize in place.
            request = self._request(spec)
            if request is known[1]:
                return
        else:
            request = self._request(spec)
            if known is not None:
                self.gone(uid)
        self._pods[uid] = (node, request)
        self._of_node[node].add(uid)
        self.dirty.add(node)

    def gone(self, uid: str) -> None:
        """Take in that a pod is gone or over."""
        known = self._pods.pop(uid, None)
        if known is not None:
            self._of_node[known[0]].discard(uid)
            self.dirty.add(known[0])

    def keep_only(self, uids: Collection[str]) -> None:
        """Drop all pods but these."""
        for uid in self._pods.keys() - set(uids):
            self.gone(uid)

    def used(self, node: str) -> dict[str, float]:
        """Return resource → amount promised to the pods of a node, `pods` being their number."""
        uids = self._of_node.get(node)
        if not uids:
            return {PODS: 0.0}
        total: dict[str, float] = {}
        for resource, units in self._units(uids):
            total[resource] = total.get(resource, 0.0) + units
        # Sums in any order must come out alike, or nodes would seem to change.
        return {r: round(n, 6) for r, n in sorted(total.items())} | {PODS: float(len(uids))}

    def _units(self, uids: Iterable[str]) -> Iterable[tuple[str, float]]:
        return (pair for uid in uids for pair in self._pods[uid][1])

    def _request(self, spec: Mapping[str, Any]) -> _Request:
        found = tuple(whole_request(spec).items())
        return self._shared.setdefault(found, found)
