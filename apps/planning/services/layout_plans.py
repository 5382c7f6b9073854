"""The layout advice of each cluster, worked out once a day. Nothing of a cluster is changed."""

from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window
from apps.clusters.selectors import active_clusters, report
from apps.clusters.services import TierHistory
from apps.planning.domain.layouts.advice import HeldGpus, LayoutAdvice, held_gpus, layout_advice
from apps.planning.domain.layouts.figures import DemandWindow
from apps.planning.domain.layouts.options import layout_choices
from apps.planning.models import LayoutPlan
from apps.planning.selectors import RecordedDemand
from apps.planning.selectors.backtests import usual_packing
from apps.planning.services.backtests import compute_daily
from apps.usage.domain.usage_query import Grouping, TimeStep, UsageQuery
from apps.usage.selectors import usage_rows


def advise_layouts(*, now: datetime, anew: bool = False) -> int:
    """Work out the layouts of each cluster that is due; return of how many.

    A cluster is due once a day, as soon as another day before is known, or at once `anew`, after
    its past was collected. Where nothing is recorded that is noted, and tried again next time.
    """
    return sum(
        compute_daily(LayoutPlan, one, now, partial(_computed, one.pk), anew=anew)
        for one in active_clusters()
    )


def _computed(cluster_id: int, demand: RecordedDemand) -> dict[str, Any]:
    return {"advice": msgspec.to_builtins(_advice(cluster_id, demand))}


def _advice(cluster_id: int, demand: RecordedDemand) -> LayoutAdvice:
    start, end = demand.window.start_seconds, demand.window.end_seconds
    # Half-open: rules that begin at the end itself do not hold in the window.
    rules = TierHistory.load().at(end - 1)
    choices = layout_choices(demand.cluster.nodes, rules, _activity(demand.window), end=end)
    packing = usual_packing(cluster_id)
    happened = [life.times for life in demand.lives]
    window = DemandWindow(demand.works, happened, demand.cluster, start, end)
    advice = layout_advice(window, choices, _held(demand), packing)
    return replace(advice, assumptions=(*demand.assumptions, *advice.assumptions))


def _activity(window: Window) -> dict[str, float]:
    """Return the utilization of each tier in the window, where it was measured."""
    asked = UsageQuery(window, TimeStep.TOTAL, (Grouping.TIER,))
    rows = usage_rows(asked, visibility=EVERYTHING, zone=report().zone)
    found = ((row.groups["tier"], row.amounts.utilization_ratio) for row in rows)
    return {tier: ratio for tier, ratio in found if ratio is not None}


def _held(demand: RecordedDemand) -> HeldGpus:
    """Return the GPUs held on each node over time; those of a gang are split evenly."""
    start, end = demand.window.start_seconds, demand.window.end_seconds
    spans = [
        (node, one.times.gpus / len(one.nodes), one.times.started_at, one.times.ended_at or end)
        for one in demand.lives
        if one.times.started_at is not None
        for node in one.nodes
    ]
    return held_gpus(spans, start=start, end=end)
