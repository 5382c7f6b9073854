"""How cards are shared: names, requests of several units, gangs, and memory."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from apps.clusters.domain.quantities import counted
from apps.clusters.domain.tiers import GpuSharing
from apps.operations.domain.examine.offers import REPLICAS, STRATEGY, Offer, offers
from apps.operations.domain.findings import Finding, some
from apps.operations.domain.observations import ClusterLook

GANGS = frozenset(
    {
        *("PyTorchJob", "TFJob", "MPIJob", "MXJob", "XGBoostJob", "PaddleJob", "JAXJob"),
        *("TrainJob", "JobSet", "LeaderWorkerSet", "RayCluster", "RayJob"),
    }
)
MANY_REPLICAS = 4
FULL = 0.9
MEMORY_LABEL = "nvidia.com/gpu.memory"


def check(look: ClusterLook) -> Iterator[Finding]:
    """Yield what is risky in the way cards are shared."""
    shared = [offer for offer in offers(look) if offer.shared]
    if not shared:
        return
    yield from _not_renamed(look, shared)
    # A tier that has whole cards as well is told of as such; which its pods got is not known here.
    mixed = {offer.tier for offer in offers(look) if not offer.shared}
    surely = [offer for offer in shared if offer.tier not in mixed]
    yield from _several_units(look, surely)
    yield from _gangs(look, surely)
    yield from _pressure(look, shared)


def _shared_tiers(shared: list[Offer]) -> set[str]:
    return {offer.tier for offer in shared}


def _not_renamed(look: ClusterLook, shared: list[Offer]) -> Iterator[Finding]:
    by_resource: dict[str, list[Offer]] = defaultdict(list)
    for offer in shared:
        if not offer.resource.endswith(".shared"):
            by_resource[offer.resource].append(offer)
    for resource, some_offers in sorted(by_resource.items()):
        nodes = {offer.node for offer in some_offers}
        tiers = _shared_tiers(some_offers)
        pods = sum(g.pods for g in look.past.groups if g.resource == resource and g.tier in tiers)
        hours = sum(look.allocated(tier) for tier in tiers)
        units = sum(offer.units for offer in some_offers)
        gpus = sum(offer.gpus for offer in some_offers)
        yield Finding(
            "shared-not-renamed",
            look.cluster,
            resource,
            f"{counted(len(nodes), 'node')} offer {gpus:g} cards as {units:g} × {resource}, the "
            f"name of a whole GPU. In the last 30 days {counted(pods, 'pod')} asked for a "
            "GPU and got a share; a quota counts shares and whole GPUs alike.",
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


def _several_units(look: ClusterLook, shared: list[Offer]) -> Iterator[Finding]:
    tiers, resources = _shared_tiers(shared), {offer.resource for offer in shared}
    for resource in sorted(resources):
        groups = [
            g
            for g in look.past.groups
            if g.resource == resource and g.units > 1 and g.tier in tiers
        ]
        if not groups:
            continue
        pods = sum(group.pods for group in groups)
        most = max(group.units for group in groups)
        yield Finding(
            "shared-units-above-one",
            look.cluster,
            resource,
            f"{counted(pods, 'pod')} asked for up to {most:g} × {resource} in the last 30 days. "
            "Several shares may lie on one card and give no more of it: what is over the first is "
            "held and of no use.",
            "# config of the device plug-in, so that such pods are refused and say why:\n"
            f"sharing:\n  {_how(shared)}:\n    failRequestsGreaterThanOne: true",
            pods=pods,
            gpu_hours=_surplus(look, resource),
            places=some(group.namespace for group in groups),
        )


def _surplus(look: ClusterLook, resource: str) -> float | None:
    """Return what is held by units over the first, now, for a day; None where nobody does."""
    weights = {o.node: o.gpus / o.units for o in offers(look) if o.resource == resource}
    over = sum(
        (tenant.units - 1) * weights.get(tenant.node, 0.0)
        for tenant in look.past.tenants
        if tenant.resource == resource and tenant.units > 1
    )
    return 24.0 * over or None


def _gangs(look: ClusterLook, shared: list[Offer]) -> Iterator[Finding]:
    tiers = _shared_tiers(shared)
    groups = [g for g in look.past.groups if g.tier in tiers and g.kind in GANGS]
    pods = sum(group.pods for group in groups)
    if pods < 2:
        return
    kinds = ", ".join(sorted({group.kind for group in groups}))
    yield Finding(
        "gangs-on-shared",
        look.cluster,
        "",
        f"{counted(pods, 'pod')} of {kinds} ran on shared cards in the last 30 days. All wait for "
        "the slowest of them, which waits for its neighbours on the card.",
        "# in the pod template: a tier of whole cards\n"
        "resources: {limits: {nvidia.com/gpu: 1}}\n"
        f"# and the node_selector of that tier; {STRATEGY}: none",
        pods=pods,
        places=some(group.namespace for group in groups),
    )


def _pressure(look: ClusterLook, shared: list[Offer]) -> Iterator[Finding]:
    peaks: dict[str, float] = {}
    for row in look.past.node_days:
        peaks[row.node] = max(peaks.get(row.node, 0.0), row.memory_peak_mib or 0.0)
    by_model: dict[str, list[tuple[Offer, float]]] = defaultdict(list)
    held = Counter(tenant.node for tenant in look.past.tenants)
    for offer in shared:
        # MPS divides memory, and who is alone on a card fills it for nobody else.
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
        yield Finding(
            "replicas-under-pressure",
            look.cluster,
            model,
            f"{model} is shared by up to {most:g} pods a card, and on {counted(len(nodes), 'node')}"
            f" its memory was up to {max(f for _, f in found):.0%} full in the last day: "
            "time-slicing does not divide memory, the next allocation fails in any of them.",
            "# config of the device plug-in: fewer replicas, or MPS, which limits memory\n"
            f"sharing:\n  timeSlicing:\n    resources:\n      - name: nvidia.com/gpu\n"
            f"        replicas: {max(2, int(most) // 2)}",
            pods=sum(held[node] for node in nodes),
            places=some(nodes),
        )


def _number(text: str | None) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0
