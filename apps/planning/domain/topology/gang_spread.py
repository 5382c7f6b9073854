"""How many domains of a topology a gang was spread over, and how many it needed."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from apps.clusters.domain.topology import TopologyLevel

_SLACK = 1e-9


class GangPod(NamedTuple):
    """A pod of a gang: the number of its node, its GPUs, and from when to when it held them."""

    node: int
    gpus: float
    start: float
    end: float


class GangSpread(NamedTuple):
    """The domains of a level that a gang was in, and the fewest that are large enough for it."""

    level: TopologyLevel
    domains: int
    needed: int


def together(pods: Sequence[GangPod]) -> list[GangPod]:
    """Return the pods that held GPUs when most GPUs were held; of equal times at the first."""
    best: list[GangPod] = []
    most = 0.0
    # It is most at the start of some pod.
    for at in sorted({pod.start for pod in pods}):
        held = [pod for pod in pods if pod.start <= at < pod.end]
        gpus = sum(pod.gpus for pod in held)
        if gpus > most + _SLACK:
            best, most = held, gpus
    return best


def domains_needed(sizes: Iterable[float], gpus: float) -> int:
    """Return the fewest domains, of these sizes in GPUs, that have `gpus` GPUs together.

    One more than there are where all of them are too small.
    """
    found, left = 0, gpus
    for size in sorted(sizes, reverse=True):
        if left <= _SLACK:
            return found
        found, left = found + 1, left - size
    return found if left <= _SLACK else found + 1


def spread_of(
    pods: Sequence[GangPod],
    domains: Mapping[TopologyLevel, Sequence[int]],
    capacity: Sequence[float],
) -> GangSpread | None:
    """Return the widest level at which a gang was in more domains than it needed, else its hosts.

    `domains` has the domain of each node by level, the widest first, -1 where it has none;
    `capacity` the GPUs of each node. None where no level is known of all its pods.
    """
    found = None
    for level, numbers in domains.items():
        own = {numbers[pod.node] for pod in pods}
        if -1 in own:
            continue
        sizes: dict[int, float] = {}
        for node, number in enumerate(numbers):
            sizes[number] = sizes.get(number, 0.0) + capacity[node]
        sizes.pop(-1, None)
        needed = domains_needed(sizes.values(), sum(pod.gpus for pod in pods))
        # Known capacity may be too small: it cannot have needed more domains than it was in.
        found = GangSpread(level, len(own), min(needed, len(own)))
        if found.domains > found.needed:
            return found
    return found
