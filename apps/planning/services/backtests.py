"""The backtest of replays: the last weeks replayed with nothing changed, once a day."""

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from apps.accounts.permissions import EVERYTHING
from apps.accounts.services import leases
from apps.clusters.domain.window import Window
from apps.clusters.selectors import active_clusters
from apps.planning.domain.cluster_replay.backtest import backtest
from apps.planning.models import Backtest
from apps.planning.selectors import NothingRecorded, RecordedDemand, recorded_demand

BACKTEST_DAYS = 14
_DAY = timedelta(days=1)
_LEASE = timedelta(minutes=15)


def backtest_clusters(*, now: datetime) -> int:
    """Replay the last 14 whole days of each cluster that is due; return how many were replayed.

    A cluster is due once a day. Where nothing is recorded that is noted, and tried again next day.
    """
    return sum(_backtest(one.pk, one.name, now) for one in active_clusters())


def _backtest(cluster_id: int, name: str, now: datetime) -> int:
    Backtest.objects.bulk_create([Backtest(cluster_id=cluster_id)], ignore_conflicts=True)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    due = Backtest.objects.filter(cluster_id=cluster_id).exclude(tried_at__gte=midnight)
    held = leases.take(due.order_by("pk"), now, lease_until=now + _LEASE)
    if held is None:
        return 0
    window = Window(midnight - BACKTEST_DAYS * _DAY, midnight)
    values: dict[str, Any] = {"tried_at": now, "lease_until": None}
    try:
        demand = recorded_demand(name, window, visibility=EVERYTHING)
        values |= _computed(demand, now)
    except NothingRecorded as error:
        values["error"] = str(error)
    Backtest.objects.filter(pk=held.pk).update(**values)
    return int("rows" in values)


def _computed(demand: RecordedDemand, now: datetime) -> dict[str, Any]:
    window = demand.window
    found = backtest(
        demand.works,
        [life.times for life in demand.lives],
        demand.cluster,
        start=window.start_seconds,
        end=window.end_seconds,
    )
    return {
        "start": window.start,
        "end": window.end,
        "computed_at": now,
        "works": len(demand.works),
        "packing": found.packing.value,
        "rows": [asdict(row) for row in found.rows],
        "left_out": dict(demand.left_out),
        "assumptions": [one.value for one in found.assumptions],
        "error": "",
    }
