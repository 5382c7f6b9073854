"""Recommendations of the simulated campus, from the served protocols to the API.

In a process and a database of its own, for its watch writes from threads.
"""

from pathlib import Path

import pytest

from tests.bench.programs import program
from tests.campus_truths import LEAST_COVERED, LEAST_KINDS

pytestmark = pytest.mark.exhaustive


def test_half_of_the_waste_of_campus_is_covered_by_six_kinds(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'campus.db'}"
    found = program("tests.campus_truths", 30, DATABASE_URL=url)
    assert found["wrong"] == []
    assert found["waste_covered_ratio"] >= LEAST_COVERED
    assert len(found["kinds"]) >= LEAST_KINDS
    rest = sum(found["not_covered"].values())
    assert found["covered_cost"] + rest == pytest.approx(found["waste_cost"], abs=0.01)
