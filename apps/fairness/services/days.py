"""Sums of whole local days, and forgetting hours past their retention."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from heapq import nsmallest

from django.conf import settings
from django.db import transaction
from django.db.models import Count, Q, Sum
from django.db.models.query import QuerySet

from apps.clusters.models import Cluster, Tier
from apps.fairness.domain.hour_state import HourState
from apps.fairness.models import (
    FairnessDay,
    LoanDay,
    LoanHour,
    TeamFairnessDay,
    TeamFairnessHour,
    TierFairnessDay,
    TierFairnessHour,
    TierTeamBlob,
)
from apps.fairness.services.compute import LOANS_AT_MOST, TEAM_AMOUNTS, TIER_AMOUNTS
from apps.fairness.services.packs import lock_week, prune_packs, write_packs, write_week
from apps.usage.models import TeamHour
from apps.usage.services import day_value, insert

_DAYS = (TeamFairnessDay, TierFairnessDay, LoanDay)


def roll_days(*, now: datetime) -> int:
    """Sum the hours of every finished day whose hours changed; return how many days.

    Until then a day is read from its hours.
    """
    due = FairnessDay.objects.filter(rolled=False, pruned=False, end__lte=now).order_by("-day")
    return sum(roll_day(pk) for pk in list(due.values_list("pk", flat=True)))


@transaction.atomic
def roll_day(date_id: int) -> bool:
    """Sum one day; False when another process did so meanwhile."""
    week = lock_week(FairnessDay.objects.values_list("day", flat=True).get(pk=date_id))
    date = next(one for one in week if one.pk == date_id)
    if date.rolled or date.pruned:
        return False
    for model in _DAYS:
        model._default_manager.filter(day=date.day).delete()
    tiers = list(Tier.objects.order_by("pk").values_list("pk", flat=True))
    of_day = Q(tier__in=tiers, hour__gte=date.start, hour__lt=date.end)
    day = day_value(date.day)
    columns = ("tier_id", "team_id")
    rows = list(_sums(TeamFairnessHour.objects.filter(of_day), columns, TEAM_AMOUNTS))
    insert(TeamFairnessDay, ("day", *columns, *TEAM_AMOUNTS), [(day, *row) for row in rows])
    insert(
        TierFairnessDay,
        (
            *("day", "tier_id", *TIER_AMOUNTS),
            *("hours", "hours_missing", "hours_partial", "hours_watched"),
        ),
        [(day, *row) for row in _tier_sums(TierFairnessHour.objects.filter(of_day))],
    )
    insert(
        LoanDay,
        ("day", "tier_id", "lender_id", "borrower_id", "amount"),
        [(day, *row) for row in _largest(LoanHour.objects.filter(of_day))],
    )
    FairnessDay.objects.filter(pk=date_id).update(rolled=True, held=_held(date))
    date.rolled = True
    write_packs(TierTeamBlob.DAY, date.start, rows, TEAM_AMOUNTS)
    write_week(week)
    return True


def _held(date: FairnessDay) -> dict[int, int]:
    """Return what each team held of all tiers, in hours of which a tier is missing too."""
    clusters = list(Cluster.objects.order_by("pk").values_list("pk", flat=True))
    facts = TeamHour.objects.filter(
        cluster__in=clusters, hour__gte=date.start, hour__lt=date.end, allocated__gt=0
    )
    sums = facts.order_by().values_list("team_id").annotate(Sum("allocated"))
    return {team: int(amount) for team, amount in sums.order_by("team_id")}


def _sums(
    rows: QuerySet[TeamFairnessHour], keys: tuple[str, ...], columns: Iterable[str]
) -> Iterable[tuple[int, ...]]:
    sums = {f"sum_{column}": Sum(column) for column in columns}
    found: Iterable[tuple[int, ...]] = (
        rows.order_by().values_list(*keys).annotate(**sums).order_by(*keys)
    )
    return found


def _tier_sums(rows: QuerySet[TierFairnessHour]) -> Iterable[tuple[int, ...]]:
    """Yield the tier, the sums of TIER_AMOUNTS, and the hours summed, missing, partial, watched."""
    known = ~Q(state=HourState.MISSING.value)
    counts = {
        "known": Count("pk", filter=known),
        "missing": Count("pk", filter=~known),
        "partial": Count("pk", filter=Q(state=HourState.PARTIAL.value)),
        "seen": Count("pk", filter=known & Q(watched=True)),
    }
    sums = {f"sum_{column}": Sum(column) for column in TIER_AMOUNTS}
    found: Iterable[tuple[int, ...]] = (
        rows.order_by().values_list("tier_id").annotate(**sums, **counts).order_by("tier_id")
    )
    return found


def _largest(rows: QuerySet[LoanHour]) -> Iterable[tuple[int, int, int, int]]:
    """Yield (tier, lender, borrower, amount), of each tier the largest."""
    keys = ("tier_id", "lender_id", "borrower_id")
    by_tier: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    sums = rows.order_by().values_list(*keys).annotate(Sum("amount")).order_by(*keys)
    for tier, lender, borrower, amount in sums:
        by_tier[tier].append((-int(amount), lender, borrower))
    for tier in sorted(by_tier):
        for amount, lender, borrower in nsmallest(LOANS_AT_MOST, by_tier[tier]):
            yield tier, lender, borrower, -amount


def prune(*, now: datetime) -> int:
    """Delete the hours of rolled days past the hourly retention; return how many days.

    Sums of days are kept for good.
    """
    prune_packs(now=now)
    horizon = now - timedelta(days=settings.HOURLY_RETENTION_DAYS)
    due = FairnessDay.objects.filter(rolled=True, pruned=False, end__lt=horizon).order_by("day")
    return sum(_prune_day(pk) for pk in list(due.values_list("pk", flat=True)))


@transaction.atomic
def _prune_day(date_id: int) -> bool:
    date = FairnessDay.objects.select_for_update().defer("held").get(pk=date_id)
    if not date.rolled or date.pruned:
        return False
    tiers = list(Tier.objects.order_by("pk").values_list("pk", flat=True))
    for model in (TeamFairnessHour, TierFairnessHour, LoanHour):
        model._default_manager.filter(
            tier__in=tiers, hour__gte=date.start, hour__lt=date.end
        ).delete()
    FairnessDay.objects.filter(pk=date_id).update(pruned=True)
    return True
