"""Days of the Helios trace through the whole chain, from the served protocols alone."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window
from apps.clusters.models import Pod, Tier
from apps.fairness.domain.measures import FairnessSums, TierSlots, integrate, measure
from apps.fairness.domain.shares import Array
from apps.fairness.selectors import fairness_rows, tier_detail
from apps.fairness.selectors.objectives import team_queue_times
from apps.pending.models import CauseInterval
from simulator.catalog import catalog_yaml
from tests.fairness.tiers import helios
from tests.served_lab import scenario_of, served_lab
from tests.simulator.truths import MINUTES, NOW, origin_of
from tests.truths import (
    TOLERANCE,
    collect_days,
    derive,
    fairness_differences,
    portal_fairness,
    trace_fairness,
)

pytestmark = [pytest.mark.django_db, pytest.mark.long]

DAYS = 2
DAY_MINUTES = 24 * 60


def measured_days() -> FairnessSums:
    """Return the sums of the trace's last days by half hours."""
    _, slots, _ = helios()

    def halves(values: Array) -> Array:
        last = values[MINUTES - DAYS * DAY_MINUTES :]
        means: Array = last.reshape(-1, 30, *values.shape[1:]).mean(axis=1)
        return means

    return integrate(
        measure(
            TierSlots(
                hours=np.full(DAYS * 48, 0.5),
                capacity=halves(slots.capacity),
                entitlement=halves(slots.entitlement),
                weight=halves(slots.weight),
                held=halves(slots.held),
                pending=halves(slots.pending),
            )
        )
    )


def test_days_that_nobody_watched_are_judged_as_the_minutes_of_the_trace() -> None:
    scenario = scenario_of("helios", NOW)
    end = datetime.fromtimestamp(origin_of(scenario) + MINUTES * 60, UTC)
    with served_lab(scenario, NOW) as url:
        assert len(list(collect_days(url, catalog_yaml(scenario, url=url), end, DAYS))) == DAYS
    now = end + timedelta(hours=1)
    derive(now)
    window = Window(end - timedelta(days=DAYS), end)
    truth = trace_fairness(MINUTES - DAYS * DAY_MINUTES, DAYS * DAY_MINUTES)
    found = portal_fairness(window.start, window.end)
    assert list(fairness_differences(truth, found, hours=DAYS * 24)) == []
    expected = measured_days()
    (tier,) = (
        row
        for row in fairness_rows(window, now=now, visibility=EVERYTHING)
        if row.capacity_gpu_hours
    )
    by_team = {row.team.lower(): row for row in tier.teams}
    for position, team in enumerate(helios()[0]):
        row = by_team[team.lower()]
        for name in ("entitlement", "allocated", "demand", "fair_share", "denied"):
            amount, wanted = getattr(row, f"{name}_gpu_hours"), getattr(expected, name)[position]
            # When a pod that never ran went is known by the last scrape that saw it.
            rel = 1e-9 if name in {"entitlement", "allocated"} else TOLERANCE
            assert amount == pytest.approx(wanted, rel=rel, abs=1e-3), (team, name)
    assert tier.jain_index == pytest.approx(expected.jain_index, abs=1e-5)
    assert tier.borrowable_gpu_hours == pytest.approx(expected.borrowable, rel=TOLERANCE)
    detail = tier_detail(window, tier.tier, now=now, visibility=EVERYTHING)
    assert detail is not None
    # The trace's days are those of UTC, the report's are not.
    assert sum(day.hours.known for day in detail.days) == DAYS * 24
    denied = sum(row.denied_gpu_hours for row in tier.teams)
    assert sum(day.denied_gpu_hours for day in detail.days) == pytest.approx(denied)
    _pending_history_says_what_series_show(window, now)


def _pending_history_says_what_series_show(window: Window, now: datetime) -> None:
    """Before the watch a cause is what the series of the window show."""
    intervals = CauseInterval.objects.filter(counts="pending")
    within = intervals.filter(start__gte=window.start).values_list("cause", flat=True)
    assert set(within) == {"unschedulable"}
    assert set(intervals.values_list("cause", flat=True)) <= {"unschedulable", "unrecorded"}
    waits = team_queue_times(window, list(Tier.objects.values_list("pk", flat=True)), now=now)
    started = Pod.objects.filter(started_at__gte=window.start, started_at__lt=window.end)
    assert sum(one.ended.total() for one in waits.values()) == started.count() > 500
