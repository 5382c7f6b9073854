"""Who tells the demand of hours: the watch, series, or nobody."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import NamedTuple

from django.db.models import Min, Q, Sum

from apps.clusters.domain.time_spans import Span, union
from apps.clusters.domain.window import HOUR_SECONDS, Window
from apps.clusters.models import WatchCoverage
from apps.clusters.services import GAP_SECONDS
from apps.pending.selectors import watched_until, without_history
from apps.usage.models import TierHour
from apps.usage.selectors import clusters_with, of_claims_alone

BEHIND = "~"
_GAP = timedelta(seconds=GAP_SECONDS)
_HOUR = timedelta(seconds=HOUR_SECONDS)

_Spans = Mapping[int, Sequence[Span]]


class UnknownTiers(NamedTuple):
    """Tiers of which an hour's facts tell nothing, and those of which they tell a part."""

    missing: frozenset[int]
    partial: frozenset[int]


_ALL_KNOWN = UnknownTiers(frozenset(), frozenset())


@dataclass(frozen=True)
class DemandSources:
    """Who tells the demand of an hour: clusters by id.

    `watched` were watched all the hour. Of the others series tell, as soon as the pods that they
    show are in the pending history; `behind` are those where they are not, and those whose watch
    is away since.
    """

    watched: frozenset[int]
    behind: frozenset[int]

    @property
    def mark(self) -> str:
        """What stands for these clusters; it begins with `BEHIND` while any is behind."""
        told = f"demand of {sorted(self.watched)} without {sorted(self.behind)}"
        mark = digest([told])
        return f"{BEHIND}{mark}" if self.behind else mark


def digest(lines: Iterable[str]) -> str:
    """Return 32 hexadecimal digits that stand for some text."""
    return blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()


def demand_sources(hours: Sequence[datetime]) -> list[DemandSources]:
    """Return who tells the demand of each of some hours, in order. Four queries."""
    if not hours:
        return []
    spans = _spans(Window(min(hours), max(hours) + _HOUR))
    without, until = without_history(), watched_until()
    found = []
    for hour in hours:
        start = hour.timestamp()
        watched = frozenset(c for c, some in spans.items() if _covers(some, start))
        behind = {c for c, created in without.items() if created < hour + _HOUR}
        behind |= {c for c, at in until.items() if at < hour + _HOUR}
        found.append(DemandSources(watched, frozenset(behind - watched)))
    return found


def unknown_tiers(hour: Window, with_facts: Collection[int]) -> UnknownTiers:
    """Return the tiers of claims alone that the facts of some clusters tell too little of.

    A cluster is taken to have those that it was ever seen to have, and those that none was. So is
    the tier under which the activity of their devices stands, without any capacity. At most five
    queries, one where no tier is of claims alone.
    """
    tiers = of_claims_alone(hour)
    if not tiers or not with_facts:
        return _ALL_KNOWN
    begun = (
        WatchCoverage.objects.filter(cluster__in=with_facts).order_by().values_list("cluster_id")
    )
    first: dict[int, datetime] = dict(begun.annotate(Min("start")))
    dark = {c for c in with_facts if c not in first or first[c] >= hour.end}
    begins = {c for c in with_facts if c not in dark and first[c] > hour.start}
    if not dark and not begins:
        return _ALL_KNOWN
    has = clusters_with(tiers)
    facts = TierHour.objects.filter(cluster__in=with_facts, hour=hour.start, tier__in=tiers)
    told = set(facts.order_by().values_list("cluster_id", "tier_id"))

    def among(clusters: Collection[int], *, without_facts: bool) -> frozenset[int]:
        return frozenset(
            tier
            for tier in tiers
            for cluster in clusters
            if (not has.get(tier) or cluster in has[tier])
            and not (without_facts and (cluster, tier) in told)
        )

    without = _without_capacity(hour, dark | begins)
    return UnknownTiers(
        among(dark, without_facts=True) | without, among(begins, without_facts=False) - without
    )


def _without_capacity(hour: Window, clusters: Collection[int]) -> frozenset[int]:
    """Return the tiers in which devices were active and of which no capacity is known."""
    rows = TierHour.objects.filter(hour=hour.start).order_by().values_list("tier_id")
    sums = rows.annotate(
        there=Sum("capacity"), lost=Sum("unattributed", filter=Q(cluster__in=clusters))
    )
    return frozenset(tier for tier, there, lost in sums if not there and lost)


def _spans(window: Window) -> _Spans:
    """Return when each cluster was watched about a window, in Unix seconds.

    A watch that is taken up again soon has missed nothing: its spans are one.
    """
    near = WatchCoverage.objects.filter(start__lte=window.end + _GAP, end__gte=window.start - _GAP)
    spans: dict[int, list[Span]] = defaultdict(list)
    for cluster, start, end in near.order_by("pk").values_list("cluster_id", "start", "end"):
        # Two spans no further apart than the gap touch when each reaches so much further.
        spans[cluster].append((start.timestamp(), end.timestamp() + GAP_SECONDS))
    return {
        cluster: [(start, end - GAP_SECONDS) for start, end in union(some)]
        for cluster, some in spans.items()
    }


def _covers(spans: Sequence[Span], start: float) -> bool:
    return any(since <= start and until >= start + HOUR_SECONDS for since, until in spans)
