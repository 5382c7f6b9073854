"""What waited over time: from sums of whole days, and from intervals for the rest."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
from itertools import starmap
from zoneinfo import ZoneInfo

from django.db.models import Q

from apps.accounts.permissions import Visibility
from apps.accounts.selectors import team_names
from apps.clusters.domain.calendar import day_of, day_start, day_window, days_in
from apps.clusters.domain.tiers import NO_TEAM, UNASSIGNED, UNDETERMINED
from apps.clusters.domain.window import Window
from apps.clusters.models import Tier
from apps.clusters.selectors import report
from apps.pending.models import PendingDay, RefreshState
from apps.pending.selectors.context import Context, Space
from apps.pending.selectors.history.interval_sums import SumKey, interval_sums
from apps.pending.selectors.rows import HistoryRow, PendingFilters, PendingGrouping, QueueTimeSums
from apps.pending.selectors.scope import EVERYTHING_WAITING, tier_condition
from apps.usage.selectors import rest_of

_NOWHERE = Space("", "", active=False)
_COLUMNS = ("waited", "suppressed", "starting", "began", "ended")


def pending_history(
    window: Window,
    *,
    now: datetime,
    visibility: Visibility,
    by: Sequence[PendingGrouping] = (PendingGrouping.DAY, PendingGrouping.CAUSE),
    filters: PendingFilters = EVERYTHING_WAITING,
    context: Context | None = None,
) -> list[HistoryRow]:
    """Return what waited, was suppressed and started within the window, by the groups asked for.

    By day, then the groups' names. A team is whose the namespace was at the time. GPU sums of all
    teams, which everybody may see; where namespaces are grouped or named, those of teams that the
    reader sees alone. Of the filters all but `kind` count: sums of days do not have it. At most 14
    queries, 11 with a context of the window, however long that is.
    """
    zone = report().zone
    parts = _parts(window, zone)
    context = context or Context(window)
    names = _Names.load(context)
    where = partial(_condition, filters)
    sums = _rolled(parts.days, where("")) if parts.days else {}
    for live in parts.live:
        for key, own in interval_sums(
            live, where, now=min(now, live.end), zone=zone, context=context
        ).items():
            sums.setdefault(key, QueueTimeSums()).add(own)
    kept = {key: own for key, own in sums.items() if names.has(key, by, filters, visibility)}
    return _grouped(kept, by, names)


@dataclass(frozen=True, slots=True)
class _Parts:
    """Which whole days of a window are read from sums, and what of it from intervals."""

    days: tuple[date, ...]
    live: tuple[Window, ...]


def _parts(window: Window, zone: ZoneInfo) -> _Parts:
    """Return how to read a window; days from the first that any cluster has not summed are live."""
    rolled = list(RefreshState.objects.order_by("pk").values_list("rolled_to", flat=True))
    known = [at for at in rolled if at is not None]
    if not known or len(known) < len(rolled):
        return _Parts((), (window,))
    edge = day_start(day_of(min(known), zone), zone)
    days = [
        day
        for day in days_in(window, zone)
        if (whole := day_window(day, zone)).start >= window.start
        and whole.end <= min(edge, window.end)
    ]
    if not days:
        return _Parts((), (window,))
    first, last = day_start(days[0], zone), day_window(days[-1], zone).end
    return _Parts(tuple(days), tuple(starmap(Window, rest_of(window, [(first, last)]))))


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


@dataclass(frozen=True, slots=True)
class _Names:
    """Names of what sums are kept by. Two queries."""

    spaces: Mapping[int, Space]
    tiers: Mapping[int, str]
    teams: Mapping[int, str]

    @classmethod
    def load(cls, context: Context) -> "_Names":
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
    sums: Mapping[SumKey, QueueTimeSums], by: Iterable[PendingGrouping], names: _Names
) -> list[HistoryRow]:
    groups = [one for one in by if one is not PendingGrouping.DAY]
    with_days = PendingGrouping.DAY in by
    found: dict[tuple[date | None, tuple[str, ...]], QueueTimeSums] = defaultdict(QueueTimeSums)
    for key, own in sums.items():
        day = key.day if with_days else None
        found[day, tuple(names.group(key, group) for group in groups)].add(own)
    ordered = sorted(found, key=lambda one: (one[0] or date.min, one[1]))
    return [
        HistoryRow(
            day, dict(zip([g.value for g in groups], values, strict=True)), found[day, values]
        )
        for day, values in ordered
    ]
