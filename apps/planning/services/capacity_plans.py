"""The outlook of each tier, worked out once a day and as past days are collected."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta

import msgspec
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.tiers import CapacityType
from apps.clusters.domain.window import Window, day_of, day_start
from apps.clusters.models import Tier
from apps.clusters.selectors import report
from apps.fairness.selectors import TierDay, tier_days
from apps.pending.domain.diagnosis import OF_DEMAND
from apps.pending.selectors import PendingGrouping, pending_history
from apps.planning.domain.capacity_cases import SizePoint, SpotInterruptions, TierOutlook
from apps.planning.domain.forecast import forecast
from apps.planning.domain.recorded.days import FEWEST_HOURS, known_days
from apps.planning.models import CapacityPlan
from apps.planning.selectors import CapacityUnknown, TooMuchToReplay, replayed_sizes
from apps.planning.services.spot_nodes import spot_interruptions
from apps.usage.domain.amounts import NANO, Amounts, hours
from apps.usage.domain.usage_query import Grouping, TimeStep, UsageQuery, UsageRow
from apps.usage.selectors import usage_rows

HISTORY_DAYS = 400
FORECAST_DAYS = 91
RECENT_DAYS = 28
REPLAYED_DAYS = (14, 7, 3)
"""Numbers of days to replay: no more than are known, and fewer where they hold too much work."""
_AGAIN_AFTER = timedelta(minutes=30)
# Half as many again: the plan may say something else by then, so it is not put off.
_CLEARLY_MORE = 1.5
_WEEK_HOURS = 7 * 24


def plan_capacity(*, now: datetime, anew: bool = False) -> int:
    """Work out the outlook of each tier that has newer days, or more of them; return how many.

    A tier without a known day with capacity has none. While past days are still being collected
    an outlook is made anew every half hour; at once where half as many again are known, and
    `anew`, after they were collected.
    """
    zone = report().zone
    today = day_of(now, zone)
    window = Window(day_start(today - timedelta(days=HISTORY_DAYS), zone), day_start(today, zone))
    by_tier = {
        tier: days
        for tier, days in tier_days(window, visibility=EVERYTHING).items()
        if any(day.hours >= FEWEST_HOURS and day.capacity_gpu_hours for day in days.values())
    }
    known = {
        one.tier_id: one
        for one in CapacityPlan.objects.only("tier", "through", "days", "computed_at")
    }
    due = [
        tier
        for tier in Tier.objects.filter(name__in=by_tier).order_by("position", "name")
        if anew or _is_due(known.get(tier.pk), by_tier[tier.name], now)
    ]
    if not due:
        return 0
    gatherer = _OutlookReader.over(window, by_tier)
    for tier in due:
        days = by_tier[tier.name]
        outlook = gatherer.outlook(tier.name)
        CapacityPlan.objects.update_or_create(
            tier=tier,
            defaults={
                "through": max(days),
                "days": len(days),
                "computed_at": now,
                "outlook": msgspec.to_builtins(outlook),
            },
        )
    return len(due)


def _is_due(plan: CapacityPlan | None, days: Mapping[date, TierDay], now: datetime) -> bool:
    if plan is None or plan.through != max(days):
        return True
    if len(days) >= _CLEARLY_MORE * plan.days:
        return True
    return plan.days != len(days) and plan.computed_at <= now - _AGAIN_AFTER


class _OutlookReader(Struct, frozen=True):
    """What the outlooks of all tiers are made of, each read once."""

    window: Window
    days: Mapping[str, Mapping[date, TierDay]]
    pending: Mapping[tuple[str, date], int]
    recent: Mapping[str, Amounts]
    models: Mapping[str, Sequence[str]]
    spot: Mapping[str, float]
    interruptions: Mapping[str, SpotInterruptions]
    by_hour: Mapping[str, Sequence[float | None]]

    @classmethod
    def over(cls, window: Window, days: Mapping[str, Mapping[date, TierDay]]) -> "_OutlookReader":
        zone = report().zone
        last = window.end
        recent = Window(day_start(day_of(last, zone) - timedelta(days=RECENT_DAYS), zone), last)

        def rows(*by: Grouping, interval: TimeStep = TimeStep.TOTAL) -> list[UsageRow]:
            asked = UsageQuery(recent, interval, (Grouping.TIER, *by))
            return usage_rows(asked, visibility=EVERYTHING, zone=zone)

        models: dict[str, list[str]] = defaultdict(list)
        for row in rows(Grouping.GPU_MODEL):
            models[row.groups["tier"]].append(row.groups["gpu_model"])
        return cls(
            window,
            days,
            _pending_by_day(window),
            {row.groups["tier"]: row.amounts for row in rows()},
            models,
            _spot_ratios(rows(Grouping.CAPACITY_TYPE)),
            spot_interruptions(recent, _known_days(days, since=day_of(recent.start, zone))),
            _by_hour_of_week(rows(interval=TimeStep.HOUR)),
        )

    def outlook(self, tier: str) -> TierOutlook:
        days = self.days[tier]
        first, last = min(days), max(days)
        dates = [first + timedelta(days=n) for n in range((last - first).days + 1)]
        known = [
            day if (day := days.get(at)) and day.hours >= FEWEST_HOURS else None for at in dates
        ]
        demand = tuple(
            None if day is None else self._demand(tier, at, day)
            for at, day in zip(dates, known, strict=True)
        )
        capacity = tuple(
            None if day is None else round(day.capacity_gpu_hours / day.hours, 6) for day in known
        )
        unused, utilization = _activity(self.recent.get(tier), known[-RECENT_DAYS:])
        found = TierOutlook(
            tier=tier,
            first_day=first.isoformat(),
            demand=demand,
            capacity=capacity,
            # The newest known day: yesterday may be missing.
            capacity_now=next((gpus for gpus in reversed(capacity) if gpus is not None), 0.0),
            gpu_models=tuple(self.models.get(tier, ())),
            unused=unused,
            utilization=utilization,
            forecast=forecast(demand, ahead=FORECAST_DAYS),
            spot_ratio=self.spot.get(tier),
            spot_interruptions=self.interruptions.get(tier) if self.spot.get(tier) else None,
            allocation_by_hour=tuple(self.by_hour.get(tier, ())),
        )
        found = _with_sizes(found, self.window.end, self._replayable(tier))
        return replace(found, recorded_unmet_gpu_hours=self._pending_of_last(tier, found))

    def _pending_of_last(self, tier: str, outlook: TierOutlook) -> float | None:
        """Return the GPU-hours that were pending in the days that are replayed."""
        if not outlook.replayed_days:
            return None
        last = day_of(self.window.end, report().zone)
        days = (last - timedelta(days=n) for n in range(1, outlook.replayed_days + 1))
        return hours(sum(self.pending.get((tier, day), 0) for day in days))

    def _replayable(self, tier: str) -> int:
        """Return how many of the last days of a tier are known well enough to be replayed."""
        days, last = self.days[tier], day_of(self.window.end, report().zone)
        back = (days.get(last - timedelta(days=n)) for n in range(1, REPLAYED_DAYS[0] + 1))
        return known_days([0.0 if day is None else day.hours for day in back])

    def _demand(self, tier: str, at: date, day: TierDay) -> float:
        """Return the mean GPUs asked for on a day: allocated, and pending for want of capacity."""
        # Pending work counts all day long, also in hours without facts: it is of the watch.
        return day.allocated_gpu_hours / day.hours + hours(self.pending.get((tier, at), 0)) / 24


def _known_days(
    days: Mapping[str, Mapping[date, TierDay]], *, since: date
) -> dict[str, list[date]]:
    return {
        tier: [at for at, day in own.items() if at >= since and day.hours >= FEWEST_HOURS]
        for tier, own in days.items()
    }


def _pending_by_day(window: Window) -> dict[tuple[str, date], int]:
    zone = report().zone
    by = (PendingGrouping.DAY, PendingGrouping.TIER, PendingGrouping.CAUSE)
    found: dict[tuple[str, date], int] = defaultdict(int)
    for row in pending_history(window, now=window.end, visibility=EVERYTHING, by=by):
        if row.groups["cause"] in OF_DEMAND:
            day = day_of(row.groups["period"], zone)
            found[row.groups["tier"], day] += row.sums.waited + row.sums.suppressed
    return found


def _activity(
    amounts: Amounts | None, days: Iterable[TierDay | None]
) -> tuple[float | None, float | None]:
    """Return the mean of allocated GPUs that are not active, and the utilization."""
    total = sum(day.hours for day in days if day is not None)
    if amounts is None or not total:
        return None, None
    # Time without metrics is left out: it may have been active.
    unused = amounts.not_running + amounts.idle + amounts.underused
    return unused / NANO / total, amounts.utilization_ratio


def _spot_ratios(rows: Iterable[UsageRow]) -> dict[str, float]:
    """Return which part of a tier's capacity is on spot nodes, 0..1."""
    spot: dict[str, int] = defaultdict(int)
    whole: dict[str, int] = defaultdict(int)
    for row in rows:
        capacity = row.amounts.capacity or 0
        whole[row.groups["tier"]] += capacity
        if row.groups["capacity_type"] == CapacityType.SPOT:
            spot[row.groups["tier"]] += capacity
    return {tier: spot[tier] / capacity for tier, capacity in whole.items() if capacity}


def _by_hour_of_week(rows: Iterable[UsageRow]) -> dict[str, list[float | None]]:
    """Return the allocation ratio of each hour of the local week, from Monday 0:00 on."""
    held: dict[str, list[int]] = defaultdict(lambda: [0] * _WEEK_HOURS)
    whole: dict[str, list[int]] = defaultdict(lambda: [0] * _WEEK_HOURS)
    for row in rows:
        if row.period is None or not row.amounts.capacity:
            continue
        # Periods have the offset of the report zone, so this is the local hour.
        at = row.period.weekday() * 24 + row.period.hour
        held[row.groups["tier"]][at] += row.amounts.allocated
        whole[row.groups["tier"]][at] += row.amounts.capacity
    return {
        tier: [h / c if c else None for h, c in zip(held[tier], capacity, strict=True)]
        for tier, capacity in whole.items()
    }


def _with_sizes(outlook: TierOutlook, end: datetime, known: int) -> TierOutlook:
    """Return the outlook with its last days replayed: all `known` ones that are not too much."""
    zone = report().zone
    reason = "" if known else "The last days of this tier are not known."
    # As many as are known, as 10: days without data must not count as days without work.
    for days in dict.fromkeys(min(known, most) for most in REPLAYED_DAYS if known):
        window = Window(day_start(day_of(end, zone) - timedelta(days=days), zone), end)
        try:
            sizes: tuple[SizePoint, ...] = replayed_sizes(
                window, outlook.tier, capacity=outlook.capacity_now, visibility=EVERYTHING
            )
        except TooMuchToReplay as problem:
            reason = str(problem)
        # Fewer days would not help: no hour of the window is known.
        except CapacityUnknown as problem:
            reason = str(problem)
            break
        else:
            return replace(outlook, sizes=sizes, replayed_days=days)
    return replace(outlook, not_replayed=reason)
