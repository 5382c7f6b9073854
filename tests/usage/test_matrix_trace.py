"""Days of the pods of `openb` through the whole chain; `make truths` does all 34."""

import pytest

from simulator.catalog import catalog_yaml
from simulator.scenarios.openb import DAYS
from tests.openb_truths import END, PUBLISHED, differences, portal_figures, trace_figures
from tests.served_lab import scenario_of, served_lab
from tests.simulator.truths import NOW
from tests.truths import collect_days

pytestmark = pytest.mark.long

SLICE = 2


def test_the_trace_s_rows_add_up_to_its_published_sums() -> None:
    assert trace_figures(DAYS) == pytest.approx(PUBLISHED, abs=1e-6)
    assert sum(PUBLISHED.values()) == pytest.approx(29_356.39, abs=0.01)


@pytest.mark.django_db
def test_allocated_gpu_hours_of_every_model_are_those_of_the_trace() -> None:
    scenario = scenario_of("openb", NOW)
    with served_lab(scenario, NOW) as url:
        lines = list(collect_days(url, catalog_yaml(scenario, url=url), END, SLICE))
    assert [line.partition(": ")[2] for line in lines] == ["24 hours complete"] * SLICE
    expected = trace_figures(SLICE)
    assert sum(expected.values()) > 1000
    assert list(differences(expected, portal_figures())) == []
