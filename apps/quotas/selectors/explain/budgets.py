"""How the figures of budgets come about."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from apps.accounts.permissions import Visibility
from apps.quotas.domain.burn import Spent
from apps.quotas.selectors.budgets import budget_rows
from apps.usage.domain.explained import Explained, Input, Number, RowColumn, Unit

_HOUR = timedelta(hours=1)


class BudgetPeriod(Protocol):
    """A budget in its period, of GPU-hours or money."""

    @property
    def allowance(self) -> Number: ...
    @property
    def used(self) -> Number: ...
    @property
    def period_start(self) -> datetime: ...
    @property
    def period_end(self) -> datetime: ...
    @property
    def burn_rate(self) -> float | None: ...
    @property
    def burn_rate_1d(self) -> float | None: ...
    @property
    def burn_rate_7d(self) -> float | None: ...
    @property
    def last_day(self) -> Spent: ...
    @property
    def last_week(self) -> Spent: ...
    @property
    def exhausted_at(self) -> datetime | None: ...
    @property
    def as_of(self) -> datetime | None: ...
    @property
    def known_hours(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class _Budget:
    label: str
    meaning: str
    unit: Unit
    formula: str


_PACE = "Mean use of an hour in the last {} ÷ budget of an hour; 1 is linear pace."
_OF_DAYS = "(spent / hours) / (budget / period)"
_RECENT = {"budget_burn_1d": "the last day", "budget_burn_7d": "the last 7 days"}
_BUDGET: Mapping[str, _Budget] = {
    "budget_used": _Budget(
        "Budget used", "Allocated since the period's start.", Unit.GPU_HOURS, "used"
    ),
    "budget_share": _Budget("Share used", "Used ÷ budget.", Unit.RATIO, "used / budget"),
    "budget_burn": _Budget(
        "Burn rate",
        "Share of the budget used ÷ share of the period with data; 1 is linear pace.",
        Unit.COUNT,
        "(used / budget) / (known / period)",
    ),
    "budget_burn_1d": _Budget("Burn rate, 1 day", _PACE.format("day"), Unit.COUNT, _OF_DAYS),
    "budget_burn_7d": _Budget("Burn rate, 7 days", _PACE.format("7 days"), Unit.COUNT, _OF_DAYS),
    "budget_hours_left": _Budget(
        "Hours left",
        "Until the budget is used at the mean of the last 7 days.",
        Unit.HOURS,
        "(budget - used) / (rate * budget / period)",
    ),
}
BUDGETS = tuple(_BUDGET)


def explain_budget(
    figure: str, at: datetime, *, team: str, period: str, visibility: Visibility
) -> Explained | None:
    """Explain a GPU-hour budget of a team: what is used, and how that burns.

    None for other figures and where there is no such budget. Queries as those of `budget_rows`.
    """
    if figure not in _BUDGET:
        return None
    rows = budget_rows(at, visibility=visibility, team=team)
    row = next((one for one in rows if not period or one.period == period), None)
    if row is None:
        return None
    points = [(point.at, point.used) for point in row.points]
    before = [0.0, *(amount for _, amount in points)]
    return replace(
        explain_burn(figure, row),
        columns=(
            RowColumn("until", "Until", Unit.TIME),
            RowColumn("gpu_hours", "Used", Unit.GPU_HOURS),
            RowColumn("since_start", "Used since the start", Unit.GPU_HOURS),
        ),
        rows=[
            {"until": at, "gpu_hours": amount - earlier, "since_start": amount}
            for (at, amount), earlier in zip(points, before, strict=False)
        ],
        origin="Allocated GPU-hours of all clusters.",
    )


def explain_burn(figure: str, row: BudgetPeriod, *, currency: str = "") -> Explained:
    """Explain one of BUDGETS of a budget in GPU-hours, or in a currency; without its rows."""
    of, unit = _BUDGET[figure], Unit.MONEY if currency else Unit.GPU_HOURS
    value, formula = _value(figure, row), of.formula
    if figure == "budget_hours_left" and row.used >= row.allowance:
        formula = "max(0, budget - used)"
    return Explained(
        figure=figure,
        label=of.label,
        meaning=of.meaning,
        anchor="quota-burn",
        value=value,
        unit=unit if of.unit is Unit.GPU_HOURS else of.unit,
        currency=currency,
        formula=formula,
        inputs=_inputs(figure, row, unit),
        grades=_known(row),
        grade_unit=Unit.HOURS,
        sources=("holding",),
        nothing="" if value is not None else "It is not known, or not before the period's end.",
    )


def _value(figure: str, row: BudgetPeriod) -> Number | None:
    if figure == "budget_share":
        return float(row.used) / float(row.allowance) if row.allowance else None
    if figure == "budget_hours_left":
        used_up = row.used >= row.allowance
        return 0.0 if used_up else hours_between(row.as_of, row.exhausted_at)
    rates = {
        "budget_burn": row.burn_rate,
        "budget_burn_1d": row.burn_rate_1d,
        "budget_burn_7d": row.burn_rate_7d,
    }
    return rates.get(figure, row.used)


def _inputs(figure: str, row: BudgetPeriod, unit: Unit) -> list[Input]:
    """Return the numbers that the formula of a figure has, and no others."""
    used = Input("used", "used", row.used, unit, figure="budget_used")
    if figure == "budget_used":
        return [used]
    budget = Input("budget", "budget", row.allowance, unit)
    if figure == "budget_share":
        return [used, budget]
    length = hours_between(row.period_start, row.period_end)
    period = Input("period", "hours of the period", length, Unit.HOURS)
    if figure in _RECENT:
        spent = row.last_day if figure == "budget_burn_1d" else row.last_week
        return [
            Input("spent", f"used in {_RECENT[figure]}", spent.amount, unit),
            Input("hours", f"hours of {_RECENT[figure]}", spent.hours, Unit.HOURS),
            *(budget, period),
        ]
    if figure == "budget_burn":
        known = Input("known", "hours with data", row.known_hours, Unit.HOURS)
        return [used, budget, period, known]
    rate = Input("rate", "burn rate of 7 days", row.burn_rate_7d, Unit.RATIO, "budget_burn_7d")
    return [used, budget, period, rate]


def hours_between(start: datetime | None, end: datetime | None) -> float | None:
    """Return the hours between two times; local ones would leave out the change of clocks."""
    if start is None or end is None:
        return None
    return (end.astimezone(UTC) - start.astimezone(UTC)) / _HOUR


def _known(row: BudgetPeriod) -> dict[str, float]:
    elapsed = hours_between(row.period_start, row.as_of)
    if row.known_hours is None or elapsed is None:
        return {}
    return {"with data": row.known_hours, "no data": max(0.0, elapsed - row.known_hours)}
