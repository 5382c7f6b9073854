"""Generated months of a fleet whose work fails by job, with planted faults."""

import random
from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from apps.goodput.domain.runs import PodRun

HOUR = 3600.0
DAYS = 30
NODES = 24
GPUS = 8


class Faults(Struct, frozen=True):
    """What is broken: failures in an hour of a run, by node and by GPU; days (node, day → rate)."""

    nodes: Mapping[str, float] = field(default_factory=dict)
    gpus: Mapping[str, float] = field(default_factory=dict)
    days: Mapping[tuple[str, int], float] = field(default_factory=dict)


def gpu(node: int, index: int) -> str:
    return f"GPU-{node:02}-{index}"


class Fleet:
    """A month in which users run jobs of their own families, large and small, and services.

    A tenth of the jobs are broken: all their tries fail, soon. Others fail once in hundreds of
    hours, some families five times as often. Jobs are tried again up to three times, mostly on
    another node. Services run for days, and some of them crash again and again for their own sake.
    """

    def __init__(self, seed: int, faults: Faults | None = None) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
        self._faults = faults or Faults()
        self._pods = 0

    def runs(self) -> list[PodRun]:
        """Return all runs of the month."""
        found: list[PodRun] = []
        workload = 0
        for family in range(40):
            rate = self._chance.choice([0.0005, 0.002, 0.01])
            size = self._chance.choice([1, 1, 1, 2, 4, 8])
            for _ in range(self._chance.randint(20, 90)):
                workload += 1
                found += self._job(workload, f"family-{family}", size, rate)
        for number in range(30):
            workload += 1
            found += self._service(workload, f"service-{number}", number % 6 == 0)
        return found

    def _job(self, workload: int, family: str, size: int, rate: float) -> Iterator[PodRun]:
        chance = self._chance
        hours = chance.lognormvariate(1.0, 1.2)
        broken = chance.random() < 0.1
        at = chance.uniform(0, DAYS * 24 * HOUR)
        for _ in range(4):
            node, gpus = self._place(size)
            run = self._run(PodRun(f"node-{node:02}", workload, at, 0, size, "", 0, family, gpus))
            own = chance.expovariate(20.0) if broken else chance.expovariate(rate)
            yield (done := self._ended(run, hours, own))
            if not done.reason or done.end >= DAYS * 24 * HOUR:
                return
            at = done.end + chance.uniform(30, 1200)

    def _service(self, workload: int, family: str, crashes: bool) -> Iterator[PodRun]:
        chance = self._chance
        looping = chance.randrange(6) if crashes else -1
        for replica in range(6):
            node, gpus = self._place(1)
            start = chance.uniform(0, 10 * 24 * HOUR)
            run = self._run(PodRun(f"node-{node:02}", workload, start, 0, 1, "", 0, family, gpus))
            while run.start < DAYS * 24 * HOUR:
                # One replica has poisoned input: it goes on failing wherever it was put.
                own = chance.expovariate(1 / 5) if replica == looping else chance.expovariate(0.001)
                done = self._ended(run, 10_000.0, own)
                yield done
                run = run._replace(start=done.end + 300)

    def _place(self, size: int) -> tuple[int, tuple[str, ...]]:
        node = self._chance.randrange(NODES)
        return node, tuple(gpu(node, n) for n in sorted(self._chance.sample(range(GPUS), size)))

    def _run(self, run: PodRun) -> PodRun:
        self._pods += 1
        return run._replace(pod=self._pods)

    def _ended(self, run: PodRun, hours: float, own: float) -> PodRun:
        chance, faults = self._chance, self._faults
        rate = faults.nodes.get(run.node, 0.0) + sum(faults.gpus.get(one, 0.0) for one in run.gpus)
        fails = min(own, chance.expovariate(rate) if rate else 1e9)
        for (node, day), daily in faults.days.items():
            first = day * 24 * HOUR
            into = max(run.start, first) - run.start
            at = into / HOUR + chance.expovariate(daily)
            if node == run.node and run.start + at * HOUR < first + 24 * HOUR:
                fails = min(fails, at)
        end = min(run.start + min(hours, fails) * HOUR, DAYS * 24 * HOUR)
        failed = fails < hours and end < DAYS * 24 * HOUR
        return run._replace(end=end, reason="Error" if failed else "")
