"""Explain costs, their ratios, prices, budgets and adjustments."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from math import fsum
from typing import Any
from zoneinfo import ZoneInfo

from apps.accounts.domain.rows import row_from
from apps.accounts.domain.structs import replace
from apps.accounts.permissions import Visibility
from apps.clusters.domain.tiers import model_key
from apps.clusters.domain.window import Window
from apps.clusters.selectors import report
from apps.costs.domain.costing import WASTE, Cause, money
from apps.costs.domain.prices import PriceBook, PriceEntry, places
from apps.costs.models import Adjustment
from apps.costs.selectors.budgets import money_budget_rows
from apps.costs.selectors.carbon import carbon_of
from apps.costs.selectors.cost_reader import CostReader
from apps.costs.selectors.prices import price_book
from apps.costs.selectors.rows import CostQuery, CostRow
from apps.quotas.selectors import BUDGETS, explain_burn
from apps.usage.domain.amounts import NANO
from apps.usage.domain.explained import Explained, FigureInput, FigureUnit, PriceLine, RowColumn
from apps.usage.domain.usage_query import Filters, Grouping, TimeStep, UsageQuery, UsageRow
from apps.usage.selectors import usage_rows

COST, WASTE_COST = "cost", "waste_cost"
_MWH_PER_KWH = 10**6
_CAUSES: Mapping[str, Cause] = {f"{cause.value}_cost": cause for cause in Cause}
FIGURES = (COST, WASTE_COST, *_CAUSES)
_GROUPS = (Grouping.TIER, Grouping.GPU_MODEL, Grouping.CAPACITY_TYPE)
_PLACE = (Grouping.CLUSTER, *_GROUPS)
_HOUR = timedelta(hours=1)
LineSource = tuple[tuple[str, ...], Cause, str | None, bool]
"""A line: names of its groups, cause, currency, and whether it is a correction."""
_PART_COLUMNS = (
    RowColumn("cause", "Cause"),
    RowColumn("tier", "Tier"),
    RowColumn("gpu_model", "GPU model"),
    RowColumn("capacity_type", "Capacity type"),
    RowColumn("gpu_hours", "GPU-hours", FigureUnit.GPU_HOURS),
    RowColumn("priced", "With price", FigureUnit.GPU_HOURS),
    RowColumn("energy", "Energy", FigureUnit.KWH),
    RowColumn("price", "Price", FigureUnit.MONEY),
    RowColumn("cost", "Cost", FigureUnit.MONEY),
)
SHARE, PER_GPU_HOUR = "cost_share", "cost_per_gpu_hour"
TIER_PRICE, ENERGY, ADJUSTMENT = "tier_price", "energy_kwh", "closed_month_adjustment"


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
    # Rows without a currency have no price; whether there are only such is told from them.
    every = [row for row in reader.rows(window) if row.currency in (currency, None)]
    found = [
        row
        for row in every
        if _counts(row, figure)
        and row.cause in asked.causes
        and corrections in (None, row.correction)
    ]
    rows = [_cost_part(row) for row in found]
    amounts = [row.amount for row in found if row.amount is not None]
    # What has no rows beside priced ones costs nothing; what has no price is not known.
    known = bool(amounts) or (not found and any(row.cost is not None for row in every))
    return Explained(
        figure=figure,
        label=_label(figure),
        meaning=_meaning(figure),
        anchor="waste",
        value=sum(amounts, Decimal(0)) if known else None,
        unit=FigureUnit.MONEY,
        currency=currency,
        formula="dot(gpu_hours, price)" if _is_product(found) else "sum(cost)",
        columns=_PART_COLUMNS,
        rows=rows,
        grades=_grades(window, filters, visibility),
        prices=price_rows(window, _pools(found)),
        origin="GPU-hours of the capacity breakdown × the price that held in each hour.",
        sources=("capacity", "holding", "activity"),
        nothing="" if known else "Nothing has a price in this window.",
    )


def line_key(row: CostRow) -> LineSource:
    """Return what tells the line items of a question apart."""
    return tuple(row.groups.values()), row.cause, row.currency, row.correction


def price_sources(
    asked: CostQuery, *, visibility: Visibility, zone: ZoneInfo | None = None
) -> dict[LineSource, tuple[str, ...]]:
    """Return which prices of the book are behind each line of `cost_rows`, by `line_key`.

    Empty for corrections, for lines without a price, and where the price was taken out of the book
    since. Of energy it is the price whose tariff it has. Queries as of `cost_rows`, and one more.
    """
    groups = tuple(dict.fromkeys((*asked.group_by, *_PLACE)))
    # A line of a team is of many pools: by pool and price each part has one source.
    fine = replace(asked, interval=TimeStep.TOTAL, group_by=groups, by_rate=True)
    window, book = asked.window, price_book()
    found: dict[LineSource, set[str]] = defaultdict(set)
    for row in CostReader(fine, visibility=visibility, zone=zone).rows(window):
        names = tuple(row.groups[group] for group in asked.group_by)
        sources = found[names, row.cause, row.currency, row.correction]
        if row.cost is None or row.correction:
            continue
        cluster, tier, gpu_model, capacity_type = (row.groups[group] for group in _PLACE)
        place = (cluster, tier, gpu_model, capacity_type)
        if row.cause is Cause.ENERGY:
            sources.update(
                entry.reference
                for at in (window.start, window.end - _HOUR)
                if (entry := _price_at(book, place, at)) is not None and entry.per_kwh is not None
            )
        elif row.price is not None and row.list_price is not None:
            prices = row.price, row.list_price
            entries = book.entries_of(place, prices, start=window.start, end=window.end)
            sources.update(entry.reference for entry in entries)
    return {key: tuple(sorted(texts)) for key, texts in found.items()}


def _price_at(book: PriceBook, place: tuple[str, str, str, str], at: datetime) -> PriceEntry | None:
    cluster, tier, gpu_model, capacity_type = place
    return book.price(
        cluster=cluster, tier=tier, gpu_model=gpu_model, capacity_type=capacity_type, at=at
    )


def _counts(row: CostRow, figure: str) -> bool:
    if figure == COST:
        return True
    if figure == WASTE_COST:
        return row.cause in WASTE
    return row.cause is _CAUSES[figure]


def _cost_part(row: CostRow) -> dict[str, Any]:
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
        return (
            "The price of all capacity that was not active, by cause. GPU-hours without metrics "
            "are no waste."
        )
    return "The price of the GPU-hours of one cause."


def _grades(window: Window, filters: Filters, visibility: Visibility) -> dict[str, float]:
    rows = usage_rows(UsageQuery(window, filters=filters), visibility=visibility)
    found: dict[str, float] = {}
    for row in rows:
        for name, hours in row.amounts.grades.items():
            found[name] = found.get(name, 0.0) + hours
    return found


def _pools(rows: Iterable[CostRow | UsageRow]) -> set[tuple[str, str]]:
    return {(row.groups["gpu_model"], row.groups["capacity_type"]) for row in rows}


def price_rows(window: Window, pools: Iterable[tuple[str, str]]) -> list[PriceLine]:
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
    return row_from(
        PriceLine,
        one,
        per_gpu_hour=one.contracted,
        pue=one.pue if one.per_kwh is not None else None,
    )


def explain_cost_share(asked: CostQuery, *, of: Filters, **narrowed: Any) -> Explained | None:
    """Explain what share costs are of those of other filters; `narrowed` as for costs."""
    part = explain_cost(COST, asked, **narrowed)
    every = explain_cost(COST, replace(asked, filters=of), **narrowed)
    if part is None or every is None:
        return None
    known = part.value is not None and bool(every.value)
    return replace(
        part,
        figure=SHARE,
        label="Share of cost",
        meaning="Cost ÷ cost of all that is shown and has a price.",
        value=float(part.value or 0) / float(every.value or 1) if known else None,
        unit=FigureUnit.RATIO,
        formula="part / whole",
        inputs=(
            FigureInput("part", "cost", part.value, FigureUnit.MONEY),
            FigureInput("whole", "all costs", every.value, FigureUnit.MONEY, COST),
        ),
        nothing="" if known else "Nothing has a price in this window.",
    )


def explain_cost_per_gpu_hour(asked: CostQuery, **narrowed: Any) -> Explained | None:
    """Explain the mean cost of a GPU-hour that has a price; `narrowed` as for costs."""
    one = explain_cost(COST, asked, **narrowed)
    if one is None:
        return None
    hours = fsum(row["priced"] for row in one.rows)
    known = one.value is not None and hours > 0
    return replace(
        one,
        figure=PER_GPU_HOUR,
        label="Cost per GPU-hour",
        meaning="Cost ÷ GPU-hours with a price.",
        value=Decimal(repr(float(one.value or 0) / hours)) if known else None,
        formula="sum(cost) / sum(priced)",
        nothing="" if known else "Nothing has a price in this window.",
    )


def explain_price(
    at: datetime, *, tier: str, cluster: str, gpu_model: str, capacity_type: str
) -> Explained | None:
    """Explain the price of a GPU-hour at `at`: the line of the price book. None without one.

    Prices are visible to every user who requests GPUs. One query.
    """
    # Of two that hold the one that started last counts, as in the book: it is written last.
    entries = {
        (one.cluster, one.tier, model_key(one.gpu_model), one.capacity_type): one
        for one in sorted(price_book(at).entries, key=lambda one: one.valid_from)
    }
    # The order of the book: the first place that has an entry wins, however old that is.
    found = map(entries.get, places(cluster, tier, gpu_model, capacity_type))
    one = next((entry for entry in found if entry is not None), None)
    if one is None:
        return None
    return Explained(
        figure=TIER_PRICE,
        label="Price per GPU-hour",
        meaning=f"{gpu_model}, {capacity_type}: the price now, after any discount.",
        anchor="waste",
        value=one.contracted,
        unit=FigureUnit.MONEY,
        currency=one.currency,
        formula="listed * (1 - discount)",
        inputs=(
            FigureInput("listed", "price", one.per_gpu_hour, FigureUnit.MONEY),
            FigureInput("discount", "discount", one.discount, FigureUnit.RATIO),
        ),
        prices=[price_line(one)],
    )


def explain_energy(window: Window, *, filters: Filters, visibility: Visibility) -> Explained:
    """Explain the measured energy of a window, day by day. Queries as those of `usage_rows`."""
    query = UsageQuery(window, TimeStep.DAY, _GROUPS, filters)
    found = usage_rows(query, visibility=visibility)
    carbon = carbon_of(found, query, visibility=visibility, zone=report().zone)
    rows: list[dict[str, Any]] = [
        {
            "day": "" if row.period is None else str(row.period.date()),
            **row.groups,
            "kwh": row.amounts.energy_kwh,
            "carbon": None if grams is None else grams / 1000,
            "without": without,
        }
        for row, (grams, without) in zip(found, carbon, strict=True)
        if row.amounts.energy_kwh
    ]
    return Explained(
        figure=ENERGY,
        label="Energy",
        meaning="What GPUs drew, as their exporter counts it, and the carbon of that with PUE.",
        anchor="energy-and-carbon",
        value=fsum(row["kwh"] for row in rows) if rows else None,
        unit=FigureUnit.KWH,
        formula="sum(kwh)",
        columns=(
            RowColumn("day", "Day"),
            *(RowColumn(name.value, name.value.replace("_", " ").capitalize()) for name in _GROUPS),
            RowColumn("kwh", "Energy", FigureUnit.KWH),
            RowColumn("carbon", "Carbon", FigureUnit.KG_CO2E),
            RowColumn("without", "Without factor", FigureUnit.KWH),
        ),
        rows=rows,
        prices=price_rows(window, _pools(found)),
        nothing="" if rows else "No exporter showed energy in this window.",
    )


def explain_adjustment(
    *, month: str, booked_on: str, currency: str, visibility: Visibility
) -> Explained | None:
    """Explain what was booked on a day against a closed month; for who sees everything."""
    if not visibility.everything:
        return None
    try:
        # Both come from the page's address, which may have been typed by hand.
        first, booked = date.fromisoformat(f"{month}-01"), date.fromisoformat(booked_on)
    except ValueError:
        return None
    lines = Adjustment.objects.filter(period__month=first, booked_on=booked, currency=currency)
    own = list(lines.select_related("cluster", "team").order_by("day", "pk"))
    if not own:
        return None
    return Explained(
        figure=ADJUSTMENT,
        label="Correction",
        meaning=f"Late facts and corrected prices of {month}, booked on {booked_on}.",
        anchor="waste",
        value=sum((money(one.cost) for one in own), Decimal(0)) if currency else None,
        unit=FigureUnit.MONEY,
        currency=currency,
        formula="sum(cost)",
        columns=(
            *(RowColumn(key, key.capitalize()) for key in ("day", "cluster", "team", "cause")),
            RowColumn("gpu_hours", "GPU-hours", FigureUnit.GPU_HOURS),
            RowColumn("cost", "Cost", FigureUnit.MONEY),
        ),
        rows=[_booked(one) for one in own],
        nothing="" if currency else "These GPU-hours have no price.",
    )


def _booked(one: Adjustment) -> dict[str, Any]:
    return {
        "day": str(one.day),
        "cluster": one.cluster.name,
        "team": one.team.name if one.team else "",
        "cause": one.cause,
        "gpu_hours": one.gpu_hours / NANO,
        "cost": money(one.cost),
    }


def explain_money_budget(
    figure: str, at: datetime, *, team: str, period: str, unit: str, visibility: Visibility
) -> Explained | None:
    """Explain a budget of a team in the currency `unit`: what is used, and how that burns.

    None for other figures, where there is no such budget, and for who may not see it. Queries as
    those of `money_budget_rows`, and seven.
    """
    if figure not in BUDGETS:
        return None
    rows = money_budget_rows(at, visibility=visibility, team=team)
    named = (one for one in rows if one.unit == unit and period in ("", one.period))
    row = next(named, None)
    if row is None:
        return None
    # Prices that hold later in the period have priced nothing of it yet.
    window = Window(row.period_start, min(row.period_end, at))
    held = usage_rows(
        UsageQuery(window, group_by=_GROUPS[1:], filters=Filters(team=(team,))),
        visibility=visibility,
    )
    one = explain_burn(figure, row, currency=unit)
    return replace(
        one,
        formula="sum(cost)" if figure == "budget_used" else one.formula,
        inputs=() if figure == "budget_used" else one.inputs,
        columns=(RowColumn("day", "Day"), RowColumn("cost", "Cost", FigureUnit.MONEY)),
        rows=[{"day": str(day), "cost": cost} for day, cost in row.days],
        prices=price_rows(window, _pools(held)),
        origin="Cost of what the team held, and corrections on the day that they were booked.",
    )
