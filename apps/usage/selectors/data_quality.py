"""Data quality: how complete the facts are, what a window lacks, and how exporters changed.

Series tell of extended resources at any time. What a claim gave, and which devices there were to
claim, only the API server tells, and only while somebody watches: before, there is no fact.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db.models import (
    Count,
    Exists,
    Min,
    OuterRef,
    Q,
)
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import Visibility
from apps.clusters.domain.columns import for_reader
from apps.clusters.domain.devices.exporter_profile import ExporterProfile, differences, with_earlier
from apps.clusters.domain.window import HOUR_SECONDS, Window, hour_floor, last_closed_hour
from apps.clusters.models import TierRule, WatchCoverage
from apps.clusters.selectors import active_clusters, report, tier_catalog
from apps.usage.domain.collection import CollectionState
from apps.usage.domain.usage_query import (
    BEGINNING,
    CollectionRow,
    Filters,
    Grouping,
    Periods,
    RowPage,
    UsageQuery,
    UsageRow,
    cursor_time,
    decode_cursor,
    encode_cursor,
)
from apps.usage.models import HAS_FACTS, CollectionWindow, Day, ExporterSetUp, TierDay, TierHour
from apps.usage.selectors.collected_spans import CollectedSpan, collected_spans
from apps.usage.selectors.names import NameLookup
from gpuportal.queries import read_once

_HOUR = timedelta(seconds=HOUR_SECONDS)

_Since = tuple[datetime | None, int]
"""When a cluster was first watched, and its hours of facts before that."""
_KIND = "collections"
_COLUMNS = (
    *("cluster__name", "hour", "state", "coverage_ratio", "samples", "attempts", "error"),
    *("findings", "warnings", "ledger_source", "scrape_interval_seconds"),
    *("activity_metric", "duration_seconds"),
)


class CoverageGap(Struct, frozen=True):
    """Hours of a window that are in no sum of some tiers, though they have facts of others.

    `until` is when the watch began; None where it never did.
    """

    tiers: tuple[str, ...]
    hours: int
    until: datetime | None


def gap_tiers(
    window: Window, *, visibility: Visibility, tiers: Collection[str] = ()
) -> list[CoverageGap]:
    """Return the hours without knowledge of tiers, of all or of those named, by when that ended.

    Which tiers there are everybody may see: `visibility` narrows nothing. One query where no tier
    is of claims alone, else four.
    """
    names = {pk: name for pk, name in of_claims_alone(window).items() if not tiers or name in tiers}
    found: dict[tuple[datetime | None, int], list[str]] = defaultdict(list)
    for tier, own in _before_the_watch(names, window).items():
        # Of several clusters the one that lacks most hours is told.
        until = max(own.values(), key=lambda one: one[1])
        found[until].append(names[tier])
    return [CoverageGap(tuple(some), count, until) for (until, count), some in found.items()]


def gap_hours(
    windows: Sequence[Window], *, visibility: Visibility
) -> list[dict[tuple[str, str], int]]:
    """Return of each window how many hours of facts tell nothing, by cluster and tier by name.

    Averages of the tier leave these out: what it held then is unknown. Every user may see it:
    `visibility` narrows nothing. One query where no tier is of claims alone, else four more for
    each window at most.
    """
    rules = tier_catalog().rules
    return [_gap_hours(window, _of_claims_alone(rules, window)) for window in windows]


def _gap_hours(window: Window, names: Mapping[int, str]) -> dict[tuple[str, str], int]:
    of_tiers = _before_the_watch(names, window)
    if not of_tiers:
        return {}
    clusters = NameLookup([Grouping.CLUSTER]).known(Grouping.CLUSTER)
    return {
        (clusters[cluster], names[tier]): count
        for tier, own in of_tiers.items()
        for cluster, (_, count) in own.items()
    }


def known_hours(
    rows: Sequence[UsageRow], asked: UsageQuery, *, zone: ZoneInfo, whole: bool = False
) -> list[int | None]:
    """Return in how many hours of each row's period it is known what claims give out of its tier.

    None for tiers that series tell of, and without the tier among the groups. The hour in which the
    watch began is one of them unless they must be `whole`: its amounts are of a part of it. One
    query where no tier is of claims alone, else four.
    """
    names = of_claims_alone(asked.window) if Grouping.TIER in asked.group_by else {}
    if not names:
        return [None] * len(rows)
    periods = Periods(asked.interval, zone)
    found: dict[tuple[datetime, str, str], set[datetime]] = defaultdict(set)
    for tier, cluster, hour in _covered_hours(names, asked.window, asked.filters, whole=whole):
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
    tiers: Collection[int], window: Window, filters: Filters, *, whole: bool
) -> Iterator[tuple[int, str, datetime]]:
    """Yield (tier, cluster, hour) of hours with facts in which the claims of the tier are known."""
    first = _first_watched()
    # The hour in which the watch began counts as known: its first list told the claims.
    slack = timedelta() if whole else _HOUR - timedelta.resolution
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
            if (not seen or pk in seen) and (hour + slack >= since or kept_longer):
                yield tier, cluster, hour


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
    # Facts have local dates, the watch has UTC: a day of slack covers every zone.
    return since is not None and seen < (since - timedelta(days=1)).date()


@read_once
def _first_watched() -> Mapping[int, datetime]:
    """Return when each cluster was first watched, by id. One query."""
    begun = WatchCoverage.objects.order_by().values_list("cluster_id").annotate(Min("start"))
    return dict(begun)


@read_once
def _hours_before_the_watch(window: Window) -> dict[int, tuple[datetime | None, int]]:
    """Return of each cluster when it was first watched, and its hours of facts before that."""
    first = _first_watched()
    hours = HAS_FACTS & Q(hour__gte=window.start, hour__lt=window.end)
    for cluster, start in first.items():
        hours &= ~Q(cluster=cluster, hour__gt=start - _HOUR)
    rows = CollectionWindow.objects.filter(hours).order_by().values_list("cluster_id")
    return {cluster: (first.get(cluster), count) for cluster, count in rows.annotate(Count("pk"))}


def claims_before_the_watch(window: Window) -> Q | None:
    """Return the condition on hourly facts by tier or node in which only claims could tell.

    Activity in them is unattributed because no series tells the holder of a claimed device, nor
    that the device was there. None where no tier is of claims alone. Two queries.
    """
    tiers = of_claims_alone(window)
    if not tiers:
        return None
    first = _first_watched()
    before = ~Q(cluster__in=list(first))
    for cluster, start in first.items():
        before |= Q(cluster=cluster, hour__lt=start)
    return before & (Q(capacity=0) | Q(tier__in=list(tiers)))


def of_claims_alone(window: Window) -> dict[int, str]:
    """Return the tiers, by name, whose rules ask for device classes and for nothing else.

    In the order of the catalog. One query.
    """
    return _of_claims_alone(tier_catalog().rules, window)


def _of_claims_alone(rules: Sequence[TierRule], window: Window) -> dict[int, str]:
    names: dict[int, str] = {}
    others = set()
    for rule in rules:
        if rule.valid_from >= window.end or (rule.valid_to and rule.valid_to <= window.start):
            continue
        names[rule.tier_id] = rule.tier.name
        # A tier that any rule gives out by resource is seen in series too.
        if rule.resources or not rule.device_classes:
            others.add(rule.tier_id)
    return {tier: name for tier, name in names.items() if tier not in others}


def clusters_with(tiers: Collection[int]) -> Mapping[int, Mapping[int, date]]:
    """Return the clusters that each tier was ever seen in, and when first. One query."""
    return _clusters_with(tuple(sorted(tiers)))


@read_once
def _clusters_with(tiers: tuple[int, ...]) -> Mapping[int, Mapping[int, date]]:
    days = TierDay.objects.filter(tier__in=tiers).order_by().values_list("tier_id", "cluster_id")
    found: dict[int, dict[int, date]] = defaultdict(dict)
    for tier, cluster, first in days.annotate(Min("day")):
        found[tier][cluster] = first
    return found


def collection_page(
    window: Window | None,
    *,
    filters: Filters,
    states: Sequence[str],
    visibility: Visibility,
    cursor: str | None,
    page_size: int,
) -> RowPage[CollectionRow]:
    """Return hours with how their collection went, newest first and then by cluster. One query.

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
        hour, cluster = decode_cursor(_KIND, cursor, (str, int))
        at = cursor_time(hour)
        # After the last row shown, in an order that runs down by hour and up by cluster.
        found = found.filter(Q(hour__lt=at) | Q(hour=at, cluster_id__gt=cluster))
    ordered = found.order_by("-hour", "cluster_id")
    rows = list(ordered.values_list("cluster_id", *_COLUMNS)[: page_size + 1])
    shown = rows[:page_size]
    # One row more than a page was read: whether there is a next page needs no query of its own.
    last = shown[-1] if len(rows) > page_size else None
    return RowPage(
        rows=tuple(_collection(row[1:], visibility) for row in shown),
        next_cursor=encode_cursor(_KIND, (last[2].isoformat(), last[0])) if last else None,
    )


def _collection(row: Sequence[object], visibility: Visibility) -> CollectionRow:
    whole = CollectionRow(*row)  # type: ignore[arg-type]
    warnings = tuple(whole.warnings) if visibility.operations else ()
    own = replace(whole, error=whole.error or None, warnings=warnings)
    return for_reader(own, admin=visibility.operations)


class Freshness(Struct, frozen=True):
    """Up to where facts are there, and what is missing in a window.

    `last_hour_end` is the end of the newest collected hour (None: nothing yet), `first_hour` the
    start of the oldest; the three lists hold starts of hours in the window, oldest first. With
    several clusters an hour is listed when one of them lacks it. `ready`: any hour, of any cluster,
    has facts to show.
    """

    last_hour_end: datetime | None
    missing: tuple[datetime, ...]
    failed: tuple[datetime, ...]
    partial: tuple[datetime, ...]
    first_hour: datetime | None = None
    ready: bool = False


def freshness(
    window: Window,
    *,
    filters: Filters,
    visibility: Visibility,
    now: datetime | None = None,
    before: Window | None = None,
) -> Freshness:
    """Return how complete the facts of a window are, up to the newest closed hour.

    With `now`, hours count as missing up to the newest that should be collected by then, so that
    a portal whose scheduler stands still says so; without it, up to the newest that was ever
    asked for. Hours before a cluster's first one are not missing.
    `before` is the window that `collected_hours` is asked for with this one, which then needs no
    query on a page.
    Everybody may see how complete the data is: `visibility` narrows nothing. Four queries at most.
    """
    wanted = filters.cluster
    found = [one for one in active_clusters() if not wanted or one.name in wanted]
    collect_from = {one.pk: one.collect_from for one in found}
    known, every_trouble = collected_spans(window, before)
    troubled = {at: state for at, state in every_trouble.items() if at[0] in collect_from}
    zone = report().zone
    closed = None
    if now is not None:
        # An hour that still settles is not missing.
        closed = last_closed_hour(now, zone, timedelta(seconds=settings.SETTLING_SECONDS))
    waiting: dict[int, set[datetime]] = defaultdict(set)
    for (pk, hour), state in troubled.items():
        if state == CollectionState.WAITING.value:
            waiting[pk].add(hour)
    missing: set[datetime] = set()
    lacking: dict[int, list[datetime]] = {}
    for pk, since in collect_from.items():
        of = known.get(pk, CollectedSpan("", since, closed))
        first = min((t for t in (of.first, since) if t is not None), default=None)
        last = max((t for t in (of.last, closed) if t is not None), default=None)
        if first is None or last is None:
            continue
        due = list(_hours(window, first, last, zone))
        # Hours in trouble are few, and those of a window many.
        missing.update(set(due) & waiting[pk] if pk in waiting else ())
        if of.in_window < len(due):
            lacking[pk] = due
    # The hours themselves are read only of clusters that lack some.
    requested = _requested(window, tuple(sorted(lacking))) if lacking else set()
    missing.update(
        hour for pk, due in lacking.items() for hour in due if (pk, hour) not in requested
    )
    own = [span for pk, span in known.items() if pk in collect_from]
    firsts = [one.first_facts for one in own if one.first_facts]
    lasts = [one.last_facts for one in own if one.last_facts]
    return Freshness(
        last_hour_end=max(lasts) + _HOUR if lasts else None,
        missing=tuple(sorted(missing)),
        failed=_in_state(troubled, CollectionState.FAILED),
        partial=_in_state(troubled, CollectionState.PARTIAL),
        first_hour=min(firsts, default=None),
        ready=any(one.ready for one in known.values()),
    )


@read_once
def _requested(window: Window, clusters: tuple[int, ...]) -> set[tuple[int, datetime]]:
    rows = CollectionWindow.objects.filter(
        cluster_id__in=clusters, hour__gte=window.start, hour__lt=window.end
    )
    return set(rows.order_by().values_list("cluster_id", "hour"))


def _hours(window: Window, first: datetime, last: datetime, zone: ZoneInfo) -> Iterator[datetime]:
    """Yield the starts of the fact hours that lie in the window, from `first` to `last`."""
    start = max(window.start, first)
    # The grid of hours of the zone: in India hours of facts begin at half past.
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


def collected_hours(
    window: Window,
    *,
    filters: Filters,
    visibility: Visibility,
    before: Window | None = None,
) -> tuple[dict[str, int], dict[str, int]]:
    """Return of a window and of another how many hours have facts, by cluster; none are left out.

    What the amounts of a window are divided by to get averages. Of `filters` only `cluster`
    counts, and `visibility` narrows nothing. One query.
    """
    spans, _ = collected_spans(window, before)
    wanted = filters.cluster
    found = sorted(one for one in spans.values() if not wanted or one.cluster in wanted)
    return (
        {one.cluster: one.with_facts for one in found if one.with_facts},
        {one.cluster: one.before for one in found if one.before},
    )


class FactsState(StrEnum):
    """Whether anything is known of pods in a window: zeros are true of `known` ones alone.

    `not_checked_yet`: its hours are still to be collected. `no_data`: they failed, are from before
    the first collected hour, or are no longer kept by the pod.
    """

    KNOWN = "known"
    NOT_CHECKED_YET = "not_checked_yet"
    NO_DATA = "no_data"


def facts_states(window: Window) -> dict[str, FactsState]:
    """Return of each active cluster whether any hour of pods of a window is known.

    Everybody may see how complete the data is. Four queries at most.
    """
    known, troubled = collected_spans(window, None)
    waiting = {pk for (pk, _), state in troubled.items() if state == CollectionState.WAITING.value}
    gone = _gone_hours(window)
    states = {}
    for cluster in active_clusters():
        span = known.get(cluster.pk)
        if span is not None and cluster.pk in gone:
            span = span._replace(with_facts=span.with_facts - gone[cluster.pk])
        states[cluster.name] = _facts_state(span, window, is_waiting=cluster.pk in waiting)
    return states


def _gone_hours(window: Window) -> dict[int, int]:
    """Return by cluster how many hours with facts of a window are no longer kept by the pod."""
    days = Day.objects.filter(pruned=True, end__gt=window.start, start__lt=window.end)
    # Hours of old windows alone: nearly all windows have no such day.
    if not days.exists():
        return {}
    of_hour = days.filter(
        cluster_id=OuterRef("cluster_id"), start__lte=OuterRef("hour"), end__gt=OuterRef("hour")
    )
    hours = CollectionWindow.objects.filter(
        HAS_FACTS, Exists(of_hour), hour__gte=window.start, hour__lt=window.end
    )
    counts = hours.order_by().values_list("cluster_id").annotate(Count("pk"))
    return dict(counts)


def _facts_state(of: CollectedSpan | None, window: Window, *, is_waiting: bool) -> FactsState:
    if of is not None and of.with_facts:
        return FactsState.KNOWN
    # Later hours than the last one that was asked for are still to come: the running hour, or all
    # of them while the scheduler stands still.
    if of is None or of.last is None or is_waiting or window.end > of.last + _HOUR:
        return FactsState.NOT_CHECKED_YET
    return FactsState.NO_DATA


def facts_state(states: Collection[FactsState]) -> FactsState:
    """Return the state of several clusters: what is known of one is shown."""
    order = list(FactsState)
    return min(states, key=order.index, default=FactsState.NOT_CHECKED_YET)


def data_ready(window: Window | None = None) -> bool:
    """Say whether any hour, or any of a window, has facts to show. One query."""
    rows = TierHour.objects.order_by("pk")
    if window is not None:
        rows = rows.filter(hour__gte=window.start, hour__lt=window.end)
    return rows.exists()


class ExporterChange(Struct, frozen=True):
    """From the hour that begins at `hour` exporters showed themselves differently: `what`."""

    hour: datetime
    what: tuple[str, ...]


class ExporterHistory(Struct, frozen=True):
    """The profile of the newest hour that showed any, and the changes up to it, newest first."""

    cluster: str
    profile: ExporterProfile
    seen: datetime
    changes: tuple[ExporterChange, ...]


def exporter_histories(*, since: datetime, visibility: Visibility) -> list[ExporterHistory]:
    """Return for each active cluster how its exporters showed themselves since a time.

    Only for who sees how the portal runs; for others it is empty. Two queries.
    """
    if not visibility.operations:
        return []
    hours = (
        CollectionWindow.objects.filter(
            cluster__active=True, hour__gte=since, exporters__isnull=False
        )
        .order_by("cluster__name", "hour")
        .values_list("cluster__name", "hour", "exporters_id")
    )
    runs = list(_runs(hours))
    profiles = {
        row.pk: ExporterProfile.from_json(row.profile)
        for row in ExporterSetUp.objects.filter(pk__in={run.set_up for run in runs}).order_by("pk")
    }
    of_cluster: dict[str, list[_Run]] = {}
    for run in runs:
        of_cluster.setdefault(run.cluster, []).append(run)
    return [_history(cluster, some, profiles) for cluster, some in of_cluster.items()]


class _Run(Struct):
    cluster: str
    first: datetime
    last: datetime
    set_up: int


def _runs(hours: Iterable[tuple[str, datetime, int]]) -> Iterator[_Run]:
    run: _Run | None = None
    for cluster, hour, set_up in hours:
        if run is not None and (run.cluster, run.set_up) == (cluster, set_up):
            run.last = hour
            continue
        if run is not None:
            yield run
        run = _Run(cluster, hour, hour, set_up)
    if run is not None:
        yield run


def _history(
    cluster: str, runs: Sequence[_Run], profiles: dict[int, ExporterProfile]
) -> ExporterHistory:
    changes = []
    # What an hour could not show, as a night without pods, is no change.
    known = profiles[runs[0].set_up]
    for run in runs[1:]:
        after = with_earlier(known, profiles[run.set_up])
        what = tuple(differences(known, after))
        if what:
            changes.append(ExporterChange(run.first, what))
        known = after
    return ExporterHistory(cluster, known, runs[-1].last, tuple(reversed(changes)))
