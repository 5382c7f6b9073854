"""`openb`: the pods of an Alibaba trace on 120 GPUs that are shared in thousandths.

Each GPU has 1,000 replicas, offered as `nvidia.com/gpu.shared`, and a pod requests num_gpu x
gpu_milli of them. Where pods sit is part of the data, what they do is drawn from the Acme
distributions: mostly within their part of the GPU, a few beyond it.
"""

import csv
import gzip
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from apps.accounts.domain.structs import replace
from simulator import identity
from simulator.epochs import ActivitySteps, Epoch
from simulator.fleet import (
    DAY,
    FOREVER,
    FULL_METRICS,
    GPU_SHARED,
    LINGER_SECONDS,
    Controller,
    Exporter,
    GpuSpec,
    Node,
    Pod,
    Sharing,
)
from simulator.machines import T4, gpu_node
from simulator.scenarios.base import EpochScenario, Team, Tier, hard_key
from simulator.scenarios.distributions import CLUSTERS, distributions

FOLDER = Path(__file__).parents[1] / "data" / "openb"
DAYS = 34
"""How long the window is of which the trace is a fair picture."""
WINDOW = (9_936_000, 12_873_600)
"""The window in the trace's own seconds."""
REPLICAS = 1000
_REPEAT = 28 * DAY
_PRODUCT = "nvidia.com/gpu.product"
_KEY = f"requests.{GPU_SHARED}"
_BEYOND = 0.15
"""The share of pods that use half as much again as they hold."""


def _spec(
    model: str, memory_gib: int, *, profiling: bool = True, compute: tuple[int, int]
) -> GpuSpec:
    board = memory_gib * 1024
    return replace(
        T4,
        model=model,
        product=model,
        board_mib=board,
        visible_mib=board - 640,
        idle_watts=30.0,
        board_watts=250.0,
        profiling=profiling,
        compute=compute,
    )


# The trace does not say what G2 and G3 are; P100 is older than the profiling counters.
_SPECS: Mapping[str, GpuSpec] = {
    "G2": _spec("G2", 24, compute=(8, 6)),
    "G3": _spec("G3", 80, compute=(8, 0)),
    "P100": _spec("P100", 16, profiling=False, compute=(6, 0)),
    "T4": replace(T4, model="T4", product="T4"),
    "V100M16": _spec("V100M16", 16, compute=(7, 0)),
    "V100M32": _spec("V100M32", 32, compute=(7, 0)),
}
_PRICES = {"G2": "0.80", "G3": "2.10", "P100": "0.45", "T4": "0.35", "V100M16": "1.20",
           "V100M32": "1.45"}  # fmt: skip
# Class of the trace → (namespace, kind of controller, part of the GPUs it is entitled to).
_CLASSES: Mapping[str, tuple[str, str, float]] = {
    "LS": ("online", "ReplicaSet", 0.6),
    "BE": ("batch", "Job", 0.1),
    "Burstable": ("research", "Job", 0.2),
    "Guaranteed": ("platform", "StatefulSet", 0.1),
}


class TracePod(Struct, frozen=True):
    """A pod of the trace, times in its own seconds; `node` is empty where it never got one."""

    name: str
    qos: str
    gpus: int
    milli: int
    cpu_milli: int
    memory_mib: int
    models: tuple[str, ...]
    created: int
    bound: int
    ended: int
    node: str
    devices: tuple[int, ...]


def read_entries() -> list[TracePod]:
    """Return the pods of the trace that ask for GPUs, in its order."""
    placed = {row["name"]: row for row in _rows("derived_subfleet_placement_gpuspec33.csv.gz")}
    return [
        _entry(row, placed.get(row["name"]))
        for row in _rows("openb_pod_list_gpuspec33.csv.gz")
        if int(row["num_gpu"]) > 0
    ]


def _entry(row: Mapping[str, str], placed: Mapping[str, str] | None) -> TracePod:
    return TracePod(
        name=row["name"],
        qos=row["qos"],
        gpus=int(row["num_gpu"]),
        milli=int(row["gpu_milli"]),
        cpu_milli=int(row["cpu_milli"]),
        memory_mib=int(row["memory_mib"]),
        models=tuple(dict.fromkeys(filter(None, row["gpu_spec"].split("|")))),
        created=int(float(row["creation_time"])),
        bound=int(float(row["scheduled_time"])) if placed else FOREVER,
        ended=int(float(row["deletion_time"])),
        node=placed["node"] if placed else "",
        devices=tuple(map(int, placed["gpu_index"].split(";"))) if placed else (),
    )


def _rows(name: str) -> Iterator[Mapping[str, str]]:
    content = (FOLDER / name).read_bytes()
    text = gzip.decompress(content) if name.endswith(".gz") else content
    yield from csv.DictReader(text.decode().splitlines())


class OpenB(EpochScenario):
    """The window starts at `origin`; after its end its last four weeks repeat, all pods new."""

    name = "openb"
    epoch_seconds = _REPEAT
    title = "120 GPUs in thousandths: 34 days of an Alibaba trace, live from now"

    def __init__(self, *, seed: int, origin: int) -> None:
        self.seed = f"{self.name}/{seed}/{origin}"
        self._shift = origin - WINDOW[0]
        self.begins = self._shift
        self.first_epoch = (self.begins, origin + WINDOW[1] - WINDOW[0])
        self._entries = read_entries()
        self.nodes = self._make_nodes()
        self._by_name = {node.name: node for node in self.nodes}
        spaces = [space for space, _, _ in _CLASSES.values()]
        self.namespaces = self.made_namespaces(spaces)
        self.quotas = self.made_quotas(spaces, (_KEY,))
        self._owners: dict[tuple[str, int, int], Controller] = {}
        self.controllers = self._make_controllers()
        counts = dict.fromkeys(_SPECS, 0)
        for node in self.nodes:
            counts[node.model] += len(node.devices)
        self.teams = list(_teams(counts))
        self.tiers = [_tier(model) for model in _SPECS]
        self.prices = _PRICES
        self._distributions = distributions()

    def make_epoch(self, number: int, start: int, end: int) -> Epoch:
        shift = self._shift + number * _REPEAT
        pods = [
            self._pod(entry, number, shift, start, end)
            for entry in self._entries
            if entry.created + shift < end and entry.ended + shift > start
        ]
        hard = {
            hard_key(space, _KEY): ActivitySteps((start,), (self._hard(part),))
            for space, _, part in _CLASSES.values()
        }
        return Epoch(start, end, pods=pods, hard=hard)

    def _hard(self, part: float) -> int:
        return round(part * REPLICAS * sum(len(node.devices) for node in self.nodes))

    # ------------------------------------------------------------ the fixed parts

    def _make_nodes(self) -> list[Node]:
        exporter = Exporter(
            version=(4, 8, 3),
            metrics=FULL_METRICS,
            virtual_gpus=True,
            resource_names=(GPU_SHARED,),
        )
        return [
            replace(
                gpu_node(
                    seed=self.seed,
                    name=row["sn"],
                    position=position,
                    gpu=_SPECS[row["model"]],
                    gpus=int(row["gpu"]),
                    created=self.begins,
                    sharing=Sharing.TIME_SLICED,
                    replicas=REPLICAS,
                    renamed=True,
                    exporters=(exporter,),
                ),
                cpu_cores=int(row["cpu_milli"]) // 1000,
                memory_gib=int(row["memory_mib"]) // 1024,
            )
            for position, row in enumerate(_rows("derived_subfleet_nodes.csv"), start=1)
        ]

    def _make_controllers(self) -> list[Controller]:
        """Make a controller for all pods of a class that ask for the same GPUs."""
        found: list[Controller] = []
        for entry in self._entries:
            key = (entry.qos, entry.gpus, entry.milli)
            if key in self._owners:
                continue
            namespace, kind, _ = _CLASSES[entry.qos]
            name = f"{namespace}-{entry.gpus}x{entry.milli}m"
            parent = None
            if kind == "ReplicaSet":
                parent = self._controller("Deployment", namespace, name)
                name = f"{name}-{identity.suffix(10, self.seed, namespace, name)}"
                found.append(parent)
            owner = self._owners[key] = self._controller(kind, namespace, name, parent)
            found.append(owner)
        return found

    def _controller(
        self, kind: str, namespace: str, name: str, parent: Controller | None = None
    ) -> Controller:
        uid = identity.uid(self.seed, kind, namespace, name)
        return Controller(kind, name, namespace, uid, self.begins, parent=parent)

    # ------------------------------------------------------------ pods

    def _pod(self, entry: TracePod, number: int, shift: int, start: int, end: int) -> Pod:
        """Return a pod of an epoch, cut where the epoch ends."""
        owner = self._owners[entry.qos, entry.gpus, entry.milli]
        ended = min(entry.ended + shift, end)
        pod = Pod(
            uid=identity.uid(self.seed, "pod", number, entry.name),
            name=entry.name if not number else f"{entry.name}-{number}",
            namespace=owner.namespace,
            owner=owner,
            units=entry.gpus * entry.milli,
            created=max(entry.created + shift, start),
            deleted=ended,
            resource=GPU_SHARED,
            cpu_cores=max(1, entry.cpu_milli // 1000),
            memory_gib=max(1, entry.memory_mib // 1024),
            node_selector={_PRODUCT: entry.models[0]} if len(entry.models) == 1 else {},
            pending_message=self._pending_message(entry),
        )
        bound = entry.bound + shift
        if bound >= end:
            return pod
        return self._bound(pod, entry, max(bound, start), ended)

    def _bound(self, pod: Pod, entry: TracePod, bound: int, ended: int) -> Pod:
        node = self._by_name[entry.node]
        delay = min(ended - bound, 2 + identity.below(8, pod.uid, "start")) // 2
        cluster = CLUSTERS[identity.below(len(CLUSTERS), pod.uid, "cluster")]
        signal = self._distributions[cluster].on(
            _SPECS[node.model], identity.fraction(pod.uid, "signal")
        )
        part = entry.milli / REPLICAS
        if identity.fraction(pod.uid, "beyond") < _BEYOND:
            part = min(1.0, 1.5 * part)
        idle = node.idle_watts
        return replace(
            pod,
            bound=bound,
            started=bound + delay,
            finished=ended,
            deleted=ended + LINGER_SECONDS,
            node=node.name,
            host_ip=node.ip,
            devices=entry.devices,
            activity=round(signal.activity * part, 4),
            memory_mib=round(signal.memory_mib * part),
            power_watts=round(idle + (signal.power_watts - idle) * part, 1),
            sm_active=round(signal.sm_active * part, 4),
        )

    def _pending_message(self, entry: TracePod) -> str:
        wanted = [n for n in self.nodes if not entry.models or n.model in entry.models]
        reasons = [f"{len(wanted)} Insufficient {GPU_SHARED}"] if wanted else []
        others = len(self.nodes) - len(wanted)
        if others:
            reasons.append(f"{others} node(s) didn't match Pod's node affinity/selector")
        return f"0/{len(self.nodes)} nodes are available: {', '.join(reasons)}."


def _tier(model: str) -> Tier:
    return Tier(
        name=f"shared-{model.lower()}",
        sharing="time-sliced",
        promise=f"Thousandths of a {model}, side by side with others.",
        resources=(GPU_SHARED,),
        node_selector={_PRODUCT: model},
    )


def _teams(counts: Mapping[str, int]) -> Iterator[Team]:
    for number, (space, _, part) in enumerate(_CLASSES.values(), start=1):
        yield Team(
            name=space,
            namespaces=(space,),
            entitlement=0,
            cost_center=f"CC-{100 * number}",
            leads=("ada",) if space == "online" else (),
            monthly_gpu_hours=round(sum(counts.values()) * part * 500),
            entitlements={
                f"shared-{model.lower()}": round(count * part, 1) for model, count in counts.items()
            },
        )
