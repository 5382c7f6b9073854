"""MIG: sizes that no tier takes, slices that nobody can use, and configurations under way."""

from collections import defaultdict
from collections.abc import Iterator

from apps.clusters.domain.quantities import counted
from apps.clusters.domain.tiers import UNMATCHED, GpuSharing, gpu_model, mig_profile
from apps.operations.domain.examine.offers import offers
from apps.operations.domain.findings import Finding, some
from apps.operations.domain.observations import ClusterLook

CONFIG = "nvidia.com/mig.config"
STATE = "nvidia.com/mig.config.state"
INVALID = "-MIG-INVALID"
_UNDER_WAY = frozenset({"pending", "rebooting"})
_LEAST_STRANDED_GPU_HOURS = 1.0


def check(look: ClusterLook) -> Iterator[Finding]:
    """Yield what is wrong with partitioned cards."""
    yield from _outside(look)
    yield from _stranded(look)
    yield from _configuration(look)


def _outside(look: ClusterLook) -> Iterator[Finding]:
    loose = defaultdict(list)
    for offer in offers(look):
        if offer.sharing is GpuSharing.MIG and offer.tier == UNMATCHED:
            profile = mig_profile(offer.resource, offer.labels)
            if profile != "INVALID":
                loose[profile, offer.model, offer.resource].append(offer)
    for (profile, model, resource), some_offers in sorted(loose.items()):
        nodes = {offer.node for offer in some_offers}
        units = sum(offer.units for offer in some_offers)
        gpus = sum(offer.gpus for offer in some_offers)
        held = [t for t in look.past.tenants if t.node in nodes and t.resource == resource]
        yield Finding(
            "mig-outside-catalog",
            look.cluster,
            f"{profile} {model}",
            f"{counted(units, 'MIG device')} {profile} of {model}, {gpus:.2f} cards, belong to no "
            f"tier; {counted(len(held), 'pod')} hold some. What is not offered is not asked for.",
            "# in the catalog:\ntiers:\n"
            f"  - name: mig-{profile.replace('.', '-')}\n    sharing: mig\n"
            f"    resources: [{resource}]\n"
            "# or another layout, on the node:\n"
            f"kubectl label node NODE {CONFIG}=LAYOUT --overwrite",
            pods=len(held),
            places=some(nodes),
        )


def _stranded(look: ClusterLook) -> Iterator[Finding]:
    for row in look.past.tiers:
        if row.stranded < _LEAST_STRANDED_GPU_HOURS:
            continue
        yield Finding(
            "slices-stranded",
            look.cluster,
            row.tier,
            f"{row.stranded:.1f} GPU-hours of tier {row.tier} were stranded in the last 30 days: "
            "slices that the layout of the cards leaves over, in which no pod can be placed.",
            "# a layout that uses all slices, such as 3g + 2g + 2g, or 7 × 1g; on the node:\n"
            f"kubectl label node NODE {CONFIG}=LAYOUT --overwrite    # it has to be drained before",
            gpu_hours=row.stranded,
        )


def _configuration(look: ClusterLook) -> Iterator[Finding]:
    under_way, failed = [], []
    for node in look.nodes:
        labels = look.labels_of(node)
        state = labels.get(STATE, "")
        product = labels.get("nvidia.com/gpu.product", "")
        if state == "failed" or product.endswith(INVALID):
            failed.append(node)
        elif state in _UNDER_WAY:
            under_way.append(node)
    if under_way:
        models = sorted({gpu_model(node.labels) for node in under_way})
        yield Finding(
            "mig-reconfiguring",
            look.cluster,
            "",
            f"{counted(len(under_way), 'node gets', 'nodes get')} another MIG layout "
            f"({', '.join(models)}): "
            "their GPUs come and go until that is done, normally within minutes.",
            f"kubectl get nodes --label-columns {CONFIG},{STATE}",
            places=some(node.node for node in under_way),
        )
    if failed:
        models = sorted({gpu_model(node.labels) for node in failed})
        pods = sum(t.node in {node.node for node in failed} for t in look.past.tenants)
        yield Finding(
            "mig-failed",
            look.cluster,
            "",
            f"On {counted(len(failed), 'node')} ({', '.join(models)}) a MIG layout could not be "
            "set: the device plug-in offers the old one, or nothing.",
            "kubectl logs --namespace NAMESPACE --selector app=nvidia-mig-manager\n"
            "# pods still on the cards keep it from being set:\n"
            "kubectl drain NODE --ignore-daemonsets --delete-emptydir-data\n"
            f"kubectl label node NODE {CONFIG}=LAYOUT --overwrite",
            pods=pods,
            places=some(node.node for node in failed),
        )
