"""Pending demand by slot, tier and team, and the sources that know it."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import NamedTuple

from django.db.models import Min, Q, Sum
from msgspec import Struct

from apps.clusters.domain.tiers import UNDETERMINED
from apps.clusters.domain.window import HOUR_SECONDS, TimeSpan, Window, union
from apps.clusters.models import Namespace, WatchCoverage
from apps.clusters.selectors import team_spans
from apps.clusters.services import GAP_SECONDS
from apps.pending.domain.day_sums import amount
from apps.pending.models import CauseInterval
from apps.pending.selectors import counted_causes, known_until, watched_until, without_history
from apps.usage.models import TierHour
from apps.usage.selectors import clusters_with, of_claims_alone
from gpuportal.database_functions import UnixSeconds

# No hexadecimal digit: digests that begin with it are found by their prefix alone.
BEHIND = "~"
_GAP = timedelta(seconds=GAP_SECONDS)
_HOUR = timedelta(seconds=HOUR_SECONDS)

_Spans = Mapping[int, Sequence[TimeSpan]]


class UnknownTiers(NamedTuple):
    """Tiers that the facts of an hour tell nothing of, and those that they tell a part of."""

    missing: frozenset[int]
    partial: frozenset[int]


_ALL_KNOWN = UnknownTiers(frozenset(), frozenset())


class DemandSources(Struct, frozen=True):
    """Which clusters' demand of an hour is known from what: ids of clusters.

    `watched` clusters were watched all the hour. The demand of the others comes from series, once
    the pods that these show are in the pending history. `behind` are clusters whose pods are not
    there yet, or whose watch has not come back since.
    """

    watched: frozenset[int]
    behind: frozenset[int]

    @property
    def mark(self) -> str:
        """A digest of these clusters; it begins with `BEHIND` while any is behind."""
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
    spans = _watched_spans(Window(min(hours), max(hours) + _HOUR))
    without, until = without_history(), watched_until()
    found = []
    for hour in hours:
        start = hour.timestamp()
        watched = frozenset(c for c, some in spans.items() if _covers(some, start))
        behind = {c for c, created in without.items() if created < hour + _HOUR}
        # A watch that is away may come back and tell more of the hour than series do now.
        behind |= {c for c, at in until.items() if at < hour + _HOUR}
        # Series do not tell the demand of a watched cluster, so it cannot be behind with them.
        found.append(DemandSources(watched, frozenset(behind - watched)))
    return found


def unknown_tiers(hour: Window, with_facts: Collection[int]) -> UnknownTiers:
    """Return the tiers of claims alone that the facts of some clusters tell too little of.

    A cluster is taken to have the tiers that it was ever seen to have, and those that no cluster
    was ever seen to have. A tier with active devices and no known capacity is missing too. At most
    five queries, one where no tier is of claims alone.
    """
    tiers = of_claims_alone(hour)
    if not tiers or not with_facts:
        return _ALL_KNOWN
    begun = (
        WatchCoverage.objects.filter(cluster__in=with_facts).order_by().values_list("cluster_id")
    )
    first: dict[int, datetime] = dict(begun.annotate(Min("start")))
    # No series tells of claims: before the first watch nothing is known of their tiers.
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
    """Return the tiers with active devices and without any known capacity."""
    rows = TierHour.objects.filter(hour=hour.start).order_by().values_list("tier_id")
    sums = rows.annotate(
        there=Sum("capacity"), lost=Sum("unattributed", filter=Q(cluster__in=clusters))
    )
    return frozenset(tier for tier, there, lost in sums if not there and lost)


def _watched_spans(window: Window) -> _Spans:
    """Return when each cluster was watched about a window, in Unix seconds.

    A watch that is taken up again soon has missed nothing: its spans are one.
    """
    near = WatchCoverage.objects.filter(start__lte=window.end + _GAP, end__gte=window.start - _GAP)
    spans: dict[int, list[TimeSpan]] = defaultdict(list)
    for cluster, start, end in near.order_by("pk").values_list("cluster_id", "start", "end"):
        # Two spans no further apart than the gap touch when each reaches so much further.
        spans[cluster].append((start.timestamp(), end.timestamp() + GAP_SECONDS))
    return {
        cluster: [(start, end - GAP_SECONDS) for start, end in union(some)]
        for cluster, some in spans.items()
    }


def _covers(spans: Sequence[TimeSpan], start: float) -> bool:
    return any(since <= start and until >= start + HOUR_SECONDS for since, until in spans)


class SlotTeam(NamedTuple):
    """A team with pending work for a tier in the slot of that number."""

    slot: int
    tier: int
    team: int


PendingAmounts = Mapping[SlotTeam, int]
"""Nano-GPU-hours; each part of an interval within a slot and under one team is rounded once."""


def counted_intervals() -> Q:
    """Return the condition on intervals that count for fairness; a tier must be known."""
    known_tier = Q(episode__tier__isnull=False) & ~Q(episode__tier__name=UNDETERMINED)
    return counted_causes() & known_tier


def read_pending(window: Window, edges: Sequence[float]) -> PendingAmounts:
    """Return the pending demand between edges (Unix seconds, ascending) within a window. Five
    queries.

    Work that is still pending counts until the last edge, but no longer than it was watched.
    """
    spans = _namespace_teams(window)
    known = {cluster: at.timestamp() for cluster, at in known_until().items()}
    found: dict[SlotTeam, int] = defaultdict(int)
    for cluster, tier, space, counted, start, end in _pending_intervals(window):
        over = known.get(cluster, edges[-1]) if end is None else end
        for first, last, team in spans.get(space, ()):
            since = max(start, first, edges[0])
            until = min(over, last, edges[-1])
            # An interval may reach over many slots and is cut at each edge.
            slot = max(0, bisect_right(edges, since) - 1)
            while since < until:
                stop = min(until, edges[slot + 1])
                found[SlotTeam(slot, tier, team)] += amount(counted, stop - since)
                since, slot = stop, slot + 1
    return found


def _pending_intervals(
    window: Window,
) -> Sequence[tuple[int, int, int, float, float, float | None]]:
    rows = CauseInterval.objects.filter(
        counted_intervals(), Q(end__isnull=True) | Q(end__gt=window.start), start__lt=window.end
    ).annotate(from_seconds=UnixSeconds("start"), to_seconds=UnixSeconds("end"))
    of = ("episode__cluster_id", "episode__tier_id", "episode__workload__namespace_id")
    return list(rows.order_by("pk").values_list(*of, "counted", "from_seconds", "to_seconds"))


def _namespace_teams(window: Window) -> dict[int, list[tuple[float, float, int]]]:
    """Return whose each namespace was: from and until (Unix seconds), team."""
    spaces = dict(Namespace.objects.order_by("pk").values_list("pk", "name"))
    by_name = {
        name: [(span.start.timestamp(), span.end.timestamp(), span.team_id) for span in spans]
        for name, spans in team_spans(window, set(spaces.values())).items()
    }
    # What has no namespace is of no team.
    return {pk: by_name[name] for pk, name in spaces.items() if name}


def half_hours(window: Window) -> list[float]:
    """Return the edges of a window's half-hour slots."""
    return [*map(float, window.slots()), window.end_seconds]


def pending_digests(waited: PendingAmounts, hours: int) -> list[str]:
    """Return a digest of the pending demand of each hour; `waited` is by half hours."""
    lines: list[list[str]] = [[] for _ in range(hours)]
    for who in sorted(waited):
        # Half hours, so that an hour has two slots whatever its entitlements do.
        number, half = divmod(who.slot, 2)
        lines[number].append(f"{half} {who.tier} {who.team} {waited[who]}")
    return [digest(part) for part in lines]
