"""What a chart's data cost: beside the bare SQL of its rows, and beside the same as a go.Figure."""
# ruff: noqa: S608 - names of our own tables

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any
from zoneinfo import ZoneInfo

import plotly.graph_objects as go
from django.db import connection

from apps.accounts.models import Team
from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, Tier
from apps.usage import selectors
from apps.usage.domain.amounts import CAPACITY_FIELDS, NANO
from apps.usage.domain.usage_query import Filters, Grouping, TimeStep, UsageQuery, UsageRow
from apps.web.components.charts import Axis, Chart
from apps.web.components.gpu_charts import average_gpus
from apps.web.components.tables import ALLOCATED_CLASSES, LedgerClass
from tests.bench.history import History
from tests.bench.measuring import alternated, wall

_UTC = ZoneInfo("UTC")
_HELD = (
    *("allocated", "not_running", "unmeasured", "idle", "underused", "busy", "burst"),
    *("allocated_on_unhealthy", "grade_apportioned", "grade_inferred", "energy_mwh"),
)
_WHOLE = (*_HELD, *CAPACITY_FIELDS)


def measure(facts: History) -> dict[str, Any]:
    """Return for each chart its seconds, those of its SQL and of go.Figure, and its bytes."""
    tier, team = Tier.objects.get(name=facts.tier), Team.objects.get(name=facts.team)
    return {
        "a tier": _measured(
            facts,
            Filters(tier=(facts.tier,)),
            ALLOCATED_CLASSES,
            ("usage_tierday", _WHOLE, {"tier_id": tier.pk}),
        ),
        "a team on a tier": _measured(
            facts,
            Filters(tier=(facts.tier,), team=(facts.team,)),
            ALLOCATED_CLASSES,
            ("usage_teamday", _HELD, {"tier_id": tier.pk, "team_id": team.pk}),
        ),
    }


def _measured(
    facts: History,
    filters: Filters,
    classes: tuple[LedgerClass, ...],
    table: tuple[str, tuple[str, ...], dict[str, int]],
) -> dict[str, Any]:
    window = Window(facts.start, facts.end.replace(hour=0))  # whole days: what one query reads
    axis = _axis(window)
    rows = _rows(window, filters)
    bare = _bare(window, *table)
    if len(rows) != bare():
        raise RuntimeError(f"the chart has {len(rows)} rows, the query {bare()}")
    found = alternated(
        {
            "endpoint": lambda: _drawn(_rows(window, filters), axis, classes).script,
            "sql": bare,
            "figure": lambda: _drawn(rows, axis, classes).script,
            "plotly": lambda: _as_go_figure(rows, classes),
        }
    )
    return {
        "rows": len(rows),
        "sql_ratio": _ratio(found["endpoint"], found["sql"]),
        "plotly_ratio": _ratio(found["plotly"], found["figure"]),
        "endpoint_seconds": wall(found["endpoint"]),
        "sql_seconds": wall(found["sql"]),
        "bytes": len(_drawn(rows, axis, classes).script.encode()),
        "plotly_bytes": len(_as_go_figure(rows, classes).encode()),
    }


def _ratio(some: list[Any], others: list[Any]) -> float:
    return float(median(a.wall / b.wall for a, b in zip(some, others, strict=True)))


def _axis(window: Window) -> Axis:
    days = round((window.end - window.start) / timedelta(days=1))
    starts = [window.start + timedelta(days=n) for n in range(days)]
    return Axis(starts, TimeStep.DAY, _UTC, "thirteen months", missing={})


def _rows(window: Window, filters: Filters) -> list[UsageRow]:
    return selectors.usage_rows(
        UsageQuery(window, TimeStep.DAY, [Grouping.TIER], filters), visibility=EVERYTHING, zone=_UTC
    )


def _drawn(rows: list[UsageRow], axis: Axis, classes: tuple[LedgerClass, ...]) -> Chart:
    return average_gpus(rows, chart_id="c", title="Average GPUs", axis=axis, classes=classes)


def _bare(
    window: Window, table: str, amounts: tuple[str, ...], keys: dict[str, int]
) -> Callable[[], int]:
    sums = ", ".join(f"SUM({name})" for name in amounts)
    narrowed = " AND ".join(f"{key} = %s" for key in keys)
    sql = (
        f"SELECT day, {sums}, MAX(memory_peak_mib) FROM {table} "
        f"WHERE cluster_id = %s AND day >= %s AND day < %s AND {narrowed} "
        "GROUP BY day ORDER BY day"
    )
    cluster = Cluster.objects.get().pk
    values: tuple[Any, ...] = (cluster, window.start.date(), window.end.date(), *keys.values())

    def run() -> int:
        with connection.cursor() as cursor:
            cursor.execute(sql, values)
            return len(cursor.fetchall())

    return run


def _as_go_figure(rows: list[UsageRow], classes: tuple[LedgerClass, ...]) -> str:
    """Return the same chart as Plotly's own classes make it: times as x, amounts as they are."""
    at: list[datetime] = [row.period.astimezone(UTC) for row in rows if row.period is not None]
    bars = [
        go.Bar(
            name=cls.label, x=at, y=[(getattr(row.amounts, cls.key) or 0) / NANO for row in rows]
        )
        for cls in classes
    ]
    figure = go.Figure(data=bars, layout={"barmode": "stack"})
    return str(figure.to_json())
