"""The default scheduler: which pod goes where, and what is said of the others."""

from collections import Counter
from collections.abc import Sequence

from simulator.scheduler import claims as devices
from simulator.scheduler.amounts import is_bound, is_over
from simulator.scheduler.conditions import condition, drop_condition, set_condition
from simulator.scheduler.events import noted
from simulator.scheduler.filters import NO_DEVICES, RESOLVABLE, Machine, machines_of, refusals
from simulator.scheduler.store import Object, Store, rfc3339, seconds_of

DEFAULT = "default-scheduler"
GATED = "Scheduling is blocked due to non-empty scheduling gates"
_NOT_HELPFUL = "Preemption is not helpful for scheduling"
_NO_VICTIMS = "No preemption victims found for incoming pod"


class Scheduler:
    """Places the pods that ask for it by name; `others` are nodes that never have room."""

    def __init__(self, store: Store, others: Sequence[Object] = ()) -> None:
        self._store = store
        self._others = [Machine(node, {}, closed=True) for node in others]
        # Of nodes that do not change, what each refuses a pod with is found once a pod.
        self._elsewhere: dict[str, Counter[str]] = {}
        self._machines: list[Machine] = []

    @property
    def nodes(self) -> int:
        return len(self._others) + len(self._store.all("nodes"))

    def run(self) -> None:
        """Try every pending pod once: the most important first, then the oldest."""
        waiting = [pod for pod in self._store.all("pods") if _is_unscheduled(pod)]
        waiting.sort(key=lambda pod: -pod["spec"].get("priority", 0))
        self._machines = machines_of(self._store) if waiting else []
        for pod in waiting:
            if pod["spec"].get("schedulingGates"):
                self._gated(pod)
            elif not pod["metadata"].get("deletionTimestamp"):
                self._try(pod)

    def _gated(self, pod: Object) -> None:
        self._say(pod, GATED, reason="SchedulingGated", event=False)

    def _try(self, pod: Object) -> None:
        claims = devices.claims_of(self._store, pod)
        if claims is None:
            return  # A pod whose claim is not there is not even looked at.
        before = self._unanswerable(pod, claims)
        if before:
            self._say(pod, f"0/{self.nodes} nodes are available: {before}")
            return
        machines = self._machines
        reasons: Counter[str] = Counter()
        helped: list[Machine] = []
        for machine in machines:
            found = self._refused(pod, claims, machine, machines)
            if not found:
                self._bind(pod, claims, machine)
                return
            reasons.update(found)
            if all(text.startswith(RESOLVABLE) for text in found):
                helped.append(machine)
        reasons.update(self._closed(pod))
        self._unschedulable(pod, reasons, helped, machines, claims)

    def _refused(
        self, pod: Object, claims: list[Object], machine: Machine, machines: list[Machine]
    ) -> list[str]:
        found = refusals(pod, machine, machines)
        if not found and self._reserved_for_another(pod, machine):
            return [f"Insufficient {_main_resource(pod)}"]
        if not found and claims and devices.choose(self._store, claims, machine) is None:
            return [NO_DEVICES]
        return found

    def _reserved_for_another(self, pod: Object, machine: Machine) -> bool:
        """Say whether room on a node is kept for a more important pending pod."""
        mine = pod["spec"].get("priority", 0)
        return any(
            _is_unscheduled(other)
            and other["status"].get("nominatedNodeName") == machine.name
            and other["spec"].get("priority", 0) > mine
            for other in self._store.all("pods")
        )

    def _closed(self, pod: Object) -> Counter[str]:
        uid = pod["metadata"]["uid"]
        found = self._elsewhere.get(uid)
        if found is None:
            found = Counter()
            for machine in self._others:
                texts = refusals(pod, machine, [])
                if not texts and pod["spec"].get("resourceClaims"):
                    texts = [NO_DEVICES]
                found.update(texts or [f"Insufficient {_main_resource(pod)}"])
            self._elsewhere[uid] = found
        return found

    def _unanswerable(self, pod: Object, claims: list[Object]) -> str:
        """Return what keeps a pod from every node alike, before any is looked at."""
        for volume in pod["spec"].get("volumes", []):
            name = volume.get("persistentVolumeClaim", {}).get("claimName", "")
            if not name:
                continue
            found = self._store.get("persistentvolumeclaims", pod["metadata"]["namespace"], name)
            if found is None:
                return f'persistentvolumeclaim "{name}" not found. not found'
            if found["status"]["phase"] != "Bound":
                return (
                    "pod has unbound immediate PersistentVolumeClaims. not found, "
                    f"{self._preemption(self.nodes, 0)}"
                )
        missing = devices.missing_class(self._store, claims)
        if not missing:
            return ""
        return f"{missing}. still not schedulable, {self._preemption(self.nodes, 0)}"

    # ------------------------------------------------------------ a place

    def _bind(self, pod: Object, claims: list[Object], machine: Machine) -> None:
        chosen = devices.choose(self._store, claims, machine) or []
        for claim, given in zip(claims, chosen, strict=True):
            devices.give(self._store, pod, claim, machine, given)
        machine.hold(bind(self._store, pod, machine.name))

    # ------------------------------------------------------------ no place

    def _unschedulable(
        self,
        pod: Object,
        reasons: Counter[str],
        helped: list[Machine],
        machines: list[Machine],
        claims: list[Object],
    ) -> None:
        listed = ", ".join(sorted(f"{count} {text}" for text, count in reasons.items()))
        head = f"0/{self.nodes} nodes are available: {listed}."
        why = "still not schedulable" if claims else "no new claims to deallocate"
        if pod["spec"].get("preemptionPolicy") == "Never":
            tail = "preemption: not eligible due to preemptionPolicy=Never."
        elif self._nominated(pod):
            tail = "preemption: not eligible due to a terminating pod on the nominated node."
        else:
            victims = self._preempt(pod, helped, machines)
            if victims:
                self._say(pod, head, nominated=victims)
                return
            tail = self._preemption(self.nodes - len(helped), len(helped))
        self._say(pod, f"{head} {why}, {tail}")

    def _preemption(self, hopeless: int, tried: int) -> str:
        parts = [f"{hopeless} {_NOT_HELPFUL}"] * bool(hopeless)
        parts += [f"{tried} {_NO_VICTIMS}"] * bool(tried)
        return f"preemption: 0/{self.nodes} nodes are available: {', '.join(sorted(parts))}."

    def _nominated(self, pod: Object) -> bool:
        node = pod["status"].get("nominatedNodeName")
        return bool(node) and any(
            other["spec"].get("nodeName") == node and other["metadata"].get("deletionTimestamp")
            for other in self._store.all("pods")
            if not is_over(other)
        )

    def _preempt(self, pod: Object, helped: list[Machine], machines: list[Machine]) -> str:
        """Evict the least important pods that make room; returns the node, "" when none do."""
        priority = pod["spec"].get("priority", 0)
        for machine in helped:
            lower = [one for one in machine.pods if one["spec"].get("priority", 0) < priority]
            lower.sort(key=lambda one: one["spec"].get("priority", 0))
            for count in range(1, len(lower) + 1):
                left = machine.without(lower[:count])
                others = [left if one is machine else one for one in machines]
                if not refusals(pod, left, others):
                    for victim in lower[:count]:
                        self._evict(victim, pod, machine.name)
                    return machine.name
        return ""

    def _evict(self, victim: Object, pod: Object, node: str) -> None:
        text = f"Preempted by pod {pod['metadata']['uid']} on node {node}"
        noted(self._store, "pods", victim, "Preempted", text, warning=False, action="Preempting")
        terminate(
            self._store,
            victim,
            reason="PreemptionByScheduler",
            message=f"{DEFAULT}: preempting to accommodate a higher priority pod",
        )

    def _say(
        self,
        pod: Object,
        message: str,
        *,
        reason: str = "Unschedulable",
        event: bool = True,
        nominated: str = "",
    ) -> None:
        old = condition(pod, "PodScheduled")
        if old and (old.get("reason"), old.get("message")) == (reason, message) and not nominated:
            return

        def edit(item: Object) -> None:
            set_condition(
                item, "PodScheduled", true=False, at=self._store.now, reason=reason, message=message
            )
            if nominated:
                item["status"]["nominatedNodeName"] = nominated

        said = self._store.change("pods", pod, edit)
        if event:
            noted(self._store, "pods", said, "FailedScheduling", message)

    def repeat(self) -> None:
        """Say again what still holds, as a scheduler does that tries again after a while."""
        for pod in self._store.all("pods"):
            said = condition(pod, "PodScheduled")
            if _is_unscheduled(pod) and said and said.get("reason") == "Unschedulable":
                noted(self._store, "pods", pod, "FailedScheduling", said["message"])


def _is_unscheduled(pod: Object) -> bool:
    return (
        not is_bound(pod)
        and not is_over(pod)
        and pod["spec"].get("schedulerName", DEFAULT) == DEFAULT
    )


def _main_resource(pod: Object) -> str:
    asked = pod["spec"]["containers"][0].get("resources", {}).get("requests", {})
    return next((name for name in asked if "/" in name), "cpu")


def bind(store: Store, pod: Object, node: str, *, by: str = DEFAULT) -> Object:
    """Bind a pod to a node."""
    host = store.get("nodes", "", node) or {}
    address = next((a["address"] for a in host.get("status", {}).get("addresses", [])), "")

    def edit(item: Object) -> None:
        item["spec"]["nodeName"] = node
        status = item["status"]
        status.pop("nominatedNodeName", None)
        drop_condition(item, "PodScheduled")
        set_condition(item, "PodScheduled", true=True, at=store.now)
        status |= {
            "hostIP": address,
            "hostIPs": [{"ip": address}],
            "startTime": rfc3339(store.now),
        }

    bound = store.change("pods", pod, edit)
    meta = bound["metadata"]
    text = f"Successfully assigned {meta['namespace']}/{meta['name']} to {node}"
    noted(store, "pods", bound, "Scheduled", text, by=by, warning=False, action="Binding")
    return bound


def terminate(store: Store, pod: Object, *, reason: str = "", message: str = "") -> None:
    """Let a pod go: at once if nothing of it runs, else after its grace period."""
    grace = pod["spec"].get("terminationGracePeriodSeconds", 30)
    if not is_bound(pod) or is_over(pod):
        devices.release(store, pod)
        store.remove("pods", pod)
        return
    if pod["metadata"].get("deletionTimestamp"):
        return

    def edit(item: Object) -> None:
        item["metadata"]["deletionTimestamp"] = rfc3339(store.now + grace)
        item["metadata"]["deletionGracePeriodSeconds"] = grace
        if reason:
            set_condition(
                item, "DisruptionTarget", true=True, at=store.now, reason=reason, message=message
            )

    store.change("pods", pod, edit)


def due_to_go(pod: Object) -> int | None:
    """Return when a terminating pod is gone; None for others."""
    text = pod["metadata"].get("deletionTimestamp")
    return seconds_of(text) if text else None
