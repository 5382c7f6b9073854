"""Reading the node series of kube-state-metrics."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from apps.clusters.adapters.prometheus_activity import merged
from apps.clusters.adapters.prometheus_answers import Instant
from apps.clusters.adapters.prometheus_kube_metrics import (
    COUNT,
    LARGEST,
    LOOK_AHEAD_SECONDS,
    MEAN,
    NODE_ALLOCATABLE,
    NODE_CAPACITY,
    NODE_CONDITION,
    NODE_CORDONED,
    NODE_CREATED,
    NODE_LABELS,
    Node,
    NodeResource,
    label_name,
    over_all,
    over_slots,
)
from apps.clusters.adapters.prometheus_reading import Points, Reading, SlotQuery, days
from apps.clusters.adapters.promql import END_MARGIN_SECONDS, Matcher, by, over, raw
from apps.clusters.domain.kube_state_nodes import NodeSeries
from apps.clusters.domain.window import SLOT_SECONDS, Window
from apps.clusters.ports import SourceRejected

_READY = (Matcher("condition", "=", "Ready"), Matcher("status", "=", "true"))


class NodeReader:
    """Fills one record of series for each node; `labelled` says whether any label was seen."""

    def __init__(self, reading: Reading, gpu: Matcher, label_keys: Collection[str]) -> None:
        self._reading = reading
        self._gpu = gpu
        self._label_names = {label_name(key): key for key in sorted(label_keys)}
        self.nodes: dict[str, NodeSeries] = {}
        self.labelled = False

    def read_slots(self, slots: Sequence[int]) -> None:
        """Read what changes with the slots, at most a day of them."""
        every = self._reading.matchers
        gpu = (*every, self._gpu)
        labels = by(
            "sum", ("node", *self._label_names), over("count_over_time", NODE_LABELS, every)
        )
        answers = self._reading.slots(
            [
                over_slots(Node, COUNT, NODE_CREATED, every, slots),
                over_slots(Node, LARGEST, NODE_CREATED, every, slots),
                over_slots(NodeResource, LARGEST, NODE_CAPACITY, gpu, slots),
                over_slots(NodeResource, COUNT, NODE_CAPACITY, gpu, slots),
                over_slots(NodeResource, MEAN, NODE_ALLOCATABLE, gpu, slots),
                over_slots(Node, MEAN, NODE_CONDITION, (*every, *_READY), slots),
                over_slots(Node, MEAN, NODE_CORDONED, every, slots),
                SlotQuery(labels, dict[str, str], slots),
            ]
        )
        self._add_slots(answers)

    def _add_slots(self, answers: Iterator[Points]) -> None:
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
            over_all(Node, COUNT, NODE_CREATED, every, LOOK_AHEAD_SECONDS),
            over_all(Node, COUNT, NODE_CAPACITY, (*every, self._gpu), LOOK_AHEAD_SECONDS),
        ]

    def add_after(self, series: list[Instant[Node]]) -> bool:
        """Note which nodes are still there; say whether any is."""
        for one in series:
            self._node(one.metric.node).after = True
        return bool(series)

    def scrapes(self, window: Window) -> dict[int, list[float]]:
        """Return when kube-state-metrics was scraped, by slot, from a node that was long there.

        These few raw samples place the end of what vanished between two scrapes; without them
        its estimate would be off by the phase of the scrapes, for all of a cluster alike.
        """
        found: dict[int, list[float]] = defaultdict(list)
        longest = max(
            self.nodes.values(), key=lambda n: (sum(n.samples.values()), n.name), default=None
        )
        if longest is None or not longest.samples:
            return found
        matchers = (*self._reading.matchers, Matcher("node", "=", longest.name))
        for day in days(window):
            query = raw(NODE_CREATED, matchers, seconds=day.seconds)
            try:
                series = self._reading.raw(query, day.end_seconds - END_MARGIN_SECONDS, Node)
            except SourceRejected as refusal:
                self._reading.remark(f"raw samples are refused ({refusal})")
                break
            for at, _ in merged([one.values for one in series]):
                found[int(at // SLOT_SECONDS) * SLOT_SECONDS].append(at)
        return found
