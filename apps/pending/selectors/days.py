"""Pending history by day: from sums of whole days, and from intervals for the rest."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from functools import partial
from itertools import starmap
from typing import NamedTuple
from zoneinfo import ZoneInfo

from django.db.models import F, Q
from msgspec import Struct

from apps.accounts.permissions import Visibility
from apps.accounts.selectors import team_names
from apps.clusters.domain.tiers import NO_TEAM, UNASSIGNED, UNDETERMINED
from apps.clusters.domain.window import Window, day_of, day_start, day_window, days_in
from apps.clusters.models import Tier
from apps.clusters.selectors import TeamSpan, report
from apps.pending.domain.day_sums import COLUMN, DayPart, DayParts, amount
from apps.pending.domain.queues.unrecorded import CLUSTER_QUEUE
from apps.pending.models import CauseInterval, Episode, PendingDay, RefreshState
from apps.pending.selectors.freshness import known_until
from apps.pending.selectors.rows import HistoryRow, PendingFilters, PendingGrouping, QueueTimeSums
from apps.pending.selectors.scope import (
    ALL_PENDING,
    ClusterNamespace,
    NamespaceContext,
    tier_condition,
)
from apps.usage.selectors import WindowCover
from gpuportal.database_functions import UnixSeconds

_SPACE = "workload__namespace_id"
EpisodeCondition = Callable[[str], Q]
"""Returns a condition on episodes for a path to them, as `episode__` or empty."""
_NOWHERE = ClusterNamespace("", "", active=False)
_COLUMNS = ("waited", "suppressed", "starting", "began", "ended")


class SumKey(NamedTuple):
    """What sums are kept by; `team_id` is whose the namespace was at the time."""

    cluster_id: int
    day: date
    namespace_id: int
    team_id: int
    tier_id: int | None
    cause: str


def interval_sums(
    window: Window,
    where: EpisodeCondition,
    *,
    now: datetime,
    zone: ZoneInfo,
    context: NamespaceContext | None = None,
) -> dict[SumKey, QueueTimeSums]:
    """Return the work that was pending within the window. Seven queries, four with a context of the
    window.

    Work that is still pending counts until `now`, but no longer than is known (`known_until`). Each
    part of an interval within a day and under one team is rounded once. `began` and `ended` count
    episodes whose start or end lies in the window, by their last cause. Episodes that count as
    nothing are left out, and of a queue the numbers begun and ended are not known.
    """
    parts = _day_parts(window, context or NamespaceContext(window), zone)
    sums: dict[SumKey, QueueTimeSums] = defaultdict(QueueTimeSums)
    _add_intervals(sums, window, where, parts, now)
    _add_episodes(sums, window, where, parts)
    return dict(sums)


def _day_parts(window: Window, context: NamespaceContext, zone: ZoneInfo) -> dict[int, DayParts]:
    days = [(day, day_window(day, zone)) for day in days_in(window, zone)]
    by_name = {name: DayParts(_cut(window, days, spans)) for name, spans in context.spans.items()}
    return {pk: by_name[space.name] for pk, space in context.spaces.items()}


def _cut(
    window: Window, days: list[tuple[date, Window]], spans: tuple[TeamSpan, ...]
) -> list[DayPart]:
    found = []
    for day, whole in days:
        for span in spans:
            start = max(window.start, whole.start, span.start)
            end = min(window.end, whole.end, span.end)
            if end > start:
                found.append(DayPart(start.timestamp(), end.timestamp(), day, span.team_id))
    return found


def _add_intervals(
    sums: dict[SumKey, QueueTimeSums],
    window: Window,
    where: EpisodeCondition,
    parts: Mapping[int, DayParts],
    now: datetime,
) -> None:
    until = now.timestamp()
    # Beyond what is known, open intervals may be over already.
    known = {cluster: min(until, at.timestamp()) for cluster, at in known_until().items()}
    in_time = Q(end__isnull=True) | Q(end__gt=window.start)
    rows = CauseInterval.objects.filter(
        in_time, where("episode__"), start__lt=window.end, counts__in=COLUMN
    )
    columns = (
        *("counts", "counted", "cause", "episode__cluster_id", "episode__tier_id"),
        *(f"episode__{_SPACE}", "from_seconds", "to_seconds"),
    )
    timed = rows.annotate(from_seconds=UnixSeconds("start"), to_seconds=UnixSeconds("end"))
    for row in timed.order_by("pk").values_list(*columns).iterator():
        counts, counted, cause, cluster, tier, space, start, end = row
        end = known.get(cluster, until) if end is None else end
        for part, seconds in parts[space].parts(start, end):
            key = SumKey(cluster, part.day, space, part.team_id, tier, cause)
            own, column = sums[key], COLUMN[counts]
            setattr(own, column, getattr(own, column) + amount(counted, seconds))


def _add_episodes(
    sums: dict[SumKey, QueueTimeSums],
    window: Window,
    where: EpisodeCondition,
    parts: Mapping[int, DayParts],
) -> None:
    counted = Episode.objects.filter(where(""), counts__in=COLUMN).exclude(kind=CLUSTER_QUEUE)
    columns = ("cluster_id", _SPACE, "tier_id", "cause")
    for name, column in (("began", "since"), ("ended", "until")):
        given = {f"{column}__gte": window.start, f"{column}__lt": window.end}
        rows = counted.filter(**given).annotate(at=UnixSeconds(F(column)))
        for cluster, space, tier, cause, at in rows.order_by("pk").values_list(*columns, "at"):
            part = parts[space].at(at)
            if part is not None:
                own = sums[SumKey(cluster, part.day, space, part.team_id, tier, cause)]
                setattr(own, name, getattr(own, name) + 1)


def pending_history(
    window: Window,
    *,
    now: datetime,
    visibility: Visibility,
    by: Sequence[PendingGrouping] = (PendingGrouping.DAY, PendingGrouping.CAUSE),
    filters: PendingFilters = ALL_PENDING,
    context: NamespaceContext | None = None,
) -> list[HistoryRow]:
    """Return the work pending, blocked and started within the window, by the requested groups.

    Ordered by day, then group names. A team is the namespace's team at that time. GPU sums of teams
    are open to everybody; grouped or filtered by namespace, only teams that the reader sees count.
    The filter `kind` is ignored: sums of days do not keep it. At most 14 queries, 11 with a context
    of the window, however long that is.
    """
    zone = report().zone
    cover = _cover(window, zone)
    context = context or NamespaceContext(window)
    names = _SumNames.load(context)
    where = partial(_condition, filters)
    sums = _rolled([day for day, _, _ in cover.days], where("")) if cover.days else {}
    for live in starmap(Window, cover.gaps):
        for key, own in interval_sums(
            live, where, now=min(now, live.end), zone=zone, context=context
        ).items():
            sums.setdefault(key, QueueTimeSums()).add(own)
    # Afterwards: sums of days have no names, and whose a namespace was differs by day.
    kept = {key: own for key, own in sums.items() if names.has(key, by, filters, visibility)}
    return _grouped(kept, by, names, zone)


def _cover(window: Window, zone: ZoneInfo) -> WindowCover:
    """Return which days of a window are summed; from the first that a cluster lacks on none is."""
    rolled = list(RefreshState.objects.order_by("pk").values_list("rolled_to", flat=True))
    known = [at for at in rolled if at is not None]
    # A cluster that was never summed makes every sum of a day too small.
    if not known or len(known) < len(rolled):
        return WindowCover.of(window, ())
    # The day of the mark itself may have more to come.
    edge = day_start(day_of(min(known), zone), zone)
    days = [
        (day, whole.start, whole.end)
        for day in days_in(window, zone)
        if (whole := day_window(day, zone)).start >= window.start
        and whole.end <= min(edge, window.end)
    ]
    return WindowCover.of(window, days)


def _condition(filters: PendingFilters, path: str) -> Q:
    """Return what sums of days and episodes must meet; causes and teams are looked at later."""
    where = tier_condition(filters.tier, path)
    if filters.cluster:
        where &= Q(**{f"{path}cluster__name__in": filters.cluster})
    return where


def _rolled(days: Sequence[date], where: Q) -> dict[SumKey, QueueTimeSums]:
    rows = PendingDay.objects.filter(where, day__gte=days[0], day__lte=days[-1]).order_by("pk")
    keys = ("cluster_id", "day", "namespace_id", "team_id", "tier_id", "cause")
    found: dict[SumKey, QueueTimeSums] = {}
    for cluster, day, space, team, tier, cause, *amounts in rows.values_list(*keys, *_COLUMNS):
        key = SumKey(cluster, day, space, team or 0, tier, cause)
        found.setdefault(key, QueueTimeSums()).add(QueueTimeSums(*amounts))
    return found


class _SumNames(Struct, frozen=True):
    """Names of what sums are kept by. Two queries."""

    spaces: Mapping[int, ClusterNamespace]
    tiers: Mapping[int, str]
    teams: Mapping[int, str]

    @classmethod
    def load(cls, context: NamespaceContext) -> "_SumNames":
        tiers = Tier.objects.order_by("pk").values_list("pk", "name")
        return cls(context.spaces, dict(tiers), team_names())

    def has(
        self,
        key: SumKey,
        by: Sequence[PendingGrouping],
        filters: PendingFilters,
        visibility: Visibility,
    ) -> bool:
        """Say whether filters and visibility let a sum through."""
        # Sums of teams are open to all; those of a namespace only to who sees its team.
        if (PendingGrouping.NAMESPACE in by or filters.namespace) and not visibility.sees(
            key.team_id
        ):
            return False
        asked = (
            (filters.cause, key.cause),
            (filters.team, self.team(key)),
            (filters.namespace, self.spaces.get(key.namespace_id, _NOWHERE).name),
        )
        return all(not names or name in names for names, name in asked)

    def team(self, key: SumKey) -> str:
        """Return whose a sum is; what has no namespace is of no team."""
        if not key.team_id and not self.spaces.get(key.namespace_id, _NOWHERE).name:
            return NO_TEAM
        return self.teams.get(key.team_id, UNASSIGNED)

    def group(self, key: SumKey, by: PendingGrouping) -> str:
        space = self.spaces.get(key.namespace_id, _NOWHERE)
        names = {
            PendingGrouping.CAUSE: key.cause,
            PendingGrouping.TIER: self.tiers.get(key.tier_id or 0, UNDETERMINED),
            PendingGrouping.TEAM: self.team(key),
            PendingGrouping.CLUSTER: space.cluster,
            PendingGrouping.NAMESPACE: space.name,
        }
        return names[by]


def _grouped(
    sums: Mapping[SumKey, QueueTimeSums],
    by: Iterable[PendingGrouping],
    names: _SumNames,
    zone: ZoneInfo,
) -> list[HistoryRow]:
    groups = [one for one in by if one is not PendingGrouping.DAY]
    with_days = PendingGrouping.DAY in by
    found: dict[tuple[date | None, tuple[str, ...]], QueueTimeSums] = defaultdict(QueueTimeSums)
    for key, own in sums.items():
        day = key.day if with_days else None
        found[day, tuple(names.group(key, group) for group in groups)].add(own)
    keys = [one.key for one in groups]
    rows = []
    for day, values in sorted(found, key=lambda one: (one[0] or date.min, one[1])):
        period = {PendingGrouping.DAY.key: day_start(day, zone).astimezone(zone)} if day else {}
        rows.append(HistoryRow(period | dict(zip(keys, values, strict=True)), found[day, values]))
    return rows
