"""Conditions of a status: set, found, and when they turned."""

from simulator.scheduler.store import Object, rfc3339


def condition(item: Object, kind: str) -> Object | None:
    found = item.get("status", {}).get("conditions") or []
    return next((one for one in found if one["type"] == kind), None)


def holds(item: Object, kind: str) -> bool:
    """Say whether a condition is True."""
    found = condition(item, kind)
    return found is not None and found["status"] == "True"


def set_condition(
    item: Object, kind: str, *, true: bool, at: int, reason: str = "", message: str = ""
) -> None:
    """Set a condition in place; its time is when its status turned."""
    status = "True" if true else "False"
    found = item.setdefault("status", {}).setdefault("conditions", [])
    old = next((one for one in found if one["type"] == kind), None)
    turned = rfc3339(at) if old is None or old["status"] != status else old["lastTransitionTime"]
    new: Object = {"type": kind, "status": status, "lastTransitionTime": turned}
    if reason:
        new["reason"] = reason
    if message or reason:
        new["message"] = message
    if old is None:
        found.append(new)
    else:
        found[found.index(old)] = new


def drop_condition(item: Object, kind: str) -> None:
    status = item.setdefault("status", {})
    kept = [one for one in status.get("conditions", []) if one["type"] != kind]
    status["conditions"] = kept
    if not kept:
        del status["conditions"]
