"""The ground of the fault scenarios: nodes, and the objects that stay from cycle to cycle."""

from collections.abc import Iterator, Mapping, Sequence

from apps.accounts.domain.structs import replace
from simulator import identity
from simulator.fault_scenarios.manifests import PRODUCT, RACK
from simulator.fleet import GPU, STANDARD_METRICS, Exporter, GpuSpec, Node, NodeState, Sharing
from simulator.kubernetes import claims
from simulator.kubernetes.objects import namespace_object, node_object
from simulator.machines import H100, gpu_node
from simulator.scenarios.base import Namespace, Quota, Tier
from simulator.scheduler.kueue import API_VERSION as KUEUE
from simulator.scheduler.store import Object, Store

CYCLE_SECONDS = 7200
POOL = "a10"
CLAIM_POOL = "claims"
A10 = GpuSpec("NVIDIA A10", PRODUCT, 23_028, 22_502, 15.0, 150.0, 1695, compute=(8, 6))
PRICE = "0.85"
TIER = Tier(
    name="whole-a10",
    sharing="exclusive",
    promise="A whole A10, alone: for trials.",
    resources=(GPU,),
    node_selector={"nvidia.com/gpu.product": PRODUCT},
)
_EXPORTER = Exporter(version=(4, 4, 0), metrics=STANDARD_METRICS)
_CLAIMS = Exporter(version=(4, 8, 3), metrics=STANDARD_METRICS, dra=True, job="dcgm-exporter-dra")
_GPU_TAINT = (GPU, "present", "NoSchedule")
DEDICATED = ("dedicated", "robotics", "NoSchedule")
RESERVED = ("dedicated", "claims", "NoSchedule")

# Rack, GPUs, cores and GiB of each node; a few are short of either.
_NODES: Sequence[tuple[str, int, int, int]] = (
    ("r1", 4, 64, 512),
    ("r1", 4, 64, 512),
    ("r2", 2, 16, 64),
    ("r3", 2, 32, 256),
    ("r4", 2, 32, 256),
    ("r5", 2, 32, 256),
    ("r5", 2, 32, 256),
    ("r6", 4, 64, 512),
    ("r6", 4, 64, 512),
    ("r7", 4, 64, 512),
    ("r8", 4, 64, 512),
    ("r9", 2, 32, 256),
)
CORDONED = "a10-05"
CORDON_MINUTES = (20, 60)
CRAMPED, NUMA, NEXT, WORN = "a10-03", "a10-06", "a10-07", "a10-12"
CLAIM_NODE = "claims-01"

NAMESPACES = (
    "vision-lab", "speech-lab", "robotics-lab", "language-lab", "genomics-lab", "climate-lab",
    "physics-lab",
)  # fmt: skip
ENTITLED = {"vision": 8, "speech": 4, "robotics": 6, "language": 4, "genomics": 8, "climate": 4}
"""GPUs of the tier by team."""
QUOTAS = {"speech-lab": 2, "language-lab": 1, "physics-lab": 1}
RAISED_MINUTES = (50, 85)
RAISED_TO = 3
RAISED = "speech-lab"
"""The namespace whose quota is raised for a while in each cycle."""


def nodes(seed: str, begins: int, first_position: int) -> list[Node]:
    """Return the nodes of the fault scenarios, made at `begins`."""
    found: list[Node] = []
    for number, (rack, gpus, cores, gib) in enumerate(_NODES, start=1):
        name = f"a10-{number:02d}"
        found.append(
            _sized(
                gpu_node(
                    seed=seed,
                    name=name,
                    position=first_position + len(found),
                    gpu=A10,
                    gpus=gpus,
                    created=begins,
                    exporters=(_EXPORTER,),
                    taints=(_GPU_TAINT, DEDICATED) if rack == "r3" else (_GPU_TAINT,),
                    states=_cordon() if name == CORDONED else (),
                    labels={"node-pool": POOL, RACK: rack},
                ),
                cores,
                gib,
                repeats=CYCLE_SECONDS if name == CORDONED else 0,
            )
        )
    found.append(
        gpu_node(
            seed=seed,
            name=CLAIM_NODE,
            position=first_position + len(found),
            gpu=H100,
            gpus=2,
            created=begins,
            sharing=Sharing.DRA,
            exporters=(_CLAIMS,),
            taints=(_GPU_TAINT, RESERVED),
            labels={"node-pool": CLAIM_POOL},
        )
    )
    return found


def _cordon() -> tuple[NodeState, ...]:
    start, end = (60 * minute for minute in CORDON_MINUTES)
    return (NodeState(0), NodeState(start, cordoned=True), NodeState(end))


def _sized(node: Node, cores: int, gib: int, *, repeats: int) -> Node:
    return replace(node, cpu_cores=cores, memory_gib=gib, repeats=repeats)


def namespaces(seed: str, begins: int) -> list[Namespace]:
    return [Namespace(name, identity.uid(seed, "namespace", name), begins) for name in NAMESPACES]


def quotas(seed: str, begins: int) -> list[Quota]:
    return [Quota(space, "gpus", identity.uid(seed, "quota", space), begins) for space in QUOTAS]


def build(store: Store, seed: str, begins: int, ground: Sequence[Node], base: int) -> None:
    """Put everything that stays into a store, as it is at the start of a cycle."""
    for node in ground:
        store.create("nodes", node_object(node, base), created=begins)
        if node.sharing is Sharing.DRA:
            store.create("resourceslices", claims.slice_object(node, base), created=begins)
    for name in sorted(claims.CLASSES):
        store.create("deviceclasses", claims.class_object(name, begins), created=begins)
    for namespace in namespaces(seed, begins):
        store.create("namespaces", namespace_object(namespace), created=begins)
    uids = {quota.namespace: quota.uid for quota in quotas(seed, begins)}
    for space, limit in QUOTAS.items():
        store.create("resourcequotas", _quota(space, limit, uids[space]), created=begins)
    for plural, item in (*_priorities(), *_kueue(), *_volcano()):
        store.create(plural, item, created=begins)


def _quota(namespace: str, limit: int, uid: str) -> Object:
    return {
        "kind": "ResourceQuota",
        "apiVersion": "v1",
        "metadata": {"name": "gpus", "namespace": namespace, "uid": uid},
        "spec": {"hard": {f"requests.{GPU}": str(limit)}},
        "status": {},
    }


def _priorities() -> Iterator[tuple[str, Object]]:
    for name, value in (("lab-low", -10), ("lab-urgent", 1000)):
        yield (
            "priorityclasses",
            {
                "kind": "PriorityClass",
                "apiVersion": "scheduling.k8s.io/v1",
                "metadata": {"name": name},
                "value": value,
                "preemptionPolicy": "PreemptLowerPriority",
            },
        )
        yield (
            "workloadpriorityclasses",
            {
                "kind": "WorkloadPriorityClass",
                "apiVersion": KUEUE,
                "metadata": {"name": name},
                "value": value,
            },
        )


def _kueue() -> Iterator[tuple[str, Object]]:
    for flavor, rack in (("a10", "r6"), ("a10-strict", "r8")):
        yield (
            "resourceflavors",
            {
                "kind": "ResourceFlavor",
                "apiVersion": KUEUE,
                "metadata": {"name": flavor},
                "spec": {"nodeLabels": {"nvidia.com/gpu.product": PRODUCT, RACK: rack}},
            },
        )
    for name, flavor, nominal, more in (
        ("lab", "a10", 4, {"preemption": {"withinClusterQueue": "LowerPriority"}}),
        ("lab-strict", "a10-strict", 2, {"queueingStrategy": "StrictFIFO"}),
        ("lab-held", "a10", 2, {"stopPolicy": "Hold"}),
    ):
        yield "clusterqueues", cluster_queue(name, flavor, nominal, more)
    for name, target in (("main", "lab"), ("strict", "lab-strict"), ("held", "lab-held"),
                         ("orphan", "lab-planned")):  # fmt: skip
        yield (
            "localqueues",
            {
                "kind": "LocalQueue",
                "apiVersion": KUEUE,
                "metadata": {"name": name, "namespace": "genomics-lab"},
                "spec": {"clusterQueue": target, "stopPolicy": "None"},
                "status": {},
            },
        )


def cluster_queue(name: str, flavor: str, nominal: int, more: Object | None = None) -> Object:
    never = {"withinClusterQueue": "Never", "reclaimWithinCohort": "Never"}
    quota = {"name": GPU, "nominalQuota": str(nominal)}
    group = {"coveredResources": [GPU], "flavors": [{"name": flavor, "resources": [quota]}]}
    spec: Object = {
        "namespaceSelector": {},
        "queueingStrategy": "BestEffortFIFO",
        "stopPolicy": "None",
        "resourceGroups": [group],
        **(more or {}),
    }
    spec["preemption"] = {**never, **spec.get("preemption", {})}
    return {
        "kind": "ClusterQueue",
        "apiVersion": KUEUE,
        "metadata": {"name": name},
        "spec": spec,
        "status": {},
    }


_VOLCANO: Mapping[str, Object] = {
    "default": {},
    "climate": {"capability": {GPU: "8"}, "deserved": {GPU: "4"}},
}
"""Limits of the queues by name."""


def _volcano() -> Iterator[tuple[str, Object]]:
    for name, limits in _VOLCANO.items():
        yield (
            "queues",
            {
                "kind": "Queue",
                "apiVersion": "scheduling.volcano.sh/v1beta1",
                "metadata": {"name": name},
                "spec": {"weight": 1, "reclaimable": True, **limits},
                "status": {"state": "Open"},
            },
        )
