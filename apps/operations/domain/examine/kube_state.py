"""Does kube-state-metrics show what the ledger and the tiers need of it."""

from collections.abc import Iterator

from apps.clusters.domain.quantities import counted
from apps.operations.domain.findings import Finding, some
from apps.operations.domain.observations import ClusterLook

NODE_LABELS = (
    "nvidia.com/gpu.product",
    "nvidia.com/gpu.sharing-strategy",
    "nvidia.com/gpu.replicas",
    "nvidia.com/mig.strategy",
    "karpenter.sh/capacity-type",
    "eks.amazonaws.com/capacityType",
    "cloud.google.com/gke-spot",
)


def check(look: ClusterLook) -> Iterator[Finding]:
    """Yield what is missing or doubled; only the API can stand in for it."""
    if not look.measured:
        return
    stands_in = (
        "The Kubernetes API stands in for it while it is watched; gaps of the watch cannot be "
        "rebuilt."
        if look.api is not None
        else "Without the Kubernetes API nothing else tells which pods and nodes there are."
    )
    if look.metrics.kube_state is False:
        yield Finding(
            "kube-state-missing",
            look.cluster,
            "",
            f"Prometheus has no series of kube-state-metrics. {stands_in}",
            "helm upgrade --install kube-state-metrics prometheus-community/kube-state-metrics \\\n"
            f"  --set 'metricLabelsAllowlist={{nodes=[{','.join(_labels(look))}]}}'",
        )
    yield from _node_labels(look, stands_in)
    yield from _copies(look)


def _node_labels(look: ClusterLook, stands_in: str) -> Iterator[Finding]:
    bare = [node.node for node in look.metrics.nodes if not node.labels]
    if not bare:
        return
    yield Finding(
        "node-labels-missing",
        look.cluster,
        "",
        f"kube-state-metrics shows {counted(len(bare), 'GPU node')} without labels, so that GPU "
        f"model, sharing and capacity type are not known from it. {stands_in}",
        "# arguments of kube-state-metrics:\n"
        f"--metric-labels-allowlist=nodes=[{','.join(_labels(look))}]",
        places=some(bare),
    )


def _labels(look: ClusterLook) -> list[str]:
    """Return the labels to show: those the ledger reads, and those that tiers select on."""
    named = {key for rule in look.rules for key in rule.node_selector}
    return [*NODE_LABELS, *sorted(named - set(NODE_LABELS))]


def _copies(look: ClusterLook) -> Iterator[Finding]:
    answers = look.metrics.answers
    if answers is None or answers.kube_state_copies <= 1:
        return
    yield Finding(
        "kube-state-duplicated",
        look.cluster,
        "",
        f"Each node is shown {answers.kube_state_copies} times by kube-state-metrics. The portal "
        "counts it once; dashboards that sum do not.",
        "kubectl get pods --all-namespaces --selector app.kubernetes.io/name=kube-state-metrics\n"
        "# one replica, or sharding on: a StatefulSet with\n--pod=$(POD_NAME)\n"
        "--pod-namespace=$(POD_NAMESPACE)",
    )
