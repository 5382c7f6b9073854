"""JSON patches (RFC 6902) and merge patches (RFC 7386) of JSON values."""

from typing import Any

from simulator.scheduler.store import copied

Json = Any


class PatchFailed(Exception):
    """A patch that does not fit what it is applied to, or a test in it that fails."""


class MalformedPatch(Exception):
    """What is no patch at all."""


def json_patched(item: Json, operations: Json) -> Json:
    """Return an object with the operations applied in their order; raises as above."""
    if not isinstance(operations, list):
        raise MalformedPatch("a JSON patch is a list of operations")
    found = copied(item)
    for one in operations:
        if not isinstance(one, dict) or not isinstance(one.get("path"), str):
            raise MalformedPatch("an operation needs op and path")
        _operate(found, one)
    return found


def merge_patched(item: Json, patch: Json) -> Json:
    """Return an object merged with a patch: null removes, lists are replaced."""
    if not isinstance(patch, dict):
        return copied(patch)
    found = copied(item) if isinstance(item, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merge_patched(found.get(key), value)
    return found


def _operate(item: Json, one: dict[str, Any]) -> None:
    kind, path = one.get("op"), _parts(one["path"])
    if not path:
        raise PatchFailed("the whole object cannot be operated on")
    if kind in {"move", "copy"}:
        origin = _parts(str(one.get("from", "")))
        value = copied(_at(item, origin))
        if kind == "move":
            _remove(item, origin)
        _add(item, path, value)
    elif kind == "add":
        _add(item, path, copied(one.get("value")))
    elif kind == "remove":
        _remove(item, path)
    elif kind == "replace":
        _at(item, path)
        _put(item, path, copied(one.get("value")))
    elif kind == "test":
        if _at(item, path) != one.get("value"):
            raise PatchFailed(f"testing path {one['path']} failed")
    else:
        raise MalformedPatch(f"unexpected kind: {kind}")


def _parts(path: str) -> list[str]:
    if path and not path.startswith("/"):
        raise MalformedPatch(f"not a JSON pointer: {path}")
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _at(item: Json, path: list[str]) -> Json:
    for part in path:
        if isinstance(item, dict) and part in item:
            item = item[part]
        elif isinstance(item, list) and part.isdecimal() and int(part) < len(item):
            item = item[int(part)]
        else:
            raise PatchFailed(f"missing path: {part}")
    return item


def _add(item: Json, path: list[str], value: Json) -> None:
    parent, last = _at(item, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list) and (
        last == "-" or (last.isdecimal() and int(last) <= len(parent))
    ):
        parent.insert(len(parent) if last == "-" else int(last), value)
    else:
        raise PatchFailed(f"missing path: {last}")


def _put(item: Json, path: list[str], value: Json) -> None:
    parent, last = _at(item, path[:-1]), path[-1]
    parent[int(last) if isinstance(parent, list) else last] = value


def _remove(item: Json, path: list[str]) -> None:
    _at(item, path)
    parent, last = _at(item, path[:-1]), path[-1]
    del parent[int(last) if isinstance(parent, list) else last]
