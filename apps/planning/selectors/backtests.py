"""What was computed of each cluster: its newest backtest, and its expected queue times."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from apps.accounts.domain.rows import row_from
from apps.accounts.permissions import Visibility
from apps.planning.domain.cluster_replay.backtest import BacktestRow
from apps.planning.domain.cluster_replay.inputs import Packing, ReplayAssumption
from apps.planning.domain.cluster_replay.wording import assumption_text
from apps.planning.domain.queue_time_ranges import ForecastRow
from apps.planning.models import Backtest, QueueForecast


class BacktestReport(Struct, frozen=True):
    """The backtest of a cluster: None for times and no rows where none was computed yet.

    `error` is a sentence that says why the newest try gave nothing. `left_out` counts by reason
    what could not be replayed.
    """

    cluster: str
    start: datetime | None
    end: datetime | None
    computed_at: datetime | None
    works: int
    packing: str
    rows: tuple[BacktestRow, ...]
    left_out: Mapping[str, int]
    assumptions: tuple[str, ...]
    error: str


def backtest_reports(*, visibility: Visibility) -> list[BacktestReport]:
    """Return the newest backtest of each active cluster, by name. One query.

    Sums of tiers, which everybody may see: `visibility` narrows nothing.
    """
    rows = Backtest.objects.filter(cluster__active=True).select_related("cluster")
    return [
        row_from(
            BacktestReport,
            row,
            cluster=row.cluster.name,
            rows=tuple(msgspec.convert(row.rows, list[BacktestRow])),
            assumptions=tuple(assumption_text(ReplayAssumption(one)) for one in row.assumptions),
        )
        for row in rows.order_by("cluster__name", "pk")
    ]


def usual_packing(cluster_id: int) -> Packing:
    """Return how the scheduler chooses nodes, as the newest backtest found. One query."""
    known = Backtest.objects.filter(cluster_id=cluster_id).values_list("packing", flat=True)
    # Empty until a first backtest; then the default of kube-scheduler.
    return Packing(next(iter(known), "") or Packing.SPREAD.value)


_FRESH = timedelta(hours=1)
"""What runs and is pending is another an hour later."""


def queue_forecasts(cluster_id: int, *, now: datetime) -> Sequence[ForecastRow]:
    """Return the rows of a cluster; none where they are older than an hour. One query.

    They are by tier, queue and size: the caller sees the queue that is asked for.
    """
    known = QueueForecast.objects.filter(cluster_id=cluster_id, at__gt=now - _FRESH)
    rows: list[object] = next(iter(known.values_list("rows", flat=True)), [])
    return msgspec.convert(rows, list[ForecastRow])
