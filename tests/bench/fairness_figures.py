"""The figures of fairness at its largest, on both databases."""

from collections.abc import Iterator
from pathlib import Path

from tests.bench.figures import Figure, at_most, stated
from tests.bench.page_figures import DATABASES
from tests.bench.programs import manage, worker
from tests.servers import temporary_postgres

MOST_COMPUTE_SECONDS = 1.0
MOST_READ_SECONDS = 0.5


def shared_out(teams: int, tiers: int, days: int, folder: Path) -> Iterator[Figure]:
    """Yield what an hour of so many teams and tiers takes, and reads of so many days."""
    amount = (teams, tiers, days)
    yield from _on(f"sqlite:///{folder / 'fairness.db'}", amount)
    with temporary_postgres() as url:
        yield from _on(url, amount)


def _on(url: str, amount: tuple[int, int, int]) -> Iterator[Figure]:
    manage("migrate", "--verbosity", "0", DATABASE_URL=url)
    found = worker("fairness", *amount, DATABASE_URL=url)
    size = f"{DATABASES[found['database']]}: {amount[0]:,} teams × {amount[1]} tiers"
    most = MOST_COMPUTE_SECONDS
    yield at_most(f"{size}: an hour of fairness computed", found["compute_seconds"], most, "s")
    yield stated(f"{size}: an hour's measures alone", found["measures_seconds"], "s")
    yield stated(f"{size}: a day of fairness summed, of one hour", found["roll_seconds"], "s")
    names = {"overview": "all tiers", "tier": "one tier"}
    for name, words in names.items():
        took = found[f"{name}_seconds"] * 1000
        yield at_most(
            f"{size}, {amount[2]} days: read of {words}", took, MOST_READ_SECONDS * 1000, "ms"
        )
    for name, seconds in found["pages"].items():
        yield at_most(
            f"{size}, {amount[2]} days: page of {name}, processor time",
            seconds * 1000,
            MOST_READ_SECONDS * 1000,
            "ms",
        )
