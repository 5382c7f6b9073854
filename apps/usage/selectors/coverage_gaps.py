"""Tiers that only ResourceClaims give out, and when nobody could tell of them.

Series tell of extended resources at any time. What a claim gave, and which devices there were to
claim, only the API server tells, and only while somebody watches: before, there is no fact.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from django.db.models import Count, Min, Q

from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import HOUR_SECONDS, Window
from apps.clusters.models import Cluster, TierRule, WatchCoverage
from apps.clusters.models.validity import holds_within
from apps.usage.domain.periods import BEGINNING, Periods
from apps.usage.domain.rows import Filters, Grouping, UsageQuery, UsageRow
from apps.usage.models import HAS_FACTS, CollectionWindow, TierDay

_HOUR = timedelta(seconds=HOUR_SECONDS)


@dataclass(frozen=True, slots=True)
class CoverageGap:
    """Hours of a window that are in no sum of some tiers, though they have facts of others.

    `until` is when somebody began to watch; None where nobody ever did.
    """

    tiers: tuple[str, ...]
    hours: int
    until: datetime | None


def gap_tiers(
    window: Window, *, visibility: Visibility, tiers: Collection[str] = ()
) -> list[CoverageGap]:
    """Return what nobody could tell of tiers, of all or of those named, by when that ended.

    Which tiers there are everybody may see: `visibility` narrows nothing. One query where no tier
    is of claims alone, else four.
    """
    names = {pk: name for pk, name in of_claims_alone(window).items() if not tiers or name in tiers}
    found: dict[tuple[datetime | None, int], list[str]] = defaultdict(list)
    for tier, own in _before_the_watch(names, window).items():
        until = max(own.values(), key=lambda one: one[1])
        found[until].append(names[tier])
    return [CoverageGap(tuple(some), count, until) for (until, count), some in found.items()]


def gap_hours(
    windows: Sequence[Window], *, visibility: Visibility
) -> list[dict[tuple[str, str], int]]:
    """Return of each window how many hours of facts tell nothing, by cluster and tier by name.

    Averages of the tier are not over these: nobody knows what it held then. Everybody may see it:
    `visibility` narrows nothing. One query where no tier is of claims alone, else four more for
    each window at most.
    """
    rules = _rules(Window(min(one.start for one in windows), max(one.end for one in windows)))
    return [_gap_hours(window, _of_claims_alone(rules, window)) for window in windows]


def _gap_hours(window: Window, names: Mapping[int, str]) -> dict[tuple[str, str], int]:
    of_tiers = _before_the_watch(names, window)
    if not of_tiers:
        return {}
    clusters = dict(Cluster.objects.order_by("pk").values_list("pk", "name"))
    return {
        (clusters[cluster], names[tier]): count
        for tier, own in of_tiers.items()
        for cluster, (_, count) in own.items()
    }


def known_hours(rows: Sequence[UsageRow], asked: UsageQuery, *, zone: ZoneInfo) -> list[int | None]:
    """Return in how many hours of each row's period it is known what claims give out of its tier.

    None for tiers that series tell of, and without the tier among the groups. One query where no
    tier is of claims alone, else four.
    """
    names = of_claims_alone(asked.window) if Grouping.TIER in asked.group_by else {}
    if not names:
        return [None] * len(rows)
    periods = Periods(asked.interval, zone)
    found: dict[tuple[datetime, str, str], set[datetime]] = defaultdict(set)
    for tier, cluster, hour in _covered_hours(names, asked.window, asked.filters):
        start = periods.start_of(hour)
        found[start, names[tier], cluster].add(hour)
        found[start, names[tier], ""].add(hour)
    claimed = set(names.values())
    return [
        len(found[_start(row), row.groups["tier"], row.groups.get("cluster", "")])
        if row.groups["tier"] in claimed
        else None
        for row in rows
    ]


def _start(row: UsageRow) -> datetime:
    return BEGINNING if row.period is None else row.period.astimezone(UTC)


def _covered_hours(
    tiers: Collection[int], window: Window, filters: Filters
) -> Iterator[tuple[int, str, datetime]]:
    """Yield (tier, cluster, hour) of hours with facts in which the claims of the tier are known."""
    begun = WatchCoverage.objects.order_by().values_list("cluster_id").annotate(Min("start"))
    first: dict[int, datetime] = dict(begun)
    has = clusters_with(tiers)
    hours = CollectionWindow.objects.filter(
        HAS_FACTS, hour__gte=window.start, hour__lt=window.end, cluster__in=list(first)
    )
    if filters.cluster:
        hours = hours.filter(cluster__name__in=filters.cluster)
    columns = ("cluster_id", "cluster__name", "hour")
    for pk, cluster, hour in hours.order_by("hour", "pk").values_list(*columns):
        for tier in tiers:
            seen = has.get(tier, {})
            since = first[pk]
            kept_longer = pk in seen and _older(seen[pk], since)
            if (not seen or pk in seen) and (hour > since - _HOUR or kept_longer):
                yield tier, cluster, hour


_Since = tuple[datetime | None, int]
"""When a cluster was first watched, and its hours of facts before that."""


def _before_the_watch(tiers: Collection[int], window: Window) -> dict[int, dict[int, _Since]]:
    """Return of each tier the clusters with hours that tell nothing of it. Three queries at most.

    A tier without such hours is not in it; none is asked for without tiers.
    """
    hours = _hours_before_the_watch(window) if tiers else {}
    has = clusters_with(tiers) if hours else {}
    found = {}
    for tier in tiers:
        seen = has.get(tier, {})
        own = {
            cluster: (since, count)
            for cluster, (since, count) in hours.items()
            if not seen or (cluster in seen and not _older(seen[cluster], since))
        }
        if own:
            found[tier] = own
    return found


def _older(seen: date, since: datetime | None) -> bool:
    """Say whether there are facts from before the oldest watch that is kept: all was told then."""
    return since is not None and seen < (since - timedelta(days=1)).date()


def _hours_before_the_watch(window: Window) -> dict[int, tuple[datetime | None, int]]:
    """Return of each cluster when it was first watched, and its hours of facts before that."""
    begun = WatchCoverage.objects.order_by().values_list("cluster_id").annotate(Min("start"))
    first: dict[int, datetime] = dict(begun)
    hours = HAS_FACTS & Q(hour__gte=window.start, hour__lt=window.end)
    for cluster, start in first.items():
        hours &= ~Q(cluster=cluster, hour__gt=start - _HOUR)
    rows = CollectionWindow.objects.filter(hours).order_by().values_list("cluster_id")
    return {cluster: (first.get(cluster), count) for cluster, count in rows.annotate(Count("pk"))}


def of_claims_alone(window: Window) -> dict[int, str]:
    """Return the tiers, by name, whose rules ask for device classes and for nothing else."""
    return _of_claims_alone(_rules(window), window)


def claims_before_the_watch(window: Window) -> Q | None:
    """Return the condition on hourly facts by tier or node in which only claims could tell.

    Activity in them is nobody's because no series says who had a device by a claim, nor that the
    device was there. None where no tier is of claims alone. Two queries.
    """
    tiers = of_claims_alone(window)
    if not tiers:
        return None
    begun = WatchCoverage.objects.order_by().values_list("cluster_id").annotate(Min("start"))
    first: dict[int, datetime] = dict(begun)
    before = ~Q(cluster__in=list(first))
    for cluster, start in first.items():
        before |= Q(cluster=cluster, hour__lt=start)
    return before & (Q(capacity=0) | Q(tier__in=list(tiers)))


def _rules(window: Window) -> list[TierRule]:
    """Return what tiers were given out for within a window, in the catalog's order. One query."""
    rules = TierRule.objects.filter(holds_within(window)).select_related("tier")
    return list(rules.order_by("tier__position", "tier__name", "pk"))


def _of_claims_alone(rules: Sequence[TierRule], window: Window) -> dict[int, str]:
    names: dict[int, str] = {}
    others = set()
    for rule in rules:
        if rule.valid_from >= window.end or (rule.valid_to and rule.valid_to <= window.start):
            continue
        names[rule.tier_id] = rule.tier.name
        if rule.resources or not rule.device_classes:
            others.add(rule.tier_id)
    return {tier: name for tier, name in names.items() if tier not in others}


def clusters_with(tiers: Collection[int]) -> Mapping[int, Mapping[int, date]]:
    """Return the clusters that each tier was ever seen in, and when first."""
    days = TierDay.objects.filter(tier__in=tiers).order_by().values_list("tier_id", "cluster_id")
    found: dict[int, dict[int, date]] = defaultdict(dict)
    for tier, cluster, first in days.annotate(Min("day")):
        found[tier][cluster] = first
    return found
