"""How ratios of costs, prices, energy and bookings against closed months come about."""

from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from math import fsum
from typing import Any

from apps.accounts.permissions import Visibility
from apps.clusters.domain.tiers import model_key
from apps.clusters.domain.window import Window
from apps.costs.domain.money import money
from apps.costs.domain.prices import places
from apps.costs.models import Adjustment
from apps.costs.selectors.explain.costs import COST, explain_cost, price_line, price_lines
from apps.costs.selectors.prices import price_book
from apps.costs.selectors.rows import CostQuery
from apps.usage.domain.amounts import NANO
from apps.usage.domain.explained import Explained, Input, RowColumn, Unit
from apps.usage.domain.rows import Filters, Grouping, TimeStep, UsageQuery
from apps.usage.selectors import usage_rows

SHARE, PER_GPU_HOUR = "cost_share", "cost_per_gpu_hour"
TIER_PRICE, ENERGY, ADJUSTMENT = "tier_price", "energy_kwh", "closed_month_adjustment"


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
        unit=Unit.RATIO,
        formula="part / whole",
        inputs=(
            Input("part", "cost", part.value, Unit.MONEY),
            Input("whole", "all costs", every.value, Unit.MONEY, COST),
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

    Prices are for everybody who asks for GPUs. One query.
    """
    # Of two that hold the one that started last counts, as in the book: it is written last.
    entries = {
        (one.cluster, one.tier, model_key(one.gpu_model), one.capacity_type): one
        for one in sorted(price_book(at).entries, key=lambda one: one.valid_from)
    }
    found = map(entries.get, places(cluster, tier, gpu_model, capacity_type))
    one = next((entry for entry in found if entry is not None), None)
    if one is None:
        return None
    return Explained(
        figure=TIER_PRICE,
        label="Price of a GPU-hour",
        meaning=f"{gpu_model}, {capacity_type}: the price now, after any discount.",
        anchor="waste",
        value=one.contracted,
        unit=Unit.MONEY,
        currency=one.currency,
        formula="listed * (1 - discount)",
        inputs=(
            Input("listed", "price", one.per_gpu_hour, Unit.MONEY),
            Input("discount", "discount", one.discount, Unit.RATIO),
        ),
        prices=[price_line(one)],
    )


def explain_energy(window: Window, *, filters: Filters, visibility: Visibility) -> Explained:
    """Explain the measured energy of a window, day by day. Queries as those of `usage_rows`."""
    names = (Grouping.TIER, Grouping.GPU_MODEL, Grouping.CAPACITY_TYPE)
    found = usage_rows(UsageQuery(window, TimeStep.DAY, names, filters), visibility=visibility)
    rows: list[dict[str, Any]] = [
        {
            "day": "" if row.period is None else str(row.period.date()),
            **row.groups,
            "kwh": row.amounts.energy_kwh,
        }
        for row in found
        if row.amounts.energy_kwh
    ]
    pools = [(row.groups[names[1]], row.groups[names[2]]) for row in found]
    return Explained(
        figure=ENERGY,
        label="Energy",
        meaning="What GPUs drew, as their exporter counts it; shared by weight.",
        anchor="activity-levels",
        value=fsum(row["kwh"] for row in rows) if rows else None,
        unit=Unit.KWH,
        formula="sum(kwh)",
        columns=(
            RowColumn("day", "Day"),
            *(RowColumn(name.value, name.value.replace("_", " ").capitalize()) for name in names),
            RowColumn("kwh", "Energy", Unit.KWH),
        ),
        rows=rows,
        prices=price_lines(window, pools),
        nothing="" if rows else "No exporter showed energy in this window.",
    )


def explain_adjustment(
    *, month: str, booked_on: str, currency: str, visibility: Visibility
) -> Explained | None:
    """Explain what was booked on a day against a closed month; for who sees everything."""
    if not visibility.everything:
        return None
    try:
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
        unit=Unit.MONEY,
        currency=currency,
        formula="sum(cost)",
        columns=(
            *(RowColumn(key, key.capitalize()) for key in ("day", "cluster", "team", "cause")),
            RowColumn("gpu_hours", "GPU-hours", Unit.GPU_HOURS),
            RowColumn("cost", "Cost", Unit.MONEY),
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
