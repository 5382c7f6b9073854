"""Kueue's queues: what is taken of their quota, and what their statuses say."""

from collections import defaultdict
from collections.abc import Callable, Iterable

from simulator.scheduler.amounts import quantity, requests_of, written
from simulator.scheduler.conditions import holds, set_condition
from simulator.scheduler.store import Object, Store

Use = dict[tuple[str, str], float]
"""Amounts by flavor and resource."""
_OPEN = "None"


class Queues:
    def __init__(self, store: Store) -> None:
        self._store = store

    def used(self, queue: Object) -> Use:
        """Return what is reserved of a ClusterQueue's quota."""
        name = queue["metadata"]["name"]
        return _use(
            one
            for one in self._store.all("workloads")
            if one["status"].get("admission", {}).get("clusterQueue") == name
        )

    def goes_to(self, workload: Object, queue: Object) -> bool:
        """Say whether a ClusterQueue is to admit a workload, by a LocalQueue that is open."""
        meta = workload["metadata"]
        local = self._store.get("localqueues", meta["namespace"], workload["spec"]["queueName"])
        return (
            local is not None
            and local["spec"]["clusterQueue"] == queue["metadata"]["name"]
            and local["spec"].get("stopPolicy", _OPEN) == _OPEN
        )

    def tell(self) -> None:
        """Bring the statuses of all queues up to date."""
        for queue in self._store.all("clusterqueues"):
            self._cluster_queue(queue)
        for local in self._store.all("localqueues"):
            self._local_queue(local)

    def _cluster_queue(self, queue: Object) -> None:
        names = [name for name, _ in flavors(queue)]
        missing = [n for n in names if self._store.get("resourceflavors", "", n) is None]
        reason, text = "Ready", "Can admit new workloads"
        if queue["spec"].get("stopPolicy", _OPEN) != _OPEN:
            reason, text = "Stopped", "Can't admit new workloads: is stopped."
        elif missing:
            listed = ",".join(missing)
            reason = "FlavorNotFound"
            text = f"Can't admit new workloads: references missing ResourceFlavor(s): {listed}."
        mine = [
            one
            for one in self._store.all("workloads")
            if self.goes_to(one, queue) and not finished(one)
        ]
        use = _listed(queue, self.used(queue), borrowed=True)
        told = _status_of(mine, use, reason, text, self._store.now)
        self._store.change("clusterqueues", queue, told)

    def _local_queue(self, local: Object) -> None:
        queue = self._store.get("clusterqueues", "", local["spec"]["clusterQueue"])
        reason, text = "Ready", "Can submit new workloads to localQueue"
        if queue is None:
            reason = "ClusterQueueDoesNotExist"
        elif not holds(queue, "Active"):
            reason = "ClusterQueueIsInactive"
        if reason != "Ready":
            text = "Can't submit new workloads to clusterQueue"
        if local["spec"].get("stopPolicy", _OPEN) != _OPEN:
            reason, text = "Stopped", "LocalQueue is stopped"
        meta = local["metadata"]
        mine = [
            one
            for one in self._store.all("workloads", meta["namespace"])
            if one["spec"]["queueName"] == meta["name"] and not finished(one)
        ]
        use = _listed(queue, _use(mine), borrowed=False) if queue else None
        self._store.change(
            "localqueues", local, _status_of(mine, use, reason, text, self._store.now)
        )


def _use(workloads: Iterable[Object]) -> Use:
    found: Use = defaultdict(float)
    for one in workloads:
        admission = one["status"].get("admission")
        for part in admission["podSetAssignments"] if admission and not finished(one) else ():
            for name, amount in part["resourceUsage"].items():
                found[part["flavors"][name], name] += quantity(amount)
    return found


def _listed(queue: Object, use: Use, *, borrowed: bool) -> list[Object]:
    """Return use as statuses have it; only a ClusterQueue tells what is borrowed."""
    more = {"borrowed": "0"} if borrowed else {}
    return [
        {
            "name": flavor,
            "resources": [
                {"name": name, "total": written(use.get((flavor, name), 0.0)), **more}
                for name in quotas
            ],
        }
        for flavor, quotas in flavors(queue)
    ]


def _status_of(
    mine: list[Object], use: list[Object] | None, reason: str, text: str, at: int
) -> Callable[[Object], None]:
    admitted = sum(reserved(one) for one in mine)

    def edit(item: Object) -> None:
        status = item.setdefault("status", {})
        status |= {
            "pendingWorkloads": len(mine) - admitted,
            "reservingWorkloads": admitted,
            "admittedWorkloads": admitted,
        }
        if use is not None:
            status |= {"flavorsReservation": use, "flavorsUsage": use}
        set_condition(item, "Active", true=reason == "Ready", at=at, reason=reason, message=text)

    return edit


def finished(workload: Object) -> bool:
    return holds(workload, "Finished")


def flavors(queue: Object) -> list[tuple[str, dict[str, float]]]:
    """Return the flavors of a ClusterQueue in their order, each with its quota by resource."""
    return [
        (
            flavor["name"],
            {one["name"]: quantity(one["nominalQuota"]) for one in flavor["resources"]},
        )
        for group in queue["spec"].get("resourceGroups", [])
        for flavor in group["flavors"]
    ]


def reserved(workload: Object) -> bool:
    """Say whether quota is reserved for a workload."""
    return holds(workload, "QuotaReserved")


def count(workload: Object) -> int:
    """Return how many pods a workload has."""
    return int(workload["spec"]["podSets"][0]["count"])


def workload_requests(workload: Object) -> dict[str, float]:
    """Return what all pods of a workload ask for together."""
    each = requests_of(workload["spec"]["podSets"][0]["template"]["spec"])
    return {name: amount * count(workload) for name, amount in each.items()}
