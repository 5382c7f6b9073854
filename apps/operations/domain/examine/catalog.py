"""Does the catalog fit the cluster: tiers, their sharing, and who owns namespaces."""

from collections import defaultdict
from collections.abc import Iterator

from apps.clusters.domain.quantities import counted
from apps.clusters.domain.tiers import PRODUCT_LABEL, UNMATCHED, GpuSharing, mig_profile
from apps.operations.domain.examine.offers import Offer, offers
from apps.operations.domain.findings import Finding, some
from apps.operations.domain.observations import ClusterLook


def check(look: ClusterLook) -> Iterator[Finding]:
    """Yield where the catalog and the cluster differ; silent while no node is known."""
    found = list(offers(look))
    if found:
        yield from _matches_nothing(look, found)
    yield from _unmatched(look, found)
    yield from _sharing(look, found)
    yield from _unassigned(look)


def matched_tiers(look: ClusterLook) -> frozenset[str]:
    """Return the tiers that GPUs, pods or claims of a cluster match."""
    matched = {offer.tier for offer in offers(look)}
    matched |= {tenant.tier for tenant in look.past.tenants}
    classes = {c for node in look.nodes for d in node.devices for c in d.classes}
    matched |= {rule.tier for rule in look.rules if classes.intersection(rule.device_classes)}
    return frozenset(matched)


def _matches_nothing(look: ClusterLook, found: list[Offer]) -> Iterator[Finding]:
    """Yield the tiers that neither this cluster nor another one has; a tier may be of one."""
    matched = matched_tiers(look) | look.tiers_elsewhere
    for rule in look.rules:
        if rule.tier in matched:
            continue
        asks = ", ".join(rule.resources or rule.device_classes)
        where = ", ".join(f"{k}: {v}" for k, v in sorted(rule.node_selector.items()))
        there = sorted({o.labels.get(PRODUCT_LABEL, "") for o in found} - {""})
        yield Finding(
            "tier-matches-nothing",
            look.cluster,
            rule.tier,
            f"Tier {rule.tier} asks for {asks}{f' on nodes with {where}' if where else ''}, and no "
            f"GPU of any cluster is that. The nodes here say: {', '.join(there) or 'no product'}.",
            f"# correct the tier, or take it out of the catalog:\ntiers:\n  - name: {rule.tier}\n"
            f"    node_selector: {{{PRODUCT_LABEL}: {there[0] if there else 'PRODUCT'}}}",
        )


def _unmatched(look: ClusterLook, found: list[Offer]) -> Iterator[Finding]:
    loose: dict[tuple[str, str], list[Offer]] = defaultdict(list)
    for offer in found:
        # MIG sizes have a finding of their own.
        if offer.tier == UNMATCHED and not mig_profile(offer.resource, offer.labels):
            loose[offer.resource, offer.labels.get(PRODUCT_LABEL, "")].append(offer)
    for (resource, product), some_offers in sorted(loose.items()):
        gpus = sum(offer.gpus for offer in some_offers)
        nodes = {offer.node for offer in some_offers}
        held = [t for t in look.past.tenants if t.node in nodes and t.resource == resource]
        selector = f"\n    node_selector: {{{PRODUCT_LABEL}: {product}}}" if product else ""
        yield Finding(
            "gpus-unmatched",
            look.cluster,
            f"{resource} {product}".strip(),
            f"{counted(gpus, 'GPU')} on {counted(len(nodes), 'node')} "
            f"({product or 'model unknown'}, {resource}) "
            "belong to no tier: they stand under unmatched, with no promise and no price.",
            "# in the catalog:\ntiers:\n  - name: NAME\n"
            f"    sharing: {some_offers[0].sharing.value}\n    resources: [{resource}]{selector}",
            pods=len(held),
            places=some(nodes),
        )


def _sharing(look: ClusterLook, found: list[Offer]) -> Iterator[Finding]:
    said = {rule.tier: rule.sharing for rule in look.rules}
    other: dict[tuple[str, GpuSharing], list[Offer]] = defaultdict(list)
    for offer in found:
        if offer.tier in said and said[offer.tier] not in {offer.sharing, GpuSharing.DRA}:
            other[offer.tier, offer.sharing].append(offer)
    for (tier, really), some_offers in sorted(other.items()):
        nodes = {offer.node for offer in some_offers}
        held = [t for t in look.past.tenants if t.node in nodes and t.tier == tier]
        yield Finding(
            "sharing-differs",
            look.cluster,
            f"{tier} {really.value}",
            f"Tier {tier} promises {said[tier].value} GPUs, and the labels of "
            f"{counted(len(nodes), 'of its node', 'of its nodes')} say {really.value}: "
            "who asks there gets something else than was promised.",
            _separated(tier, really, some_offers[0]),
            pods=len(held),
            gpu_hours=look.allocated(tier),
            places=some(nodes),
        )


def _separated(tier: str, really: GpuSharing, offer: Offer) -> str:
    """Return the catalog's lines that tell the two kinds of node apart."""
    product = offer.labels.get(PRODUCT_LABEL, "")
    label = (
        f"nvidia.com/gpu.sharing-strategy: {offer.labels.get('nvidia.com/gpu.sharing-strategy')}"
    )
    if really is GpuSharing.MIG or "nvidia.com/gpu.sharing-strategy" not in offer.labels:
        label = f"{PRODUCT_LABEL}: {product or 'PRODUCT'}"
    return (
        f"# in the catalog, before {tier}: a tier of what these nodes really offer\ntiers:\n"
        f"  - name: {tier}-{really.value}\n    sharing: {really.value}\n"
        f"    resources: [{offer.resource}]\n    node_selector: {{{label}}}"
    )


def _unassigned(look: ClusterLook) -> Iterator[Finding]:
    loose = look.past.unclaimed
    if not loose:
        return
    names = [row.namespace for row in loose]
    hours = sum(row.allocated for row in loose)
    held = [tenant for tenant in look.past.tenants if tenant.namespace in set(names)]
    yield Finding(
        "namespaces-unassigned",
        look.cluster,
        "",
        f"{counted(len(names), 'namespace')} with GPU pods belong to no team; in the last 30 days "
        f"they had {hours:.1f} GPU-hours, which stand under unassigned.",
        f"# in the catalog:\nteams:\n  - name: TEAM\n    namespaces: [{', '.join(names[:3])}]",
        pods=len(held),
        gpu_hours=hours,
        places=some(names),
    )
