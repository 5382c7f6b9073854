"""How much teams used lately of all tiers against their share (docs/definitions.md#fairness)."""

from collections import defaultdict
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
from django.db.models import Q, Sum

from apps.clusters.domain.calendar import day_of, day_start, day_window, days_in
from apps.clusters.domain.window import Window
from apps.clusters.selectors import report
from apps.fairness.domain.usage_factor import decayed, usage_factors
from apps.fairness.models import FairDate
from apps.quotas.models import Entitlement
from apps.usage.models import TeamDay, TeamHour

_REMEMBERED = timedelta(days=70)
"""Ten half-lives: what is older counts for less than a thousandth."""
_INSTANT = timedelta(seconds=1)
_Held = dict[int, dict[date, int]]


def usage_factor_of_teams(at: datetime, *, now: datetime) -> dict[int, float]:
    """Return team id → usage factor at `at`, 0..1, of who used or is entitled to anything.

    What is known up to then counts, by local days, each from its end. Empty where nobody is
    entitled to anything. At most four queries.
    """
    zone = report().zone
    entitled = _entitled(at)
    held = _held(at, now, zone)
    teams = sorted({*entitled, *held})
    days = sorted({day for of_team in held.values() for day in of_team})
    used = np.zeros((len(days), len(teams)))
    place = {day: number for number, day in enumerate(days)}
    for column, team in enumerate(teams):
        for day, amount in held.get(team, {}).items():
            used[place[day], column] = amount
    ages = [max(0.0, (at - day_window(day, zone).end).total_seconds()) for day in days]
    factors = usage_factors(
        decayed(used, np.array(ages)), np.array([entitled.get(team, 0.0) for team in teams])
    )
    return {} if factors is None else dict(zip(teams, factors.tolist(), strict=True))


def _entitled(at: datetime) -> dict[int, float]:
    holds = Q(valid_to__isnull=True) | Q(valid_to__gte=at)
    rows = Entitlement.objects.filter(holds, valid_from__lt=at).order_by().values_list("team_id")
    return dict(rows.annotate(Sum("gpus")))


def _held(at: datetime, now: datetime, zone: ZoneInfo) -> _Held:
    """Return nano-GPU-hours of all tiers by team and day."""
    found: _Held = defaultdict(dict)
    last = day_of(at - _INSTANT, zone)
    first = day_of(at - _REMEMBERED, zone)
    rolled = FairDate.objects.filter(rolled=True, day__gte=first, end__lte=at).order_by("day")
    done = set()
    for day, of_day in rolled.values_list("day", "held"):
        done.add(day)
        for team, amount in of_day.items():
            found[int(team)][day] = amount
    days = [day for day in days_in(Window(at - _REMEMBERED, at), zone) if day not in done]
    # A day that has not ended by then is read by the hour, unless it has not ended at all.
    parted = last in days and day_window(last, zone).end > at and last != day_of(now, zone)
    whole = days[:-1] if parted else days
    facts = TeamDay.objects.filter(day__in=whole).order_by().values_list("day", "team_id")
    for day, team, amount in facts.annotate(Sum("allocated")):
        found[team][day] = int(amount)
    if parted:
        hours = TeamHour.objects.filter(hour__gte=day_start(last, zone), hour__lt=at)
        for team, amount in hours.order_by().values_list("team_id").annotate(Sum("allocated")):
            found[team][last] = int(amount)
    return found
