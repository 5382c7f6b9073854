"""RFC 6902 as far as the portal uses it, written from the RFC: what a server does with a patch."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any


class PatchFailed(Exception):
    """A test did not hold or a path is not there; then nothing is changed."""


def patched(document: Mapping[str, Any], operations: Iterable[Mapping[str, Any]]) -> Any:
    """Return the document after all operations, or raise PatchFailed."""
    result = copy.deepcopy(dict(document))
    for operation in operations:
        holder, key = _place(result, operation["path"])
        if operation["op"] == "test":
            found, wanted = holder[key], operation["value"]
            if type(found) is not type(wanted) or found != wanted:
                raise PatchFailed(operation["path"])
        elif operation["op"] == "replace":
            holder[key] = operation["value"]
        else:
            raise AssertionError(f"the portal never uses {operation['op']}")
    return result


def _place(document: Any, pointer: str) -> tuple[Any, Any]:
    steps = [s.replace("~1", "/").replace("~0", "~") for s in pointer.split("/")[1:]]
    holder = document
    for step in steps[:-1]:
        holder = holder[_key(holder, step)]
    key = _key(holder, steps[-1])
    return holder, key


def _key(holder: Any, step: str) -> Any:
    key: Any = int(step) if isinstance(holder, list) else step
    present = key < len(holder) if isinstance(holder, list) else key in holder
    if not present:
        raise PatchFailed(step)
    return key
