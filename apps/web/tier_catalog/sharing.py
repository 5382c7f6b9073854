"""What the kinds of sharing a card mean to those who ask for GPUs, in words."""

from collections.abc import Mapping
from dataclasses import dataclass

from apps.clusters.domain.tiers import GpuSharing


@dataclass(frozen=True, slots=True)
class SharingKind:
    """`isolation` says what neighbours cannot do, `failures` what happens when things break."""

    label: str
    what: str
    isolation: str
    failures: tuple[str, ...]


KINDS: Mapping[GpuSharing, SharingKind] = {
    GpuSharing.EXCLUSIVE: SharingKind(
        label="Exclusive",
        what="Whole cards that your pod has alone.",
        isolation="Complete: memory, compute and errors of the card are yours alone.",
        failures=(
            "A fault of the card stops your pod and nobody else's.",
            "What you do not use is lost: nobody else can be on the card while you hold it.",
        ),
    ),
    GpuSharing.MIG: SharingKind(
        label="MIG slice",
        what="A slice of a card with memory and compute of its own, cut in hardware.",
        isolation="Strong: neighbours can neither take your memory nor slow your kernels.",
        failures=(
            "More memory than the slice has cannot be allocated, however empty the card is.",
            "A fault within a slice leaves the others running; one of the whole card, or a reset "
            "of its driver, stops all of them.",
            "One process sees one slice: two slices do not make a larger one, and there is no "
            "peer-to-peer transfer between slices.",
        ),
    ),
    GpuSharing.TIME_SLICED: SharingKind(
        label="Time-sliced",
        what="A card that several pods use in turns.",
        isolation="None: turns are taken, but memory has no limit and errors are shared.",
        failures=(
            "A neighbour that fills the card's memory makes your next allocation fail.",
            "Each active neighbour makes your kernels wait longer, so latency varies.",
            "A fault that one process causes can end the work of all pods on the card.",
            "To ask for two shares does not give twice the card.",
        ),
    ),
    GpuSharing.MPS: SharingKind(
        label="MPS",
        what="A card on which several processes run at the same time.",
        isolation="Partial: each client has a limit of memory and compute, errors are shared.",
        failures=(
            "More memory than your share cannot be allocated, however empty the card is.",
            "A fatal fault of one client ends the work of all clients on the card.",
            "Busy neighbours share caches and memory bandwidth with you.",
        ),
    ),
    GpuSharing.DRA: SharingKind(
        label="Device claim (DRA)",
        what="Devices that a ResourceClaim picks by class and attributes.",
        isolation="As the device has it: a whole card is yours alone, a MIG device is a slice.",
        failures=(
            "A claim that no device satisfies leaves the pod waiting, with the cause “claim”.",
            "A claim that is allocated holds its device, also while no pod uses it.",
        ),
    ),
}
