"""What to do about what workloads leave unused: one rule for their pages, lists and homes."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import NamedTuple

from apps.costs.domain.workload_verdict import (
    HourlyUse,
    VerdictAction,
    WorkloadVerdict,
    hourly_use,
    verdict,
)
from apps.usage import selectors as usage
from apps.usage.domain.amounts import Amounts
from apps.usage.domain.usage_query import Filters, Grouping, TimeStep
from apps.web.query_session import QuerySession, usage_of

ACTION_SENTENCES = {
    VerdictAction.NONE: "",
    VerdictAction.STOP: " Stop it, or release its GPUs.",
    VerdictAction.START: " Fix the start of its pods.",
    VerdictAction.FEWER: " Request fewer.",
}
ACTION_LABELS = {
    VerdictAction.NONE: "",
    VerdictAction.STOP: "Release GPUs",
    VerdictAction.START: "Fix start",
    VerdictAction.FEWER: "Request fewer",
}
_GROUPS = (Grouping.CLUSTER, Grouping.NAMESPACE, Grouping.WORKLOAD)


class WorkloadName(NamedTuple):
    """A workload of all tiers and teams; `workload` reads `Kind/name`."""

    cluster: str
    namespace: str
    workload: str


def verdicts_of(
    names: Collection[WorkloadName], reading: QuerySession
) -> Mapping[WorkloadName, WorkloadVerdict]:
    """Return the verdict of each workload, as its page gives it.

    Five queries and those for names; four more where one may be stopped.
    """
    if not names:
        return {}
    own = Filters(
        cluster=tuple(sorted({one.cluster for one in names})),
        namespace=tuple(sorted({one.namespace for one in names})),
        workload=tuple(sorted({one.workload for one in names})),
        # The page of a workload takes these two filters alone: its verdict must be the same here.
        tier=reading.filters.tier,
        gpu_model=reading.filters.gpu_model,
    )
    wholes: dict[WorkloadName, Amounts] = defaultdict(Amounts)
    uses: dict[WorkloadName, HourlyUse | None] = {}
    if has_hours(reading):
        found_hours = usage.workload_hours(
            reading.window, filters=own, visibility=reading.visibility
        )
        for name in names:
            use = uses[name] = hourly_use(found_hours.get(name, ()))
            wholes[name] = use.whole if use else Amounts()
    else:
        for row in usage_of(reading, by=_GROUPS, interval=TimeStep.TOTAL, narrowed=own):
            name = WorkloadName(*(row.groups[group] for group in _GROUPS))
            wholes[name].add(row.amounts)
    # At first all count as running; which do is only asked where it changes the advice.
    found = {name: verdict(wholes[name], uses.get(name), is_running=True) for name in names}
    if any(one.action is VerdictAction.STOP for one in found.values()):
        running = usage.running_pods(reading.window, filters=own, visibility=reading.visibility)
        ended = [name for name in names if name not in running]
        found.update((name, verdict(wholes[name], uses.get(name))) for name in ended)
    return found


def has_hours(reading: QuerySession) -> bool:
    """Return whether the hours of the reading's range are kept."""
    return reading.window.end - reading.window.start <= timedelta(days=usage.HOURLY_DAYS)
