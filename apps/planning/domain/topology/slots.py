"""Free GPUs of nodes over time, and the slots for gangs that they make at a level of a topology.

See docs/definitions.md#slots. Amounts are whole physical GPUs.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

GANG_SIZES = (1, 2, 4, 8, 16, 64)
"""GPUs of the gangs that slots are counted for."""

Gpus = NDArray[np.int64]
"""GPUs by node (rows) and time (columns)."""


class GpuSpan(NamedTuple):
    """GPUs that a node offers, or that somebody holds on it; Unix seconds, `end` excluded."""

    node: int
    start: float
    end: float
    gpus: float


def free_gpus(
    nodes: int, offered: Sequence[GpuSpan], held: Sequence[GpuSpan], times: Sequence[float]
) -> Gpus:
    """Return the free whole GPUs of each node at each of these times, which are ascending.

    What is held beyond what a node offers, as while it is not schedulable, leaves nothing free.
    """
    free = _sums(nodes, offered, times) - _sums(nodes, held, times)
    # A share of a GPU takes the whole of it: half a GPU is no slot.
    return np.floor(np.maximum(free, 0.0) + _SLACK).astype(np.int64)


def offered_gpus(nodes: int, offered: Sequence[GpuSpan], times: Sequence[float]) -> Gpus:
    """Return the whole GPUs that each node offers at each of these times."""
    return np.floor(_sums(nodes, offered, times) + _SLACK).astype(np.int64)


_SLACK = 1e-6


def _sums(nodes: int, spans: Sequence[GpuSpan], times: Sequence[float]) -> NDArray[np.float64]:
    change = np.zeros((nodes, len(times) + 1))
    if spans:
        node, start, end, gpus = (np.asarray(column) for column in zip(*spans, strict=True))
        first, last = (np.searchsorted(times, at, side="left") for at in (start, end))
        # Adding at places that repeat needs `add.at`: indexing would keep the last alone.
        np.add.at(change, (node, first), gpus)
        np.subtract.at(change, (node, last), gpus)
    return change.cumsum(axis=1)[:, :-1]


def _domain_pods(free: Gpus, domains: Sequence[int], pod_gpus: int) -> Gpus:
    """Return how many pods of `pod_gpus` each domain has room for, at each time.

    `domains` has the number of each node's domain; -1: of none.
    """
    pods = free // pod_gpus
    place = np.asarray(domains, dtype=np.int64)
    sums = np.zeros((max(domains, default=-1) + 1, free.shape[1]), dtype=np.int64)
    np.add.at(sums, place[place >= 0], pods[place >= 0])
    return sums


def slots(free: Gpus, domains: Sequence[int], size: int, pod_gpus: int = 1) -> NDArray[np.int64]:
    """Return how many gangs of `size` GPUs fit at each time, each within one domain.

    The pods of a gang have `pod_gpus` each, as many pods as it takes to have its GPUs; a gang may
    spread over all nodes of its domain.
    """
    of_pods = min(size, pod_gpus)
    pods = -(-size // of_pods)
    counts: NDArray[np.int64] = (_domain_pods(free, domains, of_pods) // pods).sum(axis=0)
    return counts


def possible_slots(
    offered: Mapping[int, int], domains: Sequence[int], size: int, pod_gpus: int = 1
) -> int:
    """Return how many gangs of `size` GPUs would fit if nothing were held.

    `offered` has the GPUs of a node by its number. 0: no domain is large enough at all.
    """
    whole = np.array([[offered.get(node, 0)] for node in range(len(domains))], dtype=np.int64)
    return int(slots(whole.reshape(len(domains), 1), domains, size, pod_gpus)[0])
