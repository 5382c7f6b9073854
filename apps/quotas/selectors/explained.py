"""How the figures of budgets come about."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from apps.accounts.permissions import Visibility
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
    def burn_rate_7d(self) -> float | None: ...
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


_BUDGET: Mapping[str, _Budget] = {
    "budget_used": _Budget(
        "Budget used", "Allocated since the period's start.", Unit.GPU_HOURS, "used"
    ),
    "budget_burn": _Budget(
        "Burn rate",
        "Share of the budget used ÷ share of the period with data; 1 is linear pace.",
        Unit.COUNT,
        "(used / budget) / (known / period)",
    ),
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
    used = Input("used", "used", row.used, unit, figure="budget_used")
    inputs: Sequence[Input] = (
        used,
        Input("budget", "budget", row.allowance, unit),
        Input(
            "period",
            "hours of the period",
            hours_between(row.period_start, row.period_end),
            Unit.HOURS,
        ),
    )
    value: Number | None = row.used
    formula = of.formula
    if figure == "budget_burn":
        inputs = (*inputs, Input("known", "hours with data", row.known_hours, Unit.HOURS))
        value = row.burn_rate
    elif figure == "budget_hours_left":
        inputs = (*inputs, Input("rate", "burn rate of 7 days", row.burn_rate_7d, Unit.RATIO))
        used_up = row.used >= row.allowance
        value = 0.0 if used_up else hours_between(row.as_of, row.exhausted_at)
        formula = "max(0, budget - used)" if used_up else formula
    return Explained(
        figure=figure,
        label=of.label,
        meaning=of.meaning,
        anchor="quota-burn",
        value=value,
        unit=unit if of.unit is Unit.GPU_HOURS else of.unit,
        currency=currency,
        formula=formula,
        inputs=(used,) if figure == "budget_used" else inputs,
        grades=_known(row),
        grade_unit=Unit.HOURS,
        sources=("holding",),
        nothing="" if value is not None else "It is not known, or not before the period's end.",
    )


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
