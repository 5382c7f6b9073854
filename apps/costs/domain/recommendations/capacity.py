"""Rules about capacity: unused quota, stranded MIG devices, empty nodes and idle hours."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil, floor, fsum

from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.mig import part_of
from apps.clusters.domain.devices.mig_layouts import layouts, slices, stranded
from apps.clusters.domain.resources import gpus, quantity
from apps.clusters.domain.tiers import CapacityType
from apps.costs.domain.costing import Cause
from apps.costs.domain.recommendations import patches
from apps.costs.domain.recommendations.evidence import (
    Evidence,
    LayoutEvidence,
    PoolEvidence,
    QuotaEvidence,
)
from apps.costs.domain.recommendations.recommendation import (
    HOURS_PER_MONTH,
    LEAST_COVERAGE,
    LEAST_DAYS,
    Confidence,
    CutLayout,
    Finding,
    Fractions,
    LentQuota,
    LoweredLimit,
    Rating,
    RecommendationKind,
    Saving,
    ScaledPool,
    cell_name,
    per_month,
)
from apps.costs.domain.recommendations.rightsizing import HEADROOM

HOURS_PER_WEEK = 168
# Twice the same may be chance.
LEAST_WEEKS = 3
SHORTEST_STRETCH_HOURS = 4
"""A node that is empty for less than this is not worth being sent away and called back."""
POOL = "Pool"
"""What the subject of nodes of one kind begins with: `Pool/spot/<GPU model>`."""
# Amounts are sums of floats: 7.0000000001 units must not round up to eight.
_HAIR = 1e-9
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
USUAL = 0.2
"""What is empty in four of five alike hours is usual."""
LEAST_ALIKE = 4
"""An hour of the day is told from this many days, weekdays and weekends apart."""
WANTED_FROM = 0.1
"""From this part on it is doubtful that what stands empty is not needed."""
LEAST_HOURS = 24 * LEAST_DAYS * LEAST_COVERAGE
"""From so many hours on it is told what stood empty in all of them."""
_HOURS, _SATURDAY = 24, 5


def unused_quota(one: QuotaEvidence) -> Finding | None:
    """A quota allows more than was ever used of it: lower it to the peak and some headroom.

    A promise costs nothing by itself. What could be saved is the capacity that stood empty for it,
    at most what the quota would be lowered by, and its share of what stood empty for all quotas of
    the tier (`shared_out`).
    """
    unused = _unused_units(one)
    if unused < 1:
        return None
    wanted = one.hard - unused
    own = unused * one.weight
    # A GPU that stood empty for three quotas can be given up only once.
    freed = own * min(1.0, one.unallocated_gpus / max(own, one.unused_in_tier))
    return Finding(
        kind=RecommendationKind.UNUSED_QUOTA,
        subject=one.subject,
        change=f"Lower {one.key} from {quantity(one.hard)} to {quantity(wanted)}: "
        f"at most {quantity(one.peak_used)} were ever used at once.",
        saved=Saving(freed * HOURS_PER_MONTH, one.price_per_gpu_hour),
        currency=one.currency,
        rating=one.rating.at_most(
            Confidence.MEDIUM, "it saves only what capacity is given up in return"
        ),
        evidence={
            "days": round(one.days, 1),
            "hard": one.hard,
            "peak_used": one.peak_used,
            "unallocated_gpus": round(one.unallocated_gpus, 3),
        },
        patch=patches.quota(one.subject, one.key, wanted),
        change_values=LoweredLimit(one.key, one.hard, wanted),
    )


def shared_out(quotas: Iterable[QuotaEvidence]) -> list[QuotaEvidence]:
    """Return quotas told what all of their tier could be lowered by.

    The same GPUs were empty for all of them, and can be given up once.
    """
    found = list(quotas)
    unused: dict[tuple[str, str], list[float]] = defaultdict(list)
    for one in found:
        unused[one.subject.cluster, one.subject.tier].append(_unused_units(one) * one.weight)
    return [
        replace(one, unused_in_tier=fsum(unused[one.subject.cluster, one.subject.tier]))
        for one in found
    ]


def _unused_units(one: QuotaEvidence) -> float:
    """Return by how much a quota could be lowered, 0.0 for less than a unit or too little known.

    It never falls below its peak and headroom, in whole units, and never rises.
    """
    if not one.is_enough:
        return 0.0
    # A float product may end just above a whole number; the hair keeps `ceil` from adding one.
    needed = max(ceil(one.peak_used * HEADROOM - _HAIR), ceil(one.peak_used))
    unused = one.hard - min(one.hard, float(needed))
    return unused if unused >= 1 else 0.0


def mig_layout(one: LayoutEvidence) -> Finding | None:
    """Another layout has all that was ever held of the present one, and strands less.

    Of the layouts that strand least, the one with the fewest changes.
    """
    part = part_of(one.gpu_model)
    if part is None or not one.is_enough:
        return None
    now = stranded(one.layout, part)
    candidates = [
        (stranded(layout, part), _changes(one.layout, layout), tuple(layout.items()), layout)
        for layout in layouts(part)
        if all(layout.get(profile, 0) >= held for profile, held in one.most_held.items())
    ]
    if not candidates:
        return None
    # Without the layout itself: mappings have no order, and a tie would raise.
    then, *_, best = min(candidates, key=lambda each: each[:3])
    if then >= now:
        return None
    total = slices(part)
    return Finding(
        kind=RecommendationKind.MIG_LAYOUT,
        subject=one.subject,
        change=f"Cut {one.gpus} × {part.name} as {_layout_text(best)} instead of "
        f"{_layout_text(one.layout)}: {then} instead of {now} of {total} slices are stranded.",
        saved=Saving(one.gpus * (now - then) / total * HOURS_PER_MONTH, one.price_per_gpu_hour),
        currency=one.currency,
        rating=one.rating.at_most(
            Confidence.MEDIUM, ("GPUs must be drained before their layout changes")
        ),
        evidence={
            "days": round(one.days, 1),
            "cards": one.gpus,
            "stranded_slices_now": now,
            "stranded_slices_then": then,
            "most_held": _layout_text(one.most_held),
        },
        change_values=CutLayout(one.gpus, dict(one.layout), dict(best)),
    )


def empty_nodes(one: PoolEvidence) -> Finding | None:
    """At some hours of every week nodes of a pool were wholly empty: have them scaled down then.

    Counted is the least of all weeks, and only stretches of SHORTEST_STRETCH_HOURS and more.
    """
    weeks = [len(counts) for counts in one.empty_nodes.values()]
    if not one.is_enough or not weeks:
        return None
    # An hour of the week that was never seen is not known to be empty.
    if len(one.empty_nodes) < HOURS_PER_WEEK or min(weeks) < LEAST_WEEKS:
        return None
    stretches = list(_stretches([min(one.empty_nodes[hour]) for hour in range(HOURS_PER_WEEK)]))
    if not stretches:
        return None
    node_hours = sum(nodes * hours for _, hours, nodes in stretches)
    gpu_hours = node_hours * one.gpus_per_node * HOURS_PER_MONTH / HOURS_PER_WEEK
    listed = "; ".join(_stretch_text(*stretch) for stretch in stretches)
    return Finding(
        kind=RecommendationKind.EMPTY_NODES,
        subject=one.subject,
        change=f"Scale down {one.capacity_type} nodes with {one.gpu_model} while they are empty "
        f"every week: {listed}.",
        saved=Saving(gpu_hours, one.price_per_gpu_hour),
        currency=one.currency,
        rating=one.rating.at_most(
            Confidence.HIGH if min(weeks) > LEAST_WEEKS else Confidence.MEDIUM,
            f"so in each of {min(weeks)} weeks",
        ),
        evidence={
            "weeks": min(weeks),
            "empty_node_hours_per_week": node_hours,
            "gpus_per_node": one.gpus_per_node,
        },
        cells=_of_pool(one, node_hours),
        change_values=_scaled(one, stretches),
    )


def _scaled(one: PoolEvidence, stretches: Iterable[tuple[int, int, int]]) -> ScaledPool:
    away = [0.0] * HOURS_PER_WEEK
    for start, hours, nodes in stretches:
        for hour in range(start, start + hours):
            away[hour % HOURS_PER_WEEK] += nodes * one.gpus_per_node
    return ScaledPool(one.gpu_model, one.capacity_type, away)


def _of_pool(one: PoolEvidence, node_hours: int) -> Fractions:
    """Return the part of the pool's unallocated hours that these nodes are."""
    if not one.unallocated_gpu_hours:
        return {}
    freed = node_hours * one.gpus_per_node * one.days / 7
    name = cell_name("", "", one.gpu_model, one.capacity_type)
    return {name: {Cause.UNALLOCATED.value: min(1.0, freed / one.unallocated_gpu_hours)}}


def _changes(old: Mapping[str, int], new: Mapping[str, int]) -> int:
    return sum(abs(old.get(name, 0) - new.get(name, 0)) for name in {*old, *new})


def _layout_text(layout: Mapping[str, int]) -> str:
    return " + ".join(f"{n} × {name}" for name, n in sorted(layout.items()) if n) or "nothing"


def _stretches(empty: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield start hour, length and nodes of stretches of a cyclic week, level by level.

    Three nodes for ten hours of which a fourth is empty for six: (ten hours, 3), (six hours, 1).
    """
    # Level by level: a node that is empty for longer has a stretch of its own.
    levels = sorted(set(empty) - {0})
    for below, level in zip([0, *levels], levels, strict=False):
        for start, hours in _runs([count >= level for count in empty]):
            if hours >= SHORTEST_STRETCH_HOURS:
                yield start, hours, level - below


def _runs(flags: Sequence[bool]) -> Iterable[tuple[int, int]]:
    """Yield start and length of what is true in a row; Sunday night goes on into Monday."""
    if all(flags):
        return [(0, len(flags))]
    # Index -1 is the last hour of Sunday: the week is a ring.
    starts = [at for at in range(len(flags)) if flags[at] and not flags[at - 1]]
    return [(start, _length(flags, start)) for start in starts]


def _length(flags: Sequence[bool], start: int) -> int:
    hours = 0
    while flags[(start + hours) % len(flags)]:
        hours += 1
    return hours


def _stretch_text(start: int, hours: int, nodes: int) -> str:
    if hours == HOURS_PER_WEEK:
        return f"{_node_count(nodes)} all week"
    end = (start + hours) % HOURS_PER_WEEK
    return f"{_node_count(nodes)} {_hour_text(start)} to {_hour_text(end)}"


def _node_count(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _hour_text(hour: int) -> str:
    return f"{_DAYS[hour // 24]} {hour % 24:02d}:00"


class HoursEvidence(Evidence, frozen=True, kw_only=True):
    """How many GPUs of a pool stood empty, by (weekend, local hour): one number for each day.

    `owned`: it is hardware that is paid for whether it runs or not. `stranded_gpu_hours` are
    unallocated too, and in none of `empty`. `pending_gpu_hours` were pending for the tier in the
    same hours; at most what was empty.
    """

    gpu_model: str
    capacity_type: str
    empty: Mapping[tuple[bool, int], Sequence[float]]
    owned: bool = False
    stranded_gpu_hours: float = 0.0
    pending_gpu_hours: float = 0.0


def empty_hours(one: HoursEvidence) -> Finding | None:
    """Whole GPUs of a pool stand empty at the same hours of nearly every day, or at all hours."""
    if not one.is_enough or len(one.empty) < 2 * _HOURS:
        return None
    hours = sum(len(amounts) for amounts in one.empty.values())
    if hours < LEAST_HOURS:
        return None
    # Whole GPUs: a part of one cannot be scaled down.
    always = floor(min(map(min, one.empty.values())) + _HAIR)
    usual = {at: _usually_empty(amounts, always) for at, amounts in one.empty.items()}
    freed = sum(min(each, usual[at]) for at, amounts in one.empty.items() for each in amounts)
    whole = sum(sum(amounts) for amounts in one.empty.values())
    if freed <= 0 or whole <= 0:
        return None
    weekdays = [usual[False, hour] for hour in range(_HOURS)]
    cell = cell_name("", "", one.gpu_model, one.capacity_type)
    return Finding(
        kind=RecommendationKind.EMPTY_HOURS,
        subject=one.subject,
        change=f"Scale down or lend {one.gpu_model} ({one.capacity_type}) that is empty: "
        f"{_empty_by_hour(usual)}.{_pending_first(one)}",
        saved=Saving(freed / hours * HOURS_PER_MONTH, one.price_per_gpu_hour),
        currency=one.currency,
        rating=_hours_confidence(one),
        evidence={
            "days": round(one.days, 1),
            "empty_gpu_hours": round(whole, 3),
            "usual_gpu_hours": round(freed, 3),
            "always_empty_gpus": always,
            "pending_gpu_hours_at_most": round(one.pending_gpu_hours, 3),
        },
        patch=patches.off_hours(one.subject.tier, min(weekdays), max(weekdays)),
        # Stranded slices are unallocated too, and no change by the hour frees them.
        cells={cell: {Cause.UNALLOCATED.value: freed / (whole + one.stranded_gpu_hours)}},
        change_values=ScaledPool(
            one.gpu_model,
            one.capacity_type,
            [
                float(usual[hour // _HOURS >= _SATURDAY, hour % _HOURS])
                for hour in range(HOURS_PER_WEEK)
            ],
        ),
    )


def _hours_confidence(one: HoursEvidence) -> Rating:
    found = one.rating
    if one.pending_gpu_hours >= WANTED_FROM * sum(map(sum, one.empty.values())):
        return found.at_most(Confidence.LOW, "work of the tier was pending in the same hours")
    if one.owned:
        return found.at_most(Confidence.LOW, "owned GPUs save money only when lent or sold")
    if one.capacity_type == CapacityType.RESERVED:
        return found.at_most(Confidence.LOW, "reserved GPUs are paid for until the term ends")
    return found.at_most(Confidence.MEDIUM, "in one of five such hours more is needed")


def _pending_first(one: HoursEvidence) -> str:
    """Return the first step where work was pending beside empty GPUs."""
    if not one.pending_gpu_hours:
        return ""
    return (
        f" First admit pending work: up to {one.pending_gpu_hours:,.0f} GPU-hours of it were "
        "pending in hours with empty GPUs."
    )


def _usually_empty(amounts: Sequence[float], always: int) -> int:
    """Return how many whole GPUs are empty in four of five alike hours.

    `always` is how many were empty in every hour of the evidence: all that few days tell.
    """
    if len(amounts) < LEAST_ALIKE:
        return always
    ordered = sorted(amounts)
    # Sorted upwards: four of five hours have this many empty, or more.
    return floor(ordered[int(len(ordered) * USUAL)] + _HAIR)


def _empty_by_hour(usual: Mapping[tuple[bool, int], int]) -> str:
    parts = []
    for weekend, days in ((False, "weekdays"), (True, "weekends")):
        counts = [usual[weekend, hour] for hour in range(_HOURS)]
        low, high = min(counts), max(counts)
        if low == high:
            parts.append(f"{gpus(low)} on {days}")
        else:
            hours = [hour for hour in range(_HOURS) if counts[hour] == high]
            parts.append(f"{low} to {gpus(high)} on {days}, most at {hours[0]:02d}:00")
    return "; ".join(parts)


class LendingEvidence(Struct, frozen=True):
    """A quota that was not used up while other teams had work pending for its tier.

    `free_unit_hours` is what was free of it in hours in which other work was pending,
    `pending_unit_hours` that pending work; `usual_used` is what nine of ten hours did not exceed.
    """

    of: QuotaEvidence
    usual_used: float
    free_unit_hours: float
    pending_unit_hours: float


def lend_quota(one: LendingEvidence) -> Finding | None:
    """Quota is held while others wait: lend what is usually free.

    Its saving is no cash: it is the price of the pending work that could have run.
    """
    quota = one.of
    if not quota.is_enough:
        return None
    usable = min(one.free_unit_hours, one.pending_unit_hours)
    lent = floor(quota.hard - one.usual_used * HEADROOM + _HAIR)
    if lent < 1 or usable <= 0:
        return None
    return Finding(
        kind=RecommendationKind.LEND_QUOTA,
        subject=quota.subject,
        change=f"Lend {lent} of {quantity(quota.hard)} {quota.key}: nine of ten hours used at most "
        f"{quantity(one.usual_used)}, while other work was pending.",
        saved=Saving(per_month(usable * quota.weight, quota.days), quota.price_per_gpu_hour),
        currency=quota.currency,
        rating=quota.rating.at_most(Confidence.LOW, "pending work may have had another cause"),
        evidence={
            "days": round(quota.days, 1),
            "hard": quota.hard,
            "usual_used": round(one.usual_used, 3),
            "free_unit_hours": round(one.free_unit_hours, 1),
            "pending_unit_hours": round(one.pending_unit_hours, 1),
        },
        patch=patches.lending(quota.key, quota.hard, lent),
        change_values=LentQuota(quota.key, quota.hard, float(lent)),
    )
