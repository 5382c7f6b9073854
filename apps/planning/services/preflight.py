"""Whether the pods of a manifest would start on a cluster; nothing is sent to it."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cached_property

from apps.accounts.permissions import Visibility
from apps.clusters.domain.observed.objects import NodeSnapshot, ObservedKind
from apps.clusters.domain.pods.kube_objects import main_resource
from apps.clusters.domain.tiers import (
    NodeOffer,
    NodeOffers,
    capacity_type,
    gpu_model,
    tier_before_binding,
)
from apps.clusters.selectors import active_clusters
from apps.clusters.services import TierHistory
from apps.costs import selectors as costs
from apps.pending import selectors as pending
from apps.pending import services as pending_services
from apps.pending.domain.diagnosis import ClusterState
from apps.pending.domain.placement.fits import bits
from apps.pending.domain.placement.flavor_nodes import FlavorNodes
from apps.pending.domain.pods import selector
from apps.pending.domain.submission import (
    PlannedPods,
    PlannedStart,
    PlannedWork,
    SubmissionDiagnoser,
)
from apps.planning.domain.manifests.read import read_manifest
from apps.planning.domain.manifests.submissions import Submission
from apps.planning.domain.planned import SubmissionReader, gpus_of, with_gpus
from apps.planning.domain.verdicts import Verdict, quotas_touched, verdict_of
from apps.planning.services.preflight_rows import (
    AlternativeRow,
    PreflightReport,
    PreflightResult,
    QueueTimeRange,
)

MOST_TEMPLATES = 100
_MOST_ALTERNATIVES = 5
_RANGE = (0.1, 0.5, 0.9)
_CENT = Decimal("0.01")
_RULES = ("podAffinity", "podAntiAffinity")


class PreflightRefused(ValueError):
    """What cannot be answered, and why, in one sentence."""


def preflight_manifest(
    cluster: str, namespace: str, manifest: str, *, now: datetime, visibility: Visibility
) -> PreflightReport:
    """Return whether the pods of a manifest would start, by what was last seen of the cluster.

    Raises ManifestError for a manifest that cannot be read, LookupError for a namespace that is
    not there or not the reader's to see, and PreflightRefused where nothing is known.
    """
    read = read_manifest(manifest)
    if (cluster, namespace) not in pending.seen_namespaces(now, visibility):
        raise LookupError(f"There is no namespace {namespace} on {cluster}, or it is not yours.")
    others = {one.namespace for one in read.submissions} - {"", namespace}
    if others:
        named = ", ".join(sorted(others)[:3])[:200]
        raise PreflightRefused(f"The manifest is for the namespace {named}, not {namespace}.")
    if sum(len(one.templates) for one in read.submissions) > MOST_TEMPLATES:
        raise PreflightRefused(f"The manifest has more than {MOST_TEMPLATES} kinds of pods.")
    found = next(one for one in active_clusters() if one.name == cluster)
    # Metrics alone tell neither quotas nor queues nor what is free on a node.
    if found.kubernetes is None or found.watched_until is None:
        raise PreflightRefused(f"No watch follows {cluster}: its nodes and quotas are not known.")
    catalog = TierHistory.load()
    state = pending_services.current_state(found.pk, now=now, catalog=catalog)
    asked = SubmissionReader(read, state, namespace, catalog.resources).pods()
    cluster_state = _ClusterAnswers(cluster, asked.state, catalog, now, visibility)
    return PreflightReport(
        results=tuple(
            result
            for one, work in asked.works
            for result in cluster_state.results(one, work, asked.unknown_templates)
        ),
        as_of=min(now, found.watched_until),
        other_kinds=read.other_kinds,
    )


@dataclass(frozen=True, slots=True)
class _Size:
    """What pods count as."""

    tier: str
    resource: str
    units: float
    each: float


class _ClusterAnswers:
    """Answers about one cluster; its state is indexed once."""

    def __init__(
        self,
        cluster: str,
        state: ClusterState,
        catalog: TierHistory,
        now: datetime,
        visibility: Visibility,
    ) -> None:
        self._cluster = cluster
        self._state = state
        self._now = now
        self._visibility = visibility
        self._rules = catalog.at(now.timestamp())
        self._diagnoser = SubmissionDiagnoser(state)
        nodes = [one.body for one in state.of(ObservedKind.NODE)]
        self._places = NodeOffers(
            [
                NodeOffer(node.labels, {*node.allocatable, *node.devices})
                for node in nodes
                if isinstance(node, NodeSnapshot)
            ]
        )
        self._waits: dict[tuple[str, float], QueueTimeRange | None] = {}

    @cached_property
    def _prices(self) -> costs.PriceList:
        return costs.price_list(self._now, visibility=self._visibility)

    @cached_property
    def _flavor_nodes(self) -> FlavorNodes | None:
        index = self._diagnoser.index
        return FlavorNodes(index, self._diagnoser.placer) if len(index.nodes) else None

    def results(
        self, one: Submission, work: PlannedWork, unknown: Mapping[str, object]
    ) -> Iterator[PreflightResult]:
        """Yield the answer for each kind of pods with GPUs; without any, for the first."""
        starts = self._diagnoser.starts(work)
        with_gpus = [at for at, part in enumerate(work.pods) if self._gpus(part) or part.pod.claims]
        for at in with_gpus or [0]:
            named = bool(unknown.get(one.name))
            yield self._result(one, work, at, starts[at], unknown_claims=named)

    def _gpus(self, part: PlannedPods) -> dict[str, float]:
        return gpus_of(part.pod.requests, self._state.is_gpu)

    def _result(
        self,
        one: Submission,
        work: PlannedWork,
        at: int,
        start: PlannedStart,
        *,
        unknown_claims: bool,
    ) -> PreflightResult:
        part, why = work.pods[at], start.why
        quotas = quotas_touched(self._state, work)
        size = self._size(part)
        verdict = verdict_of(why, part, work, self._flavor_nodes, quotas)
        rows = pending.suggestion_rows(
            () if why is None else why.suggestions,
            self._cluster,
            at=self._now,
            visibility=self._visibility,
        )
        price, currency = self._price(size, part)
        waits = size.tier and verdict is not Verdict.NEVER
        return PreflightResult(
            kind=one.kind,
            name=one.name,
            role=one.templates[at].role,
            namespace=work.namespace,
            tier=size.tier,
            resource=size.resource,
            units=size.units,
            gpu_equivalents=size.each * start.count,
            pods=start.count,
            could_start=start.could,
            verdict=verdict.value,
            cause="" if why is None else why.cause.value,
            detail="" if why is None else why.detail,
            explanation="" if why is None else why.explanation,
            expected_wait=self._wait(size.tier, size.each) if waits else None,
            quotas=tuple(quotas),
            cost_per_hour=None if price is None else _cents(price, size.each * start.count),
            currency=currency,
            change=rows[0] if rows else None,
            suggestions=tuple(rows),
            alternatives=() if why is None else tuple(self._alternatives(work, at, size)),
            unchecked=tuple(_unchecked(one, at, part, unknown_claims=unknown_claims)),
        )

    def _size(self, part: PlannedPods) -> _Size:
        gpus = self._gpus(part)
        if not gpus:
            return _Size("", "", 0.0, 0.0)
        resource, units = main_resource(gpus)
        labels = selector(part.pod.placement)
        tier = tier_before_binding(resource, labels, self._rules)
        each = sum(n * self._places.weight(r, labels, tier, self._rules) for r, n in gpus.items())
        return _Size(tier, resource, units, each)

    def _price(self, size: _Size, part: PlannedPods) -> tuple[Decimal | None, str]:
        """Return the price of a GPU-hour on most of the nodes that could hold the pods."""
        fitting = self._diagnoser.placer.fit_of(part.pod.requests, part.pod.placement)
        mask = fitting.could or fitting.selected & fitting.gpu_offering
        labels = [fitting.nodes.seen[i].labels for i in bits(mask)] if size.each else []
        kinds = Counter((gpu_model(one), capacity_type(one).value) for one in labels)
        if not kinds:
            return None, ""
        model, paid = max(kinds, key=lambda kind: (kinds[kind], kind))
        found = self._prices.of(self._cluster, model, paid, tier=size.tier)
        return (None, "") if found is None else (found.per_gpu_hour, found.currency)

    def _wait(self, tier: str, each: float) -> QueueTimeRange | None:
        key = (tier, each)
        if key not in self._waits:
            found = pending.queue_time_quantiles(
                tier, each, self._now, cluster=self._cluster, fractions=_RANGE
            )
            self._waits[key] = None if found is None else QueueTimeRange(*found)
        return self._waits[key]

    def _alternatives(self, work: PlannedWork, at: int, size: _Size) -> Iterator[AlternativeRow]:
        """Yield other requests of the same pods that start now: fewer GPUs, other resources."""
        found = 0
        for resource, units in self._options(work.pods[at], size):
            other = with_gpus(work, at, [(size.resource, resource, units)])
            if self._diagnoser.starts(other)[at].why is not None:
                continue
            part = other.pods[at]
            new = self._size(part)
            price, _ = self._price(new, part)
            total = new.each * (part.count or 1)
            yield AlternativeRow(
                tier=new.tier,
                resource=resource,
                units=units,
                gpu_equivalents=total,
                expected_wait=self._wait(new.tier, new.each),
                cost_per_hour=None if price is None else _cents(price, total),
            )
            found += 1
            if found >= _MOST_ALTERNATIVES:
                return

    def _options(self, part: PlannedPods, size: _Size) -> Iterator[tuple[str, float]]:
        if len(self._gpus(part)) != 1 or part.pod.claims:
            return
        units = int(size.units) // 2
        while units >= 1:
            yield size.resource, float(units)
            units //= 2
        # Two MIG devices or replicas are no two GPUs: work for several cannot be moved to them.
        if size.units == 1:
            for resource in self._diagnoser.index.nodes.gpu_resources:
                if resource != size.resource:
                    yield resource, 1.0


def _cents(price: Decimal, gpu_equivalents: float) -> Decimal:
    return (price * Decimal(repr(gpu_equivalents))).quantize(_CENT)


def _unchecked(
    one: Submission, at: int, part: PlannedPods, *, unknown_claims: bool
) -> Iterator[str]:
    """Yield what the recorded state does not tell, of what the pods ask for."""
    spec = one.templates[at].spec
    affinity = spec.get("affinity")
    if isinstance(affinity, dict) and any(affinity.get(key) for key in _RULES):
        yield "Affinity between pods is not checked."
    if spec.get("topologySpreadConstraints"):
        yield "Topology spread is not checked."
    if part.pod.placement.volumes:
        yield "Volumes are not checked."
    if unknown_claims:
        yield "A ResourceClaimTemplate is not in the manifest; its devices are not counted."
    elif part.pod.claims:
        yield "Device selectors are not checked."
    if one.priority_class:
        yield "Preemption is not assumed."
