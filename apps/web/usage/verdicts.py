"""What to do about what workloads leave unused: one rule for their pages, lists and homes."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import NamedTuple

from apps.costs.domain.workload_verdict import (
    HourOfWorkload,
    VerdictAction,
    VerdictKind,
    WorkloadVerdict,
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


Totals = Mapping[WorkloadName, Amounts]
_JUDGED_BY_HOURS = (VerdictKind.UNUSED, VerdictKind.PARTLY)


def totals_of(names: Collection[WorkloadName], reading: QuerySession) -> Totals:
    """Return what each workload held in the reading's window, by which its verdict goes.

    Two queries, and those for names.
    """
    if not names:
        return {}
    rows = usage_of(reading, by=_GROUPS, interval=TimeStep.TOTAL, narrowed=_filters(names, reading))
    found = {WorkloadName(*(row.groups[by] for by in _GROUPS)): row.amounts for row in rows}
    return {name: found.get(name) or Amounts() for name in names}


def verdicts_of(
    names: Collection[WorkloadName], reading: QuerySession, totals: Totals | None = None
) -> Mapping[WorkloadName, WorkloadVerdict]:
    """Return the verdict of each workload, as its page gives it; `totals` where they are known.

    Four queries and those for names; four more where one may be stopped.
    """
    if not names:
        return {}
    # Hours have the sums too; where these are known, those that are well used need no hours.
    wholes = totals or ({} if has_hours(reading) else totals_of(names, reading))
    judged = [n for n in names if not wholes or verdict(wholes[n]).kind in _JUDGED_BY_HOURS]
    hourly: dict[WorkloadName, list[HourOfWorkload]] = defaultdict(list)
    if judged and has_hours(reading):
        found_hours = usage.workload_hours(
            reading.window, filters=_filters(judged, reading), visibility=reading.visibility
        )
        for name in judged:
            hourly[name] = list(map(HourOfWorkload._make, found_hours.get(name, ())))
    wholes = wholes or {name: _summed(hourly[name]) for name in names}
    # At first all count as running; which do is only asked where it changes the advice.
    found = {name: verdict(wholes[name], hourly[name], is_running=True) for name in names}
    if any(one.action is VerdictAction.STOP for one in found.values()):
        running = usage.running_pods(
            reading.window, filters=_filters(names, reading), visibility=reading.visibility
        )
        ended = [name for name in names if name not in running]
        found.update((name, verdict(wholes[name], hourly[name])) for name in ended)
    return found


def _summed(hourly: Iterable[HourOfWorkload]) -> Amounts:
    whole = Amounts()
    for one in hourly:
        whole.add(one.amounts)
    return whole


def _filters(names: Collection[WorkloadName], reading: QuerySession) -> Filters:
    return Filters(
        cluster=tuple(sorted({one.cluster for one in names})),
        namespace=tuple(sorted({one.namespace for one in names})),
        workload=tuple(sorted({one.workload for one in names})),
        # The page of a workload takes these two filters alone: its verdict must be the same here.
        tier=reading.filters.tier,
        gpu_model=reading.filters.gpu_model,
    )


def has_hours(reading: QuerySession) -> bool:
    """Return whether the hours of the reading's range are kept."""
    return reading.window.end - reading.window.start <= timedelta(days=usage.HOURLY_DAYS)
