"""Lines of closed months: what is frozen, and what comes to differ from it."""

from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import Sum

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster
from apps.costs.domain.closing import ClosedAmount as Amount
from apps.costs.domain.closing import Key, adjustments
from apps.costs.domain.costing import Basis
from apps.costs.domain.unallocated import Policy
from apps.costs.models import Adjustment, ClosedAmount, ClosedPeriod
from apps.costs.selectors.cost_reader import CostLine, CostReader, LineKey
from apps.costs.selectors.rows import CostQuery
from apps.usage.domain.rows import Filters, Grouping, TimeStep
from apps.usage.models import Day
from apps.usage.services import day_value, insert, instant, older_workloads

FROZEN_GROUPS = (
    Grouping.CLUSTER,
    Grouping.TEAM,
    Grouping.NAMESPACE,
    Grouping.WORKLOAD,
    Grouping.TIER,
    Grouping.GPU_MODEL,
    Grouping.CAPACITY_TYPE,
)
"""What tells the lines of a closed day apart, beside cause and currency."""

_IDS = tuple(grouping.column for grouping in FROZEN_GROUPS)
LINE_COLUMNS = ("day", *_IDS, "cause", "currency", "gpu_hours", "cost", "unpriced")
_KEYS = (*_IDS, "cause", "currency")
_WORKLOAD = _IDS.index("workload_id")
_TEXT_FROM = _IDS.index("capacity_type")


def reading_of(
    window: Window,
    basis: Basis,
    policy: Policy,
    *,
    interval: TimeStep = TimeStep.TOTAL,
    cluster: str = "",
    zone: ZoneInfo | None = None,
) -> CostReader:
    """Return the reading whose lines are frozen: by day, or in total of one day."""
    filters = Filters(cluster=(cluster,) if cluster else ())
    asked = CostQuery(window, interval, FROZEN_GROUPS, filters, basis, policy, corrections=False)
    return CostReader(asked, visibility=EVERYTHING, zone=zone)


def amount_of(key: LineKey, line: CostLine) -> Amount:
    """Return a line as it is frozen; without a currency all of it is unpriced."""
    return Amount(line.gpu_hours, line.cost, 0 if key.currency else line.gpu_hours)


def lines_of_day(closed: ClosedPeriod, cluster: Cluster, window: Window) -> dict[Key, Amount]:
    """Return the lines of a cluster's local day as its rows are now, as the period was charged."""
    reading = reading_of(
        *(window, Basis(closed.basis), Policy(closed.policy)),
        cluster=cluster.name,
        zone=ZoneInfo(closed.time_zone),
    )
    return {_key(key): amount_of(key, line) for key, line in reading.lines(window).items()}


def book(
    closed: ClosedPeriod,
    cluster: int,
    day: date,
    recomputed: Mapping[Key, Amount],
    *,
    booked_on: date,
    booked_at: datetime,
) -> int:
    """Book what `recomputed` differs by from what was frozen and booked so far; return lines.

    Of a folded day these are lines of the workloads that stand for those whose names are
    forgotten: what was frozen under their names is compared in sum.
    """
    of_day = {"period": closed, "cluster_id": cluster, "day": day}
    frozen = _sums(ClosedAmount.objects.filter(**of_day))
    booked = _sums(Adjustment.objects.filter(**of_day))
    if Day.objects.filter(cluster_id=cluster, day=day, folded=True).exists():
        frozen, booked = _folded(frozen), _folded(booked)
    lines = adjustments(dict(frozen), recomputed, booked)
    write_adjustments(closed, ((day, key, amount) for key, amount in lines), booked_on, booked_at)
    return len(lines)


def _folded(lines: list[tuple[Key, Amount]]) -> list[tuple[Key, Amount]]:
    named = {int(key[_WORKLOAD]) for key, _ in lines if key[_WORKLOAD]}
    older = {str(pk): str(other) for pk, other in older_workloads(named).items()}
    found: dict[Key, Amount] = {}
    for key, amount in lines:
        workload = older.get(key[_WORKLOAD], key[_WORKLOAD])
        place = (*key[:_WORKLOAD], workload, *key[_WORKLOAD + 1 :])
        found[place] = found[place] + amount if place in found else amount
    return list(found.items())


def write_adjustments(
    closed: ClosedPeriod,
    lines: Iterable[tuple[date, Key, Amount]],
    booked_on: date,
    booked_at: datetime,
) -> None:
    """Write lines (day, key, amount) as booked on a day."""
    head = (closed.pk, day_value(booked_on), instant(booked_at))
    rows = ((*head, *_row(day, key, amount)) for day, key, amount in lines)
    insert(Adjustment, ("period_id", "booked_on", "booked_at", *LINE_COLUMNS), rows)


def booked_lines(closed: ClosedPeriod, **where: Any) -> list[tuple[date, Key, Amount]]:
    """Return what was booked against a period, summed by line, in order."""
    found = Adjustment.objects.filter(period=closed, **where)
    days = found.order_by("day").values_list("day", flat=True).distinct()
    return [
        (day, key, amount) for day in days for key, amount in sorted(_sums(found.filter(day=day)))
    ]


def write_frozen(closed: ClosedPeriod, day: date, lines: Mapping[LineKey, CostLine]) -> None:
    """Freeze a day's lines."""
    made = (
        (closed.pk, *_row(day, _key(key), amount_of(key, line)))
        for key, line in sorted(lines.items(), key=lambda item: _key(item[0]))
    )
    insert(ClosedAmount, ("period_id", *LINE_COLUMNS), made)


def _key(key: LineKey) -> Key:
    """Return a line's ids as texts, empty for none; cause and currency last."""
    return (*("" if pk is None else str(pk) for pk in key.ids), key.cause.value, key.currency)


def _row(day: date, key: Key, amount: Amount) -> tuple[Any, ...]:
    ids = [(int(text) if text else None) for text in key[:_TEXT_FROM]]
    texts = key[_TEXT_FROM:]
    return (day_value(day), *ids, *texts, amount.gpu_hours, amount.cost, amount.unpriced)


def _sums(rows: Any) -> list[tuple[Key, Amount]]:
    sums = {f"sum_{name}": Sum(name) for name in ("gpu_hours", "cost", "unpriced")}
    found = rows.order_by().values_list(*_KEYS).annotate(**sums)
    return [
        (
            tuple("" if value is None else str(value) for value in row[: len(_KEYS)]),
            Amount(*map(int, row[len(_KEYS) :])),
        )
        for row in found
    ]
