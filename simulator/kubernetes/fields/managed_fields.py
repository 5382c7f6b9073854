"""Who manages which fields of an object, as the API server keeps it in `managedFields`."""

from typing import Any

from simulator.scheduler.store import Object, copied, rfc3339

_Tree = dict[str, Any]
_NOT_MANAGED = frozenset({"kind", "apiVersion", "status"})
_OF_METADATA = frozenset({"labels", "annotations"})
_LEFT_EMPTY = frozenset({"f:hard"})
"""Maps that stay with their earlier owner when another takes the last key (Kubernetes 1.36.2)."""


def managed(old: Object | None, new: Object, manager: str, at: int) -> None:
    """Enter in place that a manager set what differs from `old`; others lose those fields."""
    changed = _changed(_owned(old or {}), _owned(new))
    before = (old or {}).get("metadata", {}).get("managedFields", [])
    entries: list[Object] = [copied(entry) for entry in before]
    mine = next((e for e in entries if (e["manager"], e["operation"]) == (manager, "Update")), None)
    for entry in entries:
        if entry is not mine:
            _without(entry["fieldsV1"], changed)
    entries = [entry for entry in entries if entry["fieldsV1"]]
    if changed:
        if mine is None:
            mine = {
                "manager": manager,
                "operation": "Update",
                "apiVersion": new["apiVersion"],
                "time": "",
                "fieldsType": "FieldsV1",
                "fieldsV1": {},
            }
            entries.append(mine)
        _joined(mine["fieldsV1"], changed)
        mine["time"] = rfc3339(at)
    if entries:
        new["metadata"]["managedFields"] = entries


def _owned(item: Object) -> Object:
    """Return the part of an object that managers own."""
    found = {key: value for key, value in item.items() if key not in _NOT_MANAGED}
    metadata = item.get("metadata", {})
    found["metadata"] = {key: metadata[key] for key in _OF_METADATA if metadata.get(key)}
    return found


def _changed(old: Any, new: Any) -> _Tree:
    """Return the fields of `new` that `old` has not, or otherwise; those that went are no one's."""
    found: _Tree = {}
    for key, value in new.items():
        before = old.get(key) if isinstance(old, dict) else None
        if value == before:
            continue
        inner = isinstance(value, dict) and value
        found[f"f:{key}"] = _changed(before or {}, value) if inner else {}
    return found


def _without(tree: _Tree, gone: _Tree) -> None:
    for key, inner in gone.items():
        if key not in tree:
            continue
        if inner:
            _without(tree[key], inner)
            if not tree[key] and key not in _LEFT_EMPTY:
                del tree[key]
        else:
            del tree[key]


def _joined(tree: _Tree, more: _Tree) -> None:
    for key, inner in more.items():
        _joined(tree.setdefault(key, {}), inner)
