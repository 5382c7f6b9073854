"""What the demo knows of the simulated cluster's scenarios is what the lab knows."""

from datetime import UTC, datetime

import pytest
from django.core.management.base import CommandError

from apps.operations.management.commands.demo import DEFAULT_SCENARIO, TRACE_DAYS, origin_of
from simulator.scenarios.registry import load, titles

NOW = datetime(2026, 11, 20, 17, 12, 5, tzinfo=UTC)


def test_the_demo_knows_every_scenario() -> None:
    assert set(TRACE_DAYS) == set(titles())
    assert DEFAULT_SCENARIO in TRACE_DAYS


@pytest.mark.long
@pytest.mark.parametrize("scenario", TRACE_DAYS)
def test_a_first_start_lays_the_trace_where_the_lab_would(scenario: str) -> None:
    now = int(NOW.timestamp())
    origin = int(datetime.fromisoformat(origin_of(scenario, NOW)).timestamp())
    assert load(scenario, now=now, origin=origin).seed == load(scenario, now=now).seed


def test_an_unknown_scenario_is_refused_with_the_known_ones() -> None:
    with pytest.raises(CommandError, match="SCENARIO=moon: the demo knows reference, helios"):
        origin_of("moon", NOW)
