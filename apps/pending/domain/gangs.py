"""Partial gangs: jobs of which some pods hold GPUs while the others cannot start."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from apps.pending.domain.history import amount

GANG_KINDS = frozenset(
    {
        *("MPIJob", "PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "TrainJob"),
        *("JobSet", "LeaderWorkerSet"),
    }
)
"""Kinds whose pods work on one task at the same time: none of them gets on without the others."""


class GangMember(NamedTuple):
    """A pod that holds GPUs of a job not all of whose pods do; `bound` in Unix seconds.

    `busy` and `measured` are nano-GPU-hours of its time since the first of the others waits;
    nothing is measured of one that never ran. A tuple, for there are thousands.
    """

    group: int
    name: str
    gpu_equivalents: float
    bound: float
    busy: int = 0
    measured: int = 0


@dataclass(frozen=True, slots=True)
class Partial:
    """A job that is not whole: who holds for nothing, and what that took so far.

    `held` is in nano-GPU-hours: what the holders held since the first of those that still wait
    began to. `utilization` is that of the holders, None where nothing was measured.
    """

    group: int
    holding: tuple[GangMember, ...]
    held: int
    utilization: float | None

    @property
    def gpu_equivalents(self) -> float:
        return sum(one.gpu_equivalents for one in self.holding)


def partial_gangs(
    holders: Iterable[GangMember], since: Mapping[int, float], *, now: float, idle_below: float
) -> list[Partial]:
    """Return the jobs that hold GPUs for nothing, the most held first.

    `since` has the jobs of which some pods wait: when the first of these began to, in Unix
    seconds. A holder that is busy (its utilization at least `idle_below`) does not wait for the
    others: it holds for something, and a job of such alone is left out. One that nobody measured
    may wait.
    """
    groups: dict[int, list[GangMember]] = defaultdict(list)
    for one in holders:
        if one.group in since and (not one.measured or one.busy < idle_below * one.measured):
            groups[one.group].append(one)
    found = [_partial(own, since[group], now) for group, own in groups.items()]
    return sorted(found, key=lambda one: (-one.held, one.group))


def _partial(holders: Sequence[GangMember], since: float, now: float) -> Partial:
    measured = sum(one.measured for one in holders)
    return Partial(
        group=holders[0].group,
        holding=tuple(holders),
        held=sum(
            amount(one.gpu_equivalents, max(0.0, now - max(since, one.bound))) for one in holders
        ),
        utilization=sum(one.busy for one in holders) / measured if measured else None,
    )
