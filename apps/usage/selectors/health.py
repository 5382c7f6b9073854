"""How complete the facts are: data health by hour, and what a window lacks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db.models import Count, Max, Min, Q

from apps.accounts.permissions import Visibility
from apps.clusters.domain.calendar import hour_floor, last_closed_hour
from apps.clusters.domain.columns import for_reader
from apps.clusters.domain.window import HOUR_SECONDS, Window
from apps.clusters.models import Cluster
from apps.clusters.selectors import report
from apps.usage.domain import cursors
from apps.usage.domain.collection import CollectionState
from apps.usage.domain.rows import CollectionRow, Filters, RowPage
from apps.usage.models import HAS_FACTS, CollectionWindow, TierHour

_HOUR = timedelta(seconds=HOUR_SECONDS)
_KIND = "collections"
_COLUMNS = (
    *("cluster__name", "hour", "state", "coverage_ratio", "samples", "attempts", "error"),
    *("findings", "warnings", "ledger_source", "scrape_interval_seconds"),
    *("activity_metric", "duration_seconds"),
)


def collection_page(
    window: Window | None,
    *,
    filters: Filters,
    states: Sequence[str],
    visibility: Visibility,
    cursor: str | None,
    page_size: int,
) -> RowPage[CollectionRow]:
    """Return hours of data health, newest first and then by cluster. One query.

    Of `filters` only `cluster` counts. `error` and `warnings` can name addresses and objects:
    they are only for who sees how the portal runs. Raises CursorRefused.
    """
    found = CollectionWindow.objects.all()
    if window is not None:
        found = found.filter(hour__gte=window.start, hour__lt=window.end)
    if filters.cluster:
        found = found.filter(cluster__name__in=filters.cluster)
    if states:
        found = found.filter(state__in=states)
    if cursor is not None:
        hour, cluster = cursors.decode(_KIND, cursor, (str, int))
        at = cursors.moment(hour)
        found = found.filter(Q(hour__lt=at) | Q(hour=at, cluster_id__gt=cluster))
    ordered = found.order_by("-hour", "cluster_id")
    rows = list(ordered.values_list("cluster_id", *_COLUMNS)[: page_size + 1])
    shown = rows[:page_size]
    last = shown[-1] if len(rows) > page_size else None
    return RowPage(
        rows=tuple(_collection(row[1:], visibility) for row in shown),
        next_cursor=cursors.encode(_KIND, (last[2].isoformat(), last[0])) if last else None,
    )


def _collection(row: Sequence[object], visibility: Visibility) -> CollectionRow:
    whole = CollectionRow(*row)  # type: ignore[arg-type]
    warnings = tuple(whole.warnings) if visibility.operations else ()
    own = replace(whole, error=whole.error or None, warnings=warnings)
    return for_reader(own, admin=visibility.operations)


@dataclass(frozen=True, slots=True)
class Freshness:
    """Up to where facts are there, and what is missing in a window.

    `last_hour_end` is the end of the newest collected hour (None: nothing yet), `first_hour` the
    start of the oldest; the three lists hold starts of hours in the window, oldest first. With
    several clusters an hour is listed when one of them lacks it.
    """

    last_hour_end: datetime | None
    missing: tuple[datetime, ...]
    failed: tuple[datetime, ...]
    partial: tuple[datetime, ...]
    first_hour: datetime | None = None


def freshness(
    window: Window, *, filters: Filters, visibility: Visibility, now: datetime | None = None
) -> Freshness:
    """Return how complete the facts of a window are, up to the newest closed hour.

    With `now`, hours count as missing up to the newest that should be collected by then, so that
    a portal whose scheduler stands still says so; without it, up to the newest that was ever
    asked for. Hours before a cluster's first one are not missing. Five queries, and one for each
    cluster that lacks hours; everybody may see how complete the data is, so `visibility`
    narrows nothing.
    """
    clusters = Cluster.objects.filter(active=True)
    if filters.cluster:
        clusters = clusters.filter(name__in=filters.cluster)
    collect_from = dict(clusters.order_by("pk").values_list("pk", "collect_from"))
    known = _known(window, list(collect_from))
    troubled = _troubled(window, list(collect_from))
    zone = report().zone
    closed = None
    if now is not None:
        closed = last_closed_hour(now, zone, timedelta(seconds=settings.SETTLING_SECONDS))
    missing: set[datetime] = set()
    for pk, since in collect_from.items():
        of = known.get(pk, _CollectedSpan(since, closed, 0))
        first = min((t for t in (of.first, since) if t is not None), default=None)
        last = max((t for t in (of.last, closed) if t is not None), default=None)
        if first is None or last is None:
            continue
        due = list(_hours(window, first, last, zone))
        missing.update(h for h in due if troubled.get((pk, h)) == CollectionState.WAITING.value)
        if of.in_window < len(due):
            missing.update(set(due) - _asked_for(window, pk))
    collected = _collected(list(collect_from))
    return Freshness(
        last_hour_end=collected[1] + _HOUR if collected[1] else None,
        missing=tuple(sorted(missing)),
        failed=_in_state(troubled, CollectionState.FAILED),
        partial=_in_state(troubled, CollectionState.PARTIAL),
        first_hour=collected[0],
    )


class _CollectedSpan(NamedTuple):
    """The first and last hour ever asked for of a cluster, and how many lie in the window."""

    first: datetime | None
    last: datetime | None
    in_window: int


def _known(window: Window, clusters: Sequence[int]) -> dict[int, _CollectedSpan]:
    inside = Q(hour__gte=window.start, hour__lt=window.end)
    rows = (
        CollectionWindow.objects.filter(cluster_id__in=clusters)
        .order_by()
        .values("cluster_id")
        .annotate(first=Min("hour"), last=Max("hour"), in_window=Count("pk", filter=inside))
    )
    return {
        pk: _CollectedSpan(first, last, count)
        for pk, first, last, count in rows.values_list("cluster_id", "first", "last", "in_window")
    }


def _troubled(window: Window, clusters: Sequence[int]) -> dict[tuple[int, datetime], str]:
    """Return the state of every hour that is not complete: few, also in a long window."""
    rows = (
        CollectionWindow.objects.filter(
            cluster_id__in=clusters, hour__gte=window.start, hour__lt=window.end
        )
        .exclude(state=CollectionState.COMPLETE.value)
        .order_by("hour", "cluster_id")
    )
    columns = ("cluster_id", "hour", "state", "withheld")
    return {
        # No figure of a contradictory hour is in any sum, as of one that failed.
        (pk, hour): CollectionState.FAILED.value if withheld else state
        for pk, hour, state, withheld in rows.values_list(*columns)
    }


def _asked_for(window: Window, cluster: int) -> set[datetime]:
    rows = CollectionWindow.objects.filter(
        cluster_id=cluster, hour__gte=window.start, hour__lt=window.end
    )
    return set(rows.order_by("hour").values_list("hour", flat=True))


def _collected(clusters: Sequence[int]) -> tuple[datetime | None, datetime | None]:
    done = CollectionWindow.objects.filter(HAS_FACTS, cluster_id__in=clusters)
    ends = done.aggregate(first=Min("hour"), last=Max("hour"))
    return ends["first"], ends["last"]


def _hours(window: Window, first: datetime, last: datetime, zone: ZoneInfo) -> Iterator[datetime]:
    """Yield the starts of the fact hours that lie in the window, from `first` to `last`."""
    start = max(window.start, first)
    at = hour_floor(start, zone)
    if at < start:
        at += _HOUR
    while at < window.end and at <= last:
        yield at
        at += _HOUR


def _in_state(
    states: dict[tuple[int, datetime], str], wanted: CollectionState
) -> tuple[datetime, ...]:
    return tuple(sorted({hour for (_, hour), state in states.items() if state == wanted.value}))


def collected_hours(window: Window, *, filters: Filters, visibility: Visibility) -> dict[str, int]:
    """Return by cluster how many hours of the window have facts; none are left out.

    What the amounts of a window are divided by to get averages. Of `filters` only `cluster`
    counts, and `visibility` narrows nothing. One query.
    """
    found = CollectionWindow.objects.filter(HAS_FACTS, hour__gte=window.start, hour__lt=window.end)
    if filters.cluster:
        found = found.filter(cluster__name__in=filters.cluster)
    counts = found.order_by("cluster__name").values("cluster__name").annotate(hours=Count("pk"))
    return dict(counts.values_list("cluster__name", "hours"))


def data_ready() -> bool:
    """Say whether any hour has facts to show. One query."""
    return TierHour.objects.order_by("pk").exists()
