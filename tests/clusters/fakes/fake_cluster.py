"""An API server in memory: the port `ClusterSource` for tests of whoever uses it."""

import copy
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from apps.clusters.ports import (
    Listing,
    ObjectChange,
    SourceHealth,
    SourceRejected,
    SourceUnavailable,
    WatchExpired,
)

Failure = SourceUnavailable | SourceRejected | WatchExpired


class FakeCluster:
    """Objects by collection path, with versions that grow, a history to watch, and failures.

    `patience` is how long a watch without news lasts, in seconds; 0 ends it at once.
    """

    def __init__(self, *, patience: float = 0.0) -> None:
        self._objects: dict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
        self._history: dict[str, list[tuple[int, ObjectChange]]] = defaultdict(list)
        self._failures: dict[str, list[Failure]] = defaultdict(list)
        self._version = 100
        self._oldest = 0
        self._patience = patience
        self._closed = False
        self._news = threading.Condition()
        self.calls: list[tuple[str, str]] = []

    # ------------------------------------------------------------ what a test does to it

    def put(self, path: str, item: Mapping[str, Any]) -> dict[str, Any]:
        """Create or replace an object of a collection, by uid; return it with its version."""
        with self._news:
            known = item["metadata"]["uid"] in self._objects[path]
            stored = self._stamped(item)
            self._objects[path][item["metadata"]["uid"]] = stored
            self._tell(path, "MODIFIED" if known else "ADDED", stored)
            return stored

    def known(self, path: str, uid: str) -> bool:
        """Say whether an object is there."""
        return uid in self._objects[path]

    def remove(self, path: str, uid: str) -> None:
        """Delete an object; its last state is what the watch shows."""
        with self._news:
            stored = self._stamped(self._objects[path].pop(uid))
            self._tell(path, "DELETED", stored)

    def bookmark(self, path: str) -> None:
        """Send the present version to who watches a collection."""
        with self._news:
            self._version += 1
            mark = {"metadata": {"resourceVersion": str(self._version)}}
            self._tell(path, "BOOKMARK", mark)

    def fail(self, verb: str, error: Failure) -> None:
        """Let the next call of list, watch or get raise `error`."""
        self._failures[verb].append(error)

    def expire(self) -> None:
        """Forget all versions until now: who watches from them gets a 410."""
        with self._news:
            self._version += 1
            self._oldest = self._version

    # ------------------------------------------------------------ the port

    def list(self, path: str) -> Listing:
        """Return the objects of a collection."""
        self._call("list", path)
        with self._news:
            return Listing(list(self._objects[path].values()), str(self._version))

    def version(self, path: str) -> str:
        """Return the newest version."""
        self._call("version", path)
        with self._news:
            return str(self._version)

    def watch(self, path: str, *, resource_version: str) -> Iterator[ObjectChange]:
        """Yield what happened after that version, and what happens within `patience`."""
        self._call("watch", path)
        version = int(resource_version)
        while True:
            with self._news:
                self._check_known(version)
                news = [entry for entry in self._history[path] if entry[0] > version]
                if not news and not self._news.wait(self._patience):
                    return
                if self._closed:
                    raise SourceUnavailable("this connection was closed")
            for at, change in news:
                version = at
                yield change

    def get(self, path: str) -> Mapping[str, Any] | None:
        """Return the object at `…/namespaces/NAMESPACE/PLURAL/NAME`, or whatever was put there."""
        self._call("get", path)
        with self._news:
            parts = path.split("/")
            collection = "/".join(parts[:-1])
            if "namespaces" in parts[:-2]:
                at = parts.index("namespaces")
                collection = "/".join([*parts[:at], *parts[at + 2 : -1]])
            for item in self._objects[collection].values():
                if item["metadata"]["name"] == parts[-1]:
                    return item
            return None

    def health(self) -> SourceHealth:
        """Return a version that no real server has."""
        self._call("health", "/version")
        return SourceHealth(version="v0.0.0-fake")

    def close(self) -> None:
        """End every watch."""
        with self._news:
            self._closed = True
            self._news.notify_all()

    # ------------------------------------------------------------ inside

    def _call(self, verb: str, path: str) -> None:
        self.calls.append((verb, path))
        if self._failures[verb]:
            raise self._failures[verb].pop(0)

    def _check_known(self, version: int) -> None:
        if version < self._oldest:
            raise WatchExpired(f"too old resource version: {version} ({self._oldest})")

    def _stamped(self, item: Mapping[str, Any]) -> dict[str, Any]:
        self._version += 1
        stored: dict[str, Any] = copy.deepcopy(dict(item))
        stored["metadata"]["resourceVersion"] = str(self._version)
        return stored

    def _tell(self, path: str, kind: str, item: Mapping[str, Any]) -> None:
        self._history[path].append((self._version, ObjectChange(kind, item)))
        self._news.notify_all()
