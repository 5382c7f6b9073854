"""Can the activity of a card be given to the pods that hold it."""

from collections import Counter
from collections.abc import Iterator

from apps.clusters.domain.quantities import counted
from apps.clusters.domain.tiers import GpuSharing
from apps.operations.domain.examine.offers import Offer, offers
from apps.operations.domain.findings import Finding, some
from apps.operations.domain.observations import ClusterLook, NodeTenant

_SLOT_SECONDS = 1800
_COPIED = 1.5
"""From so many times the samples of one row on, each sharer has a row of its own."""


def check(look: ClusterLook) -> Iterator[Finding]:
    """Yield where pods hold cards whose series do not name them; needs cards and tenants."""
    running = [tenant for tenant in look.past.tenants if tenant.running]
    named = {card.node for card in look.metrics.cards if card.named}
    if running and look.metrics.cards and not named:
        yield _no_labels(look, running)
        return
    yield from _unmapped(look, running, named)
    yield from _virtual_gpus(look, running, named)
    yield from _process_values(look)
    yield from _claims(look, running, named)


def _no_labels(look: ClusterLook, running: list[NodeTenant]) -> Finding:
    return Finding(
        "no-pod-labels",
        look.cluster,
        "",
        f"No series of {counted(len(look.metrics.cards), 'device')} names a pod, while "
        f"{counted(len(running), 'pod')} hold GPUs: what each used is found by elimination where "
        "one pod is alone on its node, and stays unmeasured elsewhere.",
        "# dcgm-exporter: environment and the kubelet's socket\n"
        'env: [{name: DCGM_EXPORTER_KUBERNETES, value: "true"}]\n'
        "volumeMounts: [{name: pod-resources, mountPath: /var/lib/kubelet/pod-resources}]",
        pods=len(running),
    )


def _seen_nodes(look: ClusterLook) -> set[str]:
    return {card.node for card in look.metrics.cards}


def _unmapped(look: ClusterLook, running: list[NodeTenant], named: set[str]) -> Iterator[Finding]:
    """Yield where only pods of a renamed resource are on a node, and its cards name nobody."""
    found: dict[str, list[NodeTenant]] = {}
    others = {t.node for t in running if not t.resource.endswith(".shared")}
    for tenant in running:
        on_shared = tenant.resource.endswith(".shared") and tenant.node not in others
        if on_shared and tenant.node in _seen_nodes(look) - named:
            found.setdefault(tenant.resource, []).append(tenant)
    for resource, tenants in sorted(found.items()):
        nodes = {tenant.node for tenant in tenants}
        yield Finding(
            "shared-unmapped",
            look.cluster,
            resource,
            f"{counted(len(tenants), 'pod')} hold {resource} on {counted(len(nodes), 'node')} "
            "whose series name no pod: the exporter maps only resources that it is told of. Each "
            "card's activity is divided among its holders.",
            f'# dcgm-exporter:\nenv: [{{name: NVIDIA_RESOURCE_NAMES, value: "{resource}"}}]',
            pods=len(tenants),
            places=some(nodes),
        )


def _virtual_gpus(
    look: ClusterLook, running: list[NodeTenant], named: set[str]
) -> Iterator[Finding]:
    """Yield where more pods share cards than the series can name at a time.

    With more pods than cards on a node at least one card has two of them. Where no card has more
    samples than one row gives, the exporter names one pod at a time.
    """
    interval = look.metrics.interval_seconds or look.catalog_interval_seconds
    usual = _SLOT_SECONDS / interval
    shared: dict[str, Offer] = {o.node: o for o in offers(look) if o.shared}
    tenants = Counter(t.node for t in running if t.node in shared)
    affected, pods = set(), 0
    for node, count in tenants.items():
        cards = [card for card in look.metrics.cards if card.node == node]
        if node not in named or count <= len(cards):
            continue
        if max(card.named for card in cards) < _COPIED * usual:
            affected.add(node)
            pods += count
    if not affected:
        return
    yield Finding(
        "virtual-gpus-off",
        look.cluster,
        "",
        f"On {counted(len(affected), 'node')} {counted(pods, 'pod')} share cards, and the exporter "
        "names one of a card's pods at a time. The card's activity is divided among those who "
        "held it: grade apportioned.",
        "# dcgm-exporter 4.8.2 or newer, with hostPID for values by process:\n"
        'env: [{name: KUBERNETES_VIRTUAL_GPUS, value: "true"}]\nhostPID: true',
        pods=pods,
        places=some(affected),
    )


def _process_values(look: ClusterLook) -> Iterator[Finding]:
    zero = look.metrics.remarks.get("no_process_values", 0)
    if not zero:
        return
    shared = {offer.node for offer in offers(look) if offer.shared}
    pods = sum(tenant.running and tenant.node in shared for tenant in look.past.tenants)
    yield Finding(
        "process-values-zero",
        look.cluster,
        "",
        f"{counted(zero, 'time')} all pods of a shared card read 0 while the card was busy: the "
        "exporter cannot match processes to pods. The card's activity is divided evenly by what "
        "each held.",
        "# the DaemonSet of dcgm-exporter:\nspec: {template: {spec: {hostPID: true}}}",
        pods=pods,
    )


def _claims(look: ClusterLook, running: list[NodeTenant], named: set[str]) -> Iterator[Finding]:
    tiers = {rule.tier for rule in look.rules if rule.sharing is GpuSharing.DRA}
    classes = {name for rule in look.rules for name in rule.device_classes}
    mapped = any(job.dra_labels for job in look.metrics.profile.jobs)
    nodes = _seen_nodes(look) - named
    held = [t for t in running if (t.tier in tiers or t.resource in classes) and t.node in nodes]
    if mapped or not held:
        return
    yield Finding(
        "dra-labels-missing",
        look.cluster,
        "",
        f"{counted(len(held), 'pod')} hold GPUs by claims on nodes whose series name no claim: "
        "they are found through their devices' UUIDs where ResourceSlices publish them.",
        "# dcgm-exporter 4.8.3 or newer (older ones read only resource.k8s.io/v1beta1):\n"
        'env: [{name: KUBERNETES_ENABLE_DRA, value: "true"}]',
        pods=len(held),
        places=some(t.node for t in held),
    )
