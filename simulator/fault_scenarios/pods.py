"""The pods of the fault scenarios as metrics know them: one cycle, moved to any other."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from apps.accounts.domain.structs import replace
from simulator import identity
from simulator.epochs import ActivitySteps
from simulator.fault_scenarios.cycle import FaultCycle
from simulator.fault_scenarios.site import CYCLE_SECONDS, QUOTAS, RAISED, RAISED_MINUTES, RAISED_TO
from simulator.fleet import FOREVER, Claim, Controller, Pod
from simulator.scheduler.amounts import requests_of
from simulator.scheduler.conditions import condition
from simulator.scheduler.store import Object, ObjectLife, pod_suffix, seconds_of

_IDLERS = ("ddp-loose",)
"""Workloads whose pods do nothing: they wait for each other."""


class _Model(Struct, frozen=True):
    """A pod of the first cycle, and what names it and its owner in every other."""

    pod: Pod
    life: ObjectLife
    owners: tuple[ObjectLife, ...]


class FaultPods:
    """Gives the pods, claims and controllers of any cycle."""

    def __init__(self, faults: FaultCycle) -> None:
        self._faults = faults
        lives = faults.lives(0)
        self._by_uid = {life.uid: life for life in lives}
        self._claims = {
            (life.namespace, life.name): life for life in lives if life.plural == "resourceclaims"
        }
        self._nodes = {node.name: node for node in faults.ground}
        self._models = self._make_models([life for life in lives if life.plural == "pods"])

    def between(self, start: int, end: int) -> Iterator[Pod]:
        """Yield the pods of all cycles that lie in start..end."""
        first, last = max(0, self._faults.number(start)), self._faults.number(end - 1)
        for number in range(first, last + 1):
            owners: dict[str, Controller] = {}
            for model in self._models:
                yield self._moved(model, number, owners)

    # ------------------------------------------------------------ the first cycle

    def _make_models(self, lives: Sequence[ObjectLife]) -> list[_Model]:
        free = {node.name: list(range(len(node.devices))) for node in self._faults.ground}
        found = [self._model(life) for life in lives]
        kept = [model for model in found if model.pod.units]
        kept.sort(key=lambda model: (model.pod.bound, model.pod.created, model.pod.name))
        held: list[tuple[int, Pod]] = []
        placed = []
        for model in kept:
            pod = model.pod
            if pod.bound < FOREVER and not pod.devices and pod.released > pod.bound:
                for end, other in [one for one in held if one[0] <= pod.bound]:
                    free[other.node] = sorted([*free[other.node], *other.devices])
                    held.remove((end, other))
                devices = tuple(free[pod.node][: pod.units])
                free[pod.node] = free[pod.node][pod.units :]
                pod = replace(pod, devices=devices)
                held.append((pod.released, pod))
            placed.append(replace(model, pod=self._busy(pod)))
        return sorted(placed, key=lambda model: (model.pod.created, model.pod.name))

    def _model(self, life: ObjectLife) -> _Model:
        last = life.latest
        asked = {name: n for name, n in requests_of(last["spec"]).items() if "/" in name}
        resource, units = next(iter(asked.items()), ("", 0.0))
        owners = self._owners(last)
        bound, started, finished = _times(life)
        deleted = FOREVER if life.deleted is None else life.deleted // 1000
        if started < FOREVER:
            # What is deleted while it runs ends then, whatever its status said last.
            finished = min(finished, deleted)
        pod = Pod(
            uid=life.uid,
            name=life.name,
            namespace=life.namespace,
            owner=Controller("", "", life.namespace, life.uid, life.created),
            units=int(units),
            created=life.created,
            bound=bound,
            started=started,
            finished=finished,
            deleted=deleted,
            node=last["spec"].get("nodeName", ""),
            host_ip=last["status"].get("hostIP", ""),
            node_selector=last["spec"].get("nodeSelector", {}),
            resource=resource,
            cpu_cores=int(requests_of(last["spec"])["cpu"]),
            memory_gib=int(requests_of(last["spec"])["memory"] // 2**30),
            tolerates_gpu=True,
            failed=last["status"]["phase"] == "Failed",
            crashing="crash" in last["spec"]["containers"][0]["command"],
            unschedulable=_unschedulable(life),
        )
        return _Model(self._with_claim(pod, last), life, owners)

    def _with_claim(self, pod: Pod, item: Object) -> Pod:
        names = [one["resourceClaimName"] for one in item["spec"].get("resourceClaims", [])]
        life = self._claims.get((pod.namespace, names[0])) if names else None
        if life is None:
            return pod
        exactly = life.latest["spec"]["devices"]["requests"][0]["exactly"]
        claim = Claim(
            name=life.name,
            namespace=life.namespace,
            uid=life.uid,
            device_class=exactly["deviceClassName"],
            created=life.created,
            allocated=pod.bound,
            released=pod.released if pod.bound < FOREVER else FOREVER,
            deleted=FOREVER if life.deleted is None else life.deleted // 1000,
            node=pod.node,
            devices=_devices(life),
        )
        devices = claim.devices if pod.bound < FOREVER else ()
        return replace(pod, claim=claim, units=1, resource=claim.device_class, devices=devices)

    def _owners(self, item: Object) -> tuple[ObjectLife, ...]:
        found: list[ObjectLife] = []
        while references := item["metadata"].get("ownerReferences"):
            life = self._by_uid[references[0]["uid"]]
            found.append(life)
            item = life.latest
        return tuple(found)

    def _busy(self, pod: Pod) -> Pod:
        """Return a pod with what it does to its GPUs while it runs."""
        node = self._nodes.get(pod.node)
        if node is None or node.gpu is None or pod.started == FOREVER:
            return pod
        idle = pod.name.startswith(_IDLERS)
        chance = identity.fraction(self._faults.seed, pod.namespace, pod.name, "activity")
        activity = 0.0 if idle else round(0.25 + 0.7 * chance, 4)
        watts = node.gpu.idle_watts + activity * (node.gpu.board_watts - node.gpu.idle_watts)
        return replace(
            pod,
            activity=activity,
            sm_active=round(activity / 2, 4),
            memory_mib=round(node.visible_mib * (0.1 if idle else 0.2 + 0.6 * chance)),
            power_watts=round(watts, 1),
        )

    # ------------------------------------------------------------ every other

    def _moved(self, model: _Model, number: int, owners: dict[str, Controller]) -> Pod:
        by = number * CYCLE_SECONDS
        pod, life = model.pod, model.life
        name = life.name
        if "#" in life.local:
            stem = life.local.partition("#")[0]
            suffix = pod_suffix(self._faults.seed, number, life.namespace, life.local)
            name = f"{stem}-{suffix}"
        uid = self._uid(life, number)
        owner = self._controller(model.owners, number, owners)
        return replace(
            pod,
            uid=uid,
            name=name,
            owner=owner or Controller("", "", life.namespace, uid, pod.created + by),
            created=pod.created + by,
            bound=_shifted(pod.bound, by),
            started=_shifted(pod.started, by),
            finished=_shifted(pod.finished, by),
            deleted=_shifted(pod.deleted, by),
            claim=self._moved_claim(pod.claim, number, by),
        )

    def _moved_claim(self, claim: Claim | None, number: int, by: int) -> Claim | None:
        if claim is None:
            return None
        return replace(
            claim,
            uid=self._uid(self._claims[claim.namespace, claim.name], number),
            created=claim.created + by,
            allocated=_shifted(claim.allocated, by),
            released=_shifted(claim.released, by),
            deleted=_shifted(claim.deleted, by),
        )

    def _controller(
        self, owners: tuple[ObjectLife, ...], number: int, known: dict[str, Controller]
    ) -> Controller | None:
        if not owners:
            return None
        life = owners[0]
        found = known.get(life.uid)
        if found is None:
            by = number * CYCLE_SECONDS
            deleted = FOREVER if life.deleted is None else life.deleted // 1000
            found = known[life.uid] = Controller(
                kind=str(life.latest["kind"]),
                name=life.name,
                namespace=life.namespace,
                uid=self._uid(life, number),
                created=life.created + by,
                deleted=_shifted(deleted, by),
                parent=self._controller(owners[1:], number, known),
            )
        return found

    def _uid(self, life: ObjectLife, number: int) -> str:
        return identity.uid(
            self._faults.seed, number, life.plural, life.namespace, life.local, life.number
        )


def controllers_of(pods: Sequence[Pod]) -> list[Controller]:
    """Return the controllers of pods and what controls those, each once."""
    found: dict[str, Controller] = {}
    for pod in pods:
        owner: Controller | None = pod.owner if pod.owner.kind else None
        while owner is not None and owner.uid not in found:
            found[owner.uid] = owner
            owner = owner.parent
    return list(found.values())


def limits_of(start: int, end: int) -> Mapping[str, ActivitySteps]:
    """Return the limits of the quotas here over the cycles that lie in start..end."""
    found = {space: ActivitySteps((start,), (limit,)) for space, limit in QUOTAS.items()}
    times: list[int] = [start]
    for base in range(start, end, CYCLE_SECONDS):
        times += [base + 60 * minute for minute in RAISED_MINUTES]
    values = [QUOTAS[RAISED], *(RAISED_TO, QUOTAS[RAISED]) * ((len(times) - 1) // 2)]
    return {**found, RAISED: ActivitySteps(times, values)}


def _shifted(at: int, by: int) -> int:
    return at if at >= FOREVER else at + by


def _times(life: ObjectLife) -> tuple[int, int, int]:
    """Return when a pod was bound, when it first ran and when it ended."""
    bound = started = finished = FOREVER
    for version, item in life.versions:
        if item["spec"].get("nodeName"):
            bound = min(bound, version // 1000)
        for status in item["status"].get("containerStatuses", []):
            state = status["state"]
            if "running" in state:
                started = seconds_of(state["running"]["startedAt"])
            if "terminated" in state:
                finished = seconds_of(state["terminated"]["finishedAt"])
        if item["status"]["phase"] == "Failed":
            finished = min(finished, version // 1000)
    return bound, started, finished


def _unschedulable(life: ObjectLife) -> bool:
    return any(
        (condition(item, "PodScheduled") or {}).get("reason") == "Unschedulable"
        for _, item in life.versions
    )


def _devices(life: ObjectLife) -> tuple[int, ...]:
    for _, item in life.versions:
        allocation = item["status"].get("allocation")
        if allocation:
            names = [result["device"] for result in allocation["devices"]["results"]]
            return tuple(int(name.partition("-")[2]) for name in names)
    return ()
