"""The case for buying, returning, moving or sharing GPUs of a tier, as one sheet of paper."""

from collections.abc import Iterable, Sequence
from math import isclose
from typing import Any

from django.http import HttpResponseBase

from apps.accounts.domain.structs import replace
from apps.costs.selectors import VALUE_DAYS
from apps.planning.domain.capacity_cases import CapacityCase
from apps.planning.selectors import MONTH_HOURS, TierCapacityPlan
from apps.web.components.formats import days_text, days_words, gpus_text, money
from apps.web.components.page_query import href
from apps.web.components.tables import Column, Table
from apps.web.pages import page, respond
from apps.web.planning.capacity_plan import demand_plot, plan_figures, plan_of, size_table
from apps.web.planning.capacity_wording import (
    NOT_COMPUTED,
    bookings_text,
    case_text,
    ceilings_text,
    duration_text,
    moves_here,
    replayed_text,
    skill_text,
)
from apps.web.query_session import PageRequest, QuerySession, query_session

_BASIS_COLUMN = Column("basis", "Basis")


@page
def tier_case(request: PageRequest, name: str) -> HttpResponseBase:
    """Show what to do with a tier, why, and what the figures rest on."""
    reading = query_session(request)
    own, plans = plan_of(name, reading)
    return respond(
        request,
        reading,
        "tier_case",
        name=name,
        not_computed=NOT_COMPUTED,
        plan_href=href("tier-plan", name=name),
        **({} if own is None else _shown(own, plans, reading)),
    )


def _shown(
    own: TierCapacityPlan, plans: Sequence[TierCapacityPlan], reading: QuerySession
) -> dict[str, Any]:
    zone = reading.choice.zone
    plot = demand_plot(own, reading)
    return {
        "plan": own,
        "made": reading.now,
        "through": days_text(own.first_day, own.through, zone),
        "cases": [*(case_text(case, own) for case in own.cases), *moves_here(own, plans)],
        "figures": plan_figures(own),
        "plot": plot,
        "tables": [plot.table, _options(own, plans, reading)],
        "skill": skill_text(own),
        "replay": replay_text(own),
        "assumptions": _assumptions(own, reading),
    }


def _options(
    own: TierCapacityPlan, plans: Iterable[TierCapacityPlan], reading: QuerySession
) -> Table:
    """Return the replayed sizes; the basis tells today's, and the one that an action rests on."""
    table, today = size_table(own, reading), own.outlook.as_it_is
    rests_on = [case.after.gpus for case in _of_tier(own, plans) if case.after is not None]

    def basis(gpus: Any) -> str:
        if today is not None and isclose(gpus, today.gpus):
            return "today"
        return "action" if any(isclose(gpus, one) for one in rests_on) else ""

    return replace(
        table,
        id="options",
        columns=[_BASIS_COLUMN, *table.columns],
        on_phone=("gpus", "basis", "unmet_gpu_hours", "wait_p95_seconds"),
        rows=[
            replace(row, values={"basis": basis(row.values["gpus"]), **row.values})
            for row in table.rows
        ],
    )


def _of_tier(own: TierCapacityPlan, plans: Iterable[TierCapacityPlan]) -> Iterable[CapacityCase]:
    """Return the cases whose replay is of this tier: one that gives GPUs has that of the other."""
    for plan in plans:
        for case in plan.cases:
            if (case.to_tier or case.tier) == own.outlook.tier:
                yield case


def replay_text(plan: TierCapacityPlan) -> str:
    """Return what the replay with today's capacity gives, beside what was recorded."""
    one, now = plan.outlook, plan.outlook.as_it_is
    if now is None:
        return one.not_replayed or NOT_COMPUTED
    recorded = one.recorded_unmet_gpu_hours
    held = "no data" if recorded is None else f"{gpus_text(recorded)} GPU-h"
    return (
        f"The replay of {days_words(one.replayed_days)} with today's capacity gives "
        f"{gpus_text(now.unmet_gpu_hours)} GPU-h pending, p95 queue time "
        f"{duration_text(now.p95_seconds)}. Recorded as pending in these days: {held}."
    )


def _assumptions(plan: TierCapacityPlan, reading: QuerySession) -> list[str]:
    zone = reading.choice.zone
    texts = [
        "Demand is allocated GPUs, and GPUs pending for want of capacity, quota or a queue.",
        "The forecast mixes a weekday pattern and damped trend with the weekday of the week "
        "before. Its range holds 80 % of days.",
        f"{replayed_text(plan, zone)} The tier is one pool: node selectors, quotas and queues "
        "block nothing. Work that was canceled runs as long as the tier's median.",
        f"Bookings: {bookings_text(plan)}",
        *ceilings_text(plan, reading.now),
    ]
    if plan.price is not None:
        per_hour = money(plan.price.per_gpu_hour, plan.price.currency, cents=True)
        texts.append(
            f"Costs are GPUs × {per_hour} per GPU-hour × {MONTH_HOURS} h, at the mean price of the "
            f"last {VALUE_DAYS} days. Purchase, installation and contract terms are not known."
        )
    else:
        texts.append("Costs are not shown: no price is known, or you may not see the costs.")
    return texts
