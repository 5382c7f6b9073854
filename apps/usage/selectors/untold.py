"""Tiers that only ResourceClaims give out, and when nobody could tell of them.

Series tell of extended resources at any time. What a claim gave, and which devices there were to
claim, only the API server tells, and only while somebody watches: before, there is no fact.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from django.db.models import Count, Min, Q

from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import HOUR_SECONDS, Window
from apps.clusters.models import TierRule, WatchSpan
from apps.usage.domain.collection import CollectionState
from apps.usage.models import CollectionWindow, TierDay

_HOUR = timedelta(seconds=HOUR_SECONDS)
_HAS_FACTS = (CollectionState.COMPLETE.value, CollectionState.PARTIAL.value)


@dataclass(frozen=True, slots=True)
class Untold:
    """Hours of a window that are in no sum of some tiers, though they have facts of others.

    `until` is when somebody began to watch; None where nobody ever did.
    """

    tiers: tuple[str, ...]
    hours: int
    until: datetime | None


def untold_tiers(
    window: Window, *, visibility: Visibility, tiers: Collection[str] = ()
) -> list[Untold]:
    """Return what nobody could tell of tiers, of all or of those named, by when that ended.

    Which tiers there are everybody may see: `visibility` narrows nothing. One query where no tier
    is of claims alone, else four.
    """
    names = {pk: name for pk, name in of_claims_alone(window).items() if not tiers or name in tiers}
    if not names:
        return []
    hours = _hours_before_the_watch(window)
    has = clusters_with(names) if hours else {}
    found: dict[tuple[datetime | None, int], list[str]] = defaultdict(list)
    for tier, name in names.items():
        of_tier = has.get(tier, {})
        own = [
            (since, count)
            for cluster, (since, count) in hours.items()
            if not of_tier or (cluster in of_tier and not _older(of_tier[cluster], since))
        ]
        if own:
            until = max(own, key=lambda one: one[1])
            found[until].append(name)
    return [Untold(tuple(some), count, until) for (until, count), some in found.items()]


def _older(seen: date, since: datetime | None) -> bool:
    """Say whether there are facts from before the oldest watch that is kept: all was told then."""
    return since is not None and seen < (since - timedelta(days=1)).date()


def _hours_before_the_watch(window: Window) -> dict[int, tuple[datetime | None, int]]:
    """Return of each cluster when it was first watched, and its hours of facts before that."""
    begun = WatchSpan.objects.order_by().values_list("cluster_id").annotate(Min("start"))
    first: dict[int, datetime] = dict(begun)
    hours = Q(hour__gte=window.start, hour__lt=window.end, state__in=_HAS_FACTS)
    for cluster, start in first.items():
        hours &= ~Q(cluster=cluster, hour__gt=start - _HOUR)
    rows = CollectionWindow.objects.filter(hours).order_by().values_list("cluster_id")
    return {cluster: (first.get(cluster), count) for cluster, count in rows.annotate(Count("pk"))}


def of_claims_alone(window: Window) -> dict[int, str]:
    """Return the tiers, by name, whose rules ask for device classes and for nothing else."""
    holds = Q(valid_from__lt=window.end) & (Q(valid_to__isnull=True) | Q(valid_to__gt=window.start))
    rules = TierRule.objects.filter(holds).order_by("tier__position", "tier__name", "pk")
    names: dict[int, str] = {}
    others = set()
    columns = ("tier_id", "tier__name", "resources", "device_classes")
    for tier, name, resources, classes in rules.values_list(*columns):
        names[tier] = name
        if resources or not classes:
            others.add(tier)
    return {tier: name for tier, name in names.items() if tier not in others}


def clusters_with(tiers: Collection[int]) -> Mapping[int, Mapping[int, date]]:
    """Return the clusters that each tier was ever seen in, and when first."""
    days = TierDay.objects.filter(tier__in=tiers).order_by().values_list("tier_id", "cluster_id")
    found: dict[int, dict[int, date]] = defaultdict(dict)
    for tier, cluster, first in days.annotate(Min("day")):
        found[tier][cluster] = first
    return found
