"""Reading the pod series of kube-state-metrics.

What holds for a pod's life (times, owner, request) comes from one instant query over the whole
window; what changes within it from one value for each slot.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from apps.clusters.adapters.prometheus.http_api import (
    END_MARGIN_SECONDS,
    MAX_STEPS,
    Instant,
    Matcher,
    one_of,
)
from apps.clusters.adapters.prometheus.kube_state.metrics import (
    COMPLETED,
    CONTAINER_RUNNING,
    CONTAINER_STARTED,
    COUNT,
    CREATED,
    EARLIEST,
    INFO,
    INIT_INFO,
    INIT_REQUESTS,
    JOB_OWNER,
    LARGEST,
    OWNER,
    PHASE,
    REPLICASET_OWNER,
    REQUESTS,
    SCHEDULED,
    STARTED,
    TOTAL,
    UNSCHEDULABLE,
    Container,
    ContainerResource,
    Job,
    Phase,
    Plausible,
    PodInfo,
    PodLabels,
    PodOwner,
    ReplicaSet,
    RequestLabels,
    over_all,
    over_slots,
)
from apps.clusters.adapters.prometheus.window_reader import Points, WindowReader
from apps.clusters.domain.pods.kube_state import READ_AHEAD_SECONDS, OptionalSeries, PodSeries
from apps.clusters.domain.pods.ledger import Owner
from apps.clusters.domain.resources import counts_no_device, part_of_each_gpu
from apps.clusters.domain.window import Window

_TERMINAL = Matcher("phase", "=~", "Succeeded|Failed")
_CONTROLLER = Matcher("owner_is_controller", "=", "true")
_SIDECAR = Matcher("restart_policy", "=", "Always")
# What is asked for by name at most; beyond it all is read and the rest dropped.
_MOST_NAMESPACES = 200
_UIDS_PER_QUERY = 100


class PodReader:
    """Fills one record of series for each pod that requests GPUs; `pods` has them by uid.

    `owners` maps (namespace, kind, name) of a controller to its own owner, `seen` names the
    optional metrics that the cluster has.
    """

    def __init__(self, reading: WindowReader, gpu: Matcher, plausible: Plausible) -> None:
        self._reading = reading
        self._plausible = plausible
        self._gpu = gpu
        self._namespace = "namespace"
        self.pods: dict[str, PodSeries] = {}
        self.owners: dict[tuple[str, str, str], Owner] = {}
        self.seen: set[str] = set()
        self.nameless: tuple[str, ...] = ()

    @property
    def known(self) -> OptionalSeries:
        """Which optional series there are; all, where an answer lacks something for now."""
        if self._reading.incomplete:
            return OptionalSeries()
        return OptionalSeries(
            phases=PHASE in self.seen,
            starts=CONTAINER_STARTED in self.seen,
            running=CONTAINER_RUNNING in self.seen,
        )

    # ------------------------------------------------------------ what holds for a pod's life

    def read_facts(self, day: Window) -> None:
        """Read the pods of a stretch of at most a day, and what holds for their lives."""
        at = day.end_seconds + READ_AHEAD_SECONDS - END_MARGIN_SECONDS
        length = day.seconds + READ_AHEAD_SECONDS
        gpu = (*self._reading.matchers, self._gpu)
        answers = self._reading.instants(
            [
                over_all(RequestLabels, LARGEST, REQUESTS, gpu, length),
                over_all(RequestLabels, LARGEST, INIT_REQUESTS, gpu, length),
            ],
            at,
        )
        self._add_requests(next(answers), of_init=False)
        self._add_requests(next(answers), of_init=True)
        if self.pods:
            self._read_lives(at, length)

    def _read_lives(self, at: float, length: float) -> None:
        chosen = self._chosen()
        answers = self._reading.instants(
            [
                over_all(PodLabels, LARGEST, CREATED, chosen, length),
                over_all(PodLabels, LARGEST, SCHEDULED, chosen, length),
                over_all(PodLabels, LARGEST, STARTED, chosen, length),
                over_all(PodLabels, LARGEST, COMPLETED, chosen, length),
                over_all(Phase, LARGEST, PHASE, (*chosen, _TERMINAL), length),
                over_all(PodLabels, LARGEST, UNSCHEDULABLE, chosen, length),
                over_all(PodOwner, LARGEST, OWNER, (*chosen, _CONTROLLER), length),
                over_all(PodInfo, LARGEST, INFO, chosen, length),
                over_all(ReplicaSet, LARGEST, REPLICASET_OWNER, chosen, length),
                over_all(Job, LARGEST, JOB_OWNER, chosen, length),
            ],
            at,
        )
        self._add_times(next(answers), CREATED, "created")
        self._add_times(next(answers), SCHEDULED, "bound")
        self._add_times(next(answers), STARTED, "started")
        self._add_times(next(answers), COMPLETED, "completed")
        self._add_phases(next(answers))
        self._add_unschedulable(next(answers))
        self._add_owners(next(answers))
        self._add_infos(next(answers))
        self._add_controllers(next(answers), next(answers))
        if any(pod.init_requests for pod in self.pods.values()):
            query, kind = over_all(Container, LARGEST, INIT_INFO, (*chosen, _SIDECAR), length)
            for one in self._reading.instant(query, at, kind):
                pod = self.pods.get(one.metric.uid)
                if pod is not None:
                    pod.sidecars.add(one.metric.name)

    def _chosen(self) -> tuple[Matcher, ...]:
        """Return the cluster's matchers, with the namespaces of GPU pods if they are few."""
        names = sorted({pod.namespace for pod in self.pods.values()})
        if len(names) > _MOST_NAMESPACES:
            return self._reading.matchers
        # Most pods of a cluster request no GPU, and most of them in other namespaces.
        return (*self._reading.matchers, one_of(self._namespace, names))

    def _add_requests(self, series: list[Instant[RequestLabels]], *, of_init: bool) -> None:
        parts: list[Instant[RequestLabels]] = []
        for one in series:
            labels = one.metric
            if counts_no_device(labels.resource):
                parts.append(one)
                continue
            asked = self._plausible.units(INIT_REQUESTS if of_init else REQUESTS, one.value[1])
            if asked is None:
                continue
            if not labels.uid:
                self.nameless = (REQUESTS,)
                self._reading.remark(
                    "kube-state-metrics shows pods without uid: version 2.0 or newer is needed"
                )
                continue
            pod = self.pods.get(labels.uid)
            if pod is None:
                pod = self.pods[labels.uid] = self._new_pod(labels)
            pod.node = pod.node or labels.node
            requests = pod.init_requests if of_init else pod.requests
            # Prometheus renames labels that the target itself has, as a pod of kube-state-metrics
            # does.
            units = requests.setdefault(labels.exported_container or labels.container, {})
            units[labels.resource] = max(units.get(labels.resource, 0.0), asked)
        if not of_init:
            self._add_parts(parts)

    def _add_parts(self, series: list[Instant[RequestLabels]]) -> None:
        """Note what pods of HAMi ask of each of their GPUs; it makes nothing a pod of GPUs."""
        for one in series:
            labels = one.metric
            part, pod = part_of_each_gpu(labels.resource), self.pods.get(labels.uid)
            asked = self._plausible.mebibytes(REQUESTS, one.value[1])
            if part and pod is not None and asked:
                container = labels.exported_container or labels.container
                pod.of_each_gpu.setdefault(container, {})[part] = asked

    def _new_pod(self, labels: RequestLabels) -> PodSeries:
        if not labels.exported_pod:
            return PodSeries(labels.uid, labels.namespace, labels.pod)
        # The clash is one of the whole target: every later query must match the renamed label.
        self._namespace = "exported_namespace"
        return PodSeries(labels.uid, labels.exported_namespace, labels.exported_pod)

    def _add_times(self, series: list[Instant[PodLabels]], metric: str, name: str) -> None:
        for one in series:
            self.seen.add(metric)
            pod = self.pods.get(one.metric.uid)
            at = self._plausible.time(metric, one.value[1]) if pod is not None else None
            if pod is not None and at is not None:
                # Of two pods with one uid the later one counts, whichever comes first.
                setattr(pod, name, max(getattr(pod, name) or at, at))

    def _add_phases(self, series: list[Instant[Phase]]) -> None:
        for one in series:
            self.seen.add(PHASE)
            pod = self.pods.get(one.metric.uid)
            if pod is not None and self._plausible.fraction(PHASE, one.value[1]):
                pod.terminal = max(pod.terminal, one.metric.phase)

    def _add_unschedulable(self, series: list[Instant[PodLabels]]) -> None:
        for one in series:
            pod = self.pods.get(one.metric.uid)
            if pod is not None and self._plausible.fraction(UNSCHEDULABLE, one.value[1]):
                pod.unschedulable = True

    def _add_owners(self, series: list[Instant[PodOwner]]) -> None:
        for one in series:
            pod = self.pods.get(one.metric.uid)
            if pod is not None:
                pod.owner = Owner(one.metric.owner_kind, one.metric.owner_name)

    def _add_infos(self, series: list[Instant[PodInfo]]) -> None:
        for one in series:
            pod = self.pods.get(one.metric.uid)
            if pod is not None:
                pod.node = pod.node or one.metric.node
                pod.priority_class = one.metric.priority_class or pod.priority_class

    def _add_controllers(
        self, replicasets: list[Instant[ReplicaSet]], jobs: list[Instant[Job]]
    ) -> None:
        for replicaset in (one.metric for one in replicasets):
            key = (replicaset.own_namespace, "ReplicaSet", replicaset.replicaset)
            self.owners[key] = Owner(replicaset.owner_kind, replicaset.owner_name)
        for job in (one.metric for one in jobs):
            self.owners[job.own_namespace, "Job", job.job_name] = Owner(
                job.owner_kind, job.owner_name
            )

    # ------------------------------------------------------------ what changes with the slots

    def read_slots(self, slots: Sequence[int]) -> None:
        """Read how long the pods were there and ran in each slot, at most a day of them."""
        if not self.pods:
            return
        gpu, chosen = (*self._reading.matchers, self._gpu), self._chosen()
        answers = self._reading.slots(
            [
                over_slots(ContainerResource, COUNT, REQUESTS, gpu, slots),
                over_slots(ContainerResource, COUNT, INIT_REQUESTS, gpu, slots),
                over_slots(Container, EARLIEST, CONTAINER_STARTED, chosen, slots),
                over_slots(Container, TOTAL, CONTAINER_RUNNING, chosen, slots),
            ]
        )
        # One after the other, so that the decoded answers are not all held at once.
        self._add_samples(next(answers))
        self._add_samples(next(answers))
        self._add_starts(next(answers))
        for slot, labels, count in next(answers):
            self.seen.add(CONTAINER_RUNNING)
            pod = self.pods.get(labels.uid)
            if pod is not None and _asks(pod, labels.name):
                known = self._plausible.count(CONTAINER_RUNNING, count) or 0.0
                pod.running[slot] = max(pod.running.get(slot, 0.0), known)

    def _add_samples(self, points: Points) -> None:
        for slot, labels, count in points:
            pod = self.pods.get(labels.uid)
            if pod is not None:
                pod.samples[slot] = max(pod.samples.get(slot, 0.0), count)

    def _add_starts(self, points: Iterable[tuple[int, Any, float]]) -> None:
        for slot, labels, at in points:
            self.seen.add(CONTAINER_STARTED)
            pod = self.pods.get(labels.uid)
            if pod is None or not _asks(pod, labels.name):
                continue
            start = self._plausible.time(CONTAINER_STARTED, at)
            if start is not None:
                pod.starts[slot] = min(pod.starts.get(slot, start), start)

    # ------------------------------------------------------------ shortly after the window

    def after_queries(self) -> list[tuple[str, type[Any]]]:
        """Return the queries that show the pods shortly after the window: two, or three."""
        gpu = (*self._reading.matchers, self._gpu)
        queries = [
            over_all(PodLabels, COUNT, REQUESTS, gpu, READ_AHEAD_SECONDS),
            over_all(PodLabels, COUNT, INIT_REQUESTS, gpu, READ_AHEAD_SECONDS),
            over_all(Container, EARLIEST, CONTAINER_STARTED, self._chosen(), READ_AHEAD_SECONDS),
        ]
        return queries if self.pods else []

    def add_after(self, series: list[Instant[PodLabels]]) -> bool:
        """Note which pods are still there; say whether any is."""
        found = [self.pods.get(one.metric.uid) for one in series]
        for pod in found:
            if pod is not None:
                pod.after = True
        return any(pod is not None for pod in found)

    def add_starts_after(self, series: list[Instant[Container]], end: int) -> None:
        """Note the starts that show first after the window; `end` is where it ends."""
        self._add_starts((end, one.metric, one.value[1]) for one in series)

    # ------------------------------------------------------------ rare

    def read_rejections(self, slots: Sequence[int]) -> None:
        """Learn when pods ended that never ran: they have no completion time."""
        uids = sorted(
            uid for uid, pod in self.pods.items() if pod.terminal and pod.completed is None
        )
        matchers = (*self._reading.matchers, _TERMINAL)
        queries = [
            over_slots(
                PodLabels,
                TOTAL,
                PHASE,
                (*matchers, one_of("uid", uids[m : m + _UIDS_PER_QUERY])),
                slots[n : n + MAX_STEPS],
            )
            for m in range(0, len(uids), _UIDS_PER_QUERY)
            for n in range(0, len(slots), MAX_STEPS)
        ]
        for points in self._reading.slots(queries):
            for slot, labels, count in points:
                pod = self.pods.get(labels.uid)
                if pod is not None:
                    pod.terminal_samples[slot] = self._plausible.count(PHASE, count) or 0.0


def _asks(pod: PodSeries, container: str) -> bool:
    """Say whether a container requests GPUs; init containers are not in these series."""
    return container in pod.requests or not pod.requests
