"""Quota usage over time, unused quota-hours, and trends."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from math import fsum
from typing import Any

from django.db.models import Count, ExpressionWrapper, F, FloatField, Q, QuerySet, Sum, Value
from django.db.models.functions import Greatest
from msgspec import Struct, field

from apps.accounts.permissions import Visibility
from apps.accounts.selectors import team_names
from apps.clusters.domain.observed.objects import FlavorSnapshot, ObservedKind
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster
from apps.clusters.selectors import report
from apps.clusters.services import TierHistory, observed_objects
from apps.quotas.domain.keys import (
    DEVICES,
    QuotaRef,
    QuotaSource,
    meaning_in,
    reachable_tiers,
    sharing_of,
)
from apps.quotas.domain.limits import seen_intervals
from apps.quotas.domain.saturation import DAYS_BACK, KeyIntervals, TrendSums
from apps.quotas.models import QuotaKey, QuotaKeyHour
from apps.quotas.selectors.observed_quotas import named_by_tiers, settings_in
from apps.quotas.selectors.rows import QuotaFilters, QuotaPoint, UnusedRow
from apps.usage.domain.amounts import NANO
from apps.usage.domain.usage_query import Filters, Grouping, Periods, TimeStep, UsageQuery
from apps.usage.selectors import usage_rows
from gpuportal.database_functions import HourNumber

_FLOAT = FloatField()
_MOST_NAMED = 1000
"""Keys; of more, names of all are read: databases limit a query's parameters."""
_KEY_REF = ("source", "namespace", "name", "key", "cluster__name")
ALL_QUOTAS = QuotaFilters()
_AMOUNTS = ("used", "held", "pending", "suppressed")
_HOUR_REF = ("key__source", "key__namespace", "key__name", "key__key", "cluster__name")


def trends(at: datetime, keys: Iterable[QuotaRef]) -> dict[QuotaRef, TrendSums]:
    """Return what the last seven days of these keys sum to.

    Two queries; keys that no hour has are left out.
    """
    wanted = set(keys)
    rows = QuotaKey.objects.filter(
        # Each name for itself, which may find too many: what is wanted is told by whole refs below.
        cluster__name__in={key.cluster for key in wanted},
        name__in={key.name for key in wanted},
        namespace__in={key.namespace for key in wanted},
    )
    found = rows.order_by("pk").values_list("pk", *_KEY_REF)
    ids = {pk: ref for pk, *names in found if (ref := QuotaRef(*names)) in wanted}
    sums = (
        _week_hours(at, list(ids))
        .order_by()
        .values_list("key_id")
        .annotate(
            n=Count("pk"),
            sum_x=Sum("x"),
            sum_y=Sum("y"),
            sum_xy=Sum(F("x") * F("y"), output_field=_FLOAT),
            sum_xx=Sum(F("x") * F("x"), output_field=_FLOAT),
        )
    )
    return {ids[pk]: TrendSums(*rest) for pk, *rest in sums}


def trend_hours(at: datetime, key: QuotaRef) -> list[tuple[datetime, float, float]]:
    """Return the hours that the trend of a key rests on: (hour, hours from `at`, units used).

    By time. One query.
    """
    ids = QuotaKey.objects.filter(**dict(zip(_KEY_REF, key, strict=True))).values("pk")
    return list(_week_hours(at, ids).order_by("hour", "pk").values_list("hour", "x", "y"))


def _week_hours(at: datetime, ids: Any) -> Any:
    """Return the hours of the last seven days of keys with what is known of their use."""
    since = at - timedelta(days=DAYS_BACK)
    # Hours from `at` and not from 1970: squares of such numbers would use up a float's digits.
    x = ExpressionWrapper(HourNumber("hour") - Value(at.timestamp() / 3600.0, _FLOAT), _FLOAT)
    y = ExpressionWrapper(F("used") * Value(3600.0, _FLOAT) / F("seconds"), _FLOAT)
    hours = QuotaKeyHour.objects.filter(
        key_id__in=ids, hour__gte=since, hour__lt=at, used__isnull=False, seconds__gt=0
    )
    return hours.annotate(x=x, y=y)


def quota_history(
    window: Window,
    ref: QuotaRef,
    *,
    visibility: Visibility,
    interval: TimeStep = TimeStep.HOUR,
    teamless: bool = False,
) -> list[QuotaPoint]:
    """Return how full a quota key was, period by period; one it was not there in has no point.

    Only hours in which it belonged to a team that the reader sees, so that a namespace that moved
    shows each team its own part. `teamless`: also hours of no one team, for who sees the key now.
    Three queries.
    """
    rows = _visible(window, visibility, ref, teamless=teamless)
    teams = team_names()
    periods = Periods(interval, report().zone)
    found = rows.order_by("hour", "pk").values_list("hour", "team_id", "seconds", "hard", *_AMOUNTS)
    return [
        _point(periods, start, list(own), teams)
        for start, own in groupby(found, key=lambda row: periods.start_of(row[0]))
    ]


def _point(
    periods: Periods, start: datetime, rows: Sequence[Sequence[Any]], teams: Mapping[int, str]
) -> QuotaPoint:
    seconds = fsum(row[2] for row in rows)
    known: list[float | None] = []
    for column in range(4, 8):
        there = [row for row in rows if row[column] is not None]
        # Each column by its own known time: an hour without `held` still knows what was used.
        span = fsum(row[2] for row in there)
        known.append(fsum(row[column] for row in there) * 3600 / span if span else None)
    used, held, pending, suppressed = known
    return QuotaPoint(
        period=periods.label(start) or start,
        team=teams.get(rows[-1][1]),
        seconds=seconds,
        hard=fsum(row[3] for row in rows) * 3600 / seconds if seconds else 0.0,
        used=used,
        held=held,
        pending=pending,
        suppressed=suppressed,
    )


def held_but_unused(
    window: Window, *, filters: QuotaFilters = ALL_QUOTAS, visibility: Visibility
) -> list[UnusedRow]:
    """Return the quota that was not used in a window, the most first.

    Only of namespaces and queues of teams that the reader sees. A namespace that moved has a row
    for each team. Keys that limit nothing are left out. Thirteen queries, and two for
    each cluster with keys of claims or queues, at most.
    """
    summed = _unused_sums(window, filters, visibility)
    history = TierHistory.load()
    # Windows are half-open: their end may be the start of other rules.
    rules, named = history.at(window.end_seconds - 1), named_by_tiers(history)
    idle = _idle(window, filters, visibility)
    set_as = _settings(window, [ref for ref, *_ in summed], named)
    found = []
    for ref, team, allowed, taken, unused in summed:
        source, namespace, name, key, cluster = ref
        means = meaning_in(source, key, named=named)
        tiers = reachable_tiers(means.resource, rules, set_as.labels(cluster, source, key))
        limits = means.effective and set_as.limits(cluster, QuotaRef(source, namespace, name, key))
        if not limits or (filters.tier and not set(filters.tier) & set(tiers)):
            continue
        of_tiers = (idle.get((cluster, namespace, team, tier), 0.0) for tier in tiers)
        found.append(
            UnusedRow(
                *(name, cluster, namespace, source, key),
                *(means.unit(sharing_of(tiers, rules)), team, tiers),
                *(unused, allowed, taken),
                fsum(of_tiers) if namespace else None,
            )
        )
    return sorted(found, key=lambda one: (-one.unused, one.cluster, one.namespace, one.key))


def _unused_sums(
    window: Window, filters: QuotaFilters, visibility: Visibility
) -> list[tuple[QuotaRef, str | None, float, float, float]]:
    """Return key, team, limit, use and what was left in quota-hours. Three queries."""
    narrowed = {
        f"key__{name}__in": values
        for name in ("namespace", "source")
        if (values := getattr(filters, name))
    }
    rows = _visible(window, visibility).filter(used__isnull=False, **narrowed)
    if filters.cluster:
        rows = rows.filter(cluster__name__in=filters.cluster)
    if filters.team:
        rows = rows.filter(team__name__in=filters.team)
    # Hour by hour: over the window, use above a lowered limit would hide unused hours.
    left = Greatest(F("hard") - F("used"), 0.0, output_field=_FLOAT)
    # By number, and named after: names of each hour would cost more than all else.
    sums = list(
        rows.order_by()
        .values_list("key_id", "team_id")
        .annotate(allowed=Sum("hard"), taken=Sum("used"), left=Sum(left))
    )
    keys, wanted = QuotaKey.objects.order_by("pk"), {row[0] for row in sums}
    if len(wanted) <= _MOST_NAMED:
        keys = keys.filter(pk__in=wanted)
    refs = {pk: QuotaRef(*names) for pk, *names in keys.values_list("pk", *_KEY_REF)}
    teams = team_names()
    return [(refs[key], teams.get(team), *rest) for key, team, *rest in sums if key in refs]


def quota_hours(
    window: Window, ref: QuotaRef, *, team: str, visibility: Visibility
) -> list[tuple[datetime, str, float, float]]:
    """Return hour, team, limit and use in quota-hours of the hours that `held_but_unused` sums.

    Of one team where it is named. Two queries.
    """
    rows = _visible(window, visibility, ref).filter(used__isnull=False)
    if team:
        rows = rows.filter(team__name=team)
    teams = team_names()
    found = rows.order_by("hour", "pk").values_list("hour", "team_id", "hard", "used")
    return [(hour, teams.get(pk, ""), hard, used or 0.0) for hour, pk, hard, used in found]


class _Settings(Struct):
    """What sums do not say: scopes, with which a quota counts no claims, and flavors' labels."""

    keys: dict[str, dict[QuotaRef, KeyIntervals]] = field(default_factory=dict)
    flavors: dict[str, dict[str, Mapping[str, str]]] = field(default_factory=dict)

    def limits(self, cluster: str, id_: QuotaRef) -> bool:
        """Say whether a key limited anything as it was set; what is not known to be set did."""
        known = self.keys.get(cluster, {}).get(id_)
        return known is None or known.effective

    def labels(self, cluster: str, source: str, key: str) -> Mapping[str, str] | None:
        """Return the labels of the nodes of a ClusterQueue's flavor, as they are now."""
        if source != QuotaSource.CLUSTER_QUEUE:
            return None
        return self.flavors.get(cluster, {}).get(key.partition("/")[0])


def _settings(window: Window, refs: Collection[QuotaRef], named: Collection[str]) -> _Settings:
    """Read settings where keys need them. One query, and one for each such cluster and kind."""
    claims = {ref.cluster for ref in refs if ref.key.endswith(DEVICES)}
    queues = {ref.cluster for ref in refs if ref.source == QuotaSource.CLUSTER_QUEUE}
    found = _Settings()
    if not claims | queues:
        return found
    clusters = Cluster.objects.filter(name__in=claims | queues).order_by("name")
    for pk, cluster in clusters.values_list("pk", "name"):
        if cluster in claims:
            seen = settings_in(pk, window)
            span = (window.start_seconds, window.end_seconds)
            found.keys[cluster] = seen_intervals(seen, *span, named=named)
        if cluster in queues:
            flavors = observed_objects(pk, [ObservedKind.RESOURCE_FLAVOR])
            found.flavors[cluster] = {
                one.name: one.body.node_labels
                for one in flavors
                if isinstance(one.body, FlavorSnapshot)
            }
    return found


def _idle(
    window: Window, filters: QuotaFilters, visibility: Visibility
) -> dict[tuple[str | None, ...], float]:
    """Return idle GPU-hours by cluster, namespace, team and tier, as the facts have them."""
    by = (Grouping.CLUSTER, Grouping.NAMESPACE, Grouping.TEAM, Grouping.TIER)
    rows = usage_rows(
        UsageQuery(
            window,
            group_by=by,
            filters=Filters(
                cluster=filters.cluster, team=filters.team, namespace=filters.namespace
            ),
        ),
        visibility=visibility,
    )
    found: dict[tuple[str | None, ...], float] = defaultdict(float)
    for row in rows:
        found[tuple(row.groups[one.value] for one in by)] += row.amounts.idle / NANO
    return found


def _visible(
    window: Window, visibility: Visibility, ref: QuotaRef | None = None, *, teamless: bool = False
) -> QuerySet[QuotaKeyHour]:
    rows = QuotaKeyHour.objects.filter(hour__gte=window.start, hour__lt=window.end)
    if ref is not None:
        rows = rows.filter(**dict(zip(_HOUR_REF, ref, strict=True)))
    if visibility.everything:
        return rows
    # By the row's own team: a namespace that moved shows neither team the other's hours.
    seen = Q(team_id__in=visibility.team_ids)
    return rows.filter(seen | Q(team_id=None) if teamless else seen)
