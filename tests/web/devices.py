"""Devices of the filled portal as a look would have kept them."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from apps.clusters.domain.devices.state import DeviceHolder, DeviceState
from apps.clusters.services.devices import keep_states
from tests.factories import Portal

FIRST_UUID = "GPU-00000000-0000-0000-0000-000000000001"


def uuid_of(number: int) -> str:
    return f"GPU-00000000-0000-0000-0000-{number:012}"


def make_devices(portal: Portal, at: datetime) -> None:
    """Keep two looks, a day apart: nothing is wrong in the first, and much in the second.

    West-1 has GPUs of vision, speech and both; west-2 MIG instances; east-1 one GPU.
    """
    west, east = portal.clusters
    day = timedelta(days=1)
    keep_states(west, list(_sound()), at - day)
    keep_states(east, [_gpu(7, "east-1", pods=("stray/bare",), mean=0.4)], at - day)
    keep_states(west, list(_troubled()), at)


def _sound() -> Iterator[DeviceState]:
    yield _gpu(1, "west-1", pods=("vision/train-0",), mean=0.97)
    yield _gpu(2, "west-1", pods=("speech/notes-0",), mean=0.05)
    yield _gpu(3, "west-1", pods=("vision-prod/serve-abc", "speech/notes-0"), mean=0.4)
    yield _gpu(4, "west-1", mean=0.0)
    for instance in ("7", "8"):
        yield _gpu(5, "west-2", instance=instance, mean=0.2)
    yield _gpu(6, "west-2")


def _troubled() -> Iterator[DeviceState]:
    yield _gpu(1, "west-1", pods=("vision/train-0",), mean=0.97, temperature=92.0)
    yield _gpu(2, "west-1", pods=("speech/notes-0",), mean=0.05, remapped=2)
    yield _gpu(3, "west-1", pods=("vision-prod/serve-abc", "speech/notes-0"), mean=0.4)
    yield _gpu(4, "west-1", mean=0.6, xid=79)
    yield _gpu(5, "west-2", instance="7", pods=("vision/train-1",), mean=0.2, xid=31)
    yield _gpu(5, "west-2", instance="8", mean=0.0, xid=31)


def _gpu(
    number: int,
    node: str,
    *,
    instance: str = "",
    pods: tuple[str, ...] = (),
    mean: float | None = None,
    temperature: float = 54.0,
    remapped: int = 0,
    xid: int = 0,
) -> DeviceState:
    known = mean is not None
    return DeviceState(
        uuid=uuid_of(number),
        gpu_instance=instance,
        profile="1g.10gb" if instance else "",
        model="NVIDIA H100 80GB HBM3" if node == "west-1" else "NVIDIA A100-SXM4-80GB",
        node=node,
        index=str(number - 1),
        pci_bus_id=f"00000000:{number:02}:00.0",
        driver_version="580.95.05",
        tenants=tuple(_holder(pod) for pod in pods),
        activity_mean=mean,
        activity_now=mean,
        memory_used_mib=42_000.0 if known else None,
        memory_total_mib=80_500.0 if known else None,
        temperature_celsius=temperature if known else None,
        memory_temperature_celsius=61.0 if known else None,
        power_watts=412.4 if known else None,
        sm_clock_mhz=1410.0 if known else None,
        xid=xid if known else None,
        xid_message="GPU has fallen off the bus" if xid == 79 else "",
        remapped_correctable=remapped if known else None,
        remapped_uncorrectable=remapped if known else None,
        remap_failure=False if known else None,
    )


def _holder(pod: str) -> DeviceHolder:
    namespace, _, name = pod.partition("/")
    return DeviceHolder(namespace, name, "main")
