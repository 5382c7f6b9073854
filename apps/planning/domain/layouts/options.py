"""What each node could offer: other MIG layouts, whole GPUs, or other numbers of replicas.

Only nodes that offered the same all through the window are changed. Claims choose MIG devices by
themselves, and nodes that are tainted for some work are left as they are.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from math import floor

from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.mig import fewest_gpus, mig_part, part_of
from apps.clusters.domain.devices.mig_layouts import fullest_layouts
from apps.clusters.domain.tiers import (
    PRODUCT_LABEL,
    UNMATCHED,
    GpuSharing,
    TierRule,
    gpu_model,
    is_shared,
    tier_of,
)
from apps.planning.domain.cluster_replay.inputs import ReplayDevice, ReplayNode
from apps.planning.domain.recorded.constraints import TAINTS

_GPU = "nvidia.com/gpu"
_SHARED_GPU = "nvidia.com/gpu.shared"
_MIG = "nvidia.com/mig-"
_COUNT = "nvidia.com/gpu.count"
_REPLICAS = "nvidia.com/gpu.replicas"
_STRATEGY = "nvidia.com/mig.strategy"
_SHARING = "nvidia.com/gpu.sharing-strategy"
_SHARED = "-SHARED"
_MIG_MARK = "-MIG-"
_MOST_LOAD = 0.8
"""A GPU may be as active as this on average after it is shared by more."""
_MORE_REPLICAS = 2
"""Replicas are at most multiplied by this: what more would do was never seen."""


class LeftAsIs(StrEnum):
    """Why a node with GPUs is not changed."""

    CLAIMS = "claims"
    CLOSED = "closed"
    CHANGED = "changed"
    TAINTED = "tainted"
    NO_CHOICE = "no-choice"


class GpuLayout(Struct, frozen=True):
    """How a GPU is given out: whole, as MIG devices (`mig`), or as `replicas` of it.

    `units` are what it offers of each tier; `labels` what its node says then beside its others.
    `whole_node`: all GPUs of a node are given out so. `strategy` is `time-slicing` or `mps` of
    replicas, `single` or `mixed` of MIG devices, which the device plug-in must be told. `tiers` has
    the tier of each MIG profile.
    """

    units: tuple[tuple[str, float], ...]
    mig: tuple[tuple[str, int], ...] = ()
    replicas: int = 1
    strategy: str = ""
    renamed: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    whole_node: bool = False
    tiers: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        """How people write it: `2 × 3g.40gb`, `4 replicas`, `whole GPU`."""
        if self.mig:
            return " + ".join(f"{count} × {profile}" for profile, count in self.mig)
        return f"{self.replicas} replicas" if self.replicas > 1 else "whole GPU"

    def devices(self, model: str, gpu: int) -> list[ReplayDevice]:
        """Return the devices of one GPU for a replay; those of no tier are left out."""
        if not self.mig:
            units, weight = float(self.replicas), 1 / self.replicas
            return [ReplayDevice(tier, units, weight, gpu) for tier, _ in self.units]
        tiers = dict(self.tiers)
        return [
            ReplayDevice(tiers[profile], 1.0, mig_part(profile, model), gpu, profile)
            for profile, count in self.mig
            if profile in tiers
            for _ in range(count)
        ]


class NodeGroup(Struct, frozen=True):
    """Nodes that are alike: model, GPUs, labels of tiers, and what they offer now (`units`)."""

    nodes: tuple[str, ...]
    model: str
    gpus: int
    units: Mapping[str, float]
    text: str
    options: tuple[GpuLayout, ...]
    has_mig: bool = False


class LayoutChoices(Struct, frozen=True):
    """The groups that can be changed, what all other nodes offer, and why others are left."""

    groups: tuple[NodeGroup, ...]
    fixed: Mapping[str, float]
    left: Mapping[LeftAsIs, int]


def layout_choices(
    nodes: Sequence[ReplayNode],
    rules: Sequence[TierRule],
    activity: Mapping[str, float],
    *,
    end: float,
) -> LayoutChoices:
    """Return what the nodes could offer by the catalog's rules.

    `activity` is the utilization of each tier (0..1) where it is known: replicas of time-sliced
    GPUs grow as far as it allows. Those of MPS never do, for each has its part of the memory.
    """
    by_claim = {rule.tier for rule in rules if rule.sharing == GpuSharing.DRA}
    groups: dict[tuple[object, ...], list[ReplayNode]] = defaultdict(list)
    options: dict[tuple[object, ...], tuple[GpuLayout, ...]] = {}
    left: Counter[LeftAsIs] = Counter()
    fixed: dict[str, float] = defaultdict(float)
    for node in nodes:
        key = _key(node)
        reason = _reason_to_leave(node, by_claim, end)
        if reason is None and key not in options:
            options[key] = tuple(_options(node, rules, activity))
        if reason is None and not options[key]:
            reason = LeftAsIs.NO_CHOICE
        if reason is None:
            groups[key].append(node)
            continue
        left[reason] += 1
        if not _is_closed(node, end):
            for tier, units in node_units(node).items():
                fixed[tier] += units
    found = (_group(own, options[key]) for key, own in groups.items())
    return LayoutChoices(tuple(found), dict(fixed), dict(left))


def node_units(node: ReplayNode) -> dict[str, float]:
    """Return how many units of each tier a node offers."""
    found: dict[str, float] = defaultdict(float)
    for device in node.devices:
        found[device.tier] += device.units
    return dict(found)


def gpu_count(node: ReplayNode) -> int:
    """Return how many GPUs a node has: whole ones, and those that its MIG devices are on."""
    profiles = Counter(device.profile for device in node.devices if device.profile)
    whole = sum(1 for device in node.devices if not device.profile)
    if not profiles:
        return whole
    fewest = whole + fewest_gpus(profiles, gpu_model(node.labels))
    # Under the strategy `single` the label counts MIG devices.
    named = node.labels.get(_COUNT, "") if not _is_single(node) else ""
    return max(fewest, int(named) if named.isdecimal() else 0)


def changed_node(node: ReplayNode, model: str, layouts: Sequence[GpuLayout]) -> ReplayNode:
    """Return a node whose GPUs are given out by these layouts, one for each."""
    devices = [one for gpu, layout in enumerate(layouts) for one in layout.devices(model, gpu)]
    labels = {**node.labels, **dict(layouts[0].labels)}
    return replace(node, devices=tuple(devices), labels=labels)


def _key(node: ReplayNode) -> tuple[object, ...]:
    kept = (PRODUCT_LABEL, _STRATEGY, _SHARING, _REPLICAS, TAINTS)
    labels = tuple(node.labels.get(key, "") for key in kept)
    return (labels, gpu_count(node), tuple(sorted(node_units(node).items())))


def _group(nodes: Sequence[ReplayNode], options: tuple[GpuLayout, ...]) -> NodeGroup:
    first = nodes[0]
    return NodeGroup(
        tuple(node.name for node in nodes),
        gpu_model(first.labels),
        gpu_count(first),
        node_units(first),
        _text(first),
        options,
        has_mig=any(device.profile for device in first.devices),
    )


def _text(node: ReplayNode) -> str:
    profiles = Counter(device.profile for device in node.devices if device.profile)
    parts = [f"{count} × {profile}" for profile, count in sorted(profiles.items())]
    whole = [device for device in node.devices if not device.profile]
    if whole and (replicas := int(whole[0].units)) > 1:
        parts.append(f"{len(whole)} × {replicas} replicas")
    elif whole:
        parts.append(f"{len(whole)} × whole GPU")
    return " + ".join(parts)


def _is_closed(node: ReplayNode, end: float) -> bool:
    return any(span.end >= end for span in node.closed)


def _reason_to_leave(node: ReplayNode, by_claim: Iterable[str], end: float) -> LeftAsIs | None:
    if {device.tier for device in node.devices} & set(by_claim):
        return LeftAsIs.CLAIMS
    if _is_closed(node, end):
        return LeftAsIs.CLOSED
    # The replay has the most that a node ever offered: which of its layouts holds now is not there.
    if node.missing:
        return LeftAsIs.CHANGED
    taints = [one for one in node.labels.get(TAINTS, "").split(",") if one]
    if any(not one.startswith(_GPU) for one in taints):
        return LeftAsIs.TAINTED
    return None


def _is_single(node: ReplayNode) -> bool:
    return _MIG_MARK in node.labels.get(PRODUCT_LABEL, "")


def _options(
    node: ReplayNode, rules: Sequence[TierRule], activity: Mapping[str, float]
) -> list[GpuLayout]:
    product = node.labels.get(PRODUCT_LABEL, "")
    base = product.partition(_MIG_MARK)[0].removesuffix(_SHARED)
    shared = {device.tier for device in node.devices if device.units > 1}
    profiles = any(device.profile for device in node.devices)
    if not base or (shared and profiles):
        return []
    if shared:
        found = _shared_options(node, base, rules, activity)
    else:
        found = _mig_options(node, base, rules)
    now = node_units(node)
    gpus = gpu_count(node)
    # What only repeats what is there is no choice.
    others = [one for one in found if {t: u * gpus for t, u in one.units} != now]
    return found if others else []


def _mig_options(node: ReplayNode, base: str, rules: Sequence[TierRule]) -> list[GpuLayout]:
    """Return whole GPUs and MIG layouts whose devices are all of a tier."""
    part = part_of(gpu_model(node.labels))
    if part is None:
        return []
    single = _is_single(node) or node.labels.get(_STRATEGY) == "single"
    found = []
    tiers = {}
    for profile in part.profiles:
        labels = {**node.labels, PRODUCT_LABEL: f"{base}{_MIG_MARK}{profile}" if single else base}
        tiers[profile] = tier_of(_GPU if single else f"{_MIG}{profile}", labels, rules)
    # A device of no tier would be capacity that is offered to no team.
    named = [profile for profile, tier in tiers.items() if tier != UNMATCHED]
    for layout in fullest_layouts(part, named):
        # All devices of such a node are offered under one name, so they must be alike.
        if single and len(layout) > 1:
            continue
        found.append(_mig_layout(layout, tiers, base, single=single))
    whole = _whole(node, base, rules)
    return [*found, replace(whole, whole_node=single)] if whole else found


def _mig_layout(
    layout: Mapping[str, int], tiers: Mapping[str, str], base: str, *, single: bool
) -> GpuLayout:
    units: dict[str, float] = defaultdict(float)
    for profile, count in layout.items():
        units[tiers[profile]] += count
    product = f"{base}{_MIG_MARK}{next(iter(layout))}" if single else base
    return GpuLayout(
        tuple(sorted(units.items())),
        mig=tuple(sorted(layout.items())),
        strategy="single" if single else "mixed",
        labels=((PRODUCT_LABEL, product),),
        whole_node=single,
        tiers=tuple((profile, tiers[profile]) for profile in layout),
    )


def recut_node(
    node: ReplayNode, now: Mapping[str, int], then: Mapping[str, int], rules: Sequence[TierRule]
) -> ReplayNode | None:
    """Return a node whose GPUs all are cut as `then`, by MIG profile; devices of no tier are none.

    None where it does not offer `now` on each of its GPUs all through, or cannot have both at once
    under the strategy `single`.
    """
    gpus, product = gpu_count(node), node.labels.get(PRODUCT_LABEL, "")
    own = Counter(device.profile for device in node.devices)
    # What was cut meanwhile, or lacks devices, is not what the change was meant for.
    if node.missing or own != {name: count * gpus for name, count in now.items() if count}:
        return None
    if _is_single(node) or node.labels.get(_STRATEGY) == "single":
        return None
    named = {one: tier_of(f"{_MIG}{one}", node.labels, rules) for one in then}
    layout = {one: count for one, count in then.items() if named[one] != UNMATCHED}
    each = _mig_layout(layout, named, product, single=False)
    return changed_node(node, gpu_model(node.labels), [each] * gpus)


def _whole(node: ReplayNode, base: str, rules: Sequence[TierRule]) -> GpuLayout | None:
    # Labels of sharing would make the whole GPU look like a replica.
    kept = {k: v for k, v in node.labels.items() if k not in (_SHARING, _REPLICAS)}
    tier = tier_of(_GPU, {**kept, PRODUCT_LABEL: base}, rules)
    if tier == UNMATCHED:
        return None
    labels = ((PRODUCT_LABEL, base), (_REPLICAS, "1"), (_SHARING, "none"))
    return GpuLayout(((tier, 1.0),), labels=labels)


def _shared_options(
    node: ReplayNode, base: str, rules: Sequence[TierRule], activity: Mapping[str, float]
) -> list[GpuLayout]:
    now = int(node.devices[0].units)
    tier = node.devices[0].tier
    strategy = node.labels.get(_SHARING, "") or "time-slicing"
    product = node.labels.get(PRODUCT_LABEL, "")
    renamed = not product.endswith(_SHARED) and is_shared(_SHARED_GPU, node.labels)
    most = now
    # No metrics is not idle: without activity the effect of more pods is not known.
    if strategy == "time-slicing" and activity.get(tier):
        # Activity grows with the pods on a GPU, taken to be in proportion.
        by_load = floor(now * _MOST_LOAD / activity[tier] + 1e-9)
        most = max(now, min(_MORE_REPLICAS * now, by_load))
    found = []
    for replicas in sorted({now, most}):
        labels = ((PRODUCT_LABEL, product), (_REPLICAS, str(replicas)))
        resource = _SHARED_GPU if renamed else _GPU
        of_tier = tier_of(resource, {**node.labels, **dict(labels)}, rules)
        if of_tier != UNMATCHED:
            found.append(
                GpuLayout(
                    ((of_tier, float(replicas)),),
                    replicas=replicas,
                    strategy=strategy,
                    renamed=renamed,
                    labels=labels,
                    whole_node=True,
                )
            )
    whole = _whole(node, base, rules)
    return [*found, replace(whole, whole_node=True)] if whole else found
