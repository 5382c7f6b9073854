"""A day of the Helios trace through the whole chain: what is stored is what the measures say."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window, from_seconds
from apps.clusters.models import Cluster, Pod, WatchSpan
from apps.fairness.domain.arrays import Array
from apps.fairness.domain.integrate import Sums, TierSlots, integrate, measure
from apps.fairness.selectors import fairness_rows, tier_detail
from apps.fairness.services import compute_hours, roll_days
from apps.lab.catalog import catalog_yaml
from apps.lab.scenarios.registry import load
from apps.pending.models import CauseSpell, Episode
from apps.quotas.models import Entitlement
from tests.factories import BEGINNING
from tests.fairness.tiers import helios
from tests.lab.truths import MINUTES, NOW, origin_of
from tests.served_lab import served_lab
from tests.truths import TOLERANCE, collect_days

pytestmark = pytest.mark.django_db

DAY_MINUTES = 24 * 60


def measured_day() -> Sums:
    """Return the sums of the trace's last day by half hours."""
    _, slots, _ = helios()

    def halves(values: Array) -> Array:
        last = values[MINUTES - DAY_MINUTES :]
        means: Array = last.reshape(-1, 30, *values.shape[1:]).mean(axis=1)
        return means

    return integrate(
        measure(
            TierSlots(
                hours=np.full(48, 0.5),
                capacity=halves(slots.capacity),
                entitlement=halves(slots.entitlement),
                weight=halves(slots.weight),
                held=halves(slots.held),
                pending=halves(slots.pending),
            )
        )
    )


def note_waits() -> None:
    """Write what a watch would have seen: that every pod waited for capacity until it was bound."""
    WatchSpan.objects.bulk_create(
        WatchSpan(cluster=cluster, start=BEGINNING, end=from_seconds(NOW))
        for cluster in Cluster.objects.all()
    )
    pods = list(Pod.objects.select_related("workload").order_by("pk"))
    (tier,) = {pod.tier for pod in pods if pod.tier is not None}
    episodes = Episode.objects.bulk_create(
        Episode(
            cluster_id=pod.cluster_id,
            kind="Pod",
            uid=pod.uid,
            name=pod.name,
            workload=pod.workload,
            tier=tier,
            counted=pod.units,
            counts="pending",
            cause="capacity",
            since=pod.created_at,
            until=pod.bound_at or pod.ended_at,
            outcome="started" if pod.bound_at else "gave_up",
        )
        for pod in pods
    )
    CauseSpell.objects.bulk_create(
        CauseSpell(
            episode=one,
            start=one.since,
            end=one.until,
            cause="capacity",
            counts="pending",
            counted=one.counted,
        )
        for one in episodes
    )


def test_a_day_of_the_trace_is_judged_as_its_minutes_are() -> None:
    scenario = load("helios", now=NOW)
    end = datetime.fromtimestamp(origin_of(scenario) + MINUTES * 60, UTC)
    with served_lab(scenario, NOW) as url:
        assert list(collect_days(url, catalog_yaml(scenario, url=url), end, 1))
    Entitlement.objects.update(valid_from=BEGINNING)
    note_waits()
    now = end + timedelta(hours=1)
    assert compute_hours(now=now) == 24
    assert roll_days(now=now) == 1
    window = Window(end - timedelta(days=1), end)
    expected = measured_day()
    (tier,) = (
        row
        for row in fairness_rows(window, now=now, visibility=EVERYTHING)
        if row.capacity_gpu_hours
    )
    assert tier.hours.known == 24
    assert expected.denied.sum() > 100
    by_team = {row.team.lower(): row for row in tier.teams}
    for position, team in enumerate(helios()[0]):
        row = by_team[team.lower()]
        for name in ("entitlement", "allocated", "demand", "fair_share", "denied"):
            found, wanted = getattr(row, f"{name}_gpu_hours"), getattr(expected, name)[position]
            # When a pod that never ran went is known by the last scrape that saw it.
            rel = 1e-9 if name in {"entitlement", "allocated"} else TOLERANCE
            assert found == pytest.approx(wanted, rel=rel, abs=1e-3), (team, name)
    denied = sum(row.denied_gpu_hours for row in tier.teams)
    assert denied == pytest.approx(expected.denied.sum(), rel=TOLERANCE)
    assert tier.jain_index == pytest.approx(expected.jain_index, abs=1e-5)
    assert tier.jain_allocation_ratio == pytest.approx(expected.jain_allocation_ratio, abs=1e-9)
    assert tier.borrowable_gpu_hours == pytest.approx(expected.borrowable, rel=TOLERANCE)
    detail = tier_detail(window, tier.tier, now=now, visibility=EVERYTHING)
    assert detail is not None
    # The trace's days are those of UTC, the report's are not.
    assert sum(day.hours.known for day in detail.days) == 24
    assert sum(day.denied_gpu_hours for day in detail.days) == pytest.approx(denied)
