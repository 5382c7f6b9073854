"""The waste waterfall, who wasted what, and the workloads that wasted most."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from apps.costs.domain.costing import WASTE, WATERFALL_CAUSES, Cause, WaterfallStep
from apps.costs.selectors import CostRow, Waterfall, WorstWorkload
from apps.usage.domain.usage_query import Grouping
from apps.web.components.formats import Format, Value
from apps.web.components.listings import GROUP_LABELS
from apps.web.components.page_query import figure_href
from apps.web.components.tables import Column, LedgerClass, Table, TableRow, declared_columns
from apps.web.costs import money_format
from apps.web.costs.money_format import MoneyRow, MoneyTable, money_column, money_row, number_of
from apps.web.costs.query import (
    CAUSES,
    NOBODY,
    cost_href,
    links_of,
    shown_groups,
    workload_pods_href,
)
from apps.web.query_session import QuerySession
from apps.web.usage.comparison import Difference, amount_change

NOTHING = "Nothing that you may see was wasted in this window, as far as is priced."
_ORDER = [cause for cause in WATERFALL_CAUSES if cause in WASTE]


@dataclass(frozen=True, slots=True)
class WaterfallBar:
    """A step as it is drawn: where it starts and how long it is, in percent of the whole."""

    cls: LedgerClass
    step: WaterfallStep
    text: str
    full: str
    left: float
    width: float
    change: Difference | None


@dataclass(frozen=True, slots=True)
class WasteWaterfall:
    """A waterfall in one currency, printed so that its steps add up to the cent."""

    currency: str
    total: str
    wasted: str
    share: float | None
    change: Difference | None
    bars: Sequence[WaterfallBar]
    unpriced: int
    burst: int
    energy: str
    with_energy: str


def waterfall_of(waterfall: Waterfall) -> WasteWaterfall:
    """Return a waterfall as it is drawn."""
    wasted, texts = _texts(waterfall)
    bars = [_bar(step, text, waterfall) for step, text in zip(waterfall.steps, texts, strict=True)]
    total, before = waterfall.total, waterfall.total_before
    energy = waterfall.energy
    return WasteWaterfall(
        currency=waterfall.currency,
        total=money_format.text(total, waterfall.currency),
        wasted=wasted,
        share=waterfall.wasted / total if total else None,
        change=None if before is None else amount_change(total, before),
        bars=bars,
        unpriced=sum(step.unpriced for step in waterfall.steps),
        burst=sum(step.burst or 0 for step in waterfall.steps),
        energy=money_format.text(energy, waterfall.currency) if energy else "",
        with_energy=money_format.text(total + energy, waterfall.currency),
    )


def _texts(waterfall: Waterfall) -> tuple[str, list[str]]:
    """Print what is waste, and each step: both add up to the cent."""
    waste = [_cost(step) for step in waterfall.steps if step.waste]
    rest = [[_cost(step)] for step in waterfall.steps if not step.waste]
    (wasted, steps), *others = money_format.cells([waste, *rest], waterfall.currency)
    return wasted, [*steps, *(text for text, _ in others)]


def _cost(step: WaterfallStep) -> int | None:
    """Return what a step costs; None where none of its hours has a price."""
    return None if step.unpriced and step.unpriced == step.gpu_hours else step.cost


def _bar(step: WaterfallStep, text: str, waterfall: Waterfall) -> WaterfallBar:
    total = waterfall.total
    before = step.cost_before
    return WaterfallBar(
        cls=CAUSES[step.cause],
        step=step,
        text=text,
        full=f"{money_format.in_full(_cost(step))} {waterfall.currency}" if _cost(step) else "",
        left=round(100 * (total - step.above) / total, 3) if total > 0 else 0.0,
        width=round(100 * max(0, step.cost) / total, 3) if total > 0 else 0.0,
        change=None if not before else amount_change(step.cost, before),
    )


def waterfall_table(
    found: Waterfall, fall: WasteWaterfall, reading: QuerySession, *, usual: bool
) -> Table:
    """Return the steps as a table, its total the cost of the capacity."""
    rows = [
        MoneyRow(
            {
                "cause": bar.cls.label,
                "waste": "waste" if bar.step.waste else "",
                "gpu_hours": bar.step.gpu_hours,
                "cost": number_of(_cost(bar.step)),
                "share_ratio": None if _cost(bar.step) is None else bar.step.share,
                "unpriced_gpu_hours": bar.step.unpriced,
            },
            amounts={"cost": _cost(bar.step)},
            printed={"cost": bar.text},
            explains={
                "cost": figure_href(
                    f"{bar.step.cause.value}_cost", reading.query, currency=fall.currency
                )
            },
        )
        for bar in fall.bars
    ]
    total = MoneyRow(
        {
            "cause": "Total",
            "gpu_hours": sum(bar.step.gpu_hours for bar in fall.bars),
            "share_ratio": 1.0 if found.total else None,
            "unpriced_gpu_hours": fall.unpriced,
        },
        amounts={"cost": found.total},
        printed={"cost": fall.total},
    )
    return MoneyTable(
        id="fall" if usual else f"fall-{fall.currency.lower()}",
        title=f"Capacity in {fall.currency} by cause",
        columns=[
            Column("cause", "Cause"),
            Column("waste", "Counts as"),
            Column("gpu_hours", "GPU-hours", Format.GPU_HOURS, "GPU-h"),
            money_column("cost", "Cost", fall.currency),
            Column("share_ratio", "Share", Format.RATIO, "%", "of the cost of the capacity"),
            Column("unpriced_gpu_hours", "Unpriced", Format.GPU_HOURS, "GPU-h"),
        ],
        rows=rows,
        zone=reading.choice.zone,
        empty=NOTHING,
        total=total,
        ordered=True,
    )


# ---------------------------------------------------------------- by tier and team


@dataclass(slots=True)
class _Waste:
    """What one group wasted: units by cause, None for a cause of which nothing has a price."""

    cost: dict[Cause, int | None]
    gpu_hours: int = 0
    unpriced: int = 0

    @property
    def whole(self) -> int | None:
        """What all of it costs; None where nothing of it has a price."""
        known = [amount for amount in self.cost.values() if amount is not None]
        return sum(known) if any(known) or len(known) == len(self.cost) else None

    def add(self, row: CostRow, there: set[Cause]) -> None:
        """Add a row; `there` are the causes that were priced so far."""
        self.gpu_hours += row.gpu_hours
        if row.cost is None:
            self.unpriced += row.gpu_hours
            if row.cause not in there:
                self.cost[row.cause] = None
        else:
            self.cost[row.cause] = (self.cost[row.cause] or 0) + row.cost
            there.add(row.cause)


def waste_table(
    rows: Sequence[CostRow],
    by: Grouping,
    fall: WasteWaterfall,
    reading: QuerySession,
    *,
    usual: bool,
) -> Table:
    """Return the waste of each group by cause in one currency, dearest first.

    It comes to the same as the waterfall, to the cent. What has no price stands with the currency
    of the report. `rows` that are no waste tell which groups have a price at all.
    """
    currency = fall.currency
    sums: dict[str, _Waste] = defaultdict(lambda: _Waste(dict.fromkeys(_ORDER, 0)))
    there: dict[str, set[Cause]] = defaultdict(set)
    priced: set[str] = set()
    for row in rows:
        if row.currency == currency or (usual and row.currency is None):
            name = row.groups[by]
            if row.cost is not None:
                priced.add(name)
            if row.cause in WASTE:
                sums[name].add(row, there[name])
    for name in sums.keys() - priced:
        sums[name].cost = dict.fromkeys(_ORDER)
    names = sorted(sums, key=lambda name: (-(sums[name].whole or 0), name))
    grid = [[sums[name].cost[cause] for cause in _ORDER] for name in names]
    steps = {bar.step.cause: bar.text for bar in fall.bars}
    columns = [steps[cause] for cause in _ORDER]
    cells = money_format.cells(grid, currency, total=fall.wasted, columns=columns)
    lines = [
        _waste_row(name, sums[name], [whole, *texts], by, currency, reading)
        for name, (whole, texts) in zip(names, cells, strict=True)
    ]
    label = GROUP_LABELS[by].lower()
    return MoneyTable(
        id=f"waste-{by.value}" if usual else f"waste-{by.value}-{currency.lower()}",
        title=f"Waste in {currency} by {label}",
        columns=[
            Column(by.value, GROUP_LABELS[by]),
            money_column("waste_cost", "Waste", currency),
            *(
                money_column(f"{cause.value}_cost", CAUSES[cause].label, currency)
                for cause in _ORDER
            ),
            Column("gpu_hours", "GPU-hours", Format.GPU_HOURS, "GPU-h", "wasted"),
            Column("unpriced_gpu_hours", "Unpriced", Format.GPU_HOURS, "GPU-h"),
        ],
        rows=lines,
        zone=reading.choice.zone,
        empty=NOTHING,
        total=_waste_total(lines, by) if len(lines) > 1 else None,
    )


def _exact(own: _Waste) -> dict[str, int | None]:
    return {
        "waste_cost": own.whole,
        **{f"{cause.value}_cost": own.cost[cause] for cause in _ORDER},
    }


def _waste_row(
    name: str,
    own: _Waste,
    texts: Sequence[str],
    by: Grouping,
    currency: str,
    reading: QuerySession,
) -> MoneyRow:
    exact = _exact(own)
    groups = {by.value: name}
    values: dict[str, Value] = {key: number_of(amount) for key, amount in exact.items()}
    return MoneyRow(
        {
            **values,
            **shown_groups(groups, nobody=NOBODY),
            "gpu_hours": own.gpu_hours,
            "unpriced_gpu_hours": own.unpriced,
        },
        links_of(groups, reading),
        amounts=exact,
        printed=dict(zip(exact, texts, strict=True)),
        explains={key: cost_href(key, groups, reading.query, currency=currency) for key in exact},
    )


def _waste_total(lines: Sequence[MoneyRow], by: Grouping) -> TableRow:
    """Add up what is printed, so that every column adds up."""
    keys = list(lines[0].amounts)
    columns = {key: [line.amounts[key] for line in lines] for key in keys}
    exact = {
        key: None if set(of) == {None} else sum(amount or 0 for amount in of)
        for key, of in columns.items()
    }
    values: dict[str, Value] = {key: number_of(amount) for key, amount in exact.items()}
    for key in ("gpu_hours", "unpriced_gpu_hours"):
        values[key] = sum(_whole(line.values[key]) for line in lines)
    return MoneyRow(
        {**values, by.value: "Total"},
        amounts=exact,
        printed={
            key: money_format.summed_texts([line.printed[key] for line in lines]) for key in keys
        },
    )


def _whole(value: Value) -> int:
    return value if isinstance(value, int) else 0


# ---------------------------------------------------------------- the worst workloads


def worst_table(
    found: Mapping[Cause, Sequence[WorstWorkload]], reading: QuerySession, *, problem: str = ""
) -> Table:
    """Return the workloads that wasted most by each cause; each leads to its pods.

    `problem` says why none can be told.
    """
    rows = [row for cause in _ORDER for row in _worst_rows(found.get(cause, ()), reading)]
    return MoneyTable(
        id="worst",
        title="Worst workloads",
        columns=declared_columns(WorstWorkload),
        rows=rows,
        zone=reading.choice.zone,
        empty=problem or "No workload that you may see wasted anything in this window.",
        note="Of each cause those that wasted most. A workload leads to its pods.",
    )


def _worst_rows(worst: Sequence[WorstWorkload], reading: QuerySession) -> list[MoneyRow]:
    return [
        money_row(
            one,
            values={"cause": CAUSES[one.cause].label},
            links={
                **links_of({"team": one.team, "tier": one.tier}, reading),
                "workload": workload_pods_href(one.cluster, one.namespace, one.workload, reading),
            },
            explains={"cost": _explained(one, reading)},
        )
        for one in worst
        if one.gpu_hours
    ]


def _explained(one: WorstWorkload, reading: QuerySession) -> str:
    groups = {
        "cluster": one.cluster,
        "namespace": one.namespace,
        "workload": one.workload,
        "team": one.team,
        "tier": one.tier,
    }
    figure = f"{one.cause.value}_cost"
    return cost_href(figure, groups, reading.query, currency=one.currency or "")
