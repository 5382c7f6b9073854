"""The top controller of pods, found by following ownerReferences through the API server."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from apps.clusters.domain.pods.ledger import PLURALS, Owner, OwnerReference, controller_of, named_by
from apps.clusters.ports import ClusterSource, SourceRejected, SourceUnavailable

logger = logging.getLogger(__name__)

# After a relist thousands of pods need their owners: a GET for each would take minutes.
LIST_FROM = 20
# Anybody may write ownerReferences, also of two objects that own each other.
_LONGEST = 8
# Owners remembered at once; jobs come and go by the thousand a day.
MOST_OWNERS = 100_000

# What is known of an owner, by its uid: its own controller, None when it is the top itself.
Parents = dict[str, OwnerReference | None]


class OwnerLookup:
    """Resolves owners in bulk and remembers them by uid.

    An owner that is gone or may not be read ends the chain: the pod then belongs to the nearest
    owner known. Many unknown owners of one kind are read as one list.
    """

    def __init__(self, source: ClusterSource, most: int = MOST_OWNERS) -> None:
        self._most = most
        self._source = source
        self._parents: Parents = {}
        self._unreadable: set[str] = set()
        self._denied: set[tuple[str, str]] = set()
        self._unlistable: set[str] = set()
        self._plurals: dict[tuple[str, str], tuple[str, bool]] = {}

    def forget(self) -> None:
        """Start anew, so that rights granted since are used and memory does not grow."""
        self._parents.clear()
        self._unreadable.clear()
        self._denied.clear()
        self._unlistable.clear()
        self._plurals.clear()

    def top_owners(self, pods: Iterable[Mapping[str, Any]]) -> dict[str, Owner]:
        """Return pod uid → top controller; a pod without a controller is its own."""
        if len(self._parents) + len(self._unreadable) > self._most:
            self._parents.clear()
            self._unreadable.clear()
        chains = {p["metadata"]["uid"]: (p["metadata"], controller_of(p)) for p in pods}
        self._climb((m.get("namespace", ""), ref) for m, ref in chains.values() if ref)
        return {uid: self._top(metadata, ref) for uid, (metadata, ref) in chains.items()}

    def _top(self, metadata: Mapping[str, Any], reference: OwnerReference | None) -> Owner:
        if reference is None:
            return Owner("Pod", str(metadata["name"]))
        for _ in range(_LONGEST):
            above = self._parents.get(reference.uid)
            if above is None:
                break
            reference = above
        if reference.uid in self._parents:
            return Owner(reference.kind, reference.name)
        return named_by(reference, metadata.get("labels") or {})

    def _climb(self, references: Iterable[tuple[str, OwnerReference]]) -> None:
        """Read owners level by level until every chain ends in a top or an unreadable owner."""
        level = set(references)
        for _ in range(_LONGEST):
            unknown = {
                (namespace, ref)
                for namespace, ref in level
                if ref.uid not in self._parents and ref.uid not in self._unreadable
            }
            self._read(unknown)
            level = {
                (namespace, above)
                for namespace, ref in level
                if (above := self._parents.get(ref.uid)) is not None
            }
            if not level:
                return

    def _read(self, unknown: set[tuple[str, OwnerReference]]) -> None:
        kinds: dict[tuple[str, str], list[tuple[str, OwnerReference]]] = defaultdict(list)
        for namespace, ref in sorted(unknown, key=lambda item: (item[0], item[1].name)):
            kinds[ref.api_version, ref.kind].append((namespace, ref))
        for kind, wanted in kinds.items():
            if kind in self._denied:
                continue
            try:
                self._read_kind(wanted)
            except SourceRejected as error:
                # No right to read this kind: its pods stay with the nearest owner known.
                logger.warning("owners of kind %s are not resolved: %s", kind[1], error)
                self._denied.add(kind)
            except SourceUnavailable as error:
                # Not remembered: the next look at one of these pods asks again.
                logger.warning("owners of kind %s are not resolved now: %s", kind[1], error)

    def _read_kind(self, wanted: list[tuple[str, OwnerReference]]) -> None:
        plural, namespaced = self._plural(wanted[0][1])
        group = wanted[0][1].group_path
        if len(wanted) >= LIST_FROM:
            self._read_list(f"{group}/{plural}")
        for namespace, ref in wanted:
            if ref.uid in self._parents:
                continue
            place = f"/namespaces/{namespace}" if namespaced else ""
            found = self._source.get(f"{group}{place}/{plural}/{ref.name}")
            if found is not None and found["metadata"].get("uid") == ref.uid:
                self._parents[ref.uid] = controller_of(found)
            else:
                # Gone, or of the same name and another life.
                self._unreadable.add(ref.uid)

    def _read_list(self, path: str) -> None:
        """Read a whole kind; where only single objects may be read, they are asked for by name."""
        if path in self._unlistable:
            return
        try:
            items = self._source.list(path).items
        except SourceRejected as error:
            logger.warning("%s is read one by one: %s", path, error)
            self._unlistable.add(path)
            return
        for item in items:
            self._parents[str(item["metadata"]["uid"])] = controller_of(item)

    def _plural(self, ref: OwnerReference) -> tuple[str, bool]:
        """Return a kind's plural and whether its objects live in namespaces."""
        if ref.kind in PLURALS:
            return PLURALS[ref.kind], True
        key = (ref.api_version, ref.kind)
        if key not in self._plurals:
            known = self._source.get(ref.group_path) or {}
            for resource in known.get("resources") or ():
                if resource.get("kind") == ref.kind and "/" not in resource.get("name", "/"):
                    self._plurals[key] = (resource["name"], bool(resource.get("namespaced")))
        if key not in self._plurals:
            raise SourceRejected(f"the server does not know {ref.kind} of {ref.api_version}")
        return self._plurals[key]
