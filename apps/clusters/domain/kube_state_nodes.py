"""Node spells as kube-state-metrics series tell them, slot by slot.

Within a slot the series say how much of it a node was ready, not when: what was not ready, or
cordoned, is laid at the end of the slot (of the node's first slot: at its start).
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from apps.clusters.domain.kube_state import TOLERATED_SAMPLES, Coverage, Samples
from apps.clusters.domain.ledger import NodeSpell, Source
from apps.clusters.domain.resources import desanitise
from apps.clusters.domain.window import SLOT_SECONDS

_MONITORING = "_monitoring"


@dataclass(slots=True)
class NodeSeries:
    """What the series of one node say, by slot.

    `samples` counts its presence, `after` says whether it was seen shortly after the window.
    `capacity` and `allocatable` hold units by resource as kube-state-metrics writes it, their
    largest and their mean; `capacity_samples` counts how long it offered GPUs at all. `ready`
    and `cordoned` are fractions of the slot.
    """

    name: str
    created: float | None = None
    samples: dict[int, float] = field(default_factory=dict)
    after: bool = False
    capacity: dict[int, dict[str, float]] = field(default_factory=dict)
    capacity_samples: dict[int, float] = field(default_factory=dict)
    allocatable: dict[int, dict[str, float]] = field(default_factory=dict)
    ready: dict[int, float] = field(default_factory=dict)
    cordoned: dict[int, float] = field(default_factory=dict)
    labels: dict[int, Mapping[str, str]] = field(default_factory=dict)


def node_spells(
    node: NodeSeries, coverage: Coverage, *, named: Collection[str] = ()
) -> list[NodeSpell]:
    """Return the spells in which a node offered GPUs, in order, equal neighbours joined.

    `named` are resources that tiers name. A slot in which kube-state-metrics was away has none.
    """
    samples = node.samples or node.capacity_samples
    gone = coverage.vanished(samples, node.created, after=node.after)
    spells: list[NodeSpell] = []
    for slot in coverage.slots:
        if not coverage.covers(slot) or not any(node.capacity.get(slot, {}).values()):
            continue
        for spell in _slot_spells(node, coverage, slot, samples, gone, named):
            _append(spells, spell)
    return spells


def _append(spells: list[NodeSpell], spell: NodeSpell) -> None:
    if spells and spells[-1].end == spell.start:
        joined = replace(spells[-1], end=spell.end)
        if joined == replace(spell, start=joined.start):
            spells[-1] = joined
            return
    spells.append(spell)


def _slot_spells(
    node: NodeSeries,
    coverage: Coverage,
    slot: int,
    samples: Samples,
    gone: float | None,
    named: Collection[str],
) -> Iterator[NodeSpell]:
    first = node.created is not None and slot <= node.created < slot + SLOT_SECONDS
    start = max(float(slot), node.created or 0.0)
    end = min(float(slot + SLOT_SECONDS), gone if gone is not None else float("inf"))
    offered, there = node.capacity_samples.get(slot), samples.get(slot, 0.0)
    if offered is not None and offered < there - TOLERATED_SAMPLES:
        # The device plugin registered late: GPUs that nobody could ask for were not there.
        start = max(start, end - offered * coverage.interval(slot))
    if end <= start:
        return
    capacity = {r: units for r, units in _units(node.capacity[slot], named).items() if units > 0}
    spell = NodeSpell(
        node=node.name,
        start=start,
        end=end,
        capacity=capacity,
        allocatable={
            resource: units
            for resource, units in _units(node.allocatable.get(slot, {}), named).items()
            if resource in capacity
        },
        labels=dict(node.labels.get(slot, {})),
        source=Source.METRICS,
    )
    slack = TOLERATED_SAMPLES / 3 / max(there, 1.0)
    ready = _fraction(node.ready.get(slot, 1.0), slack)
    cordoned = _fraction(node.cordoned.get(slot, 0.0), slack)
    yield from _cut(spell, 1.0 - ready, cordoned, starts_unready=first)


def _fraction(value: float, slack: float) -> float:
    """Return a fraction 0..1, snapped to its ends where less than half a sample lacks."""
    if not value > slack:
        return 0.0
    return 1.0 if value > 1.0 - slack else value


def _cut(
    spell: NodeSpell, unready: float, cordoned: float, *, starts_unready: bool
) -> Iterator[NodeSpell]:
    """Yield `spell` cut where its node stops (or begins) being ready and schedulable."""
    length = spell.end - spell.start
    ready_from = spell.start + unready * length if starts_unready else spell.start
    ready_to = spell.end if starts_unready else spell.end - unready * length
    open_to = spell.end - cordoned * length
    cuts = sorted({spell.start, spell.end, ready_from, ready_to, open_to})
    for a, b in pairwise(cuts):
        yield replace(
            spell, start=a, end=b, ready=ready_from <= a and b <= ready_to, schedulable=b <= open_to
        )


def _units(amounts: Mapping[str, float], named: Collection[str]) -> dict[str, float]:
    """Return resource → units under the resources' real names."""
    return {
        desanitise(resource, named): value
        for resource, value in sorted(amounts.items())
        if not resource.endswith(_MONITORING)
    }
