"""What a path of the Kubernetes API names."""

from typing import NamedTuple

from simulator.kubernetes.entities import Collection
from simulator.kubernetes.status import not_found


class ObjectPath(NamedTuple):
    """What a path names: a collection, perhaps within a namespace, perhaps one object."""

    collection: Collection
    namespace: str = ""
    name: str = ""

    @property
    def key(self) -> str:
        """The name by which lists are ordered."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


ByPrefix = dict[tuple[str, str], Collection]
"""Collections by the path under which they are served, and their plural."""


def object_path(path: str, collections: ByPrefix) -> ObjectPath | None:
    """Return what a path names, None when there is no such collection."""
    parts = path.strip("/").split("/")
    prefix_length = 2 if parts[0] == "api" else 3
    prefix, rest = "/" + "/".join(parts[:prefix_length]), parts[prefix_length:]
    namespace = ""
    if len(rest) >= 3 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    collection = collections.get((prefix, rest[0])) if rest else None
    if collection is None or len(rest) > 2:
        if any(prefix == known for known, _ in collections) and rest:
            raise not_found("", "")
        return None
    if namespace and not collection.namespaced:
        raise not_found("", "")
    name = rest[1] if len(rest) == 2 else ""
    if name and collection.namespaced and not namespace:
        raise not_found("", "")
    return ObjectPath(collection, namespace, name)
