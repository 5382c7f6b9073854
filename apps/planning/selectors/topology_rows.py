"""Rows of a cluster's topology: slots for gangs, and fragmentation."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from msgspec import Struct

from apps.clusters.domain.columns import Column
from apps.clusters.domain.topology import TopologyLevel


class SlotRow(Struct, frozen=True):
    """How many gangs of a size fit now into single domains of a level, in a tier of a cluster."""

    cluster: Annotated[str, Column("Cluster")]
    tier: Annotated[str, Column("Tier")]
    level: Annotated[
        TopologyLevel,
        Column(
            "Level",
            help="A gang stays within one domain of it: one host, rack, NVLink domain …",
            values=TopologyLevel,
        ),
    ]
    domains: Annotated[int, Column("Domains", help="Domains of this level that have GPUs.")]
    gang_gpus: Annotated[int, Column("Gang", "GPUs", "GPUs of the gang.")]
    pod_gpus: Annotated[int, Column("Per pod", "GPUs", "GPUs of each of its pods.")]
    slots: Annotated[int, Column("Slots", help="Gangs of this size that fit now.")]
    possible_slots: Annotated[
        int, Column("When empty", help="Gangs that would fit if nothing were held.")
    ]
    free_gpus: Annotated[int, Column("Free", "GPUs", "Free GPUs that the domains have together.")]

    @property
    def name(self) -> str:
        """What tells it apart from other rows."""
        return f"{self.cluster}/{self.tier}/{self.level}/{self.gang_gpus}"


class FragmentationRow(Struct, frozen=True):
    """Free GPU-hours of a tier over a period, and those that were of no use for what was asked."""

    period: Annotated[
        datetime | None,
        Column(
            "Period",
            help="Start of the period.",
            api_note="With the report zone's offset; null for a total.",
            keep_offset=True,
            shown_as="day",
        ),
    ]
    cluster: Annotated[str, Column("Cluster")]
    tier: Annotated[str, Column("Tier")]
    hours: Annotated[int, Column("Hours", help="Hours of the period with known nodes.")]
    pods: Annotated[
        int, Column("Pods", help="Pods that asked for GPUs of the tier in the whole window.")
    ]
    capacity_gpu_hours: Annotated[
        float, Column("Capacity", "GPU-h", "GPU-hours of nodes that take pods.")
    ]
    free_gpu_hours: Annotated[float, Column("Free", "GPU-h", "GPU-hours that were not held.")]
    unusable_gpu_hours: Annotated[
        float | None,
        Column(
            "Unusable",
            "GPU-h",
            "Free GPU-hours of no use for what was asked.",
            api_note="Null where nothing was asked for.",
        ),
    ]
    fragmentation_index: Annotated[
        float | None,
        Column(
            "Fragmentation",
            "%",
            "Unusable share of what is free.",
            api_note="0 to 1; null where nothing was free or asked for.",
        ),
    ]

    @property
    def name(self) -> str:
        """What tells it apart from other rows."""
        return f"{self.period and self.period.isoformat()}/{self.cluster}/{self.tier}"


_OF_SIZE = "Gangs of this size that fitted into single domains of the level."
_SIZE_NULL = "Null where no domain could take one, and for parts of GPUs."


class SlotHourRow(Struct, frozen=True):
    """What was free of a tier at the start of an hour: slots at a level, or parts of GPUs."""

    hour: Annotated[datetime, Column("Hour", help="Start of the hour.")]
    cluster: Annotated[str, Column("Cluster")]
    tier: Annotated[str, Column("Tier")]
    device: Annotated[
        str,
        Column(
            "Device",
            help="MIG profile, or resource of GPU replicas; none: whole GPUs.",
            empty_is_null=True,
        ),
    ]
    level: Annotated[
        TopologyLevel | None,
        Column(
            "Level",
            help="A gang stays within one domain of it.",
            api_note="Null for parts of GPUs.",
            values=TopologyLevel,
        ),
    ]
    offered: Annotated[
        int, Column("Offered", help="GPUs, MIG devices or replicas of nodes that take pods.")
    ]
    free: Annotated[int, Column("Free", help="Those that nothing held.")]
    slots_1: Annotated[int | None, Column("Gang of 1", help=_OF_SIZE, api_note=_SIZE_NULL)]
    slots_2: Annotated[int | None, Column("Gang of 2", help=_OF_SIZE, api_note=_SIZE_NULL)]
    slots_4: Annotated[int | None, Column("Gang of 4", help=_OF_SIZE, api_note=_SIZE_NULL)]
    slots_8: Annotated[int | None, Column("Gang of 8", help=_OF_SIZE, api_note=_SIZE_NULL)]
    slots_16: Annotated[int | None, Column("Gang of 16", help=_OF_SIZE, api_note=_SIZE_NULL)]
    slots_64: Annotated[int | None, Column("Gang of 64", help=_OF_SIZE, api_note=_SIZE_NULL)]

    @property
    def name(self) -> str:
        """What tells it apart from other rows."""
        return f"{self.hour.isoformat()}/{self.cluster}/{self.tier}/{self.device}/{self.level}"


class SlotSeries(Struct, frozen=True):
    """Slots of a tier at a level at the start of each hour, by size of gang, and what is free.

    None: the hour is not stored. Sizes that no domain could ever take are left out. `device` is
    empty for whole GPUs; parts of GPUs have no slots.
    """

    cluster: str
    tier: str
    device: str
    level: TopologyLevel
    at: Sequence[datetime]
    slots: dict[int, list[int | None]]
    free: list[int | None]


class DeviceRow(Struct, frozen=True):
    """MIG devices of a profile, or replicas of GPUs, in a tier of a cluster now."""

    cluster: Annotated[str, Column("Cluster")]
    tier: Annotated[str, Column("Tier")]
    device: Annotated[str, Column("Device", help="MIG profile, or resource of GPU replicas.")]
    nodes: Annotated[int, Column("Nodes", help="Nodes that offer them and take pods.")]
    offered: Annotated[int, Column("Offered", help="Devices or replicas of these nodes.")]
    free: Annotated[int, Column("Free", help="Those that no pod holds.")]
    nodes_free: Annotated[int, Column("Nodes with free", help="Nodes with at least one free.")]


NumaRoom = tuple[str, int, int | None]
"""Name, GPUs and free ones of a NUMA node; None: what is available there is not published."""


class NodeRoom(Struct, frozen=True):
    """A node of a tier: the domains around it, its whole GPUs, and how many of them are free.

    `place` ends with the narrowest of zone, block and rack that the node's labels name, and
    `nvlink` is its NVLink domain. `machine` is its model and GPU family. `node` is empty for who
    may not see it; one that is not `is_open` takes no pods. `numa` has its NUMA nodes where it
    publishes them.
    """

    cluster: str
    tier: str
    node: str
    place: tuple[str, ...]
    gpus: int
    free: int
    is_open: bool
    nvlink: str = ""
    machine: str = ""
    numa: tuple[NumaRoom, ...] = ()
