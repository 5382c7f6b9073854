"""Reading kube-state-metrics series of a window into pods and node intervals."""

from collections.abc import Mapping, Sequence

from apps.clusters.adapters.prometheus.kube_state.metrics import (
    CREATED,
    SCHEDULED,
    Plausible,
    gpu_matcher,
)
from apps.clusters.adapters.prometheus.kube_state.nodes import NodeReader
from apps.clusters.adapters.prometheus.kube_state.pods import PodReader
from apps.clusters.adapters.prometheus.promql import END_MARGIN_SECONDS
from apps.clusters.adapters.prometheus.transport.window_reader import WindowReader, days
from apps.clusters.domain.pods.kube_objects import NODE_LABELS
from apps.clusters.domain.pods.kube_state import (
    LOOK_AHEAD_SECONDS,
    SeriesCoverage,
    pod_record,
    presence,
)
from apps.clusters.domain.pods.kube_state_nodes import node_intervals
from apps.clusters.domain.pods.ledger import PodRecord
from apps.clusters.domain.pods.series import ShownSeries, node_shares, pod_shares
from apps.clusters.domain.window import Window
from apps.clusters.ports import LedgerAnswer


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
    nodes = NodeReader(reading, gpu, {*NODE_LABELS, *label_keys}, plausible)
    for day in days(window):
        pods.read_facts(day)
        nodes.read_slots(day.slots())
        pods.read_slots(day.slots())
    seen_after = _read_after(reading, window, pods, nodes)
    pods.read_rejections(window.slots())
    coverage = SeriesCoverage(
        slots=window.slots(),
        full=_full(pods, nodes),
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
    start, end = window.start_seconds, window.end_seconds
    return ShownSeries(
        shares={**node_shares(nodes.nodes.values(), end), **pod_shares(pods.pods.values())},
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
    at = window.end_seconds + LOOK_AHEAD_SECONDS - END_MARGIN_SECONDS
    answers = reading.instants([*nodes.after_queries(), *pods.after_queries()], at)
    seen = [nodes.add_after(next(answers)), nodes.add_after(next(answers))]
    if pods.pods:
        seen += [pods.add_after(next(answers)), pods.add_after(next(answers))]
        pods.add_starts_after(next(answers), int(window.end_seconds))
    return any(seen)


def _remark(reading: WindowReader, pods: PodReader, nodes: NodeReader) -> None:
    """Say what the cluster's kube-state-metrics does not show."""
    if any(node.capacity for node in nodes.nodes.values()) and not nodes.labelled:
        reading.remark(
            "kube_node_labels shows no GPU label: start kube-state-metrics with "
            "--metric-labels-allowlist=nodes=[nvidia.com/gpu.product,...]"
        )
    lacking = {CREATED, SCHEDULED} - pods.seen
    if pods.pods and lacking:
        reading.remark(f"{', '.join(sorted(lacking))} not exported: times are estimates")
