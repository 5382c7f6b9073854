"""Waste covered: how much of what was not busy open recommendations would avoid.

    waste covered = cost of not-busy GPU-hours that a recommendation would avoid ÷ cost of all

Waste is divided into cells that have no GPU-hour in common. A recommendation avoids a part of
some cells; of several that avoid parts of one cell the largest part counts, so no GPU-hour counts
twice, and never more than the cell has (docs/definitions.md#waste-covered).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from apps.costs.domain.costing import Cause

Fractions = Mapping[str, Mapping[str, float]]
"""Which part (0..1) of each cause's waste is avoided, by the name of a cell."""


class Cell(NamedTuple):
    """Waste of one cause of one family of workloads, or of one pool that nobody held."""

    name: str
    cause: str


class Gap(StrEnum):
    """Why nothing is recommended against some waste."""

    WELL_USED = "well-used"
    TOO_SHORT = "too-short"
    NO_METRICS = "no-metrics"
    ENDED = "ended"
    UNAVAILABLE = "unavailable"
    NEEDED = "needed"
    NO_RULE = "no-rule"
    REMAINDER = "remainder"


def cell_name(namespace: str, workload: str, gpu_model: str, capacity_type: str) -> str:
    """Return the name of the cells of a family of workloads; of a pool without the first two."""
    return "|".join((namespace, workload, gpu_model, capacity_type))


def avoided(fractions: Fractions, waste: Mapping[Cell, int]) -> dict[Cell, int]:
    """Return what a recommendation avoids of each cell, in units; at most what the cell has."""
    found: dict[Cell, int] = {}
    for name, parts in fractions.items():
        for cause, fraction in parts.items():
            cell = Cell(name, cause)
            units = int(waste.get(cell, 0) * min(1.0, max(0.0, fraction)))
            if units > 0:
                found[cell] = units
    return found


def together(claims: Iterable[Mapping[Cell, int]]) -> dict[Cell, int]:
    """Return what several recommendations avoid: of each cell the largest part."""
    found: dict[Cell, int] = defaultdict(int)
    for claim in claims:
        for cell, units in claim.items():
            found[cell] = max(found[cell], units)
    return dict(found)


def every_waste(fraction: float) -> dict[str, float]:
    """Return one fraction for all causes of what is held."""
    causes = (Cause.IDLE, Cause.UNDERUSED, Cause.NOT_RUNNING)
    return {cause.value: min(1.0, max(0.0, fraction)) for cause in causes}
