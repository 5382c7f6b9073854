"""The portal's figures of the last closed hour as gauges: per cluster, tier and team.

Each equals what the API says of that hour; over one hour GPU-hours are mean GPUs. Hours of clusters
may differ: `gpuportal_data_through_timestamp_seconds` tells each. What is not known is left out.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Max

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.columns import Column, columns_of
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster
from apps.clusters.selectors import tier_rows
from apps.costs import selectors as costs
from apps.costs.domain.costing import WASTE, Cause, money
from apps.costs.models import PricedHour
from apps.costs.selectors import CostQuery, CostRow
from apps.fairness import selectors as fairness
from apps.fairness.models import FairnessWindow
from apps.fairness.selectors import ObjectiveRow, TeamFairness
from apps.operations.domain.series import Readings, Samples, Series
from apps.pending import selectors as pending
from apps.pending.selectors import PendingFilters, PendingGrouping, QueueTimeSums
from apps.quotas import selectors as quotas
from apps.quotas.selectors import BurnRow, QuotaRow
from apps.usage import selectors as usage
from apps.usage.domain.amounts import NANO
from apps.usage.domain.columns import LedgerFigures, ledger_record
from apps.usage.domain.usage_query import Filters, Grouping, UsageQuery
from apps.usage.models import HAS_FACTS, CollectionWindow

_HOUR = timedelta(hours=1)
_OLDEST = timedelta(hours=24)
"""A figure of an older hour says nothing of now: it is left out."""
_TIER, _TEAM = ("cluster", "tier"), ("cluster", "tier", "team")
_UNUSED = ("not_running_gpu_hours", "idle_gpu_hours", "underused_gpu_hours")
# Name of the series → column of the ledger; these are of tiers alone.
_CAPACITY = {
    "capacity": "capacity_gpu_hours",
    "planned_outage": "planned_outage_gpu_hours",
    "unavailable": "unhealthy_gpu_hours",
    "unallocated": "unallocated_gpu_hours",
    "unattributed": "unattributed_gpu_hours",
}
_HELD = {
    "allocated": "allocated_gpu_hours",
    "active": "busy_gpu_hours",
    "idle": "idle_gpu_hours",
    "underutilized": "underused_gpu_hours",
    "not_running": "not_running_gpu_hours",
    "no_metrics": "unmeasured_gpu_hours",
}


def _column(row: type, key: str) -> Column:
    return next(column for column in columns_of(row) if column.key == key)


def _gpus(name: str, row: type, key: str, labels: tuple[str, ...]) -> Series:
    """Return the series of a column of GPU-hours, with what its declaration says of it."""
    column = _column(row, key)
    return Series(name, f"{column.label}, mean GPUs of the hour. {column.help}".strip(), labels)


def _ledger(of: str, columns: Mapping[str, str], labels: tuple[str, ...]) -> list[Series]:
    return [_gpus(f"gpuportal_{of}_{n}_gpus", LedgerFigures, c, labels) for n, c in columns.items()]


_UNUSED_HELP = "Unused allocation, mean GPUs of the hour. Idle, underutilized and not running."
_COST = "Cost of the hour in full currency, by who pays; team is empty for the platform."
_WASTE = "Cost of the hour that was not active, by who held it; team is empty for no team."
THROUGH = Series(
    "gpuportal_data_through_timestamp_seconds",
    "End of the hour that the figures of a cluster are of: usage, pending or cost.",
    ("cluster", "figures"),
)
FAIRNESS_THROUGH = Series(
    "gpuportal_fairness_through_timestamp_seconds", "End of the hour that fair shares are of."
)
FIGURES: tuple[Series, ...] = (
    THROUGH,
    FAIRNESS_THROUGH,
    *_ledger("tier", _CAPACITY | _HELD, _TIER),
    Series("gpuportal_tier_unused_gpus", _UNUSED_HELP, _TIER),
    _gpus("gpuportal_tier_pending_gpus", QueueTimeSums, "waiting_gpu_hours", _TIER),
    *_ledger("team", _HELD, _TEAM),
    Series("gpuportal_team_unused_gpus", _UNUSED_HELP, _TEAM),
    _gpus("gpuportal_team_pending_gpus", QueueTimeSums, "waiting_gpu_hours", _TEAM),
    Series(
        "gpuportal_team_entitlement_gpus",
        "Entitlement, mean GPUs of the hour, on all clusters.",
        ("tier", "team"),
    ),
    _gpus(
        "gpuportal_team_unmet_fair_share_gpus", TeamFairness, "denied_gpu_hours", ("tier", "team")
    ),
    Series("gpuportal_team_cost_per_hour", _COST, (*_TEAM, "currency")),
    Series("gpuportal_team_waste_per_hour", _WASTE, (*_TEAM, "currency")),
)
QUOTAS: tuple[Series, ...] = (
    Series(
        "gpuportal_team_quota_limit",
        f"{_column(QuotaRow, 'hard').help} Sum of the quotas of a team's namespaces, now.",
        ("team", "resource"),
    ),
    Series(
        "gpuportal_team_quota_used",
        f"{_column(QuotaRow, 'used').help} Sum of the quotas of a team's namespaces, now.",
        ("team", "resource"),
    ),
    Series(
        "gpuportal_team_quota_usage_ratio",
        f"{_column(QuotaRow, 'saturation_ratio').help} 0..1.",
        ("team", "resource"),
    ),
    Series(
        "gpuportal_team_budget_burn_rate",
        f"Burn rate. {_column(BurnRow, 'burn_rate').help}",
        ("team", "period", "unit"),
    ),
    Series(
        "gpuportal_team_budget_used_ratio",
        "Used part of a budget in the period that runs; 1 is all of it.",
        ("team", "period", "unit"),
    ),
)


_QUEUE_TIME = Series(
    "gpuportal_tier_queue_time_seconds",
    "Queue time of the pods of a tier bound in the last 24 hours: p50 and p95.",
    ("tier", "sharing", "quantile"),
)
_OLDEST_PENDING = Series(
    "gpuportal_tier_oldest_pending_timestamp_seconds",
    "When the oldest pod that is pending was created; absent when none is.",
    ("tier", "sharing"),
)
QUEUE_TIMES = (_QUEUE_TIME, _OLDEST_PENDING)


def _of_objective(name: str, key: str) -> Series:
    column = _column(ObjectiveRow, key)
    said = f"Queue-time objective of a tier, up to the last full hour: {column.label.lower()}."
    return Series(f"gpuportal_tier_objective_{name}", f"{said} {column.help}".strip(), ("tier",))


_OBJECTIVE_COLUMNS = {
    "seconds": "p95_seconds",
    "target_ratio": "target_ratio",
    "attainment_ratio": "attainment_ratio",
    "budget_left_ratio": "budget_left_ratio",
    "burn_rate_1h": "burn_rate_1h",
    "burn_rate_6h": "burn_rate_6h",
    "burn_rate_3d": "burn_rate_3d",
}
OBJECTIVES = tuple(_of_objective(name, key) for name, key in _OBJECTIVE_COLUMNS.items())


class _Parts(NamedTuple):
    """Clusters whose figures are of the same hour."""

    window: Window
    clusters: tuple[str, ...]


Found = dict[str, list[tuple[tuple[str, ...], float]]]


def portal_figures(now: datetime) -> Readings:
    """Return the samples of the series of FIGURES."""
    found: Found = defaultdict(list)
    facts = CollectionWindow.objects.filter(HAS_FACTS)
    for part in _parts(facts, now):
        keys = _usage(part, found)
        _pending(part, keys, found, now)
    for part in _parts(PricedHour.objects.all(), now):
        _note_through(found, part, "cost")
        _costs(part, found)
    _fairness(found, now)
    return found


def _parts(hours: Any, now: datetime) -> list[_Parts]:
    """Return the newest hour of each active cluster, clusters of the same hour together."""
    rows = hours.filter(cluster__active=True, hour__gte=now - _OLDEST).order_by()
    newest = rows.values_list("cluster__name").annotate(Max("hour"))
    by_hour: dict[datetime, list[str]] = defaultdict(list)
    for cluster, hour in sorted(newest):
        by_hour[hour].append(cluster)
    return [_Parts(Window(hour, hour + _HOUR), tuple(names)) for hour, names in by_hour.items()]


def _note_through(found: Found, part: _Parts, figures: str) -> None:
    for cluster in part.clusters:
        found[THROUGH.name].append(((cluster, figures), part.window.end.timestamp()))


def _usage(part: _Parts, found: Found) -> list[tuple[str, ...]]:
    """Add the ledger; return the cluster, tier and team of its rows."""
    _note_through(found, part, "usage")
    filters = Filters(cluster=part.clusters)
    keys = []
    for of, names, columns in (
        ("tier", _TIER, _CAPACITY | _HELD),
        ("team", _TEAM, _HELD),
    ):
        by = tuple(Grouping(name) for name in names)
        asked = UsageQuery(part.window, group_by=by, filters=filters)
        # Grouped by team there is no capacity, so tiers are read on their own.
        for row in usage.usage_rows(asked, visibility=EVERYTHING):
            labels = tuple(row.groups[name] for name in names)
            amounts: Mapping[str, Any] = ledger_record(row.amounts)
            for name, column in columns.items():
                if amounts[column] is not None:
                    found[f"gpuportal_{of}_{name}_gpus"].append((labels, amounts[column]))
            unused = sum(amounts[column] for column in _UNUSED)
            found[f"gpuportal_{of}_unused_gpus"].append((labels, unused))
            keys.append(labels)
    return keys


def _pending(part: _Parts, keys: Iterable[tuple[str, ...]], found: Found, now: datetime) -> None:
    """Add what was pending; 0 where the cluster's pending work is known and there was none."""
    end = part.window.end
    until = pending.pending_known(now, clusters=part.clusters).until
    # The history of a cluster may be behind its watch, as after a backfill.
    late = pending.without_history()
    names = Cluster.objects.in_bulk(list(late))
    behind = {names[pk].name for pk, since in late.items() if since < end}
    known = tuple(
        name for name, at in until.items() if at is not None and at >= end and name not in behind
    )
    if not known:
        return
    # Pending work may be known of fewer clusters than usage is.
    _note_through(found, _Parts(part.window, known), "pending")
    for of, groups in (("tier", _TIER), ("team", _TEAM)):
        rows = pending.pending_history(
            part.window,
            now=now,
            visibility=EVERYTHING,
            by=tuple(PendingGrouping(name) for name in groups),
            filters=PendingFilters(cluster=known),
        )
        # Keys of tiers and of teams come together: their length tells them apart.
        gpus = {key: 0.0 for key in keys if len(key) == len(groups) and key[0] in known}
        for row in rows:
            gpus[tuple(row.groups[name] for name in groups)] = row.sums.waited / NANO
        found[f"gpuportal_{of}_pending_gpus"] += sorted(gpus.items())


def _costs(part: _Parts, found: Found) -> None:
    basis, policy = costs.charging()
    by = tuple(Grouping(name) for name in _TEAM)
    filters = Filters(cluster=part.clusters)
    paid = CostQuery(
        part.window, group_by=by, filters=filters, basis=basis, policy=policy, causes=tuple(Cause)
    )
    wasted = CostQuery(part.window, group_by=by, filters=filters, causes=WASTE, waste=True)
    for name, asked in (("cost", paid), ("waste", wasted)):
        rows = costs.cost_rows(asked, visibility=EVERYTHING)
        found[f"gpuportal_team_{name}_per_hour"] += _money(rows)


def _money(rows: Sequence[CostRow]) -> Samples:
    """Return cost by group and currency; nothing of a group of which some has no price."""
    sums: dict[tuple[str, ...], int] = defaultdict(int)
    unpriced = set()
    for row in rows:
        # Part of a cost would look like all of it.
        labels = tuple(row.groups[name] for name in _TEAM)
        if row.lacks_price:
            unpriced.add(labels)
        elif row.cost is not None and row.currency and not row.correction:
            sums[*labels, row.currency] += row.cost
    return [(key, float(money(cost))) for key, cost in sums.items() if key[:-1] not in unpriced]


def _fairness(found: Found, now: datetime) -> None:
    hour = FairnessWindow.objects.filter(hour__gte=now - _OLDEST).aggregate(at=Max("hour"))["at"]
    if hour is None:
        return
    window = Window(hour, hour + _HOUR)
    found[FAIRNESS_THROUGH.name].append(((), window.end.timestamp()))
    for tier in fairness.fairness_rows(window, now=now, visibility=EVERYTHING):
        # Without a known hour 0 would claim that nothing was unmet.
        if not tier.hours.known:
            continue
        for team in tier.teams:
            labels = (tier.tier, team.team)
            entitled, unmet = team.entitlement_gpus, team.denied_gpu_hours
            found["gpuportal_team_entitlement_gpus"].append((labels, entitled))
            found["gpuportal_team_unmet_fair_share_gpus"].append((labels, unmet))


def quota_figures(now: datetime) -> Readings:
    """Return the samples of the series of QUOTAS; those of stale quotas are left out."""
    found: Found = defaultdict(list)
    for row in quotas.team_quotas(now):
        if row.stale:
            continue
        labels = (row.team, row.resource)
        found["gpuportal_team_quota_limit"].append((labels, row.hard))
        if row.used is not None:
            found["gpuportal_team_quota_used"].append((labels, row.used))
        if row.saturation_ratio is not None:
            found["gpuportal_team_quota_usage_ratio"].append((labels, row.saturation_ratio))
    budgets: list[Any] = [
        *quotas.budget_rows(now, visibility=EVERYTHING, ranges=False),
        *costs.money_budget_rows(now, visibility=EVERYTHING),
    ]
    for budget in budgets:
        of = (budget.team, budget.period, budget.unit)
        if budget.burn_rate is not None:
            found["gpuportal_team_budget_burn_rate"].append((of, budget.burn_rate))
            # There is a rate only of a budget above 0.
            used = float(budget.used) / float(budget.allowance)
            found["gpuportal_team_budget_used_ratio"].append((of, used))
    return found


def objectives(now: datetime) -> Readings:
    """Return the samples of OBJECTIVES; what no work tells is left out."""
    rows = fairness.queue_time_objectives(fairness.closed_hour(now), visibility=EVERYTHING)
    found: Found = defaultdict(list)
    for row in rows:
        for series, key in zip(OBJECTIVES, _OBJECTIVE_COLUMNS.values(), strict=True):
            value = getattr(row, key)
            if value is not None:
                found[series.name].append(((row.tier,), float(value)))
    return found


def queue_times(now: datetime) -> Readings:
    """Return the samples of QUEUE_TIMES; no oldest pod where pending work is not known."""
    sharing = {tier.name: str(tier.sharing or "") for tier in tier_rows(visibility=EVERYTHING)}
    times = usage.tier_queue_times(
        Window(now - _OLDEST, now), filters=Filters(), visibility=EVERYTHING
    )
    known = pending.pending_known(now)
    oldest = usage.pending_by_tier(now, visibility=EVERYTHING)
    return {
        _QUEUE_TIME.name: [
            ((tier, sharing.get(tier, ""), quantile), seconds)
            for tier, row in times.items()
            for quantile, seconds in (("0.5", row.p50_seconds), ("0.95", row.p95_seconds))
        ],
        _OLDEST_PENDING.name: [
            ((row.tier, sharing.get(row.tier, "")), row.oldest_at.timestamp())
            for row in oldest
            if known.of_tier(row.tier) is not None
        ],
    }
