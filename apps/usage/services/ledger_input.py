"""The pods and nodes of a window: what `watch` recorded, and in its gaps what series show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from apps.clusters.domain.devices.resource_claims import CLAIM_KIND
from apps.clusters.domain.pods.history import reopened
from apps.clusters.domain.pods.ledger import PodRecord
from apps.clusters.domain.pods.merge import gaps, merge_intervals, merge_pods
from apps.clusters.domain.pods.series import ShownSeries
from apps.clusters.domain.tiers import UNKNOWN_MODEL, UNMATCHED
from apps.clusters.domain.time_spans import Span, clip
from apps.clusters.domain.window import SLOT_SECONDS, Window
from apps.clusters.models import Cluster
from apps.clusters.ports import LedgerAnswer, MetricsSource
from apps.clusters.services import (
    RecordedPod,
    TierHistory,
    recorded_claims,
    recorded_intervals,
    recorded_pod_rows,
    store_inferred_pods,
    watched_spans,
)
from apps.usage.domain.attribution.allocations import PodLedger
from apps.usage.domain.attribution.gpu_classes import Bound
from apps.usage.services.dimensions import PodIds

# The stream of a watch may pause for a moment without anything being missed.
_GAP_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class LedgerInput(PodLedger):
    """The ledger of a window. `unwatched` are the spans that had to be read from series.

    `covered` says for each of their slots whether kube-state-metrics was there, `ids` gives the
    ids of the pods that the API showed. `shown` describes the series themselves, `incomplete` are
    the server's warnings that answers lack something.
    """

    unwatched: Sequence[Span] = ()
    covered: Mapping[int, bool] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    ids: Mapping[str, PodIds] = field(default_factory=dict)
    shown: ShownSeries = field(default_factory=ShownSeries)
    incomplete: tuple[str, ...] = ()

    def slots_without_ledger(self, hour: Window) -> int:
        """Return in how many slots of the hour nobody knows what existed."""
        return sum(
            bool(clip(self.unwatched, slot, slot + SLOT_SECONDS))
            and not self.covered.get(slot, False)
            for slot in hour.slots()
        )

    def source_of(self, hour: Window) -> str:
        """Return `api`, `metrics` or `mixed`."""
        open_seconds = sum(
            b - a for a, b in clip(self.unwatched, hour.start_seconds, hour.end_seconds)
        )
        if not open_seconds:
            return "api"
        return "metrics" if open_seconds >= hour.seconds else "mixed"

    def pods_without_node(self, hour: Window) -> int:
        """Return how many pods held GPUs in the hour on a node that is not known."""
        nodes = {
            interval.node
            for interval in self.intervals
            if interval.start < hour.end_seconds and interval.end > hour.start_seconds
        }
        held = ((pod, pod.held(hour.end_seconds)) for pod in self.pods if pod.node not in nodes)
        return sum(span is not None and span[1] > hour.start_seconds for _, span in held)


def read_ledger(
    cluster: Cluster,
    window: Window,
    source: MetricsSource,
    catalog: TierHistory,
    *,
    now: datetime,
) -> LedgerInput:
    """Return the ledger of a window, and store the pods that only series know.

    Raises what the source raises; a window that was watched throughout asks no source.
    """
    start, end = window.start_seconds, window.end_seconds
    watched = watched_spans(cluster, window)
    unwatched = gaps(watched, start, end, tolerance=_GAP_SECONDS)
    answer = LedgerAnswer(pods=(), nodes=(), covered={})
    if unwatched:
        rules = catalog.within(start, end)
        named = sorted({resource for rule in rules for resource in rule.resources})
        keys = sorted({key for rule in rules for key in rule.node_selector})
        answer = source.ledger(window, gpu_resources=named, label_keys=keys)
        labels = {interval.node: interval.labels for interval in answer.nodes}
        store_inferred_pods(cluster, answer.pods, catalog, labels, now=now)
        # Those that were over before have no part in these hours.
        living = [pod for pod in answer.pods if pod.ended is None or pod.ended > start]
        answer = replace(answer, pods=living)
    rows = recorded_pod_rows(cluster, window)
    recorded = [pod for pod in _recorded(rows, answer.pods) if pod.owner.kind != CLAIM_KIND]
    shown = {pod.uid for pod in recorded}
    intervals = recorded_intervals(cluster, window)
    return LedgerInput(
        pods=merge_pods(recorded, answer.pods),
        intervals=merge_intervals(intervals, answer.nodes, unwatched, tolerance=_GAP_SECONDS),
        bound=_bound(rows),
        unwatched=unwatched,
        covered=answer.covered,
        warnings=answer.warnings,
        # While somebody watched, a pod that nobody saw was not there.
        limits={pod.uid: unwatched for pod in answer.pods if pod.uid not in shown},
        ids={
            row.record.uid: PodIds(row.id, row.workload_id, row.namespace_id, row.record.namespace)
            for row in rows
        },
        claims=recorded_claims(cluster, window),
        shown=answer.shown,
        incomplete=answer.incomplete,
    )


def _recorded(rows: Sequence[RecordedPod], inferred: Sequence[PodRecord]) -> list[PodRecord]:
    """Return the pods that the API showed, their rows read after the inferred ones were stored.

    Of a pod that was lost while nobody watched the end is a guess that other hours may have
    moved: where this window's series show the pod, they alone say when it ended, so that the
    order in which hours are collected does not matter.
    """
    shown = {pod.uid for pod in inferred}
    return [
        reopened(row.record) if row.lost and row.record.uid in shown else row.record for row in rows
    ]


def _bound(rows: Sequence[RecordedPod]) -> dict[str, Bound]:
    """Return what pods of the API were bound with.

    A pod whose tier or model was not known then is classified by its node in each hour.
    """
    return {
        row.record.uid: Bound(row.tier, row.gpu_model, row.gpu_equivalents / row.units)
        for row in rows
        if row.record.bound is not None
        and row.units > 0
        and row.tier not in {None, UNMATCHED}
        and row.gpu_model not in {None, UNKNOWN_MODEL}
    }
