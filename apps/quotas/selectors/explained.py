"""How the figures of quotas and budgets come about."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from apps.accounts.permissions import Visibility
from apps.quotas.selectors.budgets import budget_rows
from apps.quotas.selectors.now import quota_rows
from apps.quotas.selectors.rows import BudgetRow, QuotaFilters, QuotaRow
from apps.usage.domain.explained import Explained, Input, RowColumn, Unit

_QUOTAS = ("quota_usage", "quota_used")
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class _Budget:
    label: str
    meaning: str
    unit: Unit
    formula: str


_BUDGET: Mapping[str, _Budget] = {
    "budget_used": _Budget(
        "Budget used", "Allocated GPU-hours since the period's start.", Unit.GPU_HOURS, "used"
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
QUOTAS, BUDGETS = _QUOTAS, tuple(_BUDGET)


def explain_quota(
    figure: str, at: datetime, *, key: Sequence[str], visibility: Visibility
) -> Explained | None:
    """Explain the usage of one quota key at `at`: `key` is cluster, source, namespace, name, key.

    None for other figures, for a key that is not there, and for one that the reader does not see.
    Queries as those of `quota_rows`.
    """
    if figure not in _QUOTAS or len(key) != 5:
        return None
    cluster, source, namespace, name, of = key
    filters = QuotaFilters(cluster=(cluster,), namespace=(namespace,) if namespace else ())
    rows = quota_rows(at, filters=filters, visibility=visibility, page_size=500).rows
    found = (row for row in rows if (row.source, row.name, row.key) == (source, name, of))
    row = next(found, None)
    return None if row is None else _quota(figure, row)


def _quota(figure: str, row: QuotaRow) -> Explained:
    used = Input("used", "used", row.used, Unit.COUNT)
    by_usage = figure == "quota_usage"
    value = row.saturation_ratio if by_usage else row.used
    return Explained(
        figure=figure,
        label="Quota usage" if by_usage else "Used",
        meaning="What the quota counts as used ÷ its limit; pending pods are counted.",
        anchor="quota-burn",
        value=value,
        unit=Unit.RATIO if by_usage else Unit.COUNT,
        formula="used / hard" if by_usage else "used",
        inputs=(used, Input("hard", "limit", row.hard, Unit.COUNT)) if by_usage else (used,),
        columns=(
            RowColumn("part", "Part"),
            RowColumn("units", f"Units of {row.unit}", Unit.COUNT),
        ),
        rows=[
            {"part": "Allocated", "units": row.held},
            {"part": "Pending, counted", "units": row.pending},
            {"part": "Blocked at admission, not counted", "units": row.suppressed},
            {"part": "Limit", "units": row.hard},
        ],
        origin=f"{row.source} {row.name}, key `{row.key}`, of {row.cluster}.",
        nothing="" if value is not None else row.finding or "What is used is not known.",
    )


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
    return None if row is None else _budget(figure, row)


def _budget(figure: str, row: BudgetRow) -> Explained:
    of = _BUDGET[figure]
    used = Input("used", "used", row.used, figure="budget_used")
    inputs: Sequence[Input] = (
        used,
        Input("budget", "budget", row.allowance),
        Input(
            "period", "hours of the period", _hours(row.period_start, row.period_end), Unit.HOURS
        ),
    )
    value: float | None = row.used
    if figure == "budget_burn":
        inputs = (*inputs, Input("known", "hours with data", row.known_hours, Unit.HOURS))
        value = row.burn_rate
    elif figure == "budget_hours_left":
        inputs = (*inputs, Input("rate", "burn rate of 7 days", row.burn_rate_7d, Unit.RATIO))
        value = _hours(row.as_of, row.exhausted_at)
    points = [(point.at, point.used) for point in row.points]
    before = [0.0, *(amount for _, amount in points)]
    return Explained(
        figure=figure,
        label=of.label,
        meaning=of.meaning,
        anchor="quota-burn",
        value=value,
        unit=of.unit,
        formula=of.formula,
        inputs=(used,) if figure == "budget_used" else inputs,
        columns=(
            RowColumn("until", "Until", Unit.TIME),
            RowColumn("gpu_hours", "Used", Unit.GPU_HOURS),
            RowColumn("since_start", "Used since the start", Unit.GPU_HOURS),
        ),
        rows=[
            {"until": at, "gpu_hours": amount - earlier, "since_start": amount}
            for (at, amount), earlier in zip(points, before, strict=False)
        ],
        grades=_known(row),
        grade_unit=Unit.HOURS,
        origin="Allocated GPU-hours of all clusters.",
        sources=("holding",),
        nothing="" if value is not None else "It is not known, or not before the period's end.",
    )


def _hours(start: datetime | None, end: datetime | None) -> float | None:
    """Return the hours between two times; local ones would leave out the change of clocks."""
    if start is None or end is None:
        return None
    return (end.astimezone(UTC) - start.astimezone(UTC)) / _HOUR


def _known(row: BudgetRow) -> dict[str, float]:
    elapsed = _hours(row.period_start, row.as_of)
    if row.known_hours is None or elapsed is None:
        return {}
    return {"with data": row.known_hours, "no data": max(0.0, elapsed - row.known_hours)}
