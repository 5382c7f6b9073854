"""Quota and use of every team over a day of the Helios trace, as the trace has them."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta

import pytest
from django.db.models import Sum

from apps.clusters.models import Cluster
from apps.quotas.models import QuotaKeyHour
from apps.quotas.services import due_windows, roll_hours
from simulator.catalog import catalog_yaml
from tests.served_lab import scenario_of, served_lab
from tests.simulator.truths import MINUTES, NOW, origin_of
from tests.truths import TOLERANCE, collect_days, trace_figures

pytestmark = [pytest.mark.django_db, pytest.mark.long]

DAY_MINUTES = 24 * 60
HOURS = 24


def test_quota_and_use_of_every_team_are_those_of_the_trace() -> None:
    scenario = scenario_of("helios", NOW)
    end = datetime.fromtimestamp(origin_of(scenario) + MINUTES * 60, UTC)
    with served_lab(scenario, NOW) as url:
        list(collect_days(url, catalog_yaml(scenario, url=url), end, 1))
        assert roll_hours(now=end) == HOURS
    assert due_windows(Cluster.objects.get().pk) == []
    rows = QuotaKeyHour.objects.filter(hour__gte=end - timedelta(days=1)).values("team__name")
    sums = rows.annotate(
        hard=Sum("hard"), used=Sum("used"), held=Sum("held"), pending=Sum("pending")
    )
    found = {row["team__name"].lower(): row for row in sums.order_by("team__name")}
    trace = trace_figures(MINUTES - DAY_MINUTES, DAY_MINUTES)
    used: dict[str, float] = defaultdict(float)
    for measure in ("allocated GPU-hours", "pending GPU-hours"):
        for team, amount in trace[measure].items():
            used[team] += amount
    assert sum(used.values()) > 10_000
    for team, amount in used.items():
        row = found[team]
        held, pending = trace["allocated GPU-hours"][team], trace["pending GPU-hours"][team]
        assert row["held"] == pytest.approx(held, rel=TOLERANCE, abs=1e-6)
        assert row["pending"] == pytest.approx(pending, rel=TOLERANCE, abs=1e-6)
        assert row["used"] == pytest.approx(amount, rel=TOLERANCE, abs=1e-6)
        assert row["hard"] / HOURS == pytest.approx(trace["quota GPUs"][team], rel=TOLERANCE)
