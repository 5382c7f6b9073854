"""Which pods the rows of a GPU or an instance name over time, by the exporter's setting."""

from collections.abc import Iterator
from typing import NamedTuple

from simulator import identity
from simulator.epochs import DeviceRun, Epoch
from simulator.fleet import GPU, MIG_PREFIX, Device, Exporter, Node, Pod, Sharing
from simulator.prometheus.exporters.device_values import (
    MEMORY_USED,
    UTILIZATION,
    intervals,
    of_process,
)

_FLAP_MS = 900_000
"""How long the same one of several pods on a GPU stays the last in the kubelet's list."""
_SEES_CLAIMS = (4, 8, 3)
_KEEPS_IDLE = (4, 8, 2)
"""Since when rows of idle GPUs stay where virtual GPUs are on."""


class Name(NamedTuple):
    """One row: its pod, None where it names none; `value` where the row has one of its own."""

    pod: Pod | None
    vgpu: str = ""
    with_uid: bool = False
    value: float | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """What tells its series from others: a pod's name, and its uid only where that is shown."""
        pod = self.pod
        if pod is None:
            return ()
        shown = pod.uid if self.with_uid else ""
        claim = pod.claim.name if pod.claim else ""
        return (pod.namespace, pod.name, self.vgpu, shown, claim)


_NOBODY = (Name(None),)


class Naming(NamedTuple):
    """The rows from `start_ms` to `end_ms`; there may be none."""

    start_ms: int
    end_ms: int
    names: tuple[Name, ...]


def namings(
    epoch: Epoch,
    unit: tuple[Node, Device, int],
    exporter: Exporter,
    metric: str,
    low_ms: int,
    high_ms: int,
) -> Iterator[Naming]:
    """Yield the rows of an epoch in order and without a gap, as far as low..high needs them.

    `unit` is a device of a node, or one of its instances (-1: the whole device).
    """
    node, device, instance = unit
    for start, end, run, _ in intervals(epoch, node, device, instance, low_ms):
        if start > high_ms:
            return
        seen = tuple(pod for pod in run.pods if names(exporter, pod)) if run else ()
        if run is not None and seen:
            if exporter.virtual_gpus:
                yield Naming(start, end, _every(run, seen, node, device, exporter, metric))
            elif len(seen) == 1 or seen[0].claim is not None:
                yield Naming(start, end, tuple(Name(pod) for pod in seen))
            else:
                yield from _last_listed(start, end, seen, device, low_ms, high_ms)
        elif exporter.virtual_gpus and exporter.version < _KEEPS_IDLE:
            yield from _vanished(epoch, node, exporter, start, end, low_ms)
        else:
            yield Naming(start, end, _NOBODY)


def names(exporter: Exporter, pod: Pod) -> bool:
    """Say whether an exporter finds out that a pod is on a GPU."""
    if not exporter.kubernetes or not pod.namespace:
        return False
    if pod.claim is not None:
        return exporter.dra and exporter.version >= _SEES_CLAIMS and not pod.claim.admin
    listed = pod.resource in exporter.resource_names
    return listed or pod.resource == GPU or pod.resource.startswith(MIG_PREFIX)


def _every(
    run: DeviceRun,
    seen: tuple[Pod, ...],
    node: Node,
    device: Device,
    exporter: Exporter,
    metric: str,
) -> tuple[Name, ...]:
    """Return a row for every container: copies of the GPU's value, or by process."""
    own = metric == MEMORY_USED or (metric == UTILIZATION and not device.instances)
    by_process = exporter.per_process and own
    with_uid = by_process or exporter.version < _KEEPS_IDLE
    rows = []
    for pod in seen:
        value = None
        if by_process:
            value = of_process(metric, pod, run) if exporter.host_pid else 0.0
        rows.append(Name(pod, _replica(node, device, pod), with_uid, value))
    # Beside what processes do there is a row of what the GPU does, which names no pod.
    return (*rows, Name(None)) if by_process else tuple(rows)


def _replica(node: Node, device: Device, pod: Pod) -> str:
    if node.sharing not in {Sharing.TIME_SLICED, Sharing.MPS}:
        return ""
    return str(identity.below(node.replicas, pod.uid, device.uuid))


def _last_listed(
    start: int, end: int, seen: tuple[Pod, ...], device: Device, low_ms: int, high_ms: int
) -> Iterator[Naming]:
    """Yield the one pod that the map of devices to pods keeps: it changes now and then."""
    at = max(start, low_ms // _FLAP_MS * _FLAP_MS)
    if at > start:
        yield Naming(start, at, ())
    while at < end and at <= high_ms:
        block = at // _FLAP_MS
        until = min(end, (block + 1) * _FLAP_MS)
        pod = seen[identity.below(len(seen), device.uuid, block)]
        yield Naming(at, until, (Name(pod),))
        at = until
    if at < end:
        yield Naming(at, end, ())


def _vanished(
    epoch: Epoch, node: Node, exporter: Exporter, start: int, end: int, low_ms: int
) -> Iterator[Naming]:
    """Yield the rows of an idle GPU: none while a pod is on any GPU of the node."""
    at = start
    used = epoch.in_use(node, lambda pod: names(exporter, pod), exporter)
    for since, until in used:
        if until <= at:
            continue
        if since >= end:
            break
        if since > at:
            yield Naming(at, since, _NOBODY)
        yield Naming(max(at, since), min(until, end), ())
        at = min(until, end)
    if at < end:
        yield Naming(at, end, _NOBODY)
