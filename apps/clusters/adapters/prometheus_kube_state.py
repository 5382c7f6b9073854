"""Reading kube-state-metrics series of a window into pods and node spells.

Facts that hold for a pod's life (times, owner, request) come from one instant query over the
whole window; what changes within it from one value for each slot. All of kube-state-metrics is
read with `max` or `sum` over identity, so that replicas of it do no harm: samples are counted
against those of a node that was there throughout, which has as many copies.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from apps.clusters.adapters.prometheus_answers import Instant
from apps.clusters.adapters.prometheus_reading import Points, Reading, SlotQuery, days
from apps.clusters.adapters.promql import (
    END_MARGIN_SECONDS,
    MAX_STEPS,
    Matcher,
    by,
    one_of,
    over,
)
from apps.clusters.domain.kube_objects import NODE_LABELS
from apps.clusters.domain.kube_state import Coverage, Known, PodSeries, pod_record, presence
from apps.clusters.domain.kube_state_nodes import NodeSeries, node_spells
from apps.clusters.domain.ledger import Owner
from apps.clusters.domain.resources import sanitise
from apps.clusters.domain.window import Window
from apps.clusters.ports import LedgerAnswer

# Metrics of kube-state-metrics 2.x; values are units, Unix seconds, or 0 and 1.
REQUESTS = "kube_pod_container_resource_requests"
INIT_REQUESTS = "kube_pod_init_container_resource_requests"
INIT_INFO = "kube_pod_init_container_info"
CREATED = "kube_pod_created"
SCHEDULED = "kube_pod_status_scheduled_time"
STARTED = "kube_pod_start_time"
COMPLETED = "kube_pod_completion_time"
PHASE = "kube_pod_status_phase"
OWNER = "kube_pod_owner"
INFO = "kube_pod_info"
REPLICASET_OWNER = "kube_replicaset_owner"
JOB_OWNER = "kube_job_owner"
CONTAINER_STARTED = "kube_pod_container_state_started"
CONTAINER_RUNNING = "kube_pod_container_status_running"
NODE_CREATED = "kube_node_created"
NODE_CAPACITY = "kube_node_status_capacity"
NODE_ALLOCATABLE = "kube_node_status_allocatable"
NODE_CONDITION = "kube_node_status_condition"
NODE_CORDONED = "kube_node_spec_unschedulable"
NODE_LABELS_METRIC = "kube_node_labels"

GPU_RESOURCES = ("nvidia_com_gpu.*", "nvidia_com_mig_.*", "amd_com_gpu.*", "gpu_intel_com_.*")
_TERMINAL = Matcher("phase", "=~", "Succeeded|Failed")
_MONITORING = "_monitoring"

# How far past the window is looked: what happened before its end shows at the next scrape only.
# Shorter than the settling delay after which an hour is collected.
LOOK_AHEAD_SECONDS = 90
_MOST_NAMESPACES = 200
_UIDS_PER_QUERY = 100
"""What is asked by name at most; beyond it all is read and the rest dropped."""


class Pod(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A pod's identity, the key between queries."""

    namespace: str = ""
    pod: str = ""
    uid: str = ""


class Container(msgspec.Struct, frozen=True, gc=False):
    namespace: str = ""
    pod: str = ""
    uid: str = ""
    container: str = ""


class ContainerResource(msgspec.Struct, frozen=True, gc=False):
    namespace: str = ""
    pod: str = ""
    uid: str = ""
    container: str = ""
    resource: str = ""


class Request(msgspec.Struct, frozen=True, gc=False):
    namespace: str = ""
    pod: str = ""
    uid: str = ""
    container: str = ""
    node: str = ""
    resource: str = ""


class Phase(msgspec.Struct, frozen=True, gc=False):
    namespace: str = ""
    pod: str = ""
    uid: str = ""
    phase: str = ""


class PodOwner(msgspec.Struct, frozen=True, gc=False):
    namespace: str = ""
    pod: str = ""
    uid: str = ""
    owner_kind: str = ""
    owner_name: str = ""


class PodInfo(msgspec.Struct, frozen=True, gc=False):
    namespace: str = ""
    pod: str = ""
    uid: str = ""
    node: str = ""
    priority_class: str = ""


class ReplicaSet(msgspec.Struct, frozen=True, gc=False):
    namespace: str = ""
    replicaset: str = ""
    owner_kind: str = ""
    owner_name: str = ""


class Job(msgspec.Struct, frozen=True, gc=False):
    namespace: str = ""
    job_name: str = ""
    owner_kind: str = ""
    owner_name: str = ""


class Node(msgspec.Struct, frozen=True, gc=False):
    node: str = ""


class NodeResource(msgspec.Struct, frozen=True, gc=False):
    node: str = ""
    resource: str = ""


Labelled = TypeVar("Labelled", Pod, Container, ContainerResource, Request, Phase, PodOwner, PodInfo)


def labels_of(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the labels that a query must keep for `kind`."""
    return tuple(field.encode_name for field in msgspec.structs.fields(kind))


def label_name(key: str) -> str:
    """Return the label under which kube-state-metrics shows a Kubernetes label.

    Other characters become `_`, and a capital after a small letter or digit begins a new word:
    `eks.amazonaws.com/capacityType` is `label_eks_amazonaws_com_capacity_type`.
    """
    words = []
    for before, char in zip(" " + key, sanitise(key), strict=False):
        if char.isupper() and (before.islower() or before.isdigit()):
            words.append("_")
        words.append(char.lower())
    return "label_" + "".join(words)


def read_ledger(
    reading: Reading,
    window: Window,
    *,
    gpu_resources: Sequence[str] = (),
    label_keys: Sequence[str] = (),
) -> LedgerAnswer:
    """Return the pods and node spells of a window; raises as the port says."""
    reader = _LedgerReader(reading, window, gpu_resources, {*NODE_LABELS, *label_keys})
    return reader.read()


class _LedgerReader:
    """Fills one record of series for each pod and node of a window."""

    def __init__(
        self, reading: Reading, window: Window, named: Sequence[str], label_keys: Collection[str]
    ) -> None:
        self._reading = reading
        self._window = window
        self._named = tuple(named)
        self._slots = window.slots()
        self._gpu = Matcher(
            "resource",
            "=~",
            "|".join([*GPU_RESOURCES, *sorted({sanitise(resource) for resource in named})]),
        )
        self._label_names = {label_name(key): key for key in sorted(label_keys)}
        self._pods: dict[Pod, PodSeries] = {}
        self._nodes: dict[str, NodeSeries] = {}
        self._owners: dict[tuple[str, str, str], Owner] = {}
        self._seen: set[str] = set()

    def read(self) -> LedgerAnswer:
        for day in days(self._window):
            self._read_facts(day)
            self._read_slots(day)
        seen_after = self._read_after()
        self._read_rejections()
        coverage = self._coverage(seen_after=seen_after)
        self._warn()
        pods = (
            pod_record(pod, coverage, known=self._known(), named=self._named, owners=self._owners)
            for pod in self._pods.values()
        )
        return LedgerAnswer(
            pods=[pod for pod in pods if pod is not None],
            nodes=[
                spell
                for _, node in sorted(self._nodes.items())
                for spell in node_spells(node, coverage, named=self._named)
            ],
            covered={slot: coverage.covers(slot) for slot in self._slots},
            warnings=self._reading.warnings,
        )

    def _coverage(self, *, seen_after: bool) -> Coverage:
        nodes = (node.samples.items() for node in self._nodes.values())
        offers = (node.capacity_samples.items() for node in self._nodes.values())
        pods = (pod.samples.items() for pod in self._pods.values())
        return Coverage(self._slots, presence(*nodes, *offers, *pods), after=seen_after)

    def _known(self) -> Known:
        return Known(
            phases=PHASE in self._seen,
            starts=CONTAINER_STARTED in self._seen,
            running=CONTAINER_RUNNING in self._seen,
        )

    # ------------------------------------------------------------ what holds for a pod's life

    def _read_facts(self, day: Window) -> None:
        at = day.end_seconds + LOOK_AHEAD_SECONDS - END_MARGIN_SECONDS
        length = day.seconds + LOOK_AHEAD_SECONDS
        requests = [
            self._fact(Request, metric, length, (self._gpu,))
            for metric in (REQUESTS, INIT_REQUESTS)
        ]
        app, init = self._reading.instants(requests, at)
        self._add_requests(app, init)
        if not self._pods:
            return
        chosen = self._in_namespaces()
        queries = [
            self._fact(Pod, CREATED, length, chosen),
            self._fact(Pod, SCHEDULED, length, chosen),
            self._fact(Pod, STARTED, length, chosen),
            self._fact(Pod, COMPLETED, length, chosen),
            self._fact(Phase, PHASE, length, (*chosen, _TERMINAL)),
            self._fact(
                PodOwner, OWNER, length, (*chosen, Matcher("owner_is_controller", "=", "true"))
            ),
            self._fact(PodInfo, INFO, length, chosen),
            self._fact(ReplicaSet, REPLICASET_OWNER, length, chosen),
            self._fact(Job, JOB_OWNER, length, chosen),
        ]
        answers = self._reading.instants(queries, at)
        self._add_times(next(answers), CREATED, "created")
        self._add_times(next(answers), SCHEDULED, "bound")
        self._add_times(next(answers), STARTED, "started")
        self._add_times(next(answers), COMPLETED, "completed")
        self._add_phases(next(answers))
        self._add_owners(next(answers))
        self._add_infos(next(answers))
        self._add_controllers(next(answers), next(answers))
        if any(pod.init_requests for pod in self._pods.values()):
            self._add_sidecars(at, length, chosen)

    def _fact(
        self, kind: type[Any], metric: str, length: float, more: tuple[Matcher, ...]
    ) -> tuple[str, type[Any]]:
        inner = over("max_over_time", metric, (*self._reading.matchers, *more), seconds=length)
        return by("max", labels_of(kind), inner), kind

    def _in_namespaces(self) -> tuple[Matcher, ...]:
        """Return the matcher of namespaces that have GPU pods, where they are not too many."""
        names = sorted({pod.namespace for pod in self._pods})
        return (one_of("namespace", names),) if len(names) <= _MOST_NAMESPACES else ()

    def _add_requests(self, app: list[Instant[Request]], init: list[Instant[Request]]) -> None:
        for series, of_init in ((app, False), (init, True)):
            for one in series:
                labels = one.metric
                if labels.resource.endswith(_MONITORING):
                    continue
                key = Pod(labels.namespace, labels.pod, labels.uid)
                pod = self._pods.get(key)
                if pod is None:
                    uid = labels.uid or f"{labels.namespace}/{labels.pod}"
                    pod = self._pods[key] = PodSeries(uid, labels.namespace, labels.pod)
                pod.node = pod.node or labels.node
                units = (pod.init_requests if of_init else pod.requests).setdefault(
                    labels.container, {}
                )
                units[labels.resource] = max(units.get(labels.resource, 0.0), one.value[1])

    def _add_times(self, series: list[Instant[Pod]], metric: str, name: str) -> None:
        for one in series:
            self._seen.add(metric)
            pod = self._pods.get(one.metric)
            if pod is not None and one.value[1] > 0:
                setattr(pod, name, one.value[1])

    def _add_phases(self, series: list[Instant[Phase]]) -> None:
        for one in series:
            self._seen.add(PHASE)
            pod = self._pod(one.metric)
            if pod is not None and one.value[1] > 0:
                pod.terminal = max(pod.terminal, one.metric.phase)

    def _add_owners(self, series: list[Instant[PodOwner]]) -> None:
        for one in series:
            pod = self._pod(one.metric)
            if pod is not None:
                pod.owner = Owner(one.metric.owner_kind, one.metric.owner_name)

    def _add_infos(self, series: list[Instant[PodInfo]]) -> None:
        for one in series:
            pod = self._pod(one.metric)
            if pod is not None:
                pod.node = pod.node or one.metric.node
                pod.priority_class = one.metric.priority_class

    def _add_controllers(
        self, replicasets: list[Instant[ReplicaSet]], jobs: list[Instant[Job]]
    ) -> None:
        for replicaset in (one.metric for one in replicasets):
            key = (replicaset.namespace, "ReplicaSet", replicaset.replicaset)
            self._owners[key] = Owner(replicaset.owner_kind, replicaset.owner_name)
        for job in (one.metric for one in jobs):
            self._owners[job.namespace, "Job", job.job_name] = Owner(job.owner_kind, job.owner_name)

    def _add_sidecars(self, at: float, length: float, chosen: tuple[Matcher, ...]) -> None:
        query, kind = self._fact(
            Container, INIT_INFO, length, (*chosen, Matcher("restart_policy", "=", "Always"))
        )
        for one in self._reading.instant(query, at, kind):
            pod = self._pod(one.metric)
            if pod is not None:
                pod.sidecars.add(one.metric.container)

    def _pod(self, labels: Labelled) -> PodSeries | None:
        return self._pods.get(Pod(labels.namespace, labels.pod, labels.uid))

    # ------------------------------------------------------------ what changes with the slots

    def _slot_query(
        self,
        kind: type[Any],
        aggregation: str,
        function: str,
        metric: str,
        slots: Sequence[int],
        more: tuple[Matcher, ...] = (),
    ) -> SlotQuery:
        inner = over(function, metric, (*self._reading.matchers, *more))
        return SlotQuery(by(aggregation, labels_of(kind), inner), kind, slots)

    def _read_slots(self, day: Window) -> None:
        slots = day.slots()
        ready = (Matcher("condition", "=", "Ready"), Matcher("status", "=", "true"))
        labels = ("node", *self._label_names)
        labels_inner = over("count_over_time", NODE_LABELS_METRIC, self._reading.matchers)
        queries = [
            self._slot_query(Node, "sum", "count_over_time", NODE_CREATED, slots),
            self._slot_query(Node, "max", "max_over_time", NODE_CREATED, slots),
            self._slot_query(
                NodeResource, "max", "max_over_time", NODE_CAPACITY, slots, (self._gpu,)
            ),
            self._slot_query(
                NodeResource, "sum", "count_over_time", NODE_CAPACITY, slots, (self._gpu,)
            ),
            self._slot_query(
                NodeResource, "max", "avg_over_time", NODE_ALLOCATABLE, slots, (self._gpu,)
            ),
            self._slot_query(Node, "max", "avg_over_time", NODE_CONDITION, slots, ready),
            self._slot_query(Node, "max", "avg_over_time", NODE_CORDONED, slots),
            SlotQuery(by("sum", labels, labels_inner), dict[str, str], slots),
            *self._pod_slot_queries(slots),
        ]
        answers = self._reading.slots(queries)
        self._add_nodes(answers)
        if self._pods:
            self._add_pod_slots(answers)

    def _pod_slot_queries(self, slots: Sequence[int]) -> Iterator[SlotQuery]:
        if not self._pods:
            return
        count, chosen = ("sum", "count_over_time"), self._in_namespaces()
        yield self._slot_query(ContainerResource, *count, REQUESTS, slots, (self._gpu,))
        yield self._slot_query(ContainerResource, *count, INIT_REQUESTS, slots, (self._gpu,))
        yield self._slot_query(Container, "min", "min_over_time", CONTAINER_STARTED, slots, chosen)
        yield self._slot_query(Container, "sum", "sum_over_time", CONTAINER_RUNNING, slots, chosen)

    def _add_nodes(self, answers: Iterator[Points]) -> None:
        for slot, labels, count in next(answers):
            self._node(labels.node).samples[slot] = count
        for _, labels, at in next(answers):
            self._node(labels.node).created = at if at > 0 else None
        for slot, labels, units in next(answers):
            self._node(labels.node).capacity.setdefault(slot, {})[labels.resource] = units
        for slot, labels, count in next(answers):
            counts = self._node(labels.node).capacity_samples
            counts[slot] = max(counts.get(slot, 0.0), count)
        for slot, labels, units in next(answers):
            self._node(labels.node).allocatable.setdefault(slot, {})[labels.resource] = units
        for slot, labels, fraction in next(answers):
            self._node(labels.node).ready[slot] = fraction
        for slot, labels, fraction in next(answers):
            self._node(labels.node).cordoned[slot] = fraction
        self._add_labels(next(answers))

    def _add_labels(self, points: Points) -> None:
        """Keep the labels that each node had for most of each slot."""
        best: dict[tuple[str, int], tuple[float, list[tuple[str, str]]]] = {}
        for slot, labels, count in points:
            self._seen.update(NODE_LABELS_METRIC for name in labels if name in self._label_names)
            node = labels.get("node", "")
            kept = sorted(
                (self._label_names[name], value)
                for name, value in labels.items()
                if name in self._label_names and value
            )
            best[node, slot] = max(best.get((node, slot), (0.0, [])), (count, kept))
        for (node, slot), (_, kept) in best.items():
            self._node(node).labels[slot] = dict(kept)

    def _node(self, name: str) -> NodeSeries:
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = NodeSeries(name)
        return node

    def _add_pod_slots(self, answers: Iterator[Points]) -> None:
        for points in (next(answers), next(answers)):
            for slot, labels, count in points:
                pod = self._pod(labels)
                if pod is not None:
                    pod.samples[slot] = max(pod.samples.get(slot, 0.0), count)
        self._add_starts(next(answers))
        for slot, labels, count in next(answers):
            self._seen.add(CONTAINER_RUNNING)
            pod = self._pod(labels)
            if pod is not None and self._asks(pod, labels.container):
                pod.running[slot] = max(pod.running.get(slot, 0.0), count)

    def _add_starts(self, points: Iterable[tuple[int, Any, float]]) -> None:
        for slot, labels, at in points:
            self._seen.add(CONTAINER_STARTED)
            pod = self._pod(labels)
            if pod is not None and at > 0 and self._asks(pod, labels.container):
                pod.starts[slot] = min(pod.starts.get(slot, at), at)

    @staticmethod
    def _asks(pod: PodSeries, container: str) -> bool:
        """Say whether a container asks for GPUs; init containers are not in these series."""
        return container in pod.requests or not pod.requests

    # ------------------------------------------------------------ shortly after the window

    def _read_after(self) -> bool:
        """Note what is still there shortly after the window; say whether anything is."""
        end = self._slots[-1] + self._window_tail()
        at = end - END_MARGIN_SECONDS
        count = "count_over_time"
        queries = [
            self._after(Node, "sum", count, NODE_CREATED),
            self._after(Node, "sum", count, NODE_CAPACITY, (self._gpu,)),
            self._after(Pod, "sum", count, REQUESTS, (self._gpu,)),
            self._after(Pod, "sum", count, INIT_REQUESTS, (self._gpu,)),
        ]
        if self._pods:
            chosen = self._in_namespaces()
            queries.append(
                self._after(Container, "min", "min_over_time", CONTAINER_STARTED, chosen)
            )
        answers = self._reading.instants(queries, at)
        seen = False
        for series in (next(answers), next(answers)):
            for one in series:
                seen = True
                self._node(one.metric.node).after = True
        for series in (next(answers), next(answers)):
            for one in series:
                pod = self._pods.get(one.metric)
                if pod is not None:
                    seen = pod.after = True
        if self._pods:
            slot = int(self._window.end_seconds)
            self._add_starts((slot, one.metric, one.value[1]) for one in next(answers))
        return seen

    def _window_tail(self) -> float:
        return self._window.end_seconds - self._slots[-1] + LOOK_AHEAD_SECONDS

    def _after(
        self,
        kind: type[Any],
        aggregation: str,
        function: str,
        metric: str,
        more: tuple[Matcher, ...] = (),
    ) -> tuple[str, type[Any]]:
        inner = over(function, metric, (*self._reading.matchers, *more), seconds=LOOK_AHEAD_SECONDS)
        return by(aggregation, labels_of(kind), inner), kind

    # ------------------------------------------------------------ rare things

    def _read_rejections(self) -> None:
        """Learn when pods ended that never ran: they have no completion time."""
        uids = sorted(
            key.uid for key, pod in self._pods.items() if pod.terminal and pod.completed is None
        )
        queries = [
            self._slot_query(
                Pod,
                "sum",
                "sum_over_time",
                PHASE,
                self._slots[n : n + MAX_STEPS],
                (_TERMINAL, one_of("uid", uids[m : m + _UIDS_PER_QUERY])),
            )
            for m in range(0, len(uids), _UIDS_PER_QUERY)
            for n in range(0, len(self._slots), MAX_STEPS)
        ]
        for points in self._reading.slots(queries):
            for slot, labels, count in points:
                pod = self._pods.get(labels)
                if pod is not None:
                    pod.terminal_samples[slot] = count

    def _warn(self) -> None:
        """Say what the cluster's kube-state-metrics does not show."""
        gpu_nodes = [node for node in self._nodes.values() if node.capacity]
        if gpu_nodes and NODE_LABELS_METRIC not in self._seen:
            self._reading.remark(
                "kube_node_labels shows no GPU label: start kube-state-metrics with "
                "--metric-labels-allowlist=nodes=[nvidia.com/gpu.product,...]"
            )
        lacking = {CREATED, SCHEDULED} - self._seen
        if self._pods and lacking:
            self._reading.remark(f"{', '.join(sorted(lacking))} not exported: times are estimates")
        names: dict[str, set[str]] = defaultdict(set)
        for pod in self._pods.values():
            names[pod.name].add(pod.uid)
        if any(len(uids) > 1 and "kube-state-metrics" in name for name, uids in names.items()):
            self._reading.remark(
                "kube-state-metrics is scraped without honor_labels, so its pods' names are lost: "
                "set honorLabels: true in its ServiceMonitor"
            )
