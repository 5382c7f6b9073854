"""What quotas refused and what waits for queues, from the causes of waiting."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from django.db.models import Q

from apps.clusters.domain.window import Window
from apps.clusters.models.sql import UnixSeconds
from apps.pending.domain.diagnosis import Cause, Counts
from apps.pending.models import CauseInterval
from apps.quotas.domain.allocations import Taken
from apps.quotas.domain.saturation import RefusedSpan
from apps.quotas.selectors.settings import LocalQueues

_WAITS = (Counts.PENDING.value, Counts.SUPPRESSED.value)
_COLUMNS = (
    *("episode__cluster_id", "episode__workload__namespace__name", "episode__queue"),
    *("episode__resource", "cause", "counts", "detail", "counted", "episode__units"),
    "episode__gpu_equivalents",
)


@dataclass(slots=True)
class BlockedWork:
    """Of one cluster: what was refused, by namespace, and what waits for (queue, resource).

    What waits for a queue could be admitted in any of its flavors, and counts in each.
    """

    refused: dict[str, list[RefusedSpan]] = field(default_factory=lambda: defaultdict(list))
    queued: dict[tuple[str, str], list[Taken]] = field(default_factory=lambda: defaultdict(list))


def waits_in(
    window: Window, local: Mapping[int, LocalQueues], *, clusters: Collection[int]
) -> dict[int, BlockedWork]:
    """Return what quotas held back within a window, by the id of the cluster. One query.

    `local` are the LocalQueues of each cluster. A queue that is none of them is Volcano's, whose
    pods wait for it whatever the cause; what waits in Kueue has the cause `queue`. Intervals count
    GPU-equivalents: an interval's units are its part of its episode's.
    """
    rows = CauseInterval.objects.filter(
        Q(end__isnull=True) | Q(end__gt=window.start),
        episode__cluster_id__in=clusters,
        start__lt=window.end,
        counts__in=_WAITS,
        counted__gt=0,
    )
    rows = rows.filter(Q(cause=Cause.QUOTA.value) | ~Q(episode__queue=""))
    times = rows.annotate(since=UnixSeconds("start"), until=UnixSeconds("end"))
    found: dict[int, BlockedWork] = defaultdict(BlockedWork)
    for row in times.order_by("pk").values_list(*_COLUMNS, "since", "until"):
        cluster, namespace, queue, resource, cause, counts, detail, *rest = row
        counted, units, whole, since, until = rest
        amount = counted * units / whole if whole else counted
        of_kueue = local.get(cluster, {}).get((namespace, queue))
        if cause == Cause.QUOTA.value and counts == Counts.SUPPRESSED.value:
            one = RefusedSpan(resource, amount, since, until, names_in(detail))
            found[cluster].refused[namespace].append(one)
        elif queue and (cause == Cause.QUEUE.value or of_kueue is None):
            found[cluster].queued[of_kueue or queue, resource].append((amount, since, until))
    return found


@lru_cache(maxsize=1024)
def names_in(detail: str) -> tuple[str, ...]:
    """Return the names of quotas in the detail of a refusal, `a, b and c`.

    Empty where there are more than it names: any quota may be meant.
    """
    if not detail or detail.endswith(" more"):
        return ()
    return tuple(name for part in detail.split(", ") for name in part.split(" and "))
