"""Costs over time: a stacked bar per period, by group or by cause."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import SimpleNamespace

from apps.costs.domain.costing import Cause
from apps.costs.selectors import PLATFORM_NAME, CostRow, cost_rows
from apps.usage.domain.rows import Grouping
from apps.web.components import charts
from apps.web.components.charts import Axis, Chart
from apps.web.components.ledger import CAPACITY_CLASSES, LedgerClass
from apps.web.components.links import Query, during, figure_href
from apps.web.components.listings import GROUP_LABELS
from apps.web.components.tables import Column
from apps.web.costs import money_format
from apps.web.costs.explorer import NOTHING, Costs, stack_group
from apps.web.costs.groups import CAUSES, ENERGY, PLATFORM, cost_href
from apps.web.costs.money_format import MoneyRow, MoneyTable, money_column, number_of
from apps.web.costs.query import CostPageQuery
from apps.web.query_session import QuerySession

_MOST_GROUPS = 6  # as many colours as can be told apart
_OTHER = "group_other"
# Charts draw nano-units, money is in units of 1e-8.
_NANO_PER_UNIT = 10
_Sums = dict[datetime, dict[str, int]]


def charts_of(
    costs: Costs, asked: CostPageQuery, reading: QuerySession, axis: Axis
) -> tuple[list[Chart], Sequence[LedgerClass]]:
    """Return a chart for each currency that something has a price in, and the classes of bars.

    11 queries at most.
    """
    group = stack_group(asked)
    rows = _rows(asked, reading, group)
    drawn = [currency for currency in costs.by_currency if _of(rows, currency)]
    classes = _classes(_of(rows, drawn[0] if drawn else costs.currency), group)
    if len(drawn) > 1:
        classes, group = _causes(rows), None
    query = [*reading.query, *(pair for pair in asked.query if pair[0] != "by")]
    there = [
        _chart(
            _of(rows, c), c, classes, group, axis, _Links(query, group, axis, reading.window.end)
        )
        for c in drawn or [costs.currency]
    ]
    keys = {key for row in rows for key in (_key_of(row, classes, group),)}
    return there, [cls for cls in classes if cls.key in keys]


def _rows(asked: CostPageQuery, reading: QuerySession, group: Grouping | None) -> list[CostRow]:
    by = () if group is None else (group,)
    query = replace(asked.question(reading, reading.choice.interval), group_by=by)
    return cost_rows(query, visibility=reading.visibility, zone=reading.choice.zone)


def _of(rows: Sequence[CostRow], currency: str) -> list[CostRow]:
    return [row for row in rows if row.currency == currency]


def _classes(rows: Sequence[CostRow], group: Grouping | None) -> Sequence[LedgerClass]:
    """Return the classes of bars: the causes, or the dearest groups and all others."""
    if group is None:
        return _causes(rows)
    sums: dict[str, int] = defaultdict(int)
    for row in rows:
        sums[row.groups[group]] += row.cost or 0
    names = sorted(sums, key=lambda name: (-sums[name], name))
    few = names if len(names) <= _MOST_GROUPS else names[:_MOST_GROUPS]
    label = GROUP_LABELS[group].lower()
    found = [
        LedgerClass(f"group_{place}", name or PLATFORM, f"{label} {name or PLATFORM}")
        for place, name in enumerate(few, start=1)
    ]
    if len(names) > len(few):
        found.append(LedgerClass(_OTHER, "Others", f"{len(names) - len(few)} more"))
    return found


def _causes(rows: Sequence[CostRow]) -> Sequence[LedgerClass]:
    """Return the classes of the causes; energy is one of them where it was billed."""
    billed = any(row.cause is Cause.ENERGY for row in rows)
    return (*CAPACITY_CLASSES, ENERGY) if billed else CAPACITY_CLASSES


def _key_of(row: CostRow, classes: Sequence[LedgerClass], group: Grouping | None) -> str:
    if group is None:
        return CAUSES[row.cause].key
    name = row.groups[group] or PLATFORM
    return next((cls.key for cls in classes if cls.label == name), _OTHER)


def _chart(
    rows: Sequence[CostRow],
    currency: str,
    classes: Sequence[LedgerClass],
    group: Grouping | None,
    axis: Axis,
    links: "_Links",
) -> Chart:
    sums: _Sums = defaultdict(lambda: dict.fromkeys((cls.key for cls in classes), 0))
    for row in rows:
        if row.period is not None:
            own = sums[row.period.astimezone(UTC)]
            own[_key_of(row, classes, group)] += row.cost or 0
    by = "cause" if group is None else GROUP_LABELS[group].lower()
    by_period: dict[datetime, object] = {
        period: SimpleNamespace(**{key: n * _NANO_PER_UNIT for key, n in own.items()})
        for period, own in sums.items()
    }
    return charts.stacked(
        by_period,
        title=f"Costs by {by}",
        axis=replace(axis, measure=currency),
        classes=classes,
        table=_table(sums, currency, classes, axis, f"Costs by {by}", links),
        empty=NOTHING,
    )


@dataclass(frozen=True, slots=True)
class _Links:
    """Where the amounts of a period are explained; those of other groups together are not."""

    query: Query
    group: Grouping | None
    axis: Axis
    end: datetime

    def of(self, period: datetime, classes: Sequence[LedgerClass], currency: str) -> dict[str, str]:
        end = next((at for at in self.axis.periods if at > period), self.end)
        query = during(period, min(end, self.end), self.query)
        found = {"cost": figure_href("cost", query, currency=currency)}
        for cls in classes:
            if self.group is None:
                groups, names = {}, {"cause": _CAUSE_OF[cls.key]}
            else:
                name = PLATFORM_NAME if cls.label == PLATFORM else cls.label
                groups, names = {self.group.value: name}, {}
            if cls.key != _OTHER or self.group is None:
                found[f"{cls.key}_cost"] = cost_href(
                    "cost", groups, query, currency=currency, **names
                )
        return found


_CAUSE_OF = {cls.key: cause.value for cause, cls in CAUSES.items()}


def _table(
    sums: _Sums,
    currency: str,
    classes: Sequence[LedgerClass],
    axis: Axis,
    title: str,
    links: "_Links",
) -> MoneyTable:
    periods = [period for period in axis.periods if period in sums]
    there = [cls for cls in classes if any(own[cls.key] for own in sums.values())]
    grid = [[sums[period][cls.key] for cls in there] for period in periods]
    rows = []
    for period, amounts, (whole, texts) in zip(
        periods, grid, money_format.cells(grid, currency), strict=True
    ):
        keys = [f"{cls.key}_cost" for cls in there]
        exact = {**dict(zip(keys, amounts, strict=True)), "cost": sum(amounts)}
        rows.append(
            MoneyRow(
                {**{key: number_of(amount) for key, amount in exact.items()}, "period": period},
                amounts=exact,
                printed={**dict(zip(keys, texts, strict=True)), "cost": whole},
                explains=links.of(period, there, currency),
            )
        )
    return MoneyTable(
        id=f"over-time-{currency.lower()}",
        title=title,
        columns=[
            Column("period", axis.interval.value.capitalize(), axis.kind),
            *(money_column(f"{c.key}_cost", c.label, currency, c.meaning) for c in there),
            money_column("cost", "In all", currency),
        ],
        rows=rows,
        zone=axis.zone,
        empty=NOTHING,
    )
