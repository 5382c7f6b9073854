"""A team's week in one sentence."""

from dataclasses import replace

import numpy as np
import pytest

from apps.fairness.domain.integrate import integrate, measure
from apps.fairness.domain.statement import Part, TeamFigures, sentence, team_figures
from tests.fairness.tiers import random_slots, slots

WEEK = 168.0
QUIET = TeamFigures(
    team="vision",
    tier="exclusive-a100",
    hours=WEEK,
    entitlement_gpu_hours=12 * WEEK,
    demand_gpu_hours=8 * WEEK,
    fair_share_gpu_hours=8 * WEEK,
    allocated_gpu_hours=8 * WEEK,
    borrowed_gpu_hours=0.0,
    lent_gpu_hours=0.0,
    denied_gpu_hours=0.0,
)
BUSY = replace(
    QUIET,
    allocated_gpu_hours=15.2 * WEEK,
    borrowed_gpu_hours=3.2 * WEEK,
    denied_gpu_hours=40.0,
    borrowed_from=[Part("speech", 2.0 * WEEK)],
    idle_beside=[Part("robotics", 6.0), Part("speech", 1.0)],
)
CASES = [
    pytest.param(
        BUSY,
        "entitled to 12, received 15.2, borrowed 3.2 of which 2.0 from speech; "
        "denied 40 GPU-hours while robotics held 6 GPUs idle",
        id="borrowed-and-denied",
    ),
    pytest.param(QUIET, "entitled to 12, received 8.0; denied nothing", id="quiet"),
    pytest.param(
        replace(QUIET, demand_gpu_hours=0.0, allocated_gpu_hours=0.0),
        "entitled to 12, received 0.0; asked for nothing",
        id="asked-for-nothing",
    ),
    pytest.param(
        replace(
            QUIET,
            lent_gpu_hours=3.5 * WEEK,
            lent_to=[Part("nlp", 2.0 * WEEK), Part("rl", 1.5 * WEEK), Part("hci", 0.01 * WEEK)],
        ),
        "entitled to 12, received 8.0, lent 3.5 of which 2.0 to nlp and 1.5 to rl; denied nothing",
        id="lent",
    ),
    pytest.param(
        replace(
            BUSY,
            from_pool_gpu_hours=0.9 * WEEK,
            overdrawn_gpu_hours=0.3 * WEEK,
            idle_beside=[Part("robotics", 1.0)],
            denied_gpu_hours=4.25,
        ),
        "entitled to 12, received 15.2, borrowed 3.2 of which 2.0 from speech, "
        "0.9 from capacity nobody is entitled to and 0.3 from what others were asking for; "
        "denied 4.2 GPU-hours while robotics held 1 GPU idle",
        id="all-sources",
    ),
    pytest.param(
        replace(BUSY, borrowed_from=(), idle_beside=(), denied_gpu_hours=12_345.6),
        "entitled to 12, received 15.2, borrowed 3.2; denied 12,346 GPU-hours",
        id="large-and-without-names",
    ),
    pytest.param(
        replace(QUIET, borrowed_gpu_hours=0.01 * WEEK, denied_gpu_hours=0.04),
        "entitled to 12, received 8.0; denied nothing",
        id="what-rounds-to-nothing-is-left-out",
    ),
]


@pytest.mark.parametrize(("figures", "expected"), CASES)
def test_a_week_in_words(figures: TeamFigures, expected: str) -> None:
    assert sentence(figures) == expected


def test_a_window_without_time_has_no_statement() -> None:
    with pytest.raises(ValueError, match="not empty"):
        sentence(replace(QUIET, hours=0.0))


def test_figures_come_from_the_slots() -> None:
    teams = ("vision", "speech", "robotics")
    tier = slots(
        held=[[15, 2, 3], [12, 4, 4]],
        pending=[[0, 0, 3], [2, 0, 0]],
        entitlement=[12, 4, 4],
        capacity=20,
        hours=0.5,
    )
    measured = measure(tier)
    idle = np.array([[6.0, 2.0, 1.0], [0.0, 0.0, 0.0]])
    sums = integrate(measured)
    vision, speech, robotics = (
        team_figures(measured, sums, i, tier="a100", teams=teams, idle=idle) for i in range(3)
    )
    assert vision.borrowed_gpu_hours == pytest.approx(1.5)
    assert vision.borrowed_from == [Part("speech", 1.0)]
    assert vision.overdrawn_gpu_hours == pytest.approx(0.5)
    assert speech.lent_to == [Part("vision", 1.0)]
    assert robotics.denied_gpu_hours == pytest.approx(0.5 * 1.5)
    assert robotics.idle_beside == [Part("vision", 6.0), Part("speech", 2.0)]
    assert sentence(vision) == (
        "entitled to 12, received 13.5, borrowed 1.5 of which 1.0 from speech and "
        "0.5 from what others were asking for; denied nothing"
    )


@pytest.mark.parametrize("seed", range(5))
def test_parts_of_a_statement_sum_to_its_amounts(seed: int) -> None:
    measured = measure(random_slots(seed, count=20, teams=5, capacity=30.0))
    sums, idle = integrate(measured), measured.slots.held * 0.5
    for i in range(5):
        found = team_figures(measured, sums, i, tier="t", teams="abcde", idle=idle)
        parts = sum(part.amount for part in found.borrowed_from)
        borrowed = parts + found.from_pool_gpu_hours + found.overdrawn_gpu_hours
        assert borrowed == pytest.approx(found.borrowed_gpu_hours, abs=1e-9)
        lent = sum(part.amount for part in found.lent_to)
        assert lent == pytest.approx(found.lent_gpu_hours, abs=1e-9)
