"""What readers can narrow a page by, and what waits where they do."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Min, Q, Sum

from apps.accounts.permissions import Visibility
from apps.clusters.domain.tiers import UNDETERMINED, CapacityType
from apps.clusters.domain.window import Window
from apps.clusters.models import Namespace, Pod
from apps.clusters.selectors import team_spans
from apps.usage.domain.rows import Filters, Grouping
from apps.usage.selectors.current.pending import PendingGpus
from apps.usage.selectors.names import NameLookup

_NAMED = (Grouping.TIER, Grouping.TEAM, Grouping.GPU_MODEL)
_KEPT = timedelta(days=400)  # how long facts go back
_INSTANT = timedelta(seconds=1)


def filter_names(*, visibility: Visibility) -> Mapping[str, Sequence[str]]:
    """Return the names of tiers, teams, GPU models and capacity types there ever were, sorted.

    By the keys of `Filters`. Everybody may know them: `visibility` narrows nothing. One query.
    """
    names = NameLookup(_NAMED)
    found = {grouping.value: sorted(set(names.known(grouping).values())) for grouping in _NAMED}
    return {**found, Grouping.CAPACITY_TYPE.value: [kind.value for kind in CapacityType]}


def namespaces_seen(
    names: Collection[str], *, visibility: Visibility, now: datetime
) -> tuple[str, ...]:
    """Return those of `names` that are namespaces the reader sees, sorted.

    A namespace is seen when it belonged to a team that the reader sees at some time of which
    facts are kept. What is not there and what may not be seen are left out alike. One query, and
    two more for who does not see everything; none without names.
    """
    if not names:
        return ()
    there = Namespace.objects.filter(name__in=names).order_by("name")
    found: list[str] = list(there.values_list("name", flat=True).distinct())
    if visibility.everything or not found:
        return tuple(found)
    spans = team_spans(Window(now - _KEPT, now + _INSTANT), found)
    return tuple(
        name for name in found if any(visibility.sees(span.team_id) for span in spans[name])
    )


def waiting_of(at: datetime, *, filters: Filters, visibility: Visibility) -> list[PendingGpus]:
    """Return what waits at `at`, by tier name, where `filters` name teams or namespaces too.

    Sums of GPUs at the level of a team may be seen by everybody; where a namespace is named, only
    what is of teams that the reader sees counts. A filter on GPU models or capacity types narrows
    nothing: what waits has none yet. Three queries.
    """
    rows = _by_namespace(at, filters)
    spans = team_spans(Window(at, at + _INSTANT), {row[0] for row in rows})
    found: dict[str, PendingGpus] = {}
    for namespace, tier, pods, gpus, oldest_at in rows:
        holder = spans[namespace][0]
        if filters.team and holder.team not in filters.team:
            continue
        if filters.namespace and not visibility.sees(holder.team_id):
            continue
        name = tier or UNDETERMINED
        before = found.get(name, PendingGpus(name, 0, 0.0, oldest_at))
        found[name] = PendingGpus(
            name,
            before.pods + pods,
            before.gpu_equivalents + gpus,
            min(before.oldest_at, oldest_at),
        )
    return [found[name] for name in sorted(found)]


def _by_namespace(at: datetime, filters: Filters) -> Sequence[Any]:
    """Return (namespace, tier or None, pods, GPU-equivalents, oldest creation) of what waits."""
    waiting = Pod.objects.filter(
        Q(bound_at__isnull=True) | Q(bound_at__gt=at),
        Q(ended_at__isnull=True) | Q(ended_at__gt=at),
        created_at__lte=at,
        cluster__active=True,
    )
    if filters.cluster:
        waiting = waiting.filter(cluster__name__in=filters.cluster)
    if filters.tier:
        of_tier = Q(tier__name__in=filters.tier)
        unknown = Q(tier__isnull=True) if UNDETERMINED in filters.tier else Q(pk__in=[])
        waiting = waiting.filter(of_tier | unknown)
    if filters.namespace:
        waiting = waiting.filter(workload__namespace__name__in=filters.namespace)
    grouped = waiting.order_by().values("workload__namespace__name", "tier__name")
    sums = grouped.annotate(pods=Count("pk"), gpus=Sum("gpu_equivalents"), oldest=Min("created_at"))
    columns = ("workload__namespace__name", "tier__name", "pods", "gpus", "oldest")
    return list(sums.values_list(*columns))
