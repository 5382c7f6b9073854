"""The figures of fairness at its largest, on both databases."""

from collections.abc import Iterator
from pathlib import Path

from tests.bench.figures import Figure, at_most, stated
from tests.bench.programs import on_both

MOST_COMPUTE_SECONDS = 1.0
MOST_READ_SECONDS = 0.5


def shared_out(teams: int, tiers: int, days: int, folder: Path) -> Iterator[Figure]:
    """Yield what an hour of so many teams and tiers takes, and reads of so many days."""
    for database, found in on_both("fairness", teams, tiers, days, folder=folder):
        size = f"{database}: {teams:,} teams × {tiers} tiers"
        most = MOST_COMPUTE_SECONDS
        yield at_most(f"{size}: an hour of fairness computed", found["compute_seconds"], most, "s")
        yield stated(f"{size}: an hour's measures alone", found["measures_seconds"], "s")
        yield stated(f"{size}: a day of fairness summed, of one hour", found["roll_seconds"], "s")
        names = {"overview": "all tiers", "tier": "one tier"}
        for name, words in names.items():
            took = found[f"{name}_seconds"] * 1000
            yield at_most(
                f"{size}, {days} days: read of {words}", took, MOST_READ_SECONDS * 1000, "ms"
            )
        for name, seconds in found["pages"].items():
            yield at_most(
                f"{size}, {days} days: page of {name}, processor time",
                seconds * 1000,
                MOST_READ_SECONDS * 1000,
                "ms",
            )
