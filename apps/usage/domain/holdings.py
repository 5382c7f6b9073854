"""Who held which cards of a node, and what of the node was free or unhealthy, in one hour.

A sweep over the instants at which anything on a node changed: between two of them the cards are
distributed once. Times are Unix seconds, amounts GPU-seconds of GPU-equivalents.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from apps.clusters.domain.ledger import NodeSpell, PodRecord, Source
from apps.clusters.domain.spans import Span, clip, overlap, seconds, union
from apps.clusters.domain.tiers import (
    UNKNOWN_MODEL,
    TierRule,
    capacity_type,
    gpu_model,
    is_shared,
    same_model,
    tier_of,
    unit_weight,
)
from apps.clusters.domain.window import SLOT_SECONDS


class Card(NamedTuple):
    """What cards are counted by: the tier they serve, their model, how they are paid for."""

    tier: str
    model: str
    capacity_type: str


class Bound(NamedTuple):
    """What a pod was given when it was bound and keeps, whatever its node becomes later."""

    tier: str
    model: str
    weight: float


@dataclass(slots=True)
class Holding:
    """One pod's hold on units of one resource within the hour.

    `held` is when it held them, `runs` when a GPU container ran (both disjoint and in order, runs
    within held). `shared`: others may be on the same device. `scale` is below 1 where the cards
    held on its node exceeded the cards there.
    """

    pod: PodRecord
    resource: str
    units: float
    weight: float
    card: Card
    held: tuple[Span, ...]
    runs: tuple[Span, ...]
    shared: bool = False
    scale: float = 1.0
    on_unhealthy: float = 0.0
    _ran: dict[int, float] = field(default_factory=dict, repr=False, compare=False)

    @property
    def gpu_equivalents(self) -> float:
        return self.units * self.weight * self.scale

    @property
    def gpu_seconds(self) -> float:
        """What it held in the hour."""
        return seconds(self.held) * self.gpu_equivalents

    @property
    def span(self) -> Span:
        """From when it first to when it last held them in the hour."""
        return (self.held[0][0], self.held[-1][1])

    def ran_in(self, slot: int) -> float:
        """Return for how many seconds of a slot its GPU containers ran."""
        ran = self._ran.get(slot)
        if ran is None:
            ran = self._ran[slot] = overlap(self.runs, slot, slot + SLOT_SECONDS)
        return ran

    @property
    def inferred(self) -> bool:
        return self.pod.source is Source.METRICS or self.scale < 1.0


@dataclass(slots=True)
class Cards:
    """The cards of one node and kind over the hour, in GPU-seconds."""

    capacity: float = 0.0
    unhealthy: float = 0.0
    unallocated: float = 0.0


@dataclass(slots=True)
class NodeLedger:
    """The outcome for one node."""

    node: str
    cards: dict[Card, Cards] = field(default_factory=lambda: defaultdict(Cards))
    holdings: list[Holding] = field(default_factory=list)
    overcommitted: bool = False


class Unit(NamedTuple):
    """What one unit of a resource of a node is: its kind of card, its weight in GPU-equivalents.

    `shared`: others may be on the same device.
    """

    card: Card
    weight: float
    shared: bool


class Classifier:
    """Says what the cards of a node are, by the tier rules of an hour.

    `models` gives node → model as seen on devices; it is called where node labels name none.
    """

    def __init__(
        self, rules: Sequence[TierRule], models: Callable[[], Mapping[str, str]] = dict
    ) -> None:
        self._rules = rules
        self._models = cache(models)
        self._known: dict[tuple[str, str, float], Unit] = {}

    def unit(self, resource: str, spell: NodeSpell) -> Unit:
        """Return what one unit of `resource` is on a node."""
        key = (resource, spell.node, spell.start)
        if key not in self._known:
            self._known[key] = self._classified(resource, spell)
        return self._known[key]

    def _classified(self, resource: str, spell: NodeSpell) -> Unit:
        tier = tier_of(resource, spell.labels, self._rules)
        model = gpu_model(spell.labels)
        if model == UNKNOWN_MODEL:
            model = self._models().get(spell.node, model)
        card = Card(tier, model, capacity_type(spell.labels).value)
        weight = unit_weight(resource, spell.labels)
        return Unit(card, weight, is_shared(resource, spell.labels))


def hold_node(
    spells: Sequence[NodeSpell],
    pods: Iterable[PodRecord],
    start: float,
    end: float,
    *,
    classifier: Classifier,
    bound: Mapping[str, Bound] | None = None,
    limits: Mapping[str, Sequence[Span]] | None = None,
) -> NodeLedger:
    """Return who held what on one node in start..end; every pod given is on this node.

    A pod holds no longer than its node exists, and only within its `limits`, where it has some.
    `bound` gives by pod uid what is already known of its binding; other pods are classified by
    the node's labels when they first held in the hour. Where holdings exceed the cards they are
    scaled to fit (`overcommitted`).
    """
    spells = sorted((s for s in spells if s.start < end and s.end > start), key=lambda s: s.start)
    ledger = NodeLedger(node=spells[0].node if spells else "")
    exists = union((max(s.start, start), min(s.end, end)) for s in spells)
    for pod in pods:
        span = pod.held(end)
        held = clip(exists, *span) if span else ()
        if limits is not None and pod.uid in limits:
            held = union(part for limit in limits[pod.uid] for part in clip(held, *limit))
        if held:
            ledger.holdings.extend(_pod_holdings(pod, held, spells, classifier, bound or {}))
    _sweep(ledger, spells, start, end, classifier)
    return ledger


def _pod_holdings(
    pod: PodRecord,
    held: tuple[Span, ...],
    spells: Sequence[NodeSpell],
    classifier: Classifier,
    bound: Mapping[str, Bound],
) -> Iterable[Holding]:
    ran = pod.ran(held[-1][1])
    runs = tuple(run for part in held for run in clip(ran, *part))
    spell = next(s for s in spells if s.end > held[0][0])
    for resource, units in sorted(pod.requests.items()):
        card, weight, shared = classifier.unit(resource, spell)
        known = bound.get(pod.uid)
        if known is not None and len(pod.requests) == 1:
            card, weight = _as_bound(card, known), known.weight
        yield Holding(pod, resource, units, weight, card, held, runs, shared)


def _as_bound(card: Card, known: Bound) -> Card:
    if (known.tier, known.model) == card[:2]:
        return card
    # One model is written in two ways by its node and by its devices.
    model = card.model if same_model(known.model, card.model) else known.model
    return Card(known.tier, model, card.capacity_type)


def _sweep(
    ledger: NodeLedger,
    spells: Sequence[NodeSpell],
    start: float,
    end: float,
    classifier: Classifier,
) -> None:
    if len(spells) == 1 and _fits(ledger, spells[0], start, end, classifier):
        return
    instants = {start, end}
    for spell in spells:
        instants.update((max(spell.start, start), min(spell.end, end)))
    for holding in ledger.holdings:
        for part in holding.held:
            instants.update(part)
    ordered = sorted(instants)
    cards = {spell.start: _cards(spell, classifier) for spell in spells}
    fitted: dict[int, float] = defaultdict(float)
    for a, b in pairwise(ordered):
        here = [h for h in ledger.holdings if any(s <= a and e >= b for s, e in h.held)]
        there = next((s for s in spells if s.start <= a and s.end >= b), None)
        share = _distribute(ledger, there, here, b - a, cards)
        for holding in here:
            fitted[id(holding)] += share * (b - a)
    for holding in ledger.holdings:
        length = seconds(holding.held)
        if fitted[id(holding)] < length * (1 - 1e-9):
            holding.scale = fitted[id(holding)] / length
            ledger.overcommitted = True


def _fits(
    ledger: NodeLedger, spell: NodeSpell, start: float, end: float, classifier: Classifier
) -> bool:
    """Enter the sums of a node on which nothing is to be settled; False where something is.

    So it is with most nodes, and sums are had without a sweep: one spell, healthy, all cards
    allocatable, and of no kind ever more held than there is.
    """
    there, allocatable = _cards(spell, classifier)
    if not (spell.ready and spell.schedulable) or there != allocatable:
        return False
    held: dict[Card, float] = defaultdict(float)
    for card, changes in _changes(ledger.holdings).items():
        level, last = 0.0, start
        for at, amount in sorted(changes):
            held[card] += level * (at - last)
            level, last = level + amount, at
            if _share(level, there.get(card, 0.0)) < 1.0:
                return False
    length = min(spell.end, end) - max(spell.start, start)
    for card, units in there.items():
        cards = ledger.cards[card]
        cards.capacity += units * length
        cards.unallocated += max(0.0, units * length - held[card])
    return True


def _changes(holdings: Iterable[Holding]) -> dict[Card, list[tuple[float, float]]]:
    """Return by kind of card (instant, by how many cards more or less are held from then on)."""
    changes: dict[Card, list[tuple[float, float]]] = defaultdict(list)
    for holding in holdings:
        cards = holding.units * holding.weight
        for a, b in holding.held:
            changes[holding.card] += ((a, cards), (b, -cards))
    return changes


def _distribute(
    ledger: NodeLedger,
    spell: NodeSpell | None,
    holdings: Sequence[Holding],
    length: float,
    cards_of: Mapping[float, tuple[dict[Card, float], dict[Card, float]]],
) -> float:
    """Distribute a node's cards over `length` seconds; return the share that holdings get."""
    if spell is None:
        return 0.0
    there, allocatable = map(dict, cards_of[spell.start])
    held: dict[Card, float] = defaultdict(float)
    for holding in holdings:
        held[holding.card] += holding.units * holding.weight
    share = _share(sum(held.values()), sum(there.values()))
    if share < 1.0:
        held = defaultdict(float, {card: amount * share for card, amount in held.items()})
    if any(amount > there.get(card, 0.0) for card, amount in held.items()):
        _lend(there, allocatable, held)
    healthy = spell.ready and spell.schedulable
    for card, capacity in there.items():
        free = max(0.0, capacity - held[card])
        broken = max(0.0, capacity - allocatable.get(card, 0.0))
        unhealthy = min(free, broken) if healthy else free
        cards = ledger.cards[card]
        cards.capacity += capacity * length
        cards.unhealthy += unhealthy * length
        cards.unallocated += (free - unhealthy) * length
    _note_unhealthy(holdings, held, allocatable, length, healthy=healthy, share=share)
    return share


def _share(held: float, there: float) -> float:
    # A hair of slack: sums of thirds and sevenths of a card must not look overcommitted.
    return 1.0 if held <= there * (1 + 1e-9) else there / held


def _cards(spell: NodeSpell, classifier: Classifier) -> tuple[dict[Card, float], dict[Card, float]]:
    there: dict[Card, float] = defaultdict(float)
    allocatable: dict[Card, float] = defaultdict(float)
    for resource, units in sorted(spell.capacity.items()):
        card, weight, _ = classifier.unit(resource, spell)
        there[card] += units * weight
        allocatable[card] += min(units, spell.allocatable.get(resource, 0.0)) * weight
    return there, allocatable


def _lend(
    there: dict[Card, float], allocatable: dict[Card, float], held: Mapping[Card, float]
) -> None:
    """Move free cards to the kinds that hold more than they have, allocatable ones first.

    A pod keeps the tier it was bound with, so after its node was relabelled its cards still
    count there, and the node's new tier has that much less.
    """
    for card in sorted(held):
        lacking = held[card] - there.get(card, 0.0)
        for other in sorted(there):
            if lacking <= 0:
                break
            moved = min(lacking, max(0.0, there[other] - held.get(other, 0.0)))
            if other != card and moved > 0:
                well = min(moved, allocatable.get(other, 0.0))
                for cards, amount in ((there, moved), (allocatable, well)):
                    cards[other] = cards.get(other, 0.0) - amount
                    cards[card] = cards.get(card, 0.0) + amount
                lacking -= moved


def _note_unhealthy(
    holdings: Sequence[Holding],
    held: Mapping[Card, float],
    allocatable: Mapping[Card, float],
    length: float,
    *,
    healthy: bool,
    share: float,
) -> None:
    """Add to each holding what of it lay on unhealthy cards (allocation wins, kept beside)."""
    for holding in holdings:
        total = held[holding.card]
        over = total - allocatable.get(holding.card, 0.0) if healthy else total
        if over > 1e-9 and total > 0:
            part = holding.units * holding.weight * share / total
            holding.on_unhealthy += min(over, total) * part * length


def running_seconds(holding: Holding) -> float:
    """Return for how many seconds of the hour its GPU containers ran."""
    return seconds(holding.runs)
