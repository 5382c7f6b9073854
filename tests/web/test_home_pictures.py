"""The pictures of the homes: order of tiers, reasons that are one, an axis of a panel alone."""

from datetime import UTC, datetime, timedelta
from unittest.mock import Mock
from zoneinfo import ZoneInfo

import pytest

from apps.accounts.domain.structs import replace
from apps.web.components.drawings import Panel, TimeAxis, small_multiples
from apps.web.home.admin_home import TierSummary

START = datetime(2026, 10, 29, tzinfo=UTC)
HOUR = timedelta(hours=1)
NOBODY = TierSummary(Mock(), None, None, None, None, None, None, None, None)


def summary(pods: int, over: float | None) -> TierSummary:
    return replace(NOBODY, overcommitment=over, pending=Mock(pods=pods) if pods else None)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (summary(2, 1.11), summary(17, 0.99)),
        (summary(3, 1.2), summary(2, 1.3)),
        (summary(0, 1.3), summary(0, 1.2)),
        (summary(1, None), summary(0, 0.9)),
    ],
    ids=["overcommitted and pending", "more pods", "more overcommitted", "pending at all"],
)
def test_the_tier_in_most_trouble_comes_first(first: TierSummary, second: TierSummary) -> None:
    assert first.rank < second.rank


def test_a_panel_alone_has_days_and_the_end_of_its_scale_and_calls_the_rest_unused() -> None:
    hours = [START + n * HOUR for n in range(4 * 24)]
    panel = Panel("vision", [8.0] * len(hours), active=[6.0] * len(hours))
    axis = TimeAxis(hours, ZoneInfo("UTC"), by_hour=True)
    drawn = small_multiples("gpus", "Average GPUs", [panel], axis)
    assert drawn.ticks == [(0.0, "29"), (25.0, ""), (50.0, "31"), (75.0, "")]
    assert [key.label for key in drawn.legend] == ["Active", "Unused"]
    both = small_multiples("gpus", "Average GPUs", [panel, panel], axis)
    assert not both.ticks
