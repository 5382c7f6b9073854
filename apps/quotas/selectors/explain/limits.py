"""How the figures of quota keys come about, and the sums of teams."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window
from apps.quotas.domain.keys import QuotaRef
from apps.quotas.selectors.explain.budgets import hours_between
from apps.quotas.selectors.explain.queues import QUEUES, explain_queue
from apps.quotas.selectors.history import quota_hours
from apps.quotas.selectors.now import quota_detail, quota_shares
from apps.quotas.selectors.rows import QuotaDetail, QuotaRow, QuotaUnits
from apps.quotas.selectors.trends import trend_hours
from apps.usage.domain.explained import Explained, Input, Number, RowColumn, Unit

_LEFT = "quota_hours_left"
_RATIOS = ("quota_usage", "quota_used")
_AT_LIMIT = "max(0, hard - used)"
_ALONG_THE_TREND = (
    "(hard - used) * (hours * squares(x) - sum(x) ** 2) / (hours * dot(x, y) - sum(x) * sum(y))"
)
_MEAN, _BESIDE = "mean", "max(0, used - allocated)"


@dataclass(frozen=True, slots=True)
class _Amount:
    """An amount of a key: a field of QuotaRow, and the parts of QuotaDetail that it sums."""

    label: str
    meaning: str
    field: str
    parts: str
    formula: str


_AMOUNTS: Mapping[str, _Amount] = {
    "quota_allocated": _Amount(
        "Allocated",
        "Units of bound pods and allocated claims, at most what the quota counts as used.",
        *("held", "allocated", "max(0, min(used, sum(units)))"),
    ),
    "quota_pending": _Amount(
        "Pending, counted",
        "Units that the quota counts and that are not bound.",
        *("pending", "pending", "max(0, min(used - allocated, sum(units)))"),
    ),
    "quota_blocked": _Amount(
        "Blocked at admission",
        "Units that were refused before a pod existed, or pend in the queue.",
        *("suppressed", "blocked", "sum(units)"),
    ),
    "quota_headroom": _Amount(
        "Headroom",
        "The least that any quota of the namespace leaves: limit − used.",
        *("headroom", "left", "min(units)"),
    ),
}
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
_SUMS: Mapping[str, tuple[str, str, str]] = {
    "team_quota_usage": ("Quota usage", "saturation_ratio", "sum(used) / sum(hard)"),
    "team_quota_limit": ("Limit", "hard", "sum(hard)"),
    "team_quota_used": ("Used", "used", "sum(used)"),
    "team_quota_allocated": ("Allocated", "held", "sum(held)"),
    "team_quota_blocked": ("Blocked at admission", "suppressed", "sum(suppressed)"),
}
QUOTAS = (*_RATIOS, _LEFT, *_AMOUNTS, *_HOURS, *QUEUES)
TEAM_QUOTAS = tuple(_SUMS)


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
        return _quota_hours(figure, ref, hours) if hours else None
    found = quota_detail(at, ref, visibility=visibility)
    if found is None:
        return None
    if figure == _LEFT:
        return _hours_left(found.row, trend_hours(at, ref), at)
    if figure in _AMOUNTS:
        return _amount(figure, found)
    if figure in QUEUES:
        return explain_queue(figure, found)
    return _usage(figure, found.row)


def explain_team_quota(
    figure: str, at: datetime, *, team: str, resource: str, unit: str, visibility: Visibility
) -> Explained | None:
    """Explain one of TEAM_QUOTAS: a sum of a team's ResourceQuotas on one resource.

    None for other figures and where there is no such sum. The rows are for who sees the team,
    others see one. Queries as those of `quota_shares`.
    """
    if figure not in _SUMS:
        return None
    found = quota_shares(at, team=team, resource=resource, unit=unit, visibility=visibility)
    if found is None:
        return None
    total, shares = found
    label, field, formula = _SUMS[figure]
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
        unit=Unit.RATIO if field == "saturation_ratio" else Unit.COUNT,
        formula=formula,
        columns=(
            *(RowColumn(name, name.capitalize()) for name in names),
            RowColumn("hard", "Limit", Unit.COUNT),
            RowColumn("used", "Used", Unit.COUNT),
            RowColumn("held", "Allocated", Unit.COUNT),
            RowColumn("suppressed", "Blocked at admission", Unit.COUNT),
        ),
        rows=rows or [together],
        origin="" if shares else "Quotas of other teams are shown as their sum.",
        nothing="" if value is not None else "The amount of one of these quotas is not known.",
    )


def _amount(figure: str, found: QuotaDetail) -> Explained:
    of, row = _AMOUNTS[figure], found.row
    value, formula = getattr(row, of.field), of.formula
    parts: Sequence[QuotaUnits] = getattr(found, of.parts)
    if found.is_mean:
        formula, parts = _MEAN, ()
    elif row.used is None:
        formula = "sum(units)"
    elif of.field == "pending" and (found.claims or not row.namespace):
        formula = _BESIDE
    given = (
        Input("used", "used", row.used, Unit.COUNT, "quota_used"),
        Input("allocated", "allocated", row.held, Unit.COUNT, "quota_allocated"),
        Input(_MEAN, f"{of.label.lower()}, mean of the hour", value, Unit.COUNT),
    )
    return Explained(
        figure=figure,
        label=of.label,
        meaning=of.meaning,
        anchor="quota-burn",
        value=value,
        unit=Unit.COUNT,
        formula=formula,
        inputs=[one for one in given if one.name in formula],
        columns=(
            RowColumn("name", "Quota" if of.parts == "left" else "Pod"),
            RowColumn("units", f"Units of {row.unit}", Unit.COUNT),
            RowColumn("since", "Since", Unit.TIME),
        ),
        rows=[{"name": one.name, "units": one.units, "since": one.since} for one in parts],
        origin=_origin(row),
        nothing="" if value is not None else row.finding or "The amount is not known.",
    )


def _quota_hours(
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
        unit=Unit.RATIO if figure == "unused_quota_ratio" else Unit.COUNT,
        formula=formula,
        columns=(
            RowColumn("hour", "Hour", Unit.TIME),
            RowColumn("team", "Team"),
            RowColumn("hard", "Limit × time", Unit.COUNT),
            RowColumn("used", "Used × time", Unit.COUNT),
            RowColumn("unused", "Unused", Unit.COUNT),
        ),
        rows=rows,
        origin=f"Hours in which the use of {key.source} {key.name}, key `{key.key}`, is known.",
        nothing="" if value is not None else "The limit was 0.",
    )


def _hours_left(
    row: QuotaRow, hours: Sequence[tuple[datetime, float, float]], at: datetime
) -> Explained:
    late = row.as_of if row.stale or row.from_series else None
    value = hours_between(late or at, row.exhausted_at)
    return Explained(
        figure=_LEFT,
        label="Hours left",
        meaning="Until used reaches the limit along the line of least squares of 7 days.",
        anchor="quota-burn",
        value=value,
        unit=Unit.HOURS,
        formula=_AT_LIMIT if value == 0 else _ALONG_THE_TREND,
        inputs=(
            Input("used", "used", row.used, Unit.COUNT, "quota_used"),
            Input("hard", "limit", row.hard, Unit.COUNT),
            *(() if value == 0 else (Input("hours", "hours", len(hours), Unit.COUNT),)),
        ),
        columns=(
            RowColumn("hour", "Hour", Unit.TIME),
            RowColumn("x", "Hours from now", Unit.HOURS),
            RowColumn("y", "Used, mean", Unit.GPUS),
        ),
        rows=[{"hour": hour, "x": x, "y": y} for hour, x, y in hours],
        origin=_origin(row),
        nothing="" if value is not None else "Use does not grow to the limit within 30 days.",
    )


def _usage(figure: str, row: QuotaRow) -> Explained:
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
        origin=_origin(row),
        nothing="" if value is not None else row.finding or "What is used is not known.",
    )


def _origin(row: QuotaRow) -> str:
    return f"{row.source} {row.name}, key `{row.key}`, of {row.cluster}."
