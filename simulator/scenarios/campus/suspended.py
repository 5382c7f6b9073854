"""Jobs of `campus` that wait suspended in a queue whose share is taken, and are given up."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from simulator import identity
from simulator.epochs import EMPTY, Epoch
from simulator.fleet import DAY, Controller, Pod, Suspension
from simulator.scenarios.base import Queue
from simulator.scenarios.campus.pools import WHOLE

_HOUR = 3600
_SHORTEST = 2 * _HOUR


class _Sweep(NamedTuple):
    """A Job that somebody tries each day from one hour to another."""

    team: str
    name: str
    first_hour: int
    last_hour: int
    parallelism: int
    units: int


_SWEEPS: Sequence[_Sweep] = (
    _Sweep("physics", "lattice-sweep", 6, 20, 2, 4),
    _Sweep("language", "tokenizer-ablation", 9, 23, 3, 2),
    _Sweep("safety", "red-team-batch", 14, 22, 4, 1),
)


def suspended(
    seed: str,
    pods: Iterable[Pod],
    queues: Sequence[Queue],
    flavors: Mapping[str, Mapping[str, str]],
    start: int,
    end: int,
) -> Iterator[Controller]:
    """Yield the suspended Jobs of each whole day in start..end.

    One is there only while its queue has less than it wants, so that it never gets quota.
    """
    by_name = {queue.name: queue for queue in queues}
    names = {f"{sweep.team}-{WHOLE}" for sweep in _SWEEPS}
    through = [pod for pod in pods if pod.admission is not None and pod.admission.queue in names]
    taken = Epoch(start, end, pods=through, hard={}).queues
    for sweep in _SWEEPS:
        queue = by_name[f"{sweep.team}-{WHOLE}"]
        reserved = taken.get(queue.name, EMPTY).reserved_units
        room = queue.most - sweep.parallelism * sweep.units
        for day in range(-(-start // DAY), end // DAY):
            first = day * DAY + sweep.first_hour * _HOUR
            last = day * DAY + sweep.last_hour * _HOUR
            intervals = reserved.intervals(first, last)
            for since, until in _full((a, b) for a, b, units in intervals if units > room):
                yield _job(seed, sweep, queue, flavors[queue.flavor], since, until)


def _full(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the spans joined where one follows the other at once, but for short ones."""
    joined: list[tuple[int, int]] = []
    for since, until in spans:
        if joined and joined[-1][1] == since:
            joined[-1] = (joined[-1][0], until)
        else:
            joined.append((since, until))
    yield from ((since, until) for since, until in joined if until - since >= _SHORTEST)


def _job(
    seed: str, sweep: _Sweep, queue: Queue, labels: Mapping[str, str], since: int, until: int
) -> Controller:
    def uid(kind: str) -> str:
        return identity.uid(seed, kind, queue.namespace, sweep.name, since)

    suspension = Suspension(
        queue=queue.name,
        local=queue.local,
        parallelism=sweep.parallelism,
        units=sweep.units,
        resource=queue.resource,
        node_selector=labels,
        workload=uid("Workload"),
    )
    name = f"{sweep.name}-{identity.suffix(5, uid('Job'))}"
    return Controller("Job", name, queue.namespace, uid("Job"), since, until, suspension=suspension)
