"""Where work lands inside nodes and between them: Topology Manager, and gangs that start apart."""

from collections.abc import Iterator

from apps.clusters.domain.resources import counted
from apps.clusters.domain.tiers import GpuSharing
from apps.operations.domain.examine.sharing import offers
from apps.operations.domain.findings import Finding, some
from apps.operations.domain.observations import ClusterObservations

_OFF = "none"


def check_topology(observed: ClusterObservations) -> Iterator[Finding]:
    """Yield what makes GPUs of one job slower than they could be together."""
    yield from _topology_manager(observed)
    yield from _gangs(observed)


def without_policy(observed: ClusterObservations) -> set[str]:
    """Return the nodes with several GPUs that do not publish the policy of their kubelet."""
    # Policies come by the API: without it none is missing.
    if observed.api is None:
        return set()
    return _with_several(observed) - observed.past.topology_policies.keys()


def _with_several(observed: ClusterObservations) -> set[str]:
    """Return the nodes with more than one GPU that pods may get together."""
    return {
        offer.node
        for offer in offers(observed)
        if offer.sharing is GpuSharing.EXCLUSIVE and offer.gpus > 1
    }


def _topology_manager(observed: ClusterObservations) -> Iterator[Finding]:
    several = _with_several(observed)
    # A node that publishes no policy is not known to have none.
    off = {node for node in several if observed.past.topology_policies.get(node) == _OFF}
    if not off:
        return
    yield observed.finding(
        "topology-manager-off",
        "",
        f"On {len(off)} of {counted(len(several), 'node')} with several GPUs the kubelet's "
        "Topology Manager has the policy none: CPUs, network devices and GPUs of a pod may be on "
        "different NUMA nodes.",
        "# KubeletConfiguration of these nodes; it needs the static CPU Manager\n"
        "cpuManagerPolicy: static\ntopologyManagerPolicy: best-effort",
        places=some(off),
    )


def _gangs(observed: ClusterObservations) -> Iterator[Finding]:
    groups = observed.past.gangs
    pods = sum(group.pods for group in groups)
    if not pods:
        return
    jobs = sum(group.jobs for group in groups)
    kinds = ", ".join(sorted({group.kind for group in groups}))
    yield observed.finding(
        "gangs-without-scheduler",
        "",
        f"{counted(jobs, 'job')} of {kinds} with {counted(pods, 'pod')} started in the last 2 days "
        "without a PodGroup or a Kueue Workload: pods are bound one by one, and those that are "
        "bound first hold GPUs while the others wait.",
        "# one of: Kueue (all pods of a Workload are admitted together),\n"
        "# Volcano, scheduler-plugins coscheduling, or PodGroup of scheduling.k8s.io\n"
        "metadata: {labels: {kueue.x-k8s.io/queue-name: QUEUE}}",
        pods=pods,
        places=some(group.namespace for group in groups),
    )
