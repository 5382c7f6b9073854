"""The nodes of tiers over a window: what each offers of whole or parts of GPUs, and what is held.

Computed from node intervals and the pod ledger: see docs/definitions.md#slots.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from django.db.models import Q, QuerySet, Sum
from msgspec import Struct, field

from apps.accounts.permissions import Visibility
from apps.clusters.domain.devices.resource_claims import CLAIM_KIND
from apps.clusters.domain.observed.objects import (
    NodeSnapshot,
    ObservedKind,
)
from apps.clusters.domain.observed.places import (
    TopologySnapshot,
)
from apps.clusters.domain.resources import GPU, GPU_MEMORY, PARTS_OF_GPU
from apps.clusters.domain.tiers import (
    UNMATCHED,
    TierRule,
    is_shared,
    mig_profile,
    tier_of,
    unit_weight,
)
from apps.clusters.domain.topology import (
    LEVEL_LABELS,
    TOPOLOGY_LABELS,
    Domain,
    Levels,
    TopologyLevel,
    domain_of,
    known_levels,
    levels_with,
)
from apps.clusters.domain.window import Window
from apps.clusters.models import ClaimInterval, NodeInterval, Pod
from apps.clusters.selectors import ActiveCluster, active_clusters
from apps.clusters.services import TierHistory, observed_in
from apps.planning.domain.topology.slots import Gpus, GpuSpan, free_gpus, offered_gpus
from gpuportal.database_functions import UnixSeconds

_INTERVAL_COLUMNS = (
    *("node__cluster_id", "node__name", "start_seconds", "end_seconds", "ready", "schedulable"),
    *("allocatable", "labels", "devices"),
)
_POD_COLUMNS = ("cluster_id", "node_name", "resource", "units", "bound", "ended")
_CLAIM_COLUMNS = ("cluster_id", "node_name", "allocated", "released", "devices")
INSTANT = timedelta(seconds=1)
"""The longest window that is read as one moment."""
Place = tuple[int, str, str]
"""A cluster's id, a node, and a resource or device class that it offers."""


class TierFilters(NamedTuple):
    """Narrow tiers; empty means all."""

    cluster: tuple[str, ...] = ()
    tier: tuple[str, ...] = ()


class _Offer(NamedTuple):
    """Units of a resource or device class that a node offers, and the tier that they are of."""

    tier: str
    resource: str
    device: str
    units: float


Offers = Callable[
    [Mapping[str, float], Mapping[str, str], Sequence[Mapping[str, Any]], Sequence[TierRule]],
    Iterator[_Offer],
]


class TierNodes(Struct):
    """The nodes of a tier in a cluster; spans name them by their number here.

    `device` is empty where these offer whole GPUs, else what parts of GPUs its units stand for.
    `gpus` are those that a node has by its newest interval, whether it takes pods or not; `there`
    has the same of each interval, and `offered` of those in which it takes pods.
    """

    cluster: str
    tier: str
    levels: Levels
    device: str = ""
    nodes: list[str] = field(default_factory=list)
    labels: list[Mapping[str, str]] = field(default_factory=list)
    gpus: list[float] = field(default_factory=list)
    there: list[GpuSpan] = field(default_factory=list)
    offered: list[GpuSpan] = field(default_factory=list)
    held: list[GpuSpan] = field(default_factory=list)

    def known_levels(self) -> tuple[TopologyLevel, ...]:
        """Return the levels that labels of its nodes name, and hosts; widest first."""
        return known_levels(self.labels, self.levels)

    def domains(self, level: TopologyLevel) -> list[Domain | None]:
        """Return the domain of each node at a level."""
        own = zip(self.nodes, self.labels, strict=True)
        return [domain_of(node, labels, level, self.levels) for node, labels in own]

    def domain_numbers(self, level: TopologyLevel) -> list[int]:
        """Return the same as numbers; -1: of no domain."""
        numbers: dict[Domain, int] = {}
        return [
            -1 if domain is None else numbers.setdefault(domain, len(numbers))
            for domain in self.domains(level)
        ]

    def free(self, times: Sequence[float]) -> Gpus:
        """Return the free GPUs of each node at each of these times."""
        return free_gpus(len(self.nodes), self.offered, self.held, times)

    def capacity(self, times: Sequence[float]) -> Gpus:
        """Return the GPUs of each node that can be had at each of these times."""
        return offered_gpus(len(self.nodes), self.offered, times)

    def installed(self, times: Sequence[float]) -> Gpus:
        """Return the GPUs of each node at each of these times, whether it takes pods or not."""
        return offered_gpus(len(self.nodes), self.there, times)


def tier_nodes(window: Window, *, visibility: Visibility, filters: TierFilters) -> list[TierNodes]:
    """Return the tiers of whole GPUs with the spans of a window, by cluster and tier.

    Tiers are found by the catalog at the window's end. GPUs that are cut into MIG devices or
    shared are in none: which of them is free is not recorded. Everybody may see the totals that
    follow; `visibility` narrows nothing. Six queries at most.
    """
    del visibility
    return _read(window, filters, _whole_gpus)


def device_nodes(window: Window, *, filters: TierFilters) -> list[TierNodes]:
    """Return the same of MIG devices and of GPU replicas, by cluster, tier and device.

    A unit is one device or one replica. MIG devices that claims are given are in none: a GPU is
    listed with every device that it could be cut into. Six queries at most.
    """
    return _read(window, filters, _parts_of_gpus)


def _read(window: Window, filters: TierFilters, offers: Offers) -> list[TierNodes]:
    clusters = {
        one.pk: one
        for one in active_clusters()
        if not filters.cluster or one.name in filters.cluster
    }
    rules = TierHistory.load().at(window.end_seconds - 1.0)
    reader = _TierReader(clusters, rules, filters, offers)
    intervals = NodeInterval.objects.filter(
        Q(end__isnull=True) | Q(end__gt=window.start),
        node__cluster_id__in=list(clusters),
        start__lt=window.end,
    ).order_by("start", "pk")
    timed = intervals.annotate(start_seconds=UnixSeconds("start"), end_seconds=UnixSeconds("end"))
    for row in timed.values_list(*_INTERVAL_COLUMNS).iterator():
        reader.offer(row)
    reader.hold(_held(window, reader.places))
    return reader.found()


class _TierReader:
    """Puts intervals and holders to the tiers that they are of."""

    def __init__(
        self,
        clusters: Mapping[int, ActiveCluster],
        rules: Sequence[TierRule],
        filters: TierFilters,
        offers: Offers,
    ) -> None:
        self._offers = offers
        self._clusters = clusters
        self._rules = rules
        self._filters = filters
        self._levels, self._own_labels = _own_levels(clusters)
        self._tiers: dict[tuple[int, str, str], TierNodes] = {}
        self._numbers: dict[tuple[int, str, str, str], int] = {}
        self.places: dict[Place, tuple[TierNodes, int]] = {}

    def offer(self, row: Any) -> None:
        """Put what a node offers in an interval; one that takes no pods offers nothing."""
        cluster, node, start, end, ready, schedulable, allocatable, labels, devices = row
        is_open = ready and schedulable
        for tier, resource, device, units in self._offers(
            allocatable, labels, devices, self._rules
        ):
            if tier == UNMATCHED or (self._filters.tier and tier not in self._filters.tier):
                continue
            of_tier, number = self._node(cluster, (tier, device), node, labels)
            of_tier.gpus[number] = units
            # The newest interval wins: a node may have come to another tier.
            self.places[cluster, node, resource] = of_tier, number
            span = GpuSpan(number, start, float("inf") if end is None else end, units)
            of_tier.there.append(span)
            if is_open:
                of_tier.offered.append(span)

    def hold(self, held: Iterable[tuple[Place, float, float, float]]) -> None:
        """Put who holds how many GPUs where, from when to when."""
        for place, start, end, units in held:
            of_tier, number = self.places[place]
            of_tier.held.append(GpuSpan(number, start, end, units))

    def found(self) -> list[TierNodes]:
        """Return the tiers by cluster, name and device."""
        return sorted(self._tiers.values(), key=lambda one: (one.cluster, one.tier, one.device))

    def _node(
        self, cluster: int, of: tuple[str, str], node: str, labels: Mapping[str, str]
    ) -> tuple[TierNodes, int]:
        tier, device = of
        known = self._tiers.get((cluster, tier, device))
        if known is None:
            levels = self._levels.get(cluster, LEVEL_LABELS)
            known = TierNodes(self._clusters[cluster].name, tier, levels, device)
            self._tiers[cluster, tier, device] = known
        number = self._numbers.get((cluster, tier, device, node))
        labels = {**labels, **self._own_labels.get((cluster, node), {})}
        if number is None:
            number = self._numbers[cluster, tier, device, node] = len(known.nodes)
            known.nodes.append(node)
            known.labels.append(labels)
            known.gpus.append(0.0)
        # Intervals come oldest first: where a node stands is what was last said of it.
        known.labels[number] = labels
        return known, number


def _own_levels(
    clusters: Collection[int],
) -> tuple[dict[int, Levels], dict[tuple[int, str], Mapping[str, str]]]:
    """Return the levels of clusters whose Topology objects name labels of their own, and these.

    Intervals keep no labels but the declared ones; what a node says now has all. Two queries.
    """
    found: dict[int, Levels] = {}
    labels: dict[tuple[int, str], Mapping[str, str]] = {}
    for pk, objects in observed_in(list(clusters), [ObservedKind.TOPOLOGY]).items():
        named = [one.body.levels for one in objects if isinstance(one.body, TopologySnapshot)]
        if any(label not in TOPOLOGY_LABELS for levels in named for label in levels[:-1]):
            found[pk] = levels_with(named)
    for pk, objects in observed_in(list(found), [ObservedKind.NODE]).items() if found else ():
        for one in objects:
            if isinstance(one.body, NodeSnapshot):
                labels[pk, one.name] = one.body.labels
    return found, labels


def _whole_gpus(
    allocatable: Mapping[str, float],
    labels: Mapping[str, str],
    devices: Sequence[Mapping[str, Any]],
    rules: Sequence[TierRule],
) -> Iterator[_Offer]:
    """Yield what a node offers as whole GPUs, by resources and by device classes."""
    for resource, units in allocatable.items():
        if unit_weight(resource, labels) == 1.0 and not is_shared(resource, labels):
            yield _Offer(tier_of(resource, labels, rules), resource, "", units)
    of_class: dict[tuple[str, str], float] = {}
    for one in devices:
        if one["profile"] or not one["allocatable"]:
            continue
        tiers = ((tier_of(name, labels, rules), name) for name in one["classes"])
        # A device may satisfy several classes: it is offered once.
        key = next((pair for pair in tiers if pair[0] != UNMATCHED), None)
        if key is not None:
            of_class[key] = of_class.get(key, 0.0) + 1.0
    for (tier, name), units in of_class.items():
        yield _Offer(tier, name, "", units)


def _parts_of_gpus(
    allocatable: Mapping[str, float],
    labels: Mapping[str, str],
    devices: Sequence[Mapping[str, Any]],
    rules: Sequence[TierRule],
) -> Iterator[_Offer]:
    """Yield what a node offers as MIG devices and as replicas of GPUs."""
    del devices
    for resource, units in allocatable.items():
        profile = mig_profile(resource, labels)
        # Memory and cores of GPUs are amounts, not devices that can be counted.
        if resource in PARTS_OF_GPU or not (profile or is_shared(resource, labels)):
            continue
        device = f"MIG {profile}" if profile else resource
        if profile and is_shared(resource, labels):
            device = f"MIG {profile}, shared"
        yield _Offer(tier_of(resource, labels, rules), resource, device, units)


def _held(
    window: Window, places: Mapping[Place, tuple[TierNodes, int]]
) -> Iterator[tuple[Place, float, float, float]]:
    """Yield who holds GPUs of these places: pods, and the claims that were given devices."""
    pods = Pod.objects.filter(
        Q(ended_at__isnull=True) | Q(ended_at__gt=window.start),
        cluster_id__in={place[0] for place in places},
        resource__in={place[2] for place in places} | PARTS_OF_GPU,
        bound_at__lt=window.end,
    ).exclude(workload__kind=CLAIM_KIND)
    of_claims = set()
    claims = ClaimInterval.objects.filter(
        Q(released_at__isnull=True) | Q(released_at__gt=window.start),
        cluster_id__in={place[0] for place in places},
        allocated_at__lt=window.end,
    ).annotate(allocated=UnixSeconds("allocated_at"), released=UnixSeconds("released_at"))
    for cluster, node, start, end, devices in claims.order_by().values_list(*_CLAIM_COLUMNS):
        for one in devices:
            place = (cluster, node, one["device_class"])
            of_claims.add(place)
            # MIG devices of a claim are no whole GPUs.
            if place in places and not one["profile"]:
                yield place, start, _end(end), one["share"]
    for (cluster, node, resource), start, end, units in _held_by_pods(pods, window):
        # KAI shares what a node offers as whole GPUs.
        place = (cluster, node, GPU if resource in PARTS_OF_GPU else resource)
        # Several pods may share what a claim was given: the claim holds it once.
        if place in places and place not in of_claims:
            if resource == GPU_MEMORY:
                of_tier, number = places[place]
                units *= unit_weight(GPU_MEMORY, of_tier.labels[number])
            yield place, start, end, units


def _held_by_pods(
    pods: QuerySet[Pod], window: Window
) -> Iterator[tuple[Place, float, float, float]]:
    """Yield what pods hold where; of an instant their sum on each node, for they are thousands."""
    rows = pods.order_by()
    if window.end - window.start <= INSTANT:
        sums = rows.values_list("cluster_id", "node_name", "resource").annotate(Sum("units"))
        for cluster, node, resource, units in sums:
            yield (cluster, node, resource), window.start_seconds, float("inf"), units
        return
    timed = rows.annotate(bound=UnixSeconds("bound_at"), ended=UnixSeconds("ended_at"))
    for cluster, node, resource, units, bound, ended in timed.values_list(*_POD_COLUMNS):
        yield (cluster, node, resource), bound, _end(ended), units


def _end(at: float | None) -> float:
    return float("inf") if at is None else at
