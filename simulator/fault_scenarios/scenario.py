"""A scenario with nodes and namespaces on which everything fails that can fail."""

from simulator.fault_scenarios.cycle import FaultCycle
from simulator.scenarios.base import Scenario


class FaultScenario(Scenario):
    """A scenario whose API shows what `faults` plays, on nodes and namespaces among its own."""

    faults: FaultCycle


def faults_of(scenario: Scenario) -> FaultCycle | None:
    """Return the faults that a scenario plays, if it has any."""
    return scenario.faults if isinstance(scenario, FaultScenario) else None
