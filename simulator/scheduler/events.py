"""Events as recorders write them: the scheduler's in the new form, controllers' in the old."""

from simulator import identity
from simulator.scheduler.store import Object, Store, rfc3339

COMBINED = "(combined from similar events): "
_SIMILAR = 10
KINDS = {
    "pods": ("v1", "Pod"),
    "nodes": ("v1", "Node"),
    "replicasets": ("apps/v1", "ReplicaSet"),
    "deployments": ("apps/v1", "Deployment"),
    "statefulsets": ("apps/v1", "StatefulSet"),
    "jobs": ("batch/v1", "Job"),
    "workloads": ("kueue.x-k8s.io/v1beta2", "Workload"),
    "podgroups": ("scheduling.volcano.sh/v1beta1", "PodGroup"),
}


def noted(
    store: Store, plural: str, about: Object, reason: str, message: str, *,
    by: str = "default-scheduler", warning: bool = True, action: str = "Scheduling",
) -> None:  # fmt: skip
    """Record an event in the new form; said again, it becomes a series."""
    name = _name(about, reason, message)
    found = store.get("events", _namespace(about), name)
    if found is not None:
        count = found.get("series", {}).get("count", 1) + 1
        series = {"count": count, "lastObservedTime": _micro(store.now)}
        store.change("events", found, lambda event: event.update(series=series))
        return
    event = _event(plural, about, name, reason, message, warning=warning)
    event |= {
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": _micro(store.now),
        "action": action,
        "reportingComponent": by,
        "reportingInstance": f"{by}-lab",
    }
    store.create("events", event)


def counted(
    store: Store, plural: str, about: Object, reason: str, message: str, *,
    by: str, warning: bool = True,
) -> None:  # fmt: skip
    """Record an event in the old form: it counts, and many similar ones are combined."""
    name = _name(about, reason, message)
    found = store.get("events", _namespace(about), name)
    if found is None and _similar(store, about, reason) >= _SIMILAR:
        message = COMBINED + message
        name = _name(about, reason, COMBINED)
        found = store.get("events", _namespace(about), name)
    if found is not None:
        count, last = found["count"] + 1, rfc3339(store.now)
        store.change(
            "events", found, lambda e: e.update(count=count, lastTimestamp=last, message=message)
        )
        return
    event = _event(plural, about, name, reason, message, warning=warning)
    event |= {
        "source": {"component": by},
        "firstTimestamp": rfc3339(store.now),
        "lastTimestamp": rfc3339(store.now),
        "count": 1,
        "eventTime": None,
        "reportingComponent": by,
        "reportingInstance": "",
    }
    store.create("events", event)


def _similar(store: Store, about: Object, reason: str) -> int:
    uid = about["metadata"]["uid"]
    return sum(
        1
        for event in store.all("events", _namespace(about))
        if event["involvedObject"]["uid"] == uid and event["reason"] == reason
    )


def _event(
    plural: str, about: Object, name: str, reason: str, message: str, *, warning: bool
) -> Object:
    api_version, kind = KINDS[plural]
    meta = about["metadata"]
    involved: Object = {"kind": kind}
    if meta.get("namespace"):
        involved["namespace"] = meta["namespace"]
    involved |= {
        "name": meta["name"],
        "uid": meta["uid"],
        "apiVersion": api_version,
        "resourceVersion": meta["resourceVersion"],
    }
    return {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": _namespace(about)},
        "involvedObject": involved,
        "reason": reason,
        "message": message,
        "type": "Warning" if warning else "Normal",
    }


def _namespace(about: Object) -> str:
    return str(about["metadata"].get("namespace") or "default")


def _name(about: Object, reason: str, message: str) -> str:
    meta = about["metadata"]
    mark = identity.uid("event", meta["uid"], reason, message).replace("-", "")[:16]
    return f"{meta['name']}.{mark}"


def _micro(seconds: int) -> str:
    return rfc3339(seconds).replace("Z", ".000000Z")
