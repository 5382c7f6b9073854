"""Workloads that are the same day by day: services that follow the working day, notebooks, jobs.

What their pods do changes over the day; where they run is written down with them.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from apps.accounts.domain.structs import replace
from simulator import identity
from simulator.fleet import DAY, GPU, LINGER_SECONDS, Controller, GpuSpec, Node, Phase, Pod
from simulator.machines import A100
from simulator.scenarios.base import Namespace

PRODUCT = "nvidia.com/gpu.product"
_HOUR = 3600
OPENS, CLOSES = 7, 17
"""The working day, in hours UTC."""
_FRIDAY = 4
_START_SECONDS = 20

Hours = Sequence[tuple[float, float]]
"""(hour of the day, activity from then on), in order; before the first it is as at the end."""


class Work(Struct, frozen=True):
    """A workload on one node: `replicas` pods of `units` GPUs from device `first` on.

    `elsewhere` has the node and the first device of further pods, as of a gang that is spread.
    `day` is what its pods do on a working day, `free` on Saturdays and Sundays. One with
    `at_hours` has pods for these hours of each day alone (the end may be on the next day); with
    `working_days` on working days alone. A CronJob makes a Job for each day, whose pods wait for
    `pending_seconds` before they are bound.
    """

    namespace: str
    kind: str
    name: str
    node: str
    first: int
    replicas: int
    units: int
    memory_mib: int
    day: Hours
    free: Hours = ()
    at_hours: tuple[int, int] | None = None
    working_days: bool = False
    pending_seconds: int = 0
    elsewhere: tuple[tuple[str, int], ...] = ()

    def places(self) -> list[tuple[str, int]]:
        """Return the node and the first device of each of its pods."""
        here = [(self.node, self.first + n * self.units) for n in range(self.replicas)]
        return [*here, *self.elsewhere]


def office(busy: float, quiet: float) -> Hours:
    """Return the hours of a service that is used on working days."""
    return ((OPENS, busy), (CLOSES, quiet))


class DayWork:
    """Workloads from `begins` on; the taints of their nodes are tolerated."""

    def __init__(self, seed: str, nodes: Iterable[Node], begins: int, work: Sequence[Work]) -> None:
        self._seed = f"{seed}/apps"
        self._nodes = {node.name: node for node in nodes}
        self._begins = begins
        self._work = work
        self._owners = {work: self._owner(work) for work in self._work}

    def namespaces(self) -> list[Namespace]:
        names = sorted({work.namespace for work in self._work})
        return [Namespace(n, identity.uid(self._seed, "namespace", n), self._begins) for n in names]

    def controllers(self) -> Iterator[Controller]:
        """Yield the controllers that are there all the time."""
        for owner in self._owners.values():
            if owner.parent is not None:
                yield owner.parent
            yield owner

    def pods(self, start: int, end: int) -> Iterator[Pod]:
        """Yield the pods of start..end, none of which is there before or after."""
        for work in self._work:
            for since, until in _spans(work, start, end):
                # What pods wait for has begun on the day before.
                created = since - work.pending_seconds if since - DAY >= start else since
                owner = self._owner_at(work, created)
                for replica, (name, first) in enumerate(work.places()):
                    pod = self._pod(work, owner, replica, since, until)
                    yield replace(_placed(pod, self._nodes[name], first), created=created)

    def _owner(self, work: Work) -> Controller:
        def made(kind: str, name: str, parent: Controller | None = None) -> Controller:
            uid = identity.uid(self._seed, kind, work.namespace, name)
            return Controller(kind, name, work.namespace, uid, self._begins, parent=parent)

        owner = made(work.kind, work.name)
        if work.kind != "Deployment":
            return owner
        return made("ReplicaSet", f"{work.name}-{identity.suffix(10, owner.uid)}", owner)

    def _owner_at(self, work: Work, created: int) -> Controller:
        """Return what controls the pods made at a time: of a CronJob a Job of its own."""
        owner = self._owners[work]
        if work.kind != "CronJob":
            return owner
        name = f"{work.name}-{created // 60}"
        uid = identity.uid(owner.uid, created)
        return replace(owner, kind="Job", name=name, uid=uid, created=created, parent=owner)

    def _pod(self, work: Work, owner: Controller, replica: int, since: int, until: int) -> Pod:
        uid = identity.uid(self._seed, "pod", owner.uid, replica, since)
        node = self._nodes[work.node]
        ending = str(replica) if owner.kind == "StatefulSet" else identity.suffix(5, uid)
        started = since + _START_SECONDS + identity.below(20, uid, "start")
        phases = _phases(work, node.gpu or A100, started, until)
        # The next pod of a StatefulSet has the same name, and comes when this one is gone.
        lingers = 0 if owner.kind == "StatefulSet" else LINGER_SECONDS
        return Pod(
            uid=uid,
            name=f"{owner.name}-{ending}",
            namespace=work.namespace,
            owner=owner,
            units=work.units,
            created=since,
            bound=since,
            started=started,
            finished=until,
            deleted=until + lingers,
            resource=node.resource,
            node_selector={PRODUCT: node.labels[PRODUCT]} if PRODUCT in node.labels else {},
            memory_mib=work.memory_mib,
            tolerates_gpu=True,
            tolerates=tuple(taint for taint in node.taints if taint[0] != GPU),
            cpu_cores=6 * work.units,
            memory_gib=64 * work.units,
            phases=tuple(phases),
        )


def _placed(pod: Pod, node: Node, first: int) -> Pod:
    devices = tuple(range(first, first + pod.units))
    return replace(pod, node=node.name, host_ip=node.ip, devices=devices)


def _spans(work: Work, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield (from, to) of the pods of a workload; those that do not fit in start..end are not."""
    if work.at_hours is None:
        yield start, end
        return
    first, last = work.at_hours
    for day in range(start // DAY, -(-end // DAY)):
        since, until = day * DAY + first * _HOUR, day * DAY + last * _HOUR
        works = not work.working_days or _is_working_day(since)
        if works and start <= since and until <= end:
            yield since, until


def _phases(work: Work, gpu: GpuSpec, started: int, until: int) -> Iterator[Phase]:
    """Yield what a pod does over time, from its start on."""
    at = started
    activity = _activity_at(work, at)
    yield _phase(gpu, started, activity)
    for day in range(started // DAY, until // DAY + 1):
        for hour, activity in work.day if _is_working_day(day * DAY) else work.free or work.day:
            at = day * DAY + round(hour * _HOUR)
            if started < at < until:
                yield _phase(gpu, at, activity)


def _activity_at(work: Work, at: int) -> float:
    hours = work.day if _is_working_day(at) or not work.free else work.free
    into = at % DAY / _HOUR
    return next((activity for hour, activity in reversed(hours) if hour <= into), hours[-1][1])


def _phase(gpu: GpuSpec, since: int, activity: float) -> Phase:
    load = min(1.0, 0.12 + 0.8 * activity) if activity else 0.05
    watts = gpu.idle_watts + load * (gpu.board_watts - gpu.idle_watts)
    return Phase(since, activity, round(watts, 1), round(0.62 * activity, 4))


def _is_working_day(at: int) -> bool:
    return datetime.fromtimestamp(at, UTC).weekday() <= _FRIDAY
