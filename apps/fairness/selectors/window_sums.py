"""Sums over a window by tier and team: whole days, the rest of hours, and stored blobs."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from django.db.models import Count, Max, Q, QuerySet, Sum
from msgspec import Struct, field

from apps.clusters.domain.window import Window, hour_floor
from apps.clusters.selectors import report, tier_catalog
from apps.fairness.domain.hour_state import HourState
from apps.fairness.domain.team_table import (
    TABLE_COLUMNS,
    TeamTable,
    decode_table,
    sum_tables,
    table_of,
)
from apps.fairness.models import (
    FairnessDay,
    TeamFairnessDay,
    TeamFairnessHour,
    TierFairnessDay,
    TierFairnessHour,
    TierTeamBlob,
)
from apps.fairness.selectors.rows import HourCounts
from apps.usage.domain.amounts import hours
from apps.usage.selectors import WindowCover, day_runs, in_days, in_hours, rest_of
from gpuportal.database_functions import OneOfTimes
from gpuportal.queries import BatchQuery, read_once

_HOUR = timedelta(hours=1)
_MOST_NAMED = 1000
"""Hours that are named one by one, about six weeks of them; beyond that spans are read."""
_KNOWN = ~Q(state=HourState.MISSING.value)
HOUR_COUNTS = {
    "hours": Count("pk", filter=_KNOWN),
    "hours_missing": Count("pk", filter=~_KNOWN),
    "hours_partial": Count("pk", filter=Q(state=HourState.PARTIAL.value)),
    "hours_watched": Count("pk", filter=_KNOWN & Q(watched=True)),
}
"""Counts that rows of days keep: how many hours they sum, and how good these are."""
_WEEK_DAYS = 7
_Day = tuple[date, datetime, datetime]
_Span = tuple[datetime, datetime]


def tier_names(names: Collection[str] = ()) -> dict[int, str]:
    """Return id → name of the tiers of these names, of all where none is given. One query."""
    return {one.pk: one.name for one in tier_catalog().tiers if not names or one.name in names}


class TeamSums(Struct):
    """Nano-GPU-hours of a team in a tier."""

    entitlement: int = 0
    demand: int = 0
    fair_share: int = 0
    allocated: int = 0
    borrowed: int = 0
    lent: int = 0
    denied: int = 0
    from_pool: int = 0
    overdrawn: int = 0
    idle: int = 0

    def gpu_hours(self) -> dict[str, Any]:
        """Return all but `idle` in GPU-hours, by the names that rows have for them."""
        return {f"{name}_gpu_hours": hours(getattr(self, name)) for name in TEAM_COLUMNS[:-1]}


class TierSums(Struct):
    """Nano-GPU-hours of a tier, and how many hours they are of."""

    capacity: int = 0
    from_pool: int = 0
    overdrawn: int = 0
    borrowable: int = 0
    known: int = 0
    missing: int = 0
    partial: int = 0
    watched: int = 0

    def hours(self) -> HourCounts:
        return HourCounts(self.known, self.missing, self.partial, self.watched)

    def gpu_hours(self) -> dict[str, Any]:
        """Return the amounts in GPU-hours, by the names that rows have for them."""
        return {f"{name}_gpu_hours": hours(getattr(self, name)) for name in _TIER_AMOUNTS}


TEAM_COLUMNS = TeamSums.__struct_fields__
_TIER_AMOUNTS = TierSums.__struct_fields__[:4]


class WindowPlan(Struct, frozen=True):
    """How a window is read: conditions on `day` and on `hour`; None where there is nothing.

    Those of a `team` name each day and hour. The index is by tier, time and team, so its rows are
    found one by one; a span would be read whole, with the rows of a thousand other teams.
    """

    days: Q | None
    hours: Q | None
    team_days: Q | None
    team_hours: Q | None


def cover_of(window: Window) -> WindowCover:
    """Return which days and what else make up a window. One query."""
    rows = [
        (one.day, one.start, one.end)
        for one in fairness_days(window)
        if one.rolled and one.start >= window.start and one.end <= window.end
    ]
    return WindowCover.of(window, rows)


@read_once
def fairness_days(window: Window) -> Sequence[FairnessDay]:
    """Return the days that reach into the window, in order. One query."""
    alias = FairnessDay.objects.db
    return [FairnessDay.from_db(alias, _DAY_COLUMNS, row) for row in FAIRNESS_DAYS.rows(window)]


# Without `held`, which has a number of every team and is not used here.
_DAY_COLUMNS = ("id", "day", "start", "end", "rolled", "pruned")


def _days_of(window: Window) -> QuerySet[FairnessDay, Any]:
    days = FairnessDay.objects.filter(end__gt=window.start, start__lt=window.end)
    return days.order_by("day").values_list(*_DAY_COLUMNS)


FAIRNESS_DAYS = BatchQuery(_days_of, is_pure=True)


def plan_of(window: Window) -> WindowPlan:
    """Return how to read a window. Two queries, at most."""
    return plan_of_cover(cover_of(window))


def plan_of_cover(cover: WindowCover) -> WindowPlan:
    """Return how to read what a window is made of. One query, at most."""
    days = [day for day, _, _ in cover.days]
    hours: list[datetime] = []
    if cover.gaps:
        zone = report().zone
        hours = [hour for start, end in cover.gaps for hour in _hours_between(start, end, zone)]
    by_span = _any_of(in_hours(cover.gaps))
    return WindowPlan(
        days=_any_of(in_days(day_runs(days))),
        hours=by_span,
        team_days=Q(day__in=days) if days else None,
        # Databases plan long lists slowly.
        team_hours=Q(OneOfTimes("hour", hours)) if 0 < len(hours) <= _MOST_NAMED else by_span,
    )


def _hours_between(start: datetime, end: datetime, zone: ZoneInfo) -> Iterator[datetime]:
    """Yield the hours of facts that begin from `start` on, before `end`.

    They are counted from local midnight: in a zone at :30 they begin at half past.
    """
    hour = hour_floor(start, zone)
    # A gap that begins within an hour: that hour is not whole in it.
    if hour < start:
        hour += _HOUR
    while hour < end:
        yield hour
        hour += _HOUR


def _any_of(parts: Iterable[Q]) -> Q | None:
    every = list(parts)
    return reduce(or_, every) if every else None


def team_sums(
    parts: WindowPlan,
    tiers: Collection[int],
    *,
    team: int | None = None,
    columns: Sequence[str] = TEAM_COLUMNS,
) -> dict[int, dict[int, TeamSums]]:
    """Return the sums of each tier and team, or of one team alone. Two queries, at most.

    What is not of `columns` stays 0: half the time goes into adding up.
    """
    found: dict[int, dict[int, TeamSums]] = {tier: {} for tier in tiers}
    sums = {f"sum_{column}": Sum(column) for column in columns}
    of_team = Q() if team is None else Q(team=team)
    sources = ((parts.days, TeamFairnessDay.objects), (parts.hours, TeamFairnessHour.objects))
    if team is not None:
        sources = (
            (parts.team_days, TeamFairnessDay.objects),
            (parts.team_hours, TeamFairnessHour.objects),
        )
    for where, manager in sources:
        if where is None:
            continue
        rows: QuerySet[Any] = manager.filter(where, of_team, tier__in=tiers).order_by()
        keyed = rows.values_list("tier_id", "team_id")
        for tier, who, *amounts in keyed.annotate(**sums):
            own = found[tier].setdefault(who, TeamSums())
            for name, amount in zip(columns, amounts, strict=True):
                setattr(own, name, getattr(own, name) + int(amount))
    return found


def tier_sums(parts: WindowPlan, tiers: Collection[int]) -> dict[int, TierSums]:
    """Return the sums of each tier that has any row. Two queries, at most."""
    found: dict[int, TierSums] = defaultdict(TierSums)
    sums = {f"sum_{column}": Sum(column) for column in _TIER_AMOUNTS}
    counts: tuple[dict[str, Any], ...] = (
        {f"in_{name}": Sum(name) for name in HOUR_COUNTS},
        {f"in_{name}": count for name, count in HOUR_COUNTS.items()},
    )
    sources = ((parts.days, TierFairnessDay.objects), (parts.hours, TierFairnessHour.objects))
    for (where, manager), counted in zip(sources, counts, strict=True):
        if where is None:
            continue
        rows: QuerySet[Any] = manager.filter(where, tier__in=tiers).order_by()
        for tier, *values in rows.values_list("tier_id").annotate(**sums, **counted):
            own = found[tier]
            # The fields of TierSums are the amounts, then the counts, in the order of the query.
            for amount, value in zip(TierSums.__struct_fields__, values, strict=True):
                setattr(own, amount, getattr(own, amount) + int(value))
    return dict(found)


class BlobVersion(NamedTuple):
    """The blobs of all tiers of a span: the newest key, and how many tiers have one."""

    span: str
    start: datetime
    newest: int
    tiers: int


class _ChosenBlobs(Struct):
    """The blobs that together are as much of a window as they can be, and what they leave of it."""

    versions: set[BlobVersion] = field(default_factory=set)
    days: list[_Day] = field(default_factory=list)
    gaps: list[_Span] = field(default_factory=list)


def blob_sums(
    window: Window, cover: WindowCover, tiers: Collection[int]
) -> tuple[dict[int, TeamTable], WindowPlan]:
    """Return the sums of the teams of each tier that has any, and how else the window is read.

    What is in no blob is read by rows: days that were summed before there were blobs, and hours
    of some days ago where a window begins or ends within one. Seven queries, at most.
    """
    chosen = _choose_blobs(window, cover)
    tables: dict[int, list[TeamTable]] = defaultdict(list)
    hours = frozenset(one for one in chosen.versions if one.span == TierTeamBlob.HOUR)
    # Apart: windows of other lengths end with the same hours, and there is one more each hour.
    for versions in (chosen.versions - hours, hours):
        for tier, table in cached_sums(frozenset(versions), tuple(tiers)).items():
            tables[tier].append(table)
    rest = plan_of_cover(WindowCover(chosen.days, chosen.gaps))
    for tier, teams in team_sums(rest, tiers, columns=TABLE_COLUMNS).items():
        rows = [
            (team, *(getattr(own, name) for name in TABLE_COLUMNS)) for team, own in teams.items()
        ]
        if rows:
            tables[tier].append(table_of(rows))
    return {tier: sum_tables(found) for tier, found in tables.items()}, plan_of_cover(cover)


_SumsOfTiers = dict[int, TeamTable]
CACHED_SUMS: dict[tuple[str, frozenset[BlobVersion], tuple[int, ...]], _SumsOfTiers] = {}
"""Sums by the blobs they add up. Clear it with the database: a new one uses the same keys."""
_MOST_CACHED = 12
"""How many sums are cached. One takes a megabyte with a thousand teams on twenty tiers."""


def cached_sums(versions: frozenset[BlobVersion], tiers: tuple[int, ...]) -> _SumsOfTiers:
    """Return the sums of these blobs by tier, from the cache if they were read before.

    Sums never get stale: a blob does not change, a new one with a new key replaces it.
    """
    if not versions:
        return {}
    if len(tiers) == 1:
        # A small part, read alone. It is not cached: how many blobs it should have is unknown.
        return _sums_of_blobs(versions, Q(tier__in=tiers))[0]
    key = (TierTeamBlob.objects.db, versions, tiers)
    known = CACHED_SUMS.get(key)
    if known is not None:
        return known
    found, read = _sums_of_blobs(versions)
    found = {tier: found[tier] for tier in tiers if tier in found}
    # Not all were read: a replica is behind, or a blob was replaced meanwhile. Do not cache that.
    if read == versions:
        if len(CACHED_SUMS) >= _MOST_CACHED:
            CACHED_SUMS.clear()
        CACHED_SUMS[key] = found
    return found


def _sums_of_blobs(
    versions: Collection[BlobVersion], of_tiers: Q | None = None
) -> tuple[_SumsOfTiers, set[BlobVersion]]:
    """Return the sums of blobs by tier, and the versions of what was read. One query, or none."""
    starts: dict[str, list[datetime]] = defaultdict(list)
    for one in versions:
        starts[one.span].append(one.start)
    where = Q()
    for span, own in starts.items():
        where |= Q(span=span, start__in=own)
    tables: dict[int, list[TeamTable]] = defaultdict(list)
    keys: dict[tuple[str, datetime], list[int]] = defaultdict(list)
    # An empty condition would read every blob there is.
    if where:
        rows = TierTeamBlob.objects.filter(where, of_tiers or Q()).order_by()
        # A year of blobs is many megabytes: they are added up as they come.
        columns = rows.values_list("pk", "span", "start", "tier_id", "teams")
        for pk, span, start, tier, stored in columns.iterator(chunk_size=200):
            keys[span, start].append(pk)
            tables[tier].append(decode_table(stored))
    sums = {tier: sum_tables(found) for tier, found in tables.items()}
    return sums, {BlobVersion(*at, max(own), len(own)) for at, own in keys.items()}


def _blobs_of(window: Window) -> QuerySet[TierTeamBlob, tuple[str, datetime, int, int]]:
    blobs = TierTeamBlob.objects.filter(start__gte=window.start, start__lt=window.end).order_by()
    return blobs.values_list("span", "start").annotate(newest=Max("pk"), tiers=Count("pk"))


FAIRNESS_BLOBS = BatchQuery(_blobs_of, is_pure=True)


def _choose_blobs(window: Window, cover: WindowCover) -> _ChosenBlobs:
    there: dict[str, dict[datetime, BlobVersion]] = defaultdict(dict)
    for row in FAIRNESS_BLOBS.rows(window):
        one = BlobVersion(*row)
        there[one.span][one.start] = one
    chosen = _ChosenBlobs()
    weeks, single = there[TierTeamBlob.WEEK], there[TierTeamBlob.DAY]
    for days in _weeks(cover.days):
        start = days[0][1]
        # A week at the window's edge is not whole in it, though its blob exists.
        if len(days) == _WEEK_DAYS and start in weeks:
            chosen.versions.add(weeks[start])
            continue
        for day in days:
            if day[1] in single:
                chosen.versions.add(single[day[1]])
            else:
                chosen.days.append(day)
    for gap in cover.gaps:
        _add_blob_hours(chosen, gap, there[TierTeamBlob.HOUR])
    return chosen


def _weeks(days: Sequence[_Day]) -> Iterator[list[_Day]]:
    """Yield the days of each week, from Monday on."""
    by_week: dict[date, list[_Day]] = defaultdict(list)
    for day in days:
        by_week[day[0] - timedelta(days=day[0].weekday())].append(day)
    yield from by_week.values()


def _add_blob_hours(
    chosen: _ChosenBlobs, gap: _Span, hours: Mapping[datetime, BlobVersion]
) -> None:
    own = [(hour, hour + _HOUR) for hour in sorted(hours) if gap[0] <= hour < gap[1]]
    chosen.versions |= {hours[start] for start, _ in own}
    chosen.gaps += rest_of(Window(*gap), own)
