"""What of an hour's sums lies in its first half hour: what fairness computes its slots from."""

import pytest

from apps.clusters.domain.ledger import NodeSpell, PodRecord
from apps.usage.domain.amounts import NANO
from apps.usage.domain.hour import HourFacts
from tests.usage.hours import hour_facts, pod, spell


def slots(facts: HourFacts) -> tuple[float, float, float, float]:
    """Return GPU-hours held and there in the first slot, then in the second."""
    held = sum(fact.amounts.allocated for fact in facts.pods)
    there = sum(fact.amounts.capacity or 0 for fact in facts.nodes)
    first, capacity = sum(facts.first_held.values()), sum(facts.first_capacity.values())
    return first / NANO, capacity / NANO, (held - first) / NANO, (there - capacity) / NANO


@pytest.mark.parametrize(
    ("spells", "pods", "expected"),
    [
        pytest.param([spell()], [pod()], (0.5, 2.0, 0.5, 2.0), id="all-the-hour"),
        pytest.param(
            [spell()],
            [pod(bound=900, end=2700, units=2)],
            (0.5, 2.0, 0.5, 2.0),
            id="a-pod-over-the-middle",
        ),
        pytest.param([spell()], [pod(bound=1800)], (0.0, 2.0, 0.5, 2.0), id="second-slot-alone"),
        pytest.param([spell(start=1200)], [], (0.0, 2 / 3, 0.0, 2.0), id="a-node-that-came"),
        pytest.param([spell(end=600)], [], (0.0, 2 / 3, 0.0, 0.0), id="a-node-that-went"),
        pytest.param(
            [spell(end=1200), spell(start=1200, gpus=8)],
            [pod(units=4)],
            (2.0, 4 * 1 / 3 + 8 / 6, 2.0, 4.0),
            id="a-node-that-grew",
        ),
        pytest.param(
            [spell(ready=False)], [pod()], (0.5, 2.0, 0.5, 2.0), id="a-node-that-is-not-ready"
        ),
        pytest.param(
            [spell(gpus=2)], [pod(units=4)], (1.0, 1.0, 1.0, 1.0), id="more-held-than-there-is"
        ),
    ],
)
def test_the_slots_of_an_hour_add_up_to_it(
    spells: list[NodeSpell], pods: list[PodRecord], expected: tuple[float, ...]
) -> None:
    assert slots(hour_facts(spells, pods)) == pytest.approx(expected)
