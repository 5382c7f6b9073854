"""Holds the pods of `helios` against the trace, minute by minute, and against its known sums.

`python -m tests.simulator.truths` checks all 24 days and ends with status 1 when a figure is off.
The trace is read here by other means than in the lab, so that an error in its reader shows.
"""

import csv
import gzip
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from simulator.epochs import Epoch
from simulator.fleet import DAY, FOREVER
from simulator.scenarios.base import Scenario
from simulator.scenarios.helios import FILE
from simulator.scenarios.registry import load

TRUTHS = Path(__file__).parent / "helios_truths.json"
NOW = 1_795_300_000
MINUTES = 34_560
_HOUR_MINUTES = 60
_TOLERANCE = 1e-6
"""The truths are rounded to six decimals."""

Minutes = Mapping[str, Sequence[int]]


def truths() -> Any:
    """Return what is known of the trace."""
    return json.loads(TRUTHS.read_text(encoding="utf-8"))


def origin_of(scenario: Scenario) -> int:
    """Return the start of the trace: it ends at the last midnight before NOW."""
    assert scenario.name == "helios"
    return NOW // DAY * DAY - MINUTES * 60


def held_by_minute(epoch: Epoch, origin: int) -> Minutes:
    """Return the GPUs that the pods of each namespace hold in each minute of the trace."""
    spans = ((p.namespace, p.units, p.bound, p.finished) for p in epoch.pods if p.bound < FOREVER)
    return _by_minute(spans, origin)


def awaited_by_minute(epoch: Epoch, origin: int) -> Minutes:
    """Return the GPUs that the waiting pods of each namespace ask for in each minute."""
    spans = ((p.namespace, p.units, p.created, min(p.bound, p.deleted)) for p in epoch.pods)
    return _by_minute(spans, origin)


def _by_minute(spans: Iterator[tuple[str, int, int, int]], origin: int) -> Minutes:
    deltas: dict[str, list[int]] = defaultdict(lambda: [0] * (MINUTES + 1))
    for namespace, units, start, end in spans:
        for at, delta in ((start, units), (end, -units)):
            minute, rest = divmod(at - origin, 60)
            if rest:
                raise ValueError(f"{namespace}: a change at {at}, within a minute")
            deltas[namespace][min(max(minute, 0), MINUTES)] += delta
    return {name: list(accumulate(changes))[:MINUTES] for name, changes in deltas.items()}


def trace_columns() -> dict[str, dict[str, list[int]]]:
    """Return column → team → value in each minute."""
    columns: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    with gzip.open(FILE, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            for column in ("running_gpu_num", "pending_gpu_num", "total_gpu_num"):
                columns[column][row["vc"]].append(int(row[column]))
    return columns


def findings(scenario: Scenario) -> Iterator[str]:
    """Yield a line for every figure that is not as the trace has it."""
    origin = origin_of(scenario)
    epoch = scenario.epoch_at(origin)
    if epoch is None:
        yield "there is no epoch at the origin"
        return
    columns = trace_columns()
    held, awaited = held_by_minute(epoch, origin), awaited_by_minute(epoch, origin)
    yield from _differing_minutes("allocated", held, columns["running_gpu_num"])
    yield from _differing_minutes("pending", awaited, columns["pending_gpu_num"])
    yield from _differing_sums(held, awaited)
    for team, quotas in columns["total_gpu_num"].items():
        steps = epoch.hard[team.lower()]
        if any(steps.at(origin + 60 * n) != quota for n, quota in enumerate(quotas)):
            yield f"{team}: quota differs"


def _differing_minutes(what: str, found: Minutes, wanted: Minutes) -> Iterator[str]:
    for team, values in wanted.items():
        got = found.get(team.lower(), [0] * MINUTES)
        wrong = sum(a != b for a, b in zip(got, values, strict=True))
        if wrong:
            yield f"{team}: {what} differs in {wrong} of {MINUTES} minutes"


def _differing_sums(held: Minutes, awaited: Minutes) -> Iterator[str]:
    known = truths()
    for team, figures in known["vc"].items():
        for name, found in (("allocated_gpu_hours", held), ("pending_gpu_hours", awaited)):
            hours = sum(found.get(team.lower(), [])) / _HOUR_MINUTES
            if abs(hours - figures[name]) > _TOLERANCE:
                yield f"{team}: {name} is {hours}, not {figures[name]}"
    for name, found in (("allocated_gpu_hours", held), ("pending_gpu_hours", awaited)):
        hours = sum(map(sum, found.values())) / _HOUR_MINUTES
        if abs(hours - known["cluster"][name]) > _TOLERANCE:
            yield f"cluster: {name} is {hours}, not {known['cluster'][name]}"


def main() -> int:
    wrong = list(findings(load("helios", now=NOW)))
    known = truths()["cluster"]
    for line in wrong:
        sys.stdout.write(f"{line}\n")
    sys.stdout.write(
        f"helios: 16 teams x {MINUTES} minutes; {known['allocated_gpu_hours']} GPU-hours held, "
        f"{known['pending_gpu_hours']} pending: {'DIFFERENT' if wrong else 'equal'}\n"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
