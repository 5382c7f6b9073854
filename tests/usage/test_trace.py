"""A day of a real cluster's trace through the whole chain; `make truths` does all 24."""

from datetime import UTC, datetime, timedelta

import pytest

from simulator.catalog import catalog_yaml
from tests.served_lab import scenario_of, served_lab
from tests.simulator.truths import MINUTES, NOW, origin_of
from tests.truths import collect_days, differences, portal_figures, trace_figures

pytestmark = pytest.mark.django_db

DAY_MINUTES = 24 * 60


def test_allocated_pending_and_quota_of_every_team_are_those_of_the_trace() -> None:
    scenario = scenario_of("helios", NOW)
    end = datetime.fromtimestamp(origin_of(scenario) + MINUTES * 60, UTC)
    with served_lab(scenario, NOW) as url:
        lines = list(collect_days(url, catalog_yaml(scenario, url=url), end, 1))
        found = portal_figures(end - timedelta(days=1), end)
    assert lines == [f"{(end - timedelta(days=1)).date()}: 24 hours complete"]
    expected = trace_figures(MINUTES - DAY_MINUTES, DAY_MINUTES)
    assert sum(expected["allocated GPU-hours"].values()) > 10_000
    assert list(differences(expected, found)) == []
