"""`reference`: the worked example of the definitions, constant from its origin on.

8 nodes x 4 A100-80GB; 4 training jobs x 4 GPUs at 0.95, 12 inference services at 0.15 and 8
notebooks at 0.05 with one GPU each. 36 GPUs are asked for, 32 are there, so 4 notebooks wait.
"""

from collections.abc import Iterator

from msgspec import Struct

from apps.accounts.domain.structs import replace
from simulator import identity
from simulator.epochs import ActivitySteps, Epoch
from simulator.fleet import FOREVER, Controller, Node, Pod
from simulator.machines import a100_node
from simulator.scenarios.base import Scenario, Team

DAYS = 31
_GPUS_PER_NODE = 4
_NODES = 8
_QUOTAS = {"vision": 16, "speech": 12, "robotics": 12}
_PENDING = (
    "0/8 nodes are available: 8 Insufficient nvidia.com/gpu. no new claims to deallocate, "
    "preemption: 0/8 nodes are available: 8 No preemption victims found for incoming pod."
)


class _WorkloadProfile(Struct, frozen=True):
    """A kind of workload: what one of its pods requests and shows."""

    units: int
    activity: float
    memory_mib: int
    power_watts: float


_TRAINING = _WorkloadProfile(4, 0.95, 61_440, 385.0)
_INFERENCE = _WorkloadProfile(1, 0.15, 20_480, 118.0)
_NOTEBOOK = _WorkloadProfile(1, 0.05, 6_144, 74.0)

# (namespace, name, controller): in this order they get their GPUs; the last notebooks wait.
_TRAINING_JOBS = (
    ("vision", "segmentation-pretrain"),
    ("vision", "detector-finetune"),
    ("speech", "whisper-pretrain"),
    ("robotics", "policy-rollout"),
)
_SERVICES = (
    ("vision", "detector-serve"),
    ("vision", "ocr-serve"),
    ("vision", "caption-serve"),
    ("vision", "embed-serve"),
    ("speech", "transcribe-serve"),
    ("speech", "voice-serve"),
    ("speech", "translate-serve"),
    ("speech", "diarize-serve"),
    ("robotics", "grasp-serve"),
    ("robotics", "planner-serve"),
    ("robotics", "depth-serve"),
    ("robotics", "mapping-serve"),
)
_NOTEBOOKS = (
    ("vision", "notebook-ada"),
    ("vision", "notebook-ben"),
    ("speech", "notebook-cleo"),
    ("robotics", "notebook-dan"),
    ("vision", "notebook-eve"),
    ("speech", "notebook-finn"),
    ("speech", "notebook-gus"),
    ("robotics", "notebook-hana"),
)


class Reference(Scenario):
    name = "reference"
    title = "8 nodes x 4 A100, 24 workloads with constant activity: the worked example"

    def __init__(self, *, seed: int, origin: int) -> None:
        self.seed = f"{self.name}/{seed}/{origin}"
        self.begins = origin
        self.nodes = [
            a100_node(
                seed=self.seed,
                name=f"gpu-{number:02d}",
                position=number,
                gpus=_GPUS_PER_NODE,
                created=origin,
                labels={},
            )
            for number in range(1, _NODES + 1)
        ]
        self.namespaces = self.made_namespaces(_QUOTAS)
        self.quotas = self.made_quotas(_QUOTAS)
        self.teams = [
            Team(
                name=name,
                namespaces=(name, f"{name}-*"),
                entitlement=gpus,
                cost_center=f"CC-{100 * number}",
                leads=("ada",) if name == "vision" else (),
                monthly_gpu_hours=gpus * 600,
            )
            for number, (name, gpus) in enumerate(_QUOTAS.items(), start=1)
        ]
        builder = _Builder(self.seed, origin, self.nodes)
        pods = builder.pods()
        self.controllers = builder.controllers
        hard = {name: ActivitySteps((origin,), (gpus,)) for name, gpus in _QUOTAS.items()}
        self._epoch = Epoch(origin, FOREVER, pods=pods, hard=hard)

    def epochs(self, start: int, end: int) -> Iterator[Epoch]:
        if end >= self._epoch.start:
            yield self._epoch


class _Builder:
    """Makes the workloads and hands out devices, node by node."""

    def __init__(self, seed: str, origin: int, nodes: list[Node]) -> None:
        self._seed = seed
        self._origin = origin
        self._free = [(node, device.index) for node in nodes for device in node.devices]
        self.controllers: list[Controller] = []

    def pods(self) -> list[Pod]:
        return [
            *(self._job(*job) for job in _TRAINING_JOBS),
            *(self._service(*service) for service in _SERVICES),
            *(self._notebook(*notebook) for notebook in _NOTEBOOKS),
        ]

    def _job(self, namespace: str, name: str) -> Pod:
        job = self._controller("Job", namespace, name)
        return self._pod(job, f"{name}-{identity.suffix(5, self._seed, job.uid)}", _TRAINING)

    def _service(self, namespace: str, name: str) -> Pod:
        deployment = self._controller("Deployment", namespace, name)
        template = identity.suffix(10, self._seed, deployment.uid)
        replica_set = self._controller("ReplicaSet", namespace, f"{name}-{template}", deployment)
        suffix = identity.suffix(5, self._seed, replica_set.uid)
        return self._pod(replica_set, f"{replica_set.name}-{suffix}", _INFERENCE)

    def _notebook(self, namespace: str, name: str) -> Pod:
        return self._pod(self._controller("StatefulSet", namespace, name), f"{name}-0", _NOTEBOOK)

    def _controller(
        self, kind: str, namespace: str, name: str, parent: Controller | None = None
    ) -> Controller:
        uid = identity.uid(self._seed, kind, namespace, name)
        controller = Controller(kind, name, namespace, uid, self._origin, parent=parent)
        self.controllers.append(controller)
        return controller

    def _pod(self, owner: Controller, name: str, kind: _WorkloadProfile) -> Pod:
        uid = identity.uid(self._seed, "pod", owner.namespace, name)
        pod = Pod(
            uid=uid,
            name=name,
            namespace=owner.namespace,
            owner=owner,
            units=kind.units,
            created=self._origin,
        )
        if len(self._free) < kind.units:
            return replace(pod, pending_message=_PENDING)
        taken, self._free = self._free[: kind.units], self._free[kind.units :]
        return replace(
            pod,
            bound=self._origin,
            started=self._origin,
            node=taken[0][0].name,
            host_ip=taken[0][0].ip,
            devices=tuple(index for _, index in taken),
            activity=kind.activity,
            memory_mib=kind.memory_mib,
            power_watts=kind.power_watts,
        )
