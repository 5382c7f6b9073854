"""A day of the Helios trace through the whole chain, from the served protocols alone.

`make truths` does all 24.
"""

from collections import defaultdict
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from django.db.models import Sum
from msgspec import Struct

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, Pod, Tier
from apps.fairness.domain.measures import FairnessSums, TierSlots, integrate, measure
from apps.fairness.domain.shares import Array
from apps.fairness.selectors import fairness_rows, tier_detail
from apps.fairness.selectors.objectives import team_queue_times
from apps.pending.models import CauseInterval
from apps.quotas.models import QuotaKeyHour
from apps.quotas.services import due_windows, roll_hours
from simulator.catalog import catalog_yaml
from tests.fairness.tiers import helios
from tests.served_lab import scenario_of, served_lab
from tests.shared_rows import shared
from tests.simulator.truths import MINUTES, NOW, origin_of
from tests.truths import (
    TOLERANCE,
    Figures,
    collect_days,
    derive,
    differences,
    fairness_differences,
    portal_fairness,
    portal_figures,
    trace_fairness,
    trace_figures,
)

pytestmark = [pytest.mark.django_db, pytest.mark.long]

DAYS = 1
HOURS = DAYS * 24
FIRST_MINUTE = MINUTES - HOURS * 60


class Chain(Struct, frozen=True):
    """The last days of the trace, and what was said of them while it was served."""

    window: Window
    lines: list[str]
    figures: Figures
    rolled_hours: int


def collect() -> Chain:
    scenario = scenario_of("helios", NOW)
    end = datetime.fromtimestamp(origin_of(scenario) + MINUTES * 60, UTC)
    window = Window(end - timedelta(days=DAYS), end)
    with served_lab(scenario, NOW) as url:
        lines = list(collect_days(url, catalog_yaml(scenario, url=url), end, DAYS))
        figures = portal_figures(window.start, end)
        return Chain(window, lines, figures, roll_hours(now=end))


chain = shared(collect)


def test_allocated_pending_and_quota_of_every_team_are_those_of_the_trace(chain: Chain) -> None:
    assert chain.lines == [f"{chain.window.start.date()}: 24 hours complete"]
    expected = trace_figures(FIRST_MINUTE, HOURS * 60)
    assert sum(expected["allocated GPU-hours"].values()) > 10_000
    assert list(differences(expected, chain.figures)) == []


def test_quota_and_use_of_every_team_are_those_of_the_trace(chain: Chain) -> None:
    assert chain.rolled_hours == HOURS
    assert due_windows(Cluster.objects.get().pk) == []
    rows = QuotaKeyHour.objects.filter(hour__gte=chain.window.start).values("team__name")
    sums = rows.annotate(
        hard=Sum("hard"), used=Sum("used"), held=Sum("held"), pending=Sum("pending")
    )
    found = {row["team__name"].lower(): row for row in sums.order_by("team__name")}
    trace = trace_figures(FIRST_MINUTE, HOURS * 60)
    used: dict[str, float] = defaultdict(float)
    for measure_ in ("allocated GPU-hours", "pending GPU-hours"):
        for team, amount in trace[measure_].items():
            used[team] += amount
    assert sum(used.values()) > 10_000
    for team, amount in used.items():
        row = found[team]
        held, pending = trace["allocated GPU-hours"][team], trace["pending GPU-hours"][team]
        assert row["held"] == pytest.approx(held, rel=TOLERANCE, abs=1e-6)
        assert row["pending"] == pytest.approx(pending, rel=TOLERANCE, abs=1e-6)
        assert row["used"] == pytest.approx(amount, rel=TOLERANCE, abs=1e-6)
        assert row["hard"] / HOURS == pytest.approx(trace["quota GPUs"][team], rel=TOLERANCE)


def measured_days() -> FairnessSums:
    """Return the sums of the trace's last days by half hours."""
    _, slots, _ = helios()

    def halves(values: Array) -> Array:
        last = values[FIRST_MINUTE:]
        means: Array = last.reshape(-1, 30, *values.shape[1:]).mean(axis=1)
        return means

    return integrate(
        measure(
            TierSlots(
                hours=np.full(HOURS * 2, 0.5),
                capacity=halves(slots.capacity),
                entitlement=halves(slots.entitlement),
                weight=halves(slots.weight),
                held=halves(slots.held),
                pending=halves(slots.pending),
            )
        )
    )


def test_days_that_nobody_watched_are_judged_as_the_minutes_of_the_trace(chain: Chain) -> None:
    window = chain.window
    now = window.end + timedelta(hours=1)
    derive(now)
    truth = trace_fairness(FIRST_MINUTE, HOURS * 60)
    found = portal_fairness(window.start, window.end)
    assert list(fairness_differences(truth, found, hours=HOURS)) == []
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
    assert sum(day.hours.known for day in detail.days) == HOURS
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
    assert sum(one.ended.total() for one in waits.values()) == started.count() > 400
