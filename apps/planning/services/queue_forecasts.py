"""Expected queue times, computed ahead: a preflight has no time to replay a cluster."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any

from django.db.models import Q
from msgspec import to_builtins

from apps.accounts.permissions import EVERYTHING
from apps.accounts.services import leases
from apps.clusters.domain.window import Window
from apps.clusters.selectors import active_clusters
from apps.planning.domain.cluster_replay.inputs import Packing, ReplayPolicy
from apps.planning.domain.expected_starts import PastWork, TierForecaster, of_tier
from apps.planning.domain.queue_time_ranges import (
    STARTS_NOW_SECONDS,
    ForecastRow,
    PastForecast,
    forecast,
)
from apps.planning.models import QueueForecast
from apps.planning.selectors import (
    NothingRecorded,
    RecordedDemand,
    recorded_demand,
    recorded_window,
)
from apps.planning.selectors.backtests import usual_packing

HISTORY = timedelta(days=21)
_BEFORE = timedelta(days=8)
"""Replays forward draw from the eight days before."""
_EVERY = timedelta(minutes=15)
_TRAINED_FOR = timedelta(days=1)
_MOST_PAST = 300
_MOST_ROWS = 120
"""Bounds of what a worker replays: some seconds a day, and some every quarter of an hour."""


def forecast_queue_times(*, now: datetime) -> int:
    """Compute the expected queue times of each cluster that is due; return how many rows there are.

    Due every 15 minutes; how far replays were off is learnt once a day, and again as soon as
    another day before is known. Where nothing is recorded there are no rows, and a preflight
    answers from plain history.
    """
    return sum(_forecast(one.pk, one.name, now) for one in active_clusters())


def _forecast(cluster_id: int, name: str, now: datetime) -> int:
    computed = Q(at__gt=now - _EVERY)
    held = leases.take_figure(QueueForecast, now, computed=computed, cluster_id=cluster_id)
    if held is None:
        return 0
    # Old rows go even where nothing is recorded: a forecast of yesterday misleads.
    values: dict[str, Any] = {"at": now, "rows": [], "lease_until": None}
    try:
        demand = recorded_demand(name, Window(now - HISTORY, now), visibility=EVERYTHING)
    except NothingRecorded:
        QueueForecast.objects.filter(pk=held.pk).update(**values)
        return 0
    tiers = tier_forecasters(demand, usual_packing(cluster_id))
    past = [PastForecast(*one) for one in held.past]
    since = _known_since(name, demand.window)
    if _learns_again(held, since, now):
        past = list(past_forecasts(tiers, demand.window))
        values |= {"past": [list(one) for one in past]}
        values |= {"trained_at": now, "trained_from": since}
    values["rows"] = [to_builtins(row) for row in _rows(tiers, past, now.timestamp())]
    QueueForecast.objects.filter(pk=held.pk).update(**values)
    return len(values["rows"])


def _known_since(name: str, window: Window) -> datetime:
    try:
        return recorded_window(name, window).start
    except NothingRecorded:
        return window.end


def _learns_again(row: QueueForecast, since: datetime, now: datetime) -> bool:
    if row.trained_at is None or row.trained_at <= now - _TRAINED_FOR:
        return True
    # What the first days of an install taught is not held on to until tomorrow.
    return row.trained_from is not None and since <= row.trained_from - _TRAINED_FOR


def tier_forecasters(demand: RecordedDemand, packing: Packing) -> Mapping[str, TierForecaster]:
    past: dict[str, list[PastWork]] = defaultdict(list)
    for work, life in zip(demand.works, demand.lives, strict=True):
        past[work.tier].append(PastWork(work, life))
    policy = ReplayPolicy(packing=packing)
    return {
        tier: TierForecaster(of_tier(demand.cluster, tier), own, policy)
        for tier, own in sorted(past.items())
    }


def past_forecasts(tiers: Mapping[str, TierForecaster], window: Window) -> Iterator[PastForecast]:
    """Yield what replays would have said of earlier work that had to queue, and its queue time."""
    # Earlier work has too few days before it to be forecast from.
    first = (window.start + _BEFORE).timestamp()
    queued = [
        (one, times.asked_at, times.started_at - times.asked_at)
        for own in tiers.values()
        for one in own.past
        if (times := one.life.times).started_at is not None
        and times.asked_at >= first
        and times.started_at - times.asked_at > STARTS_NOW_SECONDS
    ]
    # The same sample for the same work, so that a forecast can be computed again.
    chosen = Random(len(queued)).sample(queued, min(_MOST_PAST, len(queued)))  # noqa: S311
    for one, asked_at, waited in chosen:
        found = tiers[one.work.tier].estimate(one.work, asked_at)
        yield PastForecast(one.work.tier, found.expected, waited)


def _rows(
    tiers: Mapping[str, TierForecaster], past: Sequence[PastForecast], at: float
) -> Iterator[ForecastRow]:
    """Yield the forecast of each queue and size requested recently, the commonest first."""
    newest: dict[tuple[str, str, float], PastWork] = {}
    asked: Counter[tuple[str, str, float]] = Counter()
    for tier, own in tiers.items():
        for one in own.past:
            key = (tier, one.work.queue, one.work.total_units)
            # Works are by arrival, so the last one stands for its size.
            newest[key] = one
            asked[key] += 1
    for key, _ in asked.most_common(_MOST_ROWS):
        tier, queue, units = key
        found = forecast(tier, *tiers[tier].estimate(newest[key].work, at), past)
        if found is not None:
            yield ForecastRow(tier, queue, units, found.queued, found.any, found.starts_now)
