"""`metro`: the second cluster of `campus`, with AMD GPUs, known by its metrics alone."""

from collections.abc import Iterator, Sequence

from apps.accounts.domain.structs import replace
from simulator import identity
from simulator.epochs import ActivitySteps, Epoch
from simulator.fleet import AMD_GPU, DAY, Controller, Exporter, GpuSpec, Node, Suspension
from simulator.machines import gpu_node
from simulator.scenarios.base import EpochScenario, GpuRate, Namespace, Queue, Tier, hard_key
from simulator.scenarios.day_work import DayWork, Work, office
from simulator.scenarios.helios import passing

MODEL = "AMD Instinct MI300X"
_MI300X = GpuSpec(
    MODEL, "AMD-Instinct-MI300X", 196_592, 196_288, 140.0, 750.0, 2100,
    family="cdna3", resource=AMD_GPU,
)  # fmt: skip
TIER = Tier(
    name="whole-mi300x",
    sharing="exclusive",
    promise="A whole MI300X with 192 GB, alone.",
    resources=(AMD_GPU,),
)
RATE = GpuRate(MODEL, "on-demand", "4.25")
ENTITLED = {"climate": 8, "physics": 5, "materials": 3}
"""GPUs of the tier by team."""
_NODES, _GPUS_PER_NODE = 4, 4
_EPOCH_DAYS = 7
_KEY = f"requests.{AMD_GPU}"
_LIMITS = {"climate-hpc": 12, "physics-hpc": 8, "materials-hpc": 6}
_NO_DCGM = Exporter(metrics=(), job="amd-device-metrics-exporter", namespace="kube-amd-gpu")
_LABELS = {
    "amd.com/gpu.product-name": MODEL.replace(" ", "_"),
    "amd.com/gpu.vram": "192G",
    "karpenter.sh/capacity-type": "on-demand",
    "kubernetes.io/os": "linux",
    "node-pool": "mi300x",
}
_HOUR = 3600
_BATCH = "climate-hpc"
"""Whose Jobs go through Kueue."""
_WORK: Sequence[Work] = (
    Work("climate-hpc", "MPIJob", "earth-model", "mi-01", 0, 2, 2, 151_000, ((0, 0.88),)),
    Work("climate-hpc", "CronJob", "ensemble", "mi-02", 0, 2, 2, 96_000,
         ((6, 0.05), (6.5, 0.74), (20, 0.0)), at_hours=(6, 22), pending_seconds=2 * _HOUR),
    Work("climate-hpc", "CronJob", "reanalysis", "mi-02", 0, 1, 4, 118_000,
         ((22, 0.69),), at_hours=(22, 30)),
    Work("physics-hpc", "Job", "lattice-qcd", "mi-03", 0, 1, 4, 133_000, ((0, 0.93),)),
    Work("physics-hpc", "Deployment", "surrogate-serve", "mi-04", 0, 1, 1, 41_000,
         office(0.48, 0.05), ((0, 0.04),)),
    Work("materials-hpc", "StatefulSet", "notebook-md", "mi-04", 1, 1, 1, 12_000, ((0, 0.02),)),
    Work("materials-hpc", "CronJob", "screening", "mi-04", 2, 1, 2, 88_000,
         ((19, 0.66),), at_hours=(19, 31), pending_seconds=_HOUR),
    Work("materials-hpc", "CronJob", "relaxation", "mi-04", 2, 1, 2, 37_000,
         ((9, 0.31),), at_hours=(9, 19)),
)  # fmt: skip


class Metro(EpochScenario):
    """16 MI300X of three teams; in each week its lasting pods are new.

    Of Kueue there is only what it shows by its defaults: how many Workloads are pending.
    """

    name = cluster = "metro"
    title = "16 MI300X of three teams, known by metrics alone"
    queue_resources = False
    epoch_seconds = _EPOCH_DAYS * DAY
    epochs_cached = 12
    lingering = DAY

    def __init__(self, *, seed: str, begins: int) -> None:
        self.seed = f"{seed}/{self.name}"
        self.begins = begins
        self.first_epoch = (begins, begins + self.epoch_seconds)
        self.nodes = [_node(self.seed, number, begins) for number in range(1, _NODES + 1)]
        self._work = DayWork(self.seed, self.nodes, begins, _WORK)
        self.namespaces = [
            *self._work.namespaces(),
            Namespace("monitoring", identity.uid(self.seed, "namespace", "monitoring"), begins),
        ]
        self.quotas = self.made_quotas(sorted(_LIMITS), (_KEY,))
        self.controllers = list(self._work.controllers())
        self.teams = []
        self.tiers = [TIER]
        self.queues = [
            Queue("hpc", "hpc", _BATCH, "mi300x", AMD_GPU, _NODES * _GPUS_PER_NODE, begins)
        ]

    def make_epoch(self, number: int, start: int, end: int) -> Epoch:
        pods = list(self._work.pods(start, end))
        hard = {
            hard_key(space, _KEY): ActivitySteps((start,), (limit,))
            for space, limit in _LIMITS.items()
        }
        controllers = [*passing(pods), *self._suspended(start, end)]
        return Epoch(start, end, pods=pods, hard=hard, controllers=controllers)

    def _suspended(self, start: int, end: int) -> Iterator[Controller]:
        """Yield the Jobs that wait in Kueue on each day, without a pod."""
        for day in range(-(-start // DAY), end // DAY):
            for number in range(1 + day % 3):
                since = day * DAY + (7 + 2 * number) * _HOUR
                uid = identity.uid(self.seed, "Job", _BATCH, since)
                name = f"downscaling-{identity.suffix(5, uid)}"
                held_back = Suspension("hpc", "hpc", 2, 4, AMD_GPU, {}, f"{uid[:-1]}w")
                yield Controller(
                    "Job", name, _BATCH, uid, since, since + 9 * _HOUR, suspension=held_back
                )


def _node(seed: str, number: int, begins: int) -> Node:
    name = f"mi-{number:02d}"
    node = gpu_node(
        seed=seed,
        name=name,
        position=200 + number,
        gpu=_MI300X,
        gpus=_GPUS_PER_NODE,
        created=begins,
        exporters=(_NO_DCGM,),
    )
    return replace(node, labels={**_LABELS, "kubernetes.io/hostname": name})
