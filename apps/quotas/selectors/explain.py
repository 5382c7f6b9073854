"""Explain quotas, queues and budgets."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window
from apps.quotas.domain.keys import QuotaRef, QuotaSource
from apps.quotas.selectors.budgets import budget_rows
from apps.quotas.selectors.current_quotas import quota_detail
from apps.quotas.selectors.history import quota_hours, trend_hours
from apps.quotas.selectors.rows import BurnRow, QuotaDetail, QuotaRow, QuotaUnits
from apps.quotas.selectors.team_quotas import quota_shares
from apps.usage.domain.explained import Explained, FigureInput, FigureUnit, Number, RowColumn

CEILING, BORROWED = "quota_ceiling", "quota_borrowed"
_LABELS: Mapping[str, tuple[str, str]] = {
    CEILING: (
        "Max with borrowing",
        "Nominal quota and what the cohort lends, at most the borrowing limit above it.",
    ),
    BORROWED: ("Borrowed", "The part of used above the nominal quota."),
}
QUEUES = tuple(_LABELS)
_POOL, _LIMITED = "kept + sum(units)", "min(kept + sum(units), hard + borrowing_limit)"
_ABOVE = "max(0, used - hard)"
_HOUR = timedelta(hours=1)
_PACE = "Mean use of an hour in the last {} ÷ budget of an hour; 1 is linear pace."
_OF_DAYS = "(spent / hours) / (budget / period)"
_RECENT = {"budget_burn_1d": "the last day", "budget_burn_7d": "the last 7 days"}
_LEFT = "quota_hours_left"
_RATIOS = ("quota_usage", "quota_used")
_AT_LIMIT = "max(0, hard - used)"
_ALONG_THE_TREND = (
    "(hard - used) * (hours * squares(x) - sum(x) ** 2) / (hours * dot(x, y) - sum(x) * sum(y))"
)
_MEAN, _ALONGSIDE = "mean", "max(0, used - allocated)"
_HOURS: Mapping[str, tuple[str, str, str]] = {
    "unused_quota_hours": (
        "Unused quota-hours",
        "In each hour max(0, limit − used).",
        "sum(unused)",
    ),
    "unused_quota_ratio": ("Unused quota", "Unused ÷ limit.", "sum(unused) / sum(hard)"),
    "quota_limit_hours": ("Limit", "Limit × time.", "sum(hard)"),
    "quota_used_hours": ("Used", "What the quota counts as used × time.", "sum(used)"),
}
_TEAM_SUMS: Mapping[str, tuple[str, str, str]] = {
    "team_quota_usage": ("Quota usage", "saturation_ratio", "sum(used) / sum(hard)"),
    "team_quota_limit": ("Limit", "hard", "sum(hard)"),
    "team_quota_used": ("Used", "used", "sum(used)"),
    "team_quota_allocated": ("Allocated", "held", "sum(held)"),
    "team_quota_blocked": ("Blocked", "suppressed", "sum(suppressed)"),
}
TEAM_QUOTAS = tuple(_TEAM_SUMS)


def explain_queue(figure: str, found: QuotaDetail) -> Explained:
    """Explain one of QUEUES; not known of what is no queue, or has no limit."""
    row = found.row
    label, meaning = _LABELS[figure]
    value = row.ceiling if figure == CEILING else row.borrowed
    rows: Sequence[QuotaUnits] = found.lent if figure == CEILING else ()
    formula = _ceiling_formula(row) if figure == CEILING else _borrowed_formula(row)
    return Explained(
        figure=figure,
        label=label,
        meaning=meaning,
        anchor="quota-burn",
        value=value,
        unit=FigureUnit.COUNT,
        formula=formula,
        # Only those that the formula names: a reader works it out from these.
        inputs=[one for one in _queue_inputs(row, found.lent) if one.name in formula],
        columns=(
            RowColumn("name", "Queue or cohort"),
            RowColumn("units", f"Lends, units of {row.unit}", FigureUnit.COUNT),
        ),
        rows=[{"name": one.name, "units": one.units} for one in rows],
        origin=f"{row.source} {row.name}, key `{row.key}`, of {row.cluster}.",
        nothing="" if value is not None else "Only queues with a limit have it.",
    )


def _ceiling_formula(row: QuotaRow) -> str:
    if row.source != QuotaSource.CLUSTER_QUEUE:
        return "capability"
    if not row.cohort:
        return "hard"
    return _POOL if row.borrowing_limit is None else _LIMITED


def _borrowed_formula(row: QuotaRow) -> str:
    """Return the formula; the status may be older than the quota, and then says another amount."""
    known = row.used is not None and row.borrowed == max(0.0, row.used - row.hard)
    return _ABOVE if known else "borrowed"


def _queue_inputs(row: QuotaRow, lent: Sequence[QuotaUnits]) -> list[FigureInput]:
    own = sum(one.units for one in lent if one.name == row.name)
    return [
        # What the queue itself lends is among the units of the pool: as a part of `hard` it counts
        # twice.
        FigureInput("kept", "nominal quota, not lent", row.hard - own, FigureUnit.COUNT),
        FigureInput("borrowing_limit", "borrowing limit", row.borrowing_limit, FigureUnit.COUNT),
        FigureInput("hard", "nominal quota", row.hard, FigureUnit.COUNT),
        FigureInput("used", "used", row.used, FigureUnit.COUNT, "quota_used"),
        FigureInput("capability", "capability", row.ceiling, FigureUnit.COUNT),
        FigureInput("borrowed", "borrowed, as the status says", row.borrowed, FigureUnit.COUNT),
    ]


class _BudgetFigure(Struct, frozen=True):
    label: str
    meaning: str
    unit: FigureUnit
    formula: str


_BUDGET: Mapping[str, _BudgetFigure] = {
    "budget_used": _BudgetFigure(
        "Budget used", "Allocated since the period's start.", FigureUnit.GPU_HOURS, "used"
    ),
    "budget_share": _BudgetFigure(
        "Share used", "Used ÷ budget.", FigureUnit.RATIO, "used / budget"
    ),
    "budget_burn": _BudgetFigure(
        "Burn rate",
        "Share of the budget used ÷ share of the period with data; 1 is linear pace.",
        FigureUnit.COUNT,
        "(used / budget) / (known / period)",
    ),
    "budget_burn_1d": _BudgetFigure(
        "Burn rate, 1 day", _PACE.format("day"), FigureUnit.COUNT, _OF_DAYS
    ),
    "budget_burn_7d": _BudgetFigure(
        "Burn rate, 7 days", _PACE.format("7 days"), FigureUnit.COUNT, _OF_DAYS
    ),
    "budget_hours_left": _BudgetFigure(
        "Hours left",
        "Until the budget is used at the mean of the last 7 days.",
        FigureUnit.HOURS,
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
    # Points are running sums: each row shows what it adds to the one before.
    before = [0.0, *(amount for _, amount in points)]
    return replace(
        explain_burn(figure, row),
        columns=(
            RowColumn("until", "Until", FigureUnit.TIME),
            RowColumn("gpu_hours", "Used", FigureUnit.GPU_HOURS),
            RowColumn("since_start", "Used since the start", FigureUnit.GPU_HOURS),
        ),
        rows=[
            {"until": at, "gpu_hours": amount - earlier, "since_start": amount}
            for (at, amount), earlier in zip(points, before, strict=False)
        ],
        origin="Allocated GPU-hours of all clusters.",
    )


def explain_burn(figure: str, row: BurnRow, *, currency: str = "") -> Explained:
    """Explain one of BUDGETS of a budget in GPU-hours, or in a currency; without its rows."""
    of, unit = _BUDGET[figure], FigureUnit.MONEY if currency else FigureUnit.GPU_HOURS
    value, formula = _budget_value(figure, row), of.formula
    if figure == "budget_hours_left" and row.used >= row.allowance:
        # By the pace it would come to hours before now.
        formula = "max(0, budget - used)"
    return Explained(
        figure=figure,
        label=of.label,
        meaning=of.meaning,
        anchor="quota-burn",
        value=value,
        unit=unit if of.unit is FigureUnit.GPU_HOURS else of.unit,
        currency=currency,
        formula=formula,
        inputs=_budget_inputs(figure, row, unit),
        grades=_known_hours(row),
        grade_unit=FigureUnit.HOURS,
        sources=("holding",),
        nothing="" if value is not None else "It is not known, or not before the period's end.",
    )


def _budget_value(figure: str, row: BurnRow) -> Number | None:
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


def _budget_inputs(figure: str, row: BurnRow, unit: FigureUnit) -> list[FigureInput]:
    """Return the numbers that the formula of a figure has, and no others."""
    used = FigureInput("used", "used", row.used, unit, figure="budget_used")
    if figure == "budget_used":
        return [used]
    budget = FigureInput("budget", "budget", row.allowance, unit)
    if figure == "budget_share":
        return [used, budget]
    length = hours_between(row.period_start, row.period_end)
    period = FigureInput("period", "hours of the period", length, FigureUnit.HOURS)
    if figure in _RECENT:
        spent = row.last_day if figure == "budget_burn_1d" else row.last_week
        return [
            FigureInput("spent", f"used in {_RECENT[figure]}", spent.amount, unit),
            FigureInput("hours", f"hours of {_RECENT[figure]}", spent.hours, FigureUnit.HOURS),
            *(budget, period),
        ]
    if figure == "budget_burn":
        known = FigureInput("known", "hours with data", row.known_hours, FigureUnit.HOURS)
        return [used, budget, period, known]
    rate = FigureInput(
        "rate", "burn rate of 7 days", row.burn_rate_7d, FigureUnit.RATIO, "budget_burn_7d"
    )
    return [used, budget, period, rate]


def hours_between(start: datetime | None, end: datetime | None) -> float | None:
    """Return the hours between two times; local ones would leave out the change of clocks."""
    if start is None or end is None:
        return None
    return (end.astimezone(UTC) - start.astimezone(UTC)) / _HOUR


def _known_hours(row: BurnRow) -> dict[str, float]:
    elapsed = hours_between(row.period_start, row.as_of)
    if row.known_hours is None or elapsed is None:
        return {}
    return {"with data": row.known_hours, "no data": max(0.0, elapsed - row.known_hours)}


class _QuotaAmount(Struct, frozen=True):
    """An amount of a key: a field of QuotaRow, and the parts of QuotaDetail that it sums."""

    label: str
    meaning: str
    field: str
    parts: str
    formula: str


_AMOUNTS: Mapping[str, _QuotaAmount] = {
    "quota_allocated": _QuotaAmount(
        "Allocated",
        "Units of bound pods and allocated claims, at most what the quota counts as used.",
        *("held", "allocated", "max(0, min(used, sum(units)))"),
    ),
    "quota_pending": _QuotaAmount(
        "Pending, counted",
        "Units that the quota counts and that are not bound.",
        *("pending", "pending", "max(0, min(used - allocated, sum(units)))"),
    ),
    "quota_blocked": _QuotaAmount(
        "Blocked",
        "Units that the quota refused before a pod existed, or that pend in the queue.",
        *("suppressed", "blocked", "sum(units)"),
    ),
    "quota_headroom": _QuotaAmount(
        "Headroom",
        "The least that any quota of the namespace leaves: limit − used.",
        *("headroom", "left", "min(units)"),
    ),
}
QUOTAS = (*_RATIOS, _LEFT, *_AMOUNTS, *_HOURS, *QUEUES)


def explain_quota(
    figure: str,
    window: Window,
    at: datetime,
    *,
    ref: QuotaRef,
    visibility: Visibility,
    team: str = "",
) -> Explained | None:
    """Explain a figure of one quota key.

    Most are of `at`, quota-hours of the window, and of one team where it is named. None for other
    figures, for a key that is not there, and for one that the reader does not see. Queries as
    those of `quota_detail`.
    """
    if figure not in QUOTAS:
        return None
    if figure in _HOURS:
        hours = quota_hours(window, ref, team=team, visibility=visibility)
        return _explain_quota_hours(figure, ref, hours) if hours else None
    found = quota_detail(at, ref, visibility=visibility)
    if found is None:
        return None
    if figure == _LEFT:
        return _explain_hours_left(found.row, trend_hours(at, ref), at)
    if figure in _AMOUNTS:
        return _explain_amount(figure, found)
    if figure in QUEUES:
        return explain_queue(figure, found)
    return _explain_usage(figure, found.row)


def explain_team_quota(
    figure: str, at: datetime, *, team: str, resource: str, unit: str, visibility: Visibility
) -> Explained | None:
    """Explain one of TEAM_QUOTAS: a sum of a team's ResourceQuotas on one resource.

    None for other figures and where there is no such sum. The rows are for who sees the team,
    others see one. Queries as those of `quota_shares`.
    """
    if figure not in _TEAM_SUMS:
        return None
    found = quota_shares(at, team=team, resource=resource, unit=unit, visibility=visibility)
    if found is None:
        return None
    total, shares = found
    label, field, formula = _TEAM_SUMS[figure]
    amounts = ("hard", "used", "held", "suppressed")
    names = ("cluster", "namespace", "name", "key")
    rows = [{name: getattr(one, name) for name in (*names, *amounts)} for one in shares]
    together = {"name": "all quotas", **{name: getattr(total, name) for name in amounts}}
    value = getattr(total, field)
    return Explained(
        figure=figure,
        label=label,
        meaning=f"ResourceQuotas of {team} on {resource}, the least of each namespace.",
        anchor="quota-burn",
        value=value,
        unit=FigureUnit.RATIO if field == "saturation_ratio" else FigureUnit.COUNT,
        formula=formula,
        columns=(
            *(RowColumn(name, name.capitalize()) for name in names),
            RowColumn("hard", "Limit", FigureUnit.COUNT),
            RowColumn("used", "Used", FigureUnit.COUNT),
            RowColumn("held", "Allocated", FigureUnit.COUNT),
            RowColumn("suppressed", "Blocked", FigureUnit.COUNT),
        ),
        # Who does not see the team gets one row, of the sum: the formula comes out all the same.
        rows=rows or [together],
        origin="" if shares else "Quotas of other teams are shown as their sum.",
        nothing="" if value is not None else "The amount of one of these quotas is not known.",
    )


def _explain_amount(figure: str, found: QuotaDetail) -> Explained:
    of, row = _AMOUNTS[figure], found.row
    value, formula = getattr(row, of.field), of.formula
    parts: Sequence[QuotaUnits] = getattr(found, of.parts)
    if found.is_mean:
        formula, parts = _MEAN, ()
    elif row.used is None:
        # The quota does not say what is used, so nothing caps the sum of its pods.
        formula = "sum(units)"
    elif of.field == "pending" and (found.claims or not row.namespace):
        # Claims without a device, and work of a queue, are no pods: what is left over is theirs.
        formula = _ALONGSIDE
    given = (
        FigureInput("used", "used", row.used, FigureUnit.COUNT, "quota_used"),
        FigureInput("allocated", "allocated", row.held, FigureUnit.COUNT, "quota_allocated"),
        FigureInput(_MEAN, f"{of.label.lower()}, mean of the hour", value, FigureUnit.COUNT),
    )
    return Explained(
        figure=figure,
        label=of.label,
        meaning=of.meaning,
        anchor="quota-burn",
        value=value,
        unit=FigureUnit.COUNT,
        formula=formula,
        inputs=[one for one in given if one.name in formula],
        columns=(
            RowColumn("name", "Quota" if of.parts == "left" else "Pod"),
            RowColumn("units", f"Units of {row.unit}", FigureUnit.COUNT),
            RowColumn("since", "Since", FigureUnit.TIME),
        ),
        rows=[{"name": one.name, "units": one.units, "since": one.since} for one in parts],
        origin=_key_origin(row),
        nothing="" if value is not None else row.finding or "The amount is not known.",
    )


def _explain_quota_hours(
    figure: str, key: QuotaRef, hours: Sequence[tuple[datetime, str, float, float]]
) -> Explained:
    label, meaning, formula = _HOURS[figure]
    rows: list[dict[str, Any]] = [
        {"hour": hour, "team": team, "hard": hard, "used": used, "unused": max(0.0, hard - used)}
        for hour, team, hard, used in hours
    ]
    sums: dict[str, float] = {
        name: sum(row[name] for row in rows) for name in ("hard", "used", "unused")
    }
    values: Mapping[str, Number | None] = {
        "unused_quota_hours": sums["unused"],
        "unused_quota_ratio": sums["unused"] / sums["hard"] if sums["hard"] > 0 else None,
        "quota_limit_hours": sums["hard"],
        "quota_used_hours": sums["used"],
    }
    value = values[figure]
    return Explained(
        figure=figure,
        label=label,
        meaning=meaning,
        anchor="quota-burn",
        value=value,
        unit=FigureUnit.RATIO if figure == "unused_quota_ratio" else FigureUnit.COUNT,
        formula=formula,
        columns=(
            RowColumn("hour", "Hour", FigureUnit.TIME),
            RowColumn("team", "Team"),
            RowColumn("hard", "Limit × time", FigureUnit.COUNT),
            RowColumn("used", "Used × time", FigureUnit.COUNT),
            RowColumn("unused", "Unused", FigureUnit.COUNT),
        ),
        rows=rows,
        origin=f"Hours in which the use of {key.source} {key.name}, key `{key.key}`, is known.",
        nothing="" if value is not None else "The limit was 0.",
    )


def _explain_hours_left(
    row: QuotaRow, hours: Sequence[tuple[datetime, float, float]], at: datetime
) -> Explained:
    # From where the trend began: of late amounts that is when they were true.
    late = row.as_of if row.stale or row.from_series else None
    value = hours_between(late or at, row.exhausted_at)
    return Explained(
        figure=_LEFT,
        label="Hours left",
        meaning="Until used reaches the limit along the line of least squares of 7 days.",
        anchor="quota-burn",
        value=value,
        unit=FigureUnit.HOURS,
        formula=_AT_LIMIT if value == 0 else _ALONG_THE_TREND,
        inputs=(
            FigureInput("used", "used", row.used, FigureUnit.COUNT, "quota_used"),
            FigureInput("hard", "limit", row.hard, FigureUnit.COUNT),
            *(() if value == 0 else (FigureInput("hours", "hours", len(hours), FigureUnit.COUNT),)),
        ),
        columns=(
            RowColumn("hour", "Hour", FigureUnit.TIME),
            RowColumn("x", "Hours from now", FigureUnit.HOURS),
            RowColumn("y", "Used, mean", FigureUnit.GPUS),
        ),
        rows=[{"hour": hour, "x": x, "y": y} for hour, x, y in hours],
        origin=_key_origin(row),
        nothing="" if value is not None else "Use does not grow to the limit within 30 days.",
    )


def _explain_usage(figure: str, row: QuotaRow) -> Explained:
    used = FigureInput("used", "used", row.used, FigureUnit.COUNT)
    by_usage = figure == "quota_usage"
    value = row.saturation_ratio if by_usage else row.used
    return Explained(
        figure=figure,
        label="Quota usage" if by_usage else "Used",
        meaning="What the quota counts as used ÷ its limit; pending pods are counted.",
        anchor="quota-burn",
        value=value,
        unit=FigureUnit.RATIO if by_usage else FigureUnit.COUNT,
        formula="used / hard" if by_usage else "used",
        inputs=(used, FigureInput("hard", "limit", row.hard, FigureUnit.COUNT))
        if by_usage
        else (used,),
        columns=(
            RowColumn("part", "Part"),
            RowColumn("units", f"Units of {row.unit}", FigureUnit.COUNT),
        ),
        rows=[
            {"part": "Allocated", "units": row.held},
            {"part": "Pending, counted", "units": row.pending},
            {"part": "Blocked, not counted", "units": row.suppressed},
            {"part": "Limit", "units": row.hard},
        ],
        origin=_key_origin(row),
        nothing="" if value is not None else row.finding or "What is used is not known.",
    )


def _key_origin(row: QuotaRow) -> str:
    return f"{row.source} {row.name}, key `{row.key}`, of {row.cluster}."
