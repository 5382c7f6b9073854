"""The facts of an hour: capacity, allocations, and entitlements."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from hashlib import blake2b
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from django.db import connection
from django.db.models import F, Max, Q, QuerySet
from django.db.models.functions import Coalesce
from msgspec import Struct

from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, holds_after
from apps.fairness.domain.hour_state import HourState
from apps.fairness.domain.measures import NanoGpuHours
from apps.fairness.domain.shares import Array
from apps.fairness.services.demand import DemandSources, demand_sources, digest, unknown_tiers
from apps.quotas.models import Entitlement
from apps.usage.domain.collection import CollectionState
from apps.usage.models import CollectionWindow, OutageHour, TeamHour, TierDay, TierHour
from gpuportal.database_functions import SmallSum, UnixSeconds, WholeSum

Ids = npt.NDArray[np.int64]
_HOUR = timedelta(hours=1)
# Digests of rows are added up, so that their order does not matter; the sum may overflow.
_BITS = (1 << 64) - 1
_ENTITLEMENT_COLUMNS = ("tier_id", "team_id", "gpus", "weight")
HAS_FACTS = frozenset({CollectionState.COMPLETE.value, CollectionState.PARTIAL.value})
_FAILED = CollectionState.FAILED.value
_NEAR = timedelta(days=7)
"""A cluster has a tier in a missing hour that it had this many days before or after."""


class EntitlementSpan(NamedTuple):
    """GPU-equivalents that a team was entitled to, and its weight, from `start` to `end`."""

    team: int
    gpus: float
    weight: float
    start: float
    end: float


class TierEntitlements(NamedTuple):
    """The entitlements of a tier in an hour: those that last all of it, one of each, and others."""

    teams: Ids
    gpus: Array
    weights: Array
    changing: list[EntitlementSpan]


class HourEntitlements(NamedTuple):
    """The entitlements of an hour by tier, and when within it one begins or ends.

    `mark` is the digest of all of them, as `entitlement_digests` returns it.
    """

    entitlements: Mapping[int, TierEntitlements]
    changes: frozenset[float]
    mark: str


def read_entitlements(hour: Window) -> HourEntitlements:
    """Return who is entitled to what within an hour. Two queries."""
    whole = list(_lasting(hour))
    found = _by_tier(whole)
    parts = []
    for tier, team, gpus, weight, since, until in _changing(hour):
        start, end = _clipped(since, until, hour)
        of_tier = found.setdefault(tier, _not_entitled())
        of_tier.changing.append(EntitlementSpan(team, gpus, weight, start, end))
        parts.append((tier, team, gpus, weight, start, end))
    edges = frozenset(edge for *_, start, end in parts for edge in (start, end))
    return HourEntitlements(
        found, edges, _digest_text(len(whole) + len(parts), _sum_of_digests([*whole, *parts]))
    )


def _by_tier(lasting: Sequence[tuple[int, int, float, float]]) -> dict[int, TierEntitlements]:
    """Return _ENTITLEMENT_COLUMNS of rows by tier: as columns, for rows are by the ten thousand."""
    if not lasting:
        return {}
    tiers, teams, gpus, weights = zip(*lasting, strict=True)
    keys, of_teams = np.array(tiers, dtype=np.int64), np.array(teams, dtype=np.int64)
    of_gpus, of_weights = np.array(gpus, dtype=np.float64), np.array(weights, dtype=np.float64)
    found = {}
    for tier in np.unique(keys).tolist():
        own = np.flatnonzero(keys == tier)
        found[tier] = TierEntitlements(of_teams[own], of_gpus[own], of_weights[own], [])
    return found


def _not_entitled() -> TierEntitlements:
    return TierEntitlements(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0), [])


def entitlement_digests(hours: Sequence[datetime]) -> list[str]:
    """Return a digest of the entitlements of each of some hours, in order. One query.

    It changes when any entitlement of the hour does. It is a sum of digests, so that one that
    lasts for many hours is read and hashed once.
    """
    if not hours:
        return []
    ends = [hour + _HOUR for hour in hours]
    # Differences at the first and after the last hour; running sums give each hour its digest.
    counts, sums = [0] * (len(hours) + 1), [0] * (len(hours) + 1)
    for *entitlement, since, until in _entitlement_rows(hours[0], ends[-1]):
        # The hours that it lasts all of: from `first` on, before `last`.
        first, last = bisect_left(hours, since), len(hours)
        if until is not None:
            last = max(first, bisect_right(ends, until))
        own = _row_digest(tuple(entitlement))
        for place, sign in ((first, 1), (last, -1)):
            counts[place] += sign
            sums[place] += sign * own
        # Next to these lie the hours in which it begins or ends; they count with its part of them.
        for number in (first - 1, last):
            if 0 <= number < len(hours) and _touches(hours[number], since, until):
                hour = Window(hours[number], ends[number])
                part = (*entitlement, *_clipped(since, until, hour))
                for place, sign in ((number, 1), (number + 1, -1)):
                    counts[place] += sign
                    sums[place] += sign * _row_digest(part)
    in_all = zip(accumulate(counts), accumulate(sums), strict=True)
    # The last place only takes what ends behind the last hour.
    return [_digest_text(count, total) for count, total in in_all][: len(hours)]


def digest_of_entitlements(since: datetime) -> str:
    """Return a digest of all entitlements that lasted beyond a time. One query."""
    rows = _beyond(since).annotate(start=UnixSeconds("valid_from"), until=UnixSeconds("valid_to"))
    count = total = 0
    for *entitlement, until in rows.values_list(*_ENTITLEMENT_COLUMNS, "start", "until").iterator():
        total += _row_digest((*entitlement, 0.0 if until is None else until))
        count += 1
    return _digest_text(count, total)


def _entitlement_rows(
    since: datetime, until: datetime
) -> Iterable[tuple[int, int, float, float, datetime, datetime | None]]:
    """Yield the entitlements that overlap a span: _ENTITLEMENT_COLUMNS, its start and its end."""
    rows = _beyond(since).filter(valid_from__lt=until)
    return rows.values_list(*_ENTITLEMENT_COLUMNS, "valid_from", "valid_to").iterator()


def _beyond(since: datetime) -> QuerySet[Entitlement]:
    return Entitlement.objects.filter(holds_after(since)).order_by()


def _lasting(hour: Window) -> Iterable[tuple[int, int, float, float]]:
    """Return the entitlements that last all the hour."""
    rows = Entitlement.objects.filter(_lasts(hour), valid_from__lte=hour.start)
    return rows.order_by().values_list(*_ENTITLEMENT_COLUMNS)


def _changing(
    hour: Window,
) -> Iterable[tuple[int, int, float, float, datetime, datetime | None]]:
    """Return the entitlements of a part of the hour."""
    begins = Q(valid_from__gt=hour.start, valid_from__lt=hour.end)
    ends = Q(valid_from__lte=hour.start, valid_to__gt=hour.start) & ~_lasts(hour)
    rows = Entitlement.objects.filter(begins | ends).order_by("pk")
    return rows.values_list(*_ENTITLEMENT_COLUMNS, "valid_from", "valid_to")


def _lasts(hour: Window) -> Q:
    return Q(valid_to__isnull=True) | Q(valid_to__gte=hour.end)


def _touches(hour: datetime, since: datetime, until: datetime | None) -> bool:
    return since < hour + _HOUR and (until is None or until > hour)


def _clipped(since: datetime, until: datetime | None, hour: Window) -> tuple[float, float]:
    end = hour.end if until is None else min(until, hour.end)
    return max(since, hour.start).timestamp(), end.timestamp()


def _row_digest(row: tuple[float, ...]) -> int:
    """Return 64 bits that stand for a row of numbers, the same in every process.

    Python's hash of a tuple is nearly additive: its sums often stay the same when two teams
    exchange their entitlements. blake2b mixes it.
    """
    # Python salts the hashes of text in each process, but not those of numbers.
    number = hash(row).to_bytes(8, "little", signed=True)
    return int.from_bytes(blake2b(number, digest_size=8).digest(), "little")


def _sum_of_digests(rows: Sequence[tuple[float, ...]]) -> int:
    """Return the sum of `_row_digest` of rows, to 64 bits."""
    # All at once: of a thousand teams on twenty tiers the numbers are made and added in C.
    hashes = np.array([hash(row) for row in rows], dtype="<i8").tobytes()
    digests = [
        blake2b(hashes[at : at + 8], digest_size=8).digest() for at in range(0, len(hashes), 8)
    ]
    return int(np.frombuffer(b"".join(digests), dtype="<u8").sum(dtype=np.uint64))


def _digest_text(count: int, total: int) -> str:
    return f"{count}:{total & _BITS:016x}"


class HourHalves(NamedTuple):
    """Nano-GPU-hours of an hour: in all, and in the first of its two slots."""

    whole: int
    first: int


class TeamAllocations(NamedTuple):
    """Nano-GPU-hours that teams held of a tier in an hour, one of each.

    `teams` are ids in ascending order; `first` is of the first of the two slots.
    """

    teams: Ids
    whole: NanoGpuHours
    first: NanoGpuHours
    idle: NanoGpuHours


class HourInputs(Struct, frozen=True):
    """The facts and entitlements of an hour, by tier."""

    capacity: Mapping[int, HourHalves]
    held: Mapping[int, TeamAllocations]
    entitlements: Mapping[int, TierEntitlements]
    changes: Collection[float]
    """Times within the hour at which an entitlement begins or ends."""
    missing: Collection[int]
    """Tiers with a cluster whose facts are missing, or whose demand is not known."""
    partial: Collection[int]
    """Tiers with a cluster whose facts are partial."""
    estimated: Collection[int]
    """Tiers with a cluster that was not watched all the hour: its demand is from series."""
    mark: str
    """A digest of the entitlements."""
    watch: str
    """A digest of the clusters that were watched, and of those whose demand is behind."""
    facts: bool = True
    """Whether any cluster has facts; else nothing is judged."""

    def state(self, tier: int) -> str:
        """Return how much is known of a tier: the value of a HourState."""
        if not self.facts or tier in self.missing:
            return HourState.MISSING.value
        return (HourState.PARTIAL if tier in self.partial else HourState.COMPLETE).value

    def edges(self, hour: Window) -> list[float]:
        """Return when slots begin, and last the hour's end: where an entitlement changes one
        ends.
        """
        start, end = hour.start_seconds, hour.end_seconds
        # Facts have two halves an hour: a slot must not reach across both.
        return sorted({start, (start + end) / 2, end, *self.changes})


def read_hour(hour: Window) -> HourInputs:
    """Return what is known of an hour. At most nineteen queries."""
    collected = _collected(hour)
    (sources,) = demand_sources([hour.start])
    missing, partial, estimated = _not_known(hour, collected, sources)
    clusters = list(Cluster.objects.order_by("pk").values_list("pk", flat=True))
    of_hour = Q(cluster__in=clusters, hour=hour.start)
    entitled = read_entitlements(hour)
    return HourInputs(
        capacity=_capacity(of_hour),
        held=_held_by_team(of_hour),
        entitlements=entitled.entitlements,
        changes=entitled.changes,
        missing=missing,
        partial=partial,
        estimated=estimated,
        mark=entitled.mark,
        watch=sources.mark,
        facts=any(one.has_facts for one in collected.values()),
    )


def _first_half(column: str) -> Coalesce:
    """Return what of a row lies in the first half; where that was not kept, half of it does."""
    return Coalesce(f"{column}_first", F(column) / 2)


def _capacity(of_hour: Q) -> dict[int, HourHalves]:
    """Return the capacity of each tier without what planned outages took. Two queries."""
    rows = TierHour.objects.filter(of_hour).order_by().values_list("tier_id")
    sums = rows.annotate(in_all=WholeSum("capacity"), in_first=SmallSum(_first_half("capacity")))
    found = {tier: HourHalves(whole, first) for tier, whole, first in sums}
    # Capacity that is away as announced cannot be given out: it is in no fair share, and not unmet.
    away = OutageHour.objects.filter(of_hour).order_by().values_list("tier_id")
    parts = away.annotate(
        in_all=WholeSum(F("unhealthy") + F("unallocated")), in_first=WholeSum("first")
    )
    for tier, whole, first in parts:
        there = found.get(tier, HourHalves(0, 0))
        left = max(0, there.whole - whole)
        # Halves are rounded on their own: neither may fall below what the hour has left.
        found[tier] = HourHalves(left, min(left, max(0, there.first - first)))
    return found


def _held_by_team(of_hour: Q) -> dict[int, TeamAllocations]:
    rows = TeamHour.objects.filter(of_hour).order_by().values_list("tier_id", "team_id")
    amounts = {"in_all": F("allocated"), "in_first": _first_half("allocated"), "in_idle": F("idle")}
    if connection.vendor == "postgresql":
        # It sums by hashes; SQLite takes longer to sort the rows than to hand over each.
        amounts = {name: SmallSum(amount) for name, amount in amounts.items()}
    columns = zip(*rows.annotate(**amounts), strict=True)
    table = np.array(list(columns), dtype=np.int64).reshape(5, -1)
    found = {}
    for tier in np.unique(table[0]).tolist():
        teams, *held = table[1:, table[0] == tier]
        order = np.argsort(teams, kind="stable")
        each, starts = np.unique(teams[order], return_index=True)
        sums = [np.add.reduceat(amount[order], starts) for amount in held]
        found[tier] = TeamAllocations(each, *sums)
    return found


class _Collected(NamedTuple):
    """How the collection of a cluster's hour ended."""

    state: str
    slots_without_pods: int

    @property
    def has_facts(self) -> bool:
        return self.state in HAS_FACTS


def _collected(hour: Window) -> dict[int, _Collected]:
    """Return how the hour's collection ended, by cluster; a withheld one has no facts."""
    windows = CollectionWindow.objects.filter(hour=hour.start).order_by("pk")
    rows = windows.values_list("cluster_id", "state", "slots_without_pods", "withheld")
    return {
        cluster: _Collected(_FAILED if withheld else state, slots)
        for cluster, state, slots, withheld in rows
    }


def _not_known(
    hour: Window, collected: Mapping[int, _Collected], sources: DemandSources
) -> tuple[set[int], set[int], set[int]]:
    """Return the tiers that are missing, with partial facts, and with estimated demand."""
    of_clusters = _tiers_of(collected, hour)
    of_claims = unknown_tiers(hour, [c for c, one in collected.items() if one.has_facts])

    def tiers(clusters: Iterable[int]) -> set[int]:
        return {tier for cluster in clusters for tier in of_clusters[cluster]}

    # A watch tells all pods itself; only without one do gaps of the series leave demand unknown.
    unwatched = {c for c in collected if c not in sources.watched}
    nobody_tells = {c for c in unwatched if collected[c].slots_without_pods} | sources.behind
    dark = {c for c, one in collected.items() if not one.has_facts or c in nobody_tells}
    partial = CollectionState.PARTIAL.value
    # What claims were allocated before the watch is in no series.
    missing = tiers(dark) | of_claims.missing | of_claims.partial
    return (
        missing,
        tiers(c for c, one in collected.items() if one.state == partial),
        tiers(unwatched) | missing,
    )


def _tiers_of(clusters: Collection[int], hour: Window) -> Mapping[int, set[int]]:
    """Return the tiers that each cluster has about an hour. At most three queries.

    One that nothing is known of for longer has what it had last: only clusters of the catalog
    have their hours collected, so that it is out, not gone.
    """
    # UTC dates may be one off the local ones, which does not matter within a week.
    first, last = (hour.start - _NEAR).date(), (hour.end + _NEAR).date()
    found: dict[int, set[int]] = defaultdict(set)

    def add(rows: Q) -> None:
        days = TierDay.objects.filter(rows).order_by()
        for cluster, tier in days.values_list("cluster_id", "tier_id").distinct():
            found[cluster].add(tier)

    add(Q(day__gte=first, day__lte=last))
    dark = [cluster for cluster in clusters if cluster not in found]
    if dark:
        before = TierDay.objects.filter(cluster__in=dark, day__lt=first).order_by()
        newest: dict[int, date] = dict(before.values_list("cluster_id").annotate(Max("day")))
        # Matches nothing, so that conditions can be added to it one by one.
        rows = Q(pk__in=())
        for cluster, day in sorted(newest.items()):
            rows |= Q(cluster=cluster, day=day)
        if newest:
            add(rows)
    return found


def collections_digests(hours: Q) -> dict[datetime, str]:
    """Return a digest of the state of collections for each hour that is to be computed.

    Those are the hours that any cluster has facts of, or failed to give: then it is to be said
    that they are missing. `hours` is a condition on `hour`. The digest changes when a cluster's
    hour is collected, or collected again; attempts that fail, however many, leave it as it is.
    One query.
    """
    rows = CollectionWindow.objects.filter(hours)
    lines: dict[datetime, list[str]] = defaultdict(list)
    tried = set()
    columns = ("hour", "cluster_id", "state", "withheld", "collected_at")
    ordered = rows.order_by("hour", "cluster_id")
    for hour, cluster, state, withheld, at in ordered.values_list(*columns):
        with_facts = state in HAS_FACTS and not withheld
        # A failed hour pauses until the next attempt.
        lines[hour].append(f"{cluster} {state if with_facts else _FAILED} {at}")
        if with_facts or withheld or state == _FAILED:
            # Other hours are not collected yet: they are no hours that are missing.
            tried.add(hour)
    return {hour: digest(lines[hour]) for hour in tried}
