"""Reading kube-state-metrics series of a window into pods and node intervals."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import inf
from statistics import mean
from typing import Any

from apps.clusters.adapters.prometheus.dcgm.device_rows import Sample, merged
from apps.clusters.adapters.prometheus.http_api import (
    END_MARGIN_SECONDS,
    Instant,
    Matcher,
    Matrix,
    by,
    one_of,
    over,
    raw,
)
from apps.clusters.adapters.prometheus.kube_state.hami import read_hami
from apps.clusters.adapters.prometheus.kube_state.metrics import (
    COUNT,
    CREATED,
    LARGEST,
    MEAN,
    NODE_ALLOCATABLE,
    NODE_CAPACITY,
    NODE_CONDITION,
    NODE_CORDONED,
    NODE_CREATED,
    NODE_LABELS,
    SCHEDULED,
    NodeLabels,
    NodeResource,
    Plausible,
    gpu_matcher,
    label_name,
    over_all,
    over_slots,
)
from apps.clusters.adapters.prometheus.kube_state.pods import PodReader
from apps.clusters.adapters.prometheus.window_reader import (
    Points,
    SlotQuery,
    WindowReader,
    day_windows,
)
from apps.clusters.domain.pods.kube_objects import STORED_LABELS
from apps.clusters.domain.pods.kube_state import (
    READ_AHEAD_SECONDS,
    SeriesCoverage,
    pod_record,
    presence,
)
from apps.clusters.domain.pods.kube_state_nodes import (
    NodeGpus,
    NodeSeries,
    ShownSeries,
    hour_shares,
    node_intervals,
)
from apps.clusters.domain.pods.ledger import PodRecord
from apps.clusters.domain.window import SLOT_SECONDS, TimeSpan, Window
from apps.clusters.ports import LedgerAnswer, SourceRejected

_NODES_PER_QUERY = 100
_READY = (Matcher("condition", "=", "Ready"), Matcher("status", "=", "true"))


class NodeReader:
    """Fills one record of series for each node; `labelled` says whether any label was seen."""

    def __init__(
        self, reading: WindowReader, gpu: Matcher, label_keys: Collection[str], plausible: Plausible
    ) -> None:
        self._reading = reading
        self._plausible = plausible
        self._gpu = gpu
        self._label_names = {label_name(key): key for key in sorted(label_keys)}
        self.nodes: dict[str, NodeSeries] = {}
        self.labelled = False
        self.nameless: tuple[str, ...] = ()

    def read_slots(self, slots: Sequence[int]) -> None:
        """Read what changes with the slots, at most a day of them."""
        every = self._reading.matchers
        gpu = (*every, self._gpu)
        # Counted by the labels' values: a node that was relabelled has two series in a slot.
        labels = by(
            "sum", ("node", *self._label_names), over("count_over_time", NODE_LABELS, every)
        )
        answers = self._reading.slots(
            [
                over_slots(NodeLabels, COUNT, NODE_CREATED, every, slots),
                over_slots(NodeLabels, LARGEST, NODE_CREATED, every, slots),
                over_slots(NodeResource, LARGEST, NODE_CAPACITY, gpu, slots),
                over_slots(NodeResource, COUNT, NODE_CAPACITY, gpu, slots),
                over_slots(NodeResource, MEAN, NODE_ALLOCATABLE, gpu, slots),
                over_slots(NodeLabels, MEAN, NODE_CONDITION, (*every, *_READY), slots),
                over_slots(NodeLabels, MEAN, NODE_CORDONED, every, slots),
                SlotQuery(labels, dict[str, str], slots),
            ]
        )
        self._add_slots(answers)
        # Without the label all nodes are one series, of which nothing adds up.
        if self.nodes.pop("", None) is not None:
            self.nameless = (NODE_CREATED, NODE_CAPACITY)
            self._reading.remark("series of nodes come without the label `node`")

    def _add_slots(self, answers: Iterator[Points]) -> None:
        for slot, labels, count in next(answers):
            self._node(labels.node).samples[slot] = count
        self._add_created(next(answers))
        for slot, labels, value in next(answers):
            self._add_units(self._node(labels.node).capacity, slot, labels, NODE_CAPACITY, value)
        for slot, labels, count in next(answers):
            counts = self._node(labels.node).capacity_samples
            counts[slot] = max(counts.get(slot, 0.0), count)
        for slot, labels, value in next(answers):
            self._add_units(
                self._node(labels.node).allocatable, slot, labels, NODE_ALLOCATABLE, value
            )
        for slot, labels, value in next(answers):
            fraction = self._plausible.fraction(NODE_CONDITION, value)
            if fraction is not None:
                self._node(labels.node).ready[slot] = fraction
        for slot, labels, value in next(answers):
            fraction = self._plausible.fraction(NODE_CORDONED, value)
            if fraction is not None:
                self._node(labels.node).cordoned[slot] = fraction
        self._add_labels(next(answers))

    def _add_created(self, points: Points) -> None:
        for slot, labels, value in points:
            node, at = self._node(labels.node), self._plausible.time(NODE_CREATED, value)
            if at is not None:
                node.created[slot] = at

    def _add_units(
        self,
        into: dict[int, dict[str, float]],
        slot: int,
        labels: NodeResource,
        metric: str,
        value: float,
    ) -> None:
        units = self._plausible.units(metric, value)
        if units is not None:
            into.setdefault(slot, {})[labels.resource] = units

    def _add_labels(self, points: Points) -> None:
        """Keep the labels that each node had for most of each slot."""
        best: dict[tuple[str, int], tuple[float, list[tuple[str, str]]]] = {}
        for slot, labels, count in points:
            node = labels.get("node", "")
            kept = sorted(
                (self._label_names[name], value)
                for name, value in labels.items()
                if name in self._label_names and value
            )
            self.labelled = self.labelled or bool(kept)
            best[node, slot] = max(best.get((node, slot), (0.0, [])), (count, kept))
        for (node, slot), (_, kept) in best.items():
            self._node(node).labels[slot] = dict(kept)

    def _node(self, name: str) -> NodeSeries:
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = NodeSeries(name)
        return node

    def after_queries(self) -> list[tuple[str, type[Any]]]:
        """Return the two queries that show which nodes are there shortly after the window."""
        every = self._reading.matchers
        return [
            over_all(NodeLabels, COUNT, NODE_CREATED, every, READ_AHEAD_SECONDS),
            over_all(NodeLabels, COUNT, NODE_CAPACITY, (*every, self._gpu), READ_AHEAD_SECONDS),
        ]

    def add_after(self, series: list[Instant[NodeLabels]]) -> bool:
        """Note which nodes are still there; say whether any is."""
        named = [one.metric.node for one in series if one.metric.node]
        for name in named:
            self._node(name).after = True
        return bool(named)

    def read_remade(self, full: Mapping[int, float]) -> None:
        """Tell nodes of one name apart that a slot shows one after the other.

        Largest, mean and labels of a slot are of both; raw samples of these few nodes say what each
        had. `full` gives by slot the samples of what was there throughout.
        """
        remade: dict[int, list[NodeSeries]] = defaultdict(list)
        for node in self.nodes.values():
            for slot in node.created:
                if node.samples_before(slot, full.get(slot, 0.0)):
                    remade[slot].append(node)
        for slot, nodes in sorted(remade.items()):
            names = sorted(node.name for node in nodes)
            try:
                for n in range(0, len(names), _NODES_PER_QUERY):
                    self._read_remade(slot, names[n : n + _NODES_PER_QUERY])
            except SourceRejected as refusal:
                self._reading.remark(f"raw samples are refused ({refusal})")
                return

    def _read_remade(self, slot: int, names: Sequence[str]) -> None:
        chosen = (*self._reading.matchers, one_of("node", names))
        gpu, at = (*chosen, self._gpu), slot + SLOT_SECONDS - END_MARGIN_SECONDS
        capacity = self._reading.raw(raw(NODE_CAPACITY, gpu), at, NodeResource)
        allocatable = self._reading.raw(raw(NODE_ALLOCATABLE, gpu), at, NodeResource)
        labels = self._reading.raw(raw(NODE_LABELS, chosen), at, dict[str, str])
        for name in names:
            node = self.nodes[name]
            made = node.created[slot]
            old, new = (
                NodeGpus(
                    self._units_in(NODE_CAPACITY, capacity, (name, span), max),
                    self._units_in(NODE_ALLOCATABLE, allocatable, (name, span), mean),
                    self._labels_in(labels, name, span),
                )
                for span in ((0.0, made), (made, inf))
            )
            node.earlier[slot] = old
            # One whose device plugin has not registered yet offers nothing: nothing is to be told
            # of it.
            if new.capacity:
                node.capacity[slot] = dict(new.capacity)
                node.allocatable[slot] = dict(new.allocatable)
                node.labels[slot] = new.labels

    def _units_in(
        self,
        metric: str,
        series: Sequence[Matrix[NodeResource]],
        of: tuple[str, TimeSpan],
        over_time: Callable[[Sequence[float]], float],
    ) -> dict[str, float]:
        """Return by resource the largest of what `over_time` makes of a node's series in a span."""
        name, (start, end) = of
        found: dict[str, float] = {}
        for one in series:
            values = [value for at, value in one.values if start <= at < end]
            if one.metric.node == name and values:
                units = self._plausible.units(metric, over_time(values))
                resource = one.metric.resource
                found[resource] = max(found.get(resource, 0.0), units or 0.0)
        return found

    def _labels_in(
        self, series: Sequence[Matrix[dict[str, str]]], name: str, span: TimeSpan
    ) -> dict[str, str]:
        """Return the labels that a node had for most of a span."""
        counts = [
            (sum(span[0] <= at < span[1] for at, _ in one.values), sorted(one.metric.items()))
            for one in series
            if one.metric.get("node") == name
        ]
        count, labels = max(counts, default=(0, []))
        found = {self._label_names[n]: value for n, value in labels if n in self._label_names}
        return {key: value for key, value in found.items() if value} if count else {}

    def scrapes(self, window: Window) -> dict[int, list[float]]:
        """Return when kube-state-metrics was scraped, by slot.

        These few raw samples place the end of what vanished between two scrapes; without them
        its estimate would be off by the phase of the scrapes, for all of a cluster alike. They
        also show the holes of kube-state-metrics. Each slot is read from the node that has most
        samples in it, so that it gives the same in every window.
        """
        found: dict[int, list[float]] = defaultdict(list)
        for day in day_windows(window):
            chosen = self._longest_there(day.slots())
            if not chosen:
                continue
            matchers = (*self._reading.matchers, one_of("node", sorted(set(chosen.values()))))
            # Any series of kube-state-metrics has its scrape times; this one has few samples.
            query = raw(NODE_CREATED, matchers, seconds=day.seconds)
            try:
                series = self._reading.raw(query, day.end_seconds - END_MARGIN_SECONDS, NodeLabels)
            except SourceRejected as refusal:
                self._reading.remark(f"raw samples are refused ({refusal})")
                break
            for slot, times in _times_by_slot(series, chosen).items():
                found[slot].extend(times)
        return found

    def _longest_there(self, slots: Sequence[int]) -> dict[int, str]:
        """Return by slot the node with the most samples, the first by name of several."""
        chosen: dict[int, str] = {}
        for slot in slots:
            counts = [(-n.samples[slot], n.name) for n in self.nodes.values() if slot in n.samples]
            if counts:
                chosen[slot] = min(counts)[1]
        return chosen


def _times_by_slot(
    series: Sequence[Matrix[NodeLabels]], chosen: Mapping[int, str]
) -> dict[int, list[float]]:
    """Return the sample times of each slot's chosen node; copies of its series count once."""
    copies: dict[int, list[list[Sample]]] = defaultdict(list)
    for one in series:
        slots: dict[int, list[Sample]] = defaultdict(list)
        for sample in one.values:
            slots[int(sample[0] // SLOT_SECONDS) * SLOT_SECONDS].append(sample)
        for slot, samples in slots.items():
            if chosen.get(slot) == one.metric.node:
                copies[slot].append(samples)
    return {slot: [at for at, _ in merged(some)] for slot, some in copies.items()}


def read_ledger(
    reading: WindowReader,
    window: Window,
    *,
    gpu_resources: Sequence[str] = (),
    label_keys: Sequence[str] = (),
) -> LedgerAnswer:
    """Return the pods and node intervals of a window; raises as the port says."""
    named = tuple(gpu_resources)
    gpu = gpu_matcher(named)
    plausible = Plausible(reading, window.end_seconds)
    pods = PodReader(reading, gpu, plausible)
    nodes = NodeReader(reading, gpu, {*STORED_LABELS, *label_keys}, plausible)
    for day in day_windows(window):
        pods.read_facts(day)
        nodes.read_slots(day.slots())
        pods.read_slots(day.slots())
    read_hami(reading, plausible, window, pods.pods.values(), nodes.nodes)
    seen_after = _read_after(reading, window, pods, nodes)
    pods.read_rejections(window.slots())
    full = _full(pods, nodes)
    nodes.read_remade(full)
    coverage = SeriesCoverage(
        slots=window.slots(),
        full=full,
        after=seen_after,
        scrapes=nodes.scrapes(window),
    )
    _remark(reading, pods, nodes)
    records = {
        uid: record
        for uid, pod in pods.pods.items()
        if (record := pod_record(pod, coverage, known=pods.known, named=named, owners=pods.owners))
    }
    return LedgerAnswer(
        pods=list(records.values()),
        nodes=[
            interval
            for _, node in sorted(nodes.nodes.items())
            for interval in node_intervals(node, coverage, named=named)
        ],
        covered={slot: coverage.complete(slot) for slot in coverage.slots},
        warnings=reading.warnings,
        shown=_shown(pods, nodes, records, window),
        incomplete=reading.incomplete,
    )


def _shown(
    pods: PodReader, nodes: NodeReader, records: Mapping[str, PodRecord], window: Window
) -> ShownSeries:
    """Return what the series themselves were like."""
    start = window.start_seconds
    return ShownSeries(
        shares=hour_shares(nodes.nodes.values(), pods.pods.values(), window),
        nameless=(*nodes.nameless, *pods.nameless),
        plain_nodes=frozenset(
            name for name, node in nodes.nodes.items() if not any(node.capacity.values())
        ),
        past_pods=frozenset(
            (pod.namespace, pod.name)
            for uid, pod in pods.pods.items()
            if uid not in records or _over_by(records[uid], start)
        ),
    )


def _over_by(record: PodRecord, at: float) -> bool:
    return record.ended is not None and record.ended <= at


def _full(pods: PodReader, nodes: NodeReader) -> dict[int, float]:
    """Return by slot the samples of what was there throughout."""
    return presence(
        *(node.samples.items() for node in nodes.nodes.values()),
        *(node.capacity_samples.items() for node in nodes.nodes.values()),
        *(pod.samples.items() for pod in pods.pods.values()),
    )


def _read_after(reading: WindowReader, window: Window, pods: PodReader, nodes: NodeReader) -> bool:
    """Note what is still there shortly after the window; say whether anything is."""
    at = window.end_seconds + READ_AHEAD_SECONDS - END_MARGIN_SECONDS
    answers = reading.instants([*nodes.after_queries(), *pods.after_queries()], at)
    seen = [nodes.add_after(next(answers)), nodes.add_after(next(answers))]
    if pods.pods:
        seen += [pods.add_after(next(answers)), pods.add_after(next(answers))]
        pods.add_starts_after(next(answers), int(window.end_seconds))
    return any(seen)


def _remark(reading: WindowReader, pods: PodReader, nodes: NodeReader) -> None:
    """Say what the cluster's kube-state-metrics does not show."""
    # Since 2.0 kube-state-metrics shows no labels that its command line does not name.
    if any(node.capacity for node in nodes.nodes.values()) and not nodes.labelled:
        reading.remark(
            "kube_node_labels shows no GPU label: start kube-state-metrics with "
            "--metric-labels-allowlist=nodes=[nvidia.com/gpu.product,...]"
        )
    lacking = {CREATED, SCHEDULED} - pods.seen
    if pods.pods and lacking:
        reading.remark(f"{', '.join(sorted(lacking))} not exported: times are estimates")
