"""Sums of waiting straight from the intervals, for days that are not rolled and for rolling
them.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from django.db.models import F, Q

from apps.clusters.domain.calendar import day_window, days_in
from apps.clusters.domain.window import Window
from apps.clusters.models.sql import UnixSeconds
from apps.clusters.selectors import TeamSpan
from apps.pending.domain.history import COLUMN, DayPart, DayParts, amount
from apps.pending.domain.queues.demand import CLUSTER_QUEUE
from apps.pending.models import CauseInterval, Episode
from apps.pending.selectors.context import Context
from apps.pending.selectors.known import known_until
from apps.pending.selectors.rows import QueueTimeSums

_SPACE = "workload__namespace_id"


class SumKey(NamedTuple):
    """What sums are kept by; `team_id` is whose the namespace was at the time."""

    cluster_id: int
    day: date
    namespace_id: int
    team_id: int
    tier_id: int | None
    cause: str


Where = Callable[[str], Q]
"""Returns a condition on episodes for a path to them, as `episode__` or empty."""


def interval_sums(
    window: Window,
    where: Where,
    *,
    now: datetime,
    zone: ZoneInfo,
    context: Context | None = None,
) -> dict[SumKey, QueueTimeSums]:
    """Return what waited within the window. Seven queries, four with a context of the window.

    What still waits has waited until `now`, but no longer than is known (`known_until`). Each part
    of an interval within a day and under one team is rounded once. `began` and `ended` count
    episodes whose start or end lies in the window, by their last cause; what counts as nothing is
    not counted,
    and of a queue it is not known how much began or ended.
    """
    stretches = _stretches(window, context or Context(window), zone)
    sums: dict[SumKey, QueueTimeSums] = defaultdict(QueueTimeSums)
    _add_intervals(sums, window, where, stretches, now)
    _add_episodes(sums, window, where, stretches)
    return dict(sums)


def _stretches(window: Window, context: Context, zone: ZoneInfo) -> dict[int, DayParts]:
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
    where: Where,
    stretches: Mapping[int, DayParts],
    now: datetime,
) -> None:
    until = now.timestamp()
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
        for stretch, seconds in stretches[space].parts(start, end):
            key = SumKey(cluster, stretch.day, space, stretch.team_id, tier, cause)
            own, column = sums[key], COLUMN[counts]
            setattr(own, column, getattr(own, column) + amount(counted, seconds))


def _add_episodes(
    sums: dict[SumKey, QueueTimeSums],
    window: Window,
    where: Where,
    stretches: Mapping[int, DayParts],
) -> None:
    counted = Episode.objects.filter(where(""), counts__in=COLUMN).exclude(kind=CLUSTER_QUEUE)
    columns = ("cluster_id", _SPACE, "tier_id", "cause")
    for name, column in (("began", "since"), ("ended", "until")):
        given = {f"{column}__gte": window.start, f"{column}__lt": window.end}
        rows = counted.filter(**given).annotate(at=UnixSeconds(F(column)))
        for cluster, space, tier, cause, at in rows.order_by("pk").values_list(*columns, "at"):
            stretch = stretches[space].at(at)
            if stretch is not None:
                own = sums[SumKey(cluster, stretch.day, space, stretch.team_id, tier, cause)]
                setattr(own, name, getattr(own, name) + 1)
