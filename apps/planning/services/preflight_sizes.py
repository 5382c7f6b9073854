"""What planned pods count as, what they cost and how long such pods usually queue."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from functools import cached_property

from msgspec import Struct

from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    LocalQueueSnapshot,
    NodeSnapshot,
    ObservedKind,
)
from apps.clusters.domain.resources import main_resource
from apps.clusters.domain.tiers import (
    NodeOffer,
    NodeOffers,
    capacity_type,
    gpu_model,
    tier_before_binding,
)
from apps.clusters.selectors import ActiveCluster
from apps.clusters.services import TierHistory
from apps.costs.domain.prices import PriceBook
from apps.costs.selectors import price_book
from apps.pending import selectors as pending
from apps.pending.domain.diagnosis import ClusterState
from apps.pending.domain.placement.fits import bits
from apps.pending.domain.placement.flavor_nodes import FlavorNodes
from apps.pending.domain.planned_pods import PlannedPods
from apps.pending.domain.pods import selector
from apps.pending.domain.queues.cluster_queues import takes_namespace
from apps.pending.domain.submission import PlannedWork, SubmissionDiagnoser
from apps.planning.domain.planned import gpus_of
from apps.planning.domain.queue_time_ranges import ForecastRow, row_for
from apps.planning.domain.verdicts import Verdict
from apps.planning.selectors import queue_forecasts
from apps.planning.services.preflight_rows import QueueTimeRange

_RANGE = (0.1, 0.5, 0.9)
_CENT = Decimal("0.01")


class PodSize(Struct, frozen=True):
    """What pods count as: `units` of their main resource, `each` GPU-equivalents a pod."""

    tier: str
    resource: str
    units: float
    each: float


class SubmissionSizes:
    """Sizes, prices and queue times on one cluster; its state is indexed once."""

    def __init__(
        self, cluster: ActiveCluster, state: ClusterState, catalog: TierHistory, now: datetime
    ) -> None:
        self.state = state
        self.rules = catalog.at(now.timestamp())
        self.diagnoser = SubmissionDiagnoser(state)
        self._cluster = cluster
        self._now = now
        self.nodes = [
            one.body for one in state.of(ObservedKind.NODE) if isinstance(one.body, NodeSnapshot)
        ]
        self._places = NodeOffers(
            [NodeOffer(node.labels, {*node.allocatable, *node.devices}) for node in self.nodes]
        )
        self._waits: dict[tuple[str, float], QueueTimeRange | None] = {}

    @cached_property
    def _prices(self) -> PriceBook:
        return price_book(self._now)

    @cached_property
    def flavor_nodes(self) -> FlavorNodes | None:
        """The nodes by flavor of Kueue; None where no node is known."""
        index = self.diagnoser.index
        return FlavorNodes(index, self.diagnoser.placer) if len(index.nodes) else None

    def gpus(self, part: PlannedPods) -> dict[str, float]:
        """Return the GPU resources and device classes of the requests of a pod."""
        return gpus_of(part.pod.requests, self.state.is_gpu)

    def size(self, part: PlannedPods) -> PodSize:
        """Return what pods count as; empty names without GPUs."""
        gpus = self.gpus(part)
        if not gpus:
            return PodSize("", "", 0.0, 0.0)
        resource, units = main_resource(gpus)
        labels = selector(part.pod.placement)
        tier = tier_before_binding(resource, labels, self.rules)
        each = sum(n * self._places.weight(r, labels, tier, self.rules) for r, n in gpus.items())
        return PodSize(tier, resource, units, each)

    def price(self, size: PodSize, part: PlannedPods) -> tuple[Decimal | None, str]:
        """Return the price of a GPU-hour on the most common kind of node that could hold the pods.

        Where no node could, of the most common kind that is selected and offers such GPUs.
        """
        fitting = self.diagnoser.placer.fit_of(part.pod.requests, part.pod.placement)
        mask = fitting.could or fitting.selected & fitting.gpu_offering
        mask = mask or fitting.selected & fitting.nodes.offering(dict.fromkeys(self.gpus(part), 1))
        labels = [fitting.nodes.seen[i].labels for i in bits(mask)] if size.each else []
        kinds = Counter((gpu_model(one), capacity_type(one).value) for one in labels)
        if not kinds:
            return None, ""
        # Prices differ by model and capacity type; which node it will be is not known yet.
        model, paid = max(kinds, key=lambda kind: (kinds[kind], kind))
        found = self._prices.price(
            cluster=self._cluster.name,
            tier=size.tier,
            gpu_model=model,
            capacity_type=paid,
            at=self._now,
        )
        return (None, "") if found is None else (found.contracted, found.currency)

    def cluster_queue(self, work: PlannedWork) -> str:
        """Return the ClusterQueue that work goes through; empty where it goes through none."""
        for one in self.state.of(ObservedKind.LOCAL_QUEUE):
            named = (one.namespace, one.name) == (work.namespace, work.queue)
            if named and isinstance(one.body, LocalQueueSnapshot):
                return one.body.cluster_queue
        return ""

    def is_namespace_checked(self, work: PlannedWork) -> bool:
        """Say whether it is known that the ClusterQueue takes work of the namespace, or not."""
        name = self.cluster_queue(work)
        return all(
            takes_namespace(one.body, work.namespace) is not None
            for one in self.state.of(ObservedKind.CLUSTER_QUEUE)
            if one.name == name and isinstance(one.body, ClusterQueueSnapshot)
        )

    def wait(
        self, work: PlannedWork, size: PodSize, pods: int, verdict: Verdict
    ) -> QueueTimeRange | None:
        """Return the queue time by replay of what runs and is pending, else by plain history."""
        queue = self.cluster_queue(work)
        row = row_for(self._forecasts, size.tier, queue, size.units * max(1, pods))
        if row is None:
            return self._past_wait(size.tier, size.each)
        # What is diagnosed to queue has to: the part that starts now is no longer open.
        times = row.queued if verdict is Verdict.WAITS else row.any
        return QueueTimeRange(*times, basis="replay", starts_now=row.starts_now)

    @cached_property
    def _forecasts(self) -> Sequence[ForecastRow]:
        return queue_forecasts(self._cluster.pk, now=self._now)

    def _past_wait(self, tier: str, each: float) -> QueueTimeRange | None:
        """Return the queue times of pods of like size in a tier; None where too few started."""
        key = (tier, each)
        if key not in self._waits:
            found = pending.queue_time_quantiles(
                tier, each, self._now, cluster=self._cluster.name, fractions=_RANGE
            )
            # None is kept too, so that a rare size is not read again for each alternative.
            p10, p50, p90 = found or (0.0, 0.0, 0.0)
            self._waits[key] = QueueTimeRange(p10, p50, p90) if found else None
        return self._waits[key]


def cost_of(price: Decimal | None, gpu_hours: float) -> Decimal | None:
    """Return what GPU-hours cost, in cents; None without a price."""
    # `repr` keeps the shortest digits of the float, so cents round as they read.
    return None if price is None else (price * Decimal(repr(gpu_hours))).quantize(_CENT)
