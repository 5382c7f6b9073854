"""What runs on the apps nodes of `campus` day by day, whatever the trace says.

Services that follow the working day, notebooks, jobs that load for long and hold their GPUs after
the work is done, a service nobody calls any more, and one job that keeps all of its GPUs busy.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from apps.lab import identity
from apps.lab.fleet import DAY, LINGER_SECONDS, Controller, Node, Phase, Pod
from apps.lab.machines import A100
from apps.lab.scenarios.base import GPU_KEY, Namespace

DEDICATED = ("dedicated", "apps", "NoSchedule")
"""The taint of the apps nodes, which the pods here tolerate."""
_HOUR = 3600
_OPENS, _CLOSES = 7, 17
"""The working day, in hours UTC."""
_FRIDAY = 4
_START_SECONDS = 20

Hours = Sequence[tuple[float, float]]
"""(hour of the day, activity from then on), in order; before the first it is as at the end."""


@dataclass(frozen=True, slots=True)
class _Work:
    """A workload on one node: `replicas` pods of `units` GPUs from device `first` on.

    `day` is what its pods do on a working day, `free` on Saturdays and Sundays. One with
    `at_hours` has pods for these hours of each day alone (the end may be on the next day); with
    `working_days` on working days alone. A CronJob makes a Job for each day.
    """

    team: str
    kind: str
    name: str
    node: str
    first: int
    replicas: int
    units: int
    memory_mib: int
    day: Hours
    free: Hours = ()
    at_hours: tuple[int, int] = ()  # type: ignore[assignment]  # empty: always
    working_days: bool = False

    @property
    def namespace(self) -> str:
        return f"{self.team}-apps"


def _office(busy: float, quiet: float) -> Hours:
    return ((_OPENS, busy), (_CLOSES, quiet))


_WORK: Sequence[_Work] = (
    _Work("language", "Job", "pretrain-foundation", "apps-01", 0, 1, 8, 71_000, ((0, 0.96),)),
    _Work("vision", "Deployment", "segment-serve", "apps-02", 0, 4, 1, 14_000,
          _office(0.62, 0.05), ((0, 0.04),)),
    _Work("speech", "Deployment", "whisper-live", "apps-02", 4, 3, 1, 17_500,
          _office(0.55, 0.06), ((0, 0.05),)),
    _Work("speech", "Deployment", "tts-legacy", "apps-02", 7, 1, 1, 9_000, ((0, 0.0),)),
    _Work("vision", "StatefulSet", "notebook-ada", "apps-03", 0, 1, 1, 6_200,
          ((9, 0.41), (9.75, 0.0)), ((0, 0.0),)),
    _Work("vision", "StatefulSet", "notebook-lin", "apps-03", 1, 1, 1, 3_900, ((0, 0.0),)),
    _Work("speech", "StatefulSet", "notebook-eva", "apps-03", 2, 1, 1, 5_100,
          ((13, 0.35), (14.5, 0.01)), ((0, 0.0),)),
    _Work("speech", "StatefulSet", "notebook-mira", "apps-03", 3, 1, 1, 2_400, ((0, 0.01),)),
    _Work("search", "Deployment", "embed-small", "apps-03", 4, 2, 1, 4_600, ((0, 0.17),)),
    _Work("vision", "Deployment", "label-tool", "apps-03", 6, 2, 1, 3_300, ((0, 0.02),)),
    _Work("search", "StatefulSet", "workshop", "apps-04", 0, 4, 1, 12_000, ((0, 0.44),),
          at_hours=(_OPENS, _CLOSES), working_days=True),
    _Work("speech", "CronJob", "finetune-voices", "apps-04", 4, 1, 4, 52_000,
          ((18, 0.01), (18.75, 0.91), (23.5, 0.0)), at_hours=(18, 30)),
)  # fmt: skip
LIMITS: Mapping[str, int] = {"language": 8, "search": 16, "speech": 12, "vision": 12}
"""The quota of each team's namespace here, in GPUs: that of search is far more than it uses."""


class Apps:
    """The workloads of the apps nodes from `begins` on."""

    def __init__(self, seed: str, nodes: Iterable[Node], begins: int) -> None:
        self._seed = f"{seed}/apps"
        self._nodes = {node.name: node for node in nodes}
        self._begins = begins
        self._owners = {work: self._owner(work) for work in _WORK}

    def namespaces(self) -> list[Namespace]:
        names = sorted({work.namespace for work in _WORK})
        return [Namespace(n, identity.uid(self._seed, "namespace", n), self._begins) for n in names]

    @staticmethod
    def limits() -> dict[str, dict[str, int]]:
        """Return the limit of each quota key by namespace."""
        return {f"{team}-apps": {GPU_KEY: limit} for team, limit in LIMITS.items()}

    def controllers(self) -> Iterator[Controller]:
        """Yield the controllers that are there all the time."""
        for owner in self._owners.values():
            if owner.parent is not None:
                yield owner.parent
            yield owner

    def pods(self, start: int, end: int) -> Iterator[Pod]:
        """Yield the pods of start..end, none of which is there before or after."""
        for work in _WORK:
            for since, until in _spans(work, start, end):
                owner = self._owner_at(work, since)
                for replica in range(work.replicas):
                    yield self._pod(work, owner, replica, since, until)

    def _owner(self, work: _Work) -> Controller:
        def made(kind: str, name: str, parent: Controller | None = None) -> Controller:
            uid = identity.uid(self._seed, kind, work.namespace, name)
            return Controller(kind, name, work.namespace, uid, self._begins, parent=parent)

        owner = made(work.kind, work.name)
        if work.kind != "Deployment":
            return owner
        return made("ReplicaSet", f"{work.name}-{identity.suffix(10, owner.uid)}", owner)

    def _owner_at(self, work: _Work, since: int) -> Controller:
        """Return what controls the pods that begin at a time: of a CronJob a Job of its own."""
        owner = self._owners[work]
        if work.kind != "CronJob":
            return owner
        name = f"{work.name}-{since // 60}"
        uid = identity.uid(owner.uid, since)
        return replace(owner, kind="Job", name=name, uid=uid, created=since, parent=owner)

    def _pod(self, work: _Work, owner: Controller, replica: int, since: int, until: int) -> Pod:
        uid = identity.uid(self._seed, "pod", owner.uid, replica, since)
        node = self._nodes[work.node]
        first = work.first + replica * work.units
        ending = str(replica) if owner.kind == "StatefulSet" else identity.suffix(5, uid)
        started = since + _START_SECONDS + identity.below(20, uid, "start")
        phases = _phases(work, started, until)
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
            deleted=until + LINGER_SECONDS,
            node=node.name,
            host_ip=node.ip,
            devices=tuple(range(first, first + work.units)),
            node_selector={"nvidia.com/gpu.product": A100.product},
            memory_mib=work.memory_mib,
            tolerates_gpu=True,
            tolerates=(DEDICATED,),
            cpu_cores=6 * work.units,
            memory_gib=64 * work.units,
            phases=tuple(phases),
        )


def _spans(work: _Work, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield (from, to) of the pods of a workload; those that do not fit in start..end are not."""
    if not work.at_hours:
        yield start, end
        return
    first, last = work.at_hours
    for day in range(start // DAY, -(-end // DAY)):
        since, until = day * DAY + first * _HOUR, day * DAY + last * _HOUR
        works = not work.working_days or _is_working_day(since)
        if works and start <= since and until <= end:
            yield since, until


def _phases(work: _Work, started: int, until: int) -> Iterator[Phase]:
    """Yield what a pod does over time, from its start on."""
    at = started
    activity = _activity_at(work, at)
    yield _phase(started, activity)
    for day in range(started // DAY, until // DAY + 1):
        for hour, activity in work.day if _is_working_day(day * DAY) else work.free or work.day:
            at = day * DAY + round(hour * _HOUR)
            if started < at < until:
                yield _phase(at, activity)


def _activity_at(work: _Work, at: int) -> float:
    hours = work.day if _is_working_day(at) or not work.free else work.free
    into = at % DAY / _HOUR
    return next((activity for hour, activity in reversed(hours) if hour <= into), hours[-1][1])


def _phase(since: int, activity: float) -> Phase:
    load = min(1.0, 0.12 + 0.8 * activity) if activity else 0.05
    watts = A100.idle_watts + load * (A100.board_watts - A100.idle_watts)
    return Phase(since, activity, round(watts, 1), round(0.62 * activity, 4))


def _is_working_day(at: int) -> bool:
    return datetime.fromtimestamp(at, UTC).weekday() <= _FRIDAY
