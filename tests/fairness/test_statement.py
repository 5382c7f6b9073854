"""A team's week in one sentence."""

import pytest

from apps.accounts.domain.structs import replace
from apps.fairness.domain.statement import StatementPart, TeamFigures, sentence

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
    borrowed_from=[StatementPart("speech", 2.0 * WEEK)],
    idle_meanwhile=[StatementPart("robotics", 6.0), StatementPart("speech", 1.0)],
)
CASES = [
    pytest.param(
        BUSY,
        "entitled to 12 GPUs, received 15.2, borrowed 3.2 of which 2.0 from speech; "
        "missed 40 GPU-hours of its fair share while robotics left 6 GPUs idle",
        id="borrowed-and-denied",
    ),
    pytest.param(QUIET, "entitled to 12 GPUs, received 8.0; no unmet fair share", id="quiet"),
    pytest.param(
        replace(QUIET, demand_gpu_hours=0.0, allocated_gpu_hours=0.0),
        "entitled to 12 GPUs, received 0.0; no demand",
        id="asked-for-nothing",
    ),
    pytest.param(
        replace(
            QUIET,
            lent_gpu_hours=3.5 * WEEK,
            lent_to=[
                StatementPart("nlp", 2.0 * WEEK),
                StatementPart("rl", 1.5 * WEEK),
                StatementPart("hci", 0.01 * WEEK),
            ],
        ),
        "entitled to 12 GPUs, received 8.0, lent 3.5 of which 2.0 to nlp and 1.5 to rl; no unmet "
        "fair share",
        id="lent",
    ),
    pytest.param(
        replace(
            BUSY,
            from_pool_gpu_hours=0.9 * WEEK,
            overdrawn_gpu_hours=0.3 * WEEK,
            idle_meanwhile=[StatementPart("robotics", 1.0)],
            denied_gpu_hours=4.25,
        ),
        "entitled to 12 GPUs, received 15.2, borrowed 3.2 of which 2.0 from speech, "
        "0.9 from capacity without entitlement and 0.3 from demand of other teams; "
        "missed 4.2 GPU-hours of its fair share while robotics left 1 GPU idle",
        id="all-sources",
    ),
    pytest.param(
        replace(BUSY, borrowed_from=(), idle_meanwhile=(), denied_gpu_hours=12_345.6),
        "entitled to 12 GPUs, received 15.2, borrowed 3.2; missed 12,346 GPU-hours of its fair "
        "share",
        id="large-and-without-names",
    ),
    pytest.param(
        replace(QUIET, borrowed_gpu_hours=0.01 * WEEK, denied_gpu_hours=0.04),
        "entitled to 12 GPUs, received 8.0; no unmet fair share",
        id="what-rounds-to-nothing-is-left-out",
    ),
]


@pytest.mark.parametrize(("figures", "expected"), CASES)
def test_a_week_in_words(figures: TeamFigures, expected: str) -> None:
    assert sentence(figures) == expected


def test_a_window_without_time_has_no_statement() -> None:
    with pytest.raises(ValueError, match="not empty"):
        sentence(replace(QUIET, hours=0.0))
