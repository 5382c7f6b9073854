"""The pools of `campus`: what GPUs there are, how each is shared, and how its exporter is set up.

A pool is what one tier of the catalog gives out. Nodes that are cut for two tiers are in two
pools, each with its own places on them.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from apps.accounts.domain.structs import replace
from simulator.fleet import (
    DAY,
    FULL_METRICS,
    GPU,
    GPU_SHARED,
    HEALTH_METRICS,
    MIG_PREFIX,
    NODE_POOL_LABEL,
    STANDARD_METRICS,
    Device,
    Exporter,
    GpuSpec,
    Node,
    NodeState,
    Sharing,
)
from simulator.machines import A30, A100, H100, L4, L40S, T4, gpu_node
from simulator.scenarios.base import (
    GpuRate,
    NodeGroup,
    Owned,
    PriceConfirmation,
    Provisioning,
    Tier,
)
from simulator.scenarios.campus.apps import DEDICATED

PRODUCT = "nvidia.com/gpu.product"
POOL = "node-pool"
WHOLE = "whole-a100"
_TAINT = (("nvidia.com/gpu", "present", "NoSchedule"),)
_3G, _1G, _HALF = "3g.40gb", "1g.10gb", "2g.12gb"

_PLAIN = Exporter(version=(4, 4, 0), metrics=STANDARD_METRICS)
_HONORED = Exporter(
    version=(4, 8, 3),
    metrics=(*FULL_METRICS, *HEALTH_METRICS),
    honor_labels=True,
    job="dcgm-exporter-h100",
)
_OF_MIG = Exporter(version=(4, 6, 0), metrics=FULL_METRICS, job="dcgm-exporter-mig")
_BY_PROCESS = Exporter(
    version=(4, 8, 3),
    metrics=FULL_METRICS,
    virtual_gpus=True,
    resource_names=(GPU_SHARED,),
    job="dcgm-exporter-shared",
)
_OLD = Exporter(
    version=(3, 5, 0), metrics=STANDARD_METRICS, interval_ms=60_000, job="dcgm-exporter-t4"
)
_COPIES = Exporter(
    version=(4, 8, 1), metrics=STANDARD_METRICS, virtual_gpus=True, job="dcgm-exporter-mps"
)
_CLAIMS = Exporter(
    version=(4, 8, 3), metrics=FULL_METRICS, dra=True, interval_ms=15_000, job="dcgm-exporter-dra"
)

Place = tuple[int, int]
"""Index of a device, place of the instance on it or -1."""


class Group(Struct, frozen=True):
    """Nodes that are alike; `layouts` are the MIG profiles of the GPUs of each."""

    name: str
    gpu: GpuSpec
    nodes: int
    gpus: int
    sharing: Sharing
    exporter: Exporter
    replicas: int = 1
    renamed: bool = False
    layouts: tuple[tuple[str, ...], ...] = ()
    tainted: bool = True
    taints: tuple[tuple[str, str, str], ...] = ()


class Pool(Struct, frozen=True):
    """What a tier gives out: `units` of one pod at most, `load` the part of it that is wanted.

    `teams` are numbers of those who use it, `shift_days` moves their demand in time so that
    pools do not peak all together. `places` are what it gives out on each of its nodes.
    """

    tier: Tier
    group: str
    resource: str
    load: float
    teams: tuple[int, ...]
    shift_days: int
    largest: int = 1
    profile: str = ""
    device_class: str = ""
    nodes: tuple[Node, ...] = ()
    places: tuple[tuple[Place, ...], ...] = field(default=())

    @property
    def tag(self) -> str:
        return self.tier.name

    @property
    def size(self) -> int:
        """How many units it has to give out."""
        return sum(len(places) for places in self.places)


GROUPS: Sequence[Group] = (
    Group("a100", A100, 12, 8, Sharing.EXCLUSIVE, _PLAIN),
    Group("h100", H100, 6, 8, Sharing.EXCLUSIVE, _HONORED),
    Group(
        "mig", A100, 4, 8, Sharing.MIG_MIXED, _OF_MIG,
        layouts=(*((_3G, _3G),) * 6, *((_1G,) * 7,) * 2),
    ),
    Group("a30", A30, 2, 4, Sharing.MIG_SINGLE, _PLAIN, layouts=((_HALF, _HALF),) * 4),
    Group("l4", L4, 4, 4, Sharing.TIME_SLICED, _BY_PROCESS, replicas=4, renamed=True),
    Group("t4", T4, 4, 4, Sharing.TIME_SLICED, _OLD, replicas=4, tainted=False),
    Group("l40s", L40S, 2, 4, Sharing.MPS, _COPIES, replicas=4),
    Group(
        "dra", H100, 2, 8, Sharing.DRA, _CLAIMS,
        layouts=(*((),) * 6, *((_3G, _3G),) * 2),
    ),
    Group("apps", A100, 4, 8, Sharing.EXCLUSIVE, _PLAIN, taints=(DEDICATED,)),
)  # fmt: skip

_A100_TEAMS = (0, 2, 3, 5, 6, 8, 9, 11, 12, 14)
_H100_TEAMS = (1, 4, 7, 10, 13, 15)


_QUEUE_TIMES = {WHOLE: "4h", "whole-h100": "4h", "mig-1g": "30m", "shared-t4": "30m"}
"""The objective of some tiers: what 95 % of their work starts within."""


def _tier(
    name: str,
    sharing: str,
    promise: str,
    *,
    resource: str,
    product: str = "",
    teams: tuple[str, ...] = (),
) -> Tier:
    return Tier(
        name=name,
        sharing=sharing,
        promise=promise,
        resources=(resource,),
        node_selector={PRODUCT: product} if product else {},
        allowed_teams=teams,
        queue_time=_QUEUE_TIMES.get(name, ""),
    )


def _claimed(name: str, promise: str, device_class: str, *, teams: tuple[str, ...] = ()) -> Tier:
    return Tier(
        name=name,
        sharing="dra",
        promise=promise,
        device_classes=(device_class,),
        allowed_teams=teams,
    )


POOLS: Sequence[Pool] = (
    Pool(
        _tier(WHOLE, "exclusive", "A whole A100 with 80 GB, alone.",
              resource=GPU, product=A100.product),
        "a100", GPU, 0.93, _A100_TEAMS, 0, largest=8,
    ),
    Pool(
        _tier("whole-h100", "exclusive", "A whole H100 with 80 GB, alone.",
              resource=GPU, product=H100.product),
        "h100", GPU, 0.88, _H100_TEAMS, 2, largest=8,
    ),
    Pool(
        _tier("mig-3g", "mig", "Three sevenths of an A100, walled off.",
              resource=MIG_PREFIX + _3G),
        "mig", MIG_PREFIX + _3G, 0.75, (0, 1, 4, 7, 9, 12), 4, profile=_3G,
    ),
    Pool(
        _tier("mig-1g", "mig", "A seventh of an A100, walled off: notebooks and tests.",
              resource=MIG_PREFIX + _1G),
        "mig", MIG_PREFIX + _1G, 0.6, (2, 3, 5, 6, 8, 10, 11, 13), 6, profile=_1G,
    ),
    Pool(
        _tier("mig-a30", "mig", "Half of an A30, walled off.",
              resource=GPU, product=f"{A30.product}-MIG-{_HALF}"),
        "a30", GPU, 0.6, (1, 3, 8, 14), 8, profile=_HALF,
    ),
    Pool(
        _tier("shared-l4", "time-sliced", "A turn on an L4 that four share.",
              resource=GPU_SHARED, product=L4.product),
        "l4", GPU_SHARED, 0.7, (0, 2, 4, 6, 9, 11, 13), 10,
    ),
    Pool(
        _tier("shared-t4", "time-sliced", "A turn on a T4 that four share.",
              resource=GPU, product=f"{T4.product}-SHARED"),
        "t4", GPU, 0.55, (1, 3, 5, 7, 8, 10, 12), 12,
    ),
    Pool(
        _tier("mps-l40s", "mps", "A quarter of an L40S: its memory and its threads.",
              resource=GPU, product=f"{L40S.product}-SHARED",
              teams=("speech", "language", "physics", "games")),
        "l40s", GPU, 0.65, (1, 4, 6, 15), 14,
    ),
    Pool(
        _claimed("claim-h100", "A whole H100 by a claim.", "gpu.nvidia.com"),
        "dra", "gpu.nvidia.com", 0.6, (2, 5, 9), 16, largest=4, device_class="gpu.nvidia.com",
    ),
    Pool(
        _claimed("claim-mig", "Three sevenths of an H100 by a claim.", "mig.nvidia.com",
                 teams=("search", "materials")),
        "dra", "mig.nvidia.com", 0.5, (7, 10), 18, profile=_3G, device_class="mig.nvidia.com",
    ),
)  # fmt: skip
PRICES: Mapping[str, str] = {
    A100.product: "3.06",
    H100.product: "4.90",
    A30.product: "1.25",
    L4.product: "0.81",
    L40S.product: "1.86",
    T4.product: "0.53",
}

RATES: Sequence[GpuRate] = (
    GpuRate(A100.product, "reserved", "2.10"),
    GpuRate(A100.product, "spot", "1.38"),
    GpuRate(
        A100.product,
        "owned",
        owned=Owned(
            price="6400000", residual="640000", gpus=128, years=4, per_kwh="0.24", pue="1.35"
        ),
    ),
    GpuRate(H100.product, "reserved", "3.65"),
    GpuRate(L4.product, "spot", "0.29"),
)
CONFIRMATION = PriceConfirmation("price list of the provider", by="finn", on="2026-09-28")
_PER_RACK = 4
_FIRST_HALL = frozenset({"a100", "h100", "mig"})
_CAPACITY_TYPE = "karpenter.sh/capacity-type"
_PAID: Mapping[str, Sequence[str]] = {
    "reserved": ("a100-09", "a100-10", *(f"h100-{number:02d}" for number in range(1, 7))),
    "spot": ("a100-11", "a100-12", "l4-03", "l4-04"),
}
_OWNED = frozenset(
    {f"a100-{number:02d}" for number in range(1, 9)}
    | {f"{group}-{number:02d}" for group in ("mig", "apps") for number in range(1, 5)}
)
"""Nodes that say nothing of how they are paid for: they were bought. All others are on demand."""

SPOT_POOL = "a100-spot"
NODE_POOLS: Mapping[str, int] = {SPOT_POOL: 24}
"""Node pools of Karpenter with the GPUs that each may have. The other nodes were not made by it."""
_INSTANCE_GROUPS = (
    "https://www.googleapis.com/compute/v1/projects/campus/zones/hall-1/instanceGroups"
)
NODE_GROUPS: Sequence[NodeGroup] = (
    NodeGroup(f"{_INSTANCE_GROUPS}/h100-grp", "h100-", 2, 8),
    NodeGroup(f"{_INSTANCE_GROUPS}/t4-grp", "t4-", 0, 6),
    # It has had no node yet, so nothing tells which GPUs its nodes will have.
    NodeGroup(f"{_INSTANCE_GROUPS}/b200-grp", "b200-", 0, 2),
)


def provisioning(at: int) -> Sequence[Provisioning]:
    """Return what was requested of cluster-autoscaler at a time: one of each outcome."""
    none, found = "CapacityIsNotFound", "CapacityIsFound"
    return (
        Provisioning(
            "speech", "asr-pretrain", 4, at, "Provisioned", "False", none,
            "Capacity is not found, CA will try to find it later.",
        ),
        Provisioning(
            "vision", "detector-sweep", 2, at, "Provisioned", "True", found,
            "Capacity is found in the cluster.",
        ),
        Provisioning(
            "language", "tokenizer-eval", 16, at, "Failed", "True", "OutOfCapacity",
            "The maximum of node group h100-grp is 8 nodes.",
        ),
    )  # fmt: skip


# What is out of order, and since which day: a GPU that fell off the bus, one whose counters are
# stuck, one that somebody uses behind the scheduler's back, a node that is being cut anew.
UNHEALTHY = ("a100-03", 5)
HOT = ("h100-02", 3)
"""Held down for heat for three hours of the same day, after which its memory has an error."""
STUCK = ("a100-05", 2)
STRAY = ("a100-12", 7)
RECUT = "mig-04"
CORDONED = "h100-06"
# Devices that lasting claims have: one that three pods share, one that no pod uses.
SHARED_CLAIM = ("dra-01", 0)
PARKED_CLAIM = ("dra-01", 1)
UNHEALTHY_DAY, STRAY_DAY, CORDON_DAYS, RECUT_DAY = 29, 20, (31, 32), 34
_FELL_OFF = 79
_RESERVED = {UNHEALTHY, STRAY, SHARED_CLAIM, PARKED_CLAIM}


def make_nodes(seed: str, begins: int, origin: int) -> list[Node]:
    """Return all nodes, in the order of their groups, made at `begins`.

    What goes wrong on some does so on days after `origin`.
    """
    nodes: list[Node] = []
    for group in GROUPS:
        for number in range(1, group.nodes + 1):
            node = gpu_node(
                seed=seed,
                name=f"{group.name}-{number:02d}",
                position=len(nodes) + 1,
                gpu=group.gpu,
                gpus=group.gpus,
                created=begins,
                sharing=group.sharing,
                replicas=group.replicas,
                renamed=group.renamed,
                layouts=group.layouts,
                exporters=(group.exporter,),
                states=tuple(_states(f"{group.name}-{number:02d}", origin)),
                taints=(*(_TAINT if group.tainted else ()), *group.taints),
                labels={POOL: group.name, **_place(len(nodes), group)},
            )
            nodes.append(_with_faults(_paid(node), origin))
    return nodes


def _place(number: int, group: Group) -> dict[str, str]:
    """Return where a node stands: racks of four in two halls, filled in the order of nodes."""
    hall = 1 if group.name in _FIRST_HALL else 2
    return {
        "topology.kubernetes.io/zone": f"hall-{hall}",
        "topology.kubernetes.io/rack": f"r{number // _PER_RACK + 1:02d}",
    }


def _paid(node: Node) -> Node:
    """Return a node with the label of how it is paid for, without one where it is owned."""
    others = {key: value for key, value in node.labels.items() if key != _CAPACITY_TYPE}
    if node.name in _OWNED:
        return replace(node, labels=others)
    kind = next((kind for kind, names in _PAID.items() if node.name in names), "on-demand")
    # Of shared nodes the pool would count what the device plug-in offers under another name.
    if kind == "spot" and node.gpu is A100:
        others[NODE_POOL_LABEL] = SPOT_POOL
    return replace(node, labels={**others, _CAPACITY_TYPE: kind})


def _states(name: str, origin: int) -> Iterator[NodeState]:
    if name == UNHEALTHY[0]:
        yield NodeState(origin + UNHEALTHY_DAY * DAY, unhealthy=(UNHEALTHY[1],))
    if name == CORDONED:
        first, last = CORDON_DAYS
        yield NodeState(origin + first * DAY, cordoned=True)
        yield NodeState(origin + last * DAY)
    if name == RECUT:
        labels = {
            "nvidia.com/mig.config": "all-1g.10gb",
            "nvidia.com/mig.config.state": "pending",
        }
        yield NodeState(origin + RECUT_DAY * DAY, cordoned=True, labels=labels)


def _with_faults(node: Node, origin: int) -> Node:
    def device(one: Device) -> Device:
        place = (node.name, one.index)
        if place == UNHEALTHY:
            xids = ((origin + UNHEALTHY_DAY * DAY, _FELL_OFF),)
            return replace(one, xids=xids, remapped_rows=2)
        if place == HOT:
            noon = origin + UNHEALTHY_DAY * DAY + DAY // 2
            return replace(one, hot=((noon, noon + DAY // 8),), memory_faults=(noon + DAY // 8,))
        return replace(one, stuck=True) if place == STUCK else one

    return replace(node, devices=tuple(device(one) for one in node.devices))


def make_pools(nodes: Sequence[Node]) -> list[Pool]:
    """Return the pools with what each gives out; GPUs that are out of order are left out."""
    return [
        replace(
            pool,
            nodes=tuple(mine := [node for node in nodes if _is_of(node, pool)]),
            places=tuple(tuple(_places(node, pool)) for node in mine),
        )
        for pool in POOLS
    ]


def _is_of(node: Node, pool: Pool) -> bool:
    return node.labels[POOL] == pool.group and node.name != RECUT


def _places(node: Node, pool: Pool) -> Iterator[Place]:
    for device in node.devices:
        if (node.name, device.index) in _RESERVED:
            continue
        if pool.profile:
            for place, instance in enumerate(device.instances):
                if instance.profile == pool.profile:
                    yield device.index, place
        elif not device.instances:
            yield from [(device.index, -1)] * node.replicas
