"""What of an hour's sums lies in its first half hour: what fairness computes its slots from."""

import pytest

from apps.clusters.domain.pods.ledger import NodeInterval, PodRecord
from apps.usage.domain.amounts import NANO
from apps.usage.domain.attribution.attribute_hour import HourFacts
from tests.usage.hours import hour_facts, interval, pod


def slots(facts: HourFacts) -> tuple[float, float, float, float]:
    """Return GPU-hours held and there in the first slot, then in the second."""
    held = sum(fact.amounts.allocated for fact in facts.pods)
    there = sum(fact.amounts.capacity or 0 for fact in facts.nodes)
    first, capacity = sum(facts.first_held.values()), sum(facts.first_capacity.values())
    return first / NANO, capacity / NANO, (held - first) / NANO, (there - capacity) / NANO


@pytest.mark.parametrize(
    ("intervals", "pods", "expected"),
    [
        pytest.param([interval()], [pod()], (0.5, 2.0, 0.5, 2.0), id="all-the-hour"),
        pytest.param(
            [interval()],
            [pod(bound=900, end=2700, units=2)],
            (0.5, 2.0, 0.5, 2.0),
            id="a-pod-over-the-middle",
        ),
        pytest.param([interval()], [pod(bound=1800)], (0.0, 2.0, 0.5, 2.0), id="second-slot-alone"),
        pytest.param([interval(start=1200)], [], (0.0, 2 / 3, 0.0, 2.0), id="a-node-that-came"),
        pytest.param([interval(end=600)], [], (0.0, 2 / 3, 0.0, 0.0), id="a-node-that-went"),
        pytest.param(
            [interval(end=1200), interval(start=1200, gpus=8)],
            [pod(units=4)],
            (2.0, 4 * 1 / 3 + 8 / 6, 2.0, 4.0),
            id="a-node-that-grew",
        ),
        pytest.param(
            [interval(ready=False)], [pod()], (0.5, 2.0, 0.5, 2.0), id="a-node-that-is-not-ready"
        ),
        pytest.param(
            [interval(gpus=2)], [pod(units=4)], (1.0, 1.0, 1.0, 1.0), id="more-held-than-there-is"
        ),
    ],
)
def test_the_slots_of_an_hour_add_up_to_it(
    intervals: list[NodeInterval], pods: list[PodRecord], expected: tuple[float, ...]
) -> None:
    assert slots(hour_facts(intervals, pods)) == pytest.approx(expected)
