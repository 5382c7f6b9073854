"""Recommendations of the simulated campus, from the served protocols to the API."""

from datetime import UTC, datetime

import pytest

from tests.campus_truths import LEAST_COVERED, LEAST_KINDS, campus_summary

pytestmark = pytest.mark.django_db


def test_a_week_of_campus_is_covered_by_the_rules_that_a_week_allows() -> None:
    """Fewer kinds than in a month: what stands empty at weekends is not known from one."""
    found = campus_summary(8)
    assert found.wrong == []
    assert found.summary["currency"] == "USD"
    assert 0 < found.summary["covered_cost"] < found.summary["waste_cost"]
    assert found.ratio > 0.25
    assert "idle-timeout" in found.kinds
    rest = sum(found.summary["not_covered"].values())
    whole = found.summary["covered_cost"] + rest
    assert whole == pytest.approx(found.summary["waste_cost"], abs=0.01)
    last = datetime.fromisoformat(found.summary["last_day"]).replace(tzinfo=UTC)
    assert last < datetime.now(UTC)


@pytest.mark.exhaustive
def test_half_of_the_waste_of_campus_is_covered_by_six_kinds() -> None:
    found = campus_summary(30)
    assert found.wrong == []
    assert found.ratio >= LEAST_COVERED
    assert len(found.kinds) >= LEAST_KINDS
