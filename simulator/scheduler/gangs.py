"""Volcano: pods of a PodGroup are placed all together or not at all."""

from simulator import identity
from simulator.scheduler.amounts import is_bound, is_over, requests_of, total, written
from simulator.scheduler.conditions import condition, drop_condition, set_condition
from simulator.scheduler.events import noted
from simulator.scheduler.filters import Machine, machines_of, refusals
from simulator.scheduler.placing import bind
from simulator.scheduler.store import Object, Store

SCHEDULER = "volcano"
GROUP = "scheduling.k8s.io/group-name"
API_VERSION = "scheduling.volcano.sh/v1beta1"


class Volcano:
    def __init__(self, store: Store) -> None:
        self._store = store

    def run(self) -> None:
        for group in self._store.all("podgroups"):
            self._group(group)
        for queue in self._store.all("queues"):
            self._queue(queue)

    def _group(self, group: Object) -> None:
        pods = [pod for pod in self._store.all("pods") if self._of(pod, group) and not is_over(pod)]
        waiting = [pod for pod in pods if not is_bound(pod)]
        least = group["spec"]["minMember"]
        if waiting and len(pods) >= least:
            places = self._places(waiting)
            if places is not None:
                for pod, node in places:
                    bind(self._store, pod, node, by=SCHEDULER)
                self._scheduled(group)
            else:
                self._refused(group, waiting, len(pods))
        elif len(pods) < least:
            self._refused(group, waiting, len(pods))
        self._count(group)

    def _of(self, pod: Object, group: Object) -> bool:
        return bool(
            pod["spec"].get("schedulerName") == SCHEDULER
            and pod["metadata"]["namespace"] == group["metadata"]["namespace"]
            and pod["metadata"].get("annotations", {}).get(GROUP) == group["metadata"]["name"]
        )

    def _places(self, pods: list[Object]) -> list[tuple[Object, str]] | None:
        machines = machines_of(self._store)
        found = []
        for pod in pods:
            node = next((m for m in machines if not refusals(pod, m, machines)), None)
            if node is None:
                return None
            node.hold(pod)
            found.append((pod, node.name))
        return found

    def _refused(self, group: Object, waiting: list[Object], there: int) -> None:
        least = group["spec"]["minMember"]
        fit = self._fitting(waiting)
        tally = f"{len(waiting)} Pending, {least} minAvailable"
        states = f"{len(waiting) - fit} Unschedulable, {fit} Undetermined"
        reason = "NotEnoughResources" if there >= least else "NotEnoughTasks"
        tail = f"; Pending: {states}" if waiting else ""
        text = f"pod group is not ready, {tally}{tail}"
        message = f"{len(waiting)}/{max(there, least)} tasks in gang unschedulable: {text}"
        old = condition(group, "Unschedulable")
        if old and old.get("message") == message:
            return
        at = self._store.now

        def edit(item: Object) -> None:
            drop_condition(item, "Scheduled")
            set_condition(item, "Unschedulable", true=True, at=at, reason=reason, message=message)
            item["status"]["conditions"][-1]["transitionID"] = identity.uid(
                "transition", item["metadata"]["uid"], message
            )
            item["status"]["phase"] = "Inqueue" if there >= least else "Pending"

        said = self._store.change("podgroups", group, edit)
        noted(self._store, "podgroups", said, "Unschedulable", message, by=SCHEDULER)
        for pod in waiting:
            self._store.change(
                "pods",
                pod,
                lambda item: set_condition(
                    item, "PodScheduled", true=False, at=at, reason="Unschedulable", message=text
                ),
            )

    def _fitting(self, waiting: list[Object]) -> int:
        """Return how many of the pods would find a place, one after the other."""
        machines = machines_of(self._store)
        count = 0
        for pod in waiting:
            node: Machine | None = next(
                (m for m in machines if not refusals(pod, m, machines)), None
            )
            if node is not None:
                node.hold(pod)
                count += 1
        return count

    def _scheduled(self, group: Object) -> None:
        def edit(item: Object) -> None:
            drop_condition(item, "Unschedulable")
            set_condition(
                item, "Scheduled", true=True, at=self._store.now,
                reason="tasks in gang are ready to be scheduled",
            )  # fmt: skip
            item["status"]["phase"] = "Running"

        self._store.change("podgroups", group, edit)

    def _count(self, group: Object) -> None:
        pods = [pod for pod in self._store.all("pods") if self._of(pod, group)]
        running = sum(pod["status"].get("phase") == "Running" for pod in pods)
        done = sum(pod["status"].get("phase") == "Succeeded" for pod in pods)

        def edit(item: Object) -> None:
            status = item.setdefault("status", {"phase": "Pending"})
            for key, count in (("running", running), ("succeeded", done)):
                status.pop(key, None)
                if count:
                    status[key] = count
            if done and done >= item["spec"]["minMember"]:
                status["phase"] = "Completed"

        current = self._store.get(
            "podgroups", group["metadata"]["namespace"], group["metadata"]["name"]
        )
        if current is not None:
            self._store.change("podgroups", current, edit)

    def _queue(self, queue: Object) -> None:
        groups = [
            one for one in self._store.all("podgroups")
            if one["spec"].get("queue", "default") == queue["metadata"]["name"]
        ]  # fmt: skip
        held = total(
            requests_of(pod["spec"])
            for group in groups
            for pod in self._store.all("pods")
            if self._of(pod, group) and is_bound(pod) and not is_over(pod)
        )
        phases = [one.get("status", {}).get("phase", "Pending") for one in groups]

        def edit(item: Object) -> None:
            item["status"] = {
                "allocated": {name: written(amount) for name, amount in sorted(held.items())},
                "state": "Open",
                **{
                    key: phases.count(phase)
                    for key, phase in (
                        ("pending", "Pending"), ("inqueue", "Inqueue"), ("running", "Running"),
                    )
                    if phases.count(phase)
                },
            }  # fmt: skip

        self._store.change("queues", queue, edit)
