"""The backtest of replays: the last weeks replayed with nothing changed, once a day.

Whether the scheduler packs or spreads is not recorded: the days before the backtest tell it.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db.models import Q
from msgspec import to_builtins

from apps.accounts.permissions import EVERYTHING
from apps.accounts.services import leases
from apps.clusters.domain.window import Window, utc_midnight
from apps.clusters.selectors import ActiveCluster, active_clusters
from apps.planning.domain.cluster_replay.backtest import (
    RecordedSpan,
    backtest,
    nearest_packing,
)
from apps.planning.domain.cluster_replay.inputs import Packing
from apps.planning.models import Backtest, DailyFigure
from apps.planning.selectors import (
    NothingRecorded,
    RecordedDemand,
    recorded_demand,
    recorded_window,
)

BACKTEST_DAYS = 14
PACKING_DAYS = 7
_DAY = timedelta(days=1)


def backtest_clusters(*, now: datetime, anew: bool = False) -> int:
    """Replay the last 14 whole days of each cluster that is due; return how many were replayed.

    Fewer where fewer are known. A cluster is due once a day, as soon as another day before is
    known, or at once `anew`, after its past was collected. Where nothing is recorded that is
    noted, and tried again next time.
    """
    return sum(
        compute_daily(Backtest, one, now, partial(_computed, one.name), anew=anew)
        for one in active_clusters()
    )


def compute_daily(
    model: type[DailyFigure],
    cluster: ActiveCluster,
    now: datetime,
    compute: Callable[[RecordedDemand], dict[str, Any]],
    *,
    anew: bool,
) -> int:
    """Write to a cluster's row what is computed of its last days; return 1, or 0 where it is not.

    A try that found nothing recorded is noted, but is no figure.
    """
    # In UTC: unlike a capacity plan, these figures sum no local days.
    midnight = utc_midnight(now)
    window, problem = _last_days(cluster.name, midnight)
    computed = None if anew else _of_today(midnight, window)
    held = leases.take_figure(model, now, computed=computed, cluster_id=cluster.pk)
    if held is None:
        return 0
    values: dict[str, Any] = {"tried_at": now, "lease_until": None, "error": problem}
    try:
        demand = None if problem else recorded_demand(cluster.name, window, visibility=EVERYTHING)
    except NothingRecorded as error:
        demand, values["error"] = None, str(error)
    if demand is not None:
        span = {"start": demand.window.start, "end": demand.window.end}
        values |= {**span, "computed_at": now, **compute(demand)}
    model._default_manager.filter(pk=held.pk).update(**values)
    return int(demand is not None)


def _last_days(name: str, midnight: datetime) -> tuple[Window, str]:
    """Return the last whole days of a cluster that are known, and why none are, if so."""
    window = Window(midnight - BACKTEST_DAYS * _DAY, midnight)
    try:
        return recorded_window(name, window), ""
    except NothingRecorded as error:
        return window, str(error)


def _of_today(midnight: datetime, window: Window) -> Q:
    """Return the condition on rows of today that rest on all days that are known by now."""
    # On a fresh install the first round finds one day, and the next ones find more.
    return Q(tried_at__gte=midnight, error="", start__lt=window.start + _DAY)


def recorded_span(demand: RecordedDemand) -> RecordedSpan:
    """Return recorded demand as what a backtest takes."""
    return RecordedSpan(
        works=demand.works,
        happened=[
            life.times._replace(delay=work.delay_seconds + work.check_seconds)
            for work, life in zip(demand.works, demand.lives, strict=True)
        ],
        cluster=demand.cluster,
        start=demand.window.start_seconds,
        end=demand.window.end_seconds,
    )


def _packing(name: str, window: Window) -> Packing:
    """Return the way to choose nodes that the days before the window tell."""
    before = Window(window.start - PACKING_DAYS * _DAY, window.start)
    try:
        found = nearest_packing(recorded_span(recorded_demand(name, before, visibility=EVERYTHING)))
    except NothingRecorded:
        found = None
    # The default of kube-scheduler: NodeResourcesFit scores the least allocated node highest.
    return found or Packing.SPREAD


def _computed(name: str, demand: RecordedDemand) -> dict[str, Any]:
    found = backtest(recorded_span(demand), _packing(name, demand.window))
    return {
        "works": len(demand.works),
        "packing": found.packing.value,
        "rows": [to_builtins(row) for row in found.rows],
        "left_out": dict(demand.left_out),
        "assumptions": [one.value for one in (*demand.assumptions, *found.assumptions)],
    }
