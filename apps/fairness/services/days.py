"""Sums of whole local days, and forgetting hours past their retention."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from heapq import nsmallest

from django.conf import settings
from django.db import transaction
from django.db.models import Sum
from django.db.models.query import QuerySet

from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, Tier
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
from apps.fairness.selectors.measures.sums import HOUR_COUNTS
from apps.fairness.services.compute import LOANS_AT_MOST, TEAM_AMOUNTS, TIER_AMOUNTS
from apps.fairness.services.packs import lock_week, prune_packs, write_packs, write_week
from apps.usage.models import TeamHour
from apps.usage.services import Rollup, day_value, insert, sum_day

_TEAMS = Rollup(TeamFairnessHour, TeamFairnessDay, ("tier_id", "team_id"), TEAM_AMOUNTS)
_TIERS = Rollup(
    TierFairnessHour,
    TierFairnessDay,
    ("tier_id",),
    TIER_AMOUNTS,
    HOUR_COUNTS,
)


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
    tiers = list(Tier.objects.order_by("pk").values_list("pk", flat=True))
    span = Window(date.start, date.end)
    rows = sum_day(_TEAMS, date.day, span, tier_id__in=tiers)
    sum_day(_TIERS, date.day, span, tier_id__in=tiers)
    loans = LoanHour.objects.filter(tier__in=tiers, hour__gte=date.start, hour__lt=date.end)
    LoanDay.objects.filter(day=date.day).delete()
    day = day_value(date.day)
    insert(
        LoanDay,
        ("day", "tier_id", "lender_id", "borrower_id", "amount"),
        [(day, *row) for row in _largest(loans)],
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
