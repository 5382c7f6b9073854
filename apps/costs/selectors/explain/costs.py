"""How a cost comes about: GPU-hours × price, with the lines of the price book that held."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from apps.accounts.permissions import Visibility
from apps.clusters.domain.tiers import model_key
from apps.clusters.domain.window import Window
from apps.clusters.selectors import report
from apps.costs.domain.costing import WASTE, Cause
from apps.costs.domain.prices import PriceEntry
from apps.costs.selectors.cost_reader import CostReader
from apps.costs.selectors.prices import price_book
from apps.costs.selectors.rows import CostQuery, CostRow
from apps.usage.domain.amounts import NANO
from apps.usage.domain.explained import Explained, PriceLine, RowColumn, Unit
from apps.usage.domain.rows import Filters, Grouping, UsageQuery
from apps.usage.selectors import usage_rows

COST, WASTE_COST = "cost", "waste_cost"
_MWH_PER_KWH = 10**6
_CAUSES: Mapping[str, Cause] = {f"{cause.value}_cost": cause for cause in Cause}
FIGURES = (COST, WASTE_COST, *_CAUSES)
_GROUPS = (Grouping.TIER, Grouping.GPU_MODEL, Grouping.CAPACITY_TYPE)
_COLUMNS = (
    RowColumn("cause", "Cause"),
    RowColumn("tier", "Tier"),
    RowColumn("gpu_model", "GPU model"),
    RowColumn("capacity_type", "Capacity type"),
    RowColumn("gpu_hours", "GPU-hours", Unit.GPU_HOURS),
    RowColumn("priced", "With price", Unit.GPU_HOURS),
    RowColumn("energy", "Energy", Unit.KWH),
    RowColumn("price", "Price", Unit.MONEY),
    RowColumn("cost", "Cost", Unit.MONEY),
)


def explain_cost(
    figure: str,
    asked: CostQuery,
    *,
    visibility: Visibility,
    currency: str = "",
    corrections: bool | None = None,
) -> Explained | None:
    """Explain one of FIGURES over a window, in one currency (the report's); None for any other.

    `corrections` says whether to leave out all others, or these.

    What is shown is what the pages of costs and waste add up: `waste_cost` is of who held it, and
    the platform's of who sees everything. Twelve queries at most. Raises GroupingRefused.
    """
    if figure not in FIGURES:
        return None
    window, filters = asked.window, asked.filters
    # Of all causes: rows of others tell whether anything has a price.
    whole = replace(asked.whole, group_by=_GROUPS, basis=asked.basis, by_rate=True)
    reader = CostReader(replace(whole, waste=figure != COST), visibility=visibility)
    currency = currency or report().currency
    every = [row for row in reader.rows(window) if row.currency in (currency, None)]
    found = [
        row
        for row in every
        if _counts(row, figure)
        and row.cause in asked.causes
        and corrections in (None, row.correction)
    ]
    rows = [_row(row) for row in found]
    amounts = [row.amount for row in found if row.amount is not None]
    # What has no rows beside priced ones costs nothing; what has no price is not known.
    known = bool(amounts) or (not found and any(row.cost is not None for row in every))
    return Explained(
        figure=figure,
        label=_label(figure),
        meaning=_meaning(figure),
        anchor="waste",
        value=sum(amounts, Decimal(0)) if known else None,
        unit=Unit.MONEY,
        currency=currency,
        formula="dot(gpu_hours, price)" if _is_product(found) else "sum(cost)",
        columns=_COLUMNS,
        rows=rows,
        grades=_grades(window, filters, visibility),
        prices=price_lines(window, map(_pool, found)),
        origin="GPU-hours of the capacity breakdown × the price that held in each hour.",
        sources=("capacity", "holding", "activity"),
        nothing="" if known else "Nothing has a price in this window.",
    )


def _counts(row: CostRow, figure: str) -> bool:
    if figure == COST:
        return True
    if figure == WASTE_COST:
        return row.cause in WASTE
    return row.cause is _CAUSES[figure]


def _row(row: CostRow) -> dict[str, Any]:
    return {
        "cause": row.cause.value,
        **row.groups,
        "gpu_hours": row.gpu_hours / NANO,
        "priced": 0.0 if row.lacks_price else row.gpu_hours / NANO,
        "energy": None if row.energy_mwh is None else row.energy_mwh / _MWH_PER_KWH,
        "price": row.price_per_gpu_hour,
        "cost": row.amount,
    }


def _is_product(rows: Sequence[CostRow]) -> bool:
    """Say whether each row is GPU-hours × price: energy and corrections are not."""
    return all(row.price is not None and row.gpu_hours for row in rows if row.cost)


def _label(figure: str) -> str:
    if figure in (COST, WASTE_COST):
        return {COST: "Cost", WASTE_COST: "Waste"}[figure]
    return f"Cost of {_CAUSES[figure].value.replace('_', ' ')}"


def _meaning(figure: str) -> str:
    if figure == COST:
        return "What GPU-hours cost at the price that held in their hour, and measured energy."
    if figure == WASTE_COST:
        return "The price of everything that is not busy. GPU-hours without metrics are no waste."
    return "The price of the GPU-hours of one cause."


def _grades(window: Window, filters: Filters, visibility: Visibility) -> dict[str, float]:
    rows = usage_rows(UsageQuery(window, filters=filters), visibility=visibility)
    found: dict[str, float] = {}
    for row in rows:
        for name, hours in row.amounts.grades.items():
            found[name] = found.get(name, 0.0) + hours
    return found


def _pool(row: CostRow) -> tuple[str, str]:
    return row.groups["gpu_model"], row.groups["capacity_type"]


def price_lines(window: Window, pools: Iterable[tuple[str, str]]) -> list[PriceLine]:
    """Return the lines of the price book that held in the window. One query.

    `pools` are GPU models with their capacity type.
    """
    asked = {(model_key(model), capacity_type) for model, capacity_type in pools}
    return [price_line(one) for one in price_book().entries if _holds(one, window, asked)]


def _holds(one: PriceEntry, window: Window, asked: set[tuple[str, str]]) -> bool:
    ends = one.valid_to is None or one.valid_to > window.start
    model = (model_key(one.gpu_model), one.capacity_type)
    return ends and one.valid_from < window.end and model in asked


def price_line(one: PriceEntry) -> PriceLine:
    """Return a line of the price book as an explanation shows it."""
    return PriceLine(
        gpu_model=one.gpu_model,
        capacity_type=one.capacity_type,
        per_gpu_hour=one.contracted,
        currency=one.currency,
        cluster=one.cluster,
        tier=one.tier,
        source=one.source,
        valid_from=one.valid_from,
        valid_to=one.valid_to,
        per_kwh=one.per_kwh,
        pue=one.pue if one.per_kwh is not None else None,
    )
