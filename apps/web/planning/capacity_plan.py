"""The capacity plan: demand so far and to come, other sizes replayed, and what to do."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

from django.http import HttpResponseBase
from msgspec.structs import asdict

from apps.clusters.domain.window import Window, day_start
from apps.planning import selectors as planning
from apps.planning.domain.capacity_cases import CaseAction, SizePoint
from apps.planning.selectors import CapacityPlanRow, Ceilings, TierCapacityPlan
from apps.quota_requests.selectors import bookings_ahead
from apps.usage.domain.amounts import NANO
from apps.web.components.drawings import GridHead, GridRow, HeatCell, heat_map
from apps.web.components.drawings.heat_map import HeatMap
from apps.web.components.figure_row import FigureRow, KeyFigure, Tone, figure_row, no_data
from apps.web.components.formats import (
    Format,
    Value,
    days_text,
    days_words,
    gpus_text,
    money,
    percent,
)
from apps.web.components.page_query import href
from apps.web.components.plots import Plot, PlotLine, Scale
from apps.web.components.tables import (
    Column,
    Table,
    TableRow,
    declared_columns,
    declared_values,
)
from apps.web.fairness.overview import known_tiers
from apps.web.pages import page, respond
from apps.web.planning.capacity_ceilings import gap_texts, group_table, request_table
from apps.web.planning.capacity_wording import (
    FEW_DAYS,
    NOT_COMPUTED,
    bookings_text,
    case_text,
    ceilings_text,
    duration_text,
    interruptions_text,
    moves_here,
    replayed_text,
    skill_text,
)
from apps.web.planning.policies import plan_tabs
from apps.web.query_session import PageRequest, QuerySession, query_session

_DAY = timedelta(days=1)
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


# ---------------------------------------------------------------- all tiers


@page
def plan_list(request: PageRequest) -> HttpResponseBase:
    """Show what the outlook of each tier speaks for."""
    reading = query_session(request)
    limits = planning.ceilings(reading.now, visibility=reading.visibility)
    plans = plans_of(reading, limits)
    rows = [row for plan in plans for row in plan.rows()]
    return respond(
        request,
        reading,
        "plan",
        tabs=plan_tabs("plan", reading),
        figures=_overview(rows, reading),
        tables=[
            _plan_table(rows, reading),
            group_table((one for own in limits.groups.values() for one in own), reading),
            request_table(limits, reading),
        ],
        gaps=gap_texts(limits.gaps),
        newest=max((plan.computed_at for plan in plans), default=None),
        replayed=_replayed(plans),
        few_days=FEW_DAYS if plans and not any(one.outlook.forecast for one in plans) else "",
    )


def plans_of(reading: QuerySession, limits: Ceilings) -> list[TierCapacityPlan]:
    """Return the plans of all tiers, with bookings to come and the ceilings of autoscalers."""
    booked = bookings_ahead(now=reading.now)
    return planning.capacity_plans(
        reading.now, booked=booked, visibility=reading.visibility, limits=limits
    )


def plan_of(
    name: str, reading: QuerySession
) -> tuple[TierCapacityPlan | None, list[TierCapacityPlan]]:
    """Return the plan of a tier beside those of all; an unknown tier is answered by 404."""
    limits = planning.ceilings(reading.now, visibility=reading.visibility)
    plans = plans_of(reading, limits)
    own = next((plan for plan in plans if plan.outlook.tier == name), None)
    # A tier without a plan has a page; an unknown name has none.
    if own is None:
        known_tiers(name, reading)
    return own, plans


def _overview(rows: Sequence[CapacityPlanRow], reading: QuerySession) -> FigureRow:
    figures = [
        _sum_of(rows, CaseAction.BUY, "Buy", Tone.WARNING),
        _sum_of(rows, CaseAction.SHARE, "Share", Tone.NONE),
        _sum_of(rows, CaseAction.MOVE, "Move", Tone.NONE),
        _sum_of(rows, CaseAction.RETURN, "Return", Tone.NONE),
    ]
    # The cost of tiers is of all teams, so only who sees all of them sees it.
    if reading.visibility.everything:
        figures.append(_cost_of(rows))
    return figure_row(*figures)


def _sum_of(
    rows: Sequence[CapacityPlanRow], action: CaseAction, label: str, tone: Tone
) -> KeyFigure:
    # Without a single outlook each sum would be 0, as if nothing had to be bought.
    if not any(row.action for row in rows):
        return no_data(label, NOT_COMPUTED if not rows else FEW_DAYS)
    own = [row for row in rows if row.action is action]
    gpus = sum(row.action_gpus or 0 for row in own)
    known = [_tiers(len(own))] if own else []
    # What is not known of a tier is no zero of it.
    if unknown := len({row.tier for row in rows if not row.action}):
        if not own:
            return no_data(label, f"There is no data for {_tiers(unknown)}.")
        known.append(f"{unknown} without data")
    return KeyFigure(
        label,
        gpus_text(gpus),
        "GPUs",
        note=", ".join(known),
        tone=tone if own else Tone.NONE,
    )


def _tiers(count: int) -> str:
    return f"{count} tier{'' if count == 1 else 's'}"


def _replayed(plans: Sequence[TierCapacityPlan]) -> str:
    """Return how many days the plans rest on; empty where nothing was replayed."""
    days = sorted({plan.outlook.replayed_days for plan in plans} - {0})
    if not days:
        return ""
    return f"{days[0]} to {days_words(days[-1])}" if len(days) > 1 else days_words(days[0])


def _cost_of(rows: Sequence[CapacityPlanRow]) -> KeyFigure:
    label = "Cost per month"
    priced = [row for row in rows if row.cost_per_month is not None]
    acts = [row for row in rows if row.action in (CaseAction.BUY, CaseAction.RETURN)]
    currencies = {row.currency for row in priced}
    # A sum that lacks a purchase would look cheaper than it is.
    if not priced or len(priced) < len(acts) or len(currencies) > 1:
        return no_data(label, "No purchase or return with a price.")
    total = sum(row.cost_per_month or 0 for row in priced)
    return KeyFigure(label, money(total, currencies.pop()), note="purchases less returns")


def _plan_table(rows: Sequence[CapacityPlanRow], reading: QuerySession) -> Table:
    return Table(
        id="plans",
        title="Tiers",
        columns=declared_columns(CapacityPlanRow),
        rows=[
            TableRow(
                {**declared_values(row), "cost_per_month": _number(row.cost_per_month)},
                {
                    "tier": href("tier-plan", name=row.tier),
                    "to_tier": href("tier-plan", name=row.to_tier) if row.to_tier else None,
                },
                short={} if row.action else {"action": "no data"},
            )
            for row in rows
        ],
        zone=reading.choice.zone,
        empty=NOT_COMPUTED,
    )


def _number(cost: Decimal | None) -> float | None:
    return None if cost is None else float(cost)


# ---------------------------------------------------------------- one tier


@page
def tier_plan(request: PageRequest, name: str) -> HttpResponseBase:
    """Show demand and forecast of a tier, its sizes replayed, and its cases."""
    reading = query_session(request)
    own, plans = plan_of(name, reading)
    return respond(
        request,
        reading,
        "tier_plan",
        name=name,
        not_computed=NOT_COMPUTED,
        tier_href=href("tier", reading.query, name=name),
        what_if_href=href("what-if", reading.query, name=name),
        case_href=href("tier-case", name=name) if own else None,
        **({} if own is None else _shown(own, plans, reading)),
    )


def _shown(
    own: TierCapacityPlan, plans: Sequence[TierCapacityPlan], reading: QuerySession
) -> dict[str, Any]:
    plot = demand_plot(own, reading)
    return {
        "plan": own,
        "figures": plan_figures(own),
        "cases": [*(case_text(case, own) for case in own.cases), *moves_here(own, plans)],
        "plot": plot,
        "tables": [
            plot.table,
            size_table(own, reading),
            *([_pool_table(own, reading)] if own.pools else ()),
            *([group_table(own.groups, reading)] if own.groups else ()),
        ],
        "ceilings": ceilings_text(own, reading.now),
        "drawings": [_week(own)],
        "skill": skill_text(own),
        "bookings": bookings_text(own),
        "replayed": replayed_text(own, reading.choice.zone),
        "through": days_text(own.first_day, own.through, reading.choice.zone),
    }


def plan_figures(plan: TierCapacityPlan) -> FigureRow:
    """Return capacity, demand and forecast of a tier, and what was pending in the replay."""
    one = plan.outlook
    ahead, now = one.ahead, one.as_it_is
    forecast = (
        no_data("Forecast", FEW_DAYS)
        if ahead is None
        else KeyFigure(
            "Forecast",
            gpus_text(ahead[1]),
            "GPUs",
            note=f"80 %: {gpus_text(ahead[0])} to {gpus_text(ahead[2])}",
            exact=f"mean of the week to {plan.forecast_until}",
            tone=Tone.WARNING if ahead[1] > one.capacity_now else Tone.NONE,
        )
    )
    return figure_row(
        KeyFigure("Capacity", gpus_text(one.capacity_now), "GPUs", basis="newest day"),
        _gpus("Demand", plan.demand, "28 days"),
        forecast,
        _gpus("Unused", one.unused, "28 days"),
        no_data("Pending, replayed", one.not_replayed or NOT_COMPUTED)
        if now is None
        else KeyFigure(
            "Pending, replayed",
            gpus_text(now.unmet_gpu_hours),
            "GPU-h",
            note=f"p95 queue time {duration_text(now.p95_seconds)}",
            basis=days_words(one.replayed_days),
        ),
        no_data("Spot", "The capacity of these days is not known.")
        if one.spot_ratio is None
        else KeyFigure(
            "Spot",
            percent(one.spot_ratio),
            "of capacity",
            note=interruptions_text(plan),
            basis="28 days",
        ),
    )


def _gpus(label: str, gpus: float | None, basis: str) -> KeyFigure:
    if gpus is None:
        return no_data(label, "Nothing was measured in these days.")
    return KeyFigure(label, gpus_text(gpus), "GPUs", basis=basis)


_DEMAND_COLUMNS = (
    Column("day", "Day", Format.DAY),
    Column("demand_gpus", "Demand", Format.NUMBER, "GPUs", "allocated and pending"),
    Column("capacity_gpus", "Capacity", Format.NUMBER, "GPUs"),
    Column("forecast_low_gpus", "Forecast low", Format.NUMBER, "GPUs", "of the 80 % range"),
    Column("forecast_gpus", "Forecast", Format.NUMBER, "GPUs"),
    Column("forecast_high_gpus", "Forecast high", Format.NUMBER, "GPUs", "of the 80 % range"),
)
_BOOKED_COLUMN = Column("booked_gpus", "Booked", Format.NUMBER, "GPUs", "bookings to come")


def demand_plot(plan: TierCapacityPlan, reading: QuerySession) -> Plot:
    """Return demand and capacity by day, then the forecast with its range."""
    one, zone = plan.outlook, reading.choice.zone
    ahead = one.forecast
    middle, low, high = (ahead.middle, ahead.low, ahead.high) if ahead else ((), (), ())
    past = len(one.demand)
    # One more than there are days: the last one needs its end.
    starts = [day_start(plan.first_day + n * _DAY, zone) for n in range(past + len(middle) + 1)]
    scale = Scale.up_to(
        Window(starts[0], starts[-1]),
        max(
            (
                gpus
                for gpus in (*one.demand, *one.capacity, *high, *one.with_bookings)
                if gpus is not None
            ),
            default=0,
        ),
    )
    spans = list(pairwise(starts))
    # Capacity is not forecast: what there is now is held against the demand to come.
    capacity = [*one.capacity, *([one.capacity_now] * len(middle))]
    curves = [
        PlotLine("Demand", "plot-demand", scale.steps(_spans(spans, one.demand))),
        PlotLine("Capacity", "plot-limit", scale.steps(_spans(spans, capacity))),
    ]
    if middle:
        curves.append(
            PlotLine("Forecast", "plot-forecast", scale.steps(_spans(spans[past:], middle)))
        )
    if one.with_bookings:
        booked = scale.steps(_spans(spans[past:], one.with_bookings))
        curves.append(PlotLine("With bookings", "plot-booked", booked))
    centers = [start + (end - start) / 2 for start, end in spans[past:]]
    corners = [
        *zip(centers, high, strict=True),
        # There along the upper edge and back along the lower one: the area is closed.
        *reversed(list(zip(centers, low, strict=True))),
    ]
    title = "Demand and forecast"
    return Plot(
        id="demand",
        title=title,
        caption=f"{title}, average GPUs by day. The range holds 80 % of days.",
        table=_demand_table(plan, starts, reading),
        curves=curves,
        areas=[PlotLine("80 % range", "plot-forecast-range", scale.area(corners))]
        if middle
        else (),
        across=scale.across(zone),
        upwards=scale.upwards(),
        notes=[scale.note(starts[past], "forecast")] if middle else (),
    )


def _spans(
    spans: Sequence[tuple[datetime, datetime]], values: Iterable[float | None]
) -> Iterable[tuple[datetime, datetime, float | None]]:
    return ((start, end, value) for (start, end), value in zip(spans, values, strict=False))


def _demand_table(
    plan: TierCapacityPlan, starts: Sequence[datetime], reading: QuerySession
) -> Table:
    one = plan.outlook
    past: list[dict[str, Value]] = [
        {"day": at, "demand_gpus": demand, "capacity_gpus": capacity}
        for at, demand, capacity in zip(starts, one.demand, one.capacity, strict=False)
    ]
    ahead = one.forecast
    coming = (
        zip(starts[len(past) : -1], ahead.low, ahead.middle, ahead.high, strict=True)
        if ahead
        else ()
    )
    keys = ("day", "forecast_low_gpus", "forecast_gpus", "forecast_high_gpus")
    forecasts = [dict[str, Value](zip(keys, values, strict=True)) for values in coming]
    for row, booked in zip(forecasts, one.booked, strict=False):
        row["booked_gpus"] = booked
    rows = [*past, *forecasts]
    return Table(
        id="demand-table",
        title="Demand and forecast",
        columns=[*_DEMAND_COLUMNS, *([_BOOKED_COLUMN] if one.booked else ())],
        rows=[TableRow(row) for row in rows],
        zone=reading.choice.zone,
        empty=NOT_COMPUTED,
        ordered=True,
    )


_SIZE_COLUMNS = (
    Column("gpus", "Capacity", Format.NUMBER, "GPUs"),
    Column("change_gpus", "Change", Format.NUMBER, "GPUs"),
    Column("unmet_gpu_hours", "Pending", Format.GPU_HOURS, "GPU-h"),
    Column("wait_p95_seconds", "p95 queue time", Format.SECONDS),
    Column("allocation_ratio", "Allocation", Format.RATIO, "%"),
)
_MONEY_COLUMN = Column("cost_per_month", "Cost per month", Format.DECIMAL)


def size_table(plan: TierCapacityPlan, reading: QuerySession) -> Table:
    """Return the replayed sizes: GPUs against pending, queue time and money."""
    one, price = plan.outlook, plan.price
    of_money = (_MONEY_COLUMN, Column("currency", "Currency", in_files=True)) if price else ()
    days = one.replayed_days
    span = "day" if days == 1 else days_words(days)

    def values(size: SizePoint) -> dict[str, float | str | None]:
        found: dict[str, float | str | None] = {
            "gpus": size.gpus,
            # Shares of GPUs leave needless digits behind.
            "change_gpus": round(size.gpus - one.capacity_now, 3),
            "unmet_gpu_hours": round(size.unmet_gpu_hours * NANO),
            "wait_p95_seconds": size.p95_seconds,
            "allocation_ratio": size.allocated_gpu_hours / (24 * days * size.gpus),
        }
        if price is not None:
            found["cost_per_month"] = float(price.per_month(size.gpus))
            found["currency"] = price.currency
        return found

    return Table(
        id="sizes",
        title=f"Last {span} with other capacity" if days else "Other capacity",
        columns=[*_SIZE_COLUMNS, *of_money],
        rows=[
            TableRow(
                values(size),
                short={"change_gpus": f"+{gpus_text(more)}"}
                if (more := size.gpus - one.capacity_now) > 0
                else {},
            )
            for size in one.sizes
        ],
        zone=reading.choice.zone,
        empty=one.not_replayed or NOT_COMPUTED,
        ordered=True,
    )


_POOL_COLUMNS = (
    Column("cluster", "Cluster"),
    Column("name", "Node pool"),
    Column("most_gpus", "Limit", Format.NUMBER, "GPUs"),
    Column("used_gpus", "Used", Format.NUMBER, "GPUs"),
    Column("consolidation", "Consolidation"),
)


def _pool_table(plan: TierCapacityPlan, reading: QuerySession) -> Table:
    """Return the NodePools of Karpenter that make nodes of the tier."""
    return Table(
        id="pools",
        title="Node pools",
        columns=_POOL_COLUMNS,
        rows=[
            TableRow(
                asdict(pool),
                short={} if pool.most_gpus is not None else {"most_gpus": "no limit"},
            )
            for pool in plan.pools
        ],
        zone=reading.choice.zone,
        # Shown where there are pools alone.
        empty="",
    )


def _week(plan: TierCapacityPlan) -> HeatMap:
    """Return the mean allocation of each hour of the week: nights and weekends that are empty."""
    ratios = plan.outlook.allocation_by_hour
    return heat_map(
        "week",
        "Allocation by hour of the week",
        columns=[GridHead(f"{hour:02}") for hour in range(24)],
        rows=[
            GridRow(
                day,
                [
                    HeatCell(ratio, "" if ratio is not None else "no data")
                    for ratio in ratios[24 * n : 24 * n + 24]
                ],
            )
            for n, day in enumerate(_WEEKDAYS)
            if ratios
        ],
        names=("Day", "Hour"),
        empty="" if ratios else "No data in the last 28 days.",
    )
