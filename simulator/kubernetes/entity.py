"""One object of the Kubernetes API over its life."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from simulator.fleet import FOREVER
from simulator.kubernetes.objects import Object


class Entity(Struct, frozen=True):
    """One object over its life; `changes` are the times, in order, at which it is another.

    `render` returns it as of a time from `created` up to and including `deleted`. `of_faults` marks
    what the fault scenarios show as they would be, without any change from outside.
    """

    namespace: str
    name: str
    created: int
    deleted: int
    changes: Sequence[int]
    render: Callable[[int], Object]
    of_faults: bool = False

    @property
    def key(self) -> str:
        """The name by which lists are ordered and continued."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @classmethod
    def lasting(cls, found: Object, created: int) -> "Entity":
        """Return what is always as it was made."""
        metadata = found["metadata"]
        namespace = metadata.get("namespace", "")
        return cls(namespace, metadata["name"], created, FOREVER, (created,), lambda _: found)
