"""Builds nodes of eight or four A100 cards, labelled as GPU Feature Discovery labels them."""

from collections.abc import Mapping

from apps.lab import identity
from apps.lab.fleet import Device, Node

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
    *, seed: str, name: str, position: int, cards: int, created: int, labels: Mapping[str, str]
) -> Node:
    """Return a node with `cards` whole A100 80 GB; `position` numbers its addresses."""
    high, low = divmod(position + 10, 250)
    return Node(
        name=name,
        position=position,
        created=created,
        labels={
            **_FEATURES,
            "kubernetes.io/hostname": name,
            "nvidia.com/gpu.count": str(cards),
            **labels,
        },
        model=MODEL,
        devices=tuple(
            Device(
                index=index,
                uuid=f"GPU-{identity.uid(seed, 'device', name, index)}",
                pci_bus_id=f"00000000:{7 + 8 * index:02X}:00.0",
            )
            for index in range(cards)
        ),
        idle_watts=_IDLE_WATTS,
        visible_mib=_VISIBLE_MIB,
        ip=f"198.18.{high}.{low}",
        exporter_pod=f"nvidia-dcgm-exporter-{identity.suffix(5, seed, 'exporter', name)}",
        exporter_ip=f"10.42.{position % 250}.{9 + position // 250}",
        scrape_phase_ms=identity.below(_SCRAPE_MS, seed, "scrape", name),
    )
