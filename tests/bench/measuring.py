"""Timing within one process."""

import gc
import os
import resource
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import NamedTuple

REPETITIONS = int(os.environ.get("BENCH_REPETITIONS", "5"))
"""How often each is run; the bench tells its workers, for a smoke test once will do."""


class Timed(NamedTuple):
    """Wall and CPU seconds of one run."""

    wall: float
    cpu: float


def timed(run: Callable[[], object]) -> Timed:
    """Run it once, with nothing of earlier runs left to be collected."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return Timed(time.perf_counter() - wall, time.process_time() - cpu)


def alternated(runs: Mapping[str, Callable[[], object]]) -> dict[str, list[Timed]]:
    """Run each in turn, several times over, so that a slow moment of the machine hits all."""
    found: dict[str, list[Timed]] = {name: [] for name in runs}
    for _ in range(REPETITIONS):
        for name, run in runs.items():
            found[name].append(timed(run))
    return found


def wall(times: list[Timed]) -> float:
    """Return the median of the wall seconds."""
    return median(t.wall for t in times)


def cpu(times: list[Timed]) -> float:
    """Return the median of the CPU seconds."""
    return median(t.cpu for t in times)


def peak_mib() -> float:
    """Return the most memory that this process ever had resident, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def percentile95(times: list[float]) -> float:
    """Return the time that 95 % did not exceed, by nearest rank."""
    return sorted(times)[-(-95 * len(times) // 100) - 1]
