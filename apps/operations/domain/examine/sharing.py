"""How GPUs are shared: offers of nodes, names, replicas, gangs, memory and MIG devices."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from apps.clusters.domain.resources import counted
from apps.clusters.domain.tiers import (
    UNMATCHED,
    GpuSharing,
    gpu_model,
    is_shared,
    mig_profile,
    tier_of,
    unit_weight,
)
from apps.operations.domain.findings import Finding, some
from apps.operations.domain.observations import ClusterObservations

STRATEGY = "nvidia.com/gpu.sharing-strategy"
REPLICAS = "nvidia.com/gpu.replicas"


class Offer(NamedTuple):
    """Units of a GPU resource on a node, the tier that takes them, and how they are shared."""

    node: str
    resource: str
    units: float
    labels: Mapping[str, str]
    tier: str
    sharing: GpuSharing

    @property
    def model(self) -> str:
        return gpu_model(self.labels)

    @property
    def gpus(self) -> float:
        return self.units * unit_weight(self.resource, self.labels)

    @property
    def shared(self) -> bool:
        return self.sharing in {GpuSharing.TIME_SLICED, GpuSharing.MPS}


def offers(observed: ClusterObservations) -> Iterator[Offer]:
    """Yield what node capacity shows, with GPUs that are there; nothing of DRA is in it."""
    for node in observed.nodes:
        for resource, units in sorted(node.capacity.items()):
            # A resource that was renamed stays in the capacity of its node with 0 units.
            if units > 0:
                tier = tier_of(resource, node.labels, observed.rules)
                how = sharing_of(resource, node.labels)
                yield Offer(node.node, resource, units, node.labels, tier, how)


def sharing_of(resource: str, labels: Mapping[str, str]) -> GpuSharing:
    """Return how a unit of `resource` is shared, by what the node's labels say."""
    # A shared MIG device counts as MIG: its memory is divided in any mode of sharing.
    if mig_profile(resource, labels):
        return GpuSharing.MIG
    if not is_shared(resource, labels):
        return GpuSharing.EXCLUSIVE
    return GpuSharing.MPS if labels.get(STRATEGY) == "mps" else GpuSharing.TIME_SLICED


GANGS = frozenset(
    {
        *("PyTorchJob", "TFJob", "MPIJob", "MXJob", "XGBoostJob", "PaddleJob", "JAXJob"),
        *("TrainJob", "JobSet", "LeaderWorkerSet", "RayCluster", "RayJob"),
    }
)
MANY_REPLICAS = 4
FULL = 0.9
MEMORY_LABEL = "nvidia.com/gpu.memory"


def check_sharing(observed: ClusterObservations) -> Iterator[Finding]:
    """Yield the risks in the way GPUs are shared."""
    shared = [offer for offer in offers(observed) if offer.shared]
    if not shared:
        return
    yield from _not_renamed(observed, shared)
    # A tier that has whole GPUs as well is told of as such; which its pods got is not known here.
    mixed = {offer.tier for offer in offers(observed) if not offer.shared}
    surely = [offer for offer in shared if offer.tier not in mixed]
    yield from _several_units(observed, surely)
    yield from _gangs(observed, surely)
    yield from _pressure(observed, shared)


def _shared_tiers(shared: list[Offer]) -> set[str]:
    return {offer.tier for offer in shared}


def _not_renamed(observed: ClusterObservations, shared: list[Offer]) -> Iterator[Finding]:
    by_resource: dict[str, list[Offer]] = defaultdict(list)
    for offer in shared:
        if not offer.resource.endswith(".shared"):
            by_resource[offer.resource].append(offer)
    for resource, some_offers in sorted(by_resource.items()):
        nodes = {offer.node for offer in some_offers}
        tiers = _shared_tiers(some_offers)
        pods = sum(
            g.pods for g in observed.past.groups if g.resource == resource and g.tier in tiers
        )
        hours = sum(observed.allocated(tier) for tier in tiers)
        units = sum(offer.units for offer in some_offers)
        gpus = sum(offer.gpus for offer in some_offers)
        yield observed.finding(
            "shared-not-renamed",
            resource,
            f"On {counted(len(nodes), 'node')} {resource}, the name of a whole GPU, is a share: "
            f"{units:g} units for {counted(gpus, 'physical GPU')}. In the last 30 days "
            f"{counted(pods, 'pod')} requested a GPU and got a share. "
            "A quota counts shares and whole GPUs alike.",
            "# config of the device plug-in:\nsharing:\n"
            f"  {_how(some_offers)}:\n    renameByDefault: true\n"
            "# and dcgm-exporter has to be told the new name:\n"
            f'env: [{{name: NVIDIA_RESOURCE_NAMES, value: "{resource}.shared"}}]',
            pods=pods,
            gpu_hours=hours,
            places=some(nodes),
        )


def _how(some_offers: list[Offer]) -> str:
    mps = any(offer.labels.get(STRATEGY) == "mps" for offer in some_offers)
    return "mps" if mps else "timeSlicing"


def _several_units(observed: ClusterObservations, shared: list[Offer]) -> Iterator[Finding]:
    tiers, resources = _shared_tiers(shared), {offer.resource for offer in shared}
    for resource in sorted(resources):
        groups = [
            g
            for g in observed.past.groups
            if g.resource == resource and g.units > 1 and g.tier in tiers
        ]
        if not groups:
            continue
        pods = sum(group.pods for group in groups)
        most = max(group.units for group in groups)
        yield observed.finding(
            "shared-units-above-one",
            resource,
            f"{counted(pods, 'pod')} requested up to {most:g} × {resource} in the last 30 days. "
            "Several shares may lie on one GPU and give no more of it: all but the first are "
            "held without use.",
            "# config of the device plug-in, so that such pods are refused and say why:\n"
            f"sharing:\n  {_how(shared)}:\n    failRequestsGreaterThanOne: true",
            pods=pods,
            gpu_hours=_surplus(observed, resource),
            places=some(group.namespace for group in groups),
        )


def _surplus(observed: ClusterObservations, resource: str) -> float | None:
    """Return the units held over the first, now, for a day; None where no pod holds any."""
    weights = {o.node: o.gpus / o.units for o in offers(observed) if o.resource == resource}
    over = sum(
        (tenant.units - 1) * weights.get(tenant.node, 0.0)
        for tenant in observed.past.tenants
        if tenant.resource == resource and tenant.units > 1
    )
    # 0 would read as no loss, where there only is no allocation at this moment.
    return 24.0 * over or None


def _gangs(observed: ClusterObservations, shared: list[Offer]) -> Iterator[Finding]:
    tiers = _shared_tiers(shared)
    groups = [g for g in observed.past.groups if g.tier in tiers and g.kind in GANGS]
    pods = sum(group.pods for group in groups)
    # A gang of one needs no other pod.
    if pods < 2:
        return
    kinds = ", ".join(sorted({group.kind for group in groups}))
    yield observed.finding(
        "gangs-on-shared",
        "",
        f"{counted(pods, 'pod')} of {kinds} ran on shared GPUs in the last 30 days. All of them "
        "run at the speed of the slowest, which shares its GPU with other pods.",
        "# in the pod template: a tier of whole GPUs\nresources: {limits: {nvidia.com/gpu: "
        f"1}}}}\n# and the node_selector of that tier; {STRATEGY}: none",
        pods=pods,
        places=some(group.namespace for group in groups),
    )


def _pressure(observed: ClusterObservations, shared: list[Offer]) -> Iterator[Finding]:
    peaks: dict[str, float] = {}
    for row in observed.past.node_days:
        peaks[row.node] = max(peaks.get(row.node, 0.0), row.memory_peak_mib or 0.0)
    by_model: dict[str, list[tuple[Offer, float]]] = defaultdict(list)
    held = Counter(tenant.node for tenant in observed.past.tenants)
    for offer in shared:
        # MPS divides memory, and a pod alone on a GPU takes it from no other.
        if offer.sharing is not GpuSharing.TIME_SLICED or held[offer.node] <= offer.gpus:
            continue
        board = _number(offer.labels.get(MEMORY_LABEL))
        if _number(offer.labels.get(REPLICAS)) >= MANY_REPLICAS and board:
            full = peaks.get(offer.node, 0.0) / board
            if full >= FULL:
                by_model[offer.model].append((offer, full))
    for model, found in sorted(by_model.items()):
        nodes = {offer.node for offer, _ in found}
        most = max(_number(offer.labels.get(REPLICAS)) for offer, _ in found)
        yield observed.finding(
            "replicas-under-pressure",
            model,
            f"Up to {most:g} pods share one {model}, and on {counted(len(nodes), 'node')} its "
            f"memory was up to {max(f for _, f in found):.0%} full in the last day. Time-slicing "
            "does not divide memory: the next allocation fails in any of them.",
            "# config of the device plug-in: fewer replicas, or MPS, which limits memory\n"
            f"sharing:\n  timeSlicing:\n    resources:\n      - name: nvidia.com/gpu\n"
            # A single replica would share nothing.
            f"        replicas: {max(2, int(most) // 2)}",
            pods=sum(held[node] for node in nodes),
            places=some(nodes),
        )


def _number(text: str | None) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0


CONFIG = "nvidia.com/mig.config"
STATE = "nvidia.com/mig.config.state"
INVALID = "-MIG-INVALID"
_UNDER_WAY = frozenset({"pending", "rebooting"})
_LEAST_STRANDED_GPU_HOURS = 1.0


def check_mig(observed: ClusterObservations) -> Iterator[Finding]:
    """Yield what is wrong with partitioned GPUs."""
    yield from _outside(observed)
    yield from _stranded(observed)
    yield from _configuration(observed)


def _outside(observed: ClusterObservations) -> Iterator[Finding]:
    loose = defaultdict(list)
    for offer in offers(observed):
        if offer.sharing is GpuSharing.MIG and offer.tier == UNMATCHED:
            profile = mig_profile(offer.resource, offer.labels)
            # A layout that failed has a finding of its own.
            if profile != "INVALID":
                loose[profile, offer.model, offer.resource].append(offer)
    for (profile, model, resource), some_offers in sorted(loose.items()):
        nodes = {offer.node for offer in some_offers}
        units = sum(offer.units for offer in some_offers)
        gpus = sum(offer.gpus for offer in some_offers)
        held = [t for t in observed.past.tenants if t.node in nodes and t.resource == resource]
        yield observed.finding(
            "mig-outside-catalog",
            f"{profile} {model}",
            f"{counted(units, 'MIG device')} {profile} of {model}, {gpus:.2f} GPUs, belong to no "
            f"tier; {counted(len(held), 'pod')} hold some. Users do not request what no tier "
            "offers.",
            "# in the catalog:\ntiers:\n"
            f"  - name: mig-{profile.replace('.', '-')}\n    sharing: mig\n"
            f"    resources: [{resource}]\n"
            "# or another layout, on the node:\n"
            f"kubectl label node NODE {CONFIG}=LAYOUT --overwrite",
            pods=len(held),
            places=some(nodes),
        )


def _stranded(observed: ClusterObservations) -> Iterator[Finding]:
    for row in observed.past.tiers:
        if row.stranded < _LEAST_STRANDED_GPU_HOURS:
            continue
        yield observed.finding(
            "slices-stranded",
            row.tier,
            f"{row.stranded:.1f} GPU-hours of tier {row.tier} were stranded in the last 30 days: "
            "slices that the MIG layout leaves over, in which no pod can be placed.",
            "# a layout that uses all slices, such as 3g + 2g + 2g, or 7 × 1g; on the node:\n"
            f"kubectl label node NODE {CONFIG}=LAYOUT --overwrite    # it has to be drained before",
            gpu_hours=row.stranded,
            tiers=(row.tier,),
        )


def _configuration(observed: ClusterObservations) -> Iterator[Finding]:
    under_way, failed = [], []
    for node in observed.nodes:
        labels = observed.labels_of(node)
        state = labels.get(STATE, "")
        product = labels.get("nvidia.com/gpu.product", "")
        # Either of two labels tells: the state of the MIG manager, or the name of the product.
        if state == "failed" or product.endswith(INVALID):
            failed.append(node)
        elif state in _UNDER_WAY:
            under_way.append(node)
    if under_way:
        models = sorted({gpu_model(node.labels) for node in under_way})
        yield observed.finding(
            "mig-reconfiguring",
            "",
            f"{counted(len(under_way), 'node gets', 'nodes get')} another MIG layout "
            f"({', '.join(models)}): "
            "their GPUs come and go until that is done, normally within minutes.",
            f"kubectl get nodes --label-columns {CONFIG},{STATE}",
            places=some(node.node for node in under_way),
        )
    if failed:
        models = sorted({gpu_model(node.labels) for node in failed})
        pods = sum(t.node in {node.node for node in failed} for t in observed.past.tenants)
        yield observed.finding(
            "mig-failed",
            "",
            f"On {counted(len(failed), 'node')} ({', '.join(models)}) a MIG layout could not be "
            "set: the device plug-in offers the old one, or nothing.",
            "kubectl logs --namespace NAMESPACE --selector app=nvidia-mig-manager\n# the layout "
            "is not applied while pods hold the GPUs:\nkubectl drain NODE --ignore-daemonsets "
            f"--delete-emptydir-data\nkubectl label node NODE {CONFIG}=LAYOUT --overwrite",
            pods=pods,
            places=some(node.node for node in failed),
        )
