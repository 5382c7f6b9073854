"""The evidence of a request: the team's allocation, waste, pending work and entitlement.

Taken from the rooms that know, over 30 days, and frozen with the request. What is not known is
named in `missing`, never left blank without a word.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from math import fsum
from typing import Final

from django.db.models import Min
from msgspec import Struct, field

from apps.accounts.domain.formats import clock_words
from apps.accounts.domain.rows import row_from
from apps.accounts.domain.structs import replace
from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window, hour_floor
from apps.clusters.selectors import report
from apps.costs.domain.costing import WASTE, Cause
from apps.costs.selectors import CostQuery, cost_rows, money_budget_rows
from apps.fairness.selectors import FairnessFilters, HourCounts, TeamFairness, fairness_rows
from apps.quota_requests.domain.approval_policy import BudgetFacts
from apps.quota_requests.domain.snapshots import (
    BudgetUse,
    CurrencyCost,
    Evidence,
    EvidenceWindow,
    FairShare,
    QuotaUse,
    TierFairness,
    TierUse,
)
from apps.quota_requests.models import ChangeRequest
from apps.quotas.domain.usage_changes import time_at_limit
from apps.quotas.selectors import (
    BurnRow,
    QuotaPoint,
    QuotaRow,
    budget_rows,
    key_steps,
    peak_ratio,
    queue_namespaces,
    quota_history,
    quota_row,
)
from apps.usage.domain.amounts import Amounts, hours
from apps.usage.domain.usage_query import Filters, Grouping, NamesUnknown, UsageQuery
from apps.usage.models import HAS_FACTS, CollectionWindow
from apps.usage.selectors import GroupingRefused, usage_rows

DAYS: Final = 30
_EVERYTHING = Visibility(everything=True)
_NOW = ("unit", "hard", "used", "held", "pending", "suppressed", "exhausted_at")
_HOUR = 3600.0
_NO_FAIRNESS = "fairness: nothing is known of the team in these tiers yet"


def evidence_window(now: datetime) -> Window:
    """Return the 30 days before `now`; the last whole hour ends them."""
    end = hour_floor(now, report().zone)
    return Window(end - timedelta(days=DAYS), end)


def held_by_tier(
    request: ChangeRequest, window: Window, tiers: tuple[str, ...]
) -> dict[str, Amounts]:
    """Return what the team held with a key in a window, by tier; only tiers of which it held.

    Of a ResourceQuota its namespace's pods, of a queue those of the namespaces that use it. Raises
    GroupingRefused.
    """
    if not tiers:
        return {}
    try:
        rows = usage_rows(
            UsageQuery(window, group_by=(Grouping.TIER,), filters=filters_of(request, tiers)),
            visibility=_EVERYTHING,
        )
    # Not an error: usage learns a name when something is first held under it.
    except NamesUnknown:
        # A tier or namespace in which nothing was ever held.
        return {}
    found = ((row.groups["tier"], row.amounts) for row in rows)
    return {str(tier): amounts for tier, amounts in found if tier and amounts.allocated > 0}


def filters_of(request: ChangeRequest, tiers: tuple[str, ...]) -> Filters:
    """Return the filters of what a team holds with a key, in these tiers of its cluster."""
    namespaces = (request.namespace,) if request.namespace else _users(request)
    return Filters(
        cluster=(request.cluster.name,),
        tier=tiers,
        team=(request.team.name,),
        namespace=namespaces,
    )


def used_tiers(request: ChangeRequest, tiers: tuple[str, ...], *, now: datetime) -> tuple[str, ...]:
    """Return of these tiers those that the key's pods held in the last 30 days, in their order.

    All of them where nothing was held, or where that is not known.
    """
    try:
        held = held_by_tier(request, evidence_window(now), tiers)
    except GroupingRefused:
        return tiers
    return tuple(tier for tier in tiers if tier in held) or tiers


def _users(request: ChangeRequest) -> tuple[str, ...]:
    return queue_namespaces(request.cluster_id, request.source, request.name)


class KnownOfTeam(Struct, frozen=True):
    """The evidence of a request, and the budgets of its team as rules are held against them."""

    evidence: Evidence
    budgets: tuple[BudgetFacts, ...] = ()


def known_of_team(request: ChangeRequest, *, now: datetime) -> KnownOfTeam:
    """Gather the evidence of a request as of `now`; the last whole hour ends it."""
    window = evidence_window(now)
    about = _About(request, window, now)
    about.tell_start()
    usage, used_tiers = about.usage()
    money, quota = about.money(used_tiers), about.quota()
    fair = about.fairness()
    budgets = about.budgets()
    return KnownOfTeam(
        Evidence(
            window=EvidenceWindow(window.start, window.end),
            taken_at=now,
            usage=usage,
            money=money,
            quota=quota,
            denied_whole=fair.whole,
            denied_estimated=fair.estimated,
            fair_share=fair.share,
            # What the key reaches and never used says nothing of it; the share above is of all.
            fairness=tuple(row for row in fair.rows if row.tier in used_tiers),
            budgets=tuple(_budget(row) for row in budgets),
            missing=tuple(about.missing),
        ),
        tuple(_facts(row, now) for row in budgets),
    )


class _Fairness(Struct, frozen=True):
    rows: Sequence[TierFairness]
    share: FairShare | None = None
    whole: bool | None = None
    estimated: bool | None = None


class _About(Struct):
    """A request whose evidence is gathered; `missing` names what turned out not to be known."""

    request: ChangeRequest
    window: Window
    now: datetime
    missing: list[str] = field(default_factory=list)

    def tell_start(self) -> None:
        """Say when the cluster's data starts where that is within the days: figures are of less."""
        window, cluster = self.window, self.request.cluster
        hours = CollectionWindow.objects.filter(
            HAS_FACTS, cluster=cluster, hour__gte=window.start, hour__lt=window.end
        )
        start = hours.aggregate(start=Min("hour"))["start"]
        if start is not None and start > window.start:
            text = clock_words(start, report().zone, now=self.now)
            self.missing.append(f"all figures before {text}, when data of {cluster.name} starts")

    def usage(self) -> tuple[tuple[TierUse, ...] | None, tuple[str, ...]]:
        """Return what the team held with this very key by tier, and of which tiers it held."""
        tiers = tuple(self.request.tiers)
        if not tiers:
            # No filter at all would tell what the team held everywhere.
            self.missing.append("usage: the key reaches no tier that the portal knows")
            return None, tiers
        try:
            held = held_by_tier(self.request, self.window, tiers)
        except GroupingRefused as refused:
            self.missing.append(f"usage: {refused}")
            return None, tiers
        if not held:
            text = "nothing was held with this key in these days, or it was not collected"
            self.missing.append(f"usage: {text}")
            return (), tiers
        used = tuple(tier for tier in tiers if tier in held)
        return tuple(_use(tier, held[tier]) for tier in used), used

    def money(self, used_tiers: tuple[str, ...]) -> tuple[CurrencyCost, ...] | None:
        """Sum what the team's GPUs cost by currency, and what of it was idle or else wasted."""
        if not self.request.tiers:
            self.missing.append("money: the key reaches no tier that the portal knows")
            return None
        try:
            filters = filters_of(self.request, used_tiers)
            rows = cost_rows(
                CostQuery(self.window, group_by=(Grouping.TEAM,), filters=filters),
                visibility=_EVERYTHING,
            )
        except (GroupingRefused, NamesUnknown) as refused:
            self.missing.append(f"money: {refused}")
            return None
        sums: dict[str, list[Decimal]] = {}
        for row in rows:
            if row.amount is None or row.currency is None:
                continue
            # By currency: amounts of two are never added.
            own = sums.setdefault(row.currency, [Decimal(0)] * 3)
            parts = (True, row.cause is Cause.IDLE, row.cause in WASTE)
            sums[row.currency] = [n + row.amount * part for n, part in zip(own, parts, strict=True)]
        if not sums:
            self.missing.append("money: no prices, or no costs yet")
        elif any(row.amount is None or row.currency is None for row in rows):
            self.missing.append("money: a part of these GPU-hours has no price")
        return tuple(CurrencyCost(currency, *own) for currency, own in sorted(sums.items()))

    def quota(self) -> QuotaUse:
        """Describe the quota usage of the key, and its pending and blocked work."""
        points = quota_history(self.window, self.request.ref, visibility=_EVERYTHING)
        if not points:
            self.missing.append("saturation: no hours of this quota are known yet")
        row = quota_row(self.now, self.request.ref, visibility=_EVERYTHING)
        if row is None:
            self.missing.append("quota: the portal does not see it now")
        ratios = [p.saturation_ratio for p in points if p.saturation_ratio is not None]
        # Within an hour a limit may be reached and raised: its mean tells neither, its steps do.
        steps = key_steps(self.request.ref, points)
        time = time_at_limit(steps)
        over_time = QuotaUse(
            hours=round(time.known / _HOUR),
            saturation_mean=fsum(ratios) / len(ratios) if ratios else None,
            saturation_peak=peak_ratio(steps),
            full_hours=round(time.full / _HOUR, 1),
            full_last_hour=_was_full(points),
            pending_unit_hours=_unit_hours(points, "pending"),
            suppressed_unit_hours=_unit_hours(points, "suppressed"),
            full_now=_is_full(row),
        )
        now = {} if row is None else {name: getattr(row, name) for name in _NOW}
        return replace(over_time, **now)

    def fairness(self) -> _Fairness:
        """Tell how the team stood in the tiers that the key reaches."""
        tiers = tuple(self.request.tiers)
        if not tiers:
            self.missing.append(_NO_FAIRNESS)
            return _Fairness(())
        filters = FairnessFilters(tier=tiers, team=(self.request.team.name,))
        found = fairness_rows(self.window, now=self.now, visibility=_EVERYTHING, filters=filters)
        own = [row for tier in found for row in tier.teams]
        known = {tier.tier: tier.hours.known for tier in found}
        self.missing.extend(missing_hours_texts({tier.tier: tier.hours for tier in found}))
        if not own:
            self.missing.append(_NO_FAIRNESS)
        return _Fairness(
            [_state(row, is_known=bool(known[row.tier])) for row in own],
            share=FairShare(share_of(own, known, tiers), tiers, DAYS),
            whole=not any(tier.hours.missing for tier in found),
            estimated=any(tier.hours.estimated for tier in found),
        )

    def budgets(self) -> list[BurnRow]:
        """Return the budgets of the team, in GPU-hours and in money."""
        team = self.request.team.name
        rows: list[BurnRow] = [
            *budget_rows(self.now, visibility=_EVERYTHING, team=team, points=False),
            # Evidence is gathered for reviewers, so what the author may see does not narrow it.
            *money_budget_rows(self.now, visibility=_EVERYTHING, team=team),
        ]
        for row in rows:
            if row.data_start is not None:
                text = clock_words(row.data_start, report().zone, now=self.now)
                self.missing.append(
                    f"budget of the {row.period}: its use before {text}, when data starts"
                )
        return rows


def _use(tier: str, row: Amounts) -> TierUse:
    return TierUse(
        tier=tier,
        allocated_gpu_hours=hours(row.allocated),
        busy_gpu_hours=hours(row.busy),
        idle_gpu_hours=hours(row.idle),
        underused_gpu_hours=hours(row.underused),
        not_running_gpu_hours=hours(row.not_running),
        unmeasured_gpu_hours=hours(row.unmeasured),
        utilization_ratio=row.busy / row.measured if row.measured else None,
    )


def _is_full(row: QuotaRow | None) -> bool | None:
    """Say whether nothing more fits under a limit; None where that is not known."""
    if row is None or row.used is None or row.stale:
        return None
    return max(row.used, row.reserved or 0.0) >= row.hard


def _was_full(points: Sequence[QuotaPoint]) -> bool | None:
    """Say whether a limit was full all through its last closed hour; None: that is not known."""
    last = points[-1].saturation_ratio if points else None
    # The mean of an hour is a quotient of floats; a full hour may come as 0.9999999999.
    return None if last is None else last >= 1.0 - 1e-9


def _unit_hours(points: Sequence[QuotaPoint], name: str) -> float | None:
    known = [(getattr(p, name), p.seconds) for p in points if getattr(p, name) is not None]
    return fsum(amount * seconds / 3600 for amount, seconds in known) if known else None


def _state(row: TeamFairness, *, is_known: bool) -> TierFairness:
    found = row_from(TierFairness, row)
    # Without a known hour it is not known: no zero.
    return found if is_known else replace(found, denied_gpu_hours=None)


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


def missing_hours_texts(hours: Mapping[str, HourCounts]) -> list[str]:
    """Say of how many hours nothing is known, of tiers alike once: sums are of the others."""
    alike: dict[str, list[str]] = {}
    for tier, own in hours.items():
        if own.missing:
            text = f"{own.missing} of {own.known + own.missing} hours of {{}}: no data"
            alike.setdefault(text, []).append(tier)
    return [text.format(", ".join(tiers)) for text, tiers in alike.items()]


def _facts(row: BurnRow, now: datetime) -> BudgetFacts:
    return BudgetFacts(
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


def _hours_unknown(row: BurnRow, now: datetime) -> float:
    """Return how many of a period's hours so far were not collected."""
    if row.coverage_ratio is None:
        return 0.0
    so_far = (min(now, row.period_end) - row.period_start).total_seconds() / 3600
    return (1.0 - row.coverage_ratio) * so_far


def _budget(row: BurnRow) -> BudgetUse:
    return row_from(
        BudgetUse,
        row,
        allowance=_exact(row.allowance),
        used=_exact(row.used),
    )


def _exact(amount: float | Decimal) -> Decimal:
    return amount if isinstance(amount, Decimal) else Decimal(repr(round(amount, 9)))
