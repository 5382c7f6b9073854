"""What pods used of the GPUs they held: from the facts of closed hours."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Sum

from apps.usage.models import PodHour

_AT_ONCE = 5000


@dataclass(frozen=True, slots=True)
class Used:
    """Nano-GPU-hours of a pod: busy, and measured (allocated − unmeasured − not running)."""

    busy: int = 0
    measured: int = 0

    @property
    def utilization(self) -> float | None:
        return self.busy / self.measured if self.measured else None


def used_by(pods: Collection[int], *, start: datetime, end: datetime) -> dict[int, Used]:
    """Return by id of a pod what it used in the hours from `start` to `end`; a query a 5,000."""
    found = {}
    ids = sorted(pods)
    for at in range(0, len(ids), _AT_ONCE):
        part = ids[at : at + _AT_ONCE]
        facts = PodHour.objects.filter(pod_id__in=part, hour__gte=start, hour__lt=end).order_by()
        sums = (Sum(name) for name in ("busy", "allocated", "unmeasured", "not_running"))
        rows = facts.values_list("pod_id").annotate(*sums)
        for pk, busy, allocated, unmeasured, not_running in rows:
            found[pk] = Used(busy, allocated - unmeasured - not_running)
    return found
