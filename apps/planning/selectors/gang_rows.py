"""Gangs over a window: where their pods ran together, and how active they were there."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any

from django.db.models import Q
from msgspec import Struct

from apps.accounts.permissions import Visibility
from apps.clusters.domain.columns import Column
from apps.clusters.domain.observed.objects import (
    ControllerSnapshot,
    ObservedKind,
    WorkloadSnapshot,
)
from apps.clusters.domain.window import Window
from apps.clusters.models import Pod
from apps.clusters.selectors import active_clusters, team_spans
from apps.clusters.services import observed_in
from apps.pending.domain.queues.gangs import GANG_KINDS
from apps.pending.selectors import use_of_ids
from apps.planning.domain.topology.gang_spread import GangPod, GangSpread, spread_of, together
from apps.planning.selectors.tier_nodes import TierFilters, TierNodes, tier_nodes
from apps.usage.domain.amounts import NANO
from gpuportal.database_functions import UnixSeconds

_MOST_GANGS = 500
_MOST_NAMES = 500
_MOST_PODS = 50_000
_COLUMNS = (
    *("pk", "cluster__name", "tier__name", "workload__namespace__name", "workload__kind"),
    *("workload__name", "name", "gang", "node_name", "gpu_equivalents", "bound", "ended"),
)
_GROUPS = "LeaderWorkerSet"
"""A kind whose replicas are gangs, each by itself."""
_Owner = tuple[str, str, str, str]
"""Cluster, namespace, kind and name of a top controller."""


class GangRow(Struct, frozen=True):
    """A gang as it was when it held most GPUs, and the use of its GPUs over the window."""

    cluster: Annotated[str, Column("Cluster")]
    namespace: Annotated[str, Column("Namespace")]
    team: Annotated[str, Column("Team")]
    workload: Annotated[str, Column("Workload", help="Kind/name of the top controller.")]
    gang: Annotated[str, Column("Gang", help="The group that its pods name, where they name one.")]
    tier: Annotated[str, Column("Tier")]
    pods: Annotated[int, Column("Pods", help="Pods that ran together.")]
    gpus: Annotated[float, Column("Size", "GPUs", "GPUs that they held together.")]
    level: Annotated[str, Column("Level", help="The widest at which it was spread, else host.")]
    domains: Annotated[int, Column("Domains", help="Domains of the level that it was in.")]
    needed: Annotated[int, Column("Needed", help="Fewest domains with so many GPUs.")]
    measured_gpu_hours: Annotated[float, Column("Measured", "GPU-h")]
    utilization_ratio: Annotated[
        float | None, Column("GPU utilization", "%", "Of measured time in the window.")
    ]

    @property
    def is_spread(self) -> bool:
        """Say whether it was in more domains than it needed."""
        return self.domains > self.needed


def gang_rows(window: Window, *, visibility: Visibility, filters: TierFilters) -> list[GangRow]:
    """Return the gangs of a window in tiers of whole GPUs, spread ones and the largest first.

    Gangs are pods that name a group (Volcano, coscheduling, Kueue, Kubernetes), those of kinds
    whose pods work together, of Kueue Workloads with several pods, and of Jobs whose spec says so.
    Of teams that the reader sees, and of the 500 largest gangs. Eleven queries at most, one more
    for every 5,000 pods of them.
    """
    tiers = {
        (one.cluster, one.tier): one
        for one in tier_nodes(window, visibility=visibility, filters=filters)
    }
    pods: dict[tuple[Any, ...], list[tuple[int, str, GangPod]]] = defaultdict(list)
    places = {
        key: {node: number for number, node in enumerate(one.nodes)} for key, one in tiers.items()
    }
    for pk, cluster, tier, namespace, kind, name, pod, gang, node, gpus, bound, ended in _pods(
        window, {cluster for cluster, _ in tiers}
    ):
        if kind == _GROUPS and not gang:
            gang = _group_of(pod, name)
        number = places.get((cluster, tier), {}).get(node)
        if number is not None:
            end = float("inf") if ended is None else ended
            key = (cluster, tier, namespace, kind, name, gang)
            pods[key].append((pk, node, GangPod(number, gpus, bound, end)))
    # One pod is always together.
    whole = {key: own for key, own in pods.items() if len(own) > 1}
    return _rows(whole, tiers, window, visibility)


def _group_of(pod: str, owner: str) -> str:
    """Return the replica of a LeaderWorkerSet that a pod is of: `llm-0`, of `llm-0` and `llm-0-1`.

    Empty for a pod that is not called so.
    """
    number, _, _ = pod.removeprefix(f"{owner}-").partition("-")
    return f"{owner}-{number}" if number.isdecimal() else ""


def _rows(
    pods: Mapping[tuple[Any, ...], Sequence[tuple[int, str, GangPod]]],
    tiers: Mapping[tuple[str, str], TierNodes],
    window: Window,
    visibility: Visibility,
) -> list[GangRow]:
    teams = team_spans(window, {key[2] for key in pods})
    seen = {
        key: own
        for key, own in pods.items()
        if visibility.everything or visibility.sees(teams[key[2]][-1].team_id)
    }
    shapes = {key: _Shape(one) for key, one in tiers.items()}
    placed: list[tuple[tuple[Any, ...], list[GangPod], GangSpread]] = []
    for key, own in seen.items():
        # Pods of several runs of one controller need not have run at the same time.
        held = together([pod for _, _, pod in own])
        spread = shapes[key[0], key[1]].spread(held) if len(held) > 1 else None
        if spread is not None:
            placed.append((key, held, spread))
    placed.sort(key=_order)
    shown = placed[:_MOST_GANGS]
    used = use_of_ids(
        [pk for key, _, _ in shown for pk, _, _ in seen[key]], start=window.start, end=window.end
    )
    rows = []
    for key, held, spread in shown:
        uses = [used[pk] for pk, _, _ in seen[key] if pk in used]
        measured = sum(one.measured for one in uses)
        rows.append(
            GangRow(
                cluster=key[0],
                namespace=key[2],
                team=teams[key[2]][-1].team,
                workload=f"{key[3]}/{key[4]}",
                gang=key[5],
                tier=key[1],
                pods=len(held),
                gpus=sum(pod.gpus for pod in held),
                level=spread.level.value,
                domains=spread.domains,
                needed=spread.needed,
                measured_gpu_hours=measured / NANO,
                utilization_ratio=sum(one.busy for one in uses) / measured if measured else None,
            )
        )
    return rows


def _order(one: tuple[tuple[Any, ...], list[GangPod], GangSpread]) -> tuple[Any, ...]:
    key, held, spread = one
    return (spread.domains <= spread.needed, -sum(pod.gpus for pod in held), key)


class _Shape:
    """The domains and the GPUs of a tier's nodes, found once for all its gangs."""

    def __init__(self, tier: TierNodes) -> None:
        self._domains = {level: tier.domain_numbers(level) for level in tier.known_levels()}
        self._capacity = [0.0] * len(tier.nodes)
        for span in tier.offered:
            # The most that it offered: a node that was away for a time has its size all the same.
            self._capacity[span.node] = max(self._capacity[span.node], span.gpus)

    def spread(self, held: Sequence[GangPod]) -> GangSpread | None:
        return spread_of(held, self._domains, self._capacity)


def _pods(window: Window, clusters: Collection[str]) -> Iterable[Any]:
    """Return the pods of gangs that held GPUs in a window."""
    owners = _declared(clusters)
    named = Q(gang__gt="") | Q(workload__kind__in=GANG_KINDS)
    for kind in sorted({owner[2] for owner in owners}):
        # By name alone in SQL, which is wide; the whole owner is compared below.
        names = sorted({owner[3] for owner in owners if owner[2] == kind})
        named |= Q(workload__kind=kind, workload__name__in=names[:_MOST_NAMES])
    rows = Pod.objects.filter(
        named,
        Q(ended_at__isnull=True) | Q(ended_at__gt=window.start),
        cluster__name__in=clusters,
        bound_at__lt=window.end,
        tier__isnull=False,
    )
    timed = rows.annotate(bound=UnixSeconds("bound_at"), ended=UnixSeconds("ended_at"))
    for row in timed.order_by("-bound_at", "pk").values_list(*_COLUMNS)[:_MOST_PODS]:
        owner = (row[1], row[3], row[4], row[5])
        if row[7] or row[4] in GANG_KINDS or owner in owners:
            yield row


def _declared(clusters: Collection[str]) -> set[_Owner]:
    """Return whose pods a Kueue Workload or a Job says to run together. One query."""
    names = {one.pk: one.name for one in active_clusters() if one.name in clusters}
    found = set()
    kinds = (ObservedKind.KUEUE_WORKLOAD, ObservedKind.JOB)
    for pk, objects in observed_in(list(names), kinds).items():
        for one in objects:
            body = one.body
            if isinstance(body, ControllerSnapshot) and body.together and not body.owner:
                found.add((names[pk], one.namespace, one.kind.short, one.name))
            if isinstance(body, WorkloadSnapshot) and sum(p.count for p in body.pod_sets) > 1:
                found.add((names[pk], one.namespace, body.owner_kind, body.owner))
    return found
