"""Builds GPU nodes, labelled as GPU Feature Discovery labels them."""

from collections.abc import Mapping, Sequence

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.mig import geometry
from simulator import identity
from simulator.fleet import (
    MIG_PREFIX,
    Device,
    Exporter,
    GpuSpec,
    Instance,
    Node,
    NodeState,
    Sharing,
)

MODEL = "NVIDIA A100-SXM4-80GB"
"""As DCGM writes it; the node label has dashes for the blanks."""
PRODUCT = MODEL.replace(" ", "-")
BOARD_MIB = 81_920
_VISIBLE_MIB = 81_050
_IDLE_WATTS = 61.5
_SCRAPE_MS = 30_000

_FEATURES = {
    "beta.kubernetes.io/arch": "amd64",
    "beta.kubernetes.io/os": "linux",
    "kubernetes.io/arch": "amd64",
    "kubernetes.io/os": "linux",
    "feature.node.kubernetes.io/pci-10de.present": "true",
    "karpenter.sh/capacity-type": "on-demand",
    "nvidia.com/cuda.driver-version.full": "580.95.05",
    "nvidia.com/cuda.driver-version.major": "580",
    "nvidia.com/cuda.driver-version.minor": "95",
    "nvidia.com/cuda.driver-version.revision": "05",
    "nvidia.com/cuda.driver.major": "580",
    "nvidia.com/cuda.driver.minor": "95",
    "nvidia.com/cuda.driver.rev": "05",
    "nvidia.com/cuda.runtime-version.full": "13.0",
    "nvidia.com/cuda.runtime-version.major": "13",
    "nvidia.com/cuda.runtime-version.minor": "0",
    "nvidia.com/cuda.runtime.major": "13",
    "nvidia.com/cuda.runtime.minor": "0",
    "nvidia.com/gfd.timestamp": "1763690000",
    "nvidia.com/gpu.compute.major": "8",
    "nvidia.com/gpu.compute.minor": "0",
    "nvidia.com/gpu.family": "ampere",
    "nvidia.com/gpu.machine": "DGXA100",
    "nvidia.com/gpu.memory": str(BOARD_MIB),
    "nvidia.com/gpu.mode": "compute",
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.product": PRODUCT,
    "nvidia.com/gpu.replicas": "1",
    "nvidia.com/gpu.sharing-strategy": "none",
    "nvidia.com/mig.capable": "true",
    "nvidia.com/mps.capable": "false",
    "topology.kubernetes.io/zone": "hall-1",
}


def a100_node(
    *, seed: str, name: str, position: int, gpus: int, created: int, labels: Mapping[str, str]
) -> Node:
    """Return a node with `gpus` whole A100 80 GB; `position` numbers its addresses."""
    high, low = divmod(position + 10, 250)
    return Node(
        name=name,
        position=position,
        created=created,
        labels={
            **_FEATURES,
            "kubernetes.io/hostname": name,
            "nvidia.com/gpu.count": str(gpus),
            **labels,
        },
        model=MODEL,
        devices=tuple(
            Device(
                index=index,
                uuid=f"GPU-{identity.uid(seed, 'device', name, index)}",
                pci_bus_id=f"00000000:{7 + 8 * index:02X}:00.0",
            )
            for index in range(gpus)
        ),
        idle_watts=_IDLE_WATTS,
        visible_mib=_VISIBLE_MIB,
        ip=f"198.18.{high}.{low}",
        exporter_pod=f"nvidia-dcgm-exporter-{identity.suffix(5, seed, 'exporter', name)}",
        exporter_ip=f"10.42.{position % 250}.{9 + position // 250}",
        scrape_phase_ms=identity.below(_SCRAPE_MS, seed, "scrape", name),
    )


A100 = GpuSpec(
    MODEL, PRODUCT, BOARD_MIB, _VISIBLE_MIB, _IDLE_WATTS, 400.0, 1410, mig=True, hbm=True
)
H100 = GpuSpec(
    "NVIDIA H100 80GB HBM3", "NVIDIA-H100-80GB-HBM3", 81_559, 80_994, 70.5, 700.0, 1980,
    family="hopper", compute=(9, 0), mig=True, hbm=True,
)  # fmt: skip
A30 = GpuSpec("NVIDIA A30", "NVIDIA-A30", 24_576, 24_062, 28.0, 165.0, 1440, mig=True, hbm=True)
L4 = GpuSpec(
    "NVIDIA L4", "NVIDIA-L4", 23_034, 22_563, 12.0, 72.0, 2040,
    family="ada-lovelace", compute=(8, 9),
)  # fmt: skip
L40S = GpuSpec(
    "NVIDIA L40S", "NVIDIA-L40S", 46_068, 45_488, 33.0, 350.0, 2520,
    family="ada-lovelace", compute=(8, 9),
)  # fmt: skip
T4 = GpuSpec(
    "Tesla T4", "Tesla-T4", 15_360, 14_910, 9.5, 70.0, 1590, family="turing", compute=(7, 5)
)

# GPU instance ids as the driver numbers them, by the leading digit of the profile.
_INSTANCE_IDS: Mapping[str, tuple[int, ...]] = {
    "1": (7, 8, 9, 10, 11, 12, 13),
    "2": (3, 4, 5, 6),
    "3": (1, 2),
    "4": (1, 2),
    "7": (0,),
}
_INSTANCE_RESERVED_MIB = 512


def gpu_node(
    *,
    seed: str,
    name: str,
    position: int,
    gpu: GpuSpec,
    gpus: int,
    created: int,
    sharing: Sharing = Sharing.EXCLUSIVE,
    replicas: int = 1,
    renamed: bool = False,
    layouts: Sequence[Sequence[str]] = (),
    exporters: Sequence[Exporter] = (Exporter(),),
    states: Sequence[NodeState] = (),
    taints: Sequence[tuple[str, str, str]] = (),
    labels: Mapping[str, str] | None = None,
) -> Node:
    """Return a node; `layouts` has for each GPU the MIG profiles it is cut into, none for whole.

    A layout that no GPU can have is not refused: facts about GPUs are in
    `clusters.domain.devices.mig`.
    """
    plain = a100_node(
        seed=seed, name=name, position=position, gpus=gpus, created=created, labels={}
    )
    devices = tuple(
        replace(device, instances=_instances(seed, name, gpu, device.index, layout))
        for device, layout in zip(plain.devices, _padded(layouts, gpus), strict=True)
    )
    node = replace(
        plain,
        model=gpu.model,
        devices=devices,
        idle_watts=gpu.idle_watts,
        visible_mib=gpu.visible_mib,
        gpu=gpu,
        sharing=sharing,
        replicas=replicas,
        renamed=renamed,
        exporters=tuple(exporters),
        states=tuple(states),
        taints=tuple(taints),
    )
    return replace(node, labels={**_discovered(node, gpu), **(labels or {})})


def _padded(layouts: Sequence[Sequence[str]], gpus: int) -> list[Sequence[str]]:
    return [*layouts, *[()] * (gpus - len(layouts))]


def _instances(
    seed: str, name: str, gpu: GpuSpec, index: int, layout: Sequence[str]
) -> tuple[Instance, ...]:
    used: dict[str, int] = {}
    found = []
    for place, profile in enumerate(layout):
        digit = profile[0]
        number = _INSTANCE_IDS[digit][used.get(digit, 0)]
        used[digit] = used.get(digit, 0) + 1
        shape = geometry(profile, gpu.model)
        share = shape.memory / shape.memory_total if shape else 1.0
        uuid = f"MIG-{identity.uid(seed, 'instance', name, index, place, profile)}"
        visible = int(gpu.board_mib * share) - _INSTANCE_RESERVED_MIB
        found.append(Instance(number, profile, uuid, visible))
    return tuple(found)


def _discovered(node: Node, gpu: GpuSpec) -> dict[str, str]:
    """Return the labels of a node: features of its GPUs, and how they are shared."""
    labels = {
        **_FEATURES,
        "kubernetes.io/hostname": node.name,
        "nvidia.com/gpu.compute.major": str(gpu.compute[0]),
        "nvidia.com/gpu.compute.minor": str(gpu.compute[1]),
        "nvidia.com/gpu.count": str(len(node.devices)),
        "nvidia.com/gpu.family": gpu.family,
        "nvidia.com/gpu.machine": f"GPU-server-{len(node.devices)}x",
        "nvidia.com/gpu.memory": str(gpu.board_mib),
        "nvidia.com/gpu.product": gpu.product,
        "nvidia.com/mig.capable": str(gpu.mig).lower(),
    }
    if node.sharing in {Sharing.TIME_SLICED, Sharing.MPS}:
        return {**labels, **_of_shared(node, gpu)}
    if node.sharing is Sharing.MIG_SINGLE:
        return {**labels, **_of_single(node, gpu)}
    if node.sharing is Sharing.MIG_MIXED:
        return {**labels, **_of_mixed(node, gpu)}
    return labels


def _of_shared(node: Node, gpu: GpuSpec) -> dict[str, str]:
    labels = {
        "nvidia.com/gpu.replicas": str(node.replicas),
        "nvidia.com/gpu.sharing-strategy": node.sharing.value,
        "nvidia.com/mps.capable": str(node.sharing is Sharing.MPS).lower(),
    }
    if not node.renamed:
        labels["nvidia.com/gpu.product"] = f"{gpu.product}-SHARED"
    return labels


def _of_single(node: Node, gpu: GpuSpec) -> dict[str, str]:
    """Return the labels of a node whose instances look like whole GPUs."""
    profile = node.devices[0].instances[0].profile
    return {
        **_mig_labels("single", f"all-{profile}"),
        "nvidia.com/gpu.count": str(sum(len(device.instances) for device in node.devices)),
        "nvidia.com/gpu.memory": str(node.devices[0].instances[0].visible_mib),
        "nvidia.com/gpu.product": f"{gpu.product}-MIG-{profile}",
    }


def _of_mixed(node: Node, gpu: GpuSpec) -> dict[str, str]:
    labels = _mig_labels("mixed", "custom")
    if any(device.instances for device in node.devices):
        labels["nvidia.com/gpu.replicas"] = "0"
    instances = [one for device in node.devices for one in device.instances]
    for profile in sorted({one.profile for one in instances}):
        shape = geometry(profile, gpu.model)
        same = [one for one in instances if one.profile == profile]
        head = f"{MIG_PREFIX}{profile}"
        labels |= {
            f"{head}.count": str(len(same)),
            f"{head}.memory": str(same[0].visible_mib),
            f"{head}.product": f"{gpu.product}-MIG-{profile}",
            f"{head}.replicas": "1",
            f"{head}.sharing-strategy": "none",
            f"{head}.slices.ci": str(shape.compute if shape else 1),
            f"{head}.slices.gi": str(shape.compute if shape else 1),
        }
    return labels


def _mig_labels(strategy: str, config: str) -> dict[str, str]:
    return {
        "nvidia.com/mig.config": config,
        "nvidia.com/mig.config.state": "success",
        "nvidia.com/mig.strategy": strategy,
    }
