"""The evidence of a request: what its team held, wasted, waited for and was entitled to.

Taken from the rooms that know, over 30 days, and frozen with the request. What is not known is
named in `missing`, never left blank without a word.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from math import fsum
from typing import Any

from django.db.models import Min

from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window
from apps.clusters.selectors import report
from apps.costs.domain.costing import WASTE, Cause
from apps.costs.selectors import CostQuery, MoneyBudgetRow, cost_rows, money_budget_rows
from apps.fairness.selectors import FairnessFilters, HourCounts, TeamFairness, fairness_rows
from apps.quota_requests.domain.approval_policy import BudgetFacts
from apps.quota_requests.domain.frozen import figure, moment
from apps.quota_requests.models import ChangeRequest
from apps.quota_requests.services.evidence.used_tiers import (
    DAYS,
    evidence_window,
    filters_of,
    held_by_tier,
)
from apps.quotas.selectors import (
    BudgetRow,
    QuotaPoint,
    QuotaRow,
    budget_rows,
    quota_history,
    quota_row,
)
from apps.usage.domain.amounts import Amounts, hours
from apps.usage.domain.refusals import NamesUnknown
from apps.usage.domain.rows import Grouping
from apps.usage.models import HAS_FACTS, CollectionWindow
from apps.usage.selectors import GroupingRefused

_EVERYTHING = Visibility(everything=True)


@dataclass(slots=True)
class Evidence:
    """What is frozen, and what of it rules are held against; None is not known.

    `fair_share_gpus` is the mean over the days of all tiers that the key reaches together.
    `used_tiers` are those that pods really held with the key; all that it reaches where nothing
    was held. `budgets` are those of the team; it has none where `no_budget` says so.
    """

    frozen: dict[str, Any] = field(default_factory=dict)
    fair_share_gpus: float | None = None
    used_tiers: tuple[str, ...] = ()
    budgets: tuple[BudgetFacts, ...] = ()
    no_budget: bool = False

    def miss(self, what: str) -> None:
        self.frozen.setdefault("missing", []).append(what)


def evidence_of(request: ChangeRequest, *, now: datetime) -> Evidence:
    """Gather the evidence of a request as of `now`; the last whole hour ends it."""
    window = evidence_window(now)
    found = Evidence(
        {
            "window": {"start": moment(window.start), "end": moment(window.end)},
            "taken_at": moment(now),
        }
    )
    _tell_start(found, request, window)
    for part in (_usage, _money, _saturation, _fairness, _budgets):
        part(found, request, window, now)
    return found


def _tell_start(found: Evidence, request: ChangeRequest, window: Window) -> None:
    """Say when the cluster's data starts where that is within the days: figures are of less."""
    hours = CollectionWindow.objects.filter(
        HAS_FACTS, cluster=request.cluster, hour__gte=window.start, hour__lt=window.end
    )
    start = hours.aggregate(start=Min("hour"))["start"]
    if start is not None and start > window.start:
        text = f"{start.astimezone(report().zone):%d %b %H:%M}"
        found.miss(f"all figures before {text}, when data of {request.cluster.name} starts")


def _usage(found: Evidence, request: ChangeRequest, window: Window, now: datetime) -> None:
    """Tell what the team held with this very key, by tier."""
    found.used_tiers = tuple(request.tiers)
    if not request.tiers:
        # No filter at all would tell what the team held everywhere.
        return found.miss("usage: the key reaches no tier that the portal knows")
    try:
        held = held_by_tier(request, window, tuple(request.tiers))
    except GroupingRefused as refused:
        return found.miss(f"usage: {refused}")
    if held:
        found.used_tiers = tuple(tier for tier in request.tiers if tier in held)
    else:
        found.miss("usage: nothing was held with this key in these days, or it was not collected")
    found.frozen["usage"] = [
        {"tier": tier, **_amounts(held[tier])} for tier in found.used_tiers if tier in held
    ]
    return None


def _amounts(row: Amounts) -> dict[str, Any]:
    return {
        "allocated_gpu_hours": figure(hours(row.allocated)),
        "busy_gpu_hours": figure(hours(row.busy)),
        "idle_gpu_hours": figure(hours(row.idle)),
        "underused_gpu_hours": figure(hours(row.underused)),
        "not_running_gpu_hours": figure(hours(row.not_running)),
        "unmeasured_gpu_hours": figure(hours(row.unmeasured)),
        "utilization_ratio": figure(row.busy / row.measured if row.measured else None),
    }


def _money(found: Evidence, request: ChangeRequest, window: Window, now: datetime) -> None:
    """Sum what the team's GPUs cost by currency, and what of it was idle or else wasted."""
    if not request.tiers:
        return found.miss("money: the key reaches no tier that the portal knows")
    try:
        rows = cost_rows(
            CostQuery(
                window, group_by=(Grouping.TEAM,), filters=filters_of(request, found.used_tiers)
            ),
            visibility=_EVERYTHING,
        )
    except (GroupingRefused, NamesUnknown) as refused:
        return found.miss(f"money: {refused}")
    sums: dict[str, dict[str, Decimal]] = {}
    for row in rows:
        if row.amount is None or row.currency is None:
            continue
        own = sums.setdefault(row.currency, dict.fromkeys(("cost", "idle", "wasted"), Decimal(0)))
        own["cost"] += row.amount
        own["idle"] += row.amount if row.cause is Cause.IDLE else 0
        own["wasted"] += row.amount if row.cause in WASTE else 0
    if not sums:
        found.miss("money: no prices, or no costs yet")
    elif any(row.amount is None or row.currency is None for row in rows):
        found.miss("money: a part of these GPU-hours has no price")
    found.frozen["money"] = [
        {"currency": currency, **{name: figure(own[name]) for name in own}}
        for currency, own in sorted(sums.items())
    ]
    return None


def _saturation(found: Evidence, request: ChangeRequest, window: Window, now: datetime) -> None:
    """Tell how full the key was, and what of it waits or was refused."""
    points = quota_history(
        window,
        request.ref,
        visibility=_EVERYTHING,
    )
    if not points:
        found.miss("saturation: no hours of this quota are known yet")
    row = quota_row(now, request.ref, visibility=_EVERYTHING)
    if row is None:
        found.miss("quota: the portal does not see it now")
    ratios = [p.saturation_ratio for p in points if p.saturation_ratio is not None]
    found.frozen["quota"] = {
        "hours": len(ratios),
        "saturation_mean": figure(fsum(ratios) / len(ratios) if ratios else None),
        "saturation_peak": figure(max(ratios, default=None)),
        "full_hours": sum(ratio >= 1.0 - 1e-9 for ratio in ratios),
        "full_last_hour": _was_full(points),
        "pending_unit_hours": figure(_unit_hours(points, "pending")),
        "suppressed_unit_hours": figure(_unit_hours(points, "suppressed")),
        "unit": row.unit if row else None,
        "hard": figure(row.hard) if row else None,
        "used": figure(row.used) if row else None,
        "held": figure(row.held) if row else None,
        "pending": figure(row.pending) if row else None,
        "suppressed": figure(row.suppressed) if row else None,
        "exhausted_at": moment(row.exhausted_at) if row else None,
        "full_now": _is_full(row),
    }


def _is_full(row: QuotaRow | None) -> bool | None:
    """Say whether nothing more fits under a limit; None where that is not known."""
    if row is None or row.used is None or row.stale:
        return None
    return max(row.used, row.reserved or 0.0) >= row.hard


def _was_full(points: Sequence[QuotaPoint]) -> bool | None:
    """Say whether a limit was full all through its last closed hour; None: that is not known."""
    last = points[-1].saturation_ratio if points else None
    return None if last is None else last >= 1.0 - 1e-9


def _unit_hours(points: Sequence[QuotaPoint], name: str) -> float | None:
    known = [(getattr(p, name), p.seconds) for p in points if getattr(p, name) is not None]
    return fsum(amount * seconds / 3600 for amount, seconds in known) if known else None


def _fairness(found: Evidence, request: ChangeRequest, window: Window, now: datetime) -> None:
    own: list[TeamFairness] = []
    if request.tiers:
        filters = FairnessFilters(tier=tuple(request.tiers), team=(request.team.name,))
        tiers = fairness_rows(window, now=now, visibility=_EVERYTHING, filters=filters)
        own = [row for tier in tiers for row in tier.teams]
        known = {tier.tier: tier.hours.known for tier in tiers}
        found.fair_share_gpus = share_of(own, known, request.tiers)
        found.frozen["denied_whole"] = not any(tier.hours.missing for tier in tiers)
        found.frozen["denied_estimated"] = any(tier.hours.estimated for tier in tiers)
        found.frozen["fair_share"] = {
            "gpus": figure(found.fair_share_gpus),
            "tiers": list(request.tiers),
            "days": DAYS,
        }
        tell_hours(found, {tier.tier: tier.hours for tier in tiers})
    if not own:
        found.miss("fairness: nothing is known of the team in these tiers yet")
    found.frozen["fairness"] = [
        {
            "tier": row.tier,
            "entitlement_gpus": figure(row.entitlement_gpus),
            "demand_gpu_hours": figure(row.demand_gpu_hours),
            "fair_share_gpu_hours": figure(row.fair_share_gpu_hours),
            "allocated_gpu_hours": figure(row.allocated_gpu_hours),
            "borrowed_gpu_hours": figure(row.borrowed_gpu_hours),
            "lent_gpu_hours": figure(row.lent_gpu_hours),
            # Without a known hour it is not known: no zero.
            "denied_gpu_hours": figure(row.denied_gpu_hours) if known[row.tier] else None,
            "wait_p50_seconds": figure(row.wait_p50_seconds),
            "wait_p95_seconds": figure(row.wait_p95_seconds),
            "waiting_now": row.waiting_now,
            "usage_factor": figure(row.usage_factor),
        }
        for row in own
        # What the key reaches and never used says nothing of it; the share above is of all.
        if row.tier in found.used_tiers
    ]


def share_of(
    own: Sequence[TeamFairness], known: Mapping[str, int], tiers: Collection[str]
) -> float | None:
    """Return the fair share of a team in all tiers together, in GPUs; None if it is not known.

    `known` has the known hours by tier; it is the mean over these. In a tier whose hours are known
    a team without a row neither held nor asked for anything, and nothing is its share.
    """
    if not own or not all(known.get(tier) for tier in tiers):
        return None
    return fsum(row.fair_share_gpu_hours / known[row.tier] for row in own)


def tell_hours(found: Evidence, hours: Mapping[str, HourCounts]) -> None:
    """Say of how many hours nothing is known, of tiers alike once: sums are of the others."""
    alike: dict[str, list[str]] = {}
    for tier, own in hours.items():
        if own.missing:
            every = own.known + own.missing
            text = f"{own.missing} of {every} hours of {{}}: without facts or demand"
        else:
            continue
        alike.setdefault(text, []).append(tier)
    for text, tiers in alike.items():
        found.miss(text.format(", ".join(tiers)))


def _budgets(found: Evidence, request: ChangeRequest, window: Window, now: datetime) -> None:
    team = request.team.name
    rows: list[BudgetRow | MoneyBudgetRow] = [
        *budget_rows(now, visibility=_EVERYTHING, team=team, points=False),
        *money_budget_rows(now, visibility=_EVERYTHING, team=team),
    ]
    found.no_budget = not rows
    found.budgets = tuple(
        BudgetFacts(
            unit=row.unit,
            period=row.period,
            allowance=Decimal(str(row.allowance)),
            used=Decimal(str(row.used)),
            burn_rate=row.burn_rate,
            hours=(row.period_end - row.period_start).total_seconds() / 3600,
            hours_left=max(0.0, (row.period_end - now).total_seconds() / 3600),
            hours_unknown=_hours_unknown(row, now),
            from_start=row.data_start is None,
        )
        for row in rows
    )
    for row in rows:
        if row.data_start is not None:
            text = f"{row.data_start.astimezone(report().zone):%d %b %H:%M}"
            found.miss(f"budget of the {row.period}: its use before {text}, when data starts")
    found.frozen["budgets"] = [
        _budget(row.unit, row.period, row.allowance, row.used, row.burn_rate)
        | {
            "exhausted_at": moment(row.exhausted_at),
            "coverage_ratio": figure(row.coverage_ratio),
            "data_start": moment(row.data_start),
        }
        for row in rows
    ]


def _hours_unknown(row: BudgetRow | MoneyBudgetRow, now: datetime) -> float:
    """Return how many of a period's hours so far were not collected."""
    if row.coverage_ratio is None:
        return 0.0
    so_far = (min(now, row.period_end) - row.period_start).total_seconds() / 3600
    return (1.0 - row.coverage_ratio) * so_far


def _budget(
    unit: str, period: str, allowance: float | Decimal, used: float | Decimal, rate: float | None
) -> dict[str, Any]:
    return {
        "unit": unit,
        "period": period,
        "allowance": figure(allowance),
        "used": figure(used),
        "burn_rate": figure(rate),
    }
