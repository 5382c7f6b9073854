"""The indices of a tier day by day."""

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import Count, F, FloatField, Q, QuerySet, Sum
from django.db.models.functions import Cast

from apps.clusters.domain.calendar import day_of
from apps.clusters.selectors import report
from apps.fairness.domain.hour_state import HourState
from apps.fairness.models import (
    TeamFairnessDay,
    TeamFairnessHour,
    TierFairnessDay,
    TierFairnessHour,
)
from apps.fairness.selectors.measures.sums import Parts, TeamSums, TierSums
from apps.fairness.selectors.rows import TierDayIndex
from apps.fairness.selectors.tiers import jain_of
from apps.usage.domain.amounts import hours

_ASKED = Q(demand__gt=0, fair_share__gt=1)
_ENTITLED = Q(entitlement__gt=0)


@dataclass(slots=True)
class _Day:
    sums: TierSums = field(default_factory=TierSums)
    allocated: int = 0
    denied: int = 0
    jain: tuple[float | None, float | None] = (None, None)


def days_of(parts: Parts, tier: int) -> list[TierDayIndex]:
    """Return a tier day by day, oldest first; days of which nothing is known are left out.

    Five queries, at most.
    """
    days: dict[date, _Day] = defaultdict(_Day)
    _add_days(days, parts, tier)
    _add_hours(days, parts, tier, report().zone)
    return [_row(day, days[day]) for day in sorted(days)]


def _row(day: date, own: _Day) -> TierDayIndex:
    index, ratio = own.jain
    return TierDayIndex(
        day=day,
        hours=own.sums.hours(),
        capacity_gpu_hours=hours(own.sums.capacity),
        allocated_gpu_hours=hours(own.allocated),
        denied_gpu_hours=hours(own.denied),
        borrowable_gpu_hours=hours(own.sums.borrowable),
        jain_index=index,
        jain_allocation_ratio=ratio,
    )


def _add_days(days: dict[date, _Day], parts: Parts, tier: int) -> None:
    """Add rolled days; the database adds up the ratios, for a tier may have a thousand teams."""
    if parts.days is None:
        return
    for row in TierFairnessDay.objects.filter(parts.days, tier=tier).order_by("day"):
        days[row.day].sums = TierSums(
            capacity=row.capacity,
            borrowable=row.borrowable,
            known=row.hours,
            missing=row.hours_missing,
            partial=row.hours_partial,
            watched=row.hours_watched,
        )
    rows: QuerySet[Any] = TeamFairnessDay.objects.filter(parts.days, tier=tier).order_by()
    for day, allocated, denied, *terms in rows.values_list("day").annotate(
        Sum("allocated"),
        Sum("denied"),
        **_jain_terms("fair_share", "a", _ASKED),
        **_jain_terms("entitlement", "b", _ENTITLED),
    ):
        own = days[day]
        own.allocated, own.denied = int(allocated), int(denied)
        own.jain = _jain(*terms[:3]), _jain(*terms[3:])


def _jain_terms(below: str, name: str, where: Q) -> dict[str, Any]:
    """Return what Jain's index over allocated ÷ `below` is made of: n, Σ x, Σ x²."""
    ratio = Cast("allocated", FloatField()) / Cast(F(below), FloatField())
    return {
        f"{name}_count": Count("pk", filter=where),
        f"{name}_sum": Sum(ratio, filter=where),
        f"{name}_squares": Sum(ratio * ratio, filter=where),
    }


def _jain(count: int, total: float | None, squares: float | None) -> float | None:
    return total * total / (count * squares) if total and squares else None


def _add_hours(days: dict[date, _Day], parts: Parts, tier: int, zone: ZoneInfo) -> None:
    if parts.hours is None:
        return
    for row in TierFairnessHour.objects.filter(parts.hours, tier=tier).order_by("hour"):
        sums = days[day_of(row.hour, zone)].sums
        missing = row.state == HourState.MISSING.value
        sums.capacity += row.capacity
        sums.borrowable += row.borrowable
        sums.known += not missing
        sums.missing += missing
        sums.partial += row.state == HourState.PARTIAL.value
        sums.watched += row.watched and not missing
    teams: dict[date, dict[int, TeamSums]] = defaultdict(lambda: defaultdict(TeamSums))
    columns = ("hour", "team_id", "allocated", "denied", "entitlement", "demand", "fair_share")
    known: dict[datetime, date] = {}
    rows = TeamFairnessHour.objects.filter(parts.hours, tier=tier).order_by()
    for hour, team, *amounts in rows.values_list(*columns):
        day = known.get(hour) or known.setdefault(hour, day_of(hour, zone))
        own = teams[day][team]
        for name, amount in zip(columns[2:], amounts, strict=True):
            setattr(own, name, getattr(own, name) + amount)
    for day, of_day in teams.items():
        days[day].allocated = sum(own.allocated for own in of_day.values())
        days[day].denied = sum(own.denied for own in of_day.values())
        days[day].jain = jain_of(of_day)
