"""Recent use of all tiers by team, against the team's share (docs/definitions.md#fairness)."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
from django.db.models import Count, Q, Sum
from msgspec import Struct

from apps.clusters.domain.window import Window, day_of, day_start, day_window, days_in
from apps.clusters.models import Cluster
from apps.clusters.selectors import report
from apps.fairness.domain.shares import decayed, usage_factors
from apps.fairness.models import FairnessDay
from apps.quotas.models import Entitlement
from apps.usage.domain.amounts import NANO
from apps.usage.models import HAS_FACTS, CollectionWindow, TeamDay, TeamHour

_USAGE_SPAN = timedelta(days=70)
"""Ten half-lives: what is older counts for less than a thousandth."""
_INSTANT = timedelta(seconds=1)
_HOUR = timedelta(hours=1)
_Held = dict[int, dict[date, int]]


class UsageFactors(Struct, frozen=True):
    """Team id → fair-share factor, 0..1, and the known share of the hours behind it.

    `known` counts the hours of all clusters that were to be collected, 0..1; of the others what
    teams held is in no factor. None where there were none.
    """

    of_teams: Mapping[int, float]
    known: float | None


class UsageParts(Struct, frozen=True):
    """What usage factors are made of, by team id: decayed GPU-hours and entitled GPUs."""

    used: Mapping[int, float]
    entitled: Mapping[int, float]
    factors: Mapping[int, float]


def usage_parts(at: datetime, *, now: datetime) -> UsageParts:
    """Return the numbers behind the usage factors at `at`. At most five queries."""
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
    # From the day's end: the same day weighs the same for all teams, whenever they used it.
    ages = [max(0.0, (at - day_window(day, zone).end).total_seconds()) for day in days]
    recent = decayed(used, np.array(ages))
    factors = usage_factors(recent, np.array([entitled.get(team, 0.0) for team in teams]))
    found = {} if factors is None else dict(zip(teams, factors.tolist(), strict=True))
    in_hours = dict(zip(teams, (recent / NANO).tolist(), strict=True))
    return UsageParts(in_hours, entitled, found)


def usage_factor_of_teams(at: datetime, *, now: datetime) -> UsageFactors:
    """Return the usage factors at `at` of who used or is entitled to anything.

    Whole known hours up to then count, by local days, each decayed from its end. No team has a
    factor without any entitlement or any known hour. At most six queries.
    """
    known = _known(at)
    return UsageFactors(usage_parts(at, now=now).factors if known else {}, known)


def _known(at: datetime) -> float | None:
    # An hour that is not over at `at` is not counted: it cannot be known yet.
    hours = CollectionWindow.objects.filter(hour__gte=at - _USAGE_SPAN, hour__lte=at - _HOUR)
    counted = hours.aggregate(all=Count("pk"), known=Count("pk", filter=HAS_FACTS))
    return counted["known"] / counted["all"] if counted["all"] else None


def _entitled(at: datetime) -> dict[int, float]:
    # Just before `at`: what ends there held until then, what begins there did not yet.
    holds = Q(valid_to__isnull=True) | Q(valid_to__gte=at)
    rows = Entitlement.objects.filter(holds, valid_from__lt=at).order_by().values_list("team_id")
    return dict(rows.annotate(Sum("gpus")))


def _held(at: datetime, now: datetime, zone: ZoneInfo) -> _Held:
    """Return nano-GPU-hours of all tiers by team and day."""
    found: _Held = defaultdict(dict)
    last = day_of(at - _INSTANT, zone)
    first = day_of(at - _USAGE_SPAN, zone)
    rolled = FairnessDay.objects.filter(rolled=True, day__gte=first, end__lte=at).order_by("day")
    done = set()
    for day, of_day in rolled.values_list("day", "held"):
        done.add(day)
        for team, amount in of_day.items():
            # Keys of a JSON column come back as text.
            found[int(team)][day] = amount
    days = [day for day in days_in(Window(at - _USAGE_SPAN, at), zone) if day not in done]
    clusters = list(Cluster.objects.order_by("pk").values_list("pk", flat=True))
    # A day that goes on after `at` is read by the hour, unless no hour after it can be known.
    parted = last in days and day_window(last, zone).end > at and at < now
    whole = days[:-1] if parted else days
    facts = TeamDay.objects.filter(cluster__in=clusters, day__in=whole).order_by()
    for day, team, amount in facts.values_list("day", "team_id").annotate(Sum("allocated")):
        found[team][day] = int(amount)
    if parted:
        hours = TeamHour.objects.filter(
            cluster__in=clusters, hour__gte=day_start(last, zone), hour__lte=at - _HOUR
        )
        for team, amount in hours.order_by().values_list("team_id").annotate(Sum("allocated")):
            found[team][last] = int(amount)
    return found
