"""Do the catalog and the ResourceQuotas fit the cluster."""

from collections import defaultdict
from collections.abc import Iterator

from apps.clusters.domain.resources import counted, is_gpu
from apps.clusters.domain.tiers import PRODUCT_LABEL, UNMATCHED, GpuSharing, mig_profile
from apps.operations.domain.examine.sharing import Offer, offers
from apps.operations.domain.findings import Finding, some
from apps.operations.domain.observations import ClusterObservations, QuotaRow


def check_catalog(observed: ClusterObservations) -> Iterator[Finding]:
    """Yield where the catalog and the cluster differ; silent while no node is known."""
    found = list(offers(observed))
    if found:
        yield from _matches_nothing(observed, found)
    yield from _unmatched(observed, found)
    yield from _sharing(observed, found)
    yield from _unassigned(observed)


def matched_tiers(observed: ClusterObservations) -> frozenset[str]:
    """Return the tiers that GPUs, pods or claims of a cluster match."""
    matched = {offer.tier for offer in offers(observed)}
    matched |= {tenant.tier for tenant in observed.past.tenants}
    classes = {c for node in observed.nodes for d in node.devices for c in d.classes}
    matched |= {rule.tier for rule in observed.rules if classes.intersection(rule.device_classes)}
    return frozenset(matched)


def _matches_nothing(observed: ClusterObservations, found: list[Offer]) -> Iterator[Finding]:
    """Yield the tiers that neither this cluster nor another one has; a tier may be of one."""
    matched = matched_tiers(observed) | observed.tiers_elsewhere
    for rule in observed.rules:
        if rule.tier in matched:
            continue
        asks = ", ".join(rule.resources or rule.device_classes)
        where = ", ".join(f"{k}: {v}" for k, v in sorted(rule.node_selector.items()))
        there = sorted({o.labels.get(PRODUCT_LABEL, "") for o in found} - {""})
        yield observed.finding(
            "tier-matches-nothing",
            rule.tier,
            f"Tier {rule.tier} requires {asks}{f' on nodes with {where}' if where else ''}, and "
            "no GPU of any cluster matches. The nodes here say: "
            f"{', '.join(there) or 'no product'}.",
            f"# correct the tier, or take it out of the catalog:\ntiers:\n  - name: {rule.tier}\n"
            f"    node_selector: {{{PRODUCT_LABEL}: {there[0] if there else 'PRODUCT'}}}",
            tiers=(rule.tier,),
        )


def _unmatched(observed: ClusterObservations, found: list[Offer]) -> Iterator[Finding]:
    loose: dict[tuple[str, str], list[Offer]] = defaultdict(list)
    for offer in found:
        # MIG sizes have a finding of their own.
        if offer.tier == UNMATCHED and not mig_profile(offer.resource, offer.labels):
            loose[offer.resource, offer.labels.get(PRODUCT_LABEL, "")].append(offer)
    for (resource, product), some_offers in sorted(loose.items()):
        gpus = sum(offer.gpus for offer in some_offers)
        nodes = {offer.node for offer in some_offers}
        held = [t for t in observed.past.tenants if t.node in nodes and t.resource == resource]
        selector = f"\n    node_selector: {{{PRODUCT_LABEL}: {product}}}" if product else ""
        yield observed.finding(
            "gpus-unmatched",
            f"{resource} {product}".strip(),
            f"{counted(gpus, 'GPU')} on {counted(len(nodes), 'node')} "
            f"({product or 'model unknown'}, {resource}) "
            "belong to no tier: they stand under unmatched, with no promise and no price.",
            "# in the catalog:\ntiers:\n  - name: NAME\n"
            f"    sharing: {some_offers[0].sharing.value}\n    resources: [{resource}]{selector}",
            pods=len(held),
            places=some(nodes),
        )


def _sharing(observed: ClusterObservations, found: list[Offer]) -> Iterator[Finding]:
    said = {rule.tier: rule.sharing for rule in observed.rules}
    other: dict[tuple[str, GpuSharing], list[Offer]] = defaultdict(list)
    for offer in found:
        # How node capacity is shared says nothing of a tier of claims.
        if offer.tier in said and said[offer.tier] not in {offer.sharing, GpuSharing.DRA}:
            other[offer.tier, offer.sharing].append(offer)
    for (tier, really), some_offers in sorted(other.items()):
        nodes = {offer.node for offer in some_offers}
        held = [t for t in observed.past.tenants if t.node in nodes and t.tier == tier]
        yield observed.finding(
            "sharing-differs",
            f"{tier} {really.value}",
            f"Tier {tier} promises {said[tier].value} GPUs, and the labels of "
            f"{counted(len(nodes), 'of its node', 'of its nodes')} say {really.value}: "
            "who asks there gets something else than was promised.",
            _separated(tier, really, some_offers[0]),
            pods=len(held),
            gpu_hours=observed.allocated(tier),
            places=some(nodes),
            tiers=(tier,),
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


def _unassigned(observed: ClusterObservations) -> Iterator[Finding]:
    loose = observed.past.unassigned
    if not loose:
        return
    names = [row.namespace for row in loose]
    hours = sum(row.allocated for row in loose)
    held = [tenant for tenant in observed.past.tenants if tenant.namespace in set(names)]
    yield observed.finding(
        "namespaces-unassigned",
        "",
        f"{counted(len(names), 'namespace')} with GPU pods belong to no team; in the last 30 days "
        f"they had {hours:.1f} GPU-hours, which stand under unassigned.",
        f"# in the catalog:\nteams:\n  - name: TEAM\n    namespaces: [{', '.join(names[:3])}]",
        pods=len(held),
        gpu_hours=hours,
        places=some(names),
    )


_DRA_KEY = ".deviceclass.resource.k8s.io/devices"
_DRA_RESOURCE = "requests.deviceclass.resource.kubernetes.io/"


def check_quotas(observed: ClusterObservations) -> Iterator[Finding]:
    """Yield quota findings; silent where no quotas could be read."""
    if observed.quotas is None:
        return
    inert = [row for row in observed.quotas if counts_nothing(row.key)]
    for row in sorted(inert):
        yield _inert(observed, row)
    yield from _without(observed)


def counts_nothing(key: str) -> bool:
    """Say whether a GPU key of a quota is accepted and never counted (facts on ResourceQuota).

    No evaluator of Kubernetes matches an extended resource without `requests.`: neither its bare
    name nor `limits.`.
    """
    return is_gpu(key) or (key.startswith("limits.") and is_gpu(key.removeprefix("limits.")))


def limits_gpus(key: str) -> bool:
    """Say whether a key of a quota limits GPUs."""
    return (
        (key.startswith("requests.") and is_gpu(key.removeprefix("requests.")))
        or key.startswith(_DRA_RESOURCE)
        or key.endswith(_DRA_KEY)
    )


def _inert(observed: ClusterObservations, row: QuotaRow) -> Finding:
    held = [t for t in observed.past.tenants if t.namespace == row.namespace]
    units = sum(tenant.units for tenant in held)
    right = f"requests.{row.key.removeprefix('limits.')}"
    hard = "?" if row.hard is None else f"{row.hard:g}"
    return observed.finding(
        "quota-counts-nothing",
        f"{row.namespace}/{row.quota} {row.key}",
        f"ResourceQuota {row.quota} in {row.namespace} sets {row.key} to {hard}. Kubernetes "
        f"accepts that key and never counts it: {counted(units, 'unit')} are held there now, and "
        "nothing would stop more.",
        f"# kubectl edit resourcequota {row.quota} --namespace {row.namespace}\n"
        f'spec: {{hard: {{{right}: "{hard}"}}}}    # in place of {row.key}',
        pods=len(held),
        places=(row.namespace,),
    )


def _without(observed: ClusterObservations) -> Iterator[Finding]:
    quotas = observed.quotas or ()
    # Where no namespace has a GPU quota the cluster limits them elsewhere (Kueue), or not at all:
    # that is a choice, of which one line is enough.
    limited = {row.namespace for row in quotas if limits_gpus(row.key)}
    held = [group for group in observed.past.groups if group.namespace not in limited]
    names = {group.namespace for group in held}
    if not names:
        return
    pods = sum(group.pods for group in held)
    resource = max(held, key=lambda group: group.pods).resource
    yield observed.finding(
        "namespaces-without-quota",
        "",
        f"{counted(len(names), 'namespace')} had {counted(pods, 'GPU pod')} in the last 30 days "
        "and no quota that limits GPUs: one of them can take all that is free.",
        "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: gpu, namespace: NAMESPACE}\n"
        f'spec: {{hard: {{requests.{resource}: "NUMBER"}}}}',
        pods=pods,
        places=some(names),
    )
