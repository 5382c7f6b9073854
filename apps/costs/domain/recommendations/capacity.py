"""Rules about capacity itself: quota that nobody uses, MIG layouts that strand, empty nodes."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil, fsum

from apps.clusters.domain.devices.mig import Geometry, MigModel, part_of
from apps.clusters.domain.quantities import quantity
from apps.costs.domain.costing import Cause
from apps.costs.domain.recommendations import patches
from apps.costs.domain.recommendations.coverage import Fractions, cell_name
from apps.costs.domain.recommendations.evidence import (
    LayoutEvidence,
    PoolEvidence,
    QuotaEvidence,
)
from apps.costs.domain.recommendations.gpus import HEADROOM
from apps.costs.domain.recommendations.recommendation import (
    HOURS_PER_MONTH,
    Confidence,
    Recommendation,
    RecommendationKind,
    Saving,
    at_most,
    by_evidence,
    enough,
)

HOURS_PER_WEEK = 168
LEAST_WEEKS = 3
SHORTEST_STRETCH_HOURS = 4
"""A node that is empty for less than this is not worth being sent away and called back."""
POOL = "Pool"
"""What the subject of nodes of one kind begins with: `Pool/spot/<GPU model>`."""
_HAIR = 1e-9
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def unused_quota(one: QuotaEvidence) -> Recommendation | None:
    """A quota allows more than was ever used of it: lower it to the peak and some headroom.

    A promise costs nothing by itself. What could be saved is the capacity that stood empty for it,
    at most what the quota would be lowered by, and its share of what stood empty for all quotas of
    the tier (`shared_out`).
    """
    unused = _unused(one)
    if unused < 1:
        return None
    wanted = one.hard - unused
    own = unused * one.weight
    freed = own * min(1.0, one.unallocated_gpus / max(own, one.unused_in_tier))
    confidence, reason = at_most(
        Confidence.MEDIUM,
        "it saves only what capacity is given up in return",
        by_evidence(days=one.days, coverage=one.coverage),
    )
    return Recommendation(
        kind=RecommendationKind.UNUSED_QUOTA,
        subject=one.subject,
        change=f"Lower {one.key} from {quantity(one.hard)} to {quantity(wanted)}: "
        f"at most {quantity(one.peak_used)} were ever used at once.",
        saved=Saving(freed * HOURS_PER_MONTH, one.price_per_gpu_hour),
        currency=one.currency,
        confidence=confidence,
        reason=reason,
        evidence={
            "days": round(one.days, 1),
            "hard": one.hard,
            "peak_used": one.peak_used,
            "unallocated_gpus": round(one.unallocated_gpus, 3),
        },
        patch=patches.quota(one.subject, one.key, wanted),
    )


def shared_out(quotas: Iterable[QuotaEvidence]) -> list[QuotaEvidence]:
    """Return quotas told what all of their tier could be lowered by.

    The same cards stood empty for all of them, and can be given up once.
    """
    found = list(quotas)
    unused: dict[tuple[str, str], list[float]] = defaultdict(list)
    for one in found:
        unused[one.subject.cluster, one.subject.tier].append(_unused(one) * one.weight)
    return [
        replace(one, unused_in_tier=fsum(unused[one.subject.cluster, one.subject.tier]))
        for one in found
    ]


def _unused(one: QuotaEvidence) -> float:
    """Return by how much a quota could be lowered, 0.0 for less than a unit or too little known.

    It never falls below its peak and headroom, in whole units, and never rises.
    """
    if not enough(days=one.days, coverage=one.coverage):
        return 0.0
    needed = max(ceil(one.peak_used * HEADROOM - _HAIR), ceil(one.peak_used))
    unused = one.hard - min(one.hard, float(needed))
    return unused if unused >= 1 else 0.0


def mig_layout(one: LayoutEvidence) -> Recommendation | None:
    """Another layout has all that was ever held of the present one, and strands less.

    Of the layouts that strand least, the one with the fewest changes.
    """
    part = part_of(one.gpu_model)
    if part is None or not enough(days=one.days, coverage=one.coverage):
        return None
    now = stranded(one.layout, part)
    candidates = [
        (stranded(layout, part), _changes(one.layout, layout), tuple(layout.items()), layout)
        for layout in layouts(part)
        if all(layout.get(profile, 0) >= held for profile, held in one.most_held.items())
    ]
    if not candidates:
        return None
    then, *_, best = min(candidates, key=lambda each: each[:3])
    if then >= now:
        return None
    confidence, reason = at_most(
        Confidence.MEDIUM,
        "cards must be drained to be cut anew",
        by_evidence(days=one.days, coverage=one.coverage),
    )
    total = _slices(part)
    return Recommendation(
        kind=RecommendationKind.MIG_LAYOUT,
        subject=one.subject,
        change=f"Cut {one.cards} × {part.name} as {_written(best)} instead of "
        f"{_written(one.layout)}: {then} instead of {now} of {total} slices are stranded.",
        saved=Saving(one.cards * (now - then) / total * HOURS_PER_MONTH, one.price_per_gpu_hour),
        currency=one.currency,
        confidence=confidence,
        reason=reason,
        evidence={
            "days": round(one.days, 1),
            "cards": one.cards,
            "stranded_slices_now": now,
            "stranded_slices_then": then,
            "most_held": _written(one.most_held),
        },
    )


def empty_nodes(one: PoolEvidence) -> Recommendation | None:
    """At some hours of every week nodes of a pool were wholly empty: have them scaled down then.

    Counted is the least of all weeks, and only stretches of SHORTEST_STRETCH_HOURS and more.
    """
    weeks = [len(counts) for counts in one.empty_nodes.values()]
    if not enough(days=one.days, coverage=one.coverage) or not weeks:
        return None
    if len(one.empty_nodes) < HOURS_PER_WEEK or min(weeks) < LEAST_WEEKS:
        return None
    stretches = list(_stretches([min(one.empty_nodes[hour]) for hour in range(HOURS_PER_WEEK)]))
    if not stretches:
        return None
    node_hours = sum(nodes * hours for _, hours, nodes in stretches)
    gpu_hours = node_hours * one.gpus_per_node * HOURS_PER_MONTH / HOURS_PER_WEEK
    confidence, reason = at_most(
        Confidence.HIGH if min(weeks) > LEAST_WEEKS else Confidence.MEDIUM,
        f"so in each of {min(weeks)} weeks",
        by_evidence(days=one.days, coverage=one.coverage),
    )
    listed = "; ".join(_stretch_text(*stretch) for stretch in stretches)
    return Recommendation(
        kind=RecommendationKind.EMPTY_NODES,
        subject=one.subject,
        change=f"Scale down {one.capacity_type} nodes with {one.gpu_model} while they are empty "
        f"every week: {listed}.",
        saved=Saving(gpu_hours, one.price_per_gpu_hour),
        currency=one.currency,
        confidence=confidence,
        reason=reason,
        evidence={
            "weeks": min(weeks),
            "empty_node_hours_per_week": node_hours,
            "gpus_per_node": one.gpus_per_node,
        },
        cells=_of_pool(one, node_hours),
    )


def _of_pool(one: PoolEvidence, node_hours: int) -> Fractions:
    """Return the part of the pool's unallocated hours that these nodes are."""
    if not one.unallocated_gpu_hours:
        return {}
    freed = node_hours * one.gpus_per_node * one.days / 7
    name = cell_name("", "", one.gpu_model, one.capacity_type)
    return {name: {Cause.UNALLOCATED.value: min(1.0, freed / one.unallocated_gpu_hours)}}


def layouts(part: MigModel) -> Iterator[dict[str, int]]:
    """Yield every set of profiles that fits on one card, by compute and memory slices."""
    yield from _filled(list(part.profiles.items()), *_room(part))


def stranded(layout: Mapping[str, int], part: MigModel) -> int:
    """Return how many compute slices of a card a layout leaves over."""
    used = sum(
        part.profiles[name].compute * n for name, n in layout.items() if name in part.profiles
    )
    return _slices(part) - used


def _room(part: MigModel) -> tuple[int, int]:
    cut = next(iter(part.profiles.values()))
    return cut.compute_total, cut.memory_total


def _slices(part: MigModel) -> int:
    return _room(part)[0]


def _filled(
    profiles: Sequence[tuple[str, Geometry]], compute: int, memory: int
) -> Iterator[dict[str, int]]:
    if not profiles:
        yield {}
        return
    (name, cut), *rest = profiles
    for count in range(cut.most + 1):
        left = compute - count * cut.compute, memory - count * cut.memory
        if min(left) < 0:
            return
        for layout in _filled(rest, *left):
            yield {name: count, **layout} if count else layout


def _changes(old: Mapping[str, int], new: Mapping[str, int]) -> int:
    return sum(abs(old.get(name, 0) - new.get(name, 0)) for name in {*old, *new})


def _written(layout: Mapping[str, int]) -> str:
    return " + ".join(f"{n} × {name}" for name, n in sorted(layout.items()) if n) or "nothing"


def _stretches(empty: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield start hour, length and nodes of stretches of a cyclic week, level by level.

    Three nodes for ten hours of which a fourth is empty for six: (ten hours, 3), (six hours, 1).
    """
    levels = sorted(set(empty) - {0})
    for below, level in zip([0, *levels], levels, strict=False):
        for start, hours in _runs([count >= level for count in empty]):
            if hours >= SHORTEST_STRETCH_HOURS:
                yield start, hours, level - below


def _runs(flags: Sequence[bool]) -> Iterable[tuple[int, int]]:
    """Yield start and length of what is true in a row; Sunday night goes on into Monday."""
    if all(flags):
        return [(0, len(flags))]
    starts = [at for at in range(len(flags)) if flags[at] and not flags[at - 1]]
    return [(start, _length(flags, start)) for start in starts]


def _length(flags: Sequence[bool], start: int) -> int:
    hours = 0
    while flags[(start + hours) % len(flags)]:
        hours += 1
    return hours


def _stretch_text(start: int, hours: int, nodes: int) -> str:
    if hours == HOURS_PER_WEEK:
        return f"{_nodes(nodes)} all week"
    end = (start + hours) % HOURS_PER_WEEK
    return f"{_nodes(nodes)} {_hour_text(start)} to {_hour_text(end)}"


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _hour_text(hour: int) -> str:
    return f"{_DAYS[hour // 24]} {hour % 24:02d}:00"
