"""What is kept no longer by workload and hour: it is refused, for its money would be left out."""

from zoneinfo import ZoneInfo

from apps.clusters.domain.window import Window
from apps.usage.domain.refusals import GroupingRefused
from apps.usage.models import Day
from apps.usage.selectors import ReadPlan


def check_kept(plan: ReadPlan, window: Window, *, zone: ZoneInfo) -> None:
    """Raise GroupingRefused where a plan reads hours by workload of days that have none any more.

    One query; none where the plan reads whole days alone.
    """
    spans = [
        (cluster, start, end)
        for stretch in plan.stretches
        for start, end in stretch.hours
        for cluster in stretch.clusters
    ]
    if not spans:
        return
    pruned = Day.objects.filter(
        cluster__in={cluster for cluster, _, _ in spans},
        pruned=True,
        start__lt=window.end,
        end__gt=window.start,
    )
    for day in pruned.order_by("-day", "cluster"):
        if any(
            cluster == day.cluster_id and start < day.end and day.start < end
            for cluster, start, end in spans
        ):
            raise GroupingRefused(
                f"what each namespace and workload held up to {day.day} is kept by whole days "
                f"alone: let the window start and end at midnight in {zone.key} with interval day, "
                "week, month or total, or group by team"
            )
